//! What happens often is said seldom, with how often it was.

use std::time::{Duration, Instant};

/// How often something has happened since that was last said.
#[derive(Debug, Default)]
pub struct Seldom {
    said: Option<Instant>,
    unsaid: u64,
}

/// It is said at most so often. Metrics count each.
const EVERY: Duration = Duration::from_secs(60);

// === impl Seldom ===

impl Seldom {
    /// It has happened. Gives back how often it has since that was last said, if it is to be said now.
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
