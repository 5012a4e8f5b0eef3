// SPDX-License-Identifier: Apache-2.0

//! Parses bodies, JSON or YAML, with the server's messages for invalid text, a wrong kind or unknown fields.

use http::{HeaderMap, header};
use serde_json::Value;

use super::{
    builtin::{self, protobuf},
    crd,
    patch::{self, go_type},
    refusal::{Cause, Named, Refusal},
    request::Unknown,
    resource::{self, Resource},
};
use tidegate_core::yaml::{self, Limits};

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// How many bytes of a body a message shows.
const EXCERPT_LEN_MAX: usize = 30;

/// The object of a POST or PUT, which must be of the resource's kind.
pub(super) fn object(resource: &Resource, content_type: &str, bytes: &[u8]) -> Result<Value, Refusal> {
    let mut object = match content_type {
        "" | "application/json" => json_object(resource, bytes)?,
        "application/yaml" => {
            let value = yaml_value(bytes)
                .map_err(|problem| Refusal::bad_request(format!("error converting YAML to JSON: yaml: {problem}")))?;
            typed(resource, value, bytes)?
        }
        protobuf::CONTENT_TYPE if resource.is_built_in() => {
            let object = protobuf::decode(bytes).map_err(Refusal::bad_request)?;
            object.ok_or_else(|| Refusal::unsupported_media(ACCEPTED))?
        }
        _ => return Err(Refusal::unsupported_media(ACCEPTED)),
    };
    if !resource.is_built_in() && object["kind"].as_str().unwrap_or_default().is_empty() {
        let (kind, shown) = (&resource.kind.kind, excerpt(bytes));
        return Err(Refusal::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): Object 'Kind' is missing in '{}' ({shown})",
            String::from_utf8_lossy(bytes)
        )));
    }
    check_kind(resource, &mut object)?;
    Ok(object)
}

/// The options of a deletion must have a readable type.
pub(super) fn check_type(headers: &HeaderMap, bytes: &[u8]) -> Result<(), Refusal> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let found = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_known = found.is_empty() || ACCEPTED.split(", ").any(|one| one == found);
    if bytes.is_empty() || is_known { Ok(()) } else { Err(Refusal::unsupported_media(ACCEPTED)) }
}

fn json_object(resource: &Resource, bytes: &[u8]) -> Result<Value, Refusal> {
    if let Some(problem) = patch::syntax_error(bytes) {
        return Err(unrecognised(resource, &problem, bytes));
    }
    let value = patch::parse_json(bytes).map_err(Refusal::bad_request)?;
    typed(resource, value, bytes)
}

/// Returns the value if its type is readable. An empty body is an object without fields.
fn typed(resource: &Resource, value: Value, bytes: &[u8]) -> Result<Value, Refusal> {
    match type_problem(&value) {
        Some(problem) => Err(unrecognised(resource, &problem, bytes)),
        None if value.is_null() => Ok(Value::Object(serde_json::Map::new())),
        None => Ok(value),
    }
}

/// Why the type of a value is not readable, in the words of Go's decoder.
pub(super) fn type_problem(value: &Value) -> Option<String> {
    let fields = match value {
        Value::Null => return None,
        Value::Object(fields) => fields,
        other => {
            return Some(format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                 \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                go_type(other)
            ));
        }
    };
    let is_wrong = |(name, value): &(&String, &Value)| {
        matches!(name.as_str(), "apiVersion" | "kind") && !value.is_string() && !value.is_null()
    };
    let (name, value) = fields.iter().find(is_wrong)?;
    Some(format!("json: cannot unmarshal {} into Go struct field .{name} of type string", go_type(value)))
}

fn unrecognised(resource: &Resource, problem: &str, bytes: &[u8]) -> Refusal {
    let (kind, shown) = (&resource.kind.kind, excerpt(bytes));
    Refusal::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: \
         {problem} ({shown})"
    ))
}

/// The part of a body that a message shows: text if it looks like JSON, hexadecimal digits otherwise.
fn excerpt(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "<empty>".to_owned();
    }
    let looks_like_json = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let shown = &bytes[..bytes.len().min(EXCERPT_LEN_MAX)];
    let dots = if bytes.len() > EXCERPT_LEN_MAX { " ..." } else { "" };
    if looks_like_json {
        return format!("{}{dots}", String::from_utf8_lossy(shown));
    }
    let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits}{dots}")
}

/// The apply patch of a body, which may be YAML.
pub(super) fn yaml_mapping(bytes: &[u8]) -> Result<Value, Refusal> {
    let value = match patch::parse_json(bytes) {
        Ok(value) => value,
        Err(_) => yaml_value(bytes)
            .map_err(|problem| Refusal::bad_request(format!("error decoding YAML: yaml: {problem}")))?,
    };
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        other => Err(Refusal::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go \
             value of type map[string]interface {{}}",
            go_type(&other)
        ))),
    }
}

fn yaml_value(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "invalid leading UTF-8 octet".to_owned())?;
    let limits = Limits::default();
    let documents = yaml::parse(text, &limits).map_err(|error| error.to_string())?;
    Ok(documents.first().map_or(Value::Null, yaml::Node::to_json))
}

/// The errors of strict decoding in a JSON text: duplicate keys.
pub(super) fn doubled(bytes: &[u8]) -> Vec<String> {
    let said = |one: patch::Doubled| format!("duplicate field {}", Value::from(one.path));
    patch::doubled(bytes).into_iter().map(said).collect()
}

/// The same for a JSON patch, whose operations also must not have unknown fields.
pub(super) fn doubled_or_unknown(bytes: &[u8], operations: &Value) -> Vec<String> {
    let unknown = patch::unknown_in_operations(operations);
    let said = |path: String| format!("unknown field {}", Value::from(path));
    doubled(bytes).into_iter().chain(unknown.into_iter().map(said)).map(|one| format!("json patch {one}")).collect()
}

/// The same for an apply patch in JSON, which the server reads as YAML: the lines of its message.
pub(super) fn doubled_in_yaml(bytes: &[u8]) -> Vec<String> {
    if patch::syntax_error(bytes).is_some() {
        return Vec::new();
    }
    let said = |one: patch::Doubled| format!("line {}: key {} already set in map", one.line, Value::from(one.key));
    patch::doubled(bytes).into_iter().map(said).collect()
}

/// The patch of a body, which must be JSON.
pub(super) fn patch(bytes: &[u8]) -> Result<Value, Refusal> {
    if let Some(problem) = patch::syntax_error(bytes) {
        return Err(Refusal::bad_request(format!("error decoding patch: {problem}")));
    }
    patch::parse_json(bytes).map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))
}

/// The same if unknown fields are ignored: then the server uses another parser with other messages.
pub(super) fn unchecked_patch(bytes: &[u8], is_merge: bool) -> Result<Value, Refusal> {
    let refuse =
        |problem: String| Refusal::bad_request(if is_merge { "Invalid JSON Patch".to_owned() } else { problem });
    if let Some(problem) = patch::syntax_error(bytes) {
        return Err(refuse(problem));
    }
    let value = patch::parse_json(bytes).map_err(refuse)?;
    if !is_merge && !value.is_array() && !value.is_null() {
        let found = go_type(&value);
        return Err(refuse(format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch")));
    }
    Ok(value)
}

/// The object must be of the resource's kind; a missing type is filled in.
fn check_kind(resource: &Resource, object: &mut Value) -> Result<(), Refusal> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    if !resource.is_built_in() {
        if *api_version != *resource.api_version {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                resource.api_version
            )));
        }
        if *kind != *resource.kind.kind {
            let name = text(&object["metadata"]["name"]);
            let named = Named { group: &resource.kind.group, kind: &kind, name: &name };
            let detail = format!("must be {}", resource.kind.kind);
            return Err(Refusal::invalid(&named, &[Cause::invalid_text("kind", &kind, &detail)]));
        }
        return Ok(());
    }
    if api_version.is_empty() && kind.is_empty() {
        type_it(resource, object);
        return Ok(());
    }
    let Some(problem) = kind_problem(resource, &api_version, &kind) else { return Ok(()) };
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let wanted = &resource.kind.kind;
    Err(Refusal::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {wanted}: {problem}")))
}

fn type_it(resource: &Resource, object: &mut Value) {
    object["apiVersion"] = (&*resource.api_version).into();
    object["kind"] = (&*resource.kind.kind).into();
}

/// The server's message for a built-in object of another kind than the resource's.
fn kind_problem(resource: &Resource, api_version: &str, kind: &str) -> Option<String> {
    if *api_version == *resource.api_version && *kind == *resource.kind.kind {
        return None;
    }
    let is_known =
        resource::built_in().values().any(|other| *other.api_version == *api_version && *other.kind.kind == *kind);
    Some(if is_known {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        format!("converting ({version}.{kind}) to (core.{}): unknown conversion", resource.kind.kind)
    } else {
        let (kind, api_version) = (Value::from(kind), Value::from(api_version));
        format!("no kind {kind} is registered for version {api_version} in scheme \"pkg/runtime/scheme.go:111\"")
    })
}

/// Reads a patched object again, as the server does: checks its kind and removes unknown fields.
pub(super) fn reread(
    resource: &Resource,
    object: &mut Value,
    unknown: Unknown,
    strict: &[String],
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    let refusal = |object: &Value, problem: &str| {
        let named = Named { group: "", kind: "", name: "" };
        Refusal::invalid(&named, &[Cause::invalid_text("patch", &object.to_string(), problem)])
    };
    if resource.is_built_in() {
        if let Some(problem) = type_problem(object) {
            return Err(refusal(object, &format!("couldn't get version/kind; json parse error: {problem}")));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let or = |found: String, own: &str| if found.is_empty() { own.to_owned() } else { found };
        // Fields are removed by the schema of the kind itself.
        let api_version = or(text(&object["apiVersion"]), &resource.api_version);
        let kind = or(text(&object["kind"]), &resource.kind.kind);
        if let Some(problem) = kind_problem(resource, &api_version, &kind) {
            return Err(refusal(object, &problem));
        }
        type_it(resource, object);
    }
    check_unknown(resource, object, unknown, strict, warnings, refusal)
}

/// Removes unknown fields, and warns or refuses, as the request says. `strict` contains the errors in the text.
/// `refusal` creates the error, also for a wrong type, from the object without unknown fields.
pub(super) fn check_unknown(
    resource: &Resource,
    object: &mut Value,
    unknown: Unknown,
    strict: &[String],
    warnings: &mut Vec<String>,
    refusal: impl Fn(&Value, &str) -> Refusal,
) -> Result<(), Refusal> {
    let found = remove_unknown(resource, object).map_err(|problem| refusal(object, &problem))?;
    let found: Vec<String> = found.into_iter().map(|path| Value::from(path).to_string()).collect();
    // Errors inside of unknown fields are not reported.
    let is_inside = |said: &String| {
        let path = said.strip_prefix("duplicate field ").unwrap_or_default();
        let outer = |one: &String| {
            let one = one.trim_end_matches('"');
            path.strip_prefix(one).is_some_and(|rest| rest.starts_with(['.', '[', '"']))
        };
        resource.is_built_in() && found.iter().any(outer)
    };
    let mut said: Vec<String> = strict.iter().filter(|said| !is_inside(said)).cloned().collect();
    said.extend(found.iter().map(|path| format!("unknown field {path}")));
    match unknown {
        Unknown::Refuse if !said.is_empty() => {
            Err(refusal(object, &format!("strict decoding error: {}", said.join(", "))))
        }
        Unknown::Warn => {
            warnings.extend(said);
            Ok(())
        }
        Unknown::Refuse | Unknown::Ignore => Ok(()),
    }
}

/// Removes unknown fields and returns their paths.
fn remove_unknown(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    let found = match &resource.custom {
        None => builtin::prune(&resource.kind, object)?,
        Some(custom) => {
            let mut found = builtin::prune_metadata(object)?;
            found.extend(crd::prune(&custom.props, object));
            found
        }
    };
    patch::tidy_metadata(object);
    Ok(found)
}
