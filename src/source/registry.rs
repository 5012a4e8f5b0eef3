//! What the daemon has read from git: the mirror and the active revision of each GitSource.
//!
//! The registry never decides to fetch. [`crate::source`] does, and fills it. The other controllers read from it the
//! objects of modules in git, and the template overrides of a source.
//!
//! The objects of modules are shared: many Manifests and sources name one tree, and it is in memory once. The registry
//! refers to them weakly, so they are gone with the last user.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Deref, DerefMut},
    sync::{Arc, Weak},
};

use tokio::sync::OnceCell;

use crate::{
    controller::Queue,
    source::{
        KnownSource,
        failures::RenderFailures,
        load::{checks::Checks, fetches::Fetches},
        local::LocalRepositories,
        receiver::Receivers,
    },
};
use tidegate_cluster::Cluster;
use tidegate_core::{
    content::ContentId,
    definition::{self, Cache, Definitions, Elsewhere, KcpLandscapes, ModuleObjects},
    diagnostic::{Diagnostics, FilePosition},
    intake::{
        Declared, Id,
        status::{self, Withheld},
    },
    name::Key,
    object::Digest,
    revision::{Oid, Revision},
    snapshot::{Limits, Snapshot},
    template::Templates,
};
use tidegate_git as git;
use tidegate_process::{ambient, lock::Mutex, memory};

/// The active revision of a source, read and checked.
#[derive(Debug)]
pub struct Loaded {
    /// The revision.
    pub revision: Revision,
    /// Digest of the settings with which it was read.
    pub reading: Digest,
    /// The objects to which it refers and that it does not declare, of those in KCP when it was read.
    pub elsewhere: Elsewhere,
    /// Whether definitions of kcp landscapes were applied when it was read.
    pub kcp_landscapes: KcpLandscapes,
    /// Its files without those of modules: of the next revision, only files that differ are read.
    pub snapshot: Arc<Snapshot>,
    /// Size of all its files, with those of modules.
    pub bytes: u64,
    /// Its definitions.
    pub definitions: Definitions,
    /// The facts about its valid definitions.
    pub declared: BTreeMap<Id, Declared>,
    /// Definitions that are invalid, or refer to an invalid one.
    pub withheld: Vec<Withheld>,
    /// The place of the problem of each of them, also under the name that it is most likely meant to have.
    pub broken: BTreeMap<Id, FilePosition>,
    /// The ids of all definitions, valid or not.
    pub declares: Arc<BTreeSet<Id>>,
    /// Its problems.
    pub diagnostics: Diagnostics,
    /// Its template overrides.
    pub templates: Overrides,
}

/// The template overrides of a source.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// The active ones, on top of those of the daemon; `None` without overrides.
    pub active: Option<Templates>,
    /// Where they are from.
    pub origin: OverridesOrigin,
    /// The last good ones before them, as far as a process that has just started finds them in git.
    pub former: Option<Templates>,
}

/// The revision of active template overrides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverridesOrigin {
    /// The active revision.
    #[default]
    Own,
    /// An earlier one, because those of the active revision have errors.
    Earlier,
    /// The active revision, although they have errors: no earlier ones are known. A template with an error renders
    /// nothing.
    Broken,
}

/// Why the objects of a module are not available.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The GitSource does not exist, or this process has not opened its mirror yet.
    #[error("GitSource {0} does not exist or has not been read yet")]
    Source(Key),
    /// The mirror does not have them.
    #[error("cannot read {path} at {tree} from GitSource {source_key}")]
    Mirror {
        /// The GitSource.
        source_key: Key,
        /// The folder or file.
        path: String,
        /// The tree or blob.
        tree: Oid,
        /// The cause.
        #[source]
        error: Box<git::Error>,
    },
    /// They are invalid. Those of a good revision never are.
    #[error("{path} at {tree} of GitSource {source_key} is invalid: {message}")]
    Broken {
        /// The GitSource.
        source_key: Key,
        /// The folder or file.
        path: String,
        /// The tree or blob.
        tree: Oid,
        /// The first error.
        message: String,
    },
}

/// What the daemon has read from git.
pub struct SourceRegistry {
    state: git::State,
    slots: Slots,
    modules: Mutex<Modules>,
    local: LocalRepositories,
    pub(super) fetches: Fetches,
    pub(super) checks: Checks,
    pub(crate) receivers: Receivers,
}

/// What is known of each source.
type Slots = Arc<Mutex<BTreeMap<Key, Arc<Slot>>>>;

/// What is known of one source.
pub(crate) struct Slot {
    /// Only the pass over the source locks it: see [`Slot::known`].
    known: tokio::sync::Mutex<KnownSource>,
    published: Mutex<Published>,
}

/// What is known of a source, for the pass over it. A pass that panics may have changed a part of it, so nothing is
/// known after it, as in a new process.
pub(crate) struct InPass<'a>(tokio::sync::MutexGuard<'a, KnownSource>);

#[derive(Default)]
struct Published {
    mirror: Option<git::Mirror>,
    loaded: Option<Arc<Loaded>>,
    /// The size of the files of a revision that is checked.
    reserved: Option<u64>,
    /// How many diagnostics are listed, of the active revision and of a refused one.
    listed: usize,
    /// Whether a pass over the source has ended.
    visited: bool,
    /// What the active revision would remove from runtimes and waits for a confirmation, by Kyma.
    removals: Notices,
    /// The objects for which its active template overrides fail; `None` without overrides.
    failures: Option<Arc<RenderFailures>>,
}

/// One sentence for each of some runtimes. Runtimes share equal ones.
pub(crate) type Notices = BTreeMap<Key, Arc<str>>;

/// The memory for a revision that is checked. Dropping it gives the memory back, unless the revision is active by then.
pub(crate) struct ReservedBytes<'a>(&'a Slot);

/// The objects of modules by tree and path, as long as a source or a pass uses them.
#[derive(Default)]
struct Modules {
    entries: BTreeMap<(ContentId, Arc<str>), Entry>,
}

#[derive(Default)]
struct Entry {
    /// What a pass reads just now: others wait for it.
    reading: Weak<OnceCell<Arc<ModuleObjects>>>,
    objects: Weak<ModuleObjects>,
}

/// Maximum number of diagnostics that all sources together keep listed; each keeps those that its status shows. With
/// the longest messages they take 10 MiB.
const LISTED_IN_PROCESS_MAX: usize = 10_000;

// === impl Slot ===

impl Slot {
    fn new() -> Slot {
        Slot { known: tokio::sync::Mutex::default(), published: Mutex::default() }
    }

    /// The knowledge of the source. The queue runs one pass over a subject at a time, so no pass waits here.
    pub(crate) async fn known(&self) -> InPass<'_> {
        InPass(self.known.lock().await)
    }
}

// === impl InPass ===

impl Deref for InPass<'_> {
    type Target = KnownSource;

    fn deref(&self) -> &KnownSource {
        &self.0
    }
}

impl DerefMut for InPass<'_> {
    fn deref_mut(&mut self) -> &mut KnownSource {
        &mut self.0
    }
}

impl Drop for InPass<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0 = KnownSource::default();
        }
    }
}

// === impl SourceRegistry ===

impl SourceRegistry {
    /// An empty registry with its mirrors below `state`.
    pub fn new(state: git::State) -> SourceRegistry {
        SourceRegistry {
            state,
            slots: Slots::default(),
            modules: Mutex::default(),
            local: LocalRepositories::default(),
            fetches: Fetches::default(),
            checks: Checks::default(),
            receivers: Receivers::new(),
        }
    }

    /// The active revision of a source.
    pub fn loaded(&self, source: &Key) -> Option<Arc<Loaded>> {
        let slot = self.slots.lock().get(source).cloned()?;
        slot.published.lock().loaded.clone()
    }

    /// Whether a pass over a source has ended in this process.
    pub(crate) fn is_visited(&self, source: &Key) -> bool {
        let slot = self.slots.lock().get(source).cloned();
        slot.is_some_and(|slot| slot.published.lock().visited)
    }

    /// The size of the files of a source's active revision, and how many diagnostics the source keeps listed.
    pub(crate) fn sizes(&self, source: &Key) -> (u64, usize) {
        let Some(slot) = self.slots.lock().get(source).cloned() else { return (0, 0) };
        let published = slot.published.lock();
        (published.loaded.as_ref().map_or(0, |loaded| loaded.bytes), published.listed)
    }

    /// The objects for which the active template overrides of a source fail; `None` without overrides.
    pub(crate) fn failures(&self, source: &Key) -> Option<Arc<RenderFailures>> {
        let slot = self.slots.lock().get(source).cloned()?;
        slot.published.lock().failures.clone()
    }

    /// Replaces the objects for which template overrides fail, because others are active.
    pub(crate) fn set_failures(&self, source: &Key, failures: Option<&Arc<RenderFailures>>) {
        let slot = self.slots.lock().get(source).cloned();
        slot.into_iter().for_each(|slot| slot.published.lock().failures = failures.cloned());
    }

    /// What a commit would remove from a runtime and waits for a confirmation, in one sentence.
    pub(crate) fn removal_of(&self, runtime: &Key) -> Option<Arc<str>> {
        let slots = self.slots.lock();
        slots.values().find_map(|slot| slot.published.lock().removals.get(runtime).cloned())
    }

    /// The objects of a module in git, by the id of its tree or file. Makes no request.
    ///
    /// # Errors
    ///
    /// Fails if the mirror of the source is not open, does not have the tree, or has invalid objects there.
    pub(crate) async fn module_objects(
        &self,
        source: &Key,
        tree: Oid,
        path: &str,
    ) -> Result<Arc<ModuleObjects>, Unavailable> {
        let published = match self.slots.lock().get(source) {
            Some(slot) => Arc::clone(slot),
            None => return Err(Unavailable::Source(source.clone())),
        };
        let (mirror, loaded) = {
            let published = published.published.lock();
            (published.mirror.clone(), published.loaded.clone())
        };
        if let Some(objects) = loaded.as_ref().and_then(|loaded| loaded.definitions.modules.get(&tree.into())) {
            return Ok(Arc::clone(objects));
        }
        let Some(mirror) = mirror else { return Err(Unavailable::Source(source.clone())) };
        let cell = match self.modules.lock().find(tree, path) {
            Ok(objects) => return Ok(objects),
            Err(cell) => cell,
        };
        let objects = cell.get_or_try_init(|| self.read_module(&mirror, source, tree, path)).await.cloned()?;
        Ok(self.modules.lock().share(path, &objects))
    }

    /// How many diagnostics a source may keep listed beside all others. Each source keeps as many as its status shows.
    pub(crate) fn diagnostics_max(&self, source: &Key) -> usize {
        let slots: Vec<Arc<Slot>> =
            self.slots.lock().iter().filter(|(key, _)| *key != source).map(|(_, slot)| Arc::clone(slot)).collect();
        let others: usize = slots.iter().map(|slot| slot.published.lock().listed).sum();
        LISTED_IN_PROCESS_MAX.saturating_sub(others).max(status::ENTRIES_MAX)
    }

    /// Records how many diagnostics a source keeps listed.
    pub(crate) fn set_listed(&self, slot: &Slot, listed: usize) {
        slot.published.lock().listed = listed;
    }

    /// The sizes of the files of all other sources that have an active revision, or one that is checked.
    pub(crate) fn sizes_of_others(&self, source: &Key) -> BTreeMap<Key, u64> {
        sizes_of_others(&self.slots.lock(), source)
    }

    /// Reserves memory for the files of a revision that is checked, if `fits` accepts it beside the sizes of all other
    /// sources. Two sources that are checked at the same time each see what the other one reserves. Fails if `fits`
    /// does.
    pub(crate) fn reserve<'a, E>(
        &self,
        source: &Key,
        slot: &'a Slot,
        bytes: u64,
        fits: impl FnOnce(&BTreeMap<Key, u64>) -> Result<(), E>,
    ) -> Result<ReservedBytes<'a>, E> {
        let slots = self.slots.lock();
        fits(&sizes_of_others(&slots, source))?;
        slot.published.lock().reserve(bytes);
        Ok(ReservedBytes(slot))
    }

    /// Reserves more memory for the revision, as a check finds that it needs more, as long as `fits` accepts it.
    pub(crate) fn reserve_more(
        &self,
        source: &Key,
        fits: impl Fn(u64, &BTreeMap<Key, u64>) -> bool + Send + Sync + 'static,
    ) -> impl Fn(u64) -> bool + Send + Sync + 'static {
        let (slots, source) = (Arc::clone(&self.slots), source.clone());
        move |bytes| {
            let slots = slots.lock();
            let Some(slot) = slots.get(&source) else { return false };
            if slot.published.lock().reserved.is_some_and(|reserved| bytes <= reserved) {
                return true;
            }
            let has_room = fits(bytes, &sizes_of_others(&slots, &source));
            if has_room {
                slot.published.lock().reserve(bytes);
            }
            has_room
        }
    }

    /// Replaces objects of modules that another source has as well by those of the other source.
    pub(crate) fn share_modules(&self, definitions: &mut Definitions, cache: &mut Cache) {
        let mut modules = self.modules.lock();
        for objects in definitions.modules.values_mut() {
            // The places of objects name their files, so the same tree elsewhere is another module.
            let path = objects.objects().first().map(|first| Arc::clone(&first.place.path)).unwrap_or_default();
            *objects = modules.share(&path, objects);
        }
        cache.share_modules(|objects| Arc::clone(definitions.modules.get(&objects.content()).unwrap_or(objects)));
    }

    async fn read_module(
        &self,
        mirror: &git::Mirror,
        source: &Key,
        tree: Oid,
        path: &str,
    ) -> Result<Arc<ModuleObjects>, Unavailable> {
        let files = mirror.read_object(tree, path, Limits::default()).await.map_err(|error| Unavailable::Mirror {
            source_key: source.clone(),
            path: path.to_owned(),
            tree,
            error: Box::new(error),
        })?;
        let files = files.iter().map(|(path, bytes)| (path, &**bytes));
        let objects = definition::module_objects(tree, files, &tidegate_core::yaml::Limits::default());
        objects.map(Arc::new).map_err(|first| Unavailable::Broken {
            source_key: source.clone(),
            path: path.to_owned(),
            tree,
            message: first.to_string(),
        })
    }

    /// Fetches what passes over sources ask for. Runs until it is dropped, which ends all fetches.
    pub async fn run_fetches(&self, kcp: &Cluster, queue: &Queue) {
        self.fetches.run(kcp, queue).await;
    }

    /// Wakes sources when git hosts report pushes. Runs until it is dropped.
    pub async fn run_receivers(&self, queue: &Queue) {
        self.receivers.run(queue).await;
    }

    /// Wakes a source when its repository on this machine changes. Runs until it is dropped.
    pub async fn watch_local(&self, queue: &Queue) {
        self.local.watch(queue).await;
    }

    // --- for the pass over a source ---

    /// The mirror of a source's repository, opened at first use. Fails if it cannot be opened.
    pub(crate) fn mirror(&self, source: &Key, slot: &Slot, url: &git::Url) -> Result<git::Mirror, git::Error> {
        if let Some(mirror) = slot.published.lock().mirror.as_ref().filter(|mirror| mirror.url() == url) {
            return Ok(mirror.clone());
        }
        let mirror = self.state.mirror(source, url)?;
        slot.published.lock().mirror = Some(mirror.clone());
        self.local.set(source, url.path());
        Ok(mirror)
    }

    /// The slot of a source, created at first use.
    pub(crate) fn slot(&self, source: &Key) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        let new = || Arc::new(Slot::new());
        Arc::clone(slots.entry(source.clone()).or_insert_with(new))
    }

    /// Records that a pass over a source has ended. Returns whether it was the first.
    pub(crate) fn visited(&self, slot: &Slot) -> bool {
        !std::mem::replace(&mut slot.published.lock().visited, true)
    }

    /// Replaces what a source would remove from runtimes and waits for a confirmation. Returns the runtimes for which
    /// that differs from before.
    pub(crate) fn set_removals(&self, slot: &Slot, removals: &Notices) -> BTreeSet<Key> {
        let before = std::mem::replace(&mut slot.published.lock().removals, removals.clone());
        let differs = |key: &&Key| before.get(*key) != removals.get(*key);
        before.keys().chain(removals.keys()).filter(differs).cloned().collect()
    }

    /// The mirror of a source, if it was opened.
    pub(crate) fn opened(&self, slot: &Slot) -> Option<git::Mirror> {
        slot.published.lock().mirror.clone()
    }

    /// Makes a revision active. If it is the first one of its source, returns the other sources: they prune nothing and
    /// take nothing over before all sources have been read, so they may have waited for this one.
    pub(crate) fn publish(&self, source: &Key, slot: &Slot, loaded: Arc<Loaded>) -> Vec<Key> {
        tracing::info!(%source, revision = %loaded.revision, "a revision is active");
        let before = slot.published.lock().loaded.replace(loaded);
        match before {
            Some(_) => Vec::new(),
            None => self.slots.lock().keys().filter(|key| *key != source).cloned().collect(),
        }
    }

    /// Removes the mirrors of sources that were deleted while no process ran.
    ///
    /// They have no reader: a module of a deleted source is unavailable, with or without its mirror.
    pub async fn sweep(&self, sources: &BTreeSet<Key>) {
        match self.state.sources().await {
            Ok(found) => {
                for source in found.difference(sources) {
                    self.remove(source).await;
                }
            }
            Err(error) => tracing::warn!(%error, "cannot list the mirrors of deleted sources"),
        }
    }

    /// Removes the mirrors of a deleted source.
    pub(crate) async fn remove(&self, source: &Key) {
        match self.state.remove(source).await {
            Ok(()) => tracing::info!(%source, "removed the mirrors of a deleted source"),
            Err(error) => tracing::warn!(%source, %error, "cannot remove the mirrors of a deleted source"),
        }
    }

    /// Forgets a source. Returns the others, which may take over its objects.
    pub(crate) fn forget(&self, source: &Key) -> Vec<Key> {
        let others = {
            let mut slots = self.slots.lock();
            slots.remove(source);
            slots.keys().cloned().collect()
        };
        self.fetches.forget(source);
        self.checks.forget(source);
        self.receivers.forget(source);
        give_back_memory();
        self.local.set(source, None);
        others
    }
}

/// Gives memory back to the system after a check or a source has ended: reading a repository takes a multiple of its
/// size, and the allocator keeps it. A simulation has nothing to give back, and no other threads.
pub(super) fn give_back_memory() {
    if !ambient::is_simulated() && tokio::runtime::Handle::try_current().is_ok() {
        drop(tokio::task::spawn_blocking(memory::give_back));
    }
}

fn sizes_of_others(slots: &BTreeMap<Key, Arc<Slot>>, source: &Key) -> BTreeMap<Key, u64> {
    let size = |slot: &Slot| {
        let published = slot.published.lock();
        published.loaded.as_ref().map(|loaded| loaded.bytes).max(published.reserved)
    };
    slots.iter().filter(|(key, _)| *key != source).filter_map(|(key, slot)| Some((key.clone(), size(slot)?))).collect()
}

// === impl Published ===

impl Published {
    fn reserve(&mut self, bytes: u64) {
        self.reserved = self.reserved.max(Some(bytes));
    }
}

// === impl ReservedBytes ===

impl Drop for ReservedBytes<'_> {
    fn drop(&mut self) {
        self.0.published.lock().reserved = None;
    }
}

// === impl Modules ===

impl Modules {
    /// The objects, or a cell to read them into.
    fn find(&mut self, tree: Oid, path: &str) -> Result<Arc<ModuleObjects>, Arc<OnceCell<Arc<ModuleObjects>>>> {
        let entry = self.entry(tree.into(), path);
        if let Some(objects) = entry.objects.upgrade() {
            return Ok(objects);
        }
        Err(entry.reading.upgrade().unwrap_or_else(|| {
            let cell = Arc::default();
            entry.reading = Arc::downgrade(&cell);
            cell
        }))
    }

    /// The objects that are known already, or these from now on.
    fn share(&mut self, path: &str, objects: &Arc<ModuleObjects>) -> Arc<ModuleObjects> {
        let entry = self.entry(objects.content(), path);
        if let Some(known) = entry.objects.upgrade().filter(|known| known == objects) {
            return known;
        }
        entry.objects = Arc::downgrade(objects);
        Arc::clone(objects)
    }

    fn entry(&mut self, content: ContentId, path: &str) -> &mut Entry {
        self.entries.retain(|_, entry| entry.reading.strong_count() != 0 || entry.objects.strong_count() != 0);
        self.entries.entry((content, path.into())).or_default()
    }
}

#[cfg(test)]
mod tests;
