// SPDX-License-Identifier: Apache-2.0

//! The metadata of every object: validation, what the server sets, and what may not change.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    clock::Clock,
    patch::tidy_metadata,
    refusal::{Cause, Named, Refusal},
    resource::{DEFINITIONS, Generation, NAMESPACES, Names, Resource},
    text,
};

/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
/// Limit of all annotations together, keys and values, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The namespace in an object must equal that of the URL.
pub(super) fn check_namespace(namespace: &str, object: &Value) -> Result<(), Refusal> {
    let named = object["metadata"]["namespace"].as_str().unwrap_or_default();
    if named.is_empty() || named == namespace {
        return Ok(());
    }
    Err(Refusal::bad_request("the namespace of the provided object does not match the namespace sent on the request"))
}

/// The name in an object must equal that of the URL.
pub(super) fn check_name_on_url(object: &Value, name: &str) -> Result<(), Refusal> {
    match object["metadata"]["name"].as_str().unwrap_or_default() {
        "" => Err(Refusal::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        found if found != name => Err(Refusal::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// A name must be a valid storage key.
pub(super) fn check_key(name: &str) -> Result<(), Refusal> {
    let problems = text::segment_problems(name);
    if problems.is_empty() {
        return Ok(());
    }
    let name = Value::from(name);
    Err(Refusal::bad_request(format!("Name parameter invalid: {name}: {}", problems.join(";"))))
}

/// Sets the metadata of a new object.
pub(super) fn begin(resource: &Resource, namespace: &str, object: &mut Value, clock: &Clock) -> Result<(), Refusal> {
    if !object["metadata"].is_object() {
        object["metadata"] = Value::Object(Map::new());
    }
    tidy_metadata(object);
    let Some(fields) = object["metadata"].as_object_mut() else { return Ok(()) };
    let text = |fields: &Map<String, Value>, name: &str| {
        fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    if !matches!(text(fields, "resourceVersion").as_str(), "" | "0") {
        return Err(Refusal::internal("resourceVersion should not be set on objects to be created"));
    }
    for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        fields.shift_remove(field);
    }
    let prefix = text(fields, "generateName");
    if text(fields, "name").is_empty() && !prefix.is_empty() {
        fields.insert("name".to_owned(), clock.generated_name(&prefix).into());
    }
    if resource.namespaced {
        fields.insert("namespace".to_owned(), namespace.into());
    } else {
        fields.shift_remove("namespace");
    }
    fields.insert("uid".to_owned(), clock.uid().into());
    fields.insert("creationTimestamp".to_owned(), clock.now_text().into());
    match resource.habits.generation {
        // The client's value stays if the kind has no generation.
        Generation::None => {}
        Generation::Content | Generation::All => {
            fields.insert("generation".to_owned(), json!(1));
        }
    }
    Ok(())
}

/// Checks the UID and the resource version that the writer read.
pub(super) fn check_versions(resource: &Resource, before: &Value, after: &Value, put: bool) -> Result<(), Refusal> {
    let text = |object: &Value, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    let name = text(before, "name");
    let (uid, asked) = (text(before, "uid"), text(after, "uid"));
    if put && !asked.is_empty() && asked != uid {
        let slash = if resource.namespaced { format!("{}/", text(before, "namespace")) } else { String::new() };
        let group = &resource.kind.group;
        let folder = if group.is_empty() || resource.is_built_in() { String::new() } else { format!("{group}/") };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{folder}{}/{slash}{name}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {uid}",
            resource.plural
        );
        return Err(Refusal::conflict(&Named::resource(resource, &name), &why));
    }
    let asked = text(after, "resourceVersion");
    if matches!(asked.as_str(), "" | "0") {
        if (put || asked == "0") && resource.habits.put_needs_version {
            let named = Named::resource(resource, &name);
            let cause = Cause::invalid("metadata.resourceVersion", "0", "must be specified for an update");
            return Err(Refusal::invalid(&named, &[cause]));
        }
        return Ok(());
    }
    if asked.parse::<u64>().is_err() {
        return Err(Refusal::internal(text::number_problem("ParseUint", &asked)));
    }
    if asked == text(before, "resourceVersion") {
        return Ok(());
    }
    Err(Refusal::modified(&Named::resource(resource, &name)))
}

/// The metadata of a changed object; fields that clients cannot change come from the old object.
pub(super) fn go_on(before: &Value, mut after: Value) -> Value {
    tidy_metadata(&mut after);
    let Some(fields) = after["metadata"].as_object_mut() else { return after };
    let kept = |field: &str| before["metadata"].get(field).cloned();
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "namespace",
        "generateName",
        "generation",
        "resourceVersion",
    ] {
        let is_decided = matches!(
            field,
            "creationTimestamp" | "deletionTimestamp" | "deletionGracePeriodSeconds" | "generation" | "resourceVersion"
        );
        match kept(field) {
            Some(value) if is_decided || !fields.contains_key(field) => {
                if field != "generateName" {
                    fields.insert(field.to_owned(), value);
                }
            }
            // Only the server marks an object for deletion: a writer who tries is refused.
            None if is_decided && !field.starts_with("deletion") => {
                fields.shift_remove(field);
            }
            Some(_) | None => {}
        }
    }
    after
}

/// Whether the last finalizer of an object that is being deleted was removed.
pub(super) fn is_finished(resource: &Resource, object: &Value) -> bool {
    let is_empty = |value: &Value| value.as_array().is_none_or(Vec::is_empty);
    let metadata = &object["metadata"];
    let namespace_is_full = resource.is(NAMESPACES) && !is_empty(&object["spec"]["finalizers"]);
    !metadata["deletionTimestamp"].is_null() && is_empty(&metadata["finalizers"]) && !namespace_is_full
}

/// All errors in an object's metadata.
pub(super) fn check(resource: &Resource, before: Option<&Value>, object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    match before {
        None => check_name(resource, metadata, &mut causes),
        Some(before) => check_unchanged(&before["metadata"], metadata, &mut causes),
    }
    for (key, value) in entries(&metadata["labels"]) {
        let invalid = |text: &str, problem: &String| Cause::invalid_text("metadata.labels", text, problem);
        causes.extend(text::qualified_name_problems(key).iter().map(|problem| invalid(key, problem)));
        causes.extend(text::label_value_problems(value).iter().map(|problem| invalid(value, problem)));
    }
    let mut bytes = 0;
    for (key, value) in entries(&metadata["annotations"]) {
        bytes += key.len() + value.len();
        let problems = text::qualified_name_problems(&key.to_lowercase());
        causes.extend(problems.iter().map(|problem| Cause::invalid_text("metadata.annotations", key, problem)));
    }
    if ANNOTATIONS_BYTES_MAX < bytes {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX as u64));
    }
    check_owners(metadata, &mut causes);
    check_finalizers(before.map(|before| &before["metadata"]), metadata, &mut causes);
    // Of definitions, the server does not ask it: its own finalizer on them has no path.
    if resource.is_built_in() && !resource.is(DEFINITIONS) {
        check_named_finalizers(metadata, &mut causes);
    }
    causes
}

/// Warnings about a custom resource's finalizers: names without a domain may conflict with others.
pub(super) fn finalizer_warnings(resource: &Resource, before: Option<&Value>, object: &Value) -> Vec<String> {
    if resource.is_built_in() {
        return Vec::new();
    }
    let former = before.map(|before| finalizers_of(&before["metadata"])).unwrap_or_default();
    let mut new = finalizers_of(&object["metadata"]);
    new.retain(|finalizer| !former.contains(finalizer) && !is_named(finalizer));
    new.sort_unstable();
    new.dedup();
    let said = new.iter().map(|finalizer| {
        let name = Value::from(finalizer.as_str());
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {name}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts \
             with other finalizer writers"
        )
    });
    said.collect()
}

fn finalizers_of(metadata: &Value) -> Vec<String> {
    let items = metadata["finalizers"].as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether the finalizer has a qualified name.
fn is_named(finalizer: &str) -> bool {
    finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer)
}

fn entries(mapping: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = mapping.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn check_name(resource: &Resource, metadata: &Value, causes: &mut Vec<Cause>) {
    let problems = |name: &str| match resource.habits.names {
        Names::Subdomain => text::subdomain_problems(name),
        Names::Label => text::label_problems(name),
        Names::Segment => text::segment_problems(name),
    };
    if let Some(prefix) = metadata["generateName"].as_str() {
        // A generated name continues after the prefix, so the prefix may end with a dash.
        let shown = prefix.strip_suffix('-').map_or_else(|| prefix.to_owned(), |prefix| format!("{prefix}a"));
        let found = problems(&shown);
        causes.extend(found.iter().map(|problem| Cause::invalid_text("metadata.generateName", prefix, problem)));
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
        return;
    }
    causes.extend(problems(name).iter().map(|problem| Cause::invalid_text("metadata.name", name, problem)));
}

fn check_unchanged(before: &Value, after: &Value, causes: &mut Vec<Cause>) {
    for field in ["name", "namespace", "uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        if before[field] != after[field] {
            // The server checks this twice.
            for _ in 0..2 {
                causes.push(Cause::invalid(&format!("metadata.{field}"), &after[field], "field is immutable"));
            }
        }
    }
}

fn check_owners(metadata: &Value, causes: &mut Vec<Cause>) {
    let mut controllers: Vec<String> = Vec::new();
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        if owner["controller"] == true {
            let text = |field: &str| owner[field].as_str().unwrap_or_default();
            controllers.push(format!("{}/{}", text("kind"), text("name")));
        }
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                // The server does not report the index.
                let path = format!("metadata.ownerReferences.{field}");
                let detail = match field {
                    "apiVersion" => "version must not be empty",
                    _ => "must not be empty",
                };
                causes.push(Cause::invalid_text(&path, "", detail));
            }
        }
    }
    for other in controllers.iter().skip(1) {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {other}",
            controllers[0]
        );
        causes.push(Cause::invalid("metadata.ownerReferences", &metadata["ownerReferences"], &detail));
    }
}

fn check_finalizers(before: Option<&Value>, metadata: &Value, causes: &mut Vec<Cause>) {
    let finalizers = finalizers_of(metadata);
    if let Some(before) = before
        && !before["deletionTimestamp"].is_null()
    {
        let former: BTreeSet<String> = finalizers_of(before).into_iter().collect();
        let new: BTreeSet<&String> = finalizers.iter().filter(|finalizer| !former.contains(*finalizer)).collect();
        if !new.is_empty() {
            let new: Vec<String> = new.into_iter().map(|text| Value::from(text.as_str()).to_string()).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.join(", ")
            );
            // The server checks this twice.
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    for finalizer in &finalizers {
        let problems = text::qualified_name_problems(finalizer);
        causes.extend(problems.iter().map(|problem| Cause::invalid_text("metadata.finalizers", finalizer, problem)));
    }
    if finalizers.iter().any(|finalizer| finalizer == "orphan") && finalizers.iter().any(|f| f == "foregroundDeletion")
    {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(Cause::invalid("metadata.finalizers", &metadata["finalizers"], detail));
    }
}

/// For built-in kinds, finalizers other than the standard ones must have a domain.
fn check_named_finalizers(metadata: &Value, causes: &mut Vec<Cause>) {
    let finalizers = finalizers_of(metadata);
    for (index, finalizer) in finalizers.iter().enumerate().filter(|(_, finalizer)| !is_named(finalizer)) {
        let path = format!("metadata.finalizers[{index}]");
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        causes.push(Cause::invalid_text(&path, finalizer, detail));
    }
}
