//! `tidegate demo`: a KCP, runtimes with an agent each, a git repository and the daemon on this machine, and a tour.
//!
//! The clusters are simulated in this process, so that the demo starts at once and needs only this program. With
//! `--control-plane=real`, kube-apiserver, etcd, kube-controller-manager and kube-scheduler run as processes, and one
//! simulated node in each runtime makes Deployments ready. Everything else is real in both cases: the repository, the
//! daemon, the agents, and TLS between them. All files are in one folder. All processes end with this one, however it
//! ends.

mod agents;
mod daemon;
mod landscape;
mod report;
mod tour;
mod windows;
mod world;

use std::{
    cell::OnceCell,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    agents::Agents,
    daemon::Daemon,
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
}

/// Limit of runtimes. Larger fleets: `sim serve` and `sim bench`.
const RUNTIMES_MAX: i64 = 100;

/// The file with the administrator's kubeconfig of the KCP, in the demo's folder.
const KUBECONFIG: &str = "kcp.kubeconfig";

/// Everything that runs after the start.
struct Stage {
    folder: PathBuf,
    make: Make,
    kymas: Vec<String>,
    world: World,
    repository: Repository,
    daemon: Daemon,
    registry: Registry,
    policy: PathBuf,
    _agents: Agents,
}

/// Runs until the end of the tour, or until a signal.
pub(super) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    tls::install();
    let mut stop = signal(SignalKind::terminate()).context("cannot listen for signals")?;
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
        outcome = perform(&folder, &arguments) => outcome,
        _ = tokio::signal::ctrl_c() => Ok(Exit::Ok),
        _ = stop.recv() => Ok(Exit::Ok),
        // Without standard output the tour cannot be read.
        () = say::lost() => Ok(Exit::Ok),
    };
    // After a failure the user needs the logs.
    if let (Some(temporary), false) = (temporary, matches!(outcome, Ok(Exit::Ok))) {
        say!("\nlogs are kept in {}", temporary.keep().display());
    }
    outcome
}

/// Starts everything, performs the tour, prints the table; then waits for a signal unless `once`.
async fn perform(folder: &Path, arguments: &Arguments) -> anyhow::Result<Exit> {
    let stage = Stage::set(folder, arguments).await?;
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
        say!("  Delete a Deployment of prod: its agent reports it, and the Deployment is back within a second or two.");
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
        Outcome::Held(_) | Outcome::NotReached => None,
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

// === impl Stage ===

impl Stage {
    async fn set(folder: &Path, arguments: &Arguments) -> anyhow::Result<Stage> {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        if entries.next().is_some() {
            bail!("{} is not empty: use a new folder for `--dir`", folder.display());
        }
        let folder = folder.canonicalize().with_context(|| format!("cannot use {}", folder.display()))?;
        say!("starting the demo in {}", folder.display());
        let kymas = landscape::kymas(usize::from(arguments.runtimes));
        let world = World::start(&folder, arguments.control_plane, kymas.len()).await?;
        let repository = Repository::init(&folder.join("repo"))?;
        for (path, text) in landscape::FILES {
            repository.write(path, text)?;
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
        let mut line = command_line(&folder, &world, doors)?;
        line.push(format!("--oci-registry-host={}", registry.address()));
        line.push(format!("--maintenance-policy={}", policy.display()));
        let daemon = Daemon::start(&folder, line)?;
        report::doing(&format!("the daemon is running: {}", daemon.command_line()));
        let agents = tokio::select! {
            agents = Agents::start(&folder, &world, &kymas, doors) => agents?,
            ended = daemon.supervise() => bail!("{ended:#}\n\n{}", daemon.log_tail()),
        };
        let make = arguments.control_plane;
        Ok(Stage { folder, make, kymas, world, repository, daemon, registry, policy, _agents: agents })
    }

    /// Prints how to continue by hand.
    fn invite(&self) {
        let word = |file: &str| say::word(self.folder.join(file).display());
        let kcp = word(KUBECONFIG);
        say!("\nThe clusters run until Ctrl-C. Try:\n");
        say!("  kubectl --kubeconfig {kcp} -n kcp-system get gitsources,kymas,manifests");
        for server in &self.world.skrs {
            let skr = word(&format!("{}.kubeconfig", server.name()));
            say!("  kubectl --kubeconfig {skr} get kymas,deployments -A");
        }
        say!("  tidegate status --kubeconfig {kcp}");
        let (repository, prod) = (say::word(self.repository.path().display()), word("skr-2.kubeconfig"));
        say!("\nTwo things to break next:\n");
        say!("  kubectl --kubeconfig {prod} -n kyma-system delete deployment cache-manager");
        say!("    The agent of prod reports it, and the Deployment is back within a second or two.");
        say!("  git -C {repository} rm -q {} && git -C {repository} commit -qm 'no dev'", landscape::DEV_KYMA);
        say!("    Nothing is deleted: `tidegate status` says what dev would lose, and the command that confirms it.");
        say!(
            "\nCommit to {} and watch the clusters, or edit objects in a runtime{}. The log of the daemon is {}, \
             beside those of the agents. {} lists the addresses and certificates of the listener and the agents.",
            say::word(self.repository.path().display()),
            ways_to_edit(self.make),
            say::word(self.daemon.log().display()),
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
fn command_line(folder: &Path, world: &World, doors: Doors) -> anyhow::Result<Vec<String>> {
    let kubeconfig = world.daemon_kubeconfig(folder)?;
    let state = folder.join("state");
    let mut arguments = vec![
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
    arguments.extend(doors.arguments());
    Ok(arguments)
}
