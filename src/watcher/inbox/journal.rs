//! The journal of events that outlives this process. It records in the control plane which runtimes need a comparison,
//! before Tidegate acknowledges their events.
//!
//! One ConfigMap holds a key for each of these runtimes. Many events share one write, and an event of a runtime that is
//! in the journal already needs none. A later write removes the key, after a pass that began after the event has
//! succeeded. A new process reads the journal once and compares these runtimes.
//!
//! Events about a runtime's Kyma are not recorded: a new process reads every Kyma anyway.

mod state;

use std::{collections::BTreeMap, sync::MutexGuard, time::Duration};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::Instant};

use self::state::{ALL, Batch, State, key_of};
use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{name::Key, object::Gvk};
use tidegate_process::{lock::Mutex, retry};

/// The journal. Shared by reference.
#[derive(Debug)]
pub(super) struct Journal {
    /// Namespace and name of the ConfigMap.
    place: Key,
    state: Mutex<State>,
    /// Notified when there is something to write.
    wake: Notify,
    /// Notified when there is something to write that can wait.
    later: Notify,
}

/// The journal could not record an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotWritten;

/// Name of the ConfigMap.
pub(super) const NAME: &str = "tidegate-events";
/// The trigger that the audit log names for a write of the journal.
const TRIGGER: &str = "reported";
/// How long a write that can wait is delayed, so that one write removes many keys.
const LATER: Duration = Duration::from_secs(5);

// === impl Journal ===

impl Journal {
    /// A journal in a namespace. It writes nothing before [`Journal::open`].
    pub(super) fn new(namespace: &str) -> Journal {
        Journal { place: Key::new(namespace, NAME), state: Mutex::default(), wake: Notify::new(), later: Notify::new() }
    }

    /// Reads the journal of the former process, and returns the runtimes in it. Retries until it succeeds.
    pub(super) async fn open(&self, kcp: &Cluster, all: &[Key]) -> Vec<Key> {
        let mut attempt = 0;
        loop {
            match kcp.get(&kind(), &self.place).await {
                Ok(found) => {
                    let data = found.as_ref().and_then(|map| map.value()["data"].as_object());
                    let keys: Vec<String> = data.into_iter().flatten().map(|(key, _)| key.clone()).collect();
                    return self.state().open(&keys, all, Instant::now());
                }
                Err(error) => {
                    attempt += 1;
                    let error = crate::controller::chain(&error);
                    tracing::warn!(error, "the journal of events cannot be read yet");
                    tokio::time::sleep(retry::backoff(retry::BACKOFF_MIN, retry::DEPENDENCY_POLL_MAX, attempt)).await;
                }
            }
        }
    }

    /// Whether the journal has been read.
    pub(super) fn is_open(&self) -> bool {
        self.state().is_open()
    }

    /// Returns once the journal records that a pass that begins at `told` or later must compare the runtime. Fails if
    /// the journal cannot be written.
    pub(super) async fn tell(&self, runtime: &Key, told: Instant) -> Result<(), NotWritten> {
        let waiting = self.state().tell(runtime, told);
        let Some(waiting) = waiting else { return Ok(()) };
        self.wake.notify_one();
        match waiting.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(NotWritten),
        }
    }

    /// Records a successful pass over a runtime: see [`State::passed`].
    pub(super) fn passed(&self, runtime: &Key, began: Instant, looks: bool, ends: bool) {
        if self.state().passed(runtime, began, looks, ends) {
            self.later.notify_one();
        }
    }

    /// Writes the pending changes, one request at a time. Never ends.
    pub(super) async fn write(&self, kcp: &Cluster) {
        loop {
            tokio::select! {
                () = self.wake.notified() => {}
                () = async {
                    self.later.notified().await;
                    tokio::time::sleep(LATER).await;
                } => {}
            }
            let batch = self.state().batch();
            let Some(batch) = batch else { continue };
            let result = self.patch(kcp, &batch).await;
            if let Err(error) = &result {
                let reason = error.reason();
                if kcp.outage().is_some() {
                    // One line a minute says so for all requests.
                    tracing::debug!(reason, "the journal of events cannot be written");
                } else {
                    tracing::warn!(reason, "the journal of events cannot be written");
                }
                self.later.notify_one();
            }
            self.state().written(batch, result.is_ok());
        }
    }

    async fn patch(&self, kcp: &Cluster, batch: &Batch) -> Result<(), Error> {
        let (kind, cause) = (kind(), Cause::trigger(TRIGGER));
        let added = batch.add.iter().map(key_of).chain(batch.add_all.then(|| ALL.to_owned()));
        let mut data: BTreeMap<String, Value> = batch.remove.iter().map(|key| (key.clone(), Value::Null)).collect();
        data.extend(added.clone().map(|key| (key, "".into())));
        let body = Bytes::from(json!({ "data": data }).to_string());
        match kcp.merge_patch(&cause, &kind, &kind.id(&self.place), None, body).await {
            Ok(_) => Ok(()),
            // The ConfigMap was never written, or another client deleted it. Then it contains no keys to remove.
            Err(Error::NotFound { .. }) => {
                let data: BTreeMap<String, &str> = added.map(|key| (key, "")).collect();
                let map = json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"namespace": self.place.namespace(), "name": NAME},
                    "data": data,
                });
                kcp.create(&cause, &kind, &kind.id(&self.place), map.to_string().into()).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything in it can panic.
        self.state.lock()
    }
}

fn kind() -> Kind {
    Kind::new(Gvk::new("", "v1", "ConfigMap"), "configmaps", true)
}
