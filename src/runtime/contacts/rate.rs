//! Decides how many probes are sent in a second. Pure.
//!
//! A path that breaks is found by up to three probes: the first one at the usual time of its runtime, the others soon
//! after a lost one. If many paths break at once, each second has up to three times as many probes as usual, so the
//! bound is three times the usual number. Each priority has a share. So no burst of one delays another, and the first
//! probes of a new process spread over the interval:
//!
//! * As many usual probes as the fleet needs for the interval, and a quarter more. At most this many runtimes come into
//!   doubt in a second.
//! * Twice as many for those in doubt, which is all they can need: so none of them waits, however many paths break.
//! * As many as usual for those whose agent is deaf, out of what is left. They are late first.
//!
//! A bound that a user sets has no shares. Those in doubt come first, and the others are late, the longest wait first:
//! an agent that was deaf is found again as soon as a path that broke.

use std::time::Duration;

use super::watch_state::{ProbePriority, TRIES};

/// The greatest number of probes in one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    /// Probes at the usual times of their runtimes, and probes of those whose agent is deaf.
    pub(super) usual: usize,
    /// Probes of those in doubt.
    pub(super) doubt: usize,
    /// All of them.
    pub(super) total: usize,
}

/// What may still be sent in this second.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbesLeft {
    usual: usize,
    doubt: usize,
    deaf: usize,
    total: usize,
}

/// So few usual probes in a second are not felt, in a fleet of any size.
const USUAL_MIN: usize = 4;
/// So many usual probes a second are enough for 13,000 runtimes at the default interval. A larger fleet, or a shorter
/// interval, has probes that are further apart.
const USUAL_MAX: usize = 100;

// === impl Rate ===

impl Rate {
    /// The bounds for so many runtimes, or those that follow from what a user has `given`.
    pub(super) fn of(runtimes: usize, interval: Duration, given: Option<usize>) -> Rate {
        if let Some(total) = given {
            return Rate { usual: total, doubt: total, total };
        }
        let interval = usize::try_from(interval.as_millis()).unwrap_or(usize::MAX).max(1);
        let needed = runtimes.saturating_mul(5 * 1000).div_ceil(interval.saturating_mul(4));
        let usual = needed.clamp(USUAL_MIN, USUAL_MAX);
        let doubt = usual * (TRIES as usize - 1);
        Rate { usual, doubt, total: usual + doubt }
    }

    /// The priority that decides the order of a probe.
    pub(super) fn order(priority: ProbePriority, given: Option<usize>) -> ProbePriority {
        match (priority, given) {
            (ProbePriority::Deaf, Some(_)) => ProbePriority::Usual,
            (ProbePriority::Deaf | ProbePriority::Doubt | ProbePriority::Usual, _) => priority,
        }
    }

    /// What may be sent in a new second.
    pub(super) fn begin(self) -> ProbesLeft {
        let Rate { usual, doubt, total } = self;
        ProbesLeft { usual, doubt, deaf: usual, total }
    }
}

// === impl ProbesLeft ===

impl ProbesLeft {
    /// Takes one probe, if one is left for this priority.
    pub(super) fn take(&mut self, priority: ProbePriority) -> bool {
        let share = match priority {
            ProbePriority::Doubt => &mut self.doubt,
            ProbePriority::Usual => &mut self.usual,
            ProbePriority::Deaf => &mut self.deaf,
        };
        let is_left = 0 < self.total && 0 < *share;
        if is_left {
            self.total -= 1;
            *share -= 1;
        }
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_fleet_and_the_interval_and_has_an_end() {
        let default = Duration::from_secs(130);
        let short = Duration::from_secs(1);
        for (runtimes, interval, given, usual, total) in [
            (0, default, None, 4, 12),
            (1, default, None, 4, 12),
            (416, default, None, 4, 12),
            (500, default, None, 5, 15),
            (5_000, default, None, 49, 147),
            (10_400, default, None, 100, 300),
            (1_000_000, default, None, 100, 300),
            (5_000, Duration::from_secs(10), None, 100, 300),
            (10, short, None, 13, 39),
            (5_000, short, None, 100, 300),
            (5_000, Duration::ZERO, None, 100, 300),
            // What a user sets is the bound of all together.
            (5_000, default, Some(10), 10, 10),
            (1, default, Some(1_000), 1_000, 1_000),
        ] {
            let order = [ProbePriority::Doubt, ProbePriority::Usual, ProbePriority::Deaf]
                .map(|priority| Rate::order(priority, given));
            let last = if given.is_some() { ProbePriority::Usual } else { ProbePriority::Deaf };
            assert_eq!(order, [ProbePriority::Doubt, ProbePriority::Usual, last]);
            let rate = Rate::of(runtimes, interval, given);
            assert_eq!((rate.usual, rate.total), (usual, total), "{runtimes} runtimes, {interval:?}, {given:?}");
        }
    }

    #[test]
    fn each_priority_has_its_share() {
        let sent = |rate: Rate, waiting: [(ProbePriority, usize); 3]| {
            let mut left = rate.begin();
            waiting.map(|(priority, count)| (0..count).filter(|_| left.take(priority)).count())
        };
        let (doubt, usual, deaf) = (ProbePriority::Doubt, ProbePriority::Usual, ProbePriority::Deaf);
        let rate = Rate::of(5_000, Duration::from_secs(130), None);
        // All at once: those that are known to be deaf wait.
        assert_eq!(sent(rate, [(doubt, 500), (usual, 500), (deaf, 500)]), [98, 49, 0]);
        assert_eq!(sent(rate, [(doubt, 10), (usual, 38), (deaf, 500)]), [10, 38, 49]);
        assert_eq!(sent(rate, [(doubt, 80), (usual, 38), (deaf, 500)]), [80, 38, 29]);
        assert_eq!(sent(rate, [(doubt, 0), (usual, 5_000), (deaf, 0)]), [0, 49, 0], "a new process");
        // One bound for all: those in doubt come first.
        let given = Rate::of(5_000, Duration::from_secs(130), Some(10));
        assert_eq!(sent(given, [(doubt, 8), (usual, 38), (deaf, 500)]), [8, 2, 0]);
    }
}
