//! A take-over of eight runtimes with five modules of 25 objects each, and the way back: what each step writes, and
//! that nothing but field managers changes.
//!
//! The landscape has no agents, so that nothing waits for Pods. All objects of all clusters are compared, as lists have
//! them, and all writes are counted, as the servers recorded them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Record};

use super::{FORMER, adopt, restarted, retire, run};
use crate::{
    harness,
    stage::{self, Stage, States, read, scenarios},
};

scenarios! {
    a_thousand_objects_are_taken_over_with_one_write_each_and_given_back;
    on real servers:
    two_hundred_and_fifty_objects_are_taken_over_with_one_write_each_and_given_back
}

/// The modules; the first one gets new versions.
const MODULES: [&str; 5] = ["alpha", "bravo", "carol", "delta", "foxtrot"];
/// How many objects a module has in a runtime.
const OBJECTS: usize = 25;
/// Versions of the first module, with the text of one of its objects.
const VERSIONS: [(&str, &str); 3] = [("1.0.0", "one"), ("1.1.0", "two"), ("1.2.0", "three")];
/// The manager of the objects of modules.
const APPLIER: &str = "declarative.kyma-project.io/applier";
/// The kinds of all objects, with their namespaces in a runtime and in the control plane.
const KINDS: [(&str, &str, Option<&str>, Option<&str>); 8] = [
    ("v1", "Namespace", Some(""), None),
    ("v1", "ConfigMap", Some("kyma-system"), None),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", Some(""), None),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", Some(""), Some("")),
    ("operator.kyma-project.io/v1beta2", "Kyma", Some("kyma-system"), Some("kcp-system")),
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", Some("kyma-system"), Some("kcp-system")),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", Some("kyma-system"), Some("kcp-system")),
    ("operator.kyma-project.io/v1beta2", "Manifest", None, Some("kcp-system")),
];

async fn a_thousand_objects_are_taken_over_with_one_write_each_and_given_back() {
    let steps = there_and_back(8).await;
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/adopt.md")).expect("a page");
    for (step, kcp, runtimes) in steps {
        let row = format!("| {step} | {kcp} | {runtimes} |");
        assert!(page.contains(&row), "docs/adopt.md has not {row}");
    }
}

async fn two_hundred_and_fifty_objects_are_taken_over_with_one_write_each_and_given_back() {
    there_and_back(2).await;
}

/// All steps. Returns what each of them writes: to the control plane, and to runtimes, without statuses, Events and the
/// Lease.
async fn there_and_back(runtimes: usize) -> Vec<(&'static str, usize, usize)> {
    let begun = Instant::now();
    let stage = ready(runtimes).await;
    eprintln!("installed after {:?}", begun.elapsed());
    // As on a landscape of our own.
    assert_eq!(after_a_new_start(&stage).await, Vec::<String>::new());
    let own_bump = bumped(&stage, 1).await;
    given_back(&stage).await;
    eprintln!("as Lifecycle Manager left it after {:?}", begun.elapsed());
    let before = objects(&stage).await;
    let of_applier = before.values().filter(|object| managers(object).contains(APPLIER)).count();
    // The finalizers of each Manifest as well.
    assert_eq!(of_applier, runtimes * MODULES.len() * (OBJECTS + 1));

    let states = States::follow(stage.skrs.iter().chain([&stage.kcp])).await;
    let marks = stage.marks();
    let (text, code) = adopt(&stage, &["take", "--yes"]).await;
    let said = format!(" {} Manifests taken over, {runtimes} runtimes held; ", runtimes * MODULES.len());
    assert!(code == 0 && text.contains(&said), "{text}");
    let by_take = all_writes(&stage, &marks);
    assert!(by_take.iter().all(|write| write.starts_with("kcp ")), "{by_take:?}");
    assert_eq!(repeated(&by_take, 2), Vec::<String>::new(), "the annotation of a Kyma, and its label");
    let marks = stage.marks();
    stage.start();
    wait(&stage, VERSIONS[1].0).await;
    states.were_ready(2 * runtimes);
    let by_pass = writes(&stage, &marks);
    assert_eq!(repeated(&by_pass, 1), Vec::<String>::new());
    assert!(by_pass.iter().all(|write| write.contains(" patch ")), "nothing is created or deleted: {by_pass:?}");
    let of_modules = by_pass.iter().filter(|write| write.starts_with("skr-") && is_of_module(write)).count();
    assert_eq!(of_modules, runtimes * MODULES.len() * OBJECTS, "each object once");
    let taken = objects(&stage).await;
    assert_eq!(changed(&before, &taken), Vec::<String>::new(), "only field managers");
    let left: Vec<&String> = taken.iter().filter(|(_, object)| managers(object).contains(APPLIER)).map(first).collect();
    assert_eq!(left, Vec::<&String>::new());
    eprintln!("taken over after {:?}", begun.elapsed());

    let by_restart = after_a_new_start(&stage).await;
    assert_eq!(by_restart, Vec::<String>::new());
    let by_bump = bumped(&stage, 2).await;
    assert_eq!(by_bump, own_bump, "as on a landscape of our own");
    eprintln!("bumped after {:?}", begun.elapsed());

    let bumped = objects(&stage).await;
    let marks = stage.marks();
    retire(&stage).await;
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    let by_release = all_writes(&stage, &marks);
    let is_deletion = |write: &&String| write.contains(" delete") && !write.contains("gitsources");
    assert_eq!(by_release.iter().filter(is_deletion).collect::<Vec<_>>(), Vec::<&String>::new());
    let released = objects(&stage).await;
    assert_eq!(changed(&bumped, &released), Vec::<String>::new(), "no content, and nothing made anew");
    // The catalog lacks the former version.
    let (left, gone): (Vec<_>, Vec<_>) = before.iter().partition(|(name, _)| released.contains_key(*name));
    let former = format!(" ModuleTemplate {}-{}", MODULES[0], VERSIONS[1].0);
    assert!(gone.len() == runtimes && gone.iter().all(|(name, _)| name.ends_with(&former)), "{gone:?}");
    let differs = |(name, object): &(&String, &Value)| claims(object) != claims(&released[*name]);
    let differing: Vec<&String> = left.into_iter().filter(differs).map(first).collect();
    assert_eq!(differing, Vec::<&String>::new(), "the managers claim what they claimed");
    eprintln!("given back after {:?}", begun.elapsed());
    let count = |writes: &[String]| {
        let (kcp, runtimes): (Vec<&String>, Vec<&String>) = writes.iter().partition(|write| write.starts_with("kcp "));
        (kcp.len(), runtimes.len())
    };
    let all = [
        ("`adopt take`", count(&by_take)),
        ("the first pass of the daemon", count(&by_pass)),
        ("a restart", count(&by_restart)),
        ("a new version of one module", count(&by_bump)),
        ("`adopt release`, with the end of the GitSource", count(&by_release)),
    ];
    let all = all.map(|(step, (kcp, runtimes))| (step, kcp, runtimes)).to_vec();
    eprintln!("{all:#?}");
    all
}

fn first<T>((name, _): (&String, T)) -> &String {
    name
}

/// A version of a module with 25 objects, of which one has this text.
fn module(module: &str, (version, text): (&str, &str)) -> Vec<(String, String)> {
    let mut files = stage::module(module, version, text);
    let map = |index: usize| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {module}-{index}, namespace: kyma-system}}\ndata: {{text: \
             same}}\n"
        )
    };
    // Each module has three others.
    let more: Vec<String> = (4..=OBJECTS).map(map).collect();
    files.push((format!("modules/{module}/{version}/objects/more.yaml"), more.join("---\n")));
    files
}

/// A landscape that the daemon has installed, and that rests.
async fn ready(runtimes: usize) -> Stage {
    let mut files: Vec<(String, String)> = MODULES.iter().flat_map(|name| module(name, VERSIONS[0])).collect();
    // The versions to come, so that a new one changes the channel alone.
    files.extend(VERSIONS[1..].iter().flat_map(|version| module(MODULES[0], *version)));
    for module in MODULES {
        let release = stage::release(module, &[("regular", VERSIONS[0].0)]);
        files.push((format!("modules/{module}/release.yaml"), release));
    }
    let kymas = stage::MANY.iter().take(runtimes);
    files.extend(kymas.map(|name| (format!("kymas/{name}.yaml"), stage::kyma(name, &MODULES))));
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    files.push((".tidegate/source.yaml".to_owned(), source.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::with(runtimes, Extent::Controllers, &files, &[]).await;
    stage.start();
    wait(&stage, VERSIONS[0].0).await;
    stage
}

/// Waits until all runtimes have this version of the first module, and the daemon has nothing to do.
async fn wait(stage: &Stage, version: &str) {
    for name in stage::MANY.iter().take(stage.skrs.len()) {
        let is_ready = |kyma: &Value| {
            let modules = kyma["status"]["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_at = |one: &Value| one["name"] != MODULES[0] || one["version"] == version;
            kyma["status"]["state"] == "Ready"
                && modules.len() == MODULES.len()
                && modules.iter().all(|one| one["state"] == "Ready" && is_at(one))
        };
        stage.until("all modules are ready", &stage.kcp, "Kyma", "kcp-system", name, is_ready).await;
    }
    stage.rests().await;
}

/// What a new version of the first module writes, in order, with other words for the versions.
async fn bumped(stage: &Stage, index: usize) -> Vec<String> {
    let ((former, _), (version, text)) = (VERSIONS[index - 1], VERSIONS[index]);
    let marks = stage.marks();
    let release = stage::release(MODULES[0], &[("regular", version)]);
    stage.commit(&format!("modules/{}/release.yaml", MODULES[0]), &release);
    wait(stage, version).await;
    for skr in &stage.skrs {
        let map = read(skr, "ConfigMap", "kyma-system", &format!("{}-a", MODULES[0])).await.expect("it is there");
        assert_eq!(map["data"]["text"], text);
    }
    let neutral = |write: String| write.replace(version, "NEXT").replace(former, "FORMER");
    let mut written: Vec<String> = writes(stage, &marks).into_iter().map(neutral).collect();
    written.sort();
    written
}

/// What a new process writes.
async fn after_a_new_start(stage: &Stage) -> Vec<String> {
    let marks = restarted(stage).await;
    writes(stage, &marks)
}

/// Ends the daemon, and leaves the landscape as Lifecycle Manager's managers would have written it, with a GitSource
/// that is to take it over. Its modules are from git, which Lifecycle Manager does not know, so their definitions have
/// lost the annotation that names their path.
async fn given_back(stage: &Stage) {
    let mut source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    retire(stage).await;
    let (text, code) = run(stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    source["metadata"] = json!({"name": "landscape", "namespace": "kcp-system"});
    source.as_object_mut().expect("an object").remove("status");
    let sources = harness::api_of(&stage.kcp, &source).await.expect("a kind that is served");
    let source = serde_json::from_value(source).expect("an object");
    sources.create(&PostParams::default(), &source).await.expect("a new object");
}

/// The daemon's writes, without statuses, Events and the Lease.
fn writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_other = |line: &String| {
        ["/status ", " events", " leases", " selfsubject", " get ", " list ", " watch "]
            .iter()
            .any(|other| line.contains(other))
    };
    stage.requests_since(marks).into_iter().filter(|line| !is_other(line)).collect()
}

/// The writes of every client but the test, without statuses, Events and the Lease: those of a command as well.
fn all_writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_other = |record: &Record| {
        let resource = record.resource.as_str();
        resource.ends_with("/status") || resource.starts_with("events") || resource.starts_with("leases.")
    };
    let of_one = |(server, mark): (&stage::Server, &u64)| {
        let name = server.name().to_owned();
        let records = server.records_since(*mark).into_iter().filter(Record::is_write);
        let line = move |record: Record| format!("{name} {} {} {}", record.verb, record.resource, record.name);
        records.filter(|record| !is_other(record)).map(line).collect::<Vec<String>>()
    };
    stage.landscape.servers().zip(marks).flat_map(of_one).collect()
}

/// Writes that occur more often than this.
fn repeated(writes: &[String], most: usize) -> Vec<String> {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for write in writes {
        *counts.entry(write).or_default() += 1;
    }
    counts
        .into_iter()
        .filter(|(_, count)| most < *count)
        .map(|(write, count)| format!("{count} times {write}"))
        .collect()
}

fn is_of_module(write: &str) -> bool {
    let name = write.rsplit(' ').next().unwrap_or_default();
    let is_object = write.contains(" configmaps ") || write.contains(" clusterroles.");
    is_object && MODULES.iter().any(|module| name.starts_with(module))
}

/// All objects of all clusters, by cluster, kind and name.
async fn objects(stage: &Stage) -> BTreeMap<String, Value> {
    let runtimes = stage.skrs.iter().enumerate().map(|(index, skr)| (format!("skr-{}", index + 1), skr));
    let mut all = BTreeMap::new();
    for (cluster, client) in runtimes.chain([("kcp".to_owned(), &stage.kcp)]) {
        for (version, kind, in_runtime, in_kcp) in KINDS {
            let Some(namespace) = (if cluster == "kcp" { in_kcp } else { in_runtime }) else { continue };
            let sample =
                json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
            let api = harness::api_of(client, &sample).await.expect("a kind that is served");
            for object in api.list(&ListParams::default()).await.expect("a list") {
                let name = object.metadata.name.clone().expect("a name");
                all.insert(format!("{cluster} {kind} {name}"), serde_json::to_value(object).expect("JSON"));
            }
        }
    }
    all
}

fn managers(object: &Value) -> BTreeSet<&str> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(|entry| entry["subresource"].is_null()).filter_map(|entry| entry["manager"].as_str()).collect()
}

/// The objects that are gone, new, made anew, or have another content. What only Tidegate understands is no content:
/// its labels and annotations. Nor is a status.
fn changed(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    let content = |object: &Value| {
        let mut object = object.clone();
        object.as_object_mut().expect("an object").remove("status");
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        for field in ["managedFields", "resourceVersion"] {
            metadata.remove(field);
        }
        for field in ["labels", "annotations"] {
            let Some(all) = metadata.get_mut(field).and_then(Value::as_object_mut) else { continue };
            all.retain(|name, _| !name.starts_with("tidegate.dev/"));
            if all.is_empty() {
                metadata.remove(field);
            }
        }
        object
    };
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let is_changed = |name: &&String| before.get(*name).map(content) != after.get(*name).map(content);
    names.into_iter().filter(is_changed).cloned().collect()
}

/// What Lifecycle Manager's field managers claim of an object, without statuses: one line for each field. It applies no
/// definitions.
fn claims(object: &Value) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let mut all = BTreeSet::new();
    let is_of_former = |entry: &&Value| entry["manager"].as_str().is_some_and(|name| FORMER.contains(&name));
    for entry in entries.filter(|entry| entry["subresource"].is_null()).filter(is_of_former) {
        leaves(&entry["fieldsV1"], &format!("{} {} ", entry["manager"], entry["operation"]), &mut all);
    }
    all
}

fn leaves(claims: &Value, path: &str, all: &mut BTreeSet<String>) {
    for (field, below) in claims.as_object().into_iter().flatten().filter(|(field, _)| *field != ".") {
        let path = format!("{path}/{field}");
        match below.as_object().is_some_and(|below| below.keys().any(|field| field != ".")) {
            true => leaves(below, &path, all),
            false => _ = all.insert(path),
        }
    }
}
