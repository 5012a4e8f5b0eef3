//! Checks metadata: required fields, fields that only the server sets, and our own annotations.

use serde_json::{Map, Value};

use super::{Check, default_namespace};
use crate::{
    api::{
        names::{annotation, label},
        shared::ObjectMeta,
    },
    definition::{Kind, code, near},
    diagnostic::FilePosition,
    plan::{rollout, setup::OptIn},
    yaml,
};

/// Fields that the API server sets. A definition that has them is a copy of a live object.
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
/// Labels that Tidegate sets when it applies a definition.
const RESERVED_ANNOTATIONS: [&str; 5] =
    [annotation::PATH, annotation::SOURCE, annotation::DIGEST, annotation::MODULE_TREE, annotation::STATUS];
/// Our annotations that a definition may have, with their allowed values. Empty for any value.
const ANNOTATIONS: [(&str, &[&str]); 12] = [
    (annotation::MODULE_PATH, &[]),
    (annotation::MODULES_FROM, &["runtime", "git", "merge"]),
    (annotation::RECONCILE_REQUESTED_AT, &[]),
    (annotation::PRUNE, &["disabled", "enabled"]),
    (annotation::ADOPT, &["true", "false"]),
    (annotation::ALLOW_DOWNGRADE, &[]),
    (annotation::CONFIRM_PRUNE, &[]),
    (annotation::ROLLOUT_MAX_UNAVAILABLE, &[]),
    (annotation::ROLLOUT_MAX_FAILURES, &[]),
    (annotation::ROLLOUT_WAVES, &[]),
    (annotation::ROLLOUT_PAUSED, &["true", "false"]),
    (annotation::ROLLOUT_RESUMED, &[]),
];
/// Those of kcp landscapes.
const SETUP_ANNOTATIONS: [(&str, &[&str]); 2] =
    [(annotation::PRUNE, &["disabled", "enabled"]), (annotation::ADOPT, &["true", "false"])];
/// The annotations that say how the versions of a module spread.
const ROLLOUT: [&str; 5] = [
    annotation::ROLLOUT_MAX_UNAVAILABLE,
    annotation::ROLLOUT_MAX_FAILURES,
    annotation::ROLLOUT_WAVES,
    annotation::ROLLOUT_PAUSED,
    annotation::ROLLOUT_RESUMED,
];
/// The prefix of all our annotations.
const PREFIX: &str = "tidegate.dev/";

impl Check<'_> {
    /// Removes fields that only the server sets, with a warning. Users easily commit a copy of a
    /// live object.
    pub(super) fn leave_out_server_fields(&mut self, value: &mut Value) {
        let Some(fields) = value.as_object_mut() else { return };
        if fields.shift_remove("status").is_some_and(|status| !is_empty(&status)) {
            let place = self.at_key(&["status".into()]);
            self.warning(place, code::SERVER_FIELD, "controllers set `status`, so Tidegate ignores it", "remove it");
        }
        let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) else { return };
        for field in SERVER_FIELDS {
            if metadata.shift_remove(field).is_some_and(|value| !is_empty(&value)) {
                let place = self.at_key(&["metadata".into(), field.into()]);
                let message = format!("`metadata.{field}` is set by the API server, so Tidegate ignores it");
                self.warning(place, code::SERVER_FIELD, message, "remove it");
            }
        }
    }

    /// The namespace, or the default if it is missing. `None` if it is not a string.
    pub(super) fn namespace(&mut self, value: &mut Value) -> Option<String> {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut)?;
        match metadata.get("namespace") {
            Some(Value::String(namespace)) if !namespace.is_empty() => Some(namespace.clone()),
            Some(Value::String(_) | Value::Null) | None => {
                let namespace = default_namespace(self.options);
                let misspelt = metadata.keys().any(|key| near::nearest(key, ["namespace"].into_iter()).is_some());
                metadata.insert("namespace".to_owned(), Value::from(namespace));
                if misspelt {
                    // The field itself is reported as unknown.
                    return Some(namespace.to_owned());
                }
                let place = self.at_key(&["metadata".into()]);
                let message = format!("`metadata.namespace` is missing; Tidegate uses `{namespace}`");
                let hint = format!("write `namespace: {namespace}`, so that kubectl uses the same namespace");
                self.warning(place, code::NAMESPACE_MISSING, message, hint);
                Some(namespace.to_owned())
            }
            Some(_) => None,
        }
    }

    /// Requires a name: `generateName` would create a new object on every pass.
    pub(super) fn generate_name(&mut self, value: &Value) {
        if value.pointer("/metadata/generateName").is_some_and(|prefix| !is_empty(prefix)) {
            let place = self.at_key(&["metadata".into(), "generateName".into()]);
            let message = "`generateName` would create a new object on every pass";
            self.error(place, code::GENERATE_NAME, message, "write `name`");
        }
    }

    /// Checks our own labels and annotations.
    pub(super) fn metadata(&mut self, kind: Kind, value: &Value) {
        let entries = |field: &str| -> Map<String, Value> {
            value.pointer(&format!("/metadata/{field}")).and_then(Value::as_object).cloned().unwrap_or_default()
        };
        if entries("labels").contains_key(label::SOURCE) {
            let place = self.at_key(&["metadata".into(), "labels".into(), label::SOURCE.into()]);
            let message = format!("only Tidegate sets the label `{}`", label::SOURCE);
            self.error(place, code::RESERVED_MARK, message, "remove it");
        }
        for field in ["labels", "annotations"] {
            for (key, _) in entries(field).iter().filter(|(_, value)| value.is_null()) {
                let place = self.at(&["metadata".into(), field.into(), key.as_str().into()]);
                let message = format!("`metadata.{field}[{}]`: must be a string, not null", yaml::short(key));
                self.error(place, code::WRONG_TYPE, message, "write a value, or `\"\"` for an empty one");
            }
        }
        for (key, value) in entries("annotations").iter().filter(|(key, _)| key.starts_with(PREFIX)) {
            let path = ["metadata".into(), "annotations".into(), key.as_str().into()];
            if RESERVED_ANNOTATIONS.contains(&key.as_str()) {
                let message = format!("only Tidegate sets the annotation `{key}`");
                self.error(self.at_key(&path), code::RESERVED_MARK, message, "remove it");
                continue;
            }
            let opt_in = match kind {
                Kind::Setup(kind) => OptIn::of_kind(kind).find(|one| one.annotation == key),
                Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => None,
            };
            if let Some(opt_in) = opt_in {
                if let Some(text) = value.as_str().filter(|text| !opt_in.takes.accepts(text)) {
                    let (expected, text) = (opt_in.takes.expected(), yaml::short(text));
                    let message = format!("the annotation `{key}` must be {expected}, not `{text}`");
                    self.error(self.at(&path), code::ANNOTATION, message, "correct it, or remove the annotation");
                }
                continue;
            }
            let annotations: &[(&str, &[&str])] = match kind {
                Kind::Setup(_) => &SETUP_ANNOTATIONS,
                Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => &ANNOTATIONS,
            };
            let Some((_, allowed)) = annotations.iter().find(|(known, _)| known == key) else {
                let mut known: Vec<&str> = annotations.iter().map(|(known, _)| *known).collect();
                if let Kind::Setup(kind) = kind {
                    known.extend(OptIn::of_kind(kind).map(|one| one.annotation));
                }
                let hint = near::did_you_mean(key, known.into_iter()).unwrap_or_else(|| "remove it".to_owned());
                match kind {
                    // A word of a later version says what is to be done otherwise: it must not be passed over.
                    Kind::Setup(_) => {
                        let message = format!("Tidegate has no annotation `{}` for a {kind}", yaml::short(key));
                        self.error(self.at_key(&path), code::ANNOTATION, message, hint);
                    }
                    Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Kyma => {
                        let message = format!("Tidegate has no annotation `{}`", yaml::short(key));
                        self.warning(self.at_key(&path), code::ANNOTATION, message, hint);
                    }
                }
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
        if let Kind::Setup(_) = kind {
            // Those of modules are none of a kcp landscape, and were reported.
            return;
        }
        self.rollout(kind, &entries("annotations"));
        if kind != Kind::ModuleTemplate && entries("annotations").contains_key(annotation::MODULE_PATH) {
            let place = self.at_key(&["metadata".into(), "annotations".into(), annotation::MODULE_PATH.into()]);
            let message = format!("the annotation `{}` has no effect on a {kind}", annotation::MODULE_PATH);
            self.warning(place, code::ANNOTATION, message, "put it on the ModuleTemplate");
        }
    }

    /// Checks how the versions of a module spread.
    fn rollout(&mut self, kind: Kind, annotations: &Map<String, Value>) {
        if kind != Kind::ModuleReleaseMeta {
            for key in ROLLOUT.into_iter().filter(|key| annotations.contains_key(*key)) {
                let place = self.at_key(&["metadata".into(), "annotations".into(), key.into()]);
                let message = format!("the annotation `{key}` has no effect on a {kind}");
                self.warning(place, code::ANNOTATION, message, "put it on the ModuleReleaseMeta");
            }
            return;
        }
        let texts = annotations.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let metadata = ObjectMeta { annotations: Some(texts.collect()), ..ObjectMeta::default() };
        if let Err(rollout::ParsePolicyError { annotation, message }) = rollout::policy(&metadata)
            // Its values are checked above.
            && annotation != annotation::ROLLOUT_PAUSED
        {
            let place = self.at(&["metadata".into(), "annotations".into(), annotation.into()]);
            let message = format!("the annotation `{annotation}`: {message}");
            self.error(place, code::ANNOTATION, message, "docs/rollout.md describes the annotations of a rollout");
        }
    }

    /// The location of the module's objects, as written.
    pub(super) fn module_path(&self, value: &Value) -> Option<(String, FilePosition)> {
        let written = value.pointer("/metadata/annotations")?.get(annotation::MODULE_PATH)?.as_str()?;
        let place = self.at(&["metadata".into(), "annotations".into(), annotation::MODULE_PATH.into()]);
        Some((written.to_owned(), place))
    }
}

/// Null, empty or zero: what tools print for unset fields.
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
