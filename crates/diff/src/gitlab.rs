//! A report as GitLab's code quality report: remarks at the lines of a merge request.
//!
//! GitLab shows nothing without a line here; what has none is in the JUnit report and in the note.

use serde_json::{Value, json};

use super::{
    escape,
    model::Report,
    remark::{self, Level},
};

/// The report as text. `below` is the folder of the checkout that its paths are relative to; empty for its root.
pub fn gitlab(report: &Report, below: &str) -> String {
    let entries = remark::by_line(report, below).into_iter().filter_map(|remark| {
        let place = remark.place?;
        let severity = match remark.level {
            Level::Error => "critical",
            Level::Warning => "major",
            Level::Note => "info",
        };
        Some(json!({
            "description": escape::line(&remark.message),
            "check_name": escape::line(&remark.code),
            "fingerprint": remark.fingerprint,
            "severity": severity,
            // A file as a whole is shown at its first line.
            "location": { "path": &*place.path, "lines": { "begin": place.line.max(1) } },
        }))
    });
    escape::json(&Value::Array(entries.collect()))
}

#[cfg(test)]
mod tests;
