//! Objects are recorded before they exist, and removed in Lifecycle Manager's order. Objects with data are kept. Also
//! the removal of a runtime that is unreachable.

mod limit;
mod renamed;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::events::v1::Event;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tidegate_core::{api::Manifest, plan::manifest_name};
use tidegate_testbed::{Extent, Record};

use crate::{
    harness::{self, eventually, holds},
    stage::{self, ADMINISTRATORS, QUIET, Server, Stage, USER, read, scenarios},
};

scenarios! {
    objects_are_recorded_before_they_exist_and_leave_in_lifecycle_managers_order,
    a_runtime_may_add_to_what_git_says_and_ends_without_being_reached_once_its_secret_is_gone,
    deleting_our_definition_of_sources_leaves_everything_that_they_declared,
    a_renamed_module_has_its_default_custom_resource_again,
    a_default_custom_resource_that_a_version_no_longer_declares_goes_with_its_module,
    a_default_custom_resource_that_a_version_renames_goes_with_its_module_unless_a_user_changed_it,
    a_module_that_a_client_drops_from_a_kyma_stays_in_the_runtime_unless_the_source_is_suspended,
    git_has_the_whole_list_of_modules_of_a_kyma,
    an_empty_list_of_another_client_takes_no_modules_from_a_runtime,
    a_kyma_that_another_client_replaces_is_noticed_before_the_next_interval,
    a_version_goes_with_the_last_runtime_that_has_it_before_the_next_interval,
}

const KYMA: &str = "operator.kyma-project.io/v1beta2";
const SOURCE: &str = "tidegate.dev/v1alpha1";

async fn api(client: &kube::Client, version: &str, kind: &str, namespace: &str) -> Api<kube::api::DynamicObject> {
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": namespace}});
    harness::api_of(client, &sample).await.expect("a kind that is served")
}

async fn merge(client: &kube::Client, (version, kind): (&str, &str), namespace: &str, name: &str, patch: Value) {
    let api = api(client, version, kind, namespace).await;
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

async fn delete(client: &kube::Client, (version, kind): (&str, &str), namespace: &str, name: &str) {
    api(client, version, kind, namespace).await.delete(name, &DeleteParams::default()).await.expect("a delete");
}

async fn suspend(stage: &Stage) {
    merge(&stage.kcp, (SOURCE, "GitSource"), "kcp-system", "landscape", json!({"spec": {"suspend": true}})).await;
    stage
        .until("it is suspended", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["conditions"].to_string().contains("Suspended")
        })
        .await;
}

/// The requests of the daemon to a server, in the order of their answers.
fn requests(server: &Server, mark: u64) -> Vec<Record> {
    server.records_since(mark).into_iter().filter(|record| record.user == USER).collect()
}

/// Objects with users' data, beside a definition: they must stay when a module's new version no longer has them.
const DATA: &str = r#"apiVersion: v1
kind: Namespace
metadata: {name: store-data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: store, namespace: kyma-system}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: store-old, namespace: kyma-system}
"#;

/// The objects of [`DATA`], and the definition, that stay until a user allows their deletion.
const KEPT: [(&str, &str, &str, &str); 3] = [
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "boxes.example.org"),
    ("v1", "Namespace", "", "store-data"),
    ("v1", "PersistentVolumeClaim", "kyma-system", "store"),
];

/// A landscape with three modules. The second version of `store` no longer has the objects with data.
async fn stage_with_data() -> Stage {
    let mut files = stage::files(1);
    files.extend(stage::module("store", "1.0.0", "one"));
    files.extend(stage::module("store", "1.1.0", "two"));
    files.push(("modules/store/1.0.0/objects/data.yaml".to_owned(), format!("{}---\n{DATA}", stage::box_crd("{}"))));
    files.push(("modules/store/release.yaml".to_owned(), stage::release("store", &[("regular", "1.0.0")])));
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    files.retain(|(path, _)| !path.starts_with("kymas/"));
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &["cache", "mailer", "store"])));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    Stage::new(1, &files).await
}

/// `ConfigMap kyma-system/cache-a`, for each entry of an inventory.
type Synced = BTreeSet<String>;

/// Each inventory that a Manifest's status had, in order, by Manifest.
type Inventories = Arc<Mutex<BTreeMap<String, Vec<Synced>>>>;

/// Records the inventories from now on.
async fn follow(stage: &Stage) -> Inventories {
    let found = Inventories::default();
    let api: Api<Manifest> = Api::namespaced(stage.kcp.clone(), "kcp-system");
    let mut events = api.watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    let follower = Arc::clone(&found);
    tokio::spawn(async move {
        while let Ok(Some(event)) = events.try_next().await {
            let (WatchEvent::Added(manifest) | WatchEvent::Modified(manifest)) = event else { continue };
            let Some(status) = manifest.status else { continue };
            let entry = |one: &tidegate_core::api::manifest::SyncedObject| {
                format!("{} {}/{}", one.kind, one.namespace, one.name)
            };
            let synced = status.synced.iter().map(entry).collect();
            let name = manifest.metadata.name.unwrap_or_default();
            follower.lock().expect("no panic holds it").entry(name).or_default().push(synced);
        }
    });
    found
}

/// `ConfigMap kyma-system/cache-a`, from a request; empty for other kinds.
fn entry(record: &Record) -> String {
    let kind = match record.resource.as_str() {
        "configmaps" => "ConfigMap",
        "clusterroles.rbac.authorization.k8s.io" => "ClusterRole",
        "customresourcedefinitions.apiextensions.k8s.io" => "CustomResourceDefinition",
        "persistentvolumeclaims" => "PersistentVolumeClaim",
        "namespaces" => return format!("Namespace /{}", record.name),
        _ => return String::new(),
    };
    format!("{kind} {}/{}", record.namespace, record.name)
}

async fn objects_are_recorded_before_they_exist_and_leave_in_lifecycle_managers_order() {
    let stage = stage_with_data().await;
    let skr = &stage.skrs[0];
    let inventories = follow(&stage).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;

    // Each object of a module was created after the inventory with its entry was written.
    let first: BTreeMap<String, Synced> = {
        let all = inventories.lock().expect("no panic holds it");
        all.iter().map(|(name, states)| (name.clone(), states[0].clone())).collect()
    };
    assert_eq!(first.len(), 3, "{first:?}");
    let kcp = stage.landscape.kcp.records();
    let recorded: BTreeMap<&String, &String> = kcp
        .iter()
        .rev()
        .filter(|record| record.resource == "manifests.operator.kyma-project.io/status" && record.code == 200)
        .map(|record| (&record.name, &record.answered))
        .collect();
    let created: Vec<Record> = requests(&stage.landscape.skrs[0], 0)
        .into_iter()
        .filter(|record| record.is_write() && record.code == 201)
        .collect();
    let mut found = 0;
    for record in &created {
        let Some((manifest, _)) = first.iter().find(|(_, synced)| synced.contains(&entry(record))) else { continue };
        found += 1;
        assert!(recorded[manifest] < &record.received, "{} before its inventory: {}", record.name, recorded[manifest]);
    }
    // Three objects of each module, the CRD of `cache`, the four extra objects of `store`.
    assert_eq!(found, 3 * 3 + 1 + 4, "{first:#?}");

    // Objects with data stay, also in the inventory, if the new version no longer has them. Other objects are deleted.
    stage.commit("modules/store/release.yaml", &stage::release("store", &[("regular", "1.1.0")]));
    stage.until_gone(skr, "ConfigMap", "kyma-system", "store-old").await;
    stage
        .until("the new version is there", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"].to_string().contains("\"version\":\"1.1.0\"") && kyma["status"]["state"] == "Ready"
        })
        .await;
    for (_, kind, namespace, name) in KEPT {
        let kept = read(skr, kind, namespace, name).await.unwrap_or_else(|| panic!("{kind} {name} stays"));
        assert_eq!(kept["metadata"]["deletionTimestamp"], Value::Null, "{kind} {name}");
    }
    let manifests = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await;
    let store = first.keys().find(|name| name.starts_with("one-store-")).expect("a Manifest").clone();
    let synced = manifests.get(&store).await.expect("there").data["status"]["synced"].to_string();
    for (_, _, _, name) in KEPT {
        assert!(synced.contains(&format!("\"{name}\"")), "{name} is still ours: {synced}");
    }
    eventually("an Event says so", harness::SOON, async || {
        let events: Api<Event> = Api::namespaced(stage.kcp.clone(), "kcp-system");
        let all = events.list(&Default::default()).await.map_err(|error| error.to_string())?.items;
        let kept: Vec<String> = all
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("Kept"))
            .map(|event| {
                format!(
                    "{}: {}",
                    event.regarding.unwrap_or_default().name.unwrap_or_default(),
                    event.note.unwrap_or_default()
                )
            })
            .collect();
        let said = kept.iter().any(|one| {
            one.starts_with(&store) && one.contains("(and 2 more)") && one.contains("tidegate.dev/prune=enabled")
        });
        if said { Ok(()) } else { Err(format!("{kept:?}")) }
    })
    .await;
    // The daemon deletes an object if a user allows it.
    let enabled = json!({"metadata": {"annotations": {"tidegate.dev/prune": "enabled"}}});
    merge(skr, ("v1", "Namespace"), "", "store-data", enabled).await;
    let asked = stage.command(&["reconcile", "kyma/one", "--wait", "--timeout=120s"]).await;
    assert_eq!(asked.status.code(), Some(0), "{}", String::from_utf8_lossy(&asked.stderr));
    stage.until_gone(skr, "Namespace", "", "store-data").await;

    the_end(&stage, &first).await;
}

/// Deletes the Kyma and compares the requests that follow with the upstream order.
async fn the_end(stage: &Stage, manifests: &BTreeMap<String, Synced>) {
    let skr = &stage.skrs[0];
    for (kind, name) in [("ValidatingWebhookConfiguration", "skr-webhook"), ("Namespace", "kyma-system")] {
        assert!(read(skr, kind, "", name).await.is_some(), "{kind} {name} is there to be removed");
    }
    assert!(read(skr, "Thing", "kyma-system", "cache-default").await.is_some());
    suspend(stage).await;
    let marks = stage.marks();
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;

    // The webhook, the catalog and the Kyma are removed from the runtime in this order.
    let deleted = |records: &[Record]| -> Vec<String> {
        let deletes = records.iter().filter(|record| record.verb == "delete" && record.code < 300);
        deletes
            .map(|record| format!("{} {}", record.resource.split('.').next().unwrap_or_default(), record.name))
            .collect()
    };
    let all = deleted(&requests(&stage.landscape.skrs[0], marks[1]));
    let at =
        |what: &str| all.iter().position(|one| one == what).unwrap_or_else(|| panic!("{what} is deleted: {all:#?}"));
    let steps = [
        "validatingwebhookconfigurations skr-webhook",
        "customresourcedefinitions moduletemplates.operator.kyma-project.io",
        "customresourcedefinitions modulereleasemetas.operator.kyma-project.io",
        "kymas default",
        "customresourcedefinitions kymas.operator.kyma-project.io",
    ];
    assert!(steps.map(at).is_sorted(), "{all:#?}");
    // Custom resources are deleted before their controllers, and CRDs last.
    assert!(at("things cache-default") < at("configmaps cache-a"), "{all:#?}");
    assert!(at("configmaps cache-a") < at("customresourcedefinitions things.example.org"), "{all:#?}");
    assert!(
        at("configmaps cache-a") < at("clusterroles cache")
            || at("clusterroles cache") < at("customresourcedefinitions things.example.org")
    );
    // Disabling a module deletes all its objects, including those that stayed after an update.
    at("customresourcedefinitions boxes.example.org");
    at("persistentvolumeclaims store");
    assert!(!all.iter().any(|one| one == "namespaces kyma-system"), "{all:#?}");

    // In the control plane the daemon deletes all Manifests, then releases them one by one, then the Kyma.
    let records = stage.landscape.kcp.records_since(marks[0]);
    let asked: BTreeSet<&str> = records
        .iter()
        .filter(|record| record.verb == "delete" && record.resource == "manifests.operator.kyma-project.io")
        .map(|record| record.name.as_str())
        .collect();
    assert_eq!(asked, manifests.keys().map(String::as_str).collect());
    let last = |resource: &str, name: &str| {
        let of = |record: &&Record| record.resource == resource && record.verb == "patch" && record.name == name;
        records.iter().rfind(of).map_or_else(|| panic!("{resource} {name}"), |record| record.answered.clone())
    };
    let kyma = last("kymas.operator.kyma-project.io", "one");
    for name in manifests.keys() {
        assert!(last("manifests.operator.kyma-project.io", name) < kyma, "{name} outlives the Kyma");
    }
}

/// A condition of a Kyma: status, reason, message.
fn condition(kyma: &Value, type_: &str) -> String {
    let all = kyma["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let of = all.iter().filter(|condition| condition["type"] == type_);
    of.map(|one| format!("{} {} {}", one["status"], one["reason"], one["message"])).collect()
}

async fn a_runtime_may_add_to_what_git_says_and_ends_without_being_reached_once_its_secret_is_gone() {
    let mut files = stage::files(1);
    let merging = stage::kyma("one", &["cache"])
        .replace("metadata: {", "metadata: {annotations: {tidegate.dev/modules-from: merge}, ");
    files.retain(|(path, _)| path != "kymas/one.yaml");
    files.push(("kymas/one.yaml".to_owned(), merging));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let skr = &stage.skrs[0];

    // A module that a user adds stays. A module of git that a user removes comes back.
    let modules = |names: &[&str]| {
        let modules: Vec<Value> = names.iter().map(|name| json!({"name": name, "managed": true})).collect();
        json!({"spec": {"modules": modules}})
    };
    merge(skr, (KYMA, "Kyma"), "kyma-system", "default", modules(&["cache", "mailer"])).await;
    reconcile(&stage).await;
    stage.until("the user's module is installed", skr, "ConfigMap", "kyma-system", "mailer-a", |_| true).await;
    stage.kyma_in("one", "Ready").await;
    merge(skr, (KYMA, "Kyma"), "kyma-system", "default", modules(&["mailer"])).await;
    reconcile(&stage).await;
    let kyma = read(skr, "Kyma", "kyma-system", "default").await.expect("there");
    let names: BTreeSet<&str> =
        kyma["spec"]["modules"].as_array().into_iter().flatten().filter_map(|module| module["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["cache", "mailer"]));
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some());
    // A module that its user removes is uninstalled. Modules from git stay.
    merge(skr, (KYMA, "Kyma"), "kyma-system", "default", modules(&["cache"])).await;
    reconcile(&stage).await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "mailer-a").await;
    stage.kyma_in("one", "Ready").await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-a").await.is_some());

    // `reconcile manifest/NAME --wait` returns after the objects of the Manifest were checked.
    let manifests = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await;
    let of_cache = manifests.list(&Default::default()).await.expect("a list").items.remove(0);
    let manifest = of_cache.metadata.name.expect("a name");
    delete(skr, ("v1", "ConfigMap"), "kyma-system", "cache-b").await;
    asked_for(&stage, "manifest", &manifest).await;
    assert!(read(skr, "ConfigMap", "kyma-system", "cache-b").await.is_some(), "it is back");

    // Other valid credentials take effect without a restart.
    let mark = stage.marks()[1];
    let rotated = stage.landscape.skrs[0].kubeconfig_of("rotated", ADMINISTRATORS).text();
    let mut secret = stage::access_secret("one", &stage.landscape.skrs[0]);
    secret["data"]["config"] = Value::from(STANDARD.encode(rotated));
    harness::apply(&stage.kcp, &secret).await;
    eventually("the daemon uses them", harness::SOON, async || {
        let since = stage.landscape.skrs[0].records_since(mark);
        if since.iter().any(|record| record.user == "rotated") {
            Ok(())
        } else {
            Err(format!("{} requests", since.len()))
        }
    })
    .await;
    delete(skr, ("v1", "ConfigMap"), "kyma-system", "cache-b").await;
    reconcile(&stage).await;
    stage.until("it is back", skr, "ConfigMap", "kyma-system", "cache-b", |_| true).await;
    let since = stage.landscape.skrs[0].records_since(mark);
    let by = |user: &str| since.iter().any(|record| record.user == user && record.name == "cache-b");
    assert!(by("rotated") && !by(USER), "the Secret's user repairs");

    // With two access Secrets the daemon does nothing until one of them is deleted.
    let mut second = stage::access_secret("one", &stage.landscape.skrs[0]);
    second["metadata"]["name"] = json!("another");
    harness::apply(&stage.kcp, &second).await;
    let kyma = stage.kyma_in("one", "Error").await;
    let reachable = condition(&kyma, "tidegate.dev/Reachable");
    assert!(
        reachable.contains("AmbiguousAccessSecret")
            && reachable.contains("access-one")
            && reachable.contains("another"),
        "{reachable}"
    );
    delete(&stage.kcp, ("v1", "Secret"), "kcp-system", "another").await;
    stage.kyma_in("one", "Ready").await;

    // A runtime is unreachable while its Kyma is being deleted: the status shows the step and the reason, and the
    // daemon waits.
    suspend(&stage).await;
    stage.landscape.skrs[0].stop().await;
    delete(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one").await;
    let explains = |kyma: &Value| {
        let operation = kyma["status"]["lastOperation"]["operation"].as_str().unwrap_or_default();
        kyma["status"]["state"] == "Deleting"
            && operation.contains("cannot be reached")
            && operation.contains("access Secret is deleted")
            && condition(kyma, "tidegate.dev/Reachable").starts_with("\"False\"")
    };
    stage.until("it says what keeps it", &stage.kcp, "Kyma", "kcp-system", "one", explains).await;
    holds("it waits", QUIET, async || match read(&stage.kcp, "Kyma", "kcp-system", "one").await {
        Some(kyma) if kyma["status"]["state"] == "Deleting" => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    delete(&stage.kcp, ("v1", "Secret"), "kcp-system", "access-one").await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    let left = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await.list(&Default::default()).await.expect("a list");
    assert!(left.items.is_empty(), "{:?}", left.items);
}

/// `tidegate reconcile kyma/one --wait`, which must succeed.
async fn reconcile(stage: &Stage) {
    asked_for(stage, "kyma", "one").await;
}

/// `tidegate reconcile KIND/NAME --wait`, which must succeed.
async fn asked_for(stage: &Stage, kind: &str, name: &str) {
    let output = stage.command(&["reconcile", &format!("{kind}/{name}"), "--wait", "--timeout=120s"]).await;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.to_lowercase().starts_with(&format!("{kind} kcp-system/{name}: reconciled: ")), "{text}");
}

async fn deleting_our_definition_of_sources_leaves_everything_that_they_declared() {
    let files: Vec<(String, String)> = stage::files(0);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(0, &files).await;
    // Also where the source would take its objects along if it were deleted itself.
    merge(&stage.kcp, (SOURCE, "GitSource"), "kcp-system", "landscape", json!({"spec": {"deletionPolicy": "Delete"}}))
        .await;
    stage.start();
    let head = stage.repository.head().expect("a commit");
    stage
        .until("the source is applied", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["appliedRevision"].as_str().is_some_and(|revision| revision.ends_with(&head))
        })
        .await;
    let templates = api(&stage.kcp, KYMA, "ModuleTemplate", "kcp-system").await;
    let before = templates.list(&Default::default()).await.expect("a list").items;
    assert_eq!(before.len(), 3);
    delete(&stage.kcp, ("apiextensions.k8s.io/v1", "CustomResourceDefinition"), "", "gitsources.tidegate.dev").await;
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", "gitsources.tidegate.dev").await;
    holds("the objects keep the ownership label", QUIET, async || {
        let items = templates.list(&Default::default()).await.map_err(|error| error.to_string())?.items;
        let labelled = items
            .iter()
            .filter(|item| item.metadata.labels.iter().flatten().any(|(key, _)| key.starts_with("tidegate.dev/")));
        if labelled.count() == before.len() { Ok(()) } else { Err("an object has no label".to_owned()) }
    })
    .await;
    let after = templates.list(&Default::default()).await.expect("a list").items;
    let uids = |items: &[kube::api::DynamicObject]| -> BTreeSet<Option<String>> {
        items.iter().map(|item| item.metadata.uid.clone()).collect()
    };
    assert_eq!(uids(&after), uids(&before));
    assert!(after.iter().all(|item| item.metadata.deletion_timestamp.is_none()));
}

/// The Manifests of both names want the same default custom resource. The removal of the former one deletes it, so that
/// of the new one must come after.
async fn a_renamed_module_has_its_default_custom_resource_again() {
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];
    let thing = async || read(skr, "Thing", "kyma-system", "cache-default").await;
    let former = thing().await.expect("the former module has created it")["metadata"]["uid"].clone();
    let repository = &stage.repository;
    for (path, text) in stage::module("cache", "1.0.0", "one") {
        let text = text.replace("/cache/", "/depot/").replace("name: cache-1.0.0", "name: depot-1.0.0");
        repository
            .write(&path.replace("/cache/", "/depot/"), &text.replace("moduleName: cache", "moduleName: depot"))
            .expect("written");
    }
    repository.write("modules/depot/1.0.0/objects/crd.yaml", stage::THING_CRD).expect("written");
    repository.write("modules/depot/release.yaml", &stage::release("depot", &[("regular", "1.0.0")])).expect("written");
    repository.write("kymas/one.yaml", &stage::kyma("one", &["depot", "mailer"])).expect("written");
    repository.commit("the module has another name").expect("a commit");
    stage
        .until("the module is ready under its new name", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            let modules = kyma["status"]["modules"].to_string();
            kyma["status"]["state"] == "Ready" && modules.contains("depot") && !modules.contains("\"cache\"")
        })
        .await;
    let again = thing().await.expect("the new module has created it again");
    assert_ne!(again["metadata"]["uid"], former);
    assert_eq!(again["metadata"]["deletionTimestamp"], Value::Null);
    let manifests = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await.list(&Default::default()).await;
    let manifests = manifests.expect("a list").items;
    let names: Vec<&str> = manifests.iter().filter_map(|manifest| manifest.metadata.name.as_deref()).collect();
    assert!(!names.iter().any(|name| name.starts_with("one-cache-")), "{names:?}");
}

fn modules(kyma: &Value) -> Vec<&str> {
    let modules = kyma["spec"]["modules"].as_array().expect("a list");
    modules.iter().filter_map(|module| module["name"].as_str()).collect()
}

/// No user made it, so nothing waits for users.
async fn a_default_custom_resource_that_a_version_no_longer_declares_goes_with_its_module() {
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];
    let thing = async || read(skr, "Thing", "kyma-system", "cache-default").await;
    assert!(thing().await.is_some());
    let (path, template) = stage::module("cache", "1.1.0", "two").swap_remove(0);
    let template: Vec<&str> = template.lines().filter(|line| !line.starts_with("  data: ")).collect();
    stage.repository.write(&path, &(template.join("\n") + "\n")).expect("a file");
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    let name = manifest_name("one", "example.org/module/cache", "cache");
    let is_upgraded = |manifest: &Value| {
        manifest["spec"]["version"] == "1.1.0"
            && manifest["spec"]["resource"].is_null()
            && manifest["status"]["state"] == "Ready"
    };
    stage.until("it has the new version", &stage.kcp, "Manifest", "kcp-system", &name, is_upgraded).await;
    stage.rests().await;
    assert!(thing().await.is_some(), "a new version takes no data");

    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["mailer"])).expect("a file");
    let path = stage.repository.path().to_string_lossy().into_owned();
    let output = stage.command(&["diff", &path, "--live", "-o", "json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let goes = |one: &&Value| one["action"] == "delete" && one["object"]["kind"] == "Thing";
    let things: Vec<&Value> = report["differences"].as_array().expect("a list").iter().filter(goes).collect();
    assert!(things.len() == 1 && things[0]["effect"] == "applies", "{report:#}");
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    eventually("the module is gone", harness::SOON, async || {
        match (read(&stage.kcp, "Manifest", "kcp-system", &name).await, thing().await) {
            (None, None) => Ok(()),
            (manifest, thing) => Err(format!("{thing:?} {manifest:?}")),
        }
    })
    .await;
}

/// A new version neither creates the one of the new name nor deletes the other: it has what the module works on.
async fn a_default_custom_resource_that_a_version_renames_goes_with_its_module_unless_a_user_changed_it() {
    let stage = stage::ready(2).await;
    let thing = async |runtime: usize, name: &str| read(&stage.skrs[runtime], "Thing", "kyma-system", name).await;
    let (path, template) = stage::module("cache", "1.1.0", "two").swap_remove(0);
    stage.repository.write(&path, &template.replace("cache-default", "cache-main")).expect("a file");
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    let names = ["one", "two"].map(|kyma| manifest_name(kyma, "example.org/module/cache", "cache"));
    let is_upgraded = |manifest: &Value| {
        manifest["spec"]["version"] == "1.1.0"
            && manifest["spec"]["resource"]["metadata"]["name"] == "cache-main"
            && manifest["status"]["state"] == "Ready"
    };
    for name in &names {
        stage.until("it has the new version", &stage.kcp, "Manifest", "kcp-system", name, is_upgraded).await;
    }
    stage.rests().await;
    for runtime in [0, 1] {
        assert!(thing(runtime, "cache-default").await.is_some(), "a new version takes no data");
        assert!(thing(runtime, "cache-main").await.is_none(), "the default one was created once");
    }

    let changed = json!({"spec": {"size": 2}});
    merge(&stage.skrs[1], ("example.org/v1", "Thing"), "kyma-system", "cache-default", changed).await;
    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["mailer"])).expect("a file");
    stage.commit("kymas/two.yaml", &stage::kyma("two", &["mailer"]));
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &names[0]).await;
    assert!(thing(0, "cache-default").await.is_none());
    let waits = |manifest: &Value| {
        let status = manifest["status"].to_string();
        status.contains("waiting for module crs deletion: Thing.example.org kyma-system/cache-default")
    };
    stage.until("it waits for its user", &stage.kcp, "Manifest", "kcp-system", &names[1], waits).await;
    stage.rests().await;
    assert!(thing(1, "cache-default").await.is_some());
    delete(&stage.skrs[1], ("example.org/v1", "Thing"), "kyma-system", "cache-default").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &names[1]).await;
}

async fn a_module_that_a_client_drops_from_a_kyma_stays_in_the_runtime_unless_the_source_is_suspended() {
    let stage = stage::ready(1).await;
    let skr = &stage.skrs[0];
    let uid = async || Some(read(skr, "ConfigMap", "kyma-system", "cache-a").await?["metadata"]["uid"].clone());
    let installed = uid().await.expect("the module is installed");
    let marks = stage.marks();
    let dropped = json!({"spec": {"modules": [{"name": "mailer", "managed": true}]}});
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", dropped.clone()).await;
    let is_whole = |kyma: &Value| modules(kyma).contains(&"cache");
    stage.until("git's list is back", &stage.kcp, "Kyma", "kcp-system", "one", is_whole).await;
    stage.rests().await;
    let deletes: Vec<String> =
        stage.requests_since(&marks).into_iter().filter(|request| request.contains("delete")).collect();
    assert_eq!(deletes, [""; 0]);
    assert_eq!(uid().await.as_ref(), Some(&installed));
    // So it is while the daemon is down: the new process does not know what git says before it has read it.
    stage.kill().await;
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", dropped.clone()).await;
    stage.start();
    stage.until("git's list is back again", &stage.kcp, "Kyma", "kcp-system", "one", is_whole).await;
    stage.rests().await;
    assert_eq!(uid().await.as_ref(), Some(&installed));
    // And while the definition is held back, so that nothing puts the module back.
    let text = stage::kyma("one", &["cache", "mailer"]);
    let broken = stage.commit("kymas/one.yaml", &text.replace("channel: regular", "channel: [regular]"));
    stage
        .until("it is held back", &stage.kcp, "GitSource", "kcp-system", "landscape", |source| {
            source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&broken))
        })
        .await;
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", dropped.clone()).await;
    holds("the module stays", QUIET, async || match uid().await {
        Some(found) if found == installed => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    stage.commit("kymas/one.yaml", &text);
    stage.until("git's list is back once more", &stage.kcp, "Kyma", "kcp-system", "one", is_whole).await;
    // A suspended source puts nothing back, so what the client says counts.
    suspend(&stage).await;
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", dropped).await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
}

async fn an_empty_list_of_another_client_takes_no_modules_from_a_runtime() {
    let files: Vec<(String, String)> = stage::files(1);
    let without_list = |(path, text): &(String, String)| {
        let text = text.replace("modules: [{name: cache, managed: true}, {name: mailer, managed: true}]", "");
        assert!(!path.starts_with("kymas/") || !text.contains("modules:"), "{text}");
        (path.clone(), text)
    };
    let files: Vec<(String, String)> = files.iter().map(without_list).collect();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(1, Extent::Controllers, &files, &["--resync=10s"]).await;
    let skr = &stage.skrs[0];
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let chosen = json!({"spec": {"modules": [{"name": "cache", "managed": true}]}});
    merge(skr, (KYMA, "Kyma"), "kyma-system", "default", chosen).await;
    stage.until("its user's module is installed", skr, "ConfigMap", "kyma-system", "cache-a", |_| true).await;
    stage.rests().await;

    let marks = stage.marks();
    merge(&stage.kcp, (KYMA, "Kyma"), "kcp-system", "one", json!({"spec": {"modules": []}})).await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
    assert_eq!(kyma["spec"]["modules"], json!([]), "the API server keeps it: {kyma:#}");
    stage.rests().await;
    let deletes: Vec<String> =
        stage.requests_since(&marks).into_iter().filter(|request| request.contains("delete")).collect();
    assert_eq!(deletes, [""; 0]);
    let mine = read(skr, "Kyma", "kyma-system", "default").await.expect("it is there");
    assert_eq!(modules(&mine), ["cache"]);

    // An empty list of git takes it.
    let (path, text) = files.iter().find(|(path, _)| path.starts_with("kymas/")).expect("a Kyma");
    let with_list = text.replace("spec:\n", "spec:\n  modules: []\n");
    assert_ne!(&with_list, text);
    stage.commit(path, &with_list);
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
}

async fn git_has_the_whole_list_of_modules_of_a_kyma() {
    let files: Vec<(String, String)> = stage::files(1);
    let (kyma, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|(path, _)| path.starts_with("kymas/"));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    let kymas = api(&stage.kcp, KYMA, "Kyma", "kcp-system").await;
    let theirs = json!({
        "apiVersion": KYMA, "kind": "Kyma", "metadata": {"name": "one", "namespace": "kcp-system"},
        "spec": {"channel": "regular", "modules": [{"name": "cache", "managed": true}, {"name": "mailer", "managed": true}]},
    });
    let user = PatchParams::apply("a-user");
    kymas.patch("one", &user, &Patch::Apply(theirs)).await.expect("a Kyma of a user");
    let adopt = "annotations: {tidegate.dev/adopt: \"true\"}";
    let (path, text) = &kyma[0];
    let only_cache = text.replace(", {name: mailer, managed: true}", "");
    assert_ne!(&only_cache, text);
    stage.commit(path, &only_cache.replace("name: one, ", &format!("name: one, {adopt}, ")));
    let is_gits = |kyma: &Value| kyma["status"]["state"] == "Ready" && modules(kyma) == ["cache"];
    stage.until("only git's module is left", &stage.kcp, "Kyma", "kcp-system", "one", is_gits).await;
    // The source also removes a module that a client adds later, with any field manager.
    let more = json!({"spec": {"modules": [{"name": "mailer", "managed": true}]}});
    let more = json!({"apiVersion": KYMA, "kind": "Kyma", "metadata": {"name": "one"}, "spec": more["spec"]});
    let answer = kymas.patch("one", &user, &Patch::Apply(more)).await.expect("a patch");
    assert_eq!(modules(&serde_json::to_value(&answer).expect("JSON")).len(), 2, "{answer:?}");
    stage.until("it is git's again", &stage.kcp, "Kyma", "kcp-system", "one", is_gits).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
}

async fn a_kyma_that_another_client_replaces_is_noticed_before_the_next_interval() {
    let adopted = |(path, text): (String, String)| {
        let adopt = "metadata: {annotations: {tidegate.dev/adopt: \"true\"}, ";
        (path.clone(), if path.starts_with("kymas/") { text.replace("metadata: {", adopt) } else { text })
    };
    let files: Vec<(String, String)> = stage::files(1).into_iter().map(adopted).collect();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    merge(&stage.kcp, (SOURCE, "GitSource"), "kcp-system", "landscape", json!({"spec": {"interval": "24h"}})).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let kymas = api(&stage.kcp, KYMA, "Kyma", "kcp-system").await;
    let mut theirs = kymas.get("one").await.expect("a Kyma");
    (theirs.metadata.labels, theirs.metadata.annotations, theirs.metadata.managed_fields) = (None, None, None);
    let user = PostParams { field_manager: Some("a-user".to_owned()), ..PostParams::default() };
    kymas.replace("one", &user, &theirs).await.expect("a replaced Kyma");
    let is_ours = |kyma: &Value| kyma["metadata"]["labels"]["tidegate.dev/source"] == "kcp-system.landscape";
    stage.until("it is git's again", &stage.kcp, "Kyma", "kcp-system", "one", is_ours).await;
    assert!(read(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await.is_some());
}

async fn a_version_goes_with_the_last_runtime_that_has_it_before_the_next_interval() {
    let files: Vec<(String, String)> = stage::files(2);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    merge(&stage.kcp, (SOURCE, "GitSource"), "kcp-system", "landscape", json!({"spec": {"interval": "24h"}})).await;
    stage.start();
    for kyma in stage::KYMAS {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.rests().await;
    // Another version replaces it, and it goes in the same commit.
    let folder = "modules/cache/1.0.0/";
    let of_version = files.iter().map(|(path, _)| *path).filter(|path| path.starts_with(folder));
    of_version.for_each(|path| stage.repository.remove(path).expect("a file"));
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    // Nothing else fetches before the next interval.
    asked_for(&stage, "gitsource", "landscape").await;
    stage.until_gone(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await;
    let manifests = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await.list(&Default::default()).await;
    let former =
        manifests.expect("a list").items.into_iter().filter(|manifest| manifest.data["spec"]["version"] == "1.0.0");
    assert_eq!(former.count(), 0, "no runtime has it any more");
}
