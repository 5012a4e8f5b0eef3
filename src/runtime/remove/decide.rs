//! What a removal of a runtime deletes next, and what it waits for. Pure.
//!
//! The reasons of Events are Lifecycle Manager's.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        KYMA_GROUP, KYMA_VERSION, Kyma, Manifest,
        names::{MANAGED_BY_SKR, SKR_KYMA, SKR_NAMESPACE, annotation, finalizer, label},
        shared::State,
    },
    landscape,
    name::Key,
    object::Gvk,
    status::{self, Facts, ModuleFact, Planned},
};
use tidegate_process::retry::Class;

use crate::{
    metrics::requeue::{Reason, Requeue},
    runtime::{
        manifest, manifests,
        outcome::{Failed, FailedKind},
    },
};

/// What a pass over a Kyma that is being deleted is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing: Tidegate never reconciled it, or has removed the runtime.
    Gone,
    /// It removes the runtime.
    Remove,
}

/// What to do without access to the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAccess {
    /// Drop the finalizers: the runtime is unreachable for good.
    Abandon,
    /// Wait: the status of the Kyma says why.
    Wait,
}

/// An object that every runtime has and that a removal deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseObject {
    /// Its kind.
    pub(super) gvk: Gvk,
    /// Its namespace and name.
    pub(super) key: Key,
    /// The step that deletes it.
    pub(super) step: Step,
    /// The message until it is gone.
    pub(super) waiting: String,
}

/// What to do about one such object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate<'a> {
    /// Nothing: it is gone or has another owner.
    Gone,
    /// Wait: it is being deleted.
    Wait,
    /// Delete it.
    Delete(&'a Metadata),
}

/// The progress of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// An object still exists. Contains the message.
    Wait(String),
    /// Only Manifests still exist. Contains the message.
    WaitForManifests(String),
    /// Everything is gone.
    Gone,
}

/// A step of the removal, in Lifecycle Manager's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The state of the Kyma becomes Deleting.
    KymaState,
    /// The state of the Kyma in the runtime becomes Deleting.
    RuntimeKymaState,
    /// The Manifests are deleted.
    Manifests,
    /// The certificate of the runtime is deleted.
    Certificate,
    /// What reports changes is deleted in the runtime.
    Webhook,
    /// The CRD of ModuleTemplates is deleted in the runtime.
    TemplateCrd,
    /// The CRD of ModuleReleaseMetas is deleted in the runtime.
    ReleaseCrd,
    /// The Kyma in the runtime is deleted.
    RuntimeKyma,
    /// The CRD of Kymas is deleted in the runtime.
    KymaCrd,
    /// The removal waits for the last Manifests.
    LastManifests,
    /// The finalizer is dropped.
    Finalizer,
}

/// A removal that has waited this long for the same thing is reported: every step of Tidegate itself takes seconds.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(300);

/// The message while Manifests exist that have none.
const WAITING_FOR_MODULES: &str = "waiting for modules to be deleted";

/// The message while the certificate exists.
pub(super) const WAITING_FOR_CERTIFICATE: &str = "waiting for the certificate of the runtime to be deleted";

/// What a pass over a Kyma that is being deleted is for.
pub(super) fn start(kyma: &Kyma, manifests: &[Arc<Manifest>]) -> Start {
    let is_ours = kyma.metadata.finalizers.iter().flatten().any(|name| name == finalizer::KYMA);
    if !is_ours && manifests.is_empty() { Start::Gone } else { Start::Remove }
}

/// What to do without access to the runtime.
pub(super) fn without_access(failed: &Failed) -> NoAccess {
    match failed.kind {
        FailedKind::NoAccess => NoAccess::Abandon,
        FailedKind::Wrong | FailedKind::Unreachable | FailedKind::BadAccess | FailedKind::Stale => NoAccess::Wait,
    }
}

/// Whether this pass is the first to delete a Manifest.
pub(super) fn deletes_modules(manifests: &[Arc<Manifest>]) -> bool {
    manifests.iter().any(|manifest| manifest.metadata.deletion_timestamp.is_none())
}

/// The first status of a removal; none if the status already says so.
pub(super) fn first_facts(kyma: &Kyma, deleting: &[Arc<Manifest>]) -> Option<Facts> {
    let is_said = kyma.status.as_ref().is_some_and(|status| status.state == State::Deleting);
    (!is_said).then(|| facts(deleting, WAITING_FOR_MODULES.to_owned()))
}

/// The Manifests that still exist after the passes over them.
pub(super) fn left(passed: Vec<Arc<Manifest>>) -> Vec<Arc<Manifest>> {
    passed.into_iter().filter(|manifest| !manifest::is_released(manifest)).collect()
}

/// The Manifests that are being deleted.
pub(super) fn deleting(manifests: &[Arc<Manifest>]) -> Vec<Arc<Manifest>> {
    manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_some()).cloned().collect()
}

/// Whether something that a vanished Kyma left is older than the definition of Kymas, created at `since`. Then the Kyma
/// vanished with the former definition: no user has deleted it. A user may confirm the deletion of each Manifest.
pub(super) fn outlived_definition(
    since: Option<Timestamp>,
    certificate: Option<Timestamp>,
    deleting: &[Arc<Manifest>],
) -> bool {
    let is_confirmed = |manifest: &Arc<Manifest>| {
        landscape::annotation(&manifest.metadata, annotation::CONFIRM_DELETION) == Some("true")
    };
    if !deleting.is_empty() && deleting.iter().all(is_confirmed) {
        return false;
    }
    let created = |manifest: &Arc<Manifest>| manifest.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let left = certificate.into_iter().chain(deleting.iter().filter_map(created)).min();
    matches!((since, left), (Some(since), Some(left)) if left < since)
}

/// The objects that a removal deletes, in order. The Kyma goes between the CRDs of the catalog and its own CRD.
pub(super) fn base_objects() -> [BaseObject; 4] {
    let crd = |plural: &str, step| BaseObject {
        gvk: Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        key: Key::new("", &format!("{plural}.{KYMA_GROUP}")),
        step,
        waiting: format!("waiting for the {plural} in the runtime to be deleted"),
    };
    [
        crd("moduletemplates", Step::TemplateCrd),
        crd("modulereleasemetas", Step::ReleaseCrd),
        BaseObject {
            gvk: Gvk::new(KYMA_GROUP, KYMA_VERSION, "Kyma"),
            key: Key::new(SKR_NAMESPACE, SKR_KYMA),
            step: Step::RuntimeKyma,
            waiting: "waiting for the Kyma in the runtime to be deleted".to_owned(),
        },
        crd("kymas", Step::KymaCrd),
    ]
}

/// What to do about an object, given its metadata.
pub(super) fn fate(live: Option<&Metadata>) -> Fate<'_> {
    match live {
        None => Fate::Gone,
        Some(live) if live.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) => Fate::Gone,
        Some(live) if live.deleting => Fate::Wait,
        Some(live) => Fate::Delete(live),
    }
}

/// The progress of a removal. `base` is what the deletion of the base waits for, `left` are the Manifests that exist.
pub(super) fn progress(base: Option<String>, left: &[Arc<Manifest>]) -> Progress {
    if let Some(waiting) = base {
        return Progress::Wait(waiting);
    }
    if left.is_empty() {
        return Progress::Gone;
    }
    let said = left.iter().find_map(|manifest| message(manifest));
    Progress::WaitForManifests(said.unwrap_or_else(|| WAITING_FOR_MODULES.to_owned()))
}

fn message(manifest: &Manifest) -> Option<String> {
    let module = manifest.metadata.labels.as_ref()?.get(label::MODULE_NAME)?;
    if manifest::is_skipped(manifest) {
        let (label, name) = (label::SKIP_RECONCILIATION, manifest.metadata.name.as_deref().unwrap_or_default());
        return Some(format!("module {module}: label {label} pauses Manifest {name}; remove the label to continue"));
    }
    let operation = manifest.status.as_ref()?.last_operation.as_ref()?.operation.clone();
    Some(format!("module {module}: {operation}"))
}

/// The status of a Kyma that is being deleted. Mandatory modules go as well, but the status does not list them.
pub(super) fn facts(manifests: &[Arc<Manifest>], step: String) -> Facts {
    let module = |manifest: &Arc<Manifest>| {
        let name = manifests::selected_module_of(&manifest.metadata)?.to_owned();
        Some(ModuleFact { name, planned: Planned::Removing, manifest: Some(Arc::clone(manifest)) })
    };
    Facts { modules: manifests.iter().filter_map(module).collect(), deleting: Some(step), ..Facts::default() }
}

/// The status without access to the runtime: why, and what helps.
pub(super) fn failed_facts(failed: &Failed, manifests: &[Arc<Manifest>]) -> Facts {
    let is_access = failed.kind.is_access();
    let hint = if is_access {
        "; the removal continues when the runtime is reachable, or when its access Secret is deleted"
    } else {
        ""
    };
    let failure = status::Failure { reason: failed.reason, message: failed.message.clone(), access: is_access };
    Facts { failure: Some(failure), ..facts(manifests, format!("{}{hint}", failed.message)) }
}

/// What resolves a failed removal. The deletion of the access Secret always does, so it at least waits.
pub(super) fn failed_class(failed: &Failed) -> Class {
    failed.class.max(Class::Waiting)
}

/// The note about a removal that waits for `step` and makes no progress.
pub(super) fn stuck_note(step: &str) -> String {
    format!("the deletion has made no progress for {} minutes: {step}", STUCK_AFTER.as_secs() / 60)
}

// === impl Step ===

impl Step {
    /// The reason of its Event: Lifecycle Manager's.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Step::KymaState => "SetKcpKymaStateDeleting",
            Step::RuntimeKymaState => "SetSkrKymaStateDeleting",
            Step::Manifests => "DeleteManifests",
            Step::Certificate => "DeleteCertificateSetup",
            Step::Webhook => "DeleteSkrWebhookResources",
            Step::TemplateCrd => "DeleteSkrModuleTemplateCrd",
            Step::ReleaseCrd => "DeleteSkrModuleReleaseMetaCrd",
            Step::RuntimeKyma => "DeleteSkrKyma",
            Step::KymaCrd => "DeleteSkrKymaCrd",
            Step::LastManifests => "EnsureManifestDeletion",
            Step::Finalizer => "DropKymaFinalizer",
        }
    }

    /// The note of its Event.
    pub(super) fn note(self) -> &'static str {
        match self {
            Step::KymaState => "the Kyma is being deleted",
            Step::RuntimeKymaState => "the Kyma in the runtime shows that it is being deleted",
            Step::Manifests => "deleting the modules",
            Step::Certificate => "deleting the certificate of the runtime",
            Step::Webhook => "deleted the webhook configuration and the agent in the runtime",
            Step::TemplateCrd => "deleted the module templates in the runtime",
            Step::ReleaseCrd => "deleted the module releases in the runtime",
            Step::RuntimeKyma => "deleted the Kyma in the runtime",
            Step::KymaCrd => "deleted the definition of Kymas in the runtime",
            Step::LastManifests => "waiting for the last modules to be deleted",
            Step::Finalizer => "everything that the Kyma installed is deleted",
        }
    }

    /// What it counts.
    pub(super) fn requeue(self) -> Requeue {
        Requeue::Intended(match self {
            Step::KymaState => Reason::StateDeleting,
            Step::RuntimeKymaState => Reason::RemoteStatus,
            Step::Manifests | Step::LastManifests => Reason::ManifestsCleanup,
            Step::Certificate | Step::Webhook | Step::KymaCrd | Step::Finalizer => Reason::KymaDeletion,
            Step::TemplateCrd | Step::ReleaseCrd => Reason::RemoteCatalogDeletion,
            Step::RuntimeKyma => Reason::RemoteKymaDeletion,
        })
    }
}

#[cfg(test)]
mod tests;
