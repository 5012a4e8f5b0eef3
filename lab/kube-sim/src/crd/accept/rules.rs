// SPDX-License-Identifier: Apache-2.0

//! Validates the CEL rules of a schema.
//!
//! The server's message for a rule that does not compile quotes its compiler, which knows the types of the schema. So
//! does ours, as far as [`types`] supports them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde_json::{Value, json};
use tidegate_core::schema::{
    escape,
    expression::{
        Expression,
        types::{self, Object, Type},
    },
};

use crate::refusal::Cause;

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// Errors in the texts of rules, before they are compiled.
pub(super) fn check_texts(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in rules_of(schema).enumerate() {
        let at = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let has_lines = |text: &str| text.contains(['\n', '\r']);
        let (written, message) = (text("rule").trim(), text("message"));
        if written.is_empty() {
            causes.push(Cause::required(&at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            causes.push(Cause::invalid_text(&at("message"), message, "must be non-empty if specified"));
        } else if has_lines(message.trim()) {
            causes.push(Cause::invalid_text(&at("message"), message, "must not contain line breaks"));
        } else if has_lines(written) && message.is_empty() {
            causes.push(Cause::required(&at("message"), "message must be specified if rule contains line breaks"));
        }
        if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            causes.push(Cause::required(&at("messageExpression"), detail));
        }
        if !rule["reason"].is_null() && !REASONS.contains(&text("reason")) {
            causes.push(Cause::unsupported(&at("reason"), &rule["reason"], &REASONS));
        }
        let field = text("fieldPath");
        if !field.is_empty() && field.trim().is_empty() {
            causes.push(Cause::invalid_text(&at("fieldPath"), field, "must be non-empty if specified"));
        }
        if has_lines(field) {
            causes.push(Cause::invalid_text(&at("fieldPath"), field, "must not contain line breaks"));
        }
        if !field.is_empty() && !leads(schema, field) {
            causes.push(Cause::invalid_text(&at("fieldPath"), field, "must be a valid path"));
        }
    }
}

/// Errors in rules with valid texts. `forgets` is the outermost list whose items cannot be correlated.
pub(super) fn check(schema: &Value, path: &str, is_root: bool, forgets: Option<&str>, causes: &mut Vec<Cause>) {
    if rules_of(schema).next().is_none() {
        return;
    }
    let this = type_of(schema, is_root, "selfType0").unwrap_or(Type::Unknown);
    for (index, rule) in rules_of(schema).enumerate() {
        let at = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let old = if rule["optionalOldSelf"] == true { Type::Optional(Arc::new(this.clone())) } else { this.clone() };
        let variables = BTreeMap::from([("self", this.clone()), ("oldSelf", old)]);
        let compiled = compile(&variables, text("rule")).map_err(|problem| format!("compilation failed: {problem}"));
        let compiled = compiled.and_then(|(gives, expression)| {
            let decides = gives == Type::Bool || gives == Type::Unknown && expression.may_decide();
            decides.then_some(expression).ok_or_else(|| "cel expression must evaluate to a bool".to_owned())
        });
        if let Err(problem) = &compiled {
            causes.push(Cause::invalid(&at("rule"), go_rule(rule), problem));
        }
        let message = text("messageExpression");
        let problem = match (compiled.is_ok() && !message.is_empty()).then(|| compile(&variables, message)) {
            Some(Err(problem)) => Some(format!("messageExpression compilation failed: {problem}")),
            Some(Ok((gives, expression)))
                if gives != Type::Text && (gives != Type::Unknown || !expression.may_tell()) =>
            {
                Some("messageExpression must evaluate to a string".to_owned())
            }
            Some(Ok(_)) | None => None,
        };
        causes.extend(problem.map(|problem| Cause::invalid(&at("messageExpression"), go_rule(rule), &problem)));
        if compiled.is_ok_and(|expression| expression.names("oldSelf")) {
            if let Some(list) = forgets {
                let detail =
                    format!("oldSelf cannot be used on the uncorrelatable portion of the schema within {list}");
                causes.push(Cause::invalid_text(&at("rule"), text("rule"), &detail));
            }
        } else if let Some(optional) = rule["optionalOldSelf"].as_bool() {
            let detail = "may not be set if oldSelf is not used in rule";
            causes.push(Cause::invalid(&at("optionalOldSelf"), optional, detail));
        }
    }
}

/// An expression and its type, or the message of the server's compiler.
fn compile(variables: &BTreeMap<&str, Type>, text: &str) -> Result<(Type, Expression), String> {
    let gives = types::check(text, variables)?;
    let expression = Expression::compile(text).map_err(|problem| format!("ERROR: {problem}"))?;
    Ok((gives, expression))
}

/// The CEL type of a schema; `None` if rules cannot access its values. `name` is the name of a mapping in messages.
fn type_of(schema: &Value, is_root: bool, name: &str) -> Option<Type> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(Type::Dyn);
    }
    let is_typed = |of: &Value| of["x-kubernetes-embedded-resource"] == true;
    Some(match (schema["type"].as_str()?, schema["format"].as_str()) {
        ("array", _) => {
            let items = schema.get("items")?;
            Type::List(Arc::new(type_of(items, is_typed(items), &format!("{name}.@idx"))?))
        }
        ("object", _) => match schema.get("additionalProperties").filter(|of| of.is_object()) {
            Some(of) if !is_root => {
                let of = type_of(of, is_typed(of), &format!("{name}.@elem"))?;
                Type::Map(Arc::new(Type::Text), Arc::new(of))
            }
            _ => Type::Object(Arc::new(object(schema, is_root, name))),
        },
        ("string", Some("byte")) => Type::Bytes,
        ("string", Some("duration")) => Type::Duration,
        ("string", Some("date" | "date-time")) => Type::Time,
        ("string", _) => Type::Text,
        ("boolean", _) => Type::Bool,
        ("number", _) => Type::Double,
        ("integer", _) => Type::Int,
        _ => return None,
    })
}

fn object(schema: &Value, is_root: bool, name: &str) -> Object {
    let mut fields = BTreeMap::new();
    for (key, of) in schema["properties"].as_object().into_iter().flatten() {
        let is_typed = of["x-kubernetes-embedded-resource"] == true;
        if let Some(found) = type_of(of, is_typed, &format!("{name}.{key}")) {
            fields.insert(escape(key), found);
        }
    }
    if is_root {
        let texts = |of: &[&str]| of.iter().map(|field| ((*field).to_owned(), Type::Text)).collect::<HashMap<_, _>>();
        let metadata = texts(&["name", "generateName"]).into_iter().collect();
        let metadata = Object { name: format!("{name}.metadata"), fields: metadata };
        fields.extend(texts(&["apiVersion", "kind"]));
        fields.insert("metadata".to_owned(), Type::Object(Arc::new(metadata)));
    }
    Object { name: name.to_owned(), fields }
}

/// Whether a path such as `.a['b']` exists in the schema.
fn leads(schema: &Value, path: &str) -> bool {
    let mut schema = schema;
    let mut rest = path;
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix("['") {
            let Some((name, after)) = after.split_once("']") else { return false };
            (name, after)
        } else if let Some(after) = rest.strip_prefix('.') {
            after.split_at(after.find(['.', '[']).unwrap_or(after.len()))
        } else {
            return false;
        };
        let others = || schema.get("additionalProperties").filter(|of| of.is_object());
        let next = if schema["properties"].is_object() { schema["properties"].get(name) } else { others() };
        let Some(next) = next else { return false };
        (schema, rest) = (next, after);
    }
    true
}

fn rules_of(schema: &Value) -> impl Iterator<Item = &Value> {
    schema["x-kubernetes-validations"].as_array().into_iter().flatten()
}

/// A rule as Go prints it: HTML characters are escaped.
fn go_rule(rule: &Value) -> String {
    let text = |name: &str| Value::from(rule[name].as_str().unwrap_or_default());
    let rule = json!({
        "Rule": text("rule"),
        "Message": text("message"),
        "MessageExpression": text("messageExpression"),
        "Reason": rule["reason"],
        "FieldPath": text("fieldPath"),
        "OptionalOldSelf": rule["optionalOldSelf"],
    });
    rule.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
