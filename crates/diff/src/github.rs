//! A report as workflow commands of GitHub: annotations at the lines of a pull request.

use super::{
    escape,
    model::Report,
    remark::{self, Level, Remark},
    words::thousands,
};

/// GitHub's limit for annotations of a level in a step. It silently drops the rest.
const SHOWN_MAX: usize = 10;

/// One command per line. `below` is the folder in the checkout that paths are relative to; empty
/// for its root.
///
/// At most GitHub's limit for each level. If there are more, the last one says how many.
pub fn github(report: &Report, below: &str) -> String {
    let remarks = remark::by_line(report, below);
    let mut text = String::new();
    for (level, name, plural) in
        [(Level::Error, "error", "errors"), (Level::Warning, "warning", "warnings"), (Level::Note, "notice", "notices")]
    {
        let all: Vec<&Remark> = remarks.iter().filter(|remark| remark.level == level).collect();
        let shown = if all.len() > SHOWN_MAX { SHOWN_MAX - 1 } else { all.len() };
        for remark in &all[..shown] {
            text.push_str(&command(name, remark));
        }
        if shown < all.len() {
            let more = thousands(all.len() - shown);
            text.push_str(&format!(
                "::{name} title=tidegate::{more} more {plural}, which GitHub would not show here: see the comment or \
                 the output of tidegate\n"
            ));
        }
    }
    text
}

fn command(name: &str, remark: &Remark) -> String {
    let mut properties: Vec<(&str, String)> = Vec::new();
    if let Some(place) = &remark.place {
        properties.push(("file", escape::property(&escape::line(&place.path))));
        // A remark about a whole file is shown at its first line.
        properties.push(("line", place.line.max(1).to_string()));
        if place.column > 0 {
            properties.push(("col", place.column.to_string()));
        }
    }
    properties.push(("title", escape::property(&escape::line(&remark.code))));
    let properties: Vec<String> = properties.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!("::{name} {}::{}\n", properties.join(","), escape::message(&escape::line(&remark.message)))
}

#[cfg(test)]
mod tests;
