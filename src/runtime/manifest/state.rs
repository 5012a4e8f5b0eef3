//! What a process knows of a Manifest between passes. Pure: times are passed in.

use std::{collections::BTreeSet, time::Duration};

use tidegate_core::{
    api::Manifest,
    object::{Digest, ObjectId},
    render::CompleteModule,
};
use tidegate_process::retry::{self, Class};
use tokio::time::Instant;

use crate::runtime::objects::Applied;

/// What a process knows of one Manifest between passes.
#[derive(Debug, Default)]
pub(crate) struct KnownManifest {
    /// Which Manifest: one that is made anew has the name of the former, and nothing else of it.
    uid: Option<String>,
    /// What is applied in its runtime; none if only its status says so.
    pub(super) installed: Option<InstalledObjects>,
    /// Whether the last passes ended well, and when the next one tries again.
    pub(super) retry: Retry,
    /// What the last pass has done to the status.
    pub(super) status: StatusWrite,
}

/// The objects of one Manifest in its runtime, as the last pass left them.
#[derive(Debug)]
pub(super) struct InstalledObjects {
    /// All that the Manifest wants; what is not among them is pruned.
    pub(super) module: CompleteModule,
    /// What is known of each of them.
    pub(super) applied: Applied,
    /// Those that have left the module and stay: nobody asks for them again before a look for drift does.
    pub(super) kept: BTreeSet<ObjectId>,
}

/// Whether the last passes ended well, and when the next one tries again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Retry {
    /// The last pass ended well, or there was none.
    #[default]
    Settled,
    /// The last passes did not.
    Failing {
        /// How many in a row, from 1.
        attempt: u32,
        /// What need not be tried again for a while; none if nothing was tried.
        rest: Option<Rest>,
    },
}

/// What need not be tried again for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Digest of what was tried.
    desired: Digest,
    /// By a clock that nobody sets: a wait must not become one of hours.
    until: Instant,
}

/// What a pass has done to the status of its Manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StatusWrite {
    /// It has not tried to write it.
    #[default]
    NotBegun,
    /// It has. If the pass failed, what the status says now is not known.
    Begun,
}

/// First look at a workload that is not ready yet.
const READINESS_LOOK_MIN: Duration = Duration::from_millis(250);
/// First look for the end of an object that is being deleted.
const REMOVAL_LOOK_MIN: Duration = Duration::from_millis(250);
/// How often what only a change can help is tried all the same: somebody may have mended it in the runtime.
const RETRY_STALLED: Duration = Duration::from_secs(300);

// === impl KnownManifest ===

impl KnownManifest {
    /// What is known of this very Manifest.
    pub(crate) fn shown(self, manifest: &Manifest) -> KnownManifest {
        let uid = manifest.metadata.uid.clone();
        if self.uid == uid { self } else { KnownManifest { uid, ..KnownManifest::default() } }
    }

    /// Whether the pass that failed may have written the status.
    pub(crate) fn leaves_doubt(&self) -> bool {
        match self.status {
            StatusWrite::NotBegun => false,
            StatusWrite::Begun => true,
        }
    }
}

// === impl InstalledObjects ===

impl InstalledObjects {
    /// What is known before a pass that wants `module`: see [`Applied::before`].
    pub(super) fn before(
        module: &CompleteModule,
        former: Option<InstalledObjects>,
        recorded: Option<&str>,
        desired: &Digest,
    ) -> InstalledObjects {
        let (applied, kept) = former.map(|former| (former.applied, former.kept)).unzip();
        InstalledObjects {
            module: module.clone(),
            applied: Applied::before(module.objects(), applied, recorded, desired),
            kept: kept.unwrap_or_default(),
        }
    }
}

// === impl Retry ===

impl Retry {
    /// How long to wait before trying again what failed; none if that is over, or if `desired` is something else.
    pub(super) fn rest(&self, desired: &Digest, now: Instant) -> Option<Duration> {
        let Retry::Failing { rest: Some(rest), .. } = self else { return None };
        let left = rest.until.saturating_duration_since(now);
        (rest.desired == *desired && !left.is_zero()).then_some(left)
    }

    /// After a pass that tried `desired`: `class` is what can help, or nothing if the pass ended well.
    /// Returns when to try again.
    pub(super) fn after(self, class: Option<Class>, desired: Digest, now: Instant) -> (Retry, Option<Duration>) {
        let Some(class) = class else { return (Retry::Settled, None) };
        let attempt = self.next_attempt();
        let delay = match class {
            // Workloads are mostly ready within a second; the looks slow down while they are not.
            Class::Waiting => retry::backoff(READINESS_LOOK_MIN, retry::DEPENDENCY_POLL_MAX, attempt),
            Class::Stalled | Class::Transient => retry::delay(class, attempt, RETRY_STALLED),
        };
        (Retry::Failing { attempt, rest: Some(Rest { desired, until: now + delay }) }, Some(delay))
    }

    /// After a pass that could not read the objects, and so tried nothing.
    pub(super) fn after_unavailable(self) -> (Retry, Duration) {
        let attempt = self.next_attempt();
        (self.counted(attempt), retry::delay(Class::Transient, attempt, RETRY_STALLED))
    }

    /// After a pass that found something left that shall be gone.
    pub(super) fn after_removal(self) -> (Retry, Duration) {
        let attempt = self.next_attempt();
        (self.counted(attempt), retry::backoff(REMOVAL_LOOK_MIN, retry::DEPENDENCY_POLL_MAX, attempt))
    }

    fn next_attempt(&self) -> u32 {
        match self {
            Retry::Settled => 1,
            Retry::Failing { attempt, .. } => attempt.saturating_add(1),
        }
    }

    /// What was tried before still rests.
    fn counted(self, attempt: u32) -> Retry {
        match self {
            Retry::Settled => Retry::Failing { attempt, rest: None },
            Retry::Failing { rest, .. } => Retry::Failing { attempt, rest },
        }
    }
}

#[cfg(test)]
mod tests;
