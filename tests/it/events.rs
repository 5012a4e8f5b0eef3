//! Events of runtimes in the daemon: whose they are, what they cause, and that none is lost.

mod doors;
mod loss;
mod sender;

use std::{net::SocketAddr, path::Path, time::Duration};

use kube::{
    Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{self, apply, eventually, holds},
    listener::client::{self, Authority, Leaf},
    stage::{self, KYMAS, Stage, flow, read, scenarios},
};

scenarios! {
    an_edit_in_a_runtime_is_looked_at_when_an_event_tells_of_it_and_costs_one_read_when_nothing_changed,
    an_event_about_an_object_of_a_module_brings_it_back_and_leaves_no_trace,
    an_object_that_is_undone_again_and_again_is_repaired_less_often_and_named,
    rows_37_and_40_an_agent_of_upstream_that_sends_before_the_change_is_stored_is_served,
}

/// The domain of the runtime of a Kyma.
fn domain(kyma: &str) -> String {
    format!("{kyma}.kyma.example.org")
}

/// A CA, and the certificate of each runtime.
pub(crate) struct Certificates {
    pub(crate) authority: Authority,
    server: Leaf,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let authority = Authority::new();
        let server = authority.issue("listener", |params| client::domain(params, "listener.example"));
        Certificates { authority, server }
    }

    /// The certificate of a Kyma's runtime, whose id is its name.
    pub(crate) fn for_kyma(&self, kyma: &str) -> Leaf {
        self.authority.issue(&format!("id-{kyma}"), |params| client::domain(params, &domain(kyma)))
    }

    /// The header of a gateway about a Kyma's runtime.
    pub(crate) fn header(&self, kyma: &str) -> String {
        client::xfcc(&self.for_kyma(kyma).certificate)
    }

    /// Creates the Secret of the gateway in the control plane.
    pub(crate) async fn install(&self, kcp: &Client, namespace: &str) {
        apply(kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await;
        apply(
            kcp,
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "klm-istio-gateway", "namespace": namespace},
                "stringData": {"ca.crt": self.authority.pem(), "tls.crt": self.server.certificate, "tls.key": self.server.key}}),
        )
        .await;
    }
}

/// The address in a daemon's log, from the last process that wrote there.
pub(crate) fn listening(log: &Path, purpose: &str) -> Option<SocketAddr> {
    let log = std::fs::read_to_string(log).ok()?;
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut listening =
        records.filter(|record| record["msg"] == "listening" && record["context"]["purpose"] == purpose);
    listening.next_back()?["context"]["address"].as_str()?.parse().ok()
}

/// The files of a stage whose Kymas have ids and domains.
pub(crate) fn files(skrs: usize) -> Vec<(String, String)> {
    let mut files = stage::files(skrs);
    for (path, text) in &mut files {
        if let Some(kyma) = KYMAS.iter().find(|kyma| *path == format!("kymas/{kyma}.yaml")) {
            let named = format!(
                "metadata: {{labels: {{kyma-project.io/runtime-id: id-{kyma}}}, annotations: {{skr-domain: {}}}, ",
                domain(kyma)
            );
            *text = text.replacen("metadata: {", &named, 1);
        }
    }
    files
}

/// A stage with one or two runtimes whose certificates the daemon trusts. Nothing runs yet.
async fn stage(skrs: usize) -> (Stage, Certificates) {
    let files = files(skrs);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(skrs, &files).await;
    let certificates = Certificates::new();
    certificates.install(&stage.kcp, "istio-system").await;
    (stage, certificates)
}

/// The same, with a daemon that has reconciled everything and accepts events.
async fn ready(skrs: usize, more: &[&str]) -> (Stage, Certificates) {
    let (stage, certificates) = stage(skrs).await;
    stage.start_with(more);
    for name in KYMAS.iter().take(skrs) {
        stage.kyma_in(name, "Ready").await;
    }
    (stage, certificates)
}

/// An event about an object in a runtime, as the Go agents write it.
pub(crate) fn event(group: &str, version: &str, kind: &str, name: &str) -> String {
    format!(
        r#"{{"watched":{{"Namespace":"kyma-system","Name":"{name}"}},"watchedGvk":{{"group":"{group}","version":"{version}","kind":"{kind}"}}}}"#
    )
}

fn kyma_event() -> String {
    event("operator.kyma-project.io", "v1beta2", "Kyma", "default")
}

/// Sends an event through a gateway until it is accepted. It claims to come from our agent, so the daemon acts at once.
pub(crate) async fn tell(stage: &Stage, header: &str, body: &str) {
    let header = format!("{header}\r\nuser-agent: tidegate-agent/test");
    eventually("the event is taken", harness::SOON, async || {
        let address = listening(&stage.log(), "events").ok_or("no listener")?;
        match client::post(address, &header, body).await {
            reply if reply.status == 200 => Ok(()),
            reply => Err(format!("{reply:?}")),
        }
    })
    .await;
}

/// Edits an object in a runtime.
async fn edit(skr: &Client, kind: &str, name: &str, patch: Value) {
    let api_version = if kind == "Kyma" { "operator.kyma-project.io/v1beta2" } else { "v1" };
    let sample =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "kyma-system", "name": name}});
    let api = harness::api_of(skr, &sample).await.unwrap();
    let _: DynamicObject = api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

/// Deletes a ConfigMap in a runtime.
async fn delete(skr: &Client, name: &str) {
    let sample =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kyma-system", "name": name}});
    let api = harness::api_of(skr, &sample).await.unwrap();
    api.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
}

async fn until_restored(stage: &Stage, skr: usize, name: &str) {
    stage.until(&format!("{name} is back"), &stage.skrs[skr], "ConfigMap", "kyma-system", name, |_| true).await;
}

async fn until_reverted(stage: &Stage, skr: usize) {
    stage
        .until("the edit is taken back", &stage.skrs[skr], "Kyma", "kyma-system", "default", |kyma| {
            kyma["spec"]["channel"] == "regular"
        })
        .await;
}

/// The keys in the journal.
async fn journal(kcp: &Client) -> Vec<String> {
    let map = read(kcp, "ConfigMap", "kcp-system", "tidegate-events").await.unwrap_or_default();
    map["data"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
}

/// The request that reads the Kyma in the runtime.
const READ: &str = "skr-1 get kymas.operator.kyma-project.io default";

async fn an_edit_in_a_runtime_is_looked_at_when_an_event_tells_of_it_and_costs_one_read_when_nothing_changed() {
    let (stage, certificates) = ready(1, &[]).await;
    let header = certificates.header("one");
    edit(&stage.skrs[0], "Kyma", "default", json!({"spec": {"channel": "fast"}})).await;
    tell(&stage, &header, &kyma_event()).await;
    until_reverted(&stage, 0).await;
    let log = std::fs::read_to_string(stage.log()).unwrap();
    let line = r#""msg":"event received from SKR, adding kcp-system/one to queue""#;
    assert!(log.contains(line), "row 67: the line that upstream's tests look for");

    // Once all statuses are written, an event without a change costs one read.
    stage.rests().await;
    let marks = stage.marks();
    tell(&stage, &header, &kyma_event()).await;
    eventually("the Kyma is read", harness::SOON, async || match stage.requests_since(&marks) {
        requests if requests == [READ] => Ok(()),
        requests => Err(format!("{requests:?}")),
    })
    .await;
    holds("nothing else is done", Duration::from_secs(2), async || match stage.requests_since(&marks) {
        requests if requests == [READ] => Ok(()),
        requests => Err(format!("{requests:?}")),
    })
    .await;
    assert!(journal(&stage.kcp).await.is_empty(), "events about Kymas are not written down");
}

async fn an_event_about_an_object_of_a_module_brings_it_back_and_leaves_no_trace() {
    let (stage, certificates) = ready(1, &[]).await;
    delete(&stage.skrs[0], "mailer-a").await;
    tell(&stage, &certificates.header("one"), &event("", "v1", "ConfigMap", "mailer-a")).await;
    assert_eq!(journal(&stage.kcp).await, ["kcp-system_one"], "it is written down before it is acknowledged");
    until_restored(&stage, 0, "mailer-a").await;
    eventually("the key leaves", harness::SOON, async || match journal(&stage.kcp).await {
        keys if keys.is_empty() => Ok(()),
        keys => Err(format!("{keys:?}")),
    })
    .await;
}

async fn an_object_that_is_undone_again_and_again_is_repaired_less_often_and_named() {
    let (stage, certificates) = ready(1, &[]).await;
    let (header, event) = (certificates.header("one"), event("", "v1", "ConfigMap", "mailer-a"));
    let sample = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kyma-system"}});
    let maps = harness::api_of(&stage.skrs[0], &sample).await.unwrap();
    let undo = async || {
        let params = PatchParams { field_manager: Some("other-operator".to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"data": {"text": "theirs"}}));
        let _: DynamicObject = maps.patch("mailer-a", &params, &patch).await.unwrap();
        tell(&stage, &header, &event).await;
    };
    let repaired = async || {
        let is_ours = |map: &Value| map["data"]["text"] != "theirs";
        stage.until("a repair", &stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a", is_ours).await
    };
    for _ in 0..3 {
        undo().await;
        repaired().await;
        stage.kyma_in("one", "Ready").await;
    }
    undo().await;
    let kyma = stage.kyma_in("one", "Warning").await;
    let map = read(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await.expect("it is there");
    assert_eq!(map["data"]["text"], "theirs", "the fourth repair waits");
    let says =
        "ConfigMap kyma-system/mailer-a is changed by field manager other-operator in the runtime again and again";
    assert!(kyma["status"]["modules"].to_string().contains(says), "{kyma}");
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!((output.status.code(), text.contains(says)), (Some(1), true), "{text}");
    let log = std::fs::read_to_string(stage.log()).unwrap();
    let warned = log.lines().filter(|line| line.contains("another client undoes an object again and again"));
    assert_eq!(warned.count(), 1, "one line for each repair that waits");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.expect("metrics");
    for line in ["{repair=\"at_once\"} 3", "{repair=\"later\"} 1"] {
        assert!(metrics.contains(&format!("tidegate_drift_repairs_total{line}")), "{metrics}");
    }
    eventually("the Event", harness::SOON, async || {
        let sample =
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "kcp-system"}});
        let all = harness::api_of(&stage.kcp, &sample).await.unwrap().list(&ListParams::default()).await.unwrap();
        let is_it = |event: &DynamicObject| event.data["reason"] == "RepeatedDrift";
        let event = all.items.into_iter().find(is_it).ok_or("none")?;
        let note = event.data["note"].as_str().unwrap_or_default();
        if note.starts_with(says) { Ok(()) } else { Err(note.to_owned()) }
    })
    .await;
    repaired().await;
    stage.kyma_in("one", "Warning").await;
}

async fn rows_37_and_40_an_agent_of_upstream_that_sends_before_the_change_is_stored_is_served() {
    let (stage, certificates) = ready(1, &[]).await;
    let find = async || listening(&stage.log(), "events over TLS").ok_or_else(|| "no listener".to_owned());
    let address = eventually("it listens", harness::SOON, find).await;
    let sender = sender::Upstream::new(&certificates.authority, &certificates.for_kyma("one"));
    // The event is sent and answered before the change is stored.
    let passes = flow();
    let attempts = sender.send(&|| address, &kyma_event()).await.expect("acknowledged");
    assert_eq!(attempts, 1);
    drop(passes);
    edit(&stage.skrs[0], "Kyma", "default", json!({"spec": {"channel": "fast"}})).await;
    until_reverted(&stage, 0).await;
}
