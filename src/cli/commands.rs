//! The commands beside the agent: the daemon, what works on a repository, and what asks and steers.

use anyhow::Context as _;
use clap::Subcommand;

use super::{Exit, crds, demo, diff, export, reconcile, render, run, sim, status, suspend, template, validate};

#[derive(Subcommand)]
pub(super) enum Command {
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

// === impl Command ===

impl Command {
    pub(super) fn run(self) -> anyhow::Result<Exit> {
        crate::template::confine(crate::confine::engine);
        match self {
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
        }
    }
}

/// Runs a command that waits for the outside, to its end.
pub(super) fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    runtime.block_on(command)
}
