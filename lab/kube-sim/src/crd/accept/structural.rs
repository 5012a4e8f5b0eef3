// SPDX-License-Identifier: Apache-2.0

//! Checks that a schema is structural: every field has a type, and `allOf`, `anyOf`, `oneOf` and `not` only add
//! constraints.

use serde_json::{Map, Value, json};

use super::schema::{sorted, text};
use crate::refusal::Cause;

/// The role of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Root,
    Field,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`.
    Condition,
}

/// Fields that conditions must not have, with the error message.
const STRUCTURE: [(&str, &str); 10] = [
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

/// All errors, sorted as in the server.
pub(super) fn check(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    walk(schema, path, Role::Root, &mut causes);
    causes.sort_by_cached_key(ToString::to_string);
    causes
}

fn walk(schema: &Value, path: &str, role: Role, causes: &mut Vec<Cause>) {
    let none = Map::new();
    let fields = schema.as_object().unwrap_or(&none);
    let at = |field: &str| format!("{path}.{field}");
    if role == Role::Condition {
        condition(fields, path, causes);
    } else {
        typed(fields, path, role, causes);
        embedded(fields, path, role, causes);
        if role == Role::Root && fields.contains_key("additionalProperties") {
            causes.push(Cause::forbidden(&at("additionalProperties"), "must not be used at the root"));
        }
    }
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
        && regex::Regex::new(pattern).is_err()
    {
        let detail =
            format!("must be a valid regular expression, but isn't: error parsing regexp: {}", go_regexp(pattern));
        causes.push(Cause::invalid_text(&at("pattern"), pattern, &detail));
    }
    below(fields, path, role, causes);
}

fn typed(fields: &Map<String, Value>, path: &str, role: Role, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let (kind, is) = (text(fields, "type"), |marker: &str| fields.get(marker) == Some(&Value::Bool(true)));
    if kind == "array" && !fields.contains_key("items") {
        causes.push(Cause::required(&at("items"), "must be specified"));
    }
    let is_free = is("x-kubernetes-int-or-string") || is("x-kubernetes-preserve-unknown-fields");
    let detail = match role {
        Role::Root => "must not be empty at the root",
        Role::Item => "must not be empty for specified array items",
        Role::Field | Role::Condition => "must not be empty for specified object fields",
    };
    if kind.is_empty() && !is_free && !is("x-kubernetes-embedded-resource") {
        causes.push(Cause::required(&at("type"), detail));
    }
    if role == Role::Root && !matches!(kind, "" | "object") {
        causes.push(Cause::invalid_text(&at("type"), kind, "must be object at the root"));
    }
    for (marker, detail) in [
        ("x-kubernetes-preserve-unknown-fields", "must be false if x-kubernetes-int-or-string is true"),
        ("x-kubernetes-embedded-resource", "must be false if x-kubernetes-int-or-string is true"),
    ] {
        if is("x-kubernetes-int-or-string") && is(marker) {
            causes.push(Cause::invalid(&at(marker), true, detail));
        }
    }
    if role == Role::Root
        && let Some(metadata) = fields.get("properties").and_then(|properties| properties.get("metadata"))
    {
        about_metadata(metadata, &at("properties[metadata]"), causes);
    }
}

/// A definition may only restrict the names of metadata.
fn about_metadata(metadata: &Value, path: &str, causes: &mut Vec<Cause>) {
    let kind = metadata["type"].as_str().unwrap_or_default();
    if kind != "object" {
        causes.push(Cause::invalid_text(&format!("{path}.type"), kind, "must be object"));
    }
    let fields = metadata.as_object().into_iter().flatten();
    let is_more = fields.into_iter().any(|(name, value)| match (name.as_str(), value) {
        ("type" | "description" | "default", _) => name == "description",
        ("properties", Value::Object(properties)) => {
            properties.keys().any(|name| !matches!(name.as_str(), "name" | "generateName"))
        }
        _ => true,
    });
    if is_more {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(path, detail));
    }
}

fn embedded(fields: &Map<String, Value>, path: &str, role: Role, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let is = |marker: &str| fields.get(marker) == Some(&Value::Bool(true));
    if role == Role::Condition || !is("x-kubernetes-embedded-resource") {
        return;
    }
    match text(fields, "type") {
        "object" => {}
        "" => {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            causes.push(Cause::required(&at("type"), detail));
        }
        other => {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            causes.push(Cause::invalid_text(&at("type"), other, detail));
        }
    }
    if fields.contains_key("additionalProperties") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(&at("additionalProperties"), detail));
    }
    let has_none = fields.get("properties").and_then(Value::as_object).is_none_or(Map::is_empty);
    if has_none && !is("x-kubernetes-preserve-unknown-fields") {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
            x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(&at("properties"), detail));
    }
}

fn condition(fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let says = |value: &Value| {
        !matches!(value, Value::Null | Value::Bool(false)) && *value != json!("") && *value != json!([])
    };
    if !text(fields, "type").is_empty() {
        causes.push(Cause::forbidden(&at("type"), "must be empty to be structural"));
    }
    if fields.contains_key("additionalProperties") {
        causes.push(Cause::forbidden(&at("additionalProperties"), "must be undefined to be structural"));
    }
    for (field, detail) in STRUCTURE {
        if fields.get(field).is_some_and(says) {
            causes.push(Cause::forbidden(&at(field), detail));
        }
    }
    if fields.get("x-kubernetes-validations").is_some_and(says) {
        causes.push(Cause::forbidden(&at("x-kubernetes-validations"), "must be empty to be structural"));
    }
    if fields.get("properties").is_some_and(|properties| properties.get("metadata").is_some()) {
        causes.push(Cause::forbidden(&at("properties[metadata]"), "must not be specified in a nested context"));
    }
}

fn below(fields: &Map<String, Value>, path: &str, role: Role, causes: &mut Vec<Cause>) {
    let inner = |field: Role| if role == Role::Condition { Role::Condition } else { field };
    for (name, of) in sorted(fields.get("properties")) {
        walk(of, &format!("{path}.properties[{name}]"), inner(Role::Field), causes);
    }
    if let Some(items) = fields.get("items").filter(|items| items.is_object()) {
        walk(items, &format!("{path}.items"), inner(Role::Item), causes);
    }
    if role != Role::Condition
        && let Some(of) = fields.get("additionalProperties").filter(|of| of.is_object())
    {
        walk(of, &format!("{path}.additionalProperties"), Role::Field, causes);
    }
    // The alternatives of an int-or-string may contain its types.
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return;
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (index, of) in fields.get(junctor).and_then(Value::as_array).into_iter().flatten().enumerate() {
            walk(of, &format!("{path}.{junctor}[{index}]"), Role::Condition, causes);
        }
    }
    if let Some(of) = fields.get("not") {
        walk(of, &format!("{path}.not"), Role::Condition, causes);
    }
}

/// Go's message for the most common mistakes in a pattern.
fn go_regexp(pattern: &str) -> String {
    let problem = match (pattern.matches('(').count(), pattern.matches(')').count()) {
        (open, close) if open > close => "missing closing )",
        (open, close) if open < close => "unexpected )",
        _ if pattern.matches('[').count() > pattern.matches(']').count() => {
            return format!("missing closing ]: `{}`", &pattern[pattern.rfind('[').unwrap_or_default()..]);
        }
        _ => "invalid or unsupported Perl syntax",
    };
    format!("{problem}: `{pattern}`")
}
