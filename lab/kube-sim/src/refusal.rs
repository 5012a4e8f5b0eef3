// SPDX-License-Identifier: Apache-2.0

//! The server's errors: a `Status` with the code, reason, message and details of kube-apiserver.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::resource::Resource;

/// A refused request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: StatusCode,
    /// Empty if the server gives none.
    reason: Cow<'static, str>,
    message: String,
    details: Option<Box<Value>>,
    /// Texts for the `Warning` header.
    pub(super) warnings: Vec<String>,
}

/// One error of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// A path such as `spec.size`.
    pub(super) field: String,
    pub(super) reason: &'static str,
    /// Without the path.
    pub(super) message: String,
}

/// The name of an object in messages: its group, its resource or kind, and its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named<'a> {
    pub(super) group: &'a str,
    /// The plural in most messages, the kind in some.
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
}

/// Limit of a body.
pub(super) const BODY_BYTES_MAX: usize = 3 << 20;

// === impl Cause ===

impl Cause {
    pub(super) fn invalid(field: &str, value: impl std::fmt::Display, detail: &str) -> Cause {
        Cause {
            field: field.to_owned(),
            reason: "FieldValueInvalid",
            message: format!("Invalid value: {value}: {detail}"),
        }
    }

    /// An invalid text, quoted as Go quotes it.
    pub(super) fn invalid_text(field: &str, value: &str, detail: &str) -> Cause {
        Cause::invalid(field, Value::from(value), detail)
    }

    pub(super) fn required(field: &str, detail: &str) -> Cause {
        let message = if detail.is_empty() { "Required value".to_owned() } else { format!("Required value: {detail}") };
        Cause { field: field.to_owned(), reason: "FieldValueRequired", message }
    }

    pub(super) fn forbidden(field: &str, detail: &str) -> Cause {
        Cause { field: field.to_owned(), reason: "FieldValueForbidden", message: format!("Forbidden: {detail}") }
    }

    pub(super) fn too_long(field: &str, bytes: u64) -> Cause {
        let message = format!("Too long: may not be more than {bytes} bytes");
        Cause { field: field.to_owned(), reason: "FieldValueTooLong", message }
    }

    pub(super) fn unsupported(field: &str, value: impl std::fmt::Display, supported: &[&str]) -> Cause {
        let supported: Vec<String> = supported.iter().map(|text| Value::from(*text).to_string()).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        Cause { field: field.to_owned(), reason: "FieldValueNotSupported", message }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

// === impl Named ===

impl<'a> Named<'a> {
    /// Named by the plural.
    pub(super) fn resource(resource: &'a Resource, name: &'a str) -> Named<'a> {
        Named { group: &resource.kind.group, kind: &resource.plural, name }
    }

    /// Named by the kind.
    pub(super) fn of_kind(resource: &'a Resource, name: &'a str) -> Named<'a> {
        Named { group: &resource.kind.group, kind: &resource.kind.kind, name }
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !value.is_empty() {
                details.insert(key.to_owned(), value.into());
            }
        }
        details
    }
}

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} {}", self.kind, self.group, Value::from(self.name))
    }
}

// === impl Refusal ===

impl Refusal {
    fn new(code: StatusCode, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Refusal {
        Refusal { code, reason: reason.into(), message: message.into(), details: None, warnings: Vec::new() }
    }

    pub(super) fn with(self, details: impl Into<Value>) -> Refusal {
        Refusal { details: Some(Box::new(details.into())), ..self }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 500 without a reason, as in the server for internal errors.
    pub(super) fn internal(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 500 with the reason `InternalError`.
    pub(super) fn internal_error(message: &str) -> Refusal {
        let details = json!({"causes": [{"message": message}]});
        let text = format!("Internal error occurred: {message}");
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text).with(details)
    }

    pub(super) fn not_found(named: &Named<'_>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, "NotFound", format!("{named} not found")).with(named.details())
    }

    /// The resource or subresource does not exist.
    pub(super) fn not_served() -> Refusal {
        let message = "the server could not find the requested resource";
        Refusal::new(StatusCode::NOT_FOUND, "NotFound", message).with(Map::new())
    }

    pub(super) fn exists(named: &Named<'_>) -> Refusal {
        Refusal::new(StatusCode::CONFLICT, "AlreadyExists", format!("{named} already exists")).with(named.details())
    }

    pub(super) fn conflict(named: &Named<'_>, why: &str) -> Refusal {
        let message = format!("Operation cannot be fulfilled on {named}: {why}");
        Refusal::new(StatusCode::CONFLICT, "Conflict", message).with(named.details())
    }

    /// The object has changed since the writer read it.
    pub(super) fn modified(named: &Named<'_>) -> Refusal {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Refusal::conflict(named, why)
    }

    pub(super) fn method_not_allowed() -> Refusal {
        let message = "the server does not allow this method on the requested resource";
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(Map::new())
    }

    /// A custom resource, or a subresource of one, does not support the verb.
    pub(super) fn unsupported(resource: &Resource, verb: &str) -> Refusal {
        let named = Named::resource(resource, "");
        let message = format!("{verb} is not supported on resources of kind {}", Value::from(&*resource.collection));
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).with(named.details())
    }

    /// The real server supports this, but this one does not.
    pub(super) fn not_implemented(what: &str) -> Refusal {
        let message = format!("{what} is not simulated");
        Refusal::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", message).with(Map::new())
    }

    pub(super) fn unsupported_media(accepted: &str) -> Refusal {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// The real server accepts these for built-in kinds.
    pub(super) fn no_strategic_merge() -> Refusal {
        let message = "strategic merge patches are not simulated: use `kubectl apply --server-side` or `kubectl patch \
            --type=merge` instead";
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    /// A patch type that the server does not route.
    pub(super) fn unsupported_patch() -> Refusal {
        let message = "415: Unsupported Media Type";
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message).with(Map::new())
    }

    pub(super) fn not_acceptable(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// The request accepts none of the available media types. A request that may watch has more of them.
    pub(super) fn no_representation(many: bool) -> Refusal {
        let streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf{}",
            if many { streams } else { "" }
        );
        Refusal::not_acceptable(message).with(Map::new())
    }

    pub(super) fn too_large() -> Refusal {
        let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(super) fn unauthorized() -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(super) fn forbidden(named: &Named<'_>, why: &str) -> Refusal {
        let message = format!("{named} is forbidden: {why}");
        Refusal::new(StatusCode::FORBIDDEN, "Forbidden", message).with(named.details())
    }

    /// As [`Refusal::forbidden`], for all objects of a resource.
    pub(super) fn forbidden_all(named: &Named<'_>, why: &str) -> Refusal {
        let dot = if named.group.is_empty() { "" } else { "." };
        let message = format!("{}{dot}{} is forbidden: {why}", named.kind, named.group);
        Refusal::new(StatusCode::FORBIDDEN, "Forbidden", message).with(named.details())
    }

    /// A forbidden path that is not a resource's.
    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Refusal {
        let message = format!("forbidden: User {} cannot {verb} path {}", Value::from(user), Value::from(path));
        Refusal::new(StatusCode::FORBIDDEN, "Forbidden", message).with(Map::new())
    }

    /// A creation in a namespace that is being deleted.
    pub(super) fn namespace_terminating(named: &Named<'_>, namespace: &str) -> Refusal {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut refusal = Refusal::forbidden(named, &why);
        if let Some(details) = refusal.details.as_mut() {
            details["causes"] = json!([{
                "reason": "NamespaceTerminating",
                "message": format!("namespace {namespace} is being terminated"),
                "field": "metadata.namespace",
            }]);
        }
        refusal
    }

    /// An object is invalid. `named` contains its kind.
    pub(super) fn invalid(named: &Named<'_>, causes: &[Cause]) -> Refusal {
        let texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [only] => only.clone(),
            // Duplicate messages are shown once, but all are in the details.
            texts => {
                let mut said: Vec<&String> = Vec::new();
                texts.iter().for_each(|text| {
                    if !said.contains(&text) {
                        said.push(text);
                    }
                });
                let said: Vec<&str> = said.into_iter().map(String::as_str).collect();
                if said.len() == 1 { said[0].to_owned() } else { format!("[{}]", said.join(", ")) }
            }
        };
        let mut details = named.details();
        let cause = |cause: &Cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
        details.insert("causes".to_owned(), causes.iter().map(cause).collect());
        let message = format!("{named} is invalid: {list}");
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(details)
    }

    /// Parameters of a request are invalid: `kind` is `CreateOptions` or similar.
    pub(super) fn invalid_options(kind: &str, causes: &[Cause]) -> Refusal {
        Refusal::invalid(&Named { group: "meta.k8s.io", kind, name: "" }, causes)
    }

    /// A valid patch that does not match the object.
    pub(super) fn unfitting_patch() -> Refusal {
        let message = "the server rejected our request due to an error in our request";
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with(Map::new())
    }

    /// The version for a list or watch is no longer stored.
    pub(super) fn expired(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::GONE, "Expired", message)
    }

    /// The requested version is in the future.
    pub(super) fn too_large_version(asked: u64, current: u64) -> Refusal {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Refusal::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", message).with(json!({
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        }))
    }

    /// The refusal of an admission webhook: its code, reason and message.
    pub(super) fn denied(code: StatusCode, reason: &str, message: String) -> Refusal {
        Refusal::new(code, reason.to_owned(), message)
    }

    /// A `Status` from elsewhere.
    pub(super) fn of_status(status: &Value) -> Refusal {
        let code = status["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
        let reason = match status["reason"].as_str().unwrap_or_default() {
            "Conflict" => "Conflict",
            "BadRequest" => "BadRequest",
            "Invalid" => "Invalid",
            "RequestEntityTooLarge" => "RequestEntityTooLarge",
            _ => "",
        };
        Refusal {
            code: code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            reason: reason.into(),
            message: status["message"].as_str().unwrap_or_default().to_owned(),
            details: status.get("details").cloned().map(Box::new),
            warnings: Vec::new(),
        }
    }

    pub(super) fn warning(self, warnings: Vec<String>) -> Refusal {
        Refusal { warnings, ..self }
    }

    /// The `Retry-After`, in seconds.
    pub(super) fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?["retryAfterSeconds"].as_u64()
    }

    /// The message.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// The `Status`.
    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = (*self.reason).into();
        }
        if let Some(details) = &self.details {
            status["details"] = Value::clone(details);
        }
        status["code"] = self.code.as_u16().into();
        status
    }

    /// The body of the answer.
    pub(super) fn body(&self) -> Bytes {
        self.status().to_string().into()
    }
}
