//! Wishes that do not come about, told once for all runtimes that have them.

use super::{Comparison, Runtime, Seen};
use crate::{diagnostic::Place, diff::model::Why, plan::Refusal};

/// What is said, whoever it concerns.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldBy {
    pub(super) module: String,
    pub(super) why: Why,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

// === impl HeldBy ===

impl HeldBy {
    /// A module that the plan refuses.
    pub(super) fn refused(module: &str, refusal: &Refusal) -> HeldBy {
        HeldBy {
            module: module.to_owned(),
            why: if refusal.reason == crate::plan::reason::DOWNGRADE { Why::Downgrade } else { Why::Refused },
            message: refusal.message.clone(),
            hint: refusal.hint.clone(),
        }
    }

    /// A list of modules that has no effect.
    pub(super) fn decided_by_runtime() -> HeldBy {
        HeldBy {
            module: String::new(),
            why: Why::DecidedByRuntime,
            message:
                "the Kyma in the runtime decides on channel and modules, so this list has no effect once it is created"
                    .to_owned(),
            hint: Some("annotate the Kyma with `tidegate.dev/modules-from: git` to decide in git".to_owned()),
        }
    }

    /// A runtime that is left alone.
    pub(super) fn left_alone() -> HeldBy {
        HeldBy {
            module: String::new(),
            why: Why::Refused,
            message: format!(
                "the Kyma is left alone by its label {}, so nothing changes in its runtime",
                crate::api::names::label::SKIP_RECONCILIATION
            ),
            hint: Some("`tidegate resume` lets it go on".to_owned()),
        }
    }
}

impl Seen {
    /// Takes one more; `place` counts if it is the first.
    pub(super) fn hold(&mut self, by: HeldBy, runtimes: &[Runtime], place: impl FnOnce() -> Option<Place>) {
        self.held.entry(by).or_insert_with(|| (Vec::new(), place())).0.extend(runtimes);
    }
}

impl Comparison<'_> {
    /// Whether both sides refuse in the same words: then nothing changes.
    pub(super) fn refuse_alike(old: &Refusal, new: &Refusal) -> bool {
        (old.reason, &old.message) == (new.reason, &new.message)
    }
}
