//! `tidegate sim listener`: the throughput of the listener, and the effect of a flooding runtime on the others.
//!
//! Server and senders share this process and machine, over loopback. Certificates are ECDSA on P-256; every sender is a
//! runtime of its own. The listener runs as in the daemon, but without a control plane behind it: it accepts each event
//! at once.
//!
//! The other runtimes are measured with and without the flood, in turns, and the medians are compared. So other load on
//! the machine affects both sides.

mod attack;
pub(super) mod load;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::Context as _;
use futures::future::join_all;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use self::load::{Sample, Sender, Way};
use super::report::Output;
use kube_sim::Authority;
use tidegate_events::{
    event,
    identity::{Authorities, Xfcc},
    listener::{self, Answer, Listener, Tls},
};
use tidegate_process::{Exit, say};

/// Measures the throughput of the listener, and the latency of other runtimes while one runtime floods it.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Send from this many runtimes at once
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Measure each phase for this many seconds
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Measure calm runtimes with and without a flood this many times and print the medians
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Measure events beside connections that finish nothing, instead of the throughput [default: off]
    #[arg(long)]
    attack: bool,
    /// Hold this many such connections
    #[arg(long, default_value_t = 17_000)]
    unfinished: usize,
    /// Run only the listener, with the files in this folder [default: off]
    #[arg(long, hide = true, value_name = "FOLDER")]
    serve: Option<PathBuf>,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The name in the server's certificate.
const HOST: &str = "listener.example";
/// Runtimes that send few events while another one floods.
const CALM: usize = 8;
/// Pause between two events of such a runtime.
const CALM_PAUSE: Duration = Duration::from_millis(5);

/// A phase and its result.
struct Row {
    name: String,
    budget: &'static str,
    numbers: Numbers,
}

/// The result of a phase.
#[derive(Clone, Copy)]
struct Numbers {
    /// Events per second.
    rate: f64,
    p50: Duration,
    p99: Duration,
    failed: usize,
}

/// The address of the listener, and the CA of its senders.
struct Bench {
    authority: Authority,
    forwarded: SocketAddr,
    tls: SocketAddr,
    time: Duration,
}

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    tidegate_process::tls::install();
    if let Some(folder) = &arguments.serve {
        return attack::serve(folder).await;
    }
    if arguments.attack {
        return attack::measure(arguments).await;
    }
    let bench = Bench::start(Duration::from_secs(arguments.seconds))?;
    let senders = |way| (0..arguments.connections).map(move |index| (index, way));
    let mut rows = Vec::new();
    for (name, budget, way) in [
        ("plain, keep-alive", "≥ 15,000/s", Way::Forwarded { keep: true }),
        ("plain, new connections", "", Way::Forwarded { keep: false }),
        ("mTLS, keep-alive", "≥ 10,000/s", Way::Tls { keep: true }),
        ("mTLS, new connections", "≥ 1,000/s", Way::Tls { keep: false }),
    ] {
        let all = senders(way).map(|(index, way)| bench.sender(&format!("runtime-{index}"), way));
        let all = all.collect::<anyhow::Result<Vec<Sender>>>()?;
        let numbers = bench.run(all.iter().map(|sender| (sender, Duration::ZERO))).await?;
        rows.push(Row { name: name.to_owned(), budget, numbers });
    }
    for (name, way) in [("plain", Way::Forwarded { keep: true }), ("mTLS", Way::Tls { keep: true })] {
        rows.extend(bench.neighbours(name, way, arguments).await?);
    }
    print(&rows, arguments);
    Ok(Exit::Ok)
}

// === impl Bench ===

impl Bench {
    fn start(time: Duration) -> anyhow::Result<Bench> {
        let authority = Authority::new("runtimes")?;
        let server = authority.server(HOST, &[HOST])?;
        let listener = Listener::builder(event::MANAGER)
            .forwarded(Xfcc::default())
            .receiver(|_| Box::pin(std::future::ready(Answer::Taken)));
        let bundle = authority.pem().as_bytes();
        listener.set_authorities(Some(Authorities::parse(bundle, listener::now())?));
        let material = Tls::from_pem(server.certificate.as_bytes(), server.key.as_bytes(), bundle, listener::now())?;
        let bind = || listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("cannot listen on loopback");
        let (forwarded, tls) = (bind()?, bind()?);
        let bench = Bench { forwarded: forwarded.local_addr()?, tls: tls.local_addr()?, authority, time };
        let (sender, receiver) = watch::channel(Some(material));
        let serving = listener.clone();
        tokio::spawn(async move { serving.serve_forwarded(forwarded, std::future::pending()).await });
        tokio::spawn(async move {
            listener.serve_tls(tls, receiver, std::future::pending()).await;
            drop(sender);
        });
        Ok(bench)
    }

    /// A runtime that sends events.
    fn sender(&self, runtime: &str, way: Way) -> anyhow::Result<Sender> {
        let identity = self.authority.client(runtime, None)?;
        let address = match way {
            Way::Forwarded { .. } => self.forwarded,
            Way::Tls { .. } => self.tls,
        };
        Sender::new(address, way, HOST, self.authority.pem(), &identity)
    }

    /// All senders send during a phase, each with its pause between two events.
    async fn run(&self, senders: impl Iterator<Item = (&Sender, Duration)>) -> anyhow::Result<Numbers> {
        let started = Instant::now();
        let samples = join_all(senders.map(|(sender, pause)| sender.send(self.time, pause))).await;
        let samples = samples.into_iter().collect::<anyhow::Result<Vec<Sample>>>()?;
        Ok(Numbers::from_sample(&Sample::all(samples), started.elapsed()))
    }

    /// Calm runtimes: alone, and while another one floods over all connections.
    async fn neighbours(&self, name: &str, way: Way, arguments: &Arguments) -> anyhow::Result<Vec<Row>> {
        anyhow::ensure!(0 < arguments.rounds, "rounds must not be 0");
        let calm = (0..CALM).map(|index| self.sender(&format!("calm-{index}"), way));
        let calm = calm.collect::<anyhow::Result<Vec<Sender>>>()?;
        let loud = self.sender("loud", way)?;
        let calm = || calm.iter().map(|sender| (sender, CALM_PAUSE));
        let flood = || (0..arguments.connections).map(|_| (&loud, Duration::ZERO));
        let (mut alone, mut beside, mut flooding) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..arguments.rounds {
            alone.push(self.run(calm()).await?);
            let (calm, loud) = tokio::join!(self.run(calm()), self.run(flood()));
            beside.push(calm?);
            flooding.push(loud?);
        }
        let row = |name: String, budget, rounds: &[Numbers]| Row { name, budget, numbers: Numbers::median(rounds) };
        Ok(vec![
            row(format!("{CALM} calm runtimes, {name}"), "", &alone),
            row(format!("{CALM} calm runtimes beside a flood, {name}"), "p99 +10 %", &beside),
            row("  the flood".to_owned(), "", &flooding),
        ])
    }
}

// === impl Numbers ===

impl Numbers {
    fn from_sample(sample: &Sample, time: Duration) -> Numbers {
        // No sender sends so many events that an f64 is inexact.
        #[expect(clippy::cast_precision_loss, reason = "a count of events")]
        let events = sample.count() as f64;
        Numbers {
            rate: events / time.as_secs_f64(),
            p50: sample.quantile(0.5),
            p99: sample.quantile(0.99),
            failed: sample.failed,
        }
    }

    /// The median of each number; the sum of failures. Expects at least one round.
    fn median(rounds: &[Numbers]) -> Numbers {
        let time = |of: fn(&Numbers) -> Duration| {
            let mut all: Vec<Duration> = rounds.iter().map(of).collect();
            all.sort();
            all[all.len() / 2]
        };
        let mut rates: Vec<f64> = rounds.iter().map(|numbers| numbers.rate).collect();
        rates.sort_by(f64::total_cmp);
        Numbers {
            rate: rates[rates.len() / 2],
            p50: time(|numbers| numbers.p50),
            p99: time(|numbers| numbers.p99),
            failed: rounds.iter().map(|numbers| numbers.failed).sum(),
        }
    }
}

fn print(rows: &[Row], arguments: &Arguments) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
    match arguments.output {
        Output::Json => {
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    json!({
                        "phase": row.name.trim(), "eventsPerSecond": row.numbers.rate,
                        "p50Milliseconds": milliseconds(row.numbers.p50),
                        "p99Milliseconds": milliseconds(row.numbers.p99), "failed": row.numbers.failed,
                    })
                })
                .collect();
            say!("{:#}", json!({"connections": arguments.connections, "phases": rows}));
        }
        Output::Text => {
            say!("{} connections, senders and listener on one machine\n", arguments.connections);
            say!("{:<40} {:>10} {:>10} {:>10} {:>7}  budget", "", "events/s", "p50 ms", "p99 ms", "failed");
            for row in rows {
                say!(
                    "{:<40} {:>10.0} {:>10.3} {:>10.3} {:>7}  {}",
                    row.name,
                    row.numbers.rate,
                    milliseconds(row.numbers.p50),
                    milliseconds(row.numbers.p99),
                    row.numbers.failed,
                    row.budget
                );
            }
        }
    }
}
