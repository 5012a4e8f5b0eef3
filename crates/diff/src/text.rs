//! A report for people: the summary first, then each distinct difference once.
//!
//! Rows are values. This module assigns a meaning to each piece of a row ([`Tone`]), and the
//! terminal output assigns a colour to it. Nothing is omitted except names of runtimes, unless the
//! caller requests all of them. Every value is escaped, so that no definition can control a
//! terminal or the runner of a pipeline.

use super::{
    escape::line,
    model::{Action, Conflict, Count, Difference, Held, Hunk, Line, Move, NotKnown, Report, Side, Why},
    summary::{self, Summary},
    words::{self, counted, thousands},
};
use tidegate_core::{
    diagnostic::{FilePosition, Severity},
    name::Key,
};

/// One line of output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row(pub Vec<Span>);

/// A piece of a line. Its text is safe to print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The meaning.
    pub tone: Tone,
    /// The text.
    pub text: String,
}

/// The meaning of a piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tone {
    /// No special meaning.
    Plain,
    /// A heading.
    Title,
    /// A reference or remark.
    Faint,
    /// An addition.
    New,
    /// A removal.
    Old,
    /// A change.
    Changed,
    /// An error.
    Error,
    /// A warning.
    Warning,
}

/// Output options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Show all names of runtimes instead of the first few.
    pub all_runtimes: bool,
}

/// Counts, module versions, and what is held, unknown, not reached and violated.
///
/// Diagnostics are not included: they are shown with their lines, which a report does not contain.
pub fn summary(report: &Report, options: Options) -> Vec<Row> {
    let shown_max = if options.all_runtimes { usize::MAX } else { words::NAMES_SHOWN };
    let summary = Summary::from_report(report);
    let mut rows = vec![
        Row::one(Tone::Title, &subject(report)),
        Row::default(),
        Row::one(Tone::Title, &summary.headline),
        Row::plain(&summary.runtimes),
        Row::default(),
    ];
    rows.extend(table(report));
    if !summary.effects.is_empty() {
        rows.push(Row::default());
    }
    for (label, amount) in &summary.effects {
        rows.push(Row::plain(&format!("{label}: {amount}")));
    }
    section(&mut rows, "Not reached", report.unreached.iter(), |unreached| {
        vec![Row::default().with(Tone::Error, &unreached.target).with(Tone::Plain, &format!(": {}", unreached.message))]
    });
    section(&mut rows, "Policies", report.findings.iter(), |finding| {
        let tone = match finding.severity {
            Severity::Error => Tone::Error,
            Severity::Warning => Tone::Warning,
        };
        let row = Row::default().with(tone, &finding.rule).with(Tone::Plain, &format!(": {}", finding.message));
        vec![row.with_place(finding.place.as_ref())]
    });
    section(&mut rows, "Module versions", report.moves.iter(), |one| vec![module_move(one)]);
    let (before, news): (Vec<&Held>, Vec<&Held>) = report.held.iter().partition(|one| one.why == Why::KeptBefore);
    section(&mut rows, "Held", news.into_iter(), |one| held(one, shown_max));
    section(&mut rows, summary::not_known(report), report.unknown.iter(), |one| vec![not_known(one)]);
    section(&mut rows, "Kept since earlier revisions", before.into_iter(), |one| held(one, shown_max));
    rows
}

/// Each distinct difference, with its lines and its runtimes.
pub fn differences(report: &Report, options: Options) -> Vec<Row> {
    let shown_max = if options.all_runtimes { usize::MAX } else { words::NAMES_SHOWN };
    report.differences.iter().flat_map(|one| difference(one, shown_max)).collect()
}

/// Rows without colours.
pub fn plain(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        text.extend(row.0.iter().map(|span| span.text.as_str()));
        text.push('\n');
    }
    text
}

fn subject(report: &Report) -> String {
    let subject = &report.subject;
    let files = counted(subject.files, "file");
    let written = subject.landscape_written.as_ref().map(|at| format!(", landscape of {at}")).unwrap_or_default();
    format!("{}: {} → {}, {files}{written}", subject.source, subject.from, subject.to)
}

fn table(report: &Report) -> Vec<Row> {
    const NAMES: [&str; 6] = ["create", "change", "delete", "recreate", "refuse", "conflict"];
    let cells = |count: Count| [count.create, count.change, count.delete, count.recreate, count.refuse, count.conflict];
    let sides = [("control plane", report.count(Side::ControlPlane)), ("runtimes", report.count(Side::Runtime))];
    let numbers = sides.map(|(name, count)| (name, cells(count).map(thousands)));
    let width = |column: usize| {
        let widest = numbers.iter().map(|(_, cells)| cells[column].len()).max().unwrap_or_default();
        widest.max(NAMES[column].len())
    };
    let row = |first: &str, cells: &[String; 6], counts: Option<[usize; 6]>| {
        let mut row = Row::plain(&format!("{first:<13}"));
        for (column, cell) in cells.iter().enumerate() {
            let tone = match counts.map(|counts| (counts[column], column)) {
                None => Tone::Title,
                Some((0, _)) => Tone::Faint,
                Some((_, 0)) => Tone::New,
                Some((_, 1)) => Tone::Changed,
                Some((_, 4 | 5)) => Tone::Error,
                Some(_) => Tone::Old,
            };
            row = row.with(tone, &format!("  {cell:>0$}", width(column)));
        }
        row
    };
    let mut rows = vec![row("", &NAMES.map(str::to_owned), None)];
    for ((name, numbers), (_, count)) in numbers.iter().zip(sides) {
        rows.push(row(name, numbers, Some(cells(count))));
    }
    rows
}

fn section<'a, T: 'a>(
    rows: &mut Vec<Row>,
    title: &str,
    items: impl ExactSizeIterator<Item = &'a T>,
    show: impl Fn(&T) -> Vec<Row>,
) {
    if items.len() == 0 {
        return;
    }
    rows.extend([Row::default(), Row::one(Tone::Title, &format!("{title} ({})", thousands(items.len())))]);
    for item in items {
        rows.extend(show(item).into_iter().map(|row| row.indented(2)));
    }
}

fn module_move(one: &Move) -> Row {
    let (from, to) = (one.from.as_deref().unwrap_or("none"), one.to.as_deref().unwrap_or("none"));
    let tone = if one.to.is_some() { Tone::Changed } else { Tone::Old };
    Row::plain(&format!("{} {}: ", one.module, one.channel))
        .with(tone, &format!("{from} → {to}"))
        .with(Tone::Plain, &format!(" in {}", counted(one.runtimes, "runtime")))
        .with_place(one.place.as_ref())
}

fn held(one: &Held, shown_max: usize) -> Vec<Row> {
    let tone = match one.why {
        Why::Downgrade
        | Why::Conflict
        | Why::Refused
        | Why::Suspended
        | Why::Unconfirmed
        | Why::Withheld
        | Why::Waiting
        | Why::Kept => Tone::Warning,
        Why::DecidedByRuntime | Why::Window | Why::Rollout | Why::Adopted | Why::KeptBefore => Tone::Faint,
    };
    let mut rows = vec![
        Row::one(tone, summary::label(one.why))
            .with(Tone::Plain, &format!(": {}", summary::held(one)))
            .with_place(one.place.as_ref()),
        Row::plain(&one.message).indented(2),
    ];
    rows.extend(one.hint.as_ref().map(|hint| Row::default().with(Tone::Faint, &format!("= help: {hint}")).indented(2)));
    rows.extend(runtimes(&one.runtimes, shown_max).map(|row| row.indented(2)));
    rows
}

fn not_known(one: &NotKnown) -> Row {
    let first = &one.first;
    let more = match one.occurrences {
        0 | 1 => String::new(),
        count => format!(" and in {}", counted(count - 1, "other place")),
    };
    let (tone, hides) =
        if one.may_hide { (Tone::Warning, "; may hide a change") } else { (Tone::Plain, "; hides no change") };
    Row::one(tone, &one.value)
        .with(Tone::Plain, &format!(": {} {} {}{more}", first.target, first.object, first.path))
        .with(Tone::Faint, hides)
}

fn difference(one: &Difference, shown_max: usize) -> Vec<Row> {
    let tone = match one.action {
        Action::Conflict | Action::Refuse => Tone::Error,
        Action::Delete | Action::Recreate => Tone::Old,
        Action::Change => Tone::Changed,
        Action::Create => Tone::New,
    };
    let mut rows = vec![
        Row::default(),
        Row::one(tone, one.action.as_str())
            .with(Tone::Title, &format!(" {}", words::objects(one)))
            .with(Tone::Plain, &format!(" {}", words::whereabouts(one))),
    ];
    if let Some(waits) = words::waits(one.effect) {
        rows.push(Row::default().with(Tone::Warning, waits).indented(2));
    }
    for clause in one.refusal.iter().chain(one.overdue.as_ref().map(|overdue| &overdue.sentence)) {
        rows.push(Row::default().with(Tone::Warning, clause).indented(2));
    }
    for place in &one.places {
        let made = one.maker.map(|maker| format!(" through {maker}")).unwrap_or_default();
        rows.push(Row::default().with(Tone::Faint, &format!("--> {place}{made}")).indented(2));
    }
    // Deletions and conflicts are shown completely.
    let shown_max = if one.action.is_never_truncated() { usize::MAX } else { shown_max };
    rows.extend(runtimes(&one.runtimes, shown_max).map(|row| row.indented(2)));
    rows.extend(one.conflicts.iter().map(|conflict| owner(conflict).indented(2)));
    rows.extend(one.hunks.iter().flat_map(hunk).map(|row| row.indented(2)));
    rows
}

fn runtimes(keys: &[Key], shown_max: usize) -> Option<Row> {
    (!keys.is_empty()).then(|| Row::default().with(Tone::Faint, &format!("in {}", words::names(keys, shown_max))))
}

fn owner(conflict: &Conflict) -> Row {
    let field = if conflict.field.is_empty() { "the object" } else { &conflict.field };
    Row::default().with(Tone::Error, field).with(Tone::Plain, &format!(" is owned by {}", conflict.manager))
}

fn hunk(hunk: &Hunk) -> Vec<Row> {
    let mut rows = vec![Row::default().with(Tone::Faint, &header(hunk))];
    rows.extend(hunk.lines.iter().map(|one| match one {
        Line::Same(text) => Row::signed(Tone::Plain, ' ', text),
        Line::Old(text) => Row::signed(Tone::Old, '-', text),
        Line::New(text) => Row::signed(Tone::New, '+', text),
    }));
    rows
}

/// `@@ -12,7 +12,7 @@ spec.template.spec.containers[0]`.
pub(super) fn header(hunk: &Hunk) -> String {
    let lines = |of: fn(&Line) -> bool| hunk.lines.iter().filter(|line| of(line)).count();
    let old = lines(|line| !matches!(line, Line::New(_)));
    let new = lines(|line| !matches!(line, Line::Old(_)));
    let path = if hunk.path.is_empty() { String::new() } else { format!(" {}", hunk.path) };
    format!("@@ -{},{old} +{},{new} @@{path}", hunk.old_start, hunk.new_start)
}

// === impl Row ===

impl Row {
    fn one(tone: Tone, text: &str) -> Row {
        Row::default().with(tone, text)
    }

    fn plain(text: &str) -> Row {
        Row::one(Tone::Plain, text)
    }

    fn signed(tone: Tone, sign: char, text: &str) -> Row {
        Row(vec![Span { tone, text: format!("{sign}{}", line(text)) }])
    }

    fn with(mut self, tone: Tone, text: &str) -> Row {
        self.0.push(Span { tone, text: line(text) });
        self
    }

    fn with_place(self, place: Option<&FilePosition>) -> Row {
        match place {
            Some(place) => self.with(Tone::Faint, &format!(" --> {place}")),
            None => self,
        }
    }

    fn indented(mut self, columns: usize) -> Row {
        if !self.0.is_empty() {
            self.0.insert(0, Span { tone: Tone::Plain, text: " ".repeat(columns) });
        }
        self
    }
}

#[cfg(test)]
mod tests;
