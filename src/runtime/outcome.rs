//! How a pass over a runtime ends: access to it, what kept it from being worked on, and the status that says so.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;

use super::{KnownRuntime, RuntimePass, counterpart, is_newer, manifests};
use tidegate_cluster::{self as cluster, Cluster, Error, Kind};
use tidegate_core::{
    api::{
        Kyma, Manifest,
        kyma::{KymaStatus, ModuleStatus},
        names::{MANAGED_BY_KCP, finalizer, label},
        shared::State,
    },
    landscape,
    name::Key,
    status::{self, Facts},
    template,
};
use tidegate_process::{ambient, retry::Class};

use crate::{
    controller::{
        Context, Failure, Pass,
        events::{Severity, reason},
        status_body,
    },
    queue::Finish,
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
        let metadata = &self.kyma.metadata;
        let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
        let before = finalizers.len();
        finalizers.retain(|name| name != finalizer::KYMA_PURGE);
        if !finalizers.iter().any(|name| name == finalizer::KYMA) {
            finalizers.push(finalizer::KYMA.to_owned());
        }
        let labelled = landscape::label(metadata, label::MANAGED_BY) == Some(MANAGED_BY_KCP);
        if labelled && finalizers.len() == before && metadata.finalizers.as_ref() == Some(&finalizers) {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "labels": {label::MANAGED_BY: MANAGED_BY_KCP},
            "finalizers": finalizers,
            "resourceVersion": metadata.resource_version,
        }});
        let kind = Kind::namespaced::<Kyma>();
        self.context
            .kcp
            .merge_patch(self.cause, &kind, &kind.id(self.key), None, Bytes::from(patch.to_string()))
            .await
            .map(drop)
    }

    /// Says in the status why nothing could be done.
    pub(super) async fn failed(&self, failed: Failed, manifests: &[Arc<Manifest>], memory: &mut KnownRuntime) -> Pass {
        let facts = Facts {
            modules: manifests::as_they_are(self, manifests, &failed.message),
            failure: Some(status::Failure {
                reason: failed.reason,
                message: failed.message.clone(),
                access: failed.kind.is_access(),
            }),
            ..Facts::default()
        };
        // What we could not do we may at least say, unless KCP itself is the trouble.
        self.write_status(&facts, memory).await.map_err(kcp_failure)?;
        match failed.kind {
            FailedKind::NoAccess | FailedKind::BadAccess => Ok(Finish::Deferred),
            FailedKind::Wrong | FailedKind::Unreachable | FailedKind::Stale => {
                Err(Failure::new(failed.class, failed.reason, failed.message))
            }
        }
    }

    /// Writes the status of the Kyma, and its copy in the runtime, where they differ.
    pub(super) async fn conclude(
        &self,
        facts: &Facts,
        cluster: &Cluster,
        memory: &mut KnownRuntime,
    ) -> Result<(), Failure> {
        let status = self.write_status(facts, memory).await.map_err(kcp_failure)?;
        match counterpart::show(self, cluster, &status, &mut memory.counterpart).await {
            Ok(()) => Ok(()),
            // The Kyma in the runtime is gone, or its definition is, as at the end of a deletion.
            Err(Error::NotFound { .. } | Error::NotServed { .. }) => {
                memory.counterpart = None;
                Ok(())
            }
            Err(error) => Err(Failure::new(error.class(), error.reason(), error)),
        }
    }

    pub(super) async fn write_status(
        &self,
        facts: &Facts,
        memory: &mut KnownRuntime,
    ) -> Result<KymaStatus, cluster::Error> {
        let kyma = self.with_latest_status(memory);
        // What is said is true from now on: a pass may have begun before what it tells of existed.
        let next = status::kyma(&kyma, facts, ambient::now());
        if kyma.status.as_ref() == Some(&next) {
            return Ok(next);
        }
        self.tell_changes(kyma.status.as_ref(), &next, facts);
        let kind = Kind::namespaced::<Kyma>();
        let body = status_body("Kyma", self.key, &next);
        let metadata = self.context.kcp.apply_status(self.cause, &kind, &kind.id(self.key), body).await?;
        memory.status = Some((metadata.resource_version, next.clone()));
        Ok(next)
    }

    /// Tells whoever looks at the Kyma, and the log, what has come to be wrong.
    fn tell_changes(&self, before: Option<&KymaStatus>, next: &KymaStatus, facts: &Facts) {
        let said = before.and_then(|status| status.last_operation.as_ref()).map(|last| last.operation.as_str());
        if let Some(failure) = facts.failure.as_ref().filter(|failure| said != Some(failure.message.as_str())) {
            tracing::warn!(kyma = %self.key, reason = failure.reason, error = failure.message, "a runtime cannot be worked on");
            let reason = if failure.access { reason::UNREACHABLE } else { reason::RUNTIME_FAILED };
            self.tell(Severity::Warning, reason, "Reconcile", failure.message.clone());
            return;
        }
        let is_wrong = |module: &&ModuleStatus| matches!(module.state, State::Error | State::Warning);
        for module in next.modules.iter().filter(is_wrong) {
            let former = before.and_then(|status| status.modules.iter().find(|former| former.name == module.name));
            let is_known =
                former.is_some_and(|former| former.state == module.state && former.message == module.message);
            if !is_known {
                let message = module.message.as_deref().unwrap_or("it does not say why");
                tracing::warn!(kyma = %self.key, module = module.name, error = message, "a module is not well");
                let note = format!("module {}: {message}", module.name);
                self.tell(Severity::Warning, reason::MODULE_FAILED, "Reconcile", note);
            }
        }
    }

    /// The Kyma with the status that we wrote last, where the watch still shows an older one.
    fn with_latest_status(&self, memory: &KnownRuntime) -> Kyma {
        let mut kyma = Kyma::clone(self.kyma);
        if let Some((resource_version, status)) = &memory.status
            && is_newer(&Some(resource_version.clone()), &kyma.metadata.resource_version)
        {
            kyma.status = Some(status.clone());
        }
        kyma
    }
}

fn kcp_failure(error: Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}
