use super::*;
use tidegate_core::name::Key;

#[test]
fn a_panic_is_reported_once_for_its_subject() {
    let panicked = Panicked::default();
    let (one, other) = (Subject::Runtime(Key::new("a", "b")), Subject::Source(Key::new("a", "b")));
    panicked.insert(&one);
    assert!(!panicked.take(&other));
    assert!(panicked.take(&one) && !panicked.take(&one));
}

#[tokio::test]
async fn a_panic_is_a_failure_that_says_what_happened() {
    let message = async |pass: fn()| {
        let unwound = AssertUnwindSafe(async { pass() }).catch_unwind().await;
        let failure = panicked(unwound.expect_err("it panics").as_ref());
        assert_eq!((failure.class, failure.reason), (Class::Transient, PANICKED));
        failure.error.to_string()
    };
    assert_eq!(message(|| panic!("a static text")).await, "the pass panicked: a static text");
    assert_eq!(message(|| panic!("a text of {}", 2)).await, "the pass panicked: a text of 2");
    assert_eq!(message(|| std::panic::panic_any(7)).await, "the pass panicked: without a message");
}

#[test]
fn an_api_server_that_asks_to_wait_is_a_failure_with_a_growing_pause() {
    let minute = Duration::from_secs(60);
    for (asked, attempt, expected) in [
        (None, 9, Finish::Failed(Class::Transient)),
        (Some(0), 1, Finish::FailedFor(Class::Transient, Duration::from_millis(500))),
        (Some(0), 3, Finish::FailedFor(Class::Transient, Duration::from_secs(2))),
        (Some(5), 3, Finish::FailedFor(Class::Transient, Duration::from_secs(5))),
        (Some(1), 99, Finish::FailedFor(Class::Transient, retry::BACKOFF_MAX)),
        (Some(86_400), 1, Finish::FailedFor(Class::Transient, retry::BACKOFF_MAX)),
    ] {
        let retry_after = asked.map(Duration::from_secs);
        let error = tidegate_cluster::Error::TooManyRequests { cluster: "kcp".into(), retry_after };
        let failure = Failure::new(Class::Transient, "TooManyRequests", error);
        assert_eq!(after_failure(&failure, attempt, minute), expected, "{asked:?} {attempt}");
    }
}

#[test]
fn the_resyncs_of_runtimes_are_spread_and_none_is_later_than_the_option_says() {
    let resync = Duration::from_secs(300);
    let runtimes = (0..200).map(|number| Subject::Runtime(Key::new("kcp-system", &format!("runtime-{number}"))));
    let delays: Vec<Duration> = runtimes.map(|runtime| resync_delay(&runtime, resync)).collect();
    assert!(delays.iter().all(|delay| resync.mul_f64(0.7) < *delay && *delay <= resync), "{delays:?}");
    let different: std::collections::BTreeSet<&Duration> = delays.iter().collect();
    assert!(100 < different.len(), "{different:?}");
}

#[test]
fn the_metrics_distinguish_how_passes_end() {
    let after = |trigger| Ok(Finish::After(Duration::from_secs(1), trigger));
    let failed = |class, reason| Err(Failure::new(class, reason, "why"));
    for (result, expected) in [
        (Ok(Finish::Done), Ended::Well),
        (Ok(Finish::Deferred), Ended::Well),
        (Ok(Finish::Gone), Ended::Well),
        (after(Trigger::Resync), Ended::Well),
        (after(Trigger::Retry), Ended::Waiting),
        (Ok(Finish::Failed(Class::Waiting)), Ended::Waiting),
        (Ok(Finish::Failed(Class::Stalled)), Ended::Failed),
        (Ok(Finish::FailedFor(Class::Transient, Duration::ZERO)), Ended::Failed),
        (failed(Class::Waiting, "NotRead"), Ended::Waiting),
        (failed(Class::Transient, "Timeout"), Ended::Failed),
        (failed(Class::Transient, PANICKED), Ended::Panicked),
    ] {
        assert_eq!(ended(&result), expected, "{:?}", result.map_err(|failure| failure.reason));
    }
}
