//! A bare repository per source and URL, which outlives the remote and the process.
//!
//! ```text
//! <state>/git/<namespace>.<name>/<digest of the URL>/
//!     url        where it mirrors from, for people
//!     good       the last good revision, replaced by renaming
//!     1.git      the mirror's first generation
//! ```
//!
//! A generation is a bare repository with these references: `refs/tidegate/fetched` (result of the last fetch),
//! `refs/tidegate/good` (last good commit) and `refs/tidegate/keep/<id>` (trees and blobs in use). A generation is
//! never repaired in place. If it is damaged or has too many packs, the next generation is built beside it and gets its
//! number by renaming. Readers hold the gate open meanwhile.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use git2::Repository;
use tokio::sync::{Mutex as AsyncMutex, RwLock};

use super::{
    error::Error,
    fetch, generation, history,
    limits::{DEADLINE_GRACE, PACKS_MAX},
    objects::{self, Files, from_git, to_git},
    remote::Remote,
    state::{State, folder_of, good, state_error},
    thread,
    url::Url,
};
use tidegate_core::{
    name::Key,
    object::Digest,
    revision::{Oid, Revision},
    snapshot::{Filter, Limits, Snapshot},
};
use tidegate_process::lock::Mutex;

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The commit, with the requested name.
    pub revision: Revision,
    /// Whether the last good revision of the same name is among its ancestors; true if there is none.
    ///
    /// It stays false, even across fetches and restarts, until a revision is recorded as good.
    pub fast_forward: bool,
    /// Bytes received over the network; 0 from a local repository.
    pub received_bytes: u64,
}

/// A bare repository per source and URL. Cheap to clone.
///
/// Fetches of one mirror run one after another; reads run in parallel. Every method may be dropped at its `await`.
#[derive(Clone, Debug)]
pub struct Mirror {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Holds the lock of the state folder.
    _state: State,
    folder: PathBuf,
    url: Url,
    /// Number of the generation in use; 0 before the first.
    generation: AtomicU32,
    /// Set if an object could not be read: the next fetch builds a new generation.
    is_damaged: AtomicBool,
    good: Mutex<Option<Revision>>,
    fetching: Arc<AsyncMutex<()>>,
    /// Readers of a generation hold it shared, and its removal holds it exclusively.
    gate: Arc<RwLock<()>>,
}

// === impl Mirror ===

impl Mirror {
    pub(super) fn open(state: State, source: &Key, url: &Url) -> Result<Mirror, Error> {
        let digest = Digest::of_bytes(url.to_string().as_bytes()).short();
        let folder = state.mirrors().join(folder_of(source)).join(digest);
        fs::create_dir_all(&folder).map_err(state_error("create", &folder))?;
        let url_file = folder.join("url");
        fs::write(&url_file, format!("{url}\n")).map_err(state_error("write", &url_file))?;
        let number = generation::clean(&folder)?;
        let mirror = Mirror {
            shared: Arc::new(Shared {
                _state: state,
                good: Mutex::new(good::load(&folder)),
                folder,
                url: url.clone(),
                generation: AtomicU32::new(number),
                is_damaged: AtomicBool::new(false),
                fetching: Arc::default(),
                gate: Arc::default(),
            }),
        };
        mirror.shared.forget_unreadable_good();
        Ok(mirror)
    }

    /// The URL of the remote.
    pub fn url(&self) -> &Url {
        &self.shared.url
    }

    /// Fetches the remote's reference, within the remote's time-out.
    ///
    /// A failed fetch changes nothing.
    ///
    /// # Errors
    ///
    /// Fails if the remote cannot be reached, refuses the request, lacks the reference or exceeds a limit.
    pub async fn fetch(&self, remote: &Remote) -> Result<Fetched, Error> {
        let url = || Box::new(remote.url.clone());
        let deadline = Instant::now() + remote.timeout;
        // Another fetch holds the lock only until its own deadline, unless it hangs in the operating system.
        let lock = tokio::time::timeout(remote.timeout, Arc::clone(&self.shared.fetching).lock_owned());
        let Ok(fetching) = lock.await else { return Err(Error::Busy { url: url() }) };
        let (shared, remote_of_thread) = (Arc::clone(&self.shared), remote.clone());
        let work = thread::run(move || {
            let _fetching = fetching;
            shared.fetch(&remote_of_thread, deadline)
        });
        let timeout = deadline.saturating_duration_since(Instant::now()) + DEADLINE_GRACE;
        match tokio::time::timeout(timeout, work).await {
            Ok(fetched) => fetched,
            Err(_) => Err(Error::Deadline { url: url(), timeout: remote.timeout }),
        }
    }

    /// Reads the files of a fetched commit. Content that `previous` contains is shared with it.
    ///
    /// # Errors
    ///
    /// Fails if an object is missing or damaged, or if a limit is exceeded.
    pub async fn snapshot(
        &self,
        revision: &Revision,
        previous: Option<Arc<Snapshot>>,
        filter: &Filter,
        limits: Limits,
    ) -> Result<Snapshot, Error> {
        let (revision, filter) = (revision.clone(), filter.clone());
        self.read(move |shared, repository| {
            let (commit, name) = match &revision {
                Revision::Commit { commit, name } => (*commit, name),
                Revision::WorkTree => return Err(shared.missing(Oid::new([0; 20]))),
            };
            shared.require(repository, commit)?;
            let broken = |what| shared.damaged(what);
            objects::snapshot(repository, commit, name, previous.as_deref(), &filter, limits, &broken)
        })
        .await
    }

    /// The revisions before this one on its branch at which `folder` had another content than in the revision after
    /// them, the latest first, and at most `max`.
    ///
    /// # Errors
    ///
    /// Fails if the commit is missing or damaged.
    pub async fn versions(&self, revision: &Revision, folder: &str, max: usize) -> Result<Vec<Revision>, Error> {
        let Revision::Commit { commit, name } = revision.clone() else { return Ok(Vec::new()) };
        let folder = folder.to_owned();
        let found = self.read(move |shared, repository| {
            shared.require(repository, commit)?;
            history::versions(repository, commit, &folder, max, &|what| shared.damaged(what))
        });
        Ok(found.await?.into_iter().map(|commit| Revision::Commit { name: name.clone(), commit }).collect())
    }

    /// Reads the YAML and JSON files of a tree, or the one file of a blob, with names below `path`.
    ///
    /// [`Error::Missing`] means that this mirror never had the object or no longer has it.
    ///
    /// # Errors
    ///
    /// Fails if the object is missing or damaged, if a file is not allowed there, or if a limit is exceeded.
    pub async fn read_object(&self, id: Oid, path: &str, limits: Limits) -> Result<Files, Error> {
        let path = path.to_owned();
        self.read(move |shared, repository| {
            shared.require(repository, id)?;
            objects::files(repository, id, &path, limits, &|what| shared.damaged(what))
        })
        .await
    }

    /// Keeps exactly these trees and blobs, even if the branch no longer contains them.
    ///
    /// Skips objects that the mirror does not have; reading them fails later.
    ///
    /// # Errors
    ///
    /// Fails if the repository cannot be written.
    pub async fn keep(&self, ids: BTreeSet<Oid>) -> Result<(), Error> {
        self.read(move |shared, repository| {
            generation::keep(repository, &ids).map_err(|_| shared.damaged("its references".to_owned()))
        })
        .await
    }

    /// The revision last recorded as good, if its commit still exists.
    pub fn last_good(&self) -> Option<Revision> {
        self.shared.last_good()
    }

    /// Records a revision as good: it is kept, and found again after a restart. Also removes the mirrors of the
    /// source's earlier URLs; until then, a wrong URL can be reverted.
    ///
    /// # Errors
    ///
    /// Fails if the commit is missing or the state folder cannot be written.
    pub async fn record_good(&self, revision: &Revision) -> Result<(), Error> {
        let Some(commit) = revision.commit() else { return Ok(()) };
        if self.last_good().as_ref() == Some(revision) {
            return Ok(());
        }
        let revision = revision.clone();
        self.read(move |shared, repository| {
            shared.require(repository, commit)?;
            // Set the reference first: the file may only name a commit that is kept.
            generation::set_good(repository, commit).map_err(|_| shared.damaged("its references".to_owned()))?;
            good::store(&shared.folder, &revision)?;
            *shared.good.lock() = Some(revision);
            shared.remove_former();
            Ok(())
        })
        .await
    }

    /// Runs `work` on the generation in use, which is not removed meanwhile.
    async fn read<T, F>(&self, work: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Shared, &Repository) -> Result<T, Error> + Send + 'static,
    {
        let gate = Arc::clone(&self.shared.gate).read_owned().await;
        let shared = Arc::clone(&self.shared);
        thread::run(move || {
            let _gate = gate;
            let repository = shared.repository()?;
            work(&shared, &repository)
        })
        .await
    }
}

// === impl Shared ===

impl Shared {
    fn fetch(&self, remote: &Remote, deadline: Instant) -> Result<Fetched, Error> {
        let must_rebuild = self.is_damaged.load(Ordering::Relaxed) || self.repository().is_err();
        let (fetched, repository) = if must_rebuild {
            self.rebuild(remote, deadline)?
        } else {
            let repository = self.repository()?;
            (fetch::fetch(&repository, remote, deadline)?, repository)
        };
        if PACKS_MAX < generation::packs(&repository) {
            self.repack(&repository)?;
        }
        let fast_forward = self.is_fast_forward(&repository, &fetched.name, fetched.commit);
        Ok(Fetched {
            revision: Revision::Commit { name: fetched.name, commit: from_git(fetched.commit) },
            fast_forward,
            received_bytes: fetched.received_bytes,
        })
    }

    fn is_fast_forward(&self, repository: &Repository, name: &str, commit: git2::Oid) -> bool {
        match self.last_good() {
            Some(Revision::Commit { name: good_name, commit: good }) if good_name == name => {
                let good = to_git(good);
                // A good commit without its history is not an ancestor of a complete fetch.
                good == commit || repository.graph_descendant_of(commit, good).unwrap_or(false)
            }
            Some(_) | None => true,
        }
    }

    /// Builds the next generation from the remote, and copies everything in use from this one.
    fn rebuild(&self, remote: &Remote, deadline: Instant) -> Result<(fetch::Tip, Repository), Error> {
        let build = generation::Build::begin(&self.folder, self.number() + 1)?;
        let tip = fetch::fetch(build.repository(), remote, deadline)?;
        // An incomplete fetch must not replace readable objects.
        if !generation::is_complete(build.repository(), tip.commit) {
            return Err(Error::Answer { url: Box::new(self.url.clone()) });
        }
        self.replace(build)?;
        self.forget_unreadable_good();
        Ok((tip, self.repository()?))
    }

    /// Builds the next generation from this one, in a single pack and without unreferenced objects.
    fn repack(&self, old: &Repository) -> Result<(), Error> {
        let build = generation::Build::begin(&self.folder, self.number() + 1)?;
        let good = self.last_good().and_then(|good| good.commit());
        generation::pack(old, build.repository(), good).map_err(|_| self.damaged("while repacking it".to_owned()))?;
        self.replace(build)
    }

    /// Replaces this generation by the next one.
    fn replace(&self, build: generation::Build) -> Result<(), Error> {
        // Readers of the old generation finish first; this thread may block. Copy what was recorded or kept during the
        // build.
        let _gate = self.gate.blocking_write();
        if let Ok(old) = self.repository() {
            generation::save(&old, build.repository(), self.last_good().and_then(|good| good.commit()));
        }
        let number = build.finish()?;
        let old = self.generation.swap(number, Ordering::AcqRel);
        self.is_damaged.store(false, Ordering::Release);
        generation::remove(&self.folder, old);
        Ok(())
    }

    fn last_good(&self) -> Option<Revision> {
        self.good.lock().clone()
    }

    /// Forgets the last good revision if it cannot be read.
    fn forget_unreadable_good(&self) {
        let Some(commit) = self.last_good().and_then(|good| good.commit()) else { return };
        let readable = self
            .repository()
            .is_ok_and(|repository| repository.find_commit(to_git(commit)).and_then(|commit| commit.tree()).is_ok());
        if !readable {
            tracing::warn!(url = %self.url, %commit, "cannot read the last good revision any more");
            self.is_damaged.store(true, Ordering::Release);
            *self.good.lock() = None;
        }
    }

    /// Removes the other mirrors of this source, which have other URLs.
    fn remove_former(&self) {
        let (Some(parent), Some(own)) = (self.folder.parent(), self.folder.file_name()) else { return };
        let names = generation::names(parent).unwrap_or_default();
        names.iter().filter(|name| own != name.as_str()).for_each(|name| generation::remove_folder(&parent.join(name)));
    }

    fn number(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    fn repository(&self) -> Result<Repository, Error> {
        let path = generation::path(&self.folder, self.number());
        Repository::open_bare(&path).map_err(|_| self.damaged(display_name(&path)))
    }

    /// Fails if a requested object does not exist. A missing object is not damage.
    fn require(&self, repository: &Repository, id: Oid) -> Result<(), Error> {
        let odb = repository.odb().map_err(|_| self.damaged("its objects".to_owned()))?;
        if odb.exists(to_git(id)) { Ok(()) } else { Err(self.missing(id)) }
    }

    fn missing(&self, id: Oid) -> Error {
        Error::Missing { id, url: Box::new(self.url.clone()) }
    }

    fn damaged(&self, what: String) -> Error {
        self.is_damaged.store(true, Ordering::Release);
        Error::Damaged { url: Box::new(self.url.clone()), what }
    }
}

fn display_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
