//! `tidegate git engine`: the process in which the daemon unpacks git objects.

use std::time::Duration;

use anyhow::Context as _;
use tidegate_git::limits::EngineLimits;
use tidegate_process::Exit;

use crate::confine;

/// Works on git objects for another process of this program.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Does one task with limited resources.
    Engine {
        /// Limit the memory to so many MiB
        memory_mib: u64,
        /// Limit the CPU time to so many milliseconds
        computing_millis: u64,
        /// Limit the elapsed time to so many milliseconds
        time_millis: u64,
    },
}

/// Runs the command. Fails if it was not started by Tidegate.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Engine { memory_mib, computing_millis, time_millis } => {
            let (computing, time) = (Duration::from_millis(computing_millis), Duration::from_millis(time_millis));
            confine::serve_git(EngineLimits { memory_mib, computing, time })
                .context("only Tidegate starts the git engine: use `tidegate run`")?;
            Ok(Exit::Ok)
        }
    }
}
