//! `tidegate sim listener --attack`: events of others while thousands of connections finish nothing.
//!
//! The listener is a process of its own, with both ports and the limits of the daemon. The connections are of five
//! kinds: silent, half a ClientHello, a whole one and nothing after it, half a head, and an event of a known runtime
//! whose body does not end. Each one that the listener closes is opened again, at a limited rate. Attackers and other
//! senders have the same address, as behind a load balancer; those that begin a handshake and do not continue have one
//! of their own. At the end, known senders open more connections than there are places for, so that all
//! places together are taken.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::future::join_all;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
    sync::{Mutex, watch},
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval, timeout},
};

use super::{
    Arguments, HOST,
    load::{self, Sample, Sender, Way},
};
use crate::sim::{FILES_MIN, process::Usage, raise_files, report::Output};
use kube_sim::Authority;
use tidegate_events::{
    event,
    identity::{Authorities, Xfcc},
    listener::{self, Answer, Listener, Tls},
};
use tidegate_process::{Exit, say, tell};
use tidegate_testbed::{self as testbed, Folder, Guarded};

/// What a connection sends before it stops.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Silent,
    HalfHello,
    WholeHello,
    HalfHead,
    SlowBody,
}

/// The connections of the attack.
struct Attack {
    forwarded: SocketAddr,
    tls: SocketAddr,
    /// The beginning of an event.
    head: Vec<u8>,
    /// What a client sends first.
    hello: Vec<u8>,
    /// Limits how many connections are opened in a second.
    pace: Mutex<Interval>,
}

/// A part of the measurement.
struct Phase {
    name: &'static str,
    rows: Vec<(&'static str, Sample)>,
    usage: Usage,
}

/// Senders of each sort.
const SENDERS: usize = 4;
/// Pause between two events of a sender.
const PAUSE: Duration = Duration::from_millis(20);
/// Connections that the attack opens in a second. More would take the processors from the senders, on one machine.
const OPENED_PER_SECOND: u32 = 2_000;
/// Connections of known senders over each port that are kept at the end, and how many of them one sender has.
const KEPT: usize = 2_048;
const KEPT_EACH: usize = 32;
/// Pause between two bytes of a slow body.
const BYTE_PAUSE: Duration = Duration::from_secs(1);
/// How long to wait until the listener has given back what the attack took.
const SETTLE: Duration = Duration::from_secs(3);
const START_MAX: Duration = Duration::from_secs(30);
const ADDRESSES: &str = "addresses";

/// From where connections come that begin a handshake and do not continue.
const ELSEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)), 0);

const KINDS: [Kind; 5] = [Kind::Silent, Kind::HalfHello, Kind::WholeHello, Kind::HalfHead, Kind::SlowBody];
const WAYS: [(&str, Way); 4] = [
    ("plain, keep-alive", Way::Forwarded { keep: true }),
    ("plain, new connections", Way::Forwarded { keep: false }),
    ("mTLS, keep-alive", Way::Tls { keep: true }),
    ("mTLS, new connections", Way::Tls { keep: false }),
];

/// Runs the listener that is attacked. Its files and the list of its addresses are in `folder`.
pub(super) async fn serve(folder: &Path) -> anyhow::Result<Exit> {
    let read = |name: &str| fs::read(folder.join(name)).with_context(|| format!("cannot read {name}"));
    let (bundle, now) = (read("ca.crt")?, listener::now());
    let tls = Tls::from_pem(&read("tls.crt")?, &read("tls.key")?, &bundle, now)?;
    let listener = Listener::builder(event::MANAGER)
        .forwarded(Xfcc::default())
        .receiver(|_| Box::pin(std::future::ready(Answer::Taken)));
    listener.set_authorities(Some(Authorities::parse(&bundle, now)?));
    let bind = || listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("cannot listen on loopback");
    let (plain, secured) = (bind()?, bind()?);
    let addresses = format!("{} {}", plain.local_addr()?, secured.local_addr()?);
    fs::write(folder.join("new"), addresses)?;
    fs::rename(folder.join("new"), folder.join(ADDRESSES))?;
    let (_tls, receiver) = watch::channel(Some(tls));
    tokio::join!(
        listener.serve_forwarded(plain, std::future::pending()),
        listener.serve_tls(secured, receiver, std::future::pending())
    );
    Ok(Exit::Ok)
}

/// Runs the measurement.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    let (files, wanted) = (raise_files(), FILES_MIN + arguments.unfinished);
    ensure!(
        wanted <= files,
        "{} connections need {wanted} open files, but the limit is {files}: raise it with `ulimit -n`, or set \
         --unfinished",
        arguments.unfinished
    );
    let authority = Authority::new("runtimes")?;
    let folder = Folder::temporary("tidegate-listener")?;
    let server = authority.server(HOST, &[HOST])?;
    for (name, text) in [("tls.crt", &server.certificate), ("tls.key", &server.key)] {
        fs::write(folder.path().join(name), text)?;
    }
    fs::write(folder.path().join("ca.crt"), authority.pem())?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let words = ["sim".as_ref(), "listener".as_ref(), "--serve".as_ref(), folder.path().as_os_str()];
    let process = Guarded::start(&program, words, folder.path(), &folder.path().join("listener.log"))?;
    let (forwarded, tls) = addresses(folder.path(), &process).await?;

    let mut senders = Vec::new();
    for (name, way) in WAYS {
        let address = if matches!(way, Way::Tls { .. }) { tls } else { forwarded };
        for index in 0..SENDERS {
            let identity = authority.client(&format!("{name} {index}"), None)?;
            senders.push((name, Sender::new(address, way, HOST, authority.pem(), &identity)?));
        }
    }
    let time = Duration::from_secs(arguments.seconds);
    let mut phases = vec![phase("before", &senders, time, &process).await?];

    let mut pace = interval(Duration::from_secs(1) / OPENED_PER_SECOND);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let culprit = authority.client("culprit", None)?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {HOST}\r\n{}Content-Length: 100\r\n\r\n",
        event::path(event::CONTRACT, event::MANAGER),
        load::header(&culprit.certificate)
    );
    let hello = load::hello(HOST, authority.pem())?;
    let attack = Arc::new(Attack { forwarded, tls, head: head.into_bytes(), hello, pace: Mutex::new(pace) });
    let mut connections = JoinSet::new();
    for index in 0..arguments.unfinished {
        let attack = Arc::clone(&attack);
        connections.spawn(async move { attack.hold(KINDS[index % KINDS.len()], index).await });
    }
    tell!("opening {} connections", arguments.unfinished);
    let opening = Duration::from_secs(arguments.unfinished as u64 / u64::from(OPENED_PER_SECOND) + 1);
    phases.push(phase("while they open", &senders, opening.max(time), &process).await?);
    phases.push(phase("while they stay", &senders, time, &process).await?);
    tell!("opening {} connections of known senders", 2 * KEPT);
    let kept = keep(&authority, [(forwarded, WAYS[0].1), (tls, WAYS[2].1)]).await?;
    phases.push(phase("with all places taken", &senders, time, &process).await?);
    drop(kept);
    connections.shutdown().await;
    tokio::time::sleep(SETTLE).await;
    phases.push(phase("after", &senders, time, &process).await?);
    print(&phases, arguments);
    Ok(Exit::Ok)
}

/// Opens the connections of known senders. The listener closes those that have been idle longest.
async fn keep(authority: &Authority, ports: [(SocketAddr, Way); 2]) -> anyhow::Result<Vec<Box<dyn Send>>> {
    let mut kept = Vec::new();
    for index in 0..KEPT / KEPT_EACH {
        let identity = authority.client(&format!("kept-{index}"), None)?;
        for (address, way) in ports {
            let sender = Sender::new(address, way, HOST, authority.pem(), &identity)?;
            for _ in 0..KEPT_EACH {
                kept.push(sender.hold().await?);
            }
        }
    }
    Ok(kept)
}

async fn addresses(folder: &Path, process: &Guarded) -> anyhow::Result<(SocketAddr, SocketAddr)> {
    let ask = async || {
        let text = fs::read_to_string(folder.join(ADDRESSES)).map_err(|error| error.to_string())?;
        let parsed = text.split_once(' ').and_then(|(plain, tls)| Some((plain.parse().ok()?, tls.parse().ok()?)));
        parsed.ok_or_else(|| format!("invalid addresses `{text}`"))
    };
    testbed::until(START_MAX, ask)
        .await
        .map_err(|late| anyhow::anyhow!("the listener did not start: {late}\n{}", process.log_tail()))
}

async fn phase(
    name: &'static str,
    senders: &[(&'static str, Sender)],
    time: Duration,
    process: &Guarded,
) -> anyhow::Result<Phase> {
    let samples = join_all(senders.iter().map(|(_, sender)| sender.send(time, PAUSE))).await;
    let samples = samples.into_iter().collect::<anyhow::Result<Vec<Sample>>>()?;
    let mut named: Vec<(&str, Sample)> = senders.iter().map(|(name, _)| *name).zip(samples).collect();
    let mut rows = Vec::new();
    for (way, _) in WAYS {
        let (of_way, rest) = named.into_iter().partition(|(name, _)| *name == way);
        let of_way: Vec<(&str, Sample)> = of_way;
        named = rest;
        rows.push((way, Sample::all(of_way.into_iter().map(|(_, sample)| sample).collect())));
    }
    Ok(Phase { name, rows, usage: Usage::read("the listener", process)? })
}

// === impl Attack ===

impl Attack {
    /// Holds one connection, and opens it again whenever it is closed.
    async fn hold(&self, kind: Kind, index: usize) {
        loop {
            self.pace.lock().await.tick().await;
            let _ = self.connect(kind, index).await;
        }
    }

    /// Returns when the listener has closed the connection.
    async fn connect(&self, kind: Kind, index: usize) -> std::io::Result<()> {
        /// The first eleven bytes of a ClientHello with 512.
        const HALF_HELLO: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3];
        let address = match kind {
            Kind::HalfHello | Kind::WholeHello => self.tls,
            Kind::Silent if (index / KINDS.len()).is_multiple_of(2) => self.tls,
            Kind::Silent | Kind::HalfHead | Kind::SlowBody => self.forwarded,
        };
        let socket = TcpSocket::new_v4()?;
        if matches!(kind, Kind::WholeHello) {
            socket.bind(ELSEWHERE)?;
        }
        let mut stream = socket.connect(address).await?;
        match kind {
            Kind::Silent => {}
            Kind::HalfHello => stream.write_all(&HALF_HELLO).await?,
            Kind::WholeHello => stream.write_all(&self.hello).await?,
            Kind::HalfHead => stream.write_all(&self.head[..self.head.len() / 2]).await?,
            Kind::SlowBody => stream.write_all(&self.head).await?,
        }
        let mut buffer = [0; 256];
        loop {
            match (timeout(BYTE_PAUSE, stream.read(&mut buffer)).await, kind) {
                (Ok(Ok(0)), _) => return Ok(()),
                (Ok(Ok(_)), _) => {}
                (Ok(Err(error)), _) => return Err(error),
                (Err(_elapsed), Kind::SlowBody) => stream.write_all(b" ").await?,
                (Err(_elapsed), Kind::Silent | Kind::HalfHello | Kind::WholeHello | Kind::HalfHead) => {}
            }
        }
    }
}

fn print(phases: &[Phase], arguments: &Arguments) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1000.0;
    #[expect(clippy::cast_precision_loss, reason = "for people to read")]
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    match arguments.output {
        Output::Json => {
            let row = |(name, sample): &(&str, Sample)| {
                json!({"senders": name, "events": sample.count(), "failed": sample.failed,
                    "p50Milliseconds": milliseconds(sample.quantile(0.5)),
                    "p99Milliseconds": milliseconds(sample.quantile(0.99))})
            };
            let phase = |phase: &Phase| {
                json!({"phase": phase.name, "residentBytes": phase.usage.resident, "peakBytes": phase.usage.peak,
                    "rows": phase.rows.iter().map(row).collect::<Vec<_>>()})
            };
            let phases: Vec<_> = phases.iter().map(phase).collect();
            say!("{:#}", json!({"unfinished": arguments.unfinished, "phases": phases}));
        }
        Output::Text => {
            say!(
                "{} connections that finish nothing, opened again at up to {OPENED_PER_SECOND} a second\n",
                arguments.unfinished
            );
            say!("{:<40} {:>8} {:>10} {:>10} {:>7}  budget", "", "events", "p50 ms", "p99 ms", "failed");
            for phase in phases {
                let (resident, peak) = (mebibytes(phase.usage.resident), mebibytes(phase.usage.peak));
                say!("{}: {resident:.1} MiB resident, peak {peak:.1} MiB", phase.name);
                for (name, sample) in &phase.rows {
                    say!(
                        "  {:<38} {:>8} {:>10.3} {:>10.3} {:>7}  p99 ≤ 10 ms, none failed",
                        name,
                        sample.count(),
                        milliseconds(sample.quantile(0.5)),
                        milliseconds(sample.quantile(0.99)),
                        sample.failed
                    );
                }
            }
        }
    }
}
