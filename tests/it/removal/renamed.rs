//! A module whose component gets another name: its Manifest does as well, and nothing leaves the runtime.

use std::collections::BTreeMap;

use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams, TypeMeta};
use serde_json::{Value, json};

use super::{KYMA, api, requests};
use crate::{
    harness,
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    a_component_of_another_name_takes_nothing_from_the_runtime,
    two_manifests_of_one_module_become_one,
    the_removal_of_a_module_with_two_manifests_ends,
}

/// What the module `cache` has in the runtime.
const OBJECTS: [(&str, &str, &str); 5] = [
    ("ConfigMap", "kyma-system", "cache-a"),
    ("ConfigMap", "kyma-system", "cache-b"),
    ("ClusterRole", "", "cache"),
    ("CustomResourceDefinition", "", "things.example.org"),
    ("Thing", "kyma-system", "cache-default"),
];

/// The UIDs of [`OBJECTS`] that exist, by kind and name.
async fn uids(stage: &Stage) -> BTreeMap<String, Value> {
    let mut uids = BTreeMap::new();
    for (kind, namespace, name) in OBJECTS {
        let found = read(&stage.skrs[0], kind, namespace, name).await;
        uids.extend(found.map(|found| (format!("{kind} {name}"), found["metadata"]["uid"].clone())));
    }
    uids
}

/// The Manifests of the module `cache`.
async fn manifests(stage: &Stage) -> Vec<DynamicObject> {
    let of_cache = ListParams::default().labels("operator.kyma-project.io/module-name=cache");
    api(&stage.kcp, KYMA, "Manifest", "kcp-system").await.list(&of_cache).await.expect("a list").items
}

fn name(manifest: &DynamicObject) -> String {
    manifest.metadata.name.clone().expect("a name")
}

/// Waits until the module has one Manifest, which is ready, and all its objects name that.
async fn one_manifest(stage: &Stage, is: impl Fn(&str) -> bool) -> DynamicObject {
    harness::eventually("the module has one Manifest, which is ready", harness::SOON, async || {
        let found = manifests(stage).await;
        match found.as_slice() {
            [one] if is(&name(one)) && one.data["status"]["state"] == "Ready" => Ok(one.clone()),
            _ => Err(format!("{found:?}")),
        }
    })
    .await
}

/// The deletes in the runtime since `mark`.
fn deletes(stage: &Stage, mark: u64) -> Vec<String> {
    let records = requests(&stage.landscape.skrs[0], mark);
    let deletes = records.into_iter().filter(|record| record.verb == "delete");
    deletes.map(|record| format!("{} {}", record.resource, record.name)).collect()
}

/// The difference of Manifests that a command shows for the work tree, as `effect action`, its deletes in runtimes, and
/// the headline of its text.
async fn predicted(stage: &Stage, more: &[&str]) -> (Vec<String>, Vec<String>, String) {
    let path = stage.repository.path().to_str().expect("UTF-8");
    let arguments = [&["diff", path], more].concat();
    let run = async |arguments: &[&str]| match more.contains(&"--live") {
        true => stage.command(arguments).await,
        false => stage.command_offline(arguments).await,
    };
    let output = run(&[arguments.as_slice(), &["-o", "json"]].concat()).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let of = |is: &dyn Fn(&Value) -> bool| -> Vec<String> {
        let found = report["differences"].as_array().expect("a list").iter().filter(|one| is(one));
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        found.map(|one| format!("{} {}", text(&one["effect"]), text(&one["action"]))).collect()
    };
    let manifests = of(&|one| one["object"]["kind"] == "Manifest");
    let gone = report["differences"].as_array().expect("a list").iter();
    // Without the copies of the catalog.
    let is_copy = |one: &Value| one["object"]["kind"].as_str().is_some_and(|kind| kind.starts_with("Module"));
    let gone = gone.filter(|one| one["target"] == "runtime" && one["action"] == "delete" && !is_copy(one));
    let deletes = gone.map(|one| format!("{} {}", one["object"]["kind"], one["object"]["name"])).collect();
    let text = String::from_utf8(run(&arguments).await.stdout).expect("UTF-8");
    (manifests, deletes, text.lines().nth(2).unwrap_or_default().to_owned())
}

fn component(channels: &[(&str, &str)], component: &str) -> String {
    stage::release("cache", channels).replace("example.org/module/cache", component)
}

/// The module leaves its Kyma: its objects go, and its Manifests.
async fn goes_whole(stage: &Stage) {
    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["mailer"])).expect("written");
    stage.repository.commit("the module goes").expect("a commit");
    harness::eventually("the module is gone", harness::SOON * 2, async || {
        let (manifests, objects) = (manifests(stage).await, uids(stage).await);
        if manifests.is_empty() && objects.is_empty() { Ok(()) } else { Err(format!("{objects:?} {manifests:?}")) }
    })
    .await;
}

async fn a_component_of_another_name_takes_nothing_from_the_runtime() {
    let stage = stage::ready(1).await;
    let [former] = manifests(&stage).await.try_into().expect("one Manifest");
    let (before, former) = (uids(&stage).await, name(&former));
    assert_eq!(before.len(), OBJECTS.len(), "{before:?}");
    let folder = harness::folder();
    let landscape = folder.path().join("landscape.json");
    let landscape = landscape.to_str().expect("UTF-8");
    assert!(stage.command(&["export", "--landscape", landscape]).await.status.success());
    let channels = [("regular", "1.0.0"), ("fast", "1.1.0")];
    stage.repository.write("modules/cache/release.yaml", &component(&channels, "example.org/other")).expect("written");
    for arguments in [["--live"].as_slice(), &["--landscape", landscape]] {
        let (manifests, deletes, headline) = predicted(&stage, arguments).await;
        assert_eq!(manifests, ["applies delete", "applies create"], "{arguments:?}: {headline}");
        assert_eq!(deletes, [""; 0], "{arguments:?}: {headline}");
        assert!(!headline.contains(" goes") && !headline.contains(" comes"), "{arguments:?}: {headline}");
        let intent = "module cache is under component name example.org/other in 1 of 1 runtime, its objects stay";
        assert!(headline.contains(intent), "{arguments:?}: {headline}");
    }
    let mark = stage.landscape.skrs[0].mark();
    stage.repository.commit("the component has another name").expect("a commit");
    let present = one_manifest(&stage, |name| name != former).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    assert_eq!(uids(&stage).await, before);
    assert_eq!(deletes(&stage, mark), [""; 0]);
    let config = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is there");
    let owner = format!("kcp-system/{}", name(&present));
    assert_eq!(config["metadata"]["annotations"]["deprecated-operator.kyma-project.io/owned-by"], owner);
    goes_whole(&stage).await;
}

/// A landscape as an older program has left it: a second Manifest of the module, with an object of its own.
async fn with_two_manifests() -> Stage {
    let stage = stage::ready(1).await;
    stage.kill().await;
    let [present] = manifests(&stage).await.try_into().expect("one Manifest");
    let extra = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "cache-extra", "namespace": "kyma-system",
            "labels": {"operator.kyma-project.io/managed-by": "kyma"},
            "annotations": {"operator.kyma-project.io/owned-by": "kcp-system/one-other-1"},
        },
    });
    harness::apply(&stage.skrs[0], &extra).await;
    let manifests = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await;
    let mut former = present.clone();
    former.types = Some(TypeMeta { api_version: KYMA.to_owned(), kind: "Manifest".to_owned() });
    let mut status = former.data["status"].take();
    former.metadata = kube::api::ObjectMeta {
        name: Some("one-other-1".to_owned()),
        labels: present.metadata.labels.clone(),
        annotations: present.metadata.annotations.clone(),
        owner_references: present.metadata.owner_references.clone(),
        finalizers: present.metadata.finalizers.clone(),
        ..kube::api::ObjectMeta::default()
    };
    manifests.create(&PostParams::default(), &former).await.expect("it is created");
    let extra =
        json!({"group": "", "version": "v1", "kind": "ConfigMap", "name": "cache-extra", "namespace": "kyma-system"});
    status["synced"].as_array_mut().expect("an inventory").push(extra);
    let status = Patch::Merge(json!({"status": status}));
    manifests.patch_status("one-other-1", &PatchParams::default(), &status).await.expect("a status");
    stage
}

async fn two_manifests_of_one_module_become_one() {
    let stage = with_two_manifests().await;
    let before = uids(&stage).await;
    assert_eq!(before.len(), OBJECTS.len(), "{before:?}");
    let (found, deletes, headline) = predicted(&stage, &["--live"]).await;
    assert_eq!(found, ["applies delete"], "{headline}");
    assert_eq!(deletes, ["\"ConfigMap\" \"cache-extra\""], "{headline}");
    stage.start();
    one_manifest(&stage, |name| name != "one-other-1").await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-extra").await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    assert_eq!(uids(&stage).await, before);
    goes_whole(&stage).await;
}

async fn the_removal_of_a_module_with_two_manifests_ends() {
    let stage = with_two_manifests().await;
    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["mailer"])).expect("written");
    stage.repository.commit("the module goes").expect("a commit");
    stage.start();
    goes_whole(&stage).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-extra").await;
    stage.kyma_in("one", "Ready").await;
}
