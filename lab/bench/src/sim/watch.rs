//! `tidegate sim watch`: the time from a change in a runtime to the first request of the daemon.
//!
//! The whole path is real: a client changes an object of a module, the API server of the runtime asks the agent over
//! TLS, the agent sends an event to the daemon over mTLS, the daemon reads the runtime. Agents and daemon are processes
//! of their own; the API servers are simulated in this process, or real. The clock starts before the change is sent. It
//! stops when the API server has answered the first request of the daemon, according to its journal.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    fleet, open_files,
    process::Daemon,
    report::{Latency, Output},
    stage::{ServerMakes, Size, Stage, USER},
};
use crate::{
    pods::{Doors, Pod},
    servers::Server,
};
use tidegate_core::{api::names, conditions};
use tidegate_process::Exit;
use tidegate_process::{say, tell};
use tidegate_testbed as testbed;

/// Measures the time from a change in a runtime to the first request of the daemon, through API server, agent and
/// listener.
#[derive(Args)]
pub(super) struct Arguments {
    /// Start this many runtimes, each with an API server and an agent of its own; they change in turns
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=100))]
    runtimes: u16,
    /// Make this many changes in total for each settle delay
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    changes: u16,
    #[command(flatten)]
    servers: ServerMakes,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How long an agent waits before it sends an event, and the budget for that.
struct Settle {
    /// As its option says.
    delay: &'static str,
    budget: Duration,
}

/// The numbers of one settle delay.
struct Row {
    settle: &'static Settle,
    latency: Latency,
    longest: Duration,
    /// Changes to which the daemon did not react in time.
    missed: usize,
}

/// A landscape with its daemon.
struct Bench {
    stage: Stage,
    doors: Doors,
    clients: Vec<Client>,
    _daemon: Daemon,
}

const SETTLES: [Settle; 2] = [
    Settle { delay: "300ms", budget: Duration::from_secs(1) },
    Settle { delay: "0s", budget: Duration::from_millis(50) },
];
/// Shortest time between two changes in one runtime. The daemon merges more than ten events at once, and then more than
/// one per second.
const PAUSE: Duration = Duration::from_millis(1_500);
/// Longest time until the daemon reacts to a change.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// Pause between two reads of the journal. The measured times are those in the journal.
const POLL: Duration = Duration::from_millis(2);
/// Longest time until the first event of an agent.
const HEARD_MAX: Duration = Duration::from_secs(120);
/// Modules of a runtime, and objects of each: rights, and the ConfigMap that is changed.
const MODULES: usize = 1;
const OBJECTS: usize = 6;
/// The annotation that changes. It has no owner, so the daemon reads the object and writes nothing.
const MARK: &str = "example.org/change";

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    open_files(usize::from(arguments.runtimes));
    let bench = Bench::start(arguments).await?;
    let mut rows = Vec::new();
    for settle in &SETTLES {
        tell!("{} changes with a settle delay of {}", arguments.changes, settle.delay);
        rows.push(bench.run(settle, usize::from(arguments.changes)).await?);
    }
    match arguments.output {
        Output::Text => table(arguments, &rows),
        Output::Json => say!(
            "{:#}",
            json!({"runtimes": arguments.runtimes, "rows": rows.iter().map(Row::json).collect::<Vec<_>>()})
        ),
    }
    Ok(Exit::Ok)
}

// === impl Bench ===

impl Bench {
    async fn start(arguments: &Arguments) -> anyhow::Result<Bench> {
        let size = Size { runtimes: usize::from(arguments.runtimes), modules: MODULES, objects: OBJECTS };
        let servers = arguments.servers.prepare().await?;
        tell!("starting {} API servers", size.runtimes + 1);
        let stage = Stage::with_own_authority(size, &servers, "watch").await?;
        stage.commit_landscape()?;
        let doors = Doors::new();
        let mut options = doors.arguments();
        // No resync during the measurement.
        options.push("--resync=6h".to_owned());
        let daemon = stage.daemon(&options)?;
        stage.look(async || daemon.leads()).await?;
        let clients = stage.clusters.iter().map(Server::client).collect::<anyhow::Result<_>>()?;
        Ok(Bench { stage, doors, clients, _daemon: daemon })
    }

    /// Measures changes that agents report after a delay. Each delay has agents of its own.
    async fn run(&self, settle: &'static Settle, changes: usize) -> anyhow::Result<Row> {
        let pods = self.agents(settle).await?;
        let runtimes = self.stage.clusters.len() - 1;
        let pause = PAUSE / u32::try_from(runtimes).unwrap_or(1);
        let (mut waits, mut missed) = (Vec::with_capacity(changes), 0);
        for turn in 0..changes {
            let began = Instant::now();
            match self.change(1 + turn % runtimes, turn).await? {
                Some(wait) => waits.push(wait),
                None => missed += 1,
            }
            tokio::time::sleep(pause.saturating_sub(began.elapsed())).await;
        }
        drop(pods);
        let longest = waits.iter().max().copied().unwrap_or_default();
        let latency = Latency::from_waits(waits).context("the daemon reacted to no change")?;
        Ok(Row { settle, latency, longest, missed })
    }

    /// Starts an agent for each runtime, and waits until the daemon has handled an event of each.
    async fn agents(&self, settle: &Settle) -> anyhow::Result<Vec<Pod>> {
        let folder = self.stage.folder.path();
        let delay = format!("--settle={}", settle.delay);
        // Repeated events and full resyncs are off: they are no reactions to a change.
        let options = [&*delay, "--resend=0s", "--resync-within=0s", "--resync-interval=0s"];
        let mut pods = Vec::new();
        for (index, skr) in self.stage.clusters.iter().enumerate().skip(1) {
            let files: PathBuf = folder.join(format!("agent-{index}"));
            let log = folder.join(format!("agent-{index}-{}.log", settle.delay));
            pods.push(Pod::start(skr, &self.clients[index], files, &log, self.doors, &options).await?);
        }
        let which: Vec<usize> = (1..self.stage.clusters.len()).collect();
        self.stage.ready(&which, |_, kyma| is_heard(kyma)).await?;
        for index in which {
            testbed::until(HEARD_MAX, async || {
                let told = self.change(index, usize::MAX).await.map_err(|error| error.to_string())?;
                told.map(drop).ok_or_else(|| format!("the daemon did not react to a change in runtime {index}"))
            })
            .await
            .map_err(|late| anyhow::anyhow!("the agents send no events: {late}"))?;
        }
        Ok(pods)
    }

    /// Changes an object of a module in a runtime. Returns how long it took until the daemon had its first answer from
    /// there.
    async fn change(&self, index: usize, turn: usize) -> anyhow::Result<Option<Duration>> {
        let server = &self.stage.clusters[index];
        self.rest(server).await?;
        let maps: Api<ConfigMap> = Api::namespaced(self.clients[index].clone(), names::SKR_NAMESPACE);
        let patch = json!({"metadata": {"annotations": {MARK: format!("{turn} {}", Timestamp::now())}}});
        let (mark, began) = (server.mark(), Timestamp::now());
        let (name, patch) = (fleet::object_name(0, 0), Patch::Merge(patch));
        maps.patch(&name, &PatchParams::default(), &patch).await.context("cannot change a ConfigMap")?;
        let waited = Instant::now();
        loop {
            if let Some(first) = server.since(&mark, USER)?.first {
                return Ok(Some(first.duration_since(began).try_into().unwrap_or_default()));
            }
            if LOOK_MAX < waited.elapsed() {
                return Ok(None);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the daemon sends no more requests to a runtime, so that the next one is due to a change.
    async fn rest(&self, server: &Server) -> anyhow::Result<()> {
        const QUIET: Duration = Duration::from_millis(100);
        let began = Instant::now();
        loop {
            let mark = server.mark();
            tokio::time::sleep(QUIET).await;
            if server.since(&mark, USER)?.first.is_none() {
                return Ok(());
            }
            ensure!(began.elapsed() < HEARD_MAX, "the daemon did not become idle");
        }
    }
}

/// Whether the daemon reports that it receives changes of the runtime.
fn is_heard(kyma: &Value) -> bool {
    let conditions = kyma["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let watch = conditions.iter().find(|condition| condition["type"] == conditions::WATCH);
    watch.is_some_and(|watch| watch["reason"] == conditions::watch::HEARD)
}

fn table(arguments: &Arguments, rows: &[Row]) {
    say!(
        "{} runtimes, {} changes per settle delay; from a change in a runtime to the first request of the daemon\n",
        arguments.runtimes,
        arguments.changes
    );
    say!("{:<8} {:>8} {:>8} {:>9} {:>9} {:>9}  budget", "settle", "changes", "missed", "p50 ms", "p99 ms", "max ms");
    let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
    for row in rows {
        say!(
            "{:<8} {:>8} {:>8} {:>9.1} {:>9.1} {:>9.1}  p99 ≤ {} ms",
            row.settle.delay,
            row.latency.runtimes,
            row.missed,
            milliseconds(row.latency.p50),
            milliseconds(row.latency.p99),
            milliseconds(row.longest),
            row.settle.budget.as_millis(),
        );
    }
}

// === impl Row ===

impl Row {
    fn json(&self) -> Value {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
        json!({
            "settle": self.settle.delay, "changes": self.latency.runtimes, "missed": self.missed,
            "p50Milliseconds": milliseconds(self.latency.p50), "p99Milliseconds": milliseconds(self.latency.p99),
            "maxMilliseconds": milliseconds(self.longest), "budgetMilliseconds": self.settle.budget.as_millis(),
        })
    }
}
