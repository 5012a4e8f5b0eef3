//! Another version of the daemon goes on with a running landscape: what it writes, and what it leaves.

mod recorded;

use std::{collections::BTreeSet, process::Stdio, time::Duration};

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
    upgrade(&[]).await;
}

/// Only a real API server refuses to list a kind while it changes its definition.
#[tokio::test]
async fn an_upgrade_and_the_way_back_write_nothing_on_real_servers() {
    upgrade(&["--control-plane=real", "--runtime-servers=real"]).await;
}

async fn upgrade(arguments: &[&str]) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["sim", "upgrade", "--runtimes=2", "--modules=2", "--objects=3", "-o", "json"]).args(arguments);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(COMMAND_MAX, output).await.expect("it ends").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&output.stdout));
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
    let to_runtimes = |index: usize| -> u64 {
        let writes = report["steps"][index]["runtimes"].as_object().unwrap();
        writes.values().map(|count| count.as_u64().unwrap()).sum()
    };
    assert_eq!(to_runtimes(2), to_runtimes(4) + 2, "one ModuleTemplate more in each runtime: {report:#}");
    // Four Manifests and the GitSource.
    assert_eq!(report["newerFields"], json!({"objects": 5, "lost": []}));
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
    let has_status = object["kind"] != "ModuleReleaseMeta" && object["kind"] != "ModuleTemplate";
    if has_status { &["spec", "status"] } else { &["spec"] }
}

async fn fields_of_a_newer_version_survive_an_older_one() {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
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
        ("moduletemplates.operator.kyma-project.io", object(kyma, "ModuleTemplate", "cache-1.0.0")),
        ("watchers.operator.kyma-project.io", object(kyma, "Watcher", "watcher")),
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
    stage.commit("watcher.yaml", &stage::WATCHER.replace("field: spec", "field: status"));
    let template = stage.repository.read("modules/cache/1.0.0/module-template.yaml").expect("a file");
    let edited = template.replace(
        "version: 1.0.0",
        "version: 1.0.0\n  info: {repository: 'https://example.org', documentation: 'https://example.org'}",
    );
    stage.commit("modules/cache/1.0.0/module-template.yaml", &edited);
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0")]));
    stage.start();
    let is_new = |manifest: &Value| manifest["spec"]["version"] == "1.1.0" && manifest["status"]["state"] == "Ready";
    stage.until("the new version is installed", &stage.kcp, "Manifest", "kcp-system", &manifest, is_new).await;
    stage.kyma_in("one", "Ready").await;
    let is_edited = |object: &Value| object["spec"]["field"] == "status" || object["spec"]["info"].is_object();
    for (kind, name) in [("Watcher", "watcher"), ("ModuleTemplate", "cache-1.0.0")] {
        stage.until("the older version writes it", &stage.kcp, kind, "kcp-system", name, is_edited).await;
    }
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

/// The fields of the CustomResourceDefinitions before the latest version in the changelog. A release records them
/// anew: `docs/release.md`.
const BEFORE: &str = "tests/it/upgrade/fields.txt";

/// What a schema says of each field: its type, its values, and whether it is required.
fn fields(definition: &Value) -> BTreeSet<String> {
    fn visit(prefix: &str, path: &str, schema: &Value, found: &mut BTreeSet<String>) {
        let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let is_mixed = schema["x-kubernetes-int-or-string"] == true;
        let kind = schema["type"].as_str().unwrap_or(if is_mixed { "int-or-string" } else { "any" });
        if !path.is_empty() {
            found.insert(format!("{prefix} {path}: {kind}"));
        }
        let list = |field: &str| schema[field].as_array().into_iter().flatten();
        found.extend(list("enum").map(|value| format!("{prefix} {path} = {value}")));
        found.extend(
            list("required").map(|name| format!("{prefix} {} is required", below(name.as_str().unwrap_or_default()))),
        );
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            visit(prefix, &below(name), property, found);
        }
        for (part, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if schema[part].is_object() {
                visit(prefix, &format!("{path}{suffix}"), &schema[part], found);
            }
        }
    }
    let mut found = BTreeSet::new();
    for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
        let name = |object: &Value| object["name"].as_str().expect("a name").to_owned();
        let prefix = format!("{} {}", name(&definition["metadata"]), name(version));
        visit(&prefix, "", &version["schema"]["openAPIV3Schema"], &mut found);
    }
    found
}

/// What a program from before cannot do with definitions: fields and values that are gone, and fields that it does not
/// write because they were not required.
fn broken(before: &BTreeSet<String>, now: &BTreeSet<String>) -> Vec<String> {
    let is_required = |line: &str| line.ends_with(" is required");
    let gone = before.difference(now).filter(|line| !is_required(line)).map(|line| format!("gone: {line}"));
    let is_of_known = |line: &str| {
        let field = line.trim_end_matches(" is required");
        let (prefix, path) = field.rsplit_once(' ').expect("a definition and a path");
        let parent = path.rsplit_once('.').map(|(parent, _)| format!("{prefix} {parent}: "));
        parent.is_none_or(|parent| before.iter().any(|known| known.starts_with(&parent)))
    };
    let new = now.difference(before).filter(|line| is_required(line) && is_of_known(line));
    gone.chain(new.map(|line| format!("new: {line}"))).collect()
}

#[test]
fn a_definition_that_an_older_version_cannot_use_is_found() {
    let definition = |spec: Value| {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({
            "metadata": {"name": "things.example.org"},
            "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]},
        })
    };
    let mode = json!({"type": "string", "enum": ["A", "B"]});
    let before =
        fields(&definition(json!({"type": "object", "properties": {"mode": mode, "old": {"type": "object"}}})));
    let found = |spec: Value| broken(&before, &fields(&definition(spec)));
    let more = json!({"type": "object", "required": ["x"], "properties": {"x": {"type": "string"}}});
    let newer = json!({"type": "object", "properties": {"mode": mode, "old": {"type": "object"}, "new": more}});
    assert_eq!(found(newer), Vec::<String>::new(), "it has more");
    let other = json!({
        "type": "object", "required": ["more"],
        "properties": {"mode": {"type": "string", "enum": ["A"]}, "old": {"type": "string"}, "more": {"type": "string"}},
    });
    assert_eq!(
        found(other),
        [
            "gone: things.example.org v1 spec.mode = \"B\"",
            "gone: things.example.org v1 spec.old: object",
            "new: things.example.org v1 spec.more is required",
        ]
    );
}

#[test]
fn the_definitions_have_every_field_of_the_version_before() {
    let definitions = crate::deploy::objects("setup");
    let definitions = definitions.iter().filter(|object| object["kind"] == "CustomResourceDefinition");
    let now: BTreeSet<String> = definitions.flat_map(fields).collect();
    let text = |lines: &BTreeSet<String>| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if std::env::var_os("RECORD_FIELDS").is_some() {
        std::fs::write(BEFORE, text(&now)).expect("a file");
    }
    let before: BTreeSet<String> =
        std::fs::read_to_string(BEFORE).expect("a file").lines().map(str::to_owned).collect();
    assert!(before.len() > 400, "{}", before.len());
    assert_eq!(broken(&before, &now), Vec::<String>::new());
}
