//! Another version of the daemon goes on with a running landscape: what it writes, and what it leaves.

use std::{process::Stdio, time::Duration};

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, Stage, read, scenarios},
};

scenarios!(
    fields_of_a_newer_version_survive_an_older_one,
    a_new_process_writes_nothing_after_a_new_version_of_a_module,
);

/// The command takes half a minute; on a machine that builds at the same time it takes longer.
const COMMAND_MAX: Duration = Duration::from_secs(10 * 60);

/// Both versions are this program: what two different ones write is measured with released programs, and is in
/// `docs/upgrade.md`.
#[tokio::test]
async fn an_upgrade_and_the_way_back_write_nothing() {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["sim", "upgrade", "--runtimes=2", "--modules=2", "--objects=3", "-o", "json"]);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(COMMAND_MAX, output).await.expect("it ends").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["old"].as_str().unwrap().starts_with("tidegate "), "{report}");
    let steps: Vec<(String, bool)> = report["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| {
            let step_name = step["step"].as_str().unwrap().split(':').next().unwrap();
            let wrote = ["kcp", "runtimes"].iter().any(|place| !step[place].as_object().unwrap().is_empty());
            assert_eq!(step["disturbed"], json!([]), "{step}");
            (step_name.split(" by ").next().unwrap().to_owned(), wrote)
        })
        .collect();
    let expected = [
        ("first rollout", true),
        ("upgrade", false),
        ("a bump", true),
        ("back again", false),
        ("a bump", true),
        ("upgrade again", false),
    ];
    let expected: Vec<(String, bool)> = expected.iter().map(|(step, wrote)| ((*step).to_owned(), *wrote)).collect();
    assert_eq!(steps, expected, "{report:#}");
}

#[tokio::test]
async fn what_is_no_program_of_tidegate_is_refused() {
    for (old, expected) in [("/nowhere", "cannot find /nowhere"), ("/bin/sh", "is not Tidegate: name one with --old")] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(["sim", "upgrade", "--old", old]).stdin(Stdio::null()).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(expected), "{said}");
    }
}

async fn patch(client: &Client, object: &Value, status: bool, patch: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    let patched =
        if status { api.patch_status(name, &params, &patch).await } else { api.patch(name, &params, &patch).await };
    patched.expect("a patch");
}

/// The schemas of a newer version: each kind has one more field in its specification and in its status.
async fn newer_schemas(stage: &Stage, kinds: &[(&str, Value)]) {
    for (crd, _) in kinds {
        let live = read(&stage.kcp, "CustomResourceDefinition", "", crd).await.expect("it is installed");
        let mut versions = live["spec"]["versions"].clone();
        for version in versions.as_array_mut().expect("versions") {
            for part in ["spec", "status"] {
                let pointer = format!("/schema/openAPIV3Schema/properties/{part}");
                if let Some(part) = version.pointer_mut(&pointer) {
                    part["properties"]["future"] = json!({"type": "string"});
                }
            }
        }
        patch(&stage.kcp, &live, false, &json!({"spec": {"versions": versions}})).await;
    }
}

/// The parts that objects of this kind have.
fn parts(object: &Value) -> &'static [&'static str] {
    if object["kind"] == "ModuleReleaseMeta" { &["spec"] } else { &["spec", "status"] }
}

async fn fields_of_a_newer_version_survive_an_older_one() {
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.kill().await;

    let object = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "kcp-system"}});
    let kyma = "operator.kyma-project.io/v1beta2";
    let manifest = tidegate_core::plan::manifest_name("one", "example.org/module/cache", "cache");
    let kinds = [
        ("kymas.operator.kyma-project.io", object(kyma, "Kyma", "one")),
        ("manifests.operator.kyma-project.io", object(kyma, "Manifest", &manifest)),
        ("modulereleasemetas.operator.kyma-project.io", object(kyma, "ModuleReleaseMeta", "cache")),
        ("gitsources.tidegate.dev", object("tidegate.dev/v1alpha1", "GitSource", "landscape")),
    ];
    newer_schemas(&stage, &kinds).await;
    // What the newer version has written.
    for (_, object) in &kinds {
        for part in parts(object) {
            eventually("the API server knows the field", SOON, async || {
                patch(&stage.kcp, object, *part == "status", &json!({*part: {"future": "kept"}})).await;
                let kind = object["kind"].as_str().expect("a kind");
                let name = object["metadata"]["name"].as_str().expect("a name");
                let live = read(&stage.kcp, kind, "kcp-system", name).await.expect("it is there");
                if live[part]["future"] == "kept" { Ok(()) } else { Err(format!("{live}")) }
            })
            .await;
        }
    }

    // The older version writes the specification and the status of each.
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0")]));
    stage.start();
    let is_new = |manifest: &Value| manifest["spec"]["version"] == "1.1.0" && manifest["status"]["state"] == "Ready";
    stage.until("the new version is installed", &stage.kcp, "Manifest", "kcp-system", &manifest, is_new).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    for (_, object) in &kinds {
        let (kind, name) =
            (object["kind"].as_str().expect("a kind"), object["metadata"]["name"].as_str().expect("a name"));
        let live = read(&stage.kcp, kind, "kcp-system", name).await.expect("it is there");
        for part in parts(object) {
            assert_eq!(live[part]["future"], "kept", "{part} of {kind}: {live:#}");
        }
    }
}

async fn a_new_process_writes_nothing_after_a_new_version_of_a_module() {
    let files = stage::files(2);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(2, &files).await;
    stage.start();
    for kyma in ["one", "two"] {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.rests().await;
    for version in ["1.1.0", "1.0.0", "1.1.0"] {
        let mut release = stage::release("cache", &[("regular", version), ("fast", "1.1.0")]);
        release = release.replace(
            "namespace: kcp-system}",
            "namespace: kcp-system, annotations: {tidegate.dev/allow-downgrade: cache-1.0.0}}",
        );
        stage.commit("modules/cache/release.yaml", &release);
        for kyma in ["one", "two"] {
            let has_it = |kyma: &Value| {
                let modules = kyma["status"]["modules"].as_array().into_iter().flatten();
                kyma["status"]["state"] == "Ready"
                    && modules.filter(|module| module["name"] == "cache").all(|module| module["version"] == version)
            };
            stage.until("it has the version", &stage.kcp, "Kyma", "kcp-system", kyma, has_it).await;
        }
        stage.rests().await;
        stage.kill().await;
        let marks = stage.marks();
        stage.start();
        stage.rests().await;
        let written: Vec<String> =
            stage.requests_since(&marks).into_iter().filter(|line| !line.contains(" get ")).collect();
        assert!(written.is_empty(), "{version}: {written:#?}");
    }
}
