//! The page about disaster recovery: a lost control plane, a lost repository and a lost state folder. kubectl and this
//! program reach simulated servers as they reach real ones.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::{Shell, blocks_of, section};
use crate::{
    git::repository::git,
    harness::{self, SOON, eventually, holds},
    stage::{self, QUIET, Server, Stage, read, scenarios},
};

scenarios!(a_lost_state_folder_changes_nothing_also_together_with_git);

const PAGE: &str = "disaster-recovery.md";
/// The repository of the page.
const EXAMPLE: &str = "https://git.example.com/team/landscape.git";

/// UID and resource version of each object of the modules, by runtime, kind and name: an object that is the same here
/// was neither written nor made anew.
async fn installed(stage: &Stage) -> BTreeMap<String, (Value, Value)> {
    let mut found = BTreeMap::new();
    for (index, skr) in stage.skrs.iter().enumerate() {
        for (kind, name) in [
            ("ConfigMap", "cache-a"),
            ("ConfigMap", "cache-b"),
            ("ConfigMap", "mailer-a"),
            ("ConfigMap", "mailer-b"),
            ("ClusterRole", "cache"),
            ("ClusterRole", "mailer"),
            ("CustomResourceDefinition", "things.example.org"),
            ("Thing", "cache-default"),
        ] {
            let namespace = if ["ConfigMap", "Thing"].contains(&kind) { "kyma-system" } else { "" };
            if let Some(object) = read(skr, kind, namespace, name).await {
                let metadata = &object["metadata"];
                let state = (metadata["uid"].clone(), metadata["resourceVersion"].clone());
                found.insert(format!("{index} {kind} {name}"), state);
            }
        }
    }
    found
}

/// What the daemon deleted in runtimes since then.
fn deleted(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_delete = |request: &String| request.starts_with("skr-") && request.contains(" delete");
    stage.requests_since(marks).into_iter().filter(is_delete).collect()
}

/// Waits until a condition of the GitSource has this status and reason.
async fn until_source(stage: &Stage, type_: &str, status: &str, reason: Option<&str>) {
    let holds = |source: &Value| {
        let conditions = source["status"]["conditions"].as_array().into_iter().flatten();
        conditions
            .filter(|one| one["type"] == type_)
            .any(|one| one["status"] == status && reason.is_none_or(|reason| one["reason"] == reason))
    };
    let what = format!("{type_} is {status} {}", reason.unwrap_or_default());
    stage.until(&what, &stage.kcp, "GitSource", "kcp-system", "landscape", holds).await;
}

fn borrowed(files: &[(String, String)]) -> Vec<(&str, String)> {
    files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect()
}

/// Another client changes an object of a module in the first runtime.
async fn change(stage: &Stage, name: &str) {
    let found = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kyma-system"},
        "data": {"text": "changed"},
    });
    harness::apply(&stage.skrs[0], &found).await;
}

async fn until_repaired(stage: &Stage, name: &str, text: &str) {
    let is_whole = |map: &Value| map["data"]["text"] == text;
    stage.until("it is repaired", &stage.skrs[0], "ConfigMap", "kyma-system", name, is_whole).await;
}

/// A new control plane, from what was saved of the first one.
#[tokio::test(flavor = "multi_thread")]
async fn the_recovery_of_a_lost_control_plane_is_followed_word_for_word() {
    tidegate_process::tls::install();
    let mut files = stage::files(0);
    files.push(("kymas/dev.yaml".to_owned(), stage::kyma("dev", &["cache", "mailer"])));
    // The later version lacks an object, which only the inventory knows.
    let objects = |path: &str| path == "modules/cache/1.1.0/objects/objects.yaml";
    let (_, text) = files.iter_mut().find(|(path, _)| objects(path)).expect("objects");
    let kept: Vec<&str> = text.split("---\n").filter(|object| !object.contains("cache-b")).collect();
    *text = kept.join("---\n");
    let mut stage = Stage::with(2, Extent::Controllers, &borrowed(&files), &[]).await;
    harness::apply(&stage.kcp, &stage::access_secret("dev", &stage.landscape.skrs[0])).await;
    let istio = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
    let authority = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "klm-watcher", "namespace": "istio-system"},
        "data": {"tls.crt": "YQ==", "tls.key": "Yg=="},
    });
    let of_broker: Value = serde_yaml::from_str(&stage::kyma("two", &["mailer"])).expect("YAML");
    for object in [&istio, &authority, &of_broker] {
        harness::apply(&stage.kcp, object).await;
    }
    stage.start();
    for kyma in ["dev", "two"] {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.rests().await;
    let folder = harness::folder();
    symlink(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy"), folder.path().join("deploy")).expect("a link");
    let shell = Shell::new(folder.path(), Some(stage.kubeconfig())).await;
    let [backup] = &blocks_of(&section(PAGE, "## What to save"))[..] else { panic!("one block") };
    shell.well(backup).await;
    let before = installed(&stage).await;
    assert_eq!(before.len(), 11, "{before:#?}");

    // The daemon and its disk are lost as well.
    stage.kill().await;
    stage.forget();
    stage.landscape.kcp = Server::bare().await;
    stage.kcp = stage.landscape.kcp.client();
    stage.kubeconfig();
    let marks = stage.marks();
    let steps = blocks_of(&section(PAGE, "## Lost control plane"));
    let [setup, create, statuses, suspend, base, check, resume] = &steps[..] else { panic!("{steps:#?}") };
    shell.well(setup).await;
    harness::apply(&stage.kcp, &istio).await;
    for step in [create, statuses, suspend, base] {
        shell.well(step).await;
    }
    // There is no pod.
    stage.start();
    stage.kyma_in("dev", "Ready").await;
    until_source(&stage, "Ready", "True", None).await;
    let said = shell.well(check).await;
    assert!(said.contains("landscape") && said.contains("cache") && said.contains("mailer"), "{said}");
    let other = stage.requests_since(&marks).into_iter().filter(|request| {
        request.starts_with("skr-2 ")
            && [" patch ", " create ", " update ", " delete"].iter().any(|verb| request.contains(verb))
    });
    assert_eq!(other.collect::<Vec<_>>(), [""; 0], "its Kyma is suspended");
    shell.well(resume).await;
    stage.kyma_in("two", "Ready").await;
    stage.rests().await;
    assert_eq!(installed(&stage).await, before, "no object of a module is written");
    assert_eq!(deleted(&stage, &marks), [""; 0]);
    let saved = read(&stage.kcp, "Secret", "istio-system", "klm-watcher").await.expect("it is there");
    assert_eq!(saved["data"], authority["data"]);

    // What git removes from now on goes: an object of the former version, and a module.
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-b").await;
    stage.commit("kymas/dev.yaml", &stage::kyma("dev", &["cache"]));
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
    stage.kyma_in("dev", "Ready").await;
}

/// The git server is away, comes back, comes back with an older state, moves, and is lost for good.
#[tokio::test(flavor = "multi_thread")]
async fn the_recovery_of_a_lost_repository_is_followed_word_for_word() {
    tidegate_process::tls::install();
    let stage = Stage::with(2, Extent::Controllers, &borrowed(&stage::files(1)), &[]).await;
    let steps = blocks_of(&section(PAGE, "## Lost git"));
    let [push, accept, address, suspend, mirror, export, resume] = &steps[..] else { panic!("{steps:#?}") };
    assert!(address.contains(EXAMPLE), "{address}");
    // The work tree of the stage is the clone of a user. Its server has the bare repository.
    let clone = stage.repository.path().to_owned();
    let place = clone.parent().expect("a folder").to_owned();
    let host = place.join("landscape.git");
    let url = |folder: &Path| format!("file://{}", folder.display());
    let shell = Shell::new(&clone, Some(stage.kubeconfig())).await;
    shell.well("git clone -q --bare . ../landscape.git && git remote add origin ../landscape.git").await;
    shell.well(&address.replace(EXAMPLE, &url(&host))).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let older = stage.repository.head().expect("a commit");
    stage.commit("kymas/two.yaml", &stage::kyma("two", &["cache", "mailer"]));
    shell.well(push).await;
    let applied = async || shell.well("tidegate reconcile gitsource/landscape --wait").await;
    applied().await;
    stage.kyma_in("two", "Ready").await;
    stage.rests().await;
    let marks = stage.marks();

    // Away, also for a new process. Then it is back.
    fs::rename(&host, place.join("away")).expect("a move");
    stage.kill().await;
    stage.start();
    until_source(&stage, "Fetched", "False", None).await;
    change(&stage, "cache-a").await;
    shell.well("tidegate reconcile kyma/one").await;
    until_repaired(&stage, "cache-a", "one").await;
    let before = installed(&stage).await;
    assert_eq!(before.len(), 16, "{before:#?}");
    fs::rename(place.join("away"), &host).expect("a move");
    applied().await;
    until_source(&stage, "Fetched", "True", None).await;

    // An older backup lacks the commit with the second Kyma.
    git(&host, &["update-ref", "refs/heads/main", &older]);
    shell.well("tidegate reconcile gitsource/landscape").await;
    until_source(&stage, "Fetched", "False", Some("Rewritten")).await;
    shell.well(accept).await;
    until_source(&stage, "Ready", "False", Some("PruneUnconfirmed")).await;
    assert!(read(&stage.kcp, "Kyma", "kcp-system", "two").await.is_some(), "it waits for a confirmation");
    shell.well(push).await;
    applied().await;
    let strict = accept.replace("true", "false");
    assert_ne!(&strict, accept);
    shell.well(&strict).await;
    applied().await;

    // Another address with the same content.
    let elsewhere = place.join("elsewhere.git");
    fs::rename(&host, &elsewhere).expect("a move");
    shell.well(&address.replace(EXAMPLE, &url(&elsewhere))).await;
    applied().await;

    // Lost, with all clones.
    shell.well(suspend).await;
    fs::remove_dir_all(&elsewhere).expect("a folder");
    let folder = harness::folder();
    let exported = Shell::new(folder.path(), Some(stage.kubeconfig())).await;
    let (said, code) = exported.run(export).await;
    assert!(code == 5 && said.contains("cache-1.0.0") && said.contains("kcp-system/landscape"), "{code} {said}");
    assert!(folder.path().join("landscape").is_dir(), "{said}");
    let shell = Shell::new(&place, Some(stage.kubeconfig())).await;
    shell.well(&mirror.replace("STATE", "state")).await;
    for (path, text) in stage::files(2) {
        let found = fs::read_to_string(place.join("landscape").join(&path)).unwrap_or_default();
        assert_eq!(found, text, "{path}");
    }
    shell.well("git init -q -b main landscape && cd landscape && git add . && git commit -qm 'as it was'").await;
    shell.well(&address.replace(EXAMPLE, &url(&place.join("landscape")))).await;
    shell.well(resume).await;
    let anew = git(&place.join("landscape"), &["rev-parse", "HEAD"]);
    let is_applied = |source: &Value| source["status"]["appliedRevision"] == format!("main@sha1:{anew}");
    stage.until("the new one is applied", &stage.kcp, "GitSource", "kcp-system", "landscape", is_applied).await;
    until_source(&stage, "Ready", "True", None).await;
    stage.rests().await;
    assert_eq!(installed(&stage).await, before, "no object of a module is written");
    assert_eq!(deleted(&stage, &marks), [""; 0]);
}

/// The section "Lost state": the folder alone, then together with the repository, then of a suspended source.
async fn a_lost_state_folder_changes_nothing_also_together_with_git() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    let before = installed(&stage).await;
    let marks = stage.marks();
    stage.kill().await;
    stage.forget();
    stage.start();
    until_source(&stage, "Ready", "True", None).await;
    stage.rests().await;
    assert_eq!(installed(&stage).await, before, "git answers: nothing to do");

    // Both at once.
    stage.kill().await;
    stage.forget();
    let (repository, away) = (stage.repository.path(), stage.repository.path().with_file_name("away"));
    fs::rename(repository, &away).expect("a move");
    change(&stage, "cache-a").await;
    let changed = installed(&stage).await;
    // It compares the runtimes soon.
    let often = ["--resync=10s"];
    stage.start_with(&often);
    until_source(&stage, "Fetched", "False", None).await;
    eventually("the Manifest says why it cannot be repaired", SOON, async || {
        let sample = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {"name": "any", "namespace": "kcp-system"},
        });
        let manifests = harness::api_of(&stage.kcp, &sample).await.map_err(|error| error.to_string())?;
        let found = manifests.list(&Default::default()).await.map_err(|error| error.to_string())?.items;
        let statuses: Vec<String> = found.iter().map(|manifest| manifest.data["status"].to_string()).collect();
        if statuses.iter().any(|status| status.contains("SourceUnavailable")) {
            Ok(())
        } else {
            Err(statuses.join("\n"))
        }
    })
    .await;
    let unchanged = async || {
        let found = installed(&stage).await;
        if found == changed { Ok(()) } else { Err(format!("{found:#?}")) }
    };
    holds("nothing is written, added or pruned", QUIET, unchanged).await;
    fs::rename(&away, repository).expect("a move");
    until_repaired(&stage, "cache-a", "one").await;
    until_source(&stage, "Ready", "True", None).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    // Nothing fetches what is suspended.
    let output = stage.command(&["suspend", "gitsource/landscape"]).await;
    assert!(output.status.success(), "{output:?}");
    until_source(&stage, "Ready", "False", Some("Suspended")).await;
    stage.kill().await;
    stage.forget();
    change(&stage, "mailer-a").await;
    stage.start_with(&often);
    let says = |source: &Value| {
        let conditions = source["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|one| one["type"] == "Ready").any(|one| one["message"].to_string().contains("not repaired"))
    };
    stage.until("it says so", &stage.kcp, "GitSource", "kcp-system", "landscape", says).await;
    let changed = installed(&stage).await;
    holds("its modules are not repaired", QUIET, async || {
        let found = installed(&stage).await;
        if found == changed { Ok(()) } else { Err(format!("{found:#?}")) }
    })
    .await;
    let output = stage.command(&["resume", "gitsource/landscape"]).await;
    assert!(output.status.success(), "{output:?}");
    until_repaired(&stage, "mailer-a", "mail").await;
    stage.kyma_in("one", "Ready").await;
    let after = installed(&stage).await;
    let uids = |all: &BTreeMap<String, (Value, Value)>| -> BTreeMap<String, Value> {
        all.iter().map(|(name, (uid, _))| (name.clone(), uid.clone())).collect()
    };
    assert_eq!(uids(&after), uids(&before), "no object was made anew");
    assert_eq!(deleted(&stage, &marks), [""; 0]);
}
