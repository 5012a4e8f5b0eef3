//! `tidegate git engine`: the process in which the daemon unpacks git objects.

use anyhow::Context as _;
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
    },
}

/// Runs the command. Fails if it was not started by Tidegate.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match arguments.command {
        Command::Engine { memory_mib } => {
            confine::serve_git(memory_mib).context("only Tidegate starts the git engine: use `tidegate run`")?;
            Ok(Exit::Ok)
        }
    }
}
