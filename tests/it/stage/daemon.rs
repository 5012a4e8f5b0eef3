//! The daemon of a stage: a process, or, where the clock is paused, tasks of the test's own thread.

use std::{
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};

use clap::Parser;
use tidegate::internals::{
    Renderer,
    config::{Config, Options},
    daemon::{Ended, Mode, Report},
};
use tidegate_cluster::Network;
use tidegate_testbed::Guarded;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::SOON;

/// A daemon that runs.
pub(super) enum Daemon {
    /// As users run it.
    Process(Guarded),
    /// In this process, which is its runtime's only thread.
    Here(Here),
}

/// A daemon in this process.
pub(super) struct Here {
    task: JoinHandle<anyhow::Result<Ended>>,
    told: CancellationToken,
}

/// The arguments of `tidegate run` that a daemon in this process understands.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

// === impl Daemon ===

impl Daemon {
    /// Starts a process.
    pub(super) fn process(arguments: &[String], folder: &Path, log: &Path) -> Daemon {
        let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
        Daemon::Process(Guarded::start(program, arguments, folder, log).expect("the daemon starts"))
    }

    /// Starts one here. It logs to the default of this thread.
    pub(super) fn here(arguments: &[String], network: Network) -> Daemon {
        let config = config(arguments);
        let told = CancellationToken::new();
        let stop = told.clone().cancelled_owned();
        let task = tokio::spawn(async move { load(config, &network).await?.run(Mode::Forever, stop).await });
        Daemon::Here(Here { task, told })
    }

    /// Kills it without a warning; it is gone when this returns.
    pub(super) async fn kill(self) {
        match self {
            Daemon::Process(process) => drop(process),
            Daemon::Here(here) => {
                here.task.abort();
                let _ = here.task.await;
                tasks_end().await;
            }
        }
    }

    /// The id of its process; `None` in this process, or if it does not run yet.
    pub(super) fn process_id(&self) -> Option<u32> {
        match self {
            Daemon::Process(process) => process.program_pid(),
            Daemon::Here(_) => None,
        }
    }

    /// Whether it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Daemon::Process(process) => process.ended().is_some(),
            Daemon::Here(here) => here.task.is_finished(),
        }
    }

    /// Passes a signal on.
    pub(super) fn signal(&mut self, signal: &str) {
        match self {
            Daemon::Process(process) => process.signal(signal),
            Daemon::Here(here) => {
                assert_eq!(signal, "TERM", "a daemon that is no process can only be told to stop");
                here.told.cancel();
            }
        }
    }
}

/// A single pass of a daemon in this process, which must stop, as after a signal, when `stop` completes.
pub(super) async fn once(
    arguments: &[String],
    network: Network,
    timeout: Duration,
    stop: impl Future<Output = ()>,
) -> Report {
    let loaded = load(config(arguments), &network).await.expect("the daemon loads");
    let ended = loaded.run(Mode::Once(timeout), stop).await;
    tasks_end().await;
    match ended.expect("the pass ends") {
        Ended::Once(report) => report,
        Ended::Stopped => unreachable!("it is a single pass"),
    }
}

/// The tasks of a daemon that has ended end when their turn comes, and with the last of them its hold of the disk.
async fn tasks_end() {
    for _ in 0..500 {
        tokio::task::yield_now().await;
    }
}

/// The configuration of a daemon in this process. As in the program, the first argument names the command.
fn config(arguments: &[String]) -> Config {
    Config::try_from(Arguments::parse_from(arguments).options).expect("a configuration")
}

async fn load(config: Config, network: &Network) -> anyhow::Result<tidegate::internals::daemon::Daemon> {
    let deadline = Instant::now() + SOON;
    loop {
        match tidegate::internals::daemon::Daemon::load_on(
            config.clone(),
            network,
            Renderer::local(),
            tidegate_git::Engine::local(),
        )
        .await
        {
            // A child of another test holds whatever is open here, the disk's lock too, until it has become itself.
            Err(error) if Instant::now() < deadline && format!("{error:#}").contains(" is in use by ") => {
                std::thread::yield_now();
            }
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "the daemon does not load");
                return Err(error);
            }
            loaded => return loaded,
        }
    }
}

/// The end of a log, for the message of a test that fails: some of the last lines. Tests ask for it each time that they
/// look for something, so it does not read the whole file.
pub(super) fn tail(log: &Path, lines: usize) -> String {
    const BYTES_MAX: u64 = 64 << 10;
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(log)?;
        let begin = file.metadata()?.len().saturating_sub(BYTES_MAX);
        file.seek(SeekFrom::Start(begin))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        Ok(end)
    };
    let end = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&end);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
