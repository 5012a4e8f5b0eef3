//! When to retry: the one place that turns a class of failure into a delay.
//!
//! The number of failures and the random fraction are arguments.

use std::{
    num::IntErrorKind,
    time::{Duration, SystemTime},
};

/// What resolves a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Only a change of the input: a new revision, another Secret, or a human.
    Stalled,
    /// Something else must happen first, and will: a finalizer, a rollout, a CustomResourceDefinition.
    Waiting,
    /// The same call may succeed if it is repeated.
    Transient,
}

/// First delay after a transient failure.
pub const BACKOFF_MIN: Duration = Duration::from_millis(500);
/// Longest delay after transient failures: a recovered cluster is noticed within two minutes, even without an event.
pub const BACKOFF_MAX: Duration = Duration::from_secs(120);
/// How often to check a dependency that no watch reports. Such waits are short (a rollout, a finalizer), and each check
/// costs a read or two.
pub const DEPENDENCY_POLL: Duration = Duration::from_secs(2);
/// Longest interval of these checks, so that something stuck for hours costs next to nothing.
pub const DEPENDENCY_POLL_MAX: Duration = Duration::from_secs(30);
/// Number of checks at the interval [`DEPENDENCY_POLL`] before they slow down.
const DEPENDENCY_POLLS_BRISK: u32 = 15;

/// How long to wait before a retry. `attempt` counts consecutive failures, from 1.
pub fn delay(class: Class, attempt: u32, interval: Duration) -> Duration {
    match class {
        Class::Stalled => interval, // Only a change can help; the interval is a safety net.
        Class::Waiting if attempt <= DEPENDENCY_POLLS_BRISK => DEPENDENCY_POLL,
        Class::Waiting => backoff(DEPENDENCY_POLL, DEPENDENCY_POLL_MAX, attempt - DEPENDENCY_POLLS_BRISK),
        Class::Transient => backoff(BACKOFF_MIN, BACKOFF_MAX, attempt),
    }
}

/// How long to wait before a retry of what is repeated every `interval` anyway: never longer than that, jitter
/// included. `attempt` counts consecutive failures, from 1.
pub fn within(interval: Duration, attempt: u32, fraction: f64) -> Duration {
    // `jittered` adds up to a quarter.
    jittered(delay(Class::Transient, attempt, interval).min(interval.mul_f64(0.8)), fraction)
}

/// The longer of `delay` and the delay that the server requested, up to a limit.
pub fn at_least(delay: Duration, asked: Duration) -> Duration {
    delay.max(asked.min(BACKOFF_MAX))
}

/// The value of a `Retry-After` header: seconds, or the time until a date; no longer than `max`, so that a wrong value
/// stops nothing for good. None if it is neither.
pub fn asked(value: &str, now: SystemTime, max: Duration) -> Option<Duration> {
    let value = value.trim();
    let wait = match value.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => max,
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(max))
}

/// `min`, doubled with every attempt after the first, up to `max`.
pub fn backoff(min: Duration, max: Duration, attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1);
    min.saturating_mul(2_u32.saturating_pow(doublings)).min(max)
}

/// `delay`, extended by up to a quarter, so that what failed together does not retry together. `fraction` is a random
/// number from 0 to 1.
pub fn jittered(delay: Duration, fraction: f64) -> Duration {
    delay + delay.mul_f64(fraction.clamp(0.0, 1.0) / 4.0)
}

/// `interval`, shortened by up to a quarter, so that what is repeated spreads and is never late. `fraction` is a random
/// number from 0 to 1.
pub fn spread(interval: Duration, fraction: f64) -> Duration {
    interval - interval.mul_f64(fraction.clamp(0.0, 1.0) / 4.0)
}

/// When to poll a source again: after its interval plus up to a tenth, so that sources that start together drift apart.
/// `fraction` is a random number from 0 to 1.
pub fn poll(interval: Duration, fraction: f64) -> Duration {
    interval + interval.mul_f64(fraction.clamp(0.0, 1.0) / 10.0)
}

#[cfg(test)]
mod tests;
