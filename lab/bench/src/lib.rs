//! The lab commands: `tidegate demo` shows the whole loop on this machine, `tidegate sim` measures it.
//!
//! The daemon and the agents run as processes of the current program, never as code of this crate, which does not
//! depend on them. So a measurement always includes the command line.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

mod control_plane;
mod demo;
mod pods;
mod registry;
mod servers;
mod sim;

use anyhow::Context as _;
use clap::Subcommand;
use tidegate_process::Exit;

/// The commands that the lab adds to the program.
#[derive(Subcommand)]
pub enum Command {
    /// Shows the whole loop on this machine
    Demo(demo::Arguments),
    /// Simulates and measures landscapes
    Sim(sim::Arguments),
}

// === impl Command ===

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot run as given, or if the machine lacks something that it needs.
    pub fn run(self) -> anyhow::Result<Exit> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
        match self {
            Command::Demo(arguments) => runtime.block_on(demo::run(arguments)),
            Command::Sim(arguments) => sim::run(&arguments, &runtime),
        }
    }
}
