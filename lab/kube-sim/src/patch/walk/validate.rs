// SPDX-License-Identifier: Apache-2.0

//! Validates the type of a value. The messages are the server's, including the way in which Go prints values.

use serde_json::{Map, Value};

use super::{
    super::{
        path::Step,
        schema::{Fields, List, Part, Relation, Scalar, Type},
    },
    step_to,
};

/// Whether items of a list may have equal keys: stored ones may, applied ones may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Duplicates {
    Allowed,
    Refused,
}

/// All errors of a value, in the server's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(in super::super) struct Invalid(String);

/// Reports the errors of a value.
pub(in super::super) fn validate(of: Type<'_>, value: &Value, duplicates: Duplicates) -> Result<(), Invalid> {
    let mut validator = Validator { duplicates, path: String::new(), errors: Vec::new() };
    validator.visit(of, value);
    match validator.errors.as_slice() {
        [] => Ok(()),
        [only] => Err(Invalid(only.clone())),
        several => Err(Invalid(format!("errors:\n  {}", several.join("\n  ")))),
    }
}

struct Validator {
    duplicates: Duplicates,
    path: String,
    errors: Vec<String>,
}

// === impl Validator ===

impl Validator {
    fn error(&mut self, message: impl std::fmt::Display) {
        let error = if self.path.is_empty() { message.to_string() } else { format!("{}: {message}", self.path) };
        self.errors.push(error);
    }

    fn visit(&mut self, of: Type<'_>, value: &Value) {
        match of.part(Some(value)) {
            Part::Map(fields) => self.map(of, fields, value),
            Part::Scalar(scalar) => self.scalar(scalar, value),
            Part::List(list) => self.list(of, list, value),
            Part::Nothing => self.error("schema error: invalid atom: inlined"),
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        let fits = match scalar {
            Scalar::Number => value.is_number(),
            Scalar::Text => value.is_string(),
            Scalar::Boolean => value.is_boolean(),
            Scalar::Any => value.is_number() || value.is_string() || value.is_boolean(),
        };
        if fits || value.is_null() {
            return;
        }
        match scalar {
            Scalar::Number => self.error(format_args!("expected numeric (int or float), got {}", type_name(value))),
            Scalar::Text => {
                self.error(format_args!("expected string, got &value.valueUnstructured{{Value:{}}}", in_detail(value)));
            }
            Scalar::Boolean => self.error(format_args!("expected boolean, got &{{{}}}", plain(value))),
            Scalar::Any => self.error(format_args!("expected any scalar, got &{{{}}}", plain(value))),
        }
    }

    fn map(&mut self, of: Type<'_>, fields: &Fields, value: &Value) {
        let map = match value {
            Value::Null => return,
            Value::Object(map) => map,
            other => return self.error(format_args!("expected map, got &{{{}}}", plain(other))),
        };
        let length = self.path.len();
        for (name, value) in map {
            self.path.push_str(&Step::field(name).to_string());
            match of.field(fields, name) {
                Some((of, _)) => self.visit(of, value),
                // As the server, stop at the first one.
                None => {
                    self.error("field not declared in schema");
                    self.path.truncate(length);
                    return;
                }
            }
            self.path.truncate(length);
        }
    }

    fn list(&mut self, of: Type<'_>, list: &List, value: &Value) {
        let items = match value {
            Value::Null => return,
            Value::Array(items) => items,
            other => return self.error(format_args!("expected list, got &{{{}}}", plain(other))),
        };
        let length = self.path.len();
        let mut seen = std::collections::BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = if list.relation == Relation::Atomic {
                Step::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match step_to(of, list, item) {
                    Ok(step) => step,
                    Err(problem) => return self.error(format_args!("element {index}: {problem}")),
                }
            };
            if list.relation != Relation::Atomic && !seen.insert(step.clone()) && self.duplicates == Duplicates::Refused
            {
                self.error(format_args!("duplicate entries for key {step}"));
            }
            self.path.push_str(&step.to_string());
            self.visit(of.at(list.items), item);
            self.path.truncate(length);
        }
    }
}

/// The type of a value as Go's `%T` prints it.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value as Go's `%v` prints it.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields = sorted(fields).into_iter().map(|(name, value)| format!("{name}:{}", plain(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A value as Go's `%#v` prints it.
fn in_detail(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            format!("[]interface {{}}{{{}}}", items.iter().map(in_detail).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields = sorted(fields).into_iter().map(|(name, value)| format!("{name:?}:{}", in_detail(value)));
            format!("map[string]interface {{}}{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}
