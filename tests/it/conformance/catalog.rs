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
/// reverted, and a CRD that is deleted in the runtime comes back, with the catalog.
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

    let crds = api(&stage.skrs[0], "CustomResourceDefinition").await;
    let uid = crds.get(templates).await.unwrap().metadata.uid;
    crds.delete(templates, &DeleteParams::default()).await.unwrap();
    harness::eventually("it is gone", harness::SOON, async || match crds.get_opt(templates).await {
        Ok(Some(crd)) if crd.metadata.uid == uid => Err("it is still there".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    })
    .await;
    request(&stage, "2").await;
    until_described(templates, "changed").await;
    stage.until("the catalog is back", &stage.skrs[0], "ModuleTemplate", "kyma-system", "cache-1.0.0", |_| true).await;
}
