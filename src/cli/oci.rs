//! `tidegate oci engine`: the process in which the daemon unpacks what registries send.

use std::time::Duration;

use anyhow::Context as _;
use tidegate_oci::limits::UnpackLimits;
use tidegate_process::Exit;

use crate::confine;

/// Unpacks blobs of registries for another process of this program.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Unpacks one blob with limited resources.
    Engine {
        /// Limit the memory to so many MiB
        memory_mib: u64,
        /// Limit the CPU time to so many milliseconds
        computing_millis: u64,
        /// Limit the elapsed time to so many milliseconds
        time_millis: u64,
        /// What the blob contains, and in which form
        kind: String,
    },
}

/// Runs the command. Fails if it was not started by Tidegate.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.command {
        Command::Engine { memory_mib, computing_millis, time_millis, kind } => {
            let (computing, time) = (Duration::from_millis(*computing_millis), Duration::from_millis(*time_millis));
            confine::serve_oci(UnpackLimits { memory_mib: *memory_mib, computing, time }, kind)
                .context("only Tidegate starts the engine for registries: use `tidegate run`")?;
            Ok(Exit::Ok)
        }
    }
}
