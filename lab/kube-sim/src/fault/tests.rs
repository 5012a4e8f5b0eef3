// SPDX-License-Identifier: Apache-2.0

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const MANY: Rates = Rates {
    latency: 0,
    latency_max: Duration::from_millis(100),
    throttled: 100,
    failed: 100,
    reset: 100,
    lost: 100,
    lost_after: Duration::from_secs(30),
    unjudged: 50,
    unjudged_after: Duration::from_secs(10),
    dropped: 200,
    dropped_after_max: Duration::from_secs(10),
    late: 100,
    late_max: Duration::from_millis(50),
    gone: 100,
    stale: 100,
};

fn drawn(seed: u64, rates: Rates, method: &str, uri: &str) -> Vec<Option<Fault>> {
    let uri: Uri = uri.parse().unwrap();
    let schedule = Schedule { seed, rates };
    (1..=2_000).map(|nth| schedule.fault(Asked::from_request(method, &uri), nth)).collect()
}

#[test]
fn a_seed_replays_and_another_one_differs() {
    assert_eq!(drawn(1, MANY, "POST", "/a"), drawn(1, MANY, "POST", "/a"));
    assert_eq!(drawn(1, MANY, "POST", "/a?x=1"), drawn(1, MANY, "POST", "/a?x=2"), "the query does not decide");
    assert_ne!(drawn(1, MANY, "POST", "/a"), drawn(2, MANY, "POST", "/a"));
    assert_ne!(drawn(1, MANY, "POST", "/a"), drawn(1, MANY, "POST", "/b"));
}

#[test]
fn rates_are_kept_and_each_fault_meets_only_what_it_can_meet() {
    let share = |faults: &[Option<Fault>], is: fn(&Fault) -> bool| {
        faults.iter().flatten().filter(|fault| is(fault)).count() * 1_000 / faults.len()
    };
    let near = |found: usize, wanted: usize| assert!(found.abs_diff(wanted) < 30, "{found} is far from {wanted}");
    let writes = drawn(7, MANY, "PATCH", "/apis/a/b/c");
    let reads = drawn(7, MANY, "GET", "/apis/a/b");
    let watches = drawn(7, MANY, "GET", "/apis/a/b?watch=true");
    let any = drawn(7, MANY, "GET", "/apis/a/b?resourceVersion=0");
    for faults in [&writes, &reads, &watches, &any] {
        near(share(faults, |fault| matches!(fault, Fault::Throttled)), 100);
        near(share(faults, |fault| matches!(fault, Fault::Failed(_))), 100);
        near(share(faults, |fault| matches!(fault, Fault::Reset)), 100);
    }
    near(share(&writes, |fault| matches!(fault, Fault::Lost { .. })), 100);
    near(share(&writes, |fault| matches!(fault, Fault::Unjudged { .. })), 50);
    near(share(&watches, |fault| matches!(fault, Fault::Dropped { .. })), 200);
    near(share(&watches, |fault| matches!(fault, Fault::Late { .. })), 100);
    near(share(&watches, |fault| matches!(fault, Fault::Gone)), 100);
    near(share(&any, |fault| matches!(fault, Fault::Stale)), 100);
    assert_eq!(share(&reads, |fault| !matches!(fault, Fault::Throttled | Fault::Failed(_) | Fault::Reset)), 0);
    assert_eq!(drawn(7, Rates::default(), "PATCH", "/a"), vec![None; 2_000]);
}

/// A client of a counting server, with one fixed fault.
struct World {
    faults: Faults,
    served: Arc<AtomicUsize>,
}

impl World {
    fn with(rates: Rates) -> World {
        World { faults: Faults::new(Schedule { seed: 0, rates }), served: Arc::default() }
    }

    async fn ask(&self, method: &str, uri: &str) -> Result<(StatusCode, String), BoxError> {
        let served = Arc::clone(&self.served);
        let server = tower::service_fn(move |_: Request<Body>| {
            let nth = served.fetch_add(1, Ordering::SeqCst);
            async move {
                let events = (0..100).map(move |event| Ok::<_, Infallible>(format!("{nth}.{event}\n")));
                Ok::<_, Infallible>(Response::new(Body::from_stream(stream::iter(events))))
            }
        });
        let request = Request::builder().method(method).uri(uri).body(Body::empty()).unwrap();
        let response = self.faults.layer(server).oneshot(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec()).unwrap()))
    }

    fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_lost_answer_is_a_time_out_after_the_write() {
    let world = World::with(Rates { lost: 1_000, lost_after: Duration::from_millis(30), ..Rates::default() });
    let start = tokio::time::Instant::now();
    let error = world.ask("POST", "/a").await.unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::TimedOut);
    assert_eq!(world.served(), 1);
    assert!(Duration::from_millis(30) <= start.elapsed());
    assert!(world.ask("GET", "/a").await.is_ok(), "a read cannot be lost");
    assert_eq!(world.faults.journal(), ["POST /a #1: Lost { after: 30ms }"]);
}

#[tokio::test]
async fn what_fails_before_the_server_never_reaches_it() {
    let throttled = World::with(Rates { throttled: 1_000, ..Rates::default() });
    assert_eq!(throttled.ask("POST", "/a").await.unwrap().0, StatusCode::TOO_MANY_REQUESTS);
    let failed = World::with(Rates { failed: 1_000, ..Rates::default() });
    assert!(failed.ask("POST", "/a").await.unwrap().0.is_server_error());
    let reset = World::with(Rates { reset: 1_000, ..Rates::default() });
    let error = reset.ask("POST", "/a").await.unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().kind(), io::ErrorKind::ConnectionReset);
    assert_eq!([throttled, failed, reset].map(|world| world.served()), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_loses_nothing() {
    let world = World::with(Rates { late: 1_000, late_max: Duration::from_millis(50), ..Rates::default() });
    let start = tokio::time::Instant::now();
    for _ in 0..5 {
        let (_, body) = world.ask("GET", "/a?watch=1").await.unwrap();
        assert_eq!(body.lines().count(), 100);
    }
    assert!(!start.elapsed().is_zero());
    assert!(world.ask("GET", "/a").await.is_ok(), "only a watch is delayed");
    assert_eq!(world.faults.counts(), [("held back", 500), ("late", 5)].into());
}

#[tokio::test]
async fn watches_are_cut_between_events_or_too_old() {
    let rates = Rates { dropped: 1_000, dropped_after_max: Duration::from_millis(5), ..Rates::default() };
    let dropped = World::with(rates);
    for _ in 0..20 {
        let (_, body) = dropped.ask("GET", "/a?watch=1").await.unwrap();
        assert!(body.lines().count() < 8 && (body.is_empty() || body.ends_with('\n')), "{body}");
    }
    let gone = World::with(Rates { gone: 1_000, ..Rates::default() });
    let (status, body) = gone.ask("GET", "/a?watch=true").await.unwrap();
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &event["type"], &event["object"]["code"]), (StatusCode::OK, &json!("ERROR"), &json!(410)));
    assert_eq!(gone.ask("GET", "/a?limit=1&continue=x").await.unwrap().0, StatusCode::GONE);
    assert_eq!(gone.ask("GET", "/a").await.unwrap().0, StatusCode::OK);
    assert_eq!(gone.faults.counts(), [("gone", 1), ("gone page", 1)].into());
}

#[tokio::test]
async fn a_stale_read_is_an_earlier_answer() {
    let world = World::with(Rates { stale: 1_000, ..Rates::default() });
    let first = world.ask("GET", "/a?resourceVersion=0").await.unwrap();
    assert_eq!(world.ask("GET", "/a?resourceVersion=0").await.unwrap(), first);
    assert_eq!(world.served(), 1);
    assert_ne!(world.ask("GET", "/a").await.unwrap(), first, "a read of the newest version is never stale");
}

#[test]
fn latencies_are_spread_and_bounded() {
    let uri = Uri::from_static("/a");
    let schedule = Schedule { seed: 3, rates: Rates { latency: 500, ..MANY } };
    let waits: Vec<Duration> = (0..1_000).map(|nth| schedule.latency(Asked::from_request("GET", &uri), nth)).collect();
    assert!(waits.iter().all(|wait| *wait <= MANY.latency_max));
    let none = waits.iter().filter(|wait| wait.is_zero()).count();
    assert!((450..550).contains(&none), "{none}");
    assert!(waits.iter().any(|wait| MANY.latency_max * 9 / 10 < *wait));
}

#[tokio::test]
async fn once_stopped_nothing_happens() {
    let world = World::with(Rates { reset: 1_000, ..Rates::default() });
    assert!(world.ask("GET", "/a").await.is_err());
    world.faults.stop();
    assert!(world.ask("GET", "/a").await.is_ok());
    assert_eq!(world.faults.journal().len(), 1);
}
