//! `tidegate sim`: simulated landscapes, and what things cost.
//!
//! `serve` is a fleet of simulated runtimes; `bench` measures the daemon with one; `diff` and `diff-offline` measure
//! comparisons, `agent` a review, `listener` the taking of events, `watch` the whole way from a change to a look.

mod agent;
mod bench;
mod diff;
mod fleet;
mod limit;
mod listener;
mod offline;
mod process;
mod report;
mod serve;
mod stage;
mod watch;

use clap::{Args, Subcommand};

use tidegate_process::{Exit, tell, tls};
use tokio::runtime::Runtime;

/// Simulated and measured landscapes
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
    Listener(listener::Arguments),
    Serve(serve::Arguments),
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
        Command::Listener(arguments) => runtime.block_on(listener::measure(arguments)),
        Command::Serve(arguments) => runtime.block_on(serve::run(arguments)),
        Command::Watch(arguments) => runtime.block_on(watch::measure(arguments)),
    }
}

/// Lets this process open as many files as it may, and says so if that is too few for a fleet.
fn open_files(runtimes: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// A socket that listens, connections of the daemon, of ours and of agents: for each runtime.
    const FILES_EACH: usize = 6;
    const FILES_MIN: usize = 256;
    let now = getrlimit(Resource::Nofile);
    // What cannot be raised stays as it is.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
    let files =
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    let wanted = FILES_MIN + FILES_EACH * runtimes;
    if files < wanted {
        tell!(
            "{runtimes} runtimes may need {wanted} open files, and {files} are allowed: raise the limit (`ulimit -n`) if \
             connections fail"
        );
    }
}
