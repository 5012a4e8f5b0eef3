//! Admission webhooks, called for real over TLS.
//!
//! A webhook is reached by its URL, or by its Service: where the calls to a Service go is told to the server, since
//! there is no cluster network here. Its certificate is verified against its `caBundle` and, for a Service, against
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

/// What webhooks are asked about.
pub(super) struct Asked<'a> {
    pub(super) operation: Operation,
    /// The object as it is, unless it is being created.
    pub(super) before: Option<&'a Value>,
}

/// What is done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Create,
    Update,
    Delete,
}

/// The webhooks of all configurations, in the order in which they are asked.
#[derive(Debug, Default)]
pub(super) struct Webhooks {
    mutating: Vec<Arc<Webhook>>,
    validating: Vec<Arc<Webhook>>,
}

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    name: String,
    /// Where it is, as its configuration says.
    pub(super) client: Value,
    rules: Vec<Value>,
    objects: Labels,
    namespaces: Labels,
    conditions: Conditions,
    ignores_failure: bool,
    timeout: Duration,
}

const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
/// No webhook is asked about these: a broken one could not be mended otherwise.
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
    fn of(value: &Value) -> Webhook {
        let seconds = value["timeoutSeconds"].as_u64().unwrap_or(10);
        Webhook {
            name: value["name"].as_str().unwrap_or_default().to_owned(),
            client: value["clientConfig"].clone(),
            rules: value["rules"].as_array().cloned().unwrap_or_default(),
            objects: Labels::of_object(&value["objectSelector"]),
            namespaces: Labels::of_object(&value["namespaceSelector"]),
            conditions: Conditions::of(value),
            ignores_failure: value["failurePolicy"] == "Ignore",
            timeout: Duration::from_secs(seconds),
        }
    }

    /// Whether one of its rules speaks of the write.
    fn speaks_of(&self, writing: &Writing<'_>, operation: Operation) -> bool {
        let resource = writing.resource;
        let names = |list: &Value, wanted: &str| {
            list.as_array().into_iter().flatten().filter_map(Value::as_str).any(|one| one == "*" || one == wanted)
        };
        let full = match writing.subresource {
            Some(subresource) => format!("{}/{subresource}", resource.plural),
            None => resource.plural.to_string(),
        };
        self.rules.iter().any(|rule| {
            let resources = rule["resources"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let of_resource = resources.into_iter().any(|one| match (one, writing.subresource) {
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
            // The policy `Equivalent` finds other versions as well; all of ours have one group.
            of_resource
                && scope
                && names(&rule["operations"], operation.as_str())
                && names(&rule["apiGroups"], &resource.kind.group)
                && (names(&rule["apiVersions"], &resource.kind.version) || rule["apiVersions"].is_null())
        })
    }

    /// Whether the labels of the object, before or after, and of its namespace are asked for.
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

/// Labels of an object that is a value.
trait Labelled {
    fn label(&self, key: &str) -> Option<&str>;
}

impl Server {
    /// What mutating webhooks make of an object; none if they leave it as it is, or if there is none since it goes.
    pub(super) async fn mutate(
        &self,
        writing: &Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Value>, Refusal> {
        let webhooks = self.webhooks();
        let mut mutated: Option<Value> = None;
        for webhook in &webhooks.mutating {
            let current = mutated.as_ref().or(object);
            let shown = current.map(|current| shown(asked.operation, current));
            if !self.is_asked(webhook, writing, asked, shown.as_deref())? {
                continue;
            }
            let Some(response) = self.ask(webhook, writing, asked, shown.as_deref(), true).await? else { continue };
            if let Some(patch) = response.patch {
                let Some(current) = current else {
                    let name = Value::from(webhook.name.as_str());
                    return Err(Refusal::internal_error(&format!(
                        "admission webhook {name} attempted to modify the object, which is not supported for this operation"
                    )));
                };
                let patched =
                    patch::json_patch(current, &patch).map_err(|error| Refusal::internal_error(&error.to_string()))?;
                mutated = Some(patched);
            }
        }
        Ok(mutated)
    }

    /// Asks validating webhooks.
    pub(super) async fn validate(
        &self,
        writing: &Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Result<(), Refusal> {
        let webhooks = self.webhooks();
        let mut answers = Vec::new();
        for webhook in &webhooks.validating {
            if self.is_asked(webhook, writing, asked, object)? {
                answers.push(self.ask(webhook, writing, asked, object, false));
            }
        }
        // They are asked side by side, and the first refusal counts.
        for answer in futures::future::join_all(answers).await {
            answer?;
        }
        Ok(())
    }

    /// Whether a webhook is asked. Conditions that say neither so nor so refuse the write, unless failures are ignored.
    fn is_asked(
        &self,
        webhook: &Webhook,
        writing: &Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
    ) -> Result<bool, Refusal> {
        let is_meant = !is_configuration(writing.resource)
            && webhook.speaks_of(writing, asked.operation)
            && webhook.wants(self, writing, asked, object);
        if !is_meant || webhook.conditions.is_empty() {
            return Ok(is_meant);
        }
        let review = review(self, writing, asked, object);
        match webhook.conditions.judge(object, asked.before, &review["request"]) {
            Verdict::Matches => Ok(true),
            Verdict::Fails(problem) if !webhook.ignores_failure => {
                let name = review["request"]["name"].as_str().unwrap_or_default();
                Err(Refusal::forbidden(&Named::of(writing.resource, name), &problem))
            }
            Verdict::Differs | Verdict::Fails(_) => Ok(false),
        }
    }

    /// Whether any webhook might be asked to judge a write.
    pub(super) fn is_judged(&self) -> bool {
        let webhooks = self.webhooks();
        !(webhooks.validating.is_empty() && webhooks.mutating.is_empty())
    }

    /// The webhooks of all configurations, read anew after these have changed.
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
                webhooks.extend(these.map(|webhook| Arc::new(Webhook::of(webhook))));
            }
            webhooks
        };
        let webhooks = Arc::new(Webhooks { mutating: of(MUTATING), validating: of(VALIDATING) });
        *known = Some(Arc::clone(&webhooks));
        webhooks
    }

    /// Forgets what configurations said.
    pub(super) fn webhooks_changed(&self) {
        *self.0.admission.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// Asks one webhook; none if it cannot be asked and that does not matter.
    async fn ask(
        &self,
        webhook: &Webhook,
        writing: &Writing<'_>,
        asked: &Asked<'_>,
        object: Option<&Value>,
        mutating: bool,
    ) -> Result<Option<Response>, Refusal> {
        let review = review(self, writing, asked, object);
        let answer = self.0.clients.call(webhook, webhook.timeout, &review).await;
        let answer = answer.map_err(|problem| format!("failed to call webhook: {problem}")).and_then(|answer| {
            match response_problem(&answer["response"], &review["request"]["uid"], mutating) {
                Some(problem) => Err(format!("received invalid webhook response: {problem}")),
                None => Ok(answer),
            }
        });
        let answer = match answer {
            Ok(answer) => answer,
            Err(_) if webhook.ignores_failure => return Ok(None),
            Err(problem) => {
                let name = Value::from(webhook.name.as_str());
                return Err(Refusal::internal_error(&format!("failed calling webhook {name}: {problem}")));
            }
        };
        let response = &answer["response"];
        if response["allowed"] != true {
            return Err(denial(webhook, &response["status"]));
        }
        let patch = response["patch"].as_str().and_then(call::decode_patch);
        Ok(Some(Response { patch }))
    }
}

/// What a webhook answered.
struct Response {
    patch: Option<Value>,
}

/// Why a response cannot be one to this request.
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
        _ if !mutating => None,
        None if !patch.is_empty() => Some("webhook returned response.patch but not response.patchType".to_owned()),
        Some(_) if patch.is_empty() => Some("webhook returned response.patchType but not response.patch".to_owned()),
        Some(other) if other != "JSONPatch" => {
            Some(format!("webhook returned invalid response.patchType of {}", Value::from(other)))
        }
        None | Some(_) => None,
    }
}

/// An object as mutating webhooks see it: a new one has no identity yet.
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
    Refusal::denied(code.unwrap_or(StatusCode::BAD_REQUEST), reason.unwrap_or_default(), message)
}

fn review(server: &Server, writing: &Writing<'_>, asked: &Asked<'_>, object: Option<&Value>) -> Value {
    let resource = writing.resource;
    let kind = json!({"group": resource.kind.group, "version": resource.kind.version, "kind": resource.kind.kind});
    let place = json!({"group": resource.kind.group, "version": resource.kind.version, "resource": resource.plural});
    let name = object.or(asked.before).and_then(|object| object["metadata"]["name"].as_str()).unwrap_or_default();
    let mut request = json!({
        "uid": server.0.clock.uid(),
        "kind": kind,
        "resource": place,
        "requestKind": kind,
        "requestResource": place,
        "name": name,
        "operation": asked.operation.as_str(),
        "userInfo": writing.user.info(),
        "object": object,
        "oldObject": asked.before,
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

/// The options of a write with their kind, which is the operation's.
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
