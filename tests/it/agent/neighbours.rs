//! Clients and servers that share the agent: managers that are silent or refuse, and clients that use up its memory.

use std::time::Duration;

use tidegate_agent::settings::Timing;
use tokio::io::AsyncWriteExt as _;

use super::{
    control_plane::Reply,
    http,
    stage::{QUIET, Stage, created, event},
};
use crate::harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_does_not_answer_holds_up_no_other() {
    let stage = Stage::start(QUIET).await;
    stage.control_plane.reply(Reply::SilenceFor("/other/"));
    stage.review("/validate/other", &created("theirs")).await;
    stage.control_plane.wait_for(1).await;
    stage.change("ours").await;
    let asked = || stage.control_plane.received().into_iter().map(|received| received.message.first);
    harness::eventually("ours is told", harness::SOON, async || {
        let ours = asked().any(|first| first.starts_with("POST /v2/lifecycle-manager/"));
        if ours { Ok(()) } else { Err(format!("{:?}", asked().collect::<Vec<_>>())) }
    })
    .await;
    // The agent still tries the other manager.
    let count = || asked().filter(|first| first.contains("/other/")).count();
    let before = count();
    harness::eventually("theirs is tried again", harness::SOON, async || {
        if before < count() { Ok(()) } else { Err(format!("{before}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refusal_a_proof_of_the_way_has_the_runtime_looked_at() {
    let timing =
        Timing { resync_within: Duration::from_millis(30), probe_interval: Duration::from_millis(200), ..QUIET };
    let stage = Stage::start(timing).await;
    let resync = stage.control_plane.wait_for(1).await.remove(0);
    stage.control_plane.reply(Reply::Refuse(404));
    stage.change("a").await;
    stage.wait_for_metric("tidegate_agent_dropped_events_total{error_reason=\"refused\"}", 1.0).await;
    // No other object changes. Another refusal does not stop the retries.
    let resyncs = || stage.control_plane.events().into_iter().filter(|event| *event == resync).count();
    let refused = resyncs();
    harness::eventually("the control plane is told to look", harness::SOON, async || {
        if refused < resyncs() { Ok(()) } else { Err(format!("{refused}")) }
    })
    .await;
    stage.control_plane.reply(Reply::Status(200, ""));
    let refused = resyncs();
    harness::eventually("it is told until it is done", harness::SOON, async || {
        if refused < resyncs() { Ok(()) } else { Err(format!("{refused}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_holds_the_memory_for_bodies_holds_up_no_review_of_usual_size() {
    let stage = Stage::start(QUIET).await;
    // Each client sends nearly all of the announced body: together twice the memory that is available.
    let mut holders = Vec::new();
    for _ in 0..8 {
        let mut stream = stage.connect().await;
        stream.write_all(b"POST /validate/kyma HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n").await.unwrap();
        holders.push(tokio::spawn(async move {
            // While a request waits for memory, its connection is not read.
            let block = vec![b' '; 64 << 10];
            for _ in 0..127 {
                if stream.write_all(&block).await.is_err() {
                    break;
                }
            }
            http::read(&mut stream).await
        }));
    }
    for name in ["a", "b", "c"] {
        stage.change(name).await;
    }
    // They all waited: clients without memory get a 503, clients that stopped sending a 408.
    for holder in holders {
        let answer = holder.await.unwrap().unwrap().unwrap();
        assert!([408, 503].contains(&answer.status()), "{}", answer.first);
    }
    let events = stage.control_plane.wait_for(3).await;
    assert_eq!(events, [event("a"), event("b"), event("c")]);
}
