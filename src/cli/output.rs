//! The outputs of a report: `-o FORMAT` writes to standard output, `-o FORMAT=FILE` to a file. The option may be
//! repeated.
//!
//! A pipeline compares once and writes all that it needs: a comment, annotations and files for the platform.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    str::FromStr,
};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use owo_colors::OwoColorize as _;

use super::report::{self, Excerpts};
use tidegate_diff::{
    github, gitlab, json, junit, markdown,
    model::Report,
    sarif,
    text::{self, Row, Tone},
};
use tidegate_process::Exit;

/// A format, and the file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sink<F> {
    /// The format.
    pub(super) format: F,
    /// The file; `None` is standard output.
    file: Option<PathBuf>,
}

/// A format for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Text for people: the summary, then each distinct difference
    Text,
    /// A comment for a pull request, with a hidden marker and a limited length
    Markdown,
    /// JSON for programs, with the schema `docs/diff.schema.json`
    Json,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Workflow commands of GitHub, which annotate the lines of a pull request
    Github,
    /// Code quality report of GitLab
    Gitlab,
    /// JUnit XML with one test case per check
    Junit,
}

/// How to print a report.
#[derive(clap::Args)]
pub(super) struct Outputs {
    /// Print in this format: `text`, `markdown`, `json`, `sarif`, `github`, `gitlab` or `junit`. Repeat the option for
    /// more formats; all but one need a file, for example `json=diff.json`
    #[arg(short, long = "output", value_name = "FORMAT[=FILE]", default_value = "text")]
    outputs: Vec<Sink<Format>>,
    /// Put this name into the hidden marker of the comment, so that a later run can find and replace it
    #[arg(long, value_name = "NAME", default_value = "tidegate-diff")]
    marker: markdown::Marker,
    /// Limit the comment to this number of characters
    #[arg(long, value_name = "CHARACTERS", default_value_t = markdown::BUDGET)]
    budget: usize,
    /// Name the place of the full report in a comment that is too long, for example `artifact tidegate of this run`
    /// [default: none]
    #[arg(long, value_name = "WHERE")]
    elsewhere: Option<String>,
    /// List all runtimes in the text instead of the first few [default: off]
    #[arg(long)]
    all_runtimes: bool,
}

// === impl Outputs ===

impl Outputs {
    /// Fails on outputs that contradict each other, before any work is done.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        check(&self.outputs)?;
        if self.budget < markdown::BUDGET_MIN {
            bail!("`--budget` is too small: a comment needs at least {} characters", markdown::BUDGET_MIN);
        }
        Ok(())
    }

    /// Whether the report is for people only.
    pub(super) fn is_text(&self) -> bool {
        self.outputs.iter().all(|sink| matches!(sink.format, Format::Text))
    }

    /// Writes a report. `below` is the folder of the checkout that its paths are relative to; `approval` is what a
    /// comment says of violated rules. Fails if an output cannot be written.
    pub(super) fn write(
        &self,
        report: &Report,
        below: &str,
        approval: &markdown::Approval,
        excerpts: &mut Excerpts<'_>,
    ) -> anyhow::Result<()> {
        for sink in &self.outputs {
            sink.write(&mut |out| {
                let text = match sink.format {
                    Format::Text => return self.write_text(out, report, excerpts),
                    Format::Markdown => {
                        let options = markdown::Options {
                            marker: self.marker.clone(),
                            budget: self.budget,
                            elsewhere: self.elsewhere.clone(),
                            approval: approval.clone(),
                        };
                        markdown::markdown(report, &options)
                    }
                    Format::Json => json::json(report),
                    Format::Sarif => sarif::sarif(report, below),
                    Format::Github => github::github(report, below),
                    Format::Gitlab => gitlab::gitlab(report, below),
                    Format::Junit => junit::junit(report, below),
                };
                out.write_all(text.as_bytes())
            })?;
        }
        Ok(())
    }

    fn write_text(&self, out: &mut dyn Write, report: &Report, excerpts: &mut Excerpts<'_>) -> io::Result<()> {
        let options = text::Options { all_runtimes: self.all_runtimes };
        paint(out, &text::summary(report, options))?;
        if !report.diagnostics.is_empty() {
            writeln!(out)?;
            report::write_text(out, &report.diagnostics, excerpts, report.subject.files)?;
        }
        paint(out, &text::differences(report, options))
    }
}

/// Fails if two outputs go to the same place.
pub(super) fn check<F>(sinks: &[Sink<F>]) -> anyhow::Result<()> {
    for (position, sink) in sinks.iter().enumerate() {
        if sinks[..position].iter().any(|other| other.file == sink.file) {
            match &sink.file {
                None => {
                    bail!("only one output can go to standard output: name files for the others, as in `-o json=FILE`")
                }
                Some(file) => bail!("two outputs go to {}: use different files", file.display()),
            }
        }
    }
    Ok(())
}

/// Writes a whole text to standard output. A reader that closes the pipe is no failure. Fails if it cannot be written.
pub(super) fn print(text: &[u8]) -> anyhow::Result<Exit> {
    match io::stdout().lock().write_all(text) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Ok),
        result => result.map(|()| Exit::Ok).context("cannot write to standard output"),
    }
}

// === impl Sink ===

impl<F> Sink<F> {
    /// Lets `write` fill the output. A file gets no styles. Fails if the output cannot be written.
    pub(super) fn write(&self, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
        let Some(path) = &self.file else {
            let mut out = io::BufWriter::new(anstream::stdout().lock());
            return match write(&mut out).and_then(|()| out.flush()) {
                // The reader closed the pipe.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                result => result.context("cannot write to standard output"),
            };
        };
        let mut out = anstream::StripStream::new(Vec::new());
        let written = write(&mut out).and_then(|()| fs::write(path, out.into_inner()));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

impl<F: ValueEnum> FromStr for Sink<F> {
    type Err = String;

    fn from_str(text: &str) -> Result<Sink<F>, String> {
        let (format, file) = match text.split_once('=') {
            None => (text, None),
            Some((_, "")) => return Err("the file is missing after `=`".to_owned()),
            Some((format, file)) => (format, Some(PathBuf::from(file))),
        };
        match F::from_str(format, false) {
            Ok(format) => Ok(Sink { format, file }),
            Err(_) => {
                let names = F::value_variants()
                    .iter()
                    .filter_map(|format| Some(format.to_possible_value()?.get_name().to_owned()));
                Err(format!("unknown format: use {}", names.collect::<Vec<_>>().join(", ")))
            }
        }
    }
}

/// Writes rows in the colours of their tones. The stream removes colours where they cannot be shown.
fn paint(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    for Row(spans) in rows {
        for span in spans {
            let text = &span.text;
            match span.tone {
                Tone::Plain => write!(out, "{text}"),
                Tone::Title => write!(out, "{}", text.bold()),
                Tone::Faint => write!(out, "{}", text.dimmed()),
                Tone::New => write!(out, "{}", text.green()),
                Tone::Old => write!(out, "{}", text.red()),
                Tone::Changed => write!(out, "{}", text.yellow()),
                Tone::Error => write!(out, "{}", text.red().bold()),
                Tone::Warning => write!(out, "{}", text.yellow().bold()),
            }?;
        }
        writeln!(out)?;
    }
    Ok(())
}
