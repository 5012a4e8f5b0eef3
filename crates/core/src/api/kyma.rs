//! Kyma: one runtime with its modules.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use std::ops::{Deref, DerefMut};

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    crd::{self, pattern},
    shared::{Condition, CustomResourcePolicy, LastOperation, State, absent_is_empty, is_default, is_false},
};

/// The modules of a runtime, and their channel.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Kyma",
    plural = "kymas",
    namespaced,
    status = "KymaStatus",
    printcolumn(json_path = ".status.state", name = "State", type_ = "string"),
    printcolumn(
        json_path = r#".status.conditions[?(@.type=="tidegate.dev/ModuleCount")].message"#,
        name = "Modules",
        type_ = "string"
    ),
    printcolumn(
        json_path = r#".status.conditions[?(@.type=="tidegate.dev/Watch")].reason"#,
        name = "Watch",
        type_ = "string"
    ),
    printcolumn(
        json_path = r".metadata.labels.operator\.kyma-project\.io/skip-reconciliation",
        name = "Suspended",
        type_ = "string"
    ),
    printcolumn(json_path = r".metadata.annotations.tidegate\.dev/suspended", name = "Suspension", type_ = "string"),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct KymaSpec {
    /// Default channel of the modules.
    #[schemars(regex(pattern = pattern::CHANNEL), length(min = 3, max = 32))]
    pub channel: String,
    /// Upgrade modules without waiting for a maintenance window.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skip_maintenance_windows: bool,
    /// The desired modules of the runtime.
    #[serde(default, skip_serializing_if = "Modules::is_absent")]
    #[schemars(with = "Vec<Module>", extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub modules: Modules,
}

absent_is_empty!(KymaSpec);

/// A list of modules, or none: with an empty list the user wants no modules; without a list others
/// select them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Modules(Option<Vec<Module>>);

/// One wanted module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["managed", "name"]))]
pub struct Module {
    /// Name of the module and its ModuleReleaseMeta.
    pub name: String,
    /// Channel, if it differs from the Kyma's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = pattern::CHANNEL), length(min = 3, max = 32))]
    pub channel: Option<String>,
    /// Label value for specialised controllers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Policy for the default custom resource.
    #[serde(default)]
    pub custom_resource_policy: CustomResourcePolicy,
    /// Whether the operator manages the module.
    #[serde(default = "managed_by_default")]
    pub managed: bool,
    /// Deprecated, without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_module_template_ref: Option<String>,
}

fn managed_by_default() -> bool {
    true
}

/// The state of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KymaStatus {
    /// The combined state of all modules and conditions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: State,
    /// The active channel, once Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_channel: Option<String>,
    /// The result of the last pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_operation: Option<LastOperation>,
    /// Conditions, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
    /// One entry for each module that is desired or still being removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleStatus>,
}

/// The state of a module in a runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModuleStatus {
    /// Name of the module.
    pub name: String,
    /// Deprecated copy of [`ModuleStatus::ocm_component_name`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// The module's OCM component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocm_component_name: Option<String>,
    /// Installed channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Installed version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The problem, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The state of the module.
    pub state: State,
    /// The module waits for a maintenance window.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(extend("default" = false))]
    pub maintenance: bool,
    /// The Manifest in KCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest: Option<TrackingObject>,
    /// The default custom resource in the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<TrackingObject>,
    /// The ModuleTemplate in KCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TrackingObject>,
}

/// A reference with the observed generation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrackingObject {
    /// API version of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name and generation.
    #[serde(default, skip_serializing_if = "is_default")]
    pub metadata: TrackingMetadata,
}

/// The metadata that a [`TrackingObject`] keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrackingMetadata {
    /// Name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace; empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Observed generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}

// === impl Modules ===

impl Modules {
    /// Whether there is no declaration of modules, not even an empty one.
    pub fn is_absent(&self) -> bool {
        self.0.is_none()
    }
}

impl Deref for Modules {
    type Target = [Module];

    fn deref(&self) -> &[Module] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Modules {
    fn deref_mut(&mut self) -> &mut [Module] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl FromIterator<Module> for Modules {
    fn from_iter<I: IntoIterator<Item = Module>>(modules: I) -> Modules {
        Modules(Some(modules.into_iter().collect()))
    }
}

impl<'a> IntoIterator for &'a Modules {
    type Item = &'a Module;
    type IntoIter = std::slice::Iter<'a, Module>;

    fn into_iter(self) -> std::slice::Iter<'a, Module> {
        self.iter()
    }
}
