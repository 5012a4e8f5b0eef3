//! What a pass over a Manifest does, and what it comes to. Pure: nothing is read and nothing is sent from here.
//!
//! The decisions, in the order in which a pass asks for them: [`start`], [`unavailable`] if the objects cannot be read,
//! [`work`], [`unrecorded`] and [`to_send`], [`coming`], [`to_prune`], [`module_resource`], [`judge`] and
//! [`judge_workloads`], [`ending_facts`], [`status_change`].

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::{Error, Pruned};
use tidegate_core::{
    api::{Manifest, manifest::ManifestStatus, names::annotation, shared::State},
    changes::{Desired, Prune, Verdict},
    health::{self, Health},
    inventory::Inventory,
    name::Key,
    object::{Digest, Gvk, Object, ObjectId},
    render::{SharedObject, SharedObjects},
    status::{self, ManifestFacts, ManifestOutcome},
};
use tidegate_process::retry::Class;

use super::{ownership::Strangers, recorded, state::InstalledObjects};
use crate::{
    controller::events::{Severity, reason},
    runtime::objects::{Applied, Failed},
};

/// What a pass over a Manifest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is being deleted: what it installed goes.
    Remove,
    /// Its user has stopped it.
    Leave,
    /// Its objects are brought to what it says.
    Apply,
}

/// What is done while the objects of a Manifest cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// Nothing: what is recorded of just this specification stands, whether or not its objects can be read at the moment.
    Leave,
    /// A new process has not come to the source yet; whoever reads it wakes the runtime.
    LookAgain(Duration),
    /// The status says so.
    Report,
}

/// What is to be done about the objects of a Manifest.
#[derive(Debug)]
pub(super) struct Work {
    /// Indices of the objects that must be there and are not, in the order of apply.
    pub(super) missing: Vec<usize>,
    /// What the Manifest has in its runtime before.
    pub(super) owned: Inventory,
    /// What must go.
    pub(super) prune: Vec<Prune>,
}

/// What pruning came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PruneReport {
    /// Objects that are not there any more, or are not ours: they leave the inventory.
    pub(super) gone: Vec<ObjectId>,
    /// Objects that are being deleted, or that could not be.
    pub(super) waiting: Vec<ObjectId>,
    /// Objects that stay although they are no longer wanted, until someone decides.
    pub(super) kept: Vec<ObjectId>,
}

/// The default custom resource of a module, before anyone tries to create it.
#[derive(Debug)]
pub(super) enum ModuleResource {
    /// It is not ours to make.
    NotOurs,
    /// It was created once; users may have changed or deleted it since.
    Created,
    /// It must be created.
    Absent(Object),
}

/// What a pass over the objects found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    /// Objects that are in the way.
    pub(super) strangers: &'a Strangers,
    /// Objects that could not be applied.
    pub(super) failed: &'a [Failed],
    /// What became of those that must go.
    pub(super) pruned: &'a PruneReport,
    /// Whether the default custom resource was created; none if that is not ours.
    pub(super) resource: Option<bool>,
}

/// What a pass came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// What the status says.
    pub(super) outcome: ManifestOutcome,
    /// What can help if the pass did not end well.
    pub(super) class: Option<Class>,
}

/// What the API server says of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) enum Workload<'a> {
    /// It does not know its kind.
    NotServed,
    /// It does not have it.
    Absent,
    /// It has it.
    Live(&'a Object),
}

/// What users are told with an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) severity: Severity,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) text: String,
}

/// When to look again for a source that this process has not read yet.
const SOURCE_LOOK: Duration = Duration::from_secs(1);

/// What a pass over a Manifest is for.
pub(super) fn start(manifest: &Manifest) -> Start {
    if manifest.metadata.deletion_timestamp.is_some() {
        Start::Remove
    } else if recorded::is_skipped(manifest) {
        Start::Leave
    } else {
        Start::Apply
    }
}

/// What is done while its objects cannot be read. `looks` is whether the pass looks for drift, `is_expected` whether
/// this process will read their source.
pub(super) fn unavailable(manifest: &Manifest, looks: bool, is_expected: bool) -> Unavailable {
    let stands = || recorded::digest(manifest).is_some_and(|digest| recorded::stands(manifest, digest));
    if !looks && stands() {
        Unavailable::Leave
    } else if is_expected {
        Unavailable::LookAgain(SOURCE_LOOK)
    } else {
        Unavailable::Report
    }
}

/// What the status says while the objects cannot be read: nothing was touched.
pub(super) fn unavailable_facts(manifest: &Manifest, message: &str) -> ManifestFacts {
    ManifestFacts {
        outcome: ManifestOutcome::SourceUnavailable(message.to_owned()),
        synced: manifest.status.as_ref().map(|status| status.synced.clone()).unwrap_or_default(),
        applied: None,
        module_resource: None,
        requested: None,
    }
}

/// Digest of everything that a Manifest wants in its runtime.
pub(super) fn desired_digest(objects: &SharedObjects, manifest: &Manifest) -> Digest {
    // The manager only says what is looked at, but a change of it must be looked at.
    let manager = serde_json::to_value(&manifest.spec.manager).unwrap_or_default();
    Digest::all([&objects.digest, &Digest::from_value(&manager)])
}

/// What is to be done; nothing if the Manifest stands as recorded. `looks` is whether the pass looks for drift: then the
/// workloads are looked at in any case.
pub(super) fn work(manifest: &Manifest, installed: &InstalledObjects, desired: &Digest, looks: bool) -> Option<Work> {
    let owned = recorded::inventory(manifest);
    let prune = Prune::between(Desired::Module(&installed.module), &owned);
    let is_settled = !looks
        && installed.applied.is_complete()
        && prune.iter().all(|prune| installed.kept.contains(&prune.id))
        && recorded::stands(manifest, &desired.to_string());
    (!is_settled).then(|| Work { missing: installed.applied.missing(), owned, prune })
}

/// Missing objects that we never recorded: if they exist, they may not be ours.
pub(super) fn unrecorded<'a>(applied: &'a Applied, work: &Work) -> Vec<&'a SharedObject> {
    work.missing
        .iter()
        .map(|&index| &applied.objects.objects[index])
        .filter(|object| !work.owned.contains(&object.id) && !object.adopt)
        .collect()
}

/// Indices of the objects that are sent: those that are missing, but for what is not ours.
pub(super) fn to_send(applied: &Applied, work: &Work, strangers: &Strangers) -> Vec<usize> {
    let is_stranger = |index: usize| strangers.contains_key(&applied.objects.objects[index].id);
    work.missing.iter().copied().filter(|&index| !is_stranger(index)).collect()
}

/// What the status must record before anything is sent: everything that is about to exist. Nothing if it does already.
pub(super) fn coming(applied: &Applied, work: &Work, sent: &[usize]) -> Option<ManifestFacts> {
    let coming: Inventory = sent
        .iter()
        .map(|&index| &applied.objects.objects[index])
        .map(|object| (object.id.clone(), Arc::clone(&object.gvk.version)))
        .collect();
    let union = work.owned.union(&coming);
    (union != work.owned).then(|| ManifestFacts {
        outcome: ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()),
        synced: union.to_synced(),
        applied: None,
        module_resource: None,
        requested: None,
    })
}

/// What is pruned now: what takes the place of something goes before it.
pub(super) fn to_prune<'a>(work: &'a Work, strangers: &Strangers, failed: &[Failed]) -> &'a [Prune] {
    if failed.is_empty() && strangers.is_empty() { &work.prune } else { &[] }
}

/// Whether the default custom resource must be created.
pub(super) fn module_resource(manifest: &Manifest) -> ModuleResource {
    match recorded::module_resource(manifest) {
        None => ModuleResource::NotOurs,
        Some(_) if recorded::is_resource_created(manifest) => ModuleResource::Created,
        Some(object) => ModuleResource::Absent(object),
    }
}

/// What the pass came to; none if that depends on the workloads.
pub(super) fn judge(observed: &Observed<'_>) -> Option<Judgement> {
    if let Some((id, whose)) = observed.strangers.iter().next() {
        let more = more(observed.strangers.len());
        let message = format!(
            "{id} exists and is not ours: {whose}{more}; remove it, or annotate it in the module with {}: \"true\" to take it over",
            annotation::ADOPT
        );
        return Some(Judgement { outcome: ManifestOutcome::Failed(message), class: Some(Class::Stalled) });
    }
    if let Some(first) = observed.failed.first() {
        let class = observed.failed.iter().filter_map(|failed| failed.error.as_ref()).map(Error::class).max();
        let message = format!("{}{}", first.message, more(observed.failed.len()));
        let class = class.unwrap_or(Class::Transient);
        return Some(Judgement { outcome: ManifestOutcome::Failed(message), class: Some(class) });
    }
    if observed.resource == Some(false) {
        let outcome = ManifestOutcome::Waiting("waiting until the module CR can be created".to_owned());
        return Some(Judgement { outcome, class: Some(Class::Waiting) });
    }
    None
}

/// What the pass came to, everything being applied.
pub(super) fn judge_workloads(health: Health, pruned: &PruneReport) -> Judgement {
    match health.state {
        State::Ready | State::Warning => {
            Judgement { outcome: ManifestOutcome::Ready, class: (!pruned.is_finished()).then_some(Class::Waiting) }
        }
        State::Error => Judgement { outcome: ManifestOutcome::Failed(health.message), class: Some(Class::Waiting) },
        State::Processing | State::Deleting | State::Unknown | State::Unmanaged => Judgement {
            outcome: ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()),
            class: Some(Class::Waiting),
        },
    }
}

/// The workloads that tell how a module fares: its manager if it names one, else all of them.
pub(super) fn workloads(manifest: &Manifest, objects: &SharedObjects) -> Vec<(Gvk, Key)> {
    match &manifest.spec.manager {
        Some(manager) => vec![(
            Gvk::new(&manager.group, &manager.version, &manager.kind),
            Key::new(manager.namespace.as_deref().unwrap_or_default(), &manager.name),
        )],
        None => objects
            .objects
            .iter()
            .filter(|object| is_workload(&object.id))
            .map(|object| (object.gvk.clone(), Key::new(&object.id.namespace, &object.id.name)))
            .collect(),
    }
}

/// How a workload fares, with the name that it has in messages.
pub(super) fn workload_health(gvk: &Gvk, key: &Key, workload: Workload<'_>) -> (String, Health) {
    let name = format!("{} {key}", gvk.kind);
    let health = match workload {
        Workload::NotServed => Health::processing(format!("{gvk} is not served yet")),
        Workload::Absent => Health::processing(format!("{name} is not there yet")),
        Workload::Live(object) => health::of_object(object.value()),
    };
    (name, health)
}

/// What the status says after a pass. `recorded` is the Manifest with the inventory as it was written before.
pub(super) fn ending_facts(
    recorded: &Manifest,
    observed: &Observed<'_>,
    outcome: ManifestOutcome,
    applied: Option<Digest>,
) -> ManifestFacts {
    ManifestFacts {
        outcome,
        synced: recorded::inventory(recorded).without(&observed.pruned.gone).to_synced(),
        applied,
        module_resource: observed.resource,
        requested: recorded::requested(recorded),
    }
}

/// The status to be written, if it differs.
pub(super) fn status_change(manifest: &Manifest, facts: &ManifestFacts, now: Timestamp) -> Option<ManifestStatus> {
    let next = status::manifest(manifest, facts, now);
    (manifest.status.as_ref() != Some(&next)).then_some(next)
}

/// What users are told of objects that have left the module and stay.
pub(super) fn kept_note(pruned: &PruneReport) -> Option<Note> {
    let id = pruned.kept.first()?;
    let text = format!(
        "{id} has left the module and stays{}; to let it go, annotate it with {}=enabled",
        more(pruned.kept.len()),
        annotation::PRUNE
    );
    Some(Note { severity: Severity::Normal, reason: reason::KEPT, action: "Prune", text })
}

/// What users are told of objects that are in the way.
pub(super) fn conflict_note(strangers: &Strangers) -> Option<Note> {
    let (id, whose) = strangers.iter().next()?;
    let text = format!("{id} exists and is not ours: {whose}");
    Some(Note { severity: Severity::Warning, reason: reason::CONFLICT, action: "Apply", text })
}

/// `(and N more)` after the first of several.
pub(super) fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

fn is_workload(id: &ObjectId) -> bool {
    &*id.group == "apps" && matches!(&*id.kind, "Deployment" | "StatefulSet" | "DaemonSet")
}

// === impl PruneReport ===

impl PruneReport {
    /// What became of objects that must go.
    pub(super) fn new(results: Vec<Pruned>) -> PruneReport {
        let mut report = PruneReport::default();
        for pruned in results {
            let place = match pruned.result {
                Ok(Verdict::Gone | Verdict::Foreign) => &mut report.gone,
                // They stay, with their entry in the inventory, until someone decides.
                Ok(Verdict::Disabled | Verdict::Guarded) => &mut report.kept,
                Ok(Verdict::Delete | Verdict::Wait) | Err(_) => &mut report.waiting,
            };
            place.push(pruned.id);
        }
        report
    }

    /// Whether nothing is waited for.
    pub(super) fn is_finished(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests;
