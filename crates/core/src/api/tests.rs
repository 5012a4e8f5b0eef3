#![expect(clippy::needless_pass_by_value, reason = "tables read better with their values written in place")]

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{GitSource, Kyma, Manifest, ModuleReleaseMeta, ModuleTemplate, Watcher, crd, crds};

/// A round trip loses no field and adds none.
#[track_caller]
fn check<T: Serialize + DeserializeOwned>(value: Value) {
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), value);
}

fn condition() -> Value {
    json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 2,
        "lastTransitionTime": "2026-01-31T12:00:00Z"})
}

#[test]
fn kymas_survive_the_types() {
    let tracked =
        json!({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "c", "namespace": "d", "generation": 3}});
    check::<Kyma>(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "a", "namespace": "kcp-system", "labels": {"b": "c"}, "finalizers": ["operator.kyma-project.io/Kyma"]},
        "spec": {"channel": "regular", "skipMaintenanceWindows": true, "modules": [
            {"name": "keda", "channel": "fast", "controller": "x", "customResourcePolicy": "Ignore", "managed": false,
             "remoteModuleTemplateRef": "old"}]},
        "status": {"state": "Warning", "activeChannel": "regular",
            "lastOperation": {"operation": "kyma is ready", "lastUpdateTime": "2026-01-31T12:00:00Z"},
            "conditions": [condition()],
            "modules": [{"name": "keda", "fqdn": "a.b/c", "ocmComponentName": "a.b/c", "channel": "fast", "version": "1.0.0",
                "message": "m", "state": "", "maintenance": true, "manifest": tracked, "resource": tracked, "template": tracked}]},
    }));
}

#[test]
fn manifests_survive_the_types() {
    check::<Manifest>(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest", "metadata": {"name": "a"},
        "spec": {"remote": true, "install": {"name": "raw-manifest", "source": {"type": "git", "path": "a", "tree": "b"}},
            "config": {"repo": "a", "name": "b", "ref": "c", "type": "oci-ref", "credSecretSelector": {"matchLabels": {"d": "e"}}},
            "customResourcePolicy": "CreateAndDelete", "version": "1.0.0", "localizedImages": ["a:1"],
            "resource": {"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "c"}, "spec": {"d": [1, null]}},
            "manager": {"group": "apps", "version": "v1", "kind": "Deployment", "name": "a", "namespace": "b"}},
        "status": {"state": "Processing", "conditions": [condition()], "lastOperation": {"operation": "a"},
            "synced": [{"group": "", "version": "v1", "kind": "ConfigMap", "name": "a", "namespace": ""}]},
    }));
}

#[test]
fn catalog_entries_survive_the_types() {
    check::<ModuleTemplate>(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate", "metadata": {"name": "keda-1.0.0"},
        "spec": {"channel": "", "version": "1.0.0", "moduleName": "keda", "mandatory": true, "requiresDowntime": true,
            "data": {"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "default"}}, "descriptor": {"component": {"name": "a"}},
            "customStateCheck": [{"jsonPath": "a", "value": "b", "mappedState": "Ready"}],
            "resources": [{"name": "rawManifest", "link": "https://a.b/c"}],
            "info": {"repository": "r", "documentation": "d", "icons": [{"name": "a", "link": "b"}]},
            "associatedResources": [{"group": "a", "version": "v1", "kind": "B"}],
            "manager": {"group": "apps", "version": "v1", "kind": "Deployment", "name": "a"}},
    }));
    check::<ModuleReleaseMeta>(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta", "metadata": {"name": "keda"},
        "spec": {"moduleName": "keda", "ocmComponentName": "a.io/keda", "beta": true, "internal": true,
            "channels": [{"channel": "fast", "version": "1.0.0"}],
            "kymaSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}},
    }));
    check::<ModuleReleaseMeta>(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta", "metadata": {"name": "keda"},
        "spec": {"moduleName": "keda", "mandatory": {"version": "1.0.0+build"}},
    }));
}

#[test]
fn watchers_survive_the_types() {
    check::<Watcher>(json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Watcher", "metadata": {"name": "a"},
        "spec": {"serviceInfo": {"name": "a", "namespace": "b", "port": 80}, "manager": "m", "labelsToWatch": {"a": "b"},
            "resourceToWatch": {"group": "a", "version": "*", "resource": "bs"}, "field": "status",
            "gateway": {"selector": {"matchLabels": {"a": "b"}}}},
        "status": {"state": "Ready", "conditions": [condition()], "observedGeneration": 1},
    }));
}

#[test]
fn git_sources_survive_the_types() {
    check::<GitSource>(json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape"},
        "spec": {"url": "https://git.example.com/a.git", "ref": {"branch": "main"}, "paths": ["modules"], "interval": "1m",
            "timeout": "60s", "secretRef": {"name": "a"}, "templates": "templates", "ignore": ["**/testdata/**"],
            "allow": {"kinds": ["Kyma"], "namespaces": ["kcp-system"], "names": ["dev-*"]}, "onError": "RefuseRevision",
            "allowRewrite": true, "strict": true, "prune": false, "pruneLimit": {"objects": 1, "percent": 2},
            "removalLimit": 3, "deletionPolicy": "Delete", "receiver": {"secretRef": {"name": "b"}}, "suspend": true},
        "status": {"observedGeneration": 1, "conditions": [condition()], "attemptedRevision": "a", "appliedRevision": "b",
            "lastHandledReconcileAt": "c", "counts": {"applied": 1, "withheld": 2, "toPrune": 3},
            "withheld": [{"kind": "Kyma", "namespace": "a", "name": "b", "path": "c", "line": 1, "message": "d"}],
            "diagnostics": [{"severity": "error", "code": "a", "path": "b", "line": 1, "column": 2, "message": "c"}]},
    }));
}

#[test]
fn every_field_of_every_definition_is_described() {
    fn walk(schema: &Value, path: &str, bare: &mut Vec<String>) {
        let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (name, property) in properties {
            let path = format!("{path}.{name}");
            if property.get("description").is_none() && name != "metadata" {
                bare.push(path.clone());
            }
            walk(property, &path, bare);
            walk(&property["items"], &format!("{path}[]"), bare);
        }
    }
    let mut bare = Vec::new();
    for crd in crds() {
        let value = serde_json::to_value(crd).unwrap();
        for version in value["spec"]["versions"].as_array().unwrap() {
            assert!(!version["schema"]["openAPIV3Schema"]["description"].to_string().contains("Auto-generated"));
            walk(&version["schema"]["openAPIV3Schema"], &crd.spec.names.kind, &mut bare);
        }
    }
    assert!(bare.is_empty(), "{bare:#?}");
}

#[test]
fn definitions_are_found_by_kind() {
    assert_eq!(crd("Kyma").unwrap().metadata.name.as_deref(), Some("kymas.operator.kyma-project.io"));
    assert!(crd("kyma").is_none());
}

#[test]
fn a_value_that_a_newer_version_brings_is_read_as_the_one_that_changes_least() {
    use super::{git_source, manifest, shared, watcher};

    fn read<T: serde::de::DeserializeOwned>() -> T {
        serde_json::from_value(serde_json::json!("Newer")).expect("read")
    }
    assert_eq!(read::<shared::State>(), shared::State::Unknown);
    assert_eq!(read::<shared::CustomResourcePolicy>(), shared::CustomResourcePolicy::Ignore);
    assert_eq!(read::<manifest::ConfigImageType>(), manifest::ConfigImageType::None);
    assert_eq!(read::<watcher::WatchField>(), watcher::WatchField::Spec);
    assert_eq!(read::<git_source::OnError>(), git_source::OnError::RefuseRevision);
    assert_eq!(read::<git_source::DeletionPolicy>(), git_source::DeletionPolicy::Orphan);
}
