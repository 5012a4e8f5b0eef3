use super::*;
use crate::fixture;

#[test]
fn one_of_everything() {
    insta::assert_snapshot!(junit(&fixture::report(), ""));
}

#[test]
fn definitions_alone_are_one_suite() {
    insta::assert_snapshot!(junit(&Report::default(), ""), @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites name="tidegate" tests="1" failures="0" errors="0">
      <testsuite name="definitions" tests="1" failures="0" errors="0">
        <testcase classname="tidegate.definitions" name="definitions and templates are valid"/>
      </testsuite>
    </testsuites>
    "#);
}

#[test]
fn every_character_is_one_of_xml() {
    let text = junit(&fixture::nasty(), "");
    let allowed =
        |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    assert!(text.chars().all(allowed), "{text}");
    // No value opens or closes an element: the report itself opens every element.
    let opened: Vec<&str> = text.split('<').skip(1).map(|rest| rest.split([' ', '>', '/']).next().unwrap()).collect();
    let ours = ["?xml", "testsuites", "testsuite", "testcase", "system-out", "failure", "error", ""];
    assert!(opened.iter().all(|name| ours.contains(name)), "{opened:?}");
    assert!(!text.contains("]]>") && !text.contains("##["));
}
