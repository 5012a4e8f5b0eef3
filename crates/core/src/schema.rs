//! The structural schemas of CustomResourceDefinitions, compiled once and evaluated offline.
//!
//! Reports what the API server would report about a value: types, patterns, formats, limits,
//! required and unknown fields, list-map keys and CEL rules. It rejects nothing that the server
//! accepts, with two exceptions. A list where a string with a format is required is a violation:
//! the server accepts it, but no reader expects it. Unknown fields are violations, although the
//! server may drop them silently: a misspelt field is always a mistake.
//!
//! It knows neither files nor positions: a violation has a path, and its reader finds the line.

mod check;
mod defaults;
pub mod expression;
mod format;
pub mod metadata;
mod node;
mod pattern;
mod rule;
mod suggest;

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use serde_json::{Map, Value};

use self::node::{Node, Others, Type};
pub(crate) use self::{
    check::{cut, type_name},
    format::{is_base64, is_date_time},
    suggest::{distance, nearest},
};
pub use self::{
    defaults::{of_spec, remove_defaults},
    format::duration_nanoseconds,
    rule::{INAPPLICABLE, escape},
};
use crate::{budget::Budget, object::PathPart};

/// A compiled schema of a whole object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema(Arc<Node>);

/// Why a schema cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid schema of `{field}`: {problem}")]
pub struct CompileError {
    /// The field with the invalid schema, such as `spec.modules[].name`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

/// One violation of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the value. The last part is absent from the value if the kind is
    /// [`ViolationKind::Required`].
    pub path: Vec<PathPart>,
    /// The kind of violation.
    pub kind: ViolationKind,
    /// One sentence, without the path.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// The kind of a violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The field is unknown.
    UnknownField {
        /// The field that the user probably meant.
        did_you_mean: Option<String>,
    },
    /// A required field is missing.
    Required,
    /// The value has the wrong type.
    Type,
    /// The value is null, but the field is not nullable.
    Null,
    /// The value does not match its format, such as `date-time`.
    Format,
    /// The pattern does not match.
    Pattern,
    /// The value is not one of the allowed values.
    Enum,
    /// The value is shorter, or has fewer items, than allowed.
    TooShort,
    /// The value is longer, or has more items, than allowed.
    TooLong,
    /// The number is below the minimum, above the maximum, or not a multiple.
    Range,
    /// Two items of a list must differ, but are equal.
    Duplicate,
    /// `oneOf`, `anyOf`, `allOf` or `not` is violated.
    Combination,
    /// A CEL rule is violated.
    Rule,
    /// The old value already violates a CEL rule. Only [`Schema::check_update`] reports it, and the
    /// server accepts the object.
    Tolerated,
    /// `metadata` is invalid for every kind.
    Metadata,
}

// === impl Schema ===

impl Schema {
    /// Compiles the schema of a whole object: the `openAPIV3Schema` of one version of a CustomResourceDefinition.
    ///
    /// # Errors
    ///
    /// Fails if the schema is not structural or one of its patterns or rules is invalid.
    pub fn compile(props: &JSONSchemaProps) -> Result<Schema, CompileError> {
        Schema::compile_within(props, &Budget::default())
    }

    /// As [`Schema::compile`].
    ///
    /// # Errors
    ///
    /// Fails as well if the budget ends before.
    pub fn compile_within(props: &JSONSchemaProps, budget: &Budget) -> Result<Schema, CompileError> {
        Node::compile(props, budget).map(|root| Schema(Arc::new(root)))
    }

    /// Compiles the schema of the storage version of a CustomResourceDefinition.
    ///
    /// # Errors
    ///
    /// Fails as [`Schema::compile`] does, or if no stored version has a schema.
    pub fn from_crd(crd: &CustomResourceDefinition) -> Result<Schema, CompileError> {
        let stored = crd.spec.versions.iter().find(|version| version.storage);
        let props = stored.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
        let missing = || CompileError { field: String::new(), problem: "no stored version has a schema".to_owned() };
        Schema::compile(props.ok_or_else(missing)?)
    }

    /// All violations in `value`, in the order of its fields. Missing fields have their defaults.
    ///
    /// `value` is the whole object: `apiVersion`, `kind` and `metadata` are checked as for every kind.
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        self.check_some(value, usize::MAX, &Budget::default()).0
    }

    /// As [`Schema::check`], with at most `max` violations and the number of the others. Incomplete if the budget ends
    /// before.
    pub fn check_some(&self, value: &Value, max: usize, budget: &Budget) -> (Vec<Violation>, usize) {
        let mut found = check::ViolationSink::at_most(max, budget);
        check::object(&self.0, value, None, &mut found);
        (found.listed, found.more)
    }

    /// As [`Schema::check`], for a value that replaces `old`. Transition rules are evaluated as
    /// well. Unchanged values are not violations, but the server warns about rules that they
    /// violate.
    pub fn check_update(&self, value: &Value, old: &Value) -> Vec<Violation> {
        let budget = Budget::default();
        let mut found = check::ViolationSink::at_most(usize::MAX, &budget);
        check::object(&self.0, value, Some(old), &mut found);
        found.listed
    }

    /// Sets defaults, removes nulls from fields that are not nullable, and writes `8080.0` as 8080
    /// in integer fields, as the API server does when it stores an object.
    pub fn default(&self, value: &mut Value) {
        fill_in(&self.0, value);
    }
}

fn fill_in(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => fill_in_fields(node, fields),
        Value::Array(items) => {
            if let Some(item) = node.items.as_deref() {
                items.iter_mut().for_each(|value| fill_in(item, value));
            }
        }
        Value::Number(number) if node.kind == Type::Integer && number.is_f64() => {
            if let Some(whole) = check::whole(number).and_then(|whole| i64::try_from(whole).ok()) {
                *value = Value::from(whole);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn fill_in_fields(node: &Node, fields: &mut Map<String, Value>) {
    for (name, property) in &node.properties {
        if fields.get(name).is_some_and(|value| value.is_null() && !property.nullable) {
            fields.shift_remove(name);
        }
        if let Some(default) = property.default.as_ref().filter(|_| !fields.contains_key(name)) {
            fields.insert(name.clone(), default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            fill_in(property, value);
        }
    }
    if let Others::Of(of) = &node.others {
        fields.retain(|name, value| node.properties.contains_key(name) || !value.is_null() || of.nullable);
        let others = fields.iter_mut().filter(|(name, _)| !node.properties.contains_key(*name));
        others.for_each(|(_, value)| fill_in(of, value));
    }
}

#[cfg(test)]
mod tests;
