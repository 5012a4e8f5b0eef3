//! `tidegate sim bench`: the cost of a landscape for the daemon, phase by phase, compared with a bare client.
//!
//! The daemon is a process of its own, so that processor time and memory are its alone. The API servers are simulated
//! in this process, or real. They count the requests of the daemon and record when they answered them, so that
//! measuring does not change the result. The *limit* is a bare client that applies the same final objects once, over
//! sixteen connections, to fresh servers of the same kind in the same run. Both share one machine, so the ratio is the
//! result. The client runs several times, and the median is used. So other load on the machine for some seconds changes
//! a run, but not the result.

mod storm;

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::{
    fleet::{self, Origin},
    limit::{self, Clients, Collected, Limit, Objects},
    open_files,
    process::{Daemon, Machine, Usage},
    report::{self, Latency, Output, Phase, Reads, Report, Work},
    stage::{Requests, ServerMakes, Servers, Size, Stage},
};
use crate::{registry::Registry, servers::Mark};
use tidegate_core::api::names::{self, annotation};
use tidegate_process::tell;
use tidegate_process::{Exit, period::Period};
use tidegate_testbed as testbed;

/// Measures the daemon with a landscape, from the first rollout to a restart, on simulated or real API servers.
#[derive(Args)]
pub(super) struct Arguments {
    /// Start this many runtimes, each with an API server of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=fleet::RUNTIMES_MAX))]
    runtimes: u16,
    /// Install this many modules in each runtime
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    modules: u16,
    /// Give each module this many objects
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    objects: u16,
    /// Measure the idle phase for this many seconds
    #[arg(long, default_value_t = 60)]
    idle: u64,
    /// Send this many events from each runtime in the event storm
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    events: u16,
    /// Run the daemon with this `--resync` interval. The default is the interval for runtimes with an agent, which do
    /// not exist here
    #[arg(long, value_name = "DURATION", default_value = "6h")]
    resync: Period,
    #[command(flatten)]
    servers: ServerMakes,
    /// Read the objects of modules from there; the OCI registry is in this process
    #[arg(long, value_enum, default_value_t = ModulesFrom::Git)]
    modules_from: ModulesFrom,
    /// Run the bare client this many times and print the median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    limits: u16,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Write the numbers as JSON to this file as well, for example `bench.json` [default: none]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where the objects of modules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ModulesFrom {
    /// The repository
    Git,
    /// An OCI registry
    Oci,
    /// First the repository, then, in a new landscape, an OCI registry
    Both,
}

/// In the phase with black holes, one in this many runtimes answers nothing.
const BLACK_HOLES: usize = 5;
/// In the phase that changes modules, one in this many modules changes.
const CHANGED: usize = 100;

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    let size = Size {
        runtimes: usize::from(arguments.runtimes),
        modules: usize::from(arguments.modules),
        objects: usize::from(arguments.objects),
    };
    open_files(size.runtimes);
    // Invalid options are reported before a wait of minutes.
    check(arguments)?;
    let json = arguments.json.as_deref().map(Numbers::open).transpose()?;
    let servers = arguments.servers.prepare().await?;
    let origins: &[Origin] = match arguments.modules_from {
        ModulesFrom::Git => &[Origin::Git],
        ModulesFrom::Oci => &[Origin::Oci],
        ModulesFrom::Both => &[Origin::Git, Origin::Oci],
    };
    let (mut reports, mut limited) = (Vec::new(), Ok(()));
    for &origin in origins {
        let (report, of_limit) = landscape(arguments, size, &servers, origin).await?;
        reports.push(report);
        limited = limited.and(of_limit);
    }
    // Write the file first, so that a failure of the terminal loses nothing.
    let kept = json.map(|numbers| numbers.write(&report::json(&reports)));
    report::print(&reports, arguments.output);
    kept.transpose()?;
    limited.map(|()| Exit::Ok)
}

/// Measures one landscape. The second value says whether the bare client did its part.
async fn landscape(
    arguments: &Arguments,
    size: Size,
    servers: &Servers,
    origin: Origin,
) -> anyhow::Result<(Report, anyhow::Result<()>)> {
    tell!("starting {} API servers", size.runtimes + 1);
    let stage = Stage::start(size, servers, "daemon").await?;
    let mut more = vec![format!("--resync={}", arguments.resync)];
    let registry = match origin {
        Origin::Git => None,
        Origin::Oci => Some(Registry::start(fleet::content(size)?).await?),
    };
    more.extend(registry.iter().map(|registry| format!("--oci-registry-host={}", registry.address())));
    let mut run = Run::start(&stage, size, origin, registry, more).await?;
    run.rollout().await?;
    run.idle(Duration::from_secs(arguments.idle)).await?;
    run.bump().await?;
    run.some_modules().await?;
    run.drift().await?;
    run.storm(usize::from(arguments.events)).await?;
    run.black_holes().await?;
    run.restart().await?;
    let mut phases = run.end();
    // Stop the daemon's servers before those of the limit start.
    drop(stage);
    // Print the measured numbers even if the bare client fails.
    let limited = limits(servers, size, &mut phases, arguments.limits).await;
    let limited = limited.context("the bare client of the limit failed");
    let phases = phases.into_iter().map(|(phase, _)| phase).collect();
    Ok((Report { size, servers: servers.describe(), origin, phases }, limited))
}

/// Fails on options that the daemon would reject, before any server is started.
fn check(arguments: &Arguments) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let resync = format!("--resync={}", arguments.resync);
    let output = Command::new(program).args(["run", "--print-config", &resync]).output();
    let output = output.context("cannot start the daemon")?;
    if output.status.success() {
        return Ok(());
    }
    let problem = String::from_utf8_lossy(&output.stderr);
    bail!("{}", problem.trim().trim_start_matches("error: "))
}

/// The file for the numbers. Its content stays until there are new numbers.
struct Numbers<'a> {
    path: &'a Path,
    file: File,
}

impl Numbers<'_> {
    fn open(path: &Path) -> anyhow::Result<Numbers<'_>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Numbers { path, file })
    }

    fn write(mut self, numbers: &Value) -> anyhow::Result<()> {
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let emptied = if is_file { self.file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| writeln!(self.file, "{numbers:#}"));
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// A bare client repeats what each phase did, one phase after the other, `times` times, each on fresh servers.
async fn limits(servers: &Servers, size: Size, phases: &mut [(Phase, Objects)], times: u16) -> anyhow::Result<()> {
    let count: usize = phases.iter().map(|(_, objects)| objects.count()).sum();
    let mut runs: Vec<Vec<Limit>> = phases.iter().map(|_| Vec::new()).collect();
    for time in 1..=times {
        tell!("the bare client applies the same {count} objects, {time} of {times}");
        let fresh = servers.start(size.runtimes, "limit").await?;
        limit::prepare(&fresh[0]).await?;
        let clients = Clients::connect(&fresh)?;
        for ((_, objects), runs) in phases.iter().zip(&mut runs).filter(|((_, objects), _)| objects.count() > 0) {
            runs.push(limit::apply(&clients, objects).await?);
        }
    }
    for ((phase, _), runs) in phases.iter_mut().zip(runs) {
        phase.limit = Limit::median(runs);
    }
    Ok(())
}

/// A daemon with its servers, and the numbers so far.
struct Run<'a> {
    stage: &'a Stage,
    size: Size,
    origin: Origin,
    registry: Option<Registry>,
    /// Additional options of the daemon.
    more: Vec<String>,
    daemon: Daemon,
    clients: Clients,
    memory: Collected,
    /// For each module, the index of the version on the channel `regular`.
    regular: Vec<usize>,
    /// For each runtime, the modules on the channel `fast`.
    fast: BTreeMap<usize, Vec<usize>>,
    phases: Vec<(Phase, Objects)>,
}

/// A running phase.
struct Watch {
    name: &'static str,
    marks: Vec<Mark>,
    began: Timestamp,
    before: Usage,
    /// The requests to the registry until then.
    asked: BTreeMap<String, u64>,
    machine: Option<Machine>,
}

// === impl Run ===

impl<'a> Run<'a> {
    async fn start(
        stage: &'a Stage,
        size: Size,
        origin: Origin,
        registry: Option<Registry>,
        more: Vec<String>,
    ) -> anyhow::Result<Run<'a>> {
        let daemon = stage.daemon(&more)?;
        stage.look(async || daemon.leads()).await?;
        let clients = Clients::connect(&stage.clusters)?;
        Ok(Run {
            stage,
            size,
            origin,
            registry,
            more,
            daemon,
            clients,
            memory: Collected::default(),
            regular: vec![0; size.modules],
            fast: BTreeMap::new(),
            phases: Vec::new(),
        })
    }

    fn end(mut self) -> Vec<(Phase, Objects)> {
        self.daemon.end();
        self.phases
    }

    fn all(&self) -> Vec<usize> {
        (1..=self.size.runtimes).collect()
    }

    // --- phases ---

    /// Everything is in git and nothing in the clusters.
    async fn rollout(&mut self) -> anyhow::Result<()> {
        let files = fleet::files(self.size, self.origin);
        self.change("first rollout", files, &self.all(), &[]).await
    }

    async fn idle(&mut self, time: Duration) -> anyhow::Result<()> {
        let watch = self.watch("idle")?;
        tokio::time::sleep(time).await;
        let seen = self.stage.requests(&watch.marks)?;
        self.push(&watch, &seen, time, Work::Nothing, None, Objects::default())
    }

    /// The first module's channel gets its next version.
    async fn bump(&mut self) -> anyhow::Result<()> {
        self.regular[0] = 1;
        let file = (fleet::release_path(0), fleet::release(0, fleet::VERSIONS[1]));
        self.change("channel bump", vec![file], &self.all(), &[]).await
    }

    /// One in a hundred modules moves to the channel `fast`, each in another runtime.
    async fn some_modules(&mut self) -> anyhow::Result<()> {
        let (runtimes, modules) = (self.size.runtimes, self.size.modules);
        for entry in 0..(runtimes * modules).div_ceil(CHANGED) {
            let module = modules - 1 - (entry / runtimes) % modules;
            self.fast.entry(1 + entry % runtimes).or_default().push(module);
        }
        let which: Vec<usize> = self.fast.keys().copied().collect();
        let files =
            self.fast.iter().map(|(index, fast)| (fleet::kyma_path(*index), fleet::kyma(*index, modules, fast)));
        let files = files.collect();
        self.change("1 % of modules changed", files, &which, &[]).await
    }

    /// Deletes an object in the first runtime, requests a reconcile and waits until the object exists again.
    async fn drift(&mut self) -> anyhow::Result<()> {
        let (kcp, skr) = (self.stage.clusters[0].client()?, self.stage.clusters[1].client()?);
        let sample =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": names::SKR_NAMESPACE}});
        let accounts = testbed::api_of(&skr, &sample).await?;
        let kymas = testbed::api_of(&kcp, &fleet::kyma_sample()).await?;
        let name = fleet::module_name(0);
        let watch = self.watch("one object deleted")?;
        accounts.delete(&name, &DeleteParams::default()).await?;
        let request = json!({"metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: "drift"}}});
        let watch = watch.restarted();
        kymas.patch(&fleet::kyma_name(1), &PatchParams::default(), &Patch::Merge(request)).await?;
        let back = self.stage.look(async || match accounts.get_opt(&name).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("the deleted object is not back".to_owned()),
            Err(error) => Err(error.to_string()),
        });
        back.await?;
        self.stage.quiet(&watch.marks).await?;
        let seen = self.stage.requests(&watch.marks)?;
        let wall = after(watch.began, seen.0[1].last_write).unwrap_or_default();
        self.push(&watch, &seen, wall, Work::Objects(1), None, Objects::default())
    }

    /// All runtimes report changes at once.
    async fn storm(&mut self, events: usize) -> anyhow::Result<()> {
        let senders = storm::senders(self.stage, &self.daemon, self.size.runtimes)?;
        let watch = self.watch("event storm")?;
        let storm = storm::send(&senders, events).await?;
        let marks = &watch.marks;
        let told = self.stage.look(async || self.looked_at(marks)).await;
        told.context("the daemon did not react to the events of all runtimes")?;
        self.stage.quiet(marks).await?;
        let seen = self.stage.requests(marks)?;
        let heard = storm.began.iter().zip(&seen.0[1..]).filter_map(|(began, seen)| after(*began, seen.first));
        let latency = Latency::from_waits(heard.collect());
        self.push(&watch, &seen, storm.took, Work::Events(storm.taken), latency, Objects::default())
    }

    /// A channel is bumped while one in five runtimes answers nothing; then these recover.
    async fn black_holes(&mut self) -> anyhow::Result<()> {
        let holes = self.size.runtimes / BLACK_HOLES;
        if holes == 0 && self.size.runtimes < 2 {
            return Ok(());
        }
        let (healthy, dead) = {
            let mut all = self.all();
            let dead = all.split_off(self.size.runtimes - holes.max(1));
            (all, dead)
        };
        dead.iter().for_each(|index| self.stage.clusters[*index].freeze());
        // The second module, if there is one, because it still has its first version.
        let module = 1_usize.min(self.size.modules - 1);
        self.regular[module] += 1;
        let file = (fleet::release_path(module), fleet::release(module, fleet::VERSIONS[self.regular[module]]));
        self.change("20 % black-holed", vec![file], &healthy, &dead).await?;
        let watch = self.watch("20 % back")?;
        dead.iter().for_each(|index| self.stage.clusters[*index].thaw());
        let watch = watch.restarted();
        self.stage.ready(&dead, |index, kyma| self.is_as_git_says(index, kyma)).await?;
        self.stage.quiet(&watch.marks).await?;
        self.finish(watch, &dead, &[]).await
    }

    /// A new process of the daemon starts.
    async fn restart(&mut self) -> anyhow::Result<()> {
        let mut watch = self.watch("daemon restart")?;
        self.daemon.end();
        // A new process has used no resources yet.
        watch = Watch { before: Usage::default(), ..watch }.restarted();
        self.daemon = self.stage.daemon(&self.more)?;
        let looked = self.stage.look(async || self.looked_at(&watch.marks)).await;
        looked.context("the new process did not catch up")?;
        self.stage.quiet(&watch.marks).await?;
        let seen = self.stage.requests(&watch.marks)?;
        let looks: Vec<Duration> = seen.0[1..].iter().filter_map(|seen| after(watch.began, seen.first)).collect();
        let wall = looks.iter().max().copied().unwrap_or_default();
        self.push(&watch, &seen, wall, Work::Nothing, Latency::from_waits(looks), Objects::default())
    }

    // --- parts of phases ---

    /// Commits files and waits until the landscape matches them. Runtimes in `dead` are not checked.
    async fn change(
        &mut self,
        name: &'static str,
        files: Vec<(String, String)>,
        which: &[usize],
        dead: &[usize],
    ) -> anyhow::Result<()> {
        for (path, text) in files {
            self.stage.repository.write(&path, &text)?;
        }
        let watch = self.watch(name)?;
        self.stage.repository.commit(name)?;
        let watch = watch.restarted();
        self.stage.ready(which, |index, kyma| self.is_as_git_says(index, kyma)).await?;
        if dead.is_empty() {
            self.stage.quiet(&watch.marks).await?;
        }
        self.finish(watch, which, dead).await
    }

    /// Ends a phase that has changed runtimes. With dead ones, it ends when the others are done, because the daemon
    /// retries the dead ones forever.
    async fn finish(&mut self, watch: Watch, which: &[usize], dead: &[usize]) -> anyhow::Result<()> {
        let seen = self.stage.requests(&watch.marks)?;
        let applied = which.iter().filter_map(|index| after(watch.began, seen.0[*index].last_write));
        let applied: Vec<Duration> = applied.collect();
        let last = if dead.is_empty() { after(watch.began, seen.last_write()) } else { applied.iter().max().copied() };
        let wanted = |index: usize| seen.wrote_to(index) && !dead.contains(&index);
        let objects = Objects::collect(&self.clients, &mut self.memory, wanted).await?;
        let work = Work::Objects(objects.count());
        self.push(&watch, &seen, last.unwrap_or_default(), work, Latency::from_waits(applied), objects)
    }

    /// Whether the status of a Kyma has the versions that git declares.
    fn is_as_git_says(&self, index: usize, kyma: &Value) -> bool {
        let fast = |module| self.fast.get(&index).is_some_and(|modules| modules.contains(&module));
        let wanted = |module| if fast(module) { fleet::VERSIONS[2] } else { fleet::VERSIONS[self.regular[module]] };
        (0..self.size.modules).all(|module| fleet::version_of(kyma, module) == wanted(module))
    }

    /// Whether the daemon has sent a request to every runtime.
    fn looked_at(&self, marks: &[Mark]) -> Result<(), String> {
        let seen = self.stage.requests(marks).map_err(|error| error.to_string())?;
        let looked = seen.0[1..].iter().filter(|seen| seen.first.is_some()).count();
        if looked == self.size.runtimes { Ok(()) } else { Err(format!("{looked} of {} checked", self.size.runtimes)) }
    }

    fn watch(&self, name: &'static str) -> anyhow::Result<Watch> {
        tell!("{name}");
        self.daemon.forget_peak();
        Ok(Watch {
            name,
            marks: self.stage.marks(),
            began: Timestamp::now(),
            before: self.daemon.usage()?,
            asked: self.asked(),
            machine: Machine::now(),
        })
    }

    /// The requests to the registry until now.
    fn asked(&self) -> BTreeMap<String, u64> {
        self.registry.as_ref().map(Registry::requests).unwrap_or_default()
    }

    fn push(
        &mut self,
        watch: &Watch,
        seen: &Requests,
        wall: Duration,
        work: Work,
        latency: Option<Latency>,
        objects: Objects,
    ) -> anyhow::Result<()> {
        let usage = self.daemon.usage()?;
        let phase = Phase {
            name: watch.name,
            wall,
            work,
            latency,
            kcp: seen.kcp(),
            skrs: seen.skrs(),
            cpu: usage.cpu.saturating_sub(watch.before.cpu),
            resident: usage.resident,
            peak: usage.peak,
            registry: self.registry.as_ref().map(|_| Reads::between(&watch.asked, &self.asked())),
            limit: None,
            others: watch.machine.zip(Machine::now()).map(|(before, now)| now.others_since(&before)),
        };
        self.phases.push((phase, objects));
        Ok(())
    }
}

// === impl Watch ===

impl Watch {
    /// The same phase, measured from now on.
    fn restarted(self) -> Watch {
        Watch { began: Timestamp::now(), ..self }
    }
}

/// The time from the first moment to the second; zero if the second is earlier.
fn after(began: Timestamp, ended: Option<Timestamp>) -> Option<Duration> {
    ended.map(|ended| Duration::try_from(ended.duration_since(began)).unwrap_or_default())
}
