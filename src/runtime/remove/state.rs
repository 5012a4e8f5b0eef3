//! What a process knows of the removal of a runtime between passes. Pure.

use std::time::Duration;

use tidegate_process::retry;

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
    },
}

/// First and longest delay between checks. Most steps take a second, but a user can delay one for days.
const CHECK_MIN: Duration = Duration::from_millis(250);
const CHECK_MAX: Duration = Duration::from_secs(10);

// === impl RemovalWait ===

impl RemovalWait {
    /// After a pass that waits for `step`. Returns when to check again. The delay grows with each pass.
    pub(super) fn after(self, step: &str) -> (RemovalWait, Duration) {
        let checks = match self {
            RemovalWait::For { step: former, checks } if former == step => checks.saturating_add(1),
            RemovalWait::For { .. } | RemovalWait::NotBegun => 1,
        };
        (RemovalWait::For { step: step.to_owned(), checks }, retry::backoff(CHECK_MIN, CHECK_MAX, checks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_for_one_step_slow_down_and_the_next_step_starts_anew() {
        let mut wait = RemovalWait::default();
        let mut check = |step: &str| {
            let (next, delay) = std::mem::take(&mut wait).after(step);
            wait = next;
            delay.as_millis()
        };
        assert_eq!([check("one"), check("one"), check("one"), check("two")], [250, 500, 1000, 250]);
        assert_eq!((0..9).fold(0, |_, _| check("two")), CHECK_MAX.as_millis());
        assert_eq!(check("one"), 250);
    }
}
