//! What survives us: runtimes whose objects must be looked at, written down in the control plane before anybody is told
//! that his event is in good hands.
//!
//! One ConfigMap holds a key for each of them. Many events are one write, and an event about a runtime that stands there
//! already needs none; a key leaves with some later write, after a pass that began after the event went through. A new
//! process reads it once, and looks at what stands there.
//!
//! Of events about a runtime's Kyma nothing is written: a new process reads every Kyma anyway.

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
    /// The ConfigMap.
    place: Key,
    state: Mutex<State>,
    /// There is something to write.
    wake: Notify,
    /// There is something to write that can wait.
    later: Notify,
}

/// An event could not be written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotWritten;

/// Name of the ConfigMap.
pub(super) const NAME: &str = "tidegate-events";
/// What the audit says made us write.
const TRIGGER: &str = "reported";
/// What can wait waits so long, so that many keys leave with one write.
const LATER: Duration = Duration::from_secs(5);

// === impl Journal ===

impl Journal {
    /// A journal in a namespace. Nothing is written before [`Journal::open`].
    pub(super) fn new(namespace: &str) -> Journal {
        Journal { place: Key::new(namespace, NAME), state: Mutex::default(), wake: Notify::new(), later: Notify::new() }
    }

    /// Reads what the former process left, and returns the runtimes that it names. Tries until that is done.
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

    /// Whether it has been read.
    pub(super) fn is_open(&self) -> bool {
        self.state().is_open()
    }

    /// Returns once it is written down that a runtime must be looked at by a pass that begins at `told` or later.
    pub(super) async fn tell(&self, runtime: &Key, told: Instant) -> Result<(), NotWritten> {
        let waiting = self.state().tell(runtime, told);
        let Some(waiting) = waiting else { return Ok(()) };
        self.wake.notify_one();
        match waiting.await {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(NotWritten),
        }
    }

    /// A pass over a runtime went through: see [`State::passed`].
    pub(super) fn passed(&self, runtime: &Key, began: Instant, looks: bool, ends: bool) {
        if self.state().passed(runtime, began, looks, ends) {
            self.later.notify_one();
        }
    }

    /// Writes what there is to write, one request at a time, without end.
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
                tracing::warn!(reason = error.reason(), "the journal of events cannot be written");
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
            // Nobody ever wrote it, or somebody deleted it: then nothing that was to leave is there.
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
        // Every change of the state is whole before anything in it can panic.
        self.state.lock()
    }
}

fn kind() -> Kind {
    Kind::new(Gvk::new("", "v1", "ConfigMap"), "configmaps", true)
}
