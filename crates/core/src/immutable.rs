//! Fields that an API server does not change in an object that exists.
//!
//! `diff` and the daemon use the same table, so what one predicts is what the other does: the change is refused, unless
//! the object says with `tidegate.dev/recreate: enabled` that it may be deleted and created again.

use serde_json::Value;

use crate::{api::names::annotation, changes::covers, object::Gvk};

/// A change that an API server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Immutable {
    /// The kind of the object.
    kind: String,
    /// The field, such as `spec.selector`.
    field: String,
    /// What can be done about it.
    remedy: Remedy,
}

/// What can be done about a change that an API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// The object has the annotation: Tidegate deletes it and creates it again.
    Recreate,
    /// The annotation would allow that.
    Annotate,
    /// Nothing, but another name: the deletion of such an object takes users' data along.
    Rename,
}

/// How the values of a field compare.
type Same = fn(field: &str, new: &Value, old: &Value) -> bool;

/// Fields to which an API server adds nothing, so that one without a key has lost it.
const WITHOUT_DEFAULTS: [&str; 2] = ["/spec/selector", "/parameters"];

/// The value of [`annotation::RECREATE`] that allows it.
const ENABLED: &str = "enabled";

/// The first immutable field that differs between two declarations of an object; `None` if the API server changes it.
///
/// A field that the new declaration omits keeps its value or its default, so it is no difference.
pub fn between(gvk: &Gvk, old: &Value, new: &Value) -> Option<Immutable> {
    find(gvk, old, new, |_, new, old| new == old)
}

/// As [`between`], for a live object, to which the API server has added defaults.
pub fn over_live(gvk: &Gvk, live: &Value, desired: &Value) -> Option<Immutable> {
    find(
        gvk,
        live,
        desired,
        |field, desired, live| {
            if WITHOUT_DEFAULTS.contains(&field) { desired == live } else { covers(desired, live) }
        },
    )
}

fn find(gvk: &Gvk, old: &Value, new: &Value, same: Same) -> Option<Immutable> {
    let pointer = field(gvk, old, new, same)?;
    let field = pointer.trim_start_matches('/').replace('/', ".");
    Some(Immutable { kind: gvk.kind.to_string(), field, remedy: remedy(gvk, new) })
}

fn remedy(gvk: &Gvk, new: &Value) -> Remedy {
    let holds_data = matches!(
        (&*gvk.group, &*gvk.kind),
        ("", "PersistentVolumeClaim" | "PersistentVolume" | "Namespace")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    );
    let annotations = new.pointer("/metadata/annotations");
    let asks = annotations.and_then(|annotations| annotations.get(annotation::RECREATE)?.as_str()) == Some(ENABLED);
    match (holds_data, asks) {
        (true, _) => Remedy::Rename,
        (false, true) => Remedy::Recreate,
        (false, false) => Remedy::Annotate,
    }
}

/// The immutable field that differs, as a JSON pointer.
fn field(gvk: &Gvk, old: &Value, new: &Value, same: Same) -> Option<&'static str> {
    let is_external = |value: &Value| value.pointer("/spec/type").and_then(Value::as_str) == Some("ExternalName");
    let of_kind: &[&'static str] = match (&*gvk.group, &*gvk.kind) {
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet") => &["/spec/selector"],
        ("apps", "StatefulSet") => {
            &["/spec/selector", "/spec/serviceName", "/spec/podManagementPolicy", "/spec/volumeClaimTemplates"]
        }
        ("apps", "ControllerRevision") => &["/data"],
        ("batch", "Job") => &[
            "/spec/template",
            "/spec/selector",
            "/spec/completionMode",
            "/spec/podFailurePolicy",
            "/spec/backoffLimitPerIndex",
            "/spec/managedBy",
        ],
        // Such a Service has no address, and may get or lose one.
        ("", "Service") if is_external(old) || is_external(new) => &[],
        ("", "Service") => &["/spec/clusterIP", "/spec/clusterIPs"],
        ("", "PersistentVolumeClaim") => {
            &["/spec/storageClassName", "/spec/accessModes", "/spec/volumeMode", "/spec/selector", "/spec/volumeName"]
        }
        ("", "PersistentVolume") => &["/spec/volumeMode"],
        ("", "Secret") => &["/type"],
        ("", "ResourceQuota") => &["/spec/scopes"],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &["/roleRef"],
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &["/spec/group", "/spec/scope", "/spec/names/kind"],
        ("storage.k8s.io", "StorageClass") => &["/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode"],
        ("storage.k8s.io", "CSIDriver") => &["/spec/attachRequired", "/spec/volumeLifecycleModes"],
        ("scheduling.k8s.io", "PriorityClass") => &["/value", "/preemptionPolicy"],
        ("node.k8s.io", "RuntimeClass") => &["/handler"],
        ("networking.k8s.io", "IngressClass") => &["/spec/controller"],
        ("discovery.k8s.io", "EndpointSlice") => &["/addressType"],
        _ => &[],
    };
    let differs = |field: &str| match (old.pointer(field), new.pointer(field)) {
        (Some(old), Some(new)) => !same(field, new, old),
        (_, None) | (None, _) => false,
    };
    if let Some(field) = of_kind.iter().find(|field| differs(field)) {
        return Some(field);
    }
    let is_frozen = gvk.group.is_empty()
        && matches!(&*gvk.kind, "Secret" | "ConfigMap")
        && old.get("immutable") == Some(&Value::Bool(true));
    // The object lists its own values, so an omitted one is removed.
    let is_other = |field: &str| old.pointer(field) != new.pointer(field);
    let frozen = ["/data", "/binaryData", "/stringData", "/immutable"];
    frozen.into_iter().find(|field| is_frozen && is_other(field))
}

// === impl Immutable ===

impl Immutable {
    /// Whether Tidegate deletes the object and creates it again.
    pub fn is_recreated(&self) -> bool {
        self.remedy == Remedy::Recreate
    }

    /// Why the change is not made as it is, and what to do, as a clause: `spec.selector of a Deployment cannot be
    /// changed; ...`.
    pub fn sentence(&self) -> String {
        let Immutable { kind, field, remedy } = self;
        let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
        let fact = format!("{field} of {article} {kind} cannot be changed");
        match remedy {
            Remedy::Recreate => fact,
            Remedy::Annotate => format!(
                "{fact}; undo the change, or annotate the object with {}: {ENABLED} to have it deleted and created again",
                annotation::RECREATE
            ),
            Remedy::Rename => {
                format!("{fact}, and Tidegate never deletes one to create it again; undo the change, or use a new name")
            }
        }
    }
}

#[cfg(test)]
mod tests;
