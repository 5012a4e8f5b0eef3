// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    ApplyError, PatchError, Schema, Write, apply, json_patch, keep_times, manager_from_agent, merge_patch, path::Step,
    set::Set, syntax_error, tidy_metadata, track_update,
};
use tidegate_core::object::Gvk;

const API_VERSION: &str = "a.b/v1";

fn schema() -> Schema {
    let props = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "parts": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}},
        },
    }}}});
    Schema::custom(Gvk::from_api_version(API_VERSION, "C"), &props, true, &[API_VERSION.to_owned()])
}

fn object(spec: Value) -> Value {
    json!({"apiVersion": API_VERSION, "kind": "C", "metadata": {"name": "d"}, "spec": spec})
}

fn write(manager: &str, second: i64) -> Write<'_> {
    let now = jiff::Timestamp::from_second(second).unwrap();
    Write { manager, subresource: None, api_version: API_VERSION, now, force: false }
}

#[track_caller]
fn check_json(live: Value, patch: Value, expected: Result<Value, &str>) {
    let found = json_patch(&live, &patch);
    assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
}

#[test]
fn json_patch_adds_removes_replaces_moves_copies_and_tests() {
    check_json(json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": [1]}]), Ok(json!({"a": 1, "b": [1]})));
    check_json(json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), Ok(json!({"a": [1, 2, 3]})));
    check_json(json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), Ok(json!({"a": [1, 2]})));
    check_json(json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), Ok(json!({"a": [1]})));
    check_json(json!({"a/b": {"~": 1}}), json!([{"op": "remove", "path": "/a~1b/~0"}]), Ok(json!({"a/b": {}})));
    check_json(json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), Ok(json!({"a": 1, "b": 2})));
    check_json(json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), Ok(json!({"b": 1})));
    check_json(json!({"a": 1}), json!([{"op": "copy", "from": "/x", "path": "/b"}]), Ok(json!({"a": 1, "b": null})));
    check_json(json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), Ok(json!({"a": 1})));
    check_json(json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {}}]), Ok(json!({})));
}

#[test]
fn json_patch_says_what_does_not_fit() {
    let live = json!({"a": [1], "b": "text"});
    let cases = [
        (json!([{"op": "add", "path": "/x/y"}]), "there is nothing at `/x/y`"),
        (json!([{"op": "add", "path": ""}]), "there is nothing at ``"),
        (json!([{"op": "add", "path": "/a/3"}]), "`3` is not a position in a list of 2"),
        (json!([{"op": "add", "path": "/a/x"}]), "`x` is not a position in a list of 2"),
        (json!([{"op": "remove", "path": "/x"}]), "there is no field `x`"),
        (json!([{"op": "remove", "path": "/a/-2"}]), "`-2` is not a position in a list of 1"),
        (json!([{"op": "remove", "path": "/b/x"}]), "there is nothing at `/b/x`"),
        (json!([{"op": "test", "path": "/a/0", "value": 2}]), "`/a/0` is not what the patch expects"),
        (json!([{"op": "fly", "path": "/a"}]), "unknown operation `fly`"),
        (json!([{"path": "/a"}]), "an operation has no `op`"),
        (json!([{"op": "remove"}]), "an operation has no `path`"),
        (json!([null]), "an operation has no `op`"),
    ];
    for (patch, message) in cases {
        assert_eq!(json_patch(&live, &patch), Err(PatchError::Unfitting(message.to_owned())), "{patch}");
    }
}

#[test]
fn a_json_patch_of_another_shape_is_malformed() {
    let malformed = |patch: Value| match json_patch(&json!({}), &patch) {
        Err(PatchError::Malformed(message)) => message,
        other => panic!("{patch} is not malformed: {other:?}"),
    };
    assert_eq!(
        malformed(json!({"a": 1})),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
    );
    assert_eq!(
        malformed(json!([{"op": 1}])),
        "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"
    );
    let many = Value::Array(vec![json!({"op": "test", "path": "", "value": {}}); 10_001]);
    assert_eq!(
        json_patch(&json!({}), &many),
        Err(PatchError::TooLarge("The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned()))
    );
}

#[test]
fn merge_patch_merges_mappings_and_replaces_all_else() {
    let check = |live: Value, patch: Value, expected: Value| {
        assert_eq!(merge_patch(&live, &patch).as_ref(), Ok(&expected), "{live} with {patch}");
    };
    check(json!({"a": {"b": 1, "c": 2}}), json!({"a": {"b": null, "d": 3}}), json!({"a": {"c": 2, "d": 3}}));
    check(json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]}));
    check(json!({}), json!({"a": {"b": null, "c": [null, {"d": null}]}}), json!({"a": {"c": [null, {}]}}));
    check(json!({"a": 1}), json!({"a": {"b": null}}), json!({"a": {}}));
    check(json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]}));
    assert!(matches!(merge_patch(&json!({}), &json!([])), Err(PatchError::Malformed(_))));
}

#[test]
fn what_is_not_json_is_told_in_the_words_of_go() {
    let cases = [
        ("", "unexpected end of JSON input"),
        ("{", "unexpected end of JSON input"),
        ("x", "invalid character 'x' looking for beginning of value"),
        ("{x", "invalid character 'x' looking for beginning of object key string"),
        (r#"{"a" 1}"#, "invalid character '1' after object key"),
        (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
        ("{} {}", "invalid character '{' after top-level value"),
        ("tru", "invalid character ' ' in literal true (expecting 'e')"),
        ("trux", "invalid character 'x' in literal true (expecting 'e')"),
        ("-a", "invalid character 'a' in numeric literal"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1ex", "invalid character 'x' in exponent of numeric literal"),
        ("01", "invalid character '1' after top-level value"),
        ("\"a\nb\"", r"invalid character '\n' in string literal"),
        (r#""\x""#, "invalid character 'x' in string escape code"),
        (r#""\u12g4""#, r"invalid character 'g' in \u hexadecimal character escape"),
    ];
    for (text, message) in cases {
        assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(message), "{text}");
    }
    assert_eq!(syntax_error(br#" {"a": [1, -0.5e+3, "b\u00e4", true, null, {}, []]} "#), None);
    assert_eq!(syntax_error("[".repeat(20_000).as_bytes()).as_deref(), Some("exceeded max depth"));
}

proptest! {
    #[test]
    fn json_is_told_from_what_is_not_as_serde_json_does(text in r#"[\[\]{}:,"a0\-. tn]{0,12}"#) {
        let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
        prop_assert_eq!(syntax_error(text.as_bytes()).is_none(), is_json);
    }
}

#[test]
fn an_apply_that_changes_nothing_keeps_everything() {
    let first = apply(&schema(), None, &object(json!({"text": "a"})), &write("one", 0)).unwrap();
    assert_eq!(first["metadata"]["managedFields"][0]["time"], "1970-01-01T00:00:00Z");
    let second = apply(&schema(), Some(&first), &object(json!({"text": "a"})), &write("one", 60)).unwrap();
    assert_eq!(second, first);
}

#[test]
fn a_conflict_names_the_manager_and_the_field() {
    let live = apply(&schema(), None, &object(json!({"parts": [{"name": "p", "size": 1}]})), &write("one", 0)).unwrap();
    let applied = object(json!({"parts": [{"name": "p", "size": 2}]}));
    let Err(error) = apply(&schema(), Some(&live), &applied, &write("two", 1)) else { panic!("a conflict") };
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Conflict", "code": 409,
        "message": "Apply failed with 1 conflict: conflict with \"one\": .spec.parts[name=\"p\"].size",
        "details": {"causes": [{
            "reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.parts[name=\"p\"].size",
        }]},
    });
    assert_eq!(error.status(), expected);
    let forced = apply(&schema(), Some(&live), &applied, &Write { force: true, ..write("two", 1) }).unwrap();
    assert_eq!(forced["spec"], applied["spec"]);
}

#[test]
fn entries_come_by_operation_then_time_then_manager() {
    let mut live = track_update(&schema(), None, object(json!({"text": "a"})), &write("creator", 100));
    for (manager, second, spec) in
        [("late", 30, json!({"number": 1})), ("b", 20, json!({"set": ["b"]})), ("a", 20, json!({"set": ["a"]}))]
    {
        live = apply(&schema(), Some(&live), &object(spec), &write(manager, second)).unwrap();
    }
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let managers: Vec<&Value> = entries.iter().map(|entry| &entry["manager"]).collect();
    assert_eq!(managers, ["a", "b", "late", "creator"]);
}

#[test]
fn a_write_that_changes_nothing_but_times_changes_nothing() {
    let before = track_update(&schema(), None, object(json!({"text": "a"})), &write("one", 0));
    let mut after = before.clone();
    after["metadata"]["managedFields"][0]["time"] = json!("2020-01-01T00:00:00Z");
    assert_eq!(keep_times(&before, after.clone()), before);
    after["spec"]["text"] = json!("b");
    assert_eq!(keep_times(&before, after.clone()), after);
}

#[test]
fn managed_fields_that_no_client_could_write_stop_an_apply_and_no_update() {
    for entries in [
        json!("text"),
        json!([1]),
        json!([{"operation": "Apply"}]),
        json!([{
            "manager": "x", "operation": "Apply", "apiVersion": API_VERSION, "fieldsType": "FieldsV1",
            "fieldsV1": {"k:{": {}},
        }]),
    ] {
        let mut live = object(json!({"text": "a"}));
        live["metadata"]["managedFields"] = entries;
        let applied = apply(&schema(), Some(&live), &object(json!({})), &write("one", 0));
        assert!(matches!(applied, Err(ApplyError::Failed(_))), "{applied:?}");
        let updated = track_update(&schema(), Some(&live), live.clone(), &write("one", 0));
        assert_eq!(updated, object(json!({"text": "a"})));
    }
}

#[test]
fn metadata_keeps_no_empty_and_no_unknown_field() {
    let mut object = json!({"metadata": {
        "name": "a", "labels": {}, "annotations": null, "finalizers": [], "generateName": "", "generation": 0, "x": 1,
    }});
    tidy_metadata(&mut object);
    assert_eq!(object, json!({"metadata": {"name": "a", "generation": 0}}));
}

#[test]
fn a_request_without_a_manager_is_its_agent_s() {
    assert_eq!(manager_from_agent("kubectl/v1.36 (linux)"), "kubectl");
    assert_eq!(manager_from_agent(""), "");
    assert_eq!(manager_from_agent(&"ä".repeat(100)).len(), 128);
}

fn steps() -> impl Strategy<Value = Step> {
    let datum = prop_oneof![any::<i64>().prop_map(Value::from), "[a-z\"<&]{0,3}".prop_map(Value::from)];
    let datum = datum.prop_map(super::path::Datum).boxed();
    prop_oneof![
        "[a-z.:]{1,3}".prop_map(|name| Step::field(&name)),
        datum.clone().prop_map(Step::Value),
        proptest::collection::btree_map("[a-z]{1,2}", datum, 1..3)
            .prop_map(|keys| Step::Keys(keys.into_iter().map(|(name, value)| (name.into(), value)).collect())),
        any::<i64>().prop_map(Step::Index),
    ]
}

proptest! {
    #[test]
    fn a_set_is_what_its_encoding_says(paths in proptest::collection::vec(proptest::collection::vec(steps(), 1..4), 0..8)) {
        let mut set = Set::default();
        paths.iter().for_each(|path| set.insert(path));
        prop_assert_eq!(Set::decode(&set.encode()), Ok(set.clone()));
        prop_assert_eq!(set.clone().union(&set), set.clone());
        prop_assert_eq!(set.intersection(&set), set.clone());
        prop_assert!(set.difference(&set).is_empty());
        prop_assert!(paths.iter().all(|path| set.contains(path)));
    }
}
