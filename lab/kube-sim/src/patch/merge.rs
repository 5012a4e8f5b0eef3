// SPDX-License-Identifier: Apache-2.0

//! JSON merge patch, RFC 7396, with the exception of the server's library: in a new list, a null stays, but mappings in
//! it lose their nulls.

use serde_json::{Map, Value};

use super::{PatchError, json::go_type};

/// Applies a merge patch.
///
/// # Errors
///
/// Fails if the patch is not a mapping.
pub fn merge_patch(live: &Value, patch: &Value) -> Result<Value, PatchError> {
    match (live, patch) {
        (Value::Object(live), Value::Object(patch)) => {
            let mut merged = live.clone();
            merge(&mut merged, patch);
            Ok(Value::Object(merged))
        }
        (_, Value::Object(patch)) => {
            let mut patch = Value::Object(patch.clone());
            without_nulls(&mut patch);
            Ok(patch)
        }
        (_, Value::Null) => Err(PatchError::Malformed("Invalid JSON Patch".to_owned())),
        (_, other) => Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_type(other)
        ))),
    }
}

fn merge(live: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, change) in patch {
        match (live.get_mut(key), change) {
            (_, Value::Null) => {
                live.shift_remove(key);
            }
            (Some(Value::Object(live)), Value::Object(patch)) => merge(live, patch),
            // A list that replaces a mapping stays as it was sent.
            (Some(place @ Value::Object(_)), change) => *place = change.clone(),
            (_, change) => {
                let mut change = change.clone();
                without_nulls(&mut change);
                live.insert(key.clone(), change);
            }
        }
    }
}

/// Drops null fields at every depth; items of a list stay, even if they are null.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
