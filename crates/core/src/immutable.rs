//! Changes of an object that exists which an API server refuses: of fields that never change, and of custom resources
//! against a rule that compares with the old value.
//!
//! `diff` and the daemon use the same table, so what one predicts is what the other does: the change is refused, unless
//! the object says with `tidegate.dev/recreate: enabled` that it may be deleted and created again.

mod context;
mod kinds;
mod omitted;

use std::borrow::Cow;

use serde_json::{Map, Value};

pub use self::context::{Context, Growth, is_other_version};
use crate::{
    api::names::annotation,
    changes::{self, covers},
    object::Gvk,
};

/// A change that an API server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Immutable {
    /// The field, such as `spec.selector`.
    field: String,
    /// What the API server refuses about it, as a clause.
    fact: String,
    /// What can be done about it.
    remedy: Remedy,
}

/// What can be done about a change that an API server refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// The object has the annotation: Tidegate deletes it and creates it again.
    Recreate,
    /// The annotation would allow that.
    Annotate,
    /// Nothing, but another name: the deletion of such an object takes users' data along.
    Rename,
    /// Objects are stored in the version, so they must be stored in another one first.
    Migrate,
}

/// What may happen beside a change, if the API server refused an earlier change of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// The change allows Tidegate to delete the object and create it again.
    Recreate,
    /// The API server refuses this change as well: Tidegate never recreates an object of this kind.
    Refuse,
}

/// What the old side of a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Old {
    /// Another declaration of the object. What both omit has the same default.
    Declared,
    /// The live object, to which the API server has added defaults.
    Live,
}

/// Fields to which an API server adds nothing, so that one without a key has lost it.
const WITHOUT_DEFAULTS: [&str; 2] = ["/spec/selector", "/parameters"];

/// The value of [`annotation::RECREATE`] that allows it.
const ENABLED: &str = "enabled";

/// The first change between two declarations of an object that the API server refuses; `None` if there is none.
///
/// A field that one of them omits has its default, if that is known, or no value, if it has no default. Of other
/// omitted fields the API server chooses the value or keeps it, so they are no difference.
pub fn between(gvk: &Gvk, old: &Value, new: &Value, context: &Context) -> Option<Immutable> {
    find(gvk, old, new, Old::Declared, context)
}

/// As [`between`], for a live object, to which the API server has added defaults. A field that the desired object omits
/// keeps its value, unless only Tidegate has applied it.
pub fn over_live(gvk: &Gvk, live: &Value, desired: &Value, context: &Context) -> Option<Immutable> {
    find(gvk, live, desired, Old::Live, context)
}

/// What may happen beside a change between two declarations of an object that changes no immutable field: the new one
/// allows that the object is recreated, which the old one did not. So an earlier change may have been refused.
///
/// `None` if it was not, because the live object is known to be as the old one declares, or the kind has no immutable
/// fields.
pub fn overdue(gvk: &Gvk, old: &Value, new: &Value, context: &Context) -> Option<Overdue> {
    let is_news = allows_recreation(new) && !allows_recreation(old);
    if !is_news || context.is_applied || !has_immutable_fields(gvk, context) {
        return None;
    }
    Some(if holds_data(gvk) { Overdue::Refuse } else { Overdue::Recreate })
}

/// Whether an object says that it may be deleted and created again.
fn allows_recreation(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|annotations| annotations.get(annotation::RECREATE)?.as_str()) == Some(ENABLED)
}

/// Whether users' data go with an object of a kind, so that Tidegate never recreates one.
fn holds_data(gvk: &Gvk) -> bool {
    matches!(
        (&*gvk.group, &*gvk.kind),
        ("", "PersistentVolumeClaim" | "PersistentVolume" | "Namespace")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

fn find(gvk: &Gvk, old: &Value, new: &Value, of: Old, context: &Context) -> Option<Immutable> {
    let kind = with_article(&gvk.kind);
    let cannot_change = |field: &str| (field.to_owned(), format!("{field} of {kind} cannot be changed"));
    let (was, is) = (of.completed(gvk, old), of.completed(gvk, new));
    let by_table = || {
        let pointer = field(gvk, &was, &is, of)?;
        Some(cannot_change(&pointer.trim_start_matches('/').replace('/', ".")))
    };
    let (field, fact) = match (&*gvk.group, &*gvk.kind) {
        ("", "Pod") => kinds::pod(&was, &is, of).map(|field| cannot_change(&field)),
        ("", "PersistentVolume") => kinds::volume(&was, &is, of).map(|field| cannot_change(&field)),
        ("", "PersistentVolumeClaim") => kinds::claim(&was, &is, of, context.expands),
        ("batch", "Job") => kinds::job(&was, &is, of).map(cannot_change),
        ("", "Service") => kinds::service(&was, &is, of).map(cannot_change),
        ("networking.k8s.io", "ServiceCIDR") => kinds::cidrs(&was, &is).then(|| cannot_change("spec.cidrs")),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => kinds::stored_version(&was, &is, of),
        _ => None,
    }
    .or_else(by_table)
    .or_else(|| context.broken_rule(old, new, of, &kind))?;
    let remedy = if field == kinds::VERSIONS { Remedy::Migrate } else { remedy(gvk, new) };
    Some(Immutable { field, fact, remedy })
}

/// `a Deployment`, `an IngressClass`.
fn with_article(kind: &str) -> String {
    let article = if kind.starts_with(['A', 'E', 'I', 'O']) { "an" } else { "a" };
    format!("{article} {kind}")
}

fn remedy(gvk: &Gvk, new: &Value) -> Remedy {
    match (holds_data(gvk), allows_recreation(new)) {
        (true, _) => Remedy::Rename,
        (false, true) => Remedy::Recreate,
        (false, false) => Remedy::Annotate,
    }
}

/// The fields of a kind that never change, as JSON pointers.
fn table(gvk: &Gvk) -> &'static [&'static str] {
    match (&*gvk.group, &*gvk.kind) {
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet") => &["/spec/selector"],
        ("apps", "StatefulSet") => {
            &["/spec/selector", "/spec/serviceName", "/spec/podManagementPolicy", "/spec/volumeClaimTemplates"]
        }
        ("apps", "ControllerRevision") => &["/data"],
        ("batch", "Job") => &[
            "/spec/selector",
            "/spec/completionMode",
            "/spec/podFailurePolicy",
            "/spec/successPolicy",
            "/spec/backoffLimitPerIndex",
            "/spec/managedBy",
        ],
        ("", "Service") => &["/spec/clusterIP", "/spec/clusterIPs"],
        ("", "PersistentVolumeClaim") => &[
            "/spec/storageClassName",
            "/spec/accessModes",
            "/spec/volumeMode",
            "/spec/selector",
            "/spec/volumeName",
            "/spec/dataSource",
            "/spec/dataSourceRef",
        ],
        ("", "PersistentVolume") => &["/spec/volumeMode", "/spec/nodeAffinity"],
        ("", "Secret") => &["/type"],
        ("", "ResourceQuota") => &["/spec/scopes"],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &["/roleRef"],
        ("apiextensions.k8s.io", "CustomResourceDefinition") => &["/spec/group", "/spec/scope", "/spec/names/kind"],
        ("storage.k8s.io", "StorageClass") => &["/provisioner", "/parameters", "/reclaimPolicy", "/volumeBindingMode"],
        ("storage.k8s.io", "VolumeAttributesClass") => &["/driverName", "/parameters"],
        ("resource.k8s.io", "ResourceClaim" | "ResourceClaimTemplate") => &["/spec"],
        ("storage.k8s.io", "CSIDriver") => &["/spec/attachRequired", "/spec/volumeLifecycleModes"],
        ("scheduling.k8s.io", "PriorityClass") => &["/value", "/preemptionPolicy"],
        ("node.k8s.io", "RuntimeClass") => &["/handler"],
        ("networking.k8s.io", "IngressClass") => &["/spec/controller"],
        ("discovery.k8s.io", "EndpointSlice") => &["/addressType"],
        _ => &[],
    }
}

/// Whether the API server may refuse a change of an object of a kind because of what was there before: by the table, by
/// its other rules, or by those of a custom resource that are not known.
fn has_immutable_fields(gvk: &Gvk, context: &Context) -> bool {
    let by_rules = matches!(
        (&*gvk.group, &*gvk.kind),
        ("", "Pod" | "PersistentVolume" | "ConfigMap") | ("networking.k8s.io", "ServiceCIDR")
    );
    by_rules || !table(gvk).is_empty() || (!context::is_built_in(&gvk.group) && context.may_have_rules())
}

/// The immutable field that differs, as a JSON pointer.
fn field(gvk: &Gvk, old: &Value, new: &Value, of: Old) -> Option<&'static str> {
    let is_external = |value: &Value| value.pointer("/spec/type").and_then(Value::as_str) == Some("ExternalName");
    let is_service = (&*gvk.group, &*gvk.kind) == ("", "Service");
    let is_unset = |value: &Value| value.pointer("/spec/clusterIP").is_some_and(|address| address == "");
    // An external Service has no address, and may get or lose one. An empty address is none.
    let is_free = is_service && (is_external(old) || is_external(new) || is_unset(new));
    let of_kind: &[&'static str] = if is_free { &[] } else { table(gvk) };
    let differs = |field: &str| match (omitted::value(old, field), omitted::value(new, field)) {
        (Some(old), Some(new)) => !of.is_same(field, new, old),
        (None, Some(_)) => omitted::is_none(gvk, field),
        (Some(value), None) => of.removes(gvk, (old, field, value), new),
        (None, None) => false,
    };
    if let Some(field) = of_kind.iter().find(|field| differs(field)) {
        return Some(field);
    }
    let is_frozen = gvk.group.is_empty()
        && matches!(&*gvk.kind, "Secret" | "ConfigMap")
        && old.get("immutable") == Some(&Value::Bool(true));
    // The object lists its own values, so an omitted one is removed.
    let is_other = |field: &str| old.pointer(field) != new.pointer(field);
    let frozen = ["/data", "/binaryData", "/stringData", "/immutable"];
    frozen.into_iter().find(|field| is_frozen && is_other(field))
}

// === impl Old ===

impl Old {
    /// A declaration with the defaults that the API server adds to it. A live object has them, and a desired one gets
    /// its values where it omits a field.
    fn completed<'v>(self, gvk: &Gvk, object: &'v Value) -> Cow<'v, Value> {
        match self {
            Old::Declared => Cow::Owned(changes::with_defaults(gvk, object)),
            Old::Live => Cow::Borrowed(object),
        }
    }

    /// Whether the value of a field of the table changes because the new side omits it.
    fn removes(self, gvk: &Gvk, (old, field, value): (&Value, &str, &Value), new: &Value) -> bool {
        match self {
            // If it has a known default, the completed declaration has that.
            Old::Declared => omitted::is_none(gvk, field),
            Old::Live if !omitted::is_ours_alone(old, field) => false,
            Old::Live => match omitted::value(&changes::with_defaults(gvk, new), field) {
                Some(default) => !self.is_same(field, default, value),
                None => omitted::is_none(gvk, field),
            },
        }
    }

    /// Whether a field of the table has the same value.
    fn is_same(self, field: &str, new: &Value, old: &Value) -> bool {
        match self {
            Old::Declared => new == old,
            Old::Live if WITHOUT_DEFAULTS.contains(&field) => new == old,
            Old::Live => covers(new, old),
        }
    }

    /// The object after the change: an apply keeps the fields of a live object that it does not name.
    fn after(self, old: &Value, new: &Value) -> Value {
        match self {
            Old::Declared => new.clone(),
            Old::Live => {
                let mut after = old.clone();
                changes::overlay(&mut after, new);
                after
            }
        }
    }

    /// Whether a member of two mappings is the same.
    fn is_same_member(self, name: &str, old: Option<&Value>, new: Option<&Value>) -> bool {
        let member = |value: Option<&Value>| {
            Value::Object(value.map(|value| (name.to_owned(), value.clone())).into_iter().collect::<Map<_, _>>())
        };
        match self {
            Old::Declared => old == new || (covers(&member(new), &member(old)) && covers(&member(old), &member(new))),
            Old::Live => covers(&member(new), &member(old)),
        }
    }
}

// === impl Overdue ===

impl Overdue {
    /// When it happens and why, as a clause.
    pub fn sentence(&self, gvk: &Gvk) -> String {
        match self {
            Overdue::Recreate => format!(
                "it is deleted and created again where the API server refused an earlier change of it, because {} is new",
                annotation::RECREATE
            ),
            Overdue::Refuse => format!(
                "it is refused where the API server refused an earlier change of it, because Tidegate never deletes {} to \
                 create it again",
                with_article(&gvk.kind)
            ),
        }
    }
}

// === impl Immutable ===

impl Immutable {
    /// Whether Tidegate deletes the object and creates it again.
    pub fn is_recreated(&self) -> bool {
        self.remedy == Remedy::Recreate
    }

    /// The field, such as `spec.selector`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// Why the change is not made as it is, and what to do, as a clause: `spec.selector of a Deployment cannot be
    /// changed; ...`.
    pub fn sentence(&self) -> String {
        let Immutable { fact, remedy, .. } = self;
        match remedy {
            Remedy::Recreate => fact.clone(),
            Remedy::Annotate => format!(
                "{fact}; undo the change, or annotate the object with {}: {ENABLED} to have it deleted and created again",
                annotation::RECREATE
            ),
            Remedy::Rename => {
                format!("{fact}, and Tidegate never deletes one to create it again; undo the change, or use a new name")
            }
            Remedy::Migrate => format!(
                "{fact}; keep it with `served: false`, or store all objects in another version and remove it from \
                 status.storedVersions first"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
