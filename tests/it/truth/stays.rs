//! What stays in a runtime although git no longer has it, and what must not: `diff` says of both what the daemon does.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::plan::manifest_name;

use crate::{
    harness::{self, apply},
    stage::{self, Stage, read, scenarios},
};

scenarios! {
    a_text_that_leaves_a_secret_leaves_runtimes_as_predicted,
    what_users_keep_for_ever_is_no_change_once_it_is_applied;
    on real servers:
    a_text_that_leaves_a_secret_leaves_a_real_runtime,
}

const SECRET: &str = "modules/mailer/2.0.0/objects/secret.yaml";
const CRD: &str = "modules/mailer/2.0.0/objects/crd.yaml";

fn secret(texts: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: mailer-secret, namespace: kyma-system}}\nstringData: {{{texts}}}\n"
    )
}

/// A stage with one runtime that has one file more.
async fn ready(path: &str, text: &str) -> Stage {
    let mut files = stage::files(1);
    files.push((path.to_owned(), text.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    stage
}

/// The report of a comparison with live clusters, and the exit code.
async fn live(stage: &Stage, more: &[&str]) -> (Value, i32) {
    let path = stage.repository.path().to_str().expect("UTF-8").to_owned();
    let output = stage.command(&[&["diff", &path, "--live", "-o", "json"], more].concat()).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (report, output.status.code().expect("a code"))
}

/// What a report says of the objects of a name: `change applies`.
fn of(report: &Value, name: &str) -> Vec<String> {
    let all = report["differences"].as_array().expect("differences").iter();
    let said = all.filter(|one| one["object"]["name"] == name);
    said.map(|one| format!("{} {}", one["action"].as_str().unwrap_or("?"), one["effect"].as_str().unwrap_or("?")))
        .collect()
}

/// The keys of the Secret in the runtime.
fn keys(secret: &Value) -> Vec<&str> {
    secret["data"].as_object().map(|data| data.keys().map(String::as_str).collect()).unwrap_or_default()
}

async fn until_keys(stage: &Stage, expected: &[&str]) {
    let has = |secret: &Value| keys(secret) == expected;
    stage.until("its keys", &stage.skrs[0], "Secret", "kyma-system", "mailer-secret", has).await;
}

async fn a_text_that_leaves_a_secret_leaves_runtimes_as_predicted() {
    texts_go().await;
}

async fn a_text_that_leaves_a_secret_leaves_a_real_runtime() {
    texts_go().await;
}

async fn texts_go() {
    let stage = ready(SECRET, &secret("a: first-text, b: second-text, c: third-text")).await;
    until_keys(&stage, &["a", "b", "c"]).await;
    stage.repository.write(SECRET, &secret("a: first-text, b: second-text")).expect("a file");
    let (report, code) = live(&stage, &[]).await;
    assert_eq!((of(&report, "mailer-secret"), code), (vec!["change applies".to_owned()], 1), "{report:#}");
    assert!(!report.to_string().contains("third-text"), "no text is shown");
    stage.repository.commit("a text goes").expect("a commit");
    until_keys(&stage, &["a", "b"]).await;
    stage.rests().await;

    // An earlier version applied texts as they are, so its claims are on a field that is never stored.
    let before = read(&stage.skrs[0], "Secret", "kyma-system", "mailer-secret").await.expect("it is there");
    let metadata = &before["metadata"];
    let earlier = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"a": "first-text", "b": "second-text"},
        "metadata": {"name": "mailer-secret", "namespace": "kyma-system", "labels": metadata["labels"],
            "annotations": metadata["annotations"]},
    });
    let api = harness::api_of(&stage.skrs[0], &earlier).await.expect("a kind that is served");
    api.patch("mailer-secret", &PatchParams::apply("tidegate").force(), &Patch::Apply(&earlier))
        .await
        .expect("a patch");
    let claims = api.get("mailer-secret").await.expect("it is there").metadata.managed_fields.unwrap_or_default();
    assert!(format!("{claims:?}").contains("f:stringData"), "{claims:?}");
    stage.repository.write(SECRET, &secret("a: first-text")).expect("a file");
    let (report, _) = live(&stage, &[]).await;
    assert_eq!(of(&report, "mailer-secret"), ["change applies"], "{report:#}");
    stage.repository.commit("another text goes").expect("a commit");
    until_keys(&stage, &["a"]).await;
    stage.rests().await;
    let (report, code) = live(&stage, &[]).await;
    assert_eq!((of(&report, "mailer-secret"), code), (Vec::new(), 0), "{report:#}");
}

async fn what_users_keep_for_ever_is_no_change_once_it_is_applied() {
    let stage = ready(CRD, &stage::box_crd("{tidegate.dev/prune: enabled}")).await;
    let mine = json!({"apiVersion": "example.org/v1", "kind": "Box", "metadata": {"name": "mine", "namespace": "kyma-system"}});
    apply(&stage.skrs[0], &mine).await;
    stage.repository.remove(CRD).expect("a file");
    let (report, code) = live(&stage, &["--fail-on", "delete"]).await;
    assert_eq!((of(&report, "boxes.example.org"), code), (vec!["delete held".to_owned()], 4), "{report:#}");
    let commit = stage.repository.commit("the definition goes").expect("a commit");
    let name = manifest_name("one", "example.org/module/mailer", "mailer");
    let source =
        |source: &Value| source["status"]["attemptedRevision"].as_str().is_some_and(|one| one.ends_with(&commit));
    let sample = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let now = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": commit}}});
    let api = harness::api_of(&stage.kcp, &sample).await.expect("a kind that is served");
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(now)).await.expect("a patch");
    stage.until("the commit is read", &stage.kcp, "GitSource", "kcp-system", "landscape", source).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.rests().await;
    assert!(read(&stage.kcp, "Manifest", "kcp-system", &name).await.is_some());
    let (report, code) = live(&stage, &["--fail-on", "delete"]).await;
    assert_eq!((of(&report, "boxes.example.org"), code), (Vec::new(), 0), "{report:#}");
    let why: Vec<&Value> = report["held"].as_array().expect("what is held").iter().map(|one| &one["why"]).collect();
    assert_eq!(why, ["kept-before"], "{report:#}");
    let api = harness::api_of(&stage.skrs[0], &mine).await.expect("a kind that is served");
    assert!(api.get_opt("mine").await.expect("an answer").is_some());
}
