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
