//! ModuleTemplate: one version of one module.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shared::{Manager, is_false};

/// What a module's version consists of.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleTemplate",
    plural = "moduletemplates",
    shortname = "mt",
    namespaced,
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ModuleTemplateSpec {
    /// Deprecated: channel of an old channel-based template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Version of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Name of the module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module_name: Option<String>,
    /// Whether every runtime gets the module.
    #[serde(default, skip_serializing_if = "is_false")]
    pub mandatory: bool,
    /// The default custom resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The OCM component descriptor; required by the schema, not read.
    #[serde(default)]
    pub descriptor: Value,
    /// Deprecated, without effect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub custom_state_check: Vec<CustomStateCheck>,
    /// Further links, such as that of the raw manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// What user interfaces show.
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

/// Deprecated, without effect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomStateCheck {
    /// Where to look.
    pub json_path: String,
    /// What to find.
    pub value: String,
    /// What it means.
    pub mapped_state: super::shared::State,
}

/// A named link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Resource {
    /// Name, unique in its list.
    pub name: String,
    /// URI.
    pub link: String,
}

/// What user interfaces show of a module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleInfo {
    /// Link to the source repository.
    pub repository: String,
    /// Link to the documentation.
    pub documentation: String,
    /// Icons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Resource>,
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
