// SPDX-License-Identifier: Apache-2.0

//! Validates keywords of a definition's schema, and their combinations.

use serde_json::{Map, Value, json};

use super::rules;
use crate::refusal::Cause;

/// The errors found so far.
#[derive(Default)]
pub(super) struct SchemaErrors {
    pub(super) causes: Vec<Cause>,
    /// Errors of rules: reported after all others.
    pub(super) of_rules: Vec<Cause>,
    /// Whether unsupported keywords of OpenAPI were found: no more errors of such a schema are reported.
    pub(super) is_foreign: bool,
}

/// The position of a schema.
#[derive(Clone, Default)]
pub(super) struct SchemaPosition {
    pub(super) is_root: bool,
    /// Whether rules are compiled. They are not inside `allOf`, `anyOf`, `oneOf` and `not`.
    pub(super) has_rules: bool,
    /// Why defaults are not allowed.
    without_defaults: Option<String>,
    /// The outermost list whose items cannot be correlated with their old values.
    forgets: Option<String>,
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Unsupported fields of OpenAPI.
const FOREIGN: [&str; 5] = ["id", "additionalItems", "patternProperties", "definitions", "dependencies"];

// === impl SchemaPosition ===

impl SchemaPosition {
    pub(super) fn root() -> SchemaPosition {
        SchemaPosition { is_root: true, has_rules: true, ..SchemaPosition::default() }
    }

    fn below(&self) -> SchemaPosition {
        SchemaPosition { is_root: false, ..self.clone() }
    }
}

/// Validates a schema and everything below it.
pub(super) fn walk(schema: &Value, path: &str, place: &SchemaPosition, found: &mut SchemaErrors) {
    let none = Map::new();
    let fields = schema.as_object().unwrap_or(&none);
    let begin = found.causes.len();
    forbidden(fields, path, place, found);
    below(fields, path, place, found);
    kinds_of_lists(fields, path, &mut found.causes);
    keys_of_lists(fields, path, &mut found.causes);
    rules::check_texts(schema, path, &mut found.causes);
    // A rule is not checked if its schema has errors.
    if place.has_rules && found.causes.len() == begin {
        rules::check(schema, path, place.is_root, place.forgets.as_deref(), &mut found.of_rules);
    }
}

fn forbidden(fields: &Map<String, Value>, path: &str, place: &SchemaPosition, found: &mut SchemaErrors) {
    let at = |field: &str| format!("{path}.{field}");
    let kind = text(fields, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        found.causes.push(Cause::unsupported(&at("type"), json!(kind), &TYPES));
    }
    if let Some(reason) = &place.without_defaults
        && fields.contains_key("default")
    {
        found.causes.push(Cause::forbidden(&at("default"), &format!("must not be set {reason}")));
    }
    for field in FOREIGN.iter().filter(|field| fields.get(**field).is_some_and(|value| !is_empty(value))) {
        found.is_foreign = true;
        found.causes.push(Cause::forbidden(&at(field), &format!("{field} is not supported")));
    }
    if fields.contains_key("$ref") {
        found.is_foreign = true;
        found.causes.push(Cause::forbidden(&at("$ref"), "$ref is not supported"));
    }
    if fields.get("items").is_some_and(Value::is_array) {
        found.is_foreign = true;
        found.causes.push(Cause::forbidden(&at("items"), "items must be a schema object and not an array"));
    }
    if fields.get("uniqueItems") == Some(&Value::Bool(true)) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.causes.push(Cause::forbidden(&at("uniqueItems"), detail));
    }
}

fn below(fields: &Map<String, Value>, path: &str, place: &SchemaPosition, found: &mut SchemaErrors) {
    let inner = place.below();
    let properties = sorted(fields.get("properties"));
    if let Some(of) = fields.get("additionalProperties") {
        if !properties.is_empty() && of != &Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            found.causes.push(Cause::forbidden(&format!("{path}.additionalProperties"), detail));
        }
        if of.is_object() {
            walk(of, &format!("{path}.additionalProperties"), &inner, found);
        }
    }
    for (name, of) in properties {
        let is_meta = matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        let without_defaults = (place.is_root && is_meta).then(|| format!("in top-level {name}"));
        let inner = SchemaPosition {
            without_defaults: without_defaults.or_else(|| inner.without_defaults.clone()),
            ..inner.clone()
        };
        walk(of, &format!("{path}.properties[{name}]"), &inner, found);
    }
    let condition = SchemaPosition { has_rules: false, ..inner.clone() };
    if let Some(of) = fields.get("not") {
        walk(of, &format!("{path}.not"), &condition, found);
    }
    for junctor in ["allOf", "oneOf", "anyOf"] {
        for (index, of) in fields.get(junctor).and_then(Value::as_array).into_iter().flatten().enumerate() {
            walk(of, &format!("{path}.{junctor}[{index}]"), &condition, found);
        }
    }
    if let Some(items) = fields.get("items").filter(|items| items.is_object()) {
        let mut inner = inner;
        if text(fields, "x-kubernetes-list-type") != "map" {
            inner.forgets.get_or_insert_with(|| path.to_owned());
        }
        walk(items, &format!("{path}.items"), &inner, found);
    }
}

fn kinds_of_lists(fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let kind = text(fields, "type");
    if fields.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        causes.push(Cause::invalid(&at("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined"));
    }
    for (marker, wanted, known) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"] as &[&str]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"]),
    ] {
        let Some(found) = fields.get(marker).and_then(Value::as_str) else { continue };
        if kind != wanted {
            let detail = format!("must be {wanted} if {marker} is specified");
            causes.push(if kind.is_empty() {
                Cause::required(&at("type"), &detail)
            } else {
                Cause::invalid_text(&at("type"), kind, &detail)
            });
        } else if found == "set" {
            let item = fields.get("items").and_then(Value::as_object);
            let item = item.map(|item| (text(item, "type"), item));
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            match item {
                Some(("object", item)) if text(item, "x-kubernetes-map-type") != "atomic" => {
                    causes.push(Cause::invalid(&at("items.x-kubernetes-map-type"), "null", detail));
                }
                Some(("array", item)) if !matches!(text(item, "x-kubernetes-list-type"), "" | "atomic") => {
                    let shown = text(item, "x-kubernetes-list-type");
                    causes.push(Cause::invalid_text(&at("items.x-kubernetes-list-type"), shown, detail));
                }
                _ => {}
            }
        }
        if !known.contains(&found) {
            causes.push(Cause::unsupported(&at(marker), json!(found), known));
        }
    }
}

fn keys_of_lists(fields: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    let at = |field: &str| format!("{path}.{field}");
    let (kind, keys) = (text(fields, "x-kubernetes-list-type"), names(fields, "x-kubernetes-list-map-keys"));
    if !keys.is_empty() && kind != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(if kind.is_empty() {
            Cause::required(&at("x-kubernetes-list-type"), detail)
        } else {
            Cause::invalid_text(&at("x-kubernetes-list-type"), kind, detail)
        });
    }
    if kind != "map" {
        return;
    }
    let keys_at = at("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        causes.push(Cause::required(&keys_at, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = fields.get("items").and_then(Value::as_object) else {
        causes.push(Cause::required(&at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    };
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid_text(&at("items.type"), text(items, "type"), detail));
        return;
    }
    let property = |key: &str| items.get("properties").and_then(|properties| properties.get(key));
    for (index, key) in keys.iter().enumerate() {
        match property(key) {
            Some(of) if matches!(of["type"].as_str(), Some("array" | "object")) => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid_text(&at(&format!("items.properties[{key}].type")), "object", detail));
            }
            Some(_) => {}
            None => causes.push(Cause::invalid(&keys_at, json!(keys), "entries must all be names of item properties")),
        }
        if keys[..index].contains(key) {
            causes.push(Cause::invalid(&keys_at, json!(keys), "must not contain duplicate entries"));
        }
    }
    let required = names(items, "required");
    for key in &keys {
        if let Some(of) = property(key)
            && of["default"].is_null()
            && !required.contains(key)
        {
            let detail =
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(Cause::required(&at(&format!("items.properties[{key}].default")), detail));
        }
    }
}

/// Properties by name, because Go's order is random.
pub(super) fn sorted(properties: Option<&Value>) -> Vec<(&String, &Value)> {
    let mut properties: Vec<_> = properties.and_then(Value::as_object).into_iter().flatten().collect();
    properties.sort_unstable_by_key(|(name, _)| name.as_str());
    properties
}

pub(super) fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn names<'a>(fields: &'a Map<String, Value>, name: &str) -> Vec<&'a str> {
    fields.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
