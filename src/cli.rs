//! The command line: one file per command, and the exit codes that they share.
//!
//! The program for runtime clusters has only the agent. Everything else comes with the feature `daemon`.

// First, because the modules below use its macros.
#[macro_use]
mod say;

mod agent;
#[cfg(feature = "daemon")]
mod commands;
#[cfg(feature = "daemon")]
mod control_plane;
#[cfg(feature = "daemon")]
mod crds;
#[cfg(feature = "daemon")]
mod demo;
#[cfg(feature = "daemon")]
mod diff;
#[cfg(feature = "daemon")]
mod export;
#[cfg(feature = "daemon")]
mod judge;
#[cfg(feature = "daemon")]
mod output;
#[cfg(feature = "daemon")]
mod pods;
#[cfg(feature = "daemon")]
mod progress;
#[cfg(feature = "daemon")]
mod reconcile;
#[cfg(feature = "daemon")]
mod render;
#[cfg(feature = "daemon")]
mod report;
#[cfg(feature = "daemon")]
mod repository;
#[cfg(feature = "daemon")]
mod run;
#[cfg(feature = "daemon")]
mod servers;
#[cfg(feature = "daemon")]
mod sim;
#[cfg(feature = "daemon")]
mod status;
#[cfg(feature = "daemon")]
mod suspend;
#[cfg(feature = "daemon")]
mod template;
#[cfg(feature = "daemon")]
mod validate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(feature = "daemon")]
use self::commands::block_on;

/// Keeps a Kyma landscape in the state that git repositories describe.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Agent(agent::Arguments),
    #[cfg(feature = "daemon")]
    #[command(flatten)]
    Other(commands::Command),
}

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Success: 0.
    Ok,
    /// There are differences, or a step of the demo failed: 1.
    Changes,
    /// The command cannot run with these arguments: 2.
    Usage,
    /// Definitions or templates are invalid: 3.
    Invalid,
    /// A policy is violated: 4.
    Policy,
    /// Work is left, or a cluster could not be reached: 5.
    Incomplete,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Changes => 1,
            Exit::Usage => 2,
            Exit::Invalid => 3,
            Exit::Policy => 4,
            Exit::Incomplete => 5,
        })
    }
}

/// Reads the arguments, runs the command, and prints an error on one line with its causes.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse_from(agent::normalised(std::env::args_os()));
    let result: anyhow::Result<Exit> = match arguments.command {
        Command::Agent(arguments) => agent::run(&arguments),
        #[cfg(feature = "daemon")]
        Command::Other(command) => command.run(),
    };
    match result.and_then(|exit| say::check().map(|()| exit)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            tell!("error: {error:#}");
            Exit::Usage.into()
        }
    }
}

#[cfg(test)]
mod tests;
