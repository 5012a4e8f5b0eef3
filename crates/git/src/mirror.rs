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
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Instant,
};

use git2::Repository;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, OwnedRwLockWriteGuard, RwLock};

use super::{
    engine::{Engine, Failure},
    error::Error,
    fetch::{Fetch, Refused, Settled},
    generation,
    limits::{DEPTH_MAX, ENTRIES_MAX, EVIDENCE_TAGS_MAX, EVIDENCE_TOUCHED_MAX, PATH_BYTES_MAX},
    objects::{Collector, Files, module_filter, to_git},
    remote::Remote,
    state::{State, folder_of, good, state_error},
    thread,
    url::Url,
    work::{Answer, Frame, Job, Special, Task, Trouble},
};
use tidegate_core::{
    evidence::{Evidence, Gap, Part},
    name::Key,
    object::Digest,
    revision::{Oid, Revision},
    snapshot::{Content, Filter, Limits, Snapshot},
};
use tidegate_process::lock::Mutex;

/// The result of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The commit, with the requested name.
    pub revision: Revision,
    /// What is under the reference: the commit, or an annotated tag.
    pub object: Oid,
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
pub(super) struct Shared {
    /// Holds the lock of the state folder.
    state: State,
    engine: Engine,
    folder: PathBuf,
    pub(super) url: Url,
    /// Number of the generation in use; 0 before the first.
    generation: AtomicU32,
    /// Set if an object could not be read: the next fetch builds a new generation.
    is_damaged: AtomicBool,
    good: Mutex<Option<Revision>>,
    /// What the last fetch found, so that the next one without news unpacks nothing.
    settled: Mutex<Option<Settled>>,
    /// What the last fetch could not unpack.
    refused: Mutex<Option<Refused>>,
    fetching: Arc<AsyncMutex<()>>,
    /// Held by work that writes to a generation: what a killed engine has left is removed under it.
    writing: Arc<AsyncMutex<()>>,
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
                engine: state.engine().clone(),
                state,
                settled: Mutex::default(),
                refused: Mutex::default(),
                writing: Arc::default(),
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
        // Another fetch holds the lock only while it waits for its server and for engines, which have limits.
        let lock = tokio::time::timeout(remote.timeout, Arc::clone(&self.shared.fetching).lock_owned());
        let Ok(fetching) = lock.await else { return Err(Error::Busy { url: url() }) };
        let mirror = Arc::clone(&self.shared);
        let mut remote = remote.clone();
        // `HTTPS_PROXY` says nothing of ssh, whose port most proxies refuse.
        if !remote.url.is_ssh() {
            remote.proxy = remote.proxy.or_else(|| self.shared.state.proxy().cloned());
        }
        let is_for = |proxy: &&crate::Proxy| remote.url.host().is_some_and(|host| proxy.is_for(host));
        let proxy = remote.proxy.as_ref().filter(is_for).map(ToString::to_string);
        let fetched = Fetch { mirror, remote, deadline, hold: Arc::new(fetching) }.run().await;
        fetched.map_err(|error| match error {
            Error::Deadline { url, proxy: None, timeout } => Error::Deadline { url, proxy, timeout },
            other => other,
        })
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
        let (id, name) = match revision {
            Revision::Commit { commit, name } => (*commit, name),
            Revision::WorkTree => return Err(self.shared.missing(Oid::new([0; 20]))),
        };
        let known = previous.iter().flat_map(|previous| previous.files.values());
        let known = known.filter_map(|file| Some((file.id, file.text()?.len() as u64))).collect();
        let job = Job::Commit { id, filter: filter.clone(), limits, known };
        let collector = Collector::new(filter, limits, previous.as_deref());
        let collector = self.collect(job, collector, &format!("commit {id}")).await?;
        Ok(collector.finish(Revision::Commit { name: name.clone(), commit: id }))
    }

    /// The revisions on the branch of this one, up to itself, that changed the content of `folder`, the latest first,
    /// and at most `max`.
    ///
    /// # Errors
    ///
    /// Fails if the commit is missing or damaged.
    pub async fn versions(&self, revision: &Revision, folder: &str, max: usize) -> Result<Vec<Revision>, Error> {
        let Revision::Commit { commit, name } = revision else { return Ok(Vec::new()) };
        let job = Job::Versions { id: *commit, folder: folder.to_owned(), max };
        let gate = Arc::clone(&self.shared.gate).read_owned().await;
        let verb = job.verb();
        let result = self.shared.perform(self.shared.path(), job, gate).await?;
        let subject = format!("the history of commit {commit}");
        match result.map_err(|failure| self.shared.failure(failure, verb, &subject))? {
            Answer::Versions(found) => {
                Ok(found.into_iter().map(|commit| Revision::Commit { name: name.clone(), commit }).collect())
            }
            other => Err(Error::Engine { why: format!("unexpected: {other:?}") }),
        }
    }

    /// What the repository says of the signatures of a fetched commit or tag. `object` is what is under the reference.
    /// With `rules`, it also says which commits since `base` change paths that these gitignore patterns match.
    ///
    /// # Errors
    ///
    /// Fails if an object is missing or damaged, or if a limit is exceeded.
    pub async fn evidence(&self, object: Oid, base: Option<Oid>, rules: &[String]) -> Result<Evidence, Error> {
        let gate = Arc::clone(&self.shared.gate).read_owned().await;
        let job = Job::Evidence { id: object, base, rules: rules.to_vec() };
        let verb = job.verb();
        let task = Task { repository: self.shared.path(), job };
        let (result, parts) = self.shared.engine.run(task, gate, Vec::new(), take_part).await?;
        match result.map_err(|failure| self.shared.failure(failure, verb, &format!("the history of {object}")))? {
            Answer::Evidence { vouched, gap } => assemble(parts, vouched, gap),
            other => Err(Error::Engine { why: format!("unexpected: {other:?}") }),
        }
    }

    /// Reads the YAML and JSON files of a tree, or the one file of a blob, with names below `path`.
    ///
    /// [`Error::Missing`] means that this mirror never had the object or no longer has it.
    ///
    /// # Errors
    ///
    /// Fails if the object is missing or damaged, if a file is not allowed there, or if a limit is exceeded.
    pub async fn read_object(&self, id: Oid, path: &str, limits: Limits) -> Result<Files, Error> {
        let collector = Collector::new(&module_filter(path), limits, None);
        let job = Job::Object { id, path: path.to_owned(), limits };
        self.collect(job, collector, &format!("{path} ({id})")).await?.into_files()
    }

    /// Keeps exactly these trees and blobs, even if the branch no longer contains them.
    ///
    /// Skips objects that the mirror does not have; reading them fails later.
    ///
    /// # Errors
    ///
    /// Fails if the repository cannot be written.
    pub async fn keep(&self, ids: BTreeSet<Oid>) -> Result<(), Error> {
        self.write(Job::Keep { ids }, "the objects in use").await
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
        // Set the reference first: the file may only name a commit that is kept.
        self.write(Job::Good { commit }, &format!("commit {commit}")).await?;
        let (shared, revision) = (Arc::clone(&self.shared), revision.clone());
        thread::run(move || {
            good::store(&shared.folder, &revision)?;
            *shared.good.lock() = Some(revision);
            shared.remove_former();
            Ok(())
        })
        .await
    }

    /// Collects the files that a job sends.
    async fn collect(&self, job: Job, collector: Collector, subject: &str) -> Result<Collector, Error> {
        let gate = Arc::clone(&self.shared.gate).read_owned().await;
        let task = Task { repository: self.shared.path(), job };
        let verb = task.job.verb();
        let (result, collector) = self.shared.engine.run(task, gate, collector, take).await?;
        match result {
            Ok(_) => Ok(collector),
            Err(failure) => Err(self.shared.failure(failure, verb, subject)),
        }
    }

    /// Does a job that writes to the generation in use.
    async fn write(&self, job: Job, subject: &str) -> Result<(), Error> {
        // In this order: a fetch that replaces the generation waits for the gate, and holds no other lock then.
        let gate = Arc::clone(&self.shared.gate).read_owned().await;
        let writing = self.shared.writing().await;
        let verb = job.verb();
        let result = self.shared.perform(self.shared.path(), job, (gate, writing)).await?;
        result.map(drop).map_err(|failure| self.shared.failure(failure, verb, subject))
    }
}

/// Takes a part of the evidence of signatures.
fn take_part(parts: &mut Vec<Part>, frame: Frame) -> Result<(), Error> {
    match frame {
        Frame::Evidence(part) if parts.len() <= EVIDENCE_TOUCHED_MAX + EVIDENCE_TAGS_MAX + 1 => {
            parts.push(part);
            Ok(())
        }
        Frame::Evidence(_)
        | Frame::Folder { .. }
        | Frame::Unopened { .. }
        | Frame::Special { .. }
        | Frame::File { .. } => Err(Error::Engine { why: "it sent something else than evidence".to_owned() }),
    }
}

/// The parts as one value.
pub(super) fn assemble(
    parts: Vec<Part>,
    vouched: BTreeMap<usize, String>,
    gap: Option<Gap>,
) -> Result<Evidence, Error> {
    let (mut tags, mut head, mut touched) = (Vec::new(), None, Vec::new());
    for part in parts {
        match part {
            Part::Tag(tag) => tags.push(tag),
            Part::Head(commit) => head = Some(commit),
            Part::Touched(commit) => touched.push(commit),
        }
    }
    // Without a commit, there is a gap before it.
    let none = || Error::Engine { why: "it sent no commit".to_owned() };
    let head = match (head, gap) {
        (Some(head), _) => head,
        (None, Some(_)) => tags.last().cloned().ok_or_else(none)?,
        (None, None) => return Err(none()),
    };
    Ok(Evidence { tags, head, touched, vouched, gap })
}

/// Passes a frame of an engine to a collector, which decides again about limits.
fn take(collector: &mut Collector, frame: Frame) -> Result<(), Error> {
    match frame {
        // Its entry was counted with its folder.
        Frame::Unopened { .. } | Frame::Evidence(_) => {}
        Frame::Folder { .. } | Frame::Special { .. } | Frame::File { .. } => collector.entry()?,
    }
    match frame {
        Frame::Unopened { path } => {
            collector.unopened(&path);
            Ok(())
        }
        Frame::Evidence(_) => Err(Error::Engine { why: "it sent evidence for files".to_owned() }),
        Frame::Folder { path, id } => {
            collector.folder(&path, id);
            Ok(())
        }
        Frame::Special { path, id, kind } => {
            let content = match kind {
                Special::Symlink => Content::Symlink,
                Special::Submodule => Content::Submodule,
                Special::NameNotUtf8 => Content::NameNotUtf8,
                Special::Ambiguous => Content::Ambiguous,
            };
            collector.special(&path, id, content)
        }
        Frame::File { path, id, bytes, content } => {
            let missing = || Error::Engine { why: format!("it sent no content of {path}") };
            collector.file(&path, id, bytes, || content.ok_or_else(missing))
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The generation in use.
    pub(super) fn path(&self) -> PathBuf {
        generation::path(&self.folder, self.number())
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// Makes a new generation the one in use. The caller holds the gate.
    pub(super) fn replace(&self, build: &generation::Build) -> Result<(), Error> {
        let number = build.finish()?;
        let old = self.generation.swap(number, Ordering::AcqRel);
        self.is_damaged.store(false, Ordering::Release);
        generation::remove(&self.folder, old);
        Ok(())
    }

    pub(super) async fn close_gate(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.gate).write_owned().await
    }

    pub(super) async fn writing(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.writing).lock_owned().await
    }

    /// Does a job that sends nothing but its answer.
    pub(super) async fn perform(
        &self,
        repository: PathBuf,
        job: Job,
        hold: impl Send + 'static,
    ) -> Result<Result<Answer, Failure>, Error> {
        let ignore = |(): &mut (), _| Ok(());
        let (result, ()) = self.engine.run(Task { repository, job }, hold, (), ignore).await?;
        Ok(result)
    }

    pub(super) fn failure(&self, failure: Failure, verb: &'static str, subject: &str) -> Error {
        match failure {
            Failure::Trouble(trouble) => self.trouble(trouble),
            Failure::Exhausted(limit) => {
                Error::Exhausted { url: Box::new(self.url.clone()), verb, subject: subject.to_owned(), limit }
            }
            Failure::Engine(why) => Error::Engine { why },
        }
    }

    /// The error for trouble with this mirror's own objects.
    pub(super) fn trouble(&self, trouble: Trouble) -> Error {
        match trouble {
            Trouble::Broken(what) => self.damaged(what),
            Trouble::Missing(id) => self.missing(id),
            Trouble::TooManyEntries => Error::TooManyFiles { what: "entries in all folders", limit: ENTRIES_MAX },
            Trouble::TooManyPaths => Error::too_many_paths(),
            Trouble::TooMuchHistory => Error::too_much_history(),
            Trouble::TooDeep(path) => Error::TooDeep { path, limit: DEPTH_MAX },
            Trouble::TooLong(path) => Error::TooLong { path, limit: PATH_BYTES_MAX },
            Trouble::Storage(what) => {
                let source = std::io::Error::other(what);
                Error::State { operation: "write to", path: self.path(), source }
            }
            Trouble::Memory => Error::Memory,
            Trouble::Stopped => Error::Thread,
            // Only a fetch has these, and handles them.
            Trouble::NotARepository
            | Trouble::Sha256
            | Trouble::NoReference
            | Trouble::NoCommit
            | Trouble::Pack
            | Trouble::Incomplete
            | Trouble::TooManyObjects
            | Trouble::Deadline => Error::Engine { why: format!("unexpected: {trouble:?}") },
        }
    }

    pub(super) fn settled(&self) -> Option<Settled> {
        self.settled.lock().clone()
    }

    pub(super) fn set_settled(&self, settled: Settled) {
        *self.settled.lock() = Some(settled);
    }

    pub(super) fn forget_settled(&self) {
        *self.settled.lock() = None;
    }

    /// Fails if unpacking this object exceeded a limit a short while ago.
    pub(super) fn check_refused(&self, id: Oid, subject: &str) -> Result<(), Error> {
        let limit = self.refused.lock().as_ref().and_then(|refused| refused.limit(id, Instant::now()));
        match limit {
            Some(limit) => Err(self.failure(Failure::Exhausted(limit), "unpacking", subject)),
            None => Ok(()),
        }
    }

    pub(super) fn remember_refused(&self, id: Oid, error: &Error) {
        if let Some(refused) = Refused::of(id, error, Instant::now()) {
            *self.refused.lock() = Some(refused);
        }
    }

    pub(super) fn last_good(&self) -> Option<Revision> {
        self.good.lock().clone()
    }

    /// Forgets the last good revision if its commit does not exist. An index is read, and no object.
    pub(super) fn forget_unreadable_good(&self) {
        let Some(commit) = self.last_good().and_then(|good| good.commit()) else { return };
        let exists = |repository: Repository| repository.odb().is_ok_and(|odb| odb.exists(to_git(commit)));
        let readable = self.repository().is_ok_and(exists);
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

    pub(super) fn number(&self) -> u32 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn repository(&self) -> Result<Repository, Error> {
        let path = generation::path(&self.folder, self.number());
        Repository::open_bare(&path).map_err(|_| self.damaged(display_name(&path)))
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
