//! What a pass over a Manifest does, and its result. Pure: it reads and sends nothing.
//!
//! A pass makes these decisions in order: [`start`], [`unavailable`] if the objects cannot be read,
//! [`work`], [`unrecorded`] and [`to_send`], [`facts_before`], [`to_prune`], [`module_resource`], [`judge`] and
//! [`judge_workloads`], [`ending_facts`], [`status_change`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_cluster::{Error, Metadata, Pruned};
use tidegate_core::{
    api::{Manifest, manifest::ManifestStatus, names::annotation, shared::State},
    changes::{Desired, Prune, Verdict},
    conditions,
    health::Health,
    inventory::Inventory,
    object::{Digest, Gvk, Object, ObjectId},
    render::{SharedObject, SharedObjects},
    status::{self, ManifestFacts, ManifestOutcome, WaitFact},
};
use tidegate_process::retry::Class;
use tokio::time::Instant;

use super::{
    Purpose,
    ownership::{Conflicts, Owner},
    recorded,
    state::{InstalledObjects, Retry},
};
use crate::{
    controller::events::{Severity, reason},
    queue::Trigger,
    runtime::objects::{Applied, Failed, LiveObjects, Repairs, concerns_all},
};

/// What a pass over a Manifest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The Manifest is being deleted: the pass removes its objects.
    Remove,
    /// A user has paused it: the pass does nothing, even if it is being deleted.
    Leave,
    /// The pass applies and prunes its objects.
    Apply,
}

/// Why a pass has no objects of a Manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    /// They are being read from a registry.
    Pending,
    /// Their source is invalid or cannot be read.
    Failed {
        /// Why.
        message: String,
        /// Whether they are read again without this pass, whose runtime is then woken.
        is_retried: bool,
        /// Whether only their registry is away.
        is_away: bool,
    },
    /// They have been read, but one of them belongs to Tidegate, or what the landscape puts into them is missing or
    /// does not fit. Contains the reason.
    Refused(String),
}

/// What a pass does if the objects of a Manifest cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    /// Nothing: the Manifest is as recorded.
    Leave,
    /// It tries again: a new process has not read the source yet, and wakes the runtime when it has.
    TryAgain(Duration),
    /// It reports the problem in the status.
    Report,
}

/// What a pass does about the objects of a Manifest.
#[derive(Debug)]
pub(super) struct Work {
    /// Indices of the objects that are missing in the runtime or in the inventory, in the order of apply.
    pub(super) missing: Vec<usize>,
    /// The inventory before the pass.
    pub(super) owned: Inventory,
    /// The objects to prune.
    pub(super) prune: Vec<Prune>,
}

/// The objects that others undo, at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resting<'a> {
    pub(super) repairs: &'a Repairs,
    pub(super) now: Instant,
}

/// The result of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PruneReport {
    /// Objects that are gone or have another owner. They leave the inventory.
    pub(super) gone: Vec<ObjectId>,
    /// Objects that are being deleted, or whose deletion failed.
    pub(super) waiting: Vec<ObjectId>,
    /// Unwanted objects that stay until a user decides.
    pub(super) kept: Vec<ObjectId>,
}

/// The default custom resource of a module before its creation.
#[derive(Debug)]
pub(super) enum ModuleResource {
    /// Tidegate does not create it.
    NotOurs,
    /// Tidegate has created it. Users may have changed or deleted it since.
    Created,
    /// Tidegate must create it.
    Absent(Object),
    /// Tidegate must create it, unless it exists.
    Unknown(Object),
}

/// The default custom resource of a module after its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundResource {
    /// Tidegate does not create it.
    NotOurs,
    /// It exists.
    Exists,
    /// It does not exist yet. Contains the reason, a clause with the kind.
    Missing(String),
}

/// The findings of a pass over the objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    /// Objects that have another owner.
    pub(super) conflicts: &'a Conflicts,
    /// Objects that were not applied.
    pub(super) failed: &'a [Failed],
    /// The result of the prune.
    pub(super) pruned: &'a PruneReport,
    /// The default custom resource.
    pub(super) resource: &'a FoundResource,
    /// Where the objects are in the repository, if they are in one.
    pub(super) path: Option<&'a str>,
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The outcome for the status.
    pub(super) outcome: ManifestOutcome,
    /// What resolves a failure; none if the pass succeeded.
    pub(super) class: Option<Class>,
}

/// The content of an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) severity: Severity,
    pub(super) reason: &'static str,
    pub(super) action: &'static str,
    pub(super) text: String,
}

/// The delay before a source that this process has not read yet is checked again.
const SOURCE_RETRY: Duration = Duration::from_secs(1);

/// What a pass over a Manifest is for. As with Lifecycle Manager, a paused Manifest is not removed either.
pub(super) fn start(manifest: &Manifest) -> Start {
    if recorded::is_skipped(manifest) {
        Start::Leave
    } else if manifest.metadata.deletion_timestamp.is_some() {
        Start::Remove
    } else {
        Start::Apply
    }
}

/// What wakes the runtime when the objects are read: the next pass checks what this one was to check.
pub(super) fn pending_trigger(checks: bool) -> Trigger {
    if checks { Trigger::Drift } else { Trigger::Changed }
}

/// What a pass does if the objects cannot be read. `checks` is whether it checks all objects, `is_expected` whether
/// this process will read their source, and `is_away` whether only their registry is away: that says nothing about what
/// is installed.
pub(super) fn unavailable(manifest: &Manifest, checks: bool, is_expected: bool, is_away: bool) -> Unavailable {
    if (!checks || is_away) && recorded::is_as_recorded(manifest) {
        Unavailable::Leave
    } else if is_expected {
        Unavailable::TryAgain(SOURCE_RETRY)
    } else {
        Unavailable::Report
    }
}

/// The status while the objects cannot be read. The pass has changed nothing in the runtime.
pub(super) fn unavailable_facts(manifest: &Manifest, message: &str) -> ManifestFacts {
    untouched_facts(manifest, ManifestOutcome::SourceUnavailable(message.to_owned()))
}

/// The status while nothing can be done for the Manifest; none if it is being deleted or paused: then its status stays.
pub(super) fn blocked_facts(manifest: &Manifest, why: &str) -> Option<ManifestFacts> {
    let is_at_work = manifest.metadata.deletion_timestamp.is_none() && !recorded::is_skipped(manifest);
    is_at_work.then(|| untouched_facts(manifest, ManifestOutcome::Blocked(why.to_owned())))
}

/// The status after a pass that has changed nothing in the runtime. A request of a user stays open.
fn untouched_facts(manifest: &Manifest, outcome: ManifestOutcome) -> ManifestFacts {
    ManifestFacts {
        outcome,
        synced: manifest.status.as_ref().map(|status| status.synced.clone()).unwrap_or_default(),
        applied: None,
        module_resource: None,
        requested: recorded::requested(manifest).filter(|_| recorded::is_asked_for(manifest)),
        waits_for: WaitFact::Nothing,
        not_created: None,
    }
}

/// The status of a Manifest that takes over the inventory of another one, beside its own. A new one has none.
pub(super) fn inherited_facts(successor: &Manifest, former: &Manifest) -> ManifestFacts {
    let outcome = if successor.metadata.deletion_timestamp.is_some() {
        ManifestOutcome::Deleting(status::WAITING_FOR_RESOURCES.to_owned())
    } else {
        ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned())
    };
    let is_created = recorded::is_resource_created(successor) || recorded::has_resource_to_give(former);
    ManifestFacts {
        outcome,
        synced: recorded::inventory(successor).union(&recorded::inventory(former)).to_synced(),
        applied: None,
        module_resource: is_created.then_some(true),
        requested: None,
        waits_for: WaitFact::Unknown,
        not_created: None,
    }
}

/// A Manifest without the record that all objects are applied: those that it takes over name another owner.
pub(super) fn without_record(manifest: &Arc<Manifest>) -> Arc<Manifest> {
    let mut without = Manifest::clone(manifest);
    if let Some(status) = &mut without.status {
        conditions::remove(&mut status.conditions, conditions::APPLIED);
    }
    Arc::new(without)
}

/// Digest of everything that a Manifest wants in its runtime.
pub(super) fn desired_digest(objects: &SharedObjects, manifest: &Manifest) -> Digest {
    // The manager is only checked, but a new manager must be checked.
    let manager = serde_json::to_value(&manifest.spec.manager).unwrap_or_default();
    Digest::all([&objects.digest, &Digest::from_value(&manager)])
}

/// What an apply tries: the objects, among those of the other Manifests of the runtime. Once one of these changes, it
/// may give up an object that is in conflict.
pub(super) fn tried(desired: &Digest, manifest: &Manifest, all: &[Arc<Manifest>]) -> Digest {
    let others = all.iter().filter(|other| other.metadata.name != manifest.metadata.name);
    let others = others.map(|other| {
        let source = &other.spec.install.source;
        let is_deleted = other.metadata.deletion_timestamp.is_some();
        json!([other.metadata.name, source, is_deleted, recorded::is_skipped(other)])
    });
    Digest::all([desired, &Digest::from_value(&others.collect::<Value>())])
}

/// How long a failed apply still rests; none if it does not. A removal that waits has checked what it waits for, so its
/// objects are checked as well.
pub(super) fn rest(retry: &Retry, purpose: &Purpose, desired: &Digest, now: Instant) -> Option<Duration> {
    match purpose {
        Purpose::Install => retry.rest(desired, now),
        Purpose::Keep(_) => None,
    }
}

/// What a pass does; none if the Manifest is as recorded. `checks` is whether it checks all objects. Such a pass always
/// checks the workloads. An object that others undo again and again is not missing while its repair waits.
pub(super) fn work(
    manifest: &Manifest,
    installed: &InstalledObjects,
    desired: &Digest,
    checks: bool,
    resting: Resting<'_>,
) -> Option<Work> {
    let owned = recorded::inventory(manifest);
    let prune = Prune::between(Desired::Module(&installed.module), &owned);
    let missing = missing(&installed.applied, &owned, resting);
    let is_settled = !checks
        && missing.is_empty()
        && prune.iter().all(|prune| installed.kept.contains(&prune.id))
        && recorded::is_as_desired(manifest, &desired.to_string());
    (!is_settled).then_some(Work { missing, owned, prune })
}

/// What keeps a module working whose removal waits; none if all its objects are as recorded. Nothing is pruned: the
/// removal deletes everything in the inventory.
pub(super) fn keeping_work(
    manifest: &Manifest,
    installed: &InstalledObjects,
    desired: &Digest,
    resting: Resting<'_>,
) -> Option<Work> {
    let owned = recorded::inventory(manifest);
    let missing = missing(&installed.applied, &owned, resting);
    let is_settled = missing.is_empty() && recorded::digest(manifest) == Some(desired.to_string().as_str());
    (!is_settled).then_some(Work { missing, owned, prune: Vec::new() })
}

/// Objects that are missing in the runtime or in the inventory. An object that is as desired may be in no inventory: a
/// new Manifest has found what a former one left, and its status could not be written.
fn missing(applied: &Applied, owned: &Inventory, Resting { repairs, now }: Resting<'_>) -> Vec<usize> {
    let in_runtime: BTreeSet<usize> = applied.missing().into_iter().collect();
    let is_missing = |index: usize, id: &ObjectId| {
        !owned.contains(id) || in_runtime.contains(&index) && !repairs.is_resting(id, now)
    };
    let objects = applied.objects.objects.iter().enumerate();
    objects.filter(|(index, object)| is_missing(*index, &object.id)).map(|(index, _)| index).collect()
}

/// Missing objects that the inventory does not have, or that were not applied for this Manifest yet. If they exist,
/// they may have another owner, or be as desired already. Those that may be adopted are among them: another Manifest of
/// the runtime keeps what it has.
pub(super) fn unrecorded<'a>(manifest: &Manifest, applied: &'a Applied, work: &Work) -> Vec<&'a SharedObject> {
    let was_applied = recorded::was_applied(manifest);
    work.missing
        .iter()
        .map(|&index| &applied.objects.objects[index])
        .filter(|object| !(was_applied && work.owned.contains(&object.id)))
        .collect()
}

/// Indices of the objects to apply: the missing ones that have no other owner.
pub(super) fn to_send(applied: &Applied, work: &Work, conflicts: &Conflicts) -> Vec<usize> {
    let is_conflict = |index: usize| conflicts.contains_key(&applied.objects.objects[index].id);
    work.missing.iter().copied().filter(|&index| !is_conflict(index)).collect()
}

/// The outcome until the pass has ended.
pub(super) fn outcome_before(purpose: &Purpose) -> ManifestOutcome {
    match purpose {
        Purpose::Install => ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()),
        Purpose::Keep(waiting) => ManifestOutcome::Deleting(waiting.clone()),
    }
}

/// Whether a pass compares the objects that exist with those that it wants.
pub(super) fn recognizes(purpose: &Purpose, manifest: &Manifest, found: &LiveObjects) -> bool {
    match purpose {
        Purpose::Install => has_lost_its_record(manifest, found),
        Purpose::Keep(_) => false,
    }
}

/// Whether all objects were found as desired although the Manifest has no record of them. `coming` are those that were
/// missing, and `sent` those that are.
pub(super) fn was_found(manifest: &Manifest, coming: &[usize], sent: &[usize]) -> bool {
    manifest.status.is_none() && !coming.is_empty() && sent.is_empty()
}

/// Whether a Manifest is new, and objects that it wants exist. Those that are as desired need no apply.
fn has_lost_its_record(manifest: &Manifest, found: &LiveObjects) -> bool {
    !recorded::was_applied(manifest) && !found.is_empty()
}

/// Indices of the objects to send: those of `coming` that are not as desired already.
pub(super) fn still_missing(applied: &Applied, coming: &[usize]) -> Vec<usize> {
    let missing = applied.missing();
    coming.iter().copied().filter(|index| missing.contains(index)).collect()
}

/// The status that must be written before the apply: its inventory has every object that may come to exist. None if the
/// inventory already has them.
pub(super) fn facts_before(
    applied: &Applied,
    work: &Work,
    sent: &[usize],
    outcome: &ManifestOutcome,
) -> Option<ManifestFacts> {
    let coming: Inventory = sent
        .iter()
        .map(|&index| &applied.objects.objects[index])
        .map(|object| (object.id.clone(), Arc::clone(&object.gvk.version)))
        .collect();
    let union = work.owned.union(&coming);
    (union != work.owned).then(|| ManifestFacts {
        outcome: outcome.clone(),
        synced: union.to_synced(),
        applied: None,
        module_resource: None,
        requested: None,
        waits_for: WaitFact::Unknown,
        not_created: None,
    })
}

/// The objects to prune. A replacement comes first, so nothing is pruned while an object is not applied. One that
/// another Manifest gives up holds nothing: each of two Manifests may wait for what the other one prunes.
pub(super) fn to_prune<'a>(work: &'a Work, conflicts: &Conflicts, failed: &[Failed]) -> &'a [Prune] {
    let is_held = conflicts.values().any(|owner| !owner.is_leaving());
    if failed.is_empty() && !is_held { &work.prune } else { &[] }
}

/// What to do about the default custom resource. `was_installed` is whether all objects were found as desired although
/// the Manifest has no record of them, and the Kyma in the runtime shows the module as installed: then the resource was
/// created with them, and its user may have deleted it since. `had_inventory` is whether the Manifest had an inventory
/// before this pass: then the resource may have been created for it, or for the Manifest that it follows.
pub(super) fn module_resource(manifest: &Manifest, was_installed: bool, had_inventory: bool) -> ModuleResource {
    match recorded::module_resource(manifest) {
        None => ModuleResource::NotOurs,
        Some(_) if was_installed || recorded::is_resource_created(manifest) => ModuleResource::Created,
        Some(object) if had_inventory => ModuleResource::Unknown(object),
        Some(object) => ModuleResource::Absent(object),
    }
}

/// The default custom resource that was found; none if it must be created. One that is being deleted goes first: it may
/// be the one that the removal of a former Manifest deletes.
pub(super) fn existing_resource(found: Option<&Metadata>) -> Option<FoundResource> {
    found.map(|metadata| {
        if metadata.deleting {
            FoundResource::Missing(format!("{} is still being deleted", metadata.id))
        } else {
            FoundResource::Exists
        }
    })
}

/// The default custom resource while another Manifest of the runtime, which is being deleted, has one of the same kind;
/// none if there is no such Manifest. It deletes the one that it created, and waits for all others of the kind. One
/// that was created before would be lost with the first, or hold the removal for ever. A module that gets another name
/// is such a case.
pub(super) fn waits_for_removal(
    resource: &Object,
    manifest: &Manifest,
    all: &[Arc<Manifest>],
) -> Option<FoundResource> {
    let is_of_kind = |other: &Object| {
        let (gvk, other) = (resource.gvk(), other.gvk());
        (&gvk.group, &gvk.kind) == (&other.group, &other.kind)
    };
    let former = all.iter().find(|other| {
        other.metadata.name != manifest.metadata.name
            && other.metadata.deletion_timestamp.is_some()
            && !recorded::is_unmanaged(other)
            && recorded::module_resource(other).is_some_and(|other| is_of_kind(&other))
    })?;
    let name = former.metadata.name.as_deref().unwrap_or_default();
    Some(FoundResource::Missing(format!(
        "Manifest {name} is being deleted and deletes its own {} first",
        resource.gvk().kind
    )))
}

/// The default custom resource while the API server does not serve its kind.
pub(super) fn unserved_resource(gvk: &Gvk) -> FoundResource {
    FoundResource::Missing(format!("the API server does not serve {gvk}"))
}

/// What to do about an object of two modules. The other one may only seem to have it: its removal waits.
pub(crate) const OF_TWO_MODULES: &str =
    "remove it from one of the modules, or confirm its removal from the other one if that waits";

/// The result of the pass; none if it depends on the workloads.
pub(super) fn judge(observed: &Observed<'_>) -> Option<Judgement> {
    let (leaving, held): (Vec<_>, Vec<_>) = observed.conflicts.iter().partition(|(_, owner)| owner.is_leaving());
    if let Some((id, owner)) = held.first() {
        let more = more(held.len());
        let remedy = match owner {
            Owner::Sibling(_) | Owner::Leaving(_) => OF_TWO_MODULES.to_owned(),
            Owner::Other(_) => {
                format!("remove it, or annotate it in the module with {}: \"true\" to take it over", annotation::ADOPT)
            }
        };
        let message = format!("{id} exists and is not ours: {owner}{more}; {remedy}");
        let class = soon(Class::Stalled, !leaving.is_empty());
        return Some(Judgement { outcome: ManifestOutcome::Failed(message), class: Some(class) });
    }
    if !observed.failed.is_empty() {
        let class = observed.failed.iter().filter_map(|failed| failed.error.as_ref()).map(Error::class).max();
        let message = failures(observed.failed, observed.path);
        let class = soon(class.unwrap_or(Class::Transient), !leaving.is_empty());
        return Some(Judgement { outcome: ManifestOutcome::Failed(message), class: Some(class) });
    }
    if let Some((id, Owner::Leaving(manifest))) = leaving.first() {
        let message = format!("waiting until Manifest {manifest} has deleted {id}{}", more(leaving.len()));
        return Some(Judgement { outcome: ManifestOutcome::Waiting(message), class: Some(Class::Waiting) });
    }
    if let FoundResource::Missing(why) = observed.resource {
        let outcome = ManifestOutcome::Waiting(format!("waiting until the module CR can be created: {why}"));
        return Some(Judgement { outcome, class: Some(Class::Waiting) });
    }
    None
}

/// What a module waits for whose workloads have not been looked at: `judgement` is what [`judge`] says of it.
pub(super) fn wait_before_workloads(observed: &Observed<'_>, judgement: &Judgement) -> WaitFact {
    let ManifestOutcome::Waiting(_) = judgement.outcome else { return WaitFact::Nothing };
    let mut leaving = observed.conflicts.iter().filter(|(_, owner)| owner.is_leaving());
    if let Some((id, Owner::Leaving(manifest))) = leaving.next() {
        return WaitFact::For(format!("{id}{}, which Manifest {manifest} deletes first", more(1 + leaving.count())));
    }
    match observed.resource {
        FoundResource::Missing(why) => WaitFact::For(format!("its module CR: {why}")),
        _ => WaitFact::Nothing,
    }
}

/// What can help. What another module gives up comes soon, whatever else stays wrong.
fn soon(class: Class, is_given_up: bool) -> Class {
    match class {
        Class::Stalled if is_given_up => Class::Waiting,
        Class::Stalled | Class::Waiting | Class::Transient => class,
    }
}

/// The result of a pass that has applied everything. `undone` is a sentence about objects that others undo again and
/// again. A workload that is not ready may be what they undo.
pub(super) fn judge_workloads(health: &Health, pruned: &PruneReport, undone: Option<String>) -> Judgement {
    let of_health = judge_health(health, pruned);
    match (of_health.outcome, undone) {
        (ManifestOutcome::Ready | ManifestOutcome::Waiting(_), Some(undone)) => {
            Judgement { outcome: ManifestOutcome::Contested(undone), class: of_health.class }
        }
        (outcome, _) => Judgement { outcome, class: of_health.class },
    }
}

fn judge_health(health: &Health, pruned: &PruneReport) -> Judgement {
    match health.state {
        State::Ready | State::Warning => {
            Judgement { outcome: ManifestOutcome::Ready, class: (!pruned.is_finished()).then_some(Class::Waiting) }
        }
        State::Error => Judgement {
            outcome: ManifestOutcome::Failed(status::WORKLOAD_FAILED.to_owned()),
            class: Some(Class::Waiting),
        },
        State::Processing | State::Deleting | State::Unknown | State::Unmanaged => Judgement {
            outcome: ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()),
            class: Some(Class::Waiting),
        },
    }
}

/// Most objects that a message names beside the first one that was not applied.
const OTHERS_MAX: usize = 10;
/// The status after a pass. `recorded` is the Manifest with the inventory that was written before the apply.
pub(super) fn ending_facts(
    recorded: &Manifest,
    observed: &Observed<'_>,
    outcome: ManifestOutcome,
    applied: Option<Digest>,
    waits_for: WaitFact,
) -> ManifestFacts {
    ManifestFacts {
        waits_for,
        not_created: None,
        outcome,
        synced: recorded::inventory(recorded).without(&observed.pruned.gone).to_synced(),
        applied,
        module_resource: observed.resource.exists(),
        requested: recorded::requested(recorded),
    }
}

/// The objects that were not applied and have never existed: the API server has refused each of them, in this pass and
/// in those before. `before` is the Manifest and `owned` its inventory before the pass, `found` are live objects.
pub(super) fn never_created(
    before: &Manifest,
    owned: &Inventory,
    failed: &[Failed],
    found: &LiveObjects,
) -> Vec<ObjectId> {
    let known = status::not_created(before);
    let was_created = |id: &ObjectId| owned.contains(id) && !known.contains(id.to_string().as_str());
    let never = failed.iter().filter(|failed| failed.error.as_ref().is_none_or(creates_nothing));
    never.map(|failed| &failed.id).filter(|id| !was_created(id) && !found.contains_key(*id)).cloned().collect()
}

/// Whether an apply with this error has certainly not created an object.
fn creates_nothing(error: &Error) -> bool {
    match error {
        Error::Invalid { .. }
        | Error::UndeclaredField { .. }
        | Error::NotFound { .. }
        | Error::NotServed { .. }
        | Error::NamespaceTerminating { .. }
        | Error::Forbidden { .. }
        | Error::NotEstablished { .. } => true,
        Error::Exists { .. }
        | Error::Conflict { .. }
        | Error::Changed { .. }
        | Error::Terminating { .. }
        | Error::Unauthorized { .. }
        | Error::TooManyRequests { .. }
        | Error::Server { .. }
        | Error::Unreachable { .. }
        | Error::Answer { .. }
        | Error::Expired { .. }
        | Error::NotLeading
        | Error::ReadOnly { .. }
        | Error::Access { .. }
        | Error::Client { .. } => false,
    }
}

/// The status after a pass over a module that is removed and must work until then.
pub(super) fn keeping_facts(recorded: &Manifest, outcome: ManifestOutcome, applied: Option<Digest>) -> ManifestFacts {
    ManifestFacts {
        outcome,
        synced: recorded::inventory(recorded).to_synced(),
        applied,
        module_resource: None,
        requested: recorded::requested(recorded),
        waits_for: WaitFact::Unknown,
        not_created: None,
    }
}

/// The status to write; none if it is the same.
pub(super) fn status_change(manifest: &Manifest, facts: &ManifestFacts, now: Timestamp) -> Option<ManifestStatus> {
    let next = status::manifest(manifest, facts, now);
    (manifest.status.as_ref() != Some(&next)).then_some(next)
}

/// The results of a prune.
///
/// # Errors
///
/// The first error that concerns the runtime as a whole.
pub(super) fn of_single_objects(results: Vec<Pruned>) -> Result<Vec<Pruned>, Error> {
    let of_single = |Pruned { id, result }: Pruned| match result {
        Err(error) if concerns_all(&error) => Err(error),
        Err(_) | Ok(_) => Ok(Pruned { id, result }),
    };
    results.into_iter().map(of_single).collect()
}

/// The note about objects that are no longer part of the module but stay.
pub(super) fn kept_note(pruned: &PruneReport) -> Option<Note> {
    let id = pruned.kept.first()?;
    let text = format!(
        "{id} is no longer part of the module but stays{}; to delete it, annotate it with {}=enabled",
        more(pruned.kept.len()),
        annotation::PRUNE
    );
    Some(Note { severity: Severity::Normal, reason: reason::KEPT, action: "Prune", text })
}

/// Whether an annotation allows to delete a CustomResourceDefinition that is no longer part of its module.
pub(super) fn may_delete_definition(live: &Metadata) -> bool {
    live.annotation(annotation::PRUNE) == Some("enabled") && !live.deleting
}

/// The prunes without the definitions that are in use.
pub(super) fn without_used(unwanted: &[Prune], in_use: &BTreeMap<ObjectId, String>) -> Vec<Prune> {
    unwanted.iter().filter(|prune| !in_use.contains_key(&prune.id)).cloned().collect()
}

/// The note about a definition that stays because users have custom resources of it.
pub(super) fn in_use_note(in_use: &BTreeMap<ObjectId, String>) -> Option<Note> {
    let (id, first) = in_use.iter().next()?;
    let text = format!(
        "{id} is no longer part of the module but stays{}, because users have custom resources: {first}",
        more(in_use.len())
    );
    Some(Note { severity: Severity::Warning, reason: reason::KEPT, action: "Prune", text })
}

/// The note about objects that have another owner, which keeps them.
pub(super) fn conflict_note(conflicts: &Conflicts) -> Option<Note> {
    let (id, owner) = conflicts.iter().find(|(_, owner)| !owner.is_leaving())?;
    let text = format!("{id} exists and is not ours: {owner}");
    Some(Note { severity: Severity::Warning, reason: reason::CONFLICT, action: "Apply", text })
}

/// The note about objects that others undo again and again.
pub(super) fn undone_note(repairs: &Repairs) -> Option<Note> {
    let text = repairs.sentence()?;
    Some(Note { severity: Severity::Warning, reason: reason::REPEATED_DRIFT, action: "Apply", text })
}

/// The note about objects that a pass was to check and could not, because their registry is away.
pub(super) fn unchecked_note(checks: bool) -> Option<Note> {
    checks.then(|| Note {
        severity: Severity::Warning,
        reason: reason::MODULE_FAILED,
        action: "Check",
        text: "the objects cannot be checked for drift while the registry of the module is away".to_owned(),
    })
}

/// The note about workloads that failed. The status has Lifecycle Manager's text, which says neither which nor why.
pub(super) fn workload_note(health: &Health) -> Option<Note> {
    let text = health.message.clone();
    (health.state == State::Error).then_some(Note {
        severity: Severity::Warning,
        reason: reason::MODULE_FAILED,
        action: "Check",
        text,
    })
}

/// One sentence about objects that were not applied: why the first one was not, what to do, and which others.
fn failures(failed: &[Failed], path: Option<&str>) -> String {
    let Some(first) = failed.first() else { return String::new() };
    let is_answer = |error: &Error| {
        matches!(error, Error::Invalid { .. } | Error::UndeclaredField { .. }) && first.message == error.to_string()
    };
    let place = path.map(|path| format!("below `{path}` in the repository"));
    let place = place.unwrap_or_else(|| "in the module".to_owned());
    let next = match &first.error {
        Some(error) if is_answer(error) => format!("; correct it {place}"),
        Some(Error::NotFound { message, .. }) if message.contains("namespaces ") && !first.id.namespace.is_empty() => {
            format!("; add Namespace {} {place}, or create it in the runtime", first.id.namespace)
        }
        Some(_) | None => String::new(),
    };
    let others: Vec<String> = failed.iter().skip(1).take(OTHERS_MAX).map(|failed| failed.id.to_string()).collect();
    let count = failed.len().saturating_sub(1);
    let more = count.saturating_sub(OTHERS_MAX);
    let more = if more == 0 { String::new() } else { format!(" and {more} others") };
    let others = if count == 0 { String::new() } else { format!(" (and {count} more: {}{more})", others.join(", ")) };
    format!("{}{next}{others}", first.message)
}

/// Where the objects of a Manifest are in the repository, if they are in one.
pub(super) fn module_path(manifest: &Manifest) -> Option<&str> {
    manifest.spec.install.source["path"].as_str().filter(|path| !path.is_empty())
}

/// The note about objects of a module that is being removed and that cannot be repaired.
pub(super) fn failure_note(failed: &[Failed], path: Option<&str>) -> Option<Note> {
    failed.first()?;
    let text = failures(failed, path);
    Some(Note { severity: Severity::Warning, reason: reason::MODULE_FAILED, action: "Apply", text })
}

/// `(and N more)` after the first of several.
pub(super) fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

// === impl NotRead ===

impl NotRead {
    /// The source in git is invalid, or its mirror lacks the objects: no one reads them beside the passes.
    pub(super) fn failed(error: &impl fmt::Display) -> NotRead {
        NotRead::Failed { message: error.to_string(), is_retried: false, is_away: false }
    }
}

// === impl FoundResource ===

impl FoundResource {
    /// Whether it exists; none if Tidegate does not create it.
    fn exists(&self) -> Option<bool> {
        match self {
            FoundResource::NotOurs => None,
            FoundResource::Exists => Some(true),
            FoundResource::Missing(_) => Some(false),
        }
    }
}

// === impl PruneReport ===

impl PruneReport {
    /// The result of a prune.
    pub(super) fn new(results: Vec<Pruned>) -> PruneReport {
        let mut report = PruneReport::default();
        for pruned in results {
            let place = match pruned.result {
                Ok(Verdict::Gone | Verdict::Foreign) => &mut report.gone,
                // They stay in the runtime and in the inventory until a user decides.
                Ok(Verdict::Disabled | Verdict::Guarded) => &mut report.kept,
                Ok(Verdict::Delete | Verdict::Wait) | Err(_) => &mut report.waiting,
            };
            place.push(pruned.id);
        }
        report
    }

    /// Whether no deletion is in progress.
    pub(super) fn is_finished(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests;
