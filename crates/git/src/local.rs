//! The user's repositories and folders, read in place.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use git2::Repository;

use super::{
    copy::is_sha256_error,
    error::Error,
    limits::{self, DEPTH_MAX, ENTRIES_MAX},
    loose::{self, LooseObjects},
    mirror::assemble,
    objects::{self, Collector, Files, module_filter},
    work::{Frame, Stopped, Trouble},
    work_tree,
};
use tidegate_core::{
    evidence::Evidence,
    revision::Oid,
    snapshot::{Filter, Limits, Snapshot},
};

/// The commit from which two branches diverged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeBase {
    /// The commit.
    pub commit: Oid,
    /// The other branch, as the user would write it; `HEAD` if there is none.
    pub branch: String,
}

/// What `HEAD` of a repository says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Head {
    /// It names a commit.
    Commit,
    /// It names this branch, which has no commit.
    Unborn(String),
}

/// Length of a full id.
const ID_CHARS: usize = 40;

/// The advice for a commit that a shallow clone lacks.
const DEEPEN: &str = "run `git fetch --unshallow`, or let the pipeline clone with full history (`fetch-depth: 0`)";

/// The advice for a file that a partial clone lacks.
const REFILL: &str = "clone it without `--filter`, or run `git fetch --refetch --no-filter`";

/// The location of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryPath {
    /// The repository's root. Outside of a repository: the folder itself, or the folder of the file.
    pub root: PathBuf,
    /// The path relative to the root, with `/`; empty for the root.
    pub below: String,
    /// Whether the path is in a repository.
    pub is_repository: bool,
}

/// Reads the files of a revision of the repository around `path`, which may be bare.
///
/// `path` may be the repository's root, or a folder or file in it. The snapshot contains the whole repository, with
/// paths relative to the root ([`locate`] says where `path` is in it).
///
/// # Errors
///
/// Fails if there is no readable repository, if it lacks the revision, or if a limit is exceeded.
pub fn resolve(path: &Path, revision: &str, filter: &Filter, limits: Limits) -> Result<Snapshot, Error> {
    resolve_after(path, revision, None, filter, limits)
}

/// As [`resolve`], but does not read files again that `previous` contains.
///
/// # Errors
///
/// Fails like [`resolve`].
pub fn resolve_after(
    path: &Path,
    revision: &str,
    previous: Option<&Snapshot>,
    filter: &Filter,
    limits: Limits,
) -> Result<Snapshot, Error> {
    super::prepare();
    let repository = open(path)?;
    intact(&repository, revision, path)?;
    let commit = repository.revparse_single(revision).and_then(|object| object.peel_to_commit()).map_err(|_| {
        if repository.is_shallow() {
            let what = format!("it is a shallow clone without `{revision}`; {DEEPEN}");
            return Error::Repository { path: path.to_owned(), what };
        }
        Error::NoRevision { path: path.to_owned(), revision: revision.to_owned() }
    })?;
    let is_partial = is_partial(&repository);
    let broken = |what: String| {
        let what = if is_partial { format!("it is a partial clone without {what}; {REFILL}") } else { what };
        Error::Repository { path: path.to_owned(), what }
    };
    objects::snapshot(&repository, objects::from_git(commit.id()), revision, previous, filter, limits, &broken)
}

/// What `HEAD` of the repository around `path` says.
///
/// # Errors
///
/// Fails if there is no readable repository, or if `HEAD`, its branch or its commit cannot be read.
pub fn head(path: &Path) -> Result<Head, Error> {
    super::prepare();
    let repository = open(path)?;
    let broken = |what: String| Error::Repository { path: path.to_owned(), what };
    match repository.head() {
        Ok(head) => match head.peel_to_commit() {
            Ok(_) => Ok(Head::Commit),
            Err(error) if error.code() == git2::ErrorCode::NotFound => {
                let id = head.target().map(|id| id.to_string()).unwrap_or_default();
                Err(broken(format!("it lacks the commit {id} of HEAD: run `git fsck`, and clone the repository again")))
            }
            Err(error) => Err(broken(format!("the commit of HEAD cannot be read: {}", error.message()))),
        },
        Err(error) if error.code() == git2::ErrorCode::UnbornBranch => {
            let head = repository.find_reference("HEAD").ok();
            let branch = head.as_ref().and_then(|head| head.symbolic_target().ok().flatten()).unwrap_or("HEAD");
            Ok(Head::Unborn(branch.strip_prefix("refs/heads/").unwrap_or(branch).to_owned()))
        }
        Err(error) => Err(broken(format!("HEAD cannot be read: {}", error.message()))),
    }
}

/// The YAML and JSON files of a tree, or the one file of a blob, of the repository around `folder`. They are named
/// below `path`.
///
/// # Errors
///
/// Fails if there is no readable repository, if it lacks the object, or if a limit is exceeded.
pub fn read_object(folder: &Path, id: Oid, path: &str, limits: Limits) -> Result<Files, Error> {
    super::prepare();
    let repository = open(folder)?;
    let broken = |what: String| Error::Repository { path: folder.to_owned(), what };
    let collector = Collector::new(&module_filter(path), limits, None);
    objects::visit_object(&repository, LooseObjects::of(&repository), id, path, collector, &broken)?.into_files()
}

/// What the repository around `path` says of the signatures of a revision, and the commit of the revision. With
/// `rules`, it also says which commits since `base` change paths that these gitignore patterns match.
///
/// # Errors
///
/// Fails if there is no readable repository, if it lacks the revision or the commits since `base`, or if a limit is
/// exceeded.
pub fn evidence(path: &Path, revision: &str, base: Option<Oid>, rules: &[String]) -> Result<(Evidence, Oid), Error> {
    super::prepare();
    let repository = open(path)?;
    intact(&repository, revision, path)?;
    let broken = |what: String| Error::Repository { path: path.to_owned(), what };
    let missing = || Error::NoRevision { path: path.to_owned(), revision: revision.to_owned() };
    let object = repository.revparse_single(revision).map_err(|_| missing())?;
    let commit = object.peel_to_commit().map_err(|_| missing())?.id();
    let mut parts = Vec::new();
    let mut sink = |frame| match frame {
        Frame::Evidence(part) => {
            parts.push(part);
            Ok(())
        }
        Frame::Folder { .. } | Frame::Unopened { .. } | Frame::Special { .. } | Frame::File { .. } => Err(Stopped),
    };
    let collected = super::evidence::collect(&repository, objects::from_git(object.id()), base, rules, &mut sink);
    let (vouched, gap) = collected.map_err(|trouble| match trouble {
        Trouble::Memory => Error::Memory,
        Trouble::TooManyEntries => Error::TooManyFiles { what: "entries in all folders", limit: ENTRIES_MAX },
        Trouble::TooManyPaths => Error::too_many_paths(),
        Trouble::TooMuchHistory => Error::too_much_history(),
        Trouble::TooDeep(path) => Error::TooDeep { path, limit: DEPTH_MAX },
        Trouble::Broken(what) if repository.is_shallow() => {
            broken(format!("it is a shallow clone without {what}; {DEEPEN}"))
        }
        Trouble::Broken(what) => broken(format!("{what} is missing or damaged: run `git fsck`")),
        other => broken(format!("its history cannot be read: {other:?}")),
    })?;
    Ok((assemble(parts, vouched, gap)?, objects::from_git(commit)))
}

/// The merge base of HEAD and the default branch. The default branch is the target of `origin/HEAD`, or the first of
/// `origin/main`, `origin/master`, `main` and `master` that exists.
///
/// # Errors
///
/// Fails if there is no readable repository, no default branch or no common commit.
pub fn merge_base(path: &Path) -> Result<MergeBase, Error> {
    super::prepare();
    let repository = open(path)?;
    let broken = |what: String| Error::Repository { path: path.to_owned(), what };
    intact(&repository, "HEAD", path)?;
    searchable(&repository, path)?;
    let head = repository.head().and_then(|head| head.peel_to_commit());
    let head = head.map_err(|_| broken("it has no commit yet, so there is nothing to compare with".to_owned()))?.id();
    let names = ["refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master"];
    let names = names.into_iter().chain(["refs/heads/main", "refs/heads/master"]);
    let default = names.filter_map(|name| {
        let reference = repository.find_reference(name).ok()?.resolve().ok()?;
        let short = reference.shorthand().ok()?.to_owned();
        Some((short, reference.peel_to_commit().ok()?.id()))
    });
    let Some((branch, tip)) = default.into_iter().next() else {
        let branches = "origin/HEAD, origin/main, origin/master, main and master do not exist";
        return Err(broken(format!("it has no default branch ({branches}); set the old revision with `--from`")));
    };
    match repository.merge_base(head, tip) {
        Ok(base) => Ok(MergeBase { commit: objects::from_git(base), branch }),
        Err(_) if repository.is_shallow() => {
            Err(broken(format!("it is a shallow clone without the merge base of HEAD and {branch}; {DEEPEN}")))
        }
        Err(_) => Err(broken(format!("HEAD and {branch} have no common commit; set the old revision with `--from`"))),
    }
}

/// The messages of the commits that are in `to` and not in `from`, the newest first, at most
/// [`limits::MESSAGES_MAX`]. `None` stands for HEAD and for the default branch.
///
/// # Errors
///
/// Fails if a revision does not exist, or if a commit between them cannot be read.
pub fn messages_between(path: &Path, from: Option<&str>, to: Option<&str>) -> Result<Vec<(Oid, String)>, Error> {
    super::prepare();
    let repository = open(path)?;
    searchable(&repository, path)?;
    let broken = |what: String| Error::Repository { path: path.to_owned(), what };
    let find = |revision: &str| {
        let found = repository.revparse_single(revision).and_then(|object| object.peel_to_commit());
        found.map(|commit| commit.id()).map_err(|_| broken(format!("it has no commit `{revision}`")))
    };
    let base = match from {
        Some(from) => find(from)?,
        None => objects::to_git(merge_base(path)?.commit),
    };
    let unread = |error: git2::Error| {
        let hint = if repository.is_shallow() { format!("; {DEEPEN}") } else { String::new() };
        broken(format!("its history cannot be read: {}{hint}", error.message()))
    };
    let mut walk = repository.revwalk().map_err(unread)?;
    walk.push(find(to.unwrap_or("HEAD"))?).map_err(unread)?;
    walk.hide(base).map_err(unread)?;
    let mut messages = Vec::new();
    for id in walk.take(limits::MESSAGES_MAX) {
        let commit = id.and_then(|id| repository.find_commit(id)).map_err(unread)?;
        let message = String::from_utf8_lossy(commit.message_bytes()).into_owned();
        messages.push((objects::from_git(commit.id()), message));
    }
    Ok(messages)
}

/// Fails if the object that a revision names is a loose file that is cut. For a revision that has to be searched for,
/// for example `HEAD~3`: if a search might read such a file.
fn intact(repository: &Repository, revision: &str, path: &Path) -> Result<(), Error> {
    let named = repository.resolve_reference_from_short_name(revision).ok();
    let named = named.and_then(|reference| reference.resolve().ok()?.target());
    let full =
        || Some(revision).filter(|revision| revision.len() == ID_CHARS).and_then(|id| git2::Oid::from_str(id).ok());
    let Some(id) = named.or_else(full) else { return searchable(repository, path) };
    loose::check(repository, id).map_err(|_| {
        let what = format!("object {id} is damaged: run `git fsck`, and clone the repository again");
        Error::Repository { path: path.to_owned(), what }
    })
}

/// Fails if a search for a commit might read a loose file that is cut.
fn searchable(repository: &Repository, path: &Path) -> Result<(), Error> {
    let Some(id) = LooseObjects::of(repository).damaged() else { return Ok(()) };
    let advice = "run `git fsck`, and clone the repository again, or name both revisions by branch or full id";
    Err(Error::Repository { path: path.to_owned(), what: format!("object {id} is damaged: {advice}") })
}

/// Whether this is a partial clone, which fetches objects on demand.
fn is_partial(repository: &Repository) -> bool {
    let Ok(config) = repository.config().and_then(|mut config| config.snapshot()) else { return false };
    let promises = |entries: git2::ConfigEntries<'_>| {
        let mut any = false;
        // An unreadable entry counts as false.
        let _ = entries.for_each(|entry| any |= entry.value().is_ok_and(|value| value == "true"));
        any
    };
    config.get_string("extensions.partialclone").is_ok()
        || config.entries(Some(r"^remote\..*\.promisor$")).is_ok_and(promises)
}

fn open(path: &Path) -> Result<Repository, Error> {
    check_links(path)?;
    let canonical = canonical(path)?;
    let found = discover(&canonical)?.ok_or_else(|| Error::NotARepository { path: path.to_owned() })?;
    Ok(found.1)
}

/// Reads the files on disk as `git add -A` would see them. It omits what `.gitignore` and `.git/info/exclude` ignore,
/// unless it is tracked. A nested repository is a submodule, and folders have the tree ids that a commit would have.
/// The user's global list of ignored files has no effect, so that every user gets the same result.
///
/// `path` may be the repository's root, or a folder or file in it. The snapshot contains the whole repository, with
/// paths relative to the root ([`locate`] says where `path` is in it). Outside of a repository, or if the repository
/// ignores `path`, it contains only that folder, with paths relative to it, or only that file.
///
/// No symbolic link is followed. A link in the tree is [`tidegate_core::snapshot::Content::Symlink`], and a `path`
/// through a link within the repository is refused.
///
/// # Errors
///
/// Fails if a file or the repository cannot be read, if `path` goes through a link, or if a limit is exceeded.
pub fn read_work_tree(path: &Path, filter: &Filter, limits: Limits) -> Result<Snapshot, Error> {
    read_work_tree_after(path, None, filter, limits)
}

/// As [`read_work_tree`], but does not read files again that are in `previous` and unchanged according to git's index.
///
/// # Errors
///
/// Fails like [`read_work_tree`].
pub fn read_work_tree_after(
    path: &Path,
    previous: Option<&Snapshot>,
    filter: &Filter,
    limits: Limits,
) -> Result<Snapshot, Error> {
    super::prepare();
    let place = locate(path)?;
    if !place.is_repository {
        return work_tree::read_folder(&place, filter, limits);
    }
    let broken = |what: &str| Error::Repository { path: place.root.clone(), what: what.to_owned() };
    let repository = Repository::open(&place.root).map_err(|_| broken("it disappeared during the read"))?;
    if repository.is_bare() {
        return Err(broken(
            "it is bare and has no work tree; set a revision with `--rev`, or `--to` of `tidegate diff`",
        ));
    }
    work_tree::read_repository(&repository, &place.root, previous, filter, limits)
}

/// Finds the repository or plain folder that contains a path of the command line.
///
/// # Errors
///
/// Fails if the path cannot be read or is not UTF-8, or if the repository cannot be read.
pub fn locate(path: &Path) -> Result<RepositoryPath, Error> {
    super::prepare();
    check_links(path)?;
    let canonical = canonical(path)?;
    if let Some((root, repository)) = discover(&canonical)? {
        let below = canonical.strip_prefix(&root).unwrap_or(Path::new(""));
        let text = below.to_str().ok_or_else(|| Error::Path {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidFilename, "the name is not UTF-8"),
        })?;
        if !is_left_out(&repository, below) {
            return Ok(RepositoryPath { below: text.to_owned(), root, is_repository: true });
        }
    }
    let (root, below) =
        match (canonical.is_file(), canonical.parent(), canonical.file_name().and_then(|name| name.to_str())) {
            (true, Some(folder), Some(name)) => (folder.to_owned(), name.to_owned()),
            _ => (canonical, String::new()),
        };
    Ok(RepositoryPath { root, below, is_repository: false })
}

/// The path without links, `.` and `..`.
fn canonical(path: &Path) -> Result<PathBuf, Error> {
    fs::canonicalize(path).map_err(|source| Error::Path { path: path.to_owned(), source })
}

/// The innermost repository around a path, and its root.
fn discover(canonical: &Path) -> Result<Option<(PathBuf, Repository)>, Error> {
    for folder in canonical.ancestors() {
        let is_candidate = fs::symlink_metadata(folder.join(".git")).is_ok() || folder.join("HEAD").is_file();
        if !is_candidate {
            continue;
        }
        match Repository::open(folder) {
            // A path within `.git` is not in the work tree around it.
            Ok(repository) if folder.file_name().is_some_and(|name| name == ".git") && !repository.is_bare() => {}
            Ok(repository) => return Ok(Some((folder.to_owned(), repository))),
            Err(error) if is_sha256_error(&error) => {
                let what = "it uses SHA-256 object ids, which are not supported".to_owned();
                return Err(Error::Repository { path: folder.to_owned(), what });
            }
            // An empty `.git` is not a repository; git also searches further up.
            Err(error) => {
                if let Some(what) = unopened(folder, &error) {
                    return Err(Error::Repository { path: folder.to_owned(), what });
                }
            }
        }
    }
    Ok(None)
}

/// What is wrong with a repository that is there and cannot be opened; `None` if there is none.
fn unopened(folder: &Path, error: &git2::Error) -> Option<String> {
    match fs::File::open(folder.join(".git/HEAD")) {
        Ok(_) if error.code() == git2::ErrorCode::NotFound => None,
        Ok(_) => Some(error.message().to_owned()),
        Err(error) => match error.kind() {
            // A file `.git` names another folder.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => None,
            _ => Some(format!("cannot open .git/HEAD: {error}")),
        },
    }
}

/// Whether `git add -A` would find nothing at a path: it is ignored and contains no tracked file.
fn is_left_out(repository: &Repository, below: &Path) -> bool {
    if below.as_os_str().is_empty() || repository.is_bare() {
        return false;
    }
    let ignored = below.ancestors().filter(|part| !part.as_os_str().is_empty()).any(|part| {
        // A pattern with a final slash only matches a path with one.
        let folder = part.join("");
        repository.is_path_ignored(part).unwrap_or(false) || repository.is_path_ignored(folder).unwrap_or(false)
    });
    let is_tracked = || {
        repository.index().is_ok_and(|index| {
            index
                .iter()
                .any(|entry| std::str::from_utf8(&entry.path).is_ok_and(|path| Path::new(path).starts_with(below)))
        })
    };
    ignored && !is_tracked()
}

/// Refuses a path through a symbolic link within a repository.
///
/// Links outside of it, such as a linked home folder, are allowed.
fn check_links(path: &Path) -> Result<(), Error> {
    let absolute = std::path::absolute(path).map_err(|source| Error::Path { path: path.to_owned(), source })?;
    if absolute.components().any(|component| component == Component::ParentDir) {
        // The meaning of `..` depends on links; the canonical path contains neither.
        return Ok(());
    }
    let is_link = |path: &Path| fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
    let mut link: Option<&Path> = None;
    for part in absolute.ancestors() {
        match (link, fs::symlink_metadata(part.join(".git")).is_ok()) {
            (Some(link), true) => return Err(Error::PathIsLink { path: link.to_owned() }),
            (None, true) if !is_link(part) => return Ok(()),
            _ => {}
        }
        if is_link(part) {
            link = Some(part);
        }
    }
    Ok(())
}
