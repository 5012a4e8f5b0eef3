// SPDX-License-Identifier: Apache-2.0

//! Validation of built-in objects beyond the types of fields: keys, size and immutability of ConfigMaps and Secrets,
//! and the keys that a Secret's type requires; the namespace of Events; immutable fields of some other kinds. The real
//! server validates more, also of these kinds.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_core::object::Gvk;

use crate::refusal::Cause;

/// The fields of a StatefulSet's `spec` that may change.
const OF_STATEFUL_SETS: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
/// Limit of all values of a ConfigMap or Secret together, in bytes.
const DATA_BYTES_MAX: u64 = 1 << 20;

/// All errors of an object, except in its metadata.
pub(crate) fn check(kind: &Gvk, before: Option<&Value>, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    match (&*kind.group, &*kind.kind) {
        ("", "ConfigMap") => {
            stays(before, object, &["data", "binaryData"], &mut causes);
            keys(object, "data", &mut causes);
            for (key, _) in entries(object, "data").filter(|(key, _)| !object["binaryData"][*key].is_null()) {
                let path = format!("data[{key}]");
                causes.push(Cause::invalid_text(&path, key, "duplicate of key present in binaryData"));
            }
            keys(object, "binaryData", &mut causes);
            let texts: u64 = entries(object, "data").map(|(_, text)| text.len() as u64).sum();
            if DATA_BYTES_MAX < texts + decoded(object, "binaryData") {
                // The server reports this path, because the whole object is too long.
                causes.push(Cause::too_long("[]", DATA_BYTES_MAX));
            }
        }
        ("", "Secret") => {
            causes.extend(before.and_then(|before| changed(before, object, "type")));
            stays(before, object, &["data"], &mut causes);
            keys(object, "data", &mut causes);
            if DATA_BYTES_MAX < decoded(object, "data") {
                causes.push(Cause::too_long("data", DATA_BYTES_MAX));
            }
            of_type(object, &mut causes);
        }
        ("" | "events.k8s.io", "Event") => {
            let involved = if kind.group.is_empty() { "involvedObject" } else { "regarding" };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (own, of) = (text(&object["metadata"]["namespace"]), text(&object[involved]["namespace"]));
            // Events about objects without a namespace are in this one.
            if own != of && !(of.is_empty() && own == "default") {
                causes.push(Cause::invalid_text("involvedObject.namespace", &of, "does not match event.namespace"));
            }
        }
        ("apps", "DaemonSet" | "Deployment" | "ReplicaSet") => {
            causes.extend(before.and_then(|before| changed(before, object, "spec.selector")));
        }
        ("apps", "StatefulSet") => {
            let rest = |of: &Value| {
                let fields = of["spec"].as_object().into_iter().flatten();
                let kept = fields.filter(|(name, _)| !OF_STATEFUL_SETS.contains(&name.as_str()));
                kept.map(|(name, value)| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
            };
            if before.is_some_and(|before| rest(before) != rest(object)) {
                causes.push(Cause::forbidden("spec", &only_these_change()));
            }
        }
        ("networking.k8s.io", "IngressClass") => {
            causes.extend(before.and_then(|before| changed(before, object, "spec.controller")));
        }
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => {
            let differs = before.is_some_and(|before| before["roleRef"] != object["roleRef"]);
            let cause = || Cause::invalid("roleRef", go_reference(&object["roleRef"]), "cannot change roleRef");
            causes.extend(differs.then(cause));
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            if before.is_some_and(|before| before["value"] != object["value"]) {
                causes.push(Cause::forbidden("value", "may not be changed in an update."));
            }
            causes.extend(before.and_then(|before| changed(before, object, "preemptionPolicy")));
        }
        _ => {}
    }
    causes
}

/// The error for an immutable field that changed.
fn changed(before: &Value, object: &Value, path: &str) -> Option<Cause> {
    let at = |of: &Value| of.pointer(&format!("/{}", path.replace('.', "/"))).cloned().unwrap_or_default();
    let (was, is) = (at(before), at(object));
    (was != is).then(|| Cause::invalid(path, is, "field is immutable"))
}

fn only_these_change() -> String {
    let quoted: Vec<String> = OF_STATEFUL_SETS.iter().map(|name| format!("'{name}'")).collect();
    let (last, others) = quoted.split_last().expect("the list is not empty");
    let others = others.join(", ");
    format!("updates to statefulset spec for fields other than {others} and {last} are forbidden")
}

/// A reference to a role, as Go prints it.
fn go_reference(reference: &Value) -> Value {
    json!({"APIGroup": reference["apiGroup"], "Kind": reference["kind"], "Name": reference["name"]})
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let entries = object[field].as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// The keys that a Secret of a known type must contain.
fn of_type(secret: &Value, causes: &mut Vec<Cause>) {
    let lacks = |key: &str| secret["data"][key].is_null();
    let mut required = |keys: &[&str]| {
        causes.extend(keys.iter().map(|key| Cause::required(&format!("data[{key}]"), "")));
    };
    match secret["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => {
            let keys = ["tls.crt", "tls.key"];
            required(&keys.into_iter().filter(|key| lacks(key)).collect::<Vec<_>>());
        }
        "kubernetes.io/basic-auth" if lacks("username") && lacks("password") => required(&["username", "password"]),
        "kubernetes.io/ssh-auth" if secret["data"]["ssh-privatekey"].as_str().is_none_or(str::is_empty) => {
            required(&["ssh-privatekey"]);
        }
        "kubernetes.io/dockercfg" if lacks(".dockercfg") => required(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" if lacks(".dockerconfigjson") => required(&[".dockerconfigjson"]),
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            if secret["metadata"]["annotations"][ACCOUNT].as_str().is_none_or(str::is_empty) {
                causes.push(Cause::required(&format!("metadata.annotations[{ACCOUNT}]"), ""));
            }
        }
        _ => {}
    }
}

/// Length of the decoded base64.
fn decoded(object: &Value, field: &str) -> u64 {
    entries(object, field).map(|(_, text)| text.trim_end_matches('=').len() as u64 * 3 / 4).sum()
}

/// An immutable object neither changes nor becomes mutable.
fn stays(before: Option<&Value>, object: &Value, fields: &[&str], causes: &mut Vec<Cause>) {
    const DETAIL: &str = "field is immutable when `immutable` is set";
    let Some(before) = before.filter(|before| before["immutable"] == true) else { return };
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", DETAIL));
    }
    for field in fields.iter().filter(|field| before[**field] != object[**field]) {
        causes.push(Cause::forbidden(field, DETAIL));
    }
}

fn keys(object: &Value, field: &str, causes: &mut Vec<Cause>) {
    const LEN_MAX: usize = 253;
    const FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
                        or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    for (key, _) in entries(object, field) {
        let mut problems = Vec::new();
        if LEN_MAX < key.len() {
            problems.push(format!("must be no more than {LEN_MAX} characters"));
        }
        if key.is_empty() || !key.chars().all(is_plain) {
            problems.push(FORM.to_owned());
        }
        match key {
            "." | ".." => problems.push(format!("must not be '{key}'")),
            _ if key.starts_with("..") => problems.push("must not start with '..'".to_owned()),
            _ => {}
        }
        let path = format!("{field}[{key}]");
        causes.extend(problems.iter().map(|problem| Cause::invalid_text(&path, key, problem)));
    }
}
