//! What one commit, or one command, takes from runtimes: it waits for a confirmation, or nothing goes at all.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    deploy,
    harness::{self, api_of, apply},
    stage::{self, Stage, read},
};

const KYMAS: &str = "operator.kyma-project.io/v1beta2";

async fn delete(stage: &Stage, object: &Value) {
    let api = api_of(&stage.kcp, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.delete(name, &DeleteParams::default()).await.expect("a delete");
}

/// `docs/uninstall.md`, step by step.
#[tokio::test(flavor = "multi_thread")]
async fn leaving_in_order_changes_nothing_in_a_runtime() {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    // Only a real API server deletes custom resources with their definition.
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    let base = deploy::objects("base");
    for object in &base {
        apply(&stage.kcp, object).await;
    }
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let installed = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is installed");

    let named = |kind: &str, api_version: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "kcp-system"}});
    delete(&stage, &named("GitSource", "tidegate.dev/v1alpha1", "landscape")).await;
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    delete(&stage, &named("Watcher", KYMAS, "watcher")).await;
    stage.until_gone(&stage.kcp, "Watcher", "kcp-system", "watcher").await;
    for object in &base {
        delete(&stage, object).await;
    }
    stage.kill().await;
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it stays");
    assert_eq!(kyma["metadata"]["labels"]["tidegate.dev/source"], Value::Null, "no source owns it");
    assert!(read(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await.is_some());

    for kind in ["Kyma", "Manifest", "ModuleReleaseMeta"] {
        let api = api_of(&stage.kcp, &named(kind, KYMAS, "any")).await.expect("a kind that is served");
        for object in api.list(&ListParams::default()).await.expect("a list") {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let name = object.metadata.name.as_deref().expect("a name");
            api.patch(name, &PatchParams::default(), &free).await.expect("a patch");
        }
    }
    let setup = deploy::objects("setup");
    for object in setup.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        delete(&stage, object).await;
        let name = object["metadata"]["name"].as_str().expect("a name");
        stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", name).await;
    }
    assert!(read(&stage.kcp, "Secret", "kcp-system", "access-one").await.is_some(), "the namespace stays");
    let still = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it stays");
    assert_eq!(still["metadata"]["resourceVersion"], installed["metadata"]["resourceVersion"]);
    assert!(harness::api_of(&stage.kcp, &named("Kyma", KYMAS, "one")).await.is_err(), "no definition is left");
}
