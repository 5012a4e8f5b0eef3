//! One fetch into one repository, on the calling thread.

use std::{cell::Cell, io, path::Path, time::Instant};

use git2::{AutotagOption, Direction, ErrorClass, ErrorCode, FetchOptions, RemoteCallbacks, Repository};

use super::{
    error::Error,
    http::Session,
    limits::PACK_OBJECTS_MAX,
    objects::to_git,
    remote::{Reference, Remote},
};

/// The reference to the result of the last fetch.
pub(super) const FETCHED: &str = "refs/tidegate/fetched";

/// The result of a fetch.
#[derive(Debug)]
pub(super) struct Tip {
    /// The branch, the tag, or the commit id.
    pub(super) name: String,
    pub(super) commit: git2::Oid,
    pub(super) received_bytes: u64,
}

/// The remote's object under the reference.
struct Found {
    name: String,
    id: git2::Oid,
}

/// Why a step of a fetch failed.
enum Fault {
    Ours(Error),
    /// The message may contain text from the remote.
    Git(git2::Error),
}

/// Stops a download that takes too long or becomes too large. Every transfer checks it.
struct Guard<'a> {
    remote: &'a Remote,
    deadline: Instant,
    failure: Cell<Option<Error>>,
}

/// Fetches the remote's reference, and points [`FETCHED`] to it.
pub(super) fn fetch(repository: &Repository, remote: &Remote, deadline: Instant) -> Result<Tip, Error> {
    let guard = Guard { remote, deadline, failure: Cell::new(None) };
    if let Reference::Commit(id) = remote.reference
        && repository.find_commit(to_git(id)).is_ok()
    {
        // A commit never changes, so no request is necessary.
        return finish(repository, remote, Found { name: id.to_string(), id: to_git(id) }, 0);
    }
    match remote.url.path() {
        Some(path) => {
            let path = path.to_str().ok_or_else(|| not_a_repository(path))?;
            let found = from_local(repository, path, &guard).map_err(|fault| guard.error(repository, fault))?;
            finish(repository, remote, found, 0)
        }
        None => {
            let session = Session::new(remote, deadline)?;
            let found = session.scope(|| from_network(repository, &guard)).map_err(|fault| {
                // The transport's error comes first, because libgit2 only knows that reading failed.
                session.take_failure().unwrap_or_else(|| guard.error(repository, fault))
            })?;
            finish(repository, remote, found, session.received_bytes())
        }
    }
}

fn not_a_repository(path: &Path) -> Error {
    Error::NotARepository { path: path.to_owned() }
}

fn no_reference(remote: &Remote) -> Error {
    Error::NoReference { url: Box::new(remote.url.clone()), reference: remote.reference.clone() }
}

/// Fetches from a repository on this machine, through libgit2's local transport.
fn from_local(repository: &Repository, path: &str, guard: &Guard<'_>) -> Result<Found, Fault> {
    let remote = guard.remote;
    let source = Repository::open(path).map_err(|error| match is_sha256_error(&error) {
        true => Error::Sha256 { url: Box::new(remote.url.clone()) },
        false => not_a_repository(Path::new(path)),
    })?;
    let target = |name: &str| source.refname_to_id(name).map_err(|_| no_reference(remote));
    let found = match &remote.reference {
        Reference::Default => {
            let head = source.head().map_err(|_| no_reference(remote))?;
            let name = head.shorthand().unwrap_or("HEAD").to_owned();
            Found { name, id: head.peel_to_commit().map_err(|_| no_commit(remote))?.id() }
        }
        Reference::Branch(name) => Found { name: name.clone(), id: target(&format!("refs/heads/{name}"))? },
        Reference::Tag(name) => Found { name: name.clone(), id: target(&format!("refs/tags/{name}"))? },
        Reference::Commit(id) => {
            let commit = source.find_commit(to_git(*id)).map_err(|_| no_reference(remote))?;
            Found { name: id.to_string(), id: commit.id() }
        }
    };
    if has(repository, found.id) {
        return Ok(found);
    }
    let mut anonymous = repository.remote_anonymous(path)?;
    let mut connection = anonymous.connect_auth(Direction::Fetch, None, None)?;
    download(connection.remote(), &[format!("+{}:{FETCHED}", found.id)], guard)?;
    Ok(found)
}

/// Fetches from a server.
fn from_network(repository: &Repository, guard: &Guard<'_>) -> Result<Found, Fault> {
    let remote = guard.remote;
    let mut anonymous = repository.remote_anonymous(&remote.url.to_string())?;
    let mut connection = anonymous.connect_auth(Direction::Fetch, None, None)?;
    // Names of references are text here: `advertisement` drops lines that are not UTF-8.
    let listed: Vec<(String, git2::Oid, Option<String>)> = connection
        .list()?
        .iter()
        .map(|head| (head.name().to_owned(), head.oid(), head.symref_target().map(str::to_owned)))
        .collect();
    let find = |name: &str| listed.iter().find(|(listed, _, _)| listed == name);
    let (name, reference) = match &remote.reference {
        Reference::Default => {
            let (_, _, target) = find("HEAD").ok_or_else(|| no_reference(remote))?;
            let branch = target.as_deref().and_then(|target| target.strip_prefix("refs/heads/"));
            (branch.unwrap_or("HEAD").to_owned(), "HEAD".to_owned())
        }
        Reference::Branch(name) => (name.clone(), format!("refs/heads/{name}")),
        Reference::Tag(name) => (name.clone(), format!("refs/tags/{name}")),
        Reference::Commit(id) => {
            let id = to_git(*id);
            commit_from_network(repository, connection.remote(), &listed, id, guard)?;
            return Ok(Found { name: id.to_string(), id });
        }
    };
    let (_, id, _) = find(&reference).ok_or_else(|| no_reference(remote))?;
    if !has(repository, *id) {
        download(connection.remote(), &[format!("+{reference}:{FETCHED}")], guard)?;
    }
    Ok(Found { name, id: *id })
}

/// Fetches a commit by its id: from a reference that points to it, directly, or with all branches and tags.
fn commit_from_network(
    repository: &Repository,
    connection: &mut git2::Remote<'_>,
    listed: &[(String, git2::Oid, Option<String>)],
    id: git2::Oid,
    guard: &Guard<'_>,
) -> Result<(), Fault> {
    // `tag^{}` is the object behind a tag and cannot be requested.
    let is_reference = |name: &str| !name.ends_with("^{}");
    if let Some((reference, _, _)) = listed.iter().find(|(name, listed, _)| *listed == id && is_reference(name)) {
        return download(connection, &[format!("+{reference}:{FETCHED}")], guard);
    }
    // Many servers serve any commit by its id. The others refuse early, which costs nothing.
    if download(connection, &[format!("+{id}:{FETCHED}")], guard).is_ok() && has(repository, id) {
        return Ok(());
    }
    if let Some(failure) = guard.failure.take() {
        return Err(Fault::Ours(failure));
    }
    let all = ["+refs/heads/*:refs/tidegate/all/heads/*", "+refs/tags/*:refs/tidegate/all/tags/*"];
    download(connection, &all.map(str::to_owned), guard)?;
    if has(repository, id) { Ok(()) } else { Err(Fault::Ours(no_reference(guard.remote))) }
}

/// Whether an object exists. An object never arrives without everything that it refers to.
fn has(repository: &Repository, id: git2::Oid) -> bool {
    repository.odb().is_ok_and(|odb| odb.exists(id))
}

fn download(connection: &mut git2::Remote<'_>, refspecs: &[String], guard: &Guard<'_>) -> Result<(), Fault> {
    let mut callbacks = RemoteCallbacks::new();
    callbacks.transfer_progress(|progress| guard.allows(progress.total_objects()));
    callbacks.pack_progress(|_, _, _| {});
    let mut options = FetchOptions::new();
    options.remote_callbacks(callbacks).download_tags(AutotagOption::None).update_fetchhead(false);
    Ok(connection.download(refspecs, Some(&mut options))?)
}

/// Peels the result to a commit and keeps it.
fn finish(repository: &Repository, remote: &Remote, found: Found, received_bytes: u64) -> Result<Tip, Error> {
    let object = repository.find_object(found.id, None);
    let object = object.map_err(|_| Error::Answer { url: Box::new(remote.url.clone()) })?;
    let commit = object.peel_to_commit().map_err(|_| no_commit(remote))?.id();
    repository
        .reference(FETCHED, commit, true, "fetch")
        .map_err(|error| state("write a reference in", repository, &error))?;
    Ok(Tip { name: found.name, commit, received_bytes })
}

fn no_commit(remote: &Remote) -> Error {
    Error::NoCommit { url: Box::new(remote.url.clone()), reference: remote.reference.clone() }
}

/// An error of this machine's storage; libgit2's message contains nothing else.
fn state(operation: &'static str, repository: &Repository, error: &git2::Error) -> Error {
    let source = io::Error::other(error.message().to_owned());
    Error::State { operation, path: repository.path().to_owned(), source }
}

/// libgit2 names an unknown repository format in its message.
pub(super) fn is_sha256_error(error: &git2::Error) -> bool {
    error.class() == ErrorClass::Repository && error.message().to_ascii_lowercase().contains("object format")
}

// === impl Fault ===

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Ours(error)
    }
}

impl From<git2::Error> for Fault {
    fn from(error: git2::Error) -> Fault {
        Fault::Git(error)
    }
}

// === impl Guard ===

impl Guard<'_> {
    fn allows(&self, objects: usize) -> bool {
        let url = || Box::new(self.remote.url.clone());
        let failure = if self.deadline <= Instant::now() {
            Error::Deadline { url: url(), timeout: self.remote.timeout }
        } else if PACK_OBJECTS_MAX < objects {
            Error::TooMuch { url: url(), what: "objects", limit: PACK_OBJECTS_MAX as u64 }
        } else {
            return true;
        };
        self.failure.set(Some(failure));
        false
    }

    fn error(&self, repository: &Repository, fault: Fault) -> Error {
        match (self.failure.take(), fault) {
            (Some(failure), _) => failure,
            (None, Fault::Ours(error)) => error,
            (None, Fault::Git(error)) if error.class() == ErrorClass::Os => state("write to", repository, &error),
            (None, Fault::Git(error)) if error.code() == ErrorCode::Certificate => {
                Error::Certificate { url: Box::new(self.remote.url.clone()) }
            }
            (None, Fault::Git(_)) => Error::Answer { url: Box::new(self.remote.url.clone()) },
        }
    }
}
