//! Sends events: one at a time, over one connection, until all have arrived.
//!
//! Besides events it sends probes and resyncs. A *probe* is a GET of the event path. If it is answered with 405,
//! everything works: name, TLS, gateway, route and listener. A *resync* is an event that makes the control plane check
//! the runtime although no change is known. The agent sends one after a start, because changes before it were missed;
//! after an outage; after it dropped events; and twice a day. Both have jitter, so that thousands of agents that start
//! together do not send together.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use http::StatusCode;
use tokio::{
    sync::watch,
    time::{sleep, sleep_until},
};

use super::{
    chain,
    client::{Answer, Client, Error},
    credentials::Generation,
    manager::Manager,
    metrics::{Failure, Metrics},
    outbox::{Outbox, now},
    pending::{BACKOFF_MAX, Key, Next, Occasion, Sent},
    settings::Timing,
};
use tidegate_events::event::{Event, Gvk, Watched};
use tidegate_process::tls;

/// Sends the events in the outbox.
pub struct Courier {
    outbox: Arc<Outbox>,
    client: Client,
    metrics: Metrics,
    timing: Timing,
    contract: String,
    probe: Option<Instant>,
    /// When to send a resync to each manager, and its scope.
    resyncs: BTreeMap<Manager, (Instant, Scope)>,
    /// When to send a resync to all managers.
    periodic: Option<Instant>,
}

/// What a resync asks the manager to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// The Kyma, or the object of the manager's last event.
    Usual,
    /// Every object, because changes may have been missed.
    All,
}

/// After a failed probe, the next one follows after this time.
const PROBE_RETRY: Duration = Duration::from_secs(20);
/// The namespace of the agent's objects and of the runtime's Kyma.
const NAMESPACE: &str = "kyma-system";

/// Sends until `stop` is true, and then flushes the outbox for the configured time. A new generation of credentials
/// ends all pauses after failures: it may be what was missing.
pub async fn deliver(
    mut courier: Courier,
    mut credentials: watch::Receiver<Arc<Generation>>,
    mut stop: watch::Receiver<bool>,
) {
    let (outbox, flush) = (Arc::clone(&courier.outbox), courier.timing.flush);
    let end = async {
        let _ = stop.wait_for(|stop| *stop).await;
        outbox.drain();
        sleep(flush).await;
    };
    let renewed = async {
        while credentials.changed().await.is_ok() {
            outbox.retry();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = courier.run() => {}
        () = end => {}
        () = renewed => {}
    }
}

// === impl Courier ===

impl Courier {
    /// Creates a sender.
    pub fn new(outbox: Arc<Outbox>, client: Client, metrics: Metrics, timing: Timing, contract: String) -> Courier {
        let now = now();
        let spread = |interval: Duration, least: f64| {
            (!interval.is_zero()).then(|| now + interval.mul_f64(least + (1.0 - least) * dice()))
        };
        let mut resyncs = BTreeMap::new();
        // Not at once: the changes that are waiting go first.
        if let Some(at) = spread(timing.resync_within, 1.0 / 3.0) {
            resyncs.insert(Manager::ours(), (at, Scope::All));
        }
        let (probe, periodic) =
            (spread(timing.probe_interval.min(Duration::from_secs(20)), 0.5), spread(timing.resync_interval, 0.5));
        Courier { outbox, client, metrics, timing, contract, probe, resyncs, periodic }
    }

    /// Sends until the outbox is drained.
    async fn run(&mut self) {
        while !self.outbox.is_drained() {
            self.remind();
            if self.outbox.take_retry() && self.probe.is_some() {
                self.probe = Some(now());
            }
            let until = match self.outbox.next() {
                Next::Send(key, occasion) => {
                    self.send(&key, occasion).await;
                    continue;
                }
                Next::Wait(until) => Some(until),
                Next::Idle => None,
            };
            if self.probe.is_some_and(|probe| probe <= now()) {
                self.prove().await;
                continue;
            }
            let resync = self.resyncs.values().map(|(at, _)| *at).min();
            // There is always a timer within a day.
            let soonest = [until, self.probe, resync, self.periodic].into_iter().flatten().min();
            let soonest = soonest.unwrap_or_else(|| now() + Duration::from_secs(86_400));
            tokio::select! {
                () = sleep_until(soonest.into()) => {}
                () = self.outbox.wait() => {}
            }
        }
    }

    async fn send(&mut self, key: &Arc<Key>, occasion: Occasion) {
        match occasion {
            Occasion::Change => self.metrics.event(),
            Occasion::Again => self.metrics.resend(),
            Occasion::Retry => {}
        }
        let started = now();
        let path = key.manager.event_path(&self.contract);
        let result = self.client.post(&path, key.event.to_body()).await;
        self.metrics.connections(self.client.connections());
        let sent = sent(&result);
        match (&result, sent) {
            // Another manager's listener may not answer. Our own is checked by probes.
            (Err(error), Sent::Busy(_)) if key.manager != Manager::ours() => {
                tracing::warn!(manager = %key.manager, error = chain(error), "event not answered");
            }
            (Err(error), _) => self.is_down(&chain(error)),
            (Ok(answer), Sent::Refused) => {
                self.is_up();
                self.metrics.refused();
                tracing::warn!(manager = %key.manager, status = answer.status.as_u16(), "event refused; not retrying");
            }
            // A server answered, but perhaps not the listener.
            (Ok(answer), Sent::Busy(_)) if answer.status.is_server_error() => {
                self.is_down(&format!("a request was answered with {}", answer.status.as_u16()));
            }
            (Ok(answer), Sent::Busy(_)) => {
                self.is_up();
                tracing::debug!(manager = %key.manager, status = answer.status.as_u16(), "event not accepted yet");
            }
            (Ok(_), Sent::Delivered | Sent::Unreachable) => self.is_up(),
        }
        if sent != Sent::Delivered {
            self.metrics.failed(Failure::FailedRequest);
        }
        if let Some(waited) = self.outbox.sent(key, sent, started, dice()) {
            self.metrics.delivered(waited);
            tracing::debug!(
                manager = %key.manager, namespace = key.event.watched.namespace, name = key.event.watched.name,
                "event delivered"
            );
        }
        if sent == Sent::Delivered && self.outbox.take_lost(&key.manager) {
            self.resync(key.manager.clone(), Scope::All);
        }
    }

    /// Probes the connection, unless a recent request has proven it.
    async fn prove(&mut self) {
        let interval = self.timing.probe_interval;
        let spread = 0.9 + 0.2 * dice();
        self.probe = Some(now() + interval.mul_f64(spread));
        let is_fresh = |proven: &Instant| now().saturating_duration_since(*proven) < interval / 2;
        if let Some(proven) = self.outbox.path_proven().filter(is_fresh) {
            // The control plane hears of the agent at this interval, whatever the request.
            self.probe = Some(proven + interval.mul_f64(spread));
            self.make_good();
            return;
        }
        let result = self.client.probe(&Manager::ours().event_path(&self.contract)).await;
        self.metrics.connections(self.client.connections());
        match result {
            Ok(Answer { status: StatusCode::METHOD_NOT_ALLOWED, .. }) => {
                self.is_up();
                self.make_good();
            }
            Ok(answer) => {
                self.probe_again(spread);
                self.is_down(&format!("a probe was answered with {} instead of 405", answer.status.as_u16()));
            }
            Err(error) => {
                self.probe_again(spread);
                self.is_down(&chain(&error));
            }
        }
    }

    /// Schedules the next probe after a failure: soon, because the control plane calls an agent silent that misses two.
    fn probe_again(&mut self, spread: f64) {
        self.probe = Some(now() + self.timing.probe_interval.min(PROBE_RETRY).mul_f64(spread));
    }

    /// Schedules a full resync for each manager that lost events. If a manager refuses it, the next successful probe
    /// schedules another.
    fn make_good(&mut self) {
        for manager in self.outbox.take_all_lost() {
            self.resync(manager, Scope::All);
        }
    }

    fn is_up(&mut self) {
        let Some(outage) = self.outbox.path_up() else { return };
        tracing::info!(seconds = outage.as_secs(), "the control plane is reachable again");
        if outage < BACKOFF_MAX {
            return;
        }
        let managers = self.outbox.managers();
        for manager in managers.into_keys().chain([Manager::ours()]) {
            self.resync(manager, Scope::Usual);
        }
    }

    fn is_down(&mut self, why: &str) {
        if self.outbox.path_down(why.to_owned()) {
            tracing::warn!(error = why, "the control plane is unreachable; keeping events");
        }
    }

    /// Schedules a resync of the runtime within a random time.
    fn resync(&mut self, manager: Manager, scope: Scope) {
        if self.timing.resync_within.is_zero() {
            return;
        }
        let at = now() + self.timing.resync_within.mul_f64(dice());
        let entry = self.resyncs.entry(manager).or_insert((at, scope));
        entry.1 = entry.1.max(scope);
    }

    /// Puts due resyncs into the outbox.
    fn remind(&mut self) {
        let now = now();
        let managers = self.outbox.managers();
        if self.periodic.is_some_and(|periodic| periodic <= now) {
            self.periodic = Some(now + self.timing.resync_interval.mul_f64(0.9 + 0.2 * dice()));
            for manager in managers.keys().cloned().chain([Manager::ours()]) {
                self.resyncs.entry(manager).or_insert((now, Scope::Usual));
            }
        }
        let due: Vec<Manager> =
            self.resyncs.iter().filter(|(_, (at, _))| *at <= now).map(|(manager, _)| manager.clone()).collect();
        for manager in due {
            let Some((_, scope)) = self.resyncs.remove(&manager) else { continue };
            let event = if manager == Manager::ours() { Some(ours(scope)) } else { managers.get(&manager).cloned() };
            if let Some(event) = event {
                self.metrics.resync();
                self.outbox.remind(Key { manager, event });
            }
        }
    }
}

/// The resync event for our own control plane. It names either the runtime's Kyma or, for a full resync, the agent's
/// own Deployment: for an object that is not a Kyma, the control plane checks everything that it installed.
fn ours(scope: Scope) -> Event {
    let event = |name: &str, api_version: &str, kind: &str| Event {
        watched: Watched { namespace: NAMESPACE.to_owned(), name: name.to_owned() },
        gvk: Gvk::new(api_version, kind),
    };
    match scope {
        Scope::Usual => event("default", "operator.kyma-project.io/v1beta2", "Kyma"),
        Scope::All => event("skr-webhook", "apps/v1", "Deployment"),
    }
}

/// Interprets the answer to an event: only 200 is success, and temporary failures are retried.
fn sent(result: &Result<Answer, Error>) -> Sent {
    match result {
        // A manager that does not answer must not delay the others.
        Err(error) if error.is_unanswered() => Sent::Busy(None),
        Err(_) => Sent::Unreachable,
        Ok(Answer { status: StatusCode::OK, .. }) => Sent::Delivered,
        Ok(answer) if answer.status.is_server_error() => Sent::Busy(answer.retry_after),
        Ok(answer) => match answer.status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Sent::Busy(answer.retry_after)
            }
            _ => Sent::Refused,
        },
    }
}

/// A random number from 0 to 1. Without random bytes it is 0.5: less jitter is still correct.
fn dice() -> f64 {
    tls::random::<4>().map_or(0.5, |bytes| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
