//! The last step of a comparison: no value of a Secret is left in a report, wherever it was copied to, and the lines
//! that differ are made from what is left.

use std::sync::Arc;

use super::{
    hunk,
    mask::{Masker, Numbers},
    model::Report,
};
use crate::{
    definition::{Definitions, Kind},
    diagnostic::Diagnostic,
};

/// Code of diagnostics that quote what a template was given.
const TEMPLATE: &str = "template";

/// Meets every Secret of some definitions, and what only looks like one's value: names and namespaces.
pub fn meet(masker: &mut Masker, sides: &[&Definitions]) {
    for side in sides {
        let of_kind = |kind: Kind| side.good.iter().filter(move |((found, _), _)| *found == kind);
        of_kind(Kind::ModuleTemplate).for_each(|(_, definition)| masker.meet(definition.object.value()));
        side.modules.values().flat_map(|module| &module.objects).for_each(|source| masker.meet(source.object.value()));
    }
    if masker.is_empty() {
        return;
    }
    for side in sides {
        for (_, key) in side.good.keys() {
            masker.is_name(key.namespace());
            masker.is_name(key.name());
        }
        for source in side.modules.values().flat_map(|module| &module.objects) {
            masker.is_name(source.object.namespace());
            masker.is_name(source.object.name());
        }
    }
}

/// Scrubs all of a report, makes digests numbers if `are_numbers`, and makes the hunks.
pub fn clean(report: &mut Report, masker: &Masker, are_numbers: bool) {
    let mut numbers = Numbers::default();
    for difference in &mut report.differences {
        for value in [&mut difference.old, &mut difference.new].into_iter().flatten() {
            let value = Arc::make_mut(value);
            masker.scrub_object(value);
            if are_numbers {
                numbers.put(value);
            }
        }
        difference.hunks = hunk::hunks(difference.old.as_deref(), difference.new.as_deref());
    }
    let mut text = |text: &mut String, is_foreign: bool| {
        let scrubbed = if is_foreign { Some(masker.scrub(text)) } else { masker.scrub_long(text) };
        if let Some(scrubbed) = scrubbed {
            *text = scrubbed;
        }
        if are_numbers {
            *text = numbers.text(text);
        }
    };
    for Diagnostic { code, message, hint, .. } in &mut report.diagnostics {
        text(message, *code == TEMPLATE);
        hint.iter_mut().for_each(|hint| text(hint, *code == TEMPLATE));
    }
    for held in &mut report.held {
        text(&mut held.message, false);
        held.hint.iter_mut().for_each(|hint| text(hint, false));
    }
    for unknown in &mut report.unknown {
        text(&mut unknown.value, false);
        text(&mut unknown.first.value, false);
    }
    report.unreached.iter_mut().for_each(|one| text(&mut one.message, true));
}
