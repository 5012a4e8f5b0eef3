//! The command line: one file per command.
//!
//! `demo` and `sim` come with the feature `lab`. A build without it is the product.

pub(crate) mod adopt;
mod completions;
mod control_plane;
mod crds;
mod diff;
mod examples;
mod export;
mod git;
mod judge;
mod modules;
mod oci;
mod output;
mod progress;
mod reconcile;
mod render;
mod report;
mod repository;
mod run;
mod status;
mod suspend;
mod template;
mod trailers;
mod trust;
mod validate;
mod version;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tidegate_agent::cli as agent;
use tidegate_process::{Exit, say, tell};

/// Keeps a Kyma landscape in the state that git repositories describe.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Adopt(adopt::Arguments),
    Agent(agent::Arguments),
    Completions(completions::Arguments),
    Crds(crds::Arguments),
    Diff(Box<diff::Arguments>),
    Export(export::Arguments),
    #[command(hide = true)]
    Git(git::Arguments),
    #[command(hide = true)]
    Oci(oci::Arguments),
    Man(completions::ManArguments),
    Reconcile(reconcile::Arguments),
    Render(render::Arguments),
    /// Resumes a suspended GitSource or Kyma, or the rollout of a module: `rollout/MODULE`.
    Resume(suspend::Arguments),
    Run(Box<run::Arguments>),
    Status(status::Arguments),
    /// Suspends a GitSource or Kyma, or the rollout of a module: `rollout/MODULE`. Tidegate stops reconciling it.
    Suspend(suspend::SuspendArguments),
    Template(template::Arguments),
    Validate(validate::Arguments),
    Version(version::Arguments),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(tidegate_bench::Command),
}

/// Reads the arguments, runs the command, and prints an error on one line with its causes.
pub fn main() -> ExitCode {
    let matches = command().get_matches_from(agent::normalised(std::env::args_os()));
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.command.run().and_then(|exit| say::check().map(|()| exit)) {
        Ok(exit) => exit.into(),
        Err(error) => {
            let (sentence, exit) = control_plane::conclude(&error);
            tell!("error: {sentence}");
            exit.into()
        }
    }
}

/// The commands, with examples in their help.
fn command() -> clap::Command {
    examples::add(Arguments::command())
}

// === impl Command ===

impl Command {
    fn run(self) -> anyhow::Result<Exit> {
        match self {
            Command::Adopt(arguments) => block_on(adopt::run(arguments)),
            Command::Agent(arguments) => agent::run(&arguments),
            Command::Completions(arguments) => completions::run(&arguments, command()),
            Command::Crds(arguments) => crds::run(&arguments),
            Command::Diff(arguments) => diff::run(&arguments),
            Command::Export(arguments) => block_on(export::run(arguments)),
            Command::Git(arguments) => git::run(&arguments),
            Command::Oci(arguments) => oci::run(&arguments),
            Command::Man(arguments) => completions::man(&arguments, command()),
            Command::Reconcile(arguments) => block_on(reconcile::run(arguments)),
            Command::Render(arguments) => render::run(&arguments),
            Command::Resume(arguments) => block_on(suspend::resume(arguments)),
            Command::Run(arguments) => run::run(&arguments),
            Command::Status(arguments) => block_on(status::run(arguments)),
            Command::Suspend(arguments) => block_on(suspend::suspend(arguments)),
            Command::Template(arguments) => template::run(&arguments),
            Command::Validate(arguments) => validate::run(&arguments),
            Command::Version(arguments) => version::run(&arguments),
            #[cfg(feature = "lab")]
            Command::Lab(command) => command.run(),
        }
    }
}

/// Runs an asynchronous command to its end.
fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    runtime.block_on(command)
}

#[cfg(test)]
mod tests;
