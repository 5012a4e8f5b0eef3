// SPDX-License-Identifier: Apache-2.0

//! `matchConditions`: expressions that decide whether a webhook is called.
//!
//! If one is false, the webhook is not called, whatever the others say. Otherwise, if one fails, the webhook is skipped
//! or the write is refused, depending on the failure policy. The variable `authorizer` does not exist, because there is
//! no RBAC.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use serde_json::Value;
use tidegate_core::schema::expression::{
    self, Expression, Variables,
    types::{self, Object, Type},
};

use crate::{refusal::Cause, text};

/// The conditions of one webhook, in order of evaluation.
#[derive(Debug)]
pub(super) struct Conditions(Vec<Result<Expression, String>>);

/// The result of the conditions for a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Matches,
    Differs,
    /// An evaluation failed: why, in the server's words.
    Fails(String),
}

/// Limit of conditions of one webhook.
const CONDITIONS_MAX: usize = 64;

// === impl Conditions ===

impl Conditions {
    /// Reads the conditions of a webhook.
    pub(super) fn from_webhook(webhook: &Value) -> Conditions {
        let conditions = webhook["matchConditions"].as_array().into_iter().flatten();
        Conditions(conditions.map(|condition| Expression::compile(text_of(condition, "expression"))).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Evaluates them on the object after and before, and on the request as reviews show it.
    pub(super) fn judge(&self, object: Option<&Value>, before: Option<&Value>, request: &Value) -> Verdict {
        let mut variables = Variables::default();
        let bound = |value: Option<&Value>| expression::bind(value.unwrap_or(&Value::Null));
        variables.set("object", bound(object));
        variables.set("oldObject", bound(before));
        // The request does not contain the objects here.
        let mut request = request.clone();
        if let Some(fields) = request.as_object_mut() {
            fields.retain(|name, _| !matches!(name.as_str(), "object" | "oldObject" | "uid"));
        }
        variables.set("request", expression::bind(&request));
        let mut problems = Vec::new();
        for condition in &self.0 {
            match condition {
                Err(problem) => problems.push(format!("compilation error: {problem}")),
                // A function that is not evaluated here counts as true.
                Ok(expression) if expression.foreign().is_some() && !expression.names("authorizer") => {}
                Ok(expression) => match expression.decide(&variables) {
                    Ok(true) => {}
                    Ok(false) => return Verdict::Differs,
                    Err(problem) => {
                        problems.push(format!("expression '{}' resulted in error: {problem}", expression.text()));
                    }
                },
            }
        }
        match problems.as_slice() {
            [] => Verdict::Matches,
            [only] => Verdict::Fails(only.clone()),
            all => Verdict::Fails(format!("[{}]", all.join(", "))),
        }
    }
}

/// What is wrong with the conditions of a webhook configuration.
pub(crate) fn check(configuration: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, webhook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let path = format!("webhooks[{index}].matchConditions");
        let conditions = webhook["matchConditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        if CONDITIONS_MAX < conditions.len() {
            let count = conditions.len();
            causes.push(Cause {
                message: format!("Too many: {count}: must have at most {CONDITIONS_MAX} items"),
                reason: "FieldValueTooMany",
                field: path.clone(),
            });
        }
        let mut names: Vec<&str> = Vec::new();
        for (index, condition) in conditions.iter().enumerate() {
            check_one(condition, &format!("{path}[{index}]"), &mut causes);
            let name = text_of(condition, "name");
            if !name.is_empty() && names.contains(&name) {
                causes.push(Cause {
                    message: format!("Duplicate value: {}", Value::from(name)),
                    reason: "FieldValueDuplicate",
                    field: format!("{path}[{index}].name"),
                });
            }
            names.push(name);
        }
    }
    causes
}

fn check_one(condition: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (name, written) = (text_of(condition, "name"), text_of(condition, "expression").trim());
    let field = format!("{path}.expression");
    let compiled = types::check(written, &VARIABLES);
    match (compiled, Expression::compile(written)) {
        _ if written.is_empty() => causes.push(Cause::required(&field, "")),
        (Err(problem), _) => {
            causes.push(Cause::invalid_text(&field, written, &format!("compilation failed: {problem}")));
        }
        (Ok(_), Err(problem)) => {
            causes.push(Cause::invalid_text(&field, written, &format!("compilation failed: ERROR: {problem}")));
        }
        (Ok(Type::Bool), Ok(_)) => {}
        (Ok(Type::Unknown), Ok(expression)) if expression.may_decide() => {}
        (Ok(found), Ok(_)) => {
            causes.push(Cause::invalid_text(&field, written, &format!("must evaluate to bool but got {found}")));
        }
    }
    let field = format!("{path}.name");
    if name.is_empty() {
        causes.push(Cause::required(&field, ""));
    } else {
        causes.extend(
            text::qualified_name_problems(name).iter().map(|problem| Cause::invalid_text(&field, name, problem)),
        );
    }
}

/// The variables of expressions.
static VARIABLES: LazyLock<BTreeMap<&str, Type>> = LazyLock::new(|| {
    let object = |name: &str, fields: &[(&str, Type)]| {
        let fields = fields.iter().map(|(field, of)| ((*field).to_owned(), of.clone())).collect();
        Type::Object(Arc::new(Object { name: format!("kubernetes.{name}"), fields }))
    };
    let (texts, text) = (Type::List(Arc::new(Type::Text)), || Type::Text);
    let kind = object("GroupVersionKind", &[("group", text()), ("version", text()), ("kind", text())]);
    let resource = object("GroupVersionResource", &[("group", text()), ("version", text()), ("resource", text())]);
    let extra = Type::Map(Arc::new(text()), Arc::new(texts.clone()));
    let user = object("UserInfo", &[("username", text()), ("uid", text()), ("groups", texts), ("extra", extra)]);
    let request = object(
        "AdmissionRequest",
        &[
            ("kind", kind.clone()),
            ("resource", resource.clone()),
            ("subResource", text()),
            ("requestKind", kind),
            ("requestResource", resource),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", Type::Bool),
            ("options", Type::Dyn),
        ],
    );
    BTreeMap::from([
        ("object", Type::Dyn),
        ("oldObject", Type::Dyn),
        ("request", request),
        ("namespaceObject", Type::Unknown),
        ("authorizer", Type::Unknown),
    ])
});

fn text_of<'a>(condition: &'a Value, field: &str) -> &'a str {
    condition[field].as_str().unwrap_or_default()
}
