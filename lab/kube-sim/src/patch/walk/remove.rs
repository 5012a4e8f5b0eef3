// SPDX-License-Identifier: Apache-2.0

//! Removes fields from a value.

use serde_json::{Map, Value};

use super::{
    super::{
        path::Step,
        schema::{Part, Relation, Type},
        set::Set,
    },
    step_to,
};

/// The value without the fields of `set`. An atomic value is removed as a whole or not at all; if nothing is left, the
/// result is null.
pub(in super::super) fn remove(of: Type<'_>, value: &Value, set: &Set) -> Value {
    match of.part(Some(value)) {
        Part::Scalar(_) => value.clone(),
        Part::Map(fields) => {
            let Value::Object(map) = value else { return Value::Null };
            if fields.atomic {
                return Value::Null;
            }
            let mut rest = Map::new();
            for (name, value) in map {
                let step = Step::field(name);
                if set.has(&step) {
                    continue;
                }
                let value = match (set.below(&step), of.field(fields, name)) {
                    (Some(below), Some((of, _))) => remove(of, value, below),
                    _ => value.clone(),
                };
                rest.insert(name.clone(), value);
            }
            if rest.is_empty() { Value::Null } else { Value::Object(rest) }
        }
        Part::List(list) => {
            let Value::Array(items) = value else { return Value::Null };
            if list.relation == Relation::Atomic {
                return Value::Null;
            }
            let rest: Vec<Value> = items
                .iter()
                .filter_map(|item| match step_to(of, list, item) {
                    Ok(step) if set.has(&step) => None,
                    Ok(step) => Some(match set.below(&step) {
                        Some(below) => remove(of.at(list.items), item, below),
                        None => item.clone(),
                    }),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if rest.is_empty() { Value::Null } else { Value::Array(rest) }
        }
        Part::Nothing => Value::Null,
    }
}
