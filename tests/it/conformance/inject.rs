//! What is put into the objects of modules, as rows of the conformance tables: the daemon on real servers.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_core::plan::manifest_name;
use tidegate_testbed::Extent;

use crate::{
    harness::{self, apply},
    stage::{self, Stage, read},
};

const LABEL: &str = "operator.kyma-project.io/module-name";

/// A module with one file of objects, and its release.
fn module(module: &str, more: &str, objects: &str) -> Vec<(String, String)> {
    let mut files = stage::module(module, "1.0.0", "one");
    files[0].1.push_str(more);
    files.push((format!("modules/{module}/1.0.0/objects/more.yaml"), objects.to_owned()));
    files.push((format!("modules/{module}/release.yaml"), stage::release(module, &[("regular", "1.0.0")])));
    files
}

async fn running(files: Vec<(String, String)>, more: &[&str]) -> Stage {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, more).await;
    stage.start();
    stage
}

async fn manifest(stage: &Stage, module: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let name = manifest_name("one", &format!("example.org/module/{module}"), module);
    stage.until(what, &stage.kcp, "Manifest", "kcp-system", &name, is).await
}

fn says(message: &str) -> impl Fn(&Value) -> bool {
    move |manifest| {
        manifest["status"]["state"] == "Error" && manifest["status"]["lastOperation"]["operation"] == message
    }
}

/// Two Secrets of a module, of which the first asks for data.
fn secrets(module: &str) -> String {
    let secret = |name: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {module}-{name}, namespace: kyma-system, annotations: \
             {{{annotations}}}}}\ndata: {{text: c2hpcHBlZA==}}\n"
        )
    };
    let asks = "operator.kyma-project.io/inject-data-from-kcp: 'true'";
    format!("{}---\n{}", secret("asking", asks), secret("plain", ""))
}

/// A Secret in KCP with a text that nothing but the runtime may show.
fn source(name: &str, labels: Value, text: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kcp-system", "labels": labels},
        "data": {"text": STANDARD.encode(text)},
    })
}

async fn text_is(stage: &Stage, name: &str, text: &str) {
    let is = |secret: &Value| secret["data"]["text"] == STANDARD.encode(text);
    stage.until(&format!("{name} says {text}"), &stage.skrs[0], "Secret", "kyma-system", name, is).await;
}

/// E02, E03: Secrets of the module `deployer` that ask for it get the data of their namesakes in KCP, and follow their
/// changes. A Secret that is missing, or meant for another module, is an Error with its own text, and what is installed
/// stays. Other Secrets stay as shipped, and so do those of other modules.
#[tokio::test(flavor = "multi_thread")]
async fn e02_e03_secrets_of_the_deployer_get_their_data_from_kcp_and_no_others() {
    let mut files = module("deployer", "", &secrets("deployer"));
    files.extend(module("keda", "", &secrets("keda")));
    let selector = "  kymaSelector: {matchLabels: {kyma-project.io/global-account-id: a}}\n";
    files.iter_mut().find(|(path, _)| path == "modules/deployer/release.yaml").unwrap().1.push_str(selector);
    let labelled = stage::kyma("one", &["deployer", "keda"])
        .replace("namespace: kcp-system}", "namespace: kcp-system, labels: {kyma-project.io/global-account-id: a}}");
    files.push(("kymas/one.yaml".to_owned(), labelled));
    let stage = running(files, &["--restricted-default-modules=deployer"]).await;
    let name = "deployer-asking";
    let failed = "inject-data-from-kcp transform failed: ";
    let missing = format!("{failed}failed to fetch kcp secret \"{name}\": secrets \"{name}\" not found");
    manifest(&stage, "deployer", "there is no Secret", says(&missing)).await;
    assert!(read(&stage.skrs[0], "Secret", "kyma-system", name).await.is_none(), "nothing is applied by half");

    let right = json!({LABEL: "deployer"});
    apply(&stage.kcp, &source(name, right.clone(), "hidden-one")).await;
    apply(&stage.kcp, &source("keda-asking", json!({LABEL: "keda"}), "hidden-keda")).await;
    stage.kyma_in("one", "Ready").await;
    text_is(&stage, name, "hidden-one").await;
    text_is(&stage, "deployer-plain", "shipped").await;
    text_is(&stage, "keda-asking", "shipped").await;

    apply(&stage.kcp, &source(name, right.clone(), "hidden-two")).await;
    text_is(&stage, name, "hidden-two").await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    let named = format!(
        "{failed}kcp source secret {LABEL} label does not match the manifest module: secret={name} \
                         expected=deployer actual=keda"
    );
    let unlabelled = format!("{failed}kcp source secret is missing the required {LABEL} label: secret={name}");
    for (labels, message) in [(json!({LABEL: "keda"}), &named), (json!({LABEL: null}), &unlabelled)] {
        let secrets = harness::api_of(&stage.kcp, &source(name, json!({}), "")).await.unwrap();
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        secrets.patch(name, &PatchParams::default(), &patch).await.unwrap();
        manifest(&stage, "deployer", message, says(message)).await;
        let patch = Patch::Merge(json!({"metadata": {"labels": right}}));
        secrets.patch(name, &PatchParams::default(), &patch).await.unwrap();
        stage.kyma_in("one", "Ready").await;
    }
    let secrets = harness::api_of(&stage.kcp, &source(name, json!({}), "")).await.unwrap();
    secrets.delete(name, &DeleteParams::default()).await.unwrap();
    let ready = manifest(&stage, "deployer", "the Secret is deleted", says(&missing)).await;
    text_is(&stage, name, "hidden-two").await;
    text_is(&stage, "keda-asking", "shipped").await;

    // A user's edit is repaired with the data of the Secret.
    apply(&stage.kcp, &source(name, right, "hidden-two")).await;
    stage.kyma_in("one", "Ready").await;
    let sample = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kyma-system"},
    });
    let in_runtime = harness::api_of(&stage.skrs[0], &sample).await.unwrap();
    let patch = Patch::Merge(json!({"data": {"text": STANDARD.encode("edited")}}));
    in_runtime.patch(name, &PatchParams::default(), &patch).await.unwrap();
    let kymas = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "one", "namespace": "kcp-system"},
    });
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "1"}}}));
    harness::api_of(&stage.kcp, &kymas).await.unwrap().patch("one", &PatchParams::default(), &patch).await.unwrap();
    text_is(&stage, name, "hidden-two").await;

    // Neither status, log nor disk has the data.
    assert!(!ready.to_string().contains("hidden"));
    let folder = stage.log().parent().unwrap().to_owned();
    for text in ["hidden-one", "hidden-two"] {
        for needle in [text.to_owned(), STANDARD.encode(text)] {
            assert_eq!(files_with(&folder, &needle), Vec::<String>::new());
        }
    }
}

/// The files below a folder that contain a text.
fn files_with(folder: &std::path::Path, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files_with(&entry, needle));
        } else if let Ok(bytes) = std::fs::read(&entry)
            && bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        {
            found.push(entry.display().to_string());
        }
    }
    found
}

/// While the module is not restricted, any Kyma can have it: then its Secrets stay as shipped.
#[tokio::test(flavor = "multi_thread")]
async fn e03_secrets_of_a_deployer_that_is_not_restricted_stay_as_shipped() {
    let mut files = module("deployer", "", &secrets("deployer"));
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &["deployer"])));
    let stage = running(files, &[]).await;
    apply(&stage.kcp, &source("deployer-asking", json!({LABEL: "deployer"}), "hidden")).await;
    stage.kyma_in("one", "Ready").await;
    text_is(&stage, "deployer-asking", "shipped").await;
}

/// E36: all Deployments and StatefulSets of modules name the image pull Secret, and the module's manager gets its name
/// in an environment variable. A variable that exists is an Error.
#[tokio::test(flavor = "multi_thread")]
async fn e36_workloads_of_modules_name_the_image_pull_secret() {
    let workload = |kind: &str, name: &str, env: &str| {
        format!(
            "apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: kyma-system}}\nspec:\n  \
             selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    \
             spec:\n      imagePullSecrets: [{{name: own}}]\n      containers: [{{name: main, image: \"x/y:1\"{env}}}]\n"
        )
    };
    let of_keda = format!("{}---\n{}", workload("Deployment", "keda", ""), workload("StatefulSet", "keda-store", ""));
    let manager = "  manager: {group: apps, version: v1, kind: Deployment, name: keda, namespace: kyma-system}\n";
    let mut files = module("keda", manager, &of_keda);
    let env = ", env: [{name: SKR_IMG_PULL_SECRET, value: own}]";
    files.extend(module("mailer", "", &workload("Deployment", "mailer", env)));
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &["keda", "mailer"])));
    let stage = running(files, &["--skr-image-pull-secret=registry"]).await;
    let skr = &stage.skrs[0];
    let message = "SKR_IMG_PULL_SECRET environment variable already exits in raw manifest";
    manifest(&stage, "mailer", "the variable exists", says(message)).await;
    let deployment = stage.until("it is installed", skr, "Deployment", "kyma-system", "keda", |_| true).await;
    let set = stage.until("as is the other", skr, "StatefulSet", "kyma-system", "keda-store", |_| true).await;
    let named = json!([{"name": "own"}, {"name": "registry"}]);
    for workload in [&deployment, &set] {
        assert_eq!(workload["spec"]["template"]["spec"]["imagePullSecrets"], named);
    }
    let env = |workload: &Value| workload["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    assert_eq!(env(&deployment), json!([{"name": "SKR_IMG_PULL_SECRET", "value": "registry"}]));
    assert_eq!(env(&set), Value::Null, "it is not the manager");
    assert!(read(skr, "Deployment", "kyma-system", "mailer").await.is_none());

    // The Secret is copied, and followed, without an agent.
    let condition = |status: &str| {
        let status = status.to_owned();
        move |kyma: &Value| {
            let mut all = kyma["status"]["conditions"].as_array().into_iter().flatten();
            all.any(|one| one["type"] == "SKRImagePullSecretSync" && one["status"] == *status)
        }
    };
    let kyma = |status: &str| (format!("the condition is {status}"), condition(status));
    let (what, is_missing) = kyma("False");
    stage.until(&what, &stage.kcp, "Kyma", "kcp-system", "one", is_missing).await;
    for text in ["{}", "{ }"] {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "registry", "namespace": "kcp-system", "labels": {"team": "registry"}},
            "data": {".dockerconfigjson": STANDARD.encode(text)},
        });
        apply(&stage.kcp, &secret).await;
        let is_copied = |copy: &Value| copy["data"] == secret["data"] && copy["type"] == secret["type"];
        let copy = stage.until("it is copied", skr, "Secret", "kyma-system", "registry", is_copied).await;
        let labels = json!({"operator.kyma-project.io/managed-by": "kyma", "team": "registry"});
        assert_eq!(copy["metadata"]["labels"], labels);
        let (what, is_there) = kyma("True");
        stage.until(&what, &stage.kcp, "Kyma", "kcp-system", "one", is_there).await;
    }

    // A comparison that knows the option sees no difference.
    stage.repository.remove("modules/mailer/1.0.0/objects/more.yaml").unwrap();
    stage.repository.commit("without the variable").unwrap();
    let is_ready = |manifest: &Value| manifest["status"]["state"] == "Ready";
    manifest(&stage, "mailer", "the variable is gone", is_ready).await;
    stage.rests().await;
    let path = stage.repository.path().to_str().unwrap();
    let compare = ["diff", path, "--live", "--skr-image-pull-secret=registry"];
    let compared = stage.command(&compare).await;
    assert_eq!(compared.status.code(), Some(0), "{}", String::from_utf8_lossy(&compared.stdout));
    let compared = stage.command(&compare[..3]).await;
    assert_eq!(compared.status.code(), Some(1), "{}", String::from_utf8_lossy(&compared.stdout));
}
