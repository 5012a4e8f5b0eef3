//! `tidegate sim bench`: what a landscape costs, on real API servers, beside what it would cost a bare client; and
//! `tidegate sim diff`: what comparing a repository with it costs; and `tidegate sim agent`: what a review costs.
//!
//! One KCP and some runtimes on one etcd, modules in a git repository, the daemon as a process of its own. Requests are
//! counted by the API servers' audit logs, for one user; processor time and memory are those of the daemon alone. The
//! *limit* is a bare client that applies the same final objects once, over sixteen connections, to fresh servers on the
//! same etcd in the same run: both share one machine, so the ratio is what counts.

mod agent;
mod diff;
mod fleet;
mod limit;
mod listener;
mod offline;
mod process;
mod report;

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context as _;
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::{
    process::{Daemon, Usage},
    report::{Phase, Report},
};
use super::Exit;
use crate::{
    api,
    testbed::{self, Assets, ControlPlane, Etcd, Extent, Folder, Options, Record, Repository, Tally},
};

/// Simulated and measured landscapes
#[derive(Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Arguments),
    Bench(Bench),
    Diff(diff::Diff),
    DiffOffline(offline::Arguments),
    Listener(listener::Arguments),
}

/// Measure rollout, idle, a bump, drift and a restart of a landscape on real API servers
#[derive(Args)]
struct Bench {
    /// Runtimes, each an API server of its own
    #[arg(long, default_value_t = 8)]
    runtimes: usize,
    /// Modules in each runtime
    #[arg(long, default_value_t = 5)]
    modules: usize,
    /// Objects of each module
    #[arg(long, default_value_t = 25)]
    objects: usize,
    /// Seconds of the idle phase
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// How the numbers are printed
    #[arg(short, long, value_enum, default_value_t = report::Output::Text)]
    output: report::Output,
}

/// The user as which the daemon acts, so that the audit logs tell its requests from ours.
const USER: &str = "tidegate-bench";
/// Longest time for one phase.
const PHASE_MAX: Duration = Duration::from_secs(300);

pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    match &arguments.command {
        Command::Agent(arguments) => runtime.block_on(agent::measure(arguments)),
        Command::Bench(bench) => runtime.block_on(measure(bench)),
        Command::Diff(diff) => runtime.block_on(diff::measure(diff)),
        Command::DiffOffline(arguments) => offline::run(arguments),
        Command::Listener(arguments) => runtime.block_on(listener::measure(arguments)),
    }
}

async fn measure(bench: &Bench) -> anyhow::Result<Exit> {
    let assets = Assets::load(&|line| anstream::eprintln!("{line}")).await?;
    let etcd = Etcd::start(&assets, None).await?;
    anstream::eprintln!("starting {} API servers", bench.runtimes + 1);
    let stage = Stage::start(bench, &assets, &etcd, "daemon").await?;
    let phases = phases(bench, &stage).await?;
    let objects = limit::collect(&stage.clusters).await?;
    drop(stage);
    anstream::eprintln!("the same {} objects by a bare client", objects.count());
    let fresh = servers(bench.runtimes, &assets, &etcd, "limit").await?;
    let limit = limit::apply(&fresh, &objects).await?;
    let report = Report { runtimes: bench.runtimes, modules: bench.modules, objects: bench.objects, phases, limit };
    report.print(bench.output);
    Ok(Exit::Ok)
}

/// The servers, the repository and the daemon of one run.
struct Stage {
    clusters: Vec<ControlPlane>,
    repository: Repository,
    folder: Folder,
}

/// KCP and runtimes, in that order.
async fn servers(
    runtimes: usize,
    assets: &Assets,
    etcd: &Arc<Etcd>,
    prefix: &str,
) -> anyhow::Result<Vec<ControlPlane>> {
    let mut clusters = Vec::with_capacity(runtimes + 1);
    for index in 0..=runtimes {
        let name = if index == 0 { format!("{prefix}-kcp") } else { format!("{prefix}-skr-{index}") };
        let options =
            Options { name, etcd: Some(Arc::clone(etcd)), extent: Extent::Server, audit: true, ..Options::default() };
        clusters.push(ControlPlane::start(assets, options).await?);
    }
    Ok(clusters)
}

// === impl Stage ===

impl Stage {
    async fn start(bench: &Bench, assets: &Assets, etcd: &Arc<Etcd>, prefix: &str) -> anyhow::Result<Stage> {
        let clusters = servers(bench.runtimes, assets, etcd, prefix).await?;
        let folder = Folder::temporary("tidegate-bench")?;
        let repository = Repository::init(&folder.path().join("repo"))?;
        repository.write("README.md", "a landscape to measure\n")?;
        repository.commit("an empty landscape")?;
        let kcp = clusters[0].client()?;
        let crds: Vec<Value> = api::crds().iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
        testbed::install_crds(&kcp, &crds).await?;
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api::names::KCP_NAMESPACE}});
        testbed::apply(&kcp, &namespace).await?;
        for (index, skr) in clusters.iter().enumerate().skip(1) {
            testbed::apply(&kcp, &access(index, skr)?).await?;
        }
        testbed::apply(&kcp, &fleet::source(&repository.url())).await?;
        Ok(Stage { clusters, repository, folder })
    }

    fn daemon(&self) -> anyhow::Result<Daemon> {
        let kubeconfig: PathBuf = self.folder.path().join("kcp.kubeconfig");
        std::fs::write(&kubeconfig, self.clusters[0].kubeconfig_of(USER, Some("system:masters"))?.text())
            .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        Daemon::start(self.folder.path(), &kubeconfig)
    }

    fn marks(&self) -> Vec<u64> {
        self.clusters.iter().map(|cluster| cluster.audit().map_or(0, testbed::Audit::mark)).collect()
    }

    /// The daemon's requests since `marks`: to KCP without the Lease, and to runtimes.
    fn requests(&self, marks: &[u64]) -> anyhow::Result<(Tally, Tally)> {
        let (mut kcp, mut skrs): (Vec<Record>, Vec<Record>) = (Vec::new(), Vec::new());
        for (index, (cluster, mark)) in self.clusters.iter().zip(marks).enumerate() {
            let Some(audit) = cluster.audit() else { continue };
            let records = audit.since(*mark)?;
            let ours =
                records.into_iter().filter(|record| record.user == USER && !record.resource.starts_with("leases"));
            if index == 0 { kcp.extend(ours) } else { skrs.extend(ours) }
        }
        Ok((Tally::of(&kcp), Tally::of(&skrs)))
    }

    /// Waits until every Kyma is Ready with a version of the first module.
    async fn ready(&self, runtimes: usize, version: &str) -> anyhow::Result<()> {
        let kcp = self.clusters[0].client()?;
        let sample = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"namespace": api::names::KCP_NAMESPACE}});
        let kymas = testbed::api_of(&kcp, &sample).await?;
        let ask = async || {
            let list = kymas.list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
            let done = list.items.iter().filter(|kyma| {
                let status = &kyma.data["status"];
                status["state"] == "Ready" && status["modules"][0]["version"] == version
            });
            let done = done.count();
            if done == runtimes { Ok(()) } else { Err(format!("{done} of {runtimes} are ready")) }
        };
        testbed::until(PHASE_MAX, ask)
            .await
            .map_err(|late| anyhow::anyhow!("the landscape did not become ready: {late}"))
    }
}

async fn phases(bench: &Bench, stage: &Stage) -> anyhow::Result<Vec<Phase>> {
    let mut daemon = stage.daemon()?;
    daemon.wait_until_ready(PHASE_MAX).await?;
    let mut phases = Vec::new();

    let watch = Watch::start("rollout", stage, &daemon)?;
    for (path, text) in fleet::files(bench.runtimes, bench.modules, bench.objects) {
        stage.repository.write(&path, &text)?;
    }
    stage.repository.commit("the landscape")?;
    let watch = watch.restarted();
    stage.ready(bench.runtimes, fleet::VERSIONS[0]).await?;
    phases.push(watch.end(stage, &daemon)?);

    let watch = Watch::start("idle", stage, &daemon)?;
    tokio::time::sleep(Duration::from_secs(bench.idle)).await;
    phases.push(watch.end(stage, &daemon)?);

    let watch = Watch::start("one module bumped", stage, &daemon)?;
    stage.repository.write(&fleet::release_path(0), &fleet::release(0, fleet::VERSIONS[1]))?;
    stage.repository.commit("bump the first module")?;
    stage.ready(bench.runtimes, fleet::VERSIONS[1]).await?;
    phases.push(watch.end(stage, &daemon)?);

    let watch = Watch::start("one object deleted", stage, &daemon)?;
    drift(stage).await?;
    phases.push(watch.end(stage, &daemon)?);

    let marks = stage.marks();
    daemon.end();
    let mut daemon = stage.daemon()?;
    anstream::eprintln!("restart");
    // A process that has just been started has used nothing.
    let watch = Watch { name: "restart", marks, started: std::time::Instant::now(), before: Usage::default() };
    caught_up(bench, stage, &watch).await?;
    phases.push(watch.end(stage, &daemon)?);
    daemon.end();
    Ok(phases)
}

/// Deletes an object in the first runtime, asks for a reconcile and waits until it is back.
async fn drift(stage: &Stage) -> anyhow::Result<()> {
    let (kcp, skr) = (stage.clusters[0].client()?, stage.clusters[1].client()?);
    let sample = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": api::names::SKR_NAMESPACE}});
    let maps = testbed::api_of(&skr, &sample).await?;
    let name = fleet::object_name(0, 0);
    maps.delete(&name, &kube::api::DeleteParams::default()).await?;
    let sample = json!({"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma", "metadata": {"namespace": api::names::KCP_NAMESPACE}});
    let kymas = testbed::api_of(&kcp, &sample).await?;
    let request = json!({"metadata": {"annotations": {api::names::annotation::RECONCILE_REQUESTED_AT: "drift"}}});
    kymas.patch(&fleet::kyma_name(1), &kube::api::PatchParams::default(), &kube::api::Patch::Merge(request)).await?;
    let ask = async || match maps.get_opt(&name).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("not back yet".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    testbed::until(PHASE_MAX, ask).await.map_err(|late| anyhow::anyhow!("the deleted object did not come back: {late}"))
}

/// Waits until a new process has read the Kyma of every runtime.
async fn caught_up(bench: &Bench, stage: &Stage, watch: &Watch) -> anyhow::Result<()> {
    let ask = async || {
        let (_, skrs) = stage.requests(&watch.marks).map_err(|error| error.to_string())?;
        let looked = skrs.requests();
        if bench.runtimes <= looked { Ok(()) } else { Err(format!("{looked} of {} looked at", bench.runtimes)) }
    };
    testbed::until(PHASE_MAX, ask).await.map_err(|late| anyhow::anyhow!("the new process did not catch up: {late}"))
}

/// A phase under way.
struct Watch {
    name: &'static str,
    marks: Vec<u64>,
    started: std::time::Instant,
    before: Usage,
}

// === impl Watch ===

impl Watch {
    fn start(name: &'static str, stage: &Stage, daemon: &Daemon) -> anyhow::Result<Watch> {
        anstream::eprintln!("{name}");
        Ok(Watch { name, marks: stage.marks(), started: std::time::Instant::now(), before: daemon.usage()? })
    }

    /// The same, timed from now on.
    fn restarted(self) -> Watch {
        Watch { started: std::time::Instant::now(), ..self }
    }

    fn end(self, stage: &Stage, daemon: &Daemon) -> anyhow::Result<Phase> {
        let wall = self.started.elapsed();
        let after = daemon.usage()?;
        let (kcp, skrs) = stage.requests(&self.marks)?;
        Ok(Phase {
            name: self.name,
            wall,
            kcp,
            skrs,
            cpu: after.cpu.saturating_sub(self.before.cpu),
            resident: after.resident,
            peak: after.peak,
        })
    }
}

/// A kubeconfig Secret for a runtime.
fn access(index: usize, skr: &ControlPlane) -> anyhow::Result<Value> {
    let kubeconfig = skr.kubeconfig_of(USER, Some("system:masters"))?.text();
    let kyma = fleet::kyma_name(index);
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("access-{kyma}"), "namespace": api::names::KCP_NAMESPACE,
            "labels": {api::names::label::KYMA_NAME: kyma},
        },
        "data": {api::names::ACCESS_SECRET_KEY: STANDARD.encode(kubeconfig)},
    }))
}
