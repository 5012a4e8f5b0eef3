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
