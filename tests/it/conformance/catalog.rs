//! What every runtime has, as rows of the conformance tables: the daemon on real servers.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    harness,
    stage::{self, Stage},
};

async fn running(files: Vec<(String, String)>, more: &[&str]) -> Stage {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, more).await;
    stage.start();
    stage
}

async fn api(client: &kube::Client, kind: &str) -> kube::Api<kube::api::DynamicObject> {
    let (version, namespace) = match kind {
        "CustomResourceDefinition" => ("apiextensions.k8s.io/v1", Value::Null),
        "Kyma" => ("operator.kyma-project.io/v1beta2", json!("kcp-system")),
        _ => ("operator.kyma-project.io/v1beta2", json!("kyma-system")),
    };
    let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
    harness::api_of(client, &sample).await.expect("a kind that is served")
}

async fn request(stage: &Stage, value: &str) {
    let patch = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": value}}});
    let kymas = api(&stage.kcp, "Kyma").await;
    kymas.patch("one", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// I05, #35: runtimes have the CRDs of the control plane. They follow a change of it, an edit in the runtime is
/// reverted, and a CRD that is deleted in the runtime comes back, with the catalog. That needs no request of a user.
#[tokio::test(flavor = "multi_thread")]
async fn i05_the_crds_of_runtimes_are_those_of_the_control_plane() {
    let stage = running(stage::files(1), &[]).await;
    stage.kyma_in("one", "Ready").await;
    let describe = async |client: &kube::Client, name: &str, text: &str| {
        let crds = api(client, "CustomResourceDefinition").await;
        let mut crd = serde_json::to_value(crds.get(name).await.unwrap()).unwrap();
        let versions = crd["spec"]["versions"].as_array_mut().unwrap();
        for version in versions.iter_mut() {
            version["schema"]["openAPIV3Schema"]["description"] = json!(text);
        }
        let patch = Patch::Merge(json!({"spec": {"versions": versions}}));
        crds.patch(name, &PatchParams::default(), &patch).await.unwrap();
    };
    let until_described = async |name: &str, text: &str| {
        let is = |crd: &Value| {
            crd["spec"]["versions"].as_array().is_some_and(|versions| {
                versions.iter().all(|version| version["schema"]["openAPIV3Schema"]["description"] == text)
            })
        };
        let what = format!("{name} is {text}");
        stage.until(&what, &stage.skrs[0], "CustomResourceDefinition", "", name, is).await
    };
    for kind in ["kymas", "moduletemplates", "modulereleasemetas"] {
        let name = format!("{kind}.operator.kyma-project.io");
        describe(&stage.kcp, &name, "changed").await;
        let crd = until_described(&name, "changed").await;
        assert_eq!(crd["metadata"]["labels"]["operator.kyma-project.io/managed-by"], "kyma");
    }
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    let templates = "moduletemplates.operator.kyma-project.io";
    describe(&stage.skrs[0], templates, "edited").await;
    request(&stage, "1").await;
    until_described(templates, "changed").await;

    delete_crd(&stage, templates).await;
    request(&stage, "2").await;
    until_described(templates, "changed").await;
    let catalog = ("ModuleTemplate", "cache-1.0.0");
    let is_back = async |(kind, name): (&str, &str)| {
        stage.until(&format!("{kind} {name} is back"), &stage.skrs[0], kind, "kyma-system", name, |_| true).await
    };
    is_back(catalog).await;

    // A new process, long before its first resync.
    let kymas = "kymas.operator.kyma-project.io";
    stage.kyma_in("one", "Ready").await;
    stage.kill().await;
    delete_crd(&stage, kymas).await;
    stage.start();
    until_described(kymas, "changed").await;
    is_back(("Kyma", "default")).await;
    stage.kyma_in("one", "Ready").await;

    // A resync of a process that runs.
    stage.kill().await;
    stage.start_with(&["--resync=10s"]);
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    delete_crd(&stage, templates).await;
    until_described(templates, "changed").await;
    is_back(catalog).await;
}

/// Deletes a CRD in the first runtime. It may be there again afterwards.
async fn delete_crd(stage: &Stage, name: &str) {
    let crds = api(&stage.skrs[0], "CustomResourceDefinition").await;
    let uid = crds.get(name).await.unwrap().metadata.uid;
    crds.delete(name, &DeleteParams::default()).await.unwrap();
    harness::eventually("it is gone", harness::SOON, async || match crds.get_opt(name).await {
        Ok(Some(crd)) if crd.metadata.uid == uid => Err("it is still there".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    })
    .await;
}

/// A ModuleTemplate of `keda` in KCP that nothing installs.
fn template(version: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": format!("keda-{version}"), "namespace": "kcp-system", "labels": labels},
        "spec": {"moduleName": "keda", "version": version, "descriptor": {}, "info": {
            "repository": "https://example.org/keda", "documentation": "https://example.org/keda/docs",
        }},
    })
}

fn release(more: &Value) -> Value {
    let mut release = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleReleaseMeta",
        "metadata": {"name": "keda", "namespace": "kcp-system"},
        "spec": {"moduleName": "keda", "ocmComponentName": "example.org/module/keda", "channels": [
            {"channel": "regular", "version": "1.0.0"}, {"channel": "fast", "version": "1.1.0"},
        ]},
    });
    release["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    release
}

/// Kyma `one` in KCP with these labels.
async fn label_kyma(stage: &Stage, labels: Value) {
    let kymas = api(&stage.kcp, "Kyma").await;
    let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
    kymas.patch("one", &PatchParams::default(), &patch).await.unwrap();
}

/// Waits until the catalog in the runtime has these ModuleTemplates, and `keda` in these channels.
async fn shows(stage: &Stage, what: &str, templates: &[&str], channels: &[&str]) {
    harness::eventually(what, harness::SOON, async || {
        let list = async |kind: &str| {
            let all = api(&stage.skrs[0], kind).await.list(&kube::api::ListParams::default()).await;
            all.map(|all| all.items).map_err(|error| error.to_string())
        };
        let found = list("ModuleTemplate").await?;
        let found: Vec<String> = found.into_iter().filter_map(|one| one.metadata.name).collect();
        let releases = list("ModuleReleaseMeta").await?;
        let mut offered: Vec<String> = releases
            .iter()
            .flat_map(|one| one.data["spec"]["channels"].as_array().cloned().unwrap_or_default())
            .filter_map(|entry| Some(entry["channel"].as_str()?.to_owned()))
            .collect();
        offered.sort();
        let is_right = found == templates && offered == channels && releases.is_empty() == channels.is_empty();
        if is_right { Ok(()) } else { Err(format!("{found:?} in {offered:?}")) }
    })
    .await;
}

/// A running stage whose Kyma `one` is in KCP only, as are the definitions.
async fn stage_of_kcp(more: &[&str]) -> Stage {
    let stage = Stage::real(1, Extent::Controllers, &[("README.md", "empty\n".to_owned())], more).await;
    let kyma = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
        "metadata": {"name": "one", "namespace": "kcp-system"}, "spec": {"channel": "regular"},
    });
    harness::apply(&stage.kcp, &kyma).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage
}

/// E27: the catalog follows the labels of ModuleTemplates and Kyma: a ModuleReleaseMeta has the allowed channels, and
/// goes with the last. Edits are reverted, users' own objects stay. What no ModuleReleaseMeta names leaves the runtime
/// and stays in the control plane.
#[tokio::test(flavor = "multi_thread")]
async fn e27_the_catalog_follows_labels_and_reverts_edits() {
    let stage = stage_of_kcp(&[]).await;
    let skr = &stage.skrs[0];
    let own = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": "a-users-own", "namespace": "kyma-system"},
        "spec": {"moduleName": "own", "version": "1.0.0", "descriptor": {}},
    });
    harness::apply(skr, &own).await;
    let (beta, internal) = ("operator.kyma-project.io/beta", "operator.kyma-project.io/internal");
    harness::apply(&stage.kcp, &template("1.0.0", &json!({}))).await;
    harness::apply(&stage.kcp, &template("1.1.0", &json!({beta: "true"}))).await;
    harness::apply(&stage.kcp, &release(&json!({}))).await;
    let (old, new) = ("keda-1.0.0", "keda-1.1.0");
    shows(&stage, "beta is hidden", &["a-users-own", old], &["regular"]).await;
    label_kyma(&stage, json!({beta: "TRUE"})).await;
    shows(&stage, "the Kyma sees beta", &["a-users-own", old, new], &["fast", "regular"]).await;
    harness::apply(&stage.kcp, &template("1.0.0", &json!({internal: "true"}))).await;
    shows(&stage, "internal is hidden", &["a-users-own", new], &["fast"]).await;
    label_kyma(&stage, json!({internal: "true"})).await;
    shows(&stage, "the Kyma sees both", &["a-users-own", old, new], &["fast", "regular"]).await;
    harness::apply(&stage.kcp, &template("1.0.0", &json!({}))).await;
    label_kyma(&stage, json!({beta: null, internal: null})).await;
    shows(&stage, "beta is hidden again", &["a-users-own", old], &["regular"]).await;
    harness::apply(&stage.kcp, &template("1.0.0", &json!({beta: "true"}))).await;
    shows(&stage, "nothing is left", &["a-users-own"], &[]).await;
    harness::apply(&stage.kcp, &template("1.0.0", &json!({}))).await;
    shows(&stage, "it is back", &["a-users-own", old], &["regular"]).await;

    let repository = "/spec/info/repository";
    let edit = Patch::Merge(json!({"spec": {"info": {"repository": "https://example.org/edited"}}}));
    api(skr, "ModuleTemplate").await.patch(old, &PatchParams::default(), &edit).await.unwrap();
    request(&stage, "1").await;
    let is_reverted = |template: &Value| template.pointer(repository) == Some(&json!("https://example.org/keda"));
    stage.until("the edit is reverted", skr, "ModuleTemplate", "kyma-system", old, is_reverted).await;

    let releases: kube::Api<tidegate_core::api::ModuleReleaseMeta> = harness::namespaced(&stage.kcp, "kcp-system");
    releases.delete("keda", &DeleteParams::default()).await.unwrap();
    shows(&stage, "its templates go", &["a-users-own"], &[]).await;
    let templates: kube::Api<tidegate_core::api::ModuleTemplate> = harness::namespaced(&stage.kcp, "kcp-system");
    assert!(templates.get_opt(old).await.unwrap().is_some(), "it stays in the control plane");
}

/// E32: a restricted module is in the catalog only if its selector matches the Kyma; an empty selector matches nothing.
/// A module with a selector that is not restricted is in no catalog.
#[tokio::test(flavor = "multi_thread")]
async fn e32_restricted_modules_enter_and_leave_the_catalog() {
    let account = "kyma-project.io/global-account-id";
    let selected = |account_id: &str| json!({"kymaSelector": {"matchLabels": {account: account_id}}});
    let stage = stage_of_kcp(&["--restricted-default-modules=keda"]).await;
    for version in ["1.0.0", "1.1.0"] {
        harness::apply(&stage.kcp, &template(version, &json!({}))).await;
    }
    let (all, channels) = (&["keda-1.0.0", "keda-1.1.0"][..], &["fast", "regular"][..]);
    label_kyma(&stage, json!({account: "a"})).await;
    // In this order, so that each state differs from the one before.
    harness::apply(&stage.kcp, &release(&selected("a"))).await;
    shows(&stage, "it is selected", all, channels).await;
    harness::apply(&stage.kcp, &release(&json!({}))).await;
    shows(&stage, "there is no selector", &[], &[]).await;
    harness::apply(&stage.kcp, &release(&selected("a"))).await;
    shows(&stage, "it is selected again", all, channels).await;
    harness::apply(&stage.kcp, &release(&json!({"kymaSelector": {}}))).await;
    shows(&stage, "the selector is empty", &[], &[]).await;
    let expression =
        json!({"kymaSelector": {"matchExpressions": [{"key": account, "operator": "In", "values": ["a"]}]}});
    harness::apply(&stage.kcp, &release(&expression)).await;
    shows(&stage, "an expression selects it", all, channels).await;
    label_kyma(&stage, json!({account: "b"})).await;
    shows(&stage, "the Kyma has another label", &[], &[]).await;
    label_kyma(&stage, json!({account: "a"})).await;
    shows(&stage, "the Kyma has its label back", all, channels).await;
    stage.rests().await;
    stage.kill().await;
    stage.start_with(&["--restricted-default-modules=other"]);
    shows(&stage, "it has a selector and is not restricted", &[], &[]).await;
}
