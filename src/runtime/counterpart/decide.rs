//! What a pass does about the Kyma in a runtime. Pure. [`tidegate_core::counterpart`] decides what it writes.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use tidegate_core::{
    api::{Kyma, kyma::KymaStatus, names::SKR_NAMESPACE, shared::Time},
    conditions,
    counterpart::{self, Write},
    object::Object,
};
use tidegate_process::retry;

use super::state::KnownCounterpart;
use crate::controller::events::reason;

/// How far a pass is.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// The pass has done nothing yet.
    Begun,
    /// The desired Kyma is rendered.
    Rendered(Object),
    /// The Kyma was written.
    Written(CounterpartReport),
    /// The Kyma was read after the write.
    Read(CounterpartReport),
}

/// The next step of a pass.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Renders the desired Kyma.
    Render,
    /// Creates the Kyma.
    Create(Box<Object>),
    /// Writes what differs.
    Merge {
        /// The fields that differ.
        patch: Value,
        /// The edits of users that this reverts.
        reverted: Vec<String>,
    },
    /// Reads the Kyma as it is after the write.
    Read(CounterpartReport),
    /// Ends the pass.
    End(CounterpartReport),
}

/// The Kyma in the runtime after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::runtime) enum CounterpartReport {
    /// It was as desired.
    Current,
    /// This pass created it.
    Created,
    /// This pass wrote what differed.
    Merged {
        /// The edits of users that were reverted.
        reverted: Vec<String>,
    },
    /// It is being deleted, and is created again once it is gone. Nothing reports that.
    AwaitsEnd,
    /// It cannot be read, so it stays as it is.
    Unreadable,
}

/// How often a Kyma in a runtime that cannot be read is read again. Its user may have corrected it.
const UNREADABLE_RETRY: Duration = Duration::from_secs(60);

/// The next step of a pass over a runtime with this Kyma in KCP.
pub(super) fn next(known: &KnownCounterpart, kyma: &Kyma, progress: Progress) -> Step {
    match progress {
        Progress::Begun => start(known),
        Progress::Rendered(desired) => match counterpart::write(&desired, kyma, known.live().map(|live| &**live)) {
            Write::Nothing => Step::End(CounterpartReport::Current),
            Write::Create(object) => Step::Create(object),
            Write::Merge { patch, reverted: differences } => {
                Step::Merge { patch, reverted: reverted(known, differences) }
            }
        },
        Progress::Written(report) => Step::Read(report),
        Progress::Read(report) => Step::End(report),
    }
}

fn start(known: &KnownCounterpart) -> Step {
    match known {
        KnownCounterpart::Unreadable { .. } => Step::End(CounterpartReport::Unreadable),
        KnownCounterpart::Readable(live) if live.kyma.metadata.deletion_timestamp.is_some() => {
            Step::End(CounterpartReport::AwaitsEnd)
        }
        KnownCounterpart::Readable(_) | KnownCounterpart::Absent => Step::Render,
    }
}

/// Whether the Kyma in the runtime must be read before the plan.
pub(super) fn must_read(known: &KnownCounterpart, has_changed: bool) -> bool {
    match known {
        KnownCounterpart::Absent | KnownCounterpart::Unreadable { .. } => true,
        KnownCounterpart::Readable(_) => has_changed,
    }
}

/// The `differences` that users made. If the Kyma is still as an earlier pass left it, the Kyma in KCP has changed
/// instead.
fn reverted(known: &KnownCounterpart, differences: Vec<String>) -> Vec<String> {
    match known {
        KnownCounterpart::Readable(live) if live.left.as_ref() == Some(&live.kyma.spec) => Vec::new(),
        KnownCounterpart::Readable(_) | KnownCounterpart::Absent | KnownCounterpart::Unreadable { .. } => differences,
    }
}

/// The status to copy to the Kyma in the runtime; none if it is the same but for its times, or the Kyma does not exist.
/// Other times alone mean that the status in KCP was lost, or said something else that the runtime never showed.
pub(super) fn to_show(known: &KnownCounterpart, status: &KymaStatus) -> Option<KymaStatus> {
    let live = match known {
        KnownCounterpart::Readable(live) => live,
        KnownCounterpart::Absent | KnownCounterpart::Unreadable { .. } => return None,
    };
    let copy = copy(status);
    (live.kyma.status.as_ref().map(timeless) != Some(timeless(&copy))).then_some(copy)
}

/// A status without its times.
fn timeless(status: &KymaStatus) -> KymaStatus {
    let mut status = status.clone();
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    if let Some(operation) = &mut status.last_operation {
        operation.last_update_time = None;
    }
    status
}

/// The status for users of the runtime: it refers only to objects that they can see.
fn copy(status: &KymaStatus) -> KymaStatus {
    let mut shown = status.clone();
    shown.conditions.retain(|condition| {
        ![conditions::APPLIED, conditions::WATCH_APPLIED, conditions::RECONCILE_REQUESTED, conditions::REGISTRY]
            .contains(&condition.type_.as_str())
    });
    for module in &mut shown.modules {
        module.manifest = None;
        if let Some(template) = &mut module.template {
            SKR_NAMESPACE.clone_into(&mut template.metadata.namespace);
        }
    }
    shown
}

// === impl CounterpartReport ===

impl CounterpartReport {
    /// The edits of users that were reverted.
    pub(in crate::runtime) fn reverted(&self) -> &[String] {
        match self {
            CounterpartReport::Merged { reverted } => reverted,
            CounterpartReport::Current
            | CounterpartReport::Created
            | CounterpartReport::AwaitsEnd
            | CounterpartReport::Unreadable => &[],
        }
    }

    /// When to try again.
    pub(in crate::runtime) fn again(&self) -> Option<Duration> {
        match self {
            CounterpartReport::AwaitsEnd => Some(retry::DEPENDENCY_POLL),
            CounterpartReport::Unreadable => Some(UNREADABLE_RETRY),
            CounterpartReport::Current | CounterpartReport::Created | CounterpartReport::Merged { .. } => None,
        }
    }

    /// Reason, action and note of the Event about it, if users need one.
    pub(super) fn event(&self) -> Option<(&'static str, &'static str, String)> {
        match self {
            CounterpartReport::Created => {
                Some((reason::REMOTE_INSTALLATION, "Install", "created the Kyma in the runtime".to_owned()))
            }
            CounterpartReport::Merged { reverted } if !reverted.is_empty() => {
                let note = format!("reverted edits in the runtime: {}", reverted.join(", "));
                Some((reason::METADATA_SYNCHRONIZATION, "Revert", note))
            }
            CounterpartReport::Merged { .. }
            | CounterpartReport::Current
            | CounterpartReport::AwaitsEnd
            | CounterpartReport::Unreadable => None,
        }
    }
}

#[cfg(test)]
mod tests;
