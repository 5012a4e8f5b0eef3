//! JSON merge patch, RFC 7396, with the one liberty that the server's library takes: a null inside a list is kept where
//! the list is new and dropped from mappings in it.

use serde_json::{Map, Value};

use super::{PatchError, json::go_type};

/// What `live` is after the merge patch.
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
            // A list that takes the place of a mapping stays as it was sent.
            (Some(place @ Value::Object(_)), change) => *place = change.clone(),
            (_, change) => {
                let mut change = change.clone();
                without_nulls(&mut change);
                live.insert(key.clone(), change);
            }
        }
    }
}

/// Drops the fields that are null, at every depth; the items of a list stay, null or not.
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
