//! When to go again: the one place where a class of failure becomes a delay.
//!
//! Reads no clock and throws no dice: the caller passes the count of failures, and the fraction that jitter takes.

use std::time::Duration;

/// What can help after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Only a change of what we were given can help: a new revision, another Secret, a human.
    Stalled,
    /// Something else must happen first, and will: a finalizer, a rollout, a custom resource definition.
    Waiting,
    /// The same call may succeed if it is made again.
    Transient,
}

/// First delay after a transient failure.
pub const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest delay after transient failures: a cluster that returns is noticed within two minutes, also without an event.
pub const BACKOFF_MAX: Duration = Duration::from_secs(120);
/// How often we look whether what we wait for has happened, where no watch tells us. Waits are short (a rollout, a
/// finalizer), and each look is a read or two.
pub const DEPENDENCY_POLL: Duration = Duration::from_secs(2);
/// Slowest look at what we wait for, so that something stuck for hours costs next to nothing.
pub const DEPENDENCY_POLL_MAX: Duration = Duration::from_secs(30);
/// Looks at the pace of [`DEPENDENCY_POLL`] before it slows down.
const DEPENDENCY_POLLS_BRISK: u32 = 15;

/// How long to wait before trying again unasked. `attempt` counts failures in a row, from 1.
pub fn delay(class: Class, attempt: u32, interval: Duration) -> Duration {
    match class {
        Class::Stalled => interval, // Only a change can help; the interval is a safety net.
        Class::Waiting if attempt <= DEPENDENCY_POLLS_BRISK => DEPENDENCY_POLL,
        Class::Waiting => backoff(DEPENDENCY_POLL, DEPENDENCY_POLL_MAX, attempt - DEPENDENCY_POLLS_BRISK),
        Class::Transient => backoff(BACKOFF_MIN, BACKOFF_MAX, attempt),
    }
}

/// The longer of `delay` and what the other side asked for, within reason.
pub fn at_least(delay: Duration, asked: Duration) -> Duration {
    delay.max(asked.min(BACKOFF_MAX))
}

/// `min`, doubled with every attempt after the first, at most `max`.
pub fn backoff(min: Duration, max: Duration, attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1);
    min.saturating_mul(2_u32.saturating_pow(doublings)).min(max)
}

/// `delay`, lengthened by up to a quarter, so that what failed together does not return together.
/// `fraction` is from 0 to 1 and comes from the caller's dice.
pub fn jittered(delay: Duration, fraction: f64) -> Duration {
    delay + delay.mul_f64(fraction.clamp(0.0, 1.0) / 4.0)
}

/// When to ask a source again: after its interval and up to a tenth more, so that sources that start together drift apart.
/// `fraction` is from 0 to 1 and comes from the caller's dice.
pub fn poll(interval: Duration, fraction: f64) -> Duration {
    interval + interval.mul_f64(fraction.clamp(0.0, 1.0) / 10.0)
}

#[cfg(test)]
mod tests;
