use serde_json::json;

use super::*;

#[track_caller]
fn check(api_version: &str, kind: &str, old: Value, new: Value, expected: Option<&str>) {
    let gvk = Gvk::from_api_version(api_version, kind);
    assert_eq!(between(&gvk, &old, &new).map(|found| found.field), expected.map(str::to_owned));
}

#[test]
fn what_cannot_be_changed_in_place() {
    let selector = |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}, "replicas": 1}});
    check("apps/v1", "Deployment", selector("a"), selector("b"), Some("spec.selector"));
    check("apps/v1", "StatefulSet", selector("a"), selector("b"), Some("spec.selector"));
    check("apps/v1", "DaemonSet", selector("a"), selector("b"), Some("spec.selector"));
    check("v1", "Service", selector("a"), selector("b"), None);
    let ip = |ip: &str| json!({"spec": {"clusterIP": ip}});
    check("v1", "Service", ip("10.0.0.1"), ip("10.0.0.2"), Some("spec.clusterIP"));
    check("v1", "Service", ip("10.0.0.1"), json!({"spec": {}}), None);
    check("v1", "Service", ip("10.0.0.1"), json!({"spec": {"clusterIP": "", "type": "ExternalName"}}), None);
    let template = |template: u32| json!({"spec": {"template": template}});
    check("batch/v1", "Job", template(1), template(2), Some("spec.template"));
    let role = |name: &str| json!({"roleRef": {"name": name}});
    check("rbac.authorization.k8s.io/v1", "RoleBinding", role("a"), role("b"), Some("roleRef"));
    check("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", role("a"), role("a"), None);
    let crd = |scope: &str| json!({"spec": {"scope": scope, "names": {"kind": "Thing"}}});
    let crds = "apiextensions.k8s.io/v1";
    check(crds, "CustomResourceDefinition", crd("Namespaced"), crd("Cluster"), Some("spec.scope"));
    let provisioner = |name: &str| json!({"provisioner": name});
    check("storage.k8s.io/v1", "StorageClass", provisioner("a"), provisioner("b"), Some("provisioner"));
    let claim = |class: &str| json!({"spec": {"storageClassName": class, "resources": class}});
    check("v1", "PersistentVolumeClaim", claim("a"), claim("b"), Some("spec.storageClassName"));
    check("v1", "Secret", json!({"type": "Opaque"}), json!({"type": "kubernetes.io/tls"}), Some("type"));
}

#[test]
fn a_frozen_object_cannot_be_changed() {
    let config = |immutable: bool, value: &str| json!({"immutable": immutable, "data": {"a": value}});
    check("v1", "ConfigMap", config(false, "1"), config(false, "2"), None);
    check("v1", "ConfigMap", config(false, "1"), config(true, "2"), None);
    check("v1", "ConfigMap", config(true, "1"), config(true, "2"), Some("data"));
    check("v1", "Secret", config(true, "1"), config(false, "1"), Some("immutable"));
    check("v1", "ConfigMap", config(true, "1"), json!({"data": {"a": "1"}}), Some("immutable"));
    check("v1", "ConfigMap", config(true, "1"), config(true, "1"), None);
}

#[test]
fn other_kinds_have_no_such_fields() {
    check("example.com/v1", "Deployment", json!({"spec": {"selector": 1}}), json!({"spec": {"selector": 2}}), None);
}

#[test]
fn defaults_of_a_live_object_are_no_difference() {
    let gvk = Gvk::from_api_version("batch/v1", "Job");
    let desired =
        |image: &str| json!({"spec": {"template": {"spec": {"containers": [{"name": "a", "image": image}]}}}});
    let mut live = desired("one");
    live["spec"]["template"]["spec"]["dnsPolicy"] = json!("ClusterFirst");
    live["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = json!("Always");
    assert_eq!(over_live(&gvk, &live, &desired("one")), None);
    assert_eq!(over_live(&gvk, &live, &desired("two")).map(|found| found.field).as_deref(), Some("spec.template"));
}

#[test]
fn an_annotation_allows_a_recreation_where_no_data_are_lost() {
    let with = |annotation: &str, selector: u32| {
        json!({
            "metadata": {"annotations": {"tidegate.dev/recreate": annotation}},
            "spec": {"selector": selector, "scope": selector, "volumeName": selector},
        })
    };
    let cases = [
        ("apps/v1", "Deployment", "enabled", true, "spec.selector of a Deployment cannot be changed"),
        (
            "apps/v1",
            "Deployment",
            "true",
            false,
            "spec.selector of a Deployment cannot be changed; undo the change, or annotate the object with \
             tidegate.dev/recreate: enabled to have it deleted and created again",
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            "enabled",
            false,
            "spec.selector of a PersistentVolumeClaim cannot be changed, and Tidegate never deletes one to create it \
             again; undo the change, or use a new name",
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "enabled",
            false,
            "spec.scope of a CustomResourceDefinition cannot be changed, and Tidegate never deletes one to create it \
             again; undo the change, or use a new name",
        ),
    ];
    for (api_version, kind, annotation, is_recreated, sentence) in cases {
        let gvk = Gvk::from_api_version(api_version, kind);
        let found = between(&gvk, &with(annotation, 1), &with(annotation, 2)).expect("a refusal");
        assert_eq!((found.is_recreated(), found.sentence().as_str()), (is_recreated, sentence), "{kind}");
    }
}
