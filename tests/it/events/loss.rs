//! Acknowledged events are processed, whatever fails and when.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::{delete, edit, event, journal, kyma_event, listening, ready, sender, tell, until_restored, until_reverted};
use crate::{
    harness::{SOON, eventually, holds},
    listener::client,
    stage::{read, scenarios},
};

scenarios! {
    a_process_that_is_killed_between_acknowledgement_and_work_loses_nothing,
    what_is_told_while_nothing_leads_to_its_runtime_is_looked_at_once_something_does,
    sigterm_ends_what_is_under_way_and_what_was_acknowledged_is_there_after_the_restart,
}

/// An event settles for so long that the process is certainly killed before it acts on the event.
const NEVER: &str = "--event-settle=60s";

async fn a_process_that_is_killed_between_acknowledgement_and_work_loses_nothing() {
    let (stage, certificates) = ready(1, &[NEVER]).await;
    let header = certificates.header("one");
    let address = listening(&stage.log(), "events").expect("it listens");
    edit(&stage.skrs[0], "Kyma", "default", json!({"spec": {"channel": "fast"}})).await;
    assert_eq!(client::post(address, &header, &kyma_event()).await.status, 200);
    delete(&stage.skrs[0], "mailer-b").await;
    assert_eq!(client::post(address, &header, &event("", "v1", "ConfigMap", "mailer-b")).await.status, 200);
    stage.kill().await;
    assert_eq!(journal(&stage.kcp).await, ["kcp-system_one"]);
    let kyma = read(&stage.skrs[0], "Kyma", "kyma-system", "default").await.unwrap();
    assert_eq!(kyma["spec"]["channel"], "fast", "nothing was done before the end");
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-b").await.is_none());

    stage.start_with(&[]);
    until_reverted(&stage, 0).await;
    until_restored(&stage, 0, "mailer-b").await;
    eventually("the key leaves", SOON, async || match journal(&stage.kcp).await {
        keys if keys.is_empty() => Ok(()),
        keys => Err(format!("{keys:?}")),
    })
    .await;
}

async fn what_is_told_while_nothing_leads_to_its_runtime_is_looked_at_once_something_does() {
    let (stage, certificates) = ready(1, &[]).await;
    let header = certificates.header("one");
    let secrets: Api<Secret> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let mut secret = secrets.get("access-one").await.unwrap();
    secret.metadata.resource_version = None;
    for (object, dies) in [("mailer-a", false), ("mailer-b", true)] {
        secrets.delete("access-one", &DeleteParams::default()).await.unwrap();
        stage.kyma_in("one", "Error").await;
        delete(&stage.skrs[0], object).await;
        tell(&stage, &header, &event("", "v1", "ConfigMap", object)).await;
        // Passes end, but the event stays in the journal, because no pass has read the runtime.
        holds("it stays in the journal", Duration::from_secs(8), async || match journal(&stage.kcp).await {
            keys if keys == ["kcp-system_one"] => Ok(()),
            keys => Err(format!("{keys:?}")),
        })
        .await;
        if dies {
            stage.kill().await;
            stage.start_with(&[]);
        }
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        until_restored(&stage, 0, object).await;
        stage.kyma_in("one", "Ready").await;
        eventually("the key leaves", SOON, async || match journal(&stage.kcp).await {
            keys if keys.is_empty() => Ok(()),
            keys => Err(format!("{keys:?}")),
        })
        .await;
    }
}

/// Two processes, one of which leads, and an upstream agent for each of several objects. The objects are deleted again
/// and again. The leader is killed half-way. In the end every object whose deletion was acknowledged exists again. No
/// event is lost, although there was no leader for seconds.
#[tokio::test(flavor = "multi_thread")]
async fn leader_change_under_load_every_acknowledged_event_is_worked_off() {
    let (stage, certificates) = ready(1, &[]).await;
    let second = stage.beside("second", &[]);
    eventually("the second listens", SOON, async || {
        listening(second.log(), "events over TLS").map(drop).ok_or_else(|| second.log_tail())
    })
    .await;
    let sender = sender::Upstream::new(&certificates.authority, &certificates.for_kyma("one"));
    // Round-robin, as with the endpoints of a Service.
    let turn = AtomicUsize::new(0);
    let logs = [stage.log(), second.log().to_owned()];
    let address = || {
        let log = &logs[turn.fetch_add(1, Ordering::Relaxed) % logs.len()];
        listening(log, "events over TLS").expect("it has listened")
    };
    let (killed, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let load = async |name: &str| {
        let mut after = 0;
        while after < 3 {
            let deleted = read(&stage.skrs[0], "ConfigMap", "kyma-system", name).await.is_some();
            if deleted {
                delete(&stage.skrs[0], name).await;
                after += usize::from(killed.load(Ordering::Relaxed));
                match sender.send(&address, &event("", "v1", "ConfigMap", name)).await {
                    Ok(_) => acknowledged.fetch_add(1, Ordering::Relaxed),
                    // There was no leader for longer than this agent retries. The event was not acknowledged, so it may
                    // be lost. The next one is about the same runtime.
                    Err(sender::Lost::GaveUp) => 0,
                    Err(lost) => panic!("{lost:?}"),
                };
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let kill = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        stage.kill().await;
        killed.store(true, Ordering::Relaxed);
    };
    let all = async { tokio::join!(load("cache-a"), load("cache-b"), load("mailer-a"), load("mailer-b"), kill) };
    tokio::time::timeout(SOON * 3, all).await.expect("the load ends");
    assert!(acknowledged.load(Ordering::Relaxed) >= 8, "{acknowledged:?}");
    for name in ["cache-a", "cache-b", "mailer-a", "mailer-b"] {
        until_restored(&stage, 0, name).await;
    }
}

async fn sigterm_ends_what_is_under_way_and_what_was_acknowledged_is_there_after_the_restart() {
    let (stage, certificates) = ready(1, &[NEVER]).await;
    let header = certificates.header("one");
    let address = listening(&stage.log(), "events").expect("it listens");
    delete(&stage.skrs[0], "cache-b").await;
    let body = event("", "v1", "ConfigMap", "cache-b");
    let mut slow = client::Raw::connect(address).await;
    slow.send(
        format!(
            "POST /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\n{header}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .as_bytes(),
    )
    .await;
    let mut probe = client::Raw::connect(address).await;
    probe.send(b"GET /v2/lifecycle-manager/event HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(probe.reply().await.status, 405);
    stage.signal("TERM");
    assert!(probe.is_closed().await, "connections without a request end");
    slow.send(body.as_bytes()).await;
    assert_eq!(slow.reply().await.status, 200);
    stage.kill().await;
    assert!(
        read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-b").await.is_none(),
        "it was not worked off before"
    );
    stage.start_with(&[]);
    until_restored(&stage, 0, "cache-b").await;
}
