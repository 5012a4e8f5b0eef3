//! What a process knows of the end of a runtime between passes. Pure.

use std::time::Duration;

use tidegate_process::retry;

/// What the end of a runtime waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) enum RemovalWait {
    /// Nothing was waited for yet.
    #[default]
    NotBegun,
    /// One step, and how many looks for its end there were.
    For {
        /// Which, in words.
        step: String,
        /// From 1.
        looks: u32,
    },
}

/// First and slowest look for the end of something: most of it takes a second, and what a user holds may take days.
const LOOK_MIN: Duration = Duration::from_millis(250);
const LOOK_MAX: Duration = Duration::from_secs(10);

// === impl RemovalWait ===

impl RemovalWait {
    /// After a pass that still waits for `step`. Returns when to look again: soon, and later each time that it has not
    /// come.
    pub(super) fn after(self, step: &str) -> (RemovalWait, Duration) {
        let looks = match self {
            RemovalWait::For { step: former, looks } if former == step => looks.saturating_add(1),
            RemovalWait::For { .. } | RemovalWait::NotBegun => 1,
        };
        (RemovalWait::For { step: step.to_owned(), looks }, retry::backoff(LOOK_MIN, LOOK_MAX, looks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_one_step_slow_down_and_the_next_step_starts_anew() {
        let mut wait = RemovalWait::default();
        let mut look = |step: &str| {
            let (next, delay) = std::mem::take(&mut wait).after(step);
            wait = next;
            delay.as_millis()
        };
        assert_eq!([look("one"), look("one"), look("one"), look("two")], [250, 500, 1000, 250]);
        assert_eq!((0..9).fold(0, |_, _| look("two")), LOOK_MAX.as_millis());
        assert_eq!(look("one"), 250);
    }
}
