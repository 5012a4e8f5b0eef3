//! `tidegate sim render`: whether a slow override holds up the rest of the daemon.
//!
//! The daemon reconciles a landscape again and again, first with the embedded templates, then with an override of
//! `kcp/manifest.yaml` that uses much computing. Meanwhile a thread asks for `/healthz`, and a task reads the Lease.
//! The daemon is a process of its own. The API servers are simulated in this process, whose load is the same in both
//! runs.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    fleet, open_files,
    report::Output,
    stage::{Servers, Size, Stage},
};
use crate::servers::Make;
use tidegate_core::{
    api::names::{self, annotation},
    diagnostic::Diagnostics,
    template::{Engine, Template, TemplateFile, Templates},
};
use tidegate_process::{Exit, say, tell};
use tidegate_testbed as testbed;

/// Measures the time of `/healthz` and the age of the Lease while a slow override is rendered.
#[derive(Args)]
pub(super) struct Arguments {
    /// Start this many simulated runtimes
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=100))]
    runtimes: u16,
    /// Install this many modules in each runtime; each one is a rendering of the override
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=10))]
    modules: u16,
    /// Use about this many milliseconds of CPU time for each rendering of the override
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..=800))]
    computing: u16,
    /// Measure each run for this many seconds
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    seconds: u16,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The numbers of one run.
struct Row {
    name: &'static str,
    /// Times of `/healthz`, sorted.
    answers: Vec<Duration>,
    /// Requests for `/healthz` that failed.
    failures: usize,
    lease: LeaseSeen,
    /// Until all Kymas were Ready; `None` if they were not in time.
    ready: Option<Duration>,
}

/// What was seen of the Lease.
#[derive(Clone, Copy, Default)]
struct LeaseSeen {
    renewals: usize,
    /// The greatest age of a renewal.
    oldest: Duration,
    /// How long it is valid.
    duration: Duration,
}

/// A thread that requests `/healthz` until this value stops it.
struct Probe {
    stop: mpsc::Sender<()>,
    asking: JoinHandle<(Vec<Duration>, usize)>,
}

/// Pause between two requests for `/healthz`.
const PROBE_PAUSE: Duration = Duration::from_millis(10);
/// Longest time for one of them.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// Pause between two requests to reconcile all runtimes.
const ROUND: Duration = Duration::from_secs(1);
/// Pause between two reads of the Lease.
const LEASE_PAUSE: Duration = Duration::from_millis(250);
/// Objects of a module.
const OBJECTS: usize = 6;
/// Repetitions of the override's work that are timed to find out how many make up the wanted time.
const SAMPLE: u64 = 20;
/// More would take more steps than a template may take.
const REPEAT_MAX: u64 = 20_000;

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    open_files(usize::from(arguments.runtimes));
    let repeat = repetitions(Duration::from_millis(arguments.computing.into()))?;
    let mut rows = Vec::new();
    for (name, override_text) in [("embedded templates", None), ("slow override", Some(slow(repeat)))] {
        tell!("{name}");
        rows.push(run(arguments, name, override_text.as_deref()).await?);
    }
    match arguments.output {
        Output::Text => table(arguments, &rows),
        Output::Json => say!(
            "{:#}",
            json!({
                "runtimes": arguments.runtimes, "modules": arguments.modules, "computingMillis": arguments.computing,
                "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
            })
        ),
    }
    Ok(Exit::Ok)
}

/// The embedded template, after work that leaves no trace.
fn slow(repeat: u64) -> String {
    format!(
        "{{% set text = \"x\" * 100000 %}}{{% for i in range({repeat}) %}}{{% set _ = text|replace(\"x\", \"y\") %}}\
         {{% endfor %}}\n{}",
        Template::Manifest.text()
    )
}

/// How many repetitions of the work use this much computing on this machine.
fn repetitions(computing: Duration) -> anyhow::Result<u64> {
    let file = TemplateFile {
        name: Template::Manifest.name().to_owned(),
        path: Template::Manifest.name().into(),
        text: Some(slow(SAMPLE)),
    };
    let mut diagnostics = Diagnostics::default();
    let mut templates = Templates::embedded().with_overrides(&Engine::Local, &mut diagnostics, [file]);
    let began = Instant::now();
    templates.check(&mut diagnostics);
    let took = began.elapsed();
    ensure!(!diagnostics.has_errors(), "the override does not render: {:?}", diagnostics.sorted());
    let repeat = SAMPLE as f64 * computing.as_secs_f64() / took.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let repeat = repeat as u64;
    Ok(repeat.clamp(1, REPEAT_MAX))
}

/// Runs the daemon on a fresh landscape, and measures it.
async fn run(arguments: &Arguments, name: &'static str, override_text: Option<&str>) -> anyhow::Result<Row> {
    let size = Size { runtimes: arguments.runtimes.into(), modules: arguments.modules.into(), objects: OBJECTS };
    let servers = Servers::prepare(Make::Simulated, Make::Simulated).await?;
    let stage = Stage::start(size, &servers, "render").await?;
    stage.commit_landscape()?;
    let mut options = vec!["--resync=6h".to_owned()];
    if let Some(text) = override_text {
        let folder = stage.folder.path().join("templates");
        write(&folder.join(Template::Manifest.name()), text)?;
        options.push(format!("--templates={}", folder.display()));
    }
    let daemon = stage.daemon(&options)?;
    stage.look(async || daemon.leads()).await?;
    let began = Instant::now();
    let probe = Probe::start(daemon.address("health")?)?;
    let all: Vec<usize> = (1..=size.runtimes).collect();
    let is_there = |_: usize, kyma: &serde_json::Value| {
        (0..size.modules).all(|module| fleet::version_of(kyma, module) == fleet::VERSIONS[0])
    };
    let ready = async {
        stage.ready(&all, is_there).await?;
        anyhow::Ok(began.elapsed())
    };
    let length = Duration::from_secs(arguments.seconds.into());
    let (ready, lease, ()) = tokio::try_join!(
        async { tokio::time::timeout(length, ready).await.ok().transpose() },
        watch_lease(&stage, length),
        request(&stage, size.runtimes, length),
    )?;
    let (mut answers, failures) = probe.end()?;
    answers.sort_unstable();
    Ok(Row { name, answers, failures, lease, ready })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Has all runtimes reconciled again and again.
async fn request(stage: &Stage, runtimes: usize, length: Duration) -> anyhow::Result<()> {
    let kymas = testbed::api_of(&stage.clusters[0].client()?, &fleet::kyma_sample()).await?;
    let began = Instant::now();
    let mut round = 0_u32;
    while began.elapsed() < length {
        round += 1;
        let request = json!({
            "metadata": {"annotations": {annotation::RECONCILE_REQUESTED_AT: format!("round-{round}")}},
        });
        for index in 1..=runtimes {
            let name = fleet::kyma_name(index);
            let patched = kymas.patch(&name, &PatchParams::default(), &Patch::Merge(&request)).await;
            // Not all are in KCP at once.
            if let Err(error) = patched {
                ensure!(matches!(&error, kube::Error::Api(status) if status.code == 404), error);
            }
        }
        tokio::time::sleep(ROUND).await;
    }
    Ok(())
}

/// Reads the Lease again and again.
async fn watch_lease(stage: &Stage, length: Duration) -> anyhow::Result<LeaseSeen> {
    let leases: Api<Lease> = Api::namespaced(stage.clusters[0].client()?, names::KCP_NAMESPACE);
    let (began, mut seen, mut last) = (Instant::now(), LeaseSeen::default(), None);
    while began.elapsed() < length {
        let spec = leases.get(names::LEASE).await.context("cannot read the Lease")?.spec.unwrap_or_default();
        let renewed = spec.renew_time.context("the Lease has no renew time")?.0;
        let age = Timestamp::now().duration_since(renewed);
        seen.oldest = seen.oldest.max(Duration::try_from(age).unwrap_or_default());
        seen.duration = Duration::from_secs(spec.lease_duration_seconds.unwrap_or_default().try_into()?);
        seen.renewals += usize::from(last.replace(renewed).is_some_and(|last| last != renewed));
        tokio::time::sleep(LEASE_PAUSE).await;
    }
    Ok(seen)
}

// === impl Probe ===

impl Probe {
    fn start(address: SocketAddr) -> anyhow::Result<Probe> {
        let (stop, stopped) = mpsc::channel();
        // A thread of its own: it shares no worker with the simulated servers.
        let asking = thread::Builder::new().name("probe".to_owned()).spawn(move || {
            let (mut answers, mut failures) = (Vec::new(), 0);
            while stopped.recv_timeout(PROBE_PAUSE) == Err(RecvTimeoutError::Timeout) {
                let began = Instant::now();
                match ask(address) {
                    Ok(()) => answers.push(began.elapsed()),
                    Err(_) => failures += 1,
                }
            }
            (answers, failures)
        });
        Ok(Probe { stop, asking: asking.context("cannot start a thread")? })
    }

    /// The times of all answers, and how many did not come.
    fn end(self) -> anyhow::Result<(Vec<Duration>, usize)> {
        drop(self.stop);
        self.asking.join().map_err(|_| anyhow::anyhow!("the thread that asks for /healthz panicked"))
    }
}

/// Asks for `/healthz` once, on a connection of its own.
fn ask(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PROBE_MAX)?;
    stream.set_read_timeout(Some(PROBE_MAX))?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.starts_with(b"HTTP/1.1 200") { Ok(()) } else { Err(std::io::Error::other("not healthy")) }
}

// === impl Row ===

impl Row {
    /// The smallest time that so many of a hundred answers do not exceed, in milliseconds.
    fn quantile(&self, percent: usize) -> f64 {
        let last = self.answers.len().saturating_sub(1);
        let position = (self.answers.len() * percent).div_ceil(100).saturating_sub(1).min(last);
        self.answers.get(position).map_or(f64::NAN, |time| time.as_secs_f64() * 1_000.0)
    }

    /// Whether the Lease was never older than it is valid.
    fn kept(&self) -> bool {
        self.lease.oldest < self.lease.duration
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "healthzMillis": {"p50": self.quantile(50), "p90": self.quantile(90), "max": self.quantile(100)},
            "answers": self.answers.len(), "failures": self.failures,
            "lease": {
                "renewals": self.lease.renewals, "oldestSeconds": self.lease.oldest.as_secs_f64(),
                "durationSeconds": self.lease.duration.as_secs(), "renewedInTime": self.kept(),
            },
            "readySeconds": self.ready.map(|ready| ready.as_secs_f64()),
        })
    }
}

fn table(arguments: &Arguments, rows: &[Row]) {
    say!(
        "{} simulated runtimes × {} modules; the override uses about {} ms of computing\n",
        arguments.runtimes,
        arguments.modules,
        arguments.computing
    );
    say!(
        "{:<20} {:>8} {:>8} {:>8} {:>8} {:>9}   {:<34} {:>8}",
        "",
        "p50",
        "p90",
        "max",
        "answers",
        "failures",
        "Lease",
        "ready"
    );
    for row in rows {
        let lease = format!(
            "renewed {} times, {} ({:.1} of {} s)",
            row.lease.renewals,
            if row.kept() { "in time" } else { "LATE" },
            row.lease.oldest.as_secs_f64(),
            row.lease.duration.as_secs()
        );
        let ready = row.ready.map_or_else(|| "no".to_owned(), |ready| format!("{:.1} s", ready.as_secs_f64()));
        say!(
            "{:<20} {:>5.1} ms {:>5.1} ms {:>5.1} ms {:>8} {:>9}   {lease:<34} {ready:>8}",
            row.name,
            row.quantile(50),
            row.quantile(90),
            row.quantile(100),
            row.answers.len(),
            row.failures
        );
    }
}
