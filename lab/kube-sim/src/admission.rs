// SPDX-License-Identifier: Apache-2.0

//! Admission webhooks, called over real TLS.
//!
//! A webhook has a URL or a Service. Because there is no cluster network, the test tells the server where calls to a
//! Service go. The webhook's certificate is verified against its `caBundle` and, for a Service, against
//! `<service>.<namespace>.svc`.

mod call;
mod conditions;

use std::{borrow::Cow, sync::Arc, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};

use self::conditions::{Conditions, Verdict};
pub(super) use self::{
    call::{Clients, Routes},
    conditions::check,
};
use super::{
    Server, patch,
    refusal::{Named, Refusal},
    resource::{NAMESPACES, Resource},
    selector::Labels,
    write::Writing,
};

/// The write that webhooks review.
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    /// The current object; `None` for a creation.
    pub(super) before: Option<&'a Value>,
}

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

/// The webhooks of all configurations, in calling order.
#[derive(Debug, Default)]
pub(super) struct Webhooks {
    mutating: Vec<Arc<Webhook>>,
    validating: Vec<Arc<Webhook>>,
}

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    name: String,
    /// Its address, as its configuration says.
    pub(super) client: Value,
    rules: Vec<Value>,
    objects: Labels,
    namespaces: Labels,
    conditions: Conditions,
    /// Whether it is also called for other versions than those in its rules.
    equivalent: bool,
    ignores_failure: bool,
    timeout: Duration,
}

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
/// Webhooks are never called for these resources: otherwise a broken one could not be repaired.
const EXEMPT: [&str; 2] = [MUTATING, VALIDATING];

/// Whether a resource's objects configure webhooks.
pub(super) fn is_configuration(resource: &Resource) -> bool {
    EXEMPT.contains(&&*resource.collection)
}

// === impl Operation ===

impl Operation {
    fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

// === impl Webhook ===

impl Webhook {
    fn from_json(value: &Value) -> Webhook {
        let seconds = value["timeoutSeconds"].as_u64().unwrap_or(10);
        Webhook {
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            client: value["clientConfig"].clone(),
            rules: value["rules"].as_array().cloned().unwrap_or_default(),
            objects: Labels::of_object(&value["objectSelector"]),
            namespaces: Labels::of_object(&value["namespaceSelector"]),
            conditions: Conditions::from_webhook(value),
            equivalent: value["matchPolicy"] != "Exact",
            ignores_failure: value["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(seconds),
        }
    }

    /// The version in which it reviews a write: the write's own, or an equivalent one in its rules.
    fn version_of(&self, server: &Server, writing: &Writing<'_>, operation: Operation) -> Option<Arc<Resource>> {
        if self.speaks_of(writing.resource, writing.subresource, operation) {
            return Some(Arc::clone(writing.resource));
        }
        if !self.equivalent || writing.resource.is_built_in() {
            return None;
        }
        let versions = server.versions_of(&writing.resource.collection);
        versions.into_iter().find(|other| self.speaks_of(other, writing.subresource, operation))
    }

    /// Whether one of its rules matches such a write.
    fn speaks_of(&self, resource: &Resource, subresource: Option<&str>, operation: Operation) -> bool {
        let names = |list: &Value, wanted: &str| {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).any(|one| one == "*" || one == wanted)
        };
        let full = match subresource {
            Some(subresource) => format!("{}/{subresource}", resource.plural),
            None => resource.plural.to_string(),
        };
        self.rules.iter().any(|rule| {
            let resources = rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let of_resource = resources.into_iter().any(|one| match (one, subresource) {
                ("*/*", _) => true,
                ("*", None) => true,
                (one, Some(subresource)) if one.strip_prefix("*/") == Some(subresource) => true,
                (one, _) if one.strip_suffix("/*") == Some(&*resource.plural) => true,
                (one, _) => one == full,
            });
            let scope = match rule["scope"].as_str() {
                Some("Cluster") => !resource.namespaced,
                Some("Namespaced") => resource.namespaced,
                _ => true,
            };
            of_resource
                && scope
                && names(&rule["operations"], operation.as_str())
                && names(&rule["apiGroups"], &resource.kind.group)
                && (names(&rule["apiVersions"], &resource.kind.version) || rule["apiVersions"].is_null())
        })
    }

    /// Whether its selectors match the labels of the object, before or after, and of its namespace.
    fn wants(&self, server: &Server, writing: &Writing<'_>, asked: &Asked<'_>, object: Option<&Value>) -> bool {
        let of_object = |object: &Value| self.objects.matches(|label| object.label(label));
        let objects = [object, asked.before].into_iter().flatten();
        let by_object = self.objects.is_empty() || objects.into_iter().any(of_object);
        if !by_object || self.namespaces.is_empty() {
            return by_object;
        }
        if writing.resource.is(NAMESPACES) {
            let namespace = object.or(asked.before);
            return namespace.is_none_or(|of| self.namespaces.matches(|label| of.label(label)));
        }
        if !writing.resource.namespaced {
            return true;
        }
        let namespace = server.0.store.get(NAMESPACES, writing.namespace);
        namespace.is_none_or(|namespace| self.namespaces.matches(|label| namespace.label(label)))
    }
}

/// Labels of an object that is a JSON value.
trait Labelled {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Server {
    /// Calls mutating webhooks and returns the changed object; `None` if nothing changes or the object is deleted.
    pub(super) async fn mutate(
        &self,
        writing: &mut Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Value>, Refusal> {
        let webhooks = self.webhooks();
        let mut mutated: Option<Value> = None;
        for webhook in &webhooks.mutating {
            let current = mutated.as_ref().or(object);
            let shown = current.map(|current| shown(asked.operation, current));
            let Some(version) = self.is_asked(webhook, writing, asked, shown.as_deref())? else { continue };
            let answered = self.ask(webhook, writing, asked, shown.as_deref(), &version, true).await;
            writing.warnings.extend(answered.warnings);
            let Some(patch) = answered.patch? else { continue };
            let Some(current) = current else {
                let name = Value::from(webhook.name.as_str());
                return Err(Refusal::internal_error(&format!(
                    "admission webhook {name} attempted to modify the object, which is not supported for this operation"
                )));
            };
            let current = at(current, &version);
            let patched = patch::json_patch(&current, &patch);
            let mut patched = patched.map_err(|error| Refusal::internal_error(&error.to_string()))?;
            if *version.api_version != *writing.resource.api_version {
                patched["apiVersion"] = (&*writing.resource.api_version).into();
            }
            mutated = Some(patched);
        }
        Ok(mutated)
    }

    /// Calls validating webhooks.
    pub(super) async fn validate(
        &self,
        writing: &mut Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let webhooks = self.webhooks();
        let mut meant = Vec::new();
        for webhook in &webhooks.validating {
            if let Some(version) = self.is_asked(webhook, writing, asked, object)? {
                meant.push((webhook, version));
            }
        }
        let this = &*writing;
        let answers = meant.iter().map(|(webhook, version)| self.ask(webhook, this, asked, object, version, false));
        // They are called concurrently, and the first refusal wins.
        let answers = futures::future::join_all(answers).await;
        let mut refusal = None;
        for answered in answers {
            writing.warnings.extend(answered.warnings);
            refusal = refusal.or(answered.patch.err());
        }
        refusal.map_or(Ok(()), Err)
    }

    /// The version in which a webhook reviews a write; `None` if it is not called. Conditions that fail refuse the
    /// write, unless failures are ignored.
    fn is_asked(
        &self,
        webhook: &Webhook,
        writing: &Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Arc<Resource>>, Refusal> {
        if is_configuration(writing.resource) || !webhook.wants(self, writing, asked, object) {
            return Ok(None);
        }
        let Some(version) = webhook.version_of(self, writing, asked.operation) else { return Ok(None) };
        if webhook.conditions.is_empty() {
            return Ok(Some(version));
        }
        let review = review(self, writing, asked, object, &version);
        let request = &review["request"];
        let (after, before) = (&request["object"], &request["oldObject"]);
        let after = (!after.is_null()).then_some(after);
        let before = (!before.is_null()).then_some(before);
        match webhook.conditions.judge(after, before, request) {
            Verdict::Matches => Ok(Some(version)),
            Verdict::Fails(problem) if !webhook.ignores_failure => {
                let name = request["name"].as_str().unwrap_or_default();
                Err(Refusal::forbidden(&Named::resource(writing.resource, name), &problem))
            }
            Verdict::Differs | Verdict::Fails(_) => Ok(None),
        }
    }

    /// Whether any webhook might review a write.
    pub(super) fn is_judged(&self) -> bool {
        let webhooks = self.webhooks();
        !(webhooks.validating.is_empty() && webhooks.mutating.is_empty())
    }

    /// The webhooks of all configurations, read again after these have changed.
    fn webhooks(&self) -> Arc<Webhooks> {
        let mut known = self.0.admission.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(webhooks) = known.as_ref() {
            return Arc::clone(webhooks);
        }
        let of = |collection: &str| -> Vec<Arc<Webhook>> {
            let mut webhooks = Vec::new();
            for (_, configuration) in self.0.store.all(collection) {
                let value = configuration.value();
                let these = value["webhooks"].as_array().into_iter().flatten();
                webhooks.extend(these.map(|webhook| Arc::new(Webhook::from_json(webhook))));
            }
            webhooks
        };
        let webhooks = Arc::new(Webhooks { mutating: of(MUTATING), validating: of(VALIDATING) });
        *known = Some(Arc::clone(&webhooks));
        webhooks
    }

    /// Drops the cached configurations.
    pub(super) fn webhooks_changed(&self) {
        *self.0.admission.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// Calls one webhook. A failed call matters only if the failure policy says so.
    async fn ask(
        &self,
        webhook: &Webhook,
        writing: &Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
        version: &Resource,
        mutating: bool,
    ) -> Answered {
        let review = review(self, writing, asked, object, version);
        let answer = self.0.clients.call(webhook, webhook.timeout, &review).await;
        let answer = answer.map_err(|problem| format!("failed to call webhook: {problem}")).and_then(|answer| {
            match response_problem(&answer["response"], &review["request"]["uid"], mutating) {
                Some(problem) => Err(format!("received invalid webhook response: {problem}")),
                None => Ok(answer),
            }
        });
        let failed = |problem: String| {
            if webhook.ignores_failure {
                return Ok(None);
            }
            let name = Value::from(webhook.name.as_str());
            Err(Refusal::internal_error(&format!("failed calling webhook {name}: {problem}")))
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(problem) => return Answered { warnings: Vec::new(), patch: failed(problem) },
        };
        let response = &answer["response"];
        let texts = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let warnings = texts.map(str::to_owned).collect();
        if response["allowed"] != true {
            return Answered { warnings, patch: Err(denial(webhook, &response["status"])) };
        }
        let patch = match patch_of(response) {
            Ok(patch) => Ok(patch.filter(|_| mutating)),
            Err(problem) => failed(problem),
        };
        Answered { warnings, patch }
    }
}

/// The answer of a webhook.
struct Answered {
    /// Texts for the `Warning` header.
    warnings: Vec<String>,
    /// The change, if any, or the refusal.
    patch: Result<Option<Value>, Refusal>,
}

/// The patch of a response; `None` if it changes nothing.
fn patch_of(response: &Value) -> Result<Option<Value>, String> {
    let Some(text) = response["patch"].as_str().filter(|text| !text.is_empty()) else { return Ok(None) };
    let undecodable = |problem: String| format!("received undecodable patch in webhook response: {problem}");
    let bytes = call::decode_patch(text).map_err(undecodable)?;
    let patch = match patch::syntax_error(&bytes) {
        Some(problem) => return Err(undecodable(problem)),
        None => patch::parse_json(&bytes).map_err(undecodable)?,
    };
    match &patch {
        Value::Null => Ok(None),
        Value::Array(operations) if operations.is_empty() => Ok(None),
        Value::Array(operations) => match operations.iter().find(|of| !of.is_object() && !of.is_null()) {
            Some(other) => Err(undecodable(format!(
                "json: cannot unmarshal {} into Go value of type jsonpatch.Operation",
                patch::go_type(other)
            ))),
            None if response["patchType"] != "JSONPatch" => {
                Err(format!("unsupported patch type {}", response["patchType"]))
            }
            None => Ok(Some(patch)),
        },
        other => Err(undecodable(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            patch::go_type(other)
        ))),
    }
}

/// An object in another version of its kind.
fn at<'a>(object: &'a Value, version: &Resource) -> Cow<'a, Value> {
    if object["apiVersion"] == *version.api_version {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    object["apiVersion"] = (&*version.api_version).into();
    Cow::Owned(object)
}

/// Why a response is not a valid answer to this request.
fn response_problem(response: &Value, uid: &Value, mutating: bool) -> Option<String> {
    let text = |field: &str| response[field].as_str().unwrap_or_default();
    let (patch, patch_type) = (text("patch"), response["patchType"].as_str());
    if response.is_null() {
        return Some("webhook response was absent".to_owned());
    }
    if response["uid"] != *uid {
        return Some(format!("expected response.uid={uid}, got {}", Value::from(text("uid"))));
    }
    match patch_type {
        _ if !mutating && !patch.is_empty() => Some("validating webhook may not return response.patch".to_owned()),
        Some(_) if !mutating => Some("validating webhook may not return response.patchType".to_owned()),
        None if !patch.is_empty() => Some("webhook returned response.patch but not response.patchType".to_owned()),
        Some(_) if patch.is_empty() => Some("webhook returned response.patchType but not response.patch".to_owned()),
        Some("") => Some("webhook returned invalid response.patchType of \"\"".to_owned()),
        None | Some(_) => None,
    }
}

/// The object as mutating webhooks see it: a new one has no identity yet.
fn shown(operation: Operation, object: &Value) -> Cow<'_, Value> {
    if operation != Operation::Create {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "creationTimestamp", "generation"] {
            metadata.shift_remove(field);
        }
    }
    Cow::Owned(object)
}

fn denial(webhook: &Webhook, status: &Value) -> Refusal {
    let name = Value::from(webhook.name.as_str());
    let code = status["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
    let code = code.filter(|code| code.as_u16() >= 400);
    let (message, reason) = (status["message"].as_str(), status["reason"].as_str());
    let message = match (message.filter(|text| !text.is_empty()), reason.filter(|text| !text.is_empty())) {
        (Some(message), _) => format!("admission webhook {name} denied the request: {message}"),
        (None, Some(reason)) => format!("admission webhook {name} denied the request: {reason}"),
        (None, None) => format!("admission webhook {name} denied the request without explanation"),
    };
    let refusal = Refusal::denied(code.unwrap_or(StatusCode::BAD_REQUEST), reason.unwrap_or_default(), message);
    match &status["details"] {
        Value::Null => refusal,
        details => refusal.with(details.clone()),
    }
}

fn review(
    server: &Server,
    writing: &Writing<'_>,
    asked: &Asked<'_>,
    object: Option<&Value>,
    version: &Resource,
) -> Value {
    let resource = writing.resource;
    let kind = |of: &Resource| json!({"group": of.kind.group, "version": of.kind.version, "kind": of.kind.kind});
    let place = |of: &Resource| json!({"group": of.kind.group, "version": of.kind.version, "resource": of.plural});
    let name = object.or(asked.before).and_then(|object| object["metadata"]["name"].as_str()).unwrap_or_default();
    let mut request = json!({
        "uid": server.0.clock.uid(),
        "kind": kind(version),
        "resource": place(version),
        "requestKind": kind(resource),
        "requestResource": place(resource),
        "name": name,
        "operation": asked.operation.as_str(),
        "userInfo": writing.user.info(),
        "object": object.map(|object| at(object, version)),
        "oldObject": asked.before.map(|before| at(before, version)),
        "dryRun": writing.options.dry_run,
        "options": options(asked.operation, &writing.options.sent),
    });
    if resource.namespaced {
        request["namespace"] = writing.namespace.into();
    } else if resource.is(NAMESPACES) {
        request["namespace"] = name.into();
    }
    if let Some(subresource) = writing.subresource {
        request["subResource"] = subresource.into();
        request["requestSubResource"] = subresource.into();
    }
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
}

/// The options of a write, with their kind, which depends on the operation.
fn options(operation: Operation, sent: &Value) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    if let (Some(options), Some(sent)) = (options.as_object_mut(), sent.as_object()) {
        options.extend(sent.iter().map(|(name, value)| (name.clone(), value.clone())));
    }
    options
}

impl Labelled for Value {
    fn label(&self, key: &str) -> Option<&str> {
        self["metadata"]["labels"][key].as_str()
    }
}
