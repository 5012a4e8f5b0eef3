// SPDX-License-Identifier: Apache-2.0

//! Reviews of authentication and authorization. They are answered but not stored.
//!
//! There is no RBAC: an authenticated user may do everything.

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Server,
    patch::track_update,
    refusal::{Cause, Named, Refusal},
    resource::Resource,
    store::Draft,
    write::{Outcome, Sent, Written},
};

/// The groups whose kinds are reviews.
const GROUPS: [&str; 2] = ["authentication.k8s.io", "authorization.k8s.io"];

/// Whether objects of a resource are answered but not stored.
pub(super) fn is_review(resource: &Resource) -> bool {
    GROUPS.contains(&&*resource.kind.group) && resource.is_built_in()
}

impl Server {
    /// The answer to a review.
    pub(super) fn review(&self, sent: &Sent<'_>) -> Result<Written, Refusal> {
        let mut writing = sent.begin(self, "CreateOptions", false)?;
        let mut object = writing.decode(sent)?;
        super::metadata::check_namespace(sent.namespace, &object)?;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        if sent.resource.namespaced {
            object["metadata"]["namespace"] = sent.namespace.into();
        }
        let status = match &*sent.resource.kind.kind {
            "SelfSubjectReview" => {
                object["metadata"]["creationTimestamp"] = self.0.clock.now_text().into();
                json!({"userInfo": sent.user.info()})
            }
            "TokenReview" => self.whose(object["spec"]["token"].as_str().unwrap_or_default())?,
            kind => allowed(kind, &sent.resource.kind.group, &object["spec"])?,
        };
        if &*sent.resource.kind.kind != "SelfSubjectReview" {
            object = track_update(&sent.resource.schema, None, object, &writing.write());
        }
        object["status"] = status;
        let outcome = Outcome::Imagined(Box::new(Draft::from_object(&object)), None);
        Ok(writing.written(StatusCode::CREATED, outcome))
    }

    fn whose(&self, token: &str) -> Result<Value, Refusal> {
        if token.is_empty() {
            return Err(Refusal::bad_request("token is required for TokenReview in authentication"));
        }
        Ok(match self.user_of_token(token) {
            Some(user) => json!({"authenticated": true, "user": user.info(), "audiences": [AUDIENCE]}),
            None => json!({"user": {}, "error": "invalid bearer token"}),
        })
    }
}

/// The default audience of tokens.
const AUDIENCE: &str = "https://kubernetes.default.svc";

fn allowed(kind: &str, group: &str, spec: &Value) -> Result<Value, Refusal> {
    let mut causes = Vec::new();
    if spec["resourceAttributes"].is_null() == spec["nonResourceAttributes"].is_null() {
        let detail = if spec["resourceAttributes"].is_null() {
            "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        } else {
            "cannot be specified in combination with resourceAttributes"
        };
        let field =
            if spec["resourceAttributes"].is_null() { "spec.resourceAttributes" } else { "spec.nonResourceAttributes" };
        causes.push(Cause::invalid(field, "null", detail));
    }
    let is_of_self = kind == "SelfSubjectAccessReview";
    let names_no_user =
        spec["user"].as_str().unwrap_or_default().is_empty() && spec["groups"].as_array().is_none_or(Vec::is_empty);
    if !is_of_self && names_no_user {
        causes.push(Cause::invalid_text("spec.user", "", "at least one of user or group must be specified"));
    }
    if causes.is_empty() {
        return Ok(json!({"allowed": spec["user"] != "system:anonymous"}));
    }
    Err(Refusal::invalid(&Named { group, kind: "", name: "" }, &causes))
}
