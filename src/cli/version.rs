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

/// This program in one line, with its commit if the build was told.
pub(super) fn line() -> String {
    let Version { version, commit, .. } = this();
    match commit {
        Some(commit) => format!("{version} (commit {commit})"),
        None => version.to_owned(),
    }
}

/// What the build was told, see `deploy/Dockerfile`: a build that looked for it itself would compile everything again
/// after each commit.
fn this() -> Version {
    Version::new(option_env!("TIDEGATE_COMMIT"), option_env!("TIDEGATE_COMMIT_DATE"))
}

/// Runs the command.
pub(super) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let version = this();
    match arguments.output {
        Output::Text => say!("{}", version.text()),
        Output::Json => say!("{}", serde_json::to_string(&version)?),
    }
    Ok(Exit::Ok)
}

impl Version {
    /// An empty value is none: container builds pass on what they were not given.
    fn new(commit: Option<&'static str>, date: Option<&'static str>) -> Version {
        let given = |value: Option<&'static str>| value.filter(|value| !value.is_empty());
        Version { version: env!("CARGO_PKG_VERSION"), commit: given(commit), date: given(date) }
    }

    fn text(&self) -> String {
        let known = |name: &str, value: Option<&str>| match value {
            Some(value) => format!("\n{name} {value}"),
            None => format!("\n{name} unknown: the build did not name it"),
        };
        format!("tidegate {}{}{}", self.version, known("commit", self.commit), known("date", self.date))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_build_was_not_told_is_said_to_be_unknown() {
        let version = env!("CARGO_PKG_VERSION");
        let told = Version::new(Some("0123abc"), Some("2026-01-02T03:04:05Z"));
        assert_eq!(told.text(), format!("tidegate {version}\ncommit 0123abc\ndate 2026-01-02T03:04:05Z"));
        let untold = Version::new(None, Some(""));
        let unknown = "unknown: the build did not name it";
        assert_eq!(untold.text(), format!("tidegate {version}\ncommit {unknown}\ndate {unknown}"));
        assert_eq!(serde_json::to_value(&untold).unwrap()["date"], serde_json::Value::Null);
    }
}
