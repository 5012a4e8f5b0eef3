//! RootShard: the first shard of a kcp landscape, with its PKI.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use k8s_openapi::api::core::v1::{ResourceRequirements, Volume, VolumeMount};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{crd, shared::Condition},
    shard::CommonShardSpec,
    shared::{
        CertificateTemplates, Certificates, DeploymentTemplate, External, Image, LocalRef, Logging, ServiceTemplate,
    },
};

/// The first shard of a kcp landscape, its PKI and its internal proxy.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kcp.io",
    version = "v1alpha1",
    kind = "RootShard",
    plural = "rootshards",
    namespaced,
    status = "RootShardStatus",
    printcolumn(json_path = ".spec.external.hostname", name = "Hostname", type_ = "string"),
    printcolumn(json_path = ".status.phase", name = "Phase", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct RootShardSpec {
    /// What a Shard has as well.
    #[serde(flatten)]
    pub common: CommonShardSpec,
    /// The address under which users reach kcp.
    pub external: External,
    /// The cache server.
    pub cache: CacheConfig,
    /// The origin of the root CA.
    pub certificates: Certificates,
    /// The internal proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxySpec>,
}

/// The cache server of a RootShard. Without a reference, the root shard itself serves the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheConfig {
    /// Deprecated and without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedded: Option<EmbeddedCache>,
    /// The CacheServer.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<LocalRef>,
}

/// Deprecated and without effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EmbeddedCache {
    /// Without effect.
    pub enabled: bool,
}

/// The internal proxy of a RootShard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxySpec {
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Number of pods. Unset: 2 on creation, and Tidegate leaves it alone afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Changes to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
    /// Changes to the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_template: Option<DeploymentTemplate>,
    /// Changes to certificates.
    #[serde(default, skip_serializing_if = "CertificateTemplates::is_empty")]
    pub certificate_templates: CertificateTemplates,
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

/// The state of a RootShard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RootShardStatus {
    /// `Provisioning`, `Running` or `Deleting`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
    /// The Shards that refer to it, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub shards: Vec<KnownShard>,
}

/// A Shard that refers to a RootShard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KnownShard {
    /// Its name.
    pub name: String,
}
