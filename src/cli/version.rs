//! `tidegate version`: which program this is.

use serde::Serialize;
use tidegate_process::{Exit, say};

/// Prints the version of this program, and the commit that it was built from.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Print in this format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Output {
    /// Lines for people
    Text,
    /// One JSON object
    Json,
}

/// Which program this is.
#[derive(Serialize)]
struct Version {
    version: &'static str,
    /// Of the source code; none in a build that was not told.
    commit: Option<&'static str>,
    /// When the commit was made.
    date: Option<&'static str>,
}

/// Commit and date are what the build was told, see `deploy/Dockerfile`: a build that looked for them itself would
/// compile everything again after each commit.
const VERSION: Version = Version {
    version: env!("CARGO_PKG_VERSION"),
    commit: option_env!("TIDEGATE_COMMIT"),
    date: option_env!("TIDEGATE_COMMIT_DATE"),
};

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    match arguments.output {
        Output::Text => say!("{}", VERSION.text()),
        Output::Json => say!("{}", serde_json::to_string(&VERSION)?),
    }
    Ok(Exit::Ok)
}

impl Version {
    fn text(&self) -> String {
        let known = |name: &str, value: Option<&str>| match value {
            Some(value) if !value.is_empty() => format!("\n{name} {value}"),
            Some(_) | None => format!("\n{name} unknown: the build did not name it"),
        };
        format!("tidegate {}{}{}", self.version, known("commit", self.commit), known("date", self.date))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_build_was_not_told_is_said_to_be_unknown() {
        let told = Version { version: "1.2.3", commit: Some("0123abc"), date: Some("2026-01-02T03:04:05Z") };
        assert_eq!(told.text(), "tidegate 1.2.3\ncommit 0123abc\ndate 2026-01-02T03:04:05Z");
        let untold = Version { commit: None, date: Some(""), ..told };
        let unknown = "unknown: the build did not name it";
        assert_eq!(untold.text(), format!("tidegate 1.2.3\ncommit {unknown}\ndate {unknown}"));
    }
}
