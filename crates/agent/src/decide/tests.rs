use serde_json::{Value, json};

use super::*;
use crate::review::Review;

/// The cases of the Runtime Watcher's own table, and ours. Another test sends the same cases over sockets.
const CASES: &str = include_str!("../../../../tests/it/agent/cases.json");

fn decided(request: &Value) -> Decision {
    let body = serde_json::to_vec(&json!({ "request": request })).unwrap();
    decide(&Review::parse(&body).unwrap().request)
}

fn update(new: Value, old: Value) -> Decision {
    decided(&json!({"operation": "UPDATE", "object": new, "oldObject": old}))
}

#[track_caller]
fn tells(decision: Decision) {
    assert!(decision.event.is_some(), "{decision:?}");
}

#[track_caller]
fn is_silent(decision: Decision) {
    assert_eq!(decision.event, None, "{decision:?}");
}

#[test]
fn rows_17_to_25_every_case_of_the_table() {
    let cases: Vec<Value> = serde_json::from_str(CASES).unwrap();
    assert_eq!(cases.len(), 46);
    for case in cases.iter().filter(|case| case.get("status").is_none()) {
        let mut request = case.clone();
        request["kind"] = json!({"group": "testGroup", "version": "testResourceVersion", "kind": "testResourceKind"});
        let decision = decided(&request);
        assert_eq!(decision.message, case["message"].as_str().unwrap(), "{}", case["name"]);
        let found = decision
            .event
            .map(|Event { watched, gvk }| json!([watched.namespace, watched.name, gvk.group, gvk.version, gvk.kind]));
        assert_eq!(found.unwrap_or_default(), case["event"], "{}", case["name"]);
    }
}

#[test]
fn row_18_numbers_are_compared_exactly() {
    let spec = |text: &str| -> Value {
        let text = format!(r#"{{"kind":"K","metadata":{{"name":"n"}},"spec":{{"a":{text}}}}}"#);
        serde_json::from_str(&text).unwrap()
    };
    for (one, other) in [("1", "1.0"), ("100", "1e2"), ("-0", "0"), ("0.5", "5e-1")] {
        is_silent(update(spec(one), spec(other)));
        is_silent(update(spec(other), spec(one)));
    }
    for (one, other) in [
        ("9007199254740992", "9007199254740993"),
        ("18446744073709551614", "18446744073709551615"),
        ("-9223372036854775808", "-9223372036854775807"),
        ("1", "1.5"),
        ("1", "true"),
        ("1", "\"1\""),
        ("null", "{}"),
    ] {
        tells(update(spec(one), spec(other)));
        tells(update(spec(other), spec(one)));
    }
}

#[test]
fn what_is_too_deep_to_compare_counts_as_changed() {
    let object = |depth: usize, end: &str| {
        let text = format!(
            r#"{{"operation":"UPDATE","object":{{"metadata":{{"name":"n"}},"spec":{{"a":{}1{}}}}},"oldObject":{{"metadata":{{"name":"n"}},"spec":{{"a":{}{end}{}}}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth),
            "[".repeat(depth),
            "]".repeat(depth),
        );
        format!(r#"{{"request":{text}}}"#)
    };
    for (depth, end, told) in [(10_000, "1", false), (10_000, "2", true), (10_000, "1.0", true), (100, "1.0", false)] {
        let body = object(depth, end);
        let decision = decide(&Review::parse(body.as_bytes()).unwrap().request);
        assert_eq!(decision.event.is_some(), told, "{depth} {end}");
    }
}

fn module_object(kind: &str, api_version: &str, metadata: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"a": 1}});
    object["metadata"]["name"] = "n".into();
    object
}

#[test]
fn drift_of_a_modules_object_counts_in_its_metadata_too() {
    let managed = json!({"operator.kyma-project.io/managed-by": "kyma"});
    let deployment = |metadata: Value| module_object("Deployment", "apps/v1", metadata);
    let plain = deployment(json!({"labels": managed}));
    for changed in [
        json!({"labels": {"operator.kyma-project.io/managed-by": "kyma", "a": "b"}}),
        json!({"labels": managed, "annotations": {"a": "b"}}),
        json!({"labels": managed, "finalizers": ["a/b"]}),
        json!({"labels": managed, "ownerReferences": [{"name": "a"}]}),
        json!({"labels": managed, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        // The update removes the label itself.
        json!({}),
    ] {
        tells(update(deployment(changed.clone()), plain.clone()));
        tells(update(plain.clone(), deployment(changed)));
    }
    let versions =
        |version: &str| deployment(json!({"labels": managed, "resourceVersion": version, "managedFields": [version]}));
    is_silent(update(versions("1"), versions("2")));
}

#[test]
fn metadata_of_others_and_of_kymas_does_not_count() {
    let managed = json!({"operator.kyma-project.io/managed-by": "kyma"});
    let kyma = |labels: Value| module_object("Kyma", "operator.kyma-project.io/v1beta2", json!({"labels": labels}));
    let mut more = managed.clone();
    more["a"] = "b".into();
    is_silent(update(kyma(more), kyma(managed)));
    let other = |labels: Value| module_object("Deployment", "apps/v1", json!({"labels": labels}));
    is_silent(update(other(json!({"a": "b"})), other(json!({"operator.kyma-project.io/managed-by": "else"}))));
}

#[test]
fn row_25_an_object_that_cannot_be_read_has_no_event() {
    for object in
        [json!(null), json!({}), json!({"metadata": {"name": ""}}), json!([]), json!("x"), json!({"metadata": []})]
    {
        let decision = decided(&json!({"operation": "CREATE", "object": object}));
        assert_eq!((decision.event, decision.wrong), (None, Some(Wrong::Object)), "{object}");
    }
    // An unreadable old object counts as different.
    tells(update(json!({"metadata": {"name": "n"}, "spec": {}}), json!(null)));
}

#[test]
fn what_waits_is_bounded_by_the_length_of_names() {
    let object = |name: &str| json!({"operation": "CREATE", "object": {"metadata": {"name": name}}});
    tells(decided(&object(&"a".repeat(256))));
    let decision = decided(&object(&"a".repeat(257)));
    assert_eq!((decision.event, decision.wrong), (None, Some(Wrong::Object)));
    let long = decided(&json!({"operation": "X".repeat(100_000)}));
    assert!(long.message.len() < 400);
}

#[test]
fn row_22_a_dry_run_sends_no_event() {
    for operation in ["CREATE", "UPDATE", "DELETE"] {
        let object = json!({"metadata": {"name": "n", "namespace": "m"}});
        let decision = decided(&json!({"operation": operation, "dryRun": true, "object": object, "oldObject": object}));
        assert_eq!(decision.message, "dry run: no event is sent for watched resource m/n");
        is_silent(decision);
    }
}

#[test]
fn a_dry_run_of_the_control_plane_sends_its_probe_back() {
    let review = |dry_run: bool, value: &Value| {
        let object = json!({"metadata": {"name": "n", "namespace": "m", "annotations": {PROBE: value}}});
        decided(&json!({"operation": "UPDATE", "dryRun": dry_run, "object": object, "oldObject": object}))
    };
    let decision = review(true, &json!("0123"));
    assert_eq!(decision.event, Some(Event::of_probe("0123")));
    assert!(decision.is_probe);
    for value in [json!(""), json!("0".repeat(PROBE_LEN_MAX + 1)), json!(1), json!(null)] {
        is_silent(review(true, &value));
    }
    // What is written is a change, whatever it is marked with.
    let decision = review(false, &json!("0123"));
    assert!(!decision.is_probe);
    assert_eq!(decision.event.and_then(|event| event.probe().map(str::to_owned)), None);
}

#[test]
fn rows_10_and_16_the_answer_echoes_what_came() {
    let answer = |review: Value| -> Value {
        let body = serde_json::to_vec(&review).unwrap();
        serde_json::from_slice(&Review::parse(&body).unwrap().answer("m")).unwrap()
    };
    let response =
        json!({"uid": "u", "allowed": true, "status": {"metadata": {}, "status": "Success", "message": "m"}});
    let request = json!({"uid": "u"});
    assert_eq!(
        answer(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "request": request})),
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1", "response": response})
    );
    assert_eq!(answer(json!({"request": request, "extra": [1]})), json!({"response": response}));
}

#[test]
fn row_13_the_answer_is_in_the_order_of_the_go_agent() {
    let review = br#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"b8c0335f"}}"#;
    let expected = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"b8c0335f","allowed":true,"status":{"metadata":{},"status":"Success","message":"kcp request succeeded"}}}"#;
    let answer = Review::parse(review).unwrap().answer("kcp request succeeded");
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
}

#[test]
fn row_11_what_is_no_review_is_refused() {
    for body in [
        "",
        "{",
        "null",
        "[]",
        "{}",
        r#"{"request":null}"#,
        r#"{"request":[]}"#,
        r#"{"request":{"uid":1}}"#,
        "{\"request\":{}}x",
    ] {
        assert!(Review::parse(body.as_bytes()).is_err(), "{body}");
    }
    let error = Review::parse(b"{\"request\":{\"uid\":{\"token\":\"s3cret\"}}}").unwrap_err();
    assert!(!error.to_string().contains("s3cret"), "{error}");
}
