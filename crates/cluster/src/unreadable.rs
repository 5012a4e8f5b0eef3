//! Objects that do not match their type: what is known of them all the same, and the field that does not match.
//!
//! A list or a watch reads its objects one by one, so an unreadable object never hides the others. Nothing here quotes
//! a value: the object may be a Secret.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};
use tidegate_core::name::Key;

use super::{metadata::Wire, position};

/// An object that exists and does not match its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// Its metadata, as far as they can be read: at least its name. Never managedFields or the resource version, which
    /// change with every write of the status.
    pub metadata: ObjectMeta,
    /// The field and what is wrong with it, for example `spec.channel: invalid type, expected a string`.
    pub problem: String,
    /// Whether `spec.templates` is set: a GitSource has overrides of templates there.
    pub names_templates: bool,
}

/// An item of a list.
pub(super) enum Item<K> {
    /// It matches the type.
    Readable(K),
    /// It does not.
    Unreadable(Box<Unreadable>),
}

// === impl Unreadable ===

impl Unreadable {
    fn of(json: &str, metadata: ObjectMeta, problem: String) -> Unreadable {
        #[derive(Deserialize)]
        struct Object {
            spec: Option<Spec>,
        }
        #[derive(Deserialize)]
        struct Spec {
            templates: Option<Value>,
        }
        let spec = serde_json::from_str(json).ok().and_then(|Object { spec }| spec);
        let templates = spec.and_then(|spec| spec.templates);
        let names_templates = templates.is_some_and(|templates| !templates.is_null() && templates != "");
        Unreadable { metadata, problem, names_templates }
    }

    /// Its namespace and name.
    pub fn key(&self) -> Key {
        tidegate_core::landscape::key(&self.metadata)
    }
}

/// Reads an object as a type.
///
/// # Errors
///
/// What is known of an object that does not match the type. Fails with `None` if not even its name can be read, which
/// is not an object of an API server.
pub fn read<K: DeserializeOwned>(json: &str) -> Result<K, Option<Box<Unreadable>>> {
    if let Some(problem) = list_for_object(json) {
        return Err(metadata(json).map(|metadata| Box::new(Unreadable::of(json, metadata, problem))));
    }
    serde_json::from_str(json).map_err(|_| {
        let metadata = metadata(json)?;
        Some(Box::new(Unreadable::of(json, metadata, problem::<K>(json))))
    })
}

/// What is wrong with an object whose `spec` or `status` is a list. serde would read a list as the fields of a type in
/// their order, and an empty one as a type without required fields.
fn list_for_object(json: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    // Almost no object has such a field, so almost none is read twice.
    let mut fields = json.match_indices("\"spec\":").chain(json.match_indices("\"status\":"));
    if !fields.any(|(at, found)| json[at + found.len()..].trim_start().starts_with('[')) {
        return None;
    }
    let Parts { spec, status } = serde_json::from_str(json).ok()?;
    let is_list = |part: Option<&RawValue>| part.is_some_and(|part| part.get().starts_with('['));
    let field = [("spec", spec), ("status", status)].into_iter().find(|(_, part)| is_list(*part))?.0;
    Some(format!("{field}: invalid type, expected an object"))
}

/// The first field that does not match the type, and what is wrong with it.
pub(super) fn problem<K: DeserializeOwned>(json: &str) -> String {
    let parser = &mut serde_json::Deserializer::from_str(json);
    match serde_path_to_error::deserialize::<_, K>(parser) {
        Ok(_) => "it cannot be read".to_owned(),
        Err(error) if error.inner().is_data() => {
            let what = what(&error.inner().to_string());
            match error.path().to_string() {
                path if path == "." => what,
                path => format!("{path}: {what}"),
            }
        }
        Err(error) => position(error.inner()),
    }
}

/// What is wrong, without the value: serde quotes it.
fn what(message: &str) -> String {
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    // The name of a missing field comes from the type.
    if message.starts_with("missing field `") {
        return message.to_owned();
    }
    let kinds = ["invalid type", "invalid value", "invalid length", "unknown variant", "unknown field"];
    let kind = kinds.into_iter().find(|kind| message.starts_with(kind)).unwrap_or("invalid value");
    match message.rsplit_once(", expected ") {
        // serde names our types, which users do not know.
        Some((_, expected)) if expected.starts_with("struct ") => format!("{kind}, expected an object"),
        Some((_, "a sequence")) => format!("{kind}, expected a list"),
        Some((_, "a map")) => format!("{kind}, expected an object"),
        Some((_, expected)) => format!("{kind}, expected {expected}"),
        None => kind.to_owned(),
    }
}

/// The metadata of an object that may be unreadable for its metadata.
fn metadata(json: &str) -> Option<ObjectMeta> {
    #[derive(Deserialize)]
    struct Strict {
        metadata: ObjectMeta,
    }
    let mut metadata = match serde_json::from_str(json) {
        Ok(Strict { metadata }) => metadata,
        Err(_) => of_wire(by_field(json)?),
    };
    metadata.managed_fields = None;
    metadata.resource_version = None;
    metadata.name.as_ref().is_some_and(|name| !name.is_empty()).then_some(metadata)
}

/// The metadata of an object, each field by itself: one that does not match its type is empty. None without a name,
/// which every object of an API server has.
pub(super) fn by_field(json: &str) -> Option<Wire> {
    #[derive(Deserialize)]
    struct Fields {
        metadata: Map<String, Value>,
    }
    let Fields { mut metadata } = serde_json::from_str(json).ok()?;
    let fields = &mut metadata;
    // An object with anything there is being deleted.
    let deletion = fields.remove("deletionTimestamp").filter(|moment| !moment.is_null());
    let wire = Wire {
        name: field(fields, "name"),
        namespace: field(fields, "namespace"),
        uid: field(fields, "uid"),
        resource_version: field(fields, "resourceVersion"),
        generation: field(fields, "generation"),
        labels: field(fields, "labels"),
        annotations: field(fields, "annotations"),
        finalizers: field(fields, "finalizers"),
        managed_fields: field(fields, "managedFields"),
        owner_references: field(fields, "ownerReferences"),
        deletion_timestamp: deletion.map(|moment| moment.to_string()),
    };
    (!wire.name.is_empty()).then_some(wire)
}

fn field<T: DeserializeOwned + Default>(fields: &mut Map<String, Value>, name: &str) -> T {
    fields.remove(name).and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default()
}

fn of_wire(wire: Wire) -> ObjectMeta {
    ObjectMeta {
        name: some(wire.name),
        namespace: some(wire.namespace),
        uid: some(wire.uid),
        generation: (wire.generation != 0).then_some(wire.generation),
        labels: Some(wire.labels),
        annotations: Some(wire.annotations),
        finalizers: Some(wire.finalizers),
        // The moment does not matter, but that there is one does.
        deletion_timestamp: wire.deletion_timestamp.map(|_| Time(jiff::Timestamp::UNIX_EPOCH)),
        ..ObjectMeta::default()
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

// === impl Item ===

impl<'de, K: DeserializeOwned> Deserialize<'de> for Item<K> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Item<K>, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        match read(raw.get()) {
            Ok(object) => Ok(Item::Readable(object)),
            Err(Some(unreadable)) => Ok(Item::Unreadable(unreadable)),
            Err(None) => Err(serde::de::Error::custom("an object without a name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::api::{Kyma, ModuleTemplate};

    use super::*;

    fn kyma(spec: &str) -> String {
        format!(
            r#"{{"metadata": {{"name": "a", "namespace": "kcp-system", "resourceVersion": "7", "labels": {{"l": "v"}}}}, "spec": {spec}}}"#
        )
    }

    fn unreadable(json: &str) -> Unreadable {
        *read::<Kyma>(json).expect_err("unreadable").expect("with a name")
    }

    #[test]
    fn the_field_is_named_and_its_value_is_not() {
        for (spec, expected) in [
            (r#"{"channel": 7}"#, "spec.channel: invalid type, expected a string"),
            (
                r#"{"channel": "a", "modules": [{"name": "b", "managed": "secret, expected x"}]}"#,
                "spec.modules[0].managed: invalid type, expected a boolean",
            ),
            (r#"{"channel": "a", "modules": [{"managed": true}]}"#, "spec.modules[0]: missing field `name`"),
            (r#"{"channel": "a", "modules": {"secret": 1}}"#, "spec.modules: invalid type, expected a list"),
            ("[]", "spec: invalid type, expected an object"),
            (r#"["regular"]"#, "spec: invalid type, expected an object"),
            (r#"{"channel": "a"}, "status": []"#, "status: invalid type, expected an object"),
        ] {
            assert_eq!(unreadable(&kyma(spec)).problem, expected);
        }
    }

    #[test]
    fn whether_a_source_has_templates_is_known_without_its_type() {
        for (spec, expected) in [
            (r#"{"channel": 7}"#, false),
            (r#"{"channel": 7, "templates": ""}"#, false),
            (r#"{"channel": 7, "templates": null}"#, false),
            (r#"{"channel": 7, "templates": "templates"}"#, true),
            // What it means is not known.
            (r#"{"channel": 7, "templates": {"path": "templates"}}"#, true),
            ("[]", false),
        ] {
            assert_eq!(unreadable(&kyma(spec)).names_templates, expected, "{spec}");
        }
    }

    #[test]
    fn metadata_survive_what_is_wrong_beside_them_and_in_them() {
        let found = unreadable(&kyma(r#"{"channel": 7}"#));
        assert_eq!(found.key(), Key::new("kcp-system", "a"));
        assert_eq!(found.metadata.labels.expect("labels")["l"], "v");
        assert_eq!(found.metadata.resource_version, None);
        let deleting = r#"{"metadata": {"name": "a", "deletionTimestamp": "soon", "labels": {"l": "v"}}}"#;
        let found = unreadable(deleting);
        assert!(found.metadata.deletion_timestamp.is_some());
        assert_eq!(found.metadata.labels.expect("labels")["l"], "v");
        let found = unreadable(r#"{"metadata": {"name": "a", "labels": 7}}"#);
        assert_eq!(
            (found.key(), found.problem.as_str()),
            (Key::new("", "a"), "metadata.labels: invalid type, expected an object")
        );
        let found = unreadable(r#"{"metadata": {"name": "a", "finalizers": {}, "labels": {"l": "v"}}}"#);
        assert_eq!(found.metadata.labels.expect("labels")["l"], "v");
    }

    #[test]
    fn a_type_without_required_fields_is_no_list() {
        let template = |spec: &str| format!(r#"{{"metadata": {{"name": "a"}}, "spec": {spec}}}"#);
        assert!(read::<ModuleTemplate>(&template("{}")).is_ok());
        // A list deeper within is not meant.
        assert!(read::<ModuleTemplate>(&template(r#"{"data": {"spec": [], "status": []}}"#)).is_ok());
        let found = read::<ModuleTemplate>(&template("[]")).expect_err("unreadable").expect("with a name");
        assert_eq!(found.problem, "spec: invalid type, expected an object");
    }

    #[test]
    fn what_has_no_name_is_not_an_object() {
        assert!(read::<Kyma>(r#"{"metadata": {"labels": 7}}"#).is_err_and(|found| found.is_none()));
    }
}
