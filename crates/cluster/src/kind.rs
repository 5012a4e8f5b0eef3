//! Kinds as an API server serves them: their names in URLs, and whether they are namespaced.

use std::sync::Arc;

use kube::{Resource, core::NamespaceResourceScope};
use serde::Deserialize;
use tidegate_core::{
    name::Key,
    object::{Gvk, ObjectId},
};

/// A kind as an API server serves it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// Group, version and kind.
    pub gvk: Gvk,
    /// Its name in URLs.
    pub plural: Arc<str>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
}

/// The part of a CustomResourceDefinition that names its kinds.
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    scope: String,
    names: DefinitionNames,
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
struct DefinitionNames {
    kind: String,
    plural: String,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    /// The API server requires it, so a missing value has no default.
    #[serde(default)]
    served: bool,
}

// === impl Kind ===

impl Kind {
    /// Creates a kind from its parts.
    pub fn new(gvk: Gvk, plural: &str, namespaced: bool) -> Kind {
        Kind { gvk, plural: plural.into(), namespaced }
    }

    /// The kind of a namespaced type.
    pub fn namespaced<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>() -> Kind {
        Kind::new(Gvk::new(&K::group(&()), &K::version(&()), &K::kind(&())), &K::plural(&()), true)
    }

    /// A kind of the table of built-in kinds.
    pub fn built_in(gvk: &Gvk) -> Option<Kind> {
        let (_, _, kind, plural, namespaced) = BUILT_IN.iter().find(|(group, version, kind, ..)| {
            *group == &*gvk.group && *version == &*gvk.version && *kind == &*gvk.kind
        })?;
        Some(Kind::new(Gvk { kind: (*kind).into(), ..gvk.clone() }, plural, *namespaced))
    }

    /// The served kinds of a CustomResourceDefinition, from its JSON. Everything else in it, such as schemas, is
    /// ignored. Empty if the JSON is not a definition.
    pub fn of_definition(body: &[u8]) -> Vec<Kind> {
        let Ok(Definition { spec }) = serde_json::from_slice(body) else { return Vec::new() };
        let served = spec.versions.iter().filter(|version| version.served);
        served
            .map(|version| {
                let gvk = Gvk::new(&spec.group, &version.name, &spec.names.kind);
                Kind::new(gvk, &spec.names.plural, spec.scope == "Namespaced")
            })
            .collect()
    }

    /// The identity of an object of this kind.
    pub fn id(&self, key: &Key) -> ObjectId {
        ObjectId {
            group: Arc::clone(&self.gvk.group),
            kind: Arc::clone(&self.gvk.kind),
            namespace: if self.namespaced { key.namespace().into() } else { "".into() },
            name: key.name().into(),
        }
    }

    /// The path of all objects, of those in a namespace, or of one object.
    pub(super) fn path(&self, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> String {
        let mut path = String::with_capacity(96);
        if self.gvk.group.is_empty() {
            path.push_str("/api/");
        } else {
            path.push_str("/apis/");
            path.push_str(&self.gvk.group);
            path.push('/');
        }
        path.push_str(&self.gvk.version);
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str("/namespaces/");
            // As in kubectl, the default namespace.
            path.push_str(if namespace.is_empty() { "default" } else { namespace });
        }
        path.push('/');
        path.push_str(&self.plural);
        for part in [name, subresource].into_iter().flatten() {
            path.push('/');
            push_encoded(&mut path, part);
        }
        path
    }
}

/// Encodes a path segment. Names of RBAC objects may contain `:` and other characters, so everything except RFC 3986's
/// unreserved characters is encoded.
pub(super) fn push_encoded(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// Group, version, kind, name in URLs, and whether it is namespaced.
type Row = (&'static str, &'static str, &'static str, &'static str, bool);

/// The kinds that modules consist of. Every supported Kubernetes serves these versions, so they need no discovery.
const BUILT_IN: &[Row] = &[
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "Endpoints", "endpoints", true),
    ("", "v1", "Event", "events", true),
    ("", "v1", "LimitRange", "limitranges", true),
    ("", "v1", "Namespace", "namespaces", false),
    ("", "v1", "Node", "nodes", false),
    ("", "v1", "PersistentVolume", "persistentvolumes", false),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("", "v1", "Pod", "pods", true),
    ("", "v1", "PodTemplate", "podtemplates", true),
    ("", "v1", "ReplicationController", "replicationcontrollers", true),
    ("", "v1", "ResourceQuota", "resourcequotas", true),
    ("", "v1", "Secret", "secrets", true),
    ("", "v1", "Service", "services", true),
    ("", "v1", "ServiceAccount", "serviceaccounts", true),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        false,
    ),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", false),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", true),
    ("apps", "v1", "DaemonSet", "daemonsets", true),
    ("apps", "v1", "Deployment", "deployments", true),
    ("apps", "v1", "ReplicaSet", "replicasets", true),
    ("apps", "v1", "StatefulSet", "statefulsets", true),
    ("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("batch", "v1", "CronJob", "cronjobs", true),
    ("batch", "v1", "Job", "jobs", true),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    ("coordination.k8s.io", "v1", "Lease", "leases", true),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
    ("events.k8s.io", "v1", "Event", "events", true),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", true),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", false),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", true),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", false),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", false),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", true),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", false),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", false),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", false),
];
