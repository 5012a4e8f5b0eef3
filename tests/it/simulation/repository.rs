//! The repository as the daemon sees it: valid, missing, silent, corrupt, or with objects that kill the engine that
//! unpacks them. Commits go on meanwhile.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use git2::{ObjectType, Oid};
use tidegate_git::{Engine, Exhaustion, Trial, limits::EngineLimits};
use tidegate_testbed::Repository;

use super::dice::Dice;

/// What the daemon finds at the URL of the repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Well,
    /// The repository does not exist.
    Away,
    /// It never answers.
    Silent,
    /// Some or all tasks on its objects exceed a limit.
    Killing {
        always: bool,
    },
    /// The branch does not point to a commit.
    Reference,
    /// An object of the last commit is corrupt.
    Objects,
}

/// A repository in a folder, and a link to it, or to a faulty copy, for the daemon.
pub(super) struct Served {
    repository: Repository,
    folder: PathBuf,
    condition: Condition,
    dice: Dice,
    trials: Arc<Mutex<Trials>>,
}

/// Number of tasks of engines, by result.
struct Trials {
    condition: Condition,
    dice: Dice,
    counts: BTreeMap<&'static str, u64>,
}

/// Where the daemon finds the repository, in the folder of a world.
const LINK: &str = "served";
/// A copy with a fault.
const COPY: &str = "corrupt";

// === impl Condition ===

impl Condition {
    /// A name for counting.
    pub(super) fn name(self) -> &'static str {
        match self {
            Condition::Well => "well",
            Condition::Away => "away",
            Condition::Silent => "silent",
            Condition::Killing { always: false } => "killing",
            Condition::Killing { always: true } => "always killing",
            Condition::Reference => "with a broken reference",
            Condition::Objects => "with a broken object",
        }
    }
}

// === impl Served ===

impl Served {
    pub(super) fn new(folder: &Path, seed: u64) -> Served {
        let repository = Repository::init(&folder.join("repository")).expect("a repository");
        let mut dice = Dice::new(seed);
        let trials = Trials { condition: Condition::Well, dice: Dice::new(dice.roll()), counts: BTreeMap::new() };
        let served = Served {
            repository,
            folder: folder.to_owned(),
            condition: Condition::Well,
            dice,
            trials: Arc::new(Mutex::new(trials)),
        };
        served.link(served.repository.path());
        served
    }

    pub(super) fn repository(&self) -> &Repository {
        &self.repository
    }

    /// Its URL for the daemon.
    pub(super) fn url(&self) -> String {
        format!("file://{}", self.folder.join(LINK).display())
    }

    pub(super) fn condition(&self) -> Condition {
        self.condition
    }

    /// The engine of a daemon.
    pub(super) fn engine(&self) -> Engine {
        let trials = Arc::clone(&self.trials);
        Engine::simulated(move || lock(&trials).draw())
    }

    /// Number of tasks, by result.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.trials).counts.clone()
    }

    /// Sets the condition of the repository. Corrupt objects are those of the last commit.
    pub(super) fn set(&mut self, condition: Condition) {
        self.condition = condition;
        lock(&self.trials).condition = condition;
        let link = self.folder.join(LINK);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(link).expect("a link");
        }
        match condition {
            Condition::Away => {}
            Condition::Well | Condition::Silent | Condition::Killing { .. } => self.link(self.repository.path()),
            Condition::Reference | Condition::Objects => {
                let copy = self.copied();
                if condition == Condition::Reference {
                    self.break_reference(&copy);
                } else {
                    self.break_objects(&copy);
                }
                self.link(&copy);
            }
        }
    }

    /// There is a new commit: the fault now affects that one.
    pub(super) fn committed(&mut self) {
        if matches!(self.condition, Condition::Reference | Condition::Objects) {
            self.set(self.condition);
        }
    }

    fn link(&self, to: &Path) {
        std::os::unix::fs::symlink(to, self.folder.join(LINK)).expect("a link");
    }

    fn copied(&self) -> PathBuf {
        let copy = self.folder.join(COPY);
        let _ = fs::remove_dir_all(&copy);
        copy_folder(&self.repository.path().join(".git"), &copy.join(".git"));
        copy
    }

    fn break_reference(&mut self, copy: &Path) {
        let text = match self.dice.below(3) {
            0 => "no id\n".to_owned(),
            1 => format!("{}\n", "1".repeat(40)),
            _ => {
                let repository = git2::Repository::open(copy).expect("a repository");
                format!("{}\n", repository.blob(b"no commit").expect("a blob"))
            }
        };
        fs::write(copy.join(".git/refs/heads/main"), text).expect("a file");
    }

    fn break_objects(&mut self, copy: &Path) {
        let repository = git2::Repository::open(copy).expect("a repository");
        let file = |id: Oid| {
            let id = id.to_string();
            copy.join(".git/objects").join(&id[..2]).join(&id[2..])
        };
        let path = file(self.dice.one_of(&news(&repository)));
        let other = repository.odb().and_then(|odb| odb.write(ObjectType::Blob, b"another")).expect("a blob");
        fs::remove_file(&path).expect("a loose object");
        // libgit2 reads a truncated loose object for ever. In the daemon the engine is killed for it, which is
        // `Condition::Killing`. Here nothing would end it.
        match self.dice.below(3) {
            0 => {}
            1 => fs::write(path, b"junk").expect("a file"),
            _ => drop(fs::copy(file(other), path).expect("a file")),
        }
    }
}

/// The objects of the last commit that the one before does not have.
fn news(repository: &git2::Repository) -> Vec<Oid> {
    let commit = repository.head().and_then(|head| head.peel_to_commit()).expect("a commit");
    let tree = commit.tree().expect("a tree");
    let before = commit.parent(0).ok().map(|parent| parent.tree().expect("a tree"));
    let diff = repository.diff_tree_to_tree(before.as_ref(), Some(&tree), None).expect("a difference");
    let files = diff.deltas().map(|delta| delta.new_file().id()).filter(|id| !id.is_zero());
    [commit.id(), tree.id()].into_iter().chain(files).collect()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let path = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy_folder(&entry.path(), &path),
            false => drop(fs::copy(entry.path(), path).expect("a file")),
        }
    }
}

fn lock(trials: &Mutex<Trials>) -> MutexGuard<'_, Trials> {
    trials.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Trials ===

impl Trials {
    fn draw(&mut self) -> Option<Trial> {
        let always = match self.condition {
            Condition::Silent => {
                *self.counts.entry("trial silent").or_default() += 1;
                return Some(Trial::Silent);
            }
            Condition::Killing { always } => always,
            Condition::Well | Condition::Away | Condition::Reference | Condition::Objects => return None,
        };
        if !always && self.dice.below(2) == 0 {
            return None;
        }
        let EngineLimits { memory_mib, computing, time } = EngineLimits::default();
        let limits = [Exhaustion::Memory(memory_mib), Exhaustion::Computing(computing), Exhaustion::Elapsed(time)];
        let limit = self.dice.one_of(&limits);
        let (what, trial) = match self.dice.below(2) {
            0 => ("trial killed before", Trial::KilledBefore(limit)),
            _ => ("trial killed after", Trial::KilledAfter(limit)),
        };
        *self.counts.entry(what).or_default() += 1;
        Some(trial)
    }
}
