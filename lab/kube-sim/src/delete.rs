// SPDX-License-Identifier: Apache-2.0

//! DELETE of one object and of collections: preconditions, finalizers and propagation.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Server,
    admission::{Asked, Operation},
    body::type_problem,
    builtin::protobuf,
    patch::{self, go_type},
    refusal::{Cause, Named, Refusal},
    request::{Parameters, Unknown, WriteOptions},
    resource::{DEFINITIONS, NAMESPACES, Resource},
    store::{Draft, Object, key, split_key},
    write::Writing,
};
use super::{
    identity::User,
    read::{Filter, parse_version},
};

/// The options of a DELETE.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeleteOptions {
    uid: Option<String>,
    version: Option<String>,
    policy: Policy,
    dry_run: bool,
    /// The options in the form that webhooks get.
    sent: Value,
}

/// What happens to dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Policy {
    #[default]
    Background,
    Foreground,
    Orphan,
}

/// The result of a DELETE.
pub(super) enum Deleted {
    /// The object is gone.
    Gone(Arc<Object>),
    /// The object is marked and remains.
    Marked(Arc<Object>),
}

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const TRIES_MAX: usize = 5;
/// The finalizer that keeps a CustomResourceDefinition until its objects are gone.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

// === impl DeleteOptions ===

impl DeleteOptions {
    /// Reads the options from the body or, without one, from the parameters.
    pub(super) fn parse(parameters: &Parameters, body: &[u8]) -> Result<DeleteOptions, Refusal> {
        let sent = if body.is_empty() { Value::Null } else { decode(body)? };
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let from = |field: &str| text(&sent[field]).or_else(|| parameters.get(field).map(str::to_owned));
        let orphan = sent["orphanDependents"]
            .as_bool()
            .or_else(|| parameters.get("orphanDependents").map(|_| parameters.flag("orphanDependents")));
        let policy = from("propagationPolicy");
        let dry_run: Vec<String> = match sent["dryRun"].as_array() {
            Some(items) => items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect(),
            None => parameters.all("dryRun").into_iter().map(str::to_owned).collect(),
        };
        if body.is_empty() {
            parameters.number("gracePeriodSeconds")?;
        }
        let mut causes = Vec::new();
        if let (Some(policy), Some(_)) = (&policy, orphan) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid_text("propagationPolicy", policy, detail));
        }
        let chosen = match (policy.as_deref(), orphan) {
            (Some("Orphan"), _) | (None, Some(true)) => Policy::Orphan,
            (Some("Foreground"), _) => Policy::Foreground,
            (Some("Background") | None, _) => Policy::Background,
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                causes.push(Cause::unsupported("propagationPolicy", json!(other), &supported));
                Policy::Background
            }
        };
        if dry_run.iter().any(|one| one != "All") {
            causes.push(Cause::unsupported("dryRun", json!(dry_run), &["All"]));
        }
        if !causes.is_empty() {
            return Err(Refusal::invalid_options("DeleteOptions", &causes));
        }
        Ok(DeleteOptions {
            uid: text(&sent["preconditions"]["uid"]),
            version: text(&sent["preconditions"]["resourceVersion"]),
            policy: chosen,
            dry_run: !dry_run.is_empty(),
            sent: told(&sent, policy.as_deref(), orphan, &dry_run),
        })
    }

    pub(super) fn with(policy: Policy) -> DeleteOptions {
        DeleteOptions { policy, ..DeleteOptions::default() }
    }

    fn check(&self, resource: &Resource, name: &str, object: &Object) -> Result<(), Refusal> {
        let named = Named::of_kind(resource, name);
        if let Some(uid) = self.uid.as_deref().filter(|uid| **uid != *object.uid) {
            let why = format!(
                "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                 deleted and then recreated",
                object.uid
            );
            return Err(Refusal::conflict(&named, &why));
        }
        let version = object.version.to_string();
        if let Some(asked) = self.version.as_deref().filter(|asked| **asked != *version) {
            let why = format!(
                "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            );
            return Err(Refusal::conflict(&named, &why));
        }
        Ok(())
    }
}

/// The options of a request, from its body or parameters.
fn told(sent: &Value, policy: Option<&str>, orphan: Option<bool>, dry_run: &[String]) -> Value {
    let mut told = json!({});
    for field in ["gracePeriodSeconds", "preconditions"] {
        if let Some(value) = sent.get(field).filter(|value| !value.is_null()) {
            told[field] = value.clone();
        }
    }
    if let Some(orphan) = orphan {
        told["orphanDependents"] = orphan.into();
    }
    if let Some(policy) = policy {
        told["propagationPolicy"] = policy.into();
    }
    if !dry_run.is_empty() {
        told["dryRun"] = json!(dry_run);
    }
    told
}

fn decode(body: &[u8]) -> Result<Value, Refusal> {
    if body.starts_with(protobuf::MAGIC) {
        return Ok(protobuf::decode(body).map_err(Refusal::bad_request)?.unwrap_or_default());
    }
    if let Some(problem) = patch::syntax_error(body) {
        return Err(Refusal::bad_request(format!("couldn't get version/kind; json parse error: {problem}")));
    }
    let sent: Value = serde_json::from_slice(body).map_err(|error| Refusal::bad_request(error.to_string()))?;
    if let Some(problem) = type_problem(&sent) {
        return Err(Refusal::bad_request(format!("couldn't get version/kind; json parse error: {problem}")));
    }
    let kind = sent["kind"].as_str().unwrap_or_default();
    if !kind.is_empty() && kind != "DeleteOptions" {
        let (kind, version) = (json!(kind), json!(sent["apiVersion"].as_str().unwrap_or_default()));
        return Err(Refusal::bad_request(format!(
            "no kind {kind} is registered for version {version} in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    match field_problem(&sent) {
        Some(problem) => Err(Refusal::bad_request(problem)),
        None => Ok(sent),
    }
}

/// Why a field of options is invalid. Invalid options delete nothing.
fn field_problem(sent: &Value) -> Option<String> {
    let wrong = |structure: &str, path: &str, value: &Value, wanted: &str, fits: bool| {
        let problem = || {
            let found = match value {
                Value::Number(number) if wanted == "int64" => format!("number {number}"),
                other => go_type(other).to_owned(),
            };
            format!("json: cannot unmarshal {found} into Go struct field {structure}.{path} of type {wanted}")
        };
        (!value.is_null() && !fits).then(problem)
    };
    let own = |field: &str, wanted: &str, fits: fn(&Value) -> bool| {
        wrong("DeleteOptions", field, &sent[field], wanted, fits(&sent[field]))
    };
    let below = |field: &str, wanted: &str| {
        let value = &sent["preconditions"][field];
        wrong("Preconditions", &format!("preconditions.{field}"), value, wanted, value.is_string())
    };
    let texts = sent["dryRun"].as_array().into_iter().flatten();
    own("gracePeriodSeconds", "int64", Value::is_i64)
        .or_else(|| own("preconditions", "v1.Preconditions", Value::is_object))
        .or_else(|| below("uid", "types.UID"))
        .or_else(|| below("resourceVersion", "string"))
        .or_else(|| own("orphanDependents", "bool", Value::is_boolean))
        .or_else(|| own("propagationPolicy", "v1.DeletionPropagation", Value::is_string))
        .or_else(|| own("dryRun", "[]string", Value::is_array))
        .or_else(|| texts.into_iter().find_map(|one| wrong("DeleteOptions", "dryRun", one, "string", one.is_string())))
}

impl Server {
    /// Deletes one object, or marks it. Webhooks may warn.
    pub(super) async fn delete(
        &self,
        resource: &Arc<Resource>,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        user: &User,
        warnings: &mut Vec<String>,
    ) -> Result<Deleted, Refusal> {
        let object = self.find(resource, namespace, name)?;
        if resource.is(NAMESPACES) && IMMORTAL.contains(&name) {
            return Err(Refusal::forbidden(&Named::resource(resource, name), "this namespace may not be deleted"));
        }
        options.check(resource, name, &object)?;
        if self.is_judged() {
            let before = object.value();
            let write = WriteOptions {
                dry_run: options.dry_run,
                manager: String::new(),
                unknown: Unknown::Ignore,
                force: false,
                sent: options.sent.clone(),
            };
            let mut writing = Writing::new(self, resource, namespace, None, write, user);
            let asked = Asked { operation: Operation::Delete, before: Some(&before) };
            let judged = match self.mutate(&mut writing, &asked, None).await {
                Ok(_) => self.validate(&mut writing, &asked, None).await,
                Err(refusal) => Err(refusal),
            };
            judged.map_err(|refusal| refusal.warning(std::mem::take(&mut writing.warnings)))?;
            warnings.append(&mut writing.warnings);
        }
        self.delete_now(resource, namespace, name, options)
    }

    /// As [`Server::delete`], without webhooks.
    pub(super) fn delete_now(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted, Refusal> {
        let place = key(namespace, name);
        for _ in 0..TRIES_MAX {
            let object = self.find(resource, namespace, name)?;
            options.check(resource, name, &object)?;
            let value = object.value();
            let Some(marked) = self.marked(resource, &value, options.policy) else {
                if options.dry_run {
                    return Ok(Deleted::Gone(object));
                }
                if self.0.store.remove(&resource.collection, &place, object.version).is_ok() {
                    self.gone(resource, &place, &object);
                    return Ok(Deleted::Gone(object));
                }
                continue;
            };
            if marked == value {
                return Ok(Deleted::Marked(object));
            }
            let draft = Draft::from_object(&marked);
            if options.dry_run {
                return Ok(Deleted::Marked(Arc::new(draft.at(object.version))));
            }
            if let Ok(stored) = self.0.store.put(&resource.collection, &place, Some(object.version), draft) {
                self.settle(resource, &place, &stored);
                return Ok(Deleted::Marked(stored));
            }
        }
        Err(Refusal::modified(&Named::resource(resource, name)))
    }

    /// The object marked for deletion; `None` if nothing holds it.
    fn marked(&self, resource: &Resource, value: &Value, policy: Policy) -> Option<Value> {
        let mut marked = value.clone();
        let finalizers = value["metadata"]["finalizers"].as_array().into_iter().flatten();
        let is_policy = |finalizer: &str| matches!(finalizer, "orphan" | "foregroundDeletion");
        let mut finalizers: Vec<String> =
            finalizers.filter_map(Value::as_str).filter(|finalizer| !is_policy(finalizer)).map(str::to_owned).collect();
        match policy {
            Policy::Background => {}
            Policy::Foreground => finalizers.push("foregroundDeletion".to_owned()),
            Policy::Orphan => finalizers.push("orphan".to_owned()),
        }
        let is_new = value["metadata"]["deletionTimestamp"].is_null();
        if resource.is(DEFINITIONS) && is_new && !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
            finalizers.push(CLEANUP.to_owned());
        }
        let is_full =
            resource.is(NAMESPACES) && value["spec"]["finalizers"].as_array().is_some_and(|of| !of.is_empty());
        if finalizers.is_empty() && !is_full {
            return None;
        }
        let metadata = marked["metadata"].as_object_mut()?;
        if is_new {
            metadata.insert("deletionTimestamp".to_owned(), self.0.clock.now_text().into());
            if !resource.is(NAMESPACES) && !resource.is(DEFINITIONS) {
                metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(0));
            }
            // Watchers of the generation must notice the deletion.
            if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
                && !resource.is(DEFINITIONS)
            {
                metadata.insert("generation".to_owned(), json!(generation + 1));
            }
        }
        if finalizers.is_empty() {
            metadata.shift_remove("finalizers");
        } else {
            metadata.insert("finalizers".to_owned(), json!(finalizers));
        }
        if resource.is(NAMESPACES) {
            marked["status"]["phase"] = "Terminating".into();
        }
        Some(marked)
    }

    /// Deletes the objects of a collection that a filter selects, and returns them.
    pub(super) async fn delete_collection(
        &self,
        resource: &Arc<Resource>,
        namespace: Option<&str>,
        parameters: &Parameters,
        options: &DeleteOptions,
        user: &User,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<(Arc<str>, Arc<Object>)>, Refusal> {
        let filter = Filter::parse(resource, parameters)?;
        if let Some(version) = parameters.get("resourceVersion") {
            self.check_version(parse_version(version)?)?;
        }
        let prefix = namespace.map_or_else(String::new, |namespace| format!("{namespace}/"));
        let page =
            self.0.store.list(&resource.collection, &prefix, None, usize::MAX, |key, object| filter.wants(key, object));
        for (key, _) in &page.items {
            let (namespace, name) = split_key(key);
            match self.delete(resource, namespace, name, options, user, warnings).await {
                Err(refusal) if refusal.code != StatusCode::NOT_FOUND => return Err(refusal),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(page.items)
    }
}

impl Deleted {
    /// The `Status` for a deleted object.
    pub(super) fn status(resource: &Resource, name: &str, object: &Object) -> Value {
        let mut details = json!({"name": name});
        if !resource.kind.group.is_empty() {
            details["group"] = (&*resource.kind.group).into();
        }
        details["kind"] = (&*resource.plural).into();
        details["uid"] = (&*object.uid).into();
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}
