//! Detects changes of immutable fields, which need a delete and a create.

use serde_json::Value;
use tidegate_core::object::Gvk;

/// The immutable field that prevents an update from `old` to `new`; `None` if an update is
/// possible.
pub(super) fn immutable(gvk: &Gvk, old: &Value, new: &Value) -> Option<&'static str> {
    let of_kind: &[&'static str] = match (&*gvk.group, &*gvk.kind) {
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet") => &["/spec/selector"],
        ("apps", "StatefulSet") => {
            &["/spec/selector", "/spec/serviceName", "/spec/podManagementPolicy", "/spec/volumeClaimTemplates"]
        }
        ("batch", "Job") => &["/spec/template", "/spec/selector", "/spec/completionMode"],
        ("", "Service") => &["/spec/clusterIP", "/spec/clusterIPs"],
        ("", "PersistentVolumeClaim") => {
            &["/spec/storageClassName", "/spec/accessModes", "/spec/volumeMode", "/spec/selector", "/spec/volumeName"]
        }
        ("", "PersistentVolume") => &["/spec/volumeMode"],
        ("", "Secret") => &["/type"],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &["/roleRef"],
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &["/spec/group", "/spec/scope", "/spec/names/kind"],
        ("storage.k8s.io", "StorageClass") => &["/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode"],
        ("scheduling.k8s.io", "PriorityClass") => &["/value", "/preemptionPolicy"],
        ("node.k8s.io", "RuntimeClass") => &["/handler"],
        ("networking.k8s.io", "IngressClass") => &["/spec/controller"],
        _ => &[],
    };
    if let Some(field) = of_kind.iter().find(|field| differs(old, new, field)) {
        return Some(field);
    }
    let is_frozen = gvk.group.is_empty()
        && matches!(&*gvk.kind, "Secret" | "ConfigMap")
        && old.get("immutable") == Some(&Value::Bool(true));
    let frozen = ["/data", "/binaryData", "/stringData", "/immutable"];
    frozen.into_iter().find(|field| is_frozen && differs(old, new, field))
}

/// A field that the new side omits keeps its value or its default, so no difference is known.
fn differs(old: &Value, new: &Value, field: &str) -> bool {
    let is_of_object = matches!(field, "/data" | "/binaryData" | "/stringData" | "/immutable");
    match (old.pointer(field), new.pointer(field)) {
        (Some(old), Some(new)) => old != new,
        (None, None) => false,
        // If the object lists its own values, an omitted one is removed.
        (Some(_), None) | (None, Some(_)) => is_of_object,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(api_version: &str, kind: &str, old: Value, new: Value, expected: Option<&str>) {
        let gvk = Gvk::from_api_version(api_version, kind);
        assert_eq!(immutable(&gvk, &old, &new), expected);
    }

    #[test]
    fn what_cannot_be_changed_in_place() {
        let selector = |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}, "replicas": 1}});
        check("apps/v1", "Deployment", selector("a"), selector("b"), Some("/spec/selector"));
        check("apps/v1", "StatefulSet", selector("a"), selector("b"), Some("/spec/selector"));
        check("apps/v1", "DaemonSet", selector("a"), selector("b"), Some("/spec/selector"));
        check("v1", "Service", selector("a"), selector("b"), None);
        let ip = |ip: &str| json!({"spec": {"clusterIP": ip}});
        check("v1", "Service", ip("10.0.0.1"), ip("10.0.0.2"), Some("/spec/clusterIP"));
        check("v1", "Service", ip("10.0.0.1"), json!({"spec": {}}), None);
        check(
            "batch/v1",
            "Job",
            json!({"spec": {"template": 1}}),
            json!({"spec": {"template": 2}}),
            Some("/spec/template"),
        );
        let role = |name: &str| json!({"roleRef": {"name": name}});
        check("rbac.authorization.k8s.io/v1", "RoleBinding", role("a"), role("b"), Some("/roleRef"));
        check("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", role("a"), role("a"), None);
        let crd = |scope: &str| json!({"spec": {"scope": scope, "names": {"kind": "Thing"}}});
        let crds = "apiextensions.k8s.io/v1";
        check(crds, "CustomResourceDefinition", crd("Namespaced"), crd("Cluster"), Some("/spec/scope"));
        check(
            "storage.k8s.io/v1",
            "StorageClass",
            json!({"provisioner": "a"}),
            json!({"provisioner": "b"}),
            Some("/provisioner"),
        );
        let claim = |class: &str| json!({"spec": {"storageClassName": class, "resources": class}});
        check("v1", "PersistentVolumeClaim", claim("a"), claim("b"), Some("/spec/storageClassName"));
    }

    #[test]
    fn a_frozen_object_is_made_anew() {
        let config = |immutable: bool, value: &str| json!({"immutable": immutable, "data": {"a": value}});
        check("v1", "ConfigMap", config(false, "1"), config(false, "2"), None);
        check("v1", "ConfigMap", config(false, "1"), config(true, "2"), None);
        check("v1", "ConfigMap", config(true, "1"), config(true, "2"), Some("/data"));
        check("v1", "Secret", config(true, "1"), config(false, "1"), Some("/immutable"));
        check("v1", "ConfigMap", config(true, "1"), json!({"data": {"a": "1"}}), Some("/immutable"));
        check("v1", "ConfigMap", config(true, "1"), config(true, "1"), None);
    }

    #[test]
    fn other_kinds_have_no_such_fields() {
        check("example.com/v1", "Deployment", json!({"spec": {"selector": 1}}), json!({"spec": {"selector": 2}}), None);
    }
}
