//! Repositories and folders of the user, read in place.

use std::path::{Path, PathBuf};

use git2::Repository;

use super::{error::Error, objects};
use crate::snapshot::{Filter, Limits, Snapshot};

/// The files of a revision of the repository that `path` lies in, which may be bare.
///
/// `path` may be the repository's root, a folder or a file in it; the snapshot holds the whole repository and its
/// paths are relative to the root (see [`locate`] for where `path` lies in it).
pub fn resolve(path: &Path, revision: &str, filter: &Filter, limits: Limits) -> Result<Snapshot, Error> {
    super::prepare();
    let not_found = || Error::NotARepository { path: path.to_owned() };
    let repository = Repository::discover(path).map_err(|_| not_found())?;
    let commit = repository
        .revparse_single(revision)
        .and_then(|object| object.peel_to_commit())
        .map_err(|_| Error::NoRevision { path: path.to_owned(), revision: revision.to_owned() })?;
    let broken = |what| Error::Repository { path: path.to_owned(), what };
    objects::snapshot(&repository, objects::from_git(commit.id()), revision, None, filter, limits, &broken)
}

/// Where a path lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The repository's root, or the folder itself where there is no repository.
    pub root: PathBuf,
    /// The path relative to the root, with `/`; empty for the root.
    pub below: String,
}

/// Finds the repository, or the plain folder, that a path of the command line lies in.
pub fn locate(path: &Path) -> Result<Place, Error> {
    super::prepare();
    Err(Error::NotARepository { path: path.to_owned() })
}

/// The files as they lie on disk, as `git add -A` would see them.
///
/// `path` may be the repository's root, a folder or a file in it; the snapshot holds the whole repository and its
/// paths are relative to the root (see [`locate`] for where `path` lies in it). A folder outside of any repository is
/// read as it is, and paths are relative to it; of a file outside of any repository only that file is read.
pub fn read_work_tree(path: &Path, _filter: &Filter, _limits: Limits) -> Result<Snapshot, Error> {
    Err(Error::NotARepository { path: path.to_owned() })
}
