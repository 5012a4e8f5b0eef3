#![expect(clippy::needless_pass_by_value, reason = "tables read better with their values written in place")]

use std::collections::BTreeMap;

use kube::core::SelectorExt as _;
use serde_json::{Value, json};

use super::*;

#[track_caller]
fn check(selector: Value, labels: &[(&str, &str)], expected: Option<bool>) {
    let selector: LabelSelector = serde_json::from_value(selector).unwrap();
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    assert_eq!(parse(&selector).map(|selector| selector.matches(&labels)), expected);
}

/// A selector with one expression.
fn expression(operator: &str, values: Value) -> Value {
    json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]})
}

#[test]
fn an_empty_selector_matches_everything() {
    for empty in [json!({}), json!({"matchLabels": {}}), json!({"matchLabels": {}, "matchExpressions": []})] {
        check(empty.clone(), &[], Some(true));
        check(empty.clone(), &[("tier", "gold")], Some(true));
        assert!(parse(&serde_json::from_value(empty).unwrap()).unwrap().selects_all());
    }
}

#[test]
fn labels_and_expressions_must_all_match() {
    let selector = json!({
        "matchLabels": {"region": "eu", "stage": ""},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["gold", "silver"]},
            {"key": "tier", "operator": "NotIn", "values": ["silver"]},
            {"key": "owner", "operator": "Exists"},
            {"key": "trial", "operator": "DoesNotExist", "values": []},
        ],
    });
    let all = [("region", "eu"), ("stage", ""), ("tier", "gold"), ("owner", "")];
    check(selector.clone(), &all, Some(true));
    for (index, changed) in [("region", "us"), ("stage", "dev"), ("tier", "silver")].into_iter().enumerate() {
        let mut labels = all;
        labels[index] = changed;
        check(selector.clone(), &labels, Some(false));
    }
    for missing in 0..all.len() {
        let labels: Vec<_> = all.into_iter().enumerate().filter(|(i, _)| *i != missing).map(|(_, l)| l).collect();
        check(selector.clone(), &labels, Some(false));
    }
    check(selector, &[("region", "eu"), ("stage", ""), ("tier", "gold"), ("owner", ""), ("trial", "")], Some(false));
}

#[test]
fn a_missing_label_is_in_no_list() {
    check(expression("In", json!(["gold"])), &[], Some(false));
    check(expression("NotIn", json!(["gold"])), &[], Some(true));
    check(expression("NotIn", json!(["gold"])), &[("tier", "gold")], Some(false));
    check(expression("NotIn", json!(["gold"])), &[("tier", "silver")], Some(true));
}

#[test]
fn what_kubernetes_refuses_matches_nothing() {
    for (operator, values) in [
        ("In", json!([])),
        ("In", json!(null)),
        ("NotIn", json!([])),
        ("NotIn", json!(null)),
        ("Exists", json!(["gold"])),
        ("DoesNotExist", json!(["gold"])),
        ("Gt", json!(["1"])),
        ("in", json!(["gold"])),
        ("", json!(null)),
    ] {
        check(expression(operator, values), &[("tier", "gold")], None);
    }
}

#[test]
fn selectors_are_read_as_kubectl_reads_them() {
    let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let canary = labels(&[("stage", "canary"), ("example.org/region", "eu")]);
    for (text, expected) in [
        ("stage=canary", true),
        ("stage == canary", true),
        ("stage!=canary", false),
        ("stage in (canary, early)", true),
        ("stage notin (canary,early)", false),
        ("stage,example.org/region=eu", true),
        ("stage,!frozen", true),
        ("!stage", false),
        ("stage=canary,example.org/region in (us, ap)", false),
        ("tier notin (free)", true),
    ] {
        assert_eq!(read(text).unwrap().matches(&canary), expected, "{text}");
    }
    for text in
        ["", "stage=", "=canary", "stage in canary", "stage in ()", "stage canary", "!stage=canary", "a=b c", ","]
    {
        let read = read(text);
        // Kubernetes has labels with empty values.
        assert_eq!(read.is_ok(), text == "stage=" || text == "stage in ()", "{text}: {read:?}");
    }
}
