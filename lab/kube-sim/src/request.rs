// SPDX-License-Identifier: Apache-2.0

//! Parses a request: its path, its parameters and the form of its answer.

use std::borrow::Cow;

use http::{HeaderMap, Method, header};
use serde_json::{Value, json};

use super::{
    refusal::{Cause, Refusal},
    text,
};

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// For example `/api/v1/namespaces/default/configmaps/one`.
    Resource(ResourcePath),
    /// Anything else, such as `/version`.
    Other,
}

/// A resource's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourcePath {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// The parameters of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parameters(Vec<(String, String)>);

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub(super) form: Form,
    pub(super) yaml: bool,
}

/// Which part of objects is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    /// `PartialObjectMetadata`
    Metadata,
    /// `PartialObjectMetadataList`
    MetadataList,
    /// `Table`
    Table,
}

/// What happens to unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    Ignore,
    Warn,
    Refuse,
}

/// The options of a write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WriteOptions {
    pub(super) dry_run: bool,
    pub(super) manager: String,
    pub(super) unknown: Unknown,
    pub(super) force: bool,
    /// The options of the request, in the form that webhooks get.
    pub(super) sent: Value,
}

/// Limit of a field manager's name, in bytes.
const MANAGER_LEN_MAX: usize = 128;

// === impl Route ===

impl Route {
    /// Parses a path. `None` if a part of it is not UTF-8.
    pub(super) fn parse(path: &str) -> Option<Route> {
        let parts: Option<Vec<String>> =
            path.trim_matches('/').split('/').map(|part| decode(part, false).map(Cow::into_owned)).collect();
        let parts = parts?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", rest @ ..] => ("", rest),
            ["apis", group, rest @ ..] => (*group, rest),
            _ => return Some(Route::Other),
        };
        let [version, rest @ ..] = rest else { return Some(Route::Other) };
        let (namespace, rest) = match rest {
            // Namespaces themselves and their subresources.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let [plural, rest @ ..] = rest else { return Some(Route::Other) };
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some(*name), None),
            [name, subresource @ ..] => (Some(*name), Some(subresource.join("/"))),
        };
        Some(Route::Resource(ResourcePath {
            group: group.to_owned(),
            version: (*version).to_owned(),
            plural: (*plural).to_owned(),
            namespace,
            name: name.map(str::to_owned),
            subresource,
        }))
    }
}

// === impl Parameters ===

impl Parameters {
    /// Parses a query.
    pub(super) fn parse(query: &str) -> Parameters {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?.into_owned(), decode(value, true)?.into_owned()))
        });
        Parameters(pairs.collect())
    }

    /// The first value of a parameter; `None` if it is empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }

    /// Whether a parameter is set and not false. As in the server, any other text means true.
    pub(super) fn flag(&self, name: &str) -> bool {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.is_some_and(|(_, value)| !matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    /// An integer parameter.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Refusal> {
        let Some(text) = self.get(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| Refusal::bad_request(text::number_problem("ParseInt", text)))
    }

    /// The options of a write. `kind` is the name of the options in messages; `apply` says whether it is a server-side
    /// apply.
    pub(super) fn write_options(&self, kind: &str, headers: &HeaderMap, apply: bool) -> Result<WriteOptions, Refusal> {
        let mut causes = Vec::new();
        if apply && self.get("fieldManager").is_none() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
        if kind == "PatchOptions" && !apply && self.get("force").is_some() {
            causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
        }
        if self.get("fieldManager").is_some_and(|manager| MANAGER_LEN_MAX < manager.len()) {
            causes.push(Cause::too_long("fieldManager", MANAGER_LEN_MAX as u64));
        }
        let dry_run = self.all("dryRun");
        if dry_run.iter().any(|one| *one != "All") {
            causes.push(Cause::unsupported("dryRun", json!(dry_run), &["All"]));
        }
        let unknown = match self.get("fieldValidation") {
            Some("Ignore") => Unknown::Ignore,
            None | Some("Warn") => Unknown::Warn,
            Some("Strict") => Unknown::Refuse,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                causes.push(Cause::unsupported("fieldValidation", Value::from(other), &supported));
                Unknown::Warn
            }
        };
        if !causes.is_empty() {
            return Err(Refusal::invalid_options(kind, &causes));
        }
        let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let manager = self.get("fieldManager").map_or_else(|| super::patch::manager_from_agent(agent), str::to_owned);
        let mut sent = json!({});
        if !dry_run.is_empty() {
            sent["dryRun"] = json!(dry_run);
        }
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = self.get(name) {
                sent[name] = value.into();
            }
        }
        Ok(WriteOptions { dry_run: !dry_run.is_empty(), manager, unknown, force: self.flag("force"), sent })
    }
}

/// Percent-decoding; in queries, a plus is a space.
pub(super) fn decode(text: &str, is_query: bool) -> Option<Cow<'_, str>> {
    let is_plain = |c: char| c != '%' && (c != '+' || !is_query);
    if text.chars().all(is_plain) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let hex = [rest.next()?, rest.next()?];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
            }
            b'+' if is_query => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

// === impl Accept ===

impl Accept {
    /// Parses the `Accept` header. `many` says that the answer is a list.
    pub(super) fn from_headers(headers: &HeaderMap, many: bool) -> Result<Accept, Refusal> {
        let text = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if text.trim().is_empty() {
            return Ok(Accept { form: Form::Whole, yaml: false });
        }
        let mut known_type = false;
        for clause in text.split(',') {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let yaml = match media {
                "application/json" | "*/*" | "application/*" => false,
                "application/yaml" => true,
                _ => continue,
            };
            known_type = true;
            let parameter = |name: &str| {
                clause.split(';').skip(1).find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='))
            };
            let form = match parameter("as") {
                None => Form::Whole,
                Some(_) if parameter("g") != Some("meta.k8s.io") || parameter("v") != Some("v1") => continue,
                Some("PartialObjectMetadata") => Form::Metadata,
                Some("PartialObjectMetadataList") => Form::MetadataList,
                Some("Table") => Form::Table,
                Some(_) => continue,
            };
            return Ok(Accept { form, yaml });
        }
        if known_type {
            let accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Err(Refusal::not_acceptable(format!("only the following media types are accepted: {accepted}")));
        }
        Err(Refusal::no_representation(many))
    }
}

/// The verb of a request on a resource, as in RBAC.
pub(super) fn verb(method: &Method, place: &ResourcePath, watching: bool) -> &'static str {
    match (method.as_str(), place.name.is_some()) {
        ("GET", _) if watching => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "get",
    }
}

#[cfg(test)]
mod tests;
