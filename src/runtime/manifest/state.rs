//! What a process knows of a Manifest between passes. Pure.

use std::{collections::BTreeSet, time::Duration};

use tidegate_core::{
    api::Manifest,
    object::{Digest, ObjectId},
    render::CompleteModule,
    status::WaitFact,
};
use tidegate_process::retry::{self, Class};
use tokio::time::Instant;

use crate::runtime::objects::{Applied, Repairs};

/// What a process knows of one Manifest between passes.
#[derive(Debug, Default)]
pub(crate) struct KnownManifest {
    /// UID of the Manifest. A new Manifest can have the name of a former one.
    uid: Option<String>,
    /// The objects as last applied; none if only its status tells.
    pub(super) installed: Option<InstalledObjects>,
    /// Whether the last passes failed, and when to try again.
    pub(super) retry: Retry,
    /// The objects that others undo.
    pub(super) repairs: Repairs,
    /// Whether the last pass has written the status.
    pub(super) status: StatusWrite,
    /// The custom resources of users that hold its removal.
    pub(super) holding: WaitFact,
}

/// The objects of one Manifest in its runtime, as the last pass left them.
#[derive(Debug)]
pub(super) struct InstalledObjects {
    /// All that the Manifest wants. Anything else is pruned.
    pub(super) module: CompleteModule,
    /// What is known of each of its objects.
    pub(super) applied: Applied,
    /// Objects that are no longer part of the module but stay. Only a check of all objects reads them again.
    pub(super) kept: BTreeSet<ObjectId>,
}

/// Whether the last passes failed, and when to try again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Retry {
    /// The last pass succeeded, or there was none.
    #[default]
    Settled,
    /// The last passes failed.
    Failing {
        /// Failures in a row, from 1.
        attempt: u32,
        /// What rests; none if nothing was applied.
        rest: Option<Rest>,
    },
}

/// A failed apply that is not retried for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// Digest of the objects.
    desired: Digest,
    /// By a monotonic clock, so that a clock change cannot extend the rest.
    until: Instant,
}

/// Whether a pass has written the status of its Manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum StatusWrite {
    /// It has not sent a write.
    #[default]
    NotBegun,
    /// It has sent a write. If the pass failed, the status is unknown.
    Begun,
}

/// The first delay before a workload that is not ready is checked again.
const READINESS_LOOK_MIN: Duration = Duration::from_millis(250);
/// The first delay before an object that is being deleted is checked again.
const REMOVAL_LOOK_MIN: Duration = Duration::from_millis(250);
/// How often a stalled pass is retried. A user may have fixed the problem in the runtime.
const RETRY_STALLED: Duration = Duration::from_secs(300);

// === impl KnownManifest ===

impl KnownManifest {
    /// The knowledge, if it is about this very Manifest.
    pub(crate) fn shown(self, manifest: &Manifest) -> KnownManifest {
        let uid = manifest.metadata.uid.clone();
        if self.uid == uid { self } else { KnownManifest { uid, ..KnownManifest::default() } }
    }

    /// Whether a failed pass may have written the status.
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
    /// How long the failed apply still rests; none if it does not, or if `desired` is another one.
    pub(super) fn rest(&self, desired: &Digest, now: Instant) -> Option<Duration> {
        let Retry::Failing { rest: Some(rest), .. } = self else { return None };
        let left = rest.until.saturating_duration_since(now);
        (rest.desired == *desired && !left.is_zero()).then_some(left)
    }

    /// After a pass that applied `desired`. `class` is what resolves its failure; none if it succeeded. Returns when to
    /// try again.
    pub(super) fn after(self, class: Option<Class>, desired: Digest, now: Instant) -> (Retry, Option<Duration>) {
        let Some(class) = class else { return (Retry::Settled, None) };
        let attempt = self.next_attempt();
        let delay = match class {
            // Most workloads are ready within a second. The checks slow down while they are not.
            Class::Waiting => retry::backoff(READINESS_LOOK_MIN, retry::DEPENDENCY_POLL_MAX, attempt),
            Class::Stalled | Class::Transient => retry::delay(class, attempt, RETRY_STALLED),
        };
        (Retry::Failing { attempt, rest: Some(Rest { desired, until: now + delay }) }, Some(delay))
    }

    /// After a pass that could not read the objects. Returns when to try again.
    pub(super) fn after_unavailable(self) -> (Retry, Duration) {
        let attempt = self.next_attempt();
        (self.counted(attempt), retry::delay(Class::Transient, attempt, RETRY_STALLED))
    }

    /// After a pass that waits for deletions. Returns when to check again.
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

    /// The same rest with another number of failures.
    fn counted(self, attempt: u32) -> Retry {
        match self {
            Retry::Settled => Retry::Failing { attempt, rest: None },
            Retry::Failing { rest, .. } => Retry::Failing { attempt, rest },
        }
    }
}

#[cfg(test)]
mod tests;
