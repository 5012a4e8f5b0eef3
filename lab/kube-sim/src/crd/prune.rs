// SPDX-License-Identifier: Apache-2.0

//! Removes fields of a custom resource that its schema does not contain, and returns their paths.

use serde_json::{Map, Value};

/// Removes unknown fields from an object, and returns their paths, sorted.
pub(crate) fn prune(props: &Value, object: &mut Value) -> Vec<String> {
    let mut removed = Vec::new();
    if let Some(fields) = object.as_object_mut() {
        below(props, fields, true, "", &mut removed);
    }
    removed.sort_unstable();
    removed
}

fn value(props: &Value, value: &mut Value, path: &str, removed: &mut Vec<String>) {
    match value {
        Value::Object(fields) => below(props, fields, is_true(props, "x-kubernetes-embedded-resource"), path, removed),
        Value::Array(items) => {
            if let Some(of) = props.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    self::value(of, item, &format!("{path}[{index}]"), removed);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn below(props: &Value, fields: &mut Map<String, Value>, is_object: bool, path: &str, removed: &mut Vec<String>) {
    let keep = is_true(props, "x-kubernetes-preserve-unknown-fields");
    let others = props.get("additionalProperties");
    let mut unknown = Vec::new();
    for (name, value) in fields.iter_mut() {
        if is_object && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        let here = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (props["properties"].get(name), others) {
            (Some(of), _) | (None, Some(of @ Value::Object(_))) => self::value(of, value, &here, removed),
            (None, Some(Value::Bool(true))) => {}
            (None, _) if keep => {}
            (None, _) => {
                unknown.push(name.clone());
                removed.push(here);
            }
        }
    }
    for name in unknown {
        fields.shift_remove(&name);
    }
}

fn is_true(props: &Value, marker: &str) -> bool {
    props.get(marker) == Some(&Value::Bool(true))
}
