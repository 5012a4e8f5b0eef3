//! A landscape with an agent in each runtime.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    harness,
    stage::{self, Stage, read},
};

pub(crate) const KYMA: &str = "operator.kyma-project.io/v1beta2";
pub(crate) const GATEWAY_HOST: &str = "listener.kcp.example.org";
/// The image of the agent, which is never pulled here.
pub(crate) const AGENT: [&str; 3] = [
    "--skr-watcher-image-registry=registry.example.org",
    "--skr-watcher-image-name=agent",
    "--skr-watcher-image-tag=1.0.0",
];

/// A Deployment of a module.
pub(crate) const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: cache, namespace: kyma-system}
spec:
  replicas: 1
  selector: {matchLabels: {app: cache}}
  template:
    metadata: {labels: {app: cache}}
    spec: {containers: [{name: manager, image: "registry.example.org/cache:1"}]}
"#;

/// Every object of an agent in a runtime, in the order of deletion.
pub(crate) const OBJECTS: [(&str, &str, &str); 10] = [
    ("ValidatingWebhookConfiguration", "", "skr-webhook"),
    ("Deployment", "kyma-system", "skr-webhook"),
    ("Service", "kyma-system", "skr-webhook"),
    ("Service", "kyma-system", "skr-webhook-metrics"),
    ("PriorityClass", "", "skr-webhook-priority"),
    ("Secret", "kyma-system", "skr-webhook-tls"),
    ("NetworkPolicy", "kyma-system", "kyma-project.io--seed-to-watcher"),
    ("NetworkPolicy", "kyma-system", "kyma-project.io--watcher-to-apiserver"),
    ("NetworkPolicy", "kyma-system", "kyma-project.io--metrics-to-watcher"),
    ("NetworkPolicy", "kyma-system", "kyma-project.io--watcher-to-dns"),
];

/// A Kyma with an id and a domain, as a certificate needs.
pub(crate) fn kyma(name: &str, modules: &[&str]) -> String {
    stage::kyma(name, modules).replace(
        &format!("{{name: {name}, namespace: kcp-system}}"),
        &format!(
            "{{name: {name}, namespace: kcp-system, labels: {{kyma-project.io/runtime-id: id-of-{name}}}, annotations: \
             {{skr-domain: {name}.example.org}}}}"
        ),
    )
}

/// A stage with a module `cache` in each runtime, and `more` files. The daemon does not run yet.
pub(crate) async fn stage(skrs: usize, extent: Extent, more: &[(&str, String)], arguments: &[&str]) -> Stage {
    let files = files(skrs, more);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    prepared(Stage::with(skrs, extent, &files, arguments).await).await
}

/// The same, always on real servers.
pub(crate) async fn real_stage(skrs: usize, extent: Extent, more: &[(&str, String)], arguments: &[&str]) -> Stage {
    let files = files(skrs, more);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    prepared(Stage::real(skrs, extent, &files, arguments).await).await
}

fn files(skrs: usize, more: &[(&str, String)]) -> Vec<(String, String)> {
    let mut files = stage::module("cache", "1.0.0", "one");
    files.push(("modules/cache/1.0.0/objects/crd.yaml".to_owned(), stage::THING_CRD.to_owned()));
    files.push(("modules/cache/release.yaml".to_owned(), stage::release("cache", &[("regular", "1.0.0")])));
    for name in stage::KYMAS.iter().take(skrs) {
        files.push((format!("kymas/{name}.yaml"), kyma(name, &["cache"])));
    }
    files.extend(more.iter().map(|(path, text)| ((*path).to_owned(), text.clone())));
    files
}

/// Adds what every stage of these needs.
pub(crate) async fn prepared(stage: Stage) -> Stage {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    harness::apply(&stage.kcp, &namespace).await;
    stage
}

/// The Gateway with the host that agents send to.
pub(crate) fn gateway(port: u16) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {
            "name": "klm-watcher", "namespace": "kcp-system",
            "labels": {"operator.kyma-project.io/watcher-gateway": "default"},
        },
        "spec": {"servers": [{
            "hosts": [GATEWAY_HOST],
            "port": {"number": port, "name": "https", "protocol": "HTTPS"},
            "tls": {"mode": "MUTUAL", "credentialName": "klm-istio-gateway"},
        }]},
    })
}

/// The Watcher of a manager.
pub(crate) fn watcher(name: &str, manager: &str, field: &str) -> Value {
    json!({
        "apiVersion": KYMA, "kind": "Watcher", "metadata": {"name": name, "namespace": "kcp-system"},
        "spec": {
            "manager": manager,
            "serviceInfo": {"name": format!("{manager}-events"), "namespace": "kcp-system", "port": 8082},
            "labelsToWatch": {"operator.kyma-project.io/watched-by": "kyma"},
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "field": field,
            "gateway": {"selector": {"matchLabels": {"operator.kyma-project.io/watcher-gateway": "default"}}},
        },
    })
}

/// The watch condition: status, reason and message.
pub(crate) fn watch_of(kyma: &Value) -> String {
    let conditions = kyma["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let watch = conditions.iter().find(|condition| condition["type"] == "tidegate.dev/Watch");
    watch.map_or_else(
        || "no condition".to_owned(),
        |found| {
            let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
            format!("{} {}: {}", text("status"), text("reason"), text("message"))
        },
    )
}

/// The status of a condition of a Kyma.
pub(crate) fn condition<'a>(kyma: &'a Value, type_: &str) -> &'a str {
    let conditions = kyma["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == type_));
    found.and_then(|found| found["status"].as_str()).unwrap_or_default()
}

/// Waits until the watch condition begins with a text, and returns the Kyma.
pub(crate) async fn until_watch(stage: &Stage, name: &str, begins: &str) -> Value {
    let what = format!("the watch of {name} is {begins}");
    stage.until(&what, &stage.kcp, "Kyma", "kcp-system", name, |kyma| watch_of(kyma).starts_with(begins)).await
}

/// The agent's objects that exist in a runtime.
pub(crate) async fn present(client: &kube::Client) -> Vec<String> {
    let mut found = Vec::new();
    for (kind, namespace, name) in OBJECTS {
        if read(client, kind, namespace, name).await.is_some() {
            found.push(format!("{kind} {name}"));
        }
    }
    found
}

/// Deletes an object.
pub(crate) async fn delete(client: &kube::Client, object: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    api.delete(object["metadata"]["name"].as_str().unwrap(), &DeleteParams::default()).await.expect("a delete");
}

/// Merges a patch into an object.
pub(crate) async fn merge(client: &kube::Client, object: &Value, patch: Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

/// The webhooks of a runtime.
pub(crate) async fn webhooks(client: &kube::Client) -> Vec<Value> {
    let found = read(client, "ValidatingWebhookConfiguration", "", "skr-webhook").await.unwrap_or_default();
    found["webhooks"].as_array().cloned().unwrap_or_default()
}
