//! How a fetch speaks to a server: over http, https or ssh. All speak the same protocol of git above that.

use std::{io, path::Path, sync::Arc, time::Instant};

use super::{
    advertisement::{self, Advertisement},
    answer,
    error::Error,
    flaw::Flaw,
    http,
    limits::PACK_OBJECTS_MAX,
    remote::{Credentials, Reference, Remote},
    server_message, ssh,
    state::state_error,
    url::Url,
};

/// One fetch from a server.
#[derive(Clone)]
pub(super) enum Session {
    Http(Arc<http::Session>),
    Ssh(Arc<ssh::Session>),
}

// === impl Session ===

impl Session {
    /// Creates a session. One over ssh connects.
    pub(super) fn new(remote: &Remote, deadline: Instant) -> Result<Session, Error> {
        match remote.url.ssh() {
            Some(target) => ssh::Session::new(remote, target, deadline).map(Session::Ssh),
            None => http::Session::new(remote, deadline).map(Session::Http),
        }
    }

    /// Requests the references, and returns what a fetch needs of them.
    pub(super) fn advertisement(&self, follow: &Reference) -> Result<Advertisement, Error> {
        match self {
            Session::Http(session) => session.advertisement(follow),
            Session::Ssh(session) => session.advertisement(follow),
        }
    }

    /// Requests a pack, and writes it to a file.
    pub(super) fn pack(&self, request: Vec<u8>, path: &Path) -> Result<(), Error> {
        match self {
            Session::Http(session) => session.pack(request, path),
            Session::Ssh(session) => session.pack(request, path),
        }
    }

    /// Ends a session in which the references were all that was needed.
    pub(super) fn finish(&self) {
        match self {
            Session::Http(_) => {}
            Session::Ssh(session) => session.finish(),
        }
    }

    /// Bytes of answers so far.
    pub(super) fn received_bytes(&self) -> u64 {
        match self {
            Session::Http(session) => session.received_bytes(),
            Session::Ssh(session) => session.received_bytes(),
        }
    }
}

/// Converts what is wrong with references. `read_error` converts an error of reading them.
pub(super) fn advertisement_error(
    url: &Url,
    credentials: Option<&Credentials>,
    problem: advertisement::Problem,
    read_error: impl FnOnce(&io::Error) -> Error,
) -> Error {
    let url = Box::new(url.clone());
    match problem {
        advertisement::Problem::Cut => Error::Answer { url, flaw: Flaw::Cut },
        advertisement::Problem::Invalid => Error::Answer { url, flaw: Flaw::Protocol },
        advertisement::Problem::Read(error) => read_error(&error),
        advertisement::Problem::NoRepository(text) => {
            Error::NoRepository { url, said: server_message::clean(&text, credentials) }
        }
        advertisement::Problem::Refused(text) => {
            Error::Refused { url, said: server_message::clean(&text, credentials) }
        }
        advertisement::Problem::Sha256 => Error::Sha256 { url },
    }
}

/// Converts what is wrong with a pack that is written to `path`. `read_error` converts an error of reading it.
pub(super) fn pack_error(
    url: &Url,
    credentials: Option<&Credentials>,
    problem: answer::Problem,
    path: &Path,
    read_error: impl FnOnce(&io::Error) -> Error,
) -> Error {
    let url = Box::new(url.clone());
    match problem {
        answer::Problem::Cut => Error::Answer { url, flaw: Flaw::Cut },
        answer::Problem::Invalid => Error::Answer { url, flaw: Flaw::Protocol },
        answer::Problem::NoPack => Error::Answer { url, flaw: Flaw::NoPack },
        answer::Problem::TooManyObjects => Error::TooMuch { url, what: "objects", limit: PACK_OBJECTS_MAX as u64 },
        answer::Problem::Refused(text) => Error::Refused { url, said: server_message::clean(&text, credentials) },
        answer::Problem::Read(error) => read_error(&error),
        answer::Problem::Write(source) => state_error("write", path)(source),
    }
}
