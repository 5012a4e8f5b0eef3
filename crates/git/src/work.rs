//! Work on objects that may come from a server: each task opens a repository, does one thing and returns.
//!
//! A task runs in a process of its own, which a hostile pack may fill or stop (see [`super::engine`]). So it takes and
//! returns only values that can be written to a pipe, knows no credentials and no network, and changes nothing but the
//! repository that it names.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use git2::{ErrorClass, Repository};
use serde::{Deserialize, Serialize};

use super::{
    copy,
    error::Error,
    evidence, generation, history,
    limits::{ENTRIES_MAX, PATH_BYTES_MAX},
    loose::{self, LooseObjects},
    objects::{self, Visit, from_git, to_git},
    remote::Reference,
};
use tidegate_core::{
    evidence::{Gap, Part},
    revision::Oid,
    snapshot::{Content, Filter, Limits},
};

/// The reference to the result of the last fetch.
pub(super) const FETCHED: &str = "refs/tidegate/fetched";
/// Commits that a fetch tells the server in any case, the newest ones.
const HAVES_NEWEST: usize = 128;
/// Length of the walk that looks for older ones, of which the list has fewer the older they are.
const HAVES_WALK_MAX: usize = 100_000;

/// One thing to do with a repository.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// The repository: a generation of a mirror.
    pub(super) repository: PathBuf,
    pub(super) job: Job,
}

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Job {
    /// Lists commits that the repository has, for the request of a pack.
    Haves,
    /// Indexes the pack in a file. The objects are there if it succeeds.
    Receive { pack: PathBuf },
    /// Peels an object to its commit, and points [`FETCHED`] to it.
    Resolve { id: Oid, good: Option<Oid>, is_whole: bool },
    /// Copies from a repository on this machine, and resolves what was copied.
    /// The good commit is compared if it has this name, or in any case.
    Copy { from: PathBuf, reference: Reference, timeout: Duration, good: Option<(Option<String>, Oid)>, is_whole: bool },
    /// Sends the files of a commit, without the bytes of blobs that are known.
    Commit { id: Oid, filter: Filter, limits: Limits, known: Vec<(Oid, u64)> },
    /// Sends the files of a tree, or a blob.
    Object { id: Oid, path: String, limits: Limits },
    /// Lists the commits before this one at which a folder had another content.
    Versions { id: Oid, folder: String, max: usize },
    /// Sends what it says of the signatures of a commit or tag.
    Evidence { id: Oid, base: Option<Oid>, rules: Vec<String> },
    /// Keeps exactly these trees and blobs.
    Keep { ids: BTreeSet<Oid> },
    /// Keeps a commit as the last good one.
    Good { commit: Oid },
    /// Writes everything in use into one pack of another repository.
    Pack { into: PathBuf, good: Option<Oid> },
    /// Copies everything in use to another repository, as far as it is readable.
    Save { into: PathBuf, good: Option<Oid> },
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    Done,
    Haves(Vec<Oid>),
    Resolved(Resolved),
    Versions(Vec<Oid>),
    Evidence { vouched: BTreeMap<usize, String>, gap: Option<Gap> },
}

/// A commit that was fetched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Resolved {
    /// The branch, the tag, or the commit id; `None` if the task was given the id.
    pub(super) name: Option<String>,
    pub(super) commit: Oid,
    /// What is under the reference: the commit, or an annotated tag.
    pub(super) object: Oid,
    /// Whether the good commit is among its ancestors; true if none was given.
    pub(super) fast_forward: bool,
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Trouble {
    /// An object cannot be read.
    Broken(String),
    /// The requested object does not exist.
    Missing(Oid),
    /// The repository to copy from is none.
    NotARepository,
    /// The repository to copy from has SHA-256 ids.
    Sha256,
    /// The repository to copy from lacks the reference.
    NoReference,
    /// The reference leads to no commit.
    NoCommit,
    /// The pack is damaged.
    Pack,
    /// The commit lacks objects.
    Incomplete,
    /// There are too many objects.
    TooManyObjects,
    /// It took too long.
    Deadline,
    /// Too many entries in folders.
    TooManyEntries,
    /// One step of the history changes too many guarded paths.
    TooManyPaths,
    /// The history takes too long to judge.
    TooMuchHistory,
    /// Folders are too deep.
    TooDeep(String),
    /// A path is too long.
    TooLong(String),
    /// The storage of this machine fails.
    Storage(String),
    /// There is not enough memory.
    Memory,
    /// The caller does not want the result any more.
    Stopped,
}

/// A part of a result that is too large for one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Frame {
    /// A folder.
    Folder { path: String, id: Oid },
    /// A folder in which nothing is relevant; its [`Frame::Folder`] comes before it.
    Unopened { path: String },
    /// An entry that cannot be read as a file.
    Special { path: String, id: Oid, kind: Special },
    /// A part of the evidence of signatures.
    Evidence(Part),
    /// A file of `bytes` length.
    File {
        path: String,
        id: Oid,
        bytes: u64,
        /// Its content, unless it is known or beyond a limit.
        #[serde(skip)]
        content: Option<Arc<[u8]>>,
    },
}

/// Why an entry has no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Special {
    Symlink,
    Submodule,
    NameNotUtf8,
    Ambiguous,
}

/// Receives the frames of a task. `Err` ends the task.
pub(super) type Sink<'a> = &'a mut dyn FnMut(Frame) -> Result<(), Stopped>;

/// The caller wants no further frames.
#[derive(Debug)]
pub(super) struct Stopped;

/// Sends the files of a walk as frames. Decides like a collector which contents are of use.
struct Outlet<'a> {
    filter: &'a Filter,
    limits: Limits,
    known: HashMap<Oid, u64>,
    entries: usize,
    total_bytes: u64,
    sink: Sink<'a>,
}

/// Does a task.
pub(super) fn perform(task: &Task, sink: Sink<'_>) -> Result<Answer, Trouble> {
    super::prepare();
    let repository = open(&task.repository)?;
    match &task.job {
        Job::Haves => Ok(Answer::Haves(haves(&repository))),
        Job::Receive { pack } => receive(&repository, pack).map(|()| Answer::Done),
        Job::Resolve { id, good, is_whole } => {
            let found = resolve(&repository, *id, *good, *is_whole)?;
            Ok(Answer::Resolved(found))
        }
        Job::Copy { from, reference, timeout, good, is_whole } => {
            let (name, id) = copy::copy(&repository, from, reference, *timeout)?;
            let is_meant = |good: &Option<String>| good.as_ref().is_none_or(|good| *good == name);
            let good = good.as_ref().filter(|(good, _)| is_meant(good)).map(|(_, commit)| *commit);
            let found = resolve(&repository, id, good, *is_whole)?;
            Ok(Answer::Resolved(Resolved { name: Some(name), ..found }))
        }
        Job::Commit { id, filter, limits, known } => {
            require(&repository, *id)?;
            let outlet = Outlet::new(filter, *limits, known.iter().copied().collect(), sink);
            objects::visit_commit(&repository, *id, outlet, &broken).map(|_| Answer::Done).map_err(Trouble::from)
        }
        Job::Object { id, path, limits } => {
            require(&repository, *id)?;
            let filter = objects::module_filter(path);
            let outlet = Outlet::new(&filter, *limits, HashMap::new(), sink);
            let loose = LooseObjects::of(&repository);
            let visited = objects::visit_object(&repository, loose, *id, path, outlet, &broken);
            visited.map(|_| Answer::Done).map_err(Trouble::from)
        }
        Job::Versions { id, folder, max } => {
            require(&repository, *id)?;
            Ok(Answer::Versions(history::versions(&repository, *id, folder, *max, &broken)?))
        }
        Job::Evidence { id, base, rules } => {
            require(&repository, *id)?;
            let (vouched, gap) = evidence::collect(&repository, *id, *base, rules, sink)?;
            Ok(Answer::Evidence { vouched, gap })
        }
        Job::Keep { ids } => done(generation::keep(&repository, ids)),
        Job::Good { commit } => {
            require(&repository, *commit)?;
            done(generation::set_good(&repository, *commit))
        }
        Job::Pack { into, good } => done(generation::pack(&repository, &open(into)?, *good)),
        Job::Save { into, good } => {
            generation::save(&repository, &open(into)?, *good);
            Ok(Answer::Done)
        }
    }
}

fn open(path: &Path) -> Result<Repository, Trouble> {
    let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Repository::open_bare(path).map_err(|_| Trouble::Broken(name()))
}

fn broken(what: String) -> Error {
    Error::Repository { path: PathBuf::new(), what }
}

fn done(result: Result<(), git2::Error>) -> Result<Answer, Trouble> {
    result.map(|()| Answer::Done).map_err(|error| trouble(&error, Trouble::Broken("its references".to_owned())))
}

/// What libgit2's error means, where `other` is neither the machine's fault nor a limit's.
pub(super) fn trouble(error: &git2::Error, other: Trouble) -> Trouble {
    match error.class() {
        ErrorClass::NoMemory => Trouble::Memory,
        // The message names a file of the mirror and the system's error.
        ErrorClass::Os => Trouble::Storage(error.message().to_owned()),
        _ => other,
    }
}

/// Fails if a requested object does not exist. A missing object is not damage.
fn require(repository: &Repository, id: Oid) -> Result<(), Trouble> {
    let odb = repository.odb().map_err(|error| trouble(&error, Trouble::Broken("its objects".to_owned())))?;
    if odb.exists(to_git(id)) { Ok(()) } else { Err(Trouble::Missing(id)) }
}

/// The tips first, then commits from new to old. A history that cannot be read ends the list.
fn haves(repository: &Repository) -> Vec<Oid> {
    let tips = [FETCHED, generation::GOOD].into_iter().filter_map(|name| repository.refname_to_id(name).ok());
    let mut haves: Vec<Oid> = tips.map(from_git).collect();
    let Ok(mut walk) = repository.revwalk() else { return haves };
    let pushed = haves.iter().filter(|id| walk.push(to_git(**id)).is_ok()).count();
    if pushed == 0 {
        return haves;
    }
    for (index, id) in walk.map_while(Result::ok).take(HAVES_WALK_MAX).enumerate() {
        if index < HAVES_NEWEST || index.is_power_of_two() {
            haves.push(from_git(id));
        }
    }
    let mut seen = BTreeSet::new();
    haves.retain(|id| seen.insert(*id));
    haves
}

fn receive(repository: &Repository, pack: &Path) -> Result<(), Trouble> {
    let odb = repository.odb().map_err(|error| trouble(&error, Trouble::Broken("its objects".to_owned())))?;
    let mut writer = odb.packwriter().map_err(|error| trouble(&error, Trouble::Pack))?;
    let mut file = File::open(pack).map_err(|error| Trouble::Storage(error.to_string()))?;
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer).map_err(|error| Trouble::Storage(error.to_string()))? {
            0 => break,
            count => {
                // The bindings replace libgit2's error by one without its class.
                let error = |_| trouble(&git2::Error::last_error(-1), Trouble::Pack);
                writer.write_all(&buffer[..count]).map_err(error)?;
            }
        }
    }
    writer.commit().map(drop).map_err(|error| trouble(&error, Trouble::Pack))
}

fn resolve(repository: &Repository, id: Oid, good: Option<Oid>, is_whole: bool) -> Result<Resolved, Trouble> {
    let object = loose::check(repository, to_git(id)).and_then(|()| repository.find_object(to_git(id), None));
    let object = object.map_err(|error| trouble(&error, Trouble::Incomplete))?;
    let commit = object.peel_to_commit().map_err(|error| trouble(&error, Trouble::NoCommit))?.id();
    // An incomplete fetch must not replace readable objects.
    if is_whole && !generation::is_complete(repository, commit) {
        return Err(Trouble::Incomplete);
    }
    repository
        .reference(FETCHED, commit, true, "fetch")
        .map_err(|error| trouble(&error, Trouble::Storage(error.message().to_owned())))?;
    // A good commit without its history is not an ancestor of a complete fetch.
    let follows = |good| good == commit || repository.graph_descendant_of(commit, good).unwrap_or(false);
    let fast_forward = good.is_none_or(|good| follows(to_git(good)));
    Ok(Resolved { name: None, commit: from_git(commit), object: id, fast_forward })
}

// === impl Job ===

impl Job {
    /// Whether it may leave unfinished files in the repository if it is killed.
    pub(super) fn writes(&self) -> bool {
        match self {
            Job::Receive { .. } | Job::Resolve { .. } | Job::Copy { .. } | Job::Keep { .. } | Job::Good { .. } => true,
            // These write to a generation that is not in use yet, and is removed.
            Job::Pack { .. } | Job::Save { .. } => false,
            Job::Haves | Job::Commit { .. } | Job::Object { .. } | Job::Versions { .. } | Job::Evidence { .. } => false,
        }
    }

    /// What it does, for a sentence.
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Job::Receive { .. } | Job::Copy { .. } => "unpacking",
            Job::Pack { .. } | Job::Save { .. } => "repacking",
            Job::Haves
            | Job::Resolve { .. }
            | Job::Commit { .. }
            | Job::Object { .. }
            | Job::Versions { .. }
            | Job::Evidence { .. }
            | Job::Keep { .. }
            | Job::Good { .. } => "reading",
        }
    }
}

// === impl Trouble ===

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        match error {
            Error::Repository { what, .. } => Trouble::Broken(what),
            Error::TooManyFiles { .. } => Trouble::TooManyEntries,
            Error::TooDeep { path, .. } => Trouble::TooDeep(path),
            Error::TooLong { path, .. } => Trouble::TooLong(path),
            Error::Memory => Trouble::Memory,
            Error::Thread => Trouble::Stopped,
            // A walk has no others.
            other => Trouble::Broken(other.to_string()),
        }
    }
}

// === impl Outlet ===

impl<'a> Outlet<'a> {
    fn new(filter: &'a Filter, limits: Limits, known: HashMap<Oid, u64>, sink: Sink<'a>) -> Outlet<'a> {
        Outlet { filter, limits, known, entries: 0, total_bytes: 0, sink }
    }

    fn send(&mut self, path: &str, frame: impl FnOnce(String) -> Frame) -> Result<(), Error> {
        if PATH_BYTES_MAX < path.len() {
            let start = path.chars().take(100).collect();
            return Err(Error::TooLong { path: start, limit: PATH_BYTES_MAX });
        }
        (self.sink)(frame(path.to_owned())).map_err(|Stopped| Error::Thread)
    }
}

impl Visit for Outlet<'_> {
    fn entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        if ENTRIES_MAX < self.entries {
            return Err(Error::TooManyFiles { what: "entries in all folders", limit: ENTRIES_MAX });
        }
        Ok(())
    }

    fn takes(&self, path: &str) -> bool {
        self.filter.takes(path)
    }

    fn enters(&self, path: &str) -> bool {
        self.filter.enters(path)
    }

    fn known_bytes(&self, id: Oid) -> Option<u64> {
        self.known.get(&id).copied()
    }

    fn folder(&mut self, path: &str, id: Oid) -> Result<(), Error> {
        self.send(path, |path| Frame::Folder { path, id })
    }

    fn unopened(&mut self, path: &str) -> Result<(), Error> {
        self.send(path, |path| Frame::Unopened { path })
    }

    fn special(&mut self, path: &str, id: Oid, content: Content) -> Result<(), Error> {
        let kind = match content {
            Content::Symlink => Special::Symlink,
            Content::Submodule => Special::Submodule,
            Content::NameNotUtf8 => Special::NameNotUtf8,
            Content::Ambiguous => Special::Ambiguous,
            // Only a collector decides on these.
            Content::Text(_) | Content::TooLarge { .. } | Content::LfsPointer | Content::OverBudget => return Ok(()),
        };
        self.send(path, |path| Frame::Special { path, id, kind })
    }

    fn file(
        &mut self,
        path: &str,
        id: Oid,
        bytes: u64,
        read: &mut dyn FnMut() -> Result<Arc<[u8]>, Error>,
    ) -> Result<(), Error> {
        let is_small = !self.limits.is_too_large(bytes, self.filter.is_of_module(path));
        if is_small {
            self.total_bytes = self.total_bytes.saturating_add(bytes);
        }
        let is_of_use = is_small && self.total_bytes <= self.limits.total_bytes_max && !self.known.contains_key(&id);
        let content = if is_of_use { Some(read()?) } else { None };
        // A pointer of Git LFS is no content: a collector does not remember it.
        if content.as_ref().is_some_and(|content| !objects::is_lfs_pointer(content)) {
            self.known.insert(id, bytes);
        }
        self.send(path, |path| Frame::File { path, id, bytes, content })
    }
}
