//! What a process knows of the removal of a runtime between passes. Pure.

use std::time::Duration;

use tidegate_process::retry;
use tokio::time::Instant;

/// What the removal of a runtime waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) enum RemovalWait {
    /// Nothing yet.
    #[default]
    NotBegun,
    /// A step.
    For {
        /// The message of the step.
        step: String,
        /// How many passes have waited for it, from 1.
        checks: u32,
        /// When the first of them did.
        since: Instant,
    },
}

/// First and longest delay between checks. Most steps take a second, but a user can delay one for days.
const CHECK_MIN: Duration = Duration::from_millis(250);
const CHECK_MAX: Duration = Duration::from_secs(10);

// === impl RemovalWait ===

impl RemovalWait {
    /// After a pass that waits for `step`. Returns when to check again. The delay grows with each pass.
    pub(super) fn after(self, step: &str, now: Instant) -> (RemovalWait, Duration) {
        let (checks, since) = match self {
            RemovalWait::For { step: former, checks, since } if former == step => (checks.saturating_add(1), since),
            RemovalWait::For { .. } | RemovalWait::NotBegun => (1, now),
        };
        (RemovalWait::For { step: step.to_owned(), checks, since }, retry::backoff(CHECK_MIN, CHECK_MAX, checks))
    }

    /// What it waits for, if it has done so for `long` or longer.
    pub(super) fn stuck(&self, long: Duration, now: Instant) -> Option<&str> {
        match self {
            RemovalWait::For { step, since, .. } if long <= now.saturating_duration_since(*since) => Some(step),
            RemovalWait::For { .. } | RemovalWait::NotBegun => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_for_one_step_slow_down_and_the_next_step_starts_anew() {
        let mut wait = RemovalWait::default();
        let mut check = |step: &str| {
            let (next, delay) = std::mem::take(&mut wait).after(step, Instant::now());
            wait = next;
            delay.as_millis()
        };
        assert_eq!([check("one"), check("one"), check("one"), check("two")], [250, 500, 1000, 250]);
        assert_eq!((0..9).fold(0, |_, _| check("two")), CHECK_MAX.as_millis());
        assert_eq!(check("one"), 250);
    }

    #[test]
    fn a_removal_is_stuck_once_it_has_waited_long_for_the_same_step() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let long = Duration::from_secs(300);
        let (wait, _) = RemovalWait::default().after("one", began);
        let (wait, _) = wait.after("one", at(200));
        assert_eq!((wait.stuck(long, at(299)), wait.stuck(long, at(300))), (None, Some("one")));
        let (wait, _) = wait.after("two", at(301));
        assert_eq!((wait.stuck(long, at(600)), wait.stuck(long, at(601))), (None, Some("two")));
        assert_eq!(RemovalWait::default().stuck(Duration::ZERO, at(9)), None);
    }
}
