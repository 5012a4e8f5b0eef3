//! `Certificate` objects of cert-manager and of Gardener's cert-management: their status, and how to request a new
//! certificate.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_core::{
    api::names::annotation,
    object::Gvk,
    plan::certificate::{Backend, Validity},
};

/// The parts of a `Certificate` that Tidegate uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Distinguishes it from an earlier object of the same name.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// `<namespace>/<name>` of the Kyma, from its annotation.
    pub kyma: Option<String>,
    /// Its `spec` as JSON.
    pub spec: Box<str>,
    /// When the issued certificate is valid, once that is known.
    pub validity: Option<Validity>,
    /// Whether it is being issued.
    pub is_issuing: bool,
    /// When issuing failed last.
    pub failed_at: Option<Timestamp>,
    /// Why it is not ready, in its issuer's words.
    pub problem: Option<String>,
}

/// A request for a new certificate.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewal {
    /// The merge patch.
    pub patch: Value,
    /// The subresource of the patch.
    pub subresource: Option<&'static str>,
}

/// The kind of the issuer's certificates, if it has one.
pub fn kind(backend: Backend) -> Option<(Gvk, &'static str)> {
    match backend {
        Backend::CertManager => Some((Gvk::new("cert-manager.io", "v1", "Certificate"), "certificates")),
        Backend::Gardener => Some((Gvk::new("cert.gardener.cloud", "v1alpha1", "Certificate"), "certificates")),
        Backend::Builtin => None,
    }
}

/// Reads a `Certificate`.
pub fn read(backend: Backend, object: &Value) -> Live {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let (from, to) = match backend {
        Backend::CertManager | Backend::Builtin => ("/status/notBefore", "/status/notAfter"),
        Backend::Gardener => ("/status/issuanceDate", "/status/expirationDate"),
    };
    let moment = |pointer: &str| text(pointer).and_then(|text| text.parse::<Timestamp>().ok());
    let validity = moment(from).zip(moment(to)).map(|(not_before, not_after)| Validity { not_before, not_after });
    let (is_issuing, failed_at, problem) = match backend {
        Backend::CertManager | Backend::Builtin => {
            (condition(object, "Issuing").is_some_and(holds), moment("/status/lastFailureTime"), not_ready(object))
        }
        Backend::Gardener => {
            let problem = text("/status/message").filter(|_| text("/status/state").as_deref() != Some("Ready"));
            (object.pointer("/spec/renew") == Some(&Value::Bool(true)), None, problem)
        }
    };
    Live {
        uid: text("/metadata/uid").unwrap_or_default(),
        resource_version: text("/metadata/resourceVersion").unwrap_or_default(),
        is_deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        kyma: object["metadata"]["annotations"][annotation::KYMA].as_str().map(str::to_owned),
        spec: object["spec"].to_string().into(),
        validity,
        is_issuing,
        failed_at,
        problem,
    }
}

/// A request for a new certificate. It fails if the object has changed meanwhile, because that change may be the same
/// request.
pub fn renewal(backend: Backend, live: &Live, conditions: &[Value], now: Timestamp) -> Renewal {
    let version = json!({ "resourceVersion": live.resource_version });
    match backend {
        Backend::CertManager | Backend::Builtin => {
            let issuing = json!({
                "type": "Issuing",
                "status": "True",
                "reason": "ManuallyTriggered",
                "message": "Certificate re-issuance manually triggered",
                "lastTransitionTime": seconds(now),
            });
            let mut all: Vec<Value> =
                conditions.iter().filter(|condition| condition["type"] != "Issuing").cloned().collect();
            all.push(issuing);
            Renewal {
                patch: json!({ "metadata": version, "status": { "conditions": all } }),
                subresource: Some("status"),
            }
        }
        Backend::Gardener => Renewal {
            patch: json!({ "metadata": version, "spec": { "renew": true, "ensureRenewedAfter": null } }),
            subresource: None,
        },
    }
}

/// The time without a fraction, as Kubernetes writes it.
fn seconds(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn holds(condition: &Value) -> bool {
    condition["status"] == "True"
}

fn not_ready(object: &Value) -> Option<String> {
    let ready = condition(object, "Ready").filter(|ready| !holds(ready))?;
    // During an issue, `Ready` only says that it is in progress. `Issuing` says what blocks it.
    let issuing = condition(object, "Issuing").and_then(|issuing| issuing["message"].as_str());
    ready["message"].as_str().or(issuing).map(str::to_owned)
}
