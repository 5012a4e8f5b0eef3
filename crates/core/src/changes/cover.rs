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
    match key_of(field, desired) {
        Some(key) => desired.iter().all(|item| {
            live.iter().find(|candidate| same_item(key, item, candidate)).is_some_and(|live| covers(item, live))
        }),
        None => desired.len() == live.len() && desired.iter().zip(live).all(|(desired, live)| covers(desired, live)),
    }
}

/// The live object after an apply of `desired`, as far as it can be known without the API server: what `live` already
/// [covers](covers()) stays as it is, everything else is as desired. New parts have no defaults.
pub fn merged(desired: &Value, live: &Value) -> Value {
    merged_field("", desired, live)
}

fn merged_field(field: &str, desired: &Value, live: &Value) -> Value {
    if covers_field(field, desired, live) {
        return live.clone();
    }
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => {
            let mut merged = live.clone();
            for (key, value) in desired {
                match live.get(key) {
                    Some(_) if quantity::are_in(field) && quantity::same(value, &live[key]) => {}
                    Some(live) => drop(merged.insert(key.clone(), merged_field(key, value, live))),
                    None if is_void(value) => {}
                    None => drop(merged.insert(key.clone(), value.clone())),
                }
            }
            Value::Object(merged)
        }
        (Value::Array(desired), Value::Array(live)) => Value::Array(merged_list(field, desired, live)),
        (desired, _) => desired.clone(),
    }
}

fn merged_list(field: &str, desired: &[Value], live: &[Value]) -> Vec<Value> {
    if SETS.contains(&field) {
        let missing = desired.iter().filter(|item| !live.contains(item));
        return live.iter().chain(missing).cloned().collect();
    }
    let Some(key) = key_of(field, desired) else {
        // The API server replaces the list as a whole, and gives its items the same defaults as before.
        let same = desired.len() == live.len();
        return desired
            .iter()
            .enumerate()
            .map(|(at, item)| if same { merged(item, &live[at]) } else { item.clone() })
            .collect();
    };
    let wanted = |item: &Value| desired.iter().find(|wanted| same_item(key, wanted, item));
    let kept = live.iter().map(|item| wanted(item).map_or_else(|| item.clone(), |wanted| merged(wanted, item)));
    let new = desired.iter().filter(|wanted| !live.iter().any(|item| same_item(key, wanted, item)));
    kept.chain(new.cloned()).collect()
}

/// The fields that identify an item of a merged list; `None` for other lists.
fn key_of(field: &str, desired: &[Value]) -> Option<&'static [&'static str]> {
    let of_field = MERGED.iter().filter(|(name, _)| *name == field).map(|(_, key)| *key);
    let mut complete = of_field.filter(|key| desired.iter().all(|item| item.get(key[0]).is_some()));
    complete.next()
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
