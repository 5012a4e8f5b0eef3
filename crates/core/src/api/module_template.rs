//! ModuleTemplate: one version of one module.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    crd::{self, pattern},
    shared::{Manager, absent_is_empty, is_false},
};

/// The content of a module version.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleTemplate",
    plural = "moduletemplates",
    shortname = "mt",
    namespaced,
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("required" = ["descriptor"]))]
pub struct ModuleTemplateSpec {
    /// Deprecated: channel of an old channel-based template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::TEMPLATE_CHANNEL), length(max = 32))]
    pub channel: Option<String>,
    /// Version of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::VERSION), length(max = 32))]
    pub version: Option<String>,
    /// Name of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::MODULE_NAME), length(max = 64))]
    pub module_name: Option<String>,
    /// Whether every runtime gets the module.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mandatory: bool,
    /// The default custom resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::embedded_object")]
    pub data: Option<Value>,
    /// The OCM component descriptor. The schema requires it; Tidegate does not read it.
    #[serde(default)]
    #[schemars(schema_with = "crd::any_mapping")]
    pub descriptor: Value,
    /// Deprecated, without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub custom_state_check: Vec<CustomStateCheck>,
    /// Further links, such as that of the raw manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub resources: Vec<Resource>,
    /// Information for user interfaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<ModuleInfo>,
    /// Kinds that belong to the module.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub associated_resources: Vec<GroupVersionKind>,
    /// The workload that operates the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<Manager>,
    /// An upgrade to this version must wait for a maintenance window.
    #[serde(default, skip_serializing_if = "is_false")]
    pub requires_downtime: bool,
}

absent_is_empty!(ModuleTemplateSpec);

/// Deprecated, without effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomStateCheck {
    /// The object.
    pub json_path: String,
    /// The field and value.
    pub value: String,
    /// The state.
    pub mapped_state: super::shared::State,
}

/// A named link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// Name, unique in its list.
    pub name: String,
    /// URI.
    #[schemars(extend("format" = "uri"))]
    pub link: String,
}

/// An icon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Icon {
    /// Name, unique in its list.
    pub name: String,
    /// URI of the icon.
    pub link: String,
}

/// Information about a module for user interfaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleInfo {
    /// Link to the source repository.
    pub repository: String,
    /// Link to the documentation.
    pub documentation: String,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub icons: Vec<Icon>,
}

/// A kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GroupVersionKind {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}
