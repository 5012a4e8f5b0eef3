//! API versions that Kubernetes served once, as its guide to deprecated APIs lists them.
//!
//! <https://kubernetes.io/docs/reference/using-api/deprecation-guide/>

/// An API version of a kind that no known version serves any more.
pub(super) struct Removed {
    pub(super) api_version: &'static str,
    pub(super) kinds: &'static [&'static str],
    /// The version of Kubernetes that serves it no more.
    pub(super) in_version: &'static str,
    /// The API version that replaces it, if there is one.
    pub(super) instead: Option<&'static str>,
}

const WEBHOOKS: &[&str] = &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
const RBAC: &[&str] = &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"];
const REVIEWS: &[&str] =
    &["LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SubjectAccessReview"];
const WORKLOADS: &[&str] = &["ControllerRevision", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"];
const FLOWS: &[&str] = &["FlowSchema", "PriorityLevelConfiguration"];

pub(super) static ALL: [Removed; 30] = [
    row("extensions/v1beta1", &["DaemonSet", "Deployment", "ReplicaSet"], "1.16", "apps/v1"),
    row("extensions/v1beta1", &["NetworkPolicy"], "1.16", "networking.k8s.io/v1"),
    row("apps/v1beta1", &["ControllerRevision", "Deployment", "StatefulSet"], "1.16", "apps/v1"),
    row("apps/v1beta2", WORKLOADS, "1.16", "apps/v1"),
    gone("extensions/v1beta1", &["PodSecurityPolicy"], "1.16"),
    row("admissionregistration.k8s.io/v1beta1", WEBHOOKS, "1.22", "admissionregistration.k8s.io/v1"),
    row("apiextensions.k8s.io/v1beta1", &["CustomResourceDefinition"], "1.22", "apiextensions.k8s.io/v1"),
    row("apiregistration.k8s.io/v1beta1", &["APIService"], "1.22", "apiregistration.k8s.io/v1"),
    row("authentication.k8s.io/v1beta1", &["TokenReview"], "1.22", "authentication.k8s.io/v1"),
    row("authorization.k8s.io/v1beta1", REVIEWS, "1.22", "authorization.k8s.io/v1"),
    row("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"], "1.22", "certificates.k8s.io/v1"),
    row("coordination.k8s.io/v1beta1", &["Lease"], "1.22", "coordination.k8s.io/v1"),
    row("extensions/v1beta1", &["Ingress"], "1.22", "networking.k8s.io/v1"),
    row("networking.k8s.io/v1beta1", &["Ingress", "IngressClass"], "1.22", "networking.k8s.io/v1"),
    row("rbac.authorization.k8s.io/v1beta1", RBAC, "1.22", "rbac.authorization.k8s.io/v1"),
    row("scheduling.k8s.io/v1beta1", &["PriorityClass"], "1.22", "scheduling.k8s.io/v1"),
    row(
        "storage.k8s.io/v1beta1",
        &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"],
        "1.22",
        "storage.k8s.io/v1",
    ),
    row("rbac.authorization.k8s.io/v1alpha1", RBAC, "1.23", "rbac.authorization.k8s.io/v1"),
    row("autoscaling/v2beta1", &["HorizontalPodAutoscaler"], "1.25", "autoscaling/v2"),
    row("batch/v1beta1", &["CronJob"], "1.25", "batch/v1"),
    row("discovery.k8s.io/v1beta1", &["EndpointSlice"], "1.25", "discovery.k8s.io/v1"),
    row("events.k8s.io/v1beta1", &["Event"], "1.25", "events.k8s.io/v1"),
    row("node.k8s.io/v1beta1", &["RuntimeClass"], "1.25", "node.k8s.io/v1"),
    row("policy/v1beta1", &["PodDisruptionBudget"], "1.25", "policy/v1"),
    gone("policy/v1beta1", &["PodSecurityPolicy"], "1.25"),
    row("autoscaling/v2beta2", &["HorizontalPodAutoscaler"], "1.26", "autoscaling/v2"),
    row("flowcontrol.apiserver.k8s.io/v1beta1", FLOWS, "1.26", "flowcontrol.apiserver.k8s.io/v1"),
    row("storage.k8s.io/v1beta1", &["CSIStorageCapacity"], "1.27", "storage.k8s.io/v1"),
    row("flowcontrol.apiserver.k8s.io/v1beta2", FLOWS, "1.29", "flowcontrol.apiserver.k8s.io/v1"),
    row("flowcontrol.apiserver.k8s.io/v1beta3", FLOWS, "1.32", "flowcontrol.apiserver.k8s.io/v1"),
];

const fn row(
    api_version: &'static str,
    kinds: &'static [&'static str],
    in_version: &'static str,
    instead: &'static str,
) -> Removed {
    Removed { api_version, kinds, in_version, instead: Some(instead) }
}

const fn gone(api_version: &'static str, kinds: &'static [&'static str], in_version: &'static str) -> Removed {
    Removed { api_version, kinds, in_version, instead: None }
}

/// The removal of a kind's API version.
pub(super) fn find(api_version: &str, kind: &str) -> Option<&'static Removed> {
    ALL.iter().find(|removed| removed.api_version == api_version && removed.kinds.contains(&kind))
}
