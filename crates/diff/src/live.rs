//! Live objects for a comparison: without fields that only the API server writes, and with the
//! owners of fields.
//!
//! An apply does not change an object that already contains everything desired (see
//! [`tidegate_core::changes::covers`]), if Tidegate's field manager owns nothing else in it ([`drops`]). Then no dry
//! run is necessary. Secrets never get a dry run; the result of an apply is computed here ([`secret_after`]), from the
//! same fields.

use std::borrow::Cow;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value};

use super::compare::leaves;
use tidegate_core::{
    changes::{kept_fields, merged, overlay, with_kept_fields},
    object::{Gvk, PathPart},
    secret,
};

/// Fields of `metadata` that only the API server writes.
const SERVER_SET: [&str; 6] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"];

/// An object without what only the API server writes: its status and parts of its metadata.
#[must_use]
pub fn stripped(object: &Value) -> Value {
    let Value::Object(map) = object else { return object.clone() };
    let without = |fields: &Map<String, Value>, left_out: &[&str]| -> Map<String, Value> {
        let kept = fields.iter().filter(|(field, _)| !left_out.contains(&field.as_str()));
        kept.map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    let mut stripped = without(map, &["status", "metadata"]);
    if let Some(Value::Object(metadata)) = map.get("metadata") {
        stripped.insert("metadata".to_owned(), Value::Object(without(metadata, &SERVER_SET)));
    }
    Value::Object(stripped)
}

/// Whether an apply of `desired` would remove fields that `manager` applied before and that
/// `desired` no longer has.
///
/// `true` may be wrong, for example for a field that another manager also owns, and then costs a
/// dry run.
pub fn drops(desired: &Value, live: &Value, manager: &str) -> bool {
    applied_fields(live, &[manager]).any(|fields| lacks(desired, &fields))
}

/// What an apply of `desired` no longer sets although `manager` has applied it, and the API server keeps.
pub fn kept(gvk: &Gvk, desired: &Value, live: &Value, manager: &str) -> Vec<String> {
    if !drops(desired, live, manager) {
        return Vec::new();
    }
    let managers = [manager];
    let declared = applied_fields(live, &managers).map(|fields| selected(live, &fields));
    declared.flat_map(|declared| kept_fields(gvk, &declared, desired)).collect()
}

/// The part of a value that a set of fields (`fieldsV1`) names.
fn selected(value: &Value, fields: &Map<String, Value>) -> Value {
    let inner = |(field, inner): (&String, &Value)| {
        let (form, name) = field.split_once(':')?;
        let found = match form {
            "f" => value.get(name)?,
            "k" => item(value, name)?,
            _ => return None,
        };
        Some((name.to_owned(), inner.as_object().map_or_else(|| found.clone(), |inner| selected(found, inner))))
    };
    let mut parts = fields.iter().filter_map(inner).peekable();
    match value {
        Value::Object(_) if parts.peek().is_some() => Value::Object(parts.collect()),
        Value::Array(_) if parts.peek().is_some() => Value::Array(parts.map(|(_, item)| item).collect()),
        whole => whole.clone(),
    }
}

/// The sets of fields that managers applied.
fn applied_fields<'a>(live: &'a Value, managers: &[&str]) -> impl Iterator<Item = Cow<'a, Map<String, Value>>> {
    claims(live).filter(|entry| is_applied_by(entry, managers)).filter_map(|entry| fields_of(live, entry))
}

/// Whether a claim is an apply of one of these managers.
fn is_applied_by(entry: &Value, managers: &[&str]) -> bool {
    entry["operation"] == "Apply" && entry["manager"].as_str().is_some_and(|name| managers.contains(&name))
}

/// The claims on an object, apart from its subresources.
fn claims(live: &Value) -> impl Iterator<Item = &Value> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    entries.filter(|entry| entry.get("subresource").is_none_or(|subresource| subresource == ""))
}

/// The fields of a claim. Tidegate takes over claims on the texts of a Secret as claims on its data.
fn fields_of<'a>(live: &Value, entry: &'a Value) -> Option<Cow<'a, Map<String, Value>>> {
    let fields = entry["fieldsV1"].as_object()?;
    if !secret::is_secret(live) || !fields.contains_key("f:stringData") {
        return Some(Cow::Borrowed(fields));
    }
    let mut fields = fields.clone();
    secret::fold_claims(&mut fields);
    Some(Cow::Owned(fields))
}

/// Whether a field of a set (`fieldsV1`) is missing in a value.
fn lacks(value: &Value, fields: &Map<String, Value>) -> bool {
    fields.iter().any(|(field, inner)| {
        let found = match field.split_once(':') {
            Some(("f", name)) => value.get(name),
            Some(("k", key)) => item(value, key),
            Some(("v", text)) => member(value, text),
            Some(("i", index)) => index.parse::<usize>().ok().and_then(|index| value.get(index)),
            // `.` is the mapping or list itself.
            _ => return false,
        };
        match (found, inner.as_object()) {
            (None, _) => true,
            (Some(found), Some(inner)) => lacks(found, inner),
            (Some(_), None) => false,
        }
    })
}

/// The list item that `key`, a mapping in JSON, identifies. A key field that an item lacks is a
/// default of the API server, such as `protocol: TCP`.
fn item<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    let key: Map<String, Value> = serde_json::from_str(key).ok()?;
    let is_it = |item: &&Value| {
        let found = |(field, value): (&String, &Value)| item.get(field).map(|found| found == value);
        let mut any = false;
        let all = key.iter().filter_map(found).all(|equal| {
            any |= equal;
            equal
        });
        any && all
    };
    list.as_array()?.iter().find(is_it)
}

/// The member of a set that equals `text`, which is JSON.
fn member<'a>(list: &'a Value, text: &str) -> Option<&'a Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    list.as_array()?.iter().find(|item| **item == value)
}

/// The result of an apply of a Secret: `desired` over `live`, without fields that one of `managers` applied before,
/// `desired` no longer has, and no other manager claims. Both sides have all values in `data`, in one notation, so that
/// they are comparable.
pub fn secret_after(desired: &Value, live: &Value, managers: &[&str]) -> (Value, Value) {
    let mut before = stripped(live);
    fold(&mut before);
    let mut desired = desired.clone();
    fold(&mut desired);
    let mut after = before.clone();
    let others: Vec<&Map<String, Value>> = claims(live)
        .filter(|entry| !is_applied_by(entry, managers))
        .filter_map(|entry| entry["fieldsV1"].as_object())
        .collect();
    for path in [&["data"][..], &["metadata", "labels"], &["metadata", "annotations"]] {
        let wanted = path.iter().try_fold(&desired, |value, field| value.get(field)).and_then(Value::as_object);
        let wanted = wanted.cloned().unwrap_or_default();
        let applied: Vec<Cow<'_, Map<String, Value>>> = applied_fields(live, managers).collect();
        let is_shared = |key: &str| others.iter().any(|fields| keys(fields, path).any(|other| other == key));
        let dropped = applied.iter().flat_map(|fields| keys(fields, path));
        let dropped: Vec<&str> = dropped.filter(|key| !wanted.contains_key(*key) && !is_shared(key)).collect();
        let Some(target) = entry(&mut after, path) else { continue };
        dropped.iter().for_each(|key| drop(target.shift_remove(*key)));
        target.extend(wanted);
    }
    for field in ["type", "immutable"] {
        if let (Some(value), Some(after)) = (desired.get(field), after.as_object_mut()) {
            after.insert(field.to_owned(), value.clone());
        }
    }
    prune_empty(&mut before);
    prune_empty(&mut after);
    (before, after)
}

/// The result of an apply of `desired` to `live` if a dry run is not possible: mappings are merged,
/// everything else is replaced. Without fields that only the API server writes.
#[must_use]
pub fn overlaid(live: &Value, desired: &Value) -> Value {
    let mut after = stripped(live);
    overlay(&mut after, &stripped(desired));
    after
}

/// As [`overlaid`], without the fields that `manager` applied before and `desired` no longer has.
pub fn applied(live: &Value, desired: &Value, manager: &str) -> Value {
    let mut after = overlaid(live, desired);
    for fields in applied_fields(live, &[manager]) {
        drop_fields(&mut after, desired, &fields);
    }
    after
}

/// Removes the fields of a set (`fieldsV1`) that are not desired. Lists are replaced as a whole anyway.
fn drop_fields(after: &mut Value, desired: &Value, fields: &Map<String, Value>) {
    let Some(map) = after.as_object_mut() else { return };
    for (field, inner) in fields {
        let Some(("f", name)) = field.split_once(':') else { continue };
        let inner = inner.as_object().filter(|inner| inner.keys().any(|field| field.starts_with("f:")));
        match (map.get_mut(name), desired.get(name), inner) {
            (Some(value), wanted, Some(inner)) => {
                drop_fields(value, wanted.unwrap_or(&Value::Null), inner);
                if wanted.is_none() && value.as_object().is_some_and(Map::is_empty) {
                    map.shift_remove(name);
                }
            }
            (Some(_), None, None) => drop(map.shift_remove(name)),
            (None, _, _) | (Some(_), Some(_), None) => {}
        }
    }
}

/// The result of an apply of `desired` to `live`, computed here, after the fields of `managers` have been taken over:
/// without what they applied, `desired` no longer has, and no other manager owns. Parts that `live` covers stay as they
/// are, with their defaults. So does what the API server keeps of a Service. Without fields that only the API server
/// writes.
pub fn applied_by(live: &Value, desired: &Value, managers: &[&str]) -> Value {
    let (desired, before) = (stripped(desired), stripped(live));
    let mut after = merged(&desired, &before);
    let (ours, others): (Vec<&Value>, Vec<&Value>) = claims(live).partition(|entry| is_applied_by(entry, managers));
    let others: Vec<&Map<String, Value>> = others.iter().filter_map(|entry| entry["fieldsV1"].as_object()).collect();
    for fields in ours.iter().filter_map(|entry| fields_of(live, entry)) {
        release(&mut after, &desired, &fields, &others);
    }
    with_kept_fields(&gvk(live), &before, after)
}

fn gvk(object: &Value) -> Gvk {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    Gvk::from_api_version(text("apiVersion"), text("kind"))
}

/// What `kubectl apply` notes on an object. A take-over leaves it there.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether a value is what a field has that nobody sets. Lifecycle Manager's Go types write such values explicitly, and
/// the API server sets them again as defaults.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(true) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Removes the fields of a set (`fieldsV1`) that are not desired, unless one of the sets of `others` has them, or the
/// API server would set them again.
fn release(after: &mut Value, desired: &Value, fields: &Map<String, Value>, others: &[&Map<String, Value>]) {
    for (field, inner) in fields {
        let Some((form, name)) = field.split_once(':') else { continue };
        let is_shared = others.iter().any(|other| other.contains_key(field));
        let below: Vec<&Map<String, Value>> = others.iter().filter_map(|other| other.get(field)?.as_object()).collect();
        let inner = inner.as_object().filter(|inner| inner.keys().any(|field| field != "."));
        match (form, &mut *after) {
            ("f", Value::Object(map)) => {
                let Some(value) = map.get_mut(name).filter(|value| name != LAST_APPLIED && !is_zero(value)) else {
                    continue;
                };
                let wanted = desired.get(name);
                if let Some(inner) = inner {
                    release(value, wanted.unwrap_or(&Value::Null), inner, &below);
                }
                let is_empty =
                    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty);
                if wanted.is_none() && !is_shared && (inner.is_none() || is_empty) {
                    map.shift_remove(name);
                }
            }
            ("k", Value::Array(items)) => {
                let list = Value::Array(std::mem::take(items));
                let found = item(&list, name).and_then(|found| list.as_array()?.iter().position(|one| one == found));
                let wanted = item(desired, name);
                *items = if let Value::Array(list) = list { list } else { Vec::new() };
                match (found, wanted) {
                    (Some(at), None) if !is_shared => drop(items.remove(at)),
                    (Some(at), wanted) => {
                        if let Some(inner) = inner {
                            release(&mut items[at], wanted.unwrap_or(&Value::Null), inner, &below);
                        }
                    }
                    (None, _) => {}
                }
            }
            ("v", Value::Array(items)) if member(desired, name).is_none() && !is_shared => {
                let value: Option<Value> = serde_json::from_str(name).ok();
                items.retain(|item| Some(item) != value.as_ref());
            }
            _ => {}
        }
    }
}

/// The paths of the fields that differ, in the order of the new side.
pub fn differing(old: &Value, new: &Value) -> Vec<Vec<PathPart>> {
    leaves(old, new).into_iter().map(|leaf| leaf.path).collect()
}

/// The keys below a path in a set of fields.
fn keys<'a>(fields: &'a Map<String, Value>, path: &[&str]) -> impl Iterator<Item = &'a str> {
    let step = |fields: &'a Map<String, Value>, field: &&str| fields.get(&format!("f:{field}"))?.as_object();
    let below = path.iter().try_fold(fields, step);
    below.into_iter().flatten().filter_map(|(field, _)| field.strip_prefix("f:"))
}

fn entry<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut map = value.as_object_mut()?;
    for field in path {
        map = map.entry(*field).or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    }
    Some(map)
}

/// Moves `stringData` into `data`, as the API server does, and normalizes the notation of `data`.
fn fold(secret: &mut Value) {
    let Some(map) = secret.as_object_mut() else { return };
    if let Some(data) = map.get_mut("data").and_then(Value::as_object_mut) {
        for value in data.values_mut() {
            let bytes = value.as_str().map(|text| text.split_ascii_whitespace().collect::<String>());
            if let Some(bytes) = bytes.and_then(|text| STANDARD.decode(text).ok()) {
                *value = Value::from(STANDARD.encode(bytes));
            }
        }
    }
    secret::fold_texts(map);
}

/// Removes empty mappings, which the API server does not store.
fn prune_empty(secret: &mut Value) {
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    let Some(map) = secret.as_object_mut() else { return };
    map.retain(|_, value| !is_empty(value));
    if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !is_empty(value));
    }
}

#[cfg(test)]
mod tests;
