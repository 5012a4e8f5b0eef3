use serde_json::json;

use super::*;
use crate::changes::overlay;

#[track_caller]
fn check(api_version: &str, kind: &str, old: Value, new: Value, expected: Option<&str>) {
    let gvk = Gvk::from_api_version(api_version, kind);
    assert_eq!(between(&gvk, &old, &new, &Context::default()).map(|found| found.field), expected.map(str::to_owned));
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
    check("v1", "Service", json!({"spec": {}}), ip("None"), Some("spec.clusterIP"));
    check("v1", "Service", json!({"spec": {}}), ip("10.0.0.1"), Some("spec.clusterIP"));
    check("v1", "Service", json!({"spec": {"clusterIP": ""}}), ip("None"), Some("spec.clusterIP"));
    check("v1", "Service", ip("None"), ip(""), None);
    check("v1", "Service", json!({"spec": {"type": "ExternalName"}}), ip("None"), None);
    check("v1", "Service", json!({"spec": {}}), json!({"spec": {"clusterIPs": ["None"]}}), Some("spec.clusterIP"));
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
fn a_suspended_job_may_be_scheduled_elsewhere_and_a_service_keeps_its_class_and_family() {
    let job = |suspend: bool, zone: &str, image: &str| {
        let spec = json!({"nodeSelector": {"zone": zone}, "containers": [{"name": "a", "image": image}]});
        json!({"spec": {"suspend": suspend, "template": {"metadata": {"labels": {"zone": zone}}, "spec": spec}}})
    };
    check("batch/v1", "Job", job(true, "a", "1"), job(true, "b", "1"), None);
    check("batch/v1", "Job", job(true, "a", "1"), job(true, "a", "2"), Some("spec.template"));
    check("batch/v1", "Job", job(false, "a", "1"), job(false, "b", "1"), Some("spec.template"));
    let service = |kind: &str, class: Option<&str>| json!({"spec": {"type": kind, "loadBalancerClass": class}});
    let balancer = |class: Option<&str>| service("LoadBalancer", class);
    check("v1", "Service", balancer(Some("a")), balancer(Some("b")), Some("spec.loadBalancerClass"));
    check("v1", "Service", balancer(None), balancer(Some("b")), Some("spec.loadBalancerClass"));
    check("v1", "Service", balancer(Some("a")), service("ClusterIP", None), None);
    let families = |families: &[&str]| json!({"spec": {"ipFamilies": families}});
    check("v1", "Service", families(&["IPv4"]), families(&["IPv6"]), Some("spec.ipFamilies"));
    check("v1", "Service", families(&["IPv4"]), families(&["IPv4", "IPv6"]), None);
    let ranges = |ranges: &[&str]| json!({"spec": {"cidrs": ranges}});
    let kind = "ServiceCIDR";
    check("networking.k8s.io/v1", kind, ranges(&["10.0.0.0/8"]), ranges(&["11.0.0.0/8"]), Some("spec.cidrs"));
    check("networking.k8s.io/v1", kind, ranges(&["10.0.0.0/8"]), ranges(&["10.0.0.0/8", "fd00::/64"]), None);
}

#[test]
fn a_field_that_one_side_omits_has_its_default_or_no_value() {
    let spec = |spec: Value| json!({ "spec": spec });
    let none = || spec(json!({}));
    let (apps, batch, storage) = ("apps/v1", "batch/v1", "storage.k8s.io/v1");
    for (api_version, kind, old, new, field) in [
        (apps, "StatefulSet", none(), spec(json!({"podManagementPolicy": "Parallel"})), "spec.podManagementPolicy"),
        (apps, "StatefulSet", none(), spec(json!({"serviceName": "a"})), "spec.serviceName"),
        (apps, "StatefulSet", none(), spec(json!({"volumeClaimTemplates": [{}]})), "spec.volumeClaimTemplates"),
        (batch, "Job", none(), spec(json!({"completionMode": "Indexed"})), "spec.completionMode"),
        (batch, "Job", none(), spec(json!({"podFailurePolicy": {"rules": []}})), "spec.podFailurePolicy"),
        (batch, "Job", none(), spec(json!({"managedBy": "example.org/a"})), "spec.managedBy"),
        ("v1", "PersistentVolumeClaim", none(), spec(json!({"volumeMode": "Block"})), "spec.volumeMode"),
        ("v1", "PersistentVolumeClaim", none(), spec(json!({"selector": {}})), "spec.selector"),
        ("v1", "PersistentVolume", none(), spec(json!({"volumeMode": "Block"})), "spec.volumeMode"),
        ("v1", "ResourceQuota", none(), spec(json!({"scopes": ["BestEffort"]})), "spec.scopes"),
        ("v1", "Secret", json!({}), json!({"type": "kubernetes.io/tls"}), "type"),
        (storage, "StorageClass", json!({}), json!({"parameters": {"a": "b"}}), "parameters"),
        (storage, "StorageClass", json!({}), json!({"reclaimPolicy": "Retain"}), "reclaimPolicy"),
        (storage, "CSIDriver", none(), spec(json!({"attachRequired": false})), "spec.attachRequired"),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({}), json!({"preemptionPolicy": "Never"}), "preemptionPolicy"),
    ] {
        check(api_version, kind, old.clone(), new.clone(), Some(field));
        check(api_version, kind, new, old, Some(field));
    }
    for (api_version, kind, new) in [
        // The default.
        (apps, "StatefulSet", spec(json!({"podManagementPolicy": "OrderedReady"}))),
        (batch, "Job", spec(json!({"completionMode": "NonIndexed"}))),
        (storage, "CSIDriver", spec(json!({"attachRequired": true}))),
        // What an API server drops.
        (
            apps,
            "StatefulSet",
            spec(json!({"podManagementPolicy": null, "serviceName": "", "volumeClaimTemplates": []})),
        ),
        // The API server chooses them, or they may be set later.
        ("v1", "PersistentVolumeClaim", spec(json!({"storageClassName": "a", "volumeName": "a"}))),
        ("v1", "PersistentVolume", spec(json!({"nodeAffinity": {"required": {}}}))),
        (batch, "Job", spec(json!({"selector": {"matchLabels": {}}}))),
    ] {
        check(api_version, kind, none(), new.clone(), None);
        check(api_version, kind, new, none(), None);
    }
}

#[test]
fn a_live_field_that_is_omitted_gets_its_default_only_if_tidegate_alone_has_applied_it() {
    let claim = |manager: &str, operation: &str| json!({"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:podManagementPolicy": {}}}});
    let live = |policy: &str, claims: &[Value]| json!({"metadata": {"managedFields": claims}, "spec": {"podManagementPolicy": policy}});
    let ours = || claim("tidegate", "Apply");
    let field = Some("spec.podManagementPolicy");
    for (policy, claims, expected) in [
        ("Parallel", vec![ours()], field),
        ("OrderedReady", vec![ours()], None),
        ("Parallel", vec![ours(), claim("kubectl", "Update")], None),
        ("Parallel", vec![claim("kubectl", "Apply")], None),
        ("Parallel", vec![claim("tidegate", "Update")], None),
        ("Parallel", vec![], None),
    ] {
        check_live("apps/v1", "StatefulSet", live(policy, &claims), json!({"spec": {"replicas": 1}}), expected);
    }
    // What an API server sets by default is in the live object.
    check_live(
        "batch/v1",
        "Job",
        json!({"spec": {}}),
        json!({"spec": {"managedBy": "example.org/a"}}),
        Some("spec.managedBy"),
    );
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
    assert_eq!(over_live(&gvk, &live, &desired("one"), &Context::default()), None);
    assert_eq!(
        over_live(&gvk, &live, &desired("two"), &Context::default()).map(|found| found.field).as_deref(),
        Some("spec.template")
    );
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
        let found = between(&gvk, &with(annotation, 1), &with(annotation, 2), &Context::default()).expect("a refusal");
        assert_eq!((found.is_recreated(), found.sentence().as_str()), (is_recreated, sentence), "{kind}");
    }
    // No field of a Namespace is immutable. If one is in a later version, the Namespace stays all the same.
    let of_namespace = remedy(&Gvk::from_api_version("v1", "Namespace"), &with("enabled", 1));
    assert_eq!(of_namespace, Remedy::Rename);
}

#[track_caller]
fn check_live(api_version: &str, kind: &str, live: Value, desired: Value, expected: Option<&str>) {
    let gvk = Gvk::from_api_version(api_version, kind);
    let found = over_live(&gvk, &live, &desired, &Context::default());
    assert_eq!(found.map(|found| found.field), expected.map(str::to_owned));
}

fn pod(more: Value) -> Value {
    let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "a:1"}]}});
    overlay(&mut pod["spec"], &more);
    pod
}

/// The same Pod with what an API server adds.
fn live_pod(more: Value) -> Value {
    let mut pod = pod(json!({
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30, "nodeName": "node-1", "serviceAccountName": "default",
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
    }));
    pod["spec"]["containers"][0]["imagePullPolicy"] = json!("IfNotPresent");
    overlay(&mut pod["spec"], &more);
    pod
}

#[test]
fn of_a_pod_only_images_deadlines_and_tolerations_change() {
    let toleration = |key: &str| json!({"key": key, "operator": "Exists"});
    let deadline = |seconds: u32| json!({"activeDeadlineSeconds": seconds});
    let image = json!({"containers": [{"name": "a", "image": "a:2"}]});
    let cases = [
        (json!({}), image, None),
        (json!({}), json!({"restartPolicy": "Always"}), None),
        (json!({}), json!({"nodeSelector": {"a": "b"}}), Some("spec.nodeSelector")),
        (json!({"nodeSelector": {"a": "b"}}), json!({"nodeSelector": {"a": "c"}}), Some("spec.nodeSelector")),
        (json!({}), json!({"containers": [{"name": "a", "image": "a:1", "command": ["b"]}]}), Some("spec.containers")),
        (deadline(10), deadline(5), None),
        (deadline(5), deadline(10), Some("spec.activeDeadlineSeconds")),
        (json!({}), deadline(10), None),
        (json!({"tolerations": [toleration("a")]}), json!({"tolerations": [toleration("a"), toleration("b")]}), None),
        (
            json!({"tolerations": [toleration("a")]}),
            json!({"tolerations": [toleration("b")]}),
            Some("spec.tolerations"),
        ),
        (json!({}), json!({"terminationGracePeriodSeconds": 5}), Some("spec.terminationGracePeriodSeconds")),
    ];
    for (old, new, expected) in cases {
        check("v1", "Pod", pod(old.clone()), pod(new.clone()), expected);
        check_live("v1", "Pod", live_pod(old), pod(new), expected);
    }
    check("v1", "Pod", pod(json!({"nodeSelector": {"a": "b"}})), pod(json!({})), Some("spec.nodeSelector"));
}

#[test]
fn a_volume_keeps_its_source_and_a_claim_only_grows() {
    let volume = |path: &str, size: &str| json!({"spec": {"capacity": {"storage": size}, "hostPath": {"path": path}}});
    check("v1", "PersistentVolume", volume("/a", "1Gi"), volume("/b", "1Gi"), Some("spec.hostPath"));
    check("v1", "PersistentVolume", volume("/a", "1Gi"), volume("/a", "2Gi"), None);
    let nfs = json!({"spec": {"capacity": {"storage": "1Gi"}, "nfs": {"server": "a", "path": "/a"}}});
    check("v1", "PersistentVolume", volume("/a", "1Gi"), nfs, Some("spec.nfs"));
    let mut live = volume("/a", "1Gi");
    live["spec"]["hostPath"]["type"] = json!("");
    check_live("v1", "PersistentVolume", live.clone(), volume("/a", "1Gi"), None);
    check_live("v1", "PersistentVolume", live, volume("/b", "1Gi"), Some("spec.hostPath"));

    let claim = |size: &str| json!({"spec": {"storageClassName": "a", "resources": {"requests": {"storage": size}}}});
    let size = Some("spec.resources.requests.storage");
    check("v1", "PersistentVolumeClaim", claim("2Gi"), claim("1Gi"), size);
    check("v1", "PersistentVolumeClaim", claim("1Gi"), claim("1024Mi"), None);
    check("v1", "PersistentVolumeClaim", claim("1Gi"), claim("2Gi"), None);
    for (phase, expected) in [("Bound", None), ("Pending", size)] {
        let mut live = claim("1Gi");
        live["status"] = json!({"phase": phase});
        check_live("v1", "PersistentVolumeClaim", live, claim("2Gi"), expected);
    }
}

#[test]
fn only_an_indexed_job_changes_its_completions_together_with_its_parallelism() {
    let job = |spec: Value| json!({"spec": spec});
    let refused = Some("spec.completions");
    let indexed = |number: u32| json!({"completionMode": "Indexed", "completions": number, "parallelism": number});
    for (old, new, expected) in [
        (json!({"completions": 1}), json!({"completions": 2}), refused),
        (json!({}), json!({"completions": 2}), refused),
        (json!({}), json!({"completions": 1}), None),
        (json!({"parallelism": 1}), json!({"parallelism": 2}), None),
        (indexed(2), indexed(3), None),
        (indexed(2), json!({"completionMode": "Indexed", "completions": 3, "parallelism": 2}), refused),
    ] {
        check("batch/v1", "Job", job(old), job(new), expected);
    }
    let live = job(json!({"completions": 1, "parallelism": 1, "completionMode": "NonIndexed"}));
    check_live("batch/v1", "Job", live.clone(), job(json!({"completions": 3})), refused);
    check_live("batch/v1", "Job", live, job(json!({})), None);
}

fn definition(versions: &[(&str, bool)]) -> Value {
    let versions: Vec<Value> =
        versions.iter().map(|(name, storage)| json!({"name": name, "served": true, "storage": storage})).collect();
    json!({"spec": {"versions": versions}})
}

#[test]
fn a_version_with_stored_objects_does_not_leave_its_definition() {
    let (api, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let both = || definition(&[("v1", true), ("v1beta1", false)]);
    check(api, kind, both(), definition(&[("v1beta1", true)]), Some("spec.versions"));
    check(api, kind, both(), definition(&[("v1", true)]), None);
    check(api, kind, both(), definition(&[("v1", false), ("v2", true)]), None);
    let mut live = both();
    live["status"] = json!({"storedVersions": ["v1beta1", "v1"]});
    check_live(api, kind, live, definition(&[("v1", true)]), Some("spec.versions"));
    let gvk = Gvk::from_api_version(api, kind);
    let found = between(&gvk, &both(), &definition(&[("v1beta1", true)]), &Context::default()).expect("a refusal");
    assert_eq!(
        found.sentence(),
        "version v1 of a CustomResourceDefinition cannot be removed, because objects are stored in it; keep it with \
         `served: false`, or store all objects in another version and remove it from status.storedVersions first"
    );
}

#[test]
fn a_custom_resource_obeys_the_rules_that_compare_with_its_old_value() {
    let gvk = Gvk::from_api_version("example.org/v1", "Widget");
    let schema = json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {"a": {"type": "string", "default": "one"}, "b": {"type": "integer"}},
        "x-kubernetes-validations": [
            {"rule": "self.a == oldSelf.a", "message": "a is immutable", "fieldPath": ".a"},
            {"rule": "self.b < 10"},
        ],
    }}});
    let crd = json!({"spec": {
        "group": "example.org", "names": {"kind": "Widget"},
        "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
    }});
    let widget = |spec: Value| json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "x"}, "spec": spec});
    let context = Context::of_definition(&gvk, &crd);
    let find =
        |old: Value, new: Value| between(&gvk, &widget(old), &widget(new), &context).map(|found| found.sentence());
    let refused = "spec.a of a Widget cannot be changed in this way (a is immutable); undo the change, or annotate the \
                   object with tidegate.dev/recreate: enabled to have it deleted and created again";
    assert_eq!(find(json!({"a": "x", "b": 1}), json!({"a": "y", "b": 1})).as_deref(), Some(refused));
    assert_eq!(find(json!({"b": 1}), json!({"a": "y", "b": 1})).as_deref(), Some(refused), "the default counts");
    assert_eq!(find(json!({"a": "x", "b": 1}), json!({"a": "x", "b": 2})), None);
    assert_eq!(find(json!({"a": "x", "b": 1}), json!({"a": "x", "b": 20})), None, "it is invalid by itself");
    let live = over_live(&gvk, &widget(json!({"a": "x", "b": 1})), &widget(json!({"b": 2})), &context);
    assert_eq!(live, None, "what an apply does not name stays");
    assert_eq!(between(&gvk, &widget(json!({"a": "x"})), &widget(json!({"a": "y"})), &Context::default()), None);
}

#[test]
fn an_annotation_that_is_new_may_recreate_what_an_earlier_change_could_not_change() {
    let object = |value: Option<&str>| json!({"metadata": {"annotations": value.map(|value| json!({"tidegate.dev/recreate": value}))}});
    let (without, with) = (object(None), object(Some("enabled")));
    let of = |api_version: &str, kind: &str, old: &Value, new: &Value, is_applied: bool| {
        let context = if is_applied { Context::default().applied() } else { Context::default() };
        overdue(&Gvk::from_api_version(api_version, kind), old, new, &context)
    };
    for (api_version, kind, expected) in [
        ("apps/v1", "Deployment", Some(Overdue::Recreate)),
        ("v1", "Secret", Some(Overdue::Recreate)),
        ("v1", "ConfigMap", Some(Overdue::Recreate)),
        ("v1", "Pod", Some(Overdue::Recreate)),
        ("example.org/v1", "Thing", Some(Overdue::Recreate)),
        ("v1", "PersistentVolumeClaim", Some(Overdue::Refuse)),
        ("v1", "PersistentVolume", Some(Overdue::Refuse)),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", Some(Overdue::Refuse)),
        ("v1", "Namespace", None),
        ("v1", "ServiceAccount", None),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", None),
    ] {
        assert_eq!(of(api_version, kind, &without, &with, false), expected, "{kind}");
        assert_eq!(of(api_version, kind, &object(Some("disabled")), &with, false), expected, "{kind}");
        assert_eq!(of(api_version, kind, &without, &with, true), None, "{kind}: what was before is applied");
        assert_eq!(of(api_version, kind, &with, &with, false), None, "{kind}: it is not new");
        assert_eq!(of(api_version, kind, &with, &without, false), None, "{kind}: it goes");
    }
}
