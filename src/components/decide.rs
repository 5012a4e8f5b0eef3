//! When a failed read from a registry is retried, and the messages about it. Pure.

use std::time::Duration;

use tidegate_core::{component::Component, diagnostic::Diagnostic};
use tidegate_oci as oci;
use tidegate_process::retry::{self, Class};

use super::state::Moved;
use crate::controller::{self, events::Severity};

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// One sentence, in the words of Lifecycle Manager where it has some.
    pub(super) message: String,
    /// What resolves it.
    pub(super) class: Class,
    /// How long the registry asks to wait.
    pub(super) retry_after: Option<Duration>,
    /// Whether it concerns everything in the registry.
    pub(super) is_of_host: bool,
}

/// Why there is no access to a registry at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoAccess(pub(super) String);

/// How often what only a change can resolve is tried again. The change may be one in the registry, which nothing
/// reports.
const RETRY_STALLED: Duration = Duration::from_secs(300);

/// How long to wait after `attempt` failures in a row.
pub(super) fn delay(failure: &Failure, attempt: u32, fraction: f64) -> Duration {
    let delay = retry::jittered(retry::delay(failure.class, attempt, RETRY_STALLED), fraction);
    failure.retry_after.map_or(delay, |asked| retry::at_least(delay, asked))
}

/// A component cannot be found. The text follows `error finding ComponentDescriptor: `.
pub(super) fn not_found(component: &Component, error: &oci::Error) -> Failure {
    let message = match error {
        // Lifecycle Manager says this of a descriptor that it has.
        oci::Error::Descriptor { .. } => controller::chain(error),
        _ => no_config(component, &controller::chain(error)),
    };
    failure(message, error)
}

/// The same, without access to the registry.
pub(super) fn not_found_without_access(component: &Component, NoAccess(why): &NoAccess) -> Failure {
    without_access(no_config(component, why))
}

/// A layer cannot be read.
pub(super) fn not_pulled(error: &oci::Error) -> Failure {
    let error_text = controller::chain(error);
    failure(
        format!("failed to extract raw manifest from layer digest: failed to pull layer due to: {error_text}"),
        error,
    )
}

/// The same, without access to the registry.
pub(super) fn not_pulled_without_access(NoAccess(why): &NoAccess) -> Failure {
    without_access(why.clone())
}

/// The objects in a layer are invalid.
pub(super) fn not_parsed(problem: &Diagnostic) -> Failure {
    let message = format!("failed to parse manifest objects: {problem}");
    Failure { message, class: Class::Stalled, retry_after: None, is_of_host: false }
}

/// Work on a blocking thread ended without a result.
pub(super) fn not_done() -> Failure {
    let message = "failed to parse manifest objects: the work did not finish".to_owned();
    Failure { message, class: Class::Transient, retry_after: None, is_of_host: false }
}

/// Whether a read failed only because the registry is away: it does not answer, or says that it cannot.
pub(super) fn is_away(failure: &Failure) -> bool {
    failure.is_of_host && failure.class == Class::Transient
}

/// The Event about a moved tag.
pub(super) fn moved_note(moved: &Moved) -> (Severity, String) {
    let Moved { component, installed, found, .. } = moved;
    let note = format!(
        "the tag of {component} was moved from {installed} to {found}; what is installed stays until a user annotates \
         its Kyma with tidegate.dev/reconcile-requested-at"
    );
    (Severity::Warning, note)
}

fn no_config(component: &Component, why: &str) -> String {
    let (name, version) = (&component.name, &component.version);
    format!("failed to get config file for ocm artifact with name=\"{name}\" and version=\"{version}\": {why}")
}

fn without_access(message: String) -> Failure {
    Failure { message, class: Class::Stalled, retry_after: None, is_of_host: false }
}

fn failure(message: String, error: &oci::Error) -> Failure {
    Failure { message, class: error.class(), retry_after: error.retry_after(), is_of_host: is_of_host(error) }
}

/// Whether everything else that the registry is asked for would fail as well.
fn is_of_host(error: &oci::Error) -> bool {
    match error {
        oci::Error::Deadline { .. }
        | oci::Error::Connect { .. }
        | oci::Error::Certificate { .. }
        | oci::Error::Authorities
        | oci::Error::SystemAuthorities
        | oci::Error::Credentials { .. }
        | oci::Error::CredentialsOverHttp { .. }
        | oci::Error::Address { .. }
        | oci::Error::Authentication { .. }
        | oci::Error::Challenge { .. }
        | oci::Error::Realm { .. } => true,
        oci::Error::Status { status, retry_after, .. } => {
            retry_after.is_some() || matches!(status, 408 | 429) || 500 <= *status
        }
        oci::Error::Forbidden { .. }
        | oci::Error::NotFound { .. }
        | oci::Error::Redirect { .. }
        | oci::Error::Answer { .. }
        | oci::Error::TooMuch { .. }
        | oci::Error::Digest { .. }
        | oci::Error::NotADescriptor { .. }
        | oci::Error::Descriptor { .. }
        | oci::Error::Unpack { .. }
        | oci::Error::Exhausted { .. }
        | oci::Error::Unpacker { .. }
        | oci::Error::Quota { .. }
        | oci::Error::Cache { .. }
        | oci::Error::Thread => false,
    }
}

#[cfg(test)]
mod tests;
