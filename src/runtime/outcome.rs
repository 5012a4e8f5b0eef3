//! Access to a runtime, why a pass over it failed, and the status of its Kyma.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    RuntimeContext, RuntimePass, counterpart,
    decide::{self, News},
    latest_manifests, manifest,
    progress::Progress,
    requeue,
    state::{AccessVersion, KnownRuntime, WrittenStatus},
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
    controller::{Failure, Pass, events::Severity, status_body},
    metrics::requeue::{Reason, Requeue},
    stores::Access,
};

/// Why a pass over a runtime failed.
#[derive(Debug)]
pub(super) struct Failed {
    /// One word in PascalCase.
    pub(super) reason: &'static str,
    /// One sentence.
    pub(super) message: String,
    /// What resolves it.
    pub(super) class: Class,
    /// What it says about the runtime.
    pub(super) kind: FailedKind,
}

/// What a failure says about the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailedKind {
    /// An object in it, or in KCP, cannot be applied.
    Wrong,
    /// It is unreachable, or denies access.
    Unreachable,
    /// It has no access Secret. A retry cannot help; a new Secret wakes the runtime.
    NoAccess,
    /// Its access Secrets are ambiguous or invalid. A retry cannot help; a change of the Secrets wakes the runtime.
    BadAccess,
    /// Nothing. The write was based on an outdated version of an object.
    Stale,
}

/// The runtime cannot be reached. The log has it by its cause, and not once for each pass.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotReached(pub(super) String);

// === impl FailedKind ===

impl FailedKind {
    /// Whether the runtime is unreachable or denies access.
    pub(super) fn is_access(self) -> bool {
        match self {
            FailedKind::Unreachable | FailedKind::NoAccess | FailedKind::BadAccess => true,
            FailedKind::Wrong | FailedKind::Stale => false,
        }
    }
}

// === impl Failed ===

impl Failed {
    /// The runtime did not return its Kyma. If it denies that, it denies access.
    pub(super) fn of_runtime(error: Error) -> Failed {
        match error {
            Error::Forbidden { .. } => Failed { kind: FailedKind::Unreachable, ..Failed::from(error) },
            error => Failed::from(error),
        }
    }

    /// A template did not produce a valid Manifest.
    #[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
    pub(super) fn unreadable(error: serde_json::Error) -> Failed {
        Failed {
            reason: "RenderFailed",
            message: format!("template kcp/manifest.yaml did not produce a valid Manifest: {error}"),
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
            Error::Access { .. } => FailedKind::BadAccess,
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

/// The client of a runtime. Fails without exactly one valid access Secret, or if a request for it fails.
pub(super) async fn access(context: RuntimeContext<'_>, key: &Key) -> Result<Arc<Cluster>, Failed> {
    versioned_access(context, key).await.map(|(cluster, _)| cluster)
}

/// The same, with the version of the access Secret.
pub(in crate::runtime) async fn versioned_access(
    context: RuntimeContext<'_>,
    key: &Key,
) -> Result<(Arc<Cluster>, AccessVersion), Failed> {
    let refused = |reason, kind, message: String| Failed { reason, message, class: Class::Stalled, kind };
    match context.stores.access(key) {
        Access::Missing => Err(refused(
            "NoAccessSecret",
            FailedKind::NoAccess,
            format!(
                "no access Secret: create one in namespace {} with label {}={}",
                key.namespace(),
                label::KYMA_NAME,
                key.name()
            ),
        )),
        Access::Ambiguous(secrets) => Err(refused(
            "AmbiguousAccessSecret",
            FailedKind::BadAccess,
            format!(
                "several access Secrets have the label {}={}: {}; remove all but one",
                label::KYMA_NAME,
                key.name(),
                secrets.join(", ")
            ),
        )),
        Access::Unreadable(message) => Err(refused("UnreadableAccessSecret", FailedKind::BadAccess, message)),
        Access::One { secret, resource_version } => {
            let cluster = context.pool.cluster(key, &secret, &resource_version).await?;
            Ok((cluster, AccessVersion { secret, resource_version }))
        }
    }
}

// === impl RuntimePass ===

impl RuntimePass<'_> {
    /// Adds our finalizer and label to the Kyma in KCP. It must have the finalizer before Tidegate installs anything.
    ///
    /// # Errors
    ///
    /// The error of the request.
    pub(super) async fn take_charge(&self) -> Result<(), Error> {
        let Some(patch) = decide::charge_patch(self.kyma) else { return Ok(()) };
        let kind = Kind::namespaced::<Kyma>();
        self.context
            .kcp
            .merge_patch(self.cause, &kind, &kind.id(self.key), None, Bytes::from(patch.to_string()))
            .await?;
        self.count(Requeue::Intended(Reason::LabelsAndFinalizers));
        Ok(())
    }

    /// Writes to the status why the pass failed. Fails with that failure, or with the error of the request.
    pub(super) async fn failed(&self, failed: Failed, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
        if let Some(facts) = decide::failed_facts(self.kyma, manifests, &failed) {
            // If KCP is the problem, this write fails as well.
            self.write_status(&facts, known).await.map_err(kcp_failure)?;
        }
        if decide::concerns_manifests(&failed) {
            self.tell_unreached(&failed);
            self.context.stores.rollouts(|index| index.set_reachable(self.key, false));
            let abandoned = self.abandon_mandatory(&failed, manifests).await.map_err(kcp_failure)?;
            self.block_manifests(&failed, &abandoned, known).await.map_err(kcp_failure)?;
        }
        decide::failed_finish(failed)
    }

    /// Says that the runtime cannot be reached, unless the log has its cause.
    fn tell_unreached(&self, failed: &Failed) {
        // All passes fail while the control plane is away, and the log has one line about that.
        if self.context.kcp.outage().is_some() {
            return;
        }
        let (reason, error) = (failed.reason, &failed.message);
        match self.context.shared.unreached.lock().add(self.key, reason) {
            Some(runtimes) => tracing::warn!(kyma = %self.key, reason, error, runtimes, "a runtime cannot be reached"),
            None => tracing::debug!(kyma = %self.key, reason, error, "a runtime cannot be reached"),
        }
    }

    /// Ends the Manifests of mandatory modules that are removed from all runtimes, if this one has no access Secret: a
    /// runtime that Tidegate cannot reach does not hold the deletion of a ModuleReleaseMeta. Returns them.
    async fn abandon_mandatory(
        &self,
        failed: &Failed,
        manifests: &[Arc<Manifest>],
    ) -> Result<Vec<Arc<Manifest>>, Error> {
        let ended = decide::to_abandon(failed, self.landscape, self.key.namespace(), manifests);
        for manifest in &ended {
            manifest::end(self.context.kcp, self.cause, manifest).await?;
        }
        Ok(ended)
    }

    /// Writes into the status of each Manifest why the runtime cannot be accessed. Before it failed, the pass may have
    /// written an inventory that the watch does not show yet: a status without it would lose objects.
    async fn block_manifests(
        &self,
        failed: &Failed,
        abandoned: &[Arc<Manifest>],
        known: &mut KnownRuntime,
    ) -> Result<(), Error> {
        let is_left = |manifest: &Arc<Manifest>| {
            !abandoned.iter().any(|abandoned| abandoned.metadata.uid == manifest.metadata.uid)
        };
        for manifest in latest_manifests(self.context, self.key, known).await?.into_iter().filter(is_left) {
            self.count(requeue::of_blocked_manifest(failed));
            let blocked = manifest::block(self.context.kcp, self.cause, &manifest, &failed.message).await?;
            known.writes.written(&blocked, Instant::now());
        }
        Ok(())
    }

    /// Writes the status of the Kyma and its copy in the runtime, if they differ. Fails with the error of a request.
    pub(super) async fn conclude(
        &self,
        facts: &Facts,
        cluster: &Cluster,
        known: &mut KnownRuntime,
    ) -> Result<(), Failure> {
        let status = self.write_status(facts, known).await.map_err(kcp_failure)?;
        counterpart::show(self, cluster, &status, &mut known.counterpart).await.map_err(|error| {
            self.count(Requeue::Unexpected(Reason::RemoteStatus));
            kcp_failure(error)
        })
    }

    /// Writes the status of the Kyma if it differs, and reports new problems. Fails with the error of the request.
    pub(super) async fn write_status(&self, facts: &Facts, known: &mut KnownRuntime) -> Result<KymaStatus, Error> {
        let kyma = WrittenStatus::latest(known.status.as_ref(), self.kyma);
        let former = decide::continued(kyma.clone(), known.counterpart.live().map(|live| &**live));
        // The time is that of this moment: the pass may have begun before its findings came to be.
        let next = status::kyma(&former, facts, ambient::now());
        let before = former.status.as_ref().map(|status| status.state).unwrap_or_default();
        requeue::of_kyma(before, facts, next.state).into_iter().for_each(|requeue| self.count(requeue));
        if kyma.status.as_ref() == Some(&next) {
            return Ok(next);
        }
        for news in decide::news(kyma.status.as_ref(), &next, facts) {
            self.report(&news);
        }
        let before = former.status.clone().unwrap_or_default();
        for Progress { reason, note } in known.progress.news(&before, &next) {
            tracing::info!(kyma = %self.key, reason, note, "the modules of a runtime have changed");
            self.publish(Severity::Normal, reason, "Reconcile", note);
        }
        let kind = Kind::namespaced::<Kyma>();
        let body = status_body("Kyma", self.key, &next);
        let metadata = self.context.kcp.apply_status(self.cause, &kind, &kind.id(self.key), body).await?;
        known.status = Some(WrittenStatus { resource_version: metadata.resource_version, status: next.clone() });
        Ok(next)
    }

    /// Reports a new problem in the log and by an Event about the Kyma.
    fn report(&self, news: &News<'_>) {
        match news {
            // The log has it by its cause.
            News::Runtime(failure) if failure.access => {}
            News::Runtime(failure) => {
                let (reason, error) = (failure.reason, &failure.message);
                tracing::warn!(kyma = %self.key, reason, error, "runtime cannot be reconciled");
            }
            News::Refused { name, message, hint: _ } => {
                tracing::warn!(kyma = %self.key, module = name, error = message, "module is not installed as requested");
            }
            News::Module { name, message, hint: _ } => {
                tracing::warn!(kyma = %self.key, module = name, error = message, "module is unhealthy");
            }
            News::Mandatory(message) => {
                tracing::warn!(kyma = %self.key, error = message, "mandatory module is unhealthy");
            }
            News::Held { name, hint } => {
                tracing::warn!(kyma = %self.key, module = name, hint, "the removal of a module waits for users");
            }
        }
        let (severity, reason, note) = news.event();
        self.publish(severity, reason, "Reconcile", note);
    }
}

/// Notes that a runtime can be reached, or need not be.
pub(super) fn tell_reached(context: RuntimeContext<'_>, key: &Key) {
    for reason in context.shared.unreached.lock().remove(key) {
        tracing::info!(kyma = %key, reason, "all runtimes of this cause can be reached again, or need not be");
    }
}

/// A failure of the control plane.
pub(super) fn kcp_failure(error: Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}
