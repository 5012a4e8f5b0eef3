//! Kubernetes objects as values: identity, digest and order of apply.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Gvk {
    /// Group; empty for the core group.
    pub group: Arc<str>,
    /// Version.
    pub version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
}

/// The identity of an object. It does not include the version.
///
/// Displays as `Kind.group namespace/name`, without empty parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// Group; empty for the core group.
    pub group: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// The stage of apply. Pruning uses the reverse order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// CustomResourceDefinitions. Tidegate waits until they are established.
    Crd,
    /// Namespaces.
    Namespace,
    /// ServiceAccounts, Roles and bindings.
    Rbac,
    /// ConfigMaps, Secrets, Services and all other built-in kinds.
    Configuration,
    /// Workloads.
    Workload,
    /// Webhook configurations and API services, which fail while their workload is missing.
    Webhook,
    /// Every custom kind.
    CustomResource,
}

/// SHA-256 of canonical JSON (keys sorted). Displays as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why a value is not an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseObjectError {
    /// The value is not a mapping.
    #[error("an object must be a mapping")]
    NotAMapping,
    /// A required string is missing, empty or not a string.
    #[error("`{0}` must be a non-empty string")]
    Missing(&'static str),
}

/// A Kubernetes object: a mapping with `apiVersion`, `kind` and `metadata.name`.
#[derive(Clone, Debug, PartialEq)]
pub struct Object(Value);

/// One step into a value: to a field of a mapping or to an item of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathPart {
    /// A field.
    Key(String),
    /// An item, from 0.
    Index(usize),
}

/// Displays a path as the API server does: `spec.modules[0].name`.
pub struct DisplayPath<'a>(pub &'a [PathPart]);

// === impl Gvk ===

impl Gvk {
    /// From its parts.
    pub fn new(group: &str, version: &str, kind: &str) -> Gvk {
        Gvk { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// From `apiVersion` and `kind`.
    pub fn from_api_version(api_version: &str, kind: &str) -> Gvk {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Gvk::new(group, version, kind)
    }

    /// `group/version`, or `version` alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

// === impl ObjectId ===

impl ObjectId {
    /// From its parts.
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> ObjectId {
        ObjectId { group: group.into(), kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// The stage of this kind.
    pub fn stage(&self) -> Stage {
        Stage::for_kind(&self.group, &self.kind)
    }

    /// The order of apply: by stage, then by name. Pruning uses the reverse order.
    pub fn apply_order(&self) -> (Stage, &ObjectId) {
        (self.stage(), self)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if self.namespace.is_empty() {
            write!(f, " {}", self.name)
        } else {
            write!(f, " {}/{}", self.namespace, self.name)
        }
    }
}

// === impl Stage ===

impl Stage {
    /// The stage of a kind.
    pub fn for_kind(group: &str, kind: &str) -> Stage {
        match (group, kind) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Stage::Crd,
            ("", "Namespace") => Stage::Namespace,
            ("", "ServiceAccount") | ("rbac.authorization.k8s.io", _) => Stage::Rbac,
            ("", "Pod" | "ReplicationController") | ("apps" | "batch", _) => Stage::Workload,
            ("admissionregistration.k8s.io" | "apiregistration.k8s.io", _) => Stage::Webhook,
            _ if is_built_in_group(group) => Stage::Configuration,
            _ => Stage::CustomResource,
        }
    }
}

/// Whether the API server serves a group without CRDs.
pub fn is_built_in_group(group: &str) -> bool {
    // `gateway.networking.k8s.io` and others look like built-in groups but are from CRDs, so the list is explicit.
    const BUILT_IN: [&str; 21] = [
        "",
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "apps",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "autoscaling",
        "batch",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "policy",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
    ];
    BUILT_IN.contains(&group) || matches!(group, "storage.k8s.io" | "storagemigration.k8s.io")
}

// === impl Digest ===

impl Digest {
    /// The digest of a value, independent of the order of keys.
    pub fn from_value(value: &Value) -> Digest {
        let mut hasher = Sha256::new();
        hash_canonical(value, &mut hasher);
        Digest(hasher.finalize().into())
    }

    /// The digest of several digests, in order.
    pub fn all<'a>(digests: impl IntoIterator<Item = &'a Digest>) -> Digest {
        let mut hasher = Sha256::new();
        digests.into_iter().for_each(|digest| hasher.update(digest.0));
        Digest(hasher.finalize().into())
    }

    /// The digest of bytes.
    pub fn of_bytes(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The inverse of [`Digest::as_bytes`].
    pub fn from_bytes(bytes: [u8; 32]) -> Digest {
        Digest(bytes)
    }

    /// The first 16 hexadecimal digits: enough for annotations and names.
    pub fn short(&self) -> String {
        let mut text = self.to_string();
        text.truncate(16);
        text
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

/// Feeds a value to a hasher. Equal values give equal bytes, and different values different ones.
fn hash_canonical(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(flag) => hasher.update(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => hash_text(b"d", &number.to_string(), hasher),
        Value::String(text) => hash_text(b"s", text, hasher),
        Value::Array(items) => {
            hash_text(b"[", &items.len().to_string(), hasher);
            items.iter().for_each(|item| hash_canonical(item, hasher));
        }
        Value::Object(map) => {
            hash_text(b"{", &map.len().to_string(), hasher);
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in entries {
                hash_text(b"k", key, hasher);
                hash_canonical(value, hasher);
            }
        }
    }
}

fn hash_text(tag: &[u8], text: &str, hasher: &mut Sha256) {
    hasher.update(tag);
    hasher.update((text.len() as u64).to_le_bytes());
    hasher.update(text);
}

// === impl Object ===

impl Object {
    /// Converts a value.
    ///
    /// # Errors
    ///
    /// Fails if it is not a mapping, or lacks `apiVersion`, `kind` or a name.
    pub fn new(value: Value) -> Result<Object, ParseObjectError> {
        let map = value.as_object().ok_or(ParseObjectError::NotAMapping)?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        if !text(map.get("apiVersion")) {
            return Err(ParseObjectError::Missing("apiVersion"));
        }
        if !text(map.get("kind")) {
            return Err(ParseObjectError::Missing("kind"));
        }
        if !text(value.pointer("/metadata/name")) {
            return Err(ParseObjectError::Missing("metadata.name"));
        }
        Ok(Object(value))
    }

    /// Its JSON.
    pub fn value(&self) -> &Value {
        &self.0
    }

    /// Converts it to its JSON.
    pub fn into_value(self) -> Value {
        self.0
    }

    /// A top-level field.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk::from_api_version(self.text("/apiVersion"), self.text("/kind"))
    }

    /// Its identity.
    pub fn id(&self) -> ObjectId {
        let gvk = self.gvk();
        ObjectId { group: gvk.group, kind: gvk.kind, namespace: self.namespace().into(), name: self.name().into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Its namespace; empty if it has none.
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    /// A label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.0.pointer("/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str)
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.0.pointer("/metadata/annotations").and_then(|annotations| annotations.get(key)).and_then(Value::as_str)
    }

    /// Sets a label.
    pub fn set_label(&mut self, key: &str, value: &str) {
        self.set_metadata("labels", key, value);
    }

    /// Sets an annotation.
    pub fn set_annotation(&mut self, key: &str, value: &str) {
        self.set_metadata("annotations", key, value);
    }

    /// Sets the namespace. An empty one removes it.
    pub fn set_namespace(&mut self, namespace: &str) {
        let metadata = self.metadata_mut();
        if namespace.is_empty() {
            metadata.shift_remove("namespace");
        } else {
            metadata.insert("namespace".to_owned(), Value::from(namespace));
        }
    }

    /// Its top-level mapping, for changes that keep `apiVersion`, `kind` and `metadata.name`.
    pub fn map_mut(&mut self) -> &mut Map<String, Value> {
        self.0.as_object_mut().expect("an object is a mapping: checked on construction")
    }

    /// Its metadata, for changes that keep the name.
    pub fn metadata_mut(&mut self) -> &mut Map<String, Value> {
        self.map_mut()
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .expect("an object has metadata with a name: checked on construction")
    }

    /// Digest of the whole object.
    pub fn digest(&self) -> Digest {
        Digest::from_value(&self.0)
    }

    fn set_metadata(&mut self, field: &str, key: &str, value: &str) {
        let entry = self.metadata_mut().entry(field).or_insert_with(|| Value::Object(Map::new()));
        if !entry.is_object() {
            *entry = Value::Object(Map::new());
        }
        if let Some(map) = entry.as_object_mut() {
            map.insert(key.to_owned(), Value::from(value));
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

// === impl PathPart ===

impl From<&str> for PathPart {
    fn from(key: &str) -> PathPart {
        PathPart::Key(key.to_owned())
    }
}

impl From<usize> for PathPart {
    fn from(index: usize) -> PathPart {
        PathPart::Index(index)
    }
}

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, part) in self.0.iter().enumerate() {
            match part {
                PathPart::Index(index) => write!(f, "[{index}]")?,
                // A key such as `tidegate.dev/source` would look like several fields.
                PathPart::Key(key) if key.contains(['.', '/', '[', ']']) => write!(f, "[{key}]")?,
                PathPart::Key(key) if position == 0 => f.write_str(key)?,
                PathPart::Key(key) => write!(f, ".{key}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
