//! VirtualWorkspace: a server of virtual workspaces beside a shard.

use k8s_openapi::api::core::v1::{ResourceRequirements, Volume, VolumeMount};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{crd, shared::Condition},
    shared::{CertificateTemplates, DeploymentTemplate, External, Image, LocalRef, Logging, ServiceTemplate},
};

/// A server of virtual workspaces of one shard.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kcp.io",
    version = "v1alpha1",
    kind = "VirtualWorkspace",
    plural = "virtualworkspaces",
    namespaced,
    status = "VirtualWorkspaceStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct VirtualWorkspaceSpec {
    /// The shard.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "(has(self.rootShardRef) && !has(self.shardRef)) || (!has(self.rootShardRef) && has(self.shardRef))",
        "message": "Must specify exactly one of rootShardRef or shardRef",
    }]))]
    pub target: VirtualWorkspaceTarget,
    /// The address under which users reach it.
    pub external: External,
    /// Domain of the cluster. Default: `cluster.local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_domain: String,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Command. Default: `/virtual-workspaces`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Containers that run before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub init_containers: Vec<InitContainer>,
    /// Number of pods. Unset: 2 on creation, and Tidegate leaves it alone afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Changes to certificates.
    #[serde(default, skip_serializing_if = "CertificateTemplates::is_empty")]
    pub certificate_templates: CertificateTemplates,
    /// Changes to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
    /// Changes to the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_template: Option<DeploymentTemplate>,
    /// Without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_secret_ref: Option<LocalRef>,
    /// Secret with more CA certificates for clients, key `tls.crt`.
    #[serde(default, rename = "clientCABundleRef", skip_serializing_if = "Option::is_none")]
    pub client_ca_bundle_ref: Option<LocalRef>,
    /// Secret with the key `kubeconfig`. Default: the credentials of the shard's administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<LocalRef>,
    /// More arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// More volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_volumes: Vec<Volume>,
    /// More mounts of the server's container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_volume_mounts: Vec<VolumeMount>,
    /// Logging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
}

/// The shard of a VirtualWorkspace: exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VirtualWorkspaceTarget {
    /// A RootShard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root_shard_ref: Option<LocalRef>,
    /// A Shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard_ref: Option<LocalRef>,
}

/// A container that runs before the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitContainer {
    /// Name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Image. Default: the one of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Secret with the key `kubeconfig`. Default: the credentials of the shard's administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig_secret_ref: Option<LocalRef>,
    /// Resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// More volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,
    /// More mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volume_mounts: Vec<VolumeMount>,
}

/// The state of a VirtualWorkspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VirtualWorkspaceStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}
