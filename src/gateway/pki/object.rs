//! `Certificate` objects of cert-manager and of Gardener's cert-management: what they say, and how they are asked to
//! issue anew.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_core::{
    api::names::annotation,
    object::Gvk,
    plan::certificate::{Backend, Validity},
};

/// A `Certificate`, as far as it concerns us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Tells it from one of the same name that was there before.
    pub uid: String,
    /// Tells this state of it from every other.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// `<namespace>/<name>` of the Kyma that it says it is for.
    pub kyma: Option<String>,
    /// Its `spec` as JSON.
    pub spec: Box<str>,
    /// When what it issued counts; absent until that is known.
    pub validity: Option<Validity>,
    /// Whether it is being issued.
    pub is_issuing: bool,
    /// When issuing failed last.
    pub failed_at: Option<Timestamp>,
    /// Why it is not ready, in its issuer's words.
    pub problem: Option<String>,
}

/// How a certificate is asked for anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Renewal {
    /// What is merged into it.
    pub patch: Value,
    /// Into which of its parts.
    pub subresource: Option<&'static str>,
}

/// The kind of its certificates, if it has any.
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

/// How a certificate is asked for anew, whoever has it now. Somebody else's change meanwhile makes it void: it may have
/// been just that.
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

/// The moment without a fraction, as Kubernetes writes it.
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
    // While it is being issued, `Ready` only says that it is; what is in the way is said by the other.
    let issuing = condition(object, "Issuing").and_then(|issuing| issuing["message"].as_str());
    ready["message"].as_str().or(issuing).map(str::to_owned)
}
