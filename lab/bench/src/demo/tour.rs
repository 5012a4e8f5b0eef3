//! The tour: what a platform engineer does with git, and what happens in the clusters.
//!
//! Every claim is checked on the servers with the administrator's clients. The daemon's own words are only used if its
//! status is the claim. A step builds on those before it, so the first failure ends the tour.

mod kcp;
mod observe;
mod steps;

use std::{
    cell::OnceCell,
    path::Path,
    time::{Duration, Instant},
};

pub(super) use self::observe::SOURCE;
use tidegate_testbed::Repository;

use crate::registry::Registry;

use super::{
    daemon::Daemon,
    report::{self, Outcome, Row},
    world::World,
};

/// Longest time for one step. It takes a second or two; a machine that builds at the same time is slower.
const DEADLINE: Duration = Duration::from_secs(120);
/// How long to watch that something does not happen.
const QUIET: Duration = Duration::from_secs(5);
/// An agent of the demo sends every event twice, a second apart. After such a silence no earlier event is waiting.
const TOLD_AGAIN: Duration = Duration::from_secs(3);

/// One step of the tour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The repository reaches both runtimes.
    FirstSync,
    /// Nothing is written while nothing changes.
    Idle,
    /// An edit in a runtime is reported at once.
    Heard,
    /// A channel gets a new version.
    Bump,
    /// A change by hand in a runtime is undone.
    Drift,
    /// A broken definition is skipped, everything else is applied.
    Broken,
    /// `git revert` brings the old version back.
    RollBack,
    /// A suspended source changes nothing.
    Suspend,
    /// The daemon is killed in the middle of a rollout.
    Killed,
    /// A module is removed from a runtime with all its objects.
    ModuleRemoved,
    /// A module comes from an OCI registry.
    Registry,
    /// An upgrade waits for a maintenance window.
    Window,
    /// A kcp landscape in git, with the built-in CA.
    KcpLandscape,
    /// The removal of a Kyma waits for a confirmation.
    RemovalWaits,
}

/// What the steps work with.
pub(super) struct Tour<'a> {
    pub(super) world: &'a World,
    /// The Kymas, in the order of their runtimes.
    pub(super) kymas: &'a [String],
    pub(super) repository: &'a Repository,
    pub(super) daemon: &'a Daemon,
    /// The OCI registry of the daemon.
    pub(super) registry: &'a Registry,
    /// The file with the policy of maintenance windows.
    pub(super) policy: &'a Path,
    /// The administrator's kubeconfig of the KCP.
    pub(super) kubeconfig: &'a Path,
    /// The commit that bumped a channel, to be reverted later.
    pub(super) bumped: OnceCell<String>,
}

// === impl Step ===

impl Step {
    /// All, in their order.
    pub(super) const ALL: [Step; 14] = [
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
        Step::Registry,
        Step::Window,
        Step::KcpLandscape,
        Step::RemovalWaits,
    ];

    /// Its title, in the tour and in the table.
    pub(super) fn title(self) -> &'static str {
        match self {
            Step::FirstSync => "first rollout",
            Step::Idle => "no changes, no requests",
            Step::Heard => "an edit in a runtime is reported",
            Step::Bump => "a channel is bumped",
            Step::Drift => "drift is repaired",
            Step::Broken => "a broken commit is skipped",
            Step::RollBack => "rollback by git revert",
            Step::Suspend => "suspend and resume",
            Step::Killed => "kill -9 during a rollout",
            Step::ModuleRemoved => "a module is removed",
            Step::Registry => "a module from an OCI registry",
            Step::Window => "an upgrade waits for its window",
            Step::KcpLandscape => "a kcp landscape in git",
            Step::RemovalWaits => "a removal waits",
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
            if let Some(why) = self.left_out(step) {
                report::doing(&format!("left out: {why}"));
                rows.push(Row { step: step.title(), outcome: Outcome::LeftOut(why), took: Duration::ZERO });
                continue;
            }
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

    /// Why a step is left out; none if it is performed.
    fn left_out(&self, step: Step) -> Option<&'static str> {
        match (step, self.is_counted()) {
            (Step::Idle, false) => Some("requests to these clusters are not counted"),
            (Step::KcpLandscape, false) => Some("the pods of kcp need an etcd, which these clusters may not have"),
            (_, _) => None,
        }
    }

    /// Whether requests are counted and agents run: the demo has started the clusters itself.
    fn is_counted(&self) -> bool {
        self.world.own.is_some()
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
            Step::Registry => self.registered().await,
            Step::Window => self.in_window().await,
            Step::KcpLandscape => self.kcp_landscape().await,
            Step::RemovalWaits => self.removal_waits().await,
        }
    }
}
