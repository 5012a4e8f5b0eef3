//! FrontProxy: the entrance of users to a kcp landscape.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use k8s_openapi::api::core::v1::{ResourceRequirements, Volume, VolumeMount};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    super::{crd, shared::Condition},
    shared::{
        Auth, CertificateTemplates, DeploymentTemplate, External, Image, LocalRef, Logging, RootShardRef,
        ServiceTemplate,
    },
};

/// A proxy that routes the requests of users to shards.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kcp.io",
    version = "v1alpha1",
    kind = "FrontProxy",
    plural = "frontproxies",
    namespaced,
    status = "FrontProxyStatus",
    printcolumn(json_path = ".spec.rootShard.ref.name", name = "RootShard", type_ = "string"),
    printcolumn(json_path = ".spec.externalHostname", name = "ExternalHostname", type_ = "string"),
    printcolumn(json_path = ".status.phase", name = "Phase", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.externalHostname) && self.externalHostname != '' && has(self.external) \
             && self.external.hostname != '')",
    "message": "Cannot set both ExternalHostname (deprecated) and External.hostname. Use External.hostname only.",
}]))]
pub struct FrontProxySpec {
    /// The RootShard.
    pub root_shard: RootShardRef,
    /// Number of pods. Unset: 2 on creation, and Tidegate leaves it alone afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Resources of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// How users authenticate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(self.oidc) || (has(self.serviceAccount) && self.serviceAccount.enabled)",
        "message": "OIDC requires ServiceAccount auth to be enabled.",
    }]))]
    pub auth: Option<Auth>,
    /// More paths and where requests for them go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub additional_path_mappings: Vec<PathMapping>,
    /// The image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Deprecated: use `external`. May include a port.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub external_hostname: String,
    /// The address under which users reach this proxy. Default: the one of the RootShard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<External>,
    /// Changes to the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_template: Option<ServiceTemplate>,
    /// Changes to the Deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_template: Option<DeploymentTemplate>,
    /// Changes to certificates.
    #[serde(default, skip_serializing_if = "CertificateTemplates::is_empty")]
    pub certificate_templates: CertificateTemplates,
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

/// A path and where requests for it go. The files are paths in the container of the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathMapping {
    /// URL of the server.
    pub backend: String,
    /// File with the CA of the server.
    pub backend_server_ca: String,
    /// Prefix of the path.
    pub path: String,
    /// File with the client certificate.
    pub proxy_client_cert: String,
    /// File with the key of the client certificate.
    pub proxy_client_key: String,
}

/// The state of a FrontProxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FrontProxyStatus {
    /// `Provisioning`, `Running` or `Deleting`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub phase: String,
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
}
