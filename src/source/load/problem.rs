//! Why a source cannot be fetched or read, and what can help.

use std::time::Duration;

use tidegate_cluster as cluster;
use tidegate_core::{name::Key, revision::Revision};
use tidegate_git as git;
use tidegate_process::retry::Class;
use tidegate_signature::Refusal;

use super::{decide, share::NoRoom, token_file::TokenFileProblem};
use crate::{
    controller::{Failure, chain},
    source::state::{ReadFailure, Remedy, SeenSecret},
};

/// Why a source cannot be fetched or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    /// The URL is invalid.
    #[error("spec.url: {0}")]
    Url(git::ParseUrlError),
    /// The URL is a path on this machine.
    #[error("spec.url names a path on this machine, which the daemon allows only with --allow-local-sources")]
    Local,
    /// The Secret does not exist.
    #[error("Secret {0} does not exist")]
    NoSecret(Key),
    /// The Secret contains no valid credentials.
    #[error("Secret {secret} {what}")]
    Secret { secret: Key, what: &'static str, seen: SeenSecret },
    /// The Secret contains no valid proxy, or does not exist.
    #[error("Secret {secret} of spec.proxySecretRef {what}")]
    ProxySecret { secret: Key, what: String },
    /// A file with a token cannot be used.
    #[error("spec.bearerTokenFile {0}")]
    TokenFile(TokenFileProblem),
    /// The API server did not return the Secret.
    #[error("cannot read Secret {secret}: {error}")]
    SecretRead { secret: Key, error: Box<cluster::Error> },
    /// The git server rejected the credentials, or has an unknown CA.
    #[error("{error}")]
    Access { error: git::Error, seen: Box<SeenSecret> },
    /// The Secret with the trusted keys cannot be used.
    #[error("Secret {secret} with the trusted keys {what}")]
    Keys { secret: Key, what: String, seen: SeenSecret },
    /// The revision is not signed as the GitSource asks for.
    #[error("{revision} is not used: {refusal}")]
    Unverified { revision: Revision, refusal: Box<Refusal>, seen: SeenSecret },
    /// The branch was rewritten.
    #[error("{reference} was rewritten: {found} does not follow {before}; to accept it, set spec.allowRewrite")]
    Rewritten { reference: String, found: Revision, before: String },
    /// The fetch failed, or the mirror.
    #[error(transparent)]
    Git(git::Error),
    /// The fetch failed, and this about its Secrets may be why.
    #[error("{problem}; {note}")]
    WithNote { problem: Box<Problem>, note: String },
    /// All sources together need too much memory.
    #[error(transparent)]
    TooLarge(NoRoom),
    /// The revision cannot be checked in time.
    #[error(
        "{revision} cannot be checked in what the fetch leaves of spec.timeout, which is {} s: set a longer \
         spec.timeout, or name folders without definitions in spec.ignore; the same commit is checked again after an \
         hour",
        limit.as_secs()
    )]
    CheckTime { revision: Revision, limit: Duration },
    /// The thread that read the revision ended without a result.
    #[error("reading {0} was interrupted")]
    Interrupted(Revision),
    /// The status must be written before the revision becomes active, and was not.
    #[error("cannot record in the status that the branch was rewritten: {}", .0.error)]
    Unrecorded(Failure),
}

// === impl Problem ===

impl Problem {
    /// The problem with these notes, if there are any.
    pub(super) fn with_notes(self, notes: &[String]) -> Problem {
        if notes.is_empty() {
            return self;
        }
        Problem::WithNote { problem: Box::new(self), note: notes.join("; ") }
    }

    /// The failure, as it is kept until the next fetch.
    pub(super) fn failure(&self) -> ReadFailure {
        let asked_by_git = self.git().and_then(git::Error::retry_after);
        let remedy = match (asked_by_git, self) {
            (Some(_), _) => Remedy::Later,
            (None, Problem::Keys { seen, .. } | Problem::Unverified { seen, .. }) => Remedy::Keys(seen.clone()),
            (None, _) => decide::remedy(self.class(), self.seen_secret()),
        };
        let unverified = match self {
            Problem::Unverified { revision, .. } => Some(revision.clone()),
            _ => None,
        };
        let said = self.git().and_then(git::Error::said).map(ToString::to_string);
        let retry_after = asked_by_git.or_else(|| self.asked_by_kcp());
        ReadFailure { reason: self.reason(), message: chain(self), said, remedy, retry_after, unverified }
    }

    /// How long the control plane asks to wait.
    fn asked_by_kcp(&self) -> Option<Duration> {
        match self {
            Problem::SecretRead { error, .. } => error.retry_after(),
            Problem::WithNote { problem, .. } => problem.asked_by_kcp(),
            Problem::Unrecorded(failure) => failure.retry_after(),
            Problem::Url(_)
            | Problem::Local
            | Problem::NoSecret(_)
            | Problem::Secret { .. }
            | Problem::ProxySecret { .. }
            | Problem::TokenFile(_)
            | Problem::Keys { .. }
            | Problem::Unverified { .. }
            | Problem::Access { .. }
            | Problem::Rewritten { .. }
            | Problem::Git(_)
            | Problem::TooLarge(_)
            | Problem::CheckTime { .. }
            | Problem::Interrupted(_) => None,
        }
    }

    /// The error of the git server or of the mirror.
    fn git(&self) -> Option<&git::Error> {
        match self {
            Problem::Access { error, .. } | Problem::Git(error) => Some(error),
            Problem::WithNote { problem, .. } => problem.git(),
            Problem::Url(_)
            | Problem::Local
            | Problem::NoSecret(_)
            | Problem::Secret { .. }
            | Problem::ProxySecret { .. }
            | Problem::TokenFile(_)
            | Problem::SecretRead { .. }
            | Problem::Keys { .. }
            | Problem::Unverified { .. }
            | Problem::Rewritten { .. }
            | Problem::Interrupted(_)
            | Problem::TooLarge(_)
            | Problem::CheckTime { .. }
            | Problem::Unrecorded(_) => None,
        }
    }

    /// The Secret, if another version of it may help.
    pub(super) fn seen_secret(&self) -> Option<&SeenSecret> {
        match self {
            Problem::NoSecret(_) => Some(&SeenSecret(None)),
            Problem::Secret { seen, .. } => Some(seen),
            Problem::Access { seen, .. } => Some(&**seen),
            Problem::WithNote { problem, .. } => problem.seen_secret(),
            Problem::Url(_)
            | Problem::Local
            | Problem::ProxySecret { .. }
            | Problem::TokenFile(_)
            | Problem::SecretRead { .. }
            | Problem::Keys { .. }
            | Problem::Unverified { .. }
            | Problem::Rewritten { .. }
            | Problem::TooLarge(_)
            | Problem::CheckTime { .. }
            | Problem::Git(_)
            | Problem::Interrupted(_)
            | Problem::Unrecorded(_) => None,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Problem::Url(_) => "InvalidURL",
            Problem::Local => "LocalSourceRefused",
            Problem::NoSecret(_) => "SecretNotFound",
            Problem::Secret { .. } | Problem::ProxySecret { .. } => "SecretInvalid",
            Problem::TokenFile(problem) => problem.reason(),
            Problem::SecretRead { .. } => "SecretNotReadable",
            Problem::Keys { .. } => "KeysInvalid",
            Problem::Unverified { refusal, .. } => refusal.reason(),
            Problem::Rewritten { .. } => "Rewritten",
            Problem::TooLarge(_) | Problem::CheckTime { .. } => "LimitExceeded",
            Problem::Access { error, .. } | Problem::Git(error) => error.reason(),
            Problem::WithNote { problem, .. } => problem.reason(),
            Problem::Interrupted(_) => "Interrupted",
            Problem::Unrecorded(_) => "NotRecorded",
        }
    }

    fn class(&self) -> Class {
        match self {
            Problem::Url(_) | Problem::Local | Problem::CheckTime { .. } => Class::Stalled,
            // A user can solve these at any time, and no watch reports it.
            Problem::NoSecret(_)
            | Problem::Secret { .. }
            | Problem::ProxySecret { .. }
            | Problem::TokenFile(_)
            | Problem::Keys { .. }
            | Problem::Unverified { .. }
            | Problem::Rewritten { .. } => Class::Stalled,
            Problem::TooLarge(no_room) => no_room.class(),
            Problem::SecretRead { .. } | Problem::Interrupted(_) => Class::Transient,
            Problem::Access { error, .. } | Problem::Git(error) => error.class(),
            Problem::WithNote { problem, .. } => problem.class(),
            Problem::Unrecorded(failure) => failure.class,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_message_about_a_file_has_its_cause_once() {
        let source = io::Error::from_raw_os_error(28);
        let error = git::Error::State { operation: "write to", path: "/state/mirror".into(), source };
        let message = Problem::Git(error).failure().message;
        assert_eq!(message, "cannot write to /state/mirror: No space left on device (os error 28)");
    }
}
