// SPDX-License-Identifier: Apache-2.0

//! The fields of a value, which its applier owns.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    super::{
        path::Step,
        schema::{List, Part, Relation, Type},
        set::Set,
    },
    below, step_to,
};

/// The fields of a value: leaves, items of lists, and keys that the schema does not name.
pub(in super::super) fn members(of: Type<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    // The whole object is in no set.
    let _ = collect(of, value, &mut set);
    set
}

/// Adds the fields of `value` to `set`. True if the value itself is a field.
fn collect(of: Type<'_>, value: &Value, set: &mut Set) -> bool {
    match of.part(Some(value)) {
        Part::Scalar(_) => true,
        Part::Map(fields) if fields.atomic => true,
        Part::List(list) if list.relation == Relation::Atomic => true,
        Part::Map(fields) => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let Some((of, named)) = of.field(fields, name) else { continue };
                let step = Step::field(name);
                let mut inner = Set::default();
                let is_leaf = collect(of, value, &mut inner);
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                put(set, step, &inner, is_leaf || is_empty || !named);
            }
            false
        }
        Part::List(list) => {
            collect_items(of, list, value, set);
            false
        }
        Part::Nothing => false,
    }
}

fn collect_items(of: Type<'_>, list: &List, value: &Value, set: &mut Set) {
    let items = value.as_array().into_iter().flatten();
    let steps: Vec<(Step, &Value)> =
        items.filter_map(|item| step_to(of, list, item).ok().map(|step| (step, item))).collect();
    let mut counts: BTreeMap<&Step, usize> = BTreeMap::new();
    for (step, _) in &steps {
        *counts.entry(step).or_default() += 1;
    }
    for (step, item) in &steps {
        let mut inner = Set::default();
        // Of duplicate items, only the step is known.
        if counts[step] == 1 {
            let _ = collect(of.at(list.items), item, &mut inner);
        }
        put(set, step.clone(), &inner, true);
    }
}

fn put(set: &mut Set, step: Step, inner: &Set, is_member: bool) {
    if !inner.is_empty() {
        let below = set.descend(&step);
        *below = std::mem::take(below).union(inner);
    }
    if is_member {
        set.add(step);
    }
}

/// The set with the named fields above its members: the owner of `a.b` also has `a`, if the schema names it.
pub(in super::super) fn with_named(of: Option<Type<'_>>, set: &Set) -> Set {
    let mut all = Set::default();
    for (step, is_member, inner) in set.steps() {
        let is_named = match (of.map(|of| of.part(None)), step) {
            (Some(Part::Map(fields)), Step::Field(name)) => fields.named.contains_key(&**name),
            _ => false,
        };
        let is_parent = !inner.is_empty();
        let inner = with_named(of.and_then(|of| below(of, step)), inner);
        put(&mut all, step.clone(), &inner, is_member || (is_parent && is_named));
    }
    all
}
