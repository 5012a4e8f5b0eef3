//! Limits how often a frequent occurrence is logged, and counts the rest.

use std::time::{Duration, Instant};

/// Counts occurrences since the last log.
#[derive(Debug, Default)]
pub struct Seldom {
    said: Option<Instant>,
    unsaid: u64,
}

/// Interval between two logs. Metrics count every occurrence.
const EVERY: Duration = Duration::from_secs(60);

// === impl Seldom ===

impl Seldom {
    /// Counts an occurrence. If it is time to log, returns how many occurred since the last log.
    pub fn happened(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.said.is_some_and(|said| now.saturating_duration_since(said) < EVERY) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_is_said_once_a_minute_with_its_number() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        assert_eq!(seldom.happened(start), Some(1), "the first at once");
        for milliseconds in 1..5_000 {
            assert_eq!(seldom.happened(start + Duration::from_millis(milliseconds)), None);
        }
        assert_eq!(seldom.happened(start + EVERY), Some(5_000));
    }
}
