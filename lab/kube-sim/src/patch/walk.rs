// SPDX-License-Identifier: Apache-2.0

//! Walks over typed values: validation, fields, comparison, merge, and removal of fields.
//!
//! As in the server, an absent value and a null differ. All walks but validation expect valid values.

mod compare;
mod members;
mod reconcile;
mod remove;
mod unite;
mod validate;

use serde_json::{Map, Value};

use super::{
    path::{Datum, Step},
    schema::{List, Part, Relation, Type},
};

pub(super) use self::{
    compare::{Comparison, compare},
    members::{members, with_named},
    reconcile::reconcile,
    remove::remove,
    unite::unite,
    validate::{Duplicates, validate},
};

fn as_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn as_list(value: Option<&Value>) -> Option<&Vec<Value>> {
    value.and_then(Value::as_array)
}

/// The step to an item of a set or of a keyed list.
fn step_to(of: Type<'_>, list: &List, item: &Value) -> Result<Step, String> {
    match &list.relation {
        Relation::Atomic => Err("invalid indexing of non-associative list".to_owned()),
        Relation::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(Step::Value(Datum(item.clone()))),
        },
        Relation::Keyed(keys) => step_by_keys(of.at(list.items), keys, item),
    }
}

fn step_by_keys(items: Type<'_>, keys: &[String], item: &Value) -> Result<Step, String> {
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let of = items.atom().map.as_ref();
        let default = || of.and_then(|of| of.named.get(key)).and_then(|property| property.default.as_ref());
        if let Some(value) = fields.get(key).or_else(default) {
            found.push((key.as_str().into(), Datum(value.clone())));
        }
    }
    if found.is_empty() && !keys.is_empty() {
        let quoted: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values \
             for any key fields)",
            quoted.join(" ")
        ));
    }
    found.sort();
    Ok(Step::Keys(found))
}

/// The type of the item or field that `step` leads to.
fn below<'a>(of: Type<'a>, step: &Step) -> Option<Type<'a>> {
    match (of.part(None), step) {
        (Part::Map(fields), Step::Field(name)) => of.field(fields, name).map(|(of, _)| of),
        (_, Step::Keys(_)) => of.atom().list.as_ref().map(|list| of.at(list.items)),
        _ => None,
    }
}
