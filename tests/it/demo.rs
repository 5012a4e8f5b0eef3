//! `tidegate demo --once`, as the README says it.

use std::{process::Stdio, time::Duration};

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
    assert_eq!(said.lines().filter(|line| line.contains("  held  ")).count(), 13, "{said}");
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
