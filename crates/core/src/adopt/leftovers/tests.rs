use std::sync::Arc;

use serde_json::{Value, json};

use super::{super::tests::lines, *};
use crate::api::{Kyma, ModuleReleaseMeta, ModuleTemplate};

fn typed<T: serde::de::DeserializeOwned>(kind: &str, name: &str, more: &Value) -> T {
    let mut object = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "namespace": "kcp-system"},
    });
    for (field, value) in more.as_object().unwrap() {
        match field.as_str() {
            "labels" => object["metadata"][field] = value.clone(),
            _ => object[field] = value.clone(),
        }
    }
    serde_json::from_value(object).unwrap()
}

/// Kyma `one`, whose catalog has version 1 of module `keda`. Beta modules are not for it.
fn landscape() -> Landscape {
    let mut landscape = Landscape::default();
    let kyma: Kyma = typed("Kyma", "one", &json!({"spec": {"channel": "regular"}}));
    landscape.kymas.insert(Key::new("kcp-system", "one"), Arc::new(kyma));
    let channels = json!([{"channel": "regular", "version": "1"}, {"channel": "fast", "version": "2"}]);
    let spec = json!({"moduleName": "keda", "ocmComponentName": "example.org/keda", "channels": channels});
    let release: ModuleReleaseMeta = typed("ModuleReleaseMeta", "keda", &json!({"spec": spec}));
    landscape.releases.insert(Key::new("kcp-system", "keda"), Arc::new(release));
    for (name, version, labels) in [("keda-1", "1", json!({})), ("keda-2", "2", json!({label::BETA: "true"}))] {
        let spec = json!({"moduleName": "keda", "version": version, "descriptor": {}});
        let template: ModuleTemplate = typed("ModuleTemplate", name, &json!({"labels": labels, "spec": spec}));
        landscape.templates.insert(Key::new("kcp-system", name), Arc::new(template));
    }
    landscape
}

/// The Manifest of a module with ConfigMaps of these names, and a default custom resource.
fn manifest(kyma: &str, module: &str, maps: &[&str]) -> Manifest {
    let synced: Vec<Value> = maps
        .iter()
        .map(
            |name| json!({"group": "", "version": "v1", "kind": "ConfigMap", "namespace": "kyma-system", "name": name}),
        )
        .collect();
    let resource = json!({
        "apiVersion": "example.org/v1", "kind": "Keda", "metadata": {"name": "default", "namespace": "kyma-system"},
    });
    let source = json!({"type": "git"});
    let spec = json!({"remote": true, "install": {"name": "raw-manifest", "source": source}, "resource": resource});
    let labels = json!({label::KYMA_NAME: kyma, label::MODULE_NAME: module});
    let more = json!({"labels": labels, "spec": spec, "status": {"state": "Ready", "synced": synced}});
    typed("Manifest", &format!("{kyma}-{module}"), &more)
}

fn object((group, kind, name): (&str, &str, &str), owner: Option<&str>, manager: &str) -> Labelled {
    let namespace = if kind == "ClusterRole" { "" } else { "kyma-system" };
    let owner = owner.map(|owner| format!("kcp-system/{owner}"));
    Labelled { id: ObjectId::new(group, kind, namespace, name), owner, managers: vec![manager.into()], deleting: false }
}

fn map(name: &str, owner: Option<&str>) -> Labelled {
    object(("", "ConfigMap", name), owner, MODULE_MANAGER_UPSTREAM)
}

fn copy(kind: &str, name: &str, manager: &str) -> Labelled {
    object((KYMA_GROUP, kind, name), None, manager)
}

fn found(labelled: Vec<Labelled>, manifests: &[Manifest]) -> Vec<String> {
    let runtimes = BTreeMap::from([(Key::new("kcp-system", "one"), Ok(labelled))]);
    lines(&leftovers(&runtimes, &landscape(), manifests, &Settings::default()))
}

/// The objects that are left over, if the runtime has exactly this one.
#[track_caller]
fn check(labelled: Labelled, expected: Option<Why>) {
    let manifests = [manifest("one", "keda", &["a"]), manifest("one", "new", &[]), manifest("two", "keda", &["b"])];
    let of_one: Vec<&Manifest> = manifests[..2].iter().collect();
    let named = Named::by(&Key::new("kcp-system", "one"), &landscape(), &of_one, &Settings::default());
    assert_eq!(named.why(&labelled), expected, "{labelled:?}");
}

#[test]
fn an_object_is_left_over_if_no_manifest_of_its_runtime_names_it() {
    check(map("a", Some("one-keda")), None);
    // It left its module, and stayed.
    check(map("old", Some("one-keda")), Some(Why::Manifest));
    check(map("b", Some("one-gone")), Some(Why::Manifest));
    // Its Manifest is of another runtime, which has such an object.
    check(map("b", Some("two-keda")), Some(Why::Manifest));
    // Another module took it over, and its annotation is from before.
    check(map("a", Some("one-gone")), None);
    // The Manifest does not say yet what it has.
    check(map("old", Some("one-new")), None);
    check(Labelled { deleting: true, ..map("b", Some("one-gone")) }, None);
    check(object(("example.org", "Keda", "default"), Some("one-keda"), "any"), None);
    check(object(("example.org", "Keda", "second"), Some("one-keda"), "any"), Some(Why::Manifest));
    check(object((KYMA_GROUP, "Serverless", "default"), Some("one-gone"), "any"), Some(Why::Manifest));
}

#[test]
fn what_every_runtime_has_is_not_left_over() {
    for (kind, manager) in [("Deployment", "lifecycle-manager"), ("Namespace", "kyma-sync-context")] {
        check(object(("apps", kind, "skr-webhook"), None, manager), None);
    }
    check(object((KYMA_GROUP, "Kyma", "default"), Some("one"), "kyma-sync-context"), None);
    // An object of a module from before it was annotated.
    check(object(("", "ClusterRole", "old"), None, MODULE_MANAGER_UPSTREAM), Some(Why::Manifest));
}

#[test]
fn a_copy_is_left_over_if_the_catalog_of_its_runtime_lacks_it() {
    check(copy("ModuleTemplate", "keda-1", CATALOG_MANAGER_UPSTREAM), None);
    check(copy("ModuleReleaseMeta", "keda", CATALOG_MANAGER_UPSTREAM), None);
    check(copy("ModuleReleaseMeta", "keda-1", CATALOG_MANAGER_UPSTREAM), Some(Why::Catalog));
    check(copy("ModuleTemplate", "keda-0", CATALOG_MANAGER_UPSTREAM), Some(Why::Catalog));
    check(copy("ModuleTemplate", "keda-0", FIELD_MANAGER), Some(Why::Catalog));
    // The control plane has it, and this runtime must not see it.
    check(copy("ModuleTemplate", "keda-2", CATALOG_MANAGER_UPSTREAM), Some(Why::Catalog));
    // A user's own.
    check(copy("ModuleTemplate", "keda-0", "kubectl"), None);
}

#[test]
fn each_runtime_has_a_line_with_what_is_left_over() {
    let manifests = [manifest("one", "keda", &["a"])];
    let all = vec![
        map("d", Some("one-gone")),
        map("c", Some("one-gone")),
        map("b", Some("one-gone")),
        map("e", Some("one-gone")),
        map("a", Some("one-keda")),
        copy("ModuleTemplate", "keda-0", CATALOG_MANAGER_UPSTREAM),
    ];
    assert_eq!(
        found(all, &manifests),
        [
            "Note: runtime kcp-system/one has 4 objects that no Manifest names, and they stay: ConfigMap kyma-system/b, \
             ConfigMap kyma-system/c, ConfigMap kyma-system/d and 1 more; delete those that no user needs; Tidegate \
             deletes none of them",
            "Note: runtime kcp-system/one has 1 copy of a definition that its catalog lacks: \
             ModuleTemplate.operator.kyma-project.io kyma-system/keda-0; correct the definitions in the control plane \
             if users need them: Tidegate deletes such copies, as Lifecycle Manager does, but not before `tidegate \
             adopt take --finish`",
        ]
    );
    assert_eq!(
        found(vec![map("a", Some("one-keda"))], &manifests),
        ["Ready: 1 runtime read: Manifests and the catalog name every object of Lifecycle Manager"]
    );
}

#[test]
fn a_runtime_that_cannot_be_read_is_named_and_proves_nothing() {
    let of = |name: &str| Key::new("kcp-system", name);
    let silent = "Note: 1 runtime could not be read, and may have objects that no Manifest names: kcp-system/two \
         (connection refused); run the command again when they can be reached, or skip the runtimes with \
         `--no-runtimes`"
        .to_owned();
    let mut runtimes = BTreeMap::from([(of("two"), Err("connection refused".to_owned()))]);
    let lines = |runtimes: &BTreeMap<Key, Answer>| lines(&leftovers(runtimes, &landscape(), &[], &Settings::default()));
    assert_eq!(lines(&runtimes), std::slice::from_ref(&silent));
    runtimes.insert(of("one"), Ok(Vec::new()));
    let ready = "Ready: 1 runtime read: Manifests and the catalog name every object of Lifecycle Manager".to_owned();
    assert_eq!(lines(&runtimes), [ready, silent]);
    assert_eq!(lines(&BTreeMap::new()), Vec::<String>::new(), "runtimes were not asked");
}

#[test]
fn the_kinds_of_all_manifests_are_listed_once() {
    let mut one = manifest("one", "keda", &["a", "b"]);
    let mut synced = one.status.clone().unwrap_or_default().synced;
    let of_module = crate::api::manifest::SyncedObject {
        group: "example.org".into(),
        version: "v1".into(),
        kind: "Thing".into(),
        ..Default::default()
    };
    synced.push(of_module);
    one.status.get_or_insert_default().synced = synced;
    let kinds = kinds_left(&[one.clone(), one]);
    let count = |kind: &str| kinds.iter().filter(|gvk| &*gvk.kind == kind).count();
    assert_eq!((count("ConfigMap"), count("Thing"), count("ModuleTemplate"), count("Deployment")), (1, 1, 1, 1));
    assert_eq!(kinds.len(), USUAL.len() + 3);
}
