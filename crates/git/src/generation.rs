//! Generations of a mirror: bare repositories side by side. The one with the highest number is in use.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use git2::{ObjectType, Odb, Repository, RepositoryInitOptions, Revwalk, Signature, Time};

use super::{
    error::Error,
    loose,
    objects::to_git,
    state::{state_error, sync_folder},
    work::FETCHED,
};
use tidegate_core::revision::Oid;

/// The reference to the last good commit.
pub(super) const GOOD: &str = "refs/tidegate/good";
/// The prefix of the references to trees and blobs in use.
const KEEP: &str = "refs/tidegate/keep/";

/// A generation under construction. Dropping it before `finish` removes it.
pub(super) struct Build {
    folder: PathBuf,
    number: u32,
    path: PathBuf,
    is_finished: AtomicBool,
}

/// The path of a generation.
pub(super) fn path(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("{number}.git"))
}

/// Removes unfinished work of an earlier process, and returns the generation in use. Creates the first if necessary.
///
/// This process holds the lock of the state folder, so everything in the folder belongs to it.
pub(super) fn clean(folder: &Path) -> Result<u32, Error> {
    let mut numbers = BTreeSet::new();
    for name in names(folder)? {
        match name.strip_suffix(".git").map(str::parse::<u32>) {
            Some(Ok(number)) => {
                numbers.insert(number);
            }
            Some(Err(_)) => {}
            None if name.ends_with(".git.new") => remove_folder(&folder.join(&name)),
            None => {}
        }
    }
    let Some(in_use) = numbers.pop_last() else {
        return Build::begin(folder, 1)?.finish();
    };
    numbers.into_iter().for_each(|number| remove(folder, number));
    tidy(&path(folder, in_use));
    Ok(in_use)
}

/// Removes what a killed process has left in a repository. No other process may write to it.
pub(super) fn tidy(repository: &Path) {
    remove_locks(repository);
    // The partial pack of a fetch that was killed.
    let packs = repository.join("objects/pack");
    let names = names(&packs).unwrap_or_default();
    let is_alone = |name: &str| {
        let other = name.strip_suffix(".idx").map(|stem| format!("{stem}.pack"));
        other.is_some_and(|other| !names.contains(&other))
    };
    for name in names.iter().filter(|name| name.starts_with("pack_") || is_alone(name)) {
        let _ = fs::remove_file(packs.join(name));
    }
}

/// Removes an unused generation.
pub(super) fn remove(folder: &Path, number: u32) {
    remove_folder(&path(folder, number));
}

/// The number of packs in a repository.
pub(super) fn packs(repository: &Path) -> usize {
    let names = names(&repository.join("objects/pack")).unwrap_or_default();
    names.iter().filter(|name| name.ends_with(".pack")).count()
}

/// Makes the references point exactly to `ids`; skips missing objects.
pub(super) fn keep(repository: &Repository, ids: &BTreeSet<Oid>) -> Result<(), git2::Error> {
    let odb = repository.odb()?;
    let mut wanted: BTreeSet<String> =
        ids.iter().filter(|id| odb.exists(to_git(**id))).map(|id| format!("{KEEP}{id}")).collect();
    let there: Vec<_> = repository.references_glob(&format!("{KEEP}*"))?.collect::<Result<_, _>>()?;
    for mut reference in there {
        let is_wanted = reference.name().is_ok_and(|name| wanted.remove(name));
        if !is_wanted {
            reference.delete()?;
        }
    }
    for name in wanted {
        keep_one(repository, git2::Oid::from_str(name.trim_start_matches(KEEP))?)?;
    }
    Ok(())
}

/// Keeps a tree or a blob.
///
/// The reference points to a commit that contains it, because libgit2's local transport fails on references to anything
/// else. The commit's date is as old as possible, so that it comes last when a fetch tells the remote what it has.
fn keep_one(repository: &Repository, id: git2::Oid) -> Result<(), git2::Error> {
    let object = repository.find_object(id, None)?;
    let tree = match object.kind() {
        Some(ObjectType::Tree) => object.peel_to_tree()?,
        Some(ObjectType::Blob) => {
            let mut builder = repository.treebuilder(None)?;
            builder.insert("blob", id, 0o100_644)?;
            repository.find_tree(builder.write()?)?
        }
        _ => return Ok(()),
    };
    let signature = Signature::new("tidegate", "tidegate", &Time::new(0, 0))?;
    let commit = repository.commit(None, &signature, &signature, "in use", &tree, &[])?;
    repository.reference(&format!("{KEEP}{id}"), commit, true, "keep").map(drop)
}

/// Sets the reference to the last good commit.
pub(super) fn set_good(repository: &Repository, commit: Oid) -> Result<(), git2::Error> {
    repository.reference(GOOD, to_git(commit), true, "good").map(drop)
}

/// Whether the tree of a commit exists with everything in it.
pub(super) fn is_complete(repository: &Repository, commit: git2::Oid) -> bool {
    let walk = || -> Result<bool, git2::Error> {
        let odb = repository.odb()?;
        loose::check(repository, commit)?;
        let mut trees = vec![repository.find_commit(commit)?.tree_id()];
        while let Some(id) = trees.pop() {
            loose::check(repository, id)?;
            for entry in &repository.find_tree(id)? {
                match entry.kind() {
                    Some(ObjectType::Tree) => trees.push(entry.id()),
                    Some(ObjectType::Blob) if !odb.exists(entry.id()) => return Ok(false),
                    _ => {}
                }
            }
        }
        Ok(true)
    };
    walk().unwrap_or(false)
}

/// Copies everything in use from a damaged generation to the next one, if it is readable.
pub(super) fn save(old: &Repository, new: &Repository, good: Option<Oid>) {
    let (Ok(from), Ok(to)) = (old.odb(), new.odb()) else { return };
    if let Some(good) = good.map(to_git) {
        if !to.exists(good) && copy_commit(old, &from, &to, good).is_err() {
            tracing::warn!(commit = %good, "cannot save the last good commit from a damaged mirror");
        }
        // Without its ancestors, the commit is kept as an object without a reference, because walks would fail.
        if has_history(new, good) && new.reference(GOOD, good, true, "good").is_err() {
            tracing::warn!(commit = %good, "cannot set the reference to the last good commit");
        }
    }
    for id in kept(old) {
        if copy(&from, &to, id).is_err() || keep_one(new, id).is_err() {
            tracing::warn!(object = %id, "cannot save an object in use from a damaged mirror");
        }
    }
}

/// Writes everything in use into one pack of the new generation.
pub(super) fn pack(old: &Repository, new: &Repository, good: Option<Oid>) -> Result<(), git2::Error> {
    let mut builder = old.packbuilder()?;
    let mut walk: Revwalk<'_> = old.revwalk()?;
    for name in [FETCHED, GOOD] {
        if old.refname_to_id(name).is_ok() {
            walk.push_ref(name)?;
        }
    }
    builder.insert_walk(&mut walk)?;
    if let Some(commit) = good.map(to_git) {
        builder.insert_commit(commit)?;
    }
    let kept = kept(old);
    for id in &kept {
        builder.insert_recursive(*id, None)?;
    }
    builder.write(&new.path().join("objects/pack"), 0o444)?;
    new.odb()?.refresh()?;
    for name in [FETCHED, GOOD] {
        if let Ok(id) = old.refname_to_id(name) {
            new.reference(name, id, true, "pack")?;
        }
    }
    for id in kept {
        keep_one(new, id)?;
    }
    Ok(())
}

/// Whether a commit exists with all its ancestors.
fn has_history(repository: &Repository, commit: git2::Oid) -> bool {
    let walk = || -> Result<(), git2::Error> {
        let mut walk = repository.revwalk()?;
        walk.push(commit)?;
        walk.try_for_each(|id| id.map(drop))
    };
    walk().is_ok()
}

/// The trees and blobs that references keep.
fn kept(repository: &Repository) -> Vec<git2::Oid> {
    let Ok(references) = repository.references_glob(&format!("{KEEP}*")) else { return Vec::new() };
    let id = |name: &str| git2::Oid::from_str(name.strip_prefix(KEEP)?).ok();
    references.filter_map(|reference| id(reference.ok()?.name().ok()?)).collect()
}

fn copy_commit(old: &Repository, from: &Odb<'_>, to: &Odb<'_>, id: git2::Oid) -> Result<(), git2::Error> {
    copy(from, to, old.find_commit(id)?.tree_id())?;
    copy_one(from, to, id).map(drop)
}

/// Copies a tree with everything in it, or a blob.
fn copy(from: &Odb<'_>, to: &Odb<'_>, id: git2::Oid) -> Result<(), git2::Error> {
    let mut waiting = vec![id];
    let mut seen = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        // A tree may exist without its contents, so only existing blobs are skipped.
        let (_, kind) = from.read_header(id)?;
        if kind == ObjectType::Tree {
            let data = copy_one(from, to, id)?;
            waiting.extend(children(&data));
        } else if !to.exists(id) {
            copy_one(from, to, id)?;
        }
    }
    Ok(())
}

fn copy_one(from: &Odb<'_>, to: &Odb<'_>, id: git2::Oid) -> Result<Vec<u8>, git2::Error> {
    let object = from.read(id)?;
    to.write(object.kind(), object.data())?;
    Ok(object.data().to_vec())
}

/// The ids in a tree object, without submodules. An entry is `<mode> <name>\0<20 bytes>`.
pub(super) fn children(tree: &[u8]) -> Vec<git2::Oid> {
    let mut ids = Vec::new();
    let mut rest = tree;
    while let Some(zero) = rest.iter().position(|&byte| byte == 0) {
        let Some(id) = rest.get(zero + 1..zero + 21) else { break };
        if !rest.starts_with(b"160000 ") {
            ids.extend(git2::Oid::from_bytes(id));
        }
        rest = rest.get(zero + 21..).unwrap_or_default();
    }
    ids
}

/// Lock files of a killed process would block every later one.
fn remove_locks(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        match entry.file_type() {
            // Objects are never locked, and there may be many.
            Ok(kind) if kind.is_dir() && name != "objects" => remove_locks(&path),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|extension| extension == "lock") => {
                let _ = fs::remove_file(&path);
            }
            _ => {}
        }
    }
}

pub(super) fn remove_folder(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        // The folder costs space, and the next start tries again.
        tracing::debug!(path = %path.display(), %error, "cannot remove an old folder");
    }
}

/// The names of a folder's entries.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(state_error("read", folder))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

// === impl Build ===

impl Build {
    /// Creates an empty repository next to the generation in use.
    pub(super) fn begin(folder: &Path, number: u32) -> Result<Build, Error> {
        let path = folder.join(format!("{number}.git.new"));
        if path.exists() {
            remove_folder(&path);
        }
        let git_error = |error: git2::Error| std::io::Error::other(error.message().to_owned());
        let mut options = RepositoryInitOptions::new();
        options.bare(true).external_template(false).initial_head("tidegate");
        let repository =
            Repository::init_opts(&path, &options).map_err(|error| state_error("create", &path)(git_error(error)))?;
        // The record of the last good revision is durable, so the objects that it names must be durable as well.
        repository
            .config()
            .and_then(|mut config| config.set_bool("core.fsyncObjectFiles", true))
            .map_err(|error| state_error("configure", &path)(git_error(error)))?;
        Ok(Build { folder: folder.to_owned(), number, path, is_finished: AtomicBool::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it its number, which makes it the generation in use.
    pub(super) fn finish(&self) -> Result<u32, Error> {
        let path = path(&self.folder, self.number);
        fs::rename(&self.path, &path).map_err(state_error("rename to", &path))?;
        self.is_finished.store(true, Ordering::Relaxed);
        sync_folder(&self.folder)?;
        Ok(self.number)
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        if !self.is_finished.load(Ordering::Relaxed) {
            remove_folder(&self.path);
        }
    }
}
