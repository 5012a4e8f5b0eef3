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
