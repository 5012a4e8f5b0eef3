//! Whose an object in a runtime is. Pure: what the control plane has is asked through functions over its stores.
//!
//! What bears no mark of ours is somebody else's, unless our own hand took the mark off. What bears it belongs to the
//! Manifest that it names, as long as that exists; what a Manifest of this runtime left behind, its successor may have.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        Manifest,
        names::{FIELD_MANAGER, MANAGED_BY_SKR, annotation, label},
    },
    landscape,
    name::Key,
    object::ObjectId,
    render::{SharedObject, SharedObjects},
};

use super::recorded;

/// Objects that exist and are not ours, each with whose it is.
pub(super) type Strangers = BTreeMap<ObjectId, String>;

/// All that says whose an object is.
pub(super) struct Ownership<'a> {
    /// The Manifest that wants it.
    pub(super) manifest: &'a Manifest,
    /// All Manifests of the runtime, in the order of the modules: of two that bring one object, the first has it.
    pub(super) siblings: &'a [Arc<Manifest>],
    /// Whether the control plane has a Manifest.
    pub(super) exists: &'a (dyn Fn(&Key) -> bool + Sync),
}

// === impl Ownership ===

impl Ownership<'_> {
    /// Of objects that we want and never recorded: those that another Manifest of the runtime has. `objects_of` gives
    /// the objects that a Manifest brings, if they were read.
    pub(super) fn held_by_siblings(
        &self,
        unrecorded: &[&SharedObject],
        objects_of: impl Fn(&Manifest) -> Option<Arc<SharedObjects>>,
    ) -> Strangers {
        unrecorded
            .iter()
            .filter_map(|object| Some((object.id.clone(), self.sibling_with(&object.id, &objects_of)?)))
            .map(|(id, sibling)| (id, format!("it belongs to Manifest {sibling}")))
            .collect()
    }

    /// Of objects that we want and never recorded, and that exist in the runtime: those that are not ours.
    pub(super) fn held_by_others(&self, found: BTreeMap<ObjectId, Metadata>) -> Strangers {
        found
            .into_iter()
            .filter(|(_, metadata)| !self.was_unmanaged(metadata))
            .filter_map(|(id, metadata)| self.owner(&metadata).map(|owner| (id, owner)))
            .collect()
    }

    /// Whose an object is; none if it is ours: it bears the mark, and names this Manifest or one of this runtime that is
    /// gone.
    pub(super) fn owner(&self, metadata: &Metadata) -> Option<String> {
        let managers = || match metadata.managers.as_slice() {
            [] => "it has no field manager".to_owned(),
            names => format!("managed by {}", names.join(", ")),
        };
        if metadata.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) {
            return Some(managers());
        }
        let owner = metadata.annotation(annotation::OWNED_BY).filter(|_| !self.names_us(metadata))?;
        let Ok(key) = owner.parse::<Key>() else { return Some(managers()) };
        let present = || self.siblings.iter().any(|sibling| landscape::key(&sibling.metadata) == key);
        if present() || (self.exists)(&key) {
            return Some(format!("it belongs to Manifest {}", key.name()));
        }
        // What every runtime has names its Kyma; Manifests bear the names of their Kyma and module.
        let kyma = landscape::label(&self.manifest.metadata, label::KYMA_NAME).unwrap_or_default();
        let of_this_runtime = Some(key.namespace()) == self.manifest.metadata.namespace.as_deref()
            && key.name().strip_prefix(kyma).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        (!of_this_runtime).then(|| format!("it belongs to {key}, which this control plane does not have"))
    }

    /// The Manifest of the same runtime that has an object, or brings it as well and comes first.
    fn sibling_with(
        &self,
        id: &ObjectId,
        objects_of: &impl Fn(&Manifest) -> Option<Arc<SharedObjects>>,
    ) -> Option<String> {
        let own = &self.manifest.metadata.name;
        let mut is_before = true;
        for sibling in self.siblings {
            if sibling.metadata.name == *own {
                is_before = false;
                continue;
            }
            let has = || recorded::inventory(sibling).contains(id);
            let brings = || {
                let objects = objects_of(sibling);
                objects.is_some_and(|objects| objects.objects.iter().any(|object| object.id == *id))
            };
            let stays = sibling.metadata.deletion_timestamp.is_none();
            if has() || (is_before && stays && brings()) {
                return sibling.metadata.name.clone();
            }
        }
        None
    }

    /// Whether an object lost its mark by our own hand, when its module was handed to the user, who now hands it back.
    fn was_unmanaged(&self, metadata: &Metadata) -> bool {
        metadata.label(label::MANAGED_BY).is_none() && self.names_us(metadata) && metadata.has_manager(FIELD_MANAGER)
    }

    fn names_us(&self, metadata: &Metadata) -> bool {
        metadata.annotation(annotation::OWNED_BY) == Some(landscape::key(&self.manifest.metadata).to_string().as_str())
    }
}

#[cfg(test)]
mod tests;
