//! Computes which of our objects must leave a cluster, and which stay and why.
//!
//! Never prunes on an incomplete view: the desired set is a [`CompleteModule`], which only exists if
//! every object of the module could be read. Never prunes objects outside the inventory, nor those
//! that Tidegate keeps in every runtime. [`Prune::verdict`] decides a second time, from the live object, whether
//! it may really be deleted.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;

use crate::{
    api::names,
    inventory::Inventory,
    object::{Gvk, ObjectId},
    render::{self, CompleteModule},
};

mod cover;
mod quantity;
mod same;

pub(crate) use self::same::with_defaults;
pub use self::{
    cover::{covers, merged},
    quantity::compare_quantities,
    same::{have_same_effect, kept_fields, with_kept_fields},
};

/// What a cluster must have of a module.
#[derive(Clone, Copy, Debug)]
pub enum Desired<'a> {
    /// These objects and no others.
    Module(&'a CompleteModule),
    /// Nothing: the module is disabled, or its Kyma is deleted.
    Nothing,
}

/// Why an object is no longer desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Its module stays installed, without it.
    Install,
    /// Its module is removed with everything, including CustomResourceDefinitions and Namespaces.
    Remove,
}

/// One object to prune. Only [`Prune::between`] makes one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

impl Desired<'_> {
    fn purpose(self) -> Purpose {
        match self {
            Desired::Module(_) => Purpose::Install,
            Desired::Nothing => Purpose::Remove,
        }
    }

    fn ids(self) -> BTreeSet<ObjectId> {
        match self {
            Desired::Module(module) => module.objects().objects.iter().map(|object| object.id.clone()).collect(),
            Desired::Nothing => BTreeSet::new(),
        }
    }
}

// === impl Prune ===

impl Prune {
    /// The prunes after which the cluster has nothing of ours except `desired`, in the order of prune.
    pub fn between(desired: Desired<'_>, owned: &Inventory) -> Vec<Prune> {
        let wanted = desired.ids();
        let mut prunes: Vec<Prune> = owned
            .iter()
            .filter(|(id, _)| !wanted.contains(id) && !is_never_pruned(id))
            .map(|(id, version)| Prune {
                id: id.clone(),
                version: Arc::clone(version),
                guard: guard(id, desired.purpose()),
            })
            .collect();
        prunes.sort_by(|one, other| other.id.apply_order().cmp(&one.id.apply_order()));
        prunes
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk { group: Arc::clone(&self.id.group), version: Arc::clone(&self.version), kind: Arc::clone(&self.id.kind) }
    }

    /// The decision from the live object; `None` if it does not exist.
    pub fn verdict(&self, live: Option<&Live<'_>>) -> Verdict {
        live.map_or(Verdict::Gone, |live| verdict(self.guard, live))
    }
}

/// What will happen to an owned object once it is no longer desired. `None` if it is never pruned.
///
/// For reports about objects that are not in a cluster yet. The result allows no deletion.
pub fn forecast(id: &ObjectId, purpose: Purpose, live: &Live<'_>) -> Option<Verdict> {
    (!is_never_pruned(id)).then(|| verdict(guard(id, purpose), live))
}

fn verdict(guard: Guard, live: &Live<'_>) -> Verdict {
    if !live.marked {
        return Verdict::Foreign;
    }
    if live.deleting {
        return Verdict::Wait;
    }
    match (live.prune, guard) {
        (Some("disabled"), _) => Verdict::Disabled,
        (Some("enabled"), Guard::Annotation) | (_, Guard::Mark) => Verdict::Delete,
        (_, Guard::Annotation) => Verdict::Guarded,
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

/// Objects that no change or removal of a module may delete: those that Tidegate keeps in every runtime. An inventory
/// may list them: earlier versions installed modules that contain them.
fn is_never_pruned(id: &ObjectId) -> bool {
    render::is_runtime_namespace(id) || render::is_in_every_runtime(id)
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

/// Writes an object over another one: mappings are merged, everything else is replaced.
pub fn overlay(over: &mut Value, object: &Value) {
    match (over, object) {
        (Value::Object(over), Value::Object(object)) => {
            for (key, value) in object {
                overlay(over.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (over, object) => *over = object.clone(),
    }
}

#[cfg(test)]
mod tests;
