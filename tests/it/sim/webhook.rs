//! Admission webhooks: the same one, reached from both sides.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, routing::post};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tidegate::{
    sim::Server,
    testbed::{Authority, Options},
};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_rustls::TlsAcceptor;

use super::both::{Ask, Both};
use crate::harness;

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

fn one(name: &str) -> String {
    format!("{MAPS}/{name}")
}

/// What the webhook was asked, without what a server makes up.
type Heard = Arc<Mutex<Vec<Value>>>;

/// A webhook that denies what is labelled `deny`, and adds `added: yes` where it may mutate.
struct Webhook {
    port: u16,
    heard: Heard,
    authority: Authority,
    _tasks: JoinSet<()>,
}

impl Webhook {
    async fn start(service: &str) -> Webhook {
        tidegate::tls::install();
        let authority = Authority::new("webhooks").unwrap();
        let identity = authority.server(service, &[service]).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Heard::default();
        let router = Router::new()
            .route("/validate", post(validate))
            .route("/mutate", post(mutate))
            .with_state(Arc::clone(&heard));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = TowerToHyperService::new(router);
                    let _ =
                        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Webhook { port, heard, authority, _tasks: tasks }
    }

    fn heard(&self) -> Vec<Value> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }
}

async fn validate(State(heard): State<Heard>, Json(review): Json<Value>) -> Json<Value> {
    hear(&heard, &review["request"]);
    let request = &review["request"];
    let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
    let denied = object["metadata"]["labels"]["deny"].as_str();
    let mut response = json!({"uid": request["uid"], "allowed": denied.is_none()});
    match denied {
        Some("plain") => response["status"] = json!({"message": "not this one"}),
        Some("coded") => response["status"] = json!({"message": "too late", "code": 409, "reason": "Conflict"}),
        _ => {}
    }
    Json(json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}))
}

async fn mutate(State(heard): State<Heard>, Json(review): Json<Value>) -> Json<Value> {
    hear(&heard, &review["request"]);
    let patch = json!([{"op": "add", "path": "/data", "value": {"added": "yes"}}]).to_string();
    let response = json!({
        "uid": review["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch),
    });
    Json(json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}))
}

fn hear(heard: &Heard, request: &Value) {
    let name = |object: &Value| object["metadata"]["name"].clone();
    heard.lock().unwrap().push(json!({
        "kind": request["kind"], "resource": request["resource"], "subResource": request["subResource"],
        "name": request["name"], "namespace": request["namespace"], "operation": request["operation"],
        "dryRun": request["dryRun"], "object": name(&request["object"]), "oldObject": name(&request["oldObject"]),
        "data": request["object"]["data"],
    }));
}

fn configuration(kind: &str, namespace: &str, webhook: &Webhook, path: &str, label: &str, policy: &str) -> Value {
    let service = json!({"name": "hook", "namespace": namespace, "path": path});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": format!("{namespace}-{label}")},
        "webhooks": [{
            "name": format!("{label}.example.org"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"caBundle": STANDARD.encode(webhook.authority.pem()), "service": service},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": "*",
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }],
            "objectSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "matchPolicy": "Equivalent", "timeoutSeconds": 5, "failurePolicy": policy,
        }],
    })
}

fn map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_asked_the_same_and_their_answers_mean_the_same() {
    let plane = harness::dedicated(Options { name: "hooks".to_owned(), ..Options::default() }).await;
    let both = Both::of(plane.client().unwrap()).await;
    let service = format!("hook.{}.svc", both.namespace);
    // One for each side, so that it can be told who asked.
    let hooks = [Webhook::start(&service).await, Webhook::start(&service).await];
    plane.webhooks().lead_to(Some(hooks[0].port));
    both.server.lead_to("hook", &both.namespace, Some(hooks[1].port));
    // The real server looks for the Service before it calls.
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": both.namespace},
        "spec": {"ports": [{"port": 443}]},
    });
    harness::apply(&both.real, &object).await;
    for (client, hook) in [(&both.real, &hooks[0]), (&both.simulated, &hooks[1])] {
        for (kind, path, label, policy) in [
            ("ValidatingWebhookConfiguration", "/validate", "watched", "Fail"),
            ("MutatingWebhookConfiguration", "/mutate", "mutated", "Fail"),
            ("ValidatingWebhookConfiguration", "/none", "ignored", "Ignore"),
        ] {
            harness::apply(client, &configuration(kind, &both.namespace, hook, path, label, policy)).await;
        }
        // The real server learns of them in its own time.
        harness::eventually("the webhook is asked", harness::SOON, async || {
            Ask::post(&format!("{MAPS}?dryRun=All"), &map("probe", json!({"watched": "yes"})))
                .send(client, &both.namespace, &[])
                .await;
            Ask::post(&format!("{MAPS}?dryRun=All"), &map("probe", json!({"mutated": "yes"})))
                .send(client, &both.namespace, &[])
                .await;
            let heard = hook.heard();
            if heard.len() == 2 { Ok(()) } else { Err(format!("{heard:?}")) }
        })
        .await;
    }
    both.check(&[
        Ask::post(MAPS, &map("free", json!({"other": "yes", "deny": "plain"}))),
        Ask::post(MAPS, &map("a", json!({"watched": "yes"}))),
        Ask::post(&format!("{MAPS}?dryRun=All"), &map("b", json!({"watched": "yes"}))),
        Ask::post(MAPS, &map("b", json!({"watched": "yes", "deny": "plain"}))),
        Ask::post(MAPS, &map("b", json!({"watched": "yes", "deny": "coded"}))),
        Ask::post(MAPS, &map("b", json!({"watched": "yes", "deny": "silently"}))),
        Ask::merge(&one("a"), &json!({"data": {"x": "1"}})),
        Ask::apply(&format!("{}?fieldManager=m", one("c")), &map("c", json!({"watched": "yes"}))),
        Ask::merge(&one("a"), &json!({"metadata": {"labels": {"watched": null}}})),
        Ask::merge(&one("a"), &json!({"metadata": {"labels": {"watched": "yes", "deny": "plain"}}})),
        Ask::delete(&one("c")),
        Ask::post(MAPS, &map("m", json!({"mutated": "yes"}))),
        Ask::merge(&one("m"), &json!({"metadata": {"labels": {"watched": "yes"}}})),
        Ask::post(MAPS, &map("i", json!({"ignored": "yes"}))),
    ])
    .await;
    assert_eq!(json!(hooks[1].heard()), json!(hooks[0].heard()), "the simulator asks what the server asks");
    hooks.iter().for_each(|hook| drop(hook.heard()));
    plane.webhooks().lead_to(None);
    both.server.lead_to("hook", &both.namespace, None);
    let unreachable = Ask::post(MAPS, &map("u", json!({"watched": "yes"}))).loosely();
    let answers: Vec<Value> = vec![unreachable.send(&both.simulated, &both.namespace, &[]).await.body];
    assert_eq!(answers[0]["reason"], "InternalError");
    assert!(answers[0]["message"].as_str().unwrap().contains("failed calling webhook \"watched.example.org\""));
    let _: &Server = &both.server;
}
