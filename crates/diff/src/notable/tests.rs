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
fn the_image_of_a_volume_is_an_image() {
    let pods = |reference: &str| {
        let volumes = json!([{"name": "data", "image": {"reference": reference}}, {"name": "x", "emptyDir": {}}]);
        json!({"spec": {"template": {"spec": {"volumes": volumes}}}})
    };
    let report = report(&[("Deployment", "apps", Some(pods("r/data:1")), Some(pods("r/data:2")))]);
    assert_eq!(images(&report), ["r/data: 1 → 2 (Deployment manager)"]);
}

#[test]
fn who_gets_the_rights_of_an_aggregated_role_is_said() {
    let role = |to: &str, verbs: &[&str]| {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{to}");
        json!({"metadata": {"labels": {label: "true"}},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}]})
    };
    let aggregated = |label: &str| {
        let selectors = json!([{"matchLabels": {label: "true"}},
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}]);
        json!({"aggregationRule": {"clusterRoleSelectors": selectors}})
    };
    let check = |old: Option<Value>, new: Option<Value>, expected: &[&str]| {
        assert_eq!(rights(&report(&[("ClusterRole", RBAC_GROUP, old, new)])), expected);
    };
    let new = "ClusterRole manager: every holder of view gets its rights; gains * of *.*";
    check(None, Some(role("view", &["*"])), &[new]);
    let moved = "ClusterRole manager: every holder of edit gets its rights; every holder of admin loses its rights";
    check(Some(role("admin", &["get"])), Some(role("edit", &["get"])), &[moved]);
    let more = "ClusterRole manager, for every holder of view: gains list of *.*";
    check(Some(role("view", &["get"])), Some(role("view", &["get", "list"])), &[more]);
    check(Some(role("view", &["get"])), Some(role("view", &["get"])), &[]);
    let selected = "ClusterRole manager: gains the rights of ClusterRoles with two=true by aggregation; \
                    loses the rights of ClusterRoles with one=true by aggregation";
    check(Some(aggregated("one")), Some(aggregated("two")), &[selected]);
    let first = "ClusterRole manager: gains the rights of ClusterRoles with a In b c, \
                 the rights of ClusterRoles with one=true by aggregation";
    check(None, Some(aggregated("one")), &[first]);
    let all = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}});
    check(None, Some(all), &["ClusterRole manager: gains the rights of all ClusterRoles by aggregation"]);
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
