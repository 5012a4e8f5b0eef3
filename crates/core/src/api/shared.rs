//! Types that several custom resources share.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, Time,
};

/// Reads an enum of strings so that a value of a newer version is read as the variant that changes least.
///
/// One object with such a value must stay readable: otherwise nothing else of it could be reconciled either.
macro_rules! tolerant {
    ($type:ident, $other:ident, { $($text:literal => $variant:ident),+ }) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                Ok(match &*text {
                    $($text => $type::$variant,)+
                    _ => $type::$other,
                })
            }
        }
    };
}
pub(crate) use tolerant;

/// The state of a Kyma, module or Manifest.
///
/// As with every enum here, a value that this version does not know does not make the object unreadable: it is read as
/// the variant that changes least. Tidegate computes every status anew, so it never writes such a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
pub enum State {
    /// Work is in progress.
    Processing,
    /// It is being removed.
    Deleting,
    /// Everything is as desired.
    Ready,
    /// A user must act, or a change is necessary.
    Error,
    /// Not reconciled yet, or a state that this version does not know.
    #[default]
    #[serde(rename = "")]
    Unknown,
    /// It works, but not as requested.
    Warning,
    /// The user manages it.
    Unmanaged,
}

tolerant!(State, Unknown, {
    "Processing" => Processing, "Deleting" => Deleting, "Ready" => Ready, "Error" => Error, "Warning" => Warning,
    "Unmanaged" => Unmanaged
});

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

/// The result of the last pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastOperation {
    /// One sentence.
    pub operation: String,
    /// When the sentence last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
}

/// Policy for the default custom resource of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, JsonSchema)]
pub enum CustomResourcePolicy {
    /// Create it with the module, delete it with the module.
    #[default]
    CreateAndDelete,
    /// Leave it to the user. Also a policy that this version does not know: Tidegate then neither creates nor deletes
    /// anything, and writes `Ignore` to the runtime.
    Ignore,
}

tolerant!(CustomResourcePolicy, Ignore, { "CreateAndDelete" => CreateAndDelete });

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
    /// Namespace; absent for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Reads an object without a `spec` as one with an empty `spec`.
///
/// The upstream definitions accept such objects. A single one, created by mistake, must not prevent
/// us from reading a list of a thousand others. The derive cannot express this, because the field
/// belongs to a type of another derive. An absent field is deserialized as an absent option, which
/// this function handles. The type has `#[serde(remote = "Self")]`, so that the derived functions
/// exist besides the traits.
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
