use super::*;
use tidegate_core::diagnostic::{Diagnostic, FilePosition};

use crate::fixture;

fn parsed(report: &Report, below: &str) -> Value {
    serde_json::from_str(&sarif(report, below)).unwrap()
}

#[test]
fn one_of_everything() {
    let text = sarif(&fixture::report(), "").replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!(text);
}

#[test]
fn every_result_has_a_place_and_a_rule() {
    let value = parsed(&fixture::nasty(), "");
    let run = &value["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    for result in run["results"].as_array().unwrap() {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let uri = result.pointer("/locations/0/physicalLocation/artifactLocation/uri").unwrap().as_str().unwrap();
        assert!(uri.chars().all(|c| c.is_ascii_graphic() && !"<>\"`{}|\\^:".contains(c)), "{uri}");
    }
}

#[test]
fn paths_are_those_of_the_checkout() {
    let value = parsed(&fixture::report(), "examples/landscape");
    let first = value.pointer("/runs/0/results/0/locations/0/physicalLocation/artifactLocation/uri").unwrap();
    assert_eq!(first, "examples/landscape/landscapes/dev/kyma.yaml");
}

#[test]
fn fingerprints_outlive_an_edit_above_and_differ_from_each_other() {
    let fingerprints = |report: &Report| -> Vec<String> {
        let value = parsed(report, "");
        let results = value["runs"][0]["results"].as_array().unwrap();
        results.iter().map(|one| one["partialFingerprints"]["tidegate/v1"].to_string()).collect()
    };
    let report = fixture::report();
    let mut moved = fixture::report();
    moved.diagnostics.iter_mut().flat_map(|one| &mut one.place).for_each(|place| place.line += 5);
    moved.differences.iter_mut().flat_map(|one| &mut one.places).for_each(|place| place.line += 5);
    assert_eq!(fingerprints(&report), fingerprints(&moved));
    let mut all = fingerprints(&report);
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn no_more_than_platforms_take_and_the_worst_first() {
    let mut report = Report { differences: vec![fixture::difference(); RESULTS_MAX + 3], ..Report::default() };
    report.diagnostics.push(Diagnostic::error("watcher", "bad").at(FilePosition::file("a.yaml")));
    let value = parsed(&report, "");
    let results = value["runs"][0]["results"].as_array().unwrap();
    assert_eq!((results.len(), &results[0]["ruleId"]), (RESULTS_MAX, &"watcher".into()));
    let note = &value["runs"][0]["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"];
    assert_eq!(note, "4 results omitted, because platforms accept no more");
}

#[test]
fn rules_say_what_the_documentation_says() {
    let report = Report {
        diagnostics: vec![Diagnostic::error("yaml-duplicate-key", "x").at(FilePosition::file("a.yaml"))],
        ..Report::default()
    };
    let rule = &parsed(&report, "")["runs"][0]["tool"]["driver"]["rules"][0];
    assert_eq!(rule["shortDescription"]["text"], "a mapping has a key twice");
    assert_eq!(rule["help"]["text"], "remove one");
}

#[test]
fn every_reason_to_hold_a_change_is_explained() {
    for why in crate::model::Why::ALL {
        let (text, _) = explain(&format!("held/{}", why.as_str()));
        assert_ne!(text, "a policy rule of this repository", "{why:?}");
    }
}
