//! Changes that do not take effect, grouped for all runtimes that have them.

use super::{Comparison, Runtime, Seen};
use tidegate_core::{
    api::ModuleReleaseMeta,
    definition::Definition,
    diagnostic::FilePosition,
    object::ObjectId,
    plan::{Refusal, Wait},
};

use crate::model::{Held, Why};

/// The content, independent of the affected runtimes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HeldBy {
    pub(super) module: String,
    pub(super) why: Why,
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

// === impl HeldBy ===

impl HeldBy {
    /// A module that the plan rejects.
    pub(super) fn refused(module: &str, refusal: &Refusal) -> HeldBy {
        HeldBy {
            module: module.to_owned(),
            why: if refusal.reason == tidegate_core::plan::reason::DOWNGRADE { Why::Downgrade } else { Why::Refused },
            message: refusal.message.clone(),
            hint: refusal.hint.clone(),
        }
    }

    /// An upgrade that reaches the runtime in its turn; none if all runtimes get it at once.
    pub(super) fn spreads(module: &str, from: &str, to: &str, release: &ModuleReleaseMeta) -> Option<HeldBy> {
        let Held { why, module, message, hint, .. } = Held::rollout(module, from, to, release)?;
        Some(HeldBy { module, why, message, hint })
    }

    /// An upgrade that waits for a maintenance window.
    pub(super) fn waits(module: &str, wait: &Wait) -> HeldBy {
        let Held { why, module, message, hint, .. } = Held::waiting(module, wait);
        HeldBy { module, why, message, hint }
    }

    /// A module list that has no effect.
    pub(super) fn decided_by_runtime() -> HeldBy {
        HeldBy {
            module: String::new(),
            why: Why::DecidedByRuntime,
            message:
                "the Kyma in the runtime selects channel and modules, so this list has no effect after its creation"
                    .to_owned(),
            hint: Some("annotate the Kyma with `tidegate.dev/modules-from: git` to select modules in git".to_owned()),
        }
    }

    /// A suspended runtime, and the definition of its Kyma.
    pub(super) fn suspended(definition: Option<&Definition>) -> HeldBy {
        let Held { why, module, message, hint, .. } = Held::runtime_suspended(definition);
        HeldBy { module, why, message, hint }
    }

    /// A module whose Manifest is paused.
    pub(super) fn paused(module: &str) -> HeldBy {
        let Held { why, module, message, hint, .. } = Held::manifest_paused(module, None);
        HeldBy { module, why, message, hint }
    }

    /// Objects that a module no longer contains, while the API server refuses a change of another one.
    pub(super) fn prunes(module: &str, refused: &ObjectId) -> HeldBy {
        HeldBy {
            module: module.to_owned(),
            why: Why::Refused,
            message: format!(
                "the change of {refused} is refused: until this is resolved, Tidegate prunes nothing of {module}"
            ),
            hint: None,
        }
    }

    /// What the API server keeps although a module no longer sets it.
    pub(super) fn assigned(module: &str, id: &ObjectId, field: &str) -> HeldBy {
        let Held { why, module, message, hint, .. } = Held::assigned(module, id, field);
        HeldBy { module, why, message, hint }
    }

    /// An object that would move to another module, and that the one that has it does not delete.
    pub(super) fn stays(module: &str, id: &ObjectId) -> HeldBy {
        let Held { why, module, message, hint, .. } = Held::stays_with(module, id);
        HeldBy { module, why, message, hint }
    }

    /// An object of another module that becomes unmanaged.
    pub(super) fn left_to_the_user(module: &str, id: &ObjectId, other: &str) -> HeldBy {
        HeldBy {
            module: module.to_owned(),
            why: Why::Conflict,
            message: format!(
                "{id} exists and belongs to module {other}, which becomes unmanaged: until this is resolved, it is not \
                 applied, and nothing of {module} is pruned"
            ),
            hint: Some(format!(
                "remove it, or annotate it in the module with `{}: \"true\"`",
                tidegate_core::api::names::annotation::ADOPT
            )),
        }
    }

    /// An object that another module owns.
    pub(super) fn conflict(module: &str, id: &ObjectId, other: &str) -> HeldBy {
        HeldBy {
            module: module.to_owned(),
            why: Why::Conflict,
            message: format!(
                "{id} belongs to module {other}: until this is resolved, it is not applied, and nothing of \
                 {module} is pruned"
            ),
            hint: Some(
                "remove it from one of the two modules, or confirm its removal from the other one if that waits"
                    .to_owned(),
            ),
        }
    }
}

impl Seen {
    /// Adds a runtime. The first one determines `place`.
    pub(super) fn hold(&mut self, by: HeldBy, runtimes: &[Runtime], place: impl FnOnce() -> Option<FilePosition>) {
        self.held.entry(by).or_insert_with(|| (Vec::new(), place())).0.extend(runtimes);
    }
}

impl Comparison<'_> {
    /// Whether both sides reject with the same message: then nothing changes.
    pub(super) fn refuse_alike(old: &Refusal, new: &Refusal) -> bool {
        (old.reason, &old.message) == (new.reason, &new.message)
    }
}
