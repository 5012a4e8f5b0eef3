//! One difference between what the daemon would bring about and what lives. Without values: only fields are named, so
//! that no difference shows a secret.

use std::{fmt, sync::Arc};

use serde::{Serialize, Serializer};
use serde_json::Value;
use tidegate_core::object::{ObjectId, PathPart};
use tidegate_diff::{
    gather::ObjectDifference,
    live::differing,
    model::{Action, Effect, Side},
};

use super::improvement::{self, Improvement};

/// Why an object is not as the daemon would leave it: what the daemon would do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Reason {
    /// It does not exist: the daemon would create it.
    Missing,
    /// Fields differ: the daemon would apply it.
    Changed,
    /// It is not desired: the daemon would delete it.
    Extra,
    /// The daemon would delete it and create it again.
    Recreated,
    /// The API server would refuse the change.
    Refused,
    /// It belongs to another owner: the daemon would report it, and write nothing.
    Foreign,
    /// The daemon would write nothing now: the change waits for a confirmation or for something else.
    Waiting,
    /// Its content is as desired. The daemon would apply it once, to take over its fields.
    Managers,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Difference {
    /// The module; none for what belongs to no module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) module: Option<Arc<str>>,
    /// Whether the object is in the control plane.
    #[serde(rename = "cluster", serialize_with = "cluster")]
    pub(crate) side: ComparedCluster,
    pub(crate) reason: Reason,
    #[serde(flatten, serialize_with = "object")]
    pub(crate) object: ObjectId,
    /// The first fields that differ, and how many more do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) more_fields: usize,
    /// What the object waits for, or who owns it, in one clause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// The decision behind the difference, if it is a decided improvement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) improvement: Option<&'static Improvement>,
}

/// Where an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ComparedCluster {
    ControlPlane,
    Runtime,
}

/// Fields that a difference names. An object whose every field differs needs no longer list.
const FIELDS_MAX: usize = 6;

// === impl Reason ===

impl Reason {
    /// The word in metrics and reports.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Reason::Missing => "Missing",
            Reason::Changed => "Changed",
            Reason::Extra => "Extra",
            Reason::Recreated => "Recreated",
            Reason::Refused => "Refused",
            Reason::Foreign => "Foreign",
            Reason::Waiting => "Waiting",
            Reason::Managers => "Managers",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

// === impl Difference ===

impl Difference {
    /// From a comparison.
    pub(crate) fn from_found(found: &ObjectDifference, module: Option<&str>) -> Difference {
        let fields: Vec<String> = match (&found.old, &found.new) {
            (Some(old), Some(new)) => changed_fields(old, new),
            (Some(_) | None, _) => Vec::new(),
        };
        let reason = match (found.action, found.effect) {
            (Action::Conflict, _) => Reason::Foreign,
            (_, Effect::NeedsConfirmation | Effect::Held) => Reason::Waiting,
            (Action::Delete, Effect::Applies) => Reason::Extra,
            (Action::Refuse, Effect::Applies) => Reason::Refused,
            (Action::Recreate, Effect::Applies) => Reason::Recreated,
            (Action::Change, Effect::Applies) => Reason::Changed,
            (Action::Create, Effect::Applies) => Reason::Missing,
        };
        let side = match found.target {
            Side::ControlPlane => ComparedCluster::ControlPlane,
            Side::Runtime => ComparedCluster::Runtime,
        };
        let managers: Vec<&str> = found.conflicts.iter().map(|conflict| conflict.manager.as_str()).collect();
        let owner = (reason == Reason::Foreign).then(|| match managers.as_slice() {
            [] => "it has no field manager".to_owned(),
            managers => format!("it is managed by {}", managers.join(", ")),
        });
        let detail = found.refusal.clone().or(owner);
        Difference::new(side, reason, found.id.clone(), &fields).of_module(module).with_detail(detail)
    }

    /// An object that has the desired content and whose fields the daemon would take over.
    pub(crate) fn managers(object: ObjectId, module: Option<&str>) -> Difference {
        // Manifests are the only objects of the control plane that a comparison of a runtime reports.
        let side = if &*object.kind == "Manifest" { ComparedCluster::ControlPlane } else { ComparedCluster::Runtime };
        Difference::new(side, Reason::Managers, object, &[]).of_module(module)
    }

    /// A difference with these fields.
    pub(crate) fn new(side: ComparedCluster, reason: Reason, object: ObjectId, fields: &[String]) -> Difference {
        let improvement = improvement::explaining(reason, &object, fields);
        let more_fields = fields.len().saturating_sub(FIELDS_MAX);
        let fields = fields.iter().take(FIELDS_MAX).cloned().collect();
        Difference { module: None, side, reason, object, fields, more_fields, detail: None, improvement }
    }

    pub(crate) fn with_detail(self, detail: Option<String>) -> Difference {
        Difference { detail, ..self }
    }

    fn of_module(self, module: Option<&str>) -> Difference {
        Difference { module: module.map(Arc::from), ..self }
    }
}

/// The fields that differ between an object as it lives and as it would be.
pub(crate) fn changed_fields(old: &Value, new: &Value) -> Vec<String> {
    differing(old, new).iter().map(|path| text(path, [new, old])).collect()
}

/// `spec.template.spec.containers[manager].image`. An item is named by its `name`, in one of two objects, or by its
/// position.
fn text(path: &[PathPart], objects: [&Value; 2]) -> String {
    let (mut text, mut values) = (String::new(), objects.map(Some));
    for part in path {
        match part {
            PathPart::Key(key) => {
                values = values.map(|value| value.and_then(|value| value.get(&**key)));
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(key);
            }
            PathPart::Index(index) => {
                values = values.map(|value| value.and_then(|value| value.get(*index)));
                let name = values.iter().flatten().find_map(|item| item.get("name")?.as_str());
                text.push_str(&name.map_or_else(|| format!("[{index}]"), |name| format!("[{name}]")));
            }
        }
    }
    text
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn cluster<S: Serializer>(side: &ComparedCluster, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match side {
        ComparedCluster::ControlPlane => "kcp",
        ComparedCluster::Runtime => "runtime",
    })
}

/// The parts of an id.
fn object<S: Serializer>(id: &ObjectId, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Parts<'a> {
        group: &'a str,
        kind: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        namespace: &'a str,
        name: &'a str,
    }
    Parts { group: &id.group, kind: &id.kind, namespace: &id.namespace, name: &id.name }.serialize(serializer)
}
