//! What a process knows of runtimes between passes. Pure, except for the lock around all of them.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use tidegate_core::{
    api::{Kyma, Manifest, kyma::KymaStatus},
    landscape,
    name::Key,
    plan::LeftUnmanaged,
};
use tidegate_process::lock::Mutex;
use tokio::time::Instant;

use super::{
    base::KnownBase, counterpart::KnownCounterpart, manifest, progress::KnownProgress, remove::RemovalWait,
    reporting::KnownReporting, unreadable::UnreadableObjects,
};

/// What a process knows of all runtimes between passes.
#[derive(Debug, Default)]
pub struct KnownRuntimes {
    known: Mutex<HashMap<Key, KnownRuntime>>,
    /// The number of objects that cannot be read, by kind, of the runtimes that have some. Kept beside, because a pass
    /// takes the knowledge of its runtime away.
    unreadable: Mutex<BTreeMap<Key, BTreeMap<String, usize>>>,
}

/// What a process knows of one runtime between passes.
#[derive(Debug, Default)]
pub(super) struct KnownRuntime {
    /// The objects that every runtime has.
    pub(super) base: KnownBase,
    /// What reports changes in the runtime.
    pub(super) reporting: KnownReporting,
    /// The Kyma in the runtime.
    pub(super) counterpart: KnownCounterpart,
    /// The access Secret with which the runtime last answered.
    pub(super) access: Option<AccessVersion>,
    /// The status of its Kyma in KCP, if this process has written one.
    pub(super) status: Option<WrittenStatus>,
    /// The writes to its Manifests in KCP.
    pub(super) writes: ManifestWrites,
    /// The objects of each Manifest.
    pub(super) manifests: BTreeMap<Key, manifest::KnownManifest>,
    /// Its objects that cannot be read.
    pub(super) unreadable: UnreadableObjects,
    /// What a user has requested by an annotation of the Kyma, until it is handled.
    pub(super) request: Option<Request>,
    /// The modules that the Kyma in the runtime released before it dropped them.
    pub(super) left_unmanaged: LeftUnmanaged,
    /// What its removal waits for.
    pub(super) removal: RemovalWait,
    /// What users know of the progress of its modules.
    pub(super) progress: KnownProgress,
    /// Who had suspended it in the last pass, since when and why, if it was; `None` before the first pass.
    pub(super) suspension: Option<Option<String>>,
}

/// A request of a user that is not handled yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The value of the annotation.
    pub(super) value: String,
    /// When this process first saw it.
    pub(super) since: Instant,
}

/// Name and resource version of an access Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessVersion {
    /// Namespace and name of the Secret.
    pub(super) secret: Key,
    /// Its resource version.
    pub(super) resource_version: String,
}

/// The status of a Kyma in KCP, as this process last wrote it.
#[derive(Clone, Debug)]
pub(super) struct WrittenStatus {
    /// The resource version of the Kyma after the write.
    pub(super) resource_version: String,
    /// The status.
    pub(super) status: KymaStatus,
}

/// The writes to the Manifests of one runtime. The watch lags behind them.
#[derive(Debug, Default)]
pub(super) struct ManifestWrites(BTreeMap<Key, ManifestWrite>);

/// The last write to one Manifest.
#[derive(Debug)]
enum ManifestWrite {
    /// The Manifest after the write.
    Written { manifest: Arc<Manifest>, at: Instant },
    /// A failed pass may have written its status, so the Manifest must be read.
    Doubtful,
}

/// The Manifests of a runtime as the watch shows them.
pub(super) type ShownManifests = BTreeMap<Key, Arc<Manifest>>;

/// If the watch does not show a write for this long, the Manifest is read from the API server.
const LAG_MAX: Duration = Duration::from_secs(2);

// === impl KnownRuntimes ===

impl KnownRuntimes {
    pub(super) fn take(&self, key: &Key) -> KnownRuntime {
        self.known.lock().remove(key).unwrap_or_default()
    }

    pub(super) fn put(&self, key: &Key, known: KnownRuntime) {
        self.set_unreadable(key, known.unreadable.count());
        self.known.lock().insert(key.clone(), known);
    }

    /// Drops what is known of a runtime that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.set_unreadable(key, BTreeMap::new());
    }

    fn set_unreadable(&self, key: &Key, count: BTreeMap<String, usize>) {
        let mut unreadable = self.unreadable.lock();
        if count.is_empty() {
            unreadable.remove(key);
        } else {
            unreadable.insert(key.clone(), count);
        }
    }

    /// The number of objects in runtimes that cannot be read, by kind.
    pub fn unreadable(&self) -> BTreeMap<String, usize> {
        let mut kinds = BTreeMap::new();
        for (kind, count) in self.unreadable.lock().values().flatten() {
            *kinds.entry(kind.clone()).or_default() += count;
        }
        kinds
    }
}

// === impl WrittenStatus ===

impl WrittenStatus {
    /// The Kyma with the status that was written last, if the watch still shows an older one.
    pub(super) fn latest(written: Option<&WrittenStatus>, shown: &Kyma) -> Kyma {
        let mut kyma = shown.clone();
        if let Some(WrittenStatus { resource_version, status }) = written
            && is_newer(Some(resource_version), kyma.metadata.resource_version.as_deref())
        {
            kyma.status = Some(status.clone());
        }
        kyma
    }
}

// === impl ManifestWrites ===

impl ManifestWrites {
    /// Notes a Manifest after a write or a read.
    pub(super) fn written(&mut self, manifest: &Arc<Manifest>, now: Instant) {
        let write = ManifestWrite::Written { manifest: Arc::clone(manifest), at: now };
        self.0.insert(landscape::key(&manifest.metadata), write);
    }

    /// Notes that the status of a Manifest may have been written.
    pub(super) fn doubt(&mut self, key: Key) {
        self.0.insert(key, ManifestWrite::Doubtful);
    }

    /// Notes that a Manifest does not exist.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// The Manifests to read before [`ManifestWrites::latest`]. `is_elsewhere` tells whether the watch shows a Manifest
    /// for another runtime.
    ///
    /// A Manifest that the watch does not show is gone, or the watch lags. If Tidegate took it for gone, it would lose
    /// its inventory.
    pub(super) fn must_ask(
        &mut self,
        shown: &ShownManifests,
        is_elsewhere: impl Fn(&Key) -> bool,
        now: Instant,
    ) -> BTreeSet<Key> {
        self.0.retain(|key, write| match write {
            ManifestWrite::Doubtful => true,
            ManifestWrite::Written { manifest, .. } => {
                shown.contains_key(key) || !(manifest::is_released(manifest) || is_elsewhere(key))
            }
        });
        let is_asked = |(key, write): &(&Key, &ManifestWrite)| match write {
            ManifestWrite::Doubtful => true,
            ManifestWrite::Written { at, .. } => {
                !shown.contains_key(*key) && LAG_MAX <= now.saturating_duration_since(*at)
            }
        };
        self.0.iter().filter(is_asked).map(|(key, _)| key.clone()).collect()
    }

    /// The Manifests of the runtime by name, as the watch shows them or as this process has written them since.
    pub(super) fn latest(&mut self, shown: ShownManifests) -> Vec<Arc<Manifest>> {
        let mut latest = shown;
        self.0.retain(|key, write| match write {
            ManifestWrite::Doubtful => true,
            ManifestWrite::Written { manifest, .. } => latest.get(key).is_none_or(|shown| {
                let version = |manifest: &Manifest| manifest.metadata.resource_version.clone();
                is_newer(version(manifest).as_deref(), version(shown).as_deref())
            }),
        });
        for (key, write) in &self.0 {
            if let ManifestWrite::Written { manifest, .. } = write {
                latest.insert(key.clone(), Arc::clone(manifest));
            }
        }
        let mut latest: Vec<Arc<Manifest>> = latest.into_values().collect();
        latest.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
        latest
    }
}

/// Whether a resource version is newer than another. Kubernetes guarantees since 1.35 that they are numbers. If they
/// are not, the version of the watch counts as newer.
fn is_newer(one: Option<&str>, other: Option<&str>) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
