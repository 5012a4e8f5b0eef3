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
    let mut options = request["options"].clone();
    if let Some(uid) = options.pointer_mut("/preconditions/uid") {
        *uid = json!("MADE UP");
    }
    heard.lock().unwrap().push(json!({
        "kind": request["kind"], "resource": request["resource"], "subResource": request["subResource"],
        "name": request["name"], "namespace": request["namespace"], "operation": request["operation"],
        "dryRun": request["dryRun"], "object": name(&request["object"]), "oldObject": name(&request["oldObject"]),
        "data": request["object"]["data"], "options": options,
    }));
}

/// Conditions that choose what is asked about, by the label of the webhook.
fn conditions(label: &str) -> Value {
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    match label {
        "chosen" => json!([
            condition(
                "not-by-robot",
                "!(has(request.options.fieldManager) && request.options.fieldManager == 'robot')"
            ),
            condition(
                "changed",
                "request.operation != 'UPDATE' || !has(oldObject.data) || !has(object.data) || object.data != oldObject.data",
            ),
            condition("of-ours", "request.userInfo.username != 'nobody' && request.resource.resource == 'configmaps'"),
            condition("named", "request.name != 'spared' && (oldObject == null || oldObject.metadata.name != 'kept')"),
        ]),
        "hazy" | "hazed" => json!([
            condition("red", "object.data.color == 'red'"),
            condition("not-small", "object.data.size != 'small'"),
        ]),
        _ => json!([]),
    }
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
            "matchConditions": conditions(label), "matchPolicy": "Equivalent", "timeoutSeconds": 5,
            "failurePolicy": policy,
        }],
    })
}

fn map(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}})
}

/// The simulator has asked its webhook what the server has asked its own.
#[track_caller]
fn same(hooks: &[Webhook; 2]) {
    let [real, simulated] = hooks.each_ref().map(Webhook::heard);
    for (real, simulated) in real.iter().zip(&simulated) {
        assert_eq!(simulated, real);
    }
    assert_eq!(simulated.len(), real.len(), "{simulated:#?}\n{real:#?}");
}

fn chosen_by_conditions() -> Vec<Ask> {
    let chosen = |name: &str, data: Value| {
        let mut object = map(name, json!({"chosen": "yes"}));
        object["data"] = data;
        object
    };
    let hazy = |name: &str, label: &str, data: Value| {
        let mut object = map(name, json!({label: "yes"}));
        object["data"] = data;
        Ask::post(MAPS, &object)
    };
    let by = |manager: &str| format!("{MAPS}?fieldManager={manager}&fieldValidation=Strict");
    vec![
        Ask::post(&by("person"), &chosen("d", json!({"x": "1"}))),
        Ask::post(&by("robot"), &chosen("e", json!({"x": "1"}))),
        Ask::post(MAPS, &chosen("spared", json!({"x": "1"}))),
        Ask::post(MAPS, &chosen("kept", json!({"x": "1"}))),
        Ask::merge(&one("d"), &json!({"metadata": {"labels": {"other": "yes"}}})),
        Ask::merge(&format!("{}?fieldManager=person", one("d")), &json!({"data": {"x": "2"}})),
        Ask::apply(&format!("{}?fieldManager=robot&force=true", one("d")), &chosen("d", json!({"x": "3"}))),
        Ask::apply(&format!("{}?fieldManager=person&force=true", one("d")), &chosen("d", json!({"x": "4"}))),
        Ask::delete(&one("kept")),
        Ask::delete_with(
            &one("d"),
            &json!({
                "propagationPolicy": "Background", "gracePeriodSeconds": 0, "preconditions": {"uid": "{uid:0}"},
            }),
        ),
        Ask::delete(&format!("{}?propagationPolicy=Background&dryRun=All", one("e"))),
        hazy("h", "hazy", json!({"color": "red", "size": "large"})),
        hazy("i", "hazy", json!({"color": "blue"})),
        hazy("j", "hazy", json!({"color": "red"})),
        hazy("k", "hazy", json!({})),
        hazy("l", "hazed", json!({"color": "red", "size": "large"})),
        hazy("m", "hazed", json!({"color": "red"})),
    ]
}

/// Conditions that cannot be one are refused with the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn conditions_that_do_not_compile_are_refused() {
    const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";
    let both = Both::new().await;
    let with = |conditions: Value| {
        Ask::post(
            CONFIGURATIONS,
            &json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {"name": "conditions"},
                "webhooks": [{
                    "name": "one.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                    "clientConfig": {"url": "https://localhost/validate"}, "matchConditions": conditions,
                }],
            }),
        )
    };
    let condition = |name: &str, expression: &str| json!({"name": name, "expression": expression});
    both.check(&[
        with(json!([condition("a", "object != null && request.operation == 'CREATE'"), condition("b", "true")])),
        with(json!([condition("a", "object.x ==")])).loosely(),
        with(json!([condition("a", "other == 1")])).loosely(),
        with(json!([condition("a", "object.foo()")])).loosely(),
        with(json!([condition("a", "true"), condition("a", "true")])),
        with(json!([condition("a", "")])),
        with(json!([condition("", "true")])),
        with(json!([condition("a b", "true")])),
    ])
    .await;
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
            ("ValidatingWebhookConfiguration", "/validate", "chosen", "Fail"),
            ("ValidatingWebhookConfiguration", "/validate", "hazy", "Fail"),
            ("MutatingWebhookConfiguration", "/mutate", "hazed", "Ignore"),
        ] {
            harness::apply(client, &configuration(kind, &both.namespace, hook, path, label, policy)).await;
        }
        // The real server learns of them in its own time.
        harness::eventually("the webhook is asked", harness::SOON, async || {
            for label in ["watched", "mutated", "chosen", "hazy", "hazed"] {
                let mut probe = map("probe", json!({label: "yes"}));
                probe["data"] = json!({"color": "red", "size": "large"});
                Ask::post(&format!("{MAPS}?dryRun=All"), &probe).send(client, &both.namespace, &[]).await;
            }
            let heard = hook.heard();
            if heard.len() == 5 { Ok(()) } else { Err(format!("{heard:?}")) }
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
    same(&hooks);
    both.check(&chosen_by_conditions()).await;
    same(&hooks);
    plane.webhooks().lead_to(None);
    both.server.lead_to("hook", &both.namespace, None);
    let unreachable = Ask::post(MAPS, &map("u", json!({"watched": "yes"}))).loosely();
    let answers: Vec<Value> = vec![unreachable.send(&both.simulated, &both.namespace, &[]).await.body];
    assert_eq!(answers[0]["reason"], "InternalError");
    assert!(answers[0]["message"].as_str().unwrap().contains("failed calling webhook \"watched.example.org\""));
    let _: &Server = &both.server;
}
