//! Server-side apply and managed fields.

use serde_json::{Value, json};

use super::{
    sides::{Answer, Ask, check},
    widget,
};

fn w(spec: Value) -> Value {
    widget::with("w", spec)
}

/// What the server says of a conflict, in short.
fn message(answer: &Answer) -> &str {
    answer.1["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_creates_and_then_changes_nothing() {
    let spec = json!({"text": "a", "number": 1, "fraction": 0.5, "flag": false, "texts": {"a": "1", "b": "2"}});
    check(&[Ask::apply("one", &w(spec.clone())), Ask::apply("one", &w(spec)), Ask::get("w")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_field_of_another_manager_is_a_conflict_unless_forced() {
    let answers = check(&[
        Ask::apply("one", &w(json!({"text": "a", "number": 1}))),
        Ask::apply("two", &w(json!({"text": "b"}))),
        Ask::apply("two", &w(json!({"text": "b", "number": 2}))),
        Ask::apply("two", &w(json!({"text": "a"}))),
        Ask::apply("three", &w(json!({"text": "c"}))),
        Ask::force("three", &w(json!({"text": "c"}))),
        Ask::apply("one", &w(json!({"number": 1}))),
        Ask::get("w"),
    ])
    .await;
    assert_eq!(message(&answers[1]), "Apply failed with 1 conflict: conflict with \"one\": .spec.text");
    assert_eq!(answers[1].0, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_with_updates_and_applies_name_all_managers() {
    check(&[
        Ask::create("creator", &w(json!({"text": "a", "texts": {"a": "1"}, "parts": [{"name": "p", "size": 1}]}))),
        Ask::apply("one", &w(json!({"number": 1}))),
        Ask::apply(
            "two",
            &w(json!({"text": "b", "number": 2, "texts": {"a": "2"}, "parts": [{"name": "p", "size": 2}]})),
        ),
        Ask::force(
            "two",
            &w(json!({"text": "b", "number": 2, "texts": {"a": "2"}, "parts": [{"name": "p", "size": 2}]})),
        ),
        Ask::merge("w", "three", &json!({"spec": {"parts": [{"name": "p", "size": 3}]}})),
        Ask::apply("two", &w(json!({"text": "b", "number": 2, "parts": [{"name": "p", "size": 4}]}))),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_longer_applied_goes_unless_another_manager_owns_it() {
    check(&[
        Ask::apply("one", &w(json!({"text": "a", "number": 1, "texts": {"a": "1", "b": "2"}, "set": ["x", "y"]}))),
        Ask::apply("two", &w(json!({"number": 1, "texts": {"b": "2"}, "set": ["y"]}))),
        Ask::apply("one", &w(json!({"text": "a", "texts": {"a": "1"}, "set": ["x"]}))),
        Ask::apply("one", &w(json!({"set": []}))),
        Ask::apply("two", &w(json!({}))),
        Ask::apply("one", &w(json!({}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_only_updated_stays_when_its_parent_is_no_longer_applied() {
    check(&[
        Ask::apply(
            "one",
            &w(json!({"parts": [{"name": "p", "size": 1, "inner": {"a": "1"}}], "anything": {"x": {"y": 1}}})),
        ),
        Ask::merge("w", "two", &json!({"spec": {"anything": {"x": {"z": 2}}}})),
        Ask::json("w", "two", &json!([{"op": "add", "path": "/spec/parts/0/inner/b", "value": "2"}])),
        Ask::apply("one", &w(json!({}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_merged_by_their_kind() {
    let part = |name: &str, size: u32| json!({"name": name, "size": size});
    check(&[
        Ask::apply("one", &w(json!({"parts": [part("a", 1), part("b", 1), part("c", 1)], "set": ["a", "b", "c"]}))),
        Ask::apply("two", &w(json!({"parts": [part("d", 1), {"name": "b"}, part("e", 2)], "set": ["d", "b", "e"]}))),
        Ask::apply("one", &w(json!({"parts": [part("c", 1), part("a", 1)], "set": ["c", "a"]}))),
        Ask::apply("one", &w(json!({"parts": [{"name": "c", "protocol": "UDP"}, part("c", 2)], "set": ["z", "c"]}))),
        Ask::apply("two", &w(json!({"list": ["a", "b"], "numbers": [3, 1, 2]}))),
        Ask::apply("three", &w(json!({"list": ["a", "b"], "numbers": [1]}))),
        Ask::apply("three", &w(json!({"list": ["b", "a"]}))),
        Ask::force("three", &w(json!({"list": ["b"]}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn atomic_mappings_are_one_value() {
    check(&[
        Ask::apply("one", &w(json!({"whole": {"a": "1", "b": "2"}}))),
        Ask::apply("two", &w(json!({"whole": {"a": "1"}}))),
        Ask::force("two", &w(json!({"whole": {"a": "1"}}))),
        Ask::merge("w", "three", &json!({"spec": {"whole": {"b": "3"}}})),
        Ask::apply("two", &w(json!({}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn values_without_a_schema_are_told_apart_by_what_they_are() {
    let template =
        json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "t", "labels": {"a": "b"}}, "data": [1]});
    check(&[
        Ask::apply("one", &w(json!({"anything": {"a": {"b": [1, {"c": 2}]}, "d": 1}, "untyped": {"x": [1]}}))),
        Ask::apply("two", &w(json!({"anything": {"a": {"b": [2]}}, "untyped": {"y": 1}}))),
        Ask::force("two", &w(json!({"anything": {"a": {"b": 7}}, "untyped": 3, "either": "5", "template": template}))),
        Ask::apply("one", &w(json!({"either": 5}))),
        Ask::force("one", &w(json!({"either": 5, "untyped": [1, 2], "anything": {"a": "text"}}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_and_empty_values_are_kept_as_the_server_keeps_them() {
    check(&[
        Ask::apply("one", &w(json!({"texts": {}, "list": [], "set": [], "parts": [], "whole": {}, "anything": {}}))),
        Ask::apply("one", &w(json!({"text": null, "nullable": null, "texts": null, "list": null}))),
        Ask::apply("one", &w(json!({"nullable": "a", "anything": {"a": null, "b": {}}}))),
        Ask::apply("two", &w(json!({"nullable": null}))),
        Ask::force("two", &w(json!({"nullable": null}))),
        Ask::apply("one", &json!({"apiVersion": widget::API_VERSION, "kind": "Widget", "metadata": {"name": "w"}})),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_owned_like_all_else() {
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
    let with = |metadata: Value| {
        let mut object = w(json!({"text": "a"}));
        for (name, value) in metadata.as_object().unwrap() {
            object["metadata"][name] = value.clone();
        }
        object
    };
    let mark = "operator.kyma-project.io/managed-by";
    check(&[
        Ask::apply(
            "one",
            &with(json!({"labels": {mark: "kyma"}, "finalizers": ["a.b/c"], "ownerReferences": [owner("x")]})),
        ),
        Ask::apply(
            "two",
            &with(json!({"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["a.b/d"], "ownerReferences": [owner("y")]})),
        ),
        Ask::apply("two", &with(json!({"labels": {mark: "other"}}))),
        Ask::merge("w", "three", &json!({"metadata": {"labels": {"e": "f"}, "annotations": null, "finalizers": null}})),
        Ask::apply("one", &with(json!({"finalizers": ["a.b/c"]}))),
        Ask::get("w"),
        Ask::merge("w", "", &json!({"metadata": {"finalizers": null}})),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_take_what_they_change() {
    check(&[
        Ask::create("one", &w(json!({"text": "a", "number": 1, "set": ["a"], "list": ["x"]}))),
        Ask::merge("w", "two", &json!({"spec": {"text": "b", "number": null}})),
        Ask::merge("w", "two", &json!({"spec": {"text": "b"}})),
        Ask::json(
            "w",
            "three",
            &json!([{"op": "add", "path": "/spec/set/-", "value": "b"}, {"op": "remove", "path": "/spec/list"}]),
        ),
        Ask::json("w", "three", &json!([{"op": "test", "path": "/spec/text", "value": "c"}])),
        Ask::merge("w", "", &json!({"metadata": {"labels": {"a": "b"}}})),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replace_owns_what_differs() {
    let answers = check(&[
        Ask::apply("one", &w(json!({"text": "a", "number": 1, "parts": [{"name": "p", "size": 1}], "set": ["a"]}))),
        Ask::replace("two", &w(json!({"text": "a", "parts": [{"name": "p", "size": 1}, {"name": "q"}], "set": ["b"]}))),
        Ask::replace("two", &w(json!({"text": "a", "parts": [{"name": "p", "size": 1}, {"name": "q"}], "set": ["b"]}))),
        Ask::replace("three", &w(json!({"parts": [{"name": "p"}, {"name": "r"}], "set": ["b"], "texts": {}}))),
        Ask::apply("one", &w(json!({"text": "a"}))),
        Ask::replace("", &w(json!({"text": "b"}))),
        Ask::get("w"),
    ])
    .await;
    assert_eq!(answers.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [201, 200, 200, 200, 200, 200, 200]);
}

#[tokio::test(flavor = "multi_thread")]
async fn status_belongs_to_who_writes_it() {
    let status = |state: &str| {
        let mut object = w(json!({"text": "b"}));
        object["status"] = json!({"state": state, "conditions": [{"type": "Ready", "status": "True"}]});
        object
    };
    check(&[
        Ask::apply("one", &status("Ignored")),
        Ask::apply("two", &status("Ready")).status(),
        Ask::apply("one", &w(json!({"text": "c"}))),
        Ask::merge("w", "three", &json!({"status": {"state": "Error"}, "spec": {"text": "x"}})).status(),
        Ask::apply("two", &status("Warning")).status(),
        Ask::force("two", &status("Warning")).status(),
        Ask::merge("w", "three", &json!({"status": {"state": "Error"}, "spec": {"text": "x"}})),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_fields_can_be_forgotten_but_not_by_accident() {
    let fields = |fields: Value| json!({"metadata": {"managedFields": fields}});
    check(&[
        Ask::apply("one", &w(json!({"text": "a"}))),
        Ask::merge("w", "two", &json!({"metadata": {"managedFields": null}, "spec": {"number": 1}})),
        Ask::merge("w", "two", &fields(json!([{"manager": "x"}]))),
        Ask::merge("w", "two", &fields(json!([{}]))),
        Ask::merge("w", "two", &json!({"spec": {"number": 2}})),
        Ask::apply("one", &w(json!({"text": "a"}))),
        Ask::apply("one", &w(json!({"text": "b", "number": 2}))),
        Ask::merge("w", "two", &fields(json!([]))),
        Ask::merge(
            "w",
            "two",
            &fields(json!([{
                "manager": "x", "operation": "Apply", "apiVersion": widget::API_VERSION, "fieldsType": "FieldsV1",
                "time": "2020-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:text": {}}},
            }])),
        ),
        Ask::apply("x", &w(json!({"number": 2}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_versions_that_are_gone_and_of_types_that_changed_are_mended() {
    let entry = |version: &str, fields: Value| {
        json!([{
            "manager": "x", "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
            "time": "2020-01-01T00:00:00Z", "fieldsV1": fields,
        }])
    };
    check(&[
        Ask::apply("one", &w(json!({"whole": {"a": "1"}, "list": ["a"]}))),
        Ask::merge(
            "w",
            "two",
            &json!({"metadata": {"managedFields":
                entry(widget::API_VERSION, json!({"f:spec": {"f:whole": {"f:a": {}}, "f:list": {".": {}, "v:\"a\"": {}}}}))}}),
        ),
        Ask::apply("one", &w(json!({"whole": {"a": "2"}}))),
        Ask::force("one", &w(json!({"whole": {"a": "2"}}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_of_many_updaters_are_summed_up() {
    let mut asks = vec![Ask::create("m00", &w(json!({"texts": {"m00": "1"}})))];
    for index in 1..14 {
        let name = format!("m{index:02}");
        asks.push(Ask::merge("w", &name, &json!({"spec": {"texts": {&name: "1"}}})));
    }
    check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_takes_over_what_it_applied_from_the_client() {
    let annotation = "kubectl.kubernetes.io/last-applied-configuration";
    let last = w(json!({"text": "a", "number": 1})).to_string();
    let mut created = w(json!({"text": "a", "number": 1}));
    created["metadata"]["annotations"] = json!({annotation: last});
    check(&[
        Ask::create("kubectl-client-side-apply", &created),
        Ask::apply("kubectl", &w(json!({"text": "b", "number": 1}))),
        Ask::merge("w", "other", &json!({"spec": {"number": 2}})),
        Ask::apply("kubectl", &w(json!({"text": "<c>", "number": 3}))),
        Ask::force("kubectl", &w(json!({"text": "<c>", "number": 3}))),
        Ask::get("w"),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_applied_is_refused_in_the_server_s_words() {
    let mut managed = w(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let of_kind = |kind: &str| json!({"apiVersion": widget::API_VERSION, "kind": kind, "metadata": {"name": "w"}});
    let mut version = w(json!({}));
    version["apiVersion"] = json!("sim.tidegate.dev/v2");
    let mut asks = vec![Ask::apply("one", &w(json!({"text": "a"})))];
    let bad = [
        json!({"text": 1}),
        json!({"text": ["a"]}),
        json!({"number": "1"}),
        json!({"number": {"a": 1}}),
        json!({"flag": "true"}),
        json!({"either": {"a": [1, "b", null]}}),
        json!({"unknown": 1}),
        json!({"texts": "a"}),
        json!({"texts": {"a": 1}}),
        json!({"texts": {"a": {"b": 1}}}),
        json!({"list": "a"}),
        json!({"list": [1]}),
        json!({"parts": [{"name": "a"}, {"name": "a"}]}),
        json!({"parts": [{"size": 1}, {"size": 2}]}),
        json!({"parts": [1]}),
        json!({"parts": [null]}),
        json!({"set": ["a", "a"]}),
        json!({"set": [null]}),
        json!({"set": [["a"]]}),
        json!({"set": [{"a": 1}]}),
        json!({"text": 1, "number": "a"}),
        json!({"parts": [{"name": "a", "size": "x", "tags": ["a", "a"]}]}),
    ];
    asks.extend(bad.into_iter().map(|spec| Ask::apply("one", &w(spec))));
    asks.extend([Ask::apply("one", &managed), Ask::apply("one", &of_kind("Gadget")), Ask::apply("one", &version)]);
    check(&asks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_that_do_not_fit_are_refused_in_the_server_s_words() {
    let mut asks = vec![Ask::apply("one", &w(json!({"text": "a", "list": ["a"]})))];
    let bad = [
        json!([{"op": "remove", "path": "/spec/number"}]),
        json!([{"op": "test", "path": "/spec/text", "value": "b"}]),
        json!([{"op": "add", "path": "/spec/nothing/there", "value": 1}]),
        json!([{"op": "add", "path": "/spec/list/7", "value": "b"}]),
        json!([{"op": "add", "path": "/spec/list/x", "value": "b"}]),
        json!([{"op": "replace", "path": "/spec/list/7", "value": "b"}]),
        json!([{"op": "move", "from": "/spec/number", "path": "/spec/text"}]),
        json!([{"op": "copy", "from": "/spec/list/9", "path": "/spec/text"}]),
        json!([{"op": "fly", "path": "/spec/text"}]),
        json!([{"path": "/spec/text"}]),
        json!([{"op": "add"}]),
        json!([{"op": "remove"}]),
        json!([{"op": "replace"}]),
        json!([{"op": "move", "path": "/spec"}]),
        json!([{"op": "copy", "path": "/spec"}]),
        json!([{"op": 1, "path": "/spec/text"}]),
        json!({"op": "add"}),
        json!("text"),
        json!(7),
        json!([1]),
    ];
    asks.extend(bad.iter().map(|patch| Ask::json("w", "one", patch)));
    asks.extend(
        [json!([1]), json!("text"), json!(7), json!(true), json!(null)]
            .iter()
            .map(|patch| Ask::merge("w", "one", patch)),
    );
    check(&asks).await;
}
