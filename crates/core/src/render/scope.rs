//! Which kinds are namespaced, as far as that is known without a cluster.

use std::collections::BTreeMap;

use crate::object::{Object, is_built_in_group};

/// Whether a built-in kind is namespaced; `None` for any other kind.
pub fn built_in_scope(group: &str, kind: &str) -> Option<bool> {
    if !is_built_in_group(group) {
        return None;
    }
    let cluster = match group {
        "" => matches!(kind, "Namespace" | "Node" | "PersistentVolume" | "ComponentStatus"),
        "rbac.authorization.k8s.io" => matches!(kind, "ClusterRole" | "ClusterRoleBinding"),
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "flowcontrol.apiserver.k8s.io"
        | "internal.apiserver.k8s.io"
        | "node.k8s.io"
        | "scheduling.k8s.io"
        | "storagemigration.k8s.io"
        | "authentication.k8s.io" => true,
        "authorization.k8s.io" => kind != "LocalSubjectAccessReview",
        "certificates.k8s.io" => kind != "PodCertificateRequest",
        "networking.k8s.io" => matches!(kind, "IngressClass" | "IPAddress" | "ServiceCIDR"),
        "resource.k8s.io" => matches!(kind, "DeviceClass" | "ResourceSlice" | "DeviceTaintRule"),
        "storage.k8s.io" => kind != "CSIStorageCapacity",
        _ => false,
    };
    Some(!cluster)
}

/// Whether the kinds of the CRDs among `objects` are namespaced, by group and kind.
pub(super) fn of_crds<'a>(objects: impl Iterator<Item = &'a Object>) -> BTreeMap<(String, String), bool> {
    let mut scopes = BTreeMap::new();
    for object in objects.filter(|object| &*object.gvk().kind == "CustomResourceDefinition") {
        let text = |pointer| object.value().pointer(pointer).and_then(serde_json::Value::as_str);
        if let (Some(group), Some(kind), Some(scope)) =
            (text("/spec/group"), text("/spec/names/kind"), text("/spec/scope"))
        {
            scopes.insert((group.to_owned(), kind.to_owned()), scope == "Namespaced");
        }
    }
    scopes
}
