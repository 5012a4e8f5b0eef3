//! `tidegate diff --live` and `tidegate export` as processes, with a landscape.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
};

use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use kube_sim::Kubeconfig;
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use crate::{
    deploy, harness,
    stage::{self, ADMINISTRATORS, Stage, USER},
};

/// The user of the pipeline in KCP.
const CI: &str = "pipeline";
/// Values of Secrets, which no output may contain.
const PLANTED: [&str; 4] = ["hunter2-in-git", "hunter3-in-git", "hunter4-by-hand", "hunter5-elsewhere"];

/// One run of a command.
struct Run {
    exit: i32,
    text: String,
    errors: String,
}

impl Run {
    fn from_output(output: Output) -> Run {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Run { exit: output.status.code().unwrap_or(-1), text: text(output.stdout), errors: text(output.stderr) }
    }

    #[track_caller]
    fn report(&self, exit: i32) -> Value {
        assert_eq!(self.exit, exit, "{}\n{}", self.text, self.errors);
        for planted in PLANTED {
            let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, planted);
            assert!(!self.text.contains(planted) && !self.errors.contains(planted), "{planted} in the output");
            assert!(!self.text.contains(&encoded), "{planted} as base64 in the output");
        }
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

fn run(stage: &Stage, access: &Kubeconfig, arguments: &[&str]) -> Run {
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, access.text()).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(stage.repository.path()).args(arguments).arg("--kubeconfig").arg(&kubeconfig);
    Run::from_output(command.output().expect("it runs"))
}

/// `tidegate diff --live` as an administrator of KCP.
fn diff(stage: &Stage, more: &[&str]) -> Run {
    let access = stage.landscape.kcp.kubeconfig_of(CI, ADMINISTRATORS);
    run(stage, &access, &[&["diff", ".", "--live", "-o", "json"], more].concat())
}

/// The differences, as `target action kind name [runtimes]`.
fn lines(report: &Value) -> Vec<String> {
    let line = |difference: &Value| {
        let runtimes = difference["runtimes"].as_array().expect("runtimes").iter().filter_map(Value::as_str);
        let runtimes: Vec<&str> = runtimes.map(|key| key.trim_start_matches("kcp-system/")).collect();
        let text = |pointer: &str| difference.pointer(pointer).and_then(Value::as_str).unwrap_or("?").to_owned();
        let (target, action) = (text("/target"), text("/action"));
        format!("{target} {action} {} {} [{}]", text("/object/kind"), text("/object/name"), runtimes.join(" "))
    };
    report["differences"].as_array().expect("differences").iter().map(line).collect()
}

/// The difference of an object.
#[track_caller]
fn difference<'a>(report: &'a Value, kind: &str, name: &str) -> &'a Value {
    let is_it = |one: &&Value| one["object"]["kind"] == kind && one["object"]["name"] == name;
    report["differences"].as_array().expect("differences").iter().find(is_it).unwrap_or_else(|| panic!("{report:#}"))
}

/// A reconciled landscape whose objects have every field that API servers fill in. The daemon is stopped, so manual
/// changes stay.
async fn reconciled(skrs: usize) -> Stage {
    let files = files(skrs);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    applied(Stage::new(skrs, &files).await).await
}

/// The files in git.
fn files(skrs: usize) -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape"), "modules", &mut files);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape/landscapes/dev/watcher.yaml");
    files.push(("watcher.yaml".to_owned(), std::fs::read_to_string(example).expect("a file")));
    files.extend(stage::module("vault", "1.0.0", "vault"));
    files.push(("modules/vault/1.0.0/objects/secret.yaml".to_owned(), secret(PLANTED[0])));
    files.push(("modules/vault/release.yaml".to_owned(), stage::release("vault", &[("regular", "1.0.0")])));
    for name in stage::KYMAS.iter().take(skrs) {
        files.push((format!("kymas/{name}.yaml"), stage::kyma(name, &["cache", "mailer", "vault"])));
    }
    files
}

/// Lets the daemon reconcile a stage, then stops it.
async fn applied(stage: Stage) -> Stage {
    let skrs = stage.skrs.len();
    gateway(&stage).await;
    stage.start();
    for name in stage::KYMAS.iter().take(skrs) {
        let has = |type_: &'static str| move |one: &Value| one["type"] == type_ && one["status"] == "True";
        stage
            .until("the base is applied", &stage.kcp, "Kyma", "kcp-system", name, |kyma| {
                kyma["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(has("tidegate.dev/Applied")))
            })
            .await;
    }
    harness::eventually("every Manifest is applied", harness::SOON * 2, async || {
        let api: Api<DynamicObject> =
            harness::api_of(&stage.kcp, &manifest()).await.map_err(|error| error.to_string())?;
        let all = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let applied = |one: &&DynamicObject| one.data["status"].to_string().contains("tidegate.dev/Applied");
        let count = all.items.iter().filter(applied).count();
        if count == skrs * 4 { Ok(()) } else { Err(format!("{count} Manifests")) }
    })
    .await;
    stage
        .until("the VirtualService is there", &stage.kcp, "Watcher", "kcp-system", "kyma-dev", |watcher| {
            watcher["status"]["state"] == "Ready"
        })
        .await;
    stage.kill().await;
    stage
}

fn manifest() -> Value {
    json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest", "metadata": {"name": "any", "namespace": "kcp-system"}})
}

fn secret(value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: vault-key, namespace: kyma-system}}\nstringData: {{key: {value}, same: {}}}\n",
        PLANTED[3]
    )
}

/// The objects in KCP that the VirtualService and the webhook configurations need.
pub(crate) async fn gateway(stage: &Stage) {
    harness::apply(&stage.kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}}))
        .await;
    harness::apply(&stage.kcp, &json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "klm-istio-gateway", "namespace": "istio-system"},
        "stringData": {"ca.crt": stage.landscape.kcp.kubeconfig().authority},
    }))
    .await;
    harness::apply(&stage.kcp, &json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": "klm-watcher", "namespace": "kcp-system", "labels": {"operator.kyma-project.io/watcher-gateway": "default"}},
        "spec": {"selector": {"istio": "ingressgateway"}, "servers": [{"port": {"number": 443, "name": "https", "protocol": "HTTPS"}, "hosts": ["listener.example.org"]}]},
    }))
    .await;
}

fn collect(root: &Path, below: &str, files: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(root.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = format!("{below}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(root, &path, files);
        } else {
            files.push((path, std::fs::read_to_string(entry.path()).expect("UTF-8")));
        }
    }
}

fn write(stage: &Stage, path: &str, text: &str) {
    stage.repository.write(path, text).expect("a file");
}

fn text(stage: &Stage, path: &str) -> String {
    std::fs::read_to_string(stage.repository.path().join(path)).expect("a file")
}

/// Patches an object as another client.
async fn edit(client: &kube::Client, sample: Value, parameters: &PatchParams, patch: &Patch<Value>) {
    let api = harness::api_of(client, &sample).await.expect("a kind that is served");
    api.patch(sample["metadata"]["name"].as_str().unwrap(), parameters, patch).await.expect("a patch");
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "kyma-system"}})
}

/// Writes since `marks` that are not dry runs, and requests for Secrets that are not reads.
fn writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    for (cluster, mark) in stage.landscape.servers().zip(marks) {
        let records = cluster.records_since(*mark);
        let ours = records
            .iter()
            .filter(|record| [USER, CI].contains(&record.user.as_str()) || record.user.contains(":tidegate-diff"));
        let changes = |record: &&tidegate_testbed::Record| {
            record.is_write() || (record.resource == "secrets" && !["get", "list"].contains(&record.verb.as_str()))
        };
        found.extend(ours.filter(changes).map(|record| format!("{} {} {}", cluster.name(), record.verb, record.uri)));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_differs_is_shown_once_and_nothing_is_written() {
    let stage = reconciled(2).await;
    let marks = stage.marks();
    let report = diff(&stage, &[]).report(0);
    assert_eq!(lines(&report), Vec::<String>::new(), "defaults and what servers fill in are no difference");
    assert_eq!(report["summary"]["runtimesCompared"], 2, "{report:#}");
    let twice = (diff(&stage, &[]).text, diff(&stage, &[]).text);
    assert_eq!(twice.0, twice.1);

    a_bump(&stage);
    drift(&stage).await;
    objects_come_and_go(&stage).await;
    modules_share(&stage);
    secrets(&stage).await;
    what_a_user_must_confirm_is_what_offline_shows(&stage).await;
    what_waits_for_another_definition_has_no_conflict(&stage).await;
    assert_eq!(writes(&stage, &marks), ["skr-1 x"; 0], "the pipeline only reads, and tries out");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_user_stopped_is_held_and_what_is_new_is_not_compared() {
    let stage = reconciled(2).await;
    what_is_suspended_is_held(&stage).await;
    // A new Kyma has no access Secret yet.
    write(&stage, "kymas/three.yaml", &stage::kyma("three", &["cache"]));
    let report = diff(&stage, &[]).report(5);
    assert_eq!(report["unreached"][0]["target"], "skr/kcp-system/three", "{:#}", report["unreached"]);
    assert_eq!((&report["summary"]["runtimesCompared"], &report["summary"]["runtimesTotal"]), (&json!(2), &json!(3)));
    assert!(lines(&report).contains(&"runtime create ConfigMap cache-config [three]".to_owned()));
}

#[test]
fn without_the_control_plane_nothing_is_known() {
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kubeconfig");
    // No server listens on port 1.
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n\
                clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {token: hunter2-in-git}}]\n";
    std::fs::write(&kubeconfig, text).expect("a file");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/landscape");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("diff").arg(&example).args(["--live", "-o", "json", "--kubeconfig"]).arg(&kubeconfig);
    let report = Run::from_output(command.output().expect("it runs")).report(5);
    assert_eq!(report["unreached"][0]["target"], "kcp");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["export", "--landscape", "-", "--kubeconfig"]).arg(&kubeconfig);
    let exported = Run::from_output(command.output().expect("it runs"));
    assert_eq!((exported.exit, exported.text.as_str()), (5, ""), "half a file is none");
}

/// Both runtimes change in the same way, so each difference is shown once.
fn a_bump(stage: &Stage) {
    let path = "modules/cache/module-release-meta.yaml";
    let before = text(stage, path);
    write(stage, path, &before.replace("version: 1.0.0", "version: 1.1.0"));
    let marks = stage.marks();
    let report = diff(stage, &[]).report(1);
    // A second runtime with equal objects gets no requests of its own.
    let asked = stage.landscape.skrs.iter().zip(&marks[1..]).flat_map(|(skr, mark)| {
        let records = skr.records_since(*mark);
        records.into_iter().filter(|record| record.user == USER && record.verb == "patch").map(|record| record.name)
    });
    let mut asked: Vec<String> = asked.filter(|name| name.starts_with("cache-")).collect();
    asked.sort();
    assert_eq!(asked, ["cache-config", "cache-manager"]);
    let expected = [
        "kcp change ModuleReleaseMeta cache []",
        "kcp change Manifest one-cache-3313067807 [one two]",
        "runtime delete ModuleTemplate cache-1.0.0 [one two]",
        "runtime change ConfigMap cache-config [one two]",
        "runtime change ModuleReleaseMeta cache [one two]",
        "runtime change Deployment cache-manager [one two]",
    ];
    let mut found = lines(&report);
    found.sort();
    let mut expected: Vec<String> = expected.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(report["moves"][0]["runtimes"], 2, "{:#}", report["moves"]);
    let manifest = difference(&report, "Manifest", "one-cache-3313067807");
    assert_eq!(manifest["objects"], 2, "one in each runtime's name");
    let release = &difference(&report, "ModuleReleaseMeta", "cache")["places"][0];
    assert_eq!((&release["path"], &release["line"]), (&json!(path), &json!(14)), "the line that causes it");
    write(stage, path, &before);
}

/// Manual changes are shown for the runtime they are in, with their field managers.
async fn drift(stage: &Stage) {
    let replicas = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let by_hand = PatchParams { field_manager: Some("by-hand".to_owned()), ..PatchParams::default() };
    edit(&stage.skrs[1], object("apps/v1", "Deployment", "mailer-manager"), &by_hand, &replicas).await;
    let intruder = PatchParams::apply("intruder").force();
    let mut config = object("v1", "ConfigMap", "cache-config");
    config["data"] = json!({"eviction": "random"});
    edit(&stage.skrs[0], config.clone(), &intruder, &Patch::Apply(config)).await;
    // A label of another client is not a difference.
    let label = Patch::Merge(json!({"metadata": {"labels": {"owner": "another"}}}));
    edit(&stage.skrs[0], object("v1", "Service", "cache-manager-metrics"), &by_hand, &label).await;
    let report = diff(stage, &[]).report(1);
    let expected = ["runtime change ConfigMap cache-config [one]", "runtime change Deployment mailer-manager [two]"];
    assert_eq!(lines(&report), expected);
    let deployment = difference(&report, "Deployment", "mailer-manager");
    assert_eq!(deployment["conflicts"], json!([{"field": ".spec.replicas", "manager": "by-hand"}]));
    assert_eq!(
        (&deployment["old"]["spec"]["replicas"], &deployment["new"]["spec"]["replicas"]),
        (&json!(3), &json!(1))
    );
    let config = difference(&report, "ConfigMap", "cache-config");
    assert_eq!(config["conflicts"], json!([{"field": ".data.eviction", "manager": "intruder"}]));
    // Only the named runtime is compared.
    let report = diff(stage, &["--runtime", "kcp-system/two"]).report(1);
    assert_eq!(lines(&report), expected[1..]);
    assert_eq!((&report["summary"]["runtimesCompared"], &report["summary"]["runtimesTotal"]), (&json!(1), &json!(2)));
    let sampled = diff(stage, &["--sample", "1"]).report(1);
    assert_eq!(sampled["summary"]["runtimesCompared"], 1, "both have the same modules");
    assert_eq!(diff(stage, &["--runtime", "kcp-system/absent"]).exit, 2);
}

/// Objects that are added, removed, kept, or owned by others.
async fn objects_come_and_go(stage: &Stage) {
    let mut theirs = object("v1", "ConfigMap", "newcomer");
    theirs["data"] = json!({"whose": "theirs"});
    harness::apply(&stage.skrs[0], &theirs).await;
    let folder = "modules/mailer/2.4.0/objects";
    let (config, crd) = (text(stage, &format!("{folder}/config.yaml")), text(stage, &format!("{folder}/crd.yaml")));
    let newcomer =
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: newcomer, namespace: kyma-system}\ndata: {whose: ours}\n";
    write(stage, &format!("{folder}/newcomer.yaml"), newcomer);
    std::fs::remove_file(stage.repository.path().join(folder).join("config.yaml")).expect("a file");
    std::fs::remove_file(stage.repository.path().join(folder).join("crd.yaml")).expect("a file");
    // A CRD and an object of its kind in a missing namespace: a dry run is impossible.
    write(
        stage,
        &format!("{folder}/news.yaml"),
        &format!(
            "{}---\n{NEWS}",
            stage::THING_CRD.replace("Thing", "Piece").replace("things", "pieces").replace("thing", "piece")
        ),
    );
    let report = diff(stage, &["--runtime", "kcp-system/one", "--runtime", "kcp-system/two"]).report(1);
    let found = lines(&report);
    for expected in [
        "runtime conflict ConfigMap newcomer [one]",
        "runtime create ConfigMap newcomer [two]",
        "runtime delete ConfigMap mailer-config [one]",
        "runtime delete ConfigMap mailer-config [two]",
        "runtime create CustomResourceDefinition pieces.example.org [one two]",
        "runtime create Piece first [one two]",
        "runtime create Namespace newsroom [one two]",
    ] {
        assert!(found.iter().any(|line| line == expected), "{expected} in {found:#?}");
    }
    assert!(!found.iter().any(|line| line.contains("delete CustomResourceDefinition")), "{found:#?}");
    let kept = report["held"].as_array().expect("held").iter().find(|held| held["why"] == "kept").expect("kept");
    assert!(kept["message"].as_str().is_some_and(|text| text.contains("mailers.")), "{kept}");
    let conflict = difference(&report, "ConfigMap", "newcomer");
    assert_eq!(conflict["action"], "conflict");
    let managers: Vec<&str> =
        conflict["conflicts"].as_array().unwrap().iter().filter_map(|one| one["manager"].as_str()).collect();
    assert!(managers.contains(&"testbed"), "{conflict:#}");
    // The daemon applies the rest of the module, and meanwhile prunes none of it.
    assert_eq!(conflict["effect"], "held");
    let effects = |action: &str, runtime: &str| -> Vec<&Value> {
        let all = report["differences"].as_array().unwrap().iter();
        let of = |one: &&Value| one["action"] == action && one["target"] == "runtime" && one["runtimes"][0] == runtime;
        all.filter(of).map(|one| &one["effect"]).collect()
    };
    assert_eq!(effects("delete", "kcp-system/one"), ["held"]);
    assert_eq!(effects("delete", "kcp-system/two"), ["applies"]);
    assert!(effects("create", "kcp-system/one").iter().all(|effect| **effect == "applies"), "{report:#}");
    let held = held(&report, "conflict");
    assert_eq!((&held["module"], &held["runtimes"]), (&json!("mailer"), &json!(["kcp-system/one"])));
    assert!(held["message"].as_str().unwrap().contains("newcomer exists and belongs to"), "{held}");
    for (name, text) in [("config.yaml", config), ("crd.yaml", crd)] {
        write(stage, &format!("{folder}/{name}"), &text);
    }
    for name in ["newcomer.yaml", "news.yaml"] {
        std::fs::remove_file(stage.repository.path().join(folder).join(name)).expect("a file");
    }
}

const NEWS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: newsroom}
---
apiVersion: example.org/v1
kind: Piece
metadata: {name: first, namespace: newsroom}
spec: {size: 1}
";

/// The entry in `held` with this reason.
#[track_caller]
fn held<'a>(report: &'a Value, why: &str) -> &'a Value {
    let held = report["held"].as_array().expect("held");
    held.iter().find(|held| held["why"] == why).unwrap_or_else(|| panic!("{report:#}"))
}

/// If several modules bring an object, one of them owns it. An object that moves to another module is recreated.
fn modules_share(stage: &Stage) {
    let (cache, mailer) = ("modules/cache/1.0.0/objects", "modules/mailer/2.4.0/objects");
    let config = text(stage, &format!("{cache}/config.yaml"));
    write(stage, &format!("{mailer}/theirs.yaml"), &config);
    let news = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: both, namespace: kyma-system}\n";
    for folder in [cache, mailer] {
        write(stage, &format!("{folder}/both.yaml"), news);
    }
    let report = diff(stage, &["--runtime", "kcp-system/one"]).report(1);
    let conflict = difference(&report, "ConfigMap", "cache-config");
    assert_eq!((&conflict["action"], &conflict["effect"]), (&json!("conflict"), &json!("held")));
    let manager = conflict["conflicts"][0]["manager"].as_str().unwrap_or_default();
    assert!(manager.starts_with("Manifest one-cache-"), "{conflict:#}");
    let found = lines(&report);
    for expected in ["runtime create ConfigMap both [one]", "runtime conflict ConfigMap both [one]"] {
        assert!(found.iter().any(|line| line == expected), "{expected} in {found:#?}");
    }
    // The object moves to the other module.
    std::fs::remove_file(stage.repository.path().join(cache).join("config.yaml")).expect("a file");
    let report = diff(stage, &["--runtime", "kcp-system/one"]).report(1);
    let moved = difference(&report, "ConfigMap", "cache-config");
    assert_eq!((&moved["action"], &moved["effect"]), (&json!("recreate"), &json!("applies")), "{moved:#}");
    assert_eq!(lines(&report).iter().filter(|line| line.contains("cache-config")).count(), 1);
    write(stage, &format!("{cache}/config.yaml"), &config);
    for file in [format!("{mailer}/theirs.yaml"), format!("{mailer}/both.yaml"), format!("{cache}/both.yaml")] {
        std::fs::remove_file(stage.repository.path().join(file)).expect("a file");
    }
}

/// What a commit takes from more runtimes than the limit is shown with all that follows in runtimes, so that the rules
/// of a pipeline see it.
async fn what_a_user_must_confirm_is_what_offline_shows(stage: &Stage) {
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let limit = |limit: Value| Patch::Merge(json!({"spec": {"removalLimit": limit}}));
    edit(&stage.kcp, source.clone(), &PatchParams::default(), &limit(json!(0))).await;
    let always_ask = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\nspec: {removalLimit: 0}\n";
    write(stage, ".tidegate/source.yaml", always_ask);
    let folder = "modules/cache/1.0.0/objects";
    let (config, manager) =
        (text(stage, &format!("{folder}/config.yaml")), text(stage, &format!("{folder}/manager.yaml")));
    std::fs::remove_file(stage.repository.path().join(folder).join("config.yaml")).expect("a file");
    write(stage, &format!("{folder}/manager.yaml"), &manager.replace("replicas: 1", "replicas: 2"));
    let shown = both(stage);
    assert!(shown.contains("needs-confirmation runtime delete ConfigMap cache-config [one two]"), "{shown:#?}");
    assert!(shown.contains("needs-confirmation runtime change Deployment cache-manager [one two]"), "{shown:#?}");
    write(stage, &format!("{folder}/config.yaml"), &config);
    write(stage, &format!("{folder}/manager.yaml"), &manager);

    for name in stage::KYMAS {
        write(stage, &format!("kymas/{name}.yaml"), &stage::kyma(name, &["cache", "vault"]));
    }
    let shown = both(stage);
    assert!(shown.contains("needs-confirmation runtime delete Deployment mailer-manager [one two]"), "{shown:#?}");
    for name in stage::KYMAS {
        write(stage, &format!("kymas/{name}.yaml"), &stage::kyma(name, &["cache", "mailer", "vault"]));
    }
    std::fs::remove_dir_all(stage.repository.path().join(".tidegate")).expect("a folder");
    edit(&stage.kcp, source, &PatchParams::default(), &limit(Value::Null)).await;
}

/// A ModuleTemplate belongs to another client, and the ModuleReleaseMeta that offers its version waits for it.
async fn what_waits_for_another_definition_has_no_conflict(stage: &Stage) {
    let template = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": "vault-1.1.0", "namespace": "kcp-system"},
        "spec": {"moduleName": "vault", "version": "1.1.0", "descriptor": {}},
    });
    let api = harness::api_of(&stage.kcp, &template).await.expect("a kind that is served");
    let by = PatchParams::apply("another-client");
    api.patch("vault-1.1.0", &by, &Patch::Apply(&template)).await.expect("an apply");
    let release = text(stage, "modules/vault/release.yaml");
    for (path, text) in stage::module("vault", "1.1.0", "next") {
        write(stage, &path, &text);
    }
    write(stage, "modules/vault/release.yaml", &stage::release("vault", &[("regular", "1.1.0")]));
    let report = diff(stage, &[]).report(1);
    let waiting = held(&report, "waiting");
    let name =
        "ModuleReleaseMeta kcp-system/vault depends on ModuleTemplate kcp-system/vault-1.1.0, which is held back";
    assert_eq!(waiting["message"], name, "{report:#}");
    let change = difference(&report, "ModuleReleaseMeta", "vault");
    assert_eq!((&change["action"], &change["effect"]), (&json!("change"), &json!("held")), "{change:#}");
    let conflict = held(&report, "conflict");
    let message = conflict["message"].as_str().unwrap_or_default();
    assert!(message.contains("ModuleTemplate kcp-system/vault-1.1.0"), "{message}");
    write(stage, "modules/vault/release.yaml", &release);
    std::fs::remove_dir_all(stage.repository.path().join("modules/vault/1.1.0")).expect("a folder");
    api.delete("vault-1.1.0", &kube::api::DeleteParams::default()).await.expect("a deletion");
}

/// What the live comparison shows to wait in runtimes: all that the other one shows, and it violates the same rules.
/// Drift of what waits is shown besides.
fn both(stage: &Stage) -> BTreeSet<String> {
    let rules = ["--fail-on", "delete,mass-change=10%"];
    let live = diff(stage, &rules).report(4);
    let mut offline = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    offline.current_dir(stage.repository.path()).args(["diff", ".", "--from", "HEAD", "-o", "json"]).args(rules);
    let offline = Run::from_output(offline.output().expect("it runs")).report(4);
    let shown = |report: &Value| -> BTreeSet<String> {
        let effects = report["differences"].as_array().expect("differences").iter().map(|one| one["effect"].clone());
        let all = lines(report).into_iter().zip(effects);
        let all = all.map(|(line, effect)| format!("{} {line}", effect.as_str().unwrap_or_default()));
        all.filter(|line| line.starts_with("needs-confirmation runtime ")).collect()
    };
    let (live, offline) = (shown(&live), shown(&offline));
    assert!(offline.is_subset(&live), "{live:#?} {offline:#?}");
    let deletions = |all: &BTreeSet<String>| -> Vec<String> {
        all.iter().filter(|line| line.contains(" delete ")).cloned().collect()
    };
    assert_eq!(deletions(&live), deletions(&offline));
    live
}

/// Suspended parts are not compared, and the report says so.
async fn what_is_suspended_is_held(stage: &Stage) {
    let path = "modules/cache/1.0.0/objects/config.yaml";
    let before = text(stage, path);
    write(stage, path, &before.replace("256Mi", "512Mi"));
    let mut kyma = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "two", "namespace": "kcp-system"}});
    let stop = |value: Value| {
        Patch::Merge(json!({"metadata": {"labels": {"operator.kyma-project.io/skip-reconciliation": value}}}))
    };
    edit(&stage.kcp, kyma.clone(), &PatchParams::default(), &stop(json!("true"))).await;
    let report = diff(stage, &[]).report(1);
    assert_eq!(difference(&report, "ConfigMap", "cache-config")["runtimes"], json!(["kcp-system/one"]));
    assert_eq!(held(&report, "suspended")["runtimes"], json!(["kcp-system/two"]));
    assert_eq!(report["summary"]["runtimesCompared"], 1);
    // The line in the definition that causes the difference, as in offline mode.
    let place = &difference(&report, "ConfigMap", "cache-config")["places"][0];
    assert_eq!((&place["path"], &place["line"]), (&json!(path), &json!(line_of(&before, "256Mi"))));
    // Generated objects in the control plane point to the line that names the folder of the module's objects.
    let template = "modules/cache/1.0.0/module-template.yaml";
    let line = line_of(&text(stage, template), "tidegate.dev/module-path");
    for (kind, name) in [("ModuleTemplate", "cache-1.0.0"), ("Manifest", "one-cache-3313067807")] {
        let place = &difference(&report, kind, name)["places"][0];
        assert_eq!((&place["path"], &place["line"]), (&json!(template), &json!(line)), "{kind}");
    }
    edit(&stage.kcp, kyma.take(), &PatchParams::default(), &stop(Value::Null)).await;

    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let suspend = |value: bool| Patch::Merge(json!({"spec": {"suspend": value}}));
    edit(&stage.kcp, source.clone(), &PatchParams::default(), &suspend(true)).await;
    let report = diff(stage, &[]).report(1);
    let effects: BTreeSet<&str> =
        report["differences"].as_array().unwrap().iter().filter_map(|one| one["effect"].as_str()).collect();
    assert_eq!(effects, BTreeSet::from(["held"]));
    assert!(held(&report, "suspended")["message"].as_str().unwrap().contains("GitSource kcp-system/landscape"));
    edit(&stage.kcp, source, &PatchParams::default(), &suspend(false)).await;
    write(stage, path, &before);
}

fn line_of(text: &str, found: &str) -> usize {
    text.lines().position(|line| line.contains(found)).expect("it is there") + 1
}

/// An object that the API server rejects is an error at its line.
fn what_is_refused(stage: &Stage) {
    let path = "modules/mailer/2.4.0/objects/manager.yaml";
    let before = text(stage, path);
    write(stage, path, &before.replace("replicas: 1", "replicas: three"));
    let report = diff(stage, &[]).report(3);
    let refused = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "object-refused");
    let refused = refused.unwrap_or_else(|| panic!("{report:#}"));
    assert_eq!(refused["place"]["path"], path);
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("mailer-manager") && !message.contains('\n'), "{message}");
    assert_eq!(report["unreached"], json!([]));
    let held = held(&report, "refused");
    assert_eq!((held["module"].as_str(), held["place"]["path"].as_str()), (Some("mailer"), Some(path)));
    // If the server's message quotes a value of a Secret, the value is masked.
    let name = before.lines().find(|line| line.trim_start().starts_with("- name:")).expect("a container");
    let (indent, _) = name.split_once('-').expect("a list");
    write(stage, path, &before.replacen(name, &format!("{indent}- name: \"{}!\"", PLANTED[0]), 1));
    let report = diff(stage, &[]).report(3);
    let refused = report["diagnostics"].as_array().unwrap().iter().find(|one| one["code"] == "object-refused");
    let message = refused.unwrap_or_else(|| panic!("{report:#}"))["message"].as_str().unwrap();
    assert!(message.contains("Invalid value") && message.contains("(masked: Secret "), "{message}");
    write(stage, path, &before);

    // An object of a namespace that nothing creates; if the module does, it is no problem.
    let path = "modules/mailer/2.4.0/objects/elsewhere.yaml";
    let there = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: elsewhere, namespace: nowhere}\n";
    write(stage, path, there);
    let report = diff(stage, &[]).report(3);
    let held = self::held(&report, "refused");
    let expected = "the API server rejects ConfigMap nowhere/elsewhere: namespace nowhere does not exist, and the \
                    module does not create it; until this is resolved, Tidegate prunes nothing of the module";
    assert_eq!((held["message"].as_str(), held["place"]["path"].as_str()), (Some(expected), Some(path)), "{report:#}");
    assert!(!lines(&report).iter().any(|line| line.contains("elsewhere")), "{report:#}");
    write(stage, path, &format!("{there}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: nowhere}}\n"));
    let report = diff(stage, &[]).report(1);
    assert!(!report["held"].as_array().expect("held").iter().any(|held| held["why"] == "refused"), "{report:#}");
    assert!(lines(&report).contains(&"runtime create ConfigMap elsewhere [one]".to_owned()), "{report:#}");
    std::fs::remove_file(stage.repository.path().join(path)).expect("a file");
}

/// Secrets are compared by digest, with changes in git and by hand.
async fn secrets(stage: &Stage) {
    let path = "modules/vault/1.0.0/objects/secret.yaml";
    write(stage, path, &secret(PLANTED[1]));
    let copy = json!({"annotations": {"note": format!("it is {}", PLANTED[2])}});
    let by_hand = Patch::Merge(json!({"stringData": {"key": PLANTED[2], "theirs": PLANTED[2]}, "metadata": copy}));
    edit(&stage.skrs[1], object("v1", "Secret", "vault-key"), &PatchParams::default(), &by_hand).await;
    let report = diff(stage, &[]).report(1);
    let of_secret: Vec<String> = lines(&report).into_iter().filter(|line| line.contains("vault-key")).collect();
    let expected = ["runtime change Secret vault-key [one]", "runtime change Secret vault-key [two]"];
    assert_eq!(of_secret, expected, "the values before differ");
    let secret = difference(&report, "Secret", "vault-key");
    let value = |side: &str, key: &str| secret[side]["data"][key].as_str().unwrap_or_default().to_owned();
    assert!(value("old", "key").starts_with("(masked: Secret "), "{secret:#}");
    assert_ne!(value("old", "key"), value("new", "key"));
    assert_eq!(value("old", "same"), value("new", "same"));
    // Digests of two runs are comparable if both use the same key.
    let folder = harness::folder();
    let key = folder.path().join("key");
    std::fs::write(&key, "a key that two runs share").expect("a file");
    let with_key = || diff(stage, &["--mask-key-file", key.to_str().expect("UTF-8")]).text;
    assert_eq!(with_key(), with_key());
    assert_eq!(diff(stage, &[]).text, diff(stage, &[]).text, "numbers, since each run has a key of its own");
    write(stage, path, &self::secret(PLANTED[0]));
    secrets_within(stage);
}

/// An object that contains the data of a Secret is not sent either.
fn secrets_within(stage: &Stage) {
    let path = "modules/vault/1.0.0/module-template.yaml";
    let before = text(stage, path);
    let data = format!(
        "  data: {{apiVersion: v1, kind: Secret, metadata: {{name: made, namespace: kyma-system}}, stringData: {{key: {}}}}}\n",
        PLANTED[1]
    );
    write(stage, path, &format!("{before}{data}"));
    let marks = stage.marks();
    let report = diff(stage, &[]).report(1);
    let template = difference(&report, "ModuleTemplate", "vault-1.0.0");
    assert!(
        template["new"]["spec"]["data"]["stringData"]["key"].as_str().is_some_and(|key| key.starts_with("(masked"))
    );
    assert_eq!(template["action"], "change");
    let records = stage.landscape.kcp.records_since(marks[0]);
    let sent = records.iter().filter(|record| record.user == CI && record.verb == "patch");
    let sent: Vec<&str> = sent.map(|record| record.name.as_str()).filter(|name| name.contains("vault")).collect();
    assert_eq!(sent, [""; 0], "neither the ModuleTemplate nor the Manifests, which hold it as well");
    write(stage, path, &before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_be_reached_is_reported_and_the_others_are_shown() {
    let stage = reconciled(2).await;
    write(
        &stage,
        "modules/cache/1.0.0/objects/extra.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: extra, namespace: kyma-system}\n",
    );
    stage.landscape.skrs[1].stop().await;
    let report = diff(&stage, &[]).report(5);
    assert_eq!(report["verdict"], "incomplete");
    let found = lines(&report);
    assert!(found.contains(&"runtime create ConfigMap extra [one]".to_owned()), "{found:#?}");
    assert_eq!(report["unreached"][0]["target"], "skr/kcp-system/two", "{:#}", report["unreached"]);
    assert_eq!(report["summary"]["runtimesCompared"], 1);
    // Invalid definitions are listed first. Their objects stay unchanged.
    write(&stage, "kymas/one.yaml", &stage::kyma("one", &["cache", "no-such-module"]));
    let report = diff(&stage, &["--runtime", "kcp-system/one"]).report(3);
    let withheld = report["held"].as_array().expect("held").iter().find(|held| held["why"] == "withheld");
    assert_eq!(withheld.expect("withheld")["runtimes"], json!(["kcp-system/one"]));
    assert!(
        !lines(&report).iter().any(|line| line.contains("delete")),
        "nothing is deleted while there are errors: {:#?}",
        lines(&report)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_is_tried_on_samples_of_the_control_plane_and_its_mistake_is_reported_once() {
    let stage = reconciled(2).await;
    // Only the catalog in the control plane says that no module has a manager.
    let path = "templates/kcp/manifest.yaml";
    let embedded = include_str!("../../templates/kcp/manifest.yaml");
    write(&stage, path, &format!("{embedded}# {{{{ manager.kind }}}}\n"));
    stage.repository.remove("modules").expect("a folder");
    stage.repository.commit("an override").expect("a commit");
    let folder = harness::folder();
    let source = folder.path().join("source.yaml");
    let text = "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: other, namespace: kcp-system}\n\
                spec: {url: \"https://git.example.com/a\", templates: templates}\n";
    std::fs::write(&source, text).expect("a file");

    let ran = diff(&stage, &["--source-file", source.to_str().expect("UTF-8")]);
    let report = ran.report(3);
    let diagnostics = report["diagnostics"].as_array().expect("diagnostics");
    let of_template = |one: &&Value| one["code"] == "template";
    let found: Vec<&Value> = diagnostics.iter().filter(of_template).collect();
    let [one] = &found[..] else { panic!("{found:#?}") };
    let line = embedded.lines().count() + 1;
    let place = &one["place"];
    assert_eq!((place["path"].as_str(), place["line"].as_u64()), (Some(path), Some(line as u64)), "{one}");
    assert!(one["message"].as_str().expect("a message").contains("rendering a sample: module "), "{one}");
    assert!(one["hint"].as_str().expect("a hint").contains("objects use this template"), "{one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_accounts_of_pipelines_have_every_right_that_is_needed_and_cannot_write() {
    // Only real servers evaluate RBAC rules and policies.
    let files = files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = applied(Stage::real(1, Extent::Controllers, &files, &[]).await).await;
    let kcp = stage.landscape.kcp.real();
    stage.rests().await;
    let marks = stage.marks();
    // Only real servers set all defaults, and validate a Deployment completely.
    assert_eq!(lines(&diff(&stage, &[]).report(0)), [""; 0], "defaults are no difference");
    what_is_refused(&stage);
    let component = deploy::objects("pipelines");
    for object in &component {
        harness::apply(&stage.kcp, object).await;
    }
    for account in ["tidegate-diff", "tidegate-export"] {
        let own: Vec<Value> =
            component.iter().filter(|object| object["metadata"]["name"] == account).cloned().collect();
        let user = format!("system:serviceaccount:kcp-system:{account}");
        deploy::until_granted(&stage.kcp, &user, &deploy::rules(&own, account)).await;
    }
    // One change for each kind that supports dry runs.
    write(
        &stage,
        "kymas/one.yaml",
        &stage::kyma("one", &["cache", "mailer", "vault"])
            .replace("channel: regular", "channel: regular\n  skipMaintenanceWindows: true"),
    );
    let watcher = text(&stage, "watcher.yaml").replace("port: 8082", "port: 8083");
    write(&stage, "watcher.yaml", &watcher);
    write(&stage, "modules/vault/release.yaml", &stage::release("vault", &[("regular", "1.0.0"), ("fast", "1.0.0")]));
    let config = text(&stage, "modules/cache/1.0.0/objects/config.yaml").replace("256Mi", "512Mi");
    write(&stage, "modules/cache/1.0.0/objects/config.yaml", &config);
    let access = kcp.kubeconfig_of_service_account("kcp-system", "tidegate-diff").await.unwrap();
    let report = run(&stage, &access, &["diff", ".", "--live", "-o", "json"]).report(1);
    for line in [
        "kcp change Kyma one [one]",
        "kcp change ModuleReleaseMeta vault []",
        "kcp change ModuleTemplate cache-1.0.0 []",
        "kcp change VirtualService kyma-dev []",
        "kcp change Watcher kyma-dev []",
        "runtime change ConfigMap cache-config [one]",
    ] {
        assert!(lines(&report).iter().any(|found| found == line), "{line} in {:#?}", lines(&report));
    }
    assert_eq!(report["unreached"], json!([]));
    assert_eq!(report["unknown"], json!([]));
    assert_eq!(writes(&stage, &marks), [""; 0], "nothing is written");

    // The repository of another GitSource does not have the objects of these modules.
    let other = json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "other", "namespace": "kcp-system"},
        "spec": {"url": "https://git.example.org/other.git", "suspend": true},
    });
    harness::apply(&stage.kcp, &other).await;
    let export = kcp.kubeconfig_of_service_account("kcp-system", "tidegate-export").await.unwrap();
    let exported = run(&stage, &export, &["export", "--landscape", "-"]);
    assert_eq!(exported.exit, 0, "{}", exported.errors);
    let file: Value = serde_json::from_str(&exported.text).unwrap();
    assert_eq!(file["kymas"][0]["name"], "one");
    assert_eq!(file["kymas"][0]["installed"][0]["version"], "1.0.0", "{file:#}");
    assert!(file["modules"].to_string().contains("/v1/ConfigMap/kyma-system/cache-config"), "{file:#}");

    let records = stage.landscape.kcp.records();
    let ours: Vec<_> = records.iter().filter(|record| record.user.contains(":tidegate-")).collect();
    let refused: Vec<_> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let by_export = ours.iter().filter(|record| record.user.ends_with("tidegate-export"));
    assert!(
        by_export.clone().count() > 0 && by_export.clone().all(|record| record.resource != "secrets"),
        "no Secrets"
    );
    for account in ["tidegate-diff", "tidegate-export"] {
        let own: Vec<Value> =
            component.iter().filter(|object| object["metadata"]["name"] == account).cloned().collect();
        let rules = deploy::rules(&own, account);
        let needs: BTreeSet<deploy::Need> = ours
            .iter()
            .filter(|record| record.user.ends_with(account))
            .flat_map(|record| deploy::needs(record))
            .collect();
        let idle = deploy::idle(&rules, &needs);
        assert!(!rules.is_empty() && idle.is_empty(), "rules that {account} does not need: {idle:#?}");
    }

    // The same account may send dry runs but not write. A policy takes a moment to take effect.
    let client = access.client().unwrap();
    let sample = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"name": "one", "namespace": "kcp-system"}});
    harness::eventually("a write is refused", harness::SOON, async || {
        let api: Api<DynamicObject> = harness::api_of(&client, &sample).await.map_err(|error| error.to_string())?;
        let patch = Patch::Merge(json!({"metadata": {"labels": {"written": "by-a-pipeline"}}}));
        match api.patch("one", &PatchParams::default(), &patch).await {
            Ok(_) => Err("it was written".to_owned()),
            Err(error) if error.to_string().contains("may only send dry-run requests") => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    })
    .await;
    let tried = PatchParams { dry_run: true, ..PatchParams::default() };
    edit(&client, sample, &tried, &Patch::Merge(json!({"metadata": {"labels": {"written": "never"}}}))).await;
}
