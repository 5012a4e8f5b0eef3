//! The program itself, killed after each write of `adopt take` and `adopt release`, and started again: the landscape is
//! as after a run that nothing cut off.
//!
//! The servers are copies of one landscape for each write. They let so many writes through and hold back whatever comes
//! later, so that the process waits there for its end. [`cut`](super::cut) cuts the commands between two polls instead.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use kube_sim::{Served, WriteLimit};
use serde_json::{Value, json};
use tidegate_testbed::{Extent, Folder};
use tokio::process::Command;

use super::{apply_before, cut::objects_of, files_before, outdate, retire};
use crate::{
    harness,
    stage::{self, Stage},
};

/// After how many writes a command is killed at most.
const WRITES: usize = 50;
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
    /// Copies the control plane and the runtime, which let so many writes through.
    async fn of(stage: &Stage, writes: usize) -> Copy {
        let limit = WriteLimit::new(writes);
        let mut servers = Vec::new();
        for server in stage.landscape.servers() {
            servers.push(server.copied().listen_with(server.name(), limit.clone()).await.expect("a port"));
        }
        let folder = harness::folder();
        let copy = Copy { servers, limit, folder };
        std::fs::write(copy.kubeconfig(), copy.servers[0].kubeconfig().text()).expect("a file");
        // The runtime has another port.
        let config = STANDARD.encode(copy.servers[1].kubeconfig().text());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": "kcp-system"},
            "data": {"config": config},
        });
        let kcp = copy.servers[0].server().client();
        let secrets = harness::api_of(&kcp, &secret).await.expect("a kind that is served");
        secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&secret)).await.expect("a patch");
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
        // The Secret of this test is no write of the command.
        requests.filter(|one| ["patch", "create", "update", "delete"].contains(&one.verb.as_str())).count() - 1
    }

    /// Every object, without what differs between copies.
    async fn objects(&self) -> BTreeMap<String, Value> {
        let clusters = self.servers.iter().map(|served| {
            let server = served.server();
            (served.name(), server.client(), server.len())
        });
        let mut objects = objects_of(clusters).await;
        objects.retain(|name, _| !name.ends_with(&format!("Secret kcp-system/{SECRET}")));
        objects
    }
}

/// The Secret that leads to the runtime.
const SECRET: &str = "access-one";

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", said(output));
}

/// Kills a command after each of its writes, each time on a copy of the landscape, and starts it again.
async fn check(stage: &Stage, arguments: &[&str], repository: Option<&Path>) {
    let uncut = Copy::of(stage, usize::MAX).await;
    let before = uncut.objects().await;
    succeeded(&uncut.command(arguments, repository).output().await.expect("it runs"));
    let (expected, writes) = (uncut.objects().await, uncut.writes());
    assert!(expected != before && 20 <= writes, "there is much to write: {writes}");

    let killed = stream::iter(1..=WRITES.min(writes - 1)).map(|after| {
        let expected = &expected;
        async move {
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
        }
    });
    killed.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_be_killed_after_any_write_of_a_take_over() {
    let more: Vec<String> = (1..=12).map(|index| format!("more-{index}")).collect();
    let files = files_before(&more);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(1, Extent::Server, &files, &[]).await;
    apply_before(&stage, &files).await;
    for kind in ["kymas", "moduletemplates", "modulereleasemetas"] {
        outdate(&stage, &format!("{kind}.operator.kyma-project.io")).await;
    }
    check(&stage, &["adopt", "take", "--yes"], Some(stage.repository.path())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_may_be_killed_after_any_write_of_giving_back() {
    let files = stage::files(1);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::on_simulated(1, Extent::Controllers, &files, &[]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    retire(&stage).await;
    check(&stage, &["adopt", "release", "--yes"], None).await;
}
