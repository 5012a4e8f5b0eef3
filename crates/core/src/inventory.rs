//! The inventory: the objects that Tidegate may have created and that may still exist.
//!
//! An inventory grows before the first write and shrinks after the last one, so every live object
//! of ours is always recorded. Identity ignores the API version, which is only kept as the version
//! of the last apply.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::manifest::SyncedObject,
    object::{Gvk, ObjectId},
};

/// A set of objects in the order of their ids, each with the version of its last apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<ObjectId, Arc<str>>);

// === impl Inventory ===

impl Inventory {
    /// Reads the inventory in the status of a Manifest. If it contains an object twice (Lifecycle
    /// Manager keeps one entry per version), the last entry wins.
    pub fn from_status(synced: &[SyncedObject]) -> Inventory {
        synced
            .iter()
            .map(|entry| {
                let id = ObjectId::new(&entry.group, &entry.kind, &entry.namespace, &entry.name);
                (id, Arc::from(entry.version.as_str()))
            })
            .collect()
    }

    /// The inventory for the status of a Manifest: sorted and without duplicates.
    pub fn to_synced(&self) -> Vec<SyncedObject> {
        let entry = |(id, version): (&ObjectId, &Arc<str>)| SyncedObject {
            group: id.group.to_string(),
            version: version.to_string(),
            kind: id.kind.to_string(),
            name: id.name.to_string(),
            namespace: id.namespace.to_string(),
        };
        self.0.iter().map(entry).collect()
    }

    /// Records an object.
    pub fn insert(&mut self, id: ObjectId, version: Arc<str>) {
        self.0.insert(id, version);
    }

    /// Whether it contains an object.
    pub fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains_key(id)
    }

    /// The version of the last apply of an object.
    pub fn version(&self, id: &ObjectId) -> Option<&Arc<str>> {
        self.0.get(id)
    }

    /// Group, version and kind of an object in it.
    pub fn gvk(&self, id: &ObjectId) -> Option<Gvk> {
        self.version(id).map(|version| Gvk {
            group: Arc::clone(&id.group),
            version: Arc::clone(version),
            kind: Arc::clone(&id.kind),
        })
    }

    /// All objects by id.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&ObjectId, &Arc<str>)> {
        self.0.iter()
    }

    /// All ids, sorted.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = &ObjectId> {
        self.0.keys()
    }

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The inventory before a write: everything that we own, and everything that we are about to
    /// create. For an object in both, the version of the coming apply wins.
    #[must_use]
    pub fn union(&self, other: &Inventory) -> Inventory {
        self.iter().chain(other.iter()).map(|(id, version)| (id.clone(), Arc::clone(version))).collect()
    }

    /// The inventory after a write: without objects that are known to be gone.
    #[must_use]
    pub fn without<'a>(&self, gone: impl IntoIterator<Item = &'a ObjectId>) -> Inventory {
        let mut rest = self.clone();
        for id in gone {
            rest.0.remove(id);
        }
        rest
    }
}

impl FromIterator<(ObjectId, Arc<str>)> for Inventory {
    fn from_iter<I: IntoIterator<Item = (ObjectId, Arc<str>)>>(entries: I) -> Inventory {
        Inventory(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests;
