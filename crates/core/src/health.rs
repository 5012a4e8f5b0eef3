//! The health of an object, from its status: the kstatus rules, with Lifecycle Manager's rules for
//! workloads, and `status.state` of the Kyma kinds.
//!
//! Uses only the given object; that of a StatefulSet whose pods are not ready says too little, so its pods are asked
//! for (see [`pods_of`]). A status for an older generation is ignored, and a workload without
//! conditions was just created. Both mean "in progress".

use std::fmt;

use serde_json::Value;

use crate::api::{KYMA_GROUP, shared::State};

mod lack;
mod workload;

pub use lack::{lack_of_pods, lack_of_workload, selector_of_pods};

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The state: `Ready`, `Processing`, `Deleting`, `Warning` or `Error`.
    pub state: State,
    /// The reason in one sentence, without values that change by themselves. Empty if ready.
    pub message: String,
}

// === impl Health ===

impl Health {
    /// The object is ready.
    pub fn ready() -> Health {
        Health { state: State::Ready, message: String::new() }
    }

    /// Work is in progress.
    pub fn processing(message: impl Into<String>) -> Health {
        Health { state: State::Processing, message: message.into() }
    }

    /// A user must act, or a change is necessary.
    pub fn error(message: impl Into<String>) -> Health {
        Health { state: State::Error, message: message.into() }
    }

    /// Whether the object is ready.
    pub fn is_ready(&self) -> bool {
        self.state == State::Ready
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.message.as_str() {
            "" => write!(f, "{}", self.state),
            message => write!(f, "{}: {message}", self.state),
        }
    }
}

/// The health of any object.
///
/// Workloads, pods, jobs, claims, CustomResourceDefinitions and APIServices have specific rules.
/// Kinds of the Kyma group use `status.state`. Every other object uses its condition `Ready`;
/// without one it is ready as soon as it exists.
pub fn of_object(object: &Value) -> Health {
    if !object.pointer("/metadata/deletionTimestamp").is_none_or(Value::is_null) {
        return Health { state: State::Deleting, message: "it is being deleted".to_owned() };
    }
    let group =
        object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
    let kind = object["kind"].as_str().unwrap_or_default();
    if let Some(health) = workload::of_workload(group, kind, object) {
        return health;
    }
    if is_stale(object) {
        return Health::processing("its controller has not observed the latest change yet");
    }
    if group == KYMA_GROUP || group.ends_with(".kyma-project.io") {
        return kyma(object);
    }
    match condition(object, "Ready").map(|condition| (condition["status"].as_str(), message_of(condition))) {
        None | Some((Some("True"), _)) => Health::ready(),
        Some((_, message)) => Health::processing(message),
    }
}

/// The label selector of the pods that must be known to tell the health of an object; `None` if the object suffices.
pub fn pods_of(object: &Value) -> Option<String> {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(group, _)| group);
    let is_stateful_set = group == Some("apps") && object["kind"] == "StatefulSet";
    let is_going = !object.pointer("/metadata/deletionTimestamp").is_none_or(Value::is_null);
    if is_stateful_set && !is_going { workload::pods_of_stateful_set(object) } else { None }
}

/// The health of an object whose pods, which [`pods_of`] selects, are these.
pub fn of_object_with_pods(object: &Value, pods: &[Value]) -> Health {
    match pods_of(object) {
        Some(_) => workload::of_pods(pods),
        None => of_object(object),
    }
}

/// The worst health of several objects: `Error`, `Deleting`, `Processing`, then `Warning`. Ready
/// for no objects.
pub fn worst<'a>(all: impl IntoIterator<Item = (&'a str, &'a Health)>) -> Health {
    let rank = |state: State| match state {
        State::Error => 5,
        State::Deleting => 4,
        State::Processing | State::Unknown => 3,
        State::Warning => 2,
        State::Ready | State::Unmanaged => 0,
    };
    let mut worst: Option<(&str, &Health)> = None;
    for (name, health) in all {
        if rank(health.state) > worst.map_or(0, |(_, worst)| rank(worst.state)) {
            worst = Some((name, health));
        }
    }
    worst.map_or_else(Health::ready, |(name, health)| Health {
        state: health.state,
        message: format!("{name}: {}", health.message),
    })
}

/// `status.state` of a Kyma kind. Without one, work is in progress. Without any status, the object
/// is ready, because many modules' custom resources never get one.
fn kyma(object: &Value) -> Health {
    let Some(state) = object.pointer("/status/state").and_then(Value::as_str) else { return Health::ready() };
    let message = || match condition(object, "Ready").map(message_of) {
        Some(message) if !message.is_empty() => message,
        _ => format!("its state is {state}"),
    };
    match state {
        "Ready" | "Unmanaged" => Health::ready(),
        "Error" => Health::error(message()),
        "Warning" => Health { state: State::Warning, message: message() },
        "Deleting" => Health { state: State::Deleting, message: message() },
        _ => Health::processing(message()),
    }
}

/// Whether the status is for an older generation.
fn is_stale(object: &Value) -> bool {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    matches!((generation, observed), (Some(generation), Some(observed)) if observed < generation)
}

/// The labels of a workload's selector, as a label selector; `None` if it has none.
fn match_labels(object: &Value) -> Option<String> {
    let labels = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object)?;
    let pairs: Vec<String> =
        labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// The condition with a type.
fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn has_condition(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

/// The message of a condition, otherwise its reason.
fn message_of(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
    text("message").or_else(|| text("reason")).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
