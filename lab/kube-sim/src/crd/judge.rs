// SPDX-License-Identifier: Apache-2.0

//! The validation errors of a custom resource, in the words of the server.
//!
//! [`tidegate_core::schema`] decides what is invalid; this module only translates.

use serde_json::{Map, Value};

use super::Custom;
use tidegate_core::{
    object::{DisplayPath, PathPart},
    schema::{INAPPLICABLE, Violation, ViolationKind},
};

use crate::refusal::Cause;

const NOT_ALL_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the \
                               existing errors to complete validation";

/// All errors that the schema reports, and warnings about errors that existed before. Does not check the metadata that
/// every object has.
pub(crate) fn violations(custom: &Custom, before: Option<&Value>, object: &Value) -> (Vec<Cause>, Vec<String>) {
    let found = match before {
        None => custom.checks.check(object),
        Some(before) => custom.checks.check_update(object, before),
    };
    let is_ours = |violation: &&Violation| {
        let is_type_or_metadata = matches!(
            violation.path.first(),
            Some(PathPart::Key(key)) if matches!(key.as_str(), "metadata" | "apiVersion" | "kind")
        );
        !is_type_or_metadata && !matches!(violation.kind, ViolationKind::UnknownField { .. })
    };
    let tolerated = |violation: &&Violation| violation.kind == ViolationKind::Tolerated;
    let warnings = found.iter().filter(is_ours).filter(tolerated);
    let warnings: Vec<String> = warnings.map(|violation| broken_rule(custom, object, violation).to_string()).collect();
    let found: Vec<&Violation> = found.iter().filter(is_ours).filter(|violation| !tolerated(violation)).collect();
    let mut causes: Vec<Cause> = Vec::new();
    let incomplete = found.iter().any(|violation| stops_rules(violation));
    for violation in found.into_iter().filter(|violation| !incomplete || violation.kind != ViolationKind::Rule) {
        said(custom, object, violation, &mut causes);
    }
    if incomplete && has_rules(&custom.props) {
        causes.push(Cause::invalid("<nil>", "null", NOT_ALL_CHECKED));
    }
    (causes, if incomplete { Vec::new() } else { warnings })
}

/// Whether rules are not evaluated because of this error.
fn stops_rules(violation: &Violation) -> bool {
    match violation.kind {
        ViolationKind::Required
        | ViolationKind::Type
        | ViolationKind::Null
        | ViolationKind::Format
        | ViolationKind::Enum
        | ViolationKind::TooLong => true,
        ViolationKind::Duplicate
        | ViolationKind::Combination
        | ViolationKind::Pattern
        | ViolationKind::TooShort
        | ViolationKind::Range
        | ViolationKind::Rule
        | ViolationKind::Tolerated
        | ViolationKind::Metadata
        | ViolationKind::UnknownField { .. } => false,
    }
}

fn has_rules(props: &Value) -> bool {
    match props {
        Value::Object(fields) => {
            fields.contains_key("x-kubernetes-validations")
                || ["items", "additionalProperties"].iter().filter_map(|name| fields.get(*name)).any(has_rules)
                || fields
                    .get("properties")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .any(|(_, of)| has_rules(of))
        }
        _ => false,
    }
}

fn said(custom: &Custom, object: &Value, violation: &Violation, causes: &mut Vec<Cause>) {
    let path = DisplayPath(&violation.path).to_string();
    let value = at(object, &violation.path);
    let none = Map::new();
    let props = schema_at(&custom.props, &violation.path).and_then(Value::as_object).unwrap_or(&none);
    let number = |name: &str| props.get(name).cloned().unwrap_or_default();
    let in_body = |rest: &str| format!("{path} in body {rest}");
    match violation.kind {
        ViolationKind::Required => causes.push(Cause::required(&path, "")),
        ViolationKind::Type | ViolationKind::Null => {
            let found = Value::from(type_name(value));
            let detail = in_body(&format!("must be of type {}: {found}", wanted_type(props)));
            causes.push(Cause { reason: "FieldValueTypeInvalid", ..Cause::invalid(&path, &found, &detail) });
            if let Some(allowed) = props.get("enum").and_then(Value::as_array) {
                causes.push(not_allowed(&path, value, allowed));
            }
        }
        ViolationKind::Format => {
            let format = props.get("format").and_then(Value::as_str).unwrap_or_default();
            let detail = in_body(&format!("must be of type {format}: {value}"));
            causes.push(Cause { reason: "FieldValueTypeInvalid", ..Cause::invalid(&path, value, &detail) });
        }
        ViolationKind::Enum => {
            let allowed = props.get("enum").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            causes.push(not_allowed(&path, value, allowed));
        }
        ViolationKind::Pattern => {
            let pattern = props.get("pattern").and_then(Value::as_str).unwrap_or_default();
            causes.push(Cause::invalid(&path, value, &in_body(&format!("should match '{pattern}'"))));
        }
        ViolationKind::TooLong => causes.push(too_much(&path, value, props)),
        ViolationKind::TooShort => {
            let detail = match value {
                Value::Array(_) => format!("should have at least {} items", number("minItems")),
                Value::Object(_) => format!("should have at least {} properties", number("minProperties")),
                _ => format!("should be at least {} chars long", number("minLength")),
            };
            causes.push(Cause::invalid(&path, value, &in_body(&detail)));
        }
        ViolationKind::Range => causes.push(Cause::invalid(&path, value, &in_body(&out_of_range(value, props)))),
        ViolationKind::Duplicate => causes.push(Cause {
            message: format!("Duplicate value: {}", key_of(custom, value, &violation.path)),
            field: path,
            reason: "FieldValueDuplicate",
        }),
        ViolationKind::Combination => {
            let detail = format!("{} {}", Value::from(path), violation.message);
            causes.push(Cause::invalid_text("<nil>", "", &detail));
        }
        ViolationKind::Rule => causes.push(broken_rule(custom, object, violation)),
        ViolationKind::Tolerated | ViolationKind::Metadata | ViolationKind::UnknownField { .. } => {}
    }
}

fn not_allowed(path: &str, value: &Value, allowed: &[Value]) -> Cause {
    let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
    let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
    Cause { field: path.to_owned(), reason: "FieldValueNotSupported", message }
}

fn too_much(path: &str, value: &Value, props: &Map<String, Value>) -> Cause {
    let limit = |name: &str| props.get(name).and_then(Value::as_u64).unwrap_or_default();
    let (count, limit) = match value {
        Value::Array(items) => (items.len(), limit("maxItems")),
        Value::Object(fields) => (fields.len(), limit("maxProperties")),
        _ => return Cause::too_long(path, limit("maxLength")),
    };
    let message = format!("Too many: {count}: must have at most {limit} items");
    Cause { field: path.to_owned(), reason: "FieldValueTooMany", message }
}

fn out_of_range(value: &Value, props: &Map<String, Value>) -> String {
    let found = value.as_f64().unwrap_or_default();
    let bound = |name: &str, exclusive: &str| {
        let bound = props.get(name)?;
        Some((bound.as_f64()?, bound, props.get(exclusive) == Some(&Value::Bool(true))))
    };
    match (bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum")) {
        (Some((limit, text, true)), _) if found <= limit => format!("should be greater than {text}"),
        (Some((limit, text, false)), _) if found < limit => format!("should be greater than or equal to {text}"),
        (_, Some((limit, text, true))) if found >= limit => format!("should be less than {text}"),
        (_, Some((limit, text, false))) if found > limit => format!("should be less than or equal to {text}"),
        _ => format!("should be a multiple of {}", props.get("multipleOf").cloned().unwrap_or_default()),
    }
}

/// A rule's own message if it has one, and its reason.
fn broken_rule(custom: &Custom, object: &Value, violation: &Violation) -> Cause {
    // The rule is at the violation's path or, if it has a field path, above it.
    let found = (0..=violation.path.len()).rev().find_map(|end| {
        let rules = schema_at(&custom.props, &violation.path[..end])?.get("x-kubernetes-validations")?.as_array()?;
        let rule = rules.iter().find(|rule| is_the_rule(rule, &violation.message))?;
        Some((rule, at(object, &violation.path[..end])))
    });
    let text = |name: &str| found.and_then(|(rule, _)| rule[name].as_str()).unwrap_or_default();
    let message = match violation.message.strip_prefix("the rule `") {
        Some(_) if !text("rule").is_empty() => format!("failed rule: {}", text("rule").trim()),
        _ => violation.message.clone(),
    };
    if let Some(problem) = inapplicable(text("rule"), &violation.message) {
        let (told, kind) = (text("message"), schema_at(&custom.props, &violation.path).map(|of| &of["type"]));
        let told = if told.is_empty() { text("rule") } else { told };
        let message =
            format!("Invalid value: {}: {problem} evaluating rule: {}", kind.unwrap_or(&Value::Null), told.trim());
        return Cause { field: path_of_rule(custom, &violation.path), reason: "FieldValueInvalid", message };
    }
    // Lists and mappings are not shown.
    let value = found.map(|(_, value)| value).filter(|value| !value.is_object() && !value.is_array());
    let (reason, message) = match (text("reason"), value) {
        ("FieldValueForbidden", _) => ("FieldValueForbidden", format!("Forbidden: {message}")),
        ("FieldValueRequired", _) => ("FieldValueRequired", format!("Required value: {message}")),
        ("FieldValueDuplicate", Some(value)) => ("FieldValueDuplicate", format!("Duplicate value: {value}")),
        ("FieldValueDuplicate", None) => ("FieldValueDuplicate", format!("Duplicate value: {message}")),
        (_, Some(value)) => ("FieldValueInvalid", format!("Invalid value: {value}: {message}")),
        (_, None) => ("FieldValueInvalid", format!("Invalid value: {message}")),
    };
    Cause { field: path_of_rule(custom, &violation.path), reason, message }
}

/// Why a rule failed to evaluate, in the server's words if we know them; `None` if it did not fail.
fn inapplicable(rule: &str, message: &str) -> Option<String> {
    let rest = message.strip_prefix("the rule `")?.strip_prefix(rule.trim())?;
    let problem = rest.strip_prefix('`')?.strip_prefix(INAPPLICABLE)?;
    let absent = problem.strip_prefix('`').and_then(|rest| rest.split_once("` does not exist; check"));
    Some(match absent {
        Some((key, _)) => format!("no such key: {key}"),
        None => problem.to_owned(),
    })
}

/// A path in messages of rules: keys of a mapping are in brackets.
fn path_of_rule(custom: &Custom, path: &[PathPart]) -> String {
    let mut told = String::new();
    for (end, part) in path.iter().enumerate() {
        let is_property = |key: &str| {
            schema_at(&custom.props, &path[..end])
                .is_none_or(|of| !of["properties"][key].is_null() || of["additionalProperties"].is_null())
        };
        match part {
            PathPart::Key(key) if is_property(key) => {
                let dot = if told.is_empty() { "" } else { "." };
                told.push_str(&format!("{dot}{key}"));
            }
            PathPart::Key(key) => told.push_str(&format!("[{key}]")),
            PathPart::Index(index) => told.push_str(&format!("[{index}]")),
        }
    }
    told
}

/// Whether a violation with this message comes from the rule.
fn is_the_rule(rule: &Value, message: &str) -> bool {
    let text = |name: &str| rule[name].as_str().unwrap_or_default().trim();
    if let Some(rest) = message.strip_prefix("the rule `") {
        return rest.starts_with(text("rule"));
    }
    text("message") == message || !text("messageExpression").is_empty()
}

/// The duplicate keys of an item, or the item itself.
fn key_of(custom: &Custom, item: &Value, path: &[PathPart]) -> String {
    let list = path.split_last().and_then(|(_, list)| schema_at(&custom.props, list));
    let keys = list.and_then(|list| list["x-kubernetes-list-map-keys"].as_array());
    let Some(keys) = keys else { return item.to_string() };
    let mut shown: Vec<(&str, &Value)> =
        keys.iter().filter_map(Value::as_str).filter_map(|key| Some((key, item.get(key)?))).collect();
    shown.sort_unstable_by_key(|(key, _)| *key);
    Value::Object(shown.into_iter().map(|(key, value)| (key.to_owned(), value.clone())).collect()).to_string()
}

fn wanted_type(props: &Map<String, Value>) -> String {
    if props.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return "integer,string".to_owned();
    }
    props.get("type").and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// The type of a value in Go's validation.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn at<'a>(object: &'a Value, path: &[PathPart]) -> &'a Value {
    static NULL: Value = Value::Null;
    let step = |value: &'a Value, part: &PathPart| match part {
        PathPart::Key(key) => value.get(key),
        PathPart::Index(index) => value.get(index),
    };
    path.iter().try_fold(object, step).unwrap_or(&NULL)
}

fn schema_at<'a>(props: &'a Value, path: &[PathPart]) -> Option<&'a Value> {
    path.iter().try_fold(props, |props, part| match part {
        PathPart::Key(key) => {
            props["properties"].get(key).or_else(|| props.get("additionalProperties").filter(|of| of.is_object()))
        }
        PathPart::Index(_) => props.get("items"),
    })
}
