//! The two sides that are compared, and the requests that both are asked.

use std::collections::{BTreeMap, BTreeSet};

use http::Request;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::{Client, client::Body};
use kube_sim::{
    builtin,
    patch::{self, Schema, Write},
};
use serde_json::{Value, json};
use tidegate_core::{
    object::{DisplayPath, Gvk},
    schema::{self, ViolationKind},
};
use tokio::sync::OnceCell;

use super::widget;
use crate::harness;

/// A request, in any namespace.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    verb: Verb,
    kind: Gvk,
    name: String,
    status: bool,
    manager: String,
    body: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Replace,
    Get,
    Merge,
    Json,
    Apply,
    Force,
}

/// The answer: its code and what it says.
pub(super) type Answer = (u16, Value);

/// Asks both sides one request after the other and holds every answer of the simulator against the server's. Returns
/// the server's answers.
#[track_caller]
pub(super) fn check(asks: &[Ask]) -> impl Future<Output = Vec<Answer>> {
    let caller = std::panic::Location::caller();
    let asks = asks.to_vec();
    async move { compare(&asks).await.unwrap_or_else(|difference| panic!("{caller}: {difference}")) }
}

/// As [`check`], but the first difference is an error.
pub(super) async fn compare(asks: &[Ask]) -> Result<Vec<Answer>, String> {
    let client = real().await;
    let namespace = harness::namespace(&client, "sim").await;
    let mut memory = StoreInMemory::default();
    let mut answers = Vec::new();
    for (index, ask) in asks.iter().enumerate() {
        let ask = Ask { body: ask.body.replace("NAMESPACE", &namespace), ..ask.clone() };
        let (code, answer) = ask.send(&client, &namespace).await;
        let expected = (code, normal(answer, &namespace));
        let (code, answer) = memory.answer(&ask, &namespace);
        let found = (code, normal(answer, &namespace));
        if found != expected {
            return Err(format!("request {index}, {ask:?}\n{}", difference(&expected, &found)));
        }
        answers.push(expected);
    }
    Ok(answers)
}

/// The real server, with the widgets' definition.
async fn real() -> Client {
    static READY: OnceCell<()> = OnceCell::const_new();
    let client = harness::api_server().await.client().expect("a client");
    READY.get_or_init(|| async { harness::install_crds(&client, &[widget::crd()]).await }).await;
    client
}

/// The lines in which two answers differ, those of the real server with a minus.
fn difference(real: &Answer, simulated: &Answer) -> String {
    fn text((code, answer): &Answer) -> String {
        let mut answer = answer.clone();
        answer.sort_all_objects();
        format!("{code}\n{answer:#}\n")
    }
    similar::TextDiff::from_lines(text(real), text(simulated)).unified_diff().context_radius(6).to_string()
}

/// Without what a server makes up, allots, or adds by other means than defaults.
fn normal(mut answer: Value, namespace: &str) -> Value {
    match answer["kind"].as_str() {
        Some("Service") => {
            if let Some(spec) = answer["spec"].as_object_mut() {
                for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                    spec.shift_remove(name);
                }
            }
            for port in answer["spec"]["ports"].as_array_mut().into_iter().flatten() {
                port.as_object_mut().expect("a port").shift_remove("nodePort");
            }
        }
        Some("Namespace") => {
            let spec = answer["spec"].as_object_mut();
            spec.map(|spec| spec.shift_remove("finalizers"));
        }
        Some("PersistentVolumeClaim") => {
            let metadata = answer["metadata"].as_object_mut().expect("objects have metadata");
            metadata.shift_remove("finalizers");
        }
        _ => {}
    }
    if let Some(metadata) = answer.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in ["namespace", "uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.shift_remove(name);
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            for entry in entries.iter_mut() {
                if let Some(time) = entry.get_mut("time") {
                    *time = json!("then");
                }
            }
            // Two sides may be asked in two seconds, so that times sort otherwise.
            entries.sort_by_cached_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource"].map(|name| entry[name].to_string())
            });
        }
    }
    // What is wrong with a value is compared elsewhere; here, where it is.
    if answer["details"]["causes"][0]["reason"] == "FieldValueTypeInvalid" {
        let causes = answer["details"]["causes"].as_array().into_iter().flatten();
        let fields: BTreeSet<&str> = causes.filter_map(|cause| cause["field"].as_str()).collect();
        return json!({"code": answer["code"], "fields": fields});
    }
    // Errors and conflicts come in the random order of a Go map.
    if let Some((head, errors)) = answer["message"].as_str().and_then(|message| message.split_once("errors:\n")) {
        let mut errors: Vec<&str> = errors.lines().collect();
        errors.sort_unstable();
        answer["message"] = json!(format!("{head}errors:\n{}", errors.join("\n")));
    }
    if let Some(causes) = answer.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        causes.sort_by_cached_key(ToString::to_string);
    }
    serde_json::from_str(&answer.to_string().replace(namespace, "NAMESPACE")).expect("JSON stays JSON")
}

// === impl Ask ===

impl Ask {
    fn new(verb: Verb, name: &str, manager: &str, body: &Value) -> Ask {
        let kind = Gvk::from_api_version(widget::API_VERSION, "Widget");
        Ask { verb, kind, name: name.to_owned(), status: false, manager: manager.to_owned(), body: body.to_string() }
    }

    /// Of objects of another kind than widgets.
    pub(super) fn kind(self, api_version: &str, kind: &str) -> Ask {
        Ask { kind: Gvk::from_api_version(api_version, kind), ..self }
    }

    /// POST of an object.
    pub(super) fn create(manager: &str, body: &Value) -> Ask {
        Ask::new(Verb::Create, body["metadata"]["name"].as_str().unwrap_or_default(), manager, body)
    }

    /// PUT of an object, whatever the version of the one that is there.
    pub(super) fn replace(manager: &str, body: &Value) -> Ask {
        Ask::new(Verb::Replace, body["metadata"]["name"].as_str().unwrap_or_default(), manager, body)
    }

    pub(super) fn get(name: &str) -> Ask {
        Ask { body: String::new(), ..Ask::new(Verb::Get, name, "", &Value::Null) }
    }

    pub(super) fn merge(name: &str, manager: &str, patch: &Value) -> Ask {
        Ask::new(Verb::Merge, name, manager, patch)
    }

    pub(super) fn json(name: &str, manager: &str, patch: &Value) -> Ask {
        Ask::new(Verb::Json, name, manager, patch)
    }

    pub(super) fn apply(manager: &str, body: &Value) -> Ask {
        Ask::new(Verb::Apply, body["metadata"]["name"].as_str().unwrap_or("w"), manager, body)
    }

    pub(super) fn force(manager: &str, body: &Value) -> Ask {
        Ask { verb: Verb::Force, ..Ask::apply(manager, body) }
    }

    /// To the status subresource.
    pub(super) fn status(self) -> Ask {
        Ask { status: true, ..self }
    }

    async fn send(&self, client: &Client, namespace: &str) -> Answer {
        let (method, content) = match self.verb {
            Verb::Create => ("POST", "application/json"),
            Verb::Replace => ("PUT", "application/json"),
            Verb::Get => ("GET", "application/json"),
            Verb::Merge => ("PATCH", "application/merge-patch+json"),
            Verb::Json => ("PATCH", "application/json-patch+json"),
            Verb::Apply | Verb::Force => ("PATCH", "application/apply-patch+yaml"),
        };
        let mut path = collection(&self.kind, namespace);
        if self.verb != Verb::Create {
            path = format!("{path}/{}", self.name);
        }
        if self.status {
            path.push_str("/status");
        }
        let force = if self.verb == Verb::Force { "&force=true" } else { "" };
        let manager = if self.manager.is_empty() { String::new() } else { format!("fieldManager={}", self.manager) };
        let uri = format!("{path}?{manager}{force}");
        let mut body = self.body.clone();
        if self.verb == Verb::Replace {
            let (_, live) = ask(client, "GET", &path, content, String::new()).await;
            let mut replacement: Value = serde_json::from_str(&body).expect("an object");
            replacement["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            body = replacement.to_string();
        }
        ask(client, method, &uri, content, body).await
    }
}

/// The path of a kind's objects.
pub(super) fn collection(kind: &Gvk, namespace: &str) -> String {
    const OF_CLUSTER: &[&str] = &[
        "ClusterRole",
        "ClusterRoleBinding",
        "IngressClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "PriorityClass",
        "ValidatingWebhookConfiguration",
    ];
    let root = if kind.group.is_empty() { "/api" } else { "/apis" };
    let plural = match kind.kind.to_lowercase() {
        name if name == "endpoints" => name,
        name if name.ends_with('s') => format!("{name}es"),
        name => match name.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{name}s"),
        },
    };
    let version = kind.api_version();
    if OF_CLUSTER.contains(&&*kind.kind) {
        format!("{root}/{version}/{plural}")
    } else {
        format!("{root}/{version}/namespaces/{namespace}/{plural}")
    }
}

async fn ask(client: &Client, method: &str, uri: &str, content: &str, body: String) -> Answer {
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", content)
        .header("user-agent", "conformance/1.0")
        .body(Body::from(body.into_bytes()))
        .expect("a request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, serde_json::from_slice(&bytes).expect("an answer is JSON"))
}

/// The functions of the simulator over the least store that they need.
#[derive(Default)]
struct StoreInMemory {
    objects: BTreeMap<String, Value>,
}

// === impl StoreInMemory ===

impl StoreInMemory {
    fn answer(&mut self, ask: &Ask, namespace: &str) -> Answer {
        self.try_answer(ask, namespace).unwrap_or_else(|status| {
            let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok());
            (code.expect("a status has a code"), status)
        })
    }

    fn try_answer(&mut self, ask: &Ask, namespace: &str) -> Result<Answer, Value> {
        let of = Kind::from_gvk(&ask.kind);
        let agent = patch::manager_from_agent("conformance/1.0");
        let api_version = ask.kind.api_version();
        let write = Write {
            manager: if ask.manager.is_empty() { &agent } else { &ask.manager },
            subresource: ask.status.then_some("status"),
            api_version: &api_version,
            now: Timestamp::now(),
            force: ask.verb == Verb::Force,
        };
        let key = format!("{} {}", ask.kind, ask.name);
        let before = self.objects.get(&key).cloned();
        let body = || serde_json::from_str::<Value>(&ask.body).expect("a body that is not JSON is tested elsewhere");
        let live = || before.as_ref().expect("the object exists");
        let track = |mut after: Value| {
            of.default(&mut after);
            let after = complete(after, before.as_ref(), namespace);
            patch::track_update(&of.types, before.as_ref(), after, &write)
        };
        let after = match ask.verb {
            Verb::Get => return Ok((200, live().clone())),
            Verb::Create | Verb::Replace => track(body()),
            Verb::Merge => track(patch::merge_patch(live(), &body()).map_err(|error| error.status())?),
            Verb::Json => track(patch::json_patch(live(), &body()).map_err(|error| error.status())?),
            Verb::Apply | Verb::Force => {
                let after = patch::apply(&of.types, before.as_ref(), &body(), &write);
                let mut after = after.map_err(|error| error.status())?;
                of.refuse_wrong_types(&after)?;
                of.default(&mut after);
                complete(after, before.as_ref(), namespace)
            }
        };
        let mut after = keep(before.as_ref(), after, ask.status);
        of.default(&mut after);
        let after = match &before {
            Some(before) => patch::keep_times(before, after),
            None => after,
        };
        self.objects.insert(key, after.clone());
        Ok((if before.is_none() { 201 } else { 200 }, after))
    }
}

/// What is known of a kind.
struct Kind {
    gvk: Gvk,
    types: Schema,
    /// Of custom resources.
    checks: Option<schema::Schema>,
}

// === impl Kind ===

impl Kind {
    fn from_gvk(gvk: &Gvk) -> Kind {
        if let Some(types) = builtin::schema(gvk) {
            return Kind { gvk: gvk.clone(), types, checks: None };
        }
        let props: JSONSchemaProps = serde_json::from_value(widget::schema()).expect("a schema");
        let checks = schema::Schema::compile(&props).expect("a schema");
        let types = Schema::custom(gvk.clone(), &widget::schema(), true, &[widget::API_VERSION.to_owned()]);
        Kind { gvk: gvk.clone(), types, checks: Some(checks) }
    }

    fn default(&self, object: &mut Value) {
        match &self.checks {
            Some(checks) => checks.default(object),
            None => {
                let unknown = builtin::prune(&self.gvk, object).expect("an object of its kind");
                assert!(unknown.is_empty(), "{unknown:?}");
                builtin::default(&self.gvk, object);
            }
        }
    }

    /// What validation refuses, as far as it matters here: values of another type than the schema's, and nulls.
    fn refuse_wrong_types(&self, object: &Value) -> Result<(), Value> {
        let Some(checks) = &self.checks else { return Ok(()) };
        let violations = checks.check(object);
        let wrong = violations.iter().filter(|violation| violation.kind == ViolationKind::Type);
        let mut fields: BTreeSet<String> = wrong.map(|violation| DisplayPath(&violation.path).to_string()).collect();
        find_nulls(&widget::schema(), object, "", &mut fields);
        if fields.is_empty() { Ok(()) } else { Err(json!({"code": 422, "fields": fields})) }
    }
}

/// The fields that are null and must not be.
fn find_nulls(schema: &Value, value: &Value, path: &str, fields: &mut BTreeSet<String>) {
    match value {
        Value::Null if schema["type"].is_string() && schema["nullable"] != true => {
            fields.insert(path.trim_start_matches('.').to_owned());
        }
        Value::Object(map) => {
            for (name, value) in map {
                let known = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                find_nulls(known, value, &format!("{path}.{name}"), fields);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_nulls(&schema["items"], item, &format!("{path}[{index}]"), fields);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// With what the server gives every object.
fn complete(mut object: Value, before: Option<&Value>, namespace: &str) -> Value {
    let uid = before.map_or_else(|| json!("made up"), |before| before["metadata"]["uid"].clone());
    patch::tidy_metadata(&mut object);
    object["metadata"]["namespace"] = json!(namespace);
    object["metadata"]["uid"] = uid;
    object
}

/// Puts back what the endpoint does not change.
fn keep(before: Option<&Value>, mut after: Value, of_status: bool) -> Value {
    if of_status {
        let mut kept = before.cloned().expect("a status is of an object");
        let managed = after["metadata"].get("managedFields").cloned();
        let metadata = kept["metadata"].as_object_mut().expect("objects have metadata");
        metadata.shift_remove("managedFields");
        if let Some(managed) = managed {
            metadata.insert("managedFields".to_owned(), managed);
        }
        let fields = kept.as_object_mut().expect("an object");
        fields.shift_remove("status");
        if let Some(status) = after.get("status") {
            fields.insert("status".to_owned(), status.clone());
        }
        return kept;
    }
    let fields = after.as_object_mut().expect("an object");
    fields.shift_remove("status");
    if let Some(status) = before.and_then(|before| before.get("status")) {
        fields.insert("status".to_owned(), status.clone());
    }
    after
}
