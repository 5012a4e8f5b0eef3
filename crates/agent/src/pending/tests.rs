use std::time::{Duration, Instant};

use super::*;
use tidegate_events::event::{Gvk, Watched};

const SETTLE: u64 = 300;
const RESEND: u64 = 5_000;
const LIMITS: Limits =
    Limits { settle: Duration::from_millis(SETTLE), resend: Duration::from_millis(RESEND), objects: 3 };

/// The set under test, and a clock in milliseconds.
struct Desk {
    pending: Pending,
    zero: Instant,
}

impl Desk {
    fn new() -> Desk {
        Desk { pending: Pending::new(LIMITS), zero: Instant::now() }
    }

    fn at(&self, milliseconds: u64) -> Instant {
        self.zero + Duration::from_millis(milliseconds)
    }

    fn changed(&mut self, at: u64, name: &str) -> Option<String> {
        let at = self.at(at);
        self.pending.changed(key(name), at).map(|key| key.event.watched.name.clone())
    }

    /// What to do, as text.
    fn next(&mut self, at: u64) -> String {
        let now = self.at(at);
        match self.pending.next(now) {
            Next::Send(key, occasion) => format!("{occasion:?} {}", key.event.watched.name),
            Next::Wait(until) => format!("wait until {}", (until - self.zero).as_millis()),
            Next::Idle => "idle".to_owned(),
        }
    }

    /// Sends what is due at `from`, and reports the result at `to`, with the longest jitter.
    fn send(&mut self, from: u64, sent: Sent, to: u64) -> String {
        let (started, now) = (self.at(from), self.at(to));
        let Next::Send(key, occasion) = self.pending.next(started) else { panic!("nothing is due at {from}") };
        self.pending.sent(&key, sent, started, now, 1.0);
        format!("{occasion:?} {}", key.event.watched.name)
    }
}

fn key(name: &str) -> Key {
    // `b/x` is object `x` of manager `b`.
    let (manager, name) = name.rsplit_once('/').unwrap_or(("lifecycle-manager", name));
    Key {
        manager: Manager::of_path(&format!("/validate/{manager}")).unwrap(),
        event: Event {
            watched: Watched { namespace: "n".to_owned(), name: name.to_owned() },
            gvk: Gvk::new("g/v", "K"),
        },
    }
}

#[test]
fn row_40_a_change_settles_before_it_is_sent_and_is_sent_once_more() {
    let mut desk = Desk::new();
    assert_eq!(desk.next(0), "idle");
    desk.changed(0, "a");
    assert_eq!(desk.next(299), "wait until 300");
    assert_eq!(desk.send(300, Sent::Delivered, 310), "Change a");
    assert_eq!(desk.next(310), "wait until 5000");
    assert_eq!(desk.send(5_000, Sent::Delivered, 5_010), "Again a");
    assert_eq!(desk.next(5_010), "idle");
    assert!(desk.pending.is_empty());
}

#[test]
fn what_is_first_sent_long_after_its_admission_is_not_sent_again() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    assert_eq!(desk.send(5_000, Sent::Delivered, 5_010), "Change a");
    assert!(desk.pending.is_empty());
}

#[test]
fn row_41_of_many_changes_of_one_object_one_waits() {
    let mut desk = Desk::new();
    for at in 0..100 {
        assert_eq!(desk.changed(at * 2, "a"), None);
    }
    let depth = desk.pending.depth(desk.at(200));
    assert_eq!((depth.undelivered, depth.oldest), (1, Duration::from_millis(200)));
    // An object that changes all the time is sent all the same, and again after the last change.
    assert_eq!(desk.send(300, Sent::Delivered, 310), "Change a");
    assert_eq!(desk.next(310), "wait until 5198");
}

#[test]
fn a_change_while_it_is_sent_is_sent_too() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    assert_eq!(desk.next(300), "Change a");
    desk.changed(305, "a");
    desk.changed(306, "a");
    assert_eq!(desk.next(306), "idle");
    let (started, now) = (desk.at(300), desk.at(310));
    let waited = desk.pending.sent(&Arc::new(key("a")), Sent::Delivered, started, now, 1.0);
    assert_eq!(waited, Some(Duration::from_millis(310)));
    assert_eq!(desk.pending.depth(now).oldest, Duration::from_millis(5));
    assert_eq!(desk.next(310), "wait until 606");
    assert_eq!(desk.send(606, Sent::Delivered, 610), "Change a");
    assert_eq!(desk.next(610), "wait until 5306");
}

#[test]
fn a_change_before_the_second_sending_starts_anew() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    desk.send(300, Sent::Delivered, 310);
    desk.changed(4_900, "a");
    assert_eq!(desk.next(5_000), "wait until 5200");
    assert_eq!(desk.send(5_200, Sent::Delivered, 5_210), "Change a");
    assert_eq!(desk.next(5_210), "wait until 9900");
}

#[test]
fn row_37_retries_wait_2_4_8_up_to_60_seconds_until_delivered() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    let mut at = 300;
    for (attempt, seconds) in [2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
        assert_eq!(desk.send(at, Sent::Unreachable, at), if attempt == 0 { "Change a" } else { "Retry a" });
        assert_eq!(desk.next(at), format!("wait until {}", at + seconds * 1_000));
        at += seconds * 1_000;
    }
    assert_eq!(desk.send(at, Sent::Delivered, at), "Retry a");
    assert!(desk.pending.is_empty());
}

#[test]
fn the_jitter_is_full() {
    for (fraction, expected) in [(0.0, 100), (0.25, 500), (0.5, 1_000), (1.0, 2_000), (7.0, 2_000), (-1.0, 100)] {
        assert_eq!(delay(1, fraction, false), Duration::from_millis(expected), "{fraction}");
    }
}

#[test]
fn without_an_answer_all_wait_for_one_pause() {
    let mut desk = Desk::new();
    for name in ["a", "b", "other/c"] {
        desk.changed(0, name);
    }
    assert_eq!(desk.send(300, Sent::Unreachable, 400), "Change a");
    assert_eq!(desk.next(400), "wait until 2400");
    // It keeps its position, and after its success the others follow at once.
    assert_eq!(desk.send(2_400, Sent::Delivered, 2_500), "Retry a");
    assert_eq!(desk.send(2_500, Sent::Delivered, 2_600), "Change b");
    assert_eq!(desk.send(2_600, Sent::Delivered, 2_700), "Change c");
}

#[test]
fn a_manager_that_cannot_holds_up_no_other() {
    let mut desk = Desk::new();
    for name in ["a", "b", "other/c"] {
        desk.changed(0, name);
    }
    assert_eq!(desk.send(300, Sent::Busy(None), 300), "Change a");
    assert_eq!(desk.send(300, Sent::Delivered, 310), "Change c");
    assert_eq!(desk.next(310), "wait until 2300");
    // A refused object goes behind the others, so that it cannot delay them.
    desk.changed(2_000, "b");
    assert_eq!(desk.send(2_300, Sent::Delivered, 2_310), "Change b");
    assert_eq!(desk.send(2_310, Sent::Busy(None), 2_310), "Retry a");
}

#[test]
fn row_37_retry_after_is_honoured_within_reason() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    desk.send(300, Sent::Busy(Some(Duration::from_secs(30))), 300);
    assert_eq!(desk.next(300), "wait until 30300");
    desk.send(30_300, Sent::Busy(Some(Duration::from_secs(86_400))), 30_300);
    assert_eq!(desk.next(30_300), "wait until 330300");
    // A shorter `Retry-After` than our own pause has no effect.
    desk.send(330_300, Sent::Busy(Some(Duration::ZERO)), 330_300);
    assert_eq!(desk.next(330_300), "wait until 338300");
}

#[test]
fn a_newer_change_supersedes_a_failure() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    for at in [300, 10_300, 40_300] {
        desk.send(at, Sent::Busy(None), at);
    }
    desk.changed(48_300, "a");
    // The manager's pause is over by then, and the object's own pause no longer counts.
    assert_eq!(desk.send(48_600, Sent::Delivered, 48_700), "Change a");
}

#[test]
fn what_is_refused_for_good_is_gone() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    assert_eq!(desk.send(300, Sent::Refused, 310), "Change a");
    assert!(desk.pending.is_empty());
}

#[test]
fn beyond_its_bound_the_oldest_is_dropped() {
    let mut desk = Desk::new();
    for (at, name) in [(0, "a"), (1, "b"), (2, "c")] {
        assert_eq!(desk.changed(at, name), None);
    }
    assert_eq!(desk.changed(3, "d"), Some("a".to_owned()));
    // Repeated events are dropped first, and this loses nothing.
    desk.send(301, Sent::Delivered, 302);
    assert_eq!(desk.changed(303, "e"), None);
    assert_eq!(desk.pending.depth(desk.at(303)).undelivered, 3);
    assert_eq!(desk.changed(304, "f"), Some("c".to_owned()));
}

#[test]
fn row_43_at_the_end_nothing_waits_longer_than_it_must() {
    let mut desk = Desk::new();
    desk.changed(0, "a");
    desk.changed(0, "b");
    desk.send(300, Sent::Delivered, 310);
    desk.send(310, Sent::Unreachable, 320);
    desk.changed(330, "c");
    let now = desk.at(340);
    desk.pending.drain(now);
    let mut sent = vec![desk.send(340, Sent::Delivered, 341), desk.send(341, Sent::Delivered, 342)];
    sent.sort();
    assert_eq!(sent, ["Again a", "Retry b"]);
    // During shutdown, the settle delay still applies, and the repetition follows at once.
    assert_eq!(desk.next(342), "Again b");
    desk.pending.sent(&Arc::new(key("b")), Sent::Delivered, now, now, 1.0);
    assert_eq!(desk.send(630, Sent::Unreachable, 630), "Change c");
    assert_eq!(desk.next(630), "wait until 1130");
    desk.send(1_130, Sent::Delivered, 1_130);
    desk.send(1_130, Sent::Delivered, 1_130);
    assert!(desk.pending.is_empty());
}

#[test]
fn a_reminder_needs_no_settling_and_is_sent_once() {
    let mut desk = Desk::new();
    let now = desk.at(0);
    desk.pending.remind(key("a"), now);
    assert_eq!(desk.send(0, Sent::Delivered, 1), "Change a");
    assert!(desk.pending.is_empty());
}

#[test]
fn managers_without_anything_are_forgotten() {
    let mut desk = Desk::new();
    for index in 0..100 {
        let at = index * 10_000;
        desk.changed(at, &format!("m{index}/a"));
        desk.send(at + 300, Sent::Refused, at + 300);
        desk.changed(at + 301, &format!("m{index}/b"));
        desk.send(at + 700, Sent::Busy(None), at + 700);
    }
    assert!(desk.pending.busy.len() <= 4 && desk.pending.objects.len() <= 3, "{:?}", desk.pending);
}

#[test]
fn new_credentials_end_the_pauses_but_not_those_that_were_asked_for() {
    for (sent, expected) in [
        (Sent::Unreachable, "Retry a"),
        (Sent::Busy(None), "Retry a"),
        (Sent::Busy(Some(Duration::from_secs(30))), "wait until 30300"),
    ] {
        let mut desk = Desk::new();
        desk.changed(0, "a");
        for attempt in 0..6 {
            let at = 300 + attempt;
            let now = desk.at(at);
            if let Next::Send(key, _) = desk.pending.next(now) {
                desk.pending.sent(&key, sent, now, now, 1.0);
            }
            // Every pause but the last ends early, as if its random part were short.
            if attempt < 5 && sent == Sent::Unreachable {
                desk.pending.retry(now);
            }
        }
        assert!(desk.next(1_000).starts_with("wait"), "{sent:?}");
        let now = desk.at(1_000);
        desk.pending.retry(now);
        assert_eq!(desk.next(1_000), expected, "{sent:?}");
    }
}
