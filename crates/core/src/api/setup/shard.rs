//! Shard: one more part of the workspaces of a kcp landscape.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use k8s_openapi::api::core::v1::{ResourceRequirements, Volume, VolumeMount};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{crd, shared::Condition},
    shared::{
        Audit, Auth, Authorization, CertificateTemplates, DeploymentTemplate, Etcd, Image, LocalRef, Logging,
        RootShardRef, ServiceTemplate,
    },
};

/// A shard of a RootShard. Its name is the name of the shard in kcp.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kcp.io",
    version = "v1alpha1",
    kind = "Shard",
    plural = "shards",
    namespaced,
    status = "ShardStatus",
    printcolumn(json_path = ".spec.rootShard.ref.name", name = "RootShard", type_ = "string"),
    printcolumn(json_path = ".status.phase", name = "Phase", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ShardSpec {
    /// What a RootShard has as well.
    #[serde(flatten)]
    pub common: CommonShardSpec,
    /// The RootShard.
    pub root_shard: RootShardRef,
    /// The cache server. Default: the one of the RootShard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<ShardCache>,
}

/// The cache server of a shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShardCache {
    /// The CacheServer.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<LocalRef>,
}

/// The fields that RootShard and Shard share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommonShardSpec {
    /// Domain of the cluster. Default: `cluster.local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_domain: String,
    /// URL of the shard. Default: the one of its Service.
    #[serde(default, rename = "shardBaseURL", skip_serializing_if = "String::is_empty")]
    pub shard_base_url: String,
    /// The etcd of the shard.
    pub etcd: Etcd,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Number of pods. Unset: 2 on creation, and Tidegate leaves it alone afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Auditing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<Audit>,
    /// Who decides on requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization: Option<Authorization>,
    /// How users authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// The VirtualWorkspace that serves the virtual workspaces of the shard. Default: the shard itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kcp_virtual_workspace: Option<LocalRef>,
    /// Changes to certificates.
    #[serde(default, skip_serializing_if = "CertificateTemplates::is_empty")]
    pub certificate_templates: CertificateTemplates,
    /// Changes to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
    /// Changes to the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_template: Option<DeploymentTemplate>,
    /// Secret with more CA certificates for servers, key `tls.crt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle_secret_ref: Option<LocalRef>,
    /// Secret with more CA certificates for clients, key `tls.crt`.
    #[serde(default, rename = "clientCABundleRef", skip_serializing_if = "Option::is_none")]
    pub client_ca_bundle_ref: Option<LocalRef>,
    /// More arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// More volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_volumes: Vec<Volume>,
    /// More mounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub extra_volume_mounts: Vec<VolumeMount>,
    /// Logging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
}

/// The state of a Shard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShardStatus {
    /// `Provisioning`, `Running` or `Deleting`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}
