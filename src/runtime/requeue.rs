//! What a pass counts of a Kyma and of each Manifest, in Lifecycle Manager's words. Pure.

use tidegate_core::{
    api::{Manifest, shared::State},
    status::{Facts, Part},
};

use super::{
    manifest::{is_released, is_unmanaged},
    outcome::Failed,
};
use crate::metrics::requeue::{
    Reason,
    Requeue::{self, Intended, Unexpected},
};

/// The reason of an error that says that a runtime denies access.
const UNAUTHORIZED: &str = "Unauthorized";

/// What a pass over a Kyma counts. `before` is the state that its status had, `after` the state that it has.
pub(super) fn of_kyma(before: State, facts: &Facts, after: State) -> Vec<Requeue> {
    if facts.deleting.is_some() {
        // The steps of the removal count themselves.
        return Vec::new();
    }
    let failed = |part: &Part| matches!(part, Part::Failed(_));
    let parts = [
        (Reason::CrdsSync, Some(&facts.crds)),
        (Reason::Catalog, Some(&facts.catalog)),
        (Reason::Webhook, Some(&facts.webhook)),
        (Reason::ImagePullSecret, facts.pull_secret.as_ref()),
    ];
    let parts = parts.into_iter().filter(|(_, part)| part.is_some_and(failed)).map(|(reason, _)| Unexpected(reason));
    let failure = facts.failure.as_ref().map(|failure| {
        Unexpected(match (failure.access, failure.reason) {
            (true, UNAUTHORIZED) => Reason::KymaUnauthorized,
            (true, _) => Reason::Access,
            (false, _) => Reason::Manifests,
        })
    });
    let course = match (before, after) {
        (State::Unknown, _) => Some(Intended(Reason::InitialState)),
        (_, State::Processing) => Some(Intended(Reason::Processing)),
        (_, State::Error) if failure.is_none() => Some(Unexpected(Reason::Processing)),
        _ => None,
    };
    parts.chain(failure).chain(course).collect()
}

/// What a pass over a Manifest counts. `is_waiting` is whether its objects are still being read from a registry.
pub(super) fn of_manifest(before: &Manifest, after: &Manifest, is_waiting: bool) -> Requeue {
    if before.metadata.deletion_timestamp.is_some() {
        return Intended(match (is_released(after), is_unmanaged(after)) {
            (true, true) => Reason::ManifestLabels,
            (true, false) => Reason::ManifestFinished,
            (false, _) => Reason::ManifestPreDelete,
        });
    }
    if is_waiting {
        return Intended(Reason::ManifestRender);
    }
    match after.status.as_ref().map(|status| status.state).unwrap_or_default() {
        State::Error | State::Warning => Unexpected(Reason::ManifestSync),
        State::Unknown | State::Processing => Intended(Reason::ManifestSyncWaits),
        State::Ready | State::Deleting | State::Unmanaged => Intended(Reason::ManifestFinished),
    }
}

/// What a pass counts of each Manifest if it has no access to the runtime.
pub(super) fn of_blocked_manifest(failed: &Failed) -> Requeue {
    Unexpected(if failed.reason == UNAUTHORIZED { Reason::ManifestUnauthorized } else { Reason::ManifestClient })
}

#[cfg(test)]
mod tests;
