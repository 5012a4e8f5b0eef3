//! A git server that fails for a while: its sources are tried again within their interval.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_testbed::Extent;
use tokio::time::Instant;

use super::git_server;
use crate::{
    git::server::{Action, Server},
    harness::{SOON, apply, eventually},
    stage::{self, Stage, scenarios},
};

scenarios! {
    a_source_is_tried_again_within_its_interval_after_an_outage,
    a_host_that_asks_to_wait_is_not_asked_again_before,
}

/// The interval of the source.
const INTERVAL: Duration = Duration::from_secs(10);
/// A pass and the writes of its status.
const PASS: Duration = Duration::from_secs(1);

/// A daemon with a source on a git server, which has applied the first commit.
async fn stage() -> (Stage, Server) {
    let stage = Stage::with(0, Extent::Controllers, &[("README.md", "empty\n".to_owned())], &[]).await;
    let (server, url) = git_server(&stage).await;
    let source = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": "landscape", "namespace": "kcp-system"},
        "spec": {"url": url, "interval": "10s", "secretRef": {"name": "git"}},
    });
    apply(&stage.kcp, &source).await;
    stage.start();
    let first = stage.repository.head().expect("a commit");
    until_applied(&stage, &first).await;
    (stage, server)
}

async fn a_source_is_tried_again_within_its_interval_after_an_outage() {
    let (stage, server) = stage().await;
    // Two outages: the delay does not grow from one to the next either.
    for round in 0..2 {
        server.behave(|_| Action::Answer(503, Vec::new(), Vec::new()));
        tokio::time::sleep(INTERVAL * 60).await;
        let status = stage::read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it exists");
        assert_eq!(condition(&status, "Fetched")["status"], "False", "{status}");
        let commit = stage.commit("README.md", &format!("after outage {round}\n"));
        server.behave(|_| Action::Serve);
        let since = Instant::now();
        until_applied(&stage, &commit).await;
        // The clock is paused: this time is that of timers alone.
        assert!(since.elapsed() <= INTERVAL + PASS, "{:?}", since.elapsed());
    }
}

async fn a_host_that_asks_to_wait_is_not_asked_again_before() {
    /// Far more than the interval, and than the pause after failures.
    const ASKED: Duration = Duration::from_secs(600);
    let (stage, server) = stage().await;
    server.behave(|_| Action::Answer(429, vec![("retry-after", ASKED.as_secs().to_string())], Vec::new()));
    let commit = stage.commit("README.md", "news\n");
    let status = eventually("the source says that it waits", SOON * 5, async || {
        let source = stage::read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it exists");
        let is_said = condition(&source, "Fetched")["reason"] == "RateLimited";
        is_said.then_some(source["status"].clone()).ok_or_else(|| source.to_string())
    })
    .await;
    let said = Instant::now();
    assert!(status.to_string().contains("asks to wait 600 s"), "{status}");
    let asked = server.requests().len();
    server.behave(|_| Action::Serve);
    // A new commit and many intervals later, it has not been asked again.
    tokio::time::sleep(ASKED - INTERVAL * 2).await;
    assert_eq!(server.requests().len(), asked, "{:?} after it asked to wait", said.elapsed());
    until_applied(&stage, &commit).await;
    assert!(said.elapsed() <= ASKED + INTERVAL + PASS, "{:?}", said.elapsed());
}

async fn until_applied(stage: &Stage, commit: &str) {
    let wanted = format!("main@sha1:{commit}");
    eventually("the commit is applied", SOON * 5, async || {
        let source = stage::read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it exists");
        if source["status"]["appliedRevision"] == wanted.as_str() { Ok(()) } else { Err(source["status"].to_string()) }
    })
    .await;
}

fn condition<'a>(source: &'a Value, type_: &str) -> &'a Value {
    let conditions = source["status"]["conditions"].as_array().expect("conditions");
    conditions.iter().find(|condition| condition["type"] == type_).expect("the condition")
}
