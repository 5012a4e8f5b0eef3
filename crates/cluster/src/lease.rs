//! Leader election with a Lease: which process may write.
//!
//! A process takes the Lease by replacing it under the condition that no other process did. Clocks of different
//! machines are never compared: a holder is considered alive until this process has seen its Lease unchanged for the
//! whole lease duration on its own clock. The leader stops writing at the renew deadline, before any other process may
//! take over.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, header::CONTENT_TYPE};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};

use super::{Cluster, Error, Kind, Target, Verb, transport::Ask};
use tidegate_core::{
    api::names::{self, annotation},
    name::Key,
    object::Gvk,
};
use tidegate_process::{ambient, lock::RwLock};

/// How long a Lease is valid and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Others may take over after they have seen the Lease unchanged for this long.
    pub duration: Duration,
    /// The leader stops writing after it could not renew the Lease for this long. Shorter than `duration`.
    pub renew_deadline: Duration,
    /// Interval between two reads of the Lease.
    pub retry_period: Duration,
}

/// The Lease, and the identity of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Namespace and name of the Lease.
    pub lease: Key,
    /// The identity of this process in the Lease.
    pub identity: String,
    /// Its timing.
    pub timing: Timing,
}

/// Whether this process leads. Cheap to clone; all clones share the state.
#[derive(Clone)]
pub struct Leadership {
    state: Arc<RwLock<State>>,
    changes: watch::Receiver<bool>,
}

/// The running part of the leader election.
pub struct Elector {
    cluster: Arc<Cluster>,
    options: Options,
    state: Arc<RwLock<State>>,
    changes: watch::Sender<bool>,
    observed: Option<Observed>,
    /// The value of the annotation [`annotation::LOCAL_SOURCES`].
    local_sources: watch::Receiver<Option<String>>,
    /// When the log last had that the Lease cannot be renewed.
    warned: Option<Instant>,
    /// What the log last had of another holder.
    said: Option<Said>,
}

/// Another process that holds the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its identity.
    pub name: String,
    /// When this process first saw the Lease as it is: the holder has not renewed it since.
    pub seen: Instant,
    /// How long that may take until another process may take over, as the holder says.
    pub duration: Duration,
}

/// What the log has of another holder: its name, and whether it still renews the Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Said {
    name: String,
    is_silent: bool,
}

/// A holder that has not renewed the Lease for this many of our reads is silent: it may have stopped without releasing
/// the Lease, as Lifecycle Manager does.
const SILENT_READS: u32 = 5;
/// The log repeats after this time that the Lease cannot be renewed.
const WARN_AGAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
struct State {
    /// No write may start after this.
    until: Option<Instant>,
    /// When the request for the last renewal was sent.
    renewed: Option<Instant>,
    /// The holder of the Lease, if it is another process.
    other: Option<Holder>,
    /// Which right was missing when this process last asked for the Lease, as a sentence.
    denied: Option<String>,
}

/// The last state of the Lease, and when this process first saw it.
struct Observed {
    resource_version: String,
    since: Instant,
}

#[derive(Debug, Deserialize)]
struct Lease {
    metadata: super::metadata::Wire,
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

/// The next step after reading the Lease.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    /// The Lease does not exist.
    Create,
    /// This process holds the Lease, or it is free, or its holder has not renewed it in time.
    Take,
    /// This process holds the Lease.
    Renew,
    /// Another process holds the Lease.
    Wait,
}

// === impl Timing ===

impl Default for Timing {
    /// The timing of Lifecycle Manager, which shares the Lease.
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
        // A year is longer than any such process lives.
        let until = Some(Instant::now() + Duration::from_secs(365 * 24 * 3600));
        Leadership { state: Arc::new(RwLock::new(State { until, ..State::default() })), changes }
    }

    /// Whether a write may start now.
    pub fn is_leading(&self) -> bool {
        self.state.read().until.is_some_and(|until| Instant::now() < until)
    }

    /// When this process last renewed the Lease, counted from before the request; `None` if it never did.
    pub fn renewed(&self) -> Option<Instant> {
        self.state.read().renewed
    }

    /// The holder of the Lease, if it is another process.
    pub fn other_holder(&self) -> Option<Holder> {
        self.state.read().other.clone()
    }

    /// Which right this process lacks to hold the Lease, as a sentence; `None` if it last had it.
    pub fn denial(&self) -> Option<String> {
        self.state.read().denied.clone()
    }

    /// Waits until this process leads. Never returns if the elector ends before.
    pub async fn acquired(&self) {
        let mut changes = self.changes.clone();
        if changes.wait_for(|leading| *leading).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process no longer leads. Never returns if that cannot happen.
    pub async fn lost(&self) {
        let mut changes = self.changes.clone();
        if changes.wait_for(|leading| !*leading).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

// === impl Holder ===

impl Holder {
    /// How long it has not renewed the Lease, as far as this process has seen.
    pub fn silence(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.seen)
    }

    /// How long until another process may take over, if it does not renew or release the Lease before.
    pub fn wait(&self, now: Instant) -> Duration {
        self.duration.saturating_sub(self.silence(now))
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.is_leading()).finish()
    }
}

// === impl Elector ===

impl Elector {
    /// Creates an elector that has not started, and the handle that tells whether this process leads.
    ///
    /// `cluster` must not depend on the resulting leadership, and should serve nothing else: a renewal that queues
    /// behind a thousand writes is late.
    pub fn new(cluster: Arc<Cluster>, options: Options) -> (Elector, Leadership) {
        let (changes, receiver) = watch::channel(false);
        let state = Arc::default();
        let leadership = Leadership { state: Arc::clone(&state), changes: receiver };
        let (_, local_sources) = watch::channel(None);
        let elector =
            Elector { cluster, options, state, changes, observed: None, local_sources, warned: None, said: None };
        (elector, leadership)
    }

    /// The same, with an annotation that each renewal of the leader writes: what others read of the sources that only
    /// this process has. It costs no request.
    #[must_use]
    pub fn annotating(self, local_sources: watch::Receiver<Option<String>>) -> Elector {
        Elector { local_sources, ..self }
    }

    /// Takes part in the election until `stop` completes, then releases the Lease if this process holds it.
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

    /// Reads the Lease once and acts on it.
    async fn step(&mut self) {
        let began = Instant::now();
        let looked = tokio::time::timeout(self.options.timing.renew_deadline / 4, self.look(began)).await;
        self.state.write().denied = match &looked {
            Ok(Err(error @ Error::Forbidden { .. })) => Some(error.to_string()),
            Ok(_) | Err(_) => None,
        };
        match looked {
            Ok(Ok(())) => {}
            // Another process was faster, which is not a failure: the next read shows it.
            Ok(Err(Error::Changed { .. } | Error::Exists { .. })) => {}
            Ok(Err(error)) => self.warn(error.reason(), &error.to_string(), error.may_be_outage(), began),
            Err(_elapsed) => self.warn("Timeout", "the control plane does not answer in time", true, began),
        }
        self.announce();
    }

    /// Says once a minute that the Lease cannot be renewed. An outage of the control plane is said elsewhere: here only
    /// once half of the time is over after which this process stops to write.
    fn warn(&mut self, reason: &'static str, error: &str, is_outage: bool, now: Instant) {
        let half = self.options.timing.renew_deadline / 2;
        let until = self.state.read().until;
        if is_outage && until.is_none_or(|until| half < until.saturating_duration_since(now)) {
            tracing::debug!(reason, error, "cannot renew the lease");
            return;
        }
        if self.warned.is_none_or(|warned| WARN_AGAIN <= now.duration_since(warned)) {
            self.warned = Some(now);
            tracing::warn!(reason, error, "cannot renew the lease");
        }
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
        match decision {
            Move::Wait => {
                let other = found.as_ref().and_then(|lease| self.holder(lease, Instant::now()));
                self.say(other.as_ref(), Instant::now());
                let mut state = self.state.write();
                state.until = None;
                state.other = other;
                return Ok(());
            }
            Move::Create | Move::Take | Move::Renew => self.said = None,
        }
        let body = self.body(found.as_ref(), &decision);
        let resource_version = self.put(found.is_some(), body).await?;
        self.observed = Some(Observed { resource_version, since: Instant::now() });
        let mut state = self.state.write();
        // Counted from before the request: no other process can have seen this renewal earlier.
        state.until = Some(began + self.options.timing.renew_deadline);
        state.renewed = Some(began);
        state.other = None;
        Ok(())
    }

    fn decide(&self, lease: Option<&Lease>, now: Instant) -> Move {
        let Some(lease) = lease else { return Move::Create };
        match lease.spec.holder_identity.as_deref() {
            None | Some("") => Move::Take,
            Some(holder) if holder == self.options.identity => Move::Renew,
            Some(_) => {
                let is_alive = |holder: &Holder| holder.silence(now) <= holder.duration;
                if self.holder(lease, now).as_ref().is_none_or(is_alive) { Move::Wait } else { Move::Take }
            }
        }
    }

    /// The holder of a Lease; `None` if it has none.
    fn holder(&self, lease: &Lease, now: Instant) -> Option<Holder> {
        let name = lease.spec.holder_identity.clone()?;
        let seen = self.observed.as_ref().map_or(now, |observed| observed.since);
        // Its own duration, because it may differ from the configured one.
        let duration = lease.spec.lease_duration_seconds.map_or(self.options.timing.duration, Duration::from_secs);
        Some(Holder { name, seen, duration })
    }

    /// Says who holds the Lease: once when the wait begins, and once when the holder no longer renews it.
    fn say(&mut self, holder: Option<&Holder>, now: Instant) {
        let Some(holder) = holder else { return };
        let is_silent = self.options.timing.retry_period * SILENT_READS <= holder.silence(now);
        let said = Some(Said { name: holder.name.clone(), is_silent });
        if self.said == said {
            return;
        }
        self.said = said;
        let (unrenewed_seconds, wait_seconds) = (holder.silence(now).as_secs(), holder.wait(now).as_secs());
        if is_silent {
            tracing::warn!(
                holder = holder.name,
                unrenewed_seconds,
                wait_seconds,
                "the holder of the lease does not renew it; this process takes over after this wait"
            );
        } else {
            let duration_seconds = holder.duration.as_secs();
            tracing::info!(
                holder = holder.name,
                unrenewed_seconds,
                duration_seconds,
                "another process holds the lease; this process waits until it is released, or not renewed for its \
                 duration"
            );
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
        annotate(&mut body, self.local_sources.borrow().as_deref());
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

    /// Releases the Lease, so that the next holder need not wait until it expires.
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
            // The same as in client-go: a process that does not know empty holders waits a second.
            body["spec"]["leaseDurationSeconds"] = 1.into();
            annotate(&mut body, None);
            self.put(true, body).await.map(drop)
        };
        match tokio::time::timeout(RELEASE_MAX, released).await {
            Ok(Ok(())) => tracing::info!("lease released"),
            Ok(Err(error)) => tracing::warn!(reason = Error::reason(&error), "cannot release the lease"),
            Err(_elapsed) => tracing::warn!(reason = "Timeout", "cannot release the lease"),
        }
    }

    /// Notifies all waiting tasks.
    fn announce(&self) {
        let leading = self.state.read().until.is_some_and(|until| Instant::now() < until);
        let changed = self.changes.send_if_modified(|former| std::mem::replace(former, leading) != leading);
        if changed {
            tracing::info!(leading, "leadership changed");
        }
    }

    /// How long until the next read: the retry period, but not past the end of the leadership.
    fn pause(&self) -> Duration {
        let rest = self.state.read().until.map(|until| until.saturating_duration_since(Instant::now()));
        let period = self.options.timing.retry_period;
        rest.filter(|rest| !rest.is_zero()).map_or(period, |rest| rest.min(period))
    }
}

/// Limit for releasing the Lease at shutdown. Without a release, the next holder waits until it expires.
const RELEASE_MAX: Duration = Duration::from_secs(5);

fn kind() -> Kind {
    Kind::new(Gvk::new("coordination.k8s.io", "v1", "Lease"), "leases", true)
}

/// A replace must name the resource version, and must not drop labels and annotations of others.
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

/// Sets the annotation about the sources of the command line, or removes that of an earlier leader.
fn annotate(body: &mut Value, local_sources: Option<&str>) {
    match (local_sources, body.pointer_mut("/metadata/annotations")) {
        (Some(text), Some(annotations)) => annotations[annotation::LOCAL_SOURCES] = text.into(),
        (Some(text), None) => body["metadata"]["annotations"] = json!({annotation::LOCAL_SOURCES: text}),
        (None, Some(annotations)) => {
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.remove(annotation::LOCAL_SOURCES);
            }
        }
        (None, None) => {}
    }
}

/// `MicroTime` in the API server's format: exactly six decimals.
fn micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

#[cfg(test)]
mod tests;
