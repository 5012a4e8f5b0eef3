//! A removal from runtimes that waits for a confirmation: everything stays there until then, also modules that a user
//! or another client has added, and also after restarts and other commits. A confirmed removal in turn waits for custom
//! resources of users.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::{KYMA, SOURCE, api, condition, merge, modules, suspend};
use crate::{
    harness,
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    a_module_that_a_user_added_waits_when_git_decides_again,
    a_module_that_a_client_added_while_the_source_was_suspended_waits_when_it_resumes,
    custom_resources_that_belong_to_the_module_do_not_hold_its_removal,
    a_removal_that_waits_outlives_a_restart_and_a_commit_about_something_else,
    a_removal_that_waits_outlives_a_client_and_a_user_who_drop_the_module,
    a_module_that_is_renamed_to_an_invalid_name_stays_in_the_runtime;
    on real servers:
    an_object_that_never_existed_leaves_without_a_confirmation,
}

const OF_SOURCE: (&str, &str) = (SOURCE, "GitSource");
const OF_KYMA: (&str, &str) = (KYMA, "Kyma");

/// A stage with one runtime whose Kyma has this definition. Every removal asks.
async fn asking(kyma: &str, more: &[(&str, String)], extent: Extent) -> Stage {
    let mut files = stage::files(0);
    files.push(("kymas/one.yaml".to_owned(), kyma.to_owned()));
    let files = files.iter().map(|(path, text)| (path.as_str(), text.clone())).chain(more.iter().cloned());
    let stage = Stage::with(1, extent, &files.collect::<Vec<_>>(), &[]).await;
    merge(&stage.kcp, OF_SOURCE, "kcp-system", "landscape", json!({"spec": {"removalLimit": 0}})).await;
    stage.start();
    stage
}

/// The UID of an object of a module in the runtime.
async fn uid(stage: &Stage, name: &str) -> Option<Value> {
    Some(read(&stage.skrs[0], "ConfigMap", "kyma-system", name).await?["metadata"]["uid"].clone())
}

async fn installed(stage: &Stage, name: &str) -> Value {
    stage.until("the module is installed", &stage.skrs[0], "ConfigMap", "kyma-system", name, |_| true).await;
    uid(stage, name).await.expect("it is there")
}

/// Waits until source and Kyma say that the removal of a module waits.
async fn waits(stage: &Stage, commit: &str, module: &str) {
    let sentence = format!("module {module} is removed from 1 runtime, more than the removal limit of 0");
    let is_waiting = |source: &Value| {
        source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(commit))
            && condition(source, "Ready").starts_with("\"False\" \"RemovalUnconfirmed\"")
            && condition(source, "Applied").contains(&sentence)
    };
    stage.until("the source says what waits", &stage.kcp, "GitSource", "kcp-system", "landscape", is_waiting).await;
    let says = |kyma: &Value| condition(kyma, "tidegate.dev/Removal").contains(&format!("removes module {module}"));
    stage.until("the Kyma says what waits", &stage.kcp, "Kyma", "kcp-system", "one", says).await;
    stage.rests().await;
}

async fn confirm(stage: &Stage, commit: &str) {
    let confirmed = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}});
    merge(&stage.kcp, OF_SOURCE, "kcp-system", "landscape", confirmed).await;
}

/// The deletes in runtimes that `tidegate diff --live` shows for the work tree, as `effect kind name`.
async fn predicted(stage: &Stage) -> Vec<String> {
    let path = stage.repository.path().to_str().expect("UTF-8");
    let output = stage.command(&["diff", path, "--live", "-o", "json"]).await;
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let differences = report["differences"].as_array().expect("a list");
    let deletes = differences.iter().filter(|one| one["action"] == "delete" && one["target"] == "runtime");
    let text = |one: &Value, pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
    deletes
        .map(|one| format!("{} {} {}", text(one, "/effect"), text(one, "/object/kind"), text(one, "/object/name")))
        .collect()
}

/// The deletes of the runtime that the daemon has sent.
fn deletes(stage: &Stage, mark: u64) -> Vec<String> {
    let records = super::requests(&stage.landscape.skrs[0], mark);
    let deletes = records.into_iter().filter(|record| record.verb == "delete");
    deletes.map(|record| format!("{} {}", record.resource, record.name)).collect()
}

const OF_MAILER: [&str; 3] = [
    "needs-confirmation ClusterRole mailer",
    "needs-confirmation ConfigMap mailer-a",
    "needs-confirmation ConfigMap mailer-b",
];

async fn a_module_that_a_user_added_waits_when_git_decides_again() {
    let of_runtime = stage::kyma("one", &[]).replace("  modules: []\n", "");
    assert!(!of_runtime.contains("modules"), "the user decides");
    let stage = asking(&of_runtime, &[], Extent::default()).await;
    let skr = &stage.skrs[0];
    stage.kyma_in("one", "Ready").await;
    let both = json!([{"name": "cache", "managed": true}, {"name": "mailer", "managed": true}]);
    merge(skr, OF_KYMA, "kyma-system", "default", json!({"spec": {"modules": both}})).await;
    let asked = stage.command(&["reconcile", "kyma/one", "--wait", "--timeout=120s"]).await;
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    let mailer = installed(&stage, "mailer-a").await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    let mark = stage.marks()[1];
    stage.repository.write("kymas/one.yaml", &stage::kyma("one", &["cache"])).expect("a file");
    let mut shown = predicted(&stage).await;
    shown.sort();
    assert_eq!(shown, OF_MAILER);
    let commit = stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    waits(&stage, &commit, "mailer").await;
    assert_eq!(deletes(&stage, mark), [""; 0]);
    assert_eq!(uid(&stage, "mailer-a").await, Some(mailer));
    let user = read(skr, "Kyma", "kyma-system", "default").await.expect("there");
    assert_eq!(modules(&user), ["cache", "mailer"], "the user's list is still the user's");
    confirm(&stage, &commit).await;
    stage.until_gone(skr, "ConfigMap", "kyma-system", "mailer-a").await;
    stage.kyma_in("one", "Ready").await;
    assert!(uid(&stage, "cache-a").await.is_some());
}

async fn a_module_that_a_client_added_while_the_source_was_suspended_waits_when_it_resumes() {
    let stage = asking(&stage::kyma("one", &["cache"]), &[], Extent::default()).await;
    stage.kyma_in("one", "Ready").await;
    suspend(&stage).await;
    let both = json!([{"name": "cache", "managed": true}, {"name": "mailer", "managed": true}]);
    merge(&stage.kcp, OF_KYMA, "kcp-system", "one", json!({"spec": {"modules": both}})).await;
    let mailer = installed(&stage, "mailer-a").await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    let mark = stage.marks()[1];
    merge(&stage.kcp, OF_SOURCE, "kcp-system", "landscape", json!({"spec": {"suspend": false}})).await;
    let commit = stage.repository.head().expect("a commit");
    waits(&stage, &commit, "mailer").await;
    let mut shown = predicted(&stage).await;
    shown.sort();
    assert_eq!(shown, OF_MAILER);
    assert_eq!(deletes(&stage, mark), [""; 0]);
    assert_eq!(uid(&stage, "mailer-a").await, Some(mailer));
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("there");
    assert_eq!(modules(&kyma), ["cache", "mailer"]);
    confirm(&stage, &commit).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
    assert!(uid(&stage, "cache-a").await.is_some());
}

/// The controller of the module.
const MANAGER: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: cache-manager, namespace: kyma-system}
spec:
  selector: {matchLabels: {app: cache}}
  template:
    metadata: {labels: {app: cache}}
    spec: {containers: [{name: manager, image: example.org/cache}]}
"#;

async fn custom_resources_that_belong_to_the_module_do_not_hold_its_removal() {
    let more = [("modules/cache/1.0.0/objects/more.yaml", format!("{}---\n{MANAGER}", stage::box_crd("{}")))];
    let stage = asking(&stage::kyma("one", &["cache", "mailer"]), &more, Extent::Controllers).await;
    let skr = &stage.skrs[0];
    let there = async |kind: &str, name: &str| {
        stage.until("it is there", skr, kind, "kyma-system", name, |_| true).await;
        let object = read(skr, kind, "kyma-system", name).await.expect("it is there");
        json!({"apiVersion": object["apiVersion"], "kind": kind, "name": name, "uid": object["metadata"]["uid"]})
    };
    let (default, manager) = (there("Thing", "cache-default").await, there("Deployment", "cache-manager").await);
    let theirs =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs", "namespace": "kyma-system"}});
    harness::apply(skr, &theirs).await;
    let theirs = there("ConfigMap", "theirs").await;
    let resource = |kind: &str, name: &str, owner: &Value| {
        json!({
            "apiVersion": "example.org/v1", "kind": kind,
            "metadata": {"name": name, "namespace": "kyma-system", "ownerReferences": [owner]},
        })
    };
    for object in [
        resource("Thing", "of-default", &default),
        resource("Thing", "of-manager", &manager),
        resource("Box", "of-default", &default),
        resource("Box", "of-manager", &manager),
        resource("Thing", "of-a-user", &theirs),
        resource("Box", "of-a-user", &theirs),
    ] {
        harness::apply(skr, &object).await;
    }
    stage.rests().await;

    let commit = stage.commit("kymas/one.yaml", &stage::kyma("one", &["mailer"]));
    waits(&stage, &commit, "cache").await;
    confirm(&stage, &commit).await;
    let manifests = api(&stage.kcp, KYMA, "Manifest", "kcp-system").await.list(&Default::default()).await;
    let names = manifests.expect("a list").items.into_iter().filter_map(|manifest| manifest.metadata.name);
    let name = names.into_iter().find(|name| name.starts_with("one-cache-")).expect("a Manifest");
    let waiting = async |what: &str| {
        let operation = format!("waiting for module crs deletion: {what}");
        let is = |manifest: &Value| manifest["status"]["lastOperation"]["operation"] == operation.as_str();
        stage.until(what, &stage.kcp, "Manifest", "kcp-system", &name, is).await;
    };
    for kind in ["Box", "Thing"] {
        waiting(&format!("{kind}.example.org kyma-system/of-a-user")).await;
        assert!(uid(&stage, "cache-a").await.is_some(), "the module stays");
        let theirs = api(skr, "example.org/v1", kind, "kyma-system").await;
        theirs.delete("of-a-user", &DeleteParams::default()).await.expect("a delete");
    }
    stage.until_gone(skr, "ConfigMap", "kyma-system", "cache-a").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name).await;
}

async fn a_removal_that_waits_outlives_a_restart_and_a_commit_about_something_else() {
    let stage = asking(&stage::kyma("one", &["cache", "mailer"]), &[], Extent::default()).await;
    stage.kyma_in("one", "Ready").await;
    let mailer = installed(&stage, "mailer-a").await;
    let mark = stage.marks()[1];
    let first = stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    waits(&stage, &first, "mailer").await;
    stage.kill().await;
    stage.start();
    waits(&stage, &first, "mailer").await;
    stage.kill().await;
    stage.forget();
    stage.start();
    waits(&stage, &first, "mailer").await;

    let changed = stage::module("cache", "1.0.0", "changed").remove(1).1;
    let second = stage.commit("modules/cache/1.0.0/objects/objects.yaml", &changed);
    let arrives = |map: &Value| map["data"]["text"] == "changed";
    stage.until("the change arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", arrives).await;
    waits(&stage, &second, "mailer").await;
    // The confirmation of a former commit does not allow what the present one removes.
    confirm(&stage, &first).await;
    waits(&stage, &second, "mailer").await;
    assert_eq!(deletes(&stage, mark), [""; 0]);
    assert_eq!(uid(&stage, "mailer-a").await, Some(mailer));
    confirm(&stage, &second).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
}

async fn a_removal_that_waits_outlives_a_client_and_a_user_who_drop_the_module() {
    // Also where users add modules to those of git.
    for mode in ["git", "merge"] {
        let of_mode = |modules: &[&str]| {
            let annotations = format!("metadata: {{annotations: {{tidegate.dev/modules-from: {mode}}}, ");
            stage::kyma("one", modules).replace("metadata: {", &annotations)
        };
        let stage = asking(&of_mode(&["cache", "mailer"]), &[], Extent::default()).await;
        let skr = &stage.skrs[0];
        stage.kyma_in("one", "Ready").await;
        let mailer = installed(&stage, "mailer-a").await;
        let mark = stage.marks()[1];
        let commit = stage.commit("kymas/one.yaml", &of_mode(&["cache"]));
        waits(&stage, &commit, "mailer").await;
        let only_cache = json!({"spec": {"modules": [{"name": "cache", "managed": true}]}});
        merge(&stage.kcp, OF_KYMA, "kcp-system", "one", only_cache.clone()).await;
        merge(skr, OF_KYMA, "kyma-system", "default", only_cache).await;
        let asked = stage.command(&["reconcile", "kyma/one", "--wait", "--timeout=120s"]).await;
        assert_eq!(asked.status.code(), Some(0), "{asked:?}");
        harness::holds("the module stays", stage::QUIET, async || match uid(&stage, "mailer-a").await {
            Some(found) if found == mailer => Ok(()),
            other => Err(format!("{mode}: {other:?}")),
        })
        .await;
        waits(&stage, &commit, "mailer").await;
        stage.kill().await;
        stage.start();
        waits(&stage, &commit, "mailer").await;
        assert_eq!(deletes(&stage, mark), [""; 0], "{mode}");
        assert_eq!(uid(&stage, "mailer-a").await, Some(mailer), "{mode}");
        confirm(&stage, &commit).await;
        stage.until_gone(skr, "ConfigMap", "kyma-system", "mailer-a").await;
        assert!(uid(&stage, "cache-a").await.is_some(), "{mode}");
    }
}

/// Its namespace does not exist, so the API server refuses it. The commit that drops it again takes nothing.
async fn an_object_that_never_existed_leaves_without_a_confirmation() {
    let stage = asking(&stage::kyma("one", &["cache", "mailer"]), &[], Extent::default()).await;
    installed(&stage, "mailer-a").await;
    stage.kyma_in("one", "Ready").await;
    let path = "modules/mailer/2.0.0/objects/elsewhere.yaml";
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: elsewhere, namespace: nowhere}\n";
    stage.repository.write(path, text).expect("a file");
    let repository = stage.repository.path().to_str().expect("UTF-8");
    let output = stage.command(&["diff", repository, "--live"]).await;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(3), "{shown}");
    assert!(shown.lines().any(|headline| headline.ends_with("; 1 object rejected")), "{shown}");
    let offline = stage.command_offline(&["diff", repository]).await;
    let shown = String::from_utf8_lossy(&offline.stdout).into_owned();
    let unknown = "namespace nowhere in the runtime, which module mailer does not create: if it does not exist, its objects \
                   are refused, and nothing of the module is pruned";
    assert!(shown.contains(unknown), "{shown}");
    stage.repository.commit("an object without its namespace").expect("a commit");
    let kyma = stage.kyma_in("one", "Error").await;
    let said = kyma["status"].to_string();
    let next =
        "add Namespace nowhere below `modules/mailer/2.0.0/objects` in the repository, or create it in the runtime";
    assert!(said.contains(next), "{said}");
    stage.repository.remove(path).expect("removed");
    assert_eq!(predicted(&stage).await, [""; 0]);
    let commit = stage.repository.commit("it goes again").expect("a commit");
    let is_ready = |source: &Value| {
        source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&commit))
            && condition(source, "Ready").starts_with("\"True\"")
    };
    stage.until("nothing waits", &stage.kcp, "GitSource", "kcp-system", "landscape", is_ready).await;
    stage.kyma_in("one", "Ready").await;
}

async fn a_module_that_is_renamed_to_an_invalid_name_stays_in_the_runtime() {
    let stage = stage::ready(2).await;
    let cache = installed(&stage, "cache-a").await;
    let mark = stage.marks()[1];
    let repository = &stage.repository;
    let folder = "modules/cache";
    let files = stage::files(0).into_iter().map(|(path, _)| path).filter(|path| path.starts_with(folder));
    files.for_each(|path| repository.remove(&path).expect("a file"));
    let rename = |name: &str| {
        for (path, text) in stage::module("cache", "1.0.0", "one") {
            let text = text.replace("/cache/", "/depot/").replace("name: cache-1.0.0", &format!("name: {name}-1.0.0"));
            let text = text.replace("moduleName: cache", &format!("moduleName: {name}"));
            repository.write(&path.replace("/cache/", "/depot/"), &text).expect("a file");
        }
        repository.write("modules/depot/1.0.0/objects/crd.yaml", stage::THING_CRD).expect("a file");
        repository.write("modules/depot/release.yaml", &stage::release(name, &[("regular", "1.0.0")])).expect("a file");
        for kyma in stage::KYMAS {
            repository.write(&format!("kymas/{kyma}.yaml"), &stage::kyma(kyma, &[name, "mailer"])).expect("a file");
        }
    };
    rename("Depot");
    let sentences: Vec<String> = stage::KYMAS
        .iter()
        .map(|kyma| {
            format!("Kyma kcp-system/{kyma} names module Depot, whose ModuleReleaseMeta is held back and is not in KCP")
        })
        .collect();
    let path = repository.path().to_str().expect("UTF-8");
    let live = stage.command(&["diff", path, "--live", "-o", "json"]).await;
    let offline = stage.command_offline(&["diff", path, "--from", "HEAD", "-o", "json"]).await;
    for output in [live, offline] {
        let report: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        let held = report["held"].as_array().expect("a list");
        for sentence in &sentences {
            let found = held.iter().find(|one| one["message"] == sentence.as_str());
            assert_eq!(found.map(|one| &one["why"]), Some(&json!("withheld")), "{sentence}: {report:#}");
        }
        let differences = report["differences"].as_array().expect("a list").iter();
        let in_runtimes: Vec<&Value> = differences.filter(|one| one["target"] == "runtime").collect();
        assert!(in_runtimes.is_empty(), "nothing happens there: {in_runtimes:#?}");
    }

    let commit = repository.commit("the module has an invalid name").expect("a commit");
    let is_held = |source: &Value| {
        source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&commit))
            && condition(source, "Ready").starts_with("\"False\" \"Withheld\"")
    };
    stage.until("it is held back", &stage.kcp, "GitSource", "kcp-system", "landscape", is_held).await;
    stage.rests().await;
    assert_eq!(deletes(&stage, mark), [""; 0]);
    assert_eq!(uid(&stage, "cache-a").await, Some(cache));
    for kyma in stage::KYMAS {
        let kyma = read(&stage.kcp, "Kyma", "kcp-system", kyma).await.expect("there");
        assert_eq!(modules(&kyma), ["cache", "mailer"]);
    }
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let warned: Vec<&str> = log.lines().filter(|line| line.contains("the revision has an error")).collect();
    assert!(!warned.is_empty(), "{log}");
    assert!(!warned.iter().any(|line| line.contains("kymas/")), "one for each cause: {warned:#?}");

    rename("depot");
    repository.commit("the module has a valid name").expect("a commit");
    for kyma in stage::KYMAS {
        stage
            .until("the module has its new name", &stage.kcp, "Kyma", "kcp-system", kyma, |kyma| {
                let modules = kyma["status"]["modules"].to_string();
                kyma["status"]["state"] == "Ready" && modules.contains("depot") && !modules.contains("\"cache\"")
            })
            .await;
    }
    // The versions go without a user: only their ModuleReleaseMeta needs a confirmation.
    stage.until_gone(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await;
    let log = std::fs::read_to_string(stage.log()).expect("a log");
    let warned: Vec<&str> =
        log.lines().filter(|line| line.contains("are not pruned") && line.contains("confirm")).collect();
    assert!(warned.iter().any(|line| line.contains("ModuleReleaseMeta kcp-system/cache")), "{log}");
    assert!(!warned.iter().any(|line| line.contains("ModuleTemplate")), "{warned:?}");
}
