//! Who may write: leader election on one Lease.
//!
//! A Lease is held by replacing it on condition that nobody else did. Clocks of different machines are never compared:
//! a holder counts as alive until we have seen its Lease unchanged for the whole lease duration by our own clock. We stop
//! writing at the renew deadline, which lies before the moment at which anybody else may take over.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{Cluster, Error, Kind, Target, Verb, transport::Ask};
use tidegate_core::{api::names, name::Key, object::Gvk};
use tidegate_process::{ambient, lock::RwLock};

/// How long a Lease holds and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others may take over when they have seen the Lease unchanged for this long.
    pub duration: Duration,
    /// We stop writing when the Lease could not be renewed for this long. Less than `duration`.
    pub renew_deadline: Duration,
    /// Pause between two looks at the Lease.
    pub retry_period: Duration,
}

/// Which Lease, and who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Namespace and name of the Lease.
    pub lease: Key,
    /// Our name in it.
    pub identity: String,
    /// How long it holds.
    pub timing: Timing,
}

/// Whether we lead. Cheap to clone; every clone sees the same.
#[derive(Clone)]
pub struct Leadership {
    state: Arc<RwLock<State>>,
    changes: watch::Receiver<bool>,
}

/// The running part of leader election.
pub struct Elector {
    cluster: Arc<Cluster>,
    options: Options,
    state: Arc<RwLock<State>>,
    changes: watch::Sender<bool>,
    observed: Option<Observed>,
}

#[derive(Debug, Default)]
struct State {
    /// No write may leave after this.
    until: Option<Instant>,
    /// Who holds the Lease, if it is somebody else.
    other: Option<String>,
}

/// The Lease as we saw it last, and when we first saw it so.
struct Observed {
    resource_version: String,
    since: Instant,
}

#[derive(Debug, Deserialize)]
struct Lease {
    metadata: super::Wire,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    holder_identity: Option<String>,
    #[serde(default)]
    lease_duration_seconds: Option<u64>,
    #[serde(default)]
    acquire_time: Option<String>,
    #[serde(default)]
    lease_transitions: Option<i64>,
}

/// What a look at the Lease tells us to do.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    /// It does not exist.
    Create,
    /// It is ours, or free, or its holder has not renewed it in time.
    Take,
    /// It is ours.
    Renew,
    /// Somebody else holds it.
    Wait,
}

// === impl Timing ===

impl Default for Timing {
    /// Those of Lifecycle Manager, with whom we share the Lease.
    fn default() -> Timing {
        Timing {
            duration: Duration::from_secs(180),
            renew_deadline: Duration::from_secs(120),
            retry_period: Duration::from_secs(3),
        }
    }
}

// === impl Leadership ===

impl Leadership {
    /// For a process that writes without a Lease: the command line, tests.
    pub fn unconditional() -> Leadership {
        let (sender, changes) = watch::channel(true);
        drop(sender);
        // A year is longer than any process of that sort lives.
        let until = Some(Instant::now() + Duration::from_secs(365 * 24 * 3600));
        Leadership { state: Arc::new(RwLock::new(State { until, other: None })), changes }
    }

    /// Whether a write may leave now.
    pub fn is_leading(&self) -> bool {
        self.state.read().until.is_some_and(|until| Instant::now() < until)
    }

    /// Who holds the Lease, if it is somebody else.
    pub fn other_holder(&self) -> Option<String> {
        self.state.read().other.clone()
    }

    /// Returns as soon as we lead; never if the elector ended without.
    pub async fn acquired(&self) {
        let mut changes = self.changes.clone();
        if changes.wait_for(|leading| *leading).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Returns as soon as we no longer lead; never if that cannot happen.
    pub async fn lost(&self) {
        let mut changes = self.changes.clone();
        if changes.wait_for(|leading| !*leading).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.is_leading()).finish()
    }
}

// === impl Elector ===

impl Elector {
    /// An elector that has not begun yet, and what tells everybody else whether we lead.
    ///
    /// `cluster` must not be guarded by the leadership that is made here, and should serve nothing else: a renewal that
    /// queues behind a thousand writes comes late.
    pub fn new(cluster: Arc<Cluster>, options: Options) -> (Elector, Leadership) {
        let (changes, receiver) = watch::channel(false);
        let state = Arc::default();
        let leadership = Leadership { state: Arc::clone(&state), changes: receiver };
        (Elector { cluster, options, state, changes, observed: None }, leadership)
    }

    /// Takes part until `stop` is done, then gives the Lease back if we hold it.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                () = self.step() => {}
            }
            tokio::select! {
                () = &mut stop => break,
                () = tokio::time::sleep(self.pause()) => {}
            }
        }
        self.release().await;
    }

    /// One look at the Lease, and what follows from it.
    async fn step(&mut self) {
        let began = Instant::now();
        match tokio::time::timeout(self.options.timing.renew_deadline / 4, self.look(began)).await {
            Ok(Ok(())) => {}
            // What is somebody else's success is no failure: the next look shows it.
            Ok(Err(Error::Changed { .. } | Error::Exists { .. })) => {}
            Ok(Err(error)) => tracing::warn!(reason = error.reason(), "lease not renewed"),
            Err(_elapsed) => tracing::warn!(reason = "Timeout", "lease not renewed"),
        }
        self.announce();
    }

    async fn look(&mut self, began: Instant) -> Result<(), Error> {
        let found: Option<Lease> = self.cluster.get_as(&kind(), &self.options.lease).await?;
        if let Some(lease) = &found {
            let same = |seen: &Observed| seen.resource_version == lease.metadata.resource_version;
            if !self.observed.as_ref().is_some_and(same) {
                let resource_version = lease.metadata.resource_version.clone();
                self.observed = Some(Observed { resource_version, since: Instant::now() });
            }
        }
        let decision = self.decide(found.as_ref(), Instant::now());
        let other = found.as_ref().and_then(|lease| lease.spec.holder_identity.clone());
        match decision {
            Move::Wait => {
                let mut state = self.state.write();
                state.until = None;
                state.other = other;
                return Ok(());
            }
            Move::Create | Move::Take | Move::Renew => {}
        }
        let body = self.body(found.as_ref(), &decision);
        let resource_version = self.put(found.is_some(), body).await?;
        self.observed = Some(Observed { resource_version, since: Instant::now() });
        let mut state = self.state.write();
        // Counted from before the request: nobody else can have seen our renewal any earlier.
        state.until = Some(began + self.options.timing.renew_deadline);
        state.other = None;
        Ok(())
    }

    fn decide(&self, lease: Option<&Lease>, now: Instant) -> Move {
        let Some(lease) = lease else { return Move::Create };
        match lease.spec.holder_identity.as_deref() {
            None | Some("") => Move::Take,
            Some(holder) if holder == self.options.identity => Move::Renew,
            Some(_) => {
                // The holder's own duration counts: it may be configured otherwise than we are.
                let duration =
                    lease.spec.lease_duration_seconds.map_or(self.options.timing.duration, Duration::from_secs);
                let since = self.observed.as_ref().map_or(now, |observed| observed.since);
                if now.duration_since(since) > duration { Move::Take } else { Move::Wait }
            }
        }
    }

    fn body(&self, lease: Option<&Lease>, decision: &Move) -> Value {
        let now = micro_time(ambient::now());
        let spec = lease.map(|lease| &lease.spec);
        let transitions = spec.and_then(|spec| spec.lease_transitions).unwrap_or_default();
        let (acquired, transitions) = match decision {
            Move::Renew => {
                (spec.and_then(|spec| spec.acquire_time.clone()).unwrap_or_else(|| now.clone()), transitions)
            }
            Move::Create => (now.clone(), transitions),
            Move::Take | Move::Wait => (now.clone(), transitions + 1),
        };
        let mut body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "namespace": self.options.lease.namespace(), "name": self.options.lease.name() },
            "spec": {
                "holderIdentity": self.options.identity,
                "leaseDurationSeconds": self.options.timing.duration.as_secs().max(1),
                "acquireTime": acquired,
                "renewTime": now,
                "leaseTransitions": transitions,
            },
        });
        if let Some(lease) = lease {
            keep(&mut body, lease);
        }
        body
    }

    /// Creates or replaces the Lease; returns its new resource version.
    async fn put(&self, exists: bool, body: Value) -> Result<String, Error> {
        let key = &self.options.lease;
        let (method, verb, name) =
            if exists { (Method::PUT, Verb::Update, Some(key.name())) } else { (Method::POST, Verb::Create, None) };
        let path = format!("{}?fieldManager={}", kind().path(Some(key.namespace()), name, None), names::FIELD_MANAGER);
        let id = kind().id(key);
        let ask = Ask::write(method, path, verb, Target::Object(id.clone()), Bytes::from(body.to_string()))
            .header(CONTENT_TYPE, "application/json")
            .metadata_only();
        let answer = self.cluster.transport.ask(ask).await?;
        self.cluster.metadata(&kind(), &id, &answer.body).map(|metadata| metadata.resource_version)
    }

    /// Gives the Lease back, so that the next holder need not wait for it to run out.
    async fn release(&mut self) {
        let led = self.state.write().until.take().is_some();
        self.announce();
        if !led {
            return;
        }
        let released = async {
            let found: Option<Lease> = self.cluster.get_as(&kind(), &self.options.lease).await?;
            let ours = |lease: &&Lease| lease.spec.holder_identity.as_deref() == Some(&self.options.identity);
            let Some(lease) = found.as_ref().filter(ours) else { return Ok(()) };
            let mut body = self.body(Some(lease), &Move::Renew);
            body["spec"]["holderIdentity"] = "".into();
            // As client-go does: whoever knows no empty holder waits a second.
            body["spec"]["leaseDurationSeconds"] = 1.into();
            self.put(true, body).await.map(drop)
        };
        match tokio::time::timeout(RELEASE_MAX, released).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(reason = Error::reason(&error), "lease not released"),
            Err(_elapsed) => tracing::warn!(reason = "Timeout", "lease not released"),
        }
    }

    /// Tells everybody who waits.
    fn announce(&self) {
        let leading = self.state.read().until.is_some_and(|until| Instant::now() < until);
        let changed = self.changes.send_if_modified(|former| std::mem::replace(former, leading) != leading);
        if changed {
            tracing::info!(leading, "leadership changed");
        }
    }

    /// Until the next look: the retry period, but not past the moment at which leadership ends.
    fn pause(&self) -> Duration {
        let rest = self.state.read().until.map(|until| until.saturating_duration_since(Instant::now()));
        let period = self.options.timing.retry_period;
        rest.filter(|rest| !rest.is_zero()).map_or(period, |rest| rest.min(period))
    }
}

/// Time for giving the Lease back at shutdown; without it the next holder waits for it to run out.
const RELEASE_MAX: Duration = Duration::from_secs(5);

fn kind() -> Kind {
    Kind::new(Gvk::new("coordination.k8s.io", "v1", "Lease"), "leases", true)
}

/// A replace must name what it replaces, and must not drop labels and annotations of others.
fn keep(body: &mut Value, lease: &Lease) {
    let metadata = &mut body["metadata"];
    metadata["resourceVersion"] = lease.metadata.resource_version.as_str().into();
    metadata["uid"] = lease.metadata.uid.as_str().into();
    if !lease.metadata.labels.is_empty() {
        metadata["labels"] = json!(lease.metadata.labels);
    }
    if !lease.metadata.annotations.is_empty() {
        metadata["annotations"] = json!(lease.metadata.annotations);
    }
}

/// `MicroTime` as the API server wants it: exactly six decimals.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests;
