//! How long a revision is checked, and how many sources at the same time.
//!
//! A check takes a core, and a worker of the queue waits for it. So there are few permits for checks, fewer for sources
//! that have not been checked before, and one for all sources whose last check took too long. A source without a permit
//! continues with its last good revision, and is woken when there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
    time::Duration,
};

use tidegate_core::{
    budget::{Budget, Room},
    intake::Terms,
    name::Key,
    object::Digest,
    revision::Revision,
};
use tidegate_process::{ambient, lock::Mutex};
use tokio::time::Instant;

use super::{
    decide::Purpose,
    problem::Problem,
    share::{self, NoRoom},
};
use crate::{
    controller::{Queue, Subject},
    queue::Trigger,
    source::registry::SourceRegistry,
};

/// The checks of all sources.
#[derive(Default)]
pub(in crate::source) struct Checks(Mutex<CheckQueue>);

/// The sources that are checked, and those that wait. Pure.
#[derive(Debug, Default)]
struct CheckQueue {
    running: BTreeMap<Key, Rank>,
    /// How the last check of a source ended; none if no check has ended.
    last: BTreeMap<Key, Rank>,
    waiting: BTreeSet<Key>,
}

/// What to expect of a check, by the last one of its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rank {
    /// It ended in time.
    Proven,
    /// There was none.
    #[default]
    New,
    /// It took too long.
    Slow,
}

/// The permission to check a source. Dropping it wakes the sources that wait.
pub(super) struct CheckPermit<'a> {
    checks: &'a Checks,
    queue: &'a Queue,
    source: &'a Key,
}

/// The time for a check.
pub(super) struct CheckTime {
    /// For the work, which ends a little earlier, so that what it has read is not lost.
    pub(super) budget: Budget,
    until: Option<Instant>,
    limit: Duration,
    /// What the fetch has left of the limit.
    left: Duration,
}

/// The memory for the definitions of a check.
pub(super) struct CheckRoom {
    /// For the work, which ends with it.
    pub(super) room: Room,
    problem: Arc<OnceLock<NoRoom>>,
}

/// A revision that could not be checked in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::source) struct UncheckedRevision {
    revision: Revision,
    reading: Digest,
    limit: Duration,
    left: Duration,
    since: Instant,
}

/// Checks at the same time.
const CHECKS_MAX: usize = 8;
/// Checks of sources that this process has not checked before.
const NEW_CHECKS_MAX: usize = 6;
/// Checks of sources whose last check took too long.
const SLOW_CHECKS_MAX: usize = 1;
/// How long a revision that takes too long is left alone: each attempt takes a core for all of `spec.timeout`.
const UNCHECKED_PAUSE_MAX: Duration = Duration::from_secs(60 * 60);

// === impl Checks ===

impl Checks {
    /// A permit for the check of a source. If there is none, the source is woken when there may be one.
    pub(super) fn permit<'a>(&'a self, source: &'a Key, queue: &'a Queue) -> Option<CheckPermit<'a>> {
        // Only a permit that is granted is made, since dropping one takes the lock.
        let is_granted = self.0.lock().begin(source);
        is_granted.then(|| CheckPermit { checks: self, queue, source })
    }

    /// Records whether the check of a source ended in time.
    pub(super) fn ended(&self, source: &Key, is_in_time: bool) {
        let rank = if is_in_time { Rank::Proven } else { Rank::Slow };
        self.0.lock().last.insert(source.clone(), rank);
    }

    /// Forgets a source that was deleted.
    pub(in crate::source) fn forget(&self, source: &Key) {
        let mut checks = self.0.lock();
        checks.last.remove(source);
        checks.waiting.remove(source);
    }
}

// === impl CheckQueue ===

impl CheckQueue {
    fn begin(&mut self, source: &Key) -> bool {
        let rank = self.last.get(source).copied().unwrap_or_default();
        let of_rank = self.running.values().filter(|running| **running == rank).count();
        let max = match rank {
            Rank::Proven => CHECKS_MAX,
            Rank::New => NEW_CHECKS_MAX,
            Rank::Slow => SLOW_CHECKS_MAX,
        };
        let is_granted = self.running.len() < CHECKS_MAX && of_rank < max;
        if is_granted {
            self.running.insert(source.clone(), rank);
        } else {
            self.waiting.insert(source.clone());
        }
        is_granted
    }

    /// Ends a check. Returns the sources to wake.
    fn end(&mut self, source: &Key) -> BTreeSet<Key> {
        self.running.remove(source);
        std::mem::take(&mut self.waiting)
    }
}

// === impl CheckPermit ===

impl Drop for CheckPermit<'_> {
    fn drop(&mut self) {
        let waiting = self.checks.0.lock().end(self.source);
        for source in waiting {
            self.queue.push(Subject::Source(source), Trigger::Changed);
        }
    }
}

// === impl CheckTime ===

impl CheckTime {
    /// What is left of `spec.timeout` after a fetch that took `taken`. In a simulation there is no limit: work takes
    /// none of its time.
    pub(super) fn new(terms: &Terms, taken: Duration) -> CheckTime {
        let limit = terms.timeout;
        let left = limit.saturating_sub(taken);
        if ambient::is_simulated() {
            return CheckTime { budget: Budget::default(), until: None, limit, left };
        }
        let (begin, of_work) = (std::time::Instant::now(), left / 10 * 9);
        CheckTime {
            budget: Budget::new(move || begin.elapsed() < of_work),
            until: Some(Instant::now() + left),
            limit,
            left,
        }
    }

    /// Waits for a part of the check. Fails if the time is over; work on another thread then ends by itself soon after.
    pub(super) async fn within<T>(&self, revision: &Revision, work: impl Future<Output = T>) -> Result<T, Problem> {
        match self.until {
            None => Ok(work.await),
            Some(until) => tokio::time::timeout_at(until, work).await.map_err(|_| self.over(revision)),
        }
    }

    /// Fails if a part of the check ended early, so that its result is incomplete.
    pub(super) fn complete(&self, revision: &Revision) -> Result<(), Problem> {
        if self.budget.was_exceeded() { Err(self.over(revision)) } else { Ok(()) }
    }

    /// The error of a check that takes longer.
    pub(super) fn over(&self, revision: &Revision) -> Problem {
        Problem::CheckTime { revision: revision.clone(), limit: self.limit }
    }
}

// === impl CheckRoom ===

impl CheckRoom {
    /// The room beside the other sources, reserved as far as the check needs it. `active` is the size of the source's
    /// active revision.
    pub(super) fn new(registry: &SourceRegistry, source: &Key, purpose: Purpose, active: Option<u64>) -> CheckRoom {
        let problem = Arc::new(OnceLock::new());
        let found = Arc::clone(&problem);
        let fits = move |own, others: &BTreeMap<Key, u64>| match share::fits(purpose, own, active, others) {
            Ok(()) => true,
            Err(problem) => {
                // Only the first is asked for.
                let _ = found.set(problem.of_values(own / share::VALUE_BYTES));
                false
            }
        };
        let reserve = registry.reserve_more(source, fits);
        CheckRoom { room: Room::new(move |values| reserve(share::size(0, values))), problem }
    }

    /// Fails if there was not enough: the result of the work is then incomplete.
    pub(super) fn complete(&self, revision: &Revision) -> Result<(), Problem> {
        match self.problem.get() {
            Some(problem) => Err(Problem::TooLarge(problem.clone())),
            None if self.room.was_exceeded() => Err(Problem::Interrupted(revision.clone())),
            None => Ok(()),
        }
    }
}

// === impl UncheckedRevision ===

impl UncheckedRevision {
    /// A revision that could not be checked with these settings in this time.
    pub(super) fn new(revision: Revision, terms: &Terms, time: &CheckTime, since: Instant) -> UncheckedRevision {
        UncheckedRevision { revision, reading: terms.reading(), limit: time.limit, left: time.left, since }
    }

    /// Whether it is this revision.
    pub(super) fn is(&self, revision: &Revision) -> bool {
        self.revision == *revision
    }

    /// Whether another check would take too long again. It may not if the fetch leaves much more time.
    pub(super) fn is_hopeless(&self, terms: &Terms, time: &CheckTime, now: Instant) -> bool {
        let is_same = self.reading == terms.reading() && self.limit == time.limit && time.left / 2 < self.left;
        is_same && now.saturating_duration_since(self.since) < UNCHECKED_PAUSE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("kcp-system", name)
    }

    fn terms(timeout: &str) -> Terms {
        let source = serde_json::json!({
            "metadata": {"name": "a", "namespace": "kcp-system"},
            "spec": {"url": "https://git.example.com/a", "timeout": timeout},
        });
        Terms::from_source(&serde_json::from_value(source).unwrap()).unwrap()
    }

    #[test]
    fn a_revision_that_takes_too_long_is_checked_again_with_more_time_or_after_an_hour() {
        let (before, since) = (terms("60s"), Instant::now());
        let check = |terms: &Terms, taken: u64| CheckTime::new(terms, Duration::from_secs(taken));
        let unchecked = |taken| UncheckedRevision::new(Revision::WorkTree, &before, &check(&before, taken), since);
        for (first, timeout, taken, later, expected) in [
            (0, "60s", 0, 60, true),
            (1, "60s", 0, 60, true),
            (50, "60s", 0, 60, false),
            (0, "60s", 30, 60, true),
            (0, "90s", 0, 60, false),
            (0, "60s", 0, 3600, false),
        ] {
            let terms = terms(timeout);
            let now = since + Duration::from_secs(later);
            let found = unchecked(first).is_hopeless(&terms, &check(&terms, taken), now);
            assert_eq!(found, expected, "{first} s, then {timeout} - {taken} s after {later} s");
        }
    }

    #[test]
    fn slow_and_new_sources_leave_permits_to_all_others() {
        let mut queue = CheckQueue::default();
        let slow = ["slow-1", "slow-2"].map(key);
        for source in &slow {
            queue.last.insert(source.clone(), Rank::Slow);
        }
        assert_eq!(slow.each_ref().map(|source| queue.begin(source)), [true, false], "one of them at a time");
        let new: Vec<bool> = (0..7).map(|number| queue.begin(&key(&format!("new-{number}")))).collect();
        assert_eq!(new, [true, true, true, true, true, true, false]);
        for (name, expected) in [("known-1", true), ("known-2", false)] {
            queue.last.insert(key(name), Rank::Proven);
            assert_eq!(queue.begin(&key(name)), expected, "{name}");
        }
        let woken = queue.end(&slow[0]);
        assert_eq!(woken, [key("known-2"), key("new-6"), key("slow-2")].into());
        assert!(queue.begin(&slow[1]), "the next slow source has its permit");
        assert_eq!(queue.end(&slow[1]), BTreeSet::new(), "each is woken once");
    }
}
