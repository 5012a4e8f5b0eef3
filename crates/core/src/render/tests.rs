use std::sync::Arc;

use super::*;
use crate::{
    api::shared::Manager,
    plan::{self, ComponentRecord, InstallSource, reporting::Gateway},
};

fn installation() -> Installation {
    Installation {
        kyma: Key::new("kcp-system", "one"),
        manifest_name: "one-cache-1".to_owned(),
        module: "cache".to_owned(),
        component: "kyma-project.io/module/cache".to_owned(),
        version: "1.2.0".to_owned(),
        offer: Offer::Channel("regular".to_owned()),
        template: Key::new("kcp-system", "cache-1.2.0"),
        template_generation: Some(3),
        policy: CustomResourcePolicy::CreateAndDelete,
        default_resource: None,
        default_resource_cluster_scoped: false,
        manager: None,
        controller: None,
        source: InstallSource::Git {
            source: Key::new("kcp-system", "landscape"),
            path: "modules/cache".to_owned(),
            tree: "4b825dc642cb6eb9a060e54bf8d69288fbee4904".parse().unwrap(),
        },
        localized_images: Vec::new(),
        record: ComponentRecord::default(),
    }
}

#[test]
fn a_manifest_says_what_is_installed_and_for_whom() {
    let manifest = manifest(&Templates::embedded(), &installation(), "uid-1").unwrap();
    let expected = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "Manifest",
        "metadata": {
            "name": "one-cache-1",
            "namespace": "kcp-system",
            "labels": {
                "operator.kyma-project.io/channel": "regular",
                "operator.kyma-project.io/kyma-name": "one",
                "operator.kyma-project.io/managed-by": "lifecycle-manager",
                "operator.kyma-project.io/module-name": "cache",
            },
            "annotations": {
                "operator.kyma-project.io/fqdn": "kyma-project.io/module/cache",
                "operator.kyma-project.io/ocm-component-name": "kyma-project.io/module/cache",
            },
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2",
                "kind": "Kyma",
                "name": "one",
                "uid": "uid-1",
                "controller": true,
                "blockOwnerDeletion": true,
            }],
            "finalizers": ["declarative.kyma-project.io/finalizer", "label-removal-finalizer"],
        },
        "spec": {
            "remote": true,
            "version": "1.2.0",
            "customResourcePolicy": "CreateAndDelete",
            "install": {"name": "raw-manifest", "source": {
                "type": "git",
                "source": "kcp-system/landscape",
                "path": "modules/cache",
                "tree": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            }},
        },
    });
    assert_eq!(manifest.value(), &expected);
}

#[test]
fn a_manifest_holds_its_default_resource_until_that_is_gone() {
    let data = json!({"apiVersion": "example.com/v1", "kind": "Cache", "metadata": {"name": "default"}});
    let finalizers = |policy| {
        let with = Installation { default_resource: Some(data.clone()), policy, ..installation() };
        let manifest = manifest(&Templates::embedded(), &with, "uid-1").unwrap();
        assert_eq!(manifest.value()["spec"]["resource"], data);
        manifest.value()["metadata"]["finalizers"].as_array().unwrap().len()
    };
    assert_eq!(finalizers(CustomResourcePolicy::CreateAndDelete), 3);
    assert_eq!(finalizers(CustomResourcePolicy::Ignore), 2);
}

#[test]
fn a_manifest_carries_manager_and_controller() {
    let manager = Manager {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "cache-manager".to_owned(),
        namespace: Some("kyma-system".to_owned()),
    };
    let with = Installation {
        manager: Some(manager.clone()),
        controller: Some("special".to_owned()),
        localized_images: vec!["a/b:1".to_owned()],
        ..installation()
    };
    let manifest = manifest(&Templates::embedded(), &with, "uid-1").unwrap();
    assert_eq!(manifest.value()["spec"]["manager"], serde_json::to_value(manager).unwrap());
    assert_eq!(manifest.value()["spec"]["localizedImages"], json!(["a/b:1"]));
    assert_eq!(manifest.label(label::CONTROLLER_NAME), Some("special"));
}

fn watcher(value: Value) -> Watcher {
    serde_json::from_value(value).unwrap()
}

fn watchers() -> Vec<Watcher> {
    let gateway = json!({"selector": {"matchLabels": {"operator.kyma-project.io/watcher-gateway": "default"}}});
    vec![
        watcher(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
            "metadata": {"namespace": "kcp-system", "name": "manifests"},
            "spec": {
                "manager": "inspector", "labelsToWatch": {"inspect": "true"},
                "resourceToWatch": {"group": "operator.kyma-project.io", "version": "v1beta2", "resource": "kymas"},
                "field": "status", "gateway": gateway,
                "serviceInfo": {"name": "inspector", "namespace": "kcp-system", "port": 9090},
            },
        })),
        watcher(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
            "metadata": {"namespace": "kcp-system", "name": "kymas"},
            "spec": {
                "manager": "lifecycle-manager", "labelsToWatch": {"operator.kyma-project.io/watched-by": "kyma"},
                "resourceToWatch": {"group": "operator.kyma-project.io", "version": "*", "resource": "kymas"},
                "field": "spec", "gateway": gateway,
                "serviceInfo": {"name": "klm-controller-manager-events", "namespace": "kcp-system", "port": 8082},
            },
        })),
        watcher(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
            "metadata": {
                "namespace": "kcp-system", "name": "plain",
                "labels": {"operator.kyma-project.io/managed-by": "fallback"},
            },
            "spec": {
                "resourceToWatch": {"group": "", "version": "v1", "resource": "configmaps"},
                "field": "spec", "gateway": gateway,
                "serviceInfo": {"name": "other", "namespace": "other-ns", "port": 443},
            },
        })),
        watcher(json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
            "metadata": {"namespace": "kcp-system", "name": "absent"},
            "spec": {
                "resourceToWatch": {"group": "", "version": "v1", "resource": "secrets"},
                "field": "spec", "gateway": gateway,
                "serviceInfo": {"name": "x", "namespace": "y", "port": 0},
            },
        })),
    ]
}

#[test]
fn webhooks_are_sorted_and_a_watcher_that_says_nothing_is_left_out() {
    let all = watchers();
    let (watches, errors) = watches(&all);
    assert_eq!(errors, [plan::reporting::Error::NoManager(Key::new("kcp-system", "absent"))]);
    let object = webhook(&Templates::embedded(), &Reporting::of_watchers(&watches, Some("Y2E="))).unwrap();
    let entry = |name: &str, path: &str, selector: Value, rule: [&str; 3]| {
        json!({
            "name": format!("kcp-system.{name}.operator.kyma-project.io"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": "Y2E=",
                "service": {"name": "skr-webhook", "namespace": "kyma-system", "path": path},
            },
            "objectSelector": selector,
            "rules": [{
                "apiGroups": [rule[0]], "apiVersions": [rule[1]], "resources": [rule[2]],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }],
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": 15,
            "failurePolicy": "Ignore",
        })
    };
    let group = "operator.kyma-project.io";
    let expected = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "skr-webhook", "labels": {"operator.kyma-project.io/managed-by": "kyma"}},
        "webhooks": [
            entry(
                "kymas",
                "/validate/lifecycle-manager",
                json!({"matchLabels": {"operator.kyma-project.io/watched-by": "kyma"}}),
                [group, "*", "kymas"],
            ),
            entry(
                "manifests",
                "/validate/inspector",
                json!({"matchLabels": {"inspect": "true"}}),
                [group, "v1beta2", "kymas/status"],
            ),
            entry("plain", "/validate/fallback", json!({}), ["", "v1", "configmaps"]),
        ],
    });
    assert_eq!(object.value(), &expected);
    let mut reversed = watches;
    reversed.reverse();
    assert_eq!(webhook(&Templates::embedded(), &Reporting::of_watchers(&reversed, Some("Y2E="))).unwrap(), object);
}

#[test]
fn without_watchers_or_certificates_the_configuration_is_still_valid() {
    let none = webhook(&Templates::embedded(), &Reporting::of_watchers(&[], None)).unwrap();
    assert_eq!(none.value()["webhooks"], json!([]));
    let (watches, _) = watches(&watchers());
    let object = webhook(&Templates::embedded(), &Reporting::of_watchers(&watches, None)).unwrap();
    assert_eq!(object.value().pointer("/webhooks/0/clientConfig/caBundle"), None);
}

#[test]
fn a_virtual_service_brings_events_to_the_service() {
    let (watches, _) = watches(&watchers());
    let gateway =
        |name: &str, host: &str| Gateway::new(Key::new("kcp-system", name), &json!({"servers": [{"hosts": [host]}]}));
    let found = vec![gateway("second", "b.example.com"), gateway("first", "a.example.com")];
    let watch = &watches[1];
    let gateways = Gateways::from_matches(&watch.watcher, found).unwrap();
    let object = virtual_service(&Templates::embedded(), watch, watch.port().unwrap(), &gateways, "uid-2").unwrap();
    let expected = json!({
        "apiVersion": "networking.istio.io/v1beta1",
        "kind": "VirtualService",
        "metadata": {
            "name": "manifests",
            "namespace": "kcp-system",
            "ownerReferences": [{
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher",
                "name": "manifests", "uid": "uid-2",
            }],
        },
        "spec": {
            "hosts": ["a.example.com", "b.example.com"],
            "gateways": ["kcp-system/first", "kcp-system/second"],
            "http": [{
                "name": "kcp-system/manifests",
                "match": [{"uri": {"prefix": "/v2/inspector/event"}}],
                "route": [{"destination": {
                    "host": "inspector.kcp-system.svc.cluster.local", "port": {"number": 9090},
                }}],
            }],
        },
    });
    assert_eq!(object.value(), &expected);
}

#[test]
fn a_watcher_needs_gateways_with_hosts_and_a_port() {
    let watcher = Key::new("kcp-system", "w");
    assert_eq!(Gateways::from_matches(&watcher, Vec::new()), Err(plan::reporting::Error::NoGateway(watcher.clone())));
    let bare = Gateway { key: Key::new("kcp-system", "g"), servers: Vec::new() };
    assert_eq!(Gateways::from_matches(&watcher, vec![bare.clone()]), Err(plan::reporting::Error::NoHosts(bare.key)));
    let (mut watches, _) = watches(&watchers());
    for (port, fine) in [(0, false), (1, true), (65_535, true), (65_536, false), (-1, false)] {
        watches[0].service.port = port;
        assert_eq!(watches[0].port().is_ok(), fine, "{port}");
    }
}

#[test]
fn the_kyma_in_a_runtime_shows_what_users_may_know() {
    let kyma: Kyma = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {
            "namespace": "kcp-system", "name": "one",
            "labels": {
                "kyma-project.io/runtime-id": "r", "kyma-project.io/global-account-id": "g",
                "kyma-project.io/instance-id": "i", "tidegate.dev/source": "kcp-system.landscape",
            },
            "annotations": {"skr-domain": "one.example.com"},
        },
        "spec": {"channel": "regular", "modules": [{"name": "cache"}]},
    }))
    .unwrap();
    let object = runtime_kyma(&Templates::embedded(), &kyma, &kyma.spec).unwrap();
    let expected = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2",
        "kind": "Kyma",
        "metadata": {
            "name": "default",
            "namespace": "kyma-system",
            "labels": {
                "kyma-project.io/global-account-id": "g",
                "kyma-project.io/runtime-id": "r",
                "operator.kyma-project.io/managed-by": "kyma",
                "operator.kyma-project.io/watched-by": "kyma",
            },
            "annotations": {"deprecated-operator.kyma-project.io/owned-by": "kcp-system/one"},
        },
        "spec": {
            "channel": "regular",
            "modules": [{"name": "cache", "customResourcePolicy": "CreateAndDelete", "managed": true}],
        },
    });
    assert_eq!(object.value(), &expected);
}

#[test]
fn the_namespace_of_runtimes_bears_both_labels() {
    let namespace = runtime_namespace(&Templates::embedded()).unwrap();
    assert_eq!(namespace.name(), "kyma-system");
    assert_eq!(namespace.label("istio-injection"), Some("enabled"));
    assert_eq!(namespace.label("namespaces.warden.kyma-project.io/validate"), Some("enabled"));
    assert_eq!(namespace.label("operator.kyma-project.io/managed-by"), Some("kyma"));
}

#[test]
fn runtimes_get_three_crds() {
    let names: Vec<String> = runtime_crds().iter().map(|crd| crd.name().to_owned()).collect();
    assert_eq!(
        names,
        [
            "kymas.operator.kyma-project.io",
            "modulereleasemetas.operator.kyma-project.io",
            "moduletemplates.operator.kyma-project.io",
        ]
    );
    assert!(runtime_crds().iter().all(|crd| crd.label(label::MANAGED_BY) == Some("kyma")));
}

#[test]
fn a_catalog_copy_carries_nothing_that_only_concerns_kcp() {
    let template: api::ModuleTemplate = serde_json::from_value(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {
            "namespace": "kcp-system", "name": "cache-1.2.0",
            "labels": {"tidegate.dev/source": "kcp-system.landscape", "team": "storage"},
            "annotations": {
                "tidegate.dev/path": "modules/cache.yaml:1", "tidegate.dev/module-path": "modules/cache",
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "operator.kyma-project.io/is-cluster-scoped": "true",
            },
            "finalizers": ["x"],
        },
        "spec": {"moduleName": "cache", "version": "1.2.0", "descriptor": {}},
    }))
    .unwrap();
    let key = Key::new("kcp-system", "cache-1.2.0");
    let landscape = Landscape { templates: [(key.clone(), Arc::new(template))].into(), ..Landscape::default() };
    let library = Library::new(Templates::embedded());
    let object = catalog_template(&library, &landscape, &key).unwrap().unwrap();
    let expected = json!({
        "name": "cache-1.2.0",
        "namespace": "kyma-system",
        "labels": {"operator.kyma-project.io/managed-by": "kyma", "team": "storage"},
        "annotations": {"operator.kyma-project.io/is-cluster-scoped": "true"},
    });
    assert_eq!(object.value()["metadata"], expected);
    // Lifecycle Manager writes these three even if the ModuleTemplate has none of them.
    let expected = json!({
        "moduleName": "cache", "version": "1.2.0", "descriptor": {}, "channel": "", "mandatory": false,
        "requiresDowntime": false,
    });
    assert_eq!(object.value()["spec"], expected);
}

#[test]
fn placeholders_are_found_wherever_they_stand() {
    let value =
        json!({"spec": {"hosts": [live::placeholder(live::GATEWAY_HOSTS)], "x": {"y": "a ((live: b)) ((live: c))"}}});
    let found = live::placeholders(&value);
    let pair = |path: &str, name: &str| (path.to_owned(), name.to_owned());
    assert_eq!(found, [pair("spec.hosts[0]", "gateway hosts"), pair("spec.x.y", "b"), pair("spec.x.y", "c"),]);
}
