//! Problems as values: what is wrong, where, how severe it is, and what to do next.
//!
//! Core functions take `&mut Diagnostics` first and return a value; one invalid definition never
//! hides the valid ones. A diagnostic contains no excerpt of its file. The terminal output takes
//! the line from the snapshot. Status, Events and logs never contain excerpts.

use std::{fmt, sync::Arc};

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
pub struct Place {
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
    pub place: Option<Place>,
    /// The severity.
    pub severity: Severity,
    /// The code: stable and documented in `docs/diagnostics.md`.
    pub code: &'static str,
    /// One sentence that names the problem, without secrets or excerpts.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

/// The sink of diagnostics. They are read in the order of places, so that two runs print the same
/// bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics(Vec<Diagnostic>);

// === impl Place ===

impl Place {
    /// The place of a whole file.
    pub fn file(path: &str) -> Place {
        Place { path: path.into(), line: 0, column: 0 }
    }

    /// A position in a file.
    pub fn at(path: &Arc<str>, line: u32, column: u32) -> Place {
        Place { path: Arc::clone(path), line, column }
    }
}

impl fmt::Display for Place {
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
        Diagnostic { place: None, severity: Severity::Error, code, message: message.into(), hint: None }
    }

    /// A warning.
    pub fn warning(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, message) }
    }

    /// Sets its place.
    #[must_use]
    pub fn at(self, place: Place) -> Diagnostic {
        Diagnostic { place: Some(place), ..self }
    }

    /// Sets the hint: what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Diagnostic {
        Diagnostic { hint: Some(hint.into()), ..self }
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
    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        self.0.push(diagnostic);
    }

    /// Adds all diagnostics of another sink.
    pub fn append(&mut self, other: Diagnostics) {
        self.0.extend(other.0);
    }

    /// Whether there is an error. Then nothing may be pruned.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of diagnostics.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// All diagnostics, in the order of their addition.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.0.iter()
    }

    /// All diagnostics by place, then severity, code and message, without duplicates.
    pub fn sorted(mut self) -> Vec<Diagnostic> {
        self.0.sort();
        self.0.dedup();
        self.0
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl Extend<Diagnostic> for Diagnostics {
    fn extend<I: IntoIterator<Item = Diagnostic>>(&mut self, iter: I) {
        self.0.extend(iter);
    }
}
