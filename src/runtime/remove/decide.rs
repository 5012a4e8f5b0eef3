//! What goes next of a runtime whose Kyma is being deleted, and what is waited for. Pure.
//!
//! Reasons of Events are Lifecycle Manager's.

use std::sync::Arc;

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        KYMA_GROUP, KYMA_VERSION, Kyma, Manifest,
        names::{MANAGED_BY_SKR, SKR_KYMA, SKR_NAMESPACE, finalizer, label},
        shared::State,
    },
    name::Key,
    object::Gvk,
    status::{self, Facts, ModuleFact, Planned},
};
use tidegate_process::retry::Class;

use crate::runtime::{
    manifest,
    outcome::{Failed, FailedKind},
};

/// What a pass over a Kyma that is being deleted begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is not ours, or has its end behind it.
    Gone,
    /// What it brought must go.
    Remove,
}

/// What is done while nobody lets us into the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAccess {
    /// Nobody can reach it any more: the finalizers are dropped.
    Abandon,
    /// The Kyma stays, and says why.
    Wait,
}

/// An object that every runtime has and a removed one loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseObject {
    /// Its kind.
    pub(super) gvk: Gvk,
    /// Its name.
    pub(super) key: Key,
    /// Reason of the Event that tells of its deletion.
    pub(super) reason: &'static str,
    /// What is said until it is gone.
    pub(super) waiting: String,
}

/// What becomes of one such object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate<'a> {
    /// It is gone, or is not ours.
    Gone,
    /// It is being deleted.
    Wait,
    /// It is deleted.
    Delete(&'a Metadata),
}

/// How far the end has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something is still there: what is said of it.
    Wait(String),
    /// Everything that the Kyma brought is gone.
    Gone,
}

/// What is said while Manifests are there that say nothing themselves.
const WAITING_FOR_MODULES: &str = "waiting for modules to be deleted";

/// What is said while the certificate of the agent is there.
pub(super) const WAITING_FOR_CERTIFICATE: &str = "waiting for the certificate of the runtime to be deleted";

/// What a pass begins with.
pub(super) fn start(kyma: &Kyma, manifests: &[Arc<Manifest>]) -> Start {
    let is_ours = kyma.metadata.finalizers.iter().flatten().any(|name| name == finalizer::KYMA);
    if !is_ours && manifests.is_empty() { Start::Gone } else { Start::Remove }
}

/// What is done while nobody lets us into the runtime.
pub(super) fn without_access(failed: &Failed) -> NoAccess {
    match failed.kind {
        FailedKind::NoAccess => NoAccess::Abandon,
        FailedKind::Wrong | FailedKind::Unreachable | FailedKind::BadAccess | FailedKind::Stale => NoAccess::Wait,
    }
}

/// Whether any Manifest is asked to go only now.
pub(super) fn asks_modules_to_go(manifests: &[Arc<Manifest>]) -> bool {
    manifests.iter().any(|manifest| manifest.metadata.deletion_timestamp.is_none())
}

/// What the status says before anything else happens; nothing if it says so already.
pub(super) fn first_facts(kyma: &Kyma, deleting: &[Arc<Manifest>]) -> Option<Facts> {
    let is_said = kyma.status.as_ref().is_some_and(|status| status.state == State::Deleting);
    (!is_said).then(|| facts(deleting, WAITING_FOR_MODULES.to_owned()))
}

/// Those that the passes over them did not bring to their end.
pub(super) fn left(passed: Vec<Arc<Manifest>>) -> Vec<Arc<Manifest>> {
    passed.into_iter().filter(|manifest| !manifest::is_released(manifest)).collect()
}

/// Those that are being deleted, of a Kyma that is gone.
pub(super) fn deleting(manifests: &[Arc<Manifest>]) -> Vec<Arc<Manifest>> {
    manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_some()).cloned().collect()
}

/// What every runtime has and a removed one loses, in order: the Kyma itself goes between the catalog's CRDs and its own.
pub(super) fn base_objects() -> [BaseObject; 4] {
    let crd = |plural: &str, reason| BaseObject {
        gvk: Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        key: Key::new("", &format!("{plural}.{KYMA_GROUP}")),
        reason,
        waiting: format!("waiting for the {plural} in the runtime to be deleted"),
    };
    [
        crd("moduletemplates", "DeleteSkrModuleTemplateCrd"),
        crd("modulereleasemetas", "DeleteSkrModuleReleaseMetaCrd"),
        BaseObject {
            gvk: Gvk::new(KYMA_GROUP, KYMA_VERSION, "Kyma"),
            key: Key::new(SKR_NAMESPACE, SKR_KYMA),
            reason: "DeleteSkrKyma",
            waiting: "waiting for the Kyma in the runtime to be deleted".to_owned(),
        },
        crd("kymas", "DeleteSkrKymaCrd"),
    ]
}

/// What becomes of an object that every runtime has, seen how it stands there.
pub(super) fn fate(live: Option<&Metadata>) -> Fate<'_> {
    match live {
        None => Fate::Gone,
        Some(live) if live.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) => Fate::Gone,
        Some(live) if live.deleting => Fate::Wait,
        Some(live) => Fate::Delete(live),
    }
}

/// How far the end has come. `base` is what of the base is waited for, `left` are the Manifests that are left.
pub(super) fn progress(base: Option<String>, left: &[Arc<Manifest>]) -> Progress {
    if let Some(waiting) = base {
        return Progress::Wait(waiting);
    }
    if left.is_empty() {
        return Progress::Gone;
    }
    let said = left.iter().find_map(|manifest| message(manifest));
    Progress::Wait(said.unwrap_or_else(|| WAITING_FOR_MODULES.to_owned()))
}

fn message(manifest: &Manifest) -> Option<String> {
    let operation = manifest.status.as_ref()?.last_operation.as_ref()?.operation.clone();
    let module = manifest.metadata.labels.as_ref()?.get(label::MODULE_NAME)?;
    Some(format!("module {module}: {operation}"))
}

/// The status of a Kyma that is being deleted.
pub(super) fn facts(manifests: &[Arc<Manifest>], step: String) -> Facts {
    let module = |manifest: &Arc<Manifest>| {
        let name = manifest.metadata.labels.as_ref()?.get(label::MODULE_NAME)?.clone();
        Some(ModuleFact { name, planned: Planned::Removing, manifest: Some(Arc::clone(manifest)) })
    };
    Facts { modules: manifests.iter().filter_map(module).collect(), deleting: Some(step), ..Facts::default() }
}

/// The status while the runtime cannot be worked on: why, and what would help.
pub(super) fn failed_facts(failed: &Failed, manifests: &[Arc<Manifest>]) -> Facts {
    let is_access = failed.kind.is_access();
    let hint =
        if is_access { "; it goes on once the runtime is reachable, or once its access Secret is gone" } else { "" };
    let failure = status::Failure { reason: failed.reason, message: failed.message.clone(), access: is_access };
    Facts { failure: Some(failure), ..facts(manifests, format!("{}{hint}", failed.message)) }
}

/// What can help then: to wait is the least, since the access Secret may go.
pub(super) fn failed_class(failed: &Failed) -> Class {
    failed.class.max(Class::Waiting)
}

#[cfg(test)]
mod tests;
