//! `tidegate sim listener`: how many events the listener takes, and what a runtime that floods costs the others.
//!
//! Server and senders share this process and its machine, over loopback. Certificates are ECDSA on P-256; every sender is
//! a runtime of its own. What is measured is the listener as the daemon runs it, without the control plane behind it:
//! each event is taken at once.

pub(super) mod load;

use std::{net::SocketAddr, time::Duration};

use anyhow::Context as _;
use futures::future::join_all;
use serde_json::json;
use tokio::{sync::watch, time::Instant};

use self::load::{Sample, Sender, Way};
use super::{super::Exit, report::Output};
use crate::{
    testbed::Authority,
    watch::{
        event,
        identity::{Authorities, Xfcc},
        listener::{self, Answer, Listener, Tls},
    },
};

/// Measure how many events the listener takes, and how others fare while one runtime floods it
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Senders at once, each a runtime of its own
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Seconds of each phase
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// How the numbers are printed
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The name that the server's certificate is for.
const HOST: &str = "listener.example";
/// Runtimes that send a little while another floods.
const CALM: usize = 8;
/// Pause between two events of such a runtime.
const CALM_PAUSE: Duration = Duration::from_millis(20);

/// A phase and what came of it.
struct Row {
    name: &'static str,
    budget: &'static str,
    sample: Sample,
    time: Duration,
}

/// Where the listener is, and the authority of its senders.
struct Bench {
    authority: Authority,
    forwarded: SocketAddr,
    tls: SocketAddr,
    time: Duration,
}

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    crate::tls::install();
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
        rows.push(bench.run(name, budget, all.iter().map(|sender| (sender, Duration::ZERO))).await?);
    }
    for (alone, beside, way) in [
        ("8 calm runtimes", "8 calm runtimes beside a flood", Way::Forwarded { keep: true }),
        ("8 calm runtimes, mTLS", "8 calm runtimes beside a flood, mTLS", Way::Tls { keep: true }),
    ] {
        let calm = (0..CALM).map(|index| bench.sender(&format!("calm-{index}"), way));
        let calm = calm.collect::<anyhow::Result<Vec<Sender>>>()?;
        let flood = bench.sender("flood", way)?;
        let calm = || calm.iter().map(|sender| (sender, CALM_PAUSE));
        rows.push(bench.run(alone, "", calm()).await?);
        let flooding = join_all((0..arguments.connections).map(|_| flood.send(bench.time, Duration::ZERO)));
        let (row, flooded) = tokio::join!(bench.run(beside, "p99 +10 %", calm()), flooding);
        rows.push(row?);
        let sample = flooded.into_iter().collect::<anyhow::Result<Vec<Sample>>>()?;
        rows.push(Row { name: "  the flood", budget: "", sample: Sample::all(sample), time: bench.time });
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

    /// A runtime that sends.
    fn sender(&self, runtime: &str, way: Way) -> anyhow::Result<Sender> {
        let identity = self.authority.client(runtime, None)?;
        let address = match way {
            Way::Forwarded { .. } => self.forwarded,
            Way::Tls { .. } => self.tls,
        };
        Sender::new(address, way, HOST, self.authority.pem(), &identity)
    }

    /// Has all of them send for the time of a phase, each with its pause between two events.
    async fn run(
        &self,
        name: &'static str,
        budget: &'static str,
        senders: impl Iterator<Item = (&Sender, Duration)>,
    ) -> anyhow::Result<Row> {
        let started = Instant::now();
        let samples = join_all(senders.map(|(sender, pause)| sender.send(self.time, pause))).await;
        let samples = samples.into_iter().collect::<anyhow::Result<Vec<Sample>>>()?;
        Ok(Row { name, budget, sample: Sample::all(samples), time: started.elapsed() })
    }
}

// === impl Row ===

impl Row {
    /// Events in a second.
    fn rate(&self) -> f64 {
        // As many events as fit into 52 bits are more than anybody sends.
        #[expect(clippy::cast_precision_loss, reason = "a count of events")]
        let events = self.sample.count() as f64;
        events / self.time.as_secs_f64()
    }
}

fn print(rows: &[Row], arguments: &Arguments) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
    match arguments.output {
        Output::Json => {
            let rows: Vec<_> = rows
                .iter()
                .map(|row| {
                    json!({"phase": row.name.trim(), "eventsPerSecond": row.rate(), "p50Milliseconds": milliseconds(row.sample.quantile(0.5)),
                        "p99Milliseconds": milliseconds(row.sample.quantile(0.99)), "failed": row.sample.failed})
                })
                .collect();
            anstream::println!("{:#}", json!({"connections": arguments.connections, "phases": rows}));
        }
        Output::Text => {
            anstream::println!("{} connections, senders and listener on one machine\n", arguments.connections);
            anstream::println!(
                "{:<40} {:>10} {:>10} {:>10} {:>7}  budget",
                "",
                "events/s",
                "p50 ms",
                "p99 ms",
                "failed"
            );
            for row in rows {
                anstream::println!(
                    "{:<40} {:>10.0} {:>10.3} {:>10.3} {:>7}  {}",
                    row.name,
                    row.rate(),
                    milliseconds(row.sample.quantile(0.5)),
                    milliseconds(row.sample.quantile(0.99)),
                    row.sample.failed,
                    row.budget
                );
            }
        }
    }
}
