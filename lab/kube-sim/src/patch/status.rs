// SPDX-License-Identifier: Apache-2.0

//! Errors as `Status` objects of the server's answers.

use serde_json::{Value, json};

use super::{ApplyError, Conflict, PatchError};

// === impl PatchError ===

impl PatchError {
    /// The `Status` of the answer.
    pub fn status(&self) -> Value {
        match self {
            PatchError::Malformed(message) => failure(400, Some("BadRequest"), message),
            PatchError::TooLarge(message) => failure(413, Some("RequestEntityTooLarge"), message),
            PatchError::Unfitting(_) => {
                let message = "the server rejected our request due to an error in our request";
                let mut status = failure(422, Some("Invalid"), message);
                status["details"] = json!({});
                status
            }
        }
    }
}

// === impl ApplyError ===

impl ApplyError {
    /// The `Status` of the answer.
    pub fn status(&self) -> Value {
        match self {
            ApplyError::Conflict(conflicts) => {
                let cause = |conflict: &Conflict| {
                    json!({
                        "reason": "FieldManagerConflict",
                        "message": conflict.cause(),
                        "field": conflict.field(),
                    })
                };
                let mut status = failure(409, Some("Conflict"), &self.to_string());
                status["details"] = json!({"causes": conflicts.iter().map(cause).collect::<Vec<_>>()});
                status
            }
            ApplyError::Refused(message) => failure(400, Some("BadRequest"), message),
            ApplyError::Failed(message) => failure(500, None, message),
        }
    }
}

fn failure(code: u16, reason: Option<&str>, message: &str) -> Value {
    let mut status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    });
    if let Some(reason) = reason {
        status["reason"] = json!(reason);
    }
    status["code"] = json!(code);
    status
}
