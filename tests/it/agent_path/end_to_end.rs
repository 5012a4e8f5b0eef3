//! From a change in a runtime to its revert: the API server calls the real agent, which reports to the daemon. The
//! first test always uses a real kube-apiserver.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_testbed::{Extent, free_port};

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

/// One runtime with its agent. Each change must be reverted because of its own event.
struct Scene {
    stage: Stage,
    agent: Agent,
}

/// A point in time, after which changes are considered.
struct Since {
    told: f64,
    /// Length of the daemon's log.
    log: u64,
    at: Instant,
}

/// How long there must be no event and no request.
const QUIET: Duration = Duration::from_secs(2);

impl Scene {
    /// Waits until all earlier events are processed: the agent has sent everything twice, and the daemon has sent the
    /// runtime no request for a while. So a later revert is due to a later event.
    async fn quiet(&self) -> Since {
        eventually("nothing more is told or done", SOON * 2, async || {
            let marks = self.stage.marks();
            let before = self.told().await;
            tokio::time::sleep(QUIET).await;
            let mut left = Vec::new();
            for metric in ["tidegate_agent_pending_objects", "tidegate_agent_trailing_objects"] {
                left.push(self.agent.metric(metric).await);
            }
            let after = self.told().await;
            let requests = self.stage.requests_since(&marks);
            if before == after && left == [0.0, 0.0] && requests.is_empty() {
                Ok(())
            } else {
                Err(format!("{before} and then {after} events, {left:?} are waiting; {requests:?}"))
            }
        })
        .await;
        let log = std::fs::metadata(self.stage.log()).expect("a log").len();
        Since { told: self.told().await, log, at: Instant::now() }
    }

    async fn told(&self) -> f64 {
        self.agent.metric("watcher_kcp_requests_total").await
    }

    /// Waits until an object in the runtime is as `holds` says. The cause must be the agent's event about this change:
    /// the audit record of the first write names `trigger` and nothing else.
    async fn mended(&self, since: &Since, object: &Value, what: &str, trigger: &str, holds: impl Fn(&Value) -> bool) {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        self.stage.until(what, &self.stage.skrs[0], &kind, &namespace, &name, holds).await;
        eprintln!("{what} after {:.2?}", since.at.elapsed());
        eventually(&format!("{what}, and the agent told"), SOON, async || {
            let told = self.told().await;
            if since.told < told { Ok(()) } else { Err(format!("{told} events, as before")) }
        })
        .await;
        let triggers = eventually(&format!("{what}, and the audit says why"), SOON, async || {
            let triggers = self.triggers(since, &format!(" {}", join(&namespace, &name)));
            if triggers.is_empty() { Err("there is no audit record".to_owned()) } else { Ok(triggers) }
        })
        .await;
        assert_eq!(triggers[0], trigger, "{what}, because of {triggers:?}");
    }

    /// The triggers of the writes to an object in the runtime, from the audit records, in order.
    fn triggers(&self, since: &Since, object: &str) -> Vec<String> {
        let log = std::fs::read(self.stage.log()).expect("a log");
        let log = String::from_utf8_lossy(&log[usize::try_from(since.log).unwrap()..]).into_owned();
        let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let field = |record: &Value, name: &str| record["context"][name].as_str().unwrap_or_default().to_owned();
        records
            .filter(|record| record["caller"] == "tidegate::audit" && field(record, "cluster").starts_with("skr/"))
            .filter(|record| field(record, "object").ends_with(object))
            .map(|record| field(&record, "trigger"))
            .collect()
    }
}

fn join(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// E39, end to end. Another client changes an object in a runtime. The API server asks the agent, the agent reports
/// over TLS, and the daemon reverts the change at once. A Watcher that selects the status hears of its changes too.
/// Without the agent, the daemon reverts changes after one interval. I26: the Watcher that is shipped has manager
/// `lifecycle-manager`.
#[tokio::test(flavor = "multi_thread")]
async fn e39_i26_a_change_in_a_runtime_is_told_by_its_agent_and_mended_at_once() {
    let listener = free_port();
    let arguments = [
        format!("--events-tls-address=127.0.0.1:{listener}"),
        format!("--listener-address=localhost:{listener}"),
        // The periodic check must cause none of the reverts below.
        "--resync=2h".to_owned(),
        // As in production. A daemon that loses its Lease on a busy machine exits, and this test does not restart it.
        "--lease-duration=15s".to_owned(),
        "--lease-renew-deadline=10s".to_owned(),
    ];
    let arguments: Vec<&str> = AGENT.into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let more = [("modules/cache/1.0.0/objects/deployment.yaml", world::DEPLOYMENT.to_owned())];
    let stage = world::real_stage(1, Extent::Node, &more, &arguments).await;
    // The configuration shipped for a control plane without Istio.
    let shipped = deploy::objects("overlays/direct-mtls");
    let shipped = shipped.iter().find(|object| object["kind"] == "Watcher").expect("a Watcher");
    harness::apply(&stage.kcp, shipped).await;
    stage.start();
    // The agent reports only changes that the API server asks about.
    let only_changes = ["--resync-within=0s", "--resync-interval=0s"];
    let agent = Agent::start(&stage, 0, listener, &only_changes).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    let watcher = stage
        .until("the Watcher is Ready", &stage.kcp, "Watcher", "kcp-system", "klm-watcher", |watcher| {
            watcher["status"]["state"] == "Ready"
        })
        .await;
    let said = &watcher["status"]["conditions"][0]["message"];
    assert!(said.as_str().unwrap_or_default().starts_with("VirtualService is not needed: "), "{said}");
    assert!(read(&stage.kcp, "VirtualService", "kcp-system", "klm-watcher").await.is_none());
    assert_eq!(watcher["spec"]["manager"], "lifecycle-manager");

    let scene = Scene { stage, agent };
    let skr = &scene.stage.skrs[0];

    // Git declares the modules of this Kyma, so a change of them is reverted.
    let kyma =
        json!({"apiVersion": world::KYMA, "kind": "Kyma", "metadata": {"name": "default", "namespace": "kyma-system"}});
    let since = scene.quiet().await;
    merge(skr, &kyma, json!({"spec": {"modules": []}})).await;
    let is_back = |object: &Value| object["spec"]["modules"].as_array().is_some_and(|modules| modules.len() == 1);
    scene.mended(&since, &kyma, "the Kyma is as git has it", "reported", is_back).await;

    // Objects of the module. A client with the daemon's field manager is not mistaken for the daemon.
    for (what, manager) in [("an edit is undone", "kubectl-edit"), ("an edit in our name is undone", "tidegate")] {
        let since = scene.quiet().await;
        let api = harness::api_of(skr, &config_map()).await.unwrap();
        let patch = kube::api::Patch::Merge(json!({"data": {"text": "mine"}}));
        let parameters = kube::api::PatchParams { field_manager: Some(manager.to_owned()), ..Default::default() };
        api.patch("cache-a", &parameters, &patch).await.unwrap();
        scene.mended(&since, &config_map(), what, ABOUT_OBJECTS, |object| object["data"]["text"] == "one").await;
    }
    for (object, what) in [
        (config_map(), "a ConfigMap is made again"),
        (cluster_role(), "a ClusterRole is made again"),
        (deployment(), "a Deployment is made again"),
    ] {
        let kind = object["kind"].as_str().unwrap();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let former = read(skr, kind, namespace, object["metadata"]["name"].as_str().unwrap()).await.unwrap();
        let since = scene.quiet().await;
        delete(skr, &object).await;
        let is_new = |found: &Value| {
            found["metadata"]["uid"] != former["metadata"]["uid"] && found["metadata"]["deletionTimestamp"].is_null()
        };
        scene.mended(&since, &object, what, ABOUT_OBJECTS, is_new).await;
    }
    for replicas in [0, 3] {
        let since = scene.quiet().await;
        scale(skr, replicas).await;
        let what = format!("what was scaled to {replicas} is as it was");
        scene.mended(&since, &deployment(), &what, ABOUT_OBJECTS, |object| object["spec"]["replicas"] == 1).await;
    }
    // The Deployment of the agent itself.
    let own = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "skr-webhook", "namespace": "kyma-system"}});
    let uid = read(skr, "Deployment", "kyma-system", "skr-webhook").await.unwrap()["metadata"]["uid"].clone();
    let since = scene.quiet().await;
    delete(skr, &own).await;
    let is_new = |object: &Value| object["metadata"]["uid"] != uid;
    scene.mended(&since, &own, "the agent is made again", ABOUT_OBJECTS, is_new).await;

    // The agent does not report the daemon's own writes. Of the last test it reported only the deletion.
    let told = scene.quiet().await.told;
    assert!(told - since.told <= 2.0, "{told} after {}: the deletion is told twice, our own write never", since.told);

    // The Watcher selects the status from now on.
    merge(&scene.stage.kcp, shipped, json!({"spec": {"field": "status"}})).await;
    let follows = |found: &Value| found["webhooks"].to_string().contains("kymas/status");
    let what = "the webhook follows the Watcher";
    scene.stage.until(what, skr, "ValidatingWebhookConfiguration", "", "skr-webhook", follows).await;
    let since = scene.quiet().await;
    let status = kube::api::Patch::Merge(json!({"status": {"state": "Warning"}}));
    let kymas = harness::api_of(skr, &kyma).await.unwrap();
    kymas.patch_status("default", &kube::api::PatchParams::default(), &status).await.unwrap();
    let is_ready = |object: &Value| object["status"]["state"] == "Ready";
    scene.mended(&since, &kyma, "the status is as in the control plane", "reported", is_ready).await;

    // Without the agent, changes are reverted after one interval.
    let Scene { stage, agent } = scene;
    drop(agent);
    stage.kill().await;
    stage.start_with(&["--resync=10s"]);
    merge(&stage.skrs[0], &config_map(), json!({"data": {"text": "mine"}})).await;
    let what = "an edit is undone without the agent";
    stage
        .until(what, &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", |object| object["data"]["text"] == "one")
        .await;
}

/// Trigger of a check of all objects in a runtime: an event about one of them.
const ABOUT_OBJECTS: &str = "reported+drift";

/// Scales the module's Deployment as `kubectl scale` does.
async fn scale(client: &kube::Client, replicas: i32) {
    let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> = kube::Api::namespaced(client.clone(), "kyma-system");
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": replicas}}));
    api.patch_scale("cache", &kube::api::PatchParams::default(), &patch).await.expect("it is scaled");
}

/// E39: once the Watcher selects the status, changes of the Kyma's status are reported too.
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
