//! What we own: the objects that we may have created and that may still exist.
//!
//! An inventory grows before the first write and shrinks after the last, so that at no moment a live object of ours is
//! unrecorded. Identity ignores the API version, which is kept only as the version with which an object was applied.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api::manifest::SyncedObject,
    object::{Gvk, ObjectId},
};

/// A set of objects, each once, in the order of their ids; with each the version under which it was applied last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<ObjectId, Arc<str>>);

// === impl Inventory ===

impl Inventory {
    /// As a Manifest's status holds it. If an object stands in it twice (Lifecycle Manager keeps one entry a version),
    /// the last one counts.
    pub fn of(synced: &[SyncedObject]) -> Inventory {
        synced
            .iter()
            .map(|entry| {
                let id = ObjectId::new(&entry.group, &entry.kind, &entry.namespace, &entry.name);
                (id, Arc::from(entry.version.as_str()))
            })
            .collect()
    }

    /// As a Manifest's status holds it: sorted, each object once.
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

    /// Whether an object stands in it.
    pub fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains_key(id)
    }

    /// The version with which an object was applied last.
    pub fn version(&self, id: &ObjectId) -> Option<&Arc<str>> {
        self.0.get(id)
    }

    /// Group, version and kind of an object of it.
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

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Before anything is written: all that we own and all that we are about to create. Where both name an object, the
    /// version about to be applied counts.
    #[must_use]
    pub fn union(&self, other: &Inventory) -> Inventory {
        self.iter().chain(other.iter()).map(|(id, version)| (id.clone(), Arc::clone(version))).collect()
    }

    /// After everything is written: without what is known to be gone.
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
