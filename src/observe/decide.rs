//! Decides when a runtime is compared. Pure.

use std::time::Duration;

use tidegate_core::object::Digest;
use tokio::time::Instant;

/// Reads for each object and hour that comparing an unchanged runtime may cost. With the watches of the control plane,
/// which have no share of a runtime, the sum stays below a tenth.
pub(crate) const READS_PER_OBJECT_AND_HOUR: f64 = 0.08;
/// The shortest time between two comparisons of a runtime that changes: an upgrade changes its Manifests many times.
pub(crate) const CHANGE_GAP: Duration = Duration::from_secs(60);
/// The longest pause: a runtime with few objects is compared at least once a day.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The last comparison of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compared {
    /// Digest of everything that decides what the runtime should have.
    pub(crate) wanted: Digest,
    /// When it began.
    pub(crate) at: Instant,
    /// Its requests.
    pub(crate) reads: u64,
    /// The objects that were compared.
    pub(crate) objects: usize,
}

/// Whether a comparison is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Now.
    Now,
    /// After this time, if nothing changes until then.
    In(Duration),
}

/// Decides whether a comparison is due. `wanted` is the digest of what the runtime should have now, and `gap` the
/// shortest time between two comparisons of a runtime that changes.
pub(crate) fn due(last: Option<&Compared>, wanted: Digest, (interval, gap): (Duration, Duration), now: Instant) -> Due {
    let Some(last) = last else { return Due::Now };
    let pause = if last.wanted == wanted { pause(interval, last.reads, last.objects) } else { gap };
    match pause.checked_sub(now.saturating_duration_since(last.at)) {
        Some(rest) if !rest.is_zero() => Due::In(rest),
        Some(_) | None => Due::Now,
    }
}

/// How long an unchanged runtime is left alone after a comparison with so many reads.
pub(crate) fn pause(interval: Duration, reads: u64, objects: usize) -> Duration {
    let objects = u32::try_from(objects.max(1)).unwrap_or(u32::MAX);
    let reads = u32::try_from(reads).unwrap_or(u32::MAX);
    let hours = f64::from(reads) / (f64::from(objects) * READS_PER_OBJECT_AND_HOUR);
    let affordable = Duration::try_from_secs_f64(hours * 3600.0).unwrap_or(PAUSE_MAX);
    interval.max(affordable.min(PAUSE_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1800);

    fn hours(hours: f64) -> Duration {
        Duration::from_secs_f64(hours * 3600.0)
    }

    #[test]
    fn an_unchanged_runtime_is_left_alone_for_as_long_as_its_reads_ask() {
        for (reads, objects, expected) in [
            (16, 200, hours(1.0)),
            (16, 100, hours(2.0)),
            // A large runtime costs less than the interval asks.
            (16, 4000, INTERVAL),
            (0, 0, INTERVAL),
            // Nothing waits longer than a day.
            (1000, 1, PAUSE_MAX),
        ] {
            assert_eq!(pause(INTERVAL, reads, objects), expected, "{reads} reads, {objects} objects");
        }
    }

    #[test]
    fn a_comparison_is_due_at_once_after_a_minute_or_when_its_reads_allow_it() {
        let (old, new) = (Digest::of_bytes(b"old"), Digest::of_bytes(b"new"));
        let start = Instant::now();
        let last = Compared { wanted: old, at: start, reads: 16, objects: 200 };
        let after = |seconds| start + Duration::from_secs(seconds);
        let due = |last, wanted, now| due(last, wanted, (INTERVAL, CHANGE_GAP), now);
        assert_eq!(due(None, old, start), Due::Now);
        assert_eq!(due(Some(&last), old, after(60)), Due::In(Duration::from_secs(3540)));
        assert_eq!(due(Some(&last), old, after(3600)), Due::Now);
        assert_eq!(due(Some(&last), new, after(10)), Due::In(Duration::from_secs(50)));
        assert_eq!(due(Some(&last), new, after(60)), Due::Now);
    }

    /// What a day of comparing costs, whatever a runtime has.
    #[test]
    fn a_day_of_comparing_stays_below_a_tenth_of_a_read_for_each_object_and_hour() {
        for (reads, objects) in [(12_u32, 8_u32), (20, 135), (25, 400), (16, 4000)] {
            let pause = pause(Duration::from_secs(600), u64::from(reads), objects as usize);
            if pause == PAUSE_MAX {
                continue;
            }
            let hourly = f64::from(reads) * 3600.0 / pause.as_secs_f64();
            assert!(hourly / f64::from(objects) < 0.1, "{reads} {objects}: {hourly}");
        }
    }
}
