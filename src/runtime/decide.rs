//! What a pass over a runtime does, and what it tells. Pure: nothing is read and nothing is sent from here.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tidegate_core::{
    api::{
        Kyma, Manifest,
        kyma::{KymaStatus, ModuleStatus},
        names::{MANAGED_BY_KCP, annotation, finalizer, label},
        shared::State,
    },
    conditions, landscape,
    object::Gvk,
    plan,
    status::{self, Facts, ModuleFact, ModulesFromFact, Planned},
};
use tidegate_process::retry::Class;

use super::{
    base, manifest, manifests,
    outcome::{Failed, FailedKind},
    reporting,
};
use crate::{
    controller::{
        Failure, Pass,
        events::{Severity, reason},
    },
    queue::{Finish, Trigger, Triggers},
};

/// What a pass over a runtime is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Its Kyma is being deleted: what that brought goes.
    Remove,
    /// Its user has stopped it.
    Leave,
    /// It is brought to what its Kyma says.
    Install,
}

/// How closely a pass looks at the runtime itself, beyond what this process and the statuses remember.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Look {
    /// Not at all.
    Nothing,
    /// Its Kyma is read again.
    Kyma,
    /// Everything of ours is looked at.
    Everything,
}

/// What has come to be wrong, and is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News<'a> {
    /// The runtime cannot be worked on.
    Runtime(&'a status::Failure),
    /// A module is not as it should be; why, in one sentence.
    Module { name: &'a str, message: &'a str },
}

/// What a pass over a runtime is for.
pub(super) fn start(kyma: &Kyma) -> Start {
    if kyma.metadata.deletion_timestamp.is_some() {
        Start::Remove
    } else if is_skipped(kyma) {
        Start::Leave
    } else {
        Start::Install
    }
}

fn is_skipped(kyma: &Kyma) -> bool {
    landscape::label(&kyma.metadata, label::SKIP_RECONCILIATION).is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// How closely the runtime must be looked at: somebody may have changed it, or asks. `is_due` is whether a resync is a
/// reason to look at everything.
pub(super) fn look(triggers: Triggers, is_due: bool, kyma: &Kyma, manifests: &[Arc<Manifest>]) -> Look {
    let handled = kyma
        .status
        .as_ref()
        .and_then(|status| conditions::message(&status.conditions, conditions::RECONCILE_REQUESTED));
    let is_asked_for = requested(kyma).is_some_and(|requested| Some(requested.as_str()) != handled)
        || manifests.iter().any(|manifest| manifest::is_asked_for(manifest));
    let asked = if is_asked_for { Look::Everything } else { Look::Nothing };
    let triggered = triggers.iter().map(|trigger| match trigger {
        Trigger::Drift => Look::Everything,
        Trigger::Resync if is_due => Look::Everything,
        // The runtime says that something changed there.
        Trigger::Reported => Look::Kyma,
        Trigger::Resync | Trigger::Changed | Trigger::Requested | Trigger::Git | Trigger::Retry => Look::Nothing,
    });
    triggered.fold(asked, Look::max)
}

/// Whether it is time to look at what nobody reports.
pub(super) fn is_resync(triggers: Triggers) -> bool {
    triggers.contains(Trigger::Resync)
}

/// The request for a look, whether or not it was granted.
pub(super) fn requested(kyma: &Kyma) -> Option<String> {
    landscape::annotation(&kyma.metadata, annotation::RECONCILE_REQUESTED_AT).map(str::to_owned)
}

/// The patch with which the Kyma in KCP gets our finalizer and label; nothing if it has them.
pub(super) fn charge_patch(kyma: &Kyma) -> Option<Value> {
    let metadata = &kyma.metadata;
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != finalizer::KYMA_PURGE);
    if !finalizers.iter().any(|name| name == finalizer::KYMA) {
        finalizers.push(finalizer::KYMA.to_owned());
    }
    let is_labelled = landscape::label(metadata, label::MANAGED_BY) == Some(MANAGED_BY_KCP);
    if is_labelled && metadata.finalizers.as_ref() == Some(&finalizers) {
        return None;
    }
    Some(json!({"metadata": {
        "labels": {label::MANAGED_BY: MANAGED_BY_KCP},
        "finalizers": finalizers,
        "resourceVersion": metadata.resource_version,
    }}))
}

/// The kinds of all objects that we put into the runtime, each once, whatever its version.
pub(super) fn kinds(manifests: &[Arc<Manifest>], has_agent: bool) -> Vec<Gvk> {
    let mut kinds: Vec<Gvk> = base::kinds();
    kinds.extend(reporting::kinds(has_agent));
    let synced = manifests.iter().filter_map(|manifest| manifest.status.as_ref()).flat_map(|status| &status.synced);
    kinds.extend(synced.map(|synced| Gvk::new(&synced.group, &synced.version, &synced.kind)));
    kinds.sort();
    kinds.dedup_by(|one, other| one.group == other.group && one.kind == other.kind);
    kinds
}

/// Who decides the module list, and what was reverted last.
pub(super) fn modules_from(kyma: &Kyma, mode: plan::ModulesFrom, reverted: &[String]) -> ModulesFromFact {
    let (reason, message) = match mode {
        plan::ModulesFrom::Runtime => ("Runtime", "the Kyma in the runtime decides the modules"),
        plan::ModulesFrom::Git => {
            ("Git", "the Kyma in the control plane decides the modules; edits in the runtime are reverted")
        }
        plan::ModulesFrom::Merge => {
            ("Merge", "modules of the Kyma in the control plane stay; others may be added in the runtime")
        }
    };
    if !reverted.is_empty() {
        return ModulesFromFact { reason, message: format!("{message}; last reverted: {}", reverted.join(", ")) };
    }
    // What was reverted is said until something else is: whoever edited finds it there.
    let before =
        kyma.status.as_ref().and_then(|status| conditions::message(&status.conditions, conditions::MODULES_FROM));
    let message = before.filter(|before| before.starts_with(message)).unwrap_or(message);
    ModulesFromFact { reason, message: message.to_owned() }
}

/// What users are told of edits that were taken back; nothing if there were none.
pub(super) fn reverted_note(reverted: &[String]) -> Option<String> {
    (!reverted.is_empty()).then(|| format!("edits in the runtime were taken back: {}", reverted.join(", ")))
}

/// What becomes of the runtime after a pass that went through.
pub(super) fn finish(again: impl IntoIterator<Item = Option<Duration>>) -> Finish {
    match again.into_iter().flatten().min() {
        Some(delay) => Finish::After(delay, Trigger::Retry),
        None => Finish::Done,
    }
}

/// The status after a pass that was kept from its work; nothing if that says nothing of the runtime: somebody was
/// faster, or the watch is behind, and the next pass sees it.
pub(super) fn failed_facts(kyma: &Kyma, manifests: &[Arc<Manifest>], failed: &Failed) -> Option<Facts> {
    match failed.kind {
        FailedKind::Stale => None,
        FailedKind::Wrong | FailedKind::Unreachable | FailedKind::NoAccess | FailedKind::BadAccess => Some(Facts {
            modules: modules_as_they_are(kyma, manifests, &failed.message),
            failure: Some(status::Failure {
                reason: failed.reason,
                message: failed.message.clone(),
                access: failed.kind.is_access(),
            }),
            ..Facts::default()
        }),
    }
}

/// The modules as they are, for a status that says why nothing can be done.
fn modules_as_they_are(kyma: &Kyma, manifests: &[Arc<Manifest>], message: &str) -> Vec<ModuleFact> {
    let before = kyma.status.iter().flat_map(|status| &status.modules).map(|module| module.name.clone());
    let wanted = kyma.spec.modules.iter().map(|module| module.name.clone());
    let names: BTreeSet<String> = before.chain(wanted).collect();
    names
        .into_iter()
        .map(|name| ModuleFact {
            manifest: manifests
                .iter()
                .find(|manifest| manifests::module_of(&manifest.metadata) == Some(&name))
                .cloned(),
            planned: Planned::Refused { state: State::Error, message: message.to_owned() },
            name,
        })
        .collect()
}

/// What becomes of the runtime after a pass that was kept from its work.
pub(super) fn failed_finish(failed: Failed) -> Pass {
    let class = match failed.kind {
        // There is nothing to try until something changes that wakes us.
        FailedKind::NoAccess | FailedKind::BadAccess => return Ok(Finish::Deferred),
        FailedKind::Stale => Class::Transient,
        FailedKind::Wrong | FailedKind::Unreachable => failed.class,
    };
    Err(Failure::new(class, failed.reason, failed.message))
}

/// What has come to be wrong between two statuses.
pub(super) fn news<'a>(before: Option<&KymaStatus>, next: &'a KymaStatus, facts: &'a Facts) -> Vec<News<'a>> {
    let said = before.and_then(|status| status.last_operation.as_ref()).map(|last| last.operation.as_str());
    if let Some(failure) = facts.failure.as_ref().filter(|failure| said != Some(failure.message.as_str())) {
        return vec![News::Runtime(failure)];
    }
    let is_wrong = |module: &&ModuleStatus| matches!(module.state, State::Error | State::Warning);
    let is_known = |module: &ModuleStatus| {
        let former = before.and_then(|status| status.modules.iter().find(|former| former.name == module.name));
        former.is_some_and(|former| former.state == module.state && former.message == module.message)
    };
    let module = |module: &'a ModuleStatus| News::Module {
        name: &module.name,
        message: module.message.as_deref().unwrap_or("it does not say why"),
    };
    next.modules.iter().filter(is_wrong).filter(|module| !is_known(module)).map(module).collect()
}

// === impl News ===

impl News<'_> {
    /// What users are told with an Event.
    pub(super) fn event(&self) -> (Severity, &'static str, String) {
        match self {
            News::Runtime(failure) => {
                let reason = if failure.access { reason::UNREACHABLE } else { reason::RUNTIME_FAILED };
                (Severity::Warning, reason, failure.message.clone())
            }
            News::Module { name, message } => {
                (Severity::Warning, reason::MODULE_FAILED, format!("module {name}: {message}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
