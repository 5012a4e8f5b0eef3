//! Delays the answers to a runtime that sends many more events than the others.
//!
//! A delayed answer slows its sender down, and its events are merged into one piece of work anyway. A runtime that
//! sends alone is never delayed.
//!
//! The time is an argument. Memory is bounded by the number of runtimes that send within a second.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// How many events each runtime sent lately.
#[derive(Debug, Default)]
pub(super) struct Fairness {
    began: Option<Instant>,
    now: Counts,
    before: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    all: u64,
    runtimes: HashMap<Box<str>, Sent>,
}

#[derive(Debug, Default)]
struct Sent {
    events: u64,
    /// When the answer to the next excess event is due.
    next: Option<Instant>,
}

/// Length of a counting window. The current and the previous window cover the last one to two seconds.
const WINDOW: Duration = Duration::from_secs(1);
/// Events in a window that are always allowed. An agent sends a few at most.
const FREE: u64 = 50;
/// A runtime may send this many times the average of the others.
const MEASURE: u64 = 4;
/// Interval between answers to excess events.
const PACE: Duration = Duration::from_millis(10);
/// Limit of a delay.
const PAUSE_MAX: Duration = Duration::from_secs(2);

// === impl Fairness ===

impl Fairness {
    /// Counts an event and returns how long to delay its answer.
    pub(super) fn pause(&mut self, runtime: &str, now: Instant) -> Duration {
        self.turn(now);
        let next = self.before.runtimes.get(runtime).and_then(|sent| sent.next);
        self.now.add(runtime, next);
        let own = self.now.for_runtime(runtime).max(self.before.for_runtime(runtime));
        if own <= self.measure(runtime) {
            return Duration::ZERO;
        }
        let Some(sent) = self.now.runtimes.get_mut(runtime) else { return Duration::ZERO };
        let next = (sent.next.map_or(now, |next| next.max(now)) + PACE).min(now + PAUSE_MAX);
        sent.next = Some(next);
        next - now
    }

    /// How many events a runtime may send in a window, given what the others send.
    fn measure(&self, runtime: &str) -> u64 {
        let average = |counts: &Counts| counts.average_of_others(runtime);
        match (average(&self.now), average(&self.before)) {
            (None, None) => u64::MAX,
            (now, before) => FREE.max(MEASURE * now.max(before).unwrap_or_default()),
        }
    }

    fn turn(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        let passed = now.saturating_duration_since(began);
        if WINDOW <= passed {
            // Older windows are dropped.
            self.before = if passed < 2 * WINDOW { std::mem::take(&mut self.now) } else { Counts::default() };
            self.now = Counts::default();
            self.began = Some(now);
        }
    }
}

// === impl Counts ===

impl Counts {
    fn add(&mut self, runtime: &str, next: Option<Instant>) {
        self.all += 1;
        match self.runtimes.get_mut(runtime) {
            Some(sent) => sent.events += 1,
            None => {
                self.runtimes.insert(runtime.into(), Sent { events: 1, next });
            }
        }
    }

    fn for_runtime(&self, runtime: &str) -> u64 {
        self.runtimes.get(runtime).map_or(0, |sent| sent.events)
    }

    /// `None` if no other runtime sends.
    fn average_of_others(&self, runtime: &str) -> Option<u64> {
        let others = self.runtimes.len() - usize::from(self.runtimes.contains_key(runtime));
        (self.all - self.for_runtime(runtime)).checked_div(u64::try_from(others).unwrap_or(u64::MAX))
    }
}
