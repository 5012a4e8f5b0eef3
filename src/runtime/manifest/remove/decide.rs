//! What a removal of a Manifest deletes next, and what it waits for. Pure.

use std::{sync::Arc, time::Duration};

use tidegate_cluster::{Kind, Metadata};
use tidegate_core::{
    api::{
        Manifest,
        names::{FIELD_MANAGER, MANAGED_BY_SKR, annotation, label},
        shared::CustomResourcePolicy,
    },
    changes::{Desired, Prune},
    object::{Gvk, Object, ObjectId},
    render,
    status::{self, ManifestFacts, ManifestOutcome, WaitFact},
};
use tidegate_process::retry::{self, Class};

use crate::runtime::manifest::{
    decide::{PruneReport, more},
    recorded,
};

/// What a removal does with the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// They stay and lose our ownership label.
    Release,
    /// They are deleted.
    Remove,
}

/// What to do about the custom resources of a module.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ModuleResources<'a> {
    /// Nothing: none exist.
    Gone,
    /// Wait for their deletion. Contains the message.
    Wait(String),
    /// Delete the default one: it is the only one.
    Delete(&'a Metadata),
}

/// What follows the prune of all objects.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    /// All of them are gone.
    Gone,
    /// Some still exist. Contains the status.
    Wait(ManifestFacts),
}

/// What a removal does with the objects.
pub(super) fn start(manifest: &Manifest) -> Removal {
    if recorded::is_unmanaged(manifest) { Removal::Release } else { Removal::Remove }
}

/// The default custom resource, no matter who creates it. All custom resources of its kind go before the objects.
pub(in crate::runtime::manifest) fn resource(manifest: &Manifest) -> Option<Object> {
    manifest.spec.resource.clone().and_then(|value| Object::new(value).ok())
}

/// The names of the CustomResourceDefinitions in the inventory. Their deletion would delete all their custom resources.
/// Those that Tidegate keeps in every runtime stay.
pub(in crate::runtime::manifest) fn definitions(manifest: &Manifest) -> Vec<Arc<str>> {
    let owned = recorded::inventory(manifest);
    owned
        .ids()
        .filter(|id| is_definition(id))
        .filter(|id| !render::is_in_every_runtime(id))
        .map(|id| Arc::clone(&id.name))
        .collect()
}

/// Whether an object is a CustomResourceDefinition.
pub(in crate::runtime::manifest) fn is_definition(id: &ObjectId) -> bool {
    &*id.group == "apiextensions.k8s.io" && &*id.kind == "CustomResourceDefinition"
}

/// Those of `kinds` that are not the kind of the default custom resource, whose custom resources all hold the removal.
pub(in crate::runtime::manifest) fn other_kinds<'a>(kinds: &'a [Kind], default: Option<&Gvk>) -> Vec<&'a Kind> {
    let is_default = |kind: &Kind| default.is_some_and(|gvk| gvk.group == kind.gvk.group && gvk.kind == kind.gvk.kind);
    kinds.iter().filter(|kind| !is_default(kind)).collect()
}

/// Divides custom resources: those that Tidegate created by default for a version that declared them, which go with the
/// module although its version declares them no longer; and all others. One with another spec than Tidegate gave it is
/// not among the former: no version says any more that it may go. `siblings` are all Manifests of the runtime.
pub(in crate::runtime::manifest) fn former_defaults(
    siblings: &[Arc<Manifest>],
    present: Vec<Metadata>,
) -> (Vec<Metadata>, Vec<Metadata>) {
    let is_recorded = |id: &ObjectId| siblings.iter().any(|sibling| recorded::inventory(sibling).contains(id));
    let is_former = |metadata: &Metadata| is_as_made_by_us(metadata) && !is_default_of_any(&metadata.id, siblings);
    present.into_iter().partition(|metadata| is_former(metadata) && !is_recorded(&metadata.id))
}

/// The same for those of the kind of the default one, which a version may have renamed. `kinds` are those that the
/// module defines: custom resources of any other kind may be those of another module. Where users make their own, all
/// of them count as the users'.
pub(in crate::runtime::manifest) fn former_defaults_of_kind(
    manifest: &Manifest,
    siblings: &[Arc<Manifest>],
    kinds: &[Kind],
    kind: &Kind,
    present: Vec<Metadata>,
) -> (Vec<Metadata>, Vec<Metadata>) {
    let is_own = kinds.iter().any(|own| own.gvk.group == kind.gvk.group && own.gvk.kind == kind.gvk.kind);
    match manifest.spec.custom_resource_policy {
        CustomResourcePolicy::CreateAndDelete if is_own => former_defaults(siblings, present),
        CustomResourcePolicy::CreateAndDelete | CustomResourcePolicy::Ignore => (Vec::new(), present),
    }
}

/// Whether Tidegate created a custom resource by default, and no user has changed its spec since. A change makes
/// another generation, but not every other generation is a user's: controllers write defaults, and without a
/// subresource for it, a status counts as well. Objects of modules have the ownership label; those that have become a
/// user's still name their Manifest.
fn is_as_made_by_us(metadata: &Metadata) -> bool {
    metadata.unreadable.is_none()
        && (metadata.generation <= 1 || !metadata.has_user_writes)
        && metadata.has_manager(FIELD_MANAGER)
        && metadata.label(label::MANAGED_BY).is_none()
        && metadata.annotation(annotation::OWNED_BY).is_none()
}

/// Whether a Manifest declares a custom resource as the default one. If its kind has no namespace, that of the
/// declaration does not matter.
fn is_default_of_any(id: &ObjectId, siblings: &[Arc<Manifest>]) -> bool {
    siblings.iter().filter_map(|sibling| resource(sibling)).any(|resource| {
        let default = resource.id();
        (&default.group, &default.kind, &default.name) == (&id.group, &id.kind, &id.name)
            && (id.namespace.is_empty() || default.namespace == id.namespace)
    })
}

/// The message while users have custom resources of a kind that the module defines, and what it waits for; none if
/// `present` has none of theirs.
pub(super) fn users_resources(
    manifest: &Manifest,
    siblings: &[Arc<Manifest>],
    kinds: &[Kind],
    present: &[Metadata],
) -> Option<(String, WaitFact)> {
    let theirs: Vec<&Metadata> = of_users(manifest, siblings, kinds, present).collect();
    let first = first_and_more(theirs.iter().copied())?;
    Some((waiting_for(&first), deletion_of(theirs.into_iter())))
}

/// The first custom resource of users, where it is, and how many more there are; none if `present` has none of theirs.
/// The custom resources of the module itself are not the users', nor those that belong to its objects or to custom
/// resources of its `kinds`: the module's controller has made them.
pub(in crate::runtime::manifest) fn first_of_users(
    manifest: &Manifest,
    siblings: &[Arc<Manifest>],
    kinds: &[Kind],
    present: &[Metadata],
) -> Option<String> {
    first_and_more(of_users(manifest, siblings, kinds, present))
}

fn of_users<'a>(
    manifest: &'a Manifest,
    siblings: &'a [Arc<Manifest>],
    kinds: &'a [Kind],
    present: &'a [Metadata],
) -> impl Iterator<Item = &'a Metadata> {
    let is_recorded = move |id: &ObjectId| siblings.iter().any(|sibling| recorded::inventory(sibling).contains(id));
    let is_of_users = move |metadata: &&Metadata| {
        !belongs_to_module(manifest, kinds, metadata)
            && metadata.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR)
            && !recorded::inventory(manifest).contains(&metadata.id)
            && !is_recorded(&metadata.id)
    };
    present.iter().filter(is_of_users)
}

/// Whether an object of the module, or a custom resource of its kinds, owns this custom resource.
fn belongs_to_module(manifest: &Manifest, kinds: &[Kind], metadata: &Metadata) -> bool {
    if metadata.owners.is_empty() {
        return false;
    }
    let owned = recorded::inventory(manifest);
    metadata.owners.iter().any(|owner| {
        let is_of_kind = |kind: &Kind| (&*kind.gvk.group, &*kind.gvk.kind) == (&*owner.group, &*owner.kind);
        let in_scope = |namespace: &str| ObjectId::new(&owner.group, &owner.kind, namespace, &owner.name);
        kinds.iter().any(is_of_kind)
            || owned.contains(&in_scope(&metadata.id.namespace))
            || owned.contains(&in_scope(""))
    })
}

/// The custom resources of the kind of the default one that count for the removal. Those that belong to the module go
/// with their owners.
pub(in crate::runtime::manifest) fn that_count(
    manifest: &Manifest,
    kinds: &[Kind],
    kind: &Kind,
    present: Vec<Metadata>,
) -> Vec<Metadata> {
    let belongs = |metadata: &Metadata| {
        belongs_to_module(manifest, kinds, metadata)
            || belongs_to_module(manifest, std::slice::from_ref(kind), metadata)
    };
    present.into_iter().filter(|metadata| !belongs(metadata)).collect()
}

/// The first of some custom resources, where it is, and how many more there are; none if there are none.
fn first_and_more<'a>(mut resources: impl Iterator<Item = &'a Metadata>) -> Option<String> {
    let first = resources.next()?;
    Some(format!("{}{}", first.id, more(1 + resources.count())))
}

fn waiting_for(first: &str) -> String {
    format!("{}: {first}", status::WAITING_FOR_MODULE_RESOURCES)
}

/// What to do about the custom resources that are `present` in the runtime. `default` is the one that Tidegate creates.
///
/// While the Kyma in the runtime shows the module as installed, the default one stays. If the Manifest is lost, that
/// status is all that says whether Tidegate or its user has deleted the resource.
pub(super) fn module_resources<'a>(
    default: Option<&ObjectId>,
    present: &'a [Metadata],
    is_shown_as_installed: bool,
) -> ModuleResources<'a> {
    if let Some(first) = others_than(default, present) {
        return ModuleResources::Wait(waiting_for(&first));
    }
    match present.first() {
        None => ModuleResources::Gone,
        Some(metadata) if metadata.deleting => ModuleResources::Wait(waiting_for_default(metadata)),
        Some(metadata) => match &metadata.unreadable {
            Some(problem) => {
                ModuleResources::Wait(format!("{} stays, because it cannot be read: {problem}", metadata.id))
            }
            None if is_shown_as_installed => ModuleResources::Wait(waiting_for_default(metadata)),
            None => ModuleResources::Delete(metadata),
        },
    }
}

/// The first of the custom resources that are not the default one, where it is, and how many more there are.
pub(in crate::runtime::manifest) fn others_than(default: Option<&ObjectId>, present: &[Metadata]) -> Option<String> {
    first_and_more(present.iter().filter(|metadata| Some(&metadata.id) != default))
}

/// The custom resources of the module's kind that hold its removal: the first of them, and how many more there are. The
/// default one holds it while it is being deleted and others have finalizers on it.
pub(super) fn holding(default: Option<&ObjectId>, present: &[Metadata]) -> WaitFact {
    let is_default = |metadata: &&Metadata| Some(&metadata.id) == default;
    let is_held = |metadata: &&Metadata| metadata.deleting && !metadata.finalizers.is_empty();
    match deletion_of(present.iter().filter(|metadata| !is_default(metadata))) {
        WaitFact::Nothing => deletion_of(present.iter().filter(|one| is_default(one) && is_held(one))),
        found => found,
    }
}

/// Names one of the custom resources that must go, says what holds it, and counts the others. If a user must still
/// delete one of them, it is that one, otherwise the first.
fn deletion_of<'a>(resources: impl Iterator<Item = &'a Metadata>) -> WaitFact {
    let all: Vec<&Metadata> = resources.collect();
    let Some(first) = all.iter().find(|one| !one.deleting).or(all.first()) else { return WaitFact::Nothing };
    let held = match (first.deleting, &first.finalizers[..]) {
        (false, _) => status::BY_USERS.to_owned(),
        (true, []) => String::new(),
        (true, finalizers) => {
            format!("; these finalizers of it remain, see the controllers that set them: {}", finalizers.join(", "))
        }
    };
    WaitFact::For(format!("the deletion of {}{}{held}", first.id, more(all.len())))
}

/// The message while the default custom resource is being deleted.
pub(super) fn waiting_for_default(metadata: &Metadata) -> String {
    format!("waiting for the default module CR {} to be deleted", metadata.id)
}

/// All objects of the Manifest, in the order of prune.
pub(super) fn to_prune(manifest: &Manifest) -> Vec<Prune> {
    Prune::between(Desired::Nothing, &recorded::inventory(manifest))
}

/// The status while custom resources exist: all objects still exist as well.
pub(super) fn resource_facts(manifest: &Manifest, waiting: String) -> ManifestFacts {
    ManifestFacts {
        outcome: ManifestOutcome::Deleting(waiting),
        synced: manifest.status.as_ref().map(|status| status.synced.clone()).unwrap_or_default(),
        applied: None,
        module_resource: None,
        requested: recorded::requested(manifest),
        waits_for: WaitFact::Unknown,
        not_created: None,
    }
}

/// What follows the prune of all objects. An object that an annotation protects does not hold the Manifest.
pub(super) fn ending(manifest: &Manifest, pruned: &PruneReport) -> Ending {
    let Some(first) = pruned.waiting.first() else { return Ending::Gone };
    let waiting = format!("deletion is not yet finished: {first}{}", more(pruned.waiting.len()));
    let left = recorded::inventory(manifest).without(&pruned.gone);
    Ending::Wait(ManifestFacts { synced: left.to_synced(), ..resource_facts(manifest, waiting) })
}

/// The status while others have finalizers; none if there are none.
pub(super) fn finalizer_facts(foreign: &[String]) -> Option<ManifestFacts> {
    (!foreign.is_empty()).then(|| ManifestFacts {
        outcome: ManifestOutcome::Deleting(format!("waiting as other finalizers are present: [{}]", foreign.join(" "))),
        synced: Vec::new(),
        applied: None,
        module_resource: None,
        requested: None,
        waits_for: WaitFact::Nothing,
        not_created: None,
    })
}

/// When to check finalizers of others again. The watch reports their removal as well.
pub(super) fn finalizer_check() -> Duration {
    retry::delay(Class::Waiting, u32::MAX, Duration::ZERO)
}

/// The Manifest without our finalizers, which were the last.
pub(super) fn released(manifest: &Manifest) -> Manifest {
    let mut released = manifest.clone();
    released.metadata.finalizers = None;
    released
}

#[cfg(test)]
mod tests;
