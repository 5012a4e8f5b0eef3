use super::*;
use crate::fixture;

#[test]
fn one_of_everything() {
    insta::assert_snapshot!(github(&fixture::report(), "examples/landscape"));
}

#[test]
fn every_line_is_one_command() {
    for line in github(&fixture::nasty(), "").lines() {
        let (command, rest) = line.strip_prefix("::").unwrap().split_once(' ').unwrap();
        assert!(["error", "warning", "notice"].contains(&command), "{line}");
        let (properties, message) = rest.split_once("::").unwrap();
        for property in properties.split(',') {
            let (key, value) = property.split_once('=').unwrap();
            assert!(["file", "line", "col", "title"].contains(&key), "{line}");
            assert!(!value.contains([':', '\r', '\n']), "{line}");
        }
        assert!(!message.contains("##["), "{line}");
    }
}

#[test]
fn as_many_as_github_shows_and_how_many_more() {
    let place = |line| fixture::place("a.yaml", line, 1);
    let differences =
        (1..=25).map(|line| super::super::model::Difference { places: vec![place(line)], ..fixture::difference() });
    let text = github(&Report { differences: differences.collect(), ..Report::default() }, "");
    assert_eq!(text.lines().count(), SHOWN_MAX);
    assert!(text.lines().last().unwrap().contains("::16 more notices"), "{text}");
}

#[test]
fn what_one_line_causes_is_one_annotation() {
    let report = Report { differences: vec![fixture::difference(); 3], ..Report::default() };
    assert_eq!(
        github(&report, ""),
        "::notice file=modules/cache/1.1.0/objects/manager.yaml,line=12,col=3,title=diff/change::Deployment.apps \
         kyma-system/cache-manager changes in 3 runtimes, and 2 other differences\n"
    );
}
