//! Metadata: what a definition must say of itself, what only servers say, and our own annotations.

use serde_json::{Map, Value};

use super::{Check, default_namespace};
use crate::{
    api::names::{annotation, label},
    definition::{Kind, code, near},
    diagnostic::Place,
    yaml,
};

/// What the API server writes; a definition with it is a copy of a live object.
const SERVER_FIELDS: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// What Tidegate writes when it applies a definition.
const RESERVED_ANNOTATIONS: [&str; 4] =
    [annotation::PATH, annotation::SOURCE, annotation::DIGEST, annotation::MODULE_TREE];
/// The annotations of ours that a definition may have, with their values; empty for any.
const ANNOTATIONS: [(&str, &[&str]); 7] = [
    (annotation::MODULE_PATH, &[]),
    (annotation::MODULES_FROM, &["runtime", "git", "merge"]),
    (annotation::RECONCILE_REQUESTED_AT, &[]),
    (annotation::PRUNE, &["disabled", "enabled"]),
    (annotation::ADOPT, &["true", "false"]),
    (annotation::ALLOW_DOWNGRADE, &[]),
    (annotation::CONFIRM_PRUNE, &[]),
];
/// The prefix of all our annotations.
const PREFIX: &str = "tidegate.dev/";

impl Check<'_> {
    /// Leaves out what only servers write, with a warning: a copy of a live object is easily committed.
    pub(super) fn leave_out_server_fields(&mut self, value: &mut Value) {
        let Some(fields) = value.as_object_mut() else { return };
        if fields.shift_remove("status").is_some_and(|status| !is_empty(&status)) {
            let place = self.at_key(&["status".into()]);
            self.warning(place, code::SERVER_FIELD, "`status` is written by controllers and is left out", "remove it");
        }
        let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        for field in SERVER_FIELDS {
            if metadata.shift_remove(field).is_some_and(|value| !is_empty(&value)) {
                let place = self.at_key(&["metadata".into(), field.into()]);
                let message = format!("`metadata.{field}` is written by the API server and is left out");
                self.warning(place, code::SERVER_FIELD, message, "remove it");
            }
        }
    }

    /// The namespace, filled in if it is missing; `None` if it is no text.
    pub(super) fn namespace(&mut self, value: &mut Value) -> Option<String> {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut)?;
        match metadata.get("namespace") {
            Some(Value::String(namespace)) if !namespace.is_empty() => Some(namespace.clone()),
            Some(Value::String(_) | Value::Null) | None => {
                let namespace = default_namespace(self.options);
                let misspelt = metadata.keys().any(|key| near::nearest(key, ["namespace"].into_iter()).is_some());
                metadata.insert("namespace".to_owned(), Value::from(namespace));
                if misspelt {
                    // That it is unknown is said of the field itself.
                    return Some(namespace.to_owned());
                }
                let place = self.at_key(&["metadata".into()]);
                let message = format!("`metadata.namespace` is missing; `{namespace}` is assumed");
                let hint = format!("write `namespace: {namespace}`, so that kubectl reads the file alike");
                self.warning(place, code::NAMESPACE_MISSING, message, hint);
                Some(namespace.to_owned())
            }
            Some(_) => None,
        }
    }

    /// A name must be written: `generateName` would make a new object at every pass.
    pub(super) fn generate_name(&mut self, value: &Value) {
        if value.pointer("/metadata/generateName").is_some_and(|prefix| !is_empty(prefix)) {
            let place = self.at_key(&["metadata".into(), "generateName".into()]);
            let message = "`generateName` would make a new object at every pass";
            self.error(place, code::GENERATE_NAME, message, "write `name`");
        }
    }

    /// Our own labels and annotations.
    pub(super) fn metadata(&mut self, kind: Kind, value: &Value) {
        let entries = |field: &str| -> Map<String, Value> {
            value.pointer(&format!("/metadata/{field}")).and_then(Value::as_object).cloned().unwrap_or_default()
        };
        if entries("labels").contains_key(label::SOURCE) {
            let place = self.at_key(&["metadata".into(), "labels".into(), label::SOURCE.into()]);
            let message = format!("the label `{}` is set by Tidegate", label::SOURCE);
            self.error(place, code::RESERVED_MARK, message, "remove it");
        }
        for field in ["labels", "annotations"] {
            for (key, _) in entries(field).iter().filter(|(_, value)| value.is_null()) {
                let place = self.at(&["metadata".into(), field.into(), key.as_str().into()]);
                let message = format!("`metadata.{field}[{}]`: must be a text, not null", yaml::short(key));
                self.error(place, code::WRONG_TYPE, message, "write a value, or `\"\"` for an empty one");
            }
        }
        for (key, value) in entries("annotations").iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let path = ["metadata".into(), "annotations".into(), key.as_str().into()];
            if RESERVED_ANNOTATIONS.contains(&key.as_str()) {
                let message = format!("the annotation `{key}` is set by Tidegate");
                self.error(self.at_key(&path), code::RESERVED_MARK, message, "remove it");
                continue;
            }
            let Some((_, allowed)) = ANNOTATIONS.iter().find(|(known, _)| known == key) else {
                let known = ANNOTATIONS.iter().map(|(known, _)| *known);
                let hint = near::did_you_mean(key, known).unwrap_or_else(|| "remove it".to_owned());
                let message = format!("Tidegate has no annotation `{}`", yaml::short(key));
                self.warning(self.at_key(&path), code::ANNOTATION, message, hint);
                continue;
            };
            if let Some(text) = value.as_str()
                && !allowed.is_empty()
                && !allowed.contains(&text)
            {
                let message =
                    format!("the annotation `{key}` must be `{}`, not `{}`", allowed.join("` or `"), yaml::short(text));
                let hint = near::did_you_mean(text, allowed.iter().copied())
                    .unwrap_or_else(|| format!("write one of {}", allowed.join(", ")));
                self.error(self.at(&path), code::ANNOTATION, message, hint);
            }
        }
        if kind != Kind::ModuleTemplate && entries("annotations").contains_key(annotation::MODULE_PATH) {
            let place = self.at_key(&["metadata".into(), "annotations".into(), annotation::MODULE_PATH.into()]);
            let message = format!("the annotation `{}` has no meaning on a {kind}", annotation::MODULE_PATH);
            self.warning(place, code::ANNOTATION, message, "put it on the ModuleTemplate");
        }
    }

    /// Where the module's objects live, as written.
    pub(super) fn module_path(&self, value: &Value) -> Option<(String, Place)> {
        let written = value.pointer("/metadata/annotations")?.get(annotation::MODULE_PATH)?.as_str()?;
        let place = self.at(&["metadata".into(), "annotations".into(), annotation::MODULE_PATH.into()]);
        Some((written.to_owned(), place))
    }
}

/// Null, nothing or zero: what tools print for fields that are not set.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
