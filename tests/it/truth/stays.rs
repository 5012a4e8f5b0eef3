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
    what_a_service_no_longer_sets_stays_as_predicted,
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

const SERVICE: &str = "modules/mailer/2.0.0/objects/service.yaml";

/// Two Services: one without an address of its own, and one with a port on each node.
fn services(address: &str, node_port: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: mailer-headless, namespace: kyma-system}}\n\
         spec: {{{address}selector: {{app: a}}, ports: [{{name: web, port: 80}}]}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: mailer-node, namespace: kyma-system}}\n\
         spec: {{type: NodePort, selector: {{app: a}}, ports: [{{name: web, port: 80{node_port}}}]}}\n"
    )
}

/// Only an API server decides what it keeps.
async fn what_a_service_no_longer_sets_stays_as_predicted() {
    let stage = ready(SERVICE, &services("clusterIP: None, ", ", nodePort: 30123")).await;
    let spec = async |name: &str| {
        read(&stage.skrs[0], "Service", "kyma-system", name).await.expect("it is there")["spec"].clone()
    };
    let before = (spec("mailer-headless").await, spec("mailer-node").await);
    assert_eq!((&before.0["clusterIP"], &before.1["ports"][0]["nodePort"]), (&json!("None"), &json!(30123)));
    let kept = |report: &Value| -> Vec<String> {
        let held = report["held"].as_array().expect("what is held").iter().filter(|one| one["why"] == "kept");
        let mut said: Vec<String> = held.map(|one| one["message"].as_str().unwrap_or_default().to_owned()).collect();
        said.sort();
        said
    };
    let changes = |report: &Value| [of(report, "mailer-headless"), of(report, "mailer-node")].concat();
    let says = |name: &str, field: &str| {
        format!("Service kyma-system/{name} no longer sets {field}: this has no effect, the API server keeps it")
    };
    let expected = [says("mailer-headless", "spec.clusterIP"), says("mailer-node", "spec.ports[].nodePort")];

    let landscape = harness::folder();
    let file = landscape.path().join("landscape.yaml").display().to_string();
    assert!(stage.command(&["export", "--landscape", &file]).await.status.success());
    stage.repository.write(SERVICE, &services("", "")).expect("a file");
    let (report, _) = live(&stage, &[]).await;
    assert_eq!((kept(&report), changes(&report)), (expected.to_vec(), Vec::new()), "{report:#}");
    let path = stage.repository.path().to_str().expect("UTF-8").to_owned();
    let output = stage.command_offline(&["diff", &path, "--landscape", &file, "-o", "json"]).await;
    let offline: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!((kept(&offline), changes(&offline)), (expected.to_vec(), Vec::new()), "{offline:#}");

    stage.repository.commit("an address and a port go").expect("a commit");
    let tidegate = |service: &Value| {
        let claims = service["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let ours = claims.into_iter().find(|claim| claim["manager"] == "tidegate").unwrap_or_default();
        let text = ours.to_string();
        !text.contains("f:clusterIP") && !text.contains("f:nodePort")
    };
    for name in ["mailer-headless", "mailer-node"] {
        stage.until("it is applied", &stage.skrs[0], "Service", "kyma-system", name, tidegate).await;
    }
    stage.rests().await;
    assert_eq!((spec("mailer-headless").await, spec("mailer-node").await), before);
    let (report, code) = live(&stage, &[]).await;
    assert_eq!((kept(&report), code), (Vec::new(), 0), "it was said before: {report:#}");
}
