//! When a module is ready, as rows of the conformance tables: the daemon on real servers, whose controllers run.

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::plan::manifest_name;
use tidegate_testbed::Extent;

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage, read},
};

/// Module `cache` with a default custom resource that has a status, and with a workload.
fn files(workload: &str) -> Vec<(String, String)> {
    let mut files = stage::module("cache", "1.0.0", "one");
    let crd = stage::THING_CRD.replace(
        "properties: {spec:",
        "properties: {status: {type: object, x-kubernetes-preserve-unknown-fields: true}, spec:",
    );
    files.push(("modules/cache/1.0.0/objects/crd.yaml".to_owned(), crd));
    files.push(("modules/cache/1.0.0/objects/workload.yaml".to_owned(), workload.to_owned()));
    files.push(("modules/cache/release.yaml".to_owned(), stage::release("cache", &[("regular", "1.0.0")])));
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &["cache"])));
    files
}

fn workload(kind: &str, more: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: cache, namespace: kyma-system}}\nspec:\n  {more}\n  \
         selector: {{matchLabels: {{app: cache}}}}\n  template:\n    metadata: {{labels: {{app: cache}}}}\n    \
         spec: {{containers: [{{name: main, image: \"x/y:1\"}}]}}\n"
    )
}

async fn running(files: Vec<(String, String)>, extent: Extent) -> Stage {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, extent, &files, &[]).await;
    stage.start();
    stage
}

fn name() -> String {
    manifest_name("one", "example.org/module/cache", "cache")
}

async fn manifest(stage: &Stage, state: &str, message: &str) -> Value {
    let is = |manifest: &Value| {
        manifest["status"]["state"] == state && manifest["status"]["lastOperation"]["operation"] == message
    };
    stage.until(&format!("it is {state}"), &stage.kcp, "Manifest", "kcp-system", &name(), is).await
}

/// Disables the module, and waits until all of it is gone.
async fn cleans_up(stage: &Stage, kind: &str) {
    stage.commit("kymas/one.yaml", &stage::kyma("one", &[]));
    stage.until_gone(&stage.skrs[0], kind, "kyma-system", "cache").await;
    stage.until_gone(&stage.skrs[0], "CustomResourceDefinition", "", "things.example.org").await;
    stage.until_gone(&stage.kcp, "Manifest", "kcp-system", &name()).await;
}

/// What the kubelet would say of the only pod.
async fn pod_says(stage: &Stage, phase: &str, container: Value) {
    let sample = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any", "namespace": "kyma-system"}});
    let pods = harness::api_of(&stage.skrs[0], &sample).await.unwrap();
    let pod = eventually("the pod", SOON, async || {
        let all = pods.list(&ListParams::default().labels("app=cache")).await.map_err(|error| error.to_string())?;
        all.items.into_iter().next().and_then(|pod| pod.metadata.name).ok_or_else(|| "none".to_owned())
    })
    .await;
    let ready = if container["ready"] == true { "True" } else { "False" };
    let mut status = json!({"name": "main", "image": "x/y:1", "imageID": "", "restartCount": 0});
    status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
    let patch = json!({"status": {
        "phase": phase, "conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [status],
    }});
    pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

const FAILED: &str = "manager is in error state";
const WAITS: &str = "waiting for resources to become ready";
const READY: &str = "installation is ready and resources can be used";

/// E21: a StatefulSet is as its pods: one that is only being created is waited for, a wrong image is an Error of the
/// Manifest, the module and the Kyma, although the default custom resource exists, and one that has started is waited
/// for. From an Error, the module can be disabled.
#[tokio::test(flavor = "multi_thread")]
async fn e21_a_stateful_set_is_as_its_pods() {
    let stage = running(files(&workload("StatefulSet", "replicas: 1")), Extent::Controllers).await;
    let waiting = |reason: &str| json!({"ready": false, "started": false, "state": {"waiting": {"reason": reason}}});
    let started = |ready: bool| json!({"ready": ready, "started": true, "state": {"running": {}}});
    manifest(&stage, "Processing", WAITS).await;
    pod_says(&stage, "Pending", waiting("ContainerCreating")).await;
    manifest(&stage, "Processing", WAITS).await;
    pod_says(&stage, "Pending", waiting("ErrImagePull")).await;
    let failed = manifest(&stage, "Error", FAILED).await;
    assert_eq!(failed["spec"]["resource"]["kind"], "Thing");
    assert!(read(&stage.skrs[0], "Thing", "kyma-system", "cache-default").await.is_some());
    stage
        .until("the Kyma says so", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            let module = &kyma["status"]["modules"][0];
            kyma["status"]["state"] == "Error" && module["state"] == "Error" && module["message"] == FAILED
        })
        .await;
    pod_says(&stage, "Running", started(false)).await;
    manifest(&stage, "Processing", WAITS).await;
    pod_says(&stage, "Running", started(true)).await;
    manifest(&stage, "Ready", READY).await;
    stage.kyma_in("one", "Ready").await;
    cleans_up(&stage, "StatefulSet").await;
}

/// E21: a Deployment that does not come up is an Error, and the module can be disabled from there.
#[tokio::test(flavor = "multi_thread")]
async fn e21_a_deployment_that_does_not_come_up_is_an_error() {
    let stage = running(files(&workload("Deployment", "progressDeadlineSeconds: 1")), Extent::Controllers).await;
    manifest(&stage, "Error", FAILED).await;
    assert!(read(&stage.skrs[0], "Thing", "kyma-system", "cache-default").await.is_some());
    cleans_up(&stage, "Deployment").await;
}

/// E21: with its workload ready, a module is ready, whatever its default custom resource says.
#[tokio::test(flavor = "multi_thread")]
async fn e21_the_state_of_the_module_cr_does_not_count() {
    let stage = running(files(&workload("Deployment", "replicas: 1")), Extent::Node).await;
    manifest(&stage, "Ready", READY).await;
    stage.kyma_in("one", "Ready").await;
    let sample = json!({
        "apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "any", "namespace": "kyma-system"},
    });
    let things = harness::api_of(&stage.skrs[0], &sample).await.unwrap();
    let patch = Patch::Merge(json!({"status": {"state": "Warning"}}));
    things.patch("cache-default", &PatchParams::default(), &patch).await.unwrap();
    let request = Patch::Merge(json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "1"}}}));
    let sample = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "one", "namespace": "kcp-system"},
    });
    let kymas = harness::api_of(&stage.kcp, &sample).await.unwrap();
    kymas.patch("one", &PatchParams::default(), &request).await.unwrap();
    stage
        .until("the request is handled", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            let all = kyma["status"]["conditions"].as_array().into_iter().flatten();
            all.clone().any(|one| one["type"] == "tidegate.dev/ReconcileRequested" && one["message"] == "1")
        })
        .await;
    manifest(&stage, "Ready", READY).await;
    stage.kyma_in("one", "Ready").await;
}
