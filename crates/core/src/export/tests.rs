use serde_json::json;

use super::*;

/// A live object with what the API server and `lifecycle-manager` add to it.
fn live(kind: &str, name: &str, more: Value) -> Object {
    let mut object = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind,
        "metadata": {
            "name": name, "namespace": "kcp-system", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["operator.kyma-project.io/Kyma"],
            "managedFields": [{"manager": "lifecycle-manager", "operation": "Update"}],
            "labels": {"operator.kyma-project.io/managed-by": "lifecycle-manager", "team": "a"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "skr-domain": "c-1.example.org"},
        },
        "status": {"state": "Ready"},
    });
    for (field, value) in more.as_object().unwrap() {
        object[field] = value.clone();
    }
    Object::new(object).unwrap()
}

#[track_caller]
fn check(kind: Kind, object: &Object, path: &str, definition: Value) {
    assert_eq!(File::of(kind, object), Ok(File { path: path.to_owned(), definition }));
}

#[test]
fn a_kyma_of_lifecycle_manager_leaves_its_modules_to_its_runtime() {
    let spec =
        json!({"channel": "fast", "skipMaintenanceWindows": true, "modules": [{"name": "keda", "managed": true}]});
    let kyma = live("Kyma", "one", json!({"spec": spec}));
    check(
        Kind::Kyma,
        &kyma,
        "kymas/one.yaml",
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {
                "name": "one", "namespace": "kcp-system", "labels": {"team": "a"},
                "annotations": {"skr-domain": "c-1.example.org", "tidegate.dev/modules-from": "runtime"},
            },
            "spec": {"channel": "fast", "skipMaintenanceWindows": true},
        }),
    );
}

#[test]
fn a_kyma_of_a_gitsource_keeps_its_modules_without_the_marks_and_defaults() {
    let mut kyma = live(
        "Kyma",
        "one",
        json!({"spec": {"channel": "fast", "modules": [
            {"name": "keda", "managed": true, "customResourcePolicy": "CreateAndDelete"},
            {"name": "cache", "managed": false, "customResourcePolicy": "Ignore"},
        ]}}),
    );
    kyma.set_label(label::SOURCE, "kcp-system.landscape");
    kyma.set_annotation(annotation::DIGEST, "1");
    kyma.set_annotation(annotation::PRUNE, "disabled");
    let file = File::of(Kind::Kyma, &kyma).unwrap();
    assert_eq!(
        file.definition["spec"]["modules"],
        json!([
            // The schema requires this field, although it has a default.
            {"name": "keda", "managed": true},
            {"name": "cache", "managed": false, "customResourcePolicy": "Ignore"},
        ])
    );
    assert_eq!(file.definition["metadata"]["labels"], json!({"team": "a"}));
    let annotations = json!({"skr-domain": "c-1.example.org", "tidegate.dev/prune": "disabled"});
    assert_eq!(file.definition["metadata"]["annotations"], annotations);
}

#[test]
fn templates_and_releases_of_a_module_share_a_folder() {
    let path = |kind: Kind, name: &str, spec: Value| {
        File::of(kind, &live(&kind.to_string(), name, json!({"spec": spec}))).unwrap().path
    };
    let template = |name: &str, spec: Value| path(Kind::ModuleTemplate, name, spec);
    assert_eq!(template("keda-1.0.0", json!({"moduleName": "keda"})), "modules/keda/1.0.0.yaml");
    assert_eq!(template("keda-regular", json!({"channel": "regular"})), "modules/keda-regular.yaml");
    assert_eq!(template("keda-1.0.0", json!({"moduleName": "../.."})), "modules/keda-1.0.0.yaml");
    assert_eq!(template("keda-release", json!({"moduleName": "keda"})), "modules/keda-release.yaml");
    assert_eq!(path(Kind::ModuleReleaseMeta, "keda", json!({})), "modules/keda/release.yaml");
    assert_eq!(path(Kind::Watcher, "dev", json!({})), "watchers/dev.yaml");
}

#[test]
fn what_typed_clients_always_write_is_left_out() {
    let spec =
        json!({"channel": "", "moduleName": "keda", "version": "1.0.0", "descriptor": {"a": null}, "data": null});
    let template =
        File::of(Kind::ModuleTemplate, &live("ModuleTemplate", "keda-1.0.0", json!({"spec": spec}))).unwrap();
    let expected = json!({"moduleName": "keda", "version": "1.0.0", "descriptor": {"a": null}});
    assert_eq!(template.definition["spec"], expected);
    let spec = json!({"moduleName": "keda", "beta": false, "internal": true});
    let release = File::of(Kind::ModuleReleaseMeta, &live("ModuleReleaseMeta", "keda", json!({"spec": spec}))).unwrap();
    assert_eq!(release.definition["spec"], json!({"moduleName": "keda", "internal": true}));
}

#[test]
fn a_watcher_keeps_the_label_that_names_its_manager() {
    let watcher = File::of(Kind::Watcher, &live("Watcher", "dev", json!({"spec": {"field": "spec"}}))).unwrap();
    let labels = json!({"operator.kyma-project.io/managed-by": "lifecycle-manager", "team": "a"});
    assert_eq!(watcher.definition["metadata"]["labels"], labels);
}

#[test]
fn marks_of_other_tools_stay_behind() {
    let mut release = live("ModuleReleaseMeta", "keda", json!({"spec": {"moduleName": "keda"}}));
    release.set_label("kustomize.toolkit.fluxcd.io/name", "a");
    release.set_annotation("argocd.argoproj.io/tracking-id", "a:b/c:d/e");
    let file = File::of(Kind::ModuleReleaseMeta, &release).unwrap();
    assert!(!file.definition.to_string().contains("flux") && !file.definition.to_string().contains("argo"));
}

#[test]
fn what_git_cannot_declare_is_refused() {
    let mut template = live("ModuleTemplate", "keda-1.0.0", json!({"spec": {"moduleName": "keda"}}));
    template.set_annotation(annotation::MODULE_PATH, "modules/keda/objects");
    assert_eq!(File::of(Kind::ModuleTemplate, &template), Err(Refused::FromGit));
    let mut leaving = live("Kyma", "one", json!({})).into_value();
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    assert_eq!(File::of(Kind::Kyma, &Object::new(leaving).unwrap()), Err(Refused::Terminating));
}
