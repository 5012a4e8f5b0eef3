//! Problems as values: what is wrong, where, how severe it is, and what to do next.
//!
//! Core functions take `&mut Diagnostics` first and return a value; one invalid definition never
//! hides the valid ones. A diagnostic contains no excerpt of its file. The terminal output takes
//! the line from the snapshot. Status, Events and logs never contain excerpts.
//!
//! A sink lists a limited number of diagnostics for each file and in total, and counts the others.
//! An error that is only counted is still an error.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::Serialize;

/// The severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The definition is held back, and nothing is pruned until the error is corrected.
    Error,
    /// Worth knowing. Nothing is held back.
    Warning,
}

/// A file and a position in it. Line and column count from 1; a line of 0 means the whole file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePosition {
    /// Path relative to the repository, with `/`.
    pub path: Arc<str>,
    /// Line, from 1. 0 for the whole file.
    pub line: u32,
    /// Column in characters, from 1. 0 if only the line is known.
    pub column: u32,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The place.
    pub place: Option<FilePosition>,
    /// The severity.
    pub severity: Severity,
    /// The code: stable and documented in `docs/diagnostics.md`.
    pub code: &'static str,
    /// One sentence that names the problem, without secrets or excerpts.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The object in whose rendering it was found; empty if it was found before. A sink lists the same problem of many
    /// objects once.
    pub subject: Option<Box<str>>,
    /// The field that it is about, for a sentence that says less than the message.
    pub field: Option<Box<FieldPath>>,
}

/// The path of a field, such as `spec.ref`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldPath(pub String);

/// The sink of diagnostics. They are read in the order of places, so that two runs print the same
/// bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    listed: Vec<Diagnostic>,
    /// By file and severity. The file is `None` for everything that names none.
    tallies: BTreeMap<(Option<Arc<str>>, Severity), Tally>,
    /// By severity: the number of files whose tallies are not kept, and of their problems. None of these is listed.
    untallied: BTreeMap<Severity, (usize, usize)>,
    /// Number of all errors and of all warnings, listed or not.
    errors: Total,
    warnings: Total,
    /// The codes of all diagnostics, listed or not.
    codes: BTreeSet<&'static str>,
    /// For the same problem of several objects: where it is listed, and how many times it was found.
    repeated: BTreeMap<Diagnostic, (usize, usize)>,
}

/// The diagnostics of one severity in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    listed: usize,
    /// Those that are only counted.
    more: usize,
}

/// The diagnostics of one severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Total {
    listed: usize,
    found: usize,
}

/// Maximum number of listed errors of one file, and of listed warnings. More of them usually have the
/// same cause, and a user corrects the first ones first.
pub const LISTED_IN_FILE_MAX: usize = 50;
/// Maximum number of listed errors of one source, and of listed warnings. With the longest messages
/// they take 1 MiB.
pub const LISTED_MAX: usize = 1_000;
/// Maximum number of files for which the number of unlisted problems is reported separately.
const MORE_FILES_MAX: usize = 50;
/// Code of the diagnostic with the number of problems that are not listed.
pub const CODE_MORE: &str = "more-problems";

// === impl FilePosition ===

impl FilePosition {
    /// The place of a whole file.
    pub fn file(path: &str) -> FilePosition {
        FilePosition { path: path.into(), line: 0, column: 0 }
    }

    /// A position in a file.
    pub fn at(path: &Arc<str>, line: u32, column: u32) -> FilePosition {
        FilePosition { path: Arc::clone(path), line, column }
    }
}

impl fmt::Display for FilePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(f, "{}", self.path),
            (line, 0) => write!(f, "{}:{line}", self.path),
            (line, column) => write!(f, "{}:{line}:{column}", self.path),
        }
    }
}

// === impl Diagnostic ===

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static str, message: impl Into<String>) -> Diagnostic {
        let (message, severity) = (message.into(), Severity::Error);
        Diagnostic { place: None, severity, code, message, hint: None, subject: None, field: None }
    }

    /// A warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, message) }
    }

    /// Sets its place.
    #[must_use]
    pub fn at(self, place: FilePosition) -> Diagnostic {
        Diagnostic { place: Some(place), ..self }
    }

    /// Sets the hint: what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Diagnostic {
        Diagnostic { hint: Some(hint.into()), ..self }
    }

    /// Sets the object in whose rendering it was found.
    #[must_use]
    pub fn about(self, subject: &str) -> Diagnostic {
        Diagnostic { subject: Some(subject.into()), ..self }
    }

    /// Sets the field that it is about.
    #[must_use]
    pub fn of_field(self, field: &str) -> Diagnostic {
        Diagnostic { field: Some(Box::new(FieldPath(field.to_owned()))), ..self }
    }

    /// Its file, if it names one.
    fn file(&self) -> Option<Arc<str>> {
        self.place.as_ref().map(|place| Arc::clone(&place.path)).filter(|path| !path.is_empty())
    }

    /// With the object in the message, and the number of others with the same problem.
    fn with_subject(self, others: usize) -> Diagnostic {
        let Some(subject) = self.subject.filter(|subject| !subject.is_empty()) else {
            return Diagnostic { subject: None, ..self };
        };
        let message = match others {
            0 => format!("{} (rendering {subject})", self.message),
            others => format!("{} (rendering {subject}, and {} more)", self.message, grouped(others)),
        };
        Diagnostic { message, subject: None, ..self }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

// === impl Diagnostics ===

impl Diagnostics {
    /// Adds a diagnostic. Beyond the limits, it is only counted.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if diagnostic.subject.is_some() {
            let problem = Diagnostic { subject: None, hint: None, ..diagnostic.clone() };
            if let Some((_, times)) = self.repeated.get_mut(&problem) {
                *times += 1;
                return;
            }
            if self.list(diagnostic) {
                self.repeated.insert(problem, (self.listed.len() - 1, 1));
            }
            return;
        }
        self.list(diagnostic);
    }

    /// Counts problems of a file that are not listed.
    pub fn count_more(&mut self, path: &Arc<str>, severity: Severity, more: usize) {
        if 0 < more {
            self.tallies.entry((Some(Arc::clone(path)), severity)).or_default().more += more;
            self.total(severity).found += more;
        }
    }

    /// Adds all diagnostics of another sink.
    pub fn append(&mut self, other: Diagnostics) {
        for ((path, severity), tally) in other.tallies {
            if 0 < tally.more {
                self.tallies.entry((path, severity)).or_default().more += tally.more;
                self.total(severity).found += tally.more;
            }
        }
        for (severity, (files, more)) in other.untallied {
            let untallied = self.untallied.entry(severity).or_default();
            *untallied = (untallied.0 + files, untallied.1 + more);
            self.total(severity).found += more;
        }
        self.codes.extend(other.codes);
        let times: BTreeMap<usize, usize> = other.repeated.into_values().collect();
        for (index, diagnostic) in other.listed.into_iter().enumerate() {
            let repetitions = times.get(&index).copied().unwrap_or(1);
            let problem =
                diagnostic.subject.is_some().then(|| Diagnostic { subject: None, hint: None, ..diagnostic.clone() });
            self.push(diagnostic);
            if let Some((_, times)) = problem.and_then(|problem| self.repeated.get_mut(&problem)) {
                *times += repetitions - 1;
            }
        }
    }

    /// These diagnostics with each listed one replaced. The numbers stay.
    #[must_use]
    pub fn map(mut self, replace: impl FnMut(Diagnostic) -> Diagnostic) -> Diagnostics {
        self.listed = self.listed.into_iter().map(replace).collect();
        self
    }

    /// The same numbers, without a list of this severity. None of them may have a subject.
    #[must_use]
    pub fn counted(mut self, severity: Severity) -> Diagnostics {
        self.listed.retain(|diagnostic| diagnostic.severity != severity);
        for (_, tally) in self.tallies.iter_mut().filter(|((_, of), _)| *of == severity) {
            *tally = Tally { listed: 0, more: tally.listed + tally.more };
        }
        self.total(severity).listed = 0;
        self
    }

    /// The same numbers, with at most `max` listed diagnostics, errors before warnings, and with the numbers of a few
    /// files only: a form that may be kept for long.
    #[must_use]
    pub fn at_most(mut self, max: usize) -> Diagnostics {
        let times: BTreeMap<usize, usize> = std::mem::take(&mut self.repeated).into_values().collect();
        let others = |index| times.get(&index).map_or(0, |times| times - 1);
        let listed = std::mem::take(&mut self.listed).into_iter().enumerate();
        let mut listed: Vec<Diagnostic> = listed.map(|(index, one)| one.with_subject(others(index))).collect();
        listed.sort_by_key(|diagnostic| diagnostic.severity);
        for cut in listed.split_off(max.min(listed.len())) {
            self.total(cut.severity).listed -= 1;
            let tally = self.tallies.entry((cut.file(), cut.severity)).or_default();
            *tally = Tally { listed: tally.listed.saturating_sub(1), more: tally.more + 1 };
        }
        listed.shrink_to_fit();
        self.listed = listed;
        let unlisted = self.tallies.iter().filter(|(_, tally)| tally.listed == 0);
        let rest: Vec<_> = unlisted.map(|(of, _)| of.clone()).skip(MORE_FILES_MAX).collect();
        for of in rest {
            let Some(Tally { more, .. }) = self.tallies.remove(&of).filter(|tally| 0 < tally.more) else { continue };
            let untallied = self.untallied.entry(of.1).or_default();
            *untallied = (untallied.0 + 1, untallied.1 + more);
        }
        self
    }

    /// Whether the next error in a file would be listed.
    pub fn lists_error(&self, path: &Arc<str>) -> bool {
        let tally = self.tallies.get(&(Some(Arc::clone(path)), Severity::Error)).copied().unwrap_or_default();
        self.errors.listed < LISTED_MAX && tally.listed < LISTED_IN_FILE_MAX
    }

    /// How many diagnostics of a severity are listed.
    pub fn listed(&self, severity: Severity) -> usize {
        match severity {
            Severity::Error => self.errors.listed,
            Severity::Warning => self.warnings.listed,
        }
    }

    /// Whether there is an error, listed or not. Then nothing may be pruned.
    pub fn has_errors(&self) -> bool {
        0 < self.errors.found
    }

    /// Number of errors, listed or not.
    pub fn errors(&self) -> usize {
        self.errors.found
    }

    /// Whether there is a diagnostic with one of these codes, listed or not.
    pub fn has_code(&self, is_meant: impl Fn(&'static str) -> bool) -> bool {
        self.codes.iter().any(|code| is_meant(code))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of diagnostics, listed or not.
    pub fn len(&self) -> usize {
        self.errors.found + self.warnings.found
    }

    /// The listed diagnostics, in the order of their addition.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.listed.iter()
    }

    /// All listed diagnostics by place, then severity, code and message, without duplicates, and the
    /// number of those that are not listed.
    pub fn sorted(self) -> Vec<Diagnostic> {
        let mut sorted: Vec<Diagnostic> = self.into_iter().collect();
        sorted.sort();
        sorted.dedup();
        sorted
    }

    /// Lists a diagnostic, or counts it. Returns whether it is listed.
    fn list(&mut self, diagnostic: Diagnostic) -> bool {
        let path = diagnostic.file();
        let in_file_max = if path.is_some() { LISTED_IN_FILE_MAX } else { LISTED_MAX };
        self.codes.insert(diagnostic.code);
        let total = self.total(diagnostic.severity);
        total.found += 1;
        let has_room = total.listed < LISTED_MAX;
        let tally = self.tallies.entry((path, diagnostic.severity)).or_default();
        if !has_room || in_file_max <= tally.listed {
            tally.more += 1;
            return false;
        }
        tally.listed += 1;
        self.total(diagnostic.severity).listed += 1;
        self.listed.push(diagnostic);
        true
    }

    fn total(&mut self, severity: Severity) -> &mut Total {
        match severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        }
    }
}

/// The numbers of problems that are not listed.
fn more(
    tallies: BTreeMap<(Option<Arc<str>>, Severity), Tally>,
    untallied: &BTreeMap<Severity, (usize, usize)>,
) -> Vec<Diagnostic> {
    let unlisted = |(of, tally): ((Option<Arc<str>>, Severity), Tally)| (0 < tally.more).then_some((of, tally.more));
    let unlisted: Vec<_> = tallies.into_iter().filter_map(unlisted).collect();
    let of_severity = |severity, text: String| match severity {
        Severity::Error => Diagnostic::error(CODE_MORE, text),
        Severity::Warning => Diagnostic::warning(CODE_MORE, text),
    };
    let (single, rest) = unlisted.split_at(unlisted.len().min(MORE_FILES_MAX));
    let mut found: Vec<Diagnostic> = single
        .iter()
        .map(|((path, severity), more)| {
            let number = number(*more, *severity);
            let place = path.as_deref().map(FilePosition::file);
            let text = if place.is_some() { "in this file, which are not listed" } else { "that are not listed" };
            Diagnostic { place, ..of_severity(*severity, format!("and {number} {text}")) }
        })
        .collect();
    for severity in [Severity::Error, Severity::Warning] {
        let of = rest.iter().filter(|((_, of), _)| *of == severity);
        let begin = untallied.get(&severity).copied().unwrap_or_default();
        let (files, more) = of.fold(begin, |(files, sum), (_, more)| (files + 1, sum + more));
        if 0 < more {
            let number = number(more, severity);
            let text = format!("and {number} in {} other files, which are not listed", grouped(files));
            found.push(of_severity(severity, text));
        }
    }
    found
}

fn number(count: usize, severity: Severity) -> String {
    let what = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!("{} more {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A number with a comma before each group of three digits.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        let times: BTreeMap<usize, usize> = self.repeated.into_values().collect();
        let others = |index| times.get(&index).map_or(0, |times| times - 1);
        let listed = self.listed.into_iter().enumerate();
        let mut all: Vec<Diagnostic> = listed.map(|(index, one)| one.with_subject(others(index))).collect();
        all.extend(more(self.tallies, &self.untallied));
        all.into_iter()
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, iter: I) {
        iter.into_iter().for_each(|diagnostic| self.push(diagnostic));
    }
}

#[cfg(test)]
mod tests;
