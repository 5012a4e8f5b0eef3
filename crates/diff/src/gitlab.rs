//! A report in GitLab's code quality format: remarks at the lines of a merge request.
//!
//! GitLab shows no remark without a line here. Such remarks are in the JUnit report and in the
//! note.

use serde_json::{Value, json};

use super::{
    escape,
    model::Report,
    remark::{self, Level},
};

/// Serializes the report. `below` is the folder in the checkout that the report's paths are
/// relative to; empty for its root.
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
            // A remark about a whole file is shown at its first line.
            "location": { "path": &*place.path, "lines": { "begin": place.line.max(1) } },
        }))
    });
    escape::json(&Value::Array(entries.collect()))
}

#[cfg(test)]
mod tests;
