//! Diagnostics for people and for programs.
//!
//! For people, a diagnostic looks like a compiler's: the message, the place, the marked line, and what to do next. No
//! line of a file with a Secret, or with the URL of a source, is shown, and control characters are escaped. The stream
//! decides about colours: `anstream` removes them unless it writes to a terminal.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    sync::Arc,
};

use owo_colors::OwoColorize as _;
use tidegate_core::{
    definition,
    diagnostic::{Diagnostic, FilePosition, Severity},
    snapshot::{OWN_FOLDER, Snapshot},
    yaml,
};

/// Longest part of a line that is shown, in characters: two columns of a terminal's usual 80 to 100.
const SHOWN_MAX: usize = 100;
/// Characters that are shown before the mark where a line is cut.
const BEFORE_MARK: usize = 40;

/// Finds the lines that diagnostics point to.
pub(super) struct Excerpts<'a> {
    snapshot: &'a Snapshot,
    /// The lines of files that were read; `None` for a file that must not be shown.
    files: BTreeMap<Arc<str>, Option<Vec<&'a str>>>,
}

/// The number of diagnostics by severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    errors: usize,
    warnings: usize,
}

/// Prints diagnostics with excerpts, and their number. Fails if `out` cannot be written.
pub(super) fn write_text(
    out: &mut dyn Write,
    diagnostics: &[Diagnostic],
    excerpts: &mut Excerpts<'_>,
    files: usize,
) -> io::Result<()> {
    for diagnostic in diagnostics {
        write_one(out, diagnostic, excerpts)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", Count::from_diagnostics(diagnostics).summary(files))
}

fn write_one(out: &mut dyn Write, diagnostic: &Diagnostic, excerpts: &mut Excerpts<'_>) -> io::Result<()> {
    let message = yaml::printable(&diagnostic.message);
    match diagnostic.severity {
        Severity::Error => {
            write!(out, "{}", format_args!("error[{}]", diagnostic.code).red().bold())?;
        }
        Severity::Warning => {
            write!(out, "{}", format_args!("warning[{}]", diagnostic.code).yellow().bold())?;
        }
    }
    writeln!(out, "{}", format_args!(": {message}").bold())?;
    let excerpt = diagnostic.place.as_ref().and_then(|place| excerpts.find(place));
    let number = diagnostic.place.as_ref().map_or(0, |place| place.line).to_string();
    let margin = " ".repeat(if excerpt.is_some() { number.len() } else { 1 });
    if let Some(place) = &diagnostic.place {
        writeln!(out, "{margin}{} {}", "-->".blue().bold(), yaml::printable(&place.to_string()))?;
    }
    if let Some(excerpt) = excerpt {
        let bar = "|".blue().bold().to_string();
        writeln!(out, "{margin} {bar}")?;
        writeln!(out, "{} {bar} {}", number.blue().bold(), excerpt.line)?;
        let mark = "^".repeat(excerpt.mark_len);
        let mark = match diagnostic.severity {
            Severity::Error => mark.red().bold().to_string(),
            Severity::Warning => mark.yellow().bold().to_string(),
        };
        writeln!(out, "{margin} {bar} {}{mark}", " ".repeat(excerpt.mark_start))?;
    }
    if let Some(hint) = &diagnostic.hint {
        writeln!(out, "{margin} {} {}", "= help:".blue().bold(), yaml::printable(hint))?;
    }
    Ok(())
}

// === impl Count ===

impl Count {
    /// Counts by severity.
    pub(super) fn from_diagnostics(diagnostics: &[Diagnostic]) -> Count {
        diagnostics.iter().fold(Count::default(), |count, diagnostic| match diagnostic.severity {
            Severity::Error => Count { errors: count.errors + 1, ..count },
            Severity::Warning => Count { warnings: count.warnings + 1, ..count },
        })
    }

    /// `3 errors, 1 warning in 42 files`.
    pub(super) fn summary(self, files: usize) -> String {
        let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let (errors, warnings) = (plural(self.errors, "error"), plural(self.warnings, "warning"));
        format!("{errors}, {warnings} in {}", plural(files, "file"))
    }
}

// === impl Excerpts ===

/// A line to show, and the part of it to mark.
#[derive(Debug, PartialEq, Eq)]
struct Excerpt {
    line: String,
    mark_start: usize,
    mark_len: usize,
}

impl<'a> Excerpts<'a> {
    /// Excerpts from the files of a snapshot.
    pub(super) fn new(snapshot: &'a Snapshot) -> Excerpts<'a> {
        Excerpts { snapshot, files: BTreeMap::new() }
    }

    fn find(&mut self, place: &FilePosition) -> Option<Excerpt> {
        let snapshot = self.snapshot;
        let lines = self.files.entry(Arc::clone(&place.path)).or_insert_with(|| lines(snapshot, &place.path));
        let line = lines.as_ref()?.get(usize::try_from(place.line).ok()?.checked_sub(1)?)?;
        // If only the line is known, the whole line is marked.
        let column = match place.column {
            0 => line.chars().take_while(|c| c.is_whitespace()).count(),
            column => usize::try_from(column - 1).ok()?,
        };
        let marked = if place.column == 0 { line.trim_end().chars().count().saturating_sub(column) } else { 0 };
        Some(excerpt(line, column, marked))
    }
}

/// The lines of a file, unless it contains a Secret, may contain the URL of a source with a password, or is not text.
fn lines<'a>(snapshot: &'a Snapshot, path: &str) -> Option<Vec<&'a str>> {
    let text = yaml::decode(snapshot.text(path)?).ok()?;
    let is_own = path.strip_prefix(OWN_FOLDER).is_some_and(|below| below.starts_with('/'));
    let may_have_url = is_own && (path.ends_with("/source.yaml") || text.contains("GitSource"));
    (!definition::mentions_secret(text) && !may_have_url).then(|| text.lines().collect())
}

/// `marked` is the number of characters to mark; 0 marks the word that begins there.
fn excerpt(line: &str, column: usize, marked: usize) -> Excerpt {
    let characters: Vec<char> = line.chars().collect();
    let column = column.min(characters.len());
    let marked = if marked == 0 { token_len(&characters[column..]) } else { marked };
    let first = if characters.len() <= SHOWN_MAX { 0 } else { column.saturating_sub(BEFORE_MARK) };
    let last = characters.len().min(first + SHOWN_MAX);
    // Each character is escaped separately, so that the mark is below the right characters.
    let shown = |from: usize, to: usize| -> String {
        characters.get(from..to.max(from)).unwrap_or_default().iter().map(|c| visible(*c)).collect()
    };
    let (before, within) = (shown(first, column), shown(column, (column + marked).min(last)));
    let (left, right) = (if first == 0 { "" } else { "…" }, if last == characters.len() { "" } else { "…" });
    Excerpt {
        line: format!("{left}{}{right}", shown(first, last)).trim_end().to_owned(),
        mark_start: left.chars().count() + before.chars().count(),
        mark_len: within.chars().count().max(1),
    }
}

fn visible(c: char) -> String {
    if c == '\t' { "    ".to_owned() } else { yaml::printable(c.encode_utf8(&mut [0; 4])) }
}

/// The number of characters to mark: a quoted text, or a word by YAML's rules.
fn token_len(rest: &[char]) -> usize {
    let quoted = |quote: char| rest[1..].iter().position(|c| *c == quote).map(|at| at + 2);
    match rest.first() {
        Some(quote @ ('"' | '\'')) => quoted(*quote).unwrap_or(rest.len()),
        Some('[' | ']' | '{' | '}' | ',' | ':' | '-' | '\t') => 1,
        _ => {
            let ends = |at: usize| match rest[at] {
                ',' | ']' | '}' => true,
                ':' => rest.get(at + 1).is_none_or(|c| c.is_whitespace()),
                '#' => at > 0 && rest[at - 1].is_whitespace(),
                _ => false,
            };
            let end = (0..rest.len()).find(|at| ends(*at)).unwrap_or(rest.len());
            rest[..end].iter().rposition(|c| !c.is_whitespace()).map_or(1, |at| at + 1)
        }
    }
}

#[cfg(test)]
mod tests;
