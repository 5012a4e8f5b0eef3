//! The example as a whole, rendered by the binary: each target is compared with a recorded file.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it golden::` records anew; the difference is reviewed like code. CRDs are left
//! out: they have tests of their own, and a word in a description should not change these files.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tidegate_testbed::Repository;

use crate::harness;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/landscape");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden");

fn tidegate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env("NO_COLOR", "1").output().unwrap()
}

/// Standard output, where the command must end well.
#[track_caller]
fn text(arguments: &[&str]) -> String {
    let output = tidegate(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The example as a repository of its own, committed.
fn repository() -> (tempfile::TempDir, Repository) {
    let folder = tempfile::tempdir().unwrap();
    let repository = Repository::init(&folder.path().join("repo")).unwrap();
    harness::copy(Path::new(EXAMPLE), repository.path());
    repository.commit("the example").unwrap();
    (folder, repository)
}

#[track_caller]
fn check_golden(name: &str, text: &str) {
    harness::check_recorded(&PathBuf::from(GOLDEN).join(name), text);
}

/// All documents of one landscape but the CRDs that are built in.
fn landscape(name: &str) -> String {
    let source = format!("{EXAMPLE}/.tidegate/{name}.yaml");
    let all = text(&["render", EXAMPLE, "--source-file", &source]);
    let documents = all.split("---\n").filter(|document| !document.contains(" (built in)\n"));
    documents.collect::<Vec<_>>().join("---\n")
}

#[test]
fn the_development_landscape_renders_as_recorded() {
    check_golden("dev.yaml", &landscape("dev"));
}

#[test]
fn the_production_landscape_renders_as_recorded() {
    check_golden("prod.yaml", &landscape("prod"));
}

const KCP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kcp");

/// The objects of a kcp landscape are those that are recorded beside their templates.
#[test]
fn the_kcp_landscape_renders_as_recorded() {
    let all = text(&["render", KCP, "--show-secrets"]);
    let documents: Vec<&str> = all.split("---\n").filter(|document| !document.is_empty()).collect();
    let (generated, written): (Vec<&str>, Vec<&str>) =
        documents.iter().partition(|document| document.contains(" (setup/"));
    assert_eq!(written.len(), 6, "the definitions themselves");
    let body = |document: &&str| {
        let lines = document.split_inclusive('\n').filter(|line| !line.starts_with("# "));
        format!("---\n{}", lines.collect::<String>())
    };
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/core/src/render/setup/golden/v0.32.yaml");
    assert!(generated.iter().map(body).collect::<String>() == fs::read_to_string(recorded).unwrap());
    assert!(generated[0].starts_with("# target: kcp\n# from: examples/kcp/landscape.yaml:3 (setup/issuer.yaml)"));
}

/// Row 66: what another cluster has is said with the object.
#[test]
fn r66_render_names_the_cluster_of_what_belongs_to_pods() {
    let folder = tempfile::tempdir().unwrap();
    let example = fs::read_to_string(format!("{KCP}/landscape.yaml")).unwrap();
    let name = "kind: FrontProxy\nmetadata:\n";
    let placed = example.replacen(name, &format!("{name}  annotations: {{tidegate.dev/cluster: eu}}\n"), 1);
    fs::write(folder.path().join("landscape.yaml"), placed).unwrap();
    let path = folder.path().to_str().unwrap();
    let all = text(&["render", path]);
    let in_eu: Vec<&str> = all.split("---\n").filter(|document| document.contains("\n# cluster: eu\n")).collect();
    let kind = |document: &&str| document.lines().find(|line| line.starts_with("kind: ")).unwrap().to_owned();
    assert_eq!(in_eu.iter().map(kind).collect::<Vec<_>>(), ["kind: Deployment", "kind: Service"], "{in_eu:?}");
    assert!(in_eu.iter().all(|document| document.contains("  name: public-front-proxy\n")), "{in_eu:?}");
    let value: Value = serde_json::from_str(&text(&["render", path, "-o", "json"])).unwrap();
    let gates = value["gates"].as_array().unwrap();
    let placed: Vec<&Value> = gates.iter().filter(|gate| !gate["cluster"].is_null()).collect();
    assert_eq!(placed.len(), 1, "{placed:?}");
    assert_eq!(placed[0]["cluster"], "eu");
    assert_eq!(placed[0]["object"], "Deployment.apps kcp-system/public-front-proxy");
}

#[test]
fn json_says_what_each_object_of_a_kcp_landscape_waits_for() {
    let value: Value = serde_json::from_str(&text(&["render", KCP, "-o", "json"])).unwrap();
    let gates = value["gates"].as_array().unwrap();
    let of = |name: &str| {
        let object = format!("Deployment.apps kcp-system/{name}");
        let found = gates.iter().find(|gate| gate["object"] == object.as_str());
        found.unwrap_or_else(|| panic!("no {object} in {gates:?}"))["waitsFor"].as_array().unwrap()
    };
    let deployments = gates.iter().filter(|gate| gate["object"].as_str().unwrap().starts_with("Deployment.apps "));
    assert_eq!(deployments.count(), 6, "one for each Deployment: {gates:?}");
    assert!(gates.iter().all(|gate| gate["target"] == "kcp"));
    let root = of("main-kcp");
    assert_eq!(root[0], json!({"kind": "Certificate", "name": "main-ca", "condition": "Ready"}));
    assert!(
        root.contains(&json!({"kind": "Secret", "name": "etcd-main-client", "keys": ["tls.crt", "tls.key", "ca.crt"]})),
        "{root:?}"
    );
    assert!(root.contains(&json!({"kind": "ConfigMap", "name": "audit", "keys": ["policy.yaml"]})), "{root:?}");
    assert!(
        of("eu-shard-kcp").contains(&json!({"kind": "Secret", "name": "cache-kubeconfig", "keys": ["kubeconfig"]}))
    );
    // Caches come before the root shard, and the root shard before its proxies and the other shards.
    let last = |name: &str| of(name).last().cloned();
    let up = |name: &str| Some(json!({"kind": "Deployment", "name": name, "condition": "Available"}));
    assert_eq!(last("main-kcp"), up("cache-cache-server"));
    for name in ["main-proxy", "public-front-proxy", "eu-shard-kcp"] {
        assert_eq!(last(name), up("main-kcp"), "{name}");
    }
    let exists = json!({"kind": "Deployment", "name": "eu-shard-kcp"});
    assert_eq!(last("eu-workspaces-virtual-workspace"), Some(exists), "it and its shard need each other");
    assert_eq!(last("cache-cache-server").unwrap()["kind"], "Secret");
    // CAs come before what they issue, and certificates before the kubeconfigs that contain them.
    let waits = |object: &str| gates.iter().find(|gate| gate["object"] == object).map(|gate| gate["waitsFor"].clone());
    let pair = |name: &str| json!({"kind": "Secret", "name": name, "keys": ["tls.crt", "tls.key"]});
    assert_eq!(waits("Certificate.cert-manager.io kcp-system/main-ca"), None, "its issuer is not of the landscape");
    assert_eq!(waits("Certificate.cert-manager.io kcp-system/main-server-ca"), Some(json!([pair("main-ca")])));
    assert_eq!(waits("Certificate.cert-manager.io kcp-system/eu-server"), Some(json!([pair("main-server-ca")])));
    let of_admin = waits("Secret kcp-system/admin-kubeconfig").unwrap();
    assert_eq!(of_admin[0], json!({"kind": "Certificate", "name": "kubeconfig-cert-admin", "condition": "Ready"}));
    assert_eq!(of_admin[1], pair("kubeconfig-cert-admin"));
}

#[test]
fn the_same_bytes_come_out_wherever_the_repository_lies_and_whatever_is_read() {
    let (_folder, repository) = repository();
    let path = repository.path().to_str().unwrap();
    let in_place = text(&["render", EXAMPLE]);
    assert_eq!(text(&["render", path]), in_place, "a work tree");
    assert_eq!(text(&["render", path, "--rev", "main"]), in_place, "a commit");
    fs::remove_dir_all(repository.path().join(".git")).unwrap();
    assert_eq!(text(&["render", path]), in_place, "a plain folder");
}

#[test]
fn json_names_targets_and_what_is_unknown() {
    let value: Value = serde_json::from_str(&text(&["render", EXAMPLE, "-o", "json"])).unwrap();
    let targets = value["targets"].as_array().unwrap();
    let names: Vec<&str> = targets.iter().map(|target| target["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["kcp", "skr/kcp-system/dev", "skr/kcp-system/prod"]);
    let unknown = value["unknown"].as_array().unwrap();
    assert!(unknown.contains(&json!({
        "value": "gateway hosts",
        "target": "kcp",
        "object": "VirtualService.networking.istio.io kcp-system/kyma-dev",
        "path": "spec.hosts[0]",
    })));
    assert!(unknown.iter().any(|entry| entry["value"] == "CA bundle" && entry["target"] == "skr/kcp-system/dev"));
    assert!(unknown.iter().any(|entry| entry["value"] == "uid of Kyma kcp-system/prod"));
    let documents = text(&["render", EXAMPLE]).matches("\n# target: ").count();
    let objects: usize = targets.iter().map(|target| target["objects"].as_array().unwrap().len()).sum();
    assert_eq!(documents, objects, "both outputs hold the same objects");
}

/// It is written while it is made, as one text that every reader of JSON prints alike.
#[test]
fn json_is_one_value_however_many_targets_it_has() {
    let one = text(&["render", EXAMPLE, "-o", "json", "--target", "kcp"]);
    for written in [one, text(&["render", EXAMPLE, "-o", "json"])] {
        let value: Value = serde_json::from_str(&written).unwrap();
        assert_eq!(written, format!("{value:#}\n"));
    }
    let empty = tempfile::tempdir().unwrap();
    let written = text(&["render", empty.path().to_str().unwrap(), "-o", "json"]);
    let value: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(value["targets"][0], json!({"name": "kcp", "objects": []}));
    assert_eq!(written, format!("{value:#}\n"));
}

#[test]
fn a_target_is_kcp_or_a_kyma() {
    let targets = |target: &str| {
        let value: Value = serde_json::from_str(&text(&["render", EXAMPLE, "-o", "json", "--target", target])).unwrap();
        value["targets"].as_array().unwrap().iter().map(|t| t["name"].to_string()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(targets("kcp"), "\"kcp\"");
    assert_eq!(targets("prod"), "\"skr/kcp-system/prod\"");
    assert_eq!(targets("kcp-system/dev"), "\"skr/kcp-system/dev\"");
    let output = tidegate(&["render", EXAMPLE, "--target", "stage"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: unknown target `stage`: use `kcp` or the name of a Kyma that the repository declares\n"
    );
}

#[test]
fn assumptions_take_the_place_of_what_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("assume.yaml");
    let assumptions = "gateways: [kcp-system/klm-watcher]\ngateway hosts:\n  - a.example.org\n  - b.example.org\n\
                       CA bundle: Y2E=\nuid of Kyma kcp-system/dev: d\nuid of Kyma kcp-system/prod: p\n\
                       uid of Watcher kcp-system/kyma-dev: w\nuid of Watcher kcp-system/kyma-prod: x\n";
    fs::write(&file, assumptions).unwrap();
    let rendered = text(&["render", EXAMPLE, "-o", "json", "--assume", file.to_str().unwrap()]);
    let value: Value = serde_json::from_str(&rendered).unwrap();
    assert_eq!(value["unknown"], json!([]));
    assert!(rendered.contains("\"b.example.org\"") && !rendered.contains("((live:"));

    fs::write(&file, "gateway host: a.example.org\n").unwrap();
    let output = tidegate(&["render", EXAMPLE, "--assume", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("unknown placeholder `gateway host`"), "{message}");

    // A file that is named by mistake is not quoted.
    for wrong in ["TOKEN=hunter2\n", "https://user:hunter2@example.org: x\n", "[hunter2]\n"] {
        fs::write(&file, wrong).unwrap();
        let output = tidegate(&["render", EXAMPLE, "--assume", file.to_str().unwrap()]);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && !message.contains("hunter2"), "{message}");
    }
}

#[test]
fn what_is_broken_is_said_and_the_rest_is_printed() {
    let (_folder, repository) = repository();
    repository.replace("landscapes/dev/kyma.yaml", "channel: fast", "channel: FAST").unwrap();
    let output = tidegate(&["render", repository.path().to_str().unwrap(), "-o", "json"]);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("landscapes/dev/kyma.yaml:16:"), "{message}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let targets: Vec<&Value> = value["targets"].as_array().unwrap().iter().map(|target| &target["name"]).collect();
    assert_eq!(targets, [&json!("kcp"), &json!("skr/kcp-system/prod")]);
}

const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  labels:\n    origin: {{ name|quote }}\n";

#[test]
fn templates_of_the_repository_come_before_those_of_the_command_line() {
    let (folder, repository) = repository();
    let path = repository.path().to_str().unwrap();
    let own = folder.path().join("templates");
    fs::create_dir_all(own.join("skr")).unwrap();
    fs::write(own.join("skr/namespace.yaml"), NAMESPACE.replace("origin", "of-command-line")).unwrap();
    let given = ["--templates", own.to_str().unwrap()];

    let rendered = text(&[&["render", path, "--target", "dev"][..], &given].concat());
    assert!(rendered.contains("of-command-line: kyma-system"), "a folder replaces the embedded template");

    repository.write("overrides/skr/namespace.yaml", &NAMESPACE.replace("origin", "of-folder")).unwrap();
    let within = repository.path().join("overrides");
    let rendered = text(&["render", path, "--target", "dev", "--templates", within.to_str().unwrap()]);
    assert!(rendered.contains("of-folder: kyma-system"), "a folder within the repository holds no definitions");
    repository.remove("overrides").unwrap();

    repository.write("templates/skr/namespace.yaml", &NAMESPACE.replace("origin", "of-repository")).unwrap();
    let source = repository.read(".tidegate/dev.yaml").unwrap() + "  templates: templates\n";
    let file = folder.path().join("source.yaml");
    fs::write(&file, &source).unwrap();
    let with_source = ["--source-file", file.to_str().unwrap()];
    let rendered = text(&[&["render", path, "--target", "dev"][..], &given, &with_source].concat());
    assert!(rendered.contains("of-repository: kyma-system") && !rendered.contains("of-command-line"));

    let own: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("url:")).collect();
    repository.write(".tidegate/source.yaml", &own.join("\n")).unwrap();
    let rendered = text(&["render", path, "--target", "dev"]);
    assert!(rendered.contains("of-repository: kyma-system"), "the repository names its own templates");
}

#[test]
fn a_mistake_in_a_template_is_shown_where_it_is_and_hides_nothing_else() {
    let (folder, repository) = repository();
    repository.write("templates/kcp/manifest.yaml", "apiVersion: v1\nkind: {{ knid }}\n").unwrap();
    let source = repository.read(".tidegate/prod.yaml").unwrap() + "  templates: templates\n";
    let file = folder.path().join("source.yaml");
    fs::write(&file, source).unwrap();
    let path = repository.path().to_str().unwrap();
    let output = tidegate(&["render", path, "-o", "json", "--source-file", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("templates/kcp/manifest.yaml:2"), "{message}");
    assert!(message.contains("(rendering the example of its context, and "), "{message}");
    assert!(message.contains("2 objects use this template"), "{message}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let objects = value["targets"][0]["objects"].as_array().unwrap();
    assert!(objects.iter().all(|object| object["kind"] != "Manifest"));
    assert!(objects.iter().any(|object| object["kind"] == "VirtualService"));
}

#[test]
fn a_source_file_is_checked_by_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("source.yaml");
    fs::write(&file, "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: a}\nspec:\n  path: x\n")
        .unwrap();
    let output = tidegate(&["render", EXAMPLE, "--source-file", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("source.yaml:5:3"), "{message}");
    let spec = "spec:\n  url: ssh://git@git.example.com:99999/a\n";
    fs::write(&file, format!("apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: a}}\n{spec}"))
        .unwrap();
    let output = tidegate(&["validate", EXAMPLE, "--source-file", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("source.yaml:5:3: spec.url: a port is a number from 1 to 65535"), "{message}");
}

#[test]
fn templates_are_listed_shown_and_explained() {
    let list = text(&["template", "list"]);
    for line in list.lines().skip(1) {
        let name = line.split_whitespace().next().unwrap();
        let shown = text(&["template", "show", name]);
        let recorded = fs::read_to_string(format!("{}/templates/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert_eq!(shown, recorded);
        assert!(text(&["template", "context", name]).starts_with("# Rendered "), "{name}");
    }
    let output = tidegate(&["template", "show", "kcp/manifests.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown template `kcp/manifests.yaml`"));
}
