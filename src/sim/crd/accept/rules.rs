//! Whether the rules of a schema are ones.
//!
//! What the server says of a rule that does not compile quotes its compiler; ours has other words, and no types: a rule
//! that compares a text with a number is found wrong by the server alone.

use serde_json::{Value, json};

use crate::{
    schema::{escape, expression::Expression},
    sim::refusal::Cause,
};

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What is wrong with the texts of rules, before any is compiled.
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

/// What is wrong with rules that have texts. `forgets` is the list above whose items are not known again.
pub(super) fn check(schema: &Value, path: &str, is_root: bool, forgets: Option<&str>, causes: &mut Vec<Cause>) {
    for (index, rule) in rules_of(schema).enumerate() {
        let at = |field: &str| format!("{path}.x-kubernetes-validations[{index}].{field}");
        let text = |field: &str| rule[field].as_str().unwrap_or_default();
        let compiled = compile(schema, is_root, text("rule"));
        match &compiled {
            Err(problem) => {
                causes.push(Cause::invalid(
                    &at("rule"),
                    go_rule(rule),
                    &format!("compilation failed: ERROR: {problem}"),
                ));
            }
            Ok(expression) if !expression.may_decide() => {
                causes.push(Cause::invalid(&at("rule"), go_rule(rule), "cel expression must evaluate to a bool"));
            }
            Ok(_) => {}
        }
        let message = text("messageExpression");
        let problem = match (!message.is_empty()).then(|| compile(schema, is_root, message)) {
            Some(Err(problem)) => Some(format!("messageExpression compilation failed: ERROR: {problem}")),
            Some(Ok(expression)) if !expression.may_tell() => {
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

/// An expression that names nothing but what there is.
fn compile(schema: &Value, is_root: bool, text: &str) -> Result<Expression, String> {
    let expression = Expression::compile(text)?;
    if let Some(unknown) = expression.variables().iter().find(|name| !matches!(name.as_str(), "self" | "oldSelf")) {
        return Err(format!("undeclared reference to '{unknown}' (in container '')"));
    }
    let is_open = schema["type"] != "object"
        || !schema["additionalProperties"].is_null()
        || schema["x-kubernetes-preserve-unknown-fields"] == true;
    let known: Vec<String> =
        schema["properties"].as_object().into_iter().flatten().map(|(name, _)| escape(name)).collect();
    let is_typed = is_root || schema["x-kubernetes-embedded-resource"] == true;
    let fields = expression.fields_of("self").unwrap_or_default();
    let unknown = fields.into_iter().find(|field| {
        let is_meta = is_typed && matches!(*field, "apiVersion" | "kind" | "metadata");
        !is_open && !is_meta && known.iter().all(|known| known != field)
    });
    match unknown {
        Some(unknown) => Err(format!("undefined field '{unknown}'")),
        None => Ok(expression),
    }
}

/// Whether a path such as `.a['b']` leads through the schema.
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

/// A rule as Go prints it.
fn go_rule(rule: &Value) -> Value {
    let text = |name: &str| Value::from(rule[name].as_str().unwrap_or_default());
    json!({
        "Rule": text("rule"),
        "Message": text("message"),
        "MessageExpression": text("messageExpression"),
        "Reason": rule["reason"],
        "FieldPath": text("fieldPath"),
        "OptionalOldSelf": rule["optionalOldSelf"],
    })
}
