//! CacheServer: the cache that shards share.

use k8s_openapi::api::core::v1::{Volume, VolumeMount};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shared::{CertificateTemplates, Certificates, DeploymentTemplate, Etcd, Image, Logging, ServiceTemplate};

/// The cache that the shards of a kcp landscape share.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kcp.io",
    version = "v1alpha1",
    kind = "CacheServer",
    plural = "cacheservers",
    namespaced,
    status = "CacheServerStatus",
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.replicas) || self.replicas <= 1 || has(self.etcd)",
    "message": "etcd must be specified when replicas > 1",
}]))]
pub struct CacheServerSpec {
    /// Domain of the cluster. Default: `cluster.local`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_domain: String,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Number of pods. Only with `etcd`. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Logging.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<Logging>,
    /// The origin of the root CA of the cache.
    pub certificates: Certificates,
    /// Changes to certificates.
    #[serde(default, skip_serializing_if = "CertificateTemplates::is_empty")]
    pub certificate_templates: CertificateTemplates,
    /// Changes to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
    /// Changes to the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_template: Option<DeploymentTemplate>,
    /// The etcd of the cache. Default: one in the pod, which a restart empties.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd: Option<Etcd>,
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
}

/// The state of a CacheServer, which upstream leaves empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheServerStatus {}
