//! From a change in a runtime to its resync: the real kube-apiserver asks the real agent, which tells the daemon.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::testbed::{Extent, free_port};

use super::{
    agent::Agent,
    world::{self, AGENT, delete, merge, until_watch, watcher},
};
use crate::{
    deploy,
    harness::{self, SOON, eventually},
    stage::{Stage, read},
};

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cache-a", "namespace": "kyma-system"}})
}

fn cluster_role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cache"}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cache", "namespace": "kyma-system"}})
}

/// Waits until an object in the first runtime is as `holds` says, and prints how long that took.
async fn back(stage: &Stage, since: Instant, object: &Value, what: &str, holds: impl Fn(&Value) -> bool) {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    stage.until(what, &stage.skrs[0], &kind, &namespace, &name, holds).await;
    eprintln!("{what} after {:.2?}", since.elapsed());
}

/// E39, end to end: what others change in a runtime is seen by its API server, told by the agent over TLS, and
/// mended by the daemon at once; with the agent stopped, after one interval.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_a_runtime_is_told_by_its_agent_and_mended_at_once() {
    let listener = free_port();
    let arguments = [
        format!("--events-tls-address=127.0.0.1:{listener}"),
        format!("--listener-address=localhost:{listener}"),
        // Nothing below is its doing.
        "--resync=2h".to_owned(),
    ];
    let arguments: Vec<&str> = AGENT.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let more = [("modules/cache/1.0.0/objects/deployment.yaml", world::DEPLOYMENT.to_owned())];
    let stage = world::stage(1, Extent::Node, &more, &arguments).await;
    // As it is shipped for a control plane without Istio.
    let shipped = deploy::objects("overlays/direct-mtls");
    let shipped = shipped.iter().find(|object| object["kind"] == "Watcher").expect("a Watcher");
    harness::apply(&stage.kcp, shipped).await;
    stage.start();
    let agent = Agent::start(&stage, 0, listener, &[]).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    let skr = &stage.skrs[0];
    let watcher = stage
        .until("the Watcher is Ready", &stage.kcp, "Watcher", "kcp-system", "klm-watcher", |watcher| {
            watcher["status"]["state"] == "Ready"
        })
        .await;
    let said = &watcher["status"]["conditions"][0]["message"];
    assert!(said.as_str().unwrap_or_default().starts_with("VirtualService is not needed: "), "{said}");
    assert!(read(&stage.kcp, "VirtualService", "kcp-system", "klm-watcher").await.is_none());

    // The Kyma: git decides its modules, so an edit is reverted.
    let kyma =
        json!({"apiVersion": world::KYMA, "kind": "Kyma", "metadata": {"name": "default", "namespace": "kyma-system"}});
    let since = Instant::now();
    merge(skr, &kyma, json!({"spec": {"modules": []}})).await;
    back(&stage, since, &kyma, "the Kyma is as git has it", |object| {
        object["spec"]["modules"].as_array().is_some_and(|modules| modules.len() == 1)
    })
    .await;

    // What the module brought.
    let since = Instant::now();
    merge(skr, &config_map(), json!({"data": {"text": "mine"}})).await;
    back(&stage, since, &config_map(), "an edit is undone", |object| object["data"]["text"] == "one").await;
    for (object, what) in [
        (config_map(), "a ConfigMap is made again"),
        (cluster_role(), "a ClusterRole is made again"),
        (deployment(), "a Deployment is made again"),
    ] {
        let kind = object["kind"].as_str().unwrap();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let former = read(skr, kind, namespace, object["metadata"]["name"].as_str().unwrap()).await.unwrap();
        let since = Instant::now();
        delete(skr, &object).await;
        back(&stage, since, &object, what, |found| {
            found["metadata"]["uid"] != former["metadata"]["uid"] && found["metadata"]["deletionTimestamp"].is_null()
        })
        .await;
    }
    // Before anything else is told, so that no other look can be what mends it.
    nothing_more_is_told(&agent).await;
    for replicas in [0, 3] {
        let since = Instant::now();
        let told = agent.metric("watcher_kcp_requests_total").await;
        scale(skr, replicas).await;
        let what = format!("what was scaled to {replicas} is as it was");
        back(&stage, since, &deployment(), &what, |object| object["spec"]["replicas"] == 1).await;
        assert!(told < agent.metric("watcher_kcp_requests_total").await, "{what}, and nobody told");
        nothing_more_is_told(&agent).await;
    }
    // The agent itself.
    let own = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "skr-webhook", "namespace": "kyma-system"}});
    let uid = read(skr, "Deployment", "kyma-system", "skr-webhook").await.unwrap()["metadata"]["uid"].clone();
    let since = Instant::now();
    delete(skr, &own).await;
    back(&stage, since, &own, "the agent is made again", |object| object["metadata"]["uid"] != uid).await;

    // Our own repairs are told by nobody.
    nothing_more_is_told(&agent).await;

    // With the agent stopped, one interval later.
    drop(agent);
    stage.kill();
    stage.start_with(&["--resync=10s"]);
    merge(skr, &config_map(), json!({"data": {"text": "mine"}})).await;
    back(&stage, Instant::now(), &config_map(), "an edit is undone without the agent", |object| {
        object["data"]["text"] == "one"
    })
    .await;
}

/// Waits until the agent is silent, once it has said everything twice.
async fn nothing_more_is_told(agent: &Agent) {
    eventually("nothing more is told", SOON * 2, async || {
        let before = agent.metric("watcher_kcp_requests_total").await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let after = agent.metric("watcher_kcp_requests_total").await;
        let trailing = agent.metric("tidegate_agent_trailing_objects").await;
        if before == after && trailing == 0.0 {
            Ok(())
        } else {
            Err(format!("{before} and then {after}, {trailing} again"))
        }
    })
    .await;
}

/// Scales the module's Deployment as `kubectl scale` does.
async fn scale(client: &kube::Client, replicas: i32) {
    let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> = kube::Api::namespaced(client.clone(), "kyma-system");
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch_scale("cache", &kube::api::PatchParams::default(), &patch).await.expect("it is scaled");
}

/// E39: after the Watcher is switched to the status, a change of the status of the Kyma is told as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_of_the_status_hears_of_changes_of_the_status() {
    let listener = free_port();
    let addresses =
        [format!("--events-tls-address=127.0.0.1:{listener}"), format!("--listener-address=localhost:{listener}")];
    let arguments: Vec<&str> = AGENT.into_iter().chain(addresses.iter().map(String::as_str)).collect();
    let stage = world::stage(1, Extent::Node, &[], &arguments).await;
    harness::apply(&stage.kcp, &watcher("watcher", "lifecycle-manager", "status")).await;
    stage.start();
    let _agent = Agent::start(&stage, 0, listener, &[]).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    let api = harness::api_of(
        &stage.skrs[0],
        &json!({"apiVersion": world::KYMA, "kind": "Kyma", "metadata": {"name": "default", "namespace": "kyma-system"}}),
    )
    .await
    .unwrap();
    let patch = kube::api::Patch::Merge(json!({"status": {"state": "Warning"}}));
    api.patch_status("default", &kube::api::PatchParams::default(), &patch).await.unwrap();
    eventually("the status is as in the control plane", SOON, async || {
        let shown = read(&stage.skrs[0], "Kyma", "kyma-system", "default").await.unwrap_or_default();
        if shown["status"]["state"] == "Ready" { Ok(()) } else { Err(shown["status"]["state"].to_string()) }
    })
    .await;
    let log = std::fs::read_to_string(stage.log()).unwrap();
    assert!(log.contains("event received from SKR, adding kcp-system/one to queue"), "W67");
}
