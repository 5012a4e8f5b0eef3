//! The metadata of an object, without managedFields, for when its content does not matter.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{
    Deserialize,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tidegate_core::{
    api::names::FIELD_MANAGER,
    name::Key,
    object::{Gvk, ObjectId},
};

use super::{take_over::is_taken_over, unreadable};

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The object's identity.
    pub id: ObjectId,
    /// The version under which it was read.
    pub version: Arc<str>,
    /// The UID, which distinguishes it from an earlier object of the same name.
    pub uid: String,
    /// The resource version, which changes with every write.
    pub resource_version: String,
    /// Counts changes of the spec; 0 if the kind has no generation.
    pub generation: i64,
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The annotations.
    pub annotations: BTreeMap<String, String>,
    /// The finalizers.
    pub finalizers: Vec<String>,
    /// Names of the field managers, sorted and unique.
    pub managers: Vec<String>,
    /// The field manager other than Tidegate's that wrote last, not counting subresources such as the status.
    pub last_other: Option<Box<str>>,
    /// Whether Tidegate or Lifecycle Manager applied texts of a Secret (`stringData`): their claims are on a field that
    /// is never stored.
    pub claims_texts: bool,
    /// Whether a field manager has written its spec, or other content, that is neither Tidegate's nor one of its
    /// controllers: those are the managers that write its status.
    pub has_user_writes: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The objects that own it, all in its namespace or in none: the garbage collector deletes it after them.
    pub owners: Vec<Owner>,
    /// The first field of the metadata that does not match its type, and what is wrong with it; that field is empty.
    /// Such an object exists, and [`Cluster::delete`](super::Cluster::delete) refuses to delete it.
    pub unreadable: Option<Box<str>>,
}

/// An object that owns another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The API group of its kind; empty for the core group.
    pub group: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// An owner reference as the API server writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OwnerReference {
    api_version: String,
    kind: String,
    name: String,
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
    #[serde(deserialize_with = "nullable")]
    pub(super) owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Manager {
    manager: String,
    operation: String,
    subresource: Option<String>,
    #[serde(rename = "fieldsV1")]
    fields: Option<Fields>,
    /// RFC 3339 in UTC, so that the order of texts is that of times.
    time: Option<String>,
}

/// What a manager claims, as far as it matters here.
#[derive(Debug, Default)]
struct Fields {
    /// `stringData`.
    texts: bool,
    /// The status, or a part of it.
    status: bool,
    /// Anything else but metadata.
    content: bool,
}

/// A field that a manager claims, or of which it claims a part.
#[derive(Deserialize)]
#[serde(field_identifier)]
enum Claim {
    #[serde(rename = "f:stringData")]
    Texts,
    #[serde(rename = "f:status")]
    Status,
    #[serde(rename = "f:metadata")]
    Metadata,
    #[serde(other)]
    Content,
}

/// Reads [`Fields`], and nothing below them.
struct FieldsVisitor;

/// An object of which only the metadata is read; `kind` distinguishes it from a `Status`.
#[derive(Debug, Deserialize)]
pub(super) struct WireObject {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) metadata: Wire,
}

/// An object as [`WireObject`], but a field of its metadata that does not match its type is empty.
pub(super) struct Lenient {
    wire: Wire,
    unreadable: Option<Box<str>>,
}

// === impl Fields ===

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a set of fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Fields::default();
        while let Some(claim) = map.next_key::<Claim>()? {
            map.next_value::<IgnoredAny>()?;
            match claim {
                Claim::Texts => (fields.texts, fields.content) = (true, true),
                Claim::Status => fields.status = true,
                Claim::Content => fields.content = true,
                Claim::Metadata => {}
            }
        }
        Ok(fields)
    }
}

// === impl Lenient ===

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Lenient, D::Error> {
        let json = <&RawValue>::deserialize(deserializer)?.get();
        match serde_json::from_str::<WireObject>(json) {
            Ok(object) => Ok(Lenient { wire: object.metadata, unreadable: None }),
            Err(error) => match unreadable::by_field(json) {
                Some(wire) => Ok(Lenient { wire, unreadable: Some(unreadable::problem::<WireObject>(json).into()) }),
                None => Err(serde::de::Error::custom(error)),
            },
        }
    }
}

/// The manager other than Tidegate's with the newest entry that is not about a subresource.
fn last_other(entries: &[Manager]) -> Option<Box<str>> {
    let is_other = |entry: &&Manager| {
        entry.subresource.as_ref().is_none_or(String::is_empty)
            && entry.manager != FIELD_MANAGER
            && !entry.manager.is_empty()
    };
    let last = entries.iter().filter(is_other).max_by(|one, other| one.time.cmp(&other.time))?;
    Some(last.manager.as_str().into())
}

/// Whether Tidegate or Lifecycle Manager applied `stringData`.
fn claims_texts(entries: &[Manager]) -> bool {
    let claims = |entry: &Manager| entry.fields.as_ref().is_some_and(|fields| fields.texts);
    entries.iter().any(|entry| entry.operation == "Apply" && is_taken_over(&entry.manager) && claims(entry))
}

/// Whether another than Tidegate and the controllers of an object has written its content. A controller writes the
/// status, and perhaps defaults into the spec. Users of kubectl may write a status as well, but are no controllers.
fn has_user_writes(entries: &[Manager]) -> bool {
    let claims = |entry: &Manager, what: fn(&Fields) -> bool| entry.fields.as_ref().is_some_and(what);
    let is_controller = |name: &str| {
        let mut its = entries.iter().filter(|entry| entry.manager == name);
        !name.starts_with("kubectl") && its.any(|entry| claims(entry, |fields| fields.status))
    };
    let is_other = |entry: &Manager| entry.manager != FIELD_MANAGER && !is_controller(&entry.manager);
    entries.iter().any(|entry| claims(entry, |fields| fields.content) && is_other(entry))
}

fn nullable<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

// === impl Owner ===

impl From<OwnerReference> for Owner {
    fn from(OwnerReference { api_version, kind, name }: OwnerReference) -> Owner {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Owner { group: group.into(), kind: kind.into(), name: name.into() }
    }
}

// === impl Metadata ===

impl Metadata {
    /// The metadata of an object of this kind.
    pub(super) fn for_kind(gvk: &Gvk, Lenient { wire, unreadable }: Lenient) -> Metadata {
        let last_other = last_other(&wire.managed_fields);
        let claims_texts = (&*gvk.group, &*gvk.kind) == ("", "Secret") && claims_texts(&wire.managed_fields);
        let has_user_writes = has_user_writes(&wire.managed_fields);
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
            last_other,
            claims_texts,
            has_user_writes,
            deleting: wire.deletion_timestamp.is_some(),
            owners: wire.owner_references.into_iter().map(Owner::from).collect(),
            unreadable,
        }
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        Key::new(&self.id.namespace, &self.id.name)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// The value of an annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// Whether a field manager owns fields of it.
    pub fn has_manager(&self, manager: &str) -> bool {
        self.managers.iter().any(|name| name == manager)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_controllers_write_is_told_from_what_users_write() {
        let entry = |manager: &str, fields: &[&str]| {
            let fields: serde_json::Map<String, serde_json::Value> =
                fields.iter().map(|field| ((*field).to_owned(), json!({"f:size": {}}))).collect();
            json!({"manager": manager, "operation": "Update", "fieldsV1": fields})
        };
        let ours = || entry(FIELD_MANAGER, &["f:spec", "f:metadata"]);
        let status = |manager: &str| {
            let mut written = entry(manager, &["f:status"]);
            written["subresource"] = "status".into();
            written
        };
        for (entries, expected) in [
            (vec![], false),
            (vec![ours()], false),
            (vec![ours(), entry("velero", &["f:metadata"])], false),
            (vec![ours(), entry("kubectl-edit", &["f:spec"])], true),
            (vec![ours(), entry("kubectl-edit", &["f:data"])], true),
            (vec![ours(), json!({"manager": "any"}), json!({"manager": "any", "fieldsV1": null})], false),
            // With a subresource for the status, and without.
            (vec![ours(), status("manager")], false),
            (vec![ours(), entry("manager", &["f:status"])], false),
            // The controller writes defaults.
            (vec![ours(), entry("manager", &["f:spec", "f:metadata"]), status("manager")], false),
            (vec![ours(), entry("manager", &["f:spec", "f:status"])], false),
            (vec![ours(), status("manager"), entry("kubectl-edit", &["f:spec"])], true),
            // An applied file that was exported with its status.
            (vec![ours(), entry("kubectl-client-side-apply", &["f:spec", "f:status"])], true),
        ] {
            let found: Vec<Manager> = serde_json::from_value(json!(entries)).unwrap();
            assert_eq!(has_user_writes(&found), expected, "{entries:?}");
        }
    }
}
