//! Decides about the finalizer of a ModuleReleaseMeta. Pure.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        Manifest, ModuleReleaseMeta,
        names::{finalizer, label},
    },
    landscape,
};

use crate::queue::{Finish, Trigger};

/// The next step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// The finalizer is as it should be.
    Nothing,
    /// Adds the finalizer with this patch.
    Add(Value),
    /// Waits until Manifests are gone. Contains one sentence that names their runtimes.
    Wait(String),
    /// Tries again later: a pass over a runtime may still apply a Manifest.
    Later(Duration),
    /// Removes the finalizer.
    Release,
}

/// How long a pass over a runtime may work with definitions from before the deletion.
const SETTLE: Duration = Duration::from_secs(2);
/// Most runtimes that an Event names. While there are more, its text stays the same: one Event is enough.
const NAMED_MAX: usize = 10;

/// When to try again if the stores are behind the control plane.
pub(super) const OUTDATED: Finish = Finish::After(Duration::from_secs(1), Trigger::Retry);

/// The next step for a ModuleReleaseMeta. `manifests` are those of its module, as far as they are mandatory.
pub(super) fn next(release: &ModuleReleaseMeta, manifests: &[Arc<Manifest>], now: Timestamp) -> Step {
    let finalizers = release.metadata.finalizers.clone().unwrap_or_default();
    let has_ours = finalizers.iter().any(|name| name == finalizer::MANDATORY_MODULE);
    match &release.metadata.deletion_timestamp {
        None if release.spec.mandatory.is_some() && !has_ours => {
            let all: Vec<String> = finalizers.into_iter().chain([finalizer::MANDATORY_MODULE.to_owned()]).collect();
            let version = &release.metadata.resource_version;
            Step::Add(json!({"metadata": {"finalizers": all, "resourceVersion": version}}))
        }
        None if release.spec.mandatory.is_some() || !has_ours => Step::Nothing,
        Some(_) if !has_ours => Step::Nothing,
        // It has channels now. While a Kyma has the module as a mandatory one, the finalizer stays.
        None if !manifests.is_empty() => Step::Nothing,
        None => Step::Release,
        Some(_) if !manifests.is_empty() => Step::Wait(waiting(manifests)),
        Some(since) => {
            let waited = Duration::try_from(now.duration_since(since.0)).unwrap_or_default();
            if waited < SETTLE { Step::Later(SETTLE - waited) } else { Step::Release }
        }
    }
}

/// Whether the control plane confirms what the stores show: the same ModuleReleaseMeta, and no Manifest.
pub(super) fn is_confirmed(shown: &ModuleReleaseMeta, live: Option<&Metadata>, manifests: usize) -> bool {
    let is_same = |live: &Metadata| {
        Some(&live.uid) == shown.metadata.uid.as_ref() && live.deleting == shown.metadata.deletion_timestamp.is_some()
    };
    manifests == 0 && live.is_some_and(is_same)
}

/// The runtimes that still have the module.
fn waiting(manifests: &[Arc<Manifest>]) -> String {
    let kymas = manifests.iter().filter_map(|manifest| landscape::label(&manifest.metadata, label::KYMA_NAME));
    let kymas: BTreeSet<&str> = kymas.collect();
    let which = if NAMED_MAX < kymas.len() {
        format!("more than {NAMED_MAX} Kymas")
    } else {
        let named: Vec<&str> = kymas.into_iter().collect();
        format!("Kymas {}", named.join(", "))
    };
    format!("the deletion waits until the module is removed from the runtimes of {which}")
}

#[cfg(test)]
mod tests;
