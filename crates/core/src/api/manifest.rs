//! Manifest: one module in one runtime.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    crd,
    shared::{
        Condition, CustomResourcePolicy, LabelSelector, LastOperation, Manager, State, absent_is_empty, tolerant,
    },
};

/// The installation of one module in one runtime.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Manifest",
    plural = "manifests",
    namespaced,
    status = "ManifestStatus",
    printcolumn(json_path = ".status.state", name = "State", type_ = "string"),
    printcolumn(
        json_path = r".metadata.labels.operator\.kyma-project\.io/module-name",
        name = "Module",
        type_ = "string"
    ),
    printcolumn(json_path = ".spec.version", name = "Version", type_ = "string"),
    printcolumn(
        json_path = r".metadata.labels.operator\.kyma-project\.io/channel",
        name = "Channel",
        type_ = "string"
    ),
    printcolumn(json_path = ".status.lastOperation.operation", name = "Message", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ManifestSpec {
    /// Deprecated: a Manifest is always for a runtime.
    pub remote: bool,
    /// The source of the objects.
    pub install: Install,
    /// Deprecated, never used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ConfigImage>,
    /// Policy for the default custom resource.
    #[serde(default)]
    pub custom_resource_policy: CustomResourcePolicy,
    /// Version of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The default custom resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::nullable_embedded_object")]
    pub resource: Option<Value>,
    /// Images that replace those in the objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub localized_images: Vec<String>,
    /// The workload that determines whether the module is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
}

absent_is_empty!(ManifestSpec);

/// The source of the objects of a Manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Install {
    /// `raw-manifest`.
    pub name: String,
    /// An image in a registry, or `{type: git, source, path, tree}`.
    #[schemars(schema_with = "crd::any_mapping")]
    pub source: Value,
}

/// Deprecated: an image with the configuration of old renderers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigImage {
    /// Repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Digest, tag or version.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The kind of image.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<ConfigImageType>,
    /// Deprecated, without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::label_selector")]
    pub cred_secret_selector: Option<LabelSelector>,
}

/// The kind of a [`ConfigImage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ConfigImageType {
    /// A Helm chart.
    #[serde(rename = "helm-chart")]
    HelmChart,
    /// An image in a registry.
    #[serde(rename = "oci-ref")]
    OciRef,
    /// A kustomization.
    #[serde(rename = "kustomize")]
    Kustomize,
    /// None, or one that this version does not know.
    #[serde(rename = "")]
    None,
}

tolerant!(ConfigImageType, None, { "helm-chart" => HelmChart, "oci-ref" => OciRef, "kustomize" => Kustomize });

/// The state of a module in a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestStatus {
    /// The state of the module.
    pub state: State,
    /// Conditions, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
    /// The result of the last pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// The inventory: every object that the operator may have created and that may still exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub synced: Vec<SyncedObject>,
}

/// One object of the inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct SyncedObject {
    /// API group; empty for the core group.
    pub group: String,
    /// API version with which it was applied.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace; empty for a cluster-scoped object.
    pub namespace: String,
}
