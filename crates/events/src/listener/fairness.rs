//! Whose answers wait: those to a runtime that sends many times what the others send, while others send.
//!
//! An answer that comes later slows its sender down, and what it sends is merged into one piece of work anyway. A runtime
//! that is alone is never slowed.
//!
//! Told the time; bounded by the runtimes that send within a second.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Who sent how much lately.
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
    /// When the answer to the next event beyond the measure is due.
    next: Option<Instant>,
}

/// How long is counted at once; with what was counted before, the last one to two seconds are known.
const WINDOW: Duration = Duration::from_secs(1);
/// Events in a window that are nobody's business: an agent sends a few at most.
const FREE: u64 = 50;
/// A runtime may send so many times what the others send on average.
const MEASURE: u64 = 4;
/// Pace of answers beyond the measure.
const PACE: Duration = Duration::from_millis(10);
/// No answer waits longer.
const PAUSE_MAX: Duration = Duration::from_secs(2);

// === impl Fairness ===

impl Fairness {
    /// Counts an event, and says how long its answer is held back.
    pub(super) fn pause(&mut self, runtime: &str, now: Instant) -> Duration {
        self.turn(now);
        let next = self.before.runtimes.get(runtime).and_then(|sent| sent.next);
        self.now.add(runtime, next);
        let own = self.now.of(runtime).max(self.before.of(runtime));
        if own <= self.measure(runtime) {
            return Duration::ZERO;
        }
        let Some(sent) = self.now.runtimes.get_mut(runtime) else { return Duration::ZERO };
        let next = (sent.next.map_or(now, |next| next.max(now)) + PACE).min(now + PAUSE_MAX);
        sent.next = Some(next);
        next - now
    }

    /// What a runtime may send in a window, by what the others send.
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
            // What is older than a window is forgotten.
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

    fn of(&self, runtime: &str) -> u64 {
        self.runtimes.get(runtime).map_or(0, |sent| sent.events)
    }

    /// `None` if there are no others.
    fn average_of_others(&self, runtime: &str) -> Option<u64> {
        let others = self.runtimes.len() - usize::from(self.runtimes.contains_key(runtime));
        (self.all - self.of(runtime)).checked_div(u64::try_from(others).unwrap_or(u64::MAX))
    }
}
