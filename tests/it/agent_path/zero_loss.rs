//! E40 and more. A client changes objects in a runtime ten times a second. Meanwhile everything between its API server
//! and the control plane is replaced, killed or broken, in turn and together. The last change of every object falls
//! into the failure, and is reverted after it.
//!
//! Only reports of the agent can cause the reverts. No periodic check for drift happens during the test, and the agent
//! requests a full check only after it was killed.

use std::time::{Duration, Instant};

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_testbed::Extent;
use tokio::{sync::watch, task::JoinHandle};

use super::{
    agent::Agent,
    rotation::{self, Held},
    wire::{Weather, Wire},
    world::{self, AGENT, delete, until_watch, watcher},
};
use crate::{
    events::listening,
    harness::{self, SOON, eventually},
    stage::Stage,
};

/// An object in the runtime that the test changes.
struct Subject {
    object: Value,
    /// The change with some number. No two consecutive ones are equal, and none equals the declaration.
    edit: fn(usize) -> Value,
    is_as_declared: fn(&Value) -> bool,
}

/// A client that changes all subjects in turn.
struct Writer {
    made: watch::Receiver<usize>,
    stop: watch::Sender<bool>,
    task: JoinHandle<Duration>,
}

/// A runtime with its agent, and the network between it and the daemon.
struct RuntimeWithAgent {
    stage: Stage,
    wire: Wire,
    agent: Agent,
    /// Number of changes so far.
    made: usize,
    /// Duration of the slowest change.
    slowest: Duration,
}

/// Time between two changes.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of changes in each phase. Every object is changed at least once.
const SOME: usize = 20;
/// The agent resends soon, so that the test need not wait for it. It sends no full checks.
const TOLD_ONLY: [&str; 2] = ["--resend=1s", "--resync-within=0s"];

fn subjects() -> [Subject; 5] {
    let object = |api_version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name}});
    [
        Subject {
            object: object(world::KYMA, "Kyma", "kyma-system", "default"),
            edit: |number| json!({"spec": {"channel": if number.is_multiple_of(2) { "fast" } else { "rapid" }}}),
            is_as_declared: |kyma| kyma["spec"]["channel"] == "regular",
        },
        Subject {
            object: object("v1", "ConfigMap", "kyma-system", "cache-a"),
            edit: |number| json!({"data": {"text": format!("change {number}")}}),
            is_as_declared: |map| map["data"]["text"] == "one",
        },
        Subject {
            object: object("v1", "ConfigMap", "kyma-system", "cache-b"),
            edit: |number| json!({"data": {"text": format!("change {number}")}}),
            is_as_declared: |map| map["data"]["text"] == "same",
        },
        Subject {
            object: object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "cache"),
            edit: |number| json!({"rules": [{"apiGroups": [format!("g{number}")], "resources": ["x"], "verbs": ["get"]}]}),
            is_as_declared: |role| role["rules"][0]["resources"] == json!(["configmaps"]),
        },
        Subject {
            object: object("apps/v1", "Deployment", "kyma-system", "cache"),
            edit: |number| json!({"spec": {"replicas": 2 + number % 2}}),
            is_as_declared: |deployment| deployment["spec"]["replicas"] == 1,
        },
    ]
}

// === impl Writer ===

impl Writer {
    fn start(skr: Client, from: usize) -> Writer {
        let (made, stop) = (watch::Sender::new(from), watch::Sender::new(false));
        let (made_now, mut stopped) = (made.subscribe(), stop.subscribe());
        let task = tokio::spawn(async move {
            let (subjects, mut slowest) = (subjects(), Duration::ZERO);
            let mut ticks = tokio::time::interval(PAUSE);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = stopped.wait_for(|stopped| *stopped) => return slowest,
                }
                let number = *made.borrow();
                let subject = &subjects[number % subjects.len()];
                let begun = Instant::now();
                write(&skr, subject, number).await;
                slowest = slowest.max(begun.elapsed());
                made.send_replace(number + 1);
            }
        });
        Writer { made: made_now, stop, task }
    }

    /// Waits for this many more changes.
    async fn makes(&mut self, count: usize) {
        let until = *self.made.borrow() + count;
        let made = tokio::time::timeout(SOON * 2, self.made.wait_for(|made| until <= *made)).await;
        made.expect("changes are made").expect("no change is refused");
    }
}

/// Makes one change. The test is about whether the API server admits it.
async fn write(skr: &Client, subject: &Subject, number: usize) {
    let api = harness::api_of(skr, &subject.object).await.expect("a kind that is served");
    let name = subject.object["metadata"]["name"].as_str().expect("a name");
    let patch = Patch::Merge((subject.edit)(number));
    let written = api.patch(name, &PatchParams::default(), &patch).await;
    written.unwrap_or_else(|error| panic!("change {number} of {} is admitted: {error}", subject.object));
}

// === impl RuntimeWithAgent ===

impl RuntimeWithAgent {
    async fn new() -> RuntimeWithAgent {
        let wire = Wire::new().await;
        let address = format!("--listener-address=localhost:{}", wire.port());
        let more = [
            "--pki=builtin",
            "--istio-gateway-server-cert-switch-grace-period=10s",
            "--resync=2h",
            // The test is about whether a change is reported, not about who is the stronger one.
            "--drift-repair-pause-max=0s",
            &address,
        ];
        let arguments: Vec<&str> = AGENT.into_iter().chain(more).collect();
        // Only a real server counts failed calls of webhooks.
        let files = [("modules/cache/1.0.0/objects/deployment.yaml", world::DEPLOYMENT.to_owned())];
        let stage = world::real_stage(1, Extent::Node, &files, &arguments).await;
        harness::apply(&stage.kcp, &watcher("watcher", "lifecycle-manager", "spec")).await;
        stage.start();
        let agent = Agent::start(&stage, 0, wire.port(), &TOLD_ONLY).await;
        let site = RuntimeWithAgent { stage, wire, agent, made: 0, slowest: Duration::ZERO };
        site.lead_to_listener().await;
        site.stage.kyma_in("one", "Ready").await;
        until_watch(&site.stage, "one", "True Heard").await;
        site.until_told().await;
        site
    }

    /// Connects the network to the daemon that runs now.
    async fn lead_to_listener(&self) {
        let log = self.stage.log();
        let address = eventually("the daemon listens", SOON, async || {
            let address = listening(&log, "events over TLS").ok_or("not yet")?;
            // The log line may come from an earlier process.
            let connected = tokio::net::TcpStream::connect(address).await;
            connected.map(|_| address).map_err(|error| error.to_string())
        })
        .await;
        self.wire.lead_to(address);
    }

    fn skr(&self) -> &Client {
        &self.stage.skrs[0]
    }

    fn writer(&self) -> Writer {
        Writer::start(self.skr().clone(), self.made)
    }

    async fn end(&mut self, writer: Writer) {
        writer.stop.send_replace(true);
        let slowest = writer.task.await.expect("every change is admitted");
        self.made = *writer.made.borrow();
        self.slowest = self.slowest.max(slowest);
    }

    /// Waits until all objects are as declared, and no event is pending.
    async fn until_declared(&self, after: &str) {
        for Subject { object, is_as_declared, .. } in &subjects() {
            let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (kind, name) = (text("/kind"), text("/metadata/name"));
            let what = format!("after {after}: {kind} {name} is as declared");
            self.stage.until(&what, self.skr(), kind, text("/metadata/namespace"), name, is_as_declared).await;
        }
        self.until_told().await;
    }

    async fn until_told(&self) {
        eventually("the agent has told everything", SOON * 2, async || {
            let waiting = self.agent.metric("tidegate_agent_pending_objects").await;
            let trailing = self.agent.metric("tidegate_agent_trailing_objects").await;
            if waiting + trailing == 0.0 { Ok(()) } else { Err(format!("{waiting} wait, {trailing} once more")) }
        })
        .await;
    }

    /// Changes objects before and during a bad network, then repairs the network.
    async fn weather(&mut self, weather: Weather) {
        let mut writer = self.writer();
        writer.makes(SOME).await;
        self.wire.set(weather);
        writer.makes(SOME).await;
        self.end(writer).await;
        self.wire.set(Weather::Fair);
        self.until_declared(&format!("{weather:?}")).await;
    }

    /// Failed calls of webhooks that the API server ignored: refused connections and timeouts.
    async fn failed_calls(&self) -> f64 {
        let request = ::http::Request::get("/metrics").body(Vec::new()).expect("a request");
        let metrics = self.skr().request_text(request).await.expect("metrics");
        let failed = metrics.lines().filter(|line| line.starts_with("apiserver_admission_webhook_fail_open_count{"));
        failed.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    async fn failed_events(&self) -> f64 {
        self.agent.metric(r#"watcher_failed_kcp_total{error_reason="failed-request"}"#).await
    }

    /// Replaces the CA and all its certificates while objects change. Returns once all of them are in use.
    async fn rotate(&mut self) {
        let former = rotation::held(&self.stage).await.expect("all is there");
        let mut writer = self.writer();
        writer.makes(SOME).await;
        delete(&self.stage.kcp, &rotation::authority()).await;
        until_rotated(&self.stage, &former).await;
        writer.makes(SOME).await;
        self.end(writer).await;
    }
}

/// Waits until there is a new CA, and the runtime and the gateway use its certificates.
async fn until_rotated(stage: &Stage, former: &Held) {
    eventually("all is of another authority", SOON * 3, async || {
        let held = rotation::held(stage).await?;
        let is_other = held.authority_differs(former);
        let (runtime, gateway) = held.are_of_authority()?;
        let state = (is_other, runtime, gateway);
        if state == (true, true, true) { Ok(()) } else { Err(format!("another, runtime, gateway: {state:?}")) }
    })
    .await;
}

/// E40 and beyond: certificates are rotated; the network is slow, resets connections, loses answers or is a black hole;
/// the daemon is killed; the agent is killed; and all of it together.
#[tokio::test(flavor = "multi_thread")]
async fn e40_nothing_that_happens_between_runtime_and_control_plane_loses_a_change() {
    let mut site = RuntimeWithAgent::new().await;
    let failed_calls = site.failed_calls().await;
    rotations(&mut site).await;
    bad_networks(&mut site).await;
    daemon_is_killed(&mut site).await;
    // No call of a webhook in the runtime failed.
    assert_eq!(site.failed_calls().await, failed_calls, "calls of webhooks that failed");
    // Events that could not be sent at once are counted as failed requests, and as nothing else.
    let metrics = site.agent.metrics().await;
    for line in metrics.lines().filter(|line| line.starts_with("watcher_failed_kcp_total{")) {
        assert_eq!(line.ends_with(" 0"), !line.contains("failed-request"), "{line}");
    }
    agent_is_killed(&mut site).await;
    all_of_it(&mut site).await;
    eprintln!("{} changes, the slowest took {:.0?}", site.made, site.slowest);
}

/// Rotation alone causes no failed call and no failed event. Upstream's own test watches this for twelve minutes.
async fn rotations(site: &mut RuntimeWithAgent) {
    let before = (site.failed_calls().await, site.failed_events().await);
    for _ in 0..2 {
        site.rotate().await;
        site.until_declared("a rotation").await;
    }
    let reloaded = site.agent.metric(r#"tidegate_agent_credential_reloads_total{result="success"}"#).await;
    assert!(2.0 <= reloaded, "{reloaded} sets of certificates were in use");
    assert_eq!((site.failed_calls().await, site.failed_events().await), before);
}

async fn bad_networks(site: &mut RuntimeWithAgent) {
    for weather in [Weather::Slow(Duration::from_millis(300)), Weather::Resets, Weather::AnswersLost] {
        site.weather(weather).await;
    }
    // A black hole: connections stay open, and no answer comes back.
    let mut writer = site.writer();
    site.wire.set(Weather::Silent);
    writer.makes(2 * SOME).await;
    site.end(writer).await;
    site.wire.cut();
    site.wire.set(Weather::Fair);
    site.until_declared("silence").await;
}

async fn daemon_is_killed(site: &mut RuntimeWithAgent) {
    let mut writer = site.writer();
    writer.makes(SOME).await;
    site.stage.kill().await;
    writer.makes(SOME).await;
    site.end(writer).await;
    site.stage.start();
    site.lead_to_listener().await;
    site.until_declared("the daemon was killed").await;
}

/// Changes while no agent runs are not reported. The next agent requests a full check of the runtime.
async fn agent_is_killed(site: &mut RuntimeWithAgent) {
    let mut writer = site.writer();
    writer.makes(SOME).await;
    site.agent.kill();
    writer.makes(SOME).await;
    site.end(writer).await;
    site.agent.again(&site.stage, &["--resend=1s", "--resync-within=3s"]).await;
    site.until_declared("the agent was killed").await;
}

async fn all_of_it(site: &mut RuntimeWithAgent) {
    let before = site.failed_calls().await;
    let former = rotation::held(&site.stage).await.expect("all is there");
    let mut writer = site.writer();
    site.wire.set(Weather::AnswersLost);
    delete(&site.stage.kcp, &rotation::authority()).await;
    writer.makes(SOME).await;
    site.stage.kill().await;
    site.wire.set(Weather::Slow(Duration::from_millis(100)));
    writer.makes(SOME).await;
    site.stage.start();
    site.lead_to_listener().await;
    until_rotated(&site.stage, &former).await;
    site.wire.set(Weather::Resets);
    writer.makes(SOME).await;
    site.end(writer).await;
    site.wire.set(Weather::Fair);
    site.until_declared("all of it").await;
    assert_eq!(site.failed_calls().await, before, "calls of webhooks that failed");
}
