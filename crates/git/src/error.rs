//! The errors of git. None of them prints text from a remote's answer: only [`Error::said`] has it, cleaned.

use std::{fmt, io, path::PathBuf, time::Duration};

use super::{
    flaw::{Distrust, Flaw, Strange},
    github_app::AppProblem,
    limits::{EVIDENCE_PATHS_MAX, EVIDENCE_STEPS_MAX},
    remote::Reference,
    server_message::ServerMessage,
    ssh::{HostKeyProblem, IdentityProblem},
    url::Url,
};
use tidegate_core::revision::Oid;
use tidegate_process::retry::Class;

/// The operation that failed, and what it failed on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process uses the state folder.
    #[error(
        "the state folder {} is in use by {holder}: stop that process, or use another folder",
        .folder.display()
    )]
    StateInUse {
        /// The folder.
        folder: PathBuf,
        /// The other process, if it is known.
        holder: String,
    },
    /// The state folder cannot be read or written.
    #[error("cannot {operation} {}", .path.display())]
    State {
        /// The operation.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The mirror's objects cannot be read. The next fetch rebuilds the mirror.
    #[error("the mirror of {url} is damaged ({what}); the next fetch rebuilds it")]
    Damaged {
        /// The URL of the mirror.
        url: Box<Url>,
        /// The object.
        what: String,
    },
    /// The previous fetch has not returned.
    #[error("the previous fetch of {url} has not ended yet")]
    Busy {
        /// The URL.
        url: Box<Url>,
    },
    /// A thread could not be started, or ended without a result.
    #[error("cannot start a thread for git, or it did not finish")]
    Thread,
    /// The fetch exceeded its time-out.
    #[error("{url} took longer than {}{}", Seconds(*.timeout), through(.proxy.as_deref()))]
    Deadline {
        /// The URL.
        url: Box<Url>,
        /// Host and port of the proxy, if it was asked through one: it may be what did not answer.
        proxy: Option<String>,
        /// The time-out.
        timeout: Duration,
    },
    /// The connection failed.
    #[error("cannot reach {url}: {why}")]
    Connect {
        /// The URL.
        url: Box<Url>,
        /// The cause, in words of this crate.
        why: &'static str,
    },
    /// The proxy does not open a connection to the server.
    #[error("cannot reach {url} through the proxy {proxy}: {why}")]
    Proxy {
        /// The URL.
        url: Box<Url>,
        /// Host and port of the proxy.
        proxy: String,
        /// The cause, in words of this crate.
        why: &'static str,
    },
    /// The server's certificate is not trusted, or the server wants one of the client.
    #[error("{url} {why}")]
    Certificate {
        /// The URL.
        url: Box<Url>,
        /// The cause.
        why: Distrust,
    },
    /// The given CAs cannot be read.
    #[error("ca.crt contains no valid PEM certificate")]
    Authorities,
    /// The given certificate of the client cannot be used.
    #[error("{what}")]
    ClientCertificate {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The given credentials cannot be sent.
    #[error("the credentials for {url} contain characters that cannot be sent")]
    Credentials {
        /// The URL.
        url: Box<Url>,
    },
    /// The credentials would be sent unencrypted.
    #[error("credentials are never sent over plain http: use an https:// URL instead of {url}")]
    CredentialsOverHttp {
        /// The URL.
        url: Box<Url>,
    },
    /// The private key for an ssh URL is missing or cannot be used.
    #[error("{why}")]
    Identity {
        /// The cause.
        why: IdentityProblem,
    },
    /// The known hosts for an ssh URL cannot be used.
    #[error("{why}")]
    KnownHosts {
        /// The cause, in words of this crate.
        why: String,
    },
    /// The host of an ssh URL is not trusted. Nothing was sent to it.
    #[error("{url} {why}{}", .flaw.as_ref().map(|flaw| format!("; {flaw} of known_hosts, which is skipped")).unwrap_or_default())]
    HostKey {
        /// The URL.
        url: Box<Url>,
        /// The cause.
        why: HostKeyProblem,
        /// A line of `known_hosts` that cannot be read.
        flaw: Option<String>,
    },
    /// The ssh server and Tidegate have no algorithm in common.
    #[error("{url} offers no {kind} that is strong enough{}", Offered(.offered))]
    Algorithms {
        /// The URL.
        url: Box<Url>,
        /// What the algorithm is for.
        kind: &'static str,
        /// What the server offers instead, as far as it is known.
        offered: Vec<&'static str>,
    },
    /// The ssh server rejects the key.
    #[error("{url} rejected the key {fingerprint} of the user {user}: add its public key to the git server")]
    KeyRejected {
        /// The URL.
        url: Box<Url>,
        /// The user.
        user: String,
        /// The fingerprint of the key.
        fingerprint: String,
    },
    /// The ssh server wants more than a key.
    #[error("{url} accepted the key and wants another factor, which Tidegate does not have: use a deploy key")]
    SecondFactor {
        /// The URL.
        url: Box<Url>,
    },
    /// The ssh server does not run git.
    #[error("{url} does not allow git-upload-pack: give the key permission to read the repository")]
    NoCommand {
        /// The URL.
        url: Box<Url>,
    },
    /// The host has an address that Tidegate never connects to.
    #[error("{host} is a link-local or metadata address; connections to those are refused")]
    Address {
        /// The host.
        host: String,
    },
    /// The credentials are wrong, or missing although the server requires some.
    #[error(
        "{url} {}",
        if *.sent {
            "rejected the credentials: check whether they are correct and still valid"
        } else {
            "requires credentials, but none are configured: spec.secretRef must name a Secret that has some, besides a \
             CA or a client certificate"
        }
    )]
    Authentication {
        /// The URL.
        url: Box<Url>,
        /// Whether credentials were sent.
        sent: bool,
        /// What the server says.
        said: Option<ServerMessage>,
    },
    /// GitHub's API gives no token for a GitHub App.
    #[error("no token of the GitHub App from {url}: {why}{}", asked_to_wait(*.retry_after))]
    GitHubApp {
        /// The URL of the API.
        url: Box<Url>,
        /// The cause.
        why: AppProblem,
        /// What the API says.
        said: Option<ServerMessage>,
        /// How long the API asks to wait.
        retry_after: Option<Duration>,
    },
    /// The credentials are valid but have no permission.
    #[error("{url} denied access (403): give the credentials permission to read the repository")]
    Forbidden {
        /// The URL.
        url: Box<Url>,
        /// What the server says.
        said: Option<ServerMessage>,
    },
    /// The repository does not exist, or these credentials have no access to it.
    #[error("no repository at {url}, or these credentials have no access to it")]
    NoRepository {
        /// The URL.
        url: Box<Url>,
        /// What the server says.
        said: Option<ServerMessage>,
    },
    /// The repository has no commit.
    #[error("the repository at {url} is empty: push a commit to it")]
    Empty {
        /// The URL.
        url: Box<Url>,
    },
    /// The git program of the server reports an error.
    #[error("the git server at {url} reports an error")]
    Refused {
        /// The URL.
        url: Box<Url>,
        /// What the server says.
        said: Option<ServerMessage>,
    },
    /// The branch, tag or commit does not exist.
    #[error("{url} has no {reference}: correct spec.ref, or push it")]
    NoReference {
        /// The URL.
        url: Box<Url>,
        /// The reference.
        reference: Reference,
    },
    /// The reference does not lead to a commit.
    #[error("{reference} of {url} is not a commit")]
    NoCommit {
        /// The URL.
        url: Box<Url>,
        /// The reference.
        reference: Reference,
    },
    /// The server sent a redirect that is not followed.
    #[error("{url} redirects {why}")]
    Redirect {
        /// The URL.
        url: Box<Url>,
        /// The cause, in words of this crate.
        why: &'static str,
    },
    /// An HTTP status without a more specific error.
    #[error("{url} answered with HTTP status {status}{}", advice(*.status, *.retry_after))]
    Status {
        /// The URL.
        url: Box<Url>,
        /// The status.
        status: u16,
        /// What the server says.
        said: Option<ServerMessage>,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The server does not speak git's smart HTTP protocol.
    #[error("the server at {url} {found}")]
    NotGit {
        /// The URL.
        url: Box<Url>,
        /// What it sent instead.
        found: Strange,
    },
    /// The answer is truncated or invalid.
    #[error("the answer of {url} {flaw}")]
    Answer {
        /// The URL.
        url: Box<Url>,
        /// What is wrong with it.
        flaw: Flaw,
    },
    /// The answer exceeds a limit.
    #[error("{url} sends more than {limit} {what}")]
    TooMuch {
        /// The URL.
        url: Box<Url>,
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// The repository uses SHA-256 object ids.
    #[error("{url} uses SHA-256 object ids, which are not supported; use a repository with SHA-1 ids")]
    Sha256 {
        /// The URL.
        url: Box<Url>,
    },
    /// The revision has more files than the limit.
    #[error("the revision contains more than {limit} {what}")]
    TooManyFiles {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A folder is deeper than the limit.
    #[error("{path} is more than {limit} folders deep")]
    TooDeep {
        /// The folder.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// The changes since the active revision are too many to judge their signatures.
    #[error(
        "the changes since the active revision cannot be judged: more than {limit} {what}; push in smaller steps, or \
         remove spec.verify.paths until this revision is active"
    )]
    History {
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// A path is longer than the limit.
    #[error("the path that begins with {path} is longer than {limit} bytes")]
    TooLong {
        /// The start of the path.
        path: String,
        /// The limit.
        limit: usize,
    },
    /// Work on the objects of a repository exceeds a limit of its process.
    #[error("{verb} {subject} of {url} takes more than {limit}")]
    Exhausted {
        /// The URL.
        url: Box<Url>,
        /// What was done.
        verb: &'static str,
        /// With which commit or reference.
        subject: String,
        /// The limit.
        limit: Exhaustion,
    },
    /// The process that works on objects failed for another reason than a limit.
    #[error("the process for git objects failed: {why}")]
    Engine {
        /// The cause.
        why: String,
    },
    /// This process has not enough memory.
    #[error("not enough memory to read an object")]
    Memory,
    /// An object is missing.
    #[error("object {id} is not in the mirror of {url}")]
    Missing {
        /// Its id.
        id: Oid,
        /// The URL of the mirror.
        url: Box<Url>,
    },
    /// An object of a module cannot be read within the limits.
    #[error("{path} is {what}, which cannot be read as a module's object")]
    Unreadable {
        /// Its path.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// A local path cannot be read.
    #[error("cannot read {}", .path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A symbolic link, where a folder or file is required.
    #[error("{} is a symbolic link: use its target", .path.display())]
    PathIsLink {
        /// The path.
        path: PathBuf,
    },
    /// A revision was requested outside of a repository.
    #[error("{} is not in a readable git repository", .path.display())]
    NotARepository {
        /// The path.
        path: PathBuf,
    },
    /// A local repository has a broken object or index.
    #[error("cannot read the repository at {}: {what}", .path.display())]
    Repository {
        /// The path.
        path: PathBuf,
        /// What is broken.
        what: String,
    },
    /// The local repository does not have the revision.
    #[error("`{revision}` is not a commit in the repository at {}", .path.display())]
    NoRevision {
        /// The path.
        path: PathBuf,
        /// The revision, as the user wrote it.
        revision: String,
    },
    /// File events are not available.
    #[error("cannot watch {}", .path.display())]
    Watch {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: notify::Error,
    },
}

/// A limit of a process that works on objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhaustion {
    /// Memory, in MiB.
    Memory(u64),
    /// CPU time.
    Computing(Duration),
    /// Elapsed time.
    Elapsed(Duration),
}

/// Displays algorithms that a server offers.
struct Offered<'a>(&'a [&'static str]);

/// Displays a duration for people.
struct Seconds(Duration);

fn through(proxy: Option<&str>) -> String {
    proxy.map(|proxy| format!(" through the proxy {proxy}")).unwrap_or_default()
}

fn asked_to_wait(retry_after: Option<Duration>) -> String {
    retry_after.map(|wait| format!(" and asks to wait {}", Seconds(wait))).unwrap_or_default()
}

/// What to do about an HTTP status.
fn advice(status: u16, retry_after: Option<Duration>) -> String {
    if retry_after.is_some() {
        return asked_to_wait(retry_after);
    }
    let text = match status {
        400..=406 | 410..=428 | 430..=499 => ": check the URL, and what is between Tidegate and the git server",
        407 => ": a proxy requires credentials; Tidegate needs a direct connection to the git server",
        429 => ": it limits the rate of requests; set a longer spec.interval",
        408 | 500..=599 => ": the git server or a proxy before it has a problem; Tidegate tries again",
        _ => ": this is not an answer of a git server; check the URL",
    };
    text.to_owned()
}

// === impl Error ===

impl Error {
    /// One step of a history changes too many guarded paths.
    pub(super) fn too_many_paths() -> Error {
        Error::History { what: "guarded paths change at once", limit: EVIDENCE_PATHS_MAX }
    }

    /// A history takes too long to judge.
    pub(super) fn too_much_history() -> Error {
        Error::History { what: "entries of folders must be compared", limit: EVIDENCE_STEPS_MAX }
    }

    /// What resolves the failure.
    pub fn class(&self) -> Class {
        match self {
            Error::StateInUse { .. }
            | Error::State { .. }
            | Error::Damaged { .. }
            | Error::Busy { .. }
            | Error::Thread
            | Error::Deadline { .. }
            | Error::Connect { .. }
            | Error::Proxy { .. }
            | Error::Answer { .. }
            | Error::Refused { .. }
            | Error::Engine { .. }
            | Error::Memory
            | Error::Path { .. }
            | Error::Missing { .. } => Class::Transient,
            Error::Status { retry_after: Some(_), .. } => Class::Transient,
            Error::GitHubApp { why: AppProblem::Rate { .. } | AppProblem::Server { .. }, .. } => Class::Transient,
            Error::Status { status, .. } if matches!(*status, 408 | 429) || 500 <= *status => Class::Transient,
            Error::Status { .. }
            | Error::GitHubApp { .. }
            | Error::Certificate { .. }
            | Error::Authorities
            | Error::ClientCertificate { .. }
            | Error::Credentials { .. }
            | Error::CredentialsOverHttp { .. }
            | Error::Identity { .. }
            | Error::KnownHosts { .. }
            | Error::HostKey { .. }
            | Error::Algorithms { .. }
            | Error::KeyRejected { .. }
            | Error::SecondFactor { .. }
            | Error::NoCommand { .. }
            | Error::Address { .. }
            | Error::Authentication { .. }
            | Error::Forbidden { .. }
            | Error::NoRepository { .. }
            | Error::Empty { .. }
            | Error::NoReference { .. }
            | Error::NoCommit { .. }
            | Error::Redirect { .. }
            | Error::NotGit { .. }
            | Error::TooMuch { .. }
            | Error::Sha256 { .. }
            | Error::TooManyFiles { .. }
            | Error::TooDeep { .. }
            | Error::TooLong { .. }
            | Error::History { .. }
            | Error::Exhausted { .. }
            | Error::Unreadable { .. }
            | Error::PathIsLink { .. }
            | Error::NotARepository { .. }
            | Error::Repository { .. }
            | Error::NoRevision { .. }
            | Error::Watch { .. } => Class::Stalled,
        }
    }

    /// What the server says of it, cleaned: for the condition of the GitSource only.
    pub fn said(&self) -> Option<&ServerMessage> {
        self.answer().0
    }

    /// How long the server asks to wait before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        self.answer().1
    }

    /// What the server says of it, and how long it asks to wait.
    fn answer(&self) -> (Option<&ServerMessage>, Option<Duration>) {
        match self {
            Error::Status { said, retry_after, .. } | Error::GitHubApp { said, retry_after, .. } => {
                (said.as_ref(), *retry_after)
            }
            Error::Authentication { said, .. }
            | Error::Forbidden { said, .. }
            | Error::NoRepository { said, .. }
            | Error::Refused { said, .. } => (said.as_ref(), None),
            Error::StateInUse { .. }
            | Error::State { .. }
            | Error::Damaged { .. }
            | Error::Busy { .. }
            | Error::Thread
            | Error::Deadline { .. }
            | Error::Connect { .. }
            | Error::Proxy { .. }
            | Error::Certificate { .. }
            | Error::Authorities
            | Error::ClientCertificate { .. }
            | Error::Credentials { .. }
            | Error::CredentialsOverHttp { .. }
            | Error::Identity { .. }
            | Error::KnownHosts { .. }
            | Error::HostKey { .. }
            | Error::Algorithms { .. }
            | Error::KeyRejected { .. }
            | Error::SecondFactor { .. }
            | Error::NoCommand { .. }
            | Error::Address { .. }
            | Error::Empty { .. }
            | Error::NoReference { .. }
            | Error::NoCommit { .. }
            | Error::NoRevision { .. }
            | Error::Redirect { .. }
            | Error::NotGit { .. }
            | Error::Answer { .. }
            | Error::TooMuch { .. }
            | Error::TooManyFiles { .. }
            | Error::TooDeep { .. }
            | Error::TooLong { .. }
            | Error::History { .. }
            | Error::Exhausted { .. }
            | Error::Engine { .. }
            | Error::Memory
            | Error::Sha256 { .. }
            | Error::Missing { .. }
            | Error::NotARepository { .. }
            | Error::Unreadable { .. }
            | Error::Path { .. }
            | Error::PathIsLink { .. }
            | Error::Repository { .. }
            | Error::Watch { .. } => (None, None),
        }
    }

    /// One word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::StateInUse { .. } => "StateInUse",
            Error::State { .. } | Error::Thread => "StorageFailed",
            Error::Damaged { .. } | Error::Missing { .. } => "MirrorDamaged",
            Error::Busy { .. } | Error::Deadline { .. } => "Timeout",
            Error::Connect { .. } | Error::Proxy { .. } => "Unreachable",
            Error::Certificate { why: Distrust::ClientCertificate, .. } => "ClientCertificateRequired",
            Error::ClientCertificate { .. } => "ClientCertificateRequired",
            Error::Certificate { .. } | Error::Authorities => "CertificateNotTrusted",
            Error::Refused { .. } => "ServerError",
            Error::Empty { .. } => "RepositoryEmpty",
            Error::Status { status: 403 | 429, .. } => "RateLimited",
            Error::Status { status: 408 | 500..=599, .. } => "ServerError",
            Error::GitHubApp { why, .. } => why.reason(),
            Error::Credentials { .. }
            | Error::Authentication { .. }
            | Error::Identity { .. }
            | Error::KeyRejected { .. }
            | Error::SecondFactor { .. } => "AuthenticationFailed",
            Error::KnownHosts { .. } | Error::HostKey { .. } => "HostKeyNotTrusted",
            Error::Algorithms { .. } => "AlgorithmRefused",
            Error::CredentialsOverHttp { .. } => "CredentialsOverHttp",
            Error::Address { .. } => "AddressRefused",
            Error::Forbidden { .. } | Error::NoCommand { .. } => "AccessDenied",
            Error::NoRepository { .. } | Error::NotARepository { .. } => "RepositoryNotFound",
            Error::NoReference { .. } | Error::NoCommit { .. } | Error::NoRevision { .. } => "RevisionNotFound",
            Error::Redirect { .. } => "RedirectRefused",
            Error::Status { .. } | Error::NotGit { .. } | Error::Answer { .. } => "AnswerNotUnderstood",
            Error::TooMuch { .. }
            | Error::TooManyFiles { .. }
            | Error::TooDeep { .. }
            | Error::TooLong { .. }
            | Error::Exhausted { .. } => "LimitExceeded",
            Error::History { .. } => "HistoryNotJudged",
            Error::Engine { .. } | Error::Memory => "EngineFailed",
            Error::Sha256 { .. } => "ObjectFormatNotSupported",
            Error::Unreadable { .. }
            | Error::Path { .. }
            | Error::PathIsLink { .. }
            | Error::Repository { .. }
            | Error::Watch { .. } => "NotReadable",
        }
    }
}

// === impl Exhaustion ===

impl fmt::Display for Exhaustion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exhaustion::Memory(mib) => write!(
                f,
                "{mib} MiB of memory: remove large files from the history of the repository, or set a larger \
                 --git-memory"
            ),
            Exhaustion::Computing(time) => {
                write!(
                    f,
                    "{} of CPU time: run `git gc` on the git server, split the repository, or set a larger \
                     --git-cpu-time",
                    Seconds(*time)
                )
            }
            Exhaustion::Elapsed(time) => {
                write!(
                    f,
                    "{}: give Tidegate more CPU, split the repository, or set a larger --git-time",
                    Seconds(*time)
                )
            }
        }
    }
}

// === impl Offered ===

impl fmt::Display for Offered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str(": update the git server, or use an https:// URL"),
            names => write!(f, ", only {}: update the git server, or use an https:// URL", names.join(", ")),
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
