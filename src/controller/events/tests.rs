use std::time::Duration;

use super::{limit::Admission, *};

fn event(name: &str, reason: &'static str, note: &str) -> Event {
    let regarding = ObjectReference {
        api_version: Some("operator.kyma-project.io/v1beta2".to_owned()),
        kind: Some("Kyma".to_owned()),
        namespace: Some("kcp-system".to_owned()),
        name: Some(name.to_owned()),
        uid: Some("u".to_owned()),
        ..ObjectReference::default()
    };
    Event { regarding, severity: Severity::Warning, reason, action: "Reconcile", note: note.to_owned() }
}

#[test]
fn the_same_sentence_is_said_again_after_an_hour() {
    let mut limiter = Limiter::default();
    let start = Instant::now();
    let unreachable = event("one", reason::UNREACHABLE, "no answer");
    assert_eq!(limiter.admit(&unreachable, start), Admission::Admitted);
    assert_eq!(limiter.admit(&unreachable, start + Duration::from_secs(3599)), Admission::SaidBefore);
    assert_eq!(limiter.admit(&event("two", reason::UNREACHABLE, "no answer"), start), Admission::Admitted);
    assert_eq!(limiter.admit(&event("one", reason::UNREACHABLE, "refused"), start), Admission::Admitted);
    assert_eq!(limiter.admit(&unreachable, start + Duration::from_secs(3)), Admission::Admitted, "it changed back");
    assert_eq!(limiter.admit(&unreachable, start + Duration::from_secs(3700)), Admission::Admitted);
}

#[test]
fn a_reason_that_comes_too_often_is_cut_off_for_a_while_and_no_other() {
    let mut limiter = Limiter::default();
    let start = Instant::now();
    let mut say = |number: usize, moment: Instant| {
        limiter.admit(&event("one", reason::UNREACHABLE, &format!("sentence {number}")), moment)
    };
    for number in 0..25 {
        assert_eq!(say(number, start), Admission::Admitted);
    }
    assert_eq!(say(25, start), Admission::TooMany);
    assert_eq!(say(26, start + Duration::from_secs(301)), Admission::Admitted);
    assert_eq!(say(27, start + Duration::from_secs(301)), Admission::TooMany);
    let suspended = event("one", reason::SUSPENDED, "a user suspended it");
    assert_eq!(limiter.admit(&suspended, start + Duration::from_secs(301)), Admission::Admitted);
}

#[test]
fn an_event_is_what_the_api_server_accepts() {
    let now: Timestamp = "2026-11-21T09:00:00.123456789Z".parse().unwrap();
    let long = "ä".repeat(1000);
    let (key, body) = body(&event(&"k".repeat(253), reason::UNREACHABLE, &long), "pod-1", now);
    assert!(key.name().len() <= 253);
    assert_eq!(body["eventTime"], "2026-11-21T09:00:00.123456Z");
    assert_eq!(body["note"].as_str().unwrap().len(), 1024);
    assert_eq!(body["type"], "Warning");
    assert_eq!(body["metadata"]["namespace"], "kcp-system");
}

#[test]
fn events_that_are_not_written_are_counted_and_never_waited_for() {
    let (recorder, _writer) = recorder("pod-1");
    for number in 0..WAITING_MAX + 3 {
        recorder.publish_event(event(&format!("kyma-{number}"), reason::UNREACHABLE, "no answer"));
    }
    assert_eq!(recorder.dropped(), 3);
}
