//! Kubeconfig: credentials for a kcp landscape, and their permissions.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{crd, shared::Condition},
    shared::{CertificateTemplate, LocalRef},
};

/// A kubeconfig with a client certificate, in a Secret.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kcp.io",
    version = "v1alpha1",
    kind = "Kubeconfig",
    plural = "kubeconfigs",
    namespaced,
    status = "KubeconfigStatus",
    printcolumn(json_path = ".status.targetName", name = "Target", type_ = "string"),
    printcolumn(json_path = ".status.phase", name = "Phase", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.targetWorkspace) && has(self.authorization) \
             && has(self.authorization.clusterRoleBindings.cluster))",
    "message": "Cannot set both targetWorkspace and authorization.clusterRoleBindings.cluster. Use targetWorkspace \
                only.",
}]))]
pub struct KubeconfigSpec {
    /// What the kubeconfig leads to.
    pub target: Target,
    /// Workspace. Default: `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$"))]
    pub target_workspace: Option<String>,
    /// Name of the user.
    pub username: String,
    /// Groups of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// How long its certificate is valid, for example `8766h`.
    pub validity: String,
    /// The Secret to write, key `kubeconfig`.
    pub secret_ref: LocalRef,
    /// Changes to the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_template: Option<CertificateTemplate>,
    /// Permissions inside kcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<KubeconfigAuthorization>,
}

/// What a kubeconfig leads to: exactly one of the three.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// A RootShard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_shard_ref: Option<LocalRef>,
    /// A Shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_ref: Option<LocalRef>,
    /// A FrontProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_proxy_ref: Option<LocalRef>,
}

/// Permissions inside kcp.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigAuthorization {
    /// ClusterRoleBindings in the workspace.
    pub cluster_role_bindings: ClusterRoleBindings,
}

/// ClusterRoleBindings in the workspace of a Kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRoleBindings {
    /// Deprecated: use `targetWorkspace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The ClusterRoles to bind.
    pub cluster_roles: Vec<String>,
}

/// The state of a Kubeconfig.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeconfigStatus {
    /// `Provisioning`, `Ready` or `Failed`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// What the kubeconfig leads to, for example `RootShard/root`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_name: String,
    /// Permissions inside kcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<ProvisionedAuthorization>,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}

/// Permissions that exist inside kcp.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisionedAuthorization {
    /// The workspace with the ClusterRoleBindings.
    pub provisioned_cluster: String,
}
