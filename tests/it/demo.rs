//! `tidegate demo --once`, as the README says it.

use std::{
    collections::BTreeSet,
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tidegate_testbed::Extent;
use tokio::io::AsyncReadExt as _;

use crate::harness::{self, eventually};

/// The tour itself takes half a minute; a loaded machine takes longer.
const TOUR_MAX: Duration = Duration::from_secs(15 * 60);

/// With one runtime more than the example has, and nothing to find programs with.
#[tokio::test]
async fn the_demo_shows_all_that_it_promises() {
    check(&["--runtimes=3"], &["skr-3.kubeconfig", "agent-runtime-003.log"], Some("/nowhere")).await;
}

#[tokio::test]
async fn the_demo_shows_the_same_on_real_servers() {
    // Three API servers with all that belongs to them: as a landscape of its own.
    let _permit = harness::permits(3).await;
    check(&["--control-plane=real"], &["servers"], None).await;
}

/// Kinds of which the controllers of a cluster make objects by themselves, soon after its start.
const OF_CONTROLLERS: [&str; 7] =
    ["Event", "Lease", "ComponentStatus", "ServiceAccount", "Endpoints", "EndpointSlice", "IPAddress"];

/// The names of all objects of a cluster, by kind. Without those that its own controllers make.
async fn objects(client: &kube::Client) -> BTreeSet<String> {
    let found = kube::discovery::Discovery::new(client.clone()).run_aggregated().await.expect("an answer");
    let mut all = BTreeSet::new();
    for group in found.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let is_stored = capabilities.supports_operation(kube::discovery::verbs::LIST);
            if !is_stored || OF_CONTROLLERS.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: kube::Api<kube::api::DynamicObject> = kube::Api::all_with(client.clone(), &resource);
            for object in api.list(&kube::api::ListParams::default()).await.expect("a list") {
                let place = object.metadata.namespace.unwrap_or_default();
                let name = object.metadata.name.expect("a name");
                if name != "kube-root-ca.crt" {
                    all.insert(format!("{} {place}/{name}", resource.kind));
                }
            }
        }
    }
    all
}

/// A demo on clusters of the user, who is at a terminal, and answers its question. The terminal must outlive the
/// answer.
async fn answered(mut demo: tokio::process::Command, answer: &str) -> (tokio::process::Child, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    let mut demo = demo.stdin(terminal).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = Vec::new();
    let output = demo.stdout.as_mut().unwrap();
    while !String::from_utf8_lossy(&said).contains("Write to these clusters? Type `yes`:") {
        let read = tokio::time::timeout(TOUR_MAX, output.read_buf(&mut said)).await.expect("it asks").unwrap();
        assert!(0 < read, "it has ended: {}", String::from_utf8_lossy(&said));
    }
    let mut controller = File::from(controller);
    controller.write_all(format!("{answer}\n").as_bytes()).unwrap();
    (demo, controller)
}

/// A demo on clusters of the user, who is at no terminal.
fn on_clusters(stage: &Path, kubeconfigs: &[PathBuf]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["demo", "--once", "--dir"]).arg(stage).stdin(Stdio::null()).kill_on_drop(true);
    given(&mut command, kubeconfigs);
    command
}

/// Names the clusters.
fn given(command: &mut tokio::process::Command, kubeconfigs: &[PathBuf]) {
    for (index, kubeconfig) in kubeconfigs.iter().enumerate() {
        command.arg(if index == 0 { "--kubeconfig" } else { "--runtime-kubeconfig" }).arg(kubeconfig);
    }
}

/// The whole tour on clusters that exist before and after it, and are then as they were. A demo that is interrupted in
/// the middle leaves them as they were as well, and one that was killed is cleaned up by the next.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_leaves_clusters_of_the_user_as_they_were() {
    let landscape = harness::dedicated_landscape(2, Extent::Controllers).await;
    let folder = harness::folder();
    let servers = [&landscape.kcp, &landscape.skrs[0], &landscape.skrs[1]];
    let (mut kubeconfigs, mut before) = (Vec::new(), Vec::new());
    for server in servers {
        let path = folder.path().join(format!("{}.yaml", server.name()));
        std::fs::write(&path, server.kubeconfig().text()).unwrap();
        kubeconfigs.push(path);
        // An API server makes this Service by itself, some time after it is ready.
        eventually("its own Service exists", harness::SOON, async || {
            let all = objects(&server.client().unwrap()).await;
            if all.contains("Service default/kubernetes") { Ok(()) } else { Err("not yet".to_owned()) }
        })
        .await;
        before.push(objects(&server.client().unwrap()).await);
    }
    let as_before = async |when: &str| {
        for (server, before) in servers.iter().zip(&before) {
            eventually(&format!("{} is as before {when}", server.name()), harness::SOON, async || {
                let now = objects(&server.client().unwrap()).await;
                let changes: Vec<&String> = now.symmetric_difference(before).collect();
                if changes.is_empty() { Ok(()) } else { Err(format!("{changes:?}")) }
            })
            .await;
        }
    };
    let told = |output: &std::process::Output| {
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
    };

    // Without consent, nothing is written.
    let refused = on_clusters(&folder.path().join("refused"), &kubeconfigs).output().await.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    assert!(told(&refused).contains("cannot ask whether to write to these clusters"), "{}", told(&refused));
    as_before("after a refusal").await;

    // Nor if the user at the terminal says no. Nothing is left on this machine either.
    let temporary = folder.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut asks = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    asks.args(["demo", "--once"]).env("TMPDIR", &temporary).kill_on_drop(true);
    given(&mut asks, &kubeconfigs);
    let (refused, _terminal) = answered(asks, "no").await;
    let refused = refused.wait_with_output();
    let refused = tokio::time::timeout(TOUR_MAX, refused).await.expect("it ends").unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    assert!(told(&refused).contains("nothing was written"), "{}", told(&refused));
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);
    as_before("after a no").await;

    // Interrupted or killed in the middle: then a module is installed.
    let in_the_middle = async |demo: tokio::process::Child| {
        eventually("a module is installed", TOUR_MAX, async || {
            let now = objects(&servers[1].client().unwrap()).await;
            if now.iter().any(|object| object.contains("cache-manager")) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
        demo
    };
    let asks = on_clusters(&folder.path().join("interrupted"), &kubeconfigs);
    let (agreed, _terminal) = answered(asks, "yes").await;
    let mut interrupted = in_the_middle(agreed).await;
    let process = rustix::process::Pid::from_raw(i32::try_from(interrupted.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let status = tokio::time::timeout(TOUR_MAX, interrupted.wait()).await.expect("it ends").unwrap();
    assert!(status.success(), "{status}");
    as_before("after an interruption").await;
    let mut killed = on_clusters(&folder.path().join("killed"), &kubeconfigs);
    let killed = killed.arg("--yes").stdout(Stdio::null()).spawn().unwrap();
    in_the_middle(killed).await.kill().await.unwrap();

    let stage = folder.path().join("stage");
    let output = on_clusters(&stage, &kubeconfigs).arg("--yes").output();
    let output = tokio::time::timeout(TOUR_MAX, output).await.expect("the demo ends").unwrap();
    let said = told(&output);
    let log = std::fs::read_to_string(stage.join("daemon.log")).unwrap_or_default();
    let tail = log.lines().rev().take(40).collect::<Vec<_>>().join("\n");
    assert!(output.status.success(), "{said}\n{tail}");
    assert_eq!(said.lines().filter(|line| line.contains("  held  ")).count(), 12, "{said}");
    for shown in [
        "An earlier demo was cut off. What it left is removed first.",
        "left out: requests to these clusters are not counted",
        "left out: the pods of kcp need an etcd",
        "no agent runs in the runtimes",
        "both runtimes are Ready",
        "the clusters are as before",
    ] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    as_before("after the tour").await;

    // What is not the demo's stays, and the demo does not begin.
    let namespace = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}});
    harness::apply(&servers[2].client().unwrap(), &namespace).await;
    let refused = on_clusters(&folder.path().join("foreign"), &kubeconfigs).arg("--yes").output().await.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    let expected = format!("({}) has the namespace kyma-system, which the demo has not made", kubeconfigs[2].display());
    assert!(told(&refused).contains(&expected), "{}", told(&refused));
    let left = objects(&servers[2].client().unwrap()).await;
    assert!(left.contains("Namespace /kyma-system"), "{left:?}");
}

/// Runs the tour to its end. All of it must hold, and the folder must hold what belongs there.
async fn check(arguments: &[&str], files: &[&str], path: Option<&str>) {
    let folder = harness::folder();
    let stage = folder.path().join("stage");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    if let Some(path) = path {
        // No Go, no compiler, no network's tools; a cache that cannot be written.
        command.env_clear().env("PATH", path).env("HOME", "/nowhere");
    }
    let output = command
        .args(["demo", "--once", "--dir"])
        .arg(&stage)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TOUR_MAX, output).await.expect("the demo ends").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let log = std::fs::read_to_string(stage.join("daemon.log")).unwrap_or_default();
    let tail = log.lines().rev().take(60).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n");
    assert!(output.status.success(), "{said}\n{}\n{tail}", String::from_utf8_lossy(&output.stderr));
    let always = [
        "kcp.kubeconfig",
        "skr-1.kubeconfig",
        "skr-2.kubeconfig",
        "repo/.git",
        "daemon.log",
        "watch.json",
        "agent-dev.log",
    ];
    for file in always.iter().chain(files) {
        assert!(stage.join(file).exists(), "{file} is there");
    }
    assert_eq!(said.lines().filter(|line| line.contains("  held  ")).count(), 14, "{said}");
    for shown in [
        "$ tidegate diff --from HEAD",
        "cache 1.0.0 → 1.1.0",
        "$ tidegate status --kubeconfig",
        "mailer/2.5.0/module-template.yaml:10",
        "tidegate.dev/confirm-prune=",
        "waiting: no request to a runtime and no write to the KCP for 5s; what still follows from the last step starts \
         this time again",
        "Two things to break next:",
        "both runtimes are Ready",
    ] {
        assert!(said.contains(shown), "{shown}: {said}");
    }
    // The named folder is kept, but no process in it.
    eventually("all that it started is gone", harness::SOON, async || {
        let left = harness::processes_below(&stage);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}
