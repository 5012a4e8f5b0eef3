//! When an event becomes work. Work begins after the change is persisted, and at a limited rate for each runtime. If
//! the sender does not wait until the change is persisted, the work is repeated a while later.
//!
//! A value that gets the time as an argument. It has at most one entry for each runtime, and only while work is due or
//! the rate limit has not fully recovered.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tidegate_core::name::Key;
use tokio::time::Instant;

use crate::queue::Triggers;

/// The due work of all runtimes.
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
    /// Repeated work, because the change may not have been persisted at the first time.
    again: Option<(Instant, Triggers)>,
    /// Until when the rate limit is used up; work may come a burst earlier.
    used_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Soon {
    at: Instant,
    /// Later events cannot delay the work beyond this.
    at_most: Instant,
    triggers: Triggers,
}

/// What an event became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// New work.
    New,
    /// Part of work that is due anyway.
    Merged,
}

/// Average interval of one runtime's work.
const EVERY: Duration = Duration::from_secs(1);
/// Work of one runtime that may come at once, so that edits by hand never wait.
const BURST: u32 = 10;
/// Longest delay of work while changes settle.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// When work is repeated. An admission ends after fifteen seconds at the latest, and usually within milliseconds.
pub(super) const AGAIN: Duration = Duration::from_secs(5);

// === impl Pace ===

impl Pace {
    pub(super) fn new(settle: Duration) -> Pace {
        Pace { settle, runtimes: HashMap::new(), due: BTreeSet::new() }
    }

    /// Accepts an event. `settled` says that the change is persisted already.
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

    /// The work that is due.
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

    /// When [`Pace::take`] next has work.
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
    /// The next time at which work is due, or at which the entry can be forgotten.
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

#[cfg(test)]
mod tests {
    use super::{
        super::decide::{About, triggers},
        *,
    };

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

        fn note(&mut self, milliseconds: u64, about: About, settled: bool) -> Noted {
            let at = self.at(milliseconds);
            self.pace.note(&Key::new("kcp-system", "one"), triggers(about), settled, at)
        }

        /// All work until a time, with the time of each.
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
        assert_eq!(bench.note(0, About::Kyma, true), Noted::New);
        assert_eq!(bench.work(60_000), work(&[(0, "reported")]));
        assert!(bench.pace.runtimes.is_empty() && bench.pace.due.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_change_that_is_being_admitted_is_work_after_a_moment_and_once_more_later() {
        let mut bench = Bench::new();
        bench.note(0, About::Kyma, false);
        assert_eq!(bench.work(60_000), work(&[(300, "reported"), (5000, "reported")]));
        assert!(bench.pace.runtimes.is_empty() && bench.pace.due.is_empty());
    }

    #[test]
    fn what_is_no_kyma_is_looked_for_among_all_objects() {
        let mut bench = Bench::new();
        bench.note(0, About::Kyma, true);
        assert_eq!(bench.note(0, About::Object, true), Noted::Merged);
        assert_eq!(bench.work(0), work(&[(0, "reported+drift")]));
    }

    #[test]
    fn changes_that_follow_each_other_put_work_off_up_to_a_second() {
        let mut bench = Bench::new();
        for milliseconds in (0..=2000).step_by(100) {
            bench.work(milliseconds);
            bench.note(milliseconds, About::Kyma, false);
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
            bench.note(milliseconds, About::Object, true);
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
            bench.note(milliseconds, About::Object, true);
            bench.work(milliseconds);
        }
        let at = bench.at(5000);
        let other = Key::new("kcp-system", "two");
        bench.pace.note(&other, triggers(About::Kyma), true, at);
        assert!(bench.pace.take(at).contains(&(other, triggers(About::Kyma))));
    }
}
