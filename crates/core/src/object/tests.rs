use serde_json::json;

use super::*;

#[test]
fn the_digest_ignores_the_order_of_keys_only() {
    let digest = |value: Value| Digest::from_value(&value);
    assert_eq!(digest(json!({"a": 1, "b": [1, 2]})), digest(json!({"b": [1, 2], "a": 1})));
    for (left, right) in [
        (json!([1, 2]), json!([2, 1])),
        (json!("1"), json!(1)),
        (json!({"a": {}}), json!({"a": null})),
        (json!(["ab", "c"]), json!(["a", "bc"])),
        (json!([[1], 2]), json!([[1, 2]])),
    ] {
        assert_ne!(digest(left.clone()), digest(right.clone()), "{left} {right}");
    }
}

#[test]
fn objects_are_applied_crds_first_and_custom_resources_last() {
    let order = [
        ("apiextensions.k8s.io", "CustomResourceDefinition", Stage::Crd),
        ("", "Namespace", Stage::Namespace),
        ("", "ServiceAccount", Stage::Rbac),
        ("rbac.authorization.k8s.io", "ClusterRole", Stage::Rbac),
        ("", "ConfigMap", Stage::Configuration),
        ("networking.k8s.io", "NetworkPolicy", Stage::Configuration),
        ("apps", "Deployment", Stage::Workload),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", Stage::Webhook),
        ("operator.kyma-project.io", "Keda", Stage::CustomResource),
        ("gateway.networking.k8s.io", "Gateway", Stage::CustomResource),
    ];
    for (group, kind, stage) in order {
        assert_eq!(Stage::for_kind(group, kind), stage, "{group} {kind}");
    }
    assert!(Stage::Crd < Stage::Namespace && Stage::Webhook < Stage::CustomResource);
}

#[test]
fn an_object_needs_version_kind_and_name() {
    let error = |value: Value| Object::new(value).unwrap_err();
    assert_eq!(error(json!([])), ParseObjectError::NotAMapping);
    assert_eq!(error(json!({"kind": "A"})), ParseObjectError::Missing("apiVersion"));
    assert_eq!(error(json!({"apiVersion": "v1", "kind": ""})), ParseObjectError::Missing("kind"));
    assert_eq!(
        error(json!({"apiVersion": "v1", "kind": "A", "metadata": {}})),
        ParseObjectError::Missing("metadata.name")
    );
}

#[test]
fn identity_does_not_count_the_version() {
    let object = |api_version: &str| {
        Object::new(json!({"apiVersion": api_version, "kind": "Thing", "metadata": {"name": "a", "namespace": "n"}}))
            .unwrap()
    };
    assert_eq!(object("x.io/v1").id(), object("x.io/v2").id());
    assert_eq!(object("x.io/v1").id().to_string(), "Thing.x.io n/a");
}
