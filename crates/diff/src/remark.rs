//! Remarks about lines: the common model of annotations for all platforms.

use std::collections::BTreeMap;

use super::{
    model::{Action, Difference, Report, Why},
    words::{self, counted},
};
use tidegate_core::{
    diagnostic::{Diagnostic, FilePosition, Severity},
    object::Digest,
};

/// The severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Level {
    Error,
    Warning,
    Note,
}

/// One remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) level: Level,
    /// The code: that of a diagnostic, `diff/delete`, `held/downgrade`, `policy/…`, `not-reached`,
    /// `not-known`.
    pub(super) code: String,
    /// One sentence, and what to do next.
    pub(super) message: String,
    /// The line, with a path relative to the root of the checkout.
    pub(super) place: Option<FilePosition>,
    /// A stable id of the remark across runs. It contains no line number, which changes with any
    /// edit above.
    pub(super) fingerprint: String,
}

/// All remarks of a report, the most severe first, with one remark per difference.
///
/// `below` is the folder in the checkout that the report's paths are relative to.
pub(super) fn all(report: &Report, below: &str) -> Vec<Remark> {
    let differences = report.differences.iter().map(|one| {
        let level = level(one.action);
        let identity = format!("{:?} {}", one.target, one.id);
        Remark::new(level, code(one.action), words::sentence(one), one.places.first(), &identity)
    });
    finish(judged(report).chain(differences).collect(), below)
}

/// All remarks of a report, the most severe first, with one remark for all differences of a line.
pub(super) fn by_line(report: &Report, below: &str) -> Vec<Remark> {
    let mut lines: BTreeMap<(Option<&FilePosition>, u8), Vec<&Difference>> = BTreeMap::new();
    for one in &report.differences {
        lines.entry((one.places.first(), one.action.weight())).or_default().push(one);
    }
    let differences = lines.into_iter().filter_map(|((place, _), all)| {
        let first = all.first()?;
        let message = match all.len() - 1 {
            0 => words::sentence(first),
            more => format!("{}, and {}", words::sentence(first), counted(more, "other difference")),
        };
        Some(Remark::new(level(first.action), code(first.action), message, place, ""))
    });
    finish(judged(report).chain(differences).collect(), below)
}

/// All remarks except those about differences.
fn judged(report: &Report) -> impl Iterator<Item = Remark> {
    let diagnostics = report.diagnostics.iter().map(diagnostic);
    let unreached = report.unreached.iter().map(|one| {
        let message = format!("{}: {}", one.target, one.message);
        Remark::new(Level::Error, "not-reached", message, None, &one.target)
    });
    let findings = report.findings.iter().map(|one| {
        let subject = one.difference.and_then(|index| report.differences.get(index));
        let identity = subject.map(|one| format!("{:?} {}", one.target, one.id)).unwrap_or_default();
        let code = format!("policy/{}", one.rule);
        Remark::new(one.severity.into(), &code, one.message.clone(), one.place.as_ref(), &identity)
    });
    let held = report.held.iter().map(|one| {
        let level = match one.why {
            Why::Downgrade | Why::Conflict | Why::Refused | Why::Unconfirmed | Why::Withheld | Why::Waiting => {
                Level::Warning
            }
            Why::DecidedByRuntime
            | Why::Window
            | Why::Rollout
            | Why::Suspended
            | Why::Adopted
            | Why::Kept
            | Why::KeptBefore => Level::Note,
        };
        let said = match one.runtimes.len() {
            0 => one.message.clone(),
            count => format!("{} ({})", one.message, counted(count, "runtime")),
        };
        let message = with_hint(&said, one.hint.as_deref());
        Remark::new(level, &format!("held/{}", one.why.as_str()), message, one.place.as_ref(), &one.module)
    });
    let unknown = report.unknown.iter().filter(|one| one.may_hide).map(|one| {
        let message =
            format!("{} is unknown and may hide a change: {} {}", one.value, one.first.target, one.first.object);
        Remark::new(Level::Note, "not-known", message, None, &one.value)
    });
    diagnostics.chain(unreached).chain(findings).chain(held).chain(unknown)
}

fn diagnostic(diagnostic: &Diagnostic) -> Remark {
    let message = with_hint(&diagnostic.message, diagnostic.hint.as_deref());
    let level = diagnostic.severity.into();
    Remark::new(level, diagnostic.code, message, diagnostic.place.as_ref(), &diagnostic.message)
}

fn with_hint(message: &str, hint: Option<&str>) -> String {
    match hint {
        Some(hint) => format!("{message}; {hint}"),
        None => message.to_owned(),
    }
}

fn code(action: Action) -> &'static str {
    match action {
        Action::Conflict => "diff/conflict",
        Action::Delete => "diff/delete",
        Action::Refuse => "diff/refuse",
        Action::Recreate => "diff/recreate",
        Action::Change => "diff/change",
        Action::Create => "diff/create",
    }
}

fn level(action: Action) -> Level {
    match action {
        Action::Conflict | Action::Refuse | Action::Delete | Action::Recreate => Level::Warning,
        Action::Change | Action::Create => Level::Note,
    }
}

/// Sorts by level, puts paths below the folder, and makes equal remarks distinct.
fn finish(mut remarks: Vec<Remark>, below: &str) -> Vec<Remark> {
    remarks.sort_by_key(|remark| remark.level);
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for remark in &mut remarks {
        if let Some(place) = remark.place.as_mut().filter(|_| !below.is_empty()) {
            place.path = format!("{below}/{}", place.path).into();
        }
        let count = seen.entry(remark.fingerprint.clone()).and_modify(|count| *count += 1).or_insert(1);
        if *count > 1 {
            remark.fingerprint = Digest::of_bytes(format!("{} {count}", remark.fingerprint).as_bytes()).to_string();
        }
    }
    remarks
}

// === impl Remark ===

impl Remark {
    fn new(level: Level, code: &str, message: String, place: Option<&FilePosition>, identity: &str) -> Remark {
        // An empty path is not a file.
        let place = place.filter(|place| !place.path.is_empty());
        let path = place.map_or("", |place| &place.path);
        let parts: Vec<Digest> = [code, path, identity].iter().map(|part| Digest::of_bytes(part.as_bytes())).collect();
        let fingerprint = Digest::all(&parts).to_string();
        Remark { level, code: code.to_owned(), message, place: place.cloned(), fingerprint }
    }
}

// === impl Level ===

impl From<Severity> for Level {
    fn from(severity: Severity) -> Level {
        match severity {
            Severity::Error => Level::Error,
            Severity::Warning => Level::Warning,
        }
    }
}
