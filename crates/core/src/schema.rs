//! The structural schemas of CustomResourceDefinitions, compiled once and asked offline.
//!
//! Says of a value what the API server would say of it: types, patterns, formats, limits, required and unknown fields,
//! list-map keys and CEL rules. It refuses nothing that the server accepts, but for one thing: a list where a text of a
//! format must be, which the server lets pass and no reader expects. Unknown fields, which the server may drop
//! in silence, are violations here, since a definition with a misspelt field never means what its author thinks.
//! It knows neither files nor positions: a violation bears a path, and its reader finds the line.

mod check;
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
pub use self::rule::{INAPPLICABLE, escape};
use crate::object::PathPart;

/// A compiled schema of a whole object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema(Arc<Node>);

/// Why a schema cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the schema of `{field}` cannot be used: {problem}")]
pub struct CompileError {
    /// Where in the object the schema stands, such as `spec.modules[].name`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
}

/// One thing that is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where. The last part is absent from the value if the kind is [`ViolationKind::Required`].
    pub path: Vec<PathPart>,
    /// What.
    pub kind: ViolationKind,
    /// One sentence, without the path.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The schema has no such field.
    UnknownField {
        /// The field that was probably meant.
        did_you_mean: Option<String>,
    },
    /// A required field is absent.
    Required,
    /// Another type than the schema's.
    Type,
    /// Null where a value must be.
    Null,
    /// Not of the format, such as `date-time`.
    Format,
    /// The pattern does not match.
    Pattern,
    /// None of the allowed values.
    Enum,
    /// Shorter or fewer than allowed.
    TooShort,
    /// Longer or more than allowed.
    TooLong,
    /// Below the minimum, above the maximum, or no multiple.
    Range,
    /// Two items of a list that must differ.
    Duplicate,
    /// `oneOf`, `anyOf`, `allOf` or `not` does not hold.
    Combination,
    /// A CEL rule does not hold.
    Rule,
    /// A CEL rule does not hold for what was there before: only [`Schema::check_update`] says so, and it refuses nothing.
    Tolerated,
    /// `metadata` is not what every object's must be.
    Metadata,
}

// === impl Schema ===

impl Schema {
    /// Compiles the schema of a whole object: the `openAPIV3Schema` of one version of a CustomResourceDefinition.
    pub fn compile(props: &JSONSchemaProps) -> Result<Schema, CompileError> {
        Node::compile(props, "").map(|root| Schema(Arc::new(root)))
    }

    /// Compiles the schema of the version that a CustomResourceDefinition stores.
    pub fn of(crd: &CustomResourceDefinition) -> Result<Schema, CompileError> {
        let stored = crd.spec.versions.iter().find(|version| version.storage);
        let props = stored.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
        let missing = || CompileError { field: String::new(), problem: "no stored version has a schema".to_owned() };
        Schema::compile(props.ok_or_else(missing)?)
    }

    /// Everything that is wrong with `value`, in the order of its fields; the defaults are thought of as filled in.
    ///
    /// `value` is the whole object: `apiVersion`, `kind` and `metadata` are checked as for every kind.
    pub fn check(&self, value: &Value) -> Vec<Violation> {
        let mut violations = Vec::new();
        check::object(&self.0, value, None, &mut violations);
        violations
    }

    /// As [`Schema::check`], of a value that takes the place of `old`: rules that compare with it are asked as well, and
    /// what was there before is not wrong now, though the server warns of rules that it breaks.
    pub fn check_update(&self, value: &Value, old: &Value) -> Vec<Violation> {
        let mut violations = Vec::new();
        check::object(&self.0, value, Some(old), &mut violations);
        violations
    }

    /// Fills in the defaults, removes nulls from fields that cannot be null and writes `8080.0` as 8080 where a whole
    /// number must be, as the API server does when it stores an object.
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
