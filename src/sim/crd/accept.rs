//! Whether a CustomResourceDefinition is one: its names, its versions, and a schema that is structural.
//!
//! What the server says of a rule that does not compile quotes the compiler; ours has other words, so only the
//! beginning of that sentence is the server's.

use serde_json::{Map, Value, json};

use crate::{
    schema::expression::Expression,
    sim::{clock::time_text, refusal::Cause, text},
};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Where a schema is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Root,
    Field,
    Item,
    /// Inside `allOf`, `anyOf`, `oneOf` or `not`.
    Condition,
}

/// Everything that is wrong with a definition.
pub(in crate::sim) fn check(definition: &Value) -> Vec<Cause> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let mut causes = Vec::new();
    let name = text(&definition["metadata"]["name"]);
    if name != format!("{}.{group}", text(&names["plural"])) {
        causes.push(Cause::invalid_text("metadata.name", &name, "must be spec.names.plural+\".\"+spec.group"));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    }
    match spec["scope"].as_str().unwrap_or_default() {
        "Cluster" | "Namespaced" => {}
        "" => causes.push(Cause::required("spec.scope", "")),
        other => causes.push(Cause::unsupported("spec.scope", json!(other), &["Cluster", "Namespaced"])),
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    check_schemas(versions, &mut causes);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let shown: Vec<Value> = versions.iter().map(go_version).collect();
        let shown = if versions.is_empty() { Value::Null } else { Value::from(shown) };
        causes.push(Cause::invalid("spec.versions", shown, "must have exactly one version marked as storage version"));
        let detail = "must have at least one stored version";
        causes.push(Cause::invalid("status.storedVersions", "null", detail));
    }
    for (field, value) in [("plural", &names["plural"]), ("singular", &names["singular"])] {
        let (path, value) = (format!("spec.names.{field}"), value.as_str().unwrap_or_default());
        if field == "plural" && value.is_empty() {
            causes.push(Cause::required(&path, ""));
        } else if !value.is_empty() {
            causes.extend(
                text::dns_1035_problems(value).iter().map(|problem| Cause::invalid_text(&path, value, problem)),
            );
        }
    }
    if names["kind"].as_str().unwrap_or_default().is_empty() {
        causes.push(Cause::required("spec.names.kind", ""));
    }
    causes
}

fn check_schemas(versions: &[Value], causes: &mut Vec<Cause>) {
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    // Equal schemas of all versions are one to the server, and have another path.
    let same = versions.windows(2).all(|pair| schema(&pair[0]) == schema(&pair[1]));
    for (index, version) in versions.iter().enumerate() {
        let schema = schema(version);
        let in_version = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if schema.is_null() {
            causes.push(Cause::required(&in_version, ""));
            continue;
        }
        let path = if same { "spec.validation.openAPIV3Schema".to_owned() } else { in_version };
        structural(&schema, &path, Role::Root, causes);
        if same {
            break;
        }
    }
}

fn structural(schema: &Value, path: &str, role: Role, causes: &mut Vec<Cause>) {
    let none = Map::new();
    let fields = schema.as_object().unwrap_or(&none);
    let is = |marker: &str| fields.get(marker) == Some(&Value::Bool(true));
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let at = |field: &str| format!("{path}.{field}");
    if fields.contains_key("$ref") {
        causes.push(Cause::forbidden(&at("$ref"), "$ref is not supported"));
        return;
    }
    let free = is("x-kubernetes-int-or-string") || is("x-kubernetes-preserve-unknown-fields");
    match (kind, role) {
        ("", Role::Condition) => {}
        (_, Role::Condition) => causes.push(Cause::forbidden(&at("type"), "must be empty to be structural")),
        ("", Role::Root) => causes.push(Cause::required(&at("type"), "must not be empty at the root")),
        ("", Role::Field) if !free => {
            causes.push(Cause::required(&at("type"), "must not be empty for specified object fields"));
        }
        ("", Role::Item) if !free => {
            causes.push(Cause::required(&at("type"), "must not be empty for specified array items"));
        }
        ("", Role::Field | Role::Item) => {}
        (known, _) if TYPES.contains(&known) => {}
        (other, _) => causes.push(Cause::unsupported(&at("type"), json!(other), &TYPES)),
    }
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
        && regex::Regex::new(pattern).is_err()
    {
        let detail =
            format!("must be a valid regular expression, but isn't: error parsing regexp: {}", go_regexp(pattern));
        causes.push(Cause::invalid_text(&at("pattern"), pattern, &detail));
    }
    if kind == "array" && !fields.contains_key("items") {
        causes.push(Cause::required(&at("items"), "must be specified"));
    }
    let no_keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array).is_none_or(Vec::is_empty);
    if fields.get("x-kubernetes-list-type").and_then(Value::as_str) == Some("map") && no_keys {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(&at("x-kubernetes-list-map-keys"), detail));
    }
    rules(schema, path, causes);
    below(fields, path, role, causes);
}

fn below(fields: &Map<String, Value>, path: &str, role: Role, causes: &mut Vec<Cause>) {
    let inner = |field: Role| if role == Role::Condition { Role::Condition } else { field };
    let mut properties: Vec<_> = fields.get("properties").and_then(Value::as_object).into_iter().flatten().collect();
    properties.sort_unstable_by_key(|(name, _)| name.as_str());
    for (name, of) in properties {
        let is_meta = role == Role::Root && matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
        if !is_meta {
            structural(of, &format!("{path}.properties[{name}]"), inner(Role::Field), causes);
        }
    }
    if let Some(items) = fields.get("items") {
        structural(items, &format!("{path}.items"), inner(Role::Item), causes);
    }
    if let Some(of) = fields.get("additionalProperties").filter(|of| of.is_object()) {
        structural(of, &format!("{path}.additionalProperties"), inner(Role::Field), causes);
    }
    // The alternatives of an int-or-string may name its types.
    if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return;
    }
    for junctor in ["allOf", "anyOf", "oneOf"] {
        for (index, of) in fields.get(junctor).and_then(Value::as_array).into_iter().flatten().enumerate() {
            structural(of, &format!("{path}.{junctor}[{index}]"), Role::Condition, causes);
        }
    }
    if let Some(of) = fields.get("not") {
        structural(of, &format!("{path}.not"), Role::Condition, causes);
    }
}

fn rules(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (index, rule) in schema["x-kubernetes-validations"].as_array().into_iter().flatten().enumerate() {
        let text = rule["rule"].as_str().unwrap_or_default();
        let field = format!("{path}.x-kubernetes-validations[{index}].rule");
        if text.trim().is_empty() {
            causes.push(Cause::required(&field, "rule is not specified"));
        } else if let Err(problem) = Expression::compile(text) {
            let shown = go_rule(rule);
            causes.push(Cause::invalid(&field, shown, &format!("compilation failed: ERROR: {problem}")));
        }
    }
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

/// A version as Go prints it, without its schema, which the server has moved elsewhere by then.
fn go_version(version: &Value) -> Value {
    json!({
        "Name": version["name"],
        "Served": version["served"] == true,
        "Storage": version["storage"] == true,
        "Deprecated": version["deprecated"] == true,
        "DeprecationWarning": version["deprecationWarning"],
        "Schema": null,
        "Subresources": version["subresources"],
        "AdditionalPrinterColumns": version["additionalPrinterColumns"],
        "SelectableFields": version["selectableFields"],
    })
}

/// What Go says of the most common mistakes in a pattern.
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

/// The status of a definition whose names are accepted and whose versions are served.
pub(in crate::sim) fn accepted_status(definition: &Value, now: jiff::Timestamp) -> Value {
    let spec = &definition["spec"];
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "lastTransitionTime": time_text(now), "reason": reason, "message": message,
        })
    };
    let mut status = definition["status"].clone();
    status["conditions"] = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    status["acceptedNames"] = spec["names"].clone();
    status
}
