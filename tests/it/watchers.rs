//! Watchers in KCP, and the VirtualServices that they get.

use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    harness::{self, SOON, eventually},
    source::World,
    stage::{Stage, read, scenarios},
};

scenarios! {
    a_virtual_service_of_others_is_left_alone_and_one_of_lifecycle_manager_is_taken_over,
    a_watcher_says_that_istio_is_not_installed_and_goes_on_once_it_is;
    on real servers:
    i24_routes_follow_watchers_and_gateways_and_two_do_not_share_a_path,
}

async fn a_virtual_service_of_others_is_left_alone_and_one_of_lifecycle_manager_is_taken_over() {
    let mut world = World::new("watcher").await;
    let (client, namespace) = (world.client.clone(), world.namespace.clone());
    world.server.install_istio(&["gateways", "virtualservices"]).await;
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
    assert!(
        refused.contains(&format!("VirtualService {namespace}/theirs exists and is not managed by Tidegate")),
        "{refused}"
    );
    assert!(refused.contains("testbed manages it"), "{refused}");
    let next = format!("kubectl annotate virtualservice -n {namespace} theirs tidegate.dev/adopt=true");
    assert!(refused.contains(&next), "{refused}");
    assert_eq!(hosts("theirs").await, json!(["shop.example.org"]));

    annotate(&client, &virtual_service(&namespace, "theirs", &json!([])), "tidegate.dev/adopt", "true").await;
    annotate(&client, &watcher(&namespace, "theirs"), "tidegate.dev/reconcile-requested-at", "now").await;
    state("theirs", "Ready").await;
    assert_eq!(hosts("theirs").await, json!(["watcher.example.org"]));
}

/// I24: a route changes with its Watcher and the Gateway, and is restored after edits and deletions. If two Watchers
/// want the same path, the older one has it until it is deleted.
async fn i24_routes_follow_watchers_and_gateways_and_two_do_not_share_a_path() {
    let mut world = World::new("routes").await;
    let (client, namespace) = (world.client.clone(), world.namespace.clone());
    world.server.install_istio(&["gateways", "virtualservices"]).await;
    harness::apply(&client, &gateway(&namespace)).await;
    harness::apply(&client, &watcher(&namespace, "first")).await;
    world.start().await;

    let route = async |name: &str, what: &str, holds: &dyn Fn(&Value) -> bool| {
        eventually(&format!("route {name}: {what}"), SOON, async || {
            let found = read(&client, "VirtualService", &namespace, name).await.unwrap_or_default();
            if holds(&found["spec"]) { Ok(found) } else { Err(found["spec"].to_string()) }
        })
        .await
    };
    let state = async |name: &str, state: &str| {
        eventually(&format!("{name} is {state}"), SOON, async || {
            let found = read(&client, "Watcher", &namespace, name).await.unwrap_or_default();
            if found["status"]["state"] == state { Ok(found) } else { Err(found["status"].to_string()) }
        })
        .await
    };
    let port = |spec: &Value| spec["http"][0]["route"][0]["destination"]["port"]["number"].clone();
    route("first", "is made", &|spec| port(spec) == 8082).await;

    let change = json!({"spec": {"serviceInfo": {"name": "events", "namespace": namespace, "port": 9090}}});
    merge(&client, &watcher(&namespace, "first"), &change).await;
    route("first", "follows the Watcher", &|spec| port(spec) == 9090).await;
    let mut moved = gateway(&namespace);
    moved["spec"]["servers"][0]["hosts"] = json!(["moved.example.org"]);
    harness::apply(&client, &moved).await;
    route("first", "follows the Gateway", &|spec| spec["hosts"] == json!(["moved.example.org"])).await;
    let edit = json!({"spec": {"hosts": ["stolen.example.org"]}});
    merge(&client, &virtual_service(&namespace, "first", &json!([])), &edit).await;
    route("first", "is as it was", &|spec| spec["hosts"] == json!(["moved.example.org"])).await;
    delete(&client, &virtual_service(&namespace, "first", &json!([]))).await;
    route("first", "is made again", &|spec| port(spec) == 9090).await;

    // Another Watcher for the same path. Both may have been created within one second; then the name decides.
    let mut second = watcher(&namespace, "second");
    second["spec"]["serviceInfo"]["name"] = json!("others");
    harness::apply(&client, &second).await;
    let refused = state("second", "Error").await["status"]["conditions"].to_string();
    assert!(refused.contains(&format!("Watcher {namespace}/first has the same manager")), "{refused}");
    assert!(read(&client, "VirtualService", &namespace, "second").await.is_none());
    // A Watcher for the same service is no conflict, but all three conditions name the others.
    let mut third = watcher(&namespace, "third");
    third["spec"]["serviceInfo"] = change["spec"]["serviceInfo"].clone();
    harness::apply(&client, &third).await;
    state("third", "Ready").await;
    let others = async |name: &str, others: &[&str]| {
        let others: Vec<String> = others.iter().map(|other| format!("Watcher {namespace}/{other}")).collect();
        let expected = (!others.is_empty()).then(|| {
            format!("this Watcher and {} share one event path, because their manager is the same", others.join(", "))
        });
        eventually(&format!("{name} is told"), SOON, async || {
            let found = read(&client, "Watcher", &namespace, name).await.unwrap_or_default();
            let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let shared = conditions.iter().find(|condition| condition["type"] == "tidegate.dev/SharedManager");
            let message = shared.and_then(|shared| shared["message"].as_str());
            if message == expected.as_deref() { Ok(()) } else { Err(format!("{message:?}")) }
        })
        .await;
    };
    others("first", &["second", "third"]).await;
    others("second", &["first", "third"]).await;
    others("third", &["first", "second"]).await;
    delete(&client, &third).await;
    others("first", &["second"]).await;
    delete(&client, &watcher(&namespace, "first")).await;
    route("second", "is made once the path is free", &|spec| port(spec) == 8082).await;
    state("second", "Ready").await;
    others("second", &[]).await;
    eventually("the first and its route are gone", SOON, async || {
        let watcher = read(&client, "Watcher", &namespace, "first").await;
        let route = read(&client, "VirtualService", &namespace, "first").await;
        if watcher.is_none() && route.is_none() { Ok(()) } else { Err(format!("{watcher:?} {route:?}")) }
    })
    .await;
}

async fn merge(client: &kube::Client, object: &Value, patch: &Value) {
    let api = harness::api_of(client, object).await.unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    api.patch(name, &kube::api::PatchParams::default(), &kube::api::Patch::Merge(patch)).await.unwrap();
}

async fn delete(client: &kube::Client, object: &Value) {
    let api = harness::api_of(client, object).await.unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    api.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
}

/// One condition names the missing part. Once it is installed, the Watcher becomes ready without a restart.
async fn a_watcher_says_that_istio_is_not_installed_and_goes_on_once_it_is() {
    let stage = Stage::with(0, Extent::Server, &[], &[]).await;
    let kcp = &stage.kcp;
    for crd in ["gateways.networking.istio.io", "virtualservices.networking.istio.io"] {
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": crd},
        });
        delete(kcp, &crd).await;
        let name = crd["metadata"]["name"].as_str().unwrap();
        stage.until_gone(kcp, "CustomResourceDefinition", "", name).await;
    }
    harness::apply(kcp, &watcher("kcp-system", "first")).await;
    stage.start();
    let condition = |found: &Value, type_: &str| {
        let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
        format!("{} {}", found["status"].as_str().unwrap_or("no"), found["message"].as_str().unwrap_or("condition"))
    };
    let said = |kind: &str| {
        format!(
            "False the control plane serves no {kind}s: install Istio's CRDs, or have runtimes send to this Tidegate \
             (--listener-address)"
        )
    };
    let until = async |what: &str, route: &str| {
        let holds = |found: &Value| condition(found, "tidegate.dev/Route") == route;
        stage.until(what, kcp, "Watcher", "kcp-system", "first", holds).await
    };
    let found = until("no Gateways are served", &said("Gateway")).await;
    assert_eq!(found["status"]["state"], "Error");
    assert_eq!(condition(&found, "VirtualService"), "False VirtualService is not configured", "upstream's words");

    stage.landscape.kcp.install_istio(&["gateways"]).await;
    until("none is there", "False no Gateway matches the selector of Watcher kcp-system/first").await;
    harness::apply(kcp, &gateway("kcp-system")).await;
    until("no VirtualServices are served", &said("VirtualService")).await;
    stage.landscape.kcp.install_istio(&["gateways", "virtualservices"]).await;
    let found = until("all is there", "no condition").await;
    assert_eq!(found["status"]["state"], "Ready");
    assert_eq!(condition(&found, "VirtualService"), "True VirtualService is configured");
    assert!(read(kcp, "VirtualService", "kcp-system", "first").await.is_some());
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
