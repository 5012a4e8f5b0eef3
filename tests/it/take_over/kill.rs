//! The program itself, killed after each write of `adopt take` and `adopt release`, and started again: the landscape is
//! as after a run that nothing cut off.
//!
//! The servers are copies of one landscape for each point. They let so many writes through and hold back whatever comes
//! later, so that the process waits there for its end. [`cut`](super::cut) cuts the commands between two polls instead.
//! Real servers have no copies, so there one landscape is taken over, with a kill at some points on the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, stream};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube_sim::{Served, WriteLimit};
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Folder, Record};
use tokio::process::Command;

use super::{
    DEFINED, IN_RUNTIME, apply_before, cut::objects_of, files_before, left_of_tidegate, objects, outdate, retire,
};
use crate::{
    harness,
    stage::{self, ADMINISTRATORS, Stage, USER, read},
};

/// At how many points a command is killed, each after another number of writes.
const POINTS: usize = 50;
/// After how many writes a take-over is killed on real servers, each time on what the times before have left: while it
/// stores objects again, and while it marks them.
const OF_TAKE: [usize; 4] = [1, 15, 60, 80];
/// The same of giving back.
const OF_RELEASE: [usize; 4] = [1, 8, 15, 4];
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

/// Starts a command, and kills it when the servers have answered so many of its writes. Returns whether that was before
/// its end.
async fn killed_on_real(stage: &Stage, arguments: &[&str], repository: Option<&Path>, after: usize) -> bool {
    let kubeconfig = stage.kubeconfig();
    // The servers tell its requests from those of the test: the Secrets of runtimes name this user as well.
    std::fs::write(&kubeconfig, stage.landscape.kcp.kubeconfig_of(USER, ADMINISTRATORS).text()).expect("a file");
    let marks = stage.marks();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).arg("--kubeconfig").arg(&kubeconfig).args(repository);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().expect("it starts");
    let is_killed = async {
        while writes_on_real(stage, &marks).len() < after {
            if child.try_wait().expect("a status").is_some() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        child.start_kill().expect("it runs");
        child.wait().await.expect("it has ended").signal() == Some(9)
    };
    tokio::time::timeout(PATIENCE, is_killed).await.expect("it writes or ends")
}

/// The writes of the user whom commands and the Secrets of runtimes name.
fn writes_on_real(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let servers = stage.landscape.servers().zip(marks);
    let of = |(server, mark): (&stage::Server, &u64)| {
        let records = server.records_since(*mark).into_iter().filter(|record| record.user == USER && record.is_write());
        let text = |record: Record| format!("{} {} {}", record.verb, record.resource, record.name);
        records.map(|record| format!("{} {}", server.name(), text(record))).collect::<Vec<_>>()
    };
    servers.flat_map(of).collect()
}

/// Kills a command at some points, one after the other, then lets it end. Each write comes at most once more for each
/// kill.
async fn killed_at_points_on_real(stage: &Stage, arguments: &[&str], repository: Option<&Path>, points: [usize; 4]) {
    let marks = stage.marks();
    let mut kills = 0;
    for after in points {
        if killed_on_real(stage, arguments, repository, after).await {
            kills += 1;
        }
    }
    let path = repository.map(|path| path.to_string_lossy().into_owned());
    succeeded(&stage.command(&arguments.iter().copied().chain(path.as_deref()).collect::<Vec<_>>()).await);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for write in writes_on_real(stage, &marks) {
        *counts.entry(write).or_default() += 1;
    }
    for (write, count) in counts {
        // Definitions are stored again and marked, and Kymas are annotated as well.
        assert!(count <= 3 + kills, "{write}: {count} times with {kills} kills");
    }
    // A busy machine may let one of them end first.
    assert!(2 <= kills, "it is killed {kills} times");
}

/// The same with the real parts: what a server has begun to write when the process ends is its own matter.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_be_killed_on_real_servers() {
    let files = files_before(&more(48));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    apply_before(&stage, &files).await;
    let crds = ["kymas", "moduletemplates"].map(|kind| format!("{kind}.operator.kyma-project.io"));
    for name in &crds {
        outdate(&stage, name).await;
    }
    let definitions = async || -> BTreeMap<String, Value> {
        let kinds = ["Kyma", "ModuleTemplate", "ModuleReleaseMeta"]
            .map(|kind| ("operator.kyma-project.io/v1beta2", kind, "kcp-system"));
        let all = objects(&stage.kcp, &kinds).await.into_iter();
        all.map(|one| (format!("{} {}", one["kind"], one["metadata"]["name"]), one)).collect()
    };
    let before = definitions().await;
    assert_eq!(before.len(), 49 + 3 + 2);
    let path = stage.repository.path();
    killed_at_points_on_real(&stage, &["adopt", "take", "--yes"], Some(path), OF_TAKE).await;
    let after = definitions().await;
    assert_eq!(Vec::from_iter(after.keys()), Vec::from_iter(before.keys()));
    for (name, object) in &after {
        assert_eq!(object["spec"], before[name]["spec"], "{name}");
        assert_eq!(object["metadata"]["uid"], before[name]["metadata"]["uid"], "{name}");
        assert_eq!(object["metadata"]["labels"]["tidegate.dev/source"], "kcp-system.landscape", "{name}");
    }
    for name in &crds {
        let crd = read(&stage.kcp, "CustomResourceDefinition", "", name).await.expect("it is there");
        assert_eq!(crd["status"]["storedVersions"], json!(["v1beta2"]), "{name}");
    }
    let again = said(&stage.command(&["adopt", "take", "--yes", &path.to_string_lossy()]).await);
    assert!(again.contains("0 objects stored again, 0 definitions marked"), "{again}");

    // The way back, after a first pass, with runtimes alone.
    for name in more(48) {
        let kyma: Value = serde_yaml::from_str(&stage::kyma(&name, &[])).expect("YAML");
        let kymas = harness::api_of(&stage.kcp, &kyma).await.expect("a kind that is served");
        kymas.delete(&name, &DeleteParams::default()).await.expect("a delete");
        stage.repository.remove(&format!("kymas/{name}.yaml")).expect("a file");
    }
    stage.repository.commit("only Kymas with runtimes").expect("a commit");
    stage.start();
    stage.kyma_in("one", "Ready").await;
    retire(&stage).await;
    let named = async || -> Vec<(Value, Value)> {
        let all = objects(&stage.skrs[0], &IN_RUNTIME).await.into_iter();
        all.map(|one| (one["metadata"]["name"].clone(), one["metadata"]["uid"].clone())).collect()
    };
    let before = named().await;
    killed_at_points_on_real(&stage, &["adopt", "release", "--yes"], None, OF_RELEASE).await;
    assert_eq!(named().await, before, "nothing is deleted or created");
    let all = [objects(&stage.kcp, &DEFINED).await, objects(&stage.skrs[0], &IN_RUNTIME).await].concat();
    for object in &all {
        assert_eq!(left_of_tidegate(object), Vec::<String>::new(), "{} {}", object["kind"], object["metadata"]["name"]);
    }
}
