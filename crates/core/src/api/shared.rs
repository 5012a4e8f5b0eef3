//! Types that several custom resources share.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, Time,
};

/// How a Kyma, module or Manifest fares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// Work is under way.
    Processing,
    /// It is being removed.
    Deleting,
    /// All is as desired.
    Ready,
    /// Something needs a human or a change.
    Error,
    /// Not looked at yet.
    #[default]
    #[serde(rename = "")]
    Unknown,
    /// It works, but not as asked.
    Warning,
    /// The user takes care of it.
    Unmanaged,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Processing => "Processing",
            State::Deleting => "Deleting",
            State::Ready => "Ready",
            State::Error => "Error",
            State::Unknown => "",
            State::Warning => "Warning",
            State::Unmanaged => "Unmanaged",
        })
    }
}

/// What the last pass said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// One sentence.
    pub operation: String,
    /// When the sentence last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

/// What becomes of a module's default custom resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CustomResourcePolicy {
    /// Create it with the module, delete it with the module.
    #[default]
    CreateAndDelete,
    /// Leave it to the user.
    Ignore,
}

/// The workload that operates a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Manager {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Namespace; absent for what is cluster-scoped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Lets objects without a `spec` be read, as ones with an empty one.
///
/// The upstream definitions accept such objects. One of them, made by anybody by mistake, must not keep us from reading
/// a list of a thousand others. The derive cannot say so, since the field belongs to a type that another derive makes:
/// an absent field is offered to its type as an absent option, and that is where we answer. The type carries
/// `#[serde(remote = "Self")]`, so that the derived functions exist beside the traits.
macro_rules! absent_is_empty {
    ($spec:ident) => {
        impl serde::Serialize for $spec {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $spec::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $spec {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$spec, D::Error> {
                struct Absent;

                impl<'de> serde::de::Visitor<'de> for Absent {
                    type Value = $spec;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("a mapping")
                    }

                    fn visit_none<E>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    fn visit_unit<E>(self) -> Result<$spec, E> {
                        Ok($spec::default())
                    }

                    fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<$spec, D::Error> {
                        $spec::deserialize(deserializer)
                    }
                }

                deserializer.deserialize_option(Absent)
            }
        }
    };
}
pub(crate) use absent_is_empty;

pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(crate) fn is_false(value: &bool) -> bool {
    !*value
}
