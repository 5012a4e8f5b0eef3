//! ModuleReleaseMeta: which version of a module each channel has.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shared::{LabelSelector, is_false};

/// The channels of one module, or the version that every runtime must have.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "ModuleReleaseMeta",
    plural = "modulereleasemetas",
    shortname = "mrm",
    namespaced,
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct ModuleReleaseMetaSpec {
    /// Name of the module; the object bears the same name.
    pub module_name: String,
    /// The module's OCM component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocm_component_name: Option<String>,
    /// Version of each channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelVersion>,
    /// The version that every runtime must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mandatory: Option<Mandatory>,
    /// Deprecated, ignored: labels of the ModuleTemplate decide.
    #[serde(default, skip_serializing_if = "is_false")]
    pub beta: bool,
    /// Deprecated, ignored: labels of the ModuleTemplate decide.
    #[serde(default, skip_serializing_if = "is_false")]
    pub internal: bool,
    /// Which Kymas may use a restricted module.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kyma_selector: Option<LabelSelector>,
}

/// The version of one channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelVersion {
    /// Channel.
    pub channel: String,
    /// Version.
    pub version: String,
}

/// The version of a mandatory module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mandatory {
    /// Version.
    pub version: String,
}
