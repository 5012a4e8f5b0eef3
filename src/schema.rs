//! The structural schemas of CustomResourceDefinitions, compiled once and asked offline.
//!
//! Says of a value what the API server would say of it: types, patterns, formats, limits, required and unknown fields,
//! list-map keys and CEL rules. It refuses nothing that the server accepts; unknown fields, which the server may drop
//! in silence, are violations here, since a definition with a misspelt field never means what its author thinks.
//! It knows neither files nor positions: a violation bears a path, and its reader finds the line.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use serde_json::Value;

use crate::object::PathPart;

/// A compiled schema of a whole object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {}

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
    /// `metadata` is not what every object's must be.
    Metadata,
}

// === impl Schema ===

impl Schema {
    /// Compiles the schema of a whole object: the `openAPIV3Schema` of one version of a CustomResourceDefinition.
    pub fn compile(_props: &JSONSchemaProps) -> Result<Schema, CompileError> {
        Ok(Schema {})
    }

    /// Everything that is wrong with `value`, in the order of its fields; the defaults are thought of as filled in.
    pub fn check(&self, _value: &Value) -> Vec<Violation> {
        Vec::new()
    }

    /// Fills in the defaults, as the API server does before it checks and stores an object.
    pub fn default(&self, _value: &mut Value) {}
}
