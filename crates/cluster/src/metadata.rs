//! What we read of an object when its content does not matter: small, and without managedFields.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use tidegate_core::{
    name::Key,
    object::{Gvk, ObjectId},
};

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Which object.
    pub id: ObjectId,
    /// The version under which it was read.
    pub version: Arc<str>,
    /// Tells it from an object of the same name that was there before.
    pub uid: String,
    /// Tells this state of it from every other.
    pub resource_version: String,
    /// Counts changes of its specification; 0 where the kind has none.
    pub generation: i64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Finalizers.
    pub finalizers: Vec<String>,
    /// Names of the field managers, sorted, each once.
    pub managers: Vec<String>,
    /// Whether its deletion is under way.
    pub deleting: bool,
}

/// `metadata` as the API server writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Wire {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) generation: i64,
    #[serde(deserialize_with = "nullable")]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) finalizers: Vec<String>,
    #[serde(deserialize_with = "nullable")]
    pub(super) managed_fields: Vec<Manager>,
    pub(super) deletion_timestamp: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Manager {
    manager: String,
}

/// An object of which only the metadata is read; `kind` tells an object from a `Status`.
#[derive(Debug, Deserialize)]
pub(super) struct WireObject {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) metadata: Wire,
}

fn nullable<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

// === impl Metadata ===

impl Metadata {
    /// Of an object of a kind.
    pub(super) fn of(gvk: &Gvk, wire: Wire) -> Metadata {
        let mut managers: Vec<String> = wire.managed_fields.into_iter().map(|entry| entry.manager).collect();
        managers.sort_unstable();
        managers.dedup();
        Metadata {
            id: ObjectId {
                group: Arc::clone(&gvk.group),
                kind: Arc::clone(&gvk.kind),
                namespace: wire.namespace.into(),
                name: wire.name.into(),
            },
            version: Arc::clone(&gvk.version),
            uid: wire.uid,
            resource_version: wire.resource_version,
            generation: wire.generation,
            labels: wire.labels,
            annotations: wire.annotations,
            finalizers: wire.finalizers,
            managers,
            deleting: wire.deletion_timestamp.is_some(),
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::new(&self.id.namespace, &self.id.name)
    }

    /// One of its labels.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// One of its annotations.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Whether a field manager has fields of it.
    pub fn has_manager(&self, manager: &str) -> bool {
        self.managers.iter().any(|name| name == manager)
    }
}
