//! A report as SARIF 2.1.0, for code scanning.
//!
//! Every remark is a result at its line, in the file of the definition or template that causes it.
//! A remark without a line is a notification of the run, because platforms reject results without a
//! location.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    escape,
    model::Report,
    remark::{self, Level, Remark},
    words::counted,
};

/// Maximum number of results: GitHub's limit for a run. The most severe come first.
const RESULTS_MAX: usize = 5_000;

/// The page that explains every diagnostic code.
const CODES: &str = include_str!("../../../docs/diagnostics.md");

/// Serializes the report. `below` is the folder in the checkout that the report's paths are
/// relative to; empty for its root.
pub fn sarif(report: &Report, below: &str) -> String {
    let remarks = remark::all(report, below);
    let (results, notifications): (Vec<&Remark>, Vec<&Remark>) = remarks.iter().partition(|one| one.place.is_some());
    let left_out = results.len().saturating_sub(RESULTS_MAX);
    let results = &results[..results.len() - left_out];
    let rules = rules(results.iter().chain(&notifications).copied());
    let index = |code: &str| rules.keys().position(|known| *known == code).unwrap_or_default();
    let results: Vec<Value> = results.iter().map(|one| result(one, index(&one.code))).collect();
    let mut notes: Vec<Value> = notifications.iter().map(|one| notification(one, index(&one.code))).collect();
    if left_out > 0 {
        let text = format!("{} omitted, because platforms accept no more", counted(left_out, "result"));
        notes.push(json!({ "level": "warning", "message": { "text": text } }));
    }
    escape::json(&json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "tidegate",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules.values().collect::<Vec<_>>(),
            } },
            "originalUriBaseIds": { "%SRCROOT%": { "description": { "text": "root of the repository" } } },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": report.unreached.is_empty(),
                "toolExecutionNotifications": notes,
            }],
            "results": results,
        }],
    }))
}

fn result(remark: &Remark, rule: usize) -> Value {
    json!({
        "ruleId": remark.code,
        "ruleIndex": rule,
        "level": level(remark.level),
        "message": { "text": plain(&remark.message) },
        "locations": remark.place.iter().map(|place| {
            let mut physical = json!({
                "artifactLocation": { "uri": escape::uri(&place.path), "uriBaseId": "%SRCROOT%" },
            });
            if place.line > 0 {
                physical["region"] = json!({ "startLine": place.line });
                if place.column > 0 {
                    physical["region"]["startColumn"] = place.column.into();
                }
            }
            json!({ "physicalLocation": physical })
        }).collect::<Vec<_>>(),
        "partialFingerprints": { "tidegate/v1": remark.fingerprint },
    })
}

fn notification(remark: &Remark, rule: usize) -> Value {
    json!({
        "level": level(remark.level),
        "message": { "text": plain(&remark.message) },
        "associatedRule": { "id": remark.code, "index": rule },
    })
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    }
}

/// A message without links.
fn plain(message: &str) -> String {
    let message = escape::line(message);
    if message.contains("](") { message.replace('[', "\\[").replace(']', "\\]") } else { message }
}

/// A description of every code that is used, by code.
fn rules<'a>(remarks: impl Iterator<Item = &'a Remark>) -> BTreeMap<&'a str, Value> {
    let documented: BTreeMap<&str, (&str, &str)> = CODES
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
            Some((cells.next()?.strip_suffix('`')?, (cells.next()?, cells.next()?)))
        })
        .collect();
    let mut rules = BTreeMap::new();
    for remark in remarks {
        rules.entry(remark.code.as_str()).or_insert_with(|| {
            let (means, help) = documented.get(remark.code.as_str()).copied().unwrap_or_else(|| explain(&remark.code));
            let short = if means.is_empty() { escape::line(&remark.code) } else { means.to_owned() };
            let mut rule = json!({ "id": remark.code, "shortDescription": { "text": short } });
            if !help.is_empty() {
                rule["help"] = json!({ "text": help });
            }
            rule["defaultConfiguration"] = json!({ "level": level(remark.level) });
            rule
        });
    }
    rules
}

/// The description of a code other than a diagnostic's, and the next step for the user.
fn explain(code: &str) -> (&'static str, &'static str) {
    match code {
        "diff/conflict" => {
            ("an object or a field that another manager owns", "hand it over, or remove it from the definition")
        }
        "diff/delete" => ("an object that is deleted", ""),
        "diff/refuse" => {
            ("an object whose change the API server refuses", "undo the change, or allow the object to be recreated")
        }
        "diff/recreate" => ("an object that is deleted and created again", ""),
        "diff/change" => ("an object that changes", ""),
        "diff/create" => ("an object that is created", ""),
        "held/downgrade" => ("a version lower than the installed one", "see the message"),
        "held/decided-by-runtime" => ("a setting that the runtime controls", ""),
        "held/refused" => ("a module that is not installed", "see the message"),
        "held/maintenance-window" => ("an upgrade that waits for a maintenance window", "see the message"),
        "held/withheld" => ("a definition that is not applied", "correct the invalid definition that it refers to"),
        "held/conflict" => ("a module with an object that belongs to another owner", "see the message"),
        "held/waiting" => ("a definition that waits for another one", "see the message"),
        "held/rollout" => ("a version that spreads step by step", ""),
        "held/unconfirmed" => ("a change that waits for a confirmation", "see the message"),
        "held/adopted" => ("a runtime that stays as Lifecycle Manager left it", "run `tidegate adopt take --finish`"),
        "held/suspended" => {
            ("a suspended runtime or source", "run `tidegate resume`, or change git if it is suspended there")
        }
        "held/kept" => ("an object that is no longer declared but not deleted", "see the message"),
        "held/kept-before" => ("an object that an earlier revision no longer declared and that is kept", ""),
        "not-known" => {
            ("a value that only a live cluster knows", "compare with `--live`, or set a value with `--assume`")
        }
        "not-reached" => ("a cluster that could not be read", "see the message"),
        _ => ("a policy rule of this repository", ""),
    }
}

#[cfg(test)]
mod tests;
