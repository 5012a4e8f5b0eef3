//! `tidegate sim git`: the time from a push until KCP has it, with webhooks and by polling, and what a storm of
//! webhooks costs.
//!
//! The git server is `git http-backend` behind TLS, in this process. The daemon is a process of its own. KCP is
//! simulated in this process. The clock starts when the branch has the commit, and stops when KCP shows the changed
//! Kyma.

mod server;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hmac::{Hmac, KeyInit as _, Mac as _};
use kube::{Api, api::DynamicObject};
use serde_json::{Value, json};
use sha2::Sha256;
use tidegate_core::api::names::KCP_NAMESPACE;
use tidegate_process::{Exit, period::Period, say, tell};
use tidegate_testbed as testbed;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
};

use self::server::GitServer;
use super::{
    fleet,
    process::Daemon,
    report::Output,
    stage::{Servers, Size, Stage},
};
use crate::servers::Make;

/// Measures the time from a push until KCP has it, with webhooks and by polling.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Declare this many Kymas in the source
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=9_999))]
    kymas: u16,
    /// Push this many times with a webhook
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    pushes: u16,
    /// Push this many times without one
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    polls: u16,
    /// Poll the repository at this interval
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    interval: Period,
    /// Deliver this many webhooks in the storm
    #[arg(long, default_value_t = 10_000)]
    storm: u32,
    /// Print the numbers in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The times of some pushes, sorted.
struct Times(Vec<Duration>);

/// What the storm cost.
struct Storm {
    deliveries: u32,
    accepted: u32,
    took: Duration,
    fetches: usize,
}

/// A repository with its server, and a daemon that follows it.
struct Bench {
    stage: Stage,
    server: GitServer,
    daemon: Daemon,
    kymas: Api<DynamicObject>,
    count: usize,
    /// Pushes so far.
    pushed: usize,
}

/// With this interval, polling takes no part.
const SELDOM: &str = "5h";
/// Budget from a push to KCP with a webhook.
const BUDGET: Duration = Duration::from_secs(1);
/// Pause between two pushes with a webhook. Two within half a second are one fetch.
const PAUSE: Duration = Duration::from_secs(1);
/// Pause between two reads of the changed Kyma.
const LOOK: Duration = Duration::from_millis(5);
/// How long KCP may take to show a push.
const APPLIED_MAX: Duration = Duration::from_secs(120);
/// Connections of the storm.
const CONNECTIONS: u32 = 16;
/// How long after the storm its last fetch may come.
const CALM: Duration = Duration::from_secs(15);
/// The label that a push changes.
const LABEL: &str = "example.org/push";
/// The token of the webhook.
const TOKEN: &str = "a-token-for-measurements";
/// The path of the receiver.
const PATH: &str = "/hooks/kcp-system/landscape";

/// Runs the command.
pub(super) async fn measure(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut bench = Bench::start(usize::from(arguments.kymas)).await?;
    tell!("{} pushes with a webhook", arguments.pushes);
    let mut hooked = Vec::new();
    for _ in 0..arguments.pushes {
        tokio::time::sleep(PAUSE).await;
        hooked.push(bench.push(true).await?);
    }
    tell!("a storm of {} deliveries", arguments.storm);
    let storm = bench.storm(arguments.storm).await?;
    tell!("{} pushes without one", arguments.polls);
    bench.poll_every(arguments.interval).await?;
    let mut polled = Vec::new();
    for push in 0..u32::from(arguments.polls) {
        // Spread over the interval: the moment of a push has nothing to do with that of a poll.
        tokio::time::sleep(arguments.interval.0 * (push * 7 % 10) / 10).await;
        polled.push(bench.push(false).await?);
    }
    bench.daemon.end();
    let (hooked, polled) = (Times::new(hooked), Times::new(polled));
    match arguments.output {
        Output::Text => print(arguments, &hooked, &polled, &storm),
        Output::Json => {
            say!("{:#}", json!({"webhook": hooked.json(), "polling": polled.json(), "storm": storm.json()}));
        }
    }
    Ok(Exit::Ok)
}

fn print(arguments: &Arguments, hooked: &Times, polled: &Times, storm: &Storm) {
    say!("{} Kymas in one source over https, polled every {}", arguments.kymas, arguments.interval);
    say!("{:<10} {:>8} {:>10} {:>10} {:>10}", "", "pushes", "p50", "p99", "longest");
    let verdict = if hooked.at(99) <= BUDGET { "within" } else { "beyond" };
    for (name, times, note) in [
        ("webhook", hooked, format!("{verdict} the budget: p99 of {} s", BUDGET.as_secs())),
        ("polling", polled, String::new()),
    ] {
        let [half, most, all] = [50, 99, 100].map(|percent| format!("{:.3} s", times.at(percent).as_secs_f64()));
        say!("{name:<10} {:>8} {half:>10} {most:>10} {all:>10}  {note}", times.0.len());
    }
    say!(
        "storm: {} deliveries in {:.1} s, {} accepted, {} fetches",
        storm.deliveries,
        storm.took.as_secs_f64(),
        storm.accepted,
        storm.fetches
    );
}

// === impl Bench ===

impl Bench {
    /// Starts everything, and waits until all Kymas are in KCP and the daemon is idle.
    async fn start(count: usize) -> anyhow::Result<Bench> {
        let servers = Servers::prepare(Make::Simulated, Make::Simulated).await?;
        let stage = Stage::start(Size { runtimes: 0, modules: 0, objects: 0 }, &servers, "git").await?;
        for index in 1..=count {
            stage.repository.write(&path(index), &kyma(index, 0))?;
        }
        stage.repository.commit("the landscape")?;
        let server = GitServer::start(stage.folder.path(), &stage.authority)?;
        let kcp = stage.clusters[0].client()?;
        for (name, data) in
            [("git-access", json!({"ca.crt": stage.authority.pem()})), ("git-hook", json!({"token": TOKEN}))]
        {
            let metadata = json!({"name": name, "namespace": KCP_NAMESPACE});
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
            testbed::apply(&kcp, &secret).await?;
        }
        testbed::apply(&kcp, &source(&server, SELDOM)).await?;
        let kymas = testbed::api_of(&kcp, &fleet::kyma_sample()).await?;
        let marks = stage.marks();
        let daemon = stage.daemon(&["--resync=6h".to_owned()])?;
        tell!("the first sync of {count} Kymas");
        stage.look(async || daemon.says(&["a revision is active"])).await?;
        stage.quiet(&marks).await?;
        let bench = Bench { stage, server, daemon, kymas, count, pushed: 0 };
        bench.until_applied(0, count).await?;
        Ok(bench)
    }

    /// Polls the repository at this interval from now on.
    async fn poll_every(&mut self, interval: Period) -> anyhow::Result<()> {
        let kcp = self.stage.clusters[0].client()?;
        testbed::apply(&kcp, &source(&self.server, &interval.to_string())).await?;
        // The next fetch is due an interval after this one.
        self.push(true).await.map(drop)
    }

    /// Pushes a change of one Kyma. Returns the time until KCP has it.
    async fn push(&mut self, is_delivered: bool) -> anyhow::Result<Duration> {
        self.pushed += 1;
        let index = 1 + self.pushed * 7 % self.count;
        self.stage.repository.write(&path(index), &kyma(index, self.pushed))?;
        self.stage.repository.commit("a push")?;
        let began = Instant::now();
        if is_delivered {
            let mut connection = self.connect().await?;
            let status = connection.deliver(&self.request(&format!("push-{}", self.pushed))).await?;
            ensure!(status == 202, "a webhook is answered with {status}");
        }
        self.until_applied(self.pushed, index).await?;
        Ok(began.elapsed())
    }

    /// Delivers many webhooks at once. Each has an id of its own.
    async fn storm(&self, deliveries: u32) -> anyhow::Result<Storm> {
        let before = self.server.fetches();
        let began = Instant::now();
        let mut connections = JoinSet::new();
        for connection in 0..CONNECTIONS {
            let mut stream = self.connect().await?;
            let requests: Vec<Vec<u8>> = (connection..deliveries)
                .step_by(CONNECTIONS as usize)
                .map(|number| self.request(&format!("storm-{number}")))
                .collect();
            connections.spawn(async move {
                let mut accepted = 0;
                for request in requests {
                    accepted += u32::from(stream.deliver(&request).await? == 202);
                }
                anyhow::Ok(accepted)
            });
        }
        let mut accepted = 0;
        while let Some(ended) = connections.join_next().await {
            accepted += ended.context("a connection of the storm panicked")??;
        }
        let took = began.elapsed();
        tokio::time::sleep(CALM).await;
        let fetches = self.server.fetches() - before;
        Ok(Storm { deliveries, accepted, took, fetches })
    }

    /// Waits until the Kyma with an index has this push.
    async fn until_applied(&self, push: usize, index: usize) -> anyhow::Result<()> {
        let (name, began) = (fleet::kyma_name(index), Instant::now());
        loop {
            let found = self.kymas.get_opt(&name).await.context("cannot read a Kyma")?;
            let label = found.and_then(|kyma| kyma.metadata.labels?.get(LABEL).cloned());
            if label == Some(push.to_string()) {
                return Ok(());
            }
            ensure!(
                began.elapsed() < APPLIED_MAX,
                "KCP does not have push {push}; the daemon: {:?}",
                self.daemon.leads()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let address = self.daemon.address("webhooks of git hosts")?;
        let stream = TcpStream::connect(address).await.context("cannot connect to the port for webhooks")?;
        stream.set_nodelay(true).context("cannot use a connection")?;
        Ok(Connection(stream))
    }

    /// A delivery as GitHub sends it.
    fn request(&self, id: &str) -> Vec<u8> {
        let url = self.server.url("repo");
        let body = json!({"ref": "refs/heads/main", "repository": {"clone_url": url}}).to_string();
        let mac = Hmac::<Sha256>::new_from_slice(TOKEN.as_bytes()).expect("HMAC takes any key").chain_update(&body);
        let signature: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        format!(
            "POST {PATH} HTTP/1.1\r\nhost: localhost\r\nx-github-event: push\r\nx-github-delivery: {id}\r\n\
             x-hub-signature-256: sha256={signature}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// A connection to the port for webhooks.
struct Connection(TcpStream);

// === impl Connection ===

impl Connection {
    /// Sends a delivery, and returns the status of its answer. An answer is one small packet.
    async fn deliver(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.0.write_all(request).await.context("cannot send a webhook")?;
        let (mut answer, mut buffer) = (Vec::new(), [0; 2_048]);
        loop {
            let length = self.0.read(&mut buffer).await.context("cannot read the answer to a webhook")?;
            ensure!(length > 0, "the daemon closed the connection of a webhook");
            answer.extend_from_slice(&buffer[..length]);
            let text = String::from_utf8_lossy(&answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            if length.context("an answer without a length")? <= body.len() {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
                return status.context("an answer without a status");
            }
        }
    }
}

// === impl Times ===

impl Times {
    fn new(mut times: Vec<Duration>) -> Times {
        times.sort();
        Times(times)
    }

    /// The time that this percentage of the pushes did not exceed.
    fn at(&self, percent: usize) -> Duration {
        let index = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(index).copied().unwrap_or_default()
    }

    fn json(&self) -> Value {
        let seconds = |percent| self.at(percent).as_secs_f64();
        json!({
            "pushes": self.0.len(), "p50Seconds": seconds(50), "p99Seconds": seconds(99),
            "longestSeconds": seconds(100),
        })
    }
}

// === impl Storm ===

impl Storm {
    fn json(&self) -> Value {
        json!({
            "deliveries": self.deliveries, "accepted": self.accepted, "seconds": self.took.as_secs_f64(),
            "fetches": self.fetches,
        })
    }
}

fn source(server: &GitServer, interval: &str) -> Value {
    let mut source = fleet::source(&server.url("repo"));
    source["spec"]["interval"] = interval.into();
    source["spec"]["secretRef"] = json!({"name": "git-access"});
    source["spec"]["receiver"] = json!({"secretRef": {"name": "git-hook"}});
    source
}

fn path(index: usize) -> String {
    format!("kymas/{:02}/{}.yaml", index / 100, fleet::kyma_name(index))
}

fn kyma(index: usize, push: usize) -> String {
    format!(
        "apiVersion: operator.kyma-project.io/v1beta2\nkind: Kyma\nmetadata:\n  name: {}\n  \
         namespace: {KCP_NAMESPACE}\n  labels:\n    {LABEL}: \"{push}\"\nspec:\n  channel: regular\n",
        fleet::kyma_name(index)
    )
}
