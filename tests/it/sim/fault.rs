//! Faults before a real server: what happened there, and what its client sees.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, Error,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
};
use kube_sim::fault::{Faults, Rates, Schedule};
use serde_json::json;
use tower::Layer as _;

use crate::harness;

/// A namespace, a client of it behind faults, and one in front of them.
async fn world(rates: Rates) -> (Faults, Api<ConfigMap>, Api<ConfigMap>) {
    let direct = harness::api_server().await.client().unwrap();
    let namespace = harness::namespace(&direct, "fault").await;
    let faults = Faults::new(Schedule { seed: 1, rates });
    let server = direct.clone();
    let server = tower::service_fn(move |request| {
        let server = server.clone();
        async move { server.send(request).await }
    });
    let behind = Client::new(faults.layer(server), "default");
    (faults, Api::namespaced(behind, &namespace), Api::namespaced(direct, &namespace))
}

fn named(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

fn code<T: std::fmt::Debug>(answer: Result<T, Error>) -> u16 {
    match answer {
        Err(Error::Api(status)) => status.code,
        other => panic!("not an answer that refuses: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_has_happened() {
    let (faults, behind, direct) = world(Rates { lost: 1_000, ..Rates::default() }).await;
    let answer = behind.create(&PostParams::default(), &named("a")).await;
    assert!(matches!(answer, Err(Error::Service(_))), "{answer:?}");
    assert!(direct.get("a").await.is_ok());
    faults.stop();
    assert_eq!(code(behind.create(&PostParams::default(), &named("a")).await), 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_refused_has_not_happened() {
    for rates in [
        Rates { throttled: 1_000, ..Rates::default() },
        Rates { failed: 1_000, ..Rates::default() },
        Rates { reset: 1_000, ..Rates::default() },
        Rates { unjudged: 1_000, unjudged_after: Duration::from_millis(10), ..Rates::default() },
    ] {
        let (_, behind, direct) = world(rates).await;
        let answer = behind.create(&PostParams::default(), &named("a")).await;
        match rates {
            Rates { throttled: 1_000, .. } => assert_eq!(code(answer), 429),
            Rates { failed: 1_000, .. } | Rates { unjudged: 1_000, .. } => assert!(500 <= code(answer)),
            _ => assert!(matches!(answer, Err(Error::Service(_))), "{answer:?}"),
        }
        assert!(direct.get_opt("a").await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_early_or_is_too_old() {
    let rates = Rates { dropped: 1_000, dropped_after_max: Duration::from_millis(50), ..Rates::default() };
    let (_, behind, _) = world(rates).await;
    let watch = behind.watch(&WatchParams::default(), "0").await.unwrap();
    // It would go on for minutes.
    assert!(watch.count().await < 8);
    let (_, behind, _) = world(Rates { gone: 1_000, ..Rates::default() }).await;
    let mut watch = behind.watch(&WatchParams::default(), "1").await.unwrap().boxed();
    let event = watch.next().await.unwrap().unwrap();
    assert!(matches!(&event, WatchEvent::Error(error) if error.code == 410), "{event:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_any_version_may_come_from_the_past() {
    let (faults, behind, direct) = world(Rates { stale: 1_000, ..Rates::default() }).await;
    let any = ListParams::default().match_any();
    let count = async || behind.list(&any).await.unwrap().items.len();
    let before = count().await;
    direct.create(&PostParams::default(), &named("a")).await.unwrap();
    assert_eq!(count().await, before);
    assert_eq!(behind.list(&ListParams::default()).await.unwrap().items.len(), before + 1);
    faults.stop();
    harness::eventually("the past is over", harness::SOON, async || {
        let found = count().await;
        if found == before + 1 { Ok(()) } else { Err(format!("{found} objects")) }
    })
    .await;
}
