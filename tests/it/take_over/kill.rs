//! The program itself, killed after each write of `adopt take` and `adopt release`, and started again: the landscape is
//! as after a run that nothing cut off.
//!
//! The servers are copies of one landscape for each point. They let so many writes through and hold back whatever comes
//! later, so that the process waits there for its end. [`cut`](super::cut) cuts the commands between two polls instead.
//! Real servers have no copies: there, a [`gate`](super::gate) stops the writes, and the objects become as they were
//! before each point.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, stream};
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use kube_sim::{Served, WriteLimit};
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Folder};
use tokio::process::Command;

use super::{
    DEFINED, IN_RUNTIME, apply_before,
    cut::{apply_manifest, objects_of},
    files_before,
    gate::{Barrier, End, Gate},
    left_of_tidegate, objects, outdate, retire,
};
use crate::{
    harness,
    stage::{self, Stage},
};

/// At how many points a command is killed, each after another number of writes.
const POINTS: usize = 50;
/// Landscapes at a time.
const AT_ONCE: usize = 4;
/// No command of a small landscape takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of a landscape, for one process and its successor.
struct Copy {
    servers: Vec<Served>,
    limit: WriteLimit,
    folder: Folder,
}

// === impl Copy ===

impl Copy {
    /// Copies the control plane and the runtimes, which let so many writes through.
    async fn of(stage: &Stage, writes: usize) -> Copy {
        let limit = WriteLimit::new(writes);
        let mut servers = Vec::new();
        for server in stage.landscape.servers() {
            servers.push(server.copied().listen_with(server.name(), limit.clone()).await.expect("a port"));
        }
        let folder = harness::folder();
        let copy = Copy { servers, limit, folder };
        std::fs::write(copy.kubeconfig(), copy.servers[0].kubeconfig().text()).expect("a file");
        let kcp = copy.servers[0].server().client();
        for (kyma, runtime) in stage::MANY.iter().zip(&copy.servers[1..]) {
            // The runtime has another port.
            let config = STANDARD.encode(runtime.kubeconfig().text());
            let name = secret_of(kyma);
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "kcp-system"},
                "data": {"config": config},
            });
            let secrets = harness::api_of(&kcp, &secret).await.expect("a kind that is served");
            secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&secret)).await.expect("a patch");
        }
        copy
    }

    fn kubeconfig(&self) -> std::path::PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn command(&self, arguments: &[&str], repository: Option<&Path>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).arg("--kubeconfig").arg(self.kubeconfig()).args(repository);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// How many writes were answered.
    fn writes(&self) -> usize {
        let requests = self.servers.iter().flat_map(|served| served.server().kept_requests(0));
        let writes =
            requests.filter(|one| ["patch", "create", "update", "delete"].contains(&one.verb.as_str())).count();
        // The Secrets of this test are no writes of the command.
        writes - (self.servers.len() - 1)
    }

    /// Every object, without what differs between copies.
    async fn objects(&self) -> BTreeMap<String, Value> {
        let clusters = self.servers.iter().map(|served| {
            let server = served.server();
            (served.name(), server.client(), server.len())
        });
        let mut objects = objects_of(clusters).await;
        objects.retain(|name, _| !name.contains(&format!("Secret kcp-system/{}", secret_of(""))));
        objects
    }
}

/// The Secret that leads to the runtime of a Kyma.
fn secret_of(kyma: &str) -> String {
    format!("access-{kyma}")
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
}

/// Kills a command after 50 of its writes, from the first to the last but one, each time on a copy of the landscape,
/// and starts it again.
async fn check(stage: &Stage, arguments: &[&str], repository: Option<&Path>) {
    let uncut = Copy::of(stage, usize::MAX).await;
    let before = uncut.objects().await;
    succeeded(&uncut.command(arguments, repository).output().await.expect("it runs"));
    let (expected, writes) = (uncut.objects().await, uncut.writes());
    assert!(expected != before && POINTS < writes, "every point is another one: {writes} writes");

    let killed = stream::iter(0..POINTS).map(|point| {
        let expected = &expected;
        async move {
            let after = 1 + (writes - 2) * point / (POINTS - 1);
            let copy = Copy::of(stage, after).await;
            let mut child = copy.command(arguments, repository).spawn().expect("it starts");
            tokio::time::timeout(PATIENCE, copy.limit.reached()).await.expect("it writes");
            child.start_kill().expect("it runs");
            let ended = child.wait().await.expect("it has ended");
            assert_eq!(ended.signal(), Some(9), "it is killed after {after} of {writes} writes");
            assert_eq!(copy.writes(), after);
            copy.limit.lift();
            let again = tokio::time::timeout(PATIENCE, copy.command(arguments, repository).output()).await;
            succeeded(&again.expect("it ends").expect("it runs"));
            let found = copy.objects().await;
            assert_eq!(Vec::from_iter(found.keys()), Vec::from_iter(expected.keys()), "killed after {after} writes");
            for (name, object) in expected {
                assert_eq!(found[name], *object, "{name}, killed after {after} of {writes} writes");
            }
            after
        }
    });
    let points: BTreeSet<usize> = killed.buffer_unordered(AT_ONCE).collect().await;
    assert_eq!(points.len(), POINTS, "{points:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_be_killed_after_any_write_of_a_take_over() {
    let files = files_before(&more(24));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(1, Extent::Server, &files, &[]).await;
    apply_before(&stage, &files).await;
    for kind in ["kymas", "moduletemplates", "modulereleasemetas"] {
        outdate(&stage, &format!("{kind}.operator.kyma-project.io")).await;
    }
    check(&stage, &["adopt", "take", "--yes"], Some(stage.repository.path())).await;
}

/// Names of Kymas that have no runtime.
fn more(count: usize) -> Vec<String> {
    (1..=count).map(|index| format!("more-{index}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_be_killed_after_any_write_of_giving_back() {
    const RUNTIMES: usize = 4;
    let mut files = stage::files(0);
    let kymas = stage::MANY.iter().take(RUNTIMES);
    files.extend(kymas.map(|name| (format!("kymas/{name}.yaml"), stage::kyma(name, &["cache", "mailer"]))));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(RUNTIMES, Extent::Controllers, &files, &[]).await;
    stage.start();
    for name in stage::MANY.iter().take(RUNTIMES) {
        stage.kyma_in(name, "Ready").await;
    }
    retire(&stage).await;
    check(&stage, &["adopt", "release", "--yes"], None).await;
}

/// A landscape on real servers, as it is before a command. The program reaches the servers through gates.
struct OnReal<'a> {
    stage: &'a Stage,
    barrier: Barrier,
    gates: Vec<Gate>,
    /// The objects of KCP and of each runtime, by kind and name.
    before: Vec<BTreeMap<String, Value>>,
    folder: Folder,
}

/// Version, kind and namespace of what the commands write on real servers, besides what [`DEFINED`] and [`IN_RUNTIME`]
/// have.
const MORE_OF_KCP: [(&str, &str, &str); 1] = [("apiextensions.k8s.io/v1", "CustomResourceDefinition", "")];
const MORE_IN_RUNTIME: [(&str, &str, &str); 3] = [
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", ""),
    ("example.org/v1", "Thing", "kyma-system"),
];

// === impl OnReal ===

impl OnReal<'_> {
    async fn new(stage: &Stage) -> OnReal<'_> {
        let barrier = Barrier::new();
        let mut gates = Vec::new();
        for server in stage.landscape.servers() {
            gates.push(Gate::new(server.name(), server.client(), &barrier).await);
        }
        for (kyma, gate) in stage::MANY.iter().zip(&gates[1..]) {
            let config = STANDARD.encode(gate.kubeconfig.text());
            let secret = json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret_of(kyma), "namespace": "kcp-system"},
                "data": {"config": config},
            });
            let secrets = harness::api_of(&stage.kcp, &secret).await.expect("a kind that is served");
            let by = PatchParams::default();
            secrets.patch(&secret_of(kyma), &by, &Patch::Merge(&secret)).await.expect("a patch");
        }
        let before = objects_on_real(stage).await;
        OnReal { stage, barrier, gates, before, folder: harness::folder() }
    }

    fn command(&self, arguments: &[&str], repository: Option<&Path>) -> Command {
        let kubeconfig = self.folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, self.gates[0].kubeconfig.text()).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(arguments).arg("--kubeconfig").arg(&kubeconfig).args(repository);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// Has all objects be as they were before, also their field managers.
    async fn restore(&self) {
        let after = objects_on_real(self.stage).await;
        for ((cluster, before), after) in self.before.iter().enumerate().zip(after) {
            let client = if cluster == 0 { &self.stage.kcp } else { &self.stage.skrs[cluster - 1] };
            let changed = before.iter().filter(|(name, object)| timeless(object) != timeless(&after[*name]));
            let restored = stream::iter(changed).map(async |(_, object)| restore(client, object).await);
            restored.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        }
    }

    /// Kills the program at so many points of a command, each time on the landscape as it was before, and starts it
    /// again: everything is then as after a run that nothing cut off.
    async fn check(&self, arguments: &[&str], repository: Option<&Path>, points: usize) {
        self.barrier.let_through(usize::MAX, End::BeforeItArrives);
        succeeded(&self.command(arguments, repository).output().await.expect("it runs"));
        let (expected, whole) = (objects_on_real(self.stage).await, counted(self.barrier.writes()));
        let writes: usize = whole.values().sum();
        assert!(points < writes, "every point is another one: {writes} writes");
        let named = |objects: &[BTreeMap<String, Value>]| -> Vec<Vec<String>> {
            objects.iter().map(|all| all.keys().cloned().collect()).collect()
        };
        assert_eq!(named(&expected), named(&self.before), "no object comes or goes");

        for point in 0..points {
            self.restore().await;
            let after = (writes - 1) * point / (points - 1);
            let end = if point % 2 == 0 { End::BeforeItArrives } else { End::BeforeItsAnswer };
            let said = format!("killed after {after} of {writes} writes, {end:?} of the next one");
            self.barrier.let_through(after, end);
            let mut child = self.command(arguments, repository).spawn().expect("it starts");
            let is_stopped = tokio::select! {
                () = self.barrier.stopped() => true,
                _ = child.wait() => false,
                () = tokio::time::sleep(PATIENCE) => false,
            };
            child.start_kill().ok();
            let ended = child.wait_with_output().await.expect("it has ended");
            assert!(is_stopped, "{said}: {} {:#?}", self::said(&ended), self.barrier.writes());
            assert_eq!(ended.status.signal(), Some(9), "{said}");
            self.barrier.settled().await;
            self.barrier.lift();
            let again = tokio::time::timeout(PATIENCE, self.command(arguments, repository).output()).await;
            succeeded(&again.expect("it ends").expect("it runs"));
            let found = objects_on_real(self.stage).await;
            assert_eq!(named(&found), named(&expected), "{said}");
            for (name, object) in found.iter().zip(&expected).flat_map(|(found, all)| {
                all.iter().map(|(name, object)| (name, (&found[name], object))).collect::<Vec<_>>()
            }) {
                assert_eq!(timeless(object.0), timeless(object.1), "{name}, {said}");
                assert_eq!(object.0["metadata"]["uid"], object.1["metadata"]["uid"], "{name}, {said}");
            }
            for (write, count) in counted(self.barrier.writes()) {
                let once = whole.get(&write).unwrap_or_else(|| panic!("{write}, {said}"));
                assert!(count <= once + 1, "{write}: {count} times, {said}");
            }
        }
    }
}

/// The objects of KCP and of each runtime, by kind and name.
async fn objects_on_real(stage: &Stage) -> Vec<BTreeMap<String, Value>> {
    let named = |all: Vec<Value>| -> BTreeMap<String, Value> {
        let name = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
        all.into_iter().map(|object| (name(&object), object)).collect()
    };
    let mut all = vec![named([objects(&stage.kcp, &DEFINED).await, objects(&stage.kcp, &MORE_OF_KCP).await].concat())];
    for skr in &stage.skrs {
        all.push(named([objects(skr, &IN_RUNTIME).await, objects(skr, &MORE_IN_RUNTIME).await].concat()));
    }
    all
}

/// An object without what each write changes.
fn timeless(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().expect("metadata");
    metadata.remove("resourceVersion");
    for entry in metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
        entry.as_object_mut().expect("an entry").remove("time");
    }
    if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
        entries.sort_by_key(Value::to_string);
    }
    object
}

/// Gives an object the metadata and the status that it had.
async fn restore(client: &Client, object: &Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    let url = format!("{}/{name}", api.resource_url());
    let set = |path: &str, value: &Value| {
        let add = |value: &Value| json!({"op": "add", "path": path, "value": value});
        match value.is_null() {
            // Removes it, whether it is there or not.
            true => vec![add(&json!({})), json!({"op": "remove", "path": path})],
            false => vec![add(value)],
        }
    };
    let write = async |url: String, operations: Vec<Value>| {
        let request = http::Request::patch(url).header("content-type", "application/json-patch+json");
        let request = request.body(Value::from(operations).to_string().into_bytes()).expect("a request");
        client.request::<Value>(request).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    if ["CustomResourceDefinition", "Kyma", "Manifest", "Watcher"].iter().any(|kind| object["kind"] == *kind) {
        write(format!("{url}/status"), set("/status", &object["status"])).await;
    }
    let metadata = &object["metadata"];
    let marks = ["labels", "annotations"].map(|field| set(&format!("/metadata/{field}"), &metadata[field]));
    write(url.clone(), marks.concat()).await;
    // With anything else in the same patch, its author would be a field manager as well.
    let entries = if metadata["managedFields"].is_null() { json!([{}]) } else { metadata["managedFields"].clone() };
    write(url, set("/metadata/managedFields", &entries)).await;
}

/// How often each write arrived.
fn counted(writes: Vec<String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in writes {
        *counts.entry(write).or_default() += 1;
    }
    counts
}

/// 25 points of each command on real API servers: the writes are real, and so is their order.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_be_killed_at_fifty_points_on_real_servers() {
    let files = files_before(&more(6));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    apply_before(&stage, &files).await;
    for name in more(2) {
        apply_manifest(&stage, &name, "mandatory").await;
    }
    for kind in ["kymas", "moduletemplates", "manifests"] {
        outdate(&stage, &format!("{kind}.operator.kyma-project.io")).await;
    }
    let path = stage.repository.path();
    {
        let landscape = OnReal::new(&stage).await;
        landscape.check(&["adopt", "take", "--yes"], Some(path), POINTS / 2).await;
    }
    let again = said(&stage.command(&["adopt", "take", "--yes", &path.to_string_lossy()]).await);
    assert!(again.contains("0 objects stored again, 0 definitions marked"), "{again}");

    // The way back, after a first pass, with runtimes alone.
    for name in more(2) {
        let manifest = json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
            "metadata": {"name": format!("{name}-mandatory"), "namespace": "kcp-system"},
        });
        let manifests = harness::api_of(&stage.kcp, &manifest).await.expect("a kind that is served");
        let name = manifest["metadata"]["name"].as_str().expect("a name");
        manifests.delete(name, &DeleteParams::default()).await.expect("a delete");
    }
    for name in more(6) {
        let kyma: Value = serde_yaml::from_str(&stage::kyma(&name, &[])).expect("YAML");
        let kymas = harness::api_of(&stage.kcp, &kyma).await.expect("a kind that is served");
        kymas.delete(&name, &DeleteParams::default()).await.expect("a delete");
        stage.repository.remove(&format!("kymas/{name}.yaml")).expect("a file");
    }
    stage.repository.commit("only Kymas with runtimes").expect("a commit");
    let secret = stage::access_secret("one", &stage.landscape.skrs[0]);
    harness::apply(&stage.kcp, &secret).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    retire(&stage).await;
    let landscape = OnReal::new(&stage).await;
    landscape.check(&["adopt", "release", "--yes"], None, POINTS / 2).await;
    let all = [objects(&stage.kcp, &DEFINED).await, objects(&stage.skrs[0], &IN_RUNTIME).await].concat();
    for object in &all {
        assert_eq!(left_of_tidegate(object), Vec::<String>::new(), "{} {}", object["kind"], object["metadata"]["name"]);
    }
}
