//! What Lifecycle Manager left in a runtime that was taken over, and what becomes of it while the runtime is adopted.
//! Pure.
//!
//! An object stays as it is if an apply would change no field of it, or only fields that decided improvements explain
//! ([`improvement`]). Then only its field manager changes. An object that another client has changed since is applied.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tidegate_core::{
    api::names::FIELD_MANAGER,
    object::{Object, ObjectId},
};
use tidegate_diff::live::{applied_by, stripped};

use super::{
    decide::Bodies,
    state::{Applied, Seen, Version},
};
use crate::observe::{
    difference::{Reason, changed_fields},
    improvement,
};

/// What becomes of an object that Lifecycle Manager applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    /// It is as desired.
    Keep,
    /// It differs by decided improvements alone, and is held.
    Hold,
}

// === impl Adoption ===

impl Adoption {
    /// What is known of the object after its claims have been taken over.
    pub(super) fn seen(self, version: Version) -> Seen {
        match self {
            Adoption::Keep => Seen::At(version),
            Adoption::Hold => Seen::Held(version),
        }
    }

    /// What becomes of one object; none if it is applied. `managers` are Tidegate's field manager and those of
    /// Lifecycle Manager.
    fn of(id: &ObjectId, desired: &Value, live: &Value, managers: &[&str]) -> Option<Adoption> {
        let is_of_former = entries(live).any(|entry| is_by(entry, managers));
        if !is_of_former || !live["metadata"]["deletionTimestamp"].is_null() {
            return None;
        }
        let fields = changed_fields(&stripped(live), &applied_by(live, desired, managers));
        if fields.is_empty() {
            return Some(Adoption::Keep);
        }
        let is_explained = improvement::explaining(Reason::Changed, id, &fields).is_some();
        (is_explained && !is_touched(live, managers)).then_some(Adoption::Hold)
    }
}

/// The objects that must be applied as far as is known, and that stay as Lifecycle Manager left them. Each with its
/// index.
pub(super) fn adoptions(
    applied: &Applied,
    bodies: Bodies<'_>,
    content: &BTreeMap<ObjectId, Object>,
    managers: &[&str],
) -> Vec<(usize, Adoption)> {
    let of_one = |index: usize| {
        let object = &applied.objects.objects[index];
        let live = content.get(&object.id)?;
        // What cannot be filled in is reported when the object is applied.
        let desired: Value = serde_json::from_slice(&bodies.of(object)?).ok()?;
        Some((index, Adoption::of(&object.id, &desired, live.value(), managers)?))
    };
    applied.missing().into_iter().filter_map(of_one).collect()
}

/// Whether a client other than these has set a field of an object, apart from metadata and status.
pub(crate) fn is_touched(live: &Value, managers: &[&str]) -> bool {
    let sets_content = |fields: &Map<String, Value>| {
        fields.keys().any(|field| field.starts_with("f:") && !matches!(field.as_str(), "f:metadata" | "f:status"))
    };
    let others = entries(live).filter(|entry| !is_by(entry, managers));
    others.filter_map(|entry| entry["fieldsV1"].as_object()).any(sets_content)
}

fn entries(live: &Value) -> impl Iterator<Item = &Value> {
    live.pointer("/metadata/managedFields").and_then(Value::as_array).into_iter().flatten()
}

fn is_by(entry: &Value, managers: &[&str]) -> bool {
    entry["manager"].as_str().is_some_and(|manager| managers.contains(&manager) || manager == FIELD_MANAGER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MANAGERS: [&str; 2] = [FIELD_MANAGER, "lifecycle-manager"];

    fn policy(ports: &[u16]) -> Value {
        let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port, "protocol": "UDP"})).collect();
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "kyma-project.io--watcher-to-dns", "namespace": "kyma-system"},
            "spec": {"policyTypes": ["Egress"], "egress": [{"ports": ports}]},
        })
    }

    /// A live object that this manager applied, and that another one may have changed.
    fn live(mut object: Value, manager: &str, other: Option<&str>) -> Value {
        let fields = json!({"f:spec": {"f:policyTypes": {}, "f:egress": {}}});
        let entry =
            |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let others = other.map(|other| entry(other, "Update"));
        let status =
            json!({"manager": "kcm", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}});
        let entries: Vec<Value> = [entry(manager, "Apply"), status].into_iter().chain(others).collect();
        object["metadata"]["managedFields"] = entries.into();
        object
    }

    #[track_caller]
    fn check(live: &Value, expected: Option<Adoption>) {
        let id = ObjectId::new(
            "networking.k8s.io",
            live["kind"].as_str().unwrap(),
            "kyma-system",
            live["metadata"]["name"].as_str().unwrap(),
        );
        let mut desired = policy(&[53, 8053]);
        for field in ["kind", "metadata"] {
            desired[field] = live[field].clone();
        }
        desired["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
        assert_eq!(Adoption::of(&id, &desired, live, &MANAGERS), expected, "{live}");
    }

    #[test]
    fn what_lifecycle_manager_applied_stays_if_only_decided_improvements_differ() {
        check(&live(policy(&[53]), "lifecycle-manager", None), Some(Adoption::Hold));
        // After its claims have been taken over.
        check(&live(policy(&[53]), FIELD_MANAGER, None), Some(Adoption::Hold));
        check(&live(policy(&[53, 8053]), "lifecycle-manager", None), Some(Adoption::Keep));
    }

    #[test]
    fn what_others_made_or_changed_or_no_decision_explains_is_applied() {
        check(&live(policy(&[53]), "kubectl", None), None);
        check(&live(policy(&[53]), "lifecycle-manager", Some("kubectl-edit")), None);
        let mut other = policy(&[53]);
        other["metadata"]["name"] = "another".into();
        check(&live(other, "lifecycle-manager", None), None);
        let mut leaving = live(policy(&[53]), "lifecycle-manager", None);
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        check(&leaving, None);
    }
}
