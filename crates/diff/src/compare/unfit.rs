//! Custom resources that a runtime rejects, because another of its modules defines their kind
//! differently. The daemon would apply them and fail; the comparison reports them in advance.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Comparison, Runtime, Seen,
    held::HeldBy,
    overlap::{Outcomes, content},
};
use tidegate_core::{
    content::ContentId, definition::Unfit, diagnostic::Diagnostic, name::Key, object::ObjectId, plan::ModuleOutcome,
};

use crate::{clean, model::Why, words::counted};

/// Rejected objects, by the module that contains them.
pub(super) type Refused = BTreeMap<String, BTreeSet<ObjectId>>;

impl Comparison<'_> {
    fn unfit(&self) -> &[Unfit] {
        &self.prepared.settled.definitions.unfit
    }

    /// Whether the result of a module depends on the other installed modules.
    pub(super) fn is_unfit(&self, module: &Key) -> bool {
        self.unfit().iter().any(|unfit| [&unfit.module, &unfit.definer_module].contains(&module))
    }

    /// Records what a runtime rejects and did not reject before. Returns everything that it
    /// rejects.
    pub(super) fn refused(
        &self,
        seen: &mut Seen,
        (key, runtime): (&Key, Runtime),
        (before, after): (&Outcomes, &Outcomes),
    ) -> Refused {
        let mut refused = Refused::new();
        for (index, unfit) in self.unfit().iter().enumerate() {
            let has = |content_of: &dyn Fn(&str) -> Option<ContentId>| {
                content_of(unfit.module.name()) == Some(unfit.content)
                    && content_of(unfit.definer_module.name()) == Some(unfit.definer)
            };
            let was = |name: &str| before.get(name).and_then(content);
            let is = |name: &str| match after.get(name) {
                // A rejected module that stays is unchanged.
                Some(ModuleOutcome::Refuse(refusal)) if refusal.keep => was(name),
                outcome => outcome.and_then(content),
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

    /// Reports the recorded rejections like an API server.
    pub(super) fn tell_refused(&self, seen: &mut Seen) {
        for (index, runtimes) in std::mem::take(&mut seen.refused) {
            let Some(unfit) = self.unfit().get(index) else { continue };
            let Unfit { module, message, definer_name, place, .. } = unfit;
            let hint = format!("correct it, or make sure that no runtime has it together with {definer_name}");
            let text = format!("{message}; {} with {definer_name} will reject it", counted(runtimes.len(), "runtime"));
            seen.diagnostics.push(Diagnostic::error(clean::REFUSED, text).hint(hint.as_str()).at(place.clone()));
            let by = HeldBy {
                module: module.name().to_owned(),
                why: Why::Refused,
                message: format!("{message}; {definer_name} defines the kind differently"),
                hint: Some(hint),
            };
            seen.hold(by, &runtimes, || Some(place.clone()));
        }
    }
}
