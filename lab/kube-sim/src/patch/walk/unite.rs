// SPDX-License-Identifier: Apache-2.0

//! Merges an applied value into a live one: nothing is removed, and the applied value wins at leaves. Items of a list
//! follow the order of the applied list; other items stay between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::{
    super::{
        path::Step,
        schema::{Fields, List, Part, Relation, Type},
    },
    as_list, as_map, step_to,
};

/// The live value with the applied one merged into it.
pub(in super::super) fn unite(of: Type<'_>, live: &Value, applied: &Value) -> Value {
    visit(of, Some(live), Some(applied)).unwrap_or_default()
}

fn visit(of: Type<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let leaf = || applied.or(live).cloned();
    match of.part(applied.or(live)) {
        Part::Scalar(_) => leaf(),
        Part::Map(fields) => {
            let is_empty = |value| as_map(value).is_none_or(Map::is_empty);
            if fields.atomic || (is_empty(live) && is_empty(applied)) {
                return leaf();
            }
            visit_fields(of, fields, as_map(live), as_map(applied))
        }
        Part::List(list) => {
            let is_empty = |value| as_list(value).is_none_or(Vec::is_empty);
            if list.relation == Relation::Atomic || (is_empty(live) && is_empty(applied)) {
                return leaf();
            }
            visit_items(of, list, live, applied)
        }
        Part::Nothing => None,
    }
}

fn visit_fields(
    of: Type<'_>,
    fields: &Fields,
    live: Option<&Map<String, Value>>,
    applied: Option<&Map<String, Value>>,
) -> Option<Value> {
    let mut united = Map::new();
    let is_new = |name: &&String| live.is_none_or(|live| !live.contains_key(*name));
    let live_names = live.into_iter().flat_map(Map::keys);
    let new_names = applied.into_iter().flat_map(Map::keys).filter(is_new);
    for name in live_names.chain(new_names) {
        let Some((of, _)) = of.field(fields, name) else { continue };
        let (live, applied) = (live.and_then(|live| live.get(name)), applied.and_then(|applied| applied.get(name)));
        if let Some(value) = visit(of, live, applied) {
            united.insert(name.clone(), value);
        }
    }
    (!united.is_empty()).then_some(Value::Object(united))
}

/// A list with the step of each item, and the items by their steps.
struct Steps<'a> {
    order: Vec<(Step, &'a Value)>,
    /// `None` for a step with several items, which are not merged.
    items: BTreeMap<Step, Option<&'a Value>>,
}

// === impl Steps ===

impl<'a> Steps<'a> {
    fn walk(of: Type<'_>, list: &List, value: Option<&'a Value>) -> Steps<'a> {
        let mut steps = Steps { order: Vec::new(), items: BTreeMap::new() };
        for item in as_list(value).into_iter().flatten() {
            let Ok(step) = step_to(of, list, item) else { continue };
            steps.items.entry(step.clone()).and_modify(|found| *found = None).or_insert(Some(item));
            steps.order.push((step, item));
        }
        steps
    }

    fn has(&self, step: &Step) -> bool {
        self.items.contains_key(step)
    }

    fn get(&self, step: &Step) -> Option<&'a Value> {
        // An ambiguous item merges like null: the other one wins.
        static NULL: Value = Value::Null;
        self.items.get(step).map(|item| item.unwrap_or(&NULL))
    }
}

fn visit_items(of: Type<'_>, list: &List, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let (live, applied) = (Steps::walk(of, list, live), Steps::walk(of, list, applied));
    let items = of.at(list.items);
    let mut united = Vec::new();
    let mut done = BTreeSet::new();
    // Common items, in the order of the applied list: live items that come too early wait.
    let mut shared: VecDeque<&Step> =
        applied.order.iter().map(|(step, _)| step).filter(|step| live.has(step)).collect();
    let mut next_shared = shared.pop_front();
    let (mut at_live, mut at_applied) = (0, 0);
    while at_live < live.order.len() || at_applied < applied.order.len() {
        let (left, right) = (live.order.get(at_live), applied.order.get(at_applied));
        if let (Some((left, _)), Some((right, _))) = (left, right) {
            if left == right {
                done.insert(left);
                united.extend(visit(items, live.get(left), applied.get(left)));
                at_live += 1;
                at_applied += 1;
                next_shared = shared.pop_front();
                continue;
            }
            if applied.has(left) && next_shared.is_some_and(|next| next != left) {
                at_live += 1;
                continue;
            }
        }
        if let Some((step, item)) = left {
            if !applied.has(step) {
                united.extend(visit(items, Some(item), None));
                at_live += 1;
                continue;
            }
            if done.contains(step) {
                at_live += 1;
            }
        }
        if let Some((step, _)) = right {
            done.insert(step);
            united.extend(visit(items, live.get(step), applied.get(step)));
            at_applied += 1;
            if next_shared == Some(step) {
                next_shared = shared.pop_front();
            }
        }
    }
    (!united.is_empty()).then_some(Value::Array(united))
}
