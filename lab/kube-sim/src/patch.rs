// SPDX-License-Identifier: Apache-2.0

//! Computes an object after a patch, as kube-apiserver does, and which manager owns which field.
//!
//! Pure functions of values: no clock, no store, no I/O. `tests/it/sim/` compares them with a real server, case by
//! case.
//!
//! # Order
//!
//! A caller must follow the server's order: decode the object (with [`tidy_metadata`]) and set its defaults;
//! [`merge_patch`], [`json_patch`] or [`apply()`]; defaults again; [`track_update`], except for an apply; admission;
//! restore what the endpoint must not change (`status`, or everything but `status`); [`keep_times`]; store. An apply
//! leaves defaults to its caller, because no manager owns what they add. Other writes drop nulls of custom resources;
//! an apply keeps them, and validation refuses them.
//!
//! # What differs from the server
//!
//! * There is no strategic merge patch, because none of our programs sends it.
//! * All versions of a custom resource have the schema of the written version.
//! * Go iterates over mappings in random order, so errors and conflicts have a random order. Here it is the order of
//!   the object or of the names.

mod apply;
mod doubled;
mod json;
mod last_applied;
mod managed;
mod merge;
mod path;
mod schema;
mod set;
mod status;
mod syntax;
mod walk;

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use self::json::{go_type, unknown_in_operations};
pub use self::{
    doubled::{Doubled, doubled},
    json::{OPERATIONS_MAX, json_patch},
    merge::merge_patch,
    schema::{Resets, Schema, TypeId, Types, TypesBuilder},
    syntax::{parse_json, syntax_error},
};

/// A write, as far as managed fields describe it.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The field manager, or [`manager_from_agent`] if the request names none.
    pub manager: &'a str,
    /// The written subresource, such as `status`.
    pub subresource: Option<&'a str>,
    /// The version of the endpoint, as `group/version`.
    pub api_version: &'a str,
    /// The time.
    pub now: Timestamp,
    /// Whether an apply takes fields from other managers. Only an apply uses it.
    pub force: bool,
}

/// How a manager got its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// Why a patch cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch has an invalid format: 400, `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// The patch has too many operations: 413, `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not match the object: 422, `Invalid`. The text here says why; the server's answer does not.
    #[error("{0}")]
    Unfitting(String),
}

/// Why an object cannot be applied. Each variant contains the message of the server's answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that the apply would change: 409, `Conflict`.
    #[error("{}", Conflict::message(.0))]
    Conflict(Vec<Conflict>),
    /// The applied object is not allowed here: 400, `BadRequest`.
    #[error("{0}")]
    Refused(String),
    /// An object does not have the type of its schema: 500 without a reason, as in the server.
    #[error("{0}")]
    Failed(String),
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The manager, in the server's words.
    manager: String,
    path: Vec<path::Step>,
}

/// The object after a server-side apply; a new one if there is no live object.
///
/// The result has managed fields, but no defaults for what the apply adds. Everything else of the live object stays. If
/// nothing changes, the result is the live object, except for its managed fields.
///
/// # Errors
///
/// Fails if other managers own fields that would change, or if an object is invalid.
pub fn apply(schema: &Schema, live: Option<&Value>, applied: &Value, write: &Write<'_>) -> Result<Value, ApplyError> {
    apply::apply(schema, live, applied, write)
}

/// `after` with its managed fields, if it replaces `before` by any write but an apply: PUT, POST, or another kind of
/// patch. Managed fields that the writer sent in `after` have the same effect as in the server.
pub fn track_update(schema: &Schema, before: Option<&Value>, after: Value, write: &Write<'_>) -> Value {
    apply::track(schema, before, after, write)
}

/// `after` with the times of `before` in its managed fields, if only these times differ. So a write that changes
/// nothing really changes nothing.
pub fn keep_times(before: &Value, after: Value) -> Value {
    apply::keep_times(before, after)
}

/// Drops what decoding always removes: fields of `metadata` that are null, empty or unknown.
pub fn tidy_metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    metadata.retain(|name, value| {
        let is_empty = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        };
        !is_empty && schema::is_metadata(name)
    });
}

/// The field manager of a request that names none: its user agent up to the first slash, without unprintable
/// characters, at most 128 bytes.
pub fn manager_from_agent(agent: &str) -> String {
    const LENGTH_MAX: usize = 128;
    let mut manager = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| !c.is_control()) {
        if LENGTH_MAX < manager.len() + c.len_utf8() {
            break;
        }
        manager.push(c);
    }
    manager
}

// === impl Conflict ===

impl Conflict {
    /// The field in the notation of messages: `.spec.replicas`.
    pub fn field(&self) -> String {
        self.path.iter().map(ToString::to_string).collect()
    }

    /// The owner, in the server's words.
    pub fn cause(&self) -> String {
        format!("conflict with {}", self.manager)
    }

    fn message(conflicts: &[Conflict]) -> String {
        if let [only] = conflicts {
            return format!("Apply failed with 1 conflict: {only}");
        }
        let mut lines = Vec::new();
        let mut manager = None;
        // They are sorted by manager.
        for conflict in conflicts {
            if manager != Some(&conflict.manager) {
                lines.push(format!("conflicts with {}:", conflict.manager));
                manager = Some(&conflict.manager);
            }
            lines.push(format!("- {}", conflict.field()));
        }
        format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cause(), self.field())
    }
}

#[cfg(test)]
mod tests;
