//! `tidegate sim agent`: the cost of a review, with a control plane that is up, refuses connections or does not answer.
//!
//! The agent is a process of its own. Callers send reviews at a fixed rate over persistent connections, as API servers
//! do. The time of a review starts when it should have been sent, even if it had to wait for an earlier answer. So a
//! slow agent cannot hide behind slow callers.
//!
//! A second case is an API server under load: up to hundreds of reviews at once, each over a connection of its own, and
//! a certificate with the RSA key of upstream's PKI, whose signature takes milliseconds. It counts reviews that are
//! cut.
//!
//! The cases take turns, and each number is the median of its rounds. So other load on the machine for
//! some seconds changes a round, but not the result.

mod callers;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use self::callers::Sent;
use super::{process::Usage, report::Output};
use kube_sim::{Authority, Identity};
use tidegate_process::{Exit, say, tell};
use tidegate_testbed::{self as testbed, Caller, Folder, Gateway, Guarded};

/// Measures the latency and memory of the agent while the control plane is up, refuses connections, or does not answer.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Send this many reviews per second
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Measure each phase for this many seconds per round
    #[arg(long, default_value_t = 5)]
    seconds: u32,
    /// Measure this many rounds and print the medians
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Send reviews over this many connections
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Send reviews from at most this many callers at once, in the case with an RSA key
    #[arg(long, default_value_t = 600)]
    callers: usize,
    /// Change this many objects, in turns
    #[arg(long, default_value_t = 500)]
    objects: u32,
    /// Measure this program, for example the smaller build with only the agent [default: this program]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The behaviour of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControlPlane {
    Up,
    Refusing,
    Silent,
    /// The control plane is up, but the callers are those of an API server under load.
    UpForCallers,
}

/// The numbers of one phase, of one round or of all.
struct Phase {
    control_plane: &'static str,
    reviews: usize,
    /// Reviews without an answer.
    cut: usize,
    /// Connections that callers opened.
    connections: usize,
    rate: f64,
    p50: Duration,
    p99: Duration,
    p999: Duration,
    longest: Duration,
    /// Events that the control plane accepted.
    events: u64,
    /// Processor time as a fraction of one core.
    cores: f64,
    resident: u64,
    peak: u64,
}

/// Names in the agent's certificate.
const SERVICE: &str = "skr-webhook.kyma-system.svc";
/// Longest time until the agent listens.
const START_MAX: Duration = Duration::from_secs(30);
/// Reviews before the clock starts, on each connection.
const WARM_UP: u32 = 50;

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    ensure!(
        0 < arguments.rate
            && 0 < arguments.callers
            && 0 < arguments.connections
            && 0 < arguments.objects
            && 0 < arguments.rounds,
        "rate, callers, connections, objects and rounds must not be 0"
    );
    const ALL: [ControlPlane; 4] =
        [ControlPlane::Up, ControlPlane::Refusing, ControlPlane::Silent, ControlPlane::UpForCallers];
    let mut rounds: [Vec<Phase>; 4] = Default::default();
    for round in 1..=arguments.rounds {
        for (control_plane, phases) in ALL.into_iter().zip(&mut rounds) {
            tell!("round {round} of {}, control plane {}", arguments.rounds, control_plane.name());
            phases.push(phase(arguments, control_plane).await?);
        }
    }
    let phases: Vec<Phase> = rounds.iter().filter_map(|rounds| Phase::median(rounds)).collect();
    match arguments.output {
        Output::Text => table(arguments, &phases),
        Output::Json => say!("{:#}", Value::from_iter(phases.iter().map(Phase::json))),
    }
    Ok(Exit::Ok)
}

async fn phase(arguments: &Arguments, control_plane: ControlPlane) -> anyhow::Result<Phase> {
    let folder = Folder::temporary("tidegate-agent")?;
    let authority = Authority::new("tidegate-agent-bench")?;
    let gateway = Gateway::start(&authority, &authority.server("localhost", &["localhost"])?).await?;
    // Connections wait in the backlog of a socket that never accepts.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    let port = match control_plane {
        ControlPlane::Up | ControlPlane::UpForCallers => gateway.address().port(),
        ControlPlane::Refusing => testbed::free_port(),
        ControlPlane::Silent => silent.local_addr().context("cannot listen")?.port(),
    };
    let name = "6d2b3f58-9c55-4a53-8a3b-2f0c1f1f6c10";
    let identity = match control_plane {
        ControlPlane::UpForCallers => authority.runtime_rsa(name, &[SERVICE])?,
        ControlPlane::Up | ControlPlane::Refusing | ControlPlane::Silent => authority.runtime(name, &[SERVICE])?,
    };
    let agent = start(arguments, folder.path(), &authority, &identity, port)?;
    let address = admission_address(&agent).await?;

    let bodies: Arc<[Bytes]> = (0..arguments.objects).map(review).collect();
    let kept = match control_plane {
        ControlPlane::UpForCallers => None,
        ControlPlane::Up | ControlPlane::Refusing | ControlPlane::Silent => {
            Some(connect(arguments, &authority, address, &bodies).await?)
        }
    };
    let (before, began) = (Usage::read("the agent", &agent)?, Instant::now());
    let Sent { mut times, cut, connections } = match kept {
        Some(callers) => over_kept(arguments, callers, &bodies).await?,
        None => {
            let (rate, seconds) = (arguments.rate, arguments.seconds);
            callers::send(&authority, address, arguments.callers, rate, seconds, Arc::clone(&bodies)).await?
        }
    };
    let (wall, after) = (began.elapsed(), Usage::read("the agent", &agent)?);
    times.sort();
    let at = |part: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into what is there"
        )]
        let index = (times.len() as f64 * part) as usize;
        times.get(index.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let rate = times.len() as f64 / wall.as_secs_f64();
    Ok(Phase {
        control_plane: control_plane.name(),
        reviews: times.len(),
        cut,
        connections,
        rate,
        p50: at(0.5),
        p99: at(0.99),
        p999: at(0.999),
        longest: at(1.0),
        events: gateway.events(),
        cores: after.cpu.saturating_sub(before.cpu).as_secs_f64() / wall.as_secs_f64(),
        resident: after.resident,
        peak: after.peak,
    })
}

/// Opens the connections that are kept, and uses each of them a little.
async fn connect(
    arguments: &Arguments,
    authority: &Authority,
    address: SocketAddr,
    bodies: &[Bytes],
) -> anyhow::Result<Vec<Caller>> {
    let mut callers = Vec::new();
    for _ in 0..arguments.connections {
        let mut caller = Caller::connect(authority, SERVICE, address).await?;
        for _ in 0..WARM_UP {
            caller.post("/validate/lifecycle-manager", bodies[0].clone()).await?;
        }
        callers.push(caller);
    }
    Ok(callers)
}

/// Sends reviews over connections that are kept.
async fn over_kept(arguments: &Arguments, callers: Vec<Caller>, bodies: &Arc<[Bytes]>) -> anyhow::Result<Sent> {
    let mut sent = Sent { connections: callers.len(), ..Sent::default() };
    let mut tasks = JoinSet::new();
    for (index, caller) in callers.into_iter().enumerate() {
        tasks.spawn(call(caller, index, arguments.rate, arguments.connections, arguments.seconds, Arc::clone(bodies)));
    }
    while let Some(done) = tasks.join_next().await {
        sent.times.extend(done.context("a caller failed")??);
    }
    Ok(sent)
}

/// Starts the agent with its environment.
fn start(
    arguments: &Arguments,
    folder: &Path,
    authority: &Authority,
    identity: &Identity,
    port: u16,
) -> anyhow::Result<Guarded> {
    let program = match &arguments.program {
        Some(program) => std::path::absolute(program).context("cannot find the path of the program")?,
        None => std::env::current_exe().context("cannot find the path of this program")?,
    };
    for (name, text) in
        [("tls.crt", identity.certificate.as_str()), ("tls.key", &identity.key), ("ca.crt", authority.pem())]
    {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let words = [
        "CA_CERT=ca.crt".into(),
        "TLS_CERT=tls.crt".into(),
        "TLS_KEY=tls.key".into(),
        format!("KCP_ADDR=localhost:{port}").into(),
        "KCP_CONTRACT=v2".into(),
        program.into_os_string(),
        "agent".into(),
        "--webhook-address=127.0.0.1:0".into(),
        "--metrics-address=127.0.0.1:0".into(),
    ];
    let words: [std::ffi::OsString; 9] = words;
    // `env` becomes the program, with these variables in its environment.
    Ok(Guarded::start(Path::new("/usr/bin/env"), words, folder, &folder.join("agent.log"))?)
}

/// The address for admission reviews, from its log.
async fn admission_address(agent: &Guarded) -> anyhow::Result<SocketAddr> {
    let ask = async || {
        let text = fs::read_to_string(agent.log()).unwrap_or_default();
        let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = records
            .filter(|record| record["context"]["purpose"] == "reviews")
            .find_map(|record| record["context"]["address"].as_str().and_then(|address| address.parse().ok()));
        found.ok_or_else(|| "it does not listen yet".to_owned())
    };
    testbed::until(START_MAX, ask)
        .await
        .map_err(|late| anyhow::anyhow!("the agent did not start: {late}\n{}", agent.log_tail()))
}

/// Sends reviews on one connection, each at its scheduled time. Returns how long each took.
async fn call(
    mut caller: Caller,
    index: usize,
    rate: u32,
    connections: u32,
    seconds: u32,
    bodies: Arc<[Bytes]>,
) -> anyhow::Result<Vec<Duration>> {
    let pause = Duration::from_secs(1) * connections / rate;
    let offset = pause * u32::try_from(index).unwrap_or_default() / connections;
    let count = u64::from(rate) * u64::from(seconds) / u64::from(connections);
    let mut times = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    let mut due = Instant::now() + offset;
    let mut free = due;
    for turn in 0..usize::try_from(count).unwrap_or(usize::MAX) {
        sleep_until(due).await;
        // A late timer is not the agent's fault, so start the clock now. But a busy connection is: start it at the
        // scheduled time.
        let from = if due < free { due } else { Instant::now() };
        let body = bodies[(turn * 31 + index * 7) % bodies.len()].clone();
        let status = caller.post("/validate/lifecycle-manager?timeout=15s", body).await?;
        ensure!(status.is_success(), "the agent answered {status}");
        free = Instant::now();
        times.push(free - from);
        due += pause;
    }
    Ok(times)
}

/// A review of a changed Kyma of the usual size.
fn review(index: u32) -> Bytes {
    let kyma = |channel: &str| {
        let modules: Vec<Value> = (0..20)
            .map(|module| {
                json!({
                    "name": format!("module-{module}"), "channel": channel, "customResourcePolicy": "CreateAndDelete",
                })
            })
            .collect();
        json!({
            "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
            "metadata": {
                "name": format!("kyma-{index}"), "namespace": "kyma-system", "generation": 7,
                "labels": {
                    "operator.kyma-project.io/managed-by": "kyma", "operator.kyma-project.io/watched-by": "kyma",
                },
                "managedFields": [{
                    "manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:channel": {}, "f:modules": {}}},
                }],
            },
            "spec": {"channel": channel, "modules": modules},
            "status": {
                "state": "Ready",
                "modules": (0..20)
                    .map(|module| json!({"name": format!("module-{module}"), "state": "Ready", "version": "1.2.3"}))
                    .collect::<Vec<_>>(),
            },
        })
    };
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "b8c0335f-ce87-4da3-82bf-a6a6a55d088e",
            "kind": {"group": "operator.kyma-project.io", "version": "v1beta2", "kind": "Kyma"},
            "operation": "UPDATE", "object": kyma("fast"), "oldObject": kyma("regular"), "dryRun": false,
        },
    });
    Bytes::from(review.to_string())
}

fn table(arguments: &Arguments, phases: &[Phase]) {
    say!(
        "{} reviews/s of {} bytes over {} kept connections or from {} callers, {} objects; medians of {} rounds of {} \
         s\n",
        arguments.rate,
        review(0).len(),
        arguments.connections,
        arguments.callers,
        arguments.objects,
        arguments.rounds,
        arguments.seconds
    );
    say!(
        "{:<14} {:>9} {:>5} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>7} {:>10} {:>10}  budget of p99",
        "control plane",
        "reviews",
        "cut",
        "opened",
        "per s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "events",
        "cores",
        "memory MiB",
        "peak MiB"
    );
    let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    for phase in phases {
        say!(
            "{:<14} {:>9} {:>5} {:>6} {:>9.0} {:>9.3} {:>9.3} {:>9.3} {:>9.3} {:>8} {:>7.2} {:>10.1} {:>10.1}  {}",
            phase.control_plane,
            phase.reviews,
            phase.cut,
            phase.connections,
            phase.rate,
            milliseconds(phase.p50),
            milliseconds(phase.p99),
            milliseconds(phase.p999),
            milliseconds(phase.longest),
            phase.events,
            phase.cores,
            mebibytes(phase.resident),
            mebibytes(phase.peak),
            if phase.control_plane == ControlPlane::UpForCallers.name() { "10 ms, none cut" } else { "1 ms" },
        );
    }
}

// === impl Phase ===

impl Phase {
    /// The median of each number, but the sum of counters and the maximum of memory.
    fn median(rounds: &[Phase]) -> Option<Phase> {
        let time = |of: fn(&Phase) -> Duration| {
            let mut all: Vec<Duration> = rounds.iter().map(of).collect();
            all.sort();
            all[all.len() / 2]
        };
        let share = |of: fn(&Phase) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Some(Phase {
            control_plane: rounds.first()?.control_plane,
            reviews: rounds.iter().map(|phase| phase.reviews).sum(),
            cut: rounds.iter().map(|phase| phase.cut).sum(),
            connections: rounds.iter().map(|phase| phase.connections).max()?,
            rate: share(|phase| phase.rate),
            p50: time(|phase| phase.p50),
            p99: time(|phase| phase.p99),
            p999: time(|phase| phase.p999),
            longest: time(|phase| phase.longest),
            events: rounds.iter().map(|phase| phase.events).sum(),
            cores: share(|phase| phase.cores),
            resident: rounds.iter().map(|phase| phase.resident).max()?,
            peak: rounds.iter().map(|phase| phase.peak).max()?,
        })
    }

    fn json(&self) -> Value {
        let microseconds = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        json!({
            "controlPlane": self.control_plane, "reviews": self.reviews, "cut": self.cut,
            "connections": self.connections, "perSecond": self.rate,
            "p50Microseconds": microseconds(self.p50), "p99Microseconds": microseconds(self.p99),
            "p999Microseconds": microseconds(self.p999), "maxMicroseconds": microseconds(self.longest),
            "events": self.events, "cores": self.cores, "residentBytes": self.resident, "peakBytes": self.peak,
        })
    }
}

// === impl ControlPlane ===

impl ControlPlane {
    fn name(self) -> &'static str {
        match self {
            ControlPlane::Up => "up",
            ControlPlane::Refusing => "refusing",
            ControlPlane::Silent => "silent",
            ControlPlane::UpForCallers => "up, callers",
        }
    }
}
