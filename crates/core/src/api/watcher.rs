//! Watcher: which changes in runtimes are reported to which service in KCP.

#![expect(clippy::duplicated_attributes, reason = "each printer column names its type")]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    crd,
    shared::{Condition, LabelSelector, State, absent_is_empty, tolerant},
};

/// The watched objects, and the service that receives their events.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.kyma-project.io",
    version = "v1beta2",
    kind = "Watcher",
    plural = "watchers",
    namespaced,
    status = "WatcherStatus",
    printcolumn(json_path = ".status.state", name = "State", type_ = "string"),
    printcolumn(
        json_path = r#".status.conditions[?(@.type=="tidegate.dev/Route")].message"#,
        name = "Reason",
        type_ = "string"
    ),
    printcolumn(json_path = ".metadata.creationTimestamp", name = "Age", type_ = "date"),
    derive = "PartialEq",
    derive = "Default"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct WatcherSpec {
    /// The service in KCP that receives the events.
    pub service_info: ServiceInfo,
    /// Path element of the events. Default: the Watcher's `managed-by` label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manager: Option<String>,
    /// Labels of the watched objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels_to_watch: BTreeMap<String, String>,
    /// Kind of the watched objects.
    pub resource_to_watch: WatchableGvr,
    /// Which part of an object triggers an event.
    pub field: WatchField,
    /// The Istio Gateways that accept the events.
    pub gateway: GatewayConfig,
}

absent_is_empty!(WatcherSpec);

/// A service in KCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceInfo {
    /// Port, 1 to 65535.
    pub port: i64,
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}

/// A resource; the version may be `*`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchableGvr {
    /// API group.
    pub group: String,
    /// API version or `*`.
    pub version: String,
    /// Resource, in the plural.
    pub resource: String,
}

/// Which part of an object triggers an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchField {
    /// The object itself. Also a part that this version does not know.
    #[default]
    Spec,
    /// Its status subresource.
    Status,
}

tolerant!(WatchField, Spec, { "status" => Status });

/// The Istio Gateways that accept the events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GatewayConfig {
    /// Selects Gateways by label.
    #[schemars(schema_with = "crd::label_selector")]
    pub selector: LabelSelector,
}

/// The state of a Watcher.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatcherStatus {
    /// The state of the Watcher.
    pub state: State,
    /// Conditions, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crd::conditions")]
    pub conditions: Vec<Condition>,
    /// Generation that the status refers to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
