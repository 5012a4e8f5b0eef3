//! An object that leaves one source while another one declares it: it stays, and both comparisons say so.

use serde_json::{Value, json};
use tidegate_testbed::{Folder, Repository};

use crate::{
    harness,
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    an_object_that_another_source_declares_changes_hands,
    an_object_with_other_content_in_another_source_waits_for_leave,
}

/// A stage with a second source, `other`, that declares the Kyma of the first one with these modules.
async fn with_other(modules: &[&str]) -> (Stage, Repository, Folder) {
    let stage = stage::ready(1).await;
    let folder = harness::folder();
    let other = Repository::init(&folder.path().join("other")).expect("a repository");
    other.write("one.yaml", &stage::kyma("one", modules)).expect("written");
    other.commit("the same Kyma").expect("a commit");
    let mut source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("a source");
    source["metadata"] = json!({"name": "other", "namespace": "kcp-system"});
    source["spec"]["url"] = json!(other.url());
    source.as_object_mut().expect("an object").remove("status");
    harness::apply(&stage.kcp, &source).await;
    let is_held = |source: &Value| source["status"]["withheld"][0]["name"] == "one";
    stage.until("the other source holds it back", &stage.kcp, "GitSource", "kcp-system", "other", is_held).await;
    (stage, other, folder)
}

/// What the status of the other source says.
async fn said(stage: &Stage) -> String {
    let source = read(&stage.kcp, "GitSource", "kcp-system", "other").await.expect("a source");
    source["status"].to_string()
}

/// Drops the Kyma from the first source. Before, both comparisons say that it stays.
async fn dropped(stage: &Stage) {
    let folder = harness::folder();
    let landscape = folder.path().join("landscape.json");
    let landscape = landscape.to_str().expect("UTF-8");
    assert!(stage.command(&["export", "--landscape", landscape]).await.status.success());
    stage.repository.remove("kymas/one.yaml").expect("removed");
    let path = stage.repository.path().to_str().expect("UTF-8");
    for more in [["--live"].as_slice(), &["--landscape", landscape]] {
        let arguments = [&["diff", path, "-o", "json"], more].concat();
        let output = match more.contains(&"--live") {
            true => stage.command(&arguments).await,
            false => stage.command_offline(&arguments).await,
        };
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(report["differences"], json!([]), "{more:?}");
        let held = report["held"].as_array().expect("a list");
        let is_kept = |one: &&Value| {
            one["why"] == "kept"
                && one["message"].as_str().is_some_and(|text| text.contains("GitSource kcp-system/other declares it"))
                && one["hint"].as_str().is_some_and(|text| text.contains("tidegate.dev/adopt"))
        };
        assert_eq!(held.iter().filter(is_kept).count(), 1, "{more:?}: {held:?}");
    }
    let commit = stage.repository.commit("the Kyma goes").expect("a commit");
    let is_read = |source: &Value| {
        source["status"]["attemptedRevision"].as_str().is_some_and(|revision| revision.ends_with(&commit))
    };
    stage.until("the commit is read", &stage.kcp, "GitSource", "kcp-system", "landscape", is_read).await;
}

fn is_of_other(kyma: &Value) -> bool {
    kyma["metadata"]["labels"]["tidegate.dev/source"] == "kcp-system.other"
}

async fn an_object_that_another_source_declares_changes_hands() {
    let (stage, _other, _folder) = with_other(&["cache", "mailer"]).await;
    let said = said(&stage).await;
    assert!(said.contains("no longer declares it, this source takes it over without deleting it"), "{said}");
    let before = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("a Kyma");
    dropped(&stage).await;
    let after = stage.until("it changes hands", &stage.kcp, "Kyma", "kcp-system", "one", is_of_other).await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
}

async fn an_object_with_other_content_in_another_source_waits_for_leave() {
    let (stage, other, _folder) = with_other(&["mailer"]).await;
    let said = said(&stage).await;
    assert!(said.contains("no longer declares it, it stays as it is, because this definition has other"), "{said}");
    dropped(&stage).await;
    stage.rests().await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("a Kyma");
    assert!(!is_of_other(&kyma), "{kyma}");
    let text = stage::kyma("one", &["mailer"])
        .replace("metadata: {name: one,", "metadata: {annotations: {tidegate.dev/adopt: \"true\"}, name: one,");
    other.write("one.yaml", &text).expect("written");
    other.commit("with leave").expect("a commit");
    stage.until("it changes hands", &stage.kcp, "Kyma", "kcp-system", "one", is_of_other).await;
}
