//! A report as JUnit XML: one test case per check, so that a pipeline lists all checks.

use super::{
    escape::xml,
    model::{Action, Finding, Report},
    words::{self, counted},
};
use tidegate_core::diagnostic::{Diagnostic, FilePosition, Severity};

/// A group of test cases.
struct Suite {
    name: &'static str,
    cases: Vec<Case>,
}

/// One check.
struct Case {
    name: String,
    place: Option<FilePosition>,
    outcome: Outcome,
}

enum Outcome {
    /// The check passed, possibly with remarks.
    Passed(Vec<String>),
    /// The check failed: a summary, and each violation.
    Failed(String, Vec<String>),
    /// The check could not be made.
    Error(String),
}

/// Serializes the report. `below` is the folder in the checkout that the report's paths are
/// relative to; empty for its root.
pub fn junit(report: &Report, below: &str) -> String {
    let mut suites = vec![Suite { name: "definitions", cases: definitions(report) }];
    // A check of definitions alone compares nothing.
    if !report.subject.from.is_empty() {
        suites.push(Suite { name: "clusters", cases: clusters(report) });
        suites.push(Suite { name: "differences", cases: differences(report) });
        suites.push(Suite { name: "policies", cases: policies(report) });
    }
    let count = |of: fn(&Outcome) -> bool| {
        suites.iter().flat_map(|suite| &suite.cases).filter(|case| of(&case.outcome)).count()
    };
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push_str(&format!(
        "<testsuites name=\"tidegate\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        count(|_| true),
        count(is_failed),
        count(is_error)
    ));
    suites.iter().for_each(|suite| suite.write(&mut text, below));
    text.push_str("</testsuites>\n");
    text
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed(..))
}

fn is_error(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Error(_))
}

/// One case for each error, and one for all warnings.
fn definitions(report: &Report) -> Vec<Case> {
    let said = |diagnostic: &Diagnostic| match &diagnostic.hint {
        Some(hint) => format!("{diagnostic}; {hint}"),
        None => diagnostic.to_string(),
    };
    let (errors, warnings): (Vec<&Diagnostic>, Vec<&Diagnostic>) =
        report.diagnostics.iter().partition(|one| one.severity == Severity::Error);
    let mut cases: Vec<Case> = errors
        .iter()
        .map(|one| Case {
            name: format!("{}: {}", one.code, one.message),
            place: one.place.clone(),
            outcome: Outcome::Failed(one.code.to_owned(), vec![said(one)]),
        })
        .collect();
    if cases.is_empty() {
        let warnings = warnings.into_iter().map(said).collect();
        let name = "definitions and templates are valid".to_owned();
        cases.push(Case { name, place: None, outcome: Outcome::Passed(warnings) });
    }
    cases
}

fn clusters(report: &Report) -> Vec<Case> {
    let case = |name: String, outcome| Case { name, place: None, outcome };
    if report.unreached.is_empty() {
        return vec![case("all clusters were read".to_owned(), Outcome::Passed(Vec::new()))];
    }
    report.unreached.iter().map(|one| case(one.target.clone(), Outcome::Error(one.message.clone()))).collect()
}

/// One case for each action. None of them fails: a policy decides whether a difference is a
/// failure.
fn differences(report: &Report) -> Vec<Case> {
    [Action::Conflict, Action::Refuse, Action::Delete, Action::Recreate, Action::Change, Action::Create]
        .into_iter()
        .map(|action| {
            let all: Vec<String> =
                report.differences.iter().filter(|one| one.action == action).map(words::sentence).collect();
            let name = format!("{action}: {}", counted(all.len(), "difference"));
            Case { name, place: None, outcome: Outcome::Passed(all) }
        })
        .collect()
}

fn policies(report: &Report) -> Vec<Case> {
    let mut rules: Vec<&String> = report.checked.iter().collect();
    rules.extend(report.findings.iter().map(|finding| &finding.rule));
    rules.sort();
    rules.dedup();
    let case = |rule: &String| {
        let all: Vec<&Finding> = report.findings.iter().filter(|finding| finding.rule == *rule).collect();
        let messages: Vec<String> = all.iter().map(|finding| finding.message.clone()).collect();
        let fails = all.iter().any(|finding| finding.severity == Severity::Error);
        Case {
            name: rule.clone(),
            place: all.iter().find_map(|finding| finding.place.clone()),
            outcome: if fails {
                Outcome::Failed(counted(all.len(), "violation"), messages)
            } else {
                Outcome::Passed(messages)
            },
        }
    };
    rules.into_iter().map(case).collect()
}

// === impl Suite ===

impl Suite {
    fn write(&self, text: &mut String, below: &str) {
        let count = |of: fn(&Outcome) -> bool| self.cases.iter().filter(|case| of(&case.outcome)).count();
        text.push_str(&format!(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
            self.name,
            self.cases.len(),
            count(is_failed),
            count(is_error)
        ));
        self.cases.iter().for_each(|case| case.write(text, self.name, below));
        text.push_str("  </testsuite>\n");
    }
}

// === impl Case ===

impl Case {
    fn write(&self, text: &mut String, suite: &str, below: &str) {
        text.push_str(&format!("    <testcase classname=\"tidegate.{suite}\" name=\"{}\"", xml(&self.name)));
        if let Some(place) = self.place.as_ref().filter(|place| !place.path.is_empty()) {
            let folder = if below.is_empty() { String::new() } else { format!("{below}/") };
            text.push_str(&format!(" file=\"{}\"", xml(&format!("{folder}{}", place.path))));
            text.push_str(&format!(" line=\"{}\"", place.line.max(1)));
        }
        match &self.outcome {
            Outcome::Passed(said) if said.is_empty() => text.push_str("/>\n"),
            Outcome::Passed(said) => {
                text.push_str(&format!(">\n      <system-out>{}</system-out>\n    </testcase>\n", lines(said)));
            }
            Outcome::Failed(what, said) => text.push_str(&format!(
                ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                xml(what),
                lines(said)
            )),
            Outcome::Error(said) => {
                text.push_str(&format!(">\n      <error message=\"{}\"/>\n    </testcase>\n", xml(said)));
            }
        }
    }
}

fn lines(said: &[String]) -> String {
    said.iter().map(|one| xml(one)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
