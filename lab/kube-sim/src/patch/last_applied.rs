// SPDX-License-Identifier: Apache-2.0

//! The transition from `kubectl apply` to `kubectl apply --server-side`: kubectl owns what the annotation records as
//! applied by the client. The annotation is kept up to date for clients that go back.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Conflict,
    schema::Schema,
    walk::{Duplicates, compare, members, validate},
};

/// Only for this manager.
pub(super) const MANAGER: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Limit of all annotations together, in bytes.
const ANNOTATIONS_MAX: usize = 256 * 1024;

/// The real conflicts: without those about unchanged fields that kubectl owns according to the annotation.
pub(super) fn remaining(schema: &Schema, live: &Value, conflicts: Vec<Conflict>, api_version: &str) -> Vec<Conflict> {
    let Some(last) = last_applied(live) else { return conflicts };
    let Ok(last) = serde_json::from_str::<Value>(last) else { return conflicts };
    let is_typed = |value| validate(schema.root(), value, Duplicates::Refused).is_ok();
    if last["apiVersion"].as_str() != Some(api_version) || !is_typed(&last) || !is_typed(live) {
        return conflicts;
    }
    let comparison = compare(schema.root(), &last, live);
    let allowed = members(schema.root(), &last)
        .difference(&comparison.modified)
        .difference(&comparison.added)
        .difference(&comparison.removed);
    conflicts.into_iter().filter(|conflict| !allowed.contains(&conflict.path)).collect()
}

/// Updates the annotation if it exists.
pub(super) fn renew(after: &mut Value, applied: &Value) {
    if last_applied(after).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(ANNOTATION);
    }
    let text = format!("{}\n", html_safe(&sorted(&applied).to_string()));
    let Some(annotations) = after.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else { return };
    annotations.insert(ANNOTATION.to_owned(), json!(text));
    let size: usize = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if ANNOTATIONS_MAX < size {
        annotations.shift_remove(ANNOTATION);
    }
}

fn last_applied(object: &Value) -> Option<&str> {
    let text = object.get("metadata")?.get("annotations")?.get(ANNOTATION)?.as_str()?;
    (!text.is_empty()).then_some(text)
}

/// The value with sorted keys, as Go writes it.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> = fields.iter().map(|(name, value)| (name, sorted(value))).collect();
            fields.into_iter().map(|(name, value)| (name.clone(), value)).collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn html_safe(text: &str) -> String {
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
