//! `tidegate sim diff`: the cost of a comparison with real clusters, on real API servers.
//!
//! The daemon rolls out a landscape. Then this program compares the repository with it, as a process of its own: first
//! unchanged, then with one module bumped. The audit logs of the API servers count the requests. The yardstick is what
//! `kubectl diff` does, by a bare client over sixteen connections, on the same servers in the same run: it reads each
//! object and applies it as a dry run.

use std::{process::Command, time::Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::{
    fleet,
    limit::{self, Clients, Collected, Limit, Objects},
    report::Output,
    stage::{Servers, Size, Stage, USER},
};
use crate::servers::Make;
use kube_sim::Tally;
use tidegate_process::Exit;
use tidegate_process::{say, tell};

/// Measures `diff --live`: the cost of a comparison with real clusters, on real API servers.
#[derive(clap::Args)]
pub(super) struct Diff {
    /// Start this many runtimes, each with an API server of its own
    #[arg(long, default_value_t = 3)]
    runtimes: usize,
    /// Install this many modules in each runtime
    #[arg(long, default_value_t = 5)]
    modules: usize,
    /// Give each module this many objects
    #[arg(long, default_value_t = 25)]
    objects: usize,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// One comparison.
struct Compared {
    name: &'static str,
    seconds: f64,
    kcp: Tally,
    skrs: Tally,
    /// Distinct differences, and the number of objects that they affect.
    differences: (usize, u64),
}

pub(super) async fn measure(diff: &Diff) -> anyhow::Result<Exit> {
    let size = Size { runtimes: diff.runtimes, modules: diff.modules, objects: diff.objects };
    let servers = Servers::prepare(Make::Real, Make::Real).await?;
    tell!("starting {} API servers", size.runtimes + 1);
    let stage = Stage::start(size, &servers, "diff").await?;
    let mut daemon = stage.daemon(&[])?;
    stage.look(async || daemon.leads()).await?;
    stage.commit_landscape()?;
    tell!("rollout");
    let runtimes: Vec<usize> = (1..=size.runtimes).collect();
    stage.ready(&runtimes, |_, kyma| fleet::version_of(kyma, 0) == fleet::VERSIONS[0]).await?;
    daemon.end();
    let mut all = vec![compare(&stage, "unchanged")?];
    stage.repository.write(&fleet::release_path(0), &fleet::release(0, fleet::VERSIONS[1]))?;
    all.push(compare(&stage, "one module bumped")?);
    tell!("the bare client reads each object and applies it as a dry run");
    let clients = Clients::connect(&stage.clusters)?;
    let objects = Objects::collect(&clients, &mut Collected::default(), |_| true).await?;
    let yardstick = limit::try_out(&clients, &objects).await?;
    print(diff, &all, yardstick, objects.count());
    Ok(Exit::Ok)
}

/// Runs the current program.
fn compare(stage: &Stage, name: &'static str) -> anyhow::Result<Compared> {
    tell!("{name}");
    let kubeconfig = stage.folder.path().join("diff.kubeconfig");
    let access = stage.clusters[0].kubeconfig_of(USER)?;
    std::fs::write(&kubeconfig, access.text()).with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(program);
    command
        .arg("diff")
        .arg(stage.repository.path())
        .args(["--live", "--output", "json", "--kubeconfig"])
        .arg(&kubeconfig);
    let marks = stage.marks();
    let started = Instant::now();
    let output = command.output().context("cannot run the comparison")?;
    let seconds = started.elapsed().as_secs_f64();
    let seen = stage.requests(&marks)?;
    let (kcp, skrs) = (seen.kcp(), seen.skrs());
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("the comparison failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    if kcp.writes() + skrs.writes() > 0 {
        bail!("the comparison wrote to a cluster: {kcp}{skrs}");
    }
    let report: Value = serde_json::from_slice(&output.stdout).context("the output of the comparison is not JSON")?;
    let found = report["differences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let objects = found.iter().filter_map(|difference| difference["objects"].as_u64()).sum();
    Ok(Compared { name, seconds, kcp, skrs, differences: (found.len(), objects) })
}

fn print(diff: &Diff, all: &[Compared], yardstick: Limit, objects: usize) {
    match diff.output {
        Output::Text => table(diff, all, yardstick, objects),
        Output::Json => say!("{:#}", document(diff, all, yardstick, objects)),
    }
}

fn table(diff: &Diff, all: &[Compared], yardstick: Limit, objects: usize) {
    say!(
        "{} runtimes × {} modules × {} objects, real API servers on one etcd\n",
        diff.runtimes,
        diff.modules,
        diff.objects
    );
    say!(
        "{:<28} {:>9} {:>9} {:>10} {:>13} {:>12}",
        "comparison",
        "wall",
        "requests",
        "dry runs",
        "differences",
        "objects"
    );
    for compared in all {
        say!(
            "{:<28} {:>7.2} s {:>9} {:>10} {:>13} {:>12}",
            compared.name,
            compared.seconds,
            compared.kcp.requests() + compared.skrs.requests(),
            compared.kcp.dry_runs() + compared.skrs.dry_runs(),
            compared.differences.0,
            compared.differences.1,
        );
    }
    say!(
        "{:<28} {:>7.2} s {:>9} {:>10}   of {objects} objects",
        "as `kubectl diff`, bare",
        yardstick.wall.as_secs_f64(),
        yardstick.writes * 2,
        yardstick.writes
    );
    for compared in all {
        say!(
            "\n{}: requests to KCP\n{}{}: requests to runtimes\n{}",
            compared.name,
            compared.kcp,
            compared.name,
            compared.skrs
        );
    }
}

fn document(diff: &Diff, all: &[Compared], yardstick: Limit, objects: usize) -> Value {
    let compared = |one: &Compared| {
        json!({
            "name": one.name,
            "wallSeconds": one.seconds,
            "requests": {"kcp": one.kcp.requests(), "runtimes": one.skrs.requests()},
            "dryRuns": {"kcp": one.kcp.dry_runs(), "runtimes": one.skrs.dry_runs()},
            "differences": one.differences.0,
            "objects": one.differences.1,
        })
    };
    json!({
        "runtimes": diff.runtimes, "modules": diff.modules, "objects": diff.objects,
        "comparisons": all.iter().map(compared).collect::<Vec<_>>(),
        "bare": {"wallSeconds": yardstick.wall.as_secs_f64(), "requests": yardstick.writes * 2, "objects": objects},
    })
}
