//! The last steps of a comparison: rules see objects as they are, save for Secrets; then no value of a Secret is left in
//! the report, wherever it was copied to, and the lines that differ are made from what is left.
//!
//! In this order: whoever writes a Secret chooses its values, and must not choose thereby what rules see.

use std::sync::Arc;

use serde_json::Value;

use super::{
    compare::leaves,
    hunk,
    mask::{Masker, Numbers},
    model::{Hunk, Line, Report},
    policy::{self, FailOn, Kinds, Labels, Policies},
};
use tidegate_core::{
    definition::{Definitions, Kind},
    diagnostic::Diagnostic,
    object::{DisplayPath, PathPart},
};

/// A report that may still be judged and must not be shown: copies of Secrets' values stand in it.
pub struct Draft {
    report: Report,
    masker: Masker,
    /// Whether digests become numbers.
    numbers: bool,
}

/// Code of diagnostics that quote what a template was given.
const TEMPLATE: &str = "template";
/// Code of the error about an object that an API server refuses, which quotes it.
pub const REFUSED: &str = "object-refused";
/// What is said of a field of which nothing can be shown.
const HIDDEN: &str = "# differs only within copies of values of Secrets, which are not shown";
/// Fields of one object of which that is said.
const HIDDEN_MAX: usize = 100;

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
fn clean(report: &mut Report, masker: &Masker, are_numbers: bool) {
    let mut numbers = Numbers::default();
    for difference in &mut report.differences {
        let hidden = match (&difference.old, &difference.new) {
            (Some(old), Some(new)) => hidden(old, new, masker),
            (_, None) | (None, _) => Vec::new(),
        };
        for value in [&mut difference.old, &mut difference.new].into_iter().flatten() {
            let value = Arc::make_mut(value);
            masker.scrub_object(value);
            if are_numbers {
                numbers.put(value);
            }
        }
        difference.hunks = hunk::hunks(difference.old.as_deref(), difference.new.as_deref());
        difference.hunks.extend(hidden.into_iter().map(|path| Hunk {
            path: if are_numbers { numbers.text(&path) } else { path },
            old_start: 0,
            new_start: 0,
            lines: vec![Line::Same(HIDDEN.to_owned())],
        }));
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
    for conflict in report.differences.iter_mut().flat_map(|difference| &mut difference.conflicts) {
        text(&mut conflict.field, false);
    }
    for Diagnostic { code, message, hint, .. } in &mut report.diagnostics {
        let is_foreign = [TEMPLATE, REFUSED].contains(code);
        text(message, is_foreign);
        hint.iter_mut().for_each(|hint| text(hint, is_foreign));
    }
    for held in &mut report.held {
        text(&mut held.message, false);
        held.hint.iter_mut().for_each(|hint| text(hint, false));
    }
    for unknown in &mut report.unknown {
        for one in [&mut unknown.value, &mut unknown.first.value, &mut unknown.first.path] {
            text(one, false);
        }
    }
    report.unreached.iter_mut().for_each(|one| text(&mut one.message, true));
    report.findings.iter_mut().for_each(|finding| text(&mut finding.message, false));
    // Their order was that of digests, which are others in every run.
    report.findings.sort();
}

/// The fields that differ and look equal once they are scrubbed.
fn hidden(old: &Value, new: &Value, masker: &Masker) -> Vec<String> {
    if masker.is_empty() {
        return Vec::new();
    }
    let shown = |value: Option<&Value>, path: &[PathPart]| {
        // What identifies an object is shown as it is.
        let is_kept = matches!(path, [PathPart::Key(one), PathPart::Key(field)] if one == "metadata" && matches!(field.as_str(), "name" | "namespace"));
        value.map(|value| if is_kept { value.clone() } else { masker.scrubbed(value) })
    };
    let leaves = leaves(old, new).into_iter();
    let hidden = leaves.filter(|leaf| shown(leaf.old, &leaf.path) == shown(leaf.new, &leaf.path));
    let path = |path: &[PathPart]| {
        let path = DisplayPath(path).to_string();
        masker.scrub_long(&path).unwrap_or(path)
    };
    hidden.take(HIDDEN_MAX).map(|leaf| path(&leaf.path)).collect()
}

// === impl Draft ===

impl Draft {
    /// With what hides the values; `numbers` says whether digests become numbers, since the key is another one in every
    /// run.
    pub fn new(report: Report, masker: Masker, numbers: bool) -> Draft {
        Draft { report, masker, numbers }
    }

    /// Holds what differs against rules. `kinds` are those that there may be, if anybody knows.
    pub fn judge(&mut self, fail_on: &[FailOn], policies: &Policies, labels: &Labels, kinds: Option<&Kinds>) {
        policy::judge(&mut self.report, fail_on, policies, labels, &self.masker);
        if let Some(kinds) = kinds {
            policies.warn(&mut self.report, kinds);
        }
    }

    /// What may be shown: scrubbed, with numbers for digests if these are others in every run, and with hunks.
    pub fn finish(mut self) -> Report {
        clean(&mut self.report, &self.masker, self.numbers);
        self.report
    }
}
