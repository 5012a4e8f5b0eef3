//! The tour: what a platform engineer does with git, and what then is so in the clusters.
//!
//! Every claim is checked on the servers, by the administrators' clients and not by what the daemon says, except
//! where its status is what is claimed. A step builds on those before it, so the first that fails ends the tour.

mod steps;
mod watch;

use std::{
    cell::OnceCell,
    time::{Duration, Instant},
};

pub(super) use self::watch::SOURCE;
use tidegate_testbed::Repository;

use super::{
    daemon::Daemon,
    report::{self, Outcome, Row},
    world::World,
};

/// How long a step may take to come about. It takes a second or two; a machine that builds at the same time is slower.
const DEADLINE: Duration = Duration::from_secs(120);
/// For how long what must not happen does not happen.
const QUIET: Duration = Duration::from_secs(5);
/// An agent of the demo tells everything twice, a second apart: after such a silence nothing is left of what was told
/// before.
const TOLD_AGAIN: Duration = Duration::from_secs(3);

/// One thing that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The repository reaches both runtimes.
    FirstSync,
    /// Nothing is written while nothing changes.
    Idle,
    /// An edit in a runtime is heard of at once.
    Heard,
    /// A channel gets a new version.
    Bump,
    /// What is changed by hand in a runtime comes back.
    Drift,
    /// A broken definition is withheld, the rest goes on.
    Broken,
    /// `git revert` brings the old version back.
    RollBack,
    /// A suspended source changes nothing.
    Suspend,
    /// The daemon is killed in the middle of a roll out.
    Killed,
    /// A module leaves a runtime with all that it brought.
    ModuleRemoved,
    /// A Kyma is deleted, after somebody confirmed it.
    KymaDeleted,
}

/// What the steps work with.
pub(super) struct Tour<'a> {
    pub(super) world: &'a World,
    /// The Kymas, in the order of their runtimes.
    pub(super) kymas: &'a [String],
    pub(super) repository: &'a Repository,
    pub(super) daemon: &'a Daemon,
    /// The commit that bumped a channel, to be reverted later.
    pub(super) bumped: OnceCell<String>,
}

// === impl Step ===

impl Step {
    /// All, in their order.
    pub(super) const ALL: [Step; 11] = [
        Step::FirstSync,
        Step::Idle,
        Step::Heard,
        Step::Bump,
        Step::Drift,
        Step::Broken,
        Step::RollBack,
        Step::Suspend,
        Step::Killed,
        Step::ModuleRemoved,
        Step::KymaDeleted,
    ];

    /// Its title, in the tour and in the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Step::FirstSync => "first sync",
            Step::Idle => "nothing to do, nothing done",
            Step::Heard => "an edit in a runtime is heard of",
            Step::Bump => "a channel is bumped",
            Step::Drift => "drift is repaired",
            Step::Broken => "a broken commit is withheld",
            Step::RollBack => "roll back by git revert",
            Step::Suspend => "suspend and resume",
            Step::Killed => "kill -9 in mid roll out",
            Step::ModuleRemoved => "a module is removed",
            Step::KymaDeleted => "a Kyma is deleted",
        }
    }
}

// === impl Tour ===

impl Tour<'_> {
    /// Performs all steps and returns the table's rows.
    pub(super) async fn perform(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut failed = false;
        for (index, step) in Step::ALL.into_iter().enumerate() {
            if failed {
                rows.push(Row { step: step.title(), outcome: Outcome::NotReached, took: Duration::ZERO });
                continue;
            }
            report::heading(index + 1, step.title());
            let start = Instant::now();
            let outcome = match self.show(step).await {
                Ok(seen) => Outcome::Held(seen),
                Err(error) => {
                    failed = true;
                    Outcome::Failed(format!("{error:#}"))
                }
            };
            rows.push(Row { step: step.title(), outcome, took: start.elapsed() });
        }
        rows
    }

    async fn show(&self, step: Step) -> anyhow::Result<String> {
        match step {
            Step::FirstSync => self.first_sync().await,
            Step::Idle => self.idle().await,
            Step::Heard => self.heard().await,
            Step::Bump => self.bump().await,
            Step::Drift => self.drift().await,
            Step::Broken => self.broken().await,
            Step::RollBack => self.roll_back().await,
            Step::Suspend => self.suspend().await,
            Step::Killed => self.killed().await,
            Step::ModuleRemoved => self.module_removed().await,
            Step::KymaDeleted => self.kyma_deleted().await,
        }
    }
}
