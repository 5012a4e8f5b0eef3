//! Custom resources that a runtime refuses, since another of its modules is installed in a version that defines their kind
//! otherwise. The daemon sends them and is told so; here it is said before.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Comparison, Runtime, Seen,
    held::HeldBy,
    overlap::{Outcomes, tree},
};
use tidegate_core::{
    definition::Unfit, diagnostic::Diagnostic, name::Key, object::ObjectId, plan::ModuleOutcome, revision::Oid,
};

use crate::{clean, model::Why, words::counted};

/// Objects that are refused, by the module that brings them.
pub(super) type Refused = BTreeMap<String, BTreeSet<ObjectId>>;

impl Comparison<'_> {
    fn unfit(&self) -> &[Unfit] {
        &self.prepared.settled.definitions.unfit
    }

    /// Whether what becomes of a module depends on which others are installed.
    pub(super) fn is_unfit(&self, module: &Key) -> bool {
        self.unfit().iter().any(|unfit| [&unfit.module, &unfit.definer_module].contains(&module))
    }

    /// Notes what a runtime refuses and did not before. Returns all that it refuses.
    pub(super) fn refused(
        &self,
        seen: &mut Seen,
        (key, runtime): (&Key, Runtime),
        (before, after): (&Outcomes, &Outcomes),
    ) -> Refused {
        let mut refused = Refused::new();
        for (index, unfit) in self.unfit().iter().enumerate() {
            let has = |tree_of: &dyn Fn(&str) -> Option<Oid>| {
                tree_of(unfit.module.name()) == Some(unfit.tree)
                    && tree_of(unfit.definer_module.name()) == Some(unfit.definer)
            };
            let was = |name: &str| before.get(name).and_then(tree);
            let is = |name: &str| match after.get(name) {
                // What is refused and kept stands as it did.
                Some(ModuleOutcome::Refuse(refusal)) if refusal.keep => was(name),
                outcome => outcome.and_then(tree),
            };
            if unfit.module.namespace() != key.namespace() || !has(&is) {
                continue;
            }
            refused.entry(unfit.module.name().to_owned()).or_default().insert(unfit.object.clone());
            if !has(&was) {
                seen.refused.entry(index).or_default().push(runtime);
            }
        }
        refused
    }

    /// Says what was noted, as an API server would.
    pub(super) fn tell_refused(&self, seen: &mut Seen) {
        for (index, runtimes) in std::mem::take(&mut seen.refused) {
            let Some(unfit) = self.unfit().get(index) else { continue };
            let Unfit { module, message, definer_name, place, .. } = unfit;
            let hint = format!("mend it, or see to it that no runtime has it together with {definer_name}");
            let text = format!("{message}; {} with {definer_name} will refuse it", counted(runtimes.len(), "runtime"));
            seen.diagnostics.push(Diagnostic::error(clean::REFUSED, text).hint(hint.as_str()).at(place.clone()));
            let by = HeldBy {
                module: module.name().to_owned(),
                why: Why::Refused,
                message: format!("{message}; {definer_name} defines the kind otherwise"),
                hint: Some(hint),
            };
            seen.hold(by, &runtimes, || Some(place.clone()));
        }
    }
}
