//! The sender: one event at a time, over one connection, until all have arrived.
//!
//! Beside events it sends two things. A *probe* asks for the event path with GET, which is answered with 405 where the
//! whole way is there: name, TLS, gateway, route, listener. A *resync* is an event that has the runtime looked at though
//! nothing is known to have changed: after a start, since nobody listened before; after an outage; after something was
//! dropped; and twice a day. Both are spread in time, so that thousands of agents that started together do not ask
//! together.

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
    manager::Manager,
    metrics::{Failure, Metrics},
    outbox::{Outbox, now},
    pending::{BACKOFF_MAX, Key, Next, Occasion, Sent},
    settings::Timing,
};
use tidegate_events::event::{Event, Gvk, Watched};
use tidegate_process::tls;

/// Sends what is in the outbox.
pub struct Courier {
    outbox: Arc<Outbox>,
    client: Client,
    metrics: Metrics,
    timing: Timing,
    contract: String,
    probe: Option<Instant>,
    /// When each manager is told to look at the runtime, and what it is told.
    resyncs: BTreeMap<Manager, (Instant, Scope)>,
    /// When all are.
    periodic: Option<Instant>,
}

/// What a resync is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    /// The Kyma, or what a manager heard of last.
    Usual,
    /// Changes may have gone by unseen, of any object: whoever tells objects apart is to look at all.
    All,
}

/// Where the agent's own objects and the runtime's Kyma stand.
const NAMESPACE: &str = "kyma-system";

/// Sends until `stop` says so, and then as long as it may to send the rest. Gives back how many changes were not told.
pub async fn deliver(mut courier: Courier, mut stop: watch::Receiver<bool>) -> usize {
    let (outbox, flush) = (Arc::clone(&courier.outbox), courier.timing.flush);
    let end = async {
        let _ = stop.wait_for(|stop| *stop).await;
        outbox.drain();
        sleep(flush).await;
    };
    tokio::select! {
        () = courier.run() => {}
        () = end => {}
    }
    outbox.depth().undelivered
}

// === impl Courier ===

impl Courier {
    /// A sender that has everything before it.
    pub fn new(outbox: Arc<Outbox>, client: Client, metrics: Metrics, timing: Timing, contract: String) -> Courier {
        let now = now();
        let spread = |interval: Duration, least: f64| {
            (!interval.is_zero()).then(|| now + interval.mul_f64(least + (1.0 - least) * dice()))
        };
        let mut resyncs = BTreeMap::new();
        // Not at once: the first seconds belong to the changes that brought us here.
        if let Some(at) = spread(timing.resync_within, 1.0 / 3.0) {
            resyncs.insert(Manager::ours(), (at, Scope::All));
        }
        let (probe, periodic) =
            (spread(timing.probe_interval.min(Duration::from_secs(20)), 0.5), spread(timing.resync_interval, 0.5));
        Courier { outbox, client, metrics, timing, contract, probe, resyncs, periodic }
    }

    /// Sends until all is drained.
    async fn run(&mut self) {
        while !self.outbox.is_drained() {
            self.remind();
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
            // Something is always to be done within a day.
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
            // The way to somebody else may end there; that to our control plane is proven by itself.
            (Err(error), Sent::Busy(_)) if key.manager != Manager::ours() => {
                tracing::warn!(manager = %key.manager, error = chain(error), "event not answered");
            }
            (Err(error), _) => self.is_down(&chain(error)),
            (Ok(answer), Sent::Refused) => {
                self.is_up();
                self.metrics.refused();
                tracing::warn!(manager = %key.manager, status = answer.status.as_u16(), "event refused for good");
            }
            // Somebody answered, but not whoever the event is for.
            (Ok(answer), Sent::Busy(_)) if answer.status.is_server_error() => {
                self.is_down(&format!("it answers with {}", answer.status.as_u16()));
            }
            (Ok(answer), Sent::Busy(_)) => {
                self.is_up();
                tracing::debug!(manager = %key.manager, status = answer.status.as_u16(), "event not taken now");
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

    /// Proves the way, unless something that was sent has just done so.
    async fn prove(&mut self) {
        let interval = self.timing.probe_interval;
        self.probe = Some(now() + interval.mul_f64(0.9 + 0.2 * dice()));
        let is_fresh = |proven: Instant| now().saturating_duration_since(proven) < interval / 2;
        if self.outbox.path_proven().is_some_and(is_fresh) {
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
            Ok(answer) => self.is_down(&format!("it answers a probe with {} instead of 405", answer.status.as_u16())),
            Err(error) => self.is_down(&chain(&error)),
        }
    }

    /// Has managers of whom something was dropped told to look at all. One that refuses this as well is told again with the
    /// next proof.
    fn make_good(&mut self) {
        for manager in self.outbox.take_all_lost() {
            self.resync(manager, Scope::All);
        }
    }

    fn is_up(&mut self) {
        let Some(outage) = self.outbox.path_up() else { return };
        tracing::info!(seconds = outage.as_secs(), "the control plane can be reached again");
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
            tracing::warn!(error = why, "the control plane cannot be reached: events wait");
        }
    }

    /// Has a manager told to look at the runtime, some time soon.
    fn resync(&mut self, manager: Manager, scope: Scope) {
        if self.timing.resync_within.is_zero() {
            return;
        }
        let at = now() + self.timing.resync_within.mul_f64(dice());
        let entry = self.resyncs.entry(manager).or_insert((at, scope));
        entry.1 = entry.1.max(scope);
    }

    /// Puts the resyncs that are due among what waits.
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

/// What our control plane is told when nothing is known to have changed: that something about the runtime's Kyma has; or
/// about an object that is no Kyma, the agent's own Deployment, for which it looks at all that it installed.
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

/// What an answer means for its event: 200 alone is a yes, and what can pass is tried again.
fn sent(result: &Result<Answer, Error>) -> Sent {
    match result {
        // A manager that does not answer must not hold up the others.
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

/// A number from 0 to 1. Without random bytes the middle: what is spread less is still right.
fn dice() -> f64 {
    tls::random::<4>().map_or(0.5, |bytes| f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
