//! Watchers in KCP, on a real API server: whose VirtualServices they get.

use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    harness::{self, SOON, eventually},
    source::World,
    stage::read,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_virtual_service_of_others_is_left_alone_and_one_of_lifecycle_manager_is_taken_over() {
    static CRDS: OnceCell<()> = OnceCell::const_new();
    let mut world = World::new("watcher").await;
    let (client, namespace) = (world.client.clone(), world.namespace.clone());
    CRDS.get_or_init(|| harness::install_istio_crds(&client)).await;
    harness::apply(&client, &gateway(&namespace)).await;
    for name in ["theirs", "former"] {
        harness::apply(&client, &watcher(&namespace, name)).await;
    }
    harness::apply(&client, &virtual_service(&namespace, "theirs", &json!([]))).await;
    let uid = read(&client, "Watcher", &namespace, "former").await.expect("there")["metadata"]["uid"].clone();
    let owner = json!([{
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher", "name": "former", "uid": uid,
    }]);
    harness::apply(&client, &virtual_service(&namespace, "former", &owner)).await;
    world.start().await;

    let hosts = async |name: &str| {
        let found = read(&client, "VirtualService", &namespace, name).await.unwrap_or_default();
        found["spec"]["hosts"].clone()
    };
    let state = async |name: &str, state: &str| {
        eventually(&format!("{name} is {state}"), SOON, async || {
            let found = read(&client, "Watcher", &namespace, name).await.unwrap_or_default();
            if found["status"]["state"] == state { Ok(found) } else { Err(found["status"].to_string()) }
        })
        .await
    };
    state("former", "Ready").await;
    assert_eq!(hosts("former").await, json!(["watcher.example.org"]));
    let refused = state("theirs", "Error").await["status"]["conditions"].to_string();
    assert!(refused.contains(&format!("VirtualService {namespace}/theirs exists and is not ours")), "{refused}");
    assert!(refused.contains("testbed manages it"), "{refused}");
    let next = format!("kubectl annotate virtualservice -n {namespace} theirs tidegate.dev/adopt=true");
    assert!(refused.contains(&next), "{refused}");
    assert_eq!(hosts("theirs").await, json!(["shop.example.org"]));

    annotate(&client, &virtual_service(&namespace, "theirs", &json!([])), "tidegate.dev/adopt", "true").await;
    annotate(&client, &watcher(&namespace, "theirs"), "tidegate.dev/reconcile-requested-at", "now").await;
    state("theirs", "Ready").await;
    assert_eq!(hosts("theirs").await, json!(["watcher.example.org"]));
}

async fn annotate(client: &kube::Client, object: &Value, key: &str, value: &str) {
    let api = harness::api_of(client, object).await.unwrap();
    let patch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

fn gateway(namespace: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": "events", "namespace": namespace, "labels": {"app": "watcher-gateway"}},
        "spec": {"servers": [{
            "hosts": ["watcher.example.org"],
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
            "tls": {"mode": "MUTUAL", "credentialName": "klm-istio-gateway"},
        }]},
    })
}

fn watcher(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
        "metadata": {
            "name": name, "namespace": namespace,
            "labels": {"operator.kyma-project.io/managed-by": "lifecycle-manager"},
        },
        "spec": {
            "serviceInfo": {"name": "events", "namespace": namespace, "port": 8082},
            "labelsToWatch": {"operator.kyma-project.io/watched-by": "kyma"},
            "field": "spec",
            "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
            "gateway": {"selector": {"matchLabels": {"app": "watcher-gateway"}}},
        },
    })
}

fn virtual_service(namespace: &str, name: &str, owners: &Value) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": {
            "hosts": ["shop.example.org"],
            "http": [{"route": [{"destination": {"host": "shop", "port": {"number": 80}}}]}],
        },
    })
}
