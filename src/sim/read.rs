//! GET and LIST: objects as they lie in the store, in the form that is asked for.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{
    Server, convert,
    refusal::{Cause, Named, Refusal},
    request::{Accept, Form, Parameters},
    resource::Resource,
    selector::{Fields, Labels},
    store::{Object, key, split_key},
    table, text,
};

/// Which objects a list or a watch asks for.
#[derive(Debug, Default)]
pub(super) struct Filter {
    pub(super) labels: Labels,
    pub(super) fields: Fields,
}

const NO_VERSION: &str = "resourceVersionMatch is forbidden unless resourceVersion is provided";

/// A page that goes on where another one ended.
struct Continue {
    version: u64,
    after: String,
}

// === impl Filter ===

impl Filter {
    pub(super) fn parse(resource: &Resource, parameters: &Parameters) -> Result<Filter, Refusal> {
        let labels = parameters.get("labelSelector").map(Labels::parse).transpose()?.unwrap_or_default();
        let fields = parameters.get("fieldSelector").map(Fields::parse).transpose()?.unwrap_or_default();
        let known = resource.selectable();
        if let Some(term) = fields.0.iter().find(|term| !known.contains(&term.path.as_str())) {
            let has_own = matches!(&*resource.collection, "events" | "secrets" | "namespaces" | "pods");
            return Err(Refusal::bad_request(if resource.is_built_in() && !has_own {
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

    /// Whether an object is asked for.
    pub(super) fn wants(&self, key: &str, object: &Object) -> bool {
        if !self.labels.matches(|label| object.label(label)) {
            return false;
        }
        if self.fields.is_empty() {
            return true;
        }
        let (namespace, name) = split_key(key);
        // The value is parsed only for fields that the key does not tell.
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

/// The value of a field as selectors compare it.
fn field(object: &Value, path: &str) -> String {
    let path = match (path, object["kind"].as_str()) {
        ("source", Some("Event")) => "source.component",
        (path, _) => path,
    };
    let value = path.split('.').try_fold(object, |value, part| value.get(part));
    match value {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
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
        if let Some(version) = parameters.get("resourceVersion") {
            // Unlike a list, one object fails here by an error of the server's own.
            let problem = |_| Refusal::internal(version_problem(version));
            self.check_version(version.parse().map_err(problem)?)?;
        }
        let object = self.find(resource, namespace, name)?;
        one(resource, &object, accept, self)
    }

    /// An object, or that it is not there.
    pub(super) fn find(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Arc<Object>, Refusal> {
        let found = self.0.store.get(&resource.collection, &key(namespace, name));
        found.ok_or_else(|| Refusal::not_found(&Named::of(resource, name)))
    }

    fn check_version(&self, version: u64) -> Result<(), Refusal> {
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
        check_list_options(parameters)?;
        let filter = Filter::parse(resource, parameters)?;
        let limit = parameters.number("limit")?.filter(|limit| *limit > 0);
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        parameters.number("timeoutSeconds")?;
        let from = parameters.get("continue").map(Continue::parse).transpose()?;
        match (&from, parameters.get("resourceVersion")) {
            (Some(_), Some(version)) if version != "0" => {
                return Err(Refusal::bad_request("specifying resource version is not allowed when using continue"));
            }
            (None, Some(version)) => self.check_version(parse_version(version)?)?,
            _ => {}
        }
        if let Some(from) = &from
            && self.0.store.news(&resource.collection, from.version).is_err()
        {
            return Err(Refusal::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter.",
            ));
        }
        let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
        let after = from.as_ref().map(|from| format!("{prefix}{}", from.after));
        let page = self
            .0
            .store
            .list(&resource.collection, &prefix, after.as_deref(), limit, |key, object| filter.wants(key, object));
        let version = from.map_or(page.version, |from| from.version);
        let next = page
            .items
            .last()
            .filter(|_| page.remaining > 0)
            .map(|(key, _)| Continue { version, after: key.strip_prefix(&*prefix).unwrap_or(key).to_owned() });
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

/// A version as a parameter gives it.
pub(super) fn parse_version(text: &str) -> Result<u64, Refusal> {
    text.parse().map_err(|_| Refusal::bad_request(format!("invalid resource version: {}", version_problem(text))))
}

fn version_problem(text: &str) -> String {
    Cause::invalid_text("resourceVersion", text, &text::number_problem("ParseUint", text)).to_string()
}

/// Parameters that lists and watches share.
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
        let refuse = |problem: String| {
            Refusal::bad_request(format!("invalid continue token: continue key is not valid: {problem}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|error| refuse(error.to_string()))?;
        if let Some(problem) = super::patch::syntax_error(&bytes) {
            return Err(refuse(problem));
        }
        let value: Value = serde_json::from_slice(&bytes).map_err(|error| refuse(error.to_string()))?;
        let version = value["rv"].as_u64().filter(|version| *version > 0);
        let version = version
            .ok_or_else(|| refuse("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned()))?;
        let after = value["start"].as_str().unwrap_or_default();
        let after = after.trim_start_matches('/').trim_end_matches('\0').to_owned();
        Ok(Continue { version, after })
    }

    fn text(&self) -> String {
        let token = json!({"v": "meta.k8s.io/v1", "rv": self.version, "start": format!("/{}\0", self.after)});
        URL_SAFE_NO_PAD.encode(token.to_string())
    }
}

/// What Go calls the objects of a resource, in messages.
fn go_type(resource: &Resource, list: bool) -> String {
    match (resource.is_built_in(), list) {
        (true, false) => format!("*core.{}", resource.kind.kind),
        (true, true) => format!("*core.{}", resource.list_kind),
        (false, false) => "*unstructured.Unstructured".to_owned(),
        (false, true) => "*unstructured.UnstructuredList".to_owned(),
    }
}

/// An object in the form that is asked for.
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
            Ok(table::of(resource, &metadata, std::slice::from_ref(object), server.0.clock.now(), true))
        }
    }
}

/// The whole object, at the version of the resource.
pub(super) fn whole(resource: &Resource, object: &Object) -> Bytes {
    if *resource.stored == *resource.api_version {
        return object.bytes();
    }
    if let Some(converted) = convert::from_stored(resource, object) {
        return converted.to_string().into();
    }
    // Versions of a custom resource differ in their name only.
    let mut bytes = Vec::with_capacity(object.len() + 32);
    bytes.extend_from_slice(type_meta(&resource.kind.kind, &resource.api_version).as_bytes());
    object.push_tail(&mut bytes);
    bytes.into()
}

/// Its metadata alone.
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

/// A list in the form that is asked for.
pub(super) fn many(
    resource: &Resource,
    metadata: &Value,
    items: &[(Arc<str>, Arc<Object>)],
    accept: Accept,
    server: &Server,
) -> Bytes {
    if accept.form == Form::Table {
        let objects: Vec<Arc<Object>> = items.iter().map(|(_, object)| Arc::clone(object)).collect();
        return table::of(resource, metadata, &objects, server.0.clock.now(), true);
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
            // Items of built-in lists have no type of their own.
            Form::Whole | Form::Metadata | Form::Table
                if resource.is_built_in() && *resource.stored == *resource.api_version =>
            {
                out.push(b'{');
                object.push_tail(&mut out);
            }
            Form::Whole | Form::Metadata | Form::Table => out.extend_from_slice(&whole(resource, object)),
        }
    }
    out.extend_from_slice(b"]}");
    out.into()
}
