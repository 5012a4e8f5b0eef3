//! `tidegate sim`: simulated landscapes, and benchmarks.
//!
//! `serve` runs a fleet of simulated runtimes. `bench` measures the daemon with a fleet, `diff` and `diff-offline`
//! measure comparisons, `git` the time from a push to KCP, `agent` measures reviews, `listener` the receipt of events,
//! `render` the effect of a slow override, `render-offline` the rendering of a fleet, `repository` what large and
//! hostile repositories cost, `setup` what a kcp landscape costs, `upgrade` what another version of the daemon writes,
//! and `watch` the time from a change in a runtime to the reaction of the daemon.

mod agent;
mod bench;
mod diff;
mod fleet;
mod git;
mod limit;
mod listener;
mod offline;
mod process;
mod render;
mod render_offline;
mod report;
mod repository;
mod serve;
mod setup;
mod stage;
mod upgrade;
mod watch;

use clap::{Args, Subcommand};

use tidegate_process::{Exit, tell, tls};
use tokio::runtime::Runtime;

/// Simulates landscapes and runs benchmarks.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Arguments),
    Bench(bench::Arguments),
    Diff(diff::Diff),
    DiffOffline(offline::Arguments),
    Git(git::Arguments),
    Listener(listener::Arguments),
    Render(render::Arguments),
    RenderOffline(render_offline::Arguments),
    Repository(repository::Arguments),
    Serve(serve::Arguments),
    Setup(setup::Arguments),
    Upgrade(upgrade::Arguments),
    Watch(watch::Arguments),
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments, runtime: &Runtime) -> anyhow::Result<Exit> {
    tls::install();
    match &arguments.command {
        Command::Agent(arguments) => runtime.block_on(agent::measure(arguments)),
        Command::Bench(arguments) => runtime.block_on(bench::measure(arguments)),
        Command::Diff(diff) => runtime.block_on(diff::measure(diff)),
        Command::DiffOffline(arguments) => offline::run(arguments),
        Command::Git(arguments) => runtime.block_on(git::measure(arguments)),
        Command::Listener(arguments) => runtime.block_on(listener::measure(arguments)),
        Command::Render(arguments) => runtime.block_on(render::measure(arguments)),
        Command::RenderOffline(arguments) => render_offline::run(arguments),
        Command::Repository(arguments) => runtime.block_on(repository::measure(arguments)),
        Command::Serve(arguments) => runtime.block_on(serve::run(arguments)),
        Command::Setup(arguments) => runtime.block_on(setup::measure(arguments)),
        Command::Upgrade(arguments) => runtime.block_on(upgrade::measure(arguments)),
        Command::Watch(arguments) => runtime.block_on(watch::measure(arguments)),
    }
}

/// Open files of a process that does nothing yet.
const FILES_MIN: usize = 256;

/// Raises the limit of open files as far as allowed, and warns if it is too low for a fleet.
fn open_files(runtimes: usize) {
    /// Per runtime: a listening socket, and connections of the daemon, of this process and of agents.
    const FILES_EACH: usize = 6;
    let (files, wanted) = (raise_files(), FILES_MIN + FILES_EACH * runtimes);
    if files < wanted {
        tell!(
            "warning: {runtimes} runtimes may need {wanted} open files, but the limit is {files}: raise it with \
             `ulimit -n` if connections fail"
        );
    }
}

/// Raises the limit of open files as far as allowed, and returns it.
fn raise_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, it stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}
