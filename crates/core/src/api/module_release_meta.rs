//! ModuleReleaseMeta: the version of a module in each channel.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    crd::{self, pattern},
    shared::{LabelSelector, absent_is_empty, is_false},
};

/// The channels of one module, or the version that every runtime must have.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleReleaseMeta",
    plural = "modulereleasemetas",
    shortname = "mrm",
    namespaced,
    printcolumn(json_path = r".metadata.annotations.tidegate\.dev/rollout-paused", name = "Paused", type_ = "string"),
    printcolumn(json_path = r".metadata.annotations.tidegate\.dev/suspended", name = "Suspension", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.mandatory) != has(self.channels)",
    "message": "exactly one of 'mandatory' or 'channels' must be specified",
}]))]
pub struct ModuleReleaseMetaSpec {
    /// Name of the module; the object has the same name.
    #[schemars(regex(pattern = pattern::MODULE_NAME), length(max = 64))]
    pub module_name: String,
    /// The module's OCM component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::OCM_COMPONENT_NAME), length(max = 255))]
    pub ocm_component_name: Option<String>,
    /// Version of each channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["channel"]))]
    pub channels: Vec<ChannelVersion>,
    /// The version that every runtime must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<Mandatory>,
    /// Deprecated and ignored: the labels of the ModuleTemplate decide.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub beta: bool,
    /// Deprecated and ignored: the labels of the ModuleTemplate decide.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub internal: bool,
    /// Which Kymas may use a restricted module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crd::label_selector")]
    pub kyma_selector: Option<LabelSelector>,
}

absent_is_empty!(ModuleReleaseMetaSpec);

/// The version of one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelVersion {
    /// Channel.
    #[schemars(regex(pattern = pattern::CHANNEL), length(min = 3, max = 32))]
    pub channel: String,
    /// Version.
    #[schemars(regex(pattern = pattern::VERSION), length(max = 32))]
    pub version: String,
}

/// The version of a mandatory module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mandatory {
    /// Version.
    #[schemars(regex(pattern = pattern::MANDATORY_VERSION), length(min = 1))]
    pub version: String,
}
