//! Admission webhooks: the same one, reached from both sides.

use std::sync::{Arc, Mutex};

use axum::{Json, Router, extract::State, routing::post};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use kube_sim::{Authority, Server};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use tidegate_testbed::Options;
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
        tidegate_process::tls::install();
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
            .route("/odd", post(odd))
            .route("/slow", post(slow))
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

/// Answers in the way that the object's label asks for.
async fn odd(State(heard): State<Heard>, Json(review): Json<Value>) -> ([(&'static str, &'static str); 1], String) {
    let request = &review["request"];
    hear(&heard, request);
    let patch = |text: &str| json!({"patchType": "JSONPatch", "patch": STANDARD.encode(text)});
    let denied = |status: Value| json!({"allowed": false, "status": status});
    let object = if request["object"].is_null() { &request["oldObject"] } else { &request["object"] };
    let labels = &object["metadata"]["labels"];
    let way = ["odd", "bent", "lenient"].iter().find_map(|label| labels[*label].as_str()).unwrap_or_default();
    let more = match way {
        "warns" => json!({"warnings": ["first \"one\"", "second", "second"], "auditAnnotations": {"a": "b"}}),
        "warns-and-denies" => json!({"allowed": false, "warnings": ["no"], "status": {"message": "not this one"}}),
        "of-another" => json!({"uid": "another"}),
        "patches" => patch("[]"),
        "has-a-type-only" => json!({"patchType": "JSONPatch"}),
        "has-a-patch-only" => json!({"patch": STANDARD.encode("[]")}),
        "patches-in-another-way" => json!({"patchType": "Other", "patch": STANDARD.encode("[{}]")}),
        "patches-in-no-way" => json!({"patchType": "", "patch": STANDARD.encode("[{}]")}),
        "is-no-json" => patch("x"),
        "is-no-list" => patch("{}"),
        "is-no-operation" => patch("[7]"),
        "does-not-fit" => patch(r#"[{"op":"remove","path":"/data/none"}]"#),
        "breaks-a-type" => patch(r#"[{"op":"add","path":"/data","value":[]}]"#),
        "breaks-the-object" => patch(r#"[{"op":"add","path":"/data","value":{"a b":"c"}}]"#),
        "with-details" => denied(json!({
            "message": "no", "reason": "Forbidden", "code": 403, "details": {"name": "x", "causes": [{"field": "a"}]},
        })),
        "with-a-reason" => denied(json!({"reason": "Forbidden"})),
        "with-success" => denied(json!({"code": 200, "message": "fine", "status": "Success"})),
        _ => json!({}),
    };
    let mut response = json!({"uid": request["uid"], "allowed": true});
    response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut answer = json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response});
    match way {
        "absent" => answer["response"] = json!(null),
        "of-another-kind" => answer["kind"] = json!("Other"),
        "of-another-version" => answer["apiVersion"] = json!("admission.k8s.io/v2"),
        "list" => return ([JSON], "[]".to_owned()),
        _ => {}
    }
    ([JSON], answer.to_string())
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// Never answers.
async fn slow() -> String {
    std::future::pending().await
}

fn hear(heard: &Heard, request: &Value) {
    let name = |object: &Value| object["metadata"]["name"].clone();
    let mut options = request["options"].clone();
    if let Some(uid) = options.pointer_mut("/preconditions/uid") {
        *uid = json!("MADE UP");
    }
    heard.lock().unwrap().push(json!({
        "kind": request["kind"], "resource": request["resource"], "subResource": request["subResource"],
        "requestKind": request["requestKind"], "requestResource": request["requestResource"],
        "requestSubResource": request["requestSubResource"], "version": request["object"]["apiVersion"],
        "oldVersion": request["oldObject"]["apiVersion"],
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
        with(json!([condition("a", "object.x ==")])),
        with(json!([condition("a", "other == 1")])),
        with(json!([condition("a", "object.foo()")])),
        with(json!([condition("a", "request.operation == 1")])),
        with(json!([condition("a", "request.foo == 'a'")])),
        with(json!([condition("a", "request.userInfo.groups == 'a'")])),
        with(json!([condition("a", "  request.name")])),
        with(json!([condition("a", "object.x")])),
        with(json!([condition("a", "has(object)")])),
        with(json!([condition("a", "params == null")])),
        with(json!([condition("a", "true"), condition("a", "true")])),
        with(json!([condition("a", "")])),
        with(json!([condition("", "true")])),
        with(json!([condition("a b", "true")])),
    ])
    .await;
}

/// Both sides, with a webhook for each, so that it can be told who asked.
async fn hooked(name: &str) -> (harness::Dedicated, Both, [Webhook; 2]) {
    let plane = harness::dedicated(Options { name: name.to_owned(), ..Options::default() }).await;
    let both = Both::create(plane.client().unwrap()).await;
    let service = format!("hook.{}.svc", both.namespace);
    let hooks = [Webhook::start(&service).await, Webhook::start(&service).await];
    plane.webhooks().lead_to(Some(hooks[0].port));
    both.server.lead_to("hook", &both.namespace, Some(hooks[1].port));
    // The real server looks for the Service before it calls.
    let object = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": both.namespace},
        "spec": {"ports": [{"port": 443}]},
    });
    harness::apply(&both.real, &object).await;
    (plane, both, hooks)
}

/// A kind with two versions, and status.
fn twins() -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": schema, "subresources": {"status": {}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "twins.hook.example.com"},
        "spec": {
            "group": "hook.example.com", "scope": "Namespaced", "names": {"kind": "Twin", "plural": "twins"},
            "versions": [version("v1", true), version("v2", false)],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_chosen_by_rules_and_odd_answers_are_told() {
    let (plane, both, hooks) = hooked("odd-hooks").await;
    both.install(&twins()).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (validating, mutating) = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration");
    let of_twins = json!([{
        "apiGroups": ["hook.example.com"], "apiVersions": ["v1"], "resources": ["twins"], "operations": ["*"],
    }]);
    for (client, hook) in [(&both.real, &hooks[0]), (&both.simulated, &hooks[1])] {
        let configured = async |kind: &str, path: &str, label: &str, policy: &str, more: Value| {
            let mut object = configuration(kind, &both.namespace, hook, path, label, policy);
            object["webhooks"][0].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            harness::apply(client, &object).await;
        };
        let scoped = |scope: &str| {
            json!([{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": scope, "operations": ["*"],
            }])
        };
        let selector = |operator: &str| {
            json!({"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": operator, "values": [both.namespace]},
            ]})
        };
        let url = json!({
            "url": format!("https://localhost:{closed}/"), "caBundle": STANDARD.encode(hook.authority.pem()),
        });
        let of_status = json!([{
            "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/status"], "operations": ["UPDATE"],
        }]);
        let of_all = json!([{
            "apiGroups": ["hook.example.com"], "apiVersions": ["*"], "resources": ["twins/*"], "operations": ["*"],
        }]);
        configured(validating, "/odd", "odd", "Fail", json!({})).await;
        configured(mutating, "/odd", "bent", "Fail", json!({})).await;
        configured(mutating, "/odd", "lenient", "Ignore", json!({})).await;
        configured(validating, "/slow", "slow", "Fail", json!({"timeoutSeconds": 1})).await;
        configured(validating, "/slow", "slowly", "Ignore", json!({"timeoutSeconds": 1})).await;
        configured(validating, "/", "closed", "Fail", json!({"clientConfig": url})).await;
        configured(validating, "/", "closing", "Ignore", json!({"clientConfig": url})).await;
        configured(validating, "/validate", "namespaced", "Fail", json!({"rules": scoped("Namespaced")})).await;
        configured(validating, "/validate", "cluster", "Fail", json!({"rules": scoped("Cluster")})).await;
        configured(validating, "/validate", "here", "Fail", json!({"namespaceSelector": selector("In")})).await;
        configured(validating, "/validate", "elsewhere", "Fail", json!({"namespaceSelector": selector("NotIn")})).await;
        configured(validating, "/validate", "dry", "Fail", json!({"sideEffects": "NoneOnDryRun"})).await;
        configured(validating, "/validate", "stately", "Fail", json!({"rules": of_status})).await;
        configured(validating, "/validate", "whole", "Fail", json!({"rules": of_all})).await;
        configured(validating, "/validate", "alike", "Fail", json!({"rules": of_twins})).await;
        configured(mutating, "/mutate", "changed", "Fail", json!({"rules": of_twins})).await;
        configured(validating, "/validate", "exact", "Fail", json!({"rules": of_twins, "matchPolicy": "Exact"})).await;
        // The real server learns of them in its own time; the last one is known when all are.
        harness::eventually("the webhooks are asked", harness::SOON, async || {
            let twin = json!({
                "apiVersion": "hook.example.com/v1", "kind": "Twin",
                "metadata": {"name": "probe", "labels": {"exact": "yes", "alike": "yes", "changed": "yes"}},
            });
            let twins = "/apis/hook.example.com/v1/namespaces/{ns}/twins?dryRun=All";
            Ask::post(twins, &twin).send(client, &both.namespace, &[]).await;
            let labels = json!({"odd": "x", "bent": "x", "lenient": "x", "namespaced": "x", "here": "x", "dry": "x"});
            Ask::post(&format!("{MAPS}?dryRun=All"), &map("probe", labels)).send(client, &both.namespace, &[]).await;
            let heard = hook.heard();
            if heard.len() == 9 { Ok(()) } else { Err(format!("{heard:?}")) }
        })
        .await;
    }
    let mut asks = Vec::new();
    for way in [
        "well",
        "warns",
        "warns-and-denies",
        "of-another",
        "patches",
        "has-a-type-only",
        "with-details",
        "with-a-reason",
        "with-success",
        "absent",
        "of-another-kind",
        "of-another-version",
        "list",
    ] {
        asks.push(Ask::post(MAPS, &map(way, json!({"odd": way}))));
    }
    let bent = [
        "well",
        "warns",
        "of-another",
        "patches",
        "has-a-type-only",
        "has-a-patch-only",
        "patches-in-another-way",
        "patches-in-no-way",
        "is-no-json",
        "is-no-list",
        "is-no-operation",
        "breaks-the-object",
        "absent",
    ];
    for label in ["bent", "lenient"] {
        asks.extend(bent.iter().map(|way| Ask::post(MAPS, &map(&format!("{label}-{way}"), json!({label: way})))));
    }
    // Here the words are the libraries'.
    for way in ["does-not-fit", "breaks-a-type"] {
        asks.push(Ask::post(MAPS, &map(way, json!({"bent": way}))).loosely());
    }
    asks.push(Ask::delete(&one("warns")));
    asks.push(Ask::post(MAPS, &map("slow", json!({"slow": "yes"}))));
    asks.push(Ask::post(MAPS, &map("closed", json!({"closed": "yes"}))).loosely());
    for label in ["slowly", "closing", "namespaced", "cluster", "here", "elsewhere"] {
        asks.push(Ask::post(MAPS, &map(label, json!({label: "yes"}))));
    }
    asks.push(Ask::post(&format!("{MAPS}?dryRun=All"), &map("dry", json!({"dry": "yes"}))));
    both.check(&asks).await;
    same_once_sorted(&hooks);

    let twin = |version: &str, name: &str, labels: Value| {
        json!({
            "apiVersion": format!("hook.example.com/{version}"), "kind": "Twin",
            "metadata": {"name": name, "labels": labels}, "spec": {"x": 1},
        })
    };
    let at = |version: &str| format!("/apis/hook.example.com/{version}/namespaces/{{ns}}/twins");
    let mut asks = Vec::new();
    for version in ["v1", "v2"] {
        for label in ["stately", "whole", "alike", "exact", "changed"] {
            let name = format!("{label}-{version}");
            let path = format!("{}/{name}", at(version));
            asks.extend([
                Ask::post(&at(version), &twin(version, &name, json!({label: "yes"}))),
                Ask::merge(&path, &json!({"spec": {"x": 2}})),
                Ask::merge(&format!("{path}/status"), &json!({"status": {"y": 1}})),
                Ask::merge(&path, &json!({"metadata": {"labels": {"deny": "plain"}}})),
                Ask::merge(&format!("{path}/status"), &json!({"metadata": {"labels": {"deny": "plain"}}})),
                Ask::delete(&path),
            ]);
        }
    }
    both.check(&asks).await;
    same_once_sorted(&hooks);
    drop(plane);
}

/// As [`same`], where several webhooks were asked side by side.
#[track_caller]
fn same_once_sorted(hooks: &[Webhook; 2]) {
    for hook in hooks {
        hook.heard.lock().unwrap().sort_by_key(Value::to_string);
    }
    same(hooks);
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_asked_the_same_and_their_answers_mean_the_same() {
    let (plane, both, hooks) = hooked("hooks").await;
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
