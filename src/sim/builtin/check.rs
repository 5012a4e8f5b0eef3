//! What the server demands of ConfigMaps and Secrets beyond the types of their fields: keys, size, and that what is
//! immutable stays as it is; of Events, that they lie where their object is. Of other kinds it demands more than is asked
//! for here, but for a Deployment's selector.

use serde_json::Value;

use crate::{object::Gvk, sim::refusal::Cause};

/// All values of a ConfigMap or Secret together, in bytes.
const DATA_BYTES_MAX: u64 = 1 << 20;

/// Everything that is wrong with an object, but for its metadata.
pub(in crate::sim) fn check(kind: &Gvk, before: Option<&Value>, object: &Value) -> Vec<Cause> {
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
                // It is the whole object that is too long, which is how the server spells it.
                causes.push(Cause::too_long("[]", DATA_BYTES_MAX));
            }
        }
        ("", "Secret") => {
            stays(before, object, &["data"], &mut causes);
            keys(object, "data", &mut causes);
            if DATA_BYTES_MAX < decoded(object, "data") {
                causes.push(Cause::too_long("data", DATA_BYTES_MAX));
            }
        }
        ("" | "events.k8s.io", "Event") => {
            let involved = if kind.group.is_empty() { "involvedObject" } else { "regarding" };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (own, of) = (text(&object["metadata"]["namespace"]), text(&object[involved]["namespace"]));
            // What has no namespace is told of in this one.
            if own != of && !(of.is_empty() && own == "default") {
                causes.push(Cause::invalid_text("involvedObject.namespace", &of, "does not match event.namespace"));
            }
        }
        ("apps", "Deployment") => {
            if let Some(before) = before
                && before["spec"]["selector"] != object["spec"]["selector"]
            {
                causes.push(Cause::invalid("spec.selector", &object["spec"]["selector"], "field is immutable"));
            }
        }
        _ => {}
    }
    causes
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let entries = object[field].as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

/// Bytes that base64 stands for.
fn decoded(object: &Value, field: &str) -> u64 {
    entries(object, field).map(|(_, text)| text.trim_end_matches('=').len() as u64 * 3 / 4).sum()
}

/// What is immutable neither changes nor becomes mutable.
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
    const FORM: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
        'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
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
