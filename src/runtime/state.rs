//! What a process knows of runtimes between passes. Pure, but for the lock around all of them: times are passed in.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tidegate_core::{
    api::{Kyma, Manifest, kyma::KymaStatus},
    landscape,
    name::Key,
};
use tokio::time::Instant;

use super::{base::KnownBase, counterpart::KnownCounterpart, manifest, remove::RemovalWait, reporting::KnownWatch};

/// What a process knows of all runtimes between passes.
#[derive(Debug, Default)]
pub struct KnownRuntimes(Mutex<HashMap<Key, KnownRuntime>>);

/// What a process knows of one runtime between passes.
#[derive(Debug, Default)]
pub(super) struct KnownRuntime {
    /// What every runtime has.
    pub(super) base: KnownBase,
    /// What reports changes in it.
    pub(super) watch: KnownWatch,
    /// The Kyma in it.
    pub(super) counterpart: KnownCounterpart,
    /// The status of its Kyma in KCP, if we have written one.
    pub(super) status: Option<WrittenStatus>,
    /// What we wrote of its Manifests in KCP.
    pub(super) writes: ManifestWrites,
    /// The objects of each Manifest.
    pub(super) manifests: BTreeMap<Key, manifest::KnownManifest>,
    /// What its end waits for, if it comes to its end.
    pub(super) removal: RemovalWait,
}

/// The status of a Kyma in KCP as we last wrote it.
#[derive(Clone, Debug)]
pub(super) struct WrittenStatus {
    /// The resource version that the Kyma then had.
    pub(super) resource_version: String,
    pub(super) status: KymaStatus,
}

/// What we wrote of the Manifests of one runtime: the watch lags behind it.
#[derive(Debug, Default)]
pub(super) struct ManifestWrites(BTreeMap<Key, ManifestWrite>);

/// What we wrote of one Manifest.
#[derive(Debug)]
enum ManifestWrite {
    /// This is how it stood after our last write.
    Written { manifest: Arc<Manifest>, at: Instant },
    /// A pass may have written its status before it failed: what it says now is asked for.
    Doubtful,
}

/// The Manifests of a runtime as the watch shows them.
pub(super) type ShownManifests = BTreeMap<Key, Arc<Manifest>>;

/// A watch that does not show what we wrote this long ago is not asked any more: the API server is.
const LAG_MAX: Duration = Duration::from_secs(2);

// === impl KnownRuntimes ===

impl KnownRuntimes {
    pub(super) fn take(&self, key: &Key) -> KnownRuntime {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key).unwrap_or_default()
    }

    pub(super) fn put(&self, key: &Key, known: KnownRuntime) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), known);
    }

    /// Forgets a runtime: the next pass looks at everything, as that of a new process.
    pub fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

// === impl WrittenStatus ===

impl WrittenStatus {
    /// The Kyma with the status that was written last, where the watch still shows an older one.
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
    /// This is how a Manifest stands after a write, or as the API server said.
    pub(super) fn written(&mut self, manifest: &Arc<Manifest>, now: Instant) {
        let write = ManifestWrite::Written { manifest: Arc::clone(manifest), at: now };
        self.0.insert(landscape::key(&manifest.metadata), write);
    }

    /// The status of a Manifest may have been written.
    pub(super) fn doubt(&mut self, key: Key) {
        self.0.insert(key, ManifestWrite::Doubtful);
    }

    /// The API server does not have a Manifest.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Which Manifests the API server must be asked for before [`ManifestWrites::latest`] says anything. `is_elsewhere`
    /// is whether the watch shows one, which is not one of this runtime then.
    ///
    /// What the watch does not show is gone, or the watch is behind. To take it for absent would lose its inventory.
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

    /// The Manifests of the runtime: what the watch shows, or what we wrote since, by name.
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

/// Whether a resource version is later than another. They are numbers since Kubernetes promised so (1.35); where they
/// are not, the watch is believed.
fn is_newer(one: Option<&str>, other: Option<&str>) -> bool {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one > other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
