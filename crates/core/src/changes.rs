//! What has to happen so that a cluster holds what is desired: what to apply, what to prune, what to leave and why.
//!
//! Never prunes on an incomplete view, nor what is not in the inventory, nor the namespace `kyma-system`. Whether a live
//! object may really be deleted is decided a second time, by [`Prune::verdict`], on what the cluster says about it at that moment.

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
    /// All of it is known: what is not in it is not desired.
    Complete,
    /// Something could not be read or rendered: what is not in it may still be desired.
    Partial,
}

/// Why a desired set looks as it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// This is what shall be there from now on.
    Install,
    /// All of it shall go: a module is disabled, or its Kyma is deleted. CustomResourceDefinitions and Namespaces go too.
    Remove,
}

/// Objects that shall be there, with the version under which they are applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The objects.
    pub objects: Inventory,
    /// Whether that is all of them.
    pub completeness: Completeness,
    /// What for.
    pub purpose: Purpose,
}

/// What has to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// In the order of apply.
    pub apply: Vec<ObjectId>,
    /// In the order of prune.
    pub prune: Vec<Prune>,
}

/// One object that shall go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// Which.
    pub id: ObjectId,
    /// The version under which it was applied last.
    pub version: Arc<str>,
    /// What must hold besides our mark.
    pub guard: Guard,
}

/// What must hold of a live object, besides our mark, before it is pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Nothing more.
    Mark,
    /// It carries `tidegate.dev/prune: enabled`: data of users would go with it.
    Annotation,
}

/// What the cluster says of an object that shall go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live<'a> {
    /// Whether it bears our mark.
    pub marked: bool,
    /// Whether its deletion is under way.
    pub deleting: bool,
    /// Its annotation `tidegate.dev/prune`.
    pub prune: Option<&'a str>,
}

/// What becomes of an object that shall go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is not there: it leaves the inventory.
    Gone,
    /// Delete it, on condition that it is still the same.
    Delete,
    /// Its deletion is under way: it stays in the inventory until it is gone.
    Wait,
    /// It does not bear our mark: it is not ours, stays, and leaves the inventory.
    Foreign,
    /// It is annotated `tidegate.dev/prune: disabled`: it stays, and is reported.
    Disabled,
    /// A CustomResourceDefinition, Namespace or PersistentVolumeClaim without `tidegate.dev/prune: enabled`: it stays, and is reported.
    Guarded,
}

// === impl Desired ===

impl Desired {
    /// All that shall be there.
    pub fn complete(objects: Inventory) -> Desired {
        Desired { objects, completeness: Completeness::Complete, purpose: Purpose::Install }
    }

    /// A part of what shall be there.
    pub fn partial(objects: Inventory) -> Desired {
        Desired { objects, completeness: Completeness::Partial, purpose: Purpose::Install }
    }

    /// Nothing, on purpose: all that is owned shall go.
    pub fn nothing() -> Desired {
        Desired { objects: Inventory::default(), completeness: Completeness::Complete, purpose: Purpose::Remove }
    }
}

// === impl Changes ===

impl Changes {
    /// What must happen so that the cluster holds `desired` and nothing else of ours.
    pub fn between(desired: &Desired, owned: &Inventory) -> Changes {
        let mut apply: Vec<ObjectId> = desired.objects.ids().cloned().collect();
        apply.sort_by(|one, other| one.apply_order().cmp(&other.apply_order()));
        // A definition that failed to parse looks exactly like one that was removed.
        // We do not guess: while the view is partial, everything we own stays.
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

    /// Whether nothing has to happen.
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

    /// What becomes of it, seen how it stands in the cluster; `None` if it is not there.
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

/// What no module's change or removal may take away: the namespace in which the runtime's own Kyma lives.
fn is_never_pruned(id: &ObjectId) -> bool {
    id.group.is_empty() && &*id.kind == "Namespace" && &*id.name == names::SKR_NAMESPACE
}

/// Objects that hold users' data go only where that was asked for: with the whole module, or by an annotation.
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

/// Annotation `tidegate.dev/prune` of an object's JSON.
pub fn prune_annotation(object: &Value) -> Option<&str> {
    object.pointer("/metadata/annotations")?.get(names::annotation::PRUNE)?.as_str()
}

#[cfg(test)]
mod tests;
