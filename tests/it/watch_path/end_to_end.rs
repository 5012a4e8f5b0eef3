//! From a change in a runtime to its resync: the real kube-apiserver asks the real agent, which tells the daemon.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tidegate::testbed::{Extent, Folder, Guarded, free_port};

use super::world::{self, AGENT, delete, merge, until_watch, watcher};
use crate::{
    harness::{self, SOON, eventually},
    stage::{Stage, read},
};

/// An agent of a runtime, as a process on this machine.
struct Agent {
    _process: Guarded,
    metrics: u16,
    _folder: Folder,
}

/// Longest that anybody waits for a repair that an event brings; the look for drift comes much later.
const AT_ONCE: Duration = Duration::from_secs(6);

impl Agent {
    /// Starts one with what stands in the runtime's Secret, and has the API server ask it.
    async fn start(stage: &Stage, index: usize, listener: u16) -> Agent {
        let secret = stage
            .until("the certificate arrives", &stage.skrs[index], "Secret", "kyma-system", "skr-webhook-tls", |_| true)
            .await;
        let folder = harness::folder();
        for file in ["tls.crt", "tls.key", "ca.crt"] {
            let bytes = STANDARD.decode(secret["data"][file].as_str().unwrap_or_default()).unwrap();
            std::fs::write(folder.path().join(file), bytes).unwrap();
        }
        let (port, metrics) = (free_port(), free_port());
        let arguments = [
            format!("WEBHOOK_PORT={port}"),
            format!("METRICS_PORT={metrics}"),
            "TLS_CERT=tls.crt".to_owned(),
            "TLS_KEY=tls.key".to_owned(),
            "CA_CERT=ca.crt".to_owned(),
            "KCP_CONTRACT=v2".to_owned(),
            format!("KCP_ADDR=localhost:{listener}"),
            env!("CARGO_BIN_EXE_tidegate").to_owned(),
            "agent".to_owned(),
        ];
        let log = stage.log().with_file_name(format!("agent-{index}.log"));
        let process = Guarded::start(Path::new("/usr/bin/env"), arguments, folder.path(), &log).unwrap();
        eventually("the agent listens", SOON, async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.map(drop).map_err(|error| error.to_string())
        })
        .await;
        stage.landscape.skrs[index].webhooks().lead_to(Some(port));
        Agent { _process: process, metrics, _folder: folder }
    }

    /// A counter of its metrics.
    async fn counter(&self, name: &str) -> f64 {
        let client = metrics_text(self.metrics).await;
        let line = client.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
    }
}

/// The metrics' text.
async fn metrics_text(port: u16) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cache-a", "namespace": "kyma-system"}})
}

fn cluster_role() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "cache"}})
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cache", "namespace": "kyma-system"}})
}

const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: cache, namespace: kyma-system}
spec:
  replicas: 1
  selector: {matchLabels: {app: cache}}
  template:
    metadata: {labels: {app: cache}}
    spec: {containers: [{name: manager, image: "registry.example.org/cache:1"}]}
"#;

/// Waits until an object in the first runtime is as `holds` says, and returns how long that took.
async fn back(stage: &Stage, since: Instant, object: &Value, what: &str, holds: impl Fn(&Value) -> bool) -> Duration {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    stage.until(what, &stage.skrs[0], &kind, &namespace, &name, holds).await;
    let took = since.elapsed();
    eprintln!("{what} after {took:.2?}");
    took
}

/// E39, issue's end to end: what others change in a runtime is seen by its API server, told by the agent over TLS, and
/// mended by the daemon at once; with the agent stopped, after one interval.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_a_runtime_is_told_by_its_agent_and_mended_at_once() {
    let listener = free_port();
    let arguments = [
        format!("--events-tls-address=127.0.0.1:{listener}"),
        format!("--listener-address=localhost:{listener}"),
        // Long enough that nothing below is its doing, and short enough to wait for it at the end.
        "--resync=40s".to_owned(),
    ];
    let arguments: Vec<&str> = AGENT.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let more = [("modules/cache/1.0.0/objects/deployment.yaml", DEPLOYMENT.to_owned())];
    let stage = world::stage(1, Extent::Node, &more, &arguments).await;
    harness::apply(&stage.kcp, &watcher("watcher", "lifecycle-manager", "spec")).await;
    stage.start();
    let agent = Agent::start(&stage, 0, listener).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    let skr = &stage.skrs[0];

    // The Kyma: git decides its modules, so an edit is reverted.
    let kyma =
        json!({"apiVersion": world::KYMA, "kind": "Kyma", "metadata": {"name": "default", "namespace": "kyma-system"}});
    let since = Instant::now();
    merge(skr, &kyma, json!({"spec": {"modules": []}})).await;
    let took = back(&stage, since, &kyma, "the Kyma is as git has it", |object| {
        object["spec"]["modules"].as_array().is_some_and(|modules| modules.len() == 1)
    })
    .await;
    assert!(took < AT_ONCE, "{took:?}");

    // What the module brought.
    let since = Instant::now();
    merge(skr, &config_map(), json!({"data": {"text": "mine"}})).await;
    let took = back(&stage, since, &config_map(), "an edit is undone", |object| object["data"]["text"] == "one").await;
    assert!(took < AT_ONCE, "{took:?}");
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
        let took = back(&stage, since, &object, what, |found| {
            found["metadata"]["uid"] != former["metadata"]["uid"] && found["metadata"]["deletionTimestamp"].is_null()
        })
        .await;
        assert!(took < AT_ONCE, "{what}: {took:?}");
    }
    let since = Instant::now();
    scale(skr, 0).await;
    let took =
        back(&stage, since, &deployment(), "what was scaled is as it was", |object| object["spec"]["replicas"] == 1)
            .await;
    assert!(took < AT_ONCE, "{took:?}");
    // The agent itself.
    let own = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "skr-webhook", "namespace": "kyma-system"}});
    let uid = read(skr, "Deployment", "kyma-system", "skr-webhook").await.unwrap()["metadata"]["uid"].clone();
    let since = Instant::now();
    delete(skr, &own).await;
    let took = back(&stage, since, &own, "the agent is made again", |object| object["metadata"]["uid"] != uid).await;
    assert!(took < AT_ONCE, "{took:?}");

    // Our own repairs are told by nobody: the agent falls silent once it has said everything twice.
    eventually("nothing more is told", SOON, async || {
        let before = agent.counter("watcher_kcp_requests_total").await;
        tokio::time::sleep(Duration::from_secs(7)).await;
        let after = agent.counter("watcher_kcp_requests_total").await;
        if before == after { Ok(()) } else { Err(format!("{before} and then {after}")) }
    })
    .await;

    // With the agent stopped, one interval later.
    drop(agent);
    merge(skr, &config_map(), json!({"data": {"text": "mine"}})).await;
    back(&stage, Instant::now(), &config_map(), "an edit is undone without the agent", |object| {
        object["data"]["text"] == "one"
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
    let _agent = Agent::start(&stage, 0, listener).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    let api = harness::api_of(
        &stage.skrs[0],
        &json!({"apiVersion": world::KYMA, "kind": "Kyma", "metadata": {"name": "default", "namespace": "kyma-system"}}),
    )
    .await
    .unwrap();
    let patch = kube::api::Patch::Merge(json!({"status": {"state": "Warning"}}));
    let since = Instant::now();
    api.patch_status("default", &kube::api::PatchParams::default(), &patch).await.unwrap();
    eventually("the status is as in the control plane", SOON, async || {
        let shown = read(&stage.skrs[0], "Kyma", "kyma-system", "default").await.unwrap_or_default();
        if shown["status"]["state"] == "Ready" { Ok(()) } else { Err(shown["status"]["state"].to_string()) }
    })
    .await;
    assert!(since.elapsed() < AT_ONCE, "{:?}", since.elapsed());
    let log = std::fs::read_to_string(stage.log()).unwrap();
    assert!(log.contains("event received from SKR, adding kcp-system/one to queue"), "W67");
}
