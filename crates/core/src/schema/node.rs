//! The compiled form of a schema: JSONSchemaProps with compiled patterns, formats and rules.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use regex::Regex;
use serde_json::Value;

use super::{CompileError, format::Format, pattern, rule::Rule};
use crate::budget::Budget;

/// The schema of one value.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) kind: Type,
    pub(super) nullable: bool,
    /// The value is an embedded Kubernetes object.
    pub(super) embedded: bool,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) others: Others,
    pub(super) required: Vec<String>,
    pub(super) items: Option<Box<Node>>,
    pub(super) list: List,
    pub(super) default: Option<Value>,
    pub(super) allowed: Allowed,
    pub(super) pattern: Option<Regex>,
    /// The pattern as its author wrote it.
    pub(super) pattern_text: String,
    pub(super) format: Option<Format>,
    pub(super) length: Bounds<usize>,
    pub(super) items_count: Bounds<usize>,
    pub(super) properties_count: Bounds<usize>,
    pub(super) minimum: Option<Limit>,
    pub(super) maximum: Option<Limit>,
    pub(super) multiple_of: Option<f64>,
    /// The range of a whole number, from its format.
    pub(super) width: Option<Width>,
    pub(super) all_of: Vec<Node>,
    pub(super) any_of: Vec<Node>,
    pub(super) one_of: Vec<Node>,
    pub(super) not: Option<Box<Node>>,
    pub(super) rules: Vec<Rule>,
}

/// The values of an `enum`. Empty for a schema without one.
#[derive(Debug, Default)]
pub(super) struct Allowed {
    /// Looked up for each value: both may have a hundred thousand.
    pub(super) all: HashSet<Value>,
    /// The first ones, for messages.
    pub(super) first: Vec<Value>,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Any,
    Object,
    Array,
    Text,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

/// How unknown fields are treated.
#[derive(Debug)]
pub(super) enum Others {
    /// They are violations.
    Unknown,
    /// They are kept as they are.
    Kept,
    /// Each must match this schema.
    Of(Box<Node>),
}

/// How list items are distinguished.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum List {
    Atomic,
    /// No two items are equal.
    Set,
    /// No two items have equal values in these fields.
    Map(Vec<String>),
}

/// The minimum and maximum count.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds<T> {
    pub(super) min: Option<T>,
    pub(super) max: Option<T>,
}

/// A minimum or maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) value: f64,
    pub(super) exclusive: bool,
}

/// The integer formats, which the server checks as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Int32,
    Int64,
    Uint32,
    Uint64,
}

/// How a schema is compiled.
#[derive(Clone, Copy)]
struct Mode<'a> {
    role: Role,
    /// The time for it: compiling a pattern of a few bytes may take milliseconds.
    budget: &'a Budget,
}

/// Whether a schema describes a value, or only adds conditions inside `allOf`, `anyOf`, `oneOf` or
/// `not`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Structure,
    /// It does not define which fields exist.
    Condition,
}

/// The problem if the budget ends. It is never shown, because the result is incomplete.
const OVER: &str = "it takes too long to compile";

// === impl Node ===

impl Node {
    /// Compiles the schema of an object. Fails with the field and the problem if the API server would
    /// reject the schema, if Tidegate cannot check it, or if the budget ends before.
    pub(super) fn compile(props: &JSONSchemaProps, budget: &Budget) -> Result<Node, CompileError> {
        Node::compile_as(Mode { role: Role::Structure, budget }, props, "")
    }

    /// The default value of an absent property, which the server sets.
    pub(super) fn default_of(&self, property: &str) -> Option<&Value> {
        self.properties.get(property).and_then(|node| node.default.as_ref())
    }

    fn compile_as(mode: Mode<'_>, props: &JSONSchemaProps, field: &str) -> Result<Node, CompileError> {
        let error = |problem: String| CompileError { field: field.to_owned(), problem };
        if mode.budget.is_over() {
            return Err(error(OVER.to_owned()));
        }
        let condition = Mode { role: Role::Condition, ..mode };
        if props.ref_path.is_some() {
            return Err(error("`$ref` is not structural".to_owned()));
        }
        let compile_all = |schemas: &Option<Vec<JSONSchemaProps>>| -> Result<Vec<Node>, CompileError> {
            schemas.iter().flatten().map(|schema| Node::compile_as(condition, schema, field)).collect()
        };
        let kind = Type::from_schema(props).map_err(error)?;
        let int_or_string = kind == Type::IntOrString;
        let pattern = props.pattern.as_deref().filter(|pattern| !pattern.is_empty());
        Ok(Node {
            kind,
            nullable: props.nullable.unwrap_or_default(),
            embedded: props.x_kubernetes_embedded_resource.unwrap_or_default(),
            properties: compile_properties(mode, props, field)?,
            others: compile_others(mode, props, field)?,
            required: props.required.clone().unwrap_or_default(),
            items: compile_items(mode, props, field)?,
            list: List::from_schema(props),
            default: props.default.as_ref().map(|default| default.0.clone()),
            allowed: Allowed::from_schema(props),
            pattern: pattern.map(pattern::compile).transpose().map_err(|problem| error(problem.to_string()))?,
            pattern_text: pattern.unwrap_or_default().to_owned(),
            format: props.format.as_deref().and_then(Format::from_name),
            length: Bounds::from_pair(props.min_length, props.max_length),
            items_count: Bounds::from_pair(props.min_items, props.max_items),
            properties_count: Bounds::from_pair(props.min_properties, props.max_properties),
            minimum: Limit::from_value(props.minimum, props.exclusive_minimum),
            maximum: Limit::from_value(props.maximum, props.exclusive_maximum),
            multiple_of: props.multiple_of,
            width: props.format.as_deref().and_then(Width::from_format),
            // The alternatives of an int-or-string only repeat its marker.
            all_of: if int_or_string { Vec::new() } else { compile_all(&props.all_of)? },
            any_of: if int_or_string { Vec::new() } else { compile_all(&props.any_of)? },
            one_of: compile_all(&props.one_of)?,
            not: match &props.not {
                Some(schema) => Some(Box::new(Node::compile_as(condition, schema, field)?)),
                None => None,
            },
            rules: compile_rules(mode.budget, props, field)?,
        })
    }
}

fn compile_properties(
    mode: Mode<'_>,
    props: &JSONSchemaProps,
    field: &str,
) -> Result<BTreeMap<String, Node>, CompileError> {
    let mut properties = BTreeMap::new();
    for (name, schema) in props.properties.iter().flatten() {
        let below = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
        properties.insert(name.clone(), Node::compile_as(mode, schema, &below)?);
    }
    Ok(properties)
}

fn compile_others(mode: Mode<'_>, props: &JSONSchemaProps, field: &str) -> Result<Others, CompileError> {
    let preserve = props.x_kubernetes_preserve_unknown_fields.unwrap_or_default();
    Ok(match &props.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(schema)) => {
            Others::Of(Box::new(Node::compile_as(mode, schema, &format!("{field}.*"))?))
        }
        Some(JSONSchemaPropsOrBool::Bool(true)) => Others::Kept,
        Some(JSONSchemaPropsOrBool::Bool(false)) | None if mode.role == Role::Structure && !preserve => Others::Unknown,
        Some(JSONSchemaPropsOrBool::Bool(false)) | None => Others::Kept,
    })
}

fn compile_items(mode: Mode<'_>, props: &JSONSchemaProps, field: &str) -> Result<Option<Box<Node>>, CompileError> {
    match &props.items {
        Some(JSONSchemaPropsOrArray::Schema(schema)) => {
            Ok(Some(Box::new(Node::compile_as(mode, schema, &format!("{field}[]"))?)))
        }
        Some(JSONSchemaPropsOrArray::Schemas(_)) => {
            Err(CompileError { field: field.to_owned(), problem: "`items` must be one schema".to_owned() })
        }
        None => Ok(None),
    }
}

fn compile_rules(budget: &Budget, props: &JSONSchemaProps, field: &str) -> Result<Vec<Rule>, CompileError> {
    let compile = |rule| if budget.is_over() { Err(OVER.to_owned()) } else { Rule::compile(rule) };
    props
        .x_kubernetes_validations
        .iter()
        .flatten()
        .map(|rule| {
            compile(rule).map_err(|problem| CompileError {
                field: field.to_owned(),
                problem: format!("rule `{}`: {problem}", rule.rule),
            })
        })
        .collect()
}

// === impl Type ===

impl Type {
    fn from_schema(props: &JSONSchemaProps) -> Result<Type, String> {
        if props.x_kubernetes_int_or_string.unwrap_or_default() {
            return Ok(Type::IntOrString);
        }
        Ok(match props.type_.as_deref() {
            None | Some("") => Type::Any,
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::Text,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            Some(other) => return Err(format!("`{other}` is not a type")),
        })
    }

    /// Whether a value other than null has this type.
    pub(super) fn accepts(self, value: &Value) -> bool {
        match self {
            Type::Any => true,
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::Text => value.is_string(),
            Type::Integer => is_integer(value),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
            Type::IntOrString => value.is_string() || is_integer(value),
        }
    }

    /// The description for a message.
    pub(super) fn description(self) -> &'static str {
        match self {
            Type::Any => "anything",
            Type::Object => "a mapping",
            Type::Array => "a list",
            Type::Text => "a string",
            Type::Integer => "a whole number",
            Type::Number => "a number",
            Type::Boolean => "`true` or `false`",
            Type::IntOrString => "a whole number or a string",
        }
    }
}

/// The server accepts `8080.0` as an integer, as JSON does.
fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

// === impl Allowed ===

impl Allowed {
    /// How many values a message names.
    const NAMED_MAX: usize = 50;

    fn from_schema(props: &JSONSchemaProps) -> Allowed {
        let mut found = Allowed::default();
        for value in props.enum_.iter().flatten().map(|allowed| &allowed.0) {
            if found.all.insert(value.clone()) && found.first.len() < Allowed::NAMED_MAX {
                found.first.push(value.clone());
            }
        }
        found
    }
}

// === impl List ===

impl List {
    fn from_schema(props: &JSONSchemaProps) -> List {
        match props.x_kubernetes_list_type.as_deref() {
            Some("set") => List::Set,
            Some("map") => List::Map(props.x_kubernetes_list_map_keys.clone().unwrap_or_default()),
            _ => List::Atomic,
        }
    }
}

// === impl Bounds ===

impl Bounds<usize> {
    fn from_pair(min: Option<i64>, max: Option<i64>) -> Bounds<usize> {
        let count = |bound: Option<i64>| bound.and_then(|bound| usize::try_from(bound).ok());
        Bounds { min: count(min), max: count(max) }
    }
}

// === impl Limit ===

impl Limit {
    fn from_value(value: Option<f64>, exclusive: Option<bool>) -> Option<Limit> {
        value.map(|value| Limit { value, exclusive: exclusive.unwrap_or_default() })
    }
}

// === impl Width ===

impl Width {
    fn from_format(format: &str) -> Option<Width> {
        Some(match format {
            "int32" => Width::Int32,
            "int64" => Width::Int64,
            "uint32" => Width::Uint32,
            "uint64" => Width::Uint64,
            _ => return None,
        })
    }

    /// The range of the format.
    pub(super) fn range(self) -> (i128, i128) {
        match self {
            Width::Int32 => (i32::MIN.into(), i32::MAX.into()),
            Width::Int64 => (i64::MIN.into(), i64::MAX.into()),
            Width::Uint32 => (0, u32::MAX.into()),
            Width::Uint64 => (0, u64::MAX.into()),
        }
    }
}
