//! `tidegate run --observe`: what the daemon would write is computed, shown, and not written. The servers' records have
//! the last word.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use kube_sim::Kubeconfig;
use serde_json::{Value, json};
use tidegate_cluster::{Cause, Cluster, ClusterName, Error, Kind, Limits, OnConflict, Pool, Propagation, access};
use tidegate_core::{api::names, name::Key, object::Object};
use tidegate_testbed::{Extent, Record};

use crate::{
    agent_path::world::{self, AGENT},
    deploy,
    harness::{self, SOON, eventually},
    stage::{self, Stage, USER, read, scenarios},
};

scenarios! {
    an_observer_of_two_hundred_runtimes_only_reads_and_seldom,
    an_observer_of_two_hundred_small_runtimes_only_reads_and_seldom,
    an_observer_of_three_small_runtimes_only_reads_and_seldom,
    what_would_change_is_shown_by_runtime_and_module_and_is_what_the_daemon_then_writes,
    a_runtime_that_cannot_be_compared_is_named_and_all_others_are_compared,
    without_a_source_the_custom_resources_in_the_control_plane_are_compared,
    what_has_no_ownership_label_names_the_fields_that_differ_from_git,
    credentials_are_compared_and_no_value_is_shown,
    a_webhook_configuration_that_waits_for_the_end_of_the_adoption_is_listed,
}

/// What a manager in place of Tidegate is called.
const OTHER: &str = "declarative.kyma-project.io/applier";

/// A report of the observer, once it is as `holds` says.
async fn observed(stage: &Stage, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    eventually(what, SOON * 4, async || {
        let (status, text) = stage.ask("metrics", "/observed.json").await?;
        let report: Value = serde_json::from_str(&text).map_err(|error| format!("{status} {error}: {text}"))?;
        if holds(&report) { Ok(report) } else { Err(format!("{report:#}")) }
    })
    .await
}

/// Whether so many runtimes were compared, and no other is there.
fn compared(runtimes: u64) -> impl Fn(&Value) -> bool {
    move |report| report["summary"]["runtimes"] == json!({"Compared": runtimes}) && report["summary"]["incomplete"] == 0
}

/// All requests of the daemon since `marks`.
fn requests(stage: &Stage, marks: &[u64]) -> Vec<(String, Record)> {
    let servers = stage.landscape.servers().zip(marks);
    let of = |(server, mark): (&stage::Server, &u64)| {
        let name = server.name().to_owned();
        server.records_since(*mark).into_iter().map(move |record| (name.clone(), record)).collect::<Vec<_>>()
    };
    servers.flat_map(of).filter(|(_, record)| record.user == USER).collect()
}

fn is_read(record: &Record) -> bool {
    ["get", "list", "watch"].contains(&record.verb.as_str())
}

/// The servers' records have no request of the daemon but reads.
#[track_caller]
fn assert_only_reads(requests: &[(String, Record)]) {
    let others: Vec<_> = requests.iter().filter(|(_, record)| !is_read(record)).collect();
    assert!(others.is_empty(), "{others:#?}");
    assert!(!requests.is_empty(), "an observer reads");
}

/// The differences of a runtime's module that no decision explains: reason, kind, name and fields.
fn differences(report: &Value, runtime: &str, module: &str) -> Vec<(String, String, Vec<String>)> {
    let runtimes = report["runtimes"].as_array().expect("runtimes");
    let found = runtimes.iter().find(|one| one["name"] == runtime).expect("the runtime is there");
    let objects = found["modules"][module]["objects"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_one = |one: Value| {
        let fields = one["fields"].as_array().into_iter().flatten().map(text).collect();
        (text(&one["reason"]), format!("{} {}", text(&one["kind"]), text(&one["name"])), fields)
    };
    objects.into_iter().filter(|one| one["improvement"].is_null()).map(of_one).collect()
}

fn difference(reason: &str, object: &str, fields: &[&str]) -> (String, String, Vec<String>) {
    (reason.to_owned(), object.to_owned(), fields.iter().map(|field| (*field).to_owned()).collect())
}

/// A module with many objects.
fn large_module(objects: usize) -> Vec<(String, String)> {
    let map = |index: usize| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: large-{index}, namespace: kyma-system}}\ndata: {{text: same}}\n"
        )
    };
    let mut files = stage::module("large", "1.0.0", "one");
    let more: Vec<String> = (0..objects).map(map).collect();
    files.push(("modules/large/1.0.0/objects/more.yaml".to_owned(), more.join("---\n")));
    files.push(("modules/large/release.yaml".to_owned(), stage::release("large", &[("regular", "1.0.0")])));
    files
}

/// A landscape of so many runtimes that another process has installed.
async fn installed(runtimes: usize, files: Vec<(String, String)>, modules: &[&str]) -> Stage {
    let names: Vec<String> = (0..runtimes).map(name).collect();
    let mut files = files;
    files.extend(names.iter().map(|name| (format!("kymas/{name}.yaml"), stage::kyma(name, modules))));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(runtimes, Extent::Controllers, &files, &[]).await;
    for (name, skr) in names.iter().zip(&stage.landscape.skrs) {
        harness::apply(&stage.kcp, &stage::access_secret(name, skr)).await;
    }
    stage.start();
    for name in &names {
        stage.kyma_in(name, "Ready").await;
    }
    stage.rests().await;
    stage.kill().await;
    stage
}

/// The first ten have the names of every stage.
fn name(index: usize) -> String {
    stage::MANY.get(index).map_or_else(|| format!("runtime-{index}"), |name| (*name).to_owned())
}

async fn merge(client: &Client, kind: (&str, &str), namespace: &str, name: &str, patch: &Value) {
    let sample = json!({"apiVersion": kind.0, "kind": kind.1, "metadata": {"name": name, "namespace": namespace}});
    let api = harness::api_of(client, &sample).await.expect("a kind that is served");
    let by = PatchParams { field_manager: Some(OTHER.to_owned()), ..PatchParams::default() };
    api.patch(name, &by, &Patch::Merge(patch)).await.expect("a patch");
}

/// What a manager does all the time: it renews its Lease, it writes statuses of Kymas and Manifests whose times move,
/// and it applies an object of `module` in each of these runtimes again, with a label that changes each time.
async fn work(stage: &Stage, round: usize, module: &str) {
    let at = jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(i64::try_from(round).unwrap());
    let by = PatchParams { field_manager: Some(OTHER.to_owned()), ..PatchParams::default() };
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "893110f7.kyma-project.io", "namespace": "kcp-system"},
        "spec": {"holderIdentity": "klm-1_x", "leaseDurationSeconds": 180, "renewTime": format!("{at:.6}")},
    });
    let leases = harness::api_of(&stage.kcp, &lease).await.unwrap();
    let applies = PatchParams::apply(OTHER).force();
    leases.patch("893110f7.kyma-project.io", &applies, &Patch::Apply(&lease)).await.unwrap();
    let status = |kind: &str| {
        let last = json!({"operation": format!("{kind} is ready"), "lastUpdateTime": at.to_string()});
        Patch::Merge(json!({"status": {"lastOperation": last}}))
    };
    let sample = |kind: &str| {
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": kind,
            "metadata": {"name": "any", "namespace": "kcp-system"},
        })
    };
    let kymas = harness::api_of(&stage.kcp, &sample("Kyma")).await.unwrap();
    let manifests = harness::api_of(&stage.kcp, &sample("Manifest")).await.unwrap();
    for index in 0..10 {
        let index = (round * 10 + index) % stage.skrs.len();
        let name = name(index);
        kymas.patch_status(&name, &by, &status("kyma")).await.unwrap();
        let own = ListParams::default().labels(&format!("operator.kyma-project.io/kyma-name={name}"));
        for manifest in manifests.list(&own).await.unwrap() {
            let name = manifest.metadata.name.unwrap();
            manifests.patch_status(&name, &by, &status("manifest")).await.unwrap();
        }
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": format!("{module}-b"), "namespace": "kyma-system", "labels": {"round": round.to_string()},
            },
            "data": {"text": "same"},
        });
        let maps = harness::api_of(&stage.skrs[index], &map).await.unwrap();
        maps.patch(&format!("{module}-b"), &applies, &Patch::Apply(&map)).await.unwrap();
    }
}

async fn an_observer_of_two_hundred_runtimes_only_reads_and_seldom() {
    let all = reads_seldom(200, large_module(30), "large", 8).await;
    assert!(all <= 0.1, "{all} reads for each object and hour");
}

/// A runtime with few objects is compared less often: the budget is for each object.
async fn an_observer_of_two_hundred_small_runtimes_only_reads_and_seldom() {
    let all = reads_seldom(200, small_module(), "mailer", 30).await;
    assert!(all <= 0.1, "{all} reads for each object and hour");
}

/// The watches of the control plane cost the same in any landscape, and here there are few objects to share them.
async fn an_observer_of_three_small_runtimes_only_reads_and_seldom() {
    let all = reads_seldom(3, small_module(), "mailer", 72).await;
    assert!(all <= 0.1, "{all} reads for each object and hour");
}

fn small_module() -> Vec<(String, String)> {
    let mut files = stage::module("mailer", "2.0.0", "mail");
    files.push(("modules/mailer/release.yaml".to_owned(), stage::release("mailer", &[("regular", "2.0.0")])));
    files
}

/// Observes so many runtimes with this module for so many hours, while Lifecycle Manager works. Returns the reads for
/// each object and hour, of runtimes and of the control plane.
async fn reads_seldom(runtimes: usize, files: Vec<(String, String)>, module: &str, hours: u64) -> f64 {
    let stage = installed(runtimes, files, &[module]).await;
    // As users have it. The stage's ten seconds are for tests that commit.
    merge(
        &stage.kcp,
        ("tidegate.dev/v1alpha1", "GitSource"),
        "kcp-system",
        "landscape",
        &json!({"spec": {"interval": "10m"}}),
    )
    .await;
    let begin = stage.marks();
    stage.start_with(&["--observe"]);
    let report = observed(&stage, "all are compared", compared(runtimes as u64)).await;
    assert_eq!(report["summary"]["differences"], 0, "{}", report["summary"]);
    assert_eq!(report["summary"]["improvements"], 0, "another process of Tidegate installed it");

    let steady = stage.marks();
    for round in 0..usize::try_from(hours).unwrap() * 12 {
        work(&stage, round, module).await;
        tokio::time::sleep(Duration::from_secs(300)).await;
    }
    let report = observed(&stage, "all are compared", compared(runtimes as u64)).await;
    assert_only_reads(&requests(&stage, &begin));
    let reads = requests(&stage, &steady);
    let objects: u64 = report["runtimes"].as_array().unwrap().iter().map(|one| one["objects"].as_u64().unwrap()).sum();
    let to_runtimes = reads.iter().filter(|(server, _)| server != stage.landscape.kcp.name()).count();
    assert!(runtimes < to_runtimes, "each runtime was compared again: {to_runtimes}");
    // What a failure has to tell.
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (server, record) in &reads {
        let server = if server == stage.landscape.kcp.name() { server } else { "runtimes" };
        *counts.entry(format!("{server} {} {}", record.verb, record.resource)).or_default() += 1;
    }
    eprintln!("{objects} objects, {hours} hours: {counts:#?}");
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let hourly = reads.len() as f64 / (objects * hours) as f64;
    hourly
}

async fn what_would_change_is_shown_by_runtime_and_module_and_is_what_the_daemon_then_writes() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    stage.kill().await;
    let skr = &stage.skrs[0];
    // Another client changes, adds and deletes fields and objects, and git a version.
    merge(skr, ("v1", "ConfigMap"), "kyma-system", "mailer-a", &json!({"data": {"text": "edited", "more": "stays"}}))
        .await;
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mailer-b", "namespace": "kyma-system"}});
    harness::api_of(skr, &map).await.unwrap().delete("mailer-b", &DeleteParams::default()).await.unwrap();
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));

    let marks = stage.marks();
    stage.start_with(&["--observe"]);
    // Each runtime was compared after the new version was read.
    let sees_all = |report: &Value| {
        let is_manifest = |(_, object, _): &(String, String, Vec<String>)| object.starts_with("Manifest ");
        let sees = |runtime| differences(report, runtime, "cache").iter().any(is_manifest);
        compared(2)(report) && sees("kcp-system/one") && sees("kcp-system/two")
    };
    let report = observed(&stage, "the differences are found", sees_all).await;
    assert_eq!(
        differences(&report, "kcp-system/one", "mailer"),
        [difference("Missing", "ConfigMap mailer-b", &[]), difference("Changed", "ConfigMap mailer-a", &["data.text"]),],
    );
    for runtime in ["kcp-system/one", "kcp-system/two"] {
        let of_cache = differences(&report, runtime, "cache");
        let manifest = of_cache.iter().find(|(_, object, _)| object.starts_with("Manifest ")).expect("its Manifest");
        assert!(manifest.2.contains(&"spec.version".to_owned()), "{manifest:?}");
        let map = difference("Changed", "ConfigMap cache-a", &["data.text"]);
        assert!(of_cache.contains(&map), "{of_cache:?}");
    }
    assert!(differences(&report, "kcp-system/two", "mailer").is_empty());
    let release: Vec<&Value> = report["controlPlane"].as_array().unwrap().iter().collect();
    assert_eq!(release.len(), 1, "{release:?}");
    assert_eq!((&release[0]["kind"], &release[0]["name"]), (&json!("ModuleReleaseMeta"), &json!("cache")));

    // The table and the metrics say the same.
    let (_, table) = stage.ask("metrics", "/observed").await.unwrap();
    let line = table.lines().find(|line| line.contains("ConfigMap kyma-system/mailer-a") || line.contains("mailer-a"));
    assert!(line.is_some_and(|line| line.contains("Changed") && line.contains("data.text")), "{table}");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.unwrap();
    let series = |text: &str| metrics.lines().any(|line| line == text);
    assert!(series(r#"tidegate_observed_differences{kind="ConfigMap",reason="Missing"} 1"#), "{metrics}");
    // The one in the control plane, and its copy in the catalog of each runtime.
    assert!(series(r#"tidegate_observed_differences{kind="ModuleReleaseMeta",reason="Changed"} 3"#), "{metrics}");
    assert!(series(r#"tidegate_observed_runtimes{state="Compared"} 2"#), "{metrics}");
    assert!(series("tidegate_leading 0"), "{metrics}");
    // Neither was anything written, nor tried.
    assert_only_reads(&requests(&stage, &marks));
    stage.kill().await;

    // The daemon then writes just that.
    let (before, marks) = (contents(&stage).await, stage.marks());
    // Edits in a runtime are found at a resync.
    stage.start_with(&["--resync=10s"]);
    stage
        .until("the version arrives", skr, "ConfigMap", "kyma-system", "cache-a", |map| map["data"]["text"] == "two")
        .await;
    let is_mended = |map: &Value| map["data"]["text"] == "mail";
    stage.until("the edit is undone", skr, "ConfigMap", "kyma-system", "mailer-a", is_mended).await;
    stage.until("the object is back", skr, "ConfigMap", "kyma-system", "mailer-b", |_| true).await;
    for name in stage::KYMAS {
        stage.kyma_in(name, "Ready").await;
    }
    assert_eq!(read(skr, "ConfigMap", "kyma-system", "mailer-a").await.unwrap()["data"]["more"], "stays");
    stage.rests().await;
    // Both ways: nothing else changes, and all of it does.
    let after = contents(&stage).await;
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed: BTreeSet<String> =
        names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
    let predicted = predicted(&report);
    assert_eq!(predicted, changed);
    // Nor is anything applied that an apply does not change.
    assert_eq!(predicted, written(&stage, &marks), "{:#?}", stage.requests_since(&marks));
}

/// The objects of all clusters by cluster, kind in lower case and plural, and name: without their statuses, and without
/// what each write changes.
async fn contents(stage: &Stage) -> BTreeMap<String, Value> {
    const KYMA: &str = "operator.kyma-project.io/v1beta2";
    const KINDS: [(&str, &str, &str); 14] = [
        ("v1", "Namespace", ""),
        ("v1", "ConfigMap", "kyma-system"),
        ("v1", "Secret", "kyma-system"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
        ("example.org/v1", "Thing", "kyma-system"),
        (KYMA, "Kyma", "kyma-system"),
        (KYMA, "ModuleTemplate", "kyma-system"),
        (KYMA, "ModuleReleaseMeta", "kyma-system"),
        (KYMA, "Kyma", "kcp-system"),
        (KYMA, "ModuleTemplate", "kcp-system"),
        (KYMA, "ModuleReleaseMeta", "kcp-system"),
        (KYMA, "Watcher", "kcp-system"),
        (KYMA, "Manifest", "kcp-system"),
    ];
    let runtimes = stage.skrs.iter().enumerate().map(|(index, skr)| (format!("skr-{}", index + 1), skr));
    let mut all = BTreeMap::new();
    for (cluster, client) in runtimes.chain([("kcp".to_owned(), &stage.kcp)]) {
        for (version, kind, namespace) in KINDS {
            let sample =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
            let Ok(api) = harness::api_of(client, &sample).await else { continue };
            for object in api.list(&ListParams::default()).await.expect("a list") {
                let name = object.metadata.name.clone().expect("a name");
                let mut object = serde_json::to_value(object).expect("JSON");
                object.as_object_mut().expect("an object").remove("status");
                let metadata = object["metadata"].as_object_mut().expect("metadata");
                for field in ["managedFields", "resourceVersion", "generation"] {
                    metadata.remove(field);
                }
                all.insert(format!("{cluster} {}s {name}", kind.to_lowercase()), object);
            }
        }
    }
    all
}

/// What the daemon has written to objects: cluster, kind in lower case and plural, and name. Without what an observer
/// does not compare by its page: statuses, Events and the Lease.
fn written(stage: &Stage, marks: &[u64]) -> BTreeSet<String> {
    let all = requests(stage, marks).into_iter().filter(|(_, record)| record.is_write());
    let is_compared = |(_, record): &(String, Record)| {
        let resource = record.resource.as_str();
        !resource.ends_with("/status") && !resource.starts_with("events") && !resource.starts_with("leases.")
    };
    let line = |(cluster, record): (String, Record)| {
        let kind = record.resource.split('.').next().unwrap_or_default();
        format!("{cluster} {kind} {}", record.name)
    };
    all.filter(is_compared).map(line).collect()
}

/// What an observer said that the daemon would write, in the same words.
fn predicted(report: &Value) -> BTreeSet<String> {
    let line = |cluster: &str, one: &Value| {
        let text = |field: &str| one[field].as_str().expect("a text").to_owned();
        let cluster = if text("kind") == "Manifest" { "kcp" } else { cluster };
        format!("{cluster} {}s {}", text("kind").to_lowercase(), text("name"))
    };
    let mut all: BTreeSet<String> =
        report["controlPlane"].as_array().expect("a list").iter().map(|one| line("kcp", one)).collect();
    for runtime in report["runtimes"].as_array().expect("runtimes") {
        let kyma = runtime["name"].as_str().and_then(|name| name.strip_prefix("kcp-system/")).expect("a name");
        let index = stage::MANY.iter().position(|name| *name == kyma).expect("a runtime of the stage");
        let cluster = format!("skr-{}", index + 1);
        let modules = runtime["modules"].as_object().expect("modules").values();
        let objects = modules.flat_map(|module| module["objects"].as_array().into_iter().flatten());
        all.extend(objects.map(|one| line(&cluster, one)));
    }
    all
}

async fn a_runtime_that_cannot_be_compared_is_named_and_all_others_are_compared() {
    let stage = stage::ready(2).await;
    stage.rests().await;
    stage.kill().await;
    stage.landscape.skrs[1].stop().await;
    let marks = stage.marks();
    stage.start_with(&["--observe"]);
    let is_split = |report: &Value| report["summary"]["runtimes"] == json!({"Compared": 1, "Unreachable": 1});
    let report = observed(&stage, "one is compared", is_split).await;
    assert_eq!(report["summary"]["incomplete"], 1);
    let two = report["runtimes"].as_array().unwrap().iter().find(|one| one["name"] == "kcp-system/two").unwrap();
    assert!(two["why"].as_str().unwrap().contains("cannot be reached"), "{two}");
    let (_, table) = stage.ask("metrics", "/observed").await.unwrap();
    assert!(table.contains("Not compared:\nruntime kcp-system/two: cluster skr/kcp-system/two"), "{table}");
    let (_, metrics) = stage.ask("metrics", "/metrics").await.unwrap();
    let series = |text: &str| metrics.lines().any(|line| line == text);
    assert!(series(r#"tidegate_observed_not_compared{part="Runtime"} 1"#), "{metrics}");
    assert!(series(r#"tidegate_observed_not_compared{part="ControlPlane"} 0"#), "{metrics}");
    let kcp = requests(&stage, &marks).into_iter().filter(|(server, _)| server == stage.landscape.kcp.name());
    assert_only_reads(&kcp.collect::<Vec<_>>());
}

async fn without_a_source_the_custom_resources_in_the_control_plane_are_compared() {
    let stage = stage::ready(1).await;
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    stage.rests().await;
    stage.kill().await;
    let api = harness::api_of(&stage.kcp, &source).await.unwrap();
    api.patch("landscape", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    api.delete("landscape", &DeleteParams::default()).await.unwrap();
    let marks = stage.marks();
    stage.start_with(&["--observe"]);
    let is_there = |report: &Value| report["summary"]["runtimes"] == json!({"Compared": 1});
    let report = observed(&stage, "the runtime is compared", is_there).await;
    // The objects of its modules are in git, and no source leads there.
    let unknown = report["runtimes"][0]["unknown"].to_string();
    assert!(unknown.contains("module cache 1.0.0: GitSource kcp-system/landscape does not exist"), "{unknown}");
    assert!(differences(&report, "kcp-system/one", "cache").is_empty(), "what is not known is no difference");
    assert_only_reads(&requests(&stage, &marks));

    // A control plane of Lifecycle Manager does not even have their definition.
    stage.kill().await;
    let name = "gitsources.tidegate.dev";
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
    });
    let api = harness::api_of(&stage.kcp, &crd).await.unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    stage.until_gone(&stage.kcp, "CustomResourceDefinition", "", name).await;
    stage.start_with(&["--observe"]);
    let report = observed(&stage, "the runtime is compared", is_there).await;
    assert_eq!(report["missing"], Value::Null, "nothing is missing, and nothing is said of deletions: {report:#}");
    assert_eq!(stage.ask("health", "/readyz").await.unwrap().0, 200);
}

/// Beside Lifecycle Manager, no definition has the label. Each is a difference, and names what git has otherwise: of
/// the spec, labels and annotations, and nothing that Tidegate would add.
async fn what_has_no_ownership_label_names_the_fields_that_differ_from_git() {
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(1, Extent::Controllers, &files, &[]).await;
    for (_, text) in files.iter().filter(|(path, _)| !path.contains("/objects/")) {
        let mut definition: Value = serde_yaml::from_str(text).expect("YAML");
        match (definition["kind"].as_str(), definition["metadata"]["name"].as_str()) {
            (Some("Kyma"), _) => definition["metadata"]["labels"]["example.org/tier"] = json!("live"),
            (Some("ModuleReleaseMeta"), Some("cache")) => definition["spec"]["channels"][0]["version"] = json!("1.1.0"),
            (Some("ModuleTemplate"), _) => definition["spec"]["descriptor"] = json!({}),
            (Some("GitSource") | None, _) => continue,
            _ => {}
        }
        harness::apply(&stage.kcp, &definition).await;
    }
    let tier = "namespace: kcp-system, labels: {example.org/tier: git}}";
    let tier = stage::kyma("one", &["cache", "mailer"]).replace("namespace: kcp-system}", tier);
    stage.commit("kymas/one.yaml", &tier);
    stage.start_with(&["--observe"]);
    let report = observed(&stage, "the source is compared", |report| {
        report["controlPlane"].as_array().is_some_and(|all| !all.is_empty())
    })
    .await;
    let all = report["controlPlane"].as_array().expect("a list");
    let found: Vec<(String, Value)> = all
        .iter()
        .map(|one| {
            (format!("{} {} {}", one["reason"], one["kind"], one["name"]).replace('"', ""), one["fields"].clone())
        })
        .collect();
    let fields_of = |name: &str| found.iter().find(|(one, _)| one == name).map(|(_, fields)| fields.clone());
    assert_eq!(fields_of("Foreign Kyma one"), Some(json!(["metadata.labels.example.org/tier"])), "{found:#?}");
    assert_eq!(fields_of("Foreign ModuleReleaseMeta cache"), Some(json!(["spec.channels[0].version"])), "{found:#?}");
    assert_eq!(fields_of("Foreign ModuleReleaseMeta mailer"), Some(Value::Null), "it says what git says: {found:#?}");
    assert!(found.iter().all(|(one, _)| one.starts_with("Foreign ")), "{found:#?}");
    let counted = report["summary"]["differences"].as_u64().and_then(|count| usize::try_from(count).ok());
    assert!(counted >= Some(all.len()), "each counts: {report:#}");
}

/// Certificates, the agent's Secret and the image pull Secret: nothing differs where a daemon was, what another client
/// does to them is found, and the daemon then writes just that.
async fn credentials_are_compared_and_no_value_is_shown() {
    const PLANTED: &str = "cGxhbnRlZC12YWx1ZQ==";
    let options = [&AGENT[..], &["--skr-image-pull-secret=registry"]].concat();
    let stage = world::stage(1, Extent::Node, &[], &options).await;
    let skr = &stage.skrs[0];
    harness::apply(&stage.kcp, &world::gateway(443)).await;
    harness::apply(
        &stage.kcp,
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry", "namespace": "kcp-system"},
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="},
        }),
    )
    .await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    stage.kill().await;

    stage.start_with(&["--observe"]);
    let report = observed(&stage, "nothing differs", compared(1)).await;
    assert_eq!(report["summary"]["differences"], 0, "{report:#}");
    // Without a runtime id, there is no certificate to compare with.
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    let is_refused = |report: &Value| report["runtimes"][0]["unknown"].to_string().contains("\"certificate: ");
    let report = observed(&stage, "the certificate is not compared", is_refused).await;
    assert_eq!(report["summary"]["incomplete"], 1, "{report:#}");
    let (_, table) = stage.ask("metrics", "/observed").await.unwrap();
    assert!(
        table.contains("\nnot compared: 1\n") && table.contains("\nruntime kcp-system/one: certificate: "),
        "{table}"
    );
    let (_, metrics) = stage.ask("metrics", "/metrics").await.unwrap();
    assert!(metrics.lines().any(|line| line == r#"tidegate_observed_not_compared{part="Part"} 1"#), "{metrics}");
    stage.commit("kymas/one.yaml", &world::kyma("one", &["cache"]));
    stage.kill().await;

    let secret = |name: &str, namespace: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}});
    let edit = json!({"data": {"tls.crt": PLANTED}});
    world::merge(skr, &secret("skr-webhook-tls", "kyma-system"), edit).await;
    world::delete(skr, &secret("registry", "kyma-system")).await;
    stage.start_with(&["--observe"]);
    let report = observed(&stage, "what differs in the runtime is found", compared(1)).await;
    let expected = [
        difference("Missing", "Secret registry", &[]),
        difference("Changed", "Secret skr-webhook-tls", &["data.tls.crt"]),
    ];
    assert_eq!(differences(&report, "kcp-system/one", "-"), expected, "{report:#}");
    stage.kill().await;

    // The certificate itself goes, and the agent's Secret waits for the next one.
    let bundle = secret("klm-istio-gateway", "istio-system");
    world::merge(&stage.kcp, &bundle, json!({"data": {"ca.crt": null}})).await;
    world::delete(&stage.kcp, &secret("one-webhook-tls", "istio-system")).await;
    let marks = stage.marks();
    stage.start_with(&["--observe"]);
    let report = observed(&stage, "what differs in the control plane is found", compared(1)).await;
    let found = differences(&report, "kcp-system/one", "-");
    assert!(found.contains(&difference("Missing", "Secret one-webhook-tls", &[])), "{found:#?}");
    assert!(found.contains(&difference("Waiting", "Secret skr-webhook-tls", &[])), "{found:#?}");
    let of_gateway = report["controlPlane"].as_array().expect("a list");
    let named: Vec<(&Value, &Value)> = of_gateway.iter().map(|one| (&one["reason"], &one["name"])).collect();
    assert_eq!(named, [(&json!("Changed"), &json!("klm-istio-gateway"))], "{report:#}");
    let (_, table) = stage.ask("metrics", "/observed").await.unwrap();
    for text in [&table, &report.to_string()] {
        assert!(!text.contains(PLANTED) && !text.contains("planted-value") && !text.contains("BEGIN "), "{text}");
    }
    assert_only_reads(&requests(&stage, &marks));
    // In the namespace of the certificates, it needs no more than the page says.
    let records = stage.landscape.kcp.records_since(marks[0]);
    let of_certificates = |record: &&Record| record.user == USER && record.namespace == "istio-system";
    let needs: BTreeSet<deploy::Need> = records.iter().filter(of_certificates).flat_map(deploy::needs).collect();
    let granted = role_for_an_agent();
    let lacking: Vec<_> = needs.iter().filter(|need| !granted.iter().any(|rule| rule.allows(need))).collect();
    assert!(!needs.is_empty() && lacking.is_empty(), "{lacking:#?} {granted:#?}");
    stage.kill().await;
    let marks = stage.marks();
    stage.start_with(&["--resync=10s"]);
    stage.until("the copy is back", skr, "Secret", "kyma-system", "registry", |_| true).await;
    let is_whole = |secret: &Value| secret["data"]["tls.crt"].is_string() && secret["data"]["tls.crt"] != PLANTED;
    stage.until("the agent has a certificate", skr, "Secret", "kyma-system", "skr-webhook-tls", is_whole).await;
    stage.rests().await;
    let written = written(&stage, &marks);
    for object in [
        "kcp secrets klm-istio-gateway",
        "kcp secrets one-webhook-tls",
        "skr-1 secrets registry",
        "skr-1 secrets skr-webhook-tls",
    ] {
        assert!(written.contains(object), "{object} in {written:#?}");
    }
}

/// Where Lifecycle Manager left no webhook configuration, the daemon creates none before `adopt take --finish`.
async fn a_webhook_configuration_that_waits_for_the_end_of_the_adoption_is_listed() {
    const HOOKS: (&str, &str) = ("ValidatingWebhookConfiguration", "skr-webhook");
    let stage = stage::ready(1).await;
    stage.rests().await;
    stage.kill().await;
    let skr = &stage.skrs[0];
    let hooks = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": HOOKS.0, "metadata": {"name": HOOKS.1},
    });
    let api = harness::api_of(skr, &hooks).await.unwrap();
    api.delete(HOOKS.1, &DeleteParams::default()).await.expect("Tidegate made it");
    let adopted = |value: Value| json!({"metadata": {"annotations": {"tidegate.dev/adopted": value}}});
    let kyma = ("operator.kyma-project.io/v1beta2", "Kyma");
    // Nothing says that Tidegate made it.
    let one = read(&stage.kcp, kyma.1, "kcp-system", "one").await.expect("it is there");
    let conditions = one["status"]["conditions"].as_array().expect("conditions").iter();
    let is_former = |one: &&Value| !one["type"].as_str().unwrap_or_default().starts_with("tidegate.dev/");
    let former = json!({"status": {"conditions": conditions.filter(is_former).collect::<Vec<_>>()}});
    let kymas = harness::api_of(&stage.kcp, &one).await.unwrap();
    kymas.patch_status("one", &PatchParams::default(), &Patch::Merge(&former)).await.unwrap();
    merge(&stage.kcp, kyma, "kcp-system", "one", &adopted(json!("true"))).await;

    stage.start_with(&["--observe"]);
    let report = observed(&stage, "all are compared", compared(1)).await;
    assert_eq!((&report["summary"]["differences"], &report["summary"]["improvements"]), (&json!(0), &json!(1)));
    let modules = report["runtimes"][0]["modules"].as_object().expect("modules").values();
    let objects: Vec<&Value> = modules.flat_map(|one| one["objects"].as_array().into_iter().flatten()).collect();
    let [one] = objects.as_slice() else { panic!("{report:#}") };
    let shown = ["kind", "name", "reason"].map(|field| one[field].as_str().unwrap_or_default());
    assert_eq!((shown, &one["improvement"]["row"]), ([HOOKS.0, HOOKS.1, "Waiting"], &json!("W81")), "{report:#}");

    // The daemon does what the observer said, also after the end of the adoption.
    stage.kill().await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    assert!(read(skr, HOOKS.0, "", HOOKS.1).await.is_none(), "it waits");
    merge(&stage.kcp, kyma, "kcp-system", "one", &adopted(Value::Null)).await;
    stage.until("it is created", skr, HOOKS.0, "", HOOKS.1, |_| true).await;
}

/// The Role of `docs/observe.md` for an observer with the options of an agent.
fn role_for_an_agent() -> BTreeSet<deploy::Rule> {
    let page = include_str!("../../docs/observe.md");
    let section = page.split_once("\n## For a daemon with an agent\n").expect("a section").1;
    let role = section.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a Role");
    deploy::rules(&deploy::documents(role), deploy::NAME)
}

#[test]
fn the_role_for_certificates_is_what_the_overlay_of_the_daemon_grants_without_writes() {
    let of_daemon = deploy::rules(&deploy::objects("overlays/istio-cert-manager"), deploy::NAME);
    let reads = of_daemon.into_iter().filter(|rule| rule.is_in("istio-system") && rule.only_reads());
    assert_eq!(role_for_an_agent(), reads.collect());
}

/// The roles of `deploy/overlays/observe` are all that an observer of three runtimes needs, it needs each, and it tries
/// nothing else: the audit log of the API server shows neither a write nor a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn the_roles_of_an_observer_only_read_and_it_tries_nothing_else() {
    const ACCOUNT: &str = "system:serviceaccount:kcp-system:tidegate";
    const KYMAS: [&str; 3] = ["one", "two", "three"];
    let mut files = stage::files(2);
    files.push(("kymas/three.yaml".to_owned(), stage::kyma("three", &["cache", "mailer"])));
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    // Only real servers decide by rules of RBAC.
    let stage = Stage::real(3, Extent::Controllers, &files, &[]).await;
    harness::apply(&stage.kcp, &deploy::gateway()).await;
    stage.start();
    for kyma in KYMAS {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.rests().await;
    stage.kill().await;

    let overlay = deploy::objects("overlays/observe");
    for object in &overlay {
        harness::apply(&stage.kcp, object).await;
    }
    let rules = deploy::rules(&overlay, "tidegate");
    assert!(!rules.is_empty() && rules.iter().all(deploy::Rule::only_reads), "{rules:#?}");
    deploy::until_granted(&stage.kcp, ACCOUNT, &rules).await;
    // Whatever the daemon may write, the observer may not.
    let of_daemon = deploy::rules(&deploy::objects("base"), "tidegate");
    let writing: Vec<_> = of_daemon.iter().filter(|rule| !rule.only_reads()).collect();
    assert!(20 < writing.len(), "{writing:#?}");
    for rule in writing {
        assert!(!deploy::is_granted(&stage.kcp, ACCOUNT, rule).await, "{rule:?}");
    }
    let access = stage.landscape.kcp.real().kubeconfig_of_service_account("kcp-system", "tidegate").await.unwrap();
    let marks = stage.marks();
    stage.start_as_with(&access, &["--observe"]);
    let report = observed(&stage, "all are compared", compared(3)).await;
    assert_eq!(report["summary"]["differences"], 0, "{report:#}");
    // Lifecycle Manager works meanwhile, and after each of the changes below.
    for round in 0..3 {
        work(&stage, round, "mailer").await;
        let report = observed(&stage, "all are compared", compared(3)).await;
        assert_eq!(report["summary"]["differences"], 0, "what it writes is no difference: {report:#}");
    }
    // Each kind of definition changes, and an object in a runtime.
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    stage.commit("modules/mailer/2.0.0/objects/objects.yaml", &stage::module("mailer", "2.0.0", "new")[1].1);
    stage.commit("kymas/three.yaml", &stage::kyma("three", &["cache"]));
    stage.commit("watcher.yaml", &stage::WATCHER.replace("port: 8082", "port: 8083"));
    work(&stage, 3, "mailer").await;
    let kinds = |report: &Value| -> BTreeSet<String> {
        let all = report["controlPlane"].as_array().into_iter().flatten();
        all.filter_map(|one| one["kind"].as_str()).map(str::to_owned).collect()
    };
    let wanted = ["Kyma", "ModuleReleaseMeta", "ModuleTemplate", "Watcher"];
    let sees_all = |report: &Value| {
        let one = differences(report, "kcp-system/one", "cache");
        wanted.iter().all(|kind| kinds(report).contains(*kind)) && !one.is_empty()
    };
    observed(&stage, "all differences are found", sees_all).await;
    work(&stage, 4, "mailer").await;
    observed(&stage, "all differences are found", sees_all).await;
    let table = stage.ask("metrics", "/observed").await.unwrap().1;
    assert!(table.contains("kcp-system/three  mailer"), "{table}");
    stage.kill().await;

    let records = stage.landscape.kcp.records_since(marks[0]);
    let ours: Vec<&Record> = records.iter().filter(|record| record.user == ACCOUNT).collect();
    let tried: Vec<_> = ours.iter().filter(|record| !is_read(record) || record.code == 403).collect();
    assert!(tried.is_empty(), "neither allowed nor needed: {tried:#?}");
    let needs: BTreeSet<deploy::Need> = ours.iter().flat_map(|record| deploy::needs(record)).collect();
    let idle = deploy::idle(&rules, &needs);
    assert!(idle.is_empty(), "rules that an observer does not need: {idle:#?}");
    // In runtimes it has all rights, and uses none but reads.
    let of_runtimes = requests(&stage, &marks).into_iter().filter(|(server, _)| server != stage.landscape.kcp.name());
    assert_only_reads(&of_runtimes.collect::<Vec<_>>());

    // With the options of an agent, it lacks the Role for the namespace of the CA.
    stage.start_as_with(&access, &[&AGENT[..], &["--observe"]].concat());
    let lacks_right = |report: &Value| {
        let right = format!("user {ACCOUNT} cannot list secrets in namespace istio-system");
        let mut lines = report["missing"].as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.any(|line| line.starts_with("the CA's Secret in istio-system: ") && line.contains(&right))
    };
    observed(&stage, "the missing right is named", lacks_right).await;
    stage.kill().await;
    let (text, code) = single_pass(&access, &[&AGENT[..], &["--observe"]].concat()).await;
    let right = format!("user {ACCOUNT} cannot list secrets in namespace istio-system");
    assert!(code == 5 && text.contains(&right), "{code} {text}");
    single_passes_name_the_right_that_they_lack(&stage, &access).await;
}

/// With or without `--observe`, a single pass whose account lacks a right does what it can without it, and ends.
async fn single_passes_name_the_right_that_they_lack(stage: &Stage, access: &Kubeconfig) {
    grant_without(stage, "overlays/observe", &[("list", "watchers")]).await;
    let (text, code) = single_pass(access, &["--observe"]).await;
    let names_right = text
        .lines()
        .any(|line| line.contains("Watchers in kcp-system: ") && line.contains("cannot list resource \"watchers\""));
    assert!(code == 5 && names_right && text.contains("\nNot compared:\n"), "{code} {text}");

    let names =
        |text: &str, begin: &str, right: &str| text.lines().any(|line| line.starts_with(begin) && line.contains(right));
    for (verb, plural, begin) in
        [("list", "watchers", "not done: Watchers in kcp-system: "), ("get", "leases", "not done: not leading: ")]
    {
        grant_without(stage, "base", &[(verb, plural)]).await;
        let marks = stage.marks();
        let (text, code) = single_pass(access, &[]).await;
        let right = format!("cannot {verb} resource \"{plural}\"");
        assert!(code == 5 && names(&text, begin, &right), "{code} {text}");
        let records = stage.landscape.kcp.records_since(marks[0]).into_iter();
        let is_of_work = |record: &Record| {
            let besides = ["leases.", "selfsubjectaccessreviews."];
            record.is_write() && besides.iter().all(|kind| !record.resource.starts_with(kind))
        };
        let wrote: Vec<Record> = records.filter(|one| one.user == deploy::ACCOUNT && is_of_work(one)).collect();
        assert!(wrote.is_empty(), "no work has begun: {wrote:#?} {text}");
    }

    // Everything is done but the statuses, also by a leader that may not renew the Lease that it has created.
    grant_without(stage, "base", &[("patch", "kymas/status"), ("update", "leases")]).await;
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": names::LEASE, "namespace": "kcp-system"},
    });
    world::delete(&stage.kcp, &lease).await;
    let (text, code) = single_pass(access, &["--lease-retry-period=200ms"]).await;
    let right = "cannot patch kymas/status in API group operator.kyma-project.io in namespace kcp-system";
    assert!(code == 5 && names(&text, "not done: user ", right), "{code} {text}");
    assert!(names(&text, "not done: runtime kcp-system/three: ", "has not been reconciled yet"), "{text}");
    let cache = read(&stage.kcp, "ModuleReleaseMeta", "kcp-system", "cache").await.expect("it is there");
    assert_eq!(cache["spec"]["channels"][0]["version"], "1.1.0", "the rest is done");
    let right = "cannot update resource \"leases\"";
    assert!(names(&text, "note: the Lease is not renewed: ", right) && !text.contains("not leading"), "{text}");
}

/// Grants the roles of a folder of `deploy` to its service account, without some verbs on kinds.
async fn grant_without(stage: &Stage, folder: &str, without: &[(&str, &str)]) {
    let is_right = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("Role") || kind.ends_with("RoleBinding")
    };
    let mut objects: Vec<Value> = deploy::objects(folder).into_iter().filter(is_right).collect();
    let all = deploy::rules(&objects, deploy::NAME);
    for rules in objects.iter_mut().filter_map(|object| object.get_mut("rules")) {
        let mut kept = Vec::new();
        for rule in rules.as_array().into_iter().flatten() {
            for resource in rule["resources"].as_array().into_iter().flatten() {
                for allowed in rule["verbs"].as_array().into_iter().flatten() {
                    if !without.iter().any(|(verb, plural)| allowed == verb && resource == plural) {
                        let mut one = rule.clone();
                        (one["resources"], one["verbs"]) = (json!([resource]), json!([allowed]));
                        kept.push(one);
                    }
                }
            }
        }
        *rules = Value::Array(kept);
    }
    let left = deploy::rules(&objects, deploy::NAME);
    for object in &objects {
        harness::apply(&stage.kcp, object).await;
    }
    deploy::until_granted(&stage.kcp, deploy::ACCOUNT, &left).await;
    let gone: Vec<_> = all.difference(&left).collect();
    assert!(without.len() <= gone.len(), "{folder}: {without:?} {gone:#?}");
    eventually("the right is gone", SOON, async || {
        for rule in &gone {
            if deploy::is_granted(&stage.kcp, deploy::ACCOUNT, rule).await {
                return Err(format!("{rule:?}"));
            }
        }
        Ok(())
    })
    .await;
}

/// A single pass as this user: what it says, and its exit code. It must end before its time is over.
async fn single_pass(access: &Kubeconfig, more: &[&str]) -> (String, i32) {
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, access.text()).expect("a file");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["run", "--once", "--timeout=5m", "--allow-local-sources", "--hooks-address=off"]);
    command.args(["--metrics-address=127.0.0.1:0", "--health-address=127.0.0.1:0"]).args(more);
    command.arg("--state").arg(folder.path().join("state")).arg("--kubeconfig").arg(&kubeconfig);
    let output = command.kill_on_drop(true).output().await.expect("the program starts");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(!text.contains("timed out"), "{text}");
    (text, output.status.code().expect("an exit code"))
}

/// As on a laptop: the table on standard output, and the exit code.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_that_looks_once_prints_the_table_and_its_exit_code_says_what_it_found() {
    let files = stage::files(2);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(2, Extent::Controllers, &files, &[]).await;
    stage.start();
    for kyma in ["one", "two"] {
        stage.kyma_in(kyma, "Ready").await;
    }
    stage.rests().await;
    stage.kill().await;

    let state = harness::folder();
    let state = format!("--state={}", state.path().display());
    let mut arguments = vec!["run", "--observe", "--once", "--timeout=15s", "--allow-local-sources", &state];
    arguments.push("--log=info");
    let once = async |code: i32, expected: &[&str]| {
        let marks: Vec<u64> = stage.landscape.servers().map(stage::Server::mark).collect();
        let output = stage.command(&arguments).await;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}\n{errors}");
        for part in expected {
            assert!([&text, &errors].iter().any(|said| said.contains(part)), "{part:?} in:\n{text}\n{errors}");
        }
        assert!(errors.contains("observing: this process") && !errors.contains("listening"), "no port: {errors}");
        assert!(errors.contains("starting to compare") && !errors.contains("leading"), "{errors}");
        // Before everything was read, nothing is wrong.
        assert!(code == 5 || !errors.contains("WARN"), "{errors}");
        let servers = stage.landscape.servers().zip(marks);
        let written: Vec<Record> =
            servers.flat_map(|(server, mark)| server.records_since(mark)).filter(Record::is_write).collect();
        assert!(written.is_empty(), "{written:#?}");
    };
    once(0, &["runtimes: 2 compared"]).await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0")]));
    once(1, &["runtimes: 2 compared", "kcp-system/one  cache", "not compared: 0\n"]).await;

    // Nothing of this revision is used, so the one before is compared.
    let renamed =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: other, namespace: kcp-system}\n";
    stage.commit(".tidegate/source.yaml", renamed);
    let refused = "is not applied, because its source.yaml and the GitSource differ";
    once(5, &["not compared: 1\n", "Not compared:\nsource kcp-system/landscape: ", refused]).await;
    stage.commit(".tidegate/source.yaml", &renamed.replace("other", "landscape"));

    // The objects of this module are in a registry, and none is configured.
    let meta = |kind: &str, name: &str| {
        format!(
            "apiVersion: operator.kyma-project.io/v1beta2\nkind: {kind}\nmetadata: {{name: {name}, namespace: kcp-system}}\n"
        )
    };
    let release = "spec:\n  moduleName: relay\n  ocmComponentName: example.org/relay\n  channels: \
                   [{channel: regular, version: 1.0.0}]\n";
    let template = "spec: {moduleName: relay, version: 1.0.0, descriptor: {}}\n";
    stage.commit("modules/relay/release.yaml", &(meta("ModuleReleaseMeta", "relay") + release));
    stage.commit("modules/relay/1.0.0.yaml", &(meta("ModuleTemplate", "relay-1.0.0") + template));
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer", "relay"]));
    let relay = "runtime kcp-system/one: module relay: error finding ComponentDescriptor: ";
    once(5, &["not compared: 1\n", relay, "no OCI registry is configured for it: set --oci-registry-host"]).await;
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache", "mailer"]));

    stage.landscape.skrs[1].stop().await;
    let named = "Not compared:\nruntime kcp-system/two: cluster skr/kcp-system/two";
    let begun = tokio::time::Instant::now();
    once(5, &["kcp-system/one  cache", named, "WARN", "a runtime is not compared"]).await;
    assert!(begun.elapsed() < Duration::from_secs(15), "it does not wait for a runtime that has failed");

    stage.landscape.kcp.stop().await;
    let output = stage.command(&arguments).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), &*text), (Some(5), ""), "nothing is known, so there is no table");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.lines().any(|line| line.starts_with("error: the control plane at ")), "{errors}");
}

/// The guard is in the client: whatever a pass tries, nothing but reads leaves, neither to the control plane nor to a
/// runtime.
#[tokio::test]
async fn a_read_only_cluster_and_the_clients_of_its_pool_send_nothing_but_reads() {
    tidegate_process::tls::install();
    let server = kube_sim::Server::new(&kube_sim::Options::default());
    server.keep_requests();
    let served = server.listen("kcp").await.unwrap();
    let access = access::parse(served.kubeconfig().text().as_bytes()).unwrap();
    let connect = || Cluster::new(ClusterName::Kcp, &access.config().unwrap(), Limits::default()).unwrap();
    let (writer, kcp) = (connect(), Arc::new(connect().read_only()));
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"a": "1"},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "access", "namespace": "default"},
        "data": {"config": STANDARD.encode(served.kubeconfig().text())},
    });
    let cause = Cause::trigger("test");
    let mut version = String::new();
    for object in [&map, &secret] {
        let object = Object::new(object.clone()).unwrap();
        let kind = writer.kind(&object.gvk()).await.unwrap().unwrap();
        let body = object.value().to_string().into();
        let metadata = writer.apply(&cause, &kind, &object.id(), body, OnConflict::Force).await.unwrap();
        version = metadata.resource_version;
    }
    let pool = Pool::new(Arc::clone(&kcp), Limits::default(), None);
    let runtime = Key::new("kcp-system", "one");
    let skr = pool.cluster(&runtime, &Key::new("default", "access"), &version).await.unwrap();

    let from = served.server().kept_request_count();
    let object = Object::new(map).unwrap();
    let (id, body) = (object.id(), bytes::Bytes::from(object.value().to_string()));
    for cluster in [&*kcp, &*skr] {
        assert!(cluster.is_read_only());
        let kind = cluster.kind(&object.gvk()).await.unwrap().unwrap();
        let live = cluster.get_metadata(&kind, &Key::new("default", "a")).await.unwrap().expect("it is read");
        let refused = [
            cluster.apply(&cause, &kind, &id, body.clone(), OnConflict::Force).await.map(drop),
            cluster.apply_status(&cause, &kind, &id, body.clone()).await.map(drop),
            cluster.create(&cause, &kind, &id, body.clone()).await.map(drop),
            cluster.dry_run(&kind, &id, body.clone(), OnConflict::Report).await.map(drop),
            cluster.dry_run_merge(&kind, &id, body.clone()).await,
            cluster.delete(&cause, &kind, &live, Propagation::Background).await.map(drop),
            cluster.user().await.map(drop),
        ];
        for (position, result) in refused.into_iter().enumerate() {
            let error = result.expect_err("it is refused");
            assert!(matches!(error, Error::ReadOnly { .. }), "{position}: {error}");
        }
    }
    let requests = served.server().kept_requests(from);
    assert!(requests.iter().all(|request| request.verb == "get"), "{requests:?}");
    assert!(writer.get(&Kind::built_in(&object.gvk()).unwrap(), &Key::new("default", "a")).await.unwrap().is_some());
}
