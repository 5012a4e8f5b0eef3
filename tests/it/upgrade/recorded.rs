//! What the version before has left: its objects, as they were in the API servers, and its repository. This version
//! goes on with them.
//!
//! A release records them anew, with `RECORD_LANDSCAPE=1`: see `docs/release.md`. API servers number objects by
//! themselves, so UIDs are replaced, and so is the path of the repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    path::Path,
};

use flate2::read::GzDecoder;
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::{BEFORE, fields};
use crate::{
    harness::{self, SOON, eventually},
    oci::artifact::{gzip, tar},
    stage::{self, QUIET, Stage, scenarios},
};

scenarios! {
    what_the_version_before_has_left_stays_as_it_is;
    on real servers:
    what_the_version_before_has_left_stays_as_it_is_on_real_servers
}

const RECORDED: &str = "tests/it/upgrade/landscape.tar.gz";
/// The same while it is being written.
const RECORDING: &str = "tests/it/upgrade/landscape.tar.gz.new";
/// Stands for the path of the repository.
const REPOSITORY: &str = "@REPOSITORY@";
/// Version, kind and namespace of what is recorded of the control plane, in the order in which it is created.
const OF_KCP: [(&str, &str, &str); 7] = [
    ("operator.kyma-project.io/v1beta2", "Kyma", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "Watcher", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "Manifest", "kcp-system"),
    ("v1", "ConfigMap", "kcp-system"),
    ("tidegate.dev/v1alpha1", "GitSource", "kcp-system"),
];
/// The same of a runtime.
const OF_RUNTIME: [(&str, &str, &str); 9] = [
    ("v1", "Namespace", ""),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
    ("v1", "ConfigMap", "kyma-system"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
    ("operator.kyma-project.io/v1beta2", "Kyma", "kyma-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kyma-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", "kyma-system"),
    ("example.org/v1", "Thing", "kyma-system"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", ""),
];

/// What was recorded.
struct Recorded {
    kcp: Vec<Value>,
    runtime: Vec<Value>,
    /// The files of the repository by path, with those of git.
    repository: BTreeMap<String, Vec<u8>>,
}

/// The files of the landscape.
fn files() -> Vec<(String, String)> {
    let mut files = stage::files(1);
    files.push(("watcher.yaml".to_owned(), stage::WATCHER.to_owned()));
    files
}

async fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>, kube::Error> {
    harness::api_of(client, object).await
}

/// The objects of these kinds that Tidegate has written, as they are.
async fn objects(client: &Client, kinds: &[(&str, &str, &str)]) -> Vec<Value> {
    let mut all = Vec::new();
    for (version, kind, namespace) in kinds {
        let shape = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
        let Ok(api) = api(client, &shape).await else { continue };
        for object in api.list(&ListParams::default()).await.expect("a list") {
            let mut object = serde_json::to_value(object).expect("JSON");
            (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
            if object["metadata"]["managedFields"].to_string().contains("\"tidegate\"") {
                all.push(object);
            }
        }
    }
    all
}

/// The files below a folder.
fn files_below(root: &Path, below: &str, all: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(root.join(below)).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        match entry.file_type().expect("a type").is_dir() {
            true => files_below(root, &path, all),
            false => _ = all.insert(path.clone(), std::fs::read(root.join(&path)).expect("a file")),
        }
    }
}

/// Records what this version leaves.
async fn record() {
    let files = files();
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(1, Extent::Controllers, &files, &[]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    stage.kill().await;
    let path = stage.repository.path().to_string_lossy().into_owned();
    let text = |objects: Vec<Value>| -> Vec<u8> {
        let lines = objects.iter().map(|object| format!("{object}\n").replace(&path, REPOSITORY));
        lines.collect::<String>().into_bytes()
    };
    let mut all = BTreeMap::new();
    files_below(stage.repository.path(), "", &mut all);
    let mut all: BTreeMap<String, Vec<u8>> =
        all.into_iter().map(|(path, content)| (format!("repository/{path}"), content)).collect();
    all.insert("kcp.json".to_owned(), text(objects(&stage.kcp, &OF_KCP).await));
    all.insert("runtime.json".to_owned(), text(objects(&stage.skrs[0], &OF_RUNTIME).await));
    let all: Vec<(&str, &[u8])> = all.iter().map(|(path, content)| (path.as_str(), content.as_slice())).collect();
    // A test that runs at the same time reads the one before.
    std::fs::write(RECORDING, gzip(&tar(&all))).expect("a file");
    std::fs::rename(RECORDING, RECORDED).expect("a file");
}

// === impl Recorded ===

impl Recorded {
    fn read() -> Recorded {
        let bytes = std::fs::read(RECORDED).expect("a file");
        let mut archive = tar::Archive::new(GzDecoder::new(bytes.as_slice()));
        let mut recorded = Recorded { kcp: Vec::new(), runtime: Vec::new(), repository: BTreeMap::new() };
        for entry in archive.entries().expect("an archive") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").to_string_lossy().into_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("a file");
            let lines = |content: &[u8]| -> Vec<Value> {
                let text = std::str::from_utf8(content).expect("UTF-8");
                text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
            };
            match path.strip_prefix("repository/") {
                Some(path) => _ = recorded.repository.insert(path.to_owned(), content),
                None if path == "kcp.json" => recorded.kcp = lines(&content),
                None => recorded.runtime = lines(&content),
            }
        }
        assert!(!recorded.kcp.is_empty() && !recorded.runtime.is_empty() && !recorded.repository.is_empty());
        recorded
    }

    /// Gives the servers of a stage all that was recorded.
    async fn restore(&self, stage: &Stage) {
        let root = stage.repository.path();
        std::fs::remove_dir_all(root).expect("a repository");
        for (path, content) in &self.repository {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, content).expect("a file");
        }
        let mut new = BTreeMap::from([(REPOSITORY.to_owned(), root.to_string_lossy().into_owned())]);
        for (client, objects) in [(&stage.kcp, &self.kcp), (&stage.skrs[0], &self.runtime)] {
            for object in objects {
                let text = new.iter().fold(object.to_string(), |text, (old, new)| text.replace(old, new));
                let object: Value = serde_json::from_str(&text).expect("JSON");
                let uid = restore(client, &object).await;
                new.insert(object["metadata"]["uid"].as_str().expect("a UID").to_owned(), uid);
            }
        }
    }
}

/// Has an object be as it was recorded. Returns its UID.
async fn restore(client: &Client, object: &Value) -> String {
    let (kind, name) = (&object["kind"], object["metadata"]["name"].as_str().expect("a name"));
    let api = eventually("the kind is served", SOON, async || {
        api(client, object).await.map_err(|error| format!("{kind}: {error}"))
    })
    .await;
    let mut body = object.clone();
    let metadata = body["metadata"].as_object_mut().expect("metadata");
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"] {
        metadata.remove(field);
    }
    let body: DynamicObject = serde_json::from_value(body).expect("an object");
    let by = PostParams { field_manager: Some("recorder".to_owned()), ..PostParams::default() };
    if api.get_opt(name).await.expect("an answer").is_some() {
        let patch = PatchParams { field_manager: Some("recorder".to_owned()), ..PatchParams::default() };
        api.patch(name, &patch, &Patch::Merge(&body)).await.expect("a patch");
    } else {
        api.create(&by, &body).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"));
    }
    let url = format!("{}/{name}", api.resource_url());
    let write = async |url: String, operations: Value| -> Value {
        let request = http::Request::patch(url).header("content-type", "application/json-patch+json");
        let request = request.body(operations.to_string().into_bytes()).expect("a request");
        client.request(request).await.unwrap_or_else(|error| panic!("{kind} {name}: {error}"))
    };
    let has_status = ["Kyma", "Manifest", "Watcher", "GitSource"].iter().any(|other| kind == other);
    if has_status && !object["status"].is_null() {
        let status = json!([{"op": "add", "path": "/status", "value": object["status"]}]);
        write(format!("{url}/status"), status).await;
    }
    // With anything else in the same patch, its author would be a field manager as well.
    let entries = &object["metadata"]["managedFields"];
    let after = write(url, json!([{"op": "add", "path": "/metadata/managedFields", "value": entries}])).await;
    after["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

async fn what_the_version_before_has_left_stays_as_it_is() {
    if std::env::var_os("RECORD_LANDSCAPE").is_some() {
        record().await;
    }
    let stage = Stage::on_simulated(1, Extent::Controllers, &[("README.md", String::new())], &[]).await;
    stays_as_it_is(&stage).await;
}

async fn what_the_version_before_has_left_stays_as_it_is_on_real_servers() {
    let stage = Stage::real(1, Extent::Controllers, &[("README.md", String::new())], &[]).await;
    stays_as_it_is(&stage).await;
}

/// What this version writes: the statuses have digests of UIDs and of the URL of the repository, which are others here,
/// and so the webhook configuration is applied again. What a version writes besides has its reason in the changelog.
const NEEDED: [&str; 3] = [
    "kcp patch gitsources.tidegate.dev/status landscape",
    "kcp patch kymas.operator.kyma-project.io/status one",
    "skr-1 patch validatingwebhookconfigurations.admissionregistration.k8s.io skr-webhook",
];

async fn stays_as_it_is(stage: &Stage) {
    let recorded = Recorded::read();
    recorded.restore(stage).await;
    let before = contents(stage).await;
    let marks = stage.marks();
    stage.start();
    let source = |object: &Value| object["status"]["observedGeneration"].is_number();
    stage.until("the source is read", &stage.kcp, "GitSource", "kcp-system", "landscape", source).await;
    stage.kyma_in("one", "Ready").await;
    // Each runtime is looked at after a start.
    eventually("the runtime is looked at", SOON, async || {
        let records = stage.landscape.skrs[0].records_since(marks[1]);
        let ours = records.iter().filter(|record| record.user == stage::USER).count();
        if ours > 0 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    stage.rests().await;
    tokio::time::sleep(QUIET).await;
    let is_write =
        |line: &String| ![" get ", " list ", " watch ", " selfsubject"].iter().any(|read| line.contains(read));
    // A status may be written more than once, as its parts become known.
    let written: BTreeSet<String> = stage.requests_since(&marks).into_iter().filter(is_write).collect();
    let mut found = differing(&before, &contents(stage).await);
    assert_eq!(written, BTreeSet::from(NEEDED.map(str::to_owned)), "{}", found.join("\n"));
    let is_digest = |line: &String| {
        [".reason: \"Applied:", ".reason: \"Settled:"].iter().any(|digest| line.contains(digest))
            || line.contains(".managedFields[") && line.contains("].time: ")
    };
    found.retain(|line| !is_digest(line));
    assert_eq!(found, Vec::<String>::new(), "nothing else is another");

    // It reads what it has found: a new version arrives, and a module leaves.
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0"), ("fast", "1.1.0")]));
    stage.commit("kymas/one.yaml", &stage::kyma("one", &["cache"]));
    let has_text = |map: &Value| map["data"]["text"] == "two";
    stage.until("the version arrives", &stage.skrs[0], "ConfigMap", "kyma-system", "cache-a", has_text).await;
    stage.until_gone(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    // And the version before can read what this one has written: it knows each field.
    let known = std::fs::read_to_string(BEFORE).expect("a file");
    let known: BTreeSet<&str> = known.lines().collect();
    let mut unknown = BTreeSet::new();
    for object in objects(&stage.kcp, &OF_KCP).await.iter().filter(|object| object["kind"] != "ConfigMap") {
        unknown.extend(unknown_fields(object, &known));
    }
    assert_eq!(unknown, BTreeSet::new());
}

/// The fields of an object that no line of the recorded definitions has.
fn unknown_fields(object: &Value, known: &BTreeSet<&str>) -> BTreeSet<String> {
    fn visit(prefix: &str, path: &str, value: &Value, known: &BTreeSet<&str>, found: &mut BTreeSet<String>) {
        let has = |path: &str| known.iter().any(|line| line.starts_with(&format!("{prefix} {path}: ")));
        // A field that may have any content has no lines below it.
        let is_open = |path: &str| {
            let below = [format!("{prefix} {path}."), format!("{prefix} {path}[]"), format!("{prefix} {path}{{}}")];
            !known.iter().any(|line| below.iter().any(|below| line.starts_with(below.as_str())))
        };
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let of_map = format!("{path}{{}}");
                    let below = if has(&of_map) { of_map } else { format!("{path}.{name}") };
                    match has(&below) {
                        true => visit(prefix, &below, value, known, found),
                        false if is_open(path) => {}
                        false => _ = found.insert(format!("{prefix} {below}")),
                    }
                }
            }
            Value::Array(items) => {
                items.iter().for_each(|item| visit(prefix, &format!("{path}[]"), item, known, found));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut found = BTreeSet::new();
    let (group, version) = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).expect("a version");
    let prefix = format!("{}s.{group} {version}", object["kind"].as_str().expect("a kind").to_lowercase());
    assert!(known.iter().any(|line| line.starts_with(&format!("{prefix} "))), "{prefix} is not recorded");
    for part in ["spec", "status"] {
        visit(&prefix, part, &object[part], known, &mut found);
    }
    found
}

#[test]
fn a_field_that_the_version_before_does_not_know_is_found() {
    let definition = json!({
        "metadata": {"name": "things.example.org"},
        "spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
        }}}}]},
    });
    let known = fields(&definition);
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    let of = |spec: Value| {
        let object = json!({"apiVersion": "example.org/v1", "kind": "Thing", "spec": spec});
        unknown_fields(&object, &known).into_iter().collect::<Vec<_>>()
    };
    let fine = json!({"list": [{"a": "b"}], "map": {"any": "c"}, "open": {"any": {"thing": 1}}});
    assert_eq!(of(fine), Vec::<String>::new());
    let other = json!({"list": [{"a": "b", "c": "d"}], "new": 1});
    assert_eq!(of(other), ["things.example.org v1 spec.list[].c", "things.example.org v1 spec.new"]);
}

/// All objects of both clusters by kind and name, without what each write changes.
async fn contents(stage: &Stage) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for (cluster, client, kinds) in [("kcp", &stage.kcp, &OF_KCP[..]), ("runtime", &stage.skrs[0], &OF_RUNTIME[..])] {
        for mut object in objects(client, kinds).await {
            object["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
            all.insert(format!("{cluster} {} {}", object["kind"], object["metadata"]["name"]), object);
        }
    }
    all
}

/// The fields that differ, one line each.
fn differing(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Vec<String> {
    fn visit(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
        match (before, after) {
            (Value::Object(old), Value::Object(new)) => {
                let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                names.into_iter().for_each(|name| visit(&format!("{path}.{name}"), &before[name], &after[name], found));
            }
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                old.iter().zip(new).enumerate().for_each(|(at, (old, new))| {
                    visit(&format!("{path}[{at}]"), old, new, found);
                });
            }
            _ if before == after => {}
            _ => found.push(format!("{path}: {before} is {after}")),
        }
    }
    let mut found = Vec::new();
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let of = |objects: &BTreeMap<String, Value>| objects.get(name).cloned().unwrap_or_default();
        visit(name, &of(before), &of(after), &mut found);
    }
    found
}

#[test]
fn what_is_recorded_is_what_a_version_has_left() {
    let recorded = Recorded::read();
    let names = |objects: &[Value]| -> BTreeSet<String> {
        objects.iter().map(|one| format!("{}", one["kind"]).trim_matches('"').to_owned()).collect()
    };
    for kind in ["Kyma", "ModuleTemplate", "ModuleReleaseMeta", "Manifest", "GitSource"] {
        assert!(names(&recorded.kcp).contains(kind), "{kind}");
    }
    for kind in ["Namespace", "CustomResourceDefinition", "ConfigMap", "ClusterRole", "Kyma", "Thing"] {
        assert!(names(&recorded.runtime).contains(kind), "{kind}");
    }
    let of = |kind: &str| recorded.kcp.iter().find(|one| one["kind"] == kind).expect("it is there");
    assert_eq!(of("Kyma")["status"]["state"], "Ready");
    assert_eq!(of("Manifest")["status"]["state"], "Ready");
    assert!(recorded.repository.contains_key(".git/HEAD"));
}
