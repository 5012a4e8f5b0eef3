//! The last steps of a comparison. First, rules check the objects, in which only Secrets are
//! masked. Then every copy of a Secret's value is removed from the report, and the changed lines
//! are computed.
//!
//! The order matters: the author of a Secret chooses its values, and must not thereby influence
//! what rules see.

use std::sync::Arc;

use serde_json::Value;

use super::{
    compare::leaves,
    hunk,
    mask::{Masker, Numbers},
    model::{Groups, Hunk, Line, Report},
    policy::{self, Approvals, FailOn, Kinds, Labels, Policies},
};
use tidegate_core::{
    definition::{Definitions, Kind},
    diagnostic::Diagnostic,
    object::{DisplayPath, PathPart},
};

/// A report that rules may still check, but that must not be shown: it contains copies of Secrets'
/// values.
pub struct Draft {
    report: Report,
    masker: Masker,
    /// Whether digests are replaced by numbers.
    numbers: bool,
}

/// Code of diagnostics that quote the context of a template.
const TEMPLATE: &str = "template";
/// Code of the error about an object that an API server rejects, which quotes it.
pub const REFUSED: &str = "object-refused";
/// The text for a field whose content must not be shown.
const HIDDEN: &str = "# differs only in copies of Secrets' values, which are not shown";
/// The fields of one object with that text.
const HIDDEN_MAX: usize = 100;

/// Registers every Secret of some definitions, and names and namespaces that only look like values.
pub fn meet(masker: &mut Masker, sides: &[&Definitions]) {
    for side in sides {
        let of_kind = |kind: Kind| side.good.iter().filter(move |((found, _), _)| *found == kind);
        of_kind(Kind::ModuleTemplate).for_each(|(_, definition)| masker.meet(definition.object.value()));
        side.modules
            .values()
            .flat_map(|module| module.objects())
            .for_each(|source| masker.meet(source.object().value()));
    }
    if masker.is_empty() {
        return;
    }
    for side in sides {
        for (_, key) in side.good.keys() {
            masker.is_name(key.namespace());
            masker.is_name(key.name());
        }
        for source in side.modules.values().flat_map(|module| module.objects()) {
            masker.is_name(&source.id().namespace);
            masker.is_name(&source.id().name);
        }
    }
}

/// Whether messages with this code quote texts that Tidegate did not write.
pub fn is_foreign(code: &str) -> bool {
    [TEMPLATE, REFUSED].contains(&code)
}

/// Scrubs the whole report, replaces digests by numbers if `are_numbers`, and computes the hunks.
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
        let is_foreign = is_foreign(code);
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
    report.groups.clean(|one| text(one, false));
    // They were in the order of digests, which differ in every run.
    report.findings.sort();
}

/// The differing fields that look equal after scrubbing.
fn hidden(old: &Value, new: &Value, masker: &Masker) -> Vec<String> {
    if masker.is_empty() {
        return Vec::new();
    }
    let shown = |value: Option<&Value>, path: &[PathPart]| {
        // The identity of an object is always shown.
        let is_kept = matches!(
            path,
            [PathPart::Key(one), PathPart::Key(field)]
                if one == "metadata" && matches!(field.as_str(), "name" | "namespace")
        );
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
    /// A draft with the masker of its values. `numbers` says whether digests are replaced by
    /// numbers, because the key differs in every run.
    pub fn new(report: Report, masker: Masker, numbers: bool) -> Draft {
        Draft { report, masker, numbers }
    }

    /// Adds warnings.
    pub fn warn(&mut self, warnings: &[Diagnostic]) {
        self.report.diagnostics.extend_from_slice(warnings);
        self.report.diagnostics.sort();
    }

    /// Checks the differences against rules, and groups runtimes by their labels. `kinds` are the known kinds, if
    /// available.
    pub fn judge(
        &mut self,
        fail_on: (&[FailOn], &Approvals),
        policies: &Policies,
        labels: &Labels,
        kinds: Option<&Kinds>,
    ) {
        policy::judge(&mut self.report, fail_on, policies, labels, &self.masker);
        self.report.groups = Groups::new(labels);
        if let Some(kinds) = kinds {
            policies.warn(&mut self.report, kinds);
        }
    }

    /// The report for output: scrubbed, with numbers instead of digests if these differ in every
    /// run, and with hunks.
    pub fn finish(mut self) -> Report {
        clean(&mut self.report, &self.masker, self.numbers);
        self.report
    }
}
