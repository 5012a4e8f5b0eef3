//! When an event becomes work: after the change is stored, not more often than a runtime may ask, and for a sender that
//! does not wait until the change is stored, once more a while later.
//!
//! A value that is told the time. There is at most one entry a runtime, and only while something is due or its measure is
//! not full again.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tidegate_core::name::Key;
use tokio::time::Instant;

use crate::queue::{Trigger, Triggers};

/// What is due when, for all runtimes.
#[derive(Debug)]
pub(super) struct Pace {
    settle: Duration,
    runtimes: HashMap<Key, Entry>,
    due: BTreeSet<(Instant, Key)>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The next work.
    soon: Option<Soon>,
    /// Work once more, since what was told may not have been stored by then.
    again: Option<(Instant, Triggers)>,
    /// Until when the measure is used up: work may come a burst before.
    used_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Soon {
    at: Instant,
    /// It is not put off beyond this, whatever else is told.
    at_most: Instant,
    triggers: Triggers,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// It is work of its own.
    New,
    /// Work that is due anyway covers it.
    Merged,
}

/// Work that a runtime may ask for, on average.
const EVERY: Duration = Duration::from_secs(1);
/// Work that it may ask for at once: whoever edits by hand never waits.
const BURST: u32 = 10;
/// Longest that work is put off so that changes settle.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// When work is done once more. Admission ends after fifteen seconds at the latest, mostly within milliseconds.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

// === impl Pace ===

impl Pace {
    pub(super) fn new(settle: Duration) -> Pace {
        Pace { settle, runtimes: HashMap::new(), due: BTreeSet::new() }
    }

    /// Takes an event. `settled` says that the change is stored already.
    pub(super) fn note(&mut self, runtime: &Key, triggers: Triggers, settled: bool, now: Instant) -> Noted {
        let entry = self.runtimes.entry(runtime.clone()).or_default();
        let before = entry.next();
        let wanted = if settled { now } else { now + self.settle };
        let noted = match &mut entry.soon {
            Some(soon) => {
                soon.at = soon.at.max(wanted.min(soon.at_most));
                soon.triggers = soon.triggers.union(triggers);
                Noted::Merged
            }
            None => {
                let allowed = entry.used_until.and_then(|until| until.checked_sub(EVERY * (BURST - 1)));
                let at = allowed.map_or(wanted, |allowed| wanted.max(allowed));
                entry.soon = Some(Soon { at, at_most: at.max(now + SETTLE_MAX), triggers });
                Noted::New
            }
        };
        if !settled {
            let earlier = entry.again.map(|(_, triggers)| triggers).unwrap_or_default();
            entry.again = Some((now + AGAIN, earlier.union(triggers)));
        }
        let after = entry.next();
        self.reschedule(runtime, before, after);
        noted
    }

    /// Work whose moment has come.
    pub(super) fn take(&mut self, now: Instant) -> Vec<(Key, Triggers)> {
        let mut work = Vec::new();
        while let Some((moment, runtime)) = self.due.first().cloned() {
            if now < moment {
                break;
            }
            let Some(entry) = self.runtimes.get_mut(&runtime) else {
                self.due.pop_first();
                continue;
            };
            let triggers = entry.take(now);
            let after = entry.next();
            if entry.is_spent(now) {
                self.runtimes.remove(&runtime);
            }
            self.reschedule(&runtime, Some(moment), after);
            if !triggers.is_empty() {
                work.push((runtime, triggers));
            }
        }
        work
    }

    /// When [`Pace::take`] has something next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.first().map(|(moment, _)| *moment)
    }

    fn reschedule(&mut self, runtime: &Key, before: Option<Instant>, after: Option<Instant>) {
        if before == after {
            return;
        }
        if let Some(before) = before {
            self.due.remove(&(before, runtime.clone()));
        }
        if let Some(after) = after {
            self.due.insert((after, runtime.clone()));
        }
    }
}

// === impl Entry ===

impl Entry {
    /// The next moment at which there is work, or at which there is nothing left to remember.
    fn next(&self) -> Option<Instant> {
        let soon = self.soon.map(|soon| soon.at);
        let again = self.again.map(|(at, _)| at);
        match (soon, again) {
            (Some(soon), Some(again)) => Some(soon.min(again)),
            (None, None) => self.used_until,
            (soon, again) => soon.or(again),
        }
    }

    fn take(&mut self, now: Instant) -> Triggers {
        let mut triggers = Triggers::default();
        if let Some(soon) = self.soon.filter(|soon| soon.at <= now) {
            self.soon = None;
            self.used_until = Some(self.used_until.map_or(now, |until| until.max(now)) + EVERY);
            triggers = triggers.union(soon.triggers);
        }
        if let Some((_, again)) = self.again.filter(|(at, _)| *at <= now) {
            self.again = None;
            triggers = triggers.union(again);
        }
        triggers
    }

    fn is_spent(&self, now: Instant) -> bool {
        self.soon.is_none() && self.again.is_none() && self.used_until.is_none_or(|until| until <= now)
    }
}

/// What an event about something asks for.
pub(super) fn triggers(about_kyma: bool) -> Triggers {
    let triggers = Triggers::from(Trigger::Reported);
    if about_kyma { triggers } else { triggers.with(Trigger::Drift) }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        pace: Pace,
        start: Instant,
    }

    impl Bench {
        fn new() -> Bench {
            Bench { pace: Pace::new(Duration::from_millis(300)), start: Instant::now() }
        }

        fn at(&self, milliseconds: u64) -> Instant {
            self.start + Duration::from_millis(milliseconds)
        }

        fn note(&mut self, milliseconds: u64, about_kyma: bool, settled: bool) -> Noted {
            let at = self.at(milliseconds);
            self.pace.note(&Key::new("kcp-system", "one"), triggers(about_kyma), settled, at)
        }

        /// All work up to a moment, with the moment of each.
        fn work(&mut self, until: u64) -> Vec<(u128, String)> {
            let mut work = Vec::new();
            while let Some(next) = self.pace.next().filter(|next| *next <= self.at(until)) {
                let at = next.duration_since(self.start).as_millis();
                work.extend(self.pace.take(next).into_iter().map(|(_, triggers)| (at, triggers.to_string())));
            }
            work
        }
    }

    fn work(work: &[(u128, &str)]) -> Vec<(u128, String)> {
        work.iter().map(|(at, triggers)| (*at, (*triggers).to_owned())).collect()
    }

    #[test]
    fn a_change_that_is_stored_is_work_at_once_and_once() {
        let mut bench = Bench::new();
        assert_eq!(bench.note(0, true, true), Noted::New);
        assert_eq!(bench.work(60_000), work(&[(0, "reported")]));
        assert!(bench.pace.runtimes.is_empty() && bench.pace.due.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_change_that_is_being_admitted_is_work_after_a_moment_and_once_more_later() {
        let mut bench = Bench::new();
        bench.note(0, true, false);
        assert_eq!(bench.work(60_000), work(&[(300, "reported"), (5000, "reported")]));
        assert!(bench.pace.runtimes.is_empty() && bench.pace.due.is_empty());
    }

    #[test]
    fn what_is_no_kyma_is_looked_for_among_all_objects() {
        let mut bench = Bench::new();
        bench.note(0, true, true);
        assert_eq!(bench.note(0, false, true), Noted::Merged);
        assert_eq!(bench.work(0), work(&[(0, "watch+drift")]));
    }

    #[test]
    fn changes_that_follow_each_other_put_work_off_up_to_a_second() {
        let mut bench = Bench::new();
        for milliseconds in (0..=2000).step_by(100) {
            bench.work(milliseconds);
            bench.note(milliseconds, true, false);
        }
        let rest = bench.work(60_000);
        assert_eq!(rest.last(), work(&[(7000, "reported")]).last(), "once more after the last of them");
        assert!(rest.iter().any(|(at, _)| (2300..=3000).contains(at)), "{rest:?}");
    }

    #[test]
    fn a_storm_becomes_ten_and_then_one_a_second() {
        let mut bench = Bench::new();
        let mut all = Vec::new();
        for milliseconds in 0..30_000 {
            bench.note(milliseconds, false, true);
            all.extend(bench.work(milliseconds));
        }
        assert!((38..=41).contains(&all.len()), "{} of 30,000", all.len());
        let last = bench.work(60_000);
        assert_eq!(last.len(), 1, "and the last of them is not lost: {last:?}");
    }

    #[test]
    fn runtimes_do_not_wait_for_each_other() {
        let mut bench = Bench::new();
        for milliseconds in 0..5000 {
            bench.note(milliseconds, false, true);
            bench.work(milliseconds);
        }
        let at = bench.at(5000);
        let other = Key::new("kcp-system", "two");
        bench.pace.note(&other, triggers(true), true, at);
        assert!(bench.pace.take(at).contains(&(other, triggers(true))));
    }
}
