//! The command line: one file a command, and the exit codes that they share.

mod control_plane;
mod crds;
mod demo;
mod diff;
mod export;
mod judge;
mod output;
mod progress;
mod reconcile;
mod render;
mod report;
mod repository;
mod run;
mod sim;
mod status;
mod suspend;
mod template;
mod validate;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

/// Keeps a Kyma landscape in the state that git describes.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Crds(crds::Arguments),
    Diff(Box<diff::Arguments>),
    Export(export::Arguments),
    Reconcile(reconcile::Arguments),
    Render(render::Arguments),
    /// Lets a suspended GitSource or Kyma go on.
    Resume(suspend::Arguments),
    Run(Box<run::Arguments>),
    Sim(sim::Arguments),
    Status(status::Arguments),
    /// Stops all work on a GitSource or Kyma.
    Suspend(suspend::Arguments),
    Template(template::Arguments),
    Demo(demo::Arguments),
    Validate(validate::Arguments),
}

/// How a command ends, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All is well: 0.
    Ok,
    /// There are changes, or what was shown did not hold: 1.
    Changes,
    /// The command cannot be carried out as given: 2.
    Usage,
    /// Definitions or templates are invalid: 3.
    Invalid,
    /// A policy is violated: 4.
    Policy,
    /// Something is not done or could not be reached: 5.
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

/// Reads the arguments, runs the command, prints its error as one sentence with its causes.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    crate::template::confine(crate::confine::engine);
    let result: anyhow::Result<Exit> = match arguments.command {
        Command::Crds(arguments) => crds::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Export(arguments) => block_on(export::run(arguments)),
        Command::Reconcile(arguments) => block_on(reconcile::run(arguments)),
        Command::Render(arguments) => render::run(&arguments),
        Command::Resume(arguments) => block_on(suspend::run(arguments, suspend::Step::Resume)),
        Command::Run(arguments) => run::run(*arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Status(arguments) => block_on(status::run(arguments)),
        Command::Suspend(arguments) => block_on(suspend::run(arguments, suspend::Step::Suspend)),
        Command::Template(arguments) => template::run(&arguments),
        Command::Demo(arguments) => block_on(demo::run(arguments)),
        Command::Validate(arguments) => validate::run(&arguments),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            anstream::eprintln!("error: {error:#}");
            Exit::Usage.into()
        }
    }
}

/// Runs a command that waits for the outside, to its end.
fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    runtime.block_on(command)
}
