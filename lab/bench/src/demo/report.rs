//! What the demo prints: a heading for each step, a line for each action, each check and each longer wait, and the
//! table at the end.

use std::{
    pin::pin,
    sync::LazyLock,
    time::{Duration, Instant},
};

use tidegate_process::{lock::Mutex, say};

use owo_colors::OwoColorize as _;

/// One row of the table.
#[derive(Debug)]
pub(super) struct Row {
    /// The title of the step.
    pub(super) step: &'static str,
    /// The result.
    pub(super) outcome: Outcome,
    /// How long it took.
    pub(super) took: Duration,
}

/// The result of a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The step succeeded, with what was observed.
    Held(String),
    /// The step failed, with the reason.
    Failed(String),
    /// The step was left out, with the reason.
    LeftOut(&'static str),
    /// The step was not tried, because it builds on a step that failed.
    NotReached,
}

/// After this time without a line, the demo says what it waits for: also if several short waits follow each other.
const PATIENCE: Duration = Duration::from_secs(2);

/// When the last line was printed.
static LAST_LINE: LazyLock<Mutex<Instant>> = LazyLock::new(|| Mutex::new(Instant::now()));

/// Prints one line.
fn line(text: &str) {
    say!("{text}");
    *LAST_LINE.lock() = Instant::now();
}

/// How long a wait says nothing that begins so long after the last line.
fn patience(since_line: Duration) -> Duration {
    PATIENCE.saturating_sub(since_line)
}

/// The heading of a step.
pub(super) fn heading(number: usize, title: &str) {
    line(&format!("\n{} {}", format!("{number}.").bold(), title.bold()));
}

/// An action of the demo.
pub(super) fn doing(text: &str) {
    line(&format!("   {text}"));
}

/// A fact that was checked on the clusters.
pub(super) fn seen(text: &str) {
    line(&format!("   {} {text}", "✓".green()));
}

/// Lines of a command's output.
pub(super) fn quoted(text: &str) {
    text.lines().for_each(|quoted| line(&format!("     {} {quoted}", "|".dimmed())));
}

/// What the demo waits for.
pub(super) fn waiting(what: &str) {
    line(&format!("   {} waiting: {what}", "…".dimmed()));
}

/// Waits, and says for what if it takes long.
pub(super) async fn while_waiting<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let quiet = patience(LAST_LINE.lock().elapsed());
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(quiet) => waiting(what),
    }
    work.await
}

/// The whole tour, one line per step.
pub(super) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.step.chars().count()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let (mark, text) = match &row.outcome {
            Outcome::Held(text) => ("held", text.as_str()),
            // The details are printed above the table.
            Outcome::Failed(text) => ("FAILED", text.lines().next().unwrap_or_default()),
            Outcome::LeftOut(why) => ("-", *why),
            Outcome::NotReached => ("-", "not run"),
        };
        let took = match &row.outcome {
            Outcome::LeftOut(_) | Outcome::NotReached => String::new(),
            Outcome::Held(_) | Outcome::Failed(_) => format!("{:.1} s", row.took.as_secs_f64()),
        };
        lines.push(format!("{:>2}  {:<width$}  {mark:<6}  {took:>7}  {text}", index + 1, row.step));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_of_short_waits_is_no_long_silence() {
        let seconds = Duration::from_secs;
        assert_eq!(
            [0, 1, 2, 5].map(|since| patience(seconds(since))),
            [seconds(2), seconds(1), seconds(0), seconds(0)]
        );
    }

    #[test]
    fn a_table_has_one_line_a_step() {
        let rows = [
            Row { step: "one", outcome: Outcome::Held("seen".to_owned()), took: Duration::from_millis(1234) },
            Row { step: "second", outcome: Outcome::Failed("late\nmore".to_owned()), took: Duration::from_secs(60) },
            Row { step: "third", outcome: Outcome::NotReached, took: Duration::ZERO },
            Row { step: "fourth", outcome: Outcome::LeftOut("no servers"), took: Duration::ZERO },
        ];
        assert_eq!(
            table(&rows),
            " 1  one     held      1.2 s  seen\n \
             2  second  FAILED   60.0 s  late\n \
             3  third   -                not run\n \
             4  fourth  -                no servers"
        );
    }
}
