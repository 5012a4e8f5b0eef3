//! The servers, the repository and the daemon of one measured landscape.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{fleet, limit, process::Daemon};
use crate::servers::{Ground, Make, Mark, Seen, Server};
use kube_sim::{self as sim, Authority, Tally};
use tidegate_core::api::names::{self, label};
use tidegate_process::{lock::Mutex, tell};
use tidegate_testbed::{self as testbed, Extent, Folder, Pulse, Repository};

/// The user name of the daemon, which distinguishes its requests from those of this process.
pub(super) const USER: &str = "tidegate-bench";
/// The name in the listener's certificate.
pub(super) const HOST: &str = "listener.example";
/// Limit of a phase: a base, and more for each runtime.
const PHASE_MAX: Duration = Duration::from_secs(300);
const PHASE_MAX_EACH: Duration = Duration::from_secs(2);
/// Shortest pause between two reads of the landscape.
const LOOK_MIN: Duration = Duration::from_millis(100);
/// The pause is this many times longer than a read of the landscape, which must not slow down the daemon.
const LOOK_SHARE: u32 = 20;
/// Longest pause.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// The daemon is idle after no request for this long.
const QUIET: Duration = Duration::from_secs(2);
/// Changes of each resource that a simulated KCP keeps for watches, for each runtime. A real one adapts its size.
const HISTORY_EACH: usize = 32;
/// The minimum of that.
const HISTORY_MIN: usize = 1_000;

/// The size of a landscape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) runtimes: usize,
    pub(super) modules: usize,
    pub(super) objects: usize,
}

/// The kinds of servers that a command starts.
#[derive(clap::Args)]
pub(super) struct ServerMakes {
    /// Start this kind of control plane (KCP)
    #[arg(long, value_enum, default_value_t = Make::Simulated)]
    control_plane: Make,
    /// Start this kind of runtimes
    #[arg(long, value_enum, default_value_t = Make::Simulated)]
    runtime_servers: Make,
}

/// What is needed to start servers.
pub(super) struct Servers {
    kcp: Make,
    skrs: Make,
    /// Only if a server is real.
    ground: Option<Ground>,
    /// How many fleets of servers were started.
    fleets: AtomicUsize,
}

/// The servers, the repository and the daemon of one run.
pub(super) struct Stage {
    /// The KCP, then the runtimes.
    pub(super) clusters: Vec<Server>,
    pub(super) repository: Repository,
    pub(super) folder: Folder,
    /// The CA of the certificates with which runtimes send events.
    pub(super) authority: Authority,
    size: Size,
    /// The handle of the last started daemon.
    pulse: Mutex<Option<Pulse>>,
}

/// The daemon's requests since a mark, server by server.
pub(super) struct Requests(pub(super) Vec<Seen>);

// === impl ServerMakes ===

impl ServerMakes {
    /// Builds and starts what the servers need.
    pub(super) async fn prepare(&self) -> anyhow::Result<Servers> {
        Servers::prepare(self.control_plane, self.runtime_servers).await
    }
}

// === impl Servers ===

impl Servers {
    /// Builds and starts what the servers need.
    pub(super) async fn prepare(kcp: Make, skrs: Make) -> anyhow::Result<Servers> {
        let ground = match (kcp, skrs) {
            (Make::Simulated, Make::Simulated) => None,
            (Make::Real, _) | (_, Make::Real) => Some(Ground::prepare(&|line: &str| tell!("{line}"), None).await?),
        };
        Ok(Servers { kcp, skrs, ground, fleets: AtomicUsize::new(0) })
    }

    /// A description in a few words.
    pub(super) fn describe(&self) -> &'static str {
        match (self.kcp, self.skrs) {
            (Make::Simulated, Make::Simulated) => "all API servers simulated",
            (Make::Real, Make::Simulated) => "a real kube-apiserver as KCP, simulated runtimes",
            (Make::Simulated, Make::Real) => "a simulated KCP, real runtimes on one etcd",
            (Make::Real, Make::Real) => "real API servers on one etcd",
        }
    }

    /// Starts the KCP, then the runtimes. All of them are empty, whatever was started before.
    pub(super) async fn start(&self, runtimes: usize, prefix: &str) -> anyhow::Result<Vec<Server>> {
        // Real servers share an etcd, and one with the name of an earlier one would have its objects.
        let prefix = format!("{prefix}-{}", self.fleets.fetch_add(1, Ordering::Relaxed));
        let mut clusters = Vec::with_capacity(runtimes + 1);
        for index in 0..=runtimes {
            let make = if index == 0 { self.kcp } else { self.skrs };
            let name = if index == 0 { format!("{prefix}-kcp") } else { format!("{prefix}-skr-{index}") };
            clusters.push(match make {
                Make::Real => {
                    let ground = self.ground.as_ref().context("real servers are prepared")?;
                    ground.start(name, Extent::Server, None).await?
                }
                Make::Simulated => {
                    let mut options = sim::Options::default();
                    if index == 0 {
                        options.history_max = HISTORY_MIN.max(HISTORY_EACH * runtimes);
                    }
                    Server::simulated(&name, &options).await?
                }
            });
        }
        Ok(clusters)
    }
}

// === impl Stage ===

impl Stage {
    /// Starts the servers, prepares the KCP and creates an empty repository. Runtimes may send events with certificates
    /// of [`Stage::authority`]. Does not start the daemon.
    pub(super) async fn start(size: Size, servers: &Servers, prefix: &str) -> anyhow::Result<Stage> {
        let stage = Stage::with_own_authority(size, servers, prefix).await?;
        testbed::apply(&stage.clusters[0].client()?, &gateway_secret(&stage.authority)?).await?;
        Ok(stage)
    }

    /// The same, but the daemon issues the certificates of runtimes.
    pub(super) async fn with_own_authority(size: Size, servers: &Servers, prefix: &str) -> anyhow::Result<Stage> {
        let clusters = servers.start(size.runtimes, prefix).await?;
        let folder = Folder::temporary("tidegate-bench")?;
        let repository = Repository::init(&folder.path().join("repo"))?;
        repository.write("README.md", "a landscape to measure\n")?;
        repository.commit("an empty landscape")?;
        limit::prepare(&clusters[0]).await?;
        let kcp = clusters[0].client()?;
        for (index, skr) in clusters.iter().enumerate().skip(1) {
            testbed::apply(&kcp, &access(index, skr)?).await?;
        }
        let authority = Authority::new("runtimes")?;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}});
        testbed::apply(&kcp, &namespace).await?;
        testbed::apply(&kcp, &fleet::source(&repository.url())).await?;
        Ok(Stage { clusters, repository, folder, authority, size, pulse: Mutex::default() })
    }

    /// Starts this program as the daemon.
    pub(super) fn daemon(&self, more: &[String]) -> anyhow::Result<Daemon> {
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        self.daemon_of(&program, more)
    }

    /// Starts a program as the daemon.
    pub(super) fn daemon_of(&self, program: &Path, more: &[String]) -> anyhow::Result<Daemon> {
        let kubeconfig: PathBuf = self.folder.path().join("kcp.kubeconfig");
        std::fs::write(&kubeconfig, self.clusters[0].kubeconfig_of(USER)?.text())
            .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
        let daemon = Daemon::start(program, self.folder.path(), &kubeconfig, more)?;
        *self.pulse.lock() = Some(daemon.pulse());
        Ok(daemon)
    }

    /// Fails if the daemon has exited, because then no phase ends.
    fn is_alive(&self) -> anyhow::Result<()> {
        let pulse = self.pulse.lock().clone();
        match pulse.and_then(|pulse| pulse.ended()) {
            Some(tail) => anyhow::bail!("the daemon exited; the last lines of its log:\n{tail}"),
            None => Ok(()),
        }
    }

    /// Limit of one phase.
    pub(super) fn phase_max(&self) -> Duration {
        PHASE_MAX + PHASE_MAX_EACH * u32::try_from(self.size.runtimes).unwrap_or(u32::MAX)
    }

    /// Writes all files of the landscape, and commits them.
    pub(super) fn commit_landscape(&self) -> anyhow::Result<()> {
        for (path, text) in fleet::files(self.size, fleet::Origin::Git) {
            self.repository.write(&path, &text)?;
        }
        self.repository.commit("the landscape")?;
        Ok(())
    }

    pub(super) fn marks(&self) -> Vec<Mark> {
        self.clusters.iter().map(Server::mark).collect()
    }

    /// The daemon's requests since `marks`, without watches and those for the Lease.
    pub(super) fn requests(&self, marks: &[Mark]) -> anyhow::Result<Requests> {
        let seen = self.clusters.iter().zip(marks).map(|(cluster, mark)| cluster.since(mark, USER));
        Ok(Requests(seen.collect::<Result<_, _>>()?))
    }

    /// Waits until the Kymas in `which` are Ready and `holds` is true for each. Indexes start at 1.
    pub(super) async fn ready(&self, which: &[usize], holds: impl Fn(usize, &Value) -> bool) -> anyhow::Result<()> {
        let kcp = self.clusters[0].client()?;
        let kymas = testbed::api_of(&kcp, &fleet::kyma_sample()).await?;
        self.look(async || {
            let list = kymas.list(&kube::api::ListParams::default()).await.map_err(|error| error.to_string())?;
            let live: HashMap<&str, &Value> =
                list.items.iter().filter_map(|kyma| Some((kyma.metadata.name.as_deref()?, &kyma.data))).collect();
            let done = |index: &&usize| {
                let kyma = live.get(fleet::kyma_name(**index).as_str());
                kyma.is_some_and(|kyma| kyma["status"]["state"] == "Ready" && holds(**index, kyma))
            };
            let done = which.iter().filter(done).count();
            if done == which.len() { Ok(()) } else { Err(format!("{done} of {} are ready", which.len())) }
        })
        .await
    }

    /// Checks again until the condition holds, seldom enough not to affect the measurement.
    pub(super) async fn look(&self, mut ask: impl AsyncFnMut() -> Result<(), String>) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            let asked = Instant::now();
            let Err(answer) = ask().await else { return Ok(()) };
            self.is_alive()?;
            anyhow::ensure!(began.elapsed() < self.phase_max(), "not within {:?}: {answer}", self.phase_max());
            tokio::time::sleep((asked.elapsed() * LOOK_SHARE).clamp(LOOK_MIN, LOOK_MAX)).await;
        }
    }

    /// Waits until the daemon sends no more requests.
    pub(super) async fn quiet(&self, marks: &[Mark]) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut last = usize::MAX;
        loop {
            let asked = self.requests(marks)?.count();
            if asked == last {
                return Ok(());
            }
            self.is_alive()?;
            anyhow::ensure!(
                began.elapsed() < self.phase_max(),
                "the daemon did not become idle: {asked} requests so far"
            );
            last = asked;
            tokio::time::sleep(QUIET).await;
        }
    }
}

// === impl Requests ===

impl Requests {
    /// The number of requests.
    fn count(&self) -> usize {
        self.0.iter().map(|seen| seen.tally.requests()).sum()
    }

    /// The requests to the KCP.
    pub(super) fn kcp(&self) -> Tally {
        self.0.first().map(|seen| seen.tally.clone()).unwrap_or_default()
    }

    /// The requests to all runtimes.
    pub(super) fn skrs(&self) -> Tally {
        let mut all = Tally::default();
        for seen in self.0.iter().skip(1) {
            all.merge(&seen.tally);
        }
        all
    }

    /// When the last write in any cluster was answered.
    pub(super) fn last_write(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|seen| seen.last_write).max()
    }

    /// Whether anything was written to a cluster.
    pub(super) fn wrote_to(&self, cluster: usize) -> bool {
        self.0.get(cluster).is_some_and(|seen| seen.last_write.is_some())
    }
}

/// A kubeconfig Secret for a runtime.
fn access(index: usize, skr: &Server) -> anyhow::Result<Value> {
    let kubeconfig = skr.kubeconfig_of(USER)?.text();
    let kyma = fleet::kyma_name(index);
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("access-{kyma}"), "namespace": names::KCP_NAMESPACE,
            "labels": {label::KYMA_NAME: kyma},
        },
        "data": {names::ACCESS_SECRET_KEY: STANDARD.encode(kubeconfig)},
    }))
}

/// The Secret with the listener's certificate and the CA of its senders.
fn gateway_secret(authority: &Authority) -> anyhow::Result<Value> {
    let server = authority.server(HOST, &[HOST])?;
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": names::GATEWAY_SECRET, "namespace": "istio-system"},
        "stringData": {"ca.crt": authority.pem(), "tls.crt": server.certificate, "tls.key": server.key},
    }))
}
