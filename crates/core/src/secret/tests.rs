use serde_json::json;

use super::*;

#[test]
fn a_secret_with_a_missing_or_misspelt_kind_is_recognised() {
    let rows = [
        (json!({"apiVersion": "v1", "kind": "Secert", "data": {"a": "aHVudGVyMg=="}}), true),
        (json!({"apiVersion": "v1", "kind": "Secrets", "data": {"a": "written in clear"}}), true),
        (json!({"apiVersion": "example.org/v1", "kind": "SECRTE", "stringData": {"a": "b"}}), true),
        (json!({"apiVersion": "v1", "kind": "Credentials", "data": {"a": "aHVudGVyMg=="}}), true),
        (json!({"apiVersion": "v1", "kind": ["Secret"], "stringdata": {"a": "b"}}), true),
        (json!({"apiVersion": "v1", "data": {"a": "aHVu\nZGVyMg=="}}), true),
        (json!({"metadata": {"name": "a"}, "Data": {"a": "aHVudGVyMg=="}}), true),
        // Other kinds, and content that is not encoded.
        (json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "aHVudGVyMg=="}}), false),
        (json!({"kind": "ConfigMap", "data": {"a": "aHVudGVyMg=="}}), false),
        (json!({"apiVersion": "example.org/v1", "kind": "Bundle", "data": {"a": "aHVudGVyMg=="}}), false),
        (json!({"apiVersion": "v1", "kind": "Settings", "data": {"mode": "fast and loud"}}), false),
        (json!({"apiVersion": "v1", "kind": "Secert", "data": {}}), false),
        (json!({"apiVersion": "v1", "kind": "Service", "spec": {"type": "ClusterIP"}}), false),
    ];
    for (object, expected) in rows {
        assert_eq!(is_disguised(object.as_object().unwrap(), true), expected, "{object}");
    }
}

#[test]
fn a_mapping_within_an_object_is_an_object_only_if_it_says_so() {
    let template = json!({"metadata": {"labels": {}}, "data": {"a": "aHVudGVyMg=="}});
    assert!(!is_disguised(template.as_object().unwrap(), false));
    let object = json!({"apiVersion": "v1", "data": {"a": "aHVudGVyMg=="}});
    assert!(is_disguised(object.as_object().unwrap(), false));
}

#[test]
fn two_wrong_letters_are_a_misspelt_secret_and_three_are_another_word() {
    for near in ["Secret", "secret", "Secrt", "Secrett", "Sceret", "Secrets", "5ecret"] {
        assert!(is_near(near), "{near}");
    }
    for other in ["Service", "ConfigMap", "SealedSecret", "SecretStore", "Node", ""] {
        assert!(!is_near(other), "{other}");
    }
}

#[track_caller]
fn check_folded(secret: &Value, expected: &Value) {
    let mut folded = secret.as_object().unwrap().clone();
    fold_texts(&mut folded);
    assert_eq!(Value::Object(folded), *expected);
}

#[test]
fn the_texts_of_a_secret_become_data_and_win() {
    check_folded(
        &json!({"data": {"a": "MQ==", "b": "MQ=="}, "stringData": {"b": "2", "c": ""}}),
        &json!({"data": {"a": "MQ==", "b": "Mg==", "c": ""}}),
    );
    check_folded(
        &json!({"stringData": {"a": "1"}, "type": "Opaque"}),
        &json!({"data": {"a": "MQ=="}, "type": "Opaque"}),
    );
    check_folded(&json!({"data": null, "stringData": {"a": "1"}}), &json!({"data": {"a": "MQ=="}}));
    for empty in [json!({"stringData": {}}), json!({"stringData": null}), json!({})] {
        check_folded(&empty, &json!({}));
    }
    for refused in
        [json!({"stringData": {"a": 1}}), json!({"stringData": []}), json!({"data": 1, "stringData": {"a": "1"}})]
    {
        check_folded(&refused, &refused);
    }
}

#[test]
fn claims_on_texts_become_claims_on_data() {
    let mut fields = json!({"f:stringData": {".": {}, "f:a": {}}, "f:data": {"f:b": {}}, "f:type": {}});
    let fields = fields.as_object_mut().unwrap();
    assert!(fold_claims(fields));
    assert_eq!(Value::Object(fields.clone()), json!({"f:data": {"f:b": {}, ".": {}, "f:a": {}}, "f:type": {}}));
    assert!(!fold_claims(fields));
}
