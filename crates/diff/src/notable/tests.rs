use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::fixture;

fn report(all: &[(&str, &str, Option<Value>, Option<Value>)]) -> Report {
    let difference = |(kind, group, old, new): &(&str, &str, Option<Value>, Option<Value>)| {
        let mut one = fixture::difference();
        one.id.kind = (*kind).into();
        one.id.group = (*group).into();
        one.id.name = "manager".into();
        one.old = old.clone().map(Arc::new);
        one.new = new.clone().map(Arc::new);
        one
    };
    Report { differences: all.iter().map(difference).collect(), ..Report::default() }
}

fn pods(images: &[(&str, &str)]) -> Value {
    let containers: Vec<Value> = images.iter().map(|(name, image)| json!({"name": name, "image": image})).collect();
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

#[test]
fn each_image_that_changes_is_one_sentence() {
    let old = pods(&[("a", "r.example.org/a:1.0.0"), ("b", "r:5000/b"), ("c", "x/c:1"), ("d", "d:1")]);
    let new = pods(&[("a", "r.example.org/a:1.1.0"), ("b", "r:5000/b@sha256:00"), ("c", "y/c:1"), ("e", "e:1")]);
    let report = report(&[("Deployment", "apps", Some(old.clone()), Some(new)), ("Job", "batch", Some(old), None)]);
    let found = images(&report);
    assert_eq!(
        found,
        [
            "e:1 comes (Deployment manager)",
            "d:1 goes (Deployment manager and 1 more)",
            "r.example.org/a:1.0.0 goes (Job manager)",
            "r.example.org/a: 1.0.0 → 1.1.0 (Deployment manager)",
            "r:5000/b goes (Job manager)",
            "r:5000/b: latest → sha256:00 (Deployment manager)",
            "x/c:1 goes (Job manager)",
            "x/c:1 → y/c:1 (Deployment manager)",
        ]
    );
}

#[test]
fn rights_that_come_and_go_are_named() {
    let role = |verbs: &[&str], resource: &str| {
        json!({"rules": [{"apiGroups": [""], "resources": [resource], "verbs": verbs},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"], "resourceNames": ["a"]}]})
    };
    let binding = |user: &str| {
        json!({"subjects": [{"kind": "ServiceAccount", "namespace": "a", "name": user}],
            "roleRef": {"kind": "ClusterRole", "name": "view"}})
    };
    let report = report(&[
        ("ClusterRole", RBAC_GROUP, Some(role(&["get"], "pods")), Some(role(&["get", "list"], "pods"))),
        ("Role", RBAC_GROUP, Some(role(&["*"], "secrets")), None),
        ("RoleBinding", RBAC_GROUP, Some(binding("one")), Some(binding("two"))),
        ("ClusterRoleBinding", RBAC_GROUP, Some(binding("one")), Some(binding("one"))),
    ]);
    assert_eq!(
        rights(&report),
        [
            "ClusterRole manager: gains list of pods",
            "Role manager: loses get of deployments.apps named a; * of secrets",
            "RoleBinding manager: gains ServiceAccount a/two as subject; loses ServiceAccount a/one as subject",
        ]
    );
}
