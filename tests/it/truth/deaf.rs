//! The way from a change in a runtime to the daemon: the API server, the agent, the listener. Whatever part of it is
//! broken, Tidegate says which one, and whatever was missed meanwhile is found when it works again.

use kube::api::DynamicObject;
use serde_json::{Value, json};
use tidegate_testbed::{Extent, free_port};

use crate::{
    agent_path::{
        agent::Agent,
        world::{self, AGENT, delete, merge, until_watch},
    },
    harness::{self, SOON, eventually},
    stage::Stage,
};

/// The agent reports only what API servers ask it about, and connects every second.
const QUICK: [&str; 3] = ["--probe-interval=1s", "--resync-within=0s", "--resync-interval=0s"];

fn arguments(listener: u16) -> Vec<String> {
    let more = [
        format!("--events-tls-address=127.0.0.1:{listener}"),
        format!("--listener-address=localhost:{listener}"),
        "--watch-probe-interval=4s".to_owned(),
        // The periodic check finds nothing.
        "--resync=2h".to_owned(),
    ];
    AGENT.into_iter().map(str::to_owned).chain(more).collect()
}

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cache-a", "namespace": "kyma-system"}})
}

async fn events(stage: &Stage) -> Vec<DynamicObject> {
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "kcp-system"}});
    harness::api_of(&stage.kcp, &event).await.unwrap().list(&Default::default()).await.unwrap().items
}

/// Waits until the Kyma has an Event with this reason whose note contains `text`.
async fn told(stage: &Stage, reason: &str, text: &str) {
    eventually(&format!("an Event {reason}: {text}"), SOON, async || {
        let events = events(stage).await;
        let is_it = |event: &DynamicObject| {
            let note = event.data["note"].as_str().unwrap_or_default();
            event.data["regarding"]["name"] == "one" && event.data["reason"] == reason && note.contains(text)
        };
        if events.iter().any(is_it) { Ok(()) } else { Err(format!("{} Events", events.len())) }
    })
    .await;
}

/// Waits until the gauge counts the runtime under this reason, and `tidegate status` shows it as a problem, or not.
async fn shown(stage: &Stage, reason: &str, is_problem: bool) {
    let series = format!("tidegate_watch_runtimes{{reason=\"{reason}\"}} 1");
    eventually(&series, SOON, async || match stage.ask("metrics", "/metrics").await {
        Ok((200, text)) if text.contains(&series) => Ok(()),
        Ok((status, _)) => Err(format!("status {status}, without the series")),
        Err(error) => Err(error),
    })
    .await;
    let output = stage.command(&["status", "-o=json"]).await;
    let overview: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one = overview["runtimes"].as_array().unwrap().iter().find(|line| line["name"] == "kcp-system/one").unwrap();
    let message = one["message"].as_str().unwrap_or_default();
    let is_shown = one["standing"] == "wrong" && message.starts_with(&format!("{reason}: "));
    assert_eq!(is_shown, is_problem, "{one}");
    assert_eq!(output.status.code(), Some(i32::from(is_problem)), "{overview}");
}

/// The API server of the runtime reaches another port than the agent's, as with a wrong Service or a network policy.
async fn deaf_and_mended(stage: &Stage, agent: &mut Agent) {
    let skr = &stage.skrs[0];
    // A real API server keeps its connections, so they end with the agent's process.
    agent.kill();
    agent.again(stage, &QUICK).await;
    stage.landscape.skrs[0].lead_webhooks_to(Some(free_port()));
    let kyma = until_watch(stage, "one", "False Deaf").await;
    assert_eq!(kyma["status"]["state"], "Ready", "the modules are as they should be");
    shown(stage, "Deaf", true).await;
    told(stage, "WatchBroken", "does not reach it").await;

    // Nothing reports this change.
    merge(skr, &config_map(), json!({"data": {"text": "mine"}})).await;
    agent.is_reached(stage);
    until_watch(stage, "one", "True Heard").await;
    stage
        .until("the change is undone that was not reported", skr, "ConfigMap", "kyma-system", "cache-a", |object| {
            object["data"]["text"] == "one"
        })
        .await;
    shown(stage, "Heard", false).await;
    told(stage, "WatchRestored", "a probe came back").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broken_part_of_the_way_is_named_until_it_is_mended() {
    let listener = free_port();
    let arguments = arguments(listener);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stage = world::stage(1, Extent::Node, &[], &arguments).await;
    stage.start();
    let mut agent = Agent::start(&stage, 0, listener, &QUICK).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    shown(&stage, "Heard", false).await;

    deaf_and_mended(&stage, &mut agent).await;

    // The agent does not reach the control plane.
    agent.kill();
    until_watch(&stage, "one", "False Silent").await;
    shown(&stage, "Silent", true).await;
    told(&stage, "WatchBroken", "does not connect").await;
    agent.again(&stage, &QUICK).await;
    until_watch(&stage, "one", "True Heard").await;
    shown(&stage, "Heard", false).await;

    // The listener refuses the agent: it cannot tell which of two runtimes it belongs to.
    let twin = json!({
        "apiVersion": world::KYMA, "kind": "Kyma",
        "metadata": {
            "name": "twin", "namespace": "kcp-system",
            "labels": {
                "kyma-project.io/runtime-id": "id-of-one", "operator.kyma-project.io/skip-reconciliation": "true",
            },
        },
        "spec": {"channel": "regular"},
    });
    harness::apply(&stage.kcp, &twin).await;
    until_watch(&stage, "one", "False Refused").await;
    shown(&stage, "Refused", true).await;
    told(&stage, "WatchBroken", "refuses its certificate").await;
    delete(&stage.kcp, &twin).await;
    until_watch(&stage, "one", "True Heard").await;

    // Probes are stored nowhere, and no audit record names them.
    let service = stage.until("the Service", &stage.skrs[0], "Service", "kyma-system", "skr-webhook", |_| true).await;
    assert!(service["metadata"]["annotations"]["tidegate.dev/watch-probe"].is_null(), "{service}");
    let log = std::fs::read_to_string(stage.log()).unwrap();
    assert!(!log.contains("watch-probe"), "a probe is no write");
}

/// The same with an API server that has a say: it calls webhooks for dry runs, and ignores that nobody answers.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_a_real_api_server_does_not_reach_is_deaf() {
    let listener = free_port();
    let arguments = arguments(listener);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stage = world::real_stage(1, Extent::Node, &[], &arguments).await;
    stage.start();
    let mut agent = Agent::start(&stage, 0, listener, &QUICK).await;
    stage.kyma_in("one", "Ready").await;
    until_watch(&stage, "one", "True Heard").await;
    deaf_and_mended(&stage, &mut agent).await;
}
