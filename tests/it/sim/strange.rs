//! Requests that no client sends on purpose, and what the server makes of them: bodies that are no objects, fields of
//! another type, options that cannot be read.

use serde_json::{Value, json};

use super::both::{Ask, Both};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

fn map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn one(name: &str) -> String {
    format!("{MAPS}/{name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_no_object_is_refused() {
    let both = Both::new().await;
    let yaml = |body: &str| Ask::raw("POST", MAPS, "application/yaml", body);
    let json = |body: &str| Ask::raw("POST", MAPS, "application/json", body);
    both.check(&[
        yaml("[]"),
        yaml("foo"),
        yaml("1"),
        yaml("- a"),
        yaml("null").loosely(),
        yaml("a:\tb\n\tc: d").loosely(),
        Ask::raw("PUT", &one("a"), "application/yaml", "- a"),
        json("null").loosely(),
        json(r#"{"apiVersion":1}"#),
        json(r#"{"kind":[]}"#),
        json(r#"{"apiVersion":"v1","kind":7,"metadata":{"name":"a"}}"#),
        Ask::raw("POST", MAPS, "APPLICATION/JSON", &map("upper", json!({})).to_string()),
        Ask::raw("POST", MAPS, "Application/Yaml; charset=UTF-8", "metadata: {name: yaml}"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_keeps_its_kind() {
    let both = Both::new().await;
    // The refusals quote the whole object.
    let patch = |body: Value| Ask::merge(&one("a"), &body).loosely();
    both.check(&[
        Ask::post(MAPS, &map("a", json!({"x": "1"}))),
        patch(json!({"kind": "Secret"})),
        patch(json!({"apiVersion": "v2"})),
        patch(json!({"apiVersion": "v2", "kind": "Secret"})),
        patch(json!({"kind": 7})),
        Ask::json(&one("a"), &json!([{"op": "replace", "path": "/kind", "value": "Foo"}])).loosely(),
        Ask::json(&one("a"), &json!([{"op": "remove", "path": "/kind"}])),
        Ask::get(&one("a")),
        patch(json!({"data": []})),
        patch(json!({"data": {"x": 1}})),
        patch(json!({"metadata": {"labels": []}})),
        patch(json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}})),
        patch(json!({"metadata": {"deletionGracePeriodSeconds": 5}})),
        Ask::get(&one("a")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_zero_is_any_version() {
    let both = Both::new().await;
    let at = |data: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": "0"},
            "data": {"x": data},
        })
    };
    both.check(&[
        Ask::post(MAPS, &map("a", json!({"x": "1"}))),
        Ask::put(&one("a"), &at("2")),
        Ask::merge(&one("a"), &json!({"metadata": {"resourceVersion": "0"}, "data": {"x": "3"}})),
        Ask::apply(&format!("{}?fieldManager=m&force=true", one("a")), &at("4")),
        Ask::get(&format!("{}?resourceVersion=abc", one("a"))),
        Ask::get(&format!("{}?resourceVersion=18446744073709551616", one("a"))),
        Ask::get(&format!("{MAPS}?resourceVersion=18446744073709551616")),
        Ask::get(&format!("{MAPS}?limit=9223372036854775808")),
        Ask::get(&format!("{MAPS}?resourceVersion=0&resourceVersionMatch=Exact")),
        Ask::get(&format!("{MAPS}?sendInitialEvents=true")),
        Ask::get(&format!("{MAPS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan")),
        Ask::get(&format!("{MAPS}?sendInitialEvents=true&resourceVersionMatch=Exact")),
        Ask::put(&one("a"), &json!({"metadata": {"name": "a", "resourceVersion": "18446744073709551616"}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_be_read_delete_nothing() {
    let both = Both::new().await;
    let options = |body: &str| Ask::raw("DELETE", &one("a"), "application/json", body);
    let by = |query: &str| Ask::delete(&format!("{}?{query}", one("a")));
    both.check(&[
        Ask::post(MAPS, &map("a", json!({}))),
        options("[]").loosely(),
        options("7").loosely(),
        options(r#"{"gracePeriodSeconds":"x"}"#).loosely(),
        options(r#"{"preconditions":{"uid":7}}"#).loosely(),
        options(r#"{"preconditions":[]}"#).loosely(),
        options(r#"{"dryRun":"All"}"#).loosely(),
        options(r#"{"dryRun":[1]}"#).loosely(),
        options(r#"{"propagationPolicy":1}"#).loosely(),
        options(r#"{"orphanDependents":"yes"}"#).loosely(),
        options(r#"{"kind":7}"#).loosely(),
        by("gracePeriodSeconds=abc").loosely(),
        by("dryRun=Foo"),
        Ask::raw("DELETE", MAPS, "application/json", r#"{"gracePeriodSeconds":"x"}"#).loosely(),
        Ask::get(&one("a")),
        by("dryRun=All&dryRun=All"),
        Ask::post(&format!("{MAPS}?dryRun=All&dryRun=All"), &map("b", json!({}))),
        Ask::post(&format!("{MAPS}?dryRun=All&dryRun=Foo"), &map("b", json!({}))),
        Ask::post(&format!("{MAPS}?dryRun="), &map("b", json!({}))),
        by("dryRun="),
        Ask::get(&one("a")),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_names_its_object() {
    let both = Both::new().await;
    let apply = |name: &str, body: Value| Ask::apply(&format!("{}?fieldManager=m", one(name)), &body);
    both.check(&[
        apply("a", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {}})),
        apply("a", json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"x": "1"}})),
        apply("a", map("b", json!({}))),
        apply("a", map("a", json!({}))),
        apply("a", json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}})),
        Ask::post(MAPS, &json!({"metadata": {"generateName": "A_", "name": "good"}})),
        Ask::post(MAPS, &json!({"metadata": {"generateName": "a-", "name": "better"}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_named_in_full() {
    let both = Both::new().await;
    let owned = |owners: Value| Ask::post(MAPS, &json!({"metadata": {"name": "owned", "ownerReferences": owners}}));
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "X", "name": name, "uid": name, "controller": true});
    both.check(&[
        owned(json!([{"apiVersion": "", "kind": "", "name": "", "uid": ""}])),
        owned(json!([{"kind": "X", "name": "a", "uid": "a"}])),
        owned(json!([owner("a"), owner("b")])),
        owned(json!([owner("a"), owner("b"), owner("c")])),
    ])
    .await;
}
