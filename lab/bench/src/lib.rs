//! The laboratory of the command line: `tidegate demo` shows the whole loop on this machine, `tidegate sim` measures it.
//!
//! The daemon and the agents that are shown and measured are processes of the program that runs, never code of this
//! crate: it cannot name them, so a measurement cannot reach around the command line.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

mod control_plane;
mod demo;
mod pods;
mod servers;
mod sim;

use anyhow::Context as _;
use clap::Subcommand;
use tidegate_process::Exit;

/// The commands that the laboratory adds to the program.
#[derive(Subcommand)]
pub enum Command {
    /// Shows the whole loop on this machine
    Demo(demo::Arguments),
    /// Simulates and measures landscapes
    Sim(sim::Arguments),
}

// === impl Command ===

impl Command {
    /// Runs the command to its end.
    ///
    /// # Errors
    ///
    /// If it cannot be carried out as given, or the machine lacks something that it needs.
    pub fn run(self) -> anyhow::Result<Exit> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
        match self {
            Command::Demo(arguments) => runtime.block_on(demo::run(arguments)),
            Command::Sim(arguments) => sim::run(&arguments, &runtime),
        }
    }
}
