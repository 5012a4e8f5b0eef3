//! Earlier revisions of one folder.

use git2::{ObjectType, Repository};

use super::{
    error::Error,
    objects::{Broken, from_git, to_git},
};
use tidegate_core::revision::Oid;

/// Maximum number of commits that a search visits: years of a busy repository.
const COMMITS_MAX: usize = 5_000;

/// The commits on the branch of `commit`, up to itself, that changed the content of `folder`, the latest first, and at
/// most `max`. The second parents of merges are other branches.
pub(super) fn versions(
    repository: &Repository,
    commit: Oid,
    folder: &str,
    max: usize,
    broken: Broken<'_>,
) -> Result<Vec<Oid>, Error> {
    let folder = if folder == "." { "" } else { folder.trim_start_matches("./").trim_matches('/') };
    let content = |id: git2::Oid| -> Result<(Option<git2::Oid>, Option<git2::Oid>), Error> {
        let found = repository.find_commit(id).map_err(|_| broken(format!("commit {id}")))?;
        let tree = found.tree().map_err(|_| broken(format!("the tree of commit {id}")))?;
        let below = || tree.get_path(folder.as_ref()).ok().filter(|entry| entry.kind() == Some(ObjectType::Tree));
        let tree = if folder.is_empty() { Some(tree.id()) } else { below().map(|entry| entry.id()) };
        Ok((tree, found.parent_id(0).ok()))
    };
    let mut current = to_git(commit);
    let (mut tree, mut parent) = content(current)?;
    let mut versions = Vec::new();
    for _ in 0..COMMITS_MAX {
        // The history of a mirror may end before that of its remote.
        let before = parent.and_then(|id| Some((id, content(id).ok()?)));
        if before.is_none_or(|(_, (before, _))| before != tree) {
            versions.push(from_git(current));
        }
        let Some((id, (content, next))) = before.filter(|_| versions.len() < max) else { break };
        (current, tree, parent) = (id, content, next);
    }
    Ok(versions)
}
