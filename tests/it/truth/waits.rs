//! A module that waits says for what: the first object, what it lacks, and since when. Controllers and a pod decide, so
//! the servers are real ones.

use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage},
};

const DEPLOYMENT: &str = r#"apiVersion: apps/v1
kind: Deployment
metadata: {name: cache, namespace: kyma-system}
spec:
  replicas: 1
  selector: {matchLabels: {app: cache}}
  template:
    metadata: {labels: {app: cache}}
    spec: {containers: [{name: main, image: "registry.example/cache:1"}]}
"#;

const GUARD: &str = r#"apiVersion: operator.kyma-project.io/v1beta2
kind: ModuleReleaseMeta
metadata: {name: guard, namespace: kcp-system}
spec: {moduleName: guard, ocmComponentName: example.org/module/guard, mandatory: {version: 1.0.0}}
"#;

fn condition(object: &Value, type_: &str) -> String {
    let all = object["status"]["conditions"].as_array().into_iter().flatten();
    let found = all.filter(|condition| condition["type"] == type_).map(|condition| condition["message"].as_str());
    found.flatten().next().unwrap_or_default().to_owned()
}

/// What the kubelet says of the only pod of an app: why its container waits.
async fn pod_says(stage: &Stage, app: &str, reason: &str) {
    let container = json!({"name": "main", "image": format!("registry.example/{app}:1"), "imageID": "",
        "restartCount": 0, "ready": false, "started": false, "state": {"waiting": {"reason": reason}}});
    let sample = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "any", "namespace": "kyma-system"}});
    let pods = harness::api_of(&stage.skrs[0], &sample).await.expect("a kind that is served");
    let pod = eventually("the pod", SOON, async || {
        let all =
            pods.list(&ListParams::default().labels(&format!("app={app}"))).await.map_err(|error| error.to_string())?;
        all.items.into_iter().next().and_then(|pod| pod.metadata.name).ok_or_else(|| "none".to_owned())
    })
    .await;
    let patch = json!({"status": {"phase": "Pending", "containerStatuses": [container]}});
    pods.patch_status(&pod, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a status");
}

/// A mandatory module takes no part in the state of its Kyma, so a condition of its own says what it waits for.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_waits_names_the_object_and_what_it_lacks_and_a_mandatory_one_as_well() {
    let mut files = stage::files(1);
    files.push(("modules/mailer/2.0.0/objects/workload.yaml".to_owned(), DEPLOYMENT.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    stage.start();
    pod_says(&stage, "cache", "ImagePullBackOff").await;

    let lacks = "Deployment kyma-system/cache: the image `registry.example/cache:1` of container main cannot be pulled";
    let says = |kyma: &Value| {
        let hint = condition(kyma, "tidegate.dev/Hints");
        hint.starts_with("module mailer: waits since 20") && hint.ends_with(&format!(" for {lacks}"))
    };
    let kyma = stage.until("the Kyma says what it waits for", &stage.kcp, "Kyma", "kcp-system", "one", says).await;
    assert_eq!(kyma["status"]["lastOperation"]["operation"], "waiting for all modules to become ready");
    let manifest = kyma["status"]["modules"].as_array().expect("modules").iter();
    let manifest = manifest.filter(|module| module["name"] == "mailer").map(|module| &module["manifest"]["metadata"]);
    let manifest = manifest.filter_map(|metadata| metadata["name"].as_str()).next().expect("a Manifest").to_owned();
    let manifest = stage::read(&stage.kcp, "Manifest", "kcp-system", &manifest).await.expect("it is there");
    assert_eq!(manifest["status"]["lastOperation"]["operation"], "waiting for resources to become ready");
    assert_eq!(condition(&manifest, "tidegate.dev/WaitsFor"), lacks);
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("module mailer 2.0.0 (regular)  Processing: waits since 20"), "{text}");
    assert!(text.contains(lacks) && !text.contains("next: "), "{text}");

    for (path, text) in stage::module("guard", "1.0.0", "one") {
        stage.repository.write(&path, &text).expect("a file");
    }
    let workload = DEPLOYMENT.replace("cache", "guard");
    stage.repository.write("modules/guard/1.0.0/objects/workload.yaml", &workload).expect("a file");
    stage.commit("modules/guard/release.yaml", GUARD);
    pod_says(&stage, "guard", "ErrImagePull").await;
    let lacks = "Deployment kyma-system/guard: the image `registry.example/guard:1` of container main cannot be pulled";
    let says = |kyma: &Value| {
        let said = condition(kyma, "tidegate.dev/MandatoryModules");
        said.starts_with("waiting for mandatory modules: guard (waits since 20") && said.ends_with(&format!("{lacks})"))
    };
    stage.until("the Kyma says what it waits for", &stage.kcp, "Kyma", "kcp-system", "one", says).await;
    let output = stage.command(&["status"]).await;
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("waiting for mandatory modules: guard (waits since ") && text.contains(lacks), "{text}");
}
