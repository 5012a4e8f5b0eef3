//! Decides whether a live object already contains everything that a desired one sets.

use serde_json::{Map, Value};

use super::quantity;

/// Lists that the API server merges by item: the field of the list, and the fields that identify an
/// item. A live list may have additional items from others. Every other list belongs to one writer
/// as a whole.
const MERGED: [(&str, &[&str]); 19] = [
    ("channels", &["channel"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("modules", &["name"]),
    ("ownerReferences", &["uid"]),
    ("ports", &["containerPort", "protocol"]),
    ("ports", &["port", "protocol"]),
    ("secrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
    ("webhooks", &["name"]),
    ("matchConditions", &["name"]),
];

/// Lists that the API server treats as sets of strings.
const SETS: [&str; 1] = ["finalizers"];

/// Whether every field of `desired` is in `live` with an equal value, so that an apply would change
/// nothing.
///
/// Merged lists are compared by item in any order, and may have more items in `live`; other lists
/// must be equal. An absent field covers an empty mapping, an empty list and `null`, because the
/// API server drops them.
///
/// The function does not detect a field that an earlier apply set and `desired` no longer has: the
/// digest of the applied object does. `false` may be wrong (the API server rewrites some values),
/// and then costs one write.
pub fn covers(desired: &Value, live: &Value) -> bool {
    covers_field("", desired, live)
}

fn covers_field(field: &str, desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) if quantity::are_in(field) => {
            desired.iter().all(|(key, value)| match live.get(key) {
                Some(live) => quantity::same(value, live) || covers_field(key, value, live),
                None => is_void(value),
            })
        }
        (Value::Object(desired), Value::Object(live)) => covers_map(desired, live),
        (Value::Array(desired), Value::Array(live)) => covers_list(field, desired, live),
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (desired, live) => desired == live,
    }
}

fn covers_map(desired: &Map<String, Value>, live: &Map<String, Value>) -> bool {
    desired.iter().all(|(key, value)| match live.get(key) {
        Some(live) => covers_field(key, value, live),
        None => is_void(value),
    })
}

fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.values().all(is_void),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn covers_list(field: &str, desired: &[Value], live: &[Value]) -> bool {
    if SETS.contains(&field) {
        return desired.iter().all(|item| live.contains(item));
    }
    let key = MERGED
        .iter()
        .filter(|(name, _)| *name == field)
        .map(|(_, key)| *key)
        .find(|key| desired.iter().all(|item| item.get(key[0]).is_some()));
    match key {
        Some(key) => desired.iter().all(|item| {
            live.iter().find(|candidate| same_item(key, item, candidate)).is_some_and(|live| covers(item, live))
        }),
        None => desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| covers(desired, live)),
    }
}

/// Whether two items are the same. The first field decides. Further ones only matter if both items
/// have them, because the API server sets defaults such as `protocol: TCP`.
fn same_item(key: &[&str], one: &Value, other: &Value) -> bool {
    key.iter().enumerate().all(|(index, field)| match (one.get(field), other.get(field)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => index > 0,
    })
}
