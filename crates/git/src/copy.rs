//! Copies objects from a repository on this machine, through libgit2's local transport.

use std::{
    cell::Cell,
    path::Path,
    time::{Duration, Instant},
};

use git2::{AutotagOption, Direction, ErrorClass, FetchOptions, RemoteCallbacks, Repository};

use super::{
    limits::PACK_OBJECTS_MAX,
    objects::{from_git, to_git},
    remote::Reference,
    work::{FETCHED, Trouble, trouble},
};
use tidegate_core::{revision::Oid, version_range::VersionTag};

/// Copies what is under a reference. Returns the reference's name and its object.
pub(super) fn copy(
    repository: &Repository,
    from: &Path,
    reference: &Reference,
    timeout: Duration,
) -> Result<(String, Oid), Trouble> {
    let deadline = Instant::now() + timeout;
    let path = from.to_str().ok_or(Trouble::NotARepository)?;
    let source = Repository::open(path).map_err(|error| match is_sha256_error(&error) {
        true => Trouble::Sha256,
        false => Trouble::NotARepository,
    })?;
    let (name, id) = find(&source, reference)?;
    if repository.odb().is_ok_and(|odb| odb.exists(id)) {
        return Ok((name, from_git(id)));
    }
    let failure = Cell::new(None);
    let mut callbacks = RemoteCallbacks::new();
    callbacks.transfer_progress(|progress| {
        if deadline <= Instant::now() {
            failure.set(Some(Trouble::Deadline));
        } else if PACK_OBJECTS_MAX < progress.total_objects() {
            failure.set(Some(Trouble::TooManyObjects));
        } else {
            return true;
        }
        false
    });
    callbacks.pack_progress(|_, _, _| {});
    let mut options = FetchOptions::new();
    options.remote_callbacks(callbacks).download_tags(AutotagOption::None).update_fetchhead(false);
    let downloaded = repository.remote_anonymous(path).and_then(|mut anonymous| {
        let mut connection = anonymous.connect_auth(Direction::Fetch, None, None)?;
        connection.remote().download(&[format!("+{id}:{FETCHED}")], Some(&mut options))
    });
    drop(options);
    downloaded.map_err(|error| failure.take().unwrap_or_else(|| trouble(&error, Trouble::Pack)))?;
    Ok((name, from_git(id)))
}

fn find(source: &Repository, reference: &Reference) -> Result<(String, git2::Oid), Trouble> {
    let target = |name: &str| source.refname_to_id(name).map_err(|_| Trouble::NoReference);
    match reference {
        Reference::Default => {
            let head = source.head().map_err(|_| Trouble::NoReference)?;
            let name = head.shorthand().unwrap_or("HEAD").to_owned();
            Ok((name, head.peel_to_commit().map_err(|error| trouble(&error, Trouble::NoCommit))?.id()))
        }
        Reference::Branch(name) => Ok((name.clone(), target(&format!("refs/heads/{name}"))?)),
        Reference::Tag(name) => Ok((name.clone(), target(&format!("refs/tags/{name}"))?)),
        Reference::Name(name) => Ok((name.clone(), target(name)?)),
        Reference::Versions(range) => {
            let names = source.tag_names(None).map_err(|_| Trouble::NoReference)?;
            let tags = names.iter().filter_map(|name| VersionTag::parse(name.ok()??));
            let highest = tags.filter(|tag| range.contains(tag)).max().ok_or(Trouble::NoReference)?;
            let id = target(&format!("refs/tags/{}", highest.name))?;
            Ok((highest.name, id))
        }
        Reference::Commit(id) => match source.find_commit(to_git(*id)) {
            Ok(commit) => Ok((id.to_string(), commit.id())),
            Err(error) => Err(trouble(&error, Trouble::NoReference)),
        },
    }
}

/// libgit2 names an unknown repository format in its message.
pub(super) fn is_sha256_error(error: &git2::Error) -> bool {
    error.class() == ErrorClass::Repository && error.message().to_ascii_lowercase().contains("object format")
}
