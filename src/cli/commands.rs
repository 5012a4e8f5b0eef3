//! The commands other than the agent: the daemon, the commands that read a repository, and those that control a daemon.

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
    /// Resumes a suspended GitSource or Kyma.
    Resume(suspend::Arguments),
    Run(Box<run::Arguments>),
    Sim(sim::Arguments),
    Status(status::Arguments),
    /// Suspends a GitSource or Kyma: Tidegate stops reconciling it.
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

/// Runs an asynchronous command to its end.
pub(super) fn block_on(command: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start the asynchronous runtime")?;
    runtime.block_on(command)
}
