//! What an object is after a patch, as kube-apiserver answers it, and who owns which of its fields.
//!
//! Pure functions of values: no clock, no store, no I/O. What they do is compared with a real server, case by case, in
//! `tests/it/sim/`.
//!
//! # Order
//!
//! The server does these things one after the other, and so must who uses this module: decode the object (with
//! [`tidy_metadata`]) and fill in its defaults; [`merge_patch`] or [`json_patch`], or [`apply`]; defaults again; [`track_update`] for all but an apply;
//! admission; put back what the endpoint must not change (`status`, or all but `status`); [`keep_times`]; store. An
//! apply leaves defaults to its caller: what they add belongs to nobody. Nulls that an apply leaves in a custom resource
//! are not dropped as those of other writes are: validation refuses them.
//!
//! # What differs from the server
//!
//! * Strategic merge patch is not here: nothing that we run sends it.
//! * All versions of a custom resource are taken to have the schema of the version that is written.
//! * Where Go walks a mapping, its order is random, and so is the order of errors and conflicts below it; here it is the
//!   order of the object or of the names.

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

/// A write, as far as managed fields tell of it.
#[derive(Clone, Debug)]
pub struct Write<'a> {
    /// The field manager; [`manager_from_agent`] where the request names none.
    pub manager: &'a str,
    /// The subresource that is written to, such as `status`.
    pub subresource: Option<&'a str>,
    /// The version of the endpoint, as `group/version`.
    pub api_version: &'a str,
    /// When.
    pub now: Timestamp,
    /// Whether an apply takes fields from other managers. Nothing else asks.
    pub force: bool,
}

/// How a manager came by its fields.
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
    /// The patch is not of its format: 400, `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// The patch does more than a patch may: 413, `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not fit the object: 422, `Invalid`. The server's answer does not say why; the text here does.
    #[error("{0}")]
    Unfitting(String),
}

/// Why an object cannot be applied. Each variant bears the message of the server's answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Other managers own fields that the apply would change: 409, `Conflict`.
    #[error("{}", Conflict::message(.0))]
    Conflict(Vec<Conflict>),
    /// The applied object must not be applied here: 400, `BadRequest`.
    #[error("{0}")]
    Refused(String),
    /// The objects are not of their type: 500, without a reason, as the server has it.
    #[error("{0}")]
    Failed(String),
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who, in the server's words.
    manager: String,
    path: Vec<path::Step>,
}

/// What `live` is after a server-side apply; what is created if there is no live object.
///
/// The result has managed fields, and no defaults for what the apply adds. It keeps everything else of the live object:
/// where nothing changes it is the live object, and at most its managed fields differ.
pub fn apply(schema: &Schema, live: Option<&Value>, applied: &Value, write: &Write<'_>) -> Result<Value, ApplyError> {
    apply::apply(schema, live, applied, write)
}

/// What `after` is with its managed fields, where it takes the place of `before` by any write but an apply: PUT, POST,
/// or a patch of another kind. Managed fields that the writer sent in `after` count as the server lets them count.
pub fn track_update(schema: &Schema, before: Option<&Value>, after: Value, write: &Write<'_>) -> Value {
    apply::track(schema, before, after, write)
}

/// What `after` is with the times of `before` in its managed fields, if nothing but those times differs: a write that
/// changes nothing is then seen to change nothing.
pub fn keep_times(before: &Value, after: Value) -> Value {
    apply::keep_times(before, after)
}

/// Drops what never outlives decoding: fields of `metadata` that are null or empty, or that no object has.
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

/// The field manager of a request that names none: its user agent up to the first slash, without what cannot be printed,
/// at most 128 bytes.
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
    /// The field, as messages spell it: `.spec.replicas`.
    pub fn field(&self) -> String {
        self.path.iter().map(ToString::to_string).collect()
    }

    /// Who owns it, in the server's words.
    pub fn cause(&self) -> String {
        format!("conflict with {}", self.manager)
    }

    fn message(conflicts: &[Conflict]) -> String {
        if let [only] = conflicts {
            return format!("Apply failed with 1 conflict: {only}");
        }
        let mut lines = Vec::new();
        let mut manager = None;
        // They come sorted by manager.
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
