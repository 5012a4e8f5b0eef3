//! What can go wrong with git. Nothing in here comes from a remote's answer.

use std::{fmt, io, path::PathBuf, time::Duration};

use super::{remote::Reference, url::Url};
use tidegate_core::revision::Oid;
use tidegate_process::retry::Class;

/// An operation that failed, and what it failed on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process works on the state folder.
    #[error(
        "the state folder {} is in use by {holder}; end it, or give this process a folder of its own",
        .folder.display()
    )]
    StateInUse {
        /// The folder.
        folder: PathBuf,
        /// The other process, as far as it is known.
        holder: String,
    },
    /// The state folder cannot be read or written.
    #[error("cannot {operation} {}", .path.display())]
    State {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The mirror's objects cannot be read; the next fetch builds it anew.
    #[error("the mirror of {url} is damaged ({what}); the next fetch builds it anew")]
    Damaged {
        /// Of what it is the mirror.
        url: Box<Url>,
        /// Which object.
        what: String,
    },
    /// The fetch before this one has not come back.
    #[error("the fetch of {url} before this one hangs in the operating system")]
    Busy {
        /// From where.
        url: Box<Url>,
    },
    /// A thread could not be started, or ended without an answer.
    #[error("a thread for git could not be started or did not finish")]
    Thread,
    /// The time is up.
    #[error("{url} took longer than {}", Seconds(*.timeout))]
    Deadline {
        /// From where.
        url: Box<Url>,
        /// The time that it had.
        timeout: Duration,
    },
    /// No connection.
    #[error("cannot reach {url}: {why}")]
    Connect {
        /// Where.
        url: Box<Url>,
        /// In our words.
        why: &'static str,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {url} is not trusted; if its authority is private, put it under ca.crt")]
    Certificate {
        /// Where.
        url: Box<Url>,
    },
    /// What is given as authorities cannot be read.
    #[error("ca.crt holds no PEM certificate that can be read")]
    Authorities,
    /// What is given as credentials cannot be sent.
    #[error("the credentials for {url} hold characters that cannot be sent")]
    Credentials {
        /// For where.
        url: Box<Url>,
    },
    /// Credentials would be readable on the way.
    #[error("credentials are never sent over plain http: use an https:// URL instead of {url}")]
    CredentialsOverHttp {
        /// To where.
        url: Box<Url>,
    },
    /// The name stands for an address that we never connect to.
    #[error("{host} is a link-local or metadata address; connections to those are refused")]
    Address {
        /// The host.
        host: String,
    },
    /// Wrong credentials, or none where some are needed.
    #[error(
        "{url} {}",
        if *.sent { "does not accept the credentials" } else { "asks for credentials, and there are none" }
    )]
    Authentication {
        /// Where.
        url: Box<Url>,
        /// Whether we sent any.
        sent: bool,
    },
    /// Known, and not allowed.
    #[error("{url} denies access (403)")]
    Forbidden {
        /// Where.
        url: Box<Url>,
    },
    /// No such repository, or none that these credentials may see.
    #[error("there is no repository at {url}, or these credentials may not see it")]
    NoRepository {
        /// Where.
        url: Box<Url>,
    },
    /// No such branch, tag or commit.
    #[error("{url} has no {reference}")]
    NoReference {
        /// Where.
        url: Box<Url>,
        /// Which.
        reference: Reference,
    },
    /// What the name stands for is no commit.
    #[error("{reference} of {url} is no commit")]
    NoCommit {
        /// Where.
        url: Box<Url>,
        /// Which.
        reference: Reference,
    },
    /// A redirect that is not followed.
    #[error("{url} redirects {why}")]
    Redirect {
        /// Where.
        url: Box<Url>,
        /// In our words.
        why: &'static str,
    },
    /// An HTTP status without a meaning of its own here.
    #[error("{url} answered with HTTP status {status}")]
    Status {
        /// Where.
        url: Box<Url>,
        /// The number.
        status: u16,
    },
    /// Something else answers there.
    #[error("what answers at {url} is no git server (smart HTTP)")]
    NotGit {
        /// Where.
        url: Box<Url>,
    },
    /// The answer ends early or makes no sense.
    #[error("the answer of {url} is cut off or not understood")]
    Answer {
        /// Where.
        url: Box<Url>,
    },
    /// The answer is larger than we take.
    #[error("{url} sends more than {limit} {what}")]
    TooMuch {
        /// Where.
        url: Box<Url>,
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A repository with SHA-256 object ids.
    #[error("{url} uses SHA-256 object ids, which are not supported; use a repository with SHA-1 ids")]
    Sha256 {
        /// Where.
        url: Box<Url>,
    },
    /// More files than the limit.
    #[error("the revision holds more than {limit} {what}")]
    TooManyFiles {
        /// Of what.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A folder deeper than the limit.
    #[error("{path} lies more than {limit} folders deep")]
    TooDeep {
        /// The folder.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// An object that is not there.
    #[error("object {id} is not in the mirror of {url}")]
    Missing {
        /// Its id.
        id: Oid,
        /// Of what it is the mirror.
        url: Box<Url>,
    },
    /// A module's object that cannot be read within the limits.
    #[error("{path} is {what}, which cannot be read as a module's object")]
    Unreadable {
        /// Its path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A local path that cannot be read.
    #[error("cannot read {}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A symbolic link where a folder or file must be.
    #[error("{} is a symbolic link; name what it points to", .path.display())]
    PathIsLink {
        /// The path.
        path: PathBuf,
    },
    /// A revision is asked for where there is no repository.
    #[error("{} is not in a git repository that can be read", .path.display())]
    NotARepository {
        /// The path.
        path: PathBuf,
    },
    /// A local repository with a broken object or index.
    #[error("the repository at {} cannot be read: {what}", .path.display())]
    Repository {
        /// The path.
        path: PathBuf,
        /// What is broken.
        what: String,
    },
    /// A revision that the local repository does not have.
    #[error("`{revision}` is no commit in the repository at {}", .path.display())]
    NoRevision {
        /// The path.
        path: PathBuf,
        /// As written.
        revision: String,
    },
    /// File events cannot be had.
    #[error("cannot watch {}", .path.display())]
    Watch {
        /// The path.
        path: PathBuf,
        /// Why not.
        #[source]
        source: notify::Error,
    },
}

/// A duration as a person writes it.
struct Seconds(Duration);

// === impl Error ===

impl Error {
    /// What can help.
    pub fn class(&self) -> Class {
        match self {
            Error::StateInUse { .. }
            | Error::State { .. }
            | Error::Damaged { .. }
            | Error::Busy { .. }
            | Error::Thread
            | Error::Deadline { .. }
            | Error::Connect { .. }
            | Error::Answer { .. }
            | Error::Path { .. }
            | Error::Missing { .. } => Class::Transient,
            Error::Status { status, .. } if *status == 429 || 500 <= *status => Class::Transient,
            Error::Status { .. }
            | Error::Certificate { .. }
            | Error::Authorities
            | Error::Credentials { .. }
            | Error::CredentialsOverHttp { .. }
            | Error::Address { .. }
            | Error::Authentication { .. }
            | Error::Forbidden { .. }
            | Error::NoRepository { .. }
            | Error::NoReference { .. }
            | Error::NoCommit { .. }
            | Error::Redirect { .. }
            | Error::NotGit { .. }
            | Error::TooMuch { .. }
            | Error::Sha256 { .. }
            | Error::TooManyFiles { .. }
            | Error::TooDeep { .. }
            | Error::Unreadable { .. }
            | Error::PathIsLink { .. }
            | Error::NotARepository { .. }
            | Error::Repository { .. }
            | Error::NoRevision { .. }
            | Error::Watch { .. } => Class::Stalled,
        }
    }

    /// One word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::StateInUse { .. } => "StateInUse",
            Error::State { .. } | Error::Thread => "StorageFailed",
            Error::Damaged { .. } | Error::Missing { .. } => "MirrorDamaged",
            Error::Busy { .. } | Error::Deadline { .. } => "Timeout",
            Error::Connect { .. } => "Unreachable",
            Error::Certificate { .. } | Error::Authorities => "CertificateNotTrusted",
            Error::Credentials { .. } | Error::Authentication { .. } => "AuthenticationFailed",
            Error::CredentialsOverHttp { .. } => "CredentialsOverHttp",
            Error::Address { .. } => "AddressRefused",
            Error::Forbidden { .. } => "AccessDenied",
            Error::NoRepository { .. } | Error::NotARepository { .. } => "RepositoryNotFound",
            Error::NoReference { .. } | Error::NoCommit { .. } | Error::NoRevision { .. } => "RevisionNotFound",
            Error::Redirect { .. } => "RedirectRefused",
            Error::Status { .. } | Error::NotGit { .. } | Error::Answer { .. } => "AnswerNotUnderstood",
            Error::TooMuch { .. } | Error::TooManyFiles { .. } | Error::TooDeep { .. } => "LimitExceeded",
            Error::Sha256 { .. } => "ObjectFormatNotSupported",
            Error::Unreadable { .. }
            | Error::Path { .. }
            | Error::PathIsLink { .. }
            | Error::Repository { .. }
            | Error::Watch { .. } => "NotReadable",
        }
    }
}

// === impl Seconds ===

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{} s", self.0.as_secs()),
            _ => write!(f, "{} ms", self.0.as_millis()),
        }
    }
}
