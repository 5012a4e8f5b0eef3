//! A circuit breaker: an unreachable cluster gets no requests except probes, at growing intervals.
//!
//! Only failures to connect count. Any answer closes the circuit, even an error. A request that is refused fails with
//! the cause of the last failure: users read why a cluster is left alone, not that it is.

use std::time::Duration;

use tidegate_process::{lock::Mutex, retry};
use tokio::{sync::Notify, time::Instant};

use super::error::Unreachable;

/// Consecutive failures that open the circuit. Requests run in parallel, so one lost connection may fail several.
const FAILURES_MAX: u32 = 5;
/// First pause before a probe.
const PAUSE_MIN: Duration = Duration::from_secs(2);
/// Longest pause before a probe: a recovered cluster is used again within half a minute.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A cluster that cannot be reached at the moment, or answers only with errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Since when, as far as this process knows.
    pub since: Instant,
    /// Why the last request failed.
    pub cause: Unreachable,
}

/// The state of the circuit to one cluster.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: Mutex<State>,
    /// Notified when the cluster answers after an outage.
    recovered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Consecutive failures while the circuit is closed.
    failures: u32,
    /// When the first of them was.
    failed_at: Option<Instant>,
    /// Set while the circuit is open.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    /// When the next probe may be sent.
    probe_at: Instant,
    /// Whether a probe is in flight.
    probing: bool,
    /// Number of failed probes.
    probes: u32,
    /// Why the last request failed.
    cause: Unreachable,
    /// When the first request failed.
    since: Instant,
}

// === impl Breaker ===

impl Breaker {
    /// Whether a request may be sent. While the circuit is open, one caller may send a probe after each pause; the
    /// others get the cause of the last failure.
    pub(super) fn admit(&self, now: Instant) -> Result<(), Unreachable> {
        let mut state = self.lock();
        match &mut state.open {
            None => Ok(()),
            Some(open) if now < open.probe_at => Err(open.cause),
            Some(open) => {
                // This caller sends the probe. The others wait for its result or for another pause.
                open.probe_at = now + pause(open.probes);
                open.probing = true;
                Ok(())
            }
        }
    }

    /// Ends the pause: the next request is a probe.
    pub(super) fn probe_now(&self, now: Instant) {
        if let Some(open) = &mut self.lock().open {
            open.probe_at = now;
        }
    }

    /// Records that the cluster answered.
    pub(super) fn succeeded(&self) {
        let mut state = self.lock();
        if state.failures == 0 && state.open.is_none() {
            return;
        }
        if std::mem::take(&mut *state).open.is_some() {
            self.recovered.notify_waiters();
        }
    }

    /// Records that the cluster could not be reached.
    pub(super) fn failed(&self, cause: Unreachable, now: Instant) {
        let mut state = self.lock();
        match &mut state.open {
            Some(open) if open.probing => {
                open.cause = cause;
                open.probes = open.probes.saturating_add(1);
                open.probe_at = now + pause(open.probes);
                open.probing = false;
            }
            // Requests that were in flight when the circuit opened add no information.
            Some(_) => {}
            None => {
                state.failures += 1;
                let since = *state.failed_at.get_or_insert(now);
                if state.failures >= FAILURES_MAX {
                    state.open = Some(Open { probe_at: now + pause(0), probing: false, probes: 0, cause, since });
                }
            }
        }
    }

    /// Opens the circuit for a cluster that has not answered since then, although no request has failed yet: a server
    /// that accepts connections and is silent shows that only at the time-out of each request.
    pub(super) fn trip(&self, since: Instant, now: Instant) {
        let mut state = self.lock();
        if state.open.is_none() {
            let cause = Unreachable::Timeout;
            state.open = Some(Open { probe_at: now + pause(0), probing: false, probes: 0, cause, since });
        }
    }

    /// Whether requests are refused now.
    pub(super) fn is_open(&self) -> bool {
        self.lock().open.is_some()
    }

    /// The outage, while requests are refused.
    pub(super) fn outage(&self) -> Option<Outage> {
        self.lock().open.as_ref().map(|open| Outage { since: open.since, cause: open.cause })
    }

    /// Completes when the cluster answers after an outage, or with the next [`Breaker::wake`].
    pub(super) async fn recovered(&self) {
        self.recovered.notified().await;
    }

    /// Wakes those that wait for the end of an outage.
    pub(super) fn wake(&self) {
        self.recovered.notify_waiters();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn pause(probes: u32) -> Duration {
    retry::backoff(PAUSE_MIN, PAUSE_MAX, probes.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAUSE: Unreachable = Unreachable::Connect;

    #[test]
    fn opens_after_failures_in_a_row_and_lets_one_probe_through_after_each_pause() {
        let breaker = Breaker::default();
        let start = Instant::now();
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.admit(start), Ok(()));
            breaker.failed(CAUSE, start);
        }
        assert_eq!(breaker.admit(start), Err(CAUSE));
        assert_eq!(breaker.admit(start + PAUSE_MIN - Duration::from_millis(1)), Err(CAUSE));
        assert_eq!(breaker.admit(start + PAUSE_MIN), Ok(()));
        assert_eq!(breaker.admit(start + PAUSE_MIN), Err(CAUSE), "only one probe");
        breaker.failed(CAUSE, start + PAUSE_MIN);
        assert_eq!(breaker.admit(start + PAUSE_MIN * 2), Err(CAUSE));
        assert_eq!(breaker.admit(start + PAUSE_MIN * 3), Ok(()));
        breaker.succeeded();
        assert_eq!(breaker.admit(start), Ok(()));
        assert!(!breaker.is_open());
    }

    #[test]
    fn a_request_of_a_user_ends_the_pause_for_one_probe_and_the_last_cause_stays() {
        let breaker = Breaker::default();
        let now = Instant::now();
        breaker.probe_now(now);
        assert_eq!(breaker.admit(now), Ok(()), "a closed circuit needs no probe");
        (0..FAILURES_MAX).for_each(|_| breaker.failed(CAUSE, now));
        assert_eq!(breaker.admit(now), Err(CAUSE));
        breaker.probe_now(now);
        assert_eq!(breaker.admit(now), Ok(()));
        assert_eq!(breaker.admit(now), Err(CAUSE), "only one probe");
        breaker.failed(Unreachable::Tls, now);
        assert_eq!(breaker.admit(now), Err(Unreachable::Tls), "the cause is that of the probe");
        breaker.probe_now(now);
        assert_eq!(breaker.admit(now), Ok(()));
        breaker.succeeded();
        assert!(!breaker.is_open());
    }

    #[tokio::test]
    async fn an_outage_has_a_begin_and_a_cause_and_its_end_wakes_those_that_wait_for_it() {
        let breaker = Breaker::default();
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        breaker.failed(CAUSE, start);
        assert_eq!(breaker.outage(), None, "one failure is none");
        (1..FAILURES_MAX).for_each(|_| breaker.failed(Unreachable::Timeout, later));
        assert_eq!(breaker.outage(), Some(Outage { since: start, cause: Unreachable::Timeout }));
        let waits = breaker.recovered();
        tokio::pin!(waits);
        assert!(futures::poll!(waits.as_mut()).is_pending());
        breaker.succeeded();
        waits.await;
        assert_eq!(breaker.outage(), None);
    }

    #[test]
    fn a_silent_cluster_is_an_outage_since_its_last_answer_until_it_answers() {
        let breaker = Breaker::default();
        let (since, now) = (Instant::now(), Instant::now() + Duration::from_secs(20));
        breaker.trip(since, now);
        assert_eq!(breaker.outage(), Some(Outage { since, cause: Unreachable::Timeout }));
        assert_eq!(breaker.admit(now), Err(Unreachable::Timeout));
        breaker.trip(now, now);
        assert_eq!(breaker.outage().map(|outage| outage.since), Some(since), "it is the same outage");
        assert_eq!(breaker.admit(now + PAUSE_MIN), Ok(()), "one request asks whether it is over");
        breaker.succeeded();
        assert_eq!(breaker.outage(), None);
    }

    #[test]
    fn requests_that_fail_together_count_as_one_outage() {
        let breaker = Breaker::default();
        let now = Instant::now();
        (0..100).for_each(|_| breaker.failed(CAUSE, now));
        assert_eq!(breaker.admit(now), Err(CAUSE));
        assert_eq!(breaker.admit(now + PAUSE_MIN), Ok(()), "the pause does not grow with what was under way");
    }

    #[test]
    fn an_answer_in_between_keeps_it_closed() {
        let breaker = Breaker::default();
        let now = Instant::now();
        for _ in 0..10 {
            breaker.failed(CAUSE, now);
            breaker.failed(CAUSE, now);
            breaker.succeeded();
        }
        assert_eq!(breaker.admit(now), Ok(()));
    }
}
