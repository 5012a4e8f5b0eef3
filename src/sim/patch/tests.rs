use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PatchError, json_patch, merge_patch, syntax_error};

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
        (
            json!([{"op": "add", "path": "/x/y"}]),
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        (json!([{"op": "add", "path": ""}]), "add operation does not apply: doc is missing path: \"\": missing value"),
        (
            json!([{"op": "add", "path": "/a/3"}]),
            "error in add for path: '/a/3': Unable to access invalid index: 3: invalid index referenced",
        ),
        (
            json!([{"op": "add", "path": "/a/x"}]),
            "error in add for path: '/a/x': value was not a proper array index: 'x': \
             strconv.Atoi: parsing \"x\": invalid syntax",
        ),
        (
            json!([{"op": "remove", "path": "/x"}]),
            "error in remove for path: '/x': Unable to remove nonexistent key: x: missing value",
        ),
        (
            json!([{"op": "remove", "path": "/b/x"}]),
            "remove operation does not apply: doc is missing path: \"/b/x\": missing value",
        ),
        (json!([{"op": "test", "path": "/a/0", "value": 2}]), "testing value /a/0 failed: test failed"),
        (json!([{"op": "fly", "path": "/a"}]), "Unexpected kind: fly"),
        (json!([{"path": "/a"}]), "Unexpected kind: unknown"),
        (json!([null]), "Unexpected kind: unknown"),
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
        ("tru", "unexpected end of JSON input"),
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
