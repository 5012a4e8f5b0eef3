//! Computes what must change so that a cluster has the desired objects: what to apply, what to
//! prune, and what to keep and why.
//!
//! Never prunes on an incomplete view. Never prunes objects outside the inventory or the namespace
//! `kyma-system`. [`Prune::verdict`] decides a second time, from the live object, whether it may
//! really be deleted.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    api::names,
    inventory::Inventory,
    object::{Gvk, ObjectId},
};

mod cover;
mod quantity;

pub use cover::covers;

/// Whether every definition behind a desired set could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completeness {
    /// The set is complete: an object that is not in it is not desired.
    Complete,
    /// Something could not be read or rendered: an object that is not in the set may still be
    /// desired.
    Partial,
}

/// The purpose of a desired set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The cluster must have these objects from now on.
    Install,
    /// Everything must be removed: a module is disabled, or its Kyma is deleted. This includes
    /// CustomResourceDefinitions and Namespaces.
    Remove,
}

/// The desired objects, with the versions for their apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The objects.
    pub objects: Inventory,
    /// Whether the set is complete.
    pub completeness: Completeness,
    /// The purpose.
    pub purpose: Purpose,
}

/// The necessary changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In the order of apply.
    pub apply: Vec<ObjectId>,
    /// In the order of prune.
    pub prune: Vec<Prune>,
}

/// One object to prune.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// Its id.
    pub id: ObjectId,
    /// The version of its last apply.
    pub version: Arc<str>,
    /// Its condition besides the ownership label.
    pub guard: Guard,
}

/// A condition on a live object, besides our ownership label, before it is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// No further condition.
    Mark,
    /// It must have the annotation `tidegate.dev/prune: enabled`, because the deletion would remove
    /// user data.
    Annotation,
}

/// The facts about a live object that is to be pruned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live<'a> {
    /// Whether it has our ownership label.
    pub marked: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its annotation `tidegate.dev/prune`.
    pub prune: Option<&'a str>,
}

/// The decision about an object that is to be pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It does not exist: remove it from the inventory.
    Gone,
    /// Delete it, provided that it is still the same object.
    Delete,
    /// It is being deleted: keep it in the inventory until it is gone.
    Wait,
    /// It lacks our ownership label, so it is not ours: keep it, and remove it from the inventory.
    Foreign,
    /// It has the annotation `tidegate.dev/prune: disabled`: keep and report it.
    Disabled,
    /// A CustomResourceDefinition, Namespace or PersistentVolumeClaim without `tidegate.dev/prune:
    /// enabled`: keep and report it.
    Guarded,
}

// === impl Desired ===

impl Desired {
    /// A complete desired set.
    pub fn complete(objects: Inventory) -> Desired {
        Desired { objects, completeness: Completeness::Complete, purpose: Purpose::Install }
    }

    /// A part of the desired set.
    pub fn partial(objects: Inventory) -> Desired {
        Desired { objects, completeness: Completeness::Partial, purpose: Purpose::Install }
    }

    /// An intentionally empty set: all owned objects are removed.
    pub fn nothing() -> Desired {
        Desired { objects: Inventory::default(), completeness: Completeness::Complete, purpose: Purpose::Remove }
    }
}

// === impl Changes ===

impl Changes {
    /// The changes after which the cluster has `desired` and nothing else of ours.
    pub fn between(desired: &Desired, owned: &Inventory) -> Changes {
        let mut apply: Vec<ObjectId> = desired.objects.ids().cloned().collect();
        apply.sort_by(|one, other| one.apply_order().cmp(&other.apply_order()));
        // A definition that failed to parse looks exactly like one that was removed. So as long as the view is partial,
        // everything we own stays.
        let mut prune: Vec<Prune> = match desired.completeness {
            Completeness::Partial => Vec::new(),
            Completeness::Complete => owned
                .iter()
                .filter(|(id, _)| !desired.objects.contains(id) && !is_never_pruned(id))
                .map(|(id, version)| Prune {
                    id: id.clone(),
                    version: Arc::clone(version),
                    guard: guard(id, desired.purpose),
                })
                .collect(),
        };
        prune.sort_by(|one, other| other.id.apply_order().cmp(&one.id.apply_order()));
        Changes { apply, prune }
    }

    /// Whether nothing has to change.
    pub fn is_empty(&self) -> bool {
        self.apply.is_empty() && self.prune.is_empty()
    }
}

// === impl Prune ===

impl Prune {
    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk { group: Arc::clone(&self.id.group), version: Arc::clone(&self.version), kind: Arc::clone(&self.id.kind) }
    }

    /// The decision from the live object; `None` if it does not exist.
    pub fn verdict(&self, live: Option<&Live<'_>>) -> Verdict {
        let Some(live) = live else { return Verdict::Gone };
        if !live.marked {
            return Verdict::Foreign;
        }
        if live.deleting {
            return Verdict::Wait;
        }
        match (live.prune, self.guard) {
            (Some("disabled"), _) => Verdict::Disabled,
            (Some("enabled"), Guard::Annotation) | (_, Guard::Mark) => Verdict::Delete,
            (_, Guard::Annotation) => Verdict::Guarded,
        }
    }
}

// === impl Verdict ===

impl Verdict {
    /// Whether the object leaves the inventory.
    pub fn is_settled(self) -> bool {
        match self {
            Verdict::Gone | Verdict::Foreign => true,
            Verdict::Delete | Verdict::Wait | Verdict::Disabled | Verdict::Guarded => false,
        }
    }
}

/// Objects that no change or removal of a module may delete: the namespace with the runtime's own
/// Kyma.
fn is_never_pruned(id: &ObjectId) -> bool {
    id.group.is_empty() && &*id.kind == "Namespace" && &*id.name == names::SKR_NAMESPACE
}

/// Objects with user data are only deleted on request: with the whole module, or by an annotation.
fn guard(id: &ObjectId, purpose: Purpose) -> Guard {
    let holds_data = matches!(
        (&*id.group, &*id.kind),
        ("apiextensions.k8s.io", "CustomResourceDefinition") | ("", "Namespace" | "PersistentVolumeClaim")
    );
    match purpose {
        Purpose::Install if holds_data => Guard::Annotation,
        Purpose::Install | Purpose::Remove => Guard::Mark,
    }
}

/// Annotation `tidegate.dev/prune` in the JSON of an object.
pub fn prune_annotation(object: &Value) -> Option<&str> {
    object.pointer("/metadata/annotations")?.get(names::annotation::PRUNE)?.as_str()
}

#[cfg(test)]
mod tests;
