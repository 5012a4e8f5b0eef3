// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{kinds, protobuf, prune, prune_metadata, quantity, schema};
use tidegate_core::object::Gvk;

#[test]
fn every_recorded_kind_has_a_schema() {
    assert!(30 < kinds().count());
    for kind in kinds() {
        assert!(schema(kind).is_some(), "{kind}");
    }
    assert!(schema(&Gvk::new("", "v1", "Binding")).is_none());
}

#[track_caller]
fn check(kind: &str, mut object: Value, expected: Result<&[&str], &str>) {
    let group = if kind == "Deployment" { "apps" } else { "" };
    let found = prune(&Gvk::new(group, "v1", kind), &mut object);
    let expected = expected.map(|paths| paths.iter().map(|path| (*path).to_owned()).collect());
    assert_eq!(found, expected.map_err(str::to_owned));
}

#[test]
fn unknown_fields_are_named_and_wrong_types_are_told_as_go_does() {
    check("ConfigMap", json!({"data": {"a": "b"}, "x": 1, "metadata": {"y": {}}}), Ok(&["metadata.y", "x"]));
    check(
        "ConfigMap",
        json!({"data": {"a": 1}}),
        Err("json: cannot unmarshal number into Go struct \
             field ConfigMap.data of type string"),
    );
    check(
        "Deployment",
        json!({"spec": {"replicas": "1"}}),
        Err("json: cannot unmarshal string into Go \
             struct field DeploymentSpec.spec.replicas of type int32"),
    );
    check(
        "Deployment",
        json!({"spec": {"template": {"spec": {"containers": [{"name": "a"}, {"image": "b", "x": 1}]}}}}),
        Ok(&["spec.template.spec.containers[1].x"]),
    );
}

#[test]
fn metadata_of_any_kind_is_decoded() {
    let mut object = json!({"metadata": {"name": "a", "labels": null, "x": 1}, "x": 1});
    assert_eq!(prune_metadata(&mut object), Ok(vec!["metadata.x".to_owned()]));
    assert_eq!(object, json!({"metadata": {"name": "a"}, "x": 1}));
    let mut object = json!({"metadata": {"labels": ["a"]}});
    assert_eq!(
        prune_metadata(&mut object),
        Err("json: cannot unmarshal array into Go struct field \
             ObjectMeta.labels of type map[string]string"
            .to_owned())
    );
}

#[test]
fn quantities_have_one_form() {
    for (text, expected) in [
        ("1000m", "1"),
        ("0.1", "100m"),
        ("1.5", "1500m"),
        ("1000", "1k"),
        ("0.5Gi", "512Mi"),
        ("1024Mi", "1Gi"),
        ("1025Mi", "1025Mi"),
        ("0", "0"),
        ("-2000m", "-2"),
        ("1e3", "1e3"),
        ("1500e0", "1500"),
        ("64Mi", "64Mi"),
        ("100M", "100M"),
        ("0.0000000001", "1n"),
    ] {
        assert_eq!(quantity::canonical(text).as_deref(), Some(expected), "{text}");
    }
    for text in ["", "a", "1x", "1.2.3", "--1", "1e99", "99999999999999999999999999999999999999999"] {
        assert_eq!(quantity::canonical(text), None, "{text}");
    }
}

/// A message from field numbers and bytes.
fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let field = |(number, bytes): &(u8, &[u8])| {
        let length = u8::try_from(bytes.len()).unwrap();
        [&[number << 3 | 2, length], *bytes].concat()
    };
    fields.iter().flat_map(field).collect()
}

fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = message(&[(1, api_version.as_bytes()), (2, kind.as_bytes())]);
    [protobuf::MAGIC, &message(&[(1, &meta), (2, raw)])].concat()
}

#[test]
fn protobuf_says_what_json_says() {
    let metadata = message(&[(1, b"one"), (11, &message(&[(1, b"a"), (2, b"b")]))]);
    let raw = message(&[(1, &metadata), (2, &message(&[(1, b"x"), (2, b"1")]))]);
    let expected = json!({
        "kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "one", "labels": {"a": "b"}}, "data": {"x": "1"},
    });
    assert_eq!(protobuf::decode(&body("v1", "ConfigMap", &raw)), Ok(Some(expected)));
    let options = [&[8, 0], &*message(&[(4, b"Foreground"), (2, &message(&[(1, b"id")]))])].concat();
    let expected = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground",
        "preconditions": {"uid": "id"},
    });
    assert_eq!(protobuf::decode(&body("v1", "DeleteOptions", &options)), Ok(Some(expected)));
    assert_eq!(protobuf::decode(&body("v1", "Unheard", b"")), Ok(None));
    // Its schema is JSON within JSON, which no Go client sends in this form.
    assert_eq!(protobuf::decode(&body("apiextensions.k8s.io/v1", "CustomResourceDefinition", b"")), Ok(None));
    assert!(protobuf::decode(b"{}").is_err());
}

proptest! {
    #[test]
    fn no_bytes_are_too_strange_for_protobuf(raw in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = protobuf::decode(&[protobuf::MAGIC, &raw].concat());
        for kind in ["ConfigMap", "Pod", "DeleteOptions"] {
            let _ = protobuf::decode(&body("v1", kind, &raw));
        }
    }
}
