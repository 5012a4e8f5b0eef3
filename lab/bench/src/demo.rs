//! `tidegate demo`: a KCP, runtimes with an agent each, a git repository and the daemon on this machine, and a tour.
//!
//! The clusters are simulated in this process, so that the demo starts at once and needs only this program. With
//! `--control-plane=real`, kube-apiserver, etcd, kube-controller-manager and kube-scheduler run as processes, and one
//! simulated node in each runtime makes Deployments ready. Everything else is real in both cases: the repository, the
//! daemon, the agents, and TLS between them. All files are in one folder. All processes end with this one, however it
//! ends.
//!
//! With `--kubeconfig`, the user gives the clusters: see [`given`]. Then there are no agents, and the tour leaves out
//! what needs servers of the demo's own.

mod agents;
mod daemon;
mod given;
mod landscape;
mod report;
mod tour;
mod windows;
mod world;

use std::{
    cell::OnceCell,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    agents::Agents,
    daemon::Daemon,
    given::{Consent, Given},
    report::{Outcome, Row},
    tour::Tour,
    world::World,
};
use crate::{pods::Doors, registry::Registry, servers::Make};
use tidegate_core::api::names;
use tidegate_process::{Exit, say, tls};
use tidegate_testbed::{self as testbed, Folder, Repository};

/// Shows Tidegate on this machine: clusters, a git repository, the daemon, and a tour of its features.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Exit after the tour. Exit code 0: all steps succeeded; 1: a step failed [default: off]
    #[arg(long)]
    once: bool,
    /// Write kubeconfigs, repository and logs to this new folder, which is kept, for example `./demo` [default: a
    /// temporary folder]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Start this kind of clusters; the first use of real ones builds their programs
    #[arg(long, value_enum, default_value_t = Make::Simulated)]
    control_plane: Make,
    /// Start this many runtimes, at least the two of the example; the agent of each is a process of its own
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=RUNTIMES_MAX))]
    runtimes: u16,
    /// Use the cluster in this kubeconfig as KCP, for example one of kind; asks before it writes, and removes what it
    /// made [default: start clusters]
    #[arg(long, value_name = "FILE", requires = "runtime_kubeconfigs", conflicts_with_all = ["control_plane", "runtimes"])]
    kubeconfig: Option<PathBuf>,
    /// Use the cluster in this kubeconfig as a runtime; repeat the option for each, at least twice [default: start
    /// clusters]
    #[arg(long = "runtime-kubeconfig", value_name = "FILE", requires = "kubeconfig")]
    runtime_kubeconfigs: Vec<PathBuf>,
    /// Write to the clusters in the kubeconfigs without asking [default: off]
    #[arg(long, requires = "kubeconfig")]
    yes: bool,
}

/// What a user can do if the clusters could not be cleaned up.
const RESUME: &str = "the clusters have more of the demo; start it again with the same kubeconfigs to remove that";

/// Limit of runtimes. Larger fleets: `sim serve` and `sim bench`.
const RUNTIMES_MAX: i64 = 100;

/// How often the daemon looks for changes in runtimes without an agent.
const RESYNC: Duration = Duration::from_secs(10);

/// The file with the administrator's kubeconfig of the KCP, in the demo's folder.
const KUBECONFIG: &str = "kcp.kubeconfig";

/// Everything that runs after the start.
struct Stage {
    folder: PathBuf,
    /// None if the user gave the clusters.
    make: Option<Make>,
    kymas: Vec<String>,
    world: World,
    repository: Repository,
    daemon: Daemon,
    registry: Registry,
    policy: PathBuf,
    /// None if the user gave the clusters.
    _agents: Option<Agents>,
}

/// Runs until the end of the tour, or until a signal.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    tls::install();
    let mut stop = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let given = arguments.given().await?;
    let temporary = match arguments.dir {
        Some(_) => None,
        None => Some(Folder::temporary("tidegate-demo-")?),
    };
    let folder = match (&arguments.dir, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Some(temporary)) => temporary.path().to_owned(),
        (None, None) => unreachable!("one of the two was just made"),
    };
    let outcome = tokio::select! {
        outcome = perform(&folder, &arguments, given.as_ref()) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Ok),
        _ = stop.recv() => Ok(Exit::Ok),
        // Without standard output the tour cannot be read.
        () = say::lost() => Ok(Exit::Ok),
    };
    // The daemon has ended with the tour.
    let cleaned = match given.filter(Given::is_marked) {
        None => Ok(()),
        Some(given) => tokio::select! {
            cleaned = given.clean_up() => cleaned,
            _ = tokio::signal::ctrl_c() => Err(anyhow!("interrupted: {RESUME}")),
            _ = stop.recv() => Err(anyhow!("stopped: {RESUME}")),
        },
    };
    // Why the tour failed says more.
    let outcome = outcome.and_then(|exit| cleaned.map(|()| exit));
    // After a failure the user needs the logs, if the demo came so far.
    if let (Some(temporary), false) = (temporary, matches!(outcome, Ok(Exit::Ok)))
        && has_logs(temporary.path())
    {
        say!("\nlogs are kept in {}", temporary.keep().display());
    }
    outcome
}

/// Whether a folder has the log of a process.
fn has_logs(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.path().extension().is_some_and(|extension| extension == "log"))
}

/// Starts everything, performs the tour, prints the table; then waits for a signal unless `once`.
async fn perform(folder: &Path, arguments: &Arguments, given: Option<&Given>) -> anyhow::Result<Exit> {
    let stage = Stage::set(folder, arguments, given).await?;
    let tour = Tour {
        world: &stage.world,
        kymas: &stage.kymas,
        repository: &stage.repository,
        daemon: &stage.daemon,
        registry: &stage.registry,
        policy: &stage.policy,
        kubeconfig: &stage.folder.join(KUBECONFIG),
        bumped: OnceCell::new(),
    };
    let rows = tokio::select! {
        rows = tour.perform() => rows,
        ended = stage.daemon.supervise() => {
            say!("\n{ended:#}\n\n{}", stage.daemon.log_tail());
            return Ok(Exit::Changes);
        }
    };
    let exit = conclude(&rows, &stage.daemon);
    if arguments.once {
        say!("\nTwo things to break next: start the demo without `--once`, so that the clusters keep running.\n");
        say!("  Delete a Deployment of prod: {}.", stage.finds());
        say!("  Remove the Kyma of dev from git: nothing is deleted, and `tidegate status` says what dev would lose.");
        return Ok(exit);
    }
    stage.invite();
    // Only a signal ends this, or the end of the daemon.
    Err(stage.daemon.supervise().await)
}

/// Prints the table, and the details of a failure.
fn conclude(rows: &[Row], daemon: &Daemon) -> Exit {
    let failed = rows.iter().find_map(|row| match &row.outcome {
        Outcome::Failed(why) => Some((row.step, why)),
        Outcome::Held(_) | Outcome::LeftOut(_) | Outcome::NotReached => None,
    });
    if let Some((step, why)) = failed {
        say!("\nstep \"{step}\" failed: {why}\n\nlast lines of {}:\n{}", daemon.log().display(), daemon.log_tail());
    }
    say!("\n{}", report::table(rows));
    match failed {
        None => Exit::Ok,
        Some(_) => Exit::Changes,
    }
}

// === impl Arguments ===

impl Arguments {
    /// The clusters of the user, if there are some. Fails if they cannot be used.
    async fn given(&self) -> anyhow::Result<Option<Given>> {
        let Some(kcp) = &self.kubeconfig else { return Ok(None) };
        if self.runtime_kubeconfigs.len() < 2 {
            bail!("the example has two runtimes: use --runtime-kubeconfig twice, for two clusters");
        }
        Given::open(kcp, &self.runtime_kubeconfigs).await.map(Some)
    }
}

// === impl Stage ===

impl Stage {
    async fn set(folder: &Path, arguments: &Arguments, given: Option<&Given>) -> anyhow::Result<Stage> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        if entries.next().is_some() {
            bail!("{} is not empty: use a new folder for `--dir`", folder.display());
        }
        let folder = folder.canonicalize().with_context(|| format!("cannot use {}", folder.display()))?;
        say!("starting the demo in {}", folder.display());
        let world = match given {
            Some(given) => {
                given.prepare(if arguments.yes { Consent::Given } else { Consent::Asked }).await?;
                World::given(&folder, given)?
            }
            None => World::start(&folder, arguments.control_plane, usize::from(arguments.runtimes)).await?,
        };
        let kymas = landscape::kymas(world.skr_clients.len());
        let repository = Repository::init(&folder.join("repo"))?;
        for (path, text) in landscape::FILES {
            match given {
                Some(_) => repository.write(path, &landscape::without_pods(text))?,
                None => repository.write(path, text)?,
            }
        }
        for (path, text) in landscape::more(&kymas) {
            repository.write(&path, &text)?;
        }
        let commit = repository.commit("The landscape")?;
        report::doing(&format!("the repository has its first commit: {}", commit.get(..8).unwrap_or(&commit)));
        world.prepare(&kymas).await?;
        world.apply(&source(&repository)).await?;
        let doors = Doors::new();
        let registry = Registry::start(landscape::scanner_content()).await?;
        let policy = folder.join("maintenance-policy.json");
        windows::write(&policy, windows::LATER)?;
        let mut line = command_line(&folder, &world)?;
        match given {
            Some(_) => line.extend([format!("--resync={}s", RESYNC.as_secs())]),
            None => {
                line.extend(doors.arguments());
                line.extend(["--kcp-landscapes", "--pki=builtin"].map(str::to_owned));
            }
        }
        line.push(format!("--oci-registry-host={}", registry.address()));
        line.push(format!("--maintenance-policy={}", policy.display()));
        let daemon = Daemon::start(&folder, line)?;
        report::doing(&format!("the daemon is running: {}", daemon.command_line()));
        let agents = match &world.own {
            None => None,
            Some(own) => tokio::select! {
                agents = Agents::start(&folder, own, &world.skr_clients, &kymas, doors) => Some(agents?),
                ended = daemon.supervise() => bail!("{ended:#}\n\n{}", daemon.log_tail()),
            },
        };
        let make = world.own.as_ref().map(|_| arguments.control_plane);
        Ok(Stage { folder, make, kymas, world, repository, daemon, registry, policy, _agents: agents })
    }

    /// How Tidegate finds a change in a runtime, as a clause.
    fn finds(&self) -> String {
        match self.make {
            Some(_) => "its agent reports it, and the Deployment is back within a second or two".to_owned(),
            None => format!("Tidegate looks every {} seconds, and the Deployment is back then", RESYNC.as_secs()),
        }
    }

    /// Prints how to continue by hand.
    fn invite(&self) {
        let word = |file: &str| say::word(self.folder.join(file).display());
        let kcp = word(KUBECONFIG);
        match self.make {
            Some(_) => say!("\nThe clusters run until Ctrl-C. Try:\n"),
            None => say!("\nThe daemon runs until Ctrl-C. Then what the demo has made is removed. Try:\n"),
        }
        say!("  kubectl --kubeconfig {kcp} -n kcp-system get gitsources,kymas,manifests");
        for index in 1..=self.kymas.len() {
            let skr = word(&format!("{}.kubeconfig", world::runtime_name(index)));
            say!("  kubectl --kubeconfig {skr} get kymas,deployments -A");
        }
        say!("  tidegate status --kubeconfig {kcp}");
        let (repository, prod) = (say::word(self.repository.path().display()), word("skr-2.kubeconfig"));
        say!("\nTwo things to break next:\n");
        say!("  kubectl --kubeconfig {prod} -n kyma-system delete deployment cache-manager");
        say!("    What happens: {}.", self.finds());
        say!("  git -C {repository} rm -q {} && git -C {repository} commit -qm 'no dev'", landscape::DEV_KYMA);
        say!("    Nothing is deleted: `tidegate status` says what dev would lose, and the command that confirms it.");
        let log = say::word(self.daemon.log().display());
        let Some(make) = self.make else {
            say!("\nCommit to {repository} and watch the clusters. The log of the daemon is {log}.");
            return;
        };
        say!(
            "\nCommit to {repository} and watch the clusters, or edit objects in a runtime{}. The log of the daemon is \
             {log}, beside those of the agents. {} lists the addresses and certificates of the listener and the agents.",
            ways_to_edit(make),
            word("watch.json"),
        );
    }
}

/// How to edit objects in a runtime, if not every command works.
fn ways_to_edit(make: Make) -> &'static str {
    match make {
        Make::Simulated => {
            " (with `kubectl apply --server-side`, `kubectl patch --type merge` or `kubectl delete`: for built-in \
             kinds, simulated servers support no `scale`, `edit`, `set` and strategic `patch`)"
        }
        Make::Real => "",
    }
}

/// The GitSource of the tour.
fn source(repository: &Repository) -> serde_json::Value {
    json!({
        "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
        "metadata": {"name": tour::SOURCE, "namespace": names::KCP_NAMESPACE},
        "spec": {"url": repository.url(), "ref": {"branch": "main"}, "interval": "10s"},
    })
}

/// The daemon's command line.
fn command_line(folder: &Path, world: &World) -> anyhow::Result<Vec<String>> {
    let kubeconfig = world.daemon_kubeconfig(folder)?;
    let state = folder.join("state");
    let arguments = vec![
        "run".to_owned(),
        format!("--kubeconfig={}", kubeconfig.display()),
        format!("--state={}", state.display()),
        format!("--metrics-address=127.0.0.1:{}", testbed::free_port()),
        format!("--health-address=127.0.0.1:{}", testbed::free_port()),
        // No git host sends webhooks.
        "--hooks-address=off".to_owned(),
        // The identity survives a restart, so that the daemon leads again at once.
        "--identity=demo".to_owned(),
        "--allow-local-sources".to_owned(),
    ];
    Ok(arguments)
}
