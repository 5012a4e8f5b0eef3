//! How an object fares, read from its status: the rules that the field calls kstatus, with Lifecycle Manager's reading
//! of workloads, and `status.state` of the Kyma kinds.
//!
//! Looks only at the object it is given. A status that was written for an
//! older generation says nothing, and a workload without conditions has only just been created: both mean "under way".

use std::fmt;

use serde_json::Value;

use crate::api::{KYMA_GROUP, shared::State};

mod workload;

/// How an object fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// In one word: `Ready`, `Processing`, `Deleting`, `Warning` or `Error`.
    pub state: State,
    /// Why, in one sentence without variables that change by themselves; empty when ready.
    pub message: String,
}

// === impl Health ===

impl Health {
    /// All is as desired.
    pub fn ready() -> Health {
        Health { state: State::Ready, message: String::new() }
    }

    /// Under way.
    pub fn processing(message: impl Into<String>) -> Health {
        Health { state: State::Processing, message: message.into() }
    }

    /// Needs a human or a change.
    pub fn error(message: impl Into<String>) -> Health {
        Health { state: State::Error, message: message.into() }
    }

    /// Whether all is as desired.
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

/// Of any object.
///
/// Workloads, pods, jobs, claims, CustomResourceDefinitions and APIServices by their own rules; kinds of the Kyma group
/// by `status.state`; every other object by its condition `Ready` if it has one, else it is ready as soon as it is there.
pub fn of(object: &Value) -> Health {
    if !object.pointer("/metadata/deletionTimestamp").is_none_or(Value::is_null) {
        return Health { state: State::Deleting, message: "it is being deleted".to_owned() };
    }
    let group =
        object["apiVersion"].as_str().and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
    let kind = object["kind"].as_str().unwrap_or_default();
    if let Some(health) = workload::of(group, kind, object) {
        return health;
    }
    if is_stale(object) {
        return Health::processing("its controller has not seen the latest change yet");
    }
    if group == KYMA_GROUP || group.ends_with(".kyma-project.io") {
        return kyma(object);
    }
    match condition(object, "Ready").map(|condition| (condition["status"].as_str(), message_of(condition))) {
        None | Some((Some("True"), _)) => Health::ready(),
        Some((_, message)) => Health::processing(message),
    }
}

/// Of several: the worst, `Error` before `Deleting` before `Processing` before `Warning`; ready if there is none.
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

/// `status.state` of a Kyma kind; without one it is under way, unless it has no status at all, which many modules'
/// custom resources never get.
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

/// Whether the status was written for an older generation.
fn is_stale(object: &Value) -> bool {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    matches!((generation, observed), (Some(generation), Some(observed)) if observed < generation)
}

/// The condition of a type.
fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn has_condition(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

/// Message of a condition, or else its reason.
fn message_of(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
    text("message").or_else(|| text("reason")).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
