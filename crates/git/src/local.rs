//! Repositories and folders of the user, read in place.

use std::{
    fs, io,
    path::{Component, Path, PathBuf},
};

use git2::Repository;

use super::{error::Error, fetch::is_sha256_error, objects, work_tree};
use tidegate_core::{
    revision::Oid,
    snapshot::{Filter, Limits, Snapshot},
};

/// A commit from which two lines of work grew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergeBase {
    /// The commit.
    pub commit: Oid,
    /// The other branch, as the user would write it; `HEAD` where there is none.
    pub branch: String,
}

/// What to do about a commit that a shallow clone does not have.
const DEEPEN: &str = "run `git fetch --unshallow`, or let the pipeline clone with full history (`fetch-depth: 0`)";

/// What to do about a file that a partial clone does not have.
const REFILL: &str = "clone it without `--filter`, or run `git fetch --refetch --no-filter`";

/// Where a path lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The repository's root; outside of a repository the folder itself, or the folder of the file.
    pub root: PathBuf,
    /// The path relative to the root, with `/`; empty for the root.
    pub below: String,
    /// Whether there is a repository.
    pub is_repository: bool,
}

/// The files of a revision of the repository that `path` lies in, which may be bare.
///
/// `path` may be the repository's root, a folder or a file in it; the snapshot holds the whole repository and its
/// paths are relative to the root (see [`locate`] for where `path` lies in it).
pub fn resolve(path: &Path, revision: &str, filter: &Filter, limits: Limits) -> Result<Snapshot, Error> {
    resolve_after(path, revision, None, filter, limits)
}

/// As [`resolve`]; what `previous` holds as well is not read again.
pub fn resolve_after(
    path: &Path,
    revision: &str,
    previous: Option<&Snapshot>,
    filter: &Filter,
    limits: Limits,
) -> Result<Snapshot, Error> {
    super::prepare();
    let repository = open(path)?;
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

/// Where the work that is checked out began: the merge base of HEAD and the default branch. That is the branch behind
/// `origin/HEAD`, else `origin/main`, `origin/master`, `main` or `master`, whichever is first; without any of them, an error.
pub fn merge_base(path: &Path) -> Result<MergeBase, Error> {
    super::prepare();
    let repository = open(path)?;
    let broken = |what: String| Error::Repository { path: path.to_owned(), what };
    let head = repository.head().and_then(|head| head.peel_to_commit());
    let head = head.map_err(|_| broken("it has no commit yet; there is nothing to compare with".to_owned()))?.id();
    let names = ["refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master"];
    let names = names.into_iter().chain(["refs/heads/main", "refs/heads/master"]);
    let default = names.filter_map(|name| {
        let reference = repository.find_reference(name).ok()?.resolve().ok()?;
        let short = reference.shorthand().ok()?.to_owned();
        Some((short, reference.peel_to_commit().ok()?.id()))
    });
    let Some((branch, tip)) = default.into_iter().next() else {
        let branches = "there is neither origin/HEAD, origin/main, origin/master, main nor master";
        return Err(broken(format!("no default branch is known ({branches}); name the old revision with `--from`")));
    };
    match repository.merge_base(head, tip) {
        Ok(base) => Ok(MergeBase { commit: objects::from_git(base), branch }),
        Err(_) if repository.is_shallow() => {
            Err(broken(format!("it is a shallow clone without the merge base of HEAD and {branch}; {DEEPEN}")))
        }
        Err(_) => {
            Err(broken(format!("HEAD and {branch} have no commit in common; name the old revision with `--from`")))
        }
    }
}

/// Whether git was told to leave objects with the remote until somebody needs them.
fn is_partial(repository: &Repository) -> bool {
    let Ok(config) = repository.config().and_then(|mut config| config.snapshot()) else { return false };
    let promises = |entries: git2::ConfigEntries<'_>| {
        let mut any = false;
        // Entries that cannot be read promise nothing.
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

/// The files as they lie on disk, as `git add -A` would see them: what `.gitignore` and `.git/info/exclude` name is left
/// out unless it is tracked, a repository within is a submodule, and folders have the tree ids that a commit would give
/// them. The user's own list of ignored files does not count, so that everybody sees the same.
///
/// `path` may be the repository's root, a folder or a file in it; the snapshot holds the whole repository and its
/// paths are relative to the root (see [`locate`] for where `path` lies in it). Outside of a repository, and where the
/// repository ignores `path`, a folder is read as it is, with paths relative to it, and of a file only that file.
///
/// No symbolic link is followed: one that lies in the tree is [`tidegate_core::snapshot::Content::Symlink`], and a `path` that
/// leads through one within the repository is refused.
pub fn read_work_tree(path: &Path, filter: &Filter, limits: Limits) -> Result<Snapshot, Error> {
    read_work_tree_after(path, None, filter, limits)
}

/// As [`read_work_tree`]; what has not changed since git looked at it and is in `previous` as well is not read again.
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
    let repository = Repository::open(&place.root).map_err(|_| broken("it was there a moment ago"))?;
    if repository.is_bare() {
        return Err(broken("it is bare and has no work tree; name a revision: `--rev`, or `--to` of `tidegate diff`"));
    }
    work_tree::read_repository(&repository, &place.root, previous, filter, limits)
}

/// Finds the repository, or the plain folder, that a path of the command line lies in.
pub fn locate(path: &Path) -> Result<Place, Error> {
    super::prepare();
    check_links(path)?;
    let canonical = canonical(path)?;
    if let Some((root, repository)) = discover(&canonical)? {
        let below = canonical.strip_prefix(&root).unwrap_or(Path::new(""));
        let text = below.to_str().ok_or_else(|| Error::Path {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::InvalidFilename, "the name is no UTF-8"),
        })?;
        if !is_left_out(&repository, below) {
            return Ok(Place { below: text.to_owned(), root, is_repository: true });
        }
    }
    let (root, below) =
        match (canonical.is_file(), canonical.parent(), canonical.file_name().and_then(|name| name.to_str())) {
            (true, Some(folder), Some(name)) => (folder.to_owned(), name.to_owned()),
            _ => (canonical, String::new()),
        };
    Ok(Place { root, below, is_repository: false })
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
            // Within `.git`, the repository around it is not meant.
            Ok(repository) if folder.file_name().is_some_and(|name| name == ".git") && !repository.is_bare() => {}
            Ok(repository) => return Ok(Some((folder.to_owned(), repository))),
            Err(error) if is_sha256_error(&error) => {
                let what = "it uses SHA-256 object ids, which are not supported".to_owned();
                return Err(Error::Repository { path: folder.to_owned(), what });
            }
            // An empty `.git` is no repository; git looks further up as well.
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Whether `git add -A` would find nothing at a path: it is ignored, and nothing below it is tracked.
fn is_left_out(repository: &Repository, below: &Path) -> bool {
    if below.as_os_str().is_empty() || repository.is_bare() {
        return false;
    }
    let ignored = below.ancestors().filter(|part| !part.as_os_str().is_empty()).any(|part| {
        // A pattern that ends with a slash only matches a path that does.
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

/// Refuses a path that leads through a symbolic link within a repository.
///
/// Links outside of it, such as a home folder that is one, are the user's own affair.
fn check_links(path: &Path) -> Result<(), Error> {
    let absolute = std::path::absolute(path).map_err(|source| Error::Path { path: path.to_owned(), source })?;
    if absolute.components().any(|component| component == Component::ParentDir) {
        // Without resolving links nobody knows what `..` means; the canonical path holds none.
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
