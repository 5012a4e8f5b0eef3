// SPDX-License-Identifier: Apache-2.0

//! The canonical form of built-in objects after decoding and encoding: Go's structures always print some fields and
//! never print others if they are empty, and a quantity has one spelling.

use serde_json::{Map, Value, json};

use super::{COMPONENTS, quantity};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// Fields that are dropped if they are 0 or false, by the suffix of their component's name. Other fields are kept: they
/// are pointers in Go, or always printed. No such table is published; this one has what our modules use.
const ZERO_IS_ABSENT: &[(&str, &[&str])] = &[
    ("Container", &["stdin", "stdinOnce", "tty"]),
    ("ContainerPort", &["hostPort"]),
    ("DaemonSetSpec", &["minReadySeconds"]),
    ("DaemonSetStatus", &["numberAvailable", "numberUnavailable", "observedGeneration", "updatedNumberScheduled"]),
    ("DeploymentSpec", &["minReadySeconds", "paused"]),
    (
        "DeploymentStatus",
        &[
            "availableReplicas",
            "observedGeneration",
            "readyReplicas",
            "replicas",
            "unavailableReplicas",
            "updatedReplicas",
        ],
    ),
    ("Event", &["count", "deprecatedCount"]),
    ("JobStatus", &["active", "failed", "succeeded"]),
    ("NFSVolumeSource", &["readOnly"]),
    ("NodeSpec", &["unschedulable"]),
    ("PersistentVolumeClaimVolumeSource", &["readOnly"]),
    ("PodDisruptionBudgetStatus", &["observedGeneration"]),
    ("PodSpec", &["hostIPC", "hostNetwork", "hostPID"]),
    ("PodStatus", &["observedGeneration"]),
    ("PriorityClass", &["globalDefault"]),
    ("Probe", &["failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds"]),
    ("ReplicaSetSpec", &["minReadySeconds"]),
    ("ReplicaSetStatus", &["availableReplicas", "fullyLabeledReplicas", "observedGeneration", "readyReplicas"]),
    ("ServiceBackendPort", &["number"]),
    ("ServicePort", &["nodePort"]),
    ("ServiceSpec", &["healthCheckNodePort", "publishNotReadyAddresses"]),
    ("StatefulSetSpec", &["minReadySeconds"]),
    ("StatefulSetStatus", &["currentReplicas", "observedGeneration", "readyReplicas", "updatedReplicas"]),
    ("VolumeMount", &["readOnly"]),
];
/// Texts that are kept even if they are empty, because they are pointers in Go.
const EMPTY_TEXT_IS_KEPT: &[&str] = &[
    "apiGroup",
    "appProtocol",
    "holderIdentity",
    "ingressClassName",
    "nodeName",
    "runtimeClassName",
    "storageClassName",
];
/// Fields that are null if they are empty, by the suffix of their component's name. (An empty list that was sent is
/// also null; it has no owner here.)
const EMPTY_IS_NULL: &[(&str, &[&str])] = &[
    ("ClusterRole", &["rules"]),
    ("Event", &["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp", "lastTimestamp"]),
    ("HorizontalPodAutoscalerStatus", &["currentMetrics"]),
    ("MutatingWebhook", &["admissionReviewVersions"]),
    ("PodSpec", &["containers"]),
    ("PolicyRule", &["verbs"]),
    ("ProjectedVolumeSource", &["sources"]),
    ("Role", &["rules"]),
    ("ValidatingWebhook", &["admissionReviewVersions"]),
];

/// Converts a value of a component to its canonical form. `Null` if the value is dropped.
pub(super) fn canonical(component: &str, value: Value) -> Value {
    let Some(schema) = COMPONENTS.get(component) else { return value };
    if component == QUANTITY {
        let text = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        return quantity::canonical(&text).map_or(value, Value::String);
    }
    match (schema["properties"].as_object(), value) {
        (Some(properties), Value::Object(fields)) => structure(component, schema, properties, fields),
        (_, value) => value,
    }
}

fn structure(
    component: &str,
    schema: &Value,
    properties: &Map<String, Value>,
    mut fields: Map<String, Value>,
) -> Value {
    let name = component.rsplit('.').next().unwrap_or_default();
    let has =
        |table: &[(&str, &[&str])], field: &str| table.iter().any(|(of, names)| *of == name && names.contains(&field));
    let mut form = Map::new();
    // First the order of the sent fields, then that of the schema.
    let sent: Vec<String> = fields.keys().cloned().collect();
    let others = properties.keys().filter(|field| !fields.contains_key(*field)).cloned().collect::<Vec<_>>();
    for field in sent.into_iter().chain(others) {
        let Some(property) = properties.get(&field) else {
            // Another function drops and reports unknown fields.
            if let Some(value) = fields.shift_remove(&field) {
                form.insert(field, value);
            }
            continue;
        };
        let value = fields.shift_remove(&field).map(|value| of_schema(property, value)).unwrap_or_default();
        let is_absent = match &value {
            Value::Null => true,
            Value::Bool(false) => has(ZERO_IS_ABSENT, &field),
            Value::Number(number) => number.as_f64() == Some(0.0) && has(ZERO_IS_ABSENT, &field),
            Value::String(text) => text.is_empty() && !EMPTY_TEXT_IS_KEPT.contains(&field.as_str()),
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty() && property.get("$ref").is_none(),
            Value::Bool(true) => false,
        };
        if !is_absent {
            form.insert(field, value);
        } else if let Some(default) = default_of(schema, property, &field) {
            form.insert(field, default);
        } else if has(EMPTY_IS_NULL, &field) {
            form.insert(field, Value::Null);
        }
    }
    Value::Object(form)
}

/// The value of an absent field, as the schema publishes it: structures that always exist, and defaults.
fn default_of(schema: &Value, property: &Value, field: &str) -> Option<Value> {
    let default = property.get("default")?;
    if let (Some(component), Value::Object(_)) = (property["$ref"].as_str(), default) {
        return Some(canonical(component, default.clone()));
    }
    let is_required = || schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field));
    // References by name publish an empty name, which is not printed.
    if default == "" && field == "name" && !is_required() {
        return None;
    }
    Some(default.clone())
}

/// In Go, a null entry or item is the empty value of its type.
fn filled(schema: &Value, value: Value) -> Value {
    if !value.is_null() {
        return of_schema(schema, value);
    }
    match (schema["$ref"].as_str(), schema["type"].as_str()) {
        (Some(QUANTITY), _) => json!("0"),
        (Some(component), _) if COMPONENTS.get(component).is_some_and(|of| of["properties"].is_object()) => {
            canonical(component, empty())
        }
        (None, Some("string")) => json!(""),
        (None, Some("boolean")) => json!(false),
        (None, Some("integer" | "number")) => json!(0),
        _ => Value::Null,
    }
}

/// The texts of a mapping of metadata, in the same form.
pub(super) fn fill_texts(entries: Option<&mut Value>) {
    for (_, value) in entries.and_then(Value::as_object_mut).into_iter().flatten().filter(|(_, value)| value.is_null())
    {
        *value = json!("");
    }
}

fn of_schema(schema: &Value, value: Value) -> Value {
    if let Some(component) = schema["$ref"].as_str() {
        return canonical(component, value);
    }
    match value {
        Value::Array(items) => items.into_iter().map(|item| filled(&schema["items"], item)).collect(),
        Value::Object(entries) => match schema.get("additionalProperties") {
            Some(of) => {
                entries.into_iter().map(|(name, value)| (name, filled(of, value))).collect::<Map<_, _>>().into()
            }
            None => Value::Object(entries),
        },
        value => value,
    }
}

/// The field, with this value if it was absent.
pub(super) fn absent<'a>(fields: &'a mut Value, name: &str, default: impl Into<Value>) -> Option<&'a mut Value> {
    let fields = fields.as_object_mut()?;
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), default.into());
    }
    fields.get_mut(name)
}

/// The items of a list; none if the field is not a list.
pub(super) fn items<'a>(fields: &'a mut Value, name: &str) -> impl Iterator<Item = &'a mut Value> {
    fields.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The empty structure.
pub(super) fn empty() -> Value {
    json!({})
}
