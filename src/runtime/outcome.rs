//! How a pass over a runtime ends: access to it, what kept it from being worked on, and the status that says so.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    RuntimePass, counterpart,
    decide::{self, News},
    state::{KnownRuntime, WrittenStatus},
};
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    api::{Kyma, Manifest, kyma::KymaStatus, names::label},
    name::Key,
    status::{self, Facts},
    template,
};
use tidegate_process::{ambient, retry::Class};

use crate::{
    controller::{Context, Failure, Pass, status_body},
    stores::Access,
};

/// What kept a runtime from being worked on.
#[derive(Debug)]
pub(super) struct Failed {
    /// One word in PascalCase.
    pub(super) reason: &'static str,
    /// One sentence.
    pub(super) message: String,
    /// What can help.
    pub(super) class: Class,
    /// What it says of the runtime.
    pub(super) kind: FailedKind,
}

/// What a failure says of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedKind {
    /// Something in it, or about it, is not as it should be.
    Wrong,
    /// It cannot be reached or entered.
    Unreachable,
    /// Nothing names a way to it: there is nothing to try until something changes that wakes us.
    NoAccess,
    /// The access Secrets make no sense: likewise.
    BadAccess,
    /// Nothing: what we wrote was based on an older state than the API server's.
    Stale,
}

// === impl FailedKind ===

impl FailedKind {
    /// Whether the runtime cannot be reached or entered.
    pub(super) fn is_access(self) -> bool {
        match self {
            FailedKind::Unreachable | FailedKind::NoAccess | FailedKind::BadAccess => true,
            FailedKind::Wrong | FailedKind::Stale => false,
        }
    }
}

// === impl Failed ===

impl Failed {
    /// A value of ours that does not read as what it is.
    #[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
    pub(super) fn unreadable(error: serde_json::Error) -> Failed {
        Failed {
            reason: "RenderFailed",
            message: format!("a rendered Manifest is not one: {error}; mend the template"),
            class: Class::Stalled,
            kind: FailedKind::Wrong,
        }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let kind = match &error {
            Error::Changed { .. } => FailedKind::Stale,
            Error::Unauthorized { .. } => FailedKind::Unreachable,
            error if error.is_unreachable() => FailedKind::Unreachable,
            _ => FailedKind::Wrong,
        };
        Failed { reason: error.reason(), message: error.to_string(), class: error.class(), kind }
    }
}

impl From<template::Error> for Failed {
    fn from(error: template::Error) -> Failed {
        Failed { reason: "RenderFailed", message: error.to_string(), class: Class::Stalled, kind: FailedKind::Wrong }
    }
}

/// The client for a runtime, or why there is none.
pub(super) async fn access(context: &Context, key: &Key) -> Result<Arc<Cluster>, Failed> {
    let refused = |reason, kind, message: String| Failed { reason, message, class: Class::Stalled, kind };
    match context.stores.access(key) {
        Access::Missing => Err(refused(
            "NoAccessSecret",
            FailedKind::NoAccess,
            format!(
                "no access Secret: there is none in namespace {} with label {}={}",
                key.namespace(),
                label::KYMA_NAME,
                key.name()
            ),
        )),
        Access::Ambiguous(secrets) => Err(refused(
            "AmbiguousAccessSecret",
            FailedKind::BadAccess,
            format!(
                "more than one access Secret bears label {}={}: {}; remove all but one",
                label::KYMA_NAME,
                key.name(),
                secrets.join(", ")
            ),
        )),
        Access::One { secret, resource_version } => Ok(context.pool.cluster(key, &secret, &resource_version).await?),
    }
}

// === impl RuntimePass ===

impl RuntimePass<'_> {
    /// Sees to it that the Kyma in KCP bears our finalizer and label before anything exists that it must outlive.
    pub(super) async fn take_charge(&self) -> Result<(), Error> {
        let Some(patch) = decide::charge_patch(self.kyma) else { return Ok(()) };
        let kind = Kind::namespaced::<Kyma>();
        self.context
            .kcp
            .merge_patch(self.cause, &kind, &kind.id(self.key), None, Bytes::from(patch.to_string()))
            .await
            .map(drop)
    }

    /// Says in the status why nothing could be done.
    pub(super) async fn failed(&self, failed: Failed, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
        if let Some(facts) = decide::failed_facts(self.kyma, manifests, &failed) {
            // What we could not do we may at least say, unless KCP itself is the trouble.
            self.write_status(&facts, known).await.map_err(kcp_failure)?;
        }
        decide::failed_finish(failed)
    }

    /// Writes the status of the Kyma, and its copy in the runtime, where they differ.
    pub(super) async fn conclude(
        &self,
        facts: &Facts,
        cluster: &Cluster,
        known: &mut KnownRuntime,
    ) -> Result<(), Failure> {
        let status = self.write_status(facts, known).await.map_err(kcp_failure)?;
        counterpart::show(self, cluster, &status, &mut known.counterpart).await.map_err(kcp_failure)
    }

    pub(super) async fn write_status(&self, facts: &Facts, known: &mut KnownRuntime) -> Result<KymaStatus, Error> {
        let kyma = WrittenStatus::latest(known.status.as_ref(), self.kyma);
        // What is said is true from now on: a pass may have begun before what it tells of existed.
        let next = status::kyma(&kyma, facts, ambient::now());
        if kyma.status.as_ref() == Some(&next) {
            return Ok(next);
        }
        for news in decide::news(kyma.status.as_ref(), &next, facts) {
            self.tell_news(&news);
        }
        let kind = Kind::namespaced::<Kyma>();
        let body = status_body("Kyma", self.key, &next);
        let metadata = self.context.kcp.apply_status(self.cause, &kind, &kind.id(self.key), body).await?;
        known.status = Some(WrittenStatus { resource_version: metadata.resource_version, status: next.clone() });
        Ok(next)
    }

    /// Tells whoever looks at the Kyma, and the log, what has come to be wrong.
    fn tell_news(&self, news: &News<'_>) {
        match news {
            News::Runtime(failure) => {
                tracing::warn!(kyma = %self.key, reason = failure.reason, error = failure.message, "a runtime cannot be worked on");
            }
            News::Module { name, message } => {
                tracing::warn!(kyma = %self.key, module = name, error = message, "a module is not well");
            }
        }
        let (severity, reason, note) = news.event();
        self.tell(severity, reason, "Reconcile", note);
    }
}

fn kcp_failure(error: Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}
