// SPDX-License-Identifier: Apache-2.0

//! Validates a CustomResourceDefinition: its names, its versions, and whether its schema is structural.

mod rules;
mod schema;
mod structural;

use serde_json::{Value, json};

use self::schema::{SchemaErrors, SchemaPosition};
use crate::{clock::time_text, refusal::Cause, text};

/// Why the names of a definition are not accepted: a reason and a message.
pub(crate) type Conflict = (&'static str, String);

/// All errors of a definition.
pub(crate) fn check(before: Option<&Value>, definition: &Value) -> Vec<Cause> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let mut causes = Vec::new();
    let name = text(&definition["metadata"]["name"]);
    if before.is_none() && name != format!("{}.{group}", text(&names["plural"])) {
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
    if let Some(before) = before {
        check_unchanged(before, definition, &mut causes);
    }
    causes
}

/// Checks that the storage identity does not change, and that versions with stored objects stay.
fn check_unchanged(before: &Value, definition: &Value, causes: &mut Vec<Cause>) {
    let conditions = before["status"]["conditions"].as_array().into_iter().flatten();
    let established = conditions.into_iter().any(|of| of["type"] == "Established" && of["status"] == "True");
    let paths: &[&str] = if established {
        &["/spec/scope", "/spec/names/kind", "/spec/group", "/spec/names/plural"]
    } else {
        &["/spec/group", "/spec/names/plural"]
    };
    for path in paths {
        let (was, is) = (before.pointer(path), definition.pointer(path));
        if was != is {
            let field = path.trim_start_matches('/').replace('/', ".");
            causes.push(Cause::invalid(&field, is.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
    let versions = definition["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = before["status"]["storedVersions"].as_array().into_iter().flatten();
    for (index, stored) in stored.enumerate().filter(|(_, name)| versions.iter().all(|of| of["name"] != **name)) {
        let name = stored.as_str().unwrap_or_default();
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
             until a storage migration ensures no data remains persisted in {name} and removes {name} from \
             status.storedVersions"
        );
        causes.push(Cause::invalid(&format!("status.storedVersions[{index}]"), stored, &detail));
    }
}

fn check_schemas(versions: &[Value], causes: &mut Vec<Cause>) {
    let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
    // The server treats equal schemas of all versions as one, with another path.
    let same = versions.windows(2).all(|pair| schema(&pair[0]) == schema(&pair[1]));
    for (index, version) in versions.iter().enumerate() {
        let schema = schema(version);
        let in_version = format!("spec.versions[{index}].schema.openAPIV3Schema");
        if schema.is_null() {
            causes.push(Cause::required(&in_version, ""));
            continue;
        }
        let path = if same { "spec.validation.openAPIV3Schema".to_owned() } else { in_version };
        let mut found = SchemaErrors::default();
        schema::walk(&schema, &path, &SchemaPosition::root(), &mut found);
        causes.append(&mut found.causes);
        causes.append(&mut found.of_rules);
        if !found.is_foreign {
            causes.append(&mut structural::check(&schema, &path));
        }
        if same {
            break;
        }
    }
}

/// A version as Go prints it, without its schema, which the server has moved elsewhere.
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

/// The status of a definition: its names are accepted and its versions served, unless a name is taken.
pub(crate) fn accepted_status(definition: &Value, conflict: Option<&Conflict>, now: jiff::Timestamp) -> Value {
    let spec = &definition["spec"];
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| {
        json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "lastTransitionTime": time_text(now),
            "reason": reason, "message": message,
        })
    };
    let mut status = definition["status"].clone();
    if let Some((reason, message)) = conflict {
        status["conditions"] = json!([
            condition("NamesAccepted", false, reason, message),
            condition("Established", false, "NotAccepted", "not all names are accepted"),
        ]);
        return status;
    }
    status["conditions"] = json!([
        condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    status["acceptedNames"] = spec["names"].clone();
    status
}
