// SPDX-License-Identifier: Apache-2.0

//! Server-side apply, and ownership after any other write.
//!
//! An apply merges the applied object into the live one. It removes fields that its manager applied last time, does not
//! apply now, and that no other manager owns. Unless it is forced, it fails if it would change a field of another
//! manager. After any other write, its manager owns what it changed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    ApplyError, Conflict, Operation, Write, last_applied,
    managed::{self, Managed, Owned, Owner},
    path::equal,
    schema::Schema,
    set::Set,
    walk::{Comparison, Duplicates, compare, members, reconcile, remove, unite, validate, with_named},
};
use tidegate_core::object::Gvk;

/// The owner of fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// `live` after the apply, with managed fields, but without its defaults, which the caller sets.
pub(super) fn apply(
    schema: &Schema,
    live: Option<&Value>,
    applied: &Value,
    write: &Write<'_>,
) -> Result<Value, ApplyError> {
    let kind = kind_of(applied);
    if kind != *schema.kind() {
        return Err(ApplyError::Refused(format!("invalid object type: {}", go_kind(&kind))));
    }
    let managed = Managed::decode(live.and_then(managed_fields))
        .map_err(|problem| ApplyError::Failed(format!("failed to decode managed fields: {problem}")))?;
    if managed_fields(applied).is_some_and(|entries| !entries.is_null()) {
        return Err(ApplyError::Refused("metadata.managedFields must be nil".to_owned()));
    }
    let live = live.map_or_else(|| schema.start().clone(), without_managed_fields);
    let managed = if managed.is_empty() { before_first_apply(schema, &live, write) } else { managed };

    let failed = |what: &str, of: &Value, problem: &dyn std::fmt::Display| {
        ApplyError::Failed(format!("failed to create typed {what} object ({}): {problem}", describe(of)))
    };
    validate(schema.root(), applied, Duplicates::Refused).map_err(|problem| failed("patch", applied, &problem))?;
    validate(schema.root(), &live, Duplicates::Allowed).map_err(|problem| failed("live", &live, &problem))?;

    let request = Request { schema, live: &live, applied, write };
    let (after, managed) = match request.enact(managed.clone(), write.force) {
        Err(conflicts) if write.manager == last_applied::MANAGER => {
            let remaining = last_applied::remaining(schema, &live, conflicts, write.api_version);
            if !remaining.is_empty() {
                return Err(ApplyError::Conflict(remaining));
            }
            request.enact(managed, true).map_err(ApplyError::Conflict)?
        }
        other => other.map_err(ApplyError::Conflict)?,
    };
    let mut after = after;
    if write.manager == last_applied::MANAGER {
        last_applied::renew(&mut after, applied);
    }
    set_managed_fields(&mut after, &managed);
    Ok(after)
}

/// `after` with the managed fields that result from the write.
pub(super) fn track(schema: &Schema, before: Option<&Value>, mut after: Value, write: &Write<'_>) -> Value {
    let live_fields = before.and_then(managed_fields);
    // Managed fields cannot be written through a subresource.
    let sent = if write.subresource.is_some() { None } else { managed_fields(&after) };
    let managed = if managed::is_reset(sent, schema.is_custom()) {
        Managed::default()
    } else {
        match Managed::decode(sent) {
            Ok(managed) if !managed.is_empty() => managed,
            // A writer that omits managed fields, or sends invalid ones, does not change them.
            Ok(_) | Err(_) => Managed::decode(live_fields).unwrap_or_default(),
        }
    };
    set_managed_fields(&mut after, &Managed::default());
    // An object without managed fields gets none before the first apply.
    if before.is_some() && managed.is_empty() {
        return after;
    }
    let before = before.map_or_else(|| schema.start().clone(), without_managed_fields);
    if let Ok(managed) = update(schema, &before, &after, managed, write.manager, write) {
        set_managed_fields(&mut after, &managed);
    }
    after
}

/// The managed fields of an object that has none: one manager owns everything.
fn before_first_apply(schema: &Schema, live: &Value, write: &Write<'_>) -> Managed {
    update(schema, schema.start(), live, Managed::default(), BEFORE_FIRST_APPLY, write).unwrap_or_default()
}

/// Makes `manager` the owner of what differs between the two objects.
fn update(
    schema: &Schema,
    before: &Value,
    after: &Value,
    managed: Managed,
    manager: &str,
    write: &Write<'_>,
) -> Result<Managed, ApplyError> {
    let typed = |value| {
        validate(schema.root(), value, Duplicates::Allowed).map_err(|problem| ApplyError::Failed(problem.to_string()))
    };
    typed(after)?;
    typed(before)?;
    let mut managed = under_schema(schema, managed);
    let comparison = compare(schema.root(), before, after);
    let resets = schema.resets(write.subresource);
    // No manager is excluded here: the writer's own entry, too, loses removed fields, and gets the rest back.
    let comparison = settle(schema, comparison.without(&resets), &mut managed, None, true).unwrap_or_default();
    let changed = comparison.modified.union(&comparison.added).without_subtrees(&resets);
    let changed = changed.difference(&unowned());
    if !changed.is_empty() {
        let owner = Owner::new(manager_name(manager), Operation::Update, write.api_version, write.subresource);
        let previous = managed.0.remove(&owner).map(|owned| owned.set).unwrap_or_default();
        let owned = Owned {
            set: changed.union(&previous),
            api_version: write.api_version.to_owned(),
            time: Some(managed::time(write.now)),
        };
        managed.0.insert(owner, owned);
    }
    managed.cap();
    Ok(managed)
}

/// An apply with valid objects.
struct Request<'a> {
    schema: &'a Schema,
    live: &'a Value,
    applied: &'a Value,
    write: &'a Write<'a>,
}

// === impl Request ===

impl Request<'_> {
    fn enact(&self, managed: Managed, force: bool) -> Result<(Value, Managed), Vec<Conflict>> {
        let Request { schema, live, applied, write } = self;
        let mut managed = under_schema(schema, managed);
        let united = unite(schema.root(), live, applied);
        let owner = Owner::new(manager_name(write.manager), Operation::Apply, "", write.subresource);
        let resets = schema.resets(write.subresource);
        let set = members(schema.root(), applied).without_subtrees(&resets);
        let own = Owned { set: set.clone(), api_version: write.api_version.to_owned(), time: None };
        let last = managed.0.insert(owner.clone(), own);
        if let (Some(last), Some(owned)) = (&last, managed.0.get_mut(&owner)) {
            owned.time.clone_from(&last.time);
        }
        let after = match last {
            // A manager that applies the same fields as last time removes nothing.
            Some(last) if schema.is_served(&last.api_version) && !last.set.difference(&set).is_empty() => {
                self.prune(&united, &managed, &last.set)
            }
            _ => united,
        };
        let comparison = compare(schema.root(), live, &after).without(&resets);
        settle(schema, comparison, &mut managed, Some(&owner), force)?;
        let is_changed = !equal(live, &after);
        if let Some(owned) = managed.0.get_mut(&owner) {
            owned.set = owned.set.difference(&unowned());
            if owned.set.is_empty() {
                managed.0.remove(&owner);
            } else if is_changed {
                owned.time = Some(managed::time(write.now));
            }
        }
        let after = if is_changed { after } else { (*live).clone() };
        Ok((after, managed))
    }

    /// Removes fields that the manager applied last time and not now, unless another manager owns them.
    fn prune(&self, united: &Value, managed: &Managed, last: &Set) -> Value {
        let of = self.schema.root();
        let named = |set: &Set| with_named(Some(of), set);
        let last = named(last);
        let mut owned = Set::default();
        for (_, entry) in managed.0.iter().filter(|(_, owned)| self.schema.is_served(&owned.api_version)) {
            owned = owned.union(&entry.set);
        }
        let all = named(&members(of, united));
        let pruned = remove(of, united, &last);
        // Restores what any manager owns, and what this manager never had.
        let kept = named(&members(of, &pruned)).union(&named(&owned));
        let pruned = remove(of, united, &all.difference(&kept));
        let kept = named(&members(of, &pruned));
        remove(of, united, &all.difference(&kept).intersection(&last))
    }
}

/// Removes compared fields from all owners but `own`. A changed field of another owner is a conflict, which fails
/// unless the apply is forced.
fn settle(
    schema: &Schema,
    comparison: Comparison,
    managed: &mut Managed,
    own: Option<&Owner>,
    force: bool,
) -> Result<Comparison, Vec<Conflict>> {
    managed.0.retain(|owner, owned| Some(owner) == own || schema.is_served(&owned.api_version));
    let changed = comparison.modified.clone().union(&comparison.added);
    let mut conflicts: BTreeMap<Owner, Set> = BTreeMap::new();
    for (owner, owned) in managed.0.iter().filter(|(owner, _)| Some(*owner) != own) {
        let set = owned.set.intersection(&changed);
        if !set.is_empty() {
            conflicts.insert(owner.clone(), set);
        }
    }
    if !force && !conflicts.is_empty() {
        let of_owner = |(owner, set): (&Owner, &Set)| {
            let manager = owner.describe();
            set.paths().into_iter().map(|path| Conflict { manager: manager.clone(), path }).collect::<Vec<_>>()
        };
        return Err(conflicts.iter().flat_map(of_owner).collect());
    }
    for (owner, owned) in managed.0.iter_mut().filter(|(owner, _)| Some(*owner) != own) {
        if let Some(set) = conflicts.get(owner) {
            owned.set = owned.set.difference(set);
        }
        owned.set = owned.set.difference(&comparison.removed);
    }
    managed.0.retain(|_, owned| !owned.set.is_empty());
    Ok(comparison)
}

/// The entries under the current schema; those of unknown versions are dropped later.
fn under_schema(schema: &Schema, mut managed: Managed) -> Managed {
    for owned in managed.0.values_mut() {
        owned.set = reconcile(schema.root(), &owned.set);
    }
    managed
}

/// Fields that no manager ever owns.
fn unowned() -> Set {
    Set::from_paths([
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

fn manager_name(manager: &str) -> &str {
    if manager.is_empty() { "unknown" } else { manager }
}

fn kind_of(object: &Value) -> Gvk {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    Gvk::from_api_version(text("apiVersion"), text("kind"))
}

/// A kind as Go prints it.
fn go_kind(kind: &Gvk) -> String {
    format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind)
}

/// The identity of an object, for messages.
fn describe(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |name: &str| metadata[name].as_str().unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), go_kind(&kind_of(object)))
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    set_managed_fields(&mut object, &Managed::default());
    object
}

fn set_managed_fields(object: &mut Value, managed: &Managed) {
    let Some(object) = object.as_object_mut() else { return };
    match managed.encode() {
        Some(entries) => {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("managedFields".to_owned(), entries);
            }
        }
        None => {
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.shift_remove("managedFields");
            }
        }
    }
}

/// See [`super::keep_times`].
pub(super) fn keep_times(before: &Value, mut after: Value) -> Value {
    let entries = |object| managed_fields(object).and_then(Value::as_array);
    let (Some(old), Some(new)) = (entries(before), entries(&after)) else { return after };
    let same = |(old, new): (&Value, &Value)| is_same_but(old, new, &["time"]);
    let is_same = old.len() == new.len()
        && old.iter().zip(new).all(same)
        && is_same_but(before, &after, &["metadata", "managedFields"]);
    if is_same {
        after["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
    }
    after
}

/// Whether two values are equal, ignoring what is at a path.
fn is_same_but(one: &Value, other: &Value, path: &[&str]) -> bool {
    let (Some((name, rest)), Value::Object(one), Value::Object(other)) = (path.split_first(), one, other) else {
        return path.is_empty() || one == other;
    };
    let apart = |fields: &Map<String, Value>| fields.len() - usize::from(fields.contains_key(*name));
    let same = |(key, value): (&String, &Value)| {
        other.get(key).is_some_and(|other| if key == name { is_same_but(value, other, rest) } else { value == other })
    };
    if rest.is_empty() {
        apart(one) == apart(other) && one.iter().filter(|(key, _)| key != name).all(same)
    } else {
        one.len() == other.len() && one.iter().all(same)
    }
}
