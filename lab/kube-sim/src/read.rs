// SPDX-License-Identifier: Apache-2.0

//! GET and LIST: objects from the store, in the requested form.

use std::sync::Arc;

use base64::{
    Engine as _,
    alphabet::URL_SAFE,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Server, convert, metadata,
    patch::go_type as json_type,
    refusal::{Cause, Named, Refusal},
    request::{Accept, Form, Parameters},
    resource::{INVOLVED, Resource},
    selector::{Fields, Labels},
    store::{Object, key, split_key},
    table, text,
};

/// The objects that a list or a watch selects.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) labels: Labels,
    pub(super) fields: Fields,
}

const NO_VERSION: &str = "resourceVersionMatch is forbidden unless resourceVersion is provided";

/// The start of a later page.
struct Continue {
    /// `None`: the current version.
    version: Option<u64>,
    /// The first key: the successor of the last object's key.
    from: String,
}

/// The content of a continue token, as far as it is readable.
#[derive(Default)]
struct Token {
    version: String,
    at: i64,
    start: String,
}

/// As in the server, trailing bits are ignored.
const CONTINUE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

// === impl Filter ===

impl Filter {
    /// Parses the parameters of a list or a watch, in the server's order.
    pub(super) fn parse(resource: &Resource, parameters: &Parameters) -> Result<Filter, Refusal> {
        for number in ["timeoutSeconds", "limit"] {
            parameters.number(number)?;
        }
        let labels = parameters.get("labelSelector").map(Labels::parse).transpose()?.unwrap_or_default();
        let fields = parameters.get("fieldSelector").map(Fields::parse).transpose()?.unwrap_or_default();
        check_list_options(parameters)?;
        let known = resource.selectable();
        let plain = ["metadata.name", "metadata.namespace"];
        let of_kind = known.as_deref().unwrap_or(&plain);
        if let Some(term) = fields.0.iter().find(|term| !of_kind.contains(&term.path.as_str())) {
            return Err(Refusal::bad_request(if known.is_none() {
                let path = Value::from(term.path.as_str());
                format!("{path} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            } else {
                format!("field label not supported: {}", term.path)
            }));
        }
        Ok(Filter { labels, fields })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object is selected.
    pub(super) fn wants(&self, key: &str, object: &Object) -> bool {
        if !self.labels.matches(|label| object.label(label)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let (namespace, name) = split_key(key);
        // The value is parsed only for fields that are not in the key.
        let mut value: Option<Value> = None;
        self.fields.0.iter().all(|term| {
            let found = match term.path.as_str() {
                "metadata.name" => name.to_owned(),
                "metadata.namespace" => namespace.to_owned(),
                path => field(value.get_or_insert_with(|| object.value()), path),
            };
            (found == term.value) == term.equal
        })
    }
}

/// The value of a field, as selectors compare it.
fn field(object: &Value, path: &str) -> String {
    let at = |path: &str| path.split('.').try_fold(object, |value, part| value.get(part)).filter(|of| !of.is_null());
    let text = |value: Option<&Value>| match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let flag = |value: Option<&Value>| text(Some(value.unwrap_or(&Value::Bool(false))));
    match (object["kind"].as_str().unwrap_or_default(), path) {
        ("Event", "source") => {
            let source = text(at("source.component"));
            if source.is_empty() { text(at("reportingComponent")) } else { source }
        }
        // Events are stored in the older group's version.
        ("Event", "reportingController") => text(at("reportingComponent")),
        ("Event", path) => {
            let old = INVOLVED.iter().find(|(_, new)| *new == path).map_or(path, |(old, _)| *old);
            text(at(old))
        }
        ("Node" | "Pod", "spec.unschedulable" | "spec.hostNetwork") => flag(at(path)),
        ("Pod", "spec.host") => text(at("spec.nodeName")),
        ("ReplicationController", path) => text(Some(at(path).unwrap_or(&Value::from(0)))),
        (_, path) => text(at(path)),
    }
}

impl Server {
    /// One object.
    pub(super) fn get(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        parameters: &Parameters,
        accept: Accept,
    ) -> Result<Bytes, Refusal> {
        metadata::check_key(name)?;
        if let Some(version) = parameters.get("resourceVersion") {
            // Unlike a list, reading one object fails here with an internal error.
            let problem = |_| Refusal::internal(version_problem(version));
            self.check_version(version.parse().map_err(problem)?)?;
        }
        let object = self.find(resource, namespace, name)?;
        one(resource, &object, accept, self)
    }

    /// The object; fails if it does not exist.
    pub(super) fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Arc<Object>, Refusal> {
        let found = self.0.store.get(&resource.collection, &key(namespace, name));
        found.ok_or_else(|| Refusal::not_found(&Named::resource(resource, name)))
    }

    /// Fails if the requested version is in the future.
    pub(super) fn check_version(&self, version: u64) -> Result<(), Refusal> {
        let current = self.0.store.version();
        if current < version { Err(Refusal::too_large_version(version, current)) } else { Ok(()) }
    }

    /// A page of a list.
    pub(super) fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        parameters: &Parameters,
        accept: Accept,
    ) -> Result<Bytes, Refusal> {
        if accept.form == Form::Metadata {
            return Err(Refusal::not_acceptable(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(resource, true)
            )));
        }
        let filter = Filter::parse(resource, parameters)?;
        let limit = parameters.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let from = parameters.get("continue").map(Continue::parse).transpose()?;
        match (&from, parameters.get("resourceVersion")) {
            (Some(_), Some(version)) if version != "0" => {
                return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
            }
            (None, Some(version)) => self.check_version(parse_version(version)?)?,
            _ => {}
        }
        if let Some(version) = from.as_ref().and_then(|from| from.version) {
            self.check_version(version)?;
        }
        if let Some(version) = from.as_ref().and_then(|from| from.version)
            && self.0.store.news(&resource.collection, version).is_err()
        {
            return Err(Refusal::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter.",
            ));
        }
        let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
        let begin = from.as_ref().map(|from| format!("{prefix}{}", from.from));
        let page = self
            .0
            .store
            .list(&resource.collection, &prefix, begin.as_deref(), limit, |key, object| filter.wants(key, object));
        let version = from.and_then(|from| from.version).unwrap_or(page.version);
        let next = page.items.last().filter(|_| page.remaining > 0).map(|(key, _)| Continue {
            version: Some(version),
            from: format!("{}\0", key.strip_prefix(&*prefix).unwrap_or(key)),
        });
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let Some(next) = next {
            metadata["continue"] = next.text().into();
            if filter.is_empty() {
                metadata["remainingItemCount"] = page.remaining.into();
            }
        } else if !resource.is_built_in() && accept.form == Form::Whole {
            metadata["continue"] = "".into();
        }
        Ok(many(resource, &metadata, &page.items, accept, self))
    }
}

/// Parses a resource version.
pub(super) fn parse_version(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::bad_request(format!("invalid resource version: {}", version_problem(text))))
}

fn version_problem(text: &str) -> String {
    Cause::invalid_text("resourceVersion", text, &text::number_problem("ParseUint", text)).to_string()
}

/// Checks the parameters that lists and watches share.
pub(super) fn check_list_options(parameters: &Parameters) -> Result<(), Refusal> {
    let mut causes = Vec::new();
    let matching = parameters.get("resourceVersionMatch");
    let initial = parameters.get("sendInitialEvents").is_some();
    if initial {
        if matching != Some("NotOlderThan") && parameters.flag("watch") {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden("resourceVersionMatch", detail));
        }
        if !parameters.flag("watch") {
            if matching.is_some() && parameters.get("resourceVersion").is_none() {
                causes.push(Cause::forbidden("resourceVersionMatch", NO_VERSION));
            }
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
    } else if let Some(matching) = matching {
        if parameters.flag("watch") {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", detail));
        } else if parameters.get("resourceVersion").is_none() {
            causes.push(Cause::forbidden("resourceVersionMatch", NO_VERSION));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let supported = ["Exact", "NotOlderThan", ""];
            causes.push(Cause::unsupported("resourceVersionMatch", Value::from(matching), &supported));
        }
        if matching == "Exact" && parameters.get("resourceVersion") == Some("0") && !parameters.flag("watch") {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden("resourceVersionMatch", detail));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(Refusal::invalid_options("ListOptions", &causes)) }
}

// === impl Continue ===

impl Continue {
    fn parse(text: &str) -> Result<Continue, Refusal> {
        let refuse =
            |problem: &str| Refusal::bad_request(format!("invalid continue token: continue key is not valid{problem}"));
        let refuse_value = |problem: String| refuse(&format!(": {problem}"));
        let bytes = decode_base64(text).map_err(refuse_value)?;
        if let Some(problem) = super::patch::syntax_error(&bytes) {
            return Err(refuse_value(problem));
        }
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| refuse_value(error.to_string()))?;
        let token = Token::from_json(&value).map_err(|problem| refuse_value(format!("json: {problem}")))?;
        if token.version != "meta.k8s.io/v1" {
            return Err(refuse_value(format!("server does not recognize this encoded version {}", token.version)));
        }
        if token.at == 0 {
            return Err(refuse(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
        }
        if token.start.is_empty() {
            return Err(refuse(": encoded start key empty (version meta.k8s.io/v1)"));
        }
        let start = token.start.strip_prefix('/').unwrap_or(&token.start);
        // The key must not lead elsewhere: no part may be empty, `.` or `..`.
        if start.split('/').any(|part| matches!(part, "" | "." | "..")) && !start.is_empty() {
            return Err(refuse_value(token.start));
        }
        // For a negative version, the list continues with the current objects.
        let version = u64::try_from(token.at).ok();
        Ok(Continue { version, from: start.to_owned() })
    }

    fn text(&self) -> String {
        let token =
            json!({"v": "meta.k8s.io/v1", "rv": self.version.unwrap_or_default(), "start": format!("/{}", self.from)});
        CONTINUE.encode(token.to_string())
    }
}

// === impl Token ===

impl Token {
    /// Reads the token's JSON. Names of fields match in any case; absent fields are empty.
    fn from_json(value: &Value) -> Result<Token, String> {
        let mut token = Token::default();
        let fields = match value {
            Value::Null => return Ok(token),
            Value::Object(fields) => fields,
            other => {
                let found = json_type(other);
                return Err(format!("cannot unmarshal {found} into Go value of type storage.continueToken"));
            }
        };
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let mismatch = |field: &str, wanted: &str| {
                let found = match value {
                    Value::Number(number) => format!("number {number}"),
                    other => json_type(other).to_owned(),
                };
                let found = if wanted == "string" { json_type(value).to_owned() } else { found };
                format!("cannot unmarshal {found} into Go struct field continueToken.{field} of type {wanted}")
            };
            match name.to_lowercase().as_str() {
                "v" => token.version = value.as_str().ok_or_else(|| mismatch("v", "string"))?.to_owned(),
                "start" => token.start = value.as_str().ok_or_else(|| mismatch("start", "string"))?.to_owned(),
                "rv" => token.at = value.as_i64().ok_or_else(|| mismatch("rv", "int64"))?,
                _ => {}
            }
        }
        Ok(token)
    }
}

/// Decodes unpadded URL-safe base64. Reports the position of an invalid byte as Go's decoder does.
fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    let text: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let wrong = text.iter().position(|byte| !is_one(byte));
    // One character alone is less than a byte.
    let wrong = wrong.or_else(|| (text.len() % 4 == 1).then(|| text.len() - 1));
    match wrong {
        Some(at) => Err(format!("illegal base64 data at input byte {at}")),
        None => CONTINUE.decode(&text).map_err(|error| error.to_string()),
    }
}

/// The Go type of a resource's objects, for messages.
fn go_type(resource: &Resource, list: bool) -> String {
    match (resource.is_built_in(), list) {
        (true, false) => format!("*core.{}", resource.kind.kind),
        (true, true) => format!("*core.{}", resource.list_kind),
        (false, false) => "*unstructured.Unstructured".to_owned(),
        (false, true) => "*unstructured.UnstructuredList".to_owned(),
    }
}

/// An object in the requested form.
pub(super) fn one(
    resource: &Resource,
    object: &Arc<Object>,
    accept: Accept,
    server: &Server,
) -> Result<Bytes, Refusal> {
    match accept.form {
        Form::Whole => Ok(whole(resource, object)),
        Form::Metadata => Ok(metadata_only(object)),
        Form::MetadataList => Err(Refusal::not_acceptable(format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
            go_type(resource, false)
        ))),
        Form::Table => {
            let metadata = json!({"resourceVersion": object.version.to_string()});
            Ok(table::render(resource, &metadata, std::slice::from_ref(object), server.0.clock.now(), true))
        }
    }
}

/// The whole object, in the version of the resource.
pub(super) fn whole(resource: &Resource, object: &Object) -> Bytes {
    if *resource.stored == *resource.api_version {
        return object.bytes();
    }
    if let Some(converted) = convert::from_stored(resource, object) {
        return converted.to_string().into();
    }
    // Versions of a custom resource differ only in their name.
    let mut bytes = Vec::with_capacity(object.len() + 32);
    bytes.extend_from_slice(type_meta(&resource.kind.kind, &resource.api_version).as_bytes());
    object.push_tail(&mut bytes);
    bytes.into()
}

/// Only its metadata.
pub(super) fn metadata_only(object: &Object) -> Bytes {
    let mut bytes = Vec::with_capacity(object.metadata().len() + 80);
    push_metadata_only(&mut bytes, object);
    bytes.into()
}

fn push_metadata_only(bytes: &mut Vec<u8>, object: &Object) {
    bytes.extend_from_slice(type_meta("PartialObjectMetadata", "meta.k8s.io/v1").as_bytes());
    bytes.extend_from_slice(b"\"metadata\":");
    bytes.extend_from_slice(object.metadata());
    bytes.push(b'}');
}

/// The beginning of an object, up to its metadata.
fn type_meta(kind: &str, api_version: &str) -> String {
    format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",")
}

/// A list in the requested form.
pub(super) fn many(
    resource: &Resource,
    metadata: &Value,
    items: &[(Arc<str>, Arc<Object>)],
    accept: Accept,
    server: &Server,
) -> Bytes {
    if accept.form == Form::Table {
        let objects: Vec<Arc<Object>> = items.iter().map(|(_, object)| Arc::clone(object)).collect();
        return table::render(resource, metadata, &objects, server.0.clock.now(), true);
    }
    let bytes: usize = items.iter().map(|(_, object)| object.len()).sum();
    let mut out = Vec::with_capacity(bytes + 256);
    let (kind, api_version) = match accept.form {
        Form::MetadataList => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
        Form::Whole | Form::Metadata | Form::Table => (&*resource.list_kind, &*resource.api_version),
    };
    out.extend_from_slice(type_meta(kind, api_version).as_bytes());
    out.extend_from_slice(format!("\"metadata\":{metadata},\"items\":[").as_bytes());
    for (index, (_, object)) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        match accept.form {
            Form::MetadataList => push_metadata_only(&mut out, object),
            // Items of built-in lists have no type.
            Form::Whole | Form::Metadata | Form::Table
                if resource.is_built_in() && *resource.stored == *resource.api_version =>
            {
                out.push(b'{');
                object.push_tail(&mut out);
            }
            Form::Whole | Form::Metadata | Form::Table if resource.is_built_in() => {
                let mut item = convert::from_stored(resource, object).unwrap_or_else(|| object.value());
                if let Some(fields) = item.as_object_mut() {
                    fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
                }
                out.extend_from_slice(item.to_string().as_bytes());
            }
            Form::Whole | Form::Metadata | Form::Table => out.extend_from_slice(&whole(resource, object)),
        }
    }
    out.extend_from_slice(b"]}");
    out.into()
}
