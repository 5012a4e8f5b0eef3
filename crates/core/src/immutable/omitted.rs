//! Immutable fields that one side of a change omits.

use serde_json::Value;

use crate::{api::names::FIELD_MANAGER, object::Gvk};

/// The value of a field; none if the API server stores none: it drops `null`, empty lists and empty texts.
pub(super) fn value<'v>(object: &'v Value, field: &str) -> Option<&'v Value> {
    object.pointer(field).filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => true,
    })
}

/// Whether an immutable field without a value has none for ever: the API server adds no default, and nothing else sets
/// it. A volume may still be bound to a node, and a claim to a volume.
pub(super) fn is_none(gvk: &Gvk, field: &str) -> bool {
    let without: &[&str] = match (&*gvk.group, &*gvk.kind) {
        ("apps", "StatefulSet") => &["/spec/serviceName", "/spec/volumeClaimTemplates"],
        ("batch", "Job") => {
            &["/spec/podFailurePolicy", "/spec/successPolicy", "/spec/backoffLimitPerIndex", "/spec/managedBy"]
        }
        ("", "PersistentVolumeClaim") => &["/spec/selector"],
        ("", "ResourceQuota") => &["/spec/scopes"],
        ("storage.k8s.io", "StorageClass") => &["/parameters"],
        _ => &[],
    };
    without.contains(&field)
}

/// Whether only Tidegate has applied a field of a live object, so that an apply without the field removes it.
pub(super) fn is_ours_alone(live: &Value, field: &str) -> bool {
    let claims = live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten();
    let mut holders = claims.filter(|claim| {
        let names = field.split('/').skip(1);
        names.map(|name| format!("f:{name}")).try_fold(&claim["fieldsV1"], |fields, name| fields.get(&name)).is_some()
    });
    let is_ours = |claim: &Value| claim["manager"] == FIELD_MANAGER && claim["operation"] == "Apply";
    holders.next().is_some_and(is_ours) && holders.next().is_none()
}
