//! Receives deliveries of git hosts, and wakes the sources whose repository and ref they name.
//!
//! A delivery goes to `/hooks/<namespace>/<name>` of a GitSource with `spec.receiver`. It is authentic if its signature
//! or token belongs to the Secret of the receiver. Then it wakes that source, and the other sources of the namespace
//! that name the same Secret, as far as it names their repository and ref. A delivery says why a source is fetched, and
//! never what: no field of it goes anywhere else.
//!
//! What cannot be authenticated learns nothing. Unknown names and wrong signatures get the same answer after the same
//! time, whatever was read meanwhile. An address with many such deliveries is refused before its body is read.
//!
//! `state` is what is remembered, and `decide` what follows. This file reads Secrets and waits.

mod decide;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster::Cluster;
use tidegate_core::{
    diagnostic::Diagnostic,
    intake::{Terms, status::Receiving},
    landscape,
    name::Key,
    push::{self, Delivered, Headers, HookSecret, Host, is_authentic},
};
use tidegate_process::{ambient, lock::Mutex, tls};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until, timeout},
};

pub(super) use self::decide::Announced;
use self::state::State;
use super::{
    KnownSource, SourcePass,
    load::{access, secrets},
};
use crate::{
    controller::{Queue, Subject},
    queue::Trigger,
    stores::Stores,
};

/// A delivery, with its whole body.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The GitSource that its path names.
    pub source: Key,
    /// Who sent it.
    pub address: IpAddr,
    /// Its headers.
    pub headers: Headers,
    /// Its body.
    pub body: Bytes,
}

/// What became of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It named these sources.
    Accepted {
        /// Those that it woke.
        woken: Vec<Key>,
        /// Those that are suspended: they are fetched when they are resumed.
        suspended: Vec<Key>,
    },
    /// Its id was seen before.
    Duplicate,
    /// It is authentic, and not a push.
    NoPush,
    /// It names a repository that none of the sources has.
    OtherRepository,
    /// It names refs that none of the sources follows.
    OtherRef,
    /// It is authentic, and its body cannot be read: one sentence.
    Malformed(String),
    /// It is not authentic, or there is no such receiver.
    Refused,
}

/// What the receivers of all sources share.
pub(crate) struct Receivers {
    state: Mutex<State>,
    /// The Secrets of receivers, as last read.
    secrets: Mutex<BTreeMap<Key, Arc<SecretSlot>>>,
    /// Takes the place of a Secret for names that have no receiver.
    nobody: HookSecret,
    /// Notified when a source is to be woken.
    wake: Notify,
}

/// One Secret.
#[derive(Default)]
struct SecretSlot {
    last: Mutex<Option<ReadSecret>>,
    /// Held by a read, so that many deliveries at once cause one.
    reading: tokio::sync::Mutex<()>,
}

/// A Secret as it was read.
#[derive(Clone, Debug)]
struct ReadSecret {
    at: Instant,
    secret: Result<HookSecret, String>,
    /// Keys that nothing reads.
    unread: Vec<String>,
}

/// How long an answer to a delivery that is refused takes.
const REFUSAL: Duration = Duration::from_secs(1);
/// Limit of reading a Secret for a delivery: less than a refusal takes, so that its time says nothing.
const SECRET_READ_MAX: Duration = Duration::from_millis(800);

/// What the handling of a delivery needs of the daemon.
#[derive(Clone, Copy)]
pub(crate) struct ReceiverContext<'a> {
    /// The control plane.
    pub(crate) kcp: &'a Cluster,
    /// The GitSources.
    pub(crate) stores: &'a Stores,
}

// === impl Outcome ===

impl Outcome {
    /// The word in the metrics.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Outcome::Accepted { .. } => "accepted",
            Outcome::Duplicate => "duplicate",
            Outcome::NoPush => "no-push",
            Outcome::OtherRepository => "other-repository",
            Outcome::OtherRef => "other-ref",
            Outcome::Malformed(_) => "malformed",
            Outcome::Refused => "refused",
        }
    }
}

// === impl Receivers ===

impl Receivers {
    /// Receivers that have seen nothing yet.
    pub(crate) fn new() -> Receivers {
        Receivers {
            state: Mutex::default(),
            secrets: Mutex::default(),
            // Without random bytes no TLS works either; such a process does not come this far.
            nobody: HookSecret::unknown(tls::random().unwrap_or_default()),
            wake: Notify::new(),
        }
    }

    /// Whether an address may send a delivery: not if many of its last ones were refused.
    pub(crate) fn admits(&self, address: IpAddr) -> bool {
        self.state.lock().admits(address, Instant::now())
    }

    /// Counts a delivery of an address as refused, because its body did not arrive.
    pub(crate) fn refused(&self, address: IpAddr) {
        self.state.lock().refused(address, Instant::now());
    }

    /// Handles a delivery. Refuses what is not authentic after [`REFUSAL`].
    pub(crate) async fn receive(&self, ctx: ReceiverContext<'_>, delivery: &Delivery) -> Outcome {
        let began = Instant::now();
        let secret = ctx.stores.source(&delivery.source).and_then(|source| decide::secret_of(&source.object));
        let host = Host::of(&delivery.headers);
        let authentic = match (host, &secret) {
            (Some(host), Some(secret)) => self.is_authentic(ctx, host, secret, delivery).await,
            (Some(host), None) => is_authentic(host, &delivery.headers, &delivery.body, &self.nobody),
            (None, _) => false,
        };
        match (authentic, host, secret) {
            (true, Some(host), Some(secret)) => self.accept(ctx, host, &secret, delivery),
            (_, _, _) => {
                self.refused(delivery.address);
                sleep_until(began + REFUSAL).await;
                Outcome::Refused
            }
        }
    }

    /// Decides about an authentic delivery.
    fn accept(&self, ctx: ReceiverContext<'_>, host: Host, secret: &Key, delivery: &Delivery) -> Outcome {
        let (delivered, id) = match push::parse(host, &delivery.headers, &delivery.body) {
            Ok(parsed) => parsed,
            Err(error) => return Outcome::Malformed(error.to_string()),
        };
        let Delivered::Push(push) = delivered else { return Outcome::NoPush };
        let sources = ctx.stores.sources();
        let outcome = decide::named(&push, secret, sources.iter().map(|source| &*source.object));
        if let Outcome::Accepted { woken, suspended } = &outcome {
            let (now, at) = (Instant::now(), ambient::now());
            let mut state = self.state.lock();
            // One that woke nothing may be sent again once the source is corrected.
            if id.is_some_and(|id| state.is_known(&delivery.source, host, &id)) {
                return Outcome::Duplicate;
            }
            woken.iter().chain(suspended).for_each(|source| state.delivered(source, now, at));
            drop(state);
            self.wake.notify_one();
        }
        outcome
    }

    /// Wakes the sources that deliveries named, and those whose status is to say that their Secret became usable or
    /// unusable. Runs until it is dropped.
    pub(super) async fn run(&self, queue: &Queue) {
        loop {
            let (due, next) = self.state.lock().due(Instant::now());
            for source in due {
                queue.push(Subject::Source(source), Trigger::Push);
            }
            let affected = self.state.lock().affected();
            for source in affected {
                queue.push(Subject::Source(source), Trigger::Changed);
            }
            tokio::select! {
                // In this order, so that a simulation repeats itself.
                biased;
                () = self.wake.notified() => {}
                () = at(next) => {}
            }
        }
    }

    /// When the last delivery came that named a source.
    pub(super) fn last(&self, source: &Key) -> Option<(Instant, Timestamp)> {
        self.state.lock().last(source)
    }

    /// Forgets a source that was deleted.
    pub(super) fn forget(&self, source: &Key) {
        self.state.lock().forget(source);
    }

    // --- Secrets ---

    async fn is_authentic(&self, ctx: ReceiverContext<'_>, host: Host, secret: &Key, delivery: &Delivery) -> bool {
        let is_right = |secret: &Result<HookSecret, String>| {
            secret.as_ref().is_ok_and(|secret| is_authentic(host, &delivery.headers, &delivery.body, secret))
        };
        let read = async {
            if is_right(&self.read(ctx, secret, decide::FRESH).await) {
                return true;
            }
            // The token may have been rotated a moment ago.
            is_right(&self.read(ctx, secret, decide::FRESH_FOR_REFUSAL).await)
        };
        if let Ok(is_right) = timeout(SECRET_READ_MAX, read).await {
            return is_right;
        }
        // The tokens of before stay valid while the control plane does not answer.
        let is_authentic = self.slot(ctx.stores, secret).last().is_some_and(|known| is_right(&known));
        if !is_authentic {
            tracing::warn!(%secret, "cannot read the Secret of a receiver in time; a delivery is refused");
        }
        is_authentic
    }

    /// Reads the Secret of a receiver if that was never done, or if it could not be used some time ago.
    async fn check(&self, ctx: ReceiverContext<'_>, secret: &Key) {
        let fresh = self.slot(ctx.stores, secret).last().map_or(Duration::ZERO, |secret| match secret {
            Ok(_) => Duration::MAX,
            Err(_) => decide::FRESH,
        });
        // It is read again with the next delivery or pass. On the heap: a pass needs much of its stack.
        let _ = timeout(SECRET_READ_MAX, Box::pin(self.read(ctx, secret, fresh))).await;
    }

    /// The Secret of a receiver, read at most `fresh` ago. Wakes its sources if their status is to say something else.
    async fn read(&self, ctx: ReceiverContext<'_>, secret: &Key, fresh: Duration) -> Result<HookSecret, String> {
        let slot = self.slot(ctx.stores, secret);
        let before = slot.last();
        let read = slot.read(ctx.kcp, secret, fresh).await;
        if decide::is_news(before.as_ref(), &read) {
            let sources = ctx.stores.sources();
            let sources = sources.iter().map(|source| &*source.object);
            let affected = sources.filter(|source| decide::secret_of(source).as_ref() == Some(secret));
            self.state.lock().affects(affected.map(|source| landscape::key(&source.metadata)));
            self.wake.notify_one();
        }
        read
    }

    /// What is known of the deliveries of a source, for its status.
    fn receiving(&self, ctx: ReceiverContext<'_>, source: &Key, secret: &Key, announced: &Announced) -> Receiving {
        match self.slot(ctx.stores, secret).last() {
            Some(Err(problem)) => Receiving::Unusable(problem),
            Some(Ok(_)) | None => announced.receiving(self.last(source), Instant::now()),
        }
    }

    fn slot(&self, stores: &Stores, secret: &Key) -> Arc<SecretSlot> {
        let mut secrets = self.secrets.lock();
        if let Some(slot) = secrets.get(secret) {
            return Arc::clone(slot);
        }
        // What no receiver names any more is forgotten.
        let sources = stores.sources();
        let named: BTreeSet<Key> = sources.iter().filter_map(|source| decide::secret_of(&source.object)).collect();
        secrets.retain(|secret, _| named.contains(secret));
        Arc::clone(secrets.entry(secret.clone()).or_default())
    }
}

// === impl SecretSlot ===

impl SecretSlot {
    /// The Secret, read at most `fresh` ago. If the control plane does not answer, the last one counts.
    async fn read(&self, kcp: &Cluster, key: &Key, fresh: Duration) -> Result<HookSecret, String> {
        let _reading = self.reading.lock().await;
        let known = self.last.lock().clone();
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < fresh) {
            return known.secret.clone();
        }
        let at = Instant::now();
        let answer = kcp.get_as::<Secret>(&secrets(), key).await;
        let unread = decide::unread(&answer, known.as_ref().map(|known| &known.unread[..]));
        let secret = decide::after_read(key, answer, known.map(|known| known.secret));
        *self.last.lock() = Some(ReadSecret { at, secret: secret.clone(), unread });
        secret
    }

    /// The Secret as of the last read.
    fn last(&self) -> Option<Result<HookSecret, String>> {
        self.last.lock().as_ref().map(|last| last.secret.clone())
    }
}

// === impl SourcePass ===

impl SourcePass<'_> {
    /// Reads the Secret of the receiver if it is not known, so that the status says whether it can be used.
    pub(super) async fn check_receiver(&self, terms: &Terms) {
        if let Some(secret) = self.receiver_secret(terms) {
            self.ctx.registry.receivers.check(self.receiver_context(), &secret).await;
        }
    }

    /// What is known of the deliveries of the git host, for the status.
    pub(super) fn receiving(&self, known: &KnownSource, terms: Option<&Terms>) -> Receiving {
        let Some(secret) = terms.and_then(|terms| self.receiver_secret(terms)) else { return Receiving::Off };
        self.ctx.registry.receivers.receiving(self.receiver_context(), self.key, &secret, &known.announced)
    }

    /// A warning about keys of the receiver's Secret that nothing reads.
    pub(super) fn receiver_warning(&self, terms: &Terms) -> Option<Diagnostic> {
        let secret = self.receiver_secret(terms)?;
        let slot = self.ctx.registry.receivers.slot(self.ctx.stores, &secret);
        let unread = slot.last.lock().as_ref().map(|last| last.unread.clone())?;
        access::unread(&secret, &unread, "a receiver", &HookSecret::KEYS)
    }

    fn receiver_secret(&self, terms: &Terms) -> Option<Key> {
        terms.receiver.as_ref().map(|name| Key::new(self.key.namespace(), name))
    }

    fn receiver_context(&self) -> ReceiverContext<'_> {
        ReceiverContext { kcp: self.ctx.kcp, stores: self.ctx.stores }
    }
}

/// Ends at this time; never without one.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
