use super::*;
use crate::fixture;

fn all(report: &Report) -> String {
    let mut rows = summary(report, Options::default());
    rows.extend(differences(report, Options::default()));
    plain(&rows)
}

#[test]
fn one_of_everything() {
    insta::assert_snapshot!(all(&fixture::report()));
}

#[test]
fn nothing_at_all() {
    insta::assert_snapshot!(all(&Report::default()));
}

#[test]
fn what_may_hide_a_change_is_never_no_change() {
    use crate::model::Verdict;
    let mut report = Report { unknown: fixture::report().unknown, ..Report::default() };
    assert_eq!(report.verdict(), Verdict::Changes);
    let text = all(&report);
    assert!(text.contains("no known change; 1 unknown value may hide one"), "{text}");
    report.unknown.retain(|unknown| !unknown.may_hide);
    assert_eq!(report.verdict(), Verdict::Same);
    assert!(all(&report).contains("Not known offline (1)"), "and what hides nothing is listed all the same");
}

#[test]
fn all_runtimes_are_named_where_they_are_asked_for() {
    let text = plain(&differences(&fixture::report(), Options { all_runtimes: true }));
    assert!(text.contains("kcp-system/skr-0812\n"), "{text}");
}

#[test]
fn no_value_steers_a_terminal_or_the_runner_of_a_pipeline() {
    let text = all(&fixture::nasty());
    for line in text.lines() {
        assert!(!line.trim_start().starts_with("::"), "{line:?}");
        assert!(!line.contains("##[") && !line.contains("##vso["), "{line:?}");
        let steers = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        assert!(!line.contains(steers), "{line:?}");
    }
}

#[test]
fn deletions_and_conflicts_show_all_of_their_lines() {
    let mut report = fixture::report();
    for difference in &mut report.differences {
        difference.hunks[0].lines.extend((0..10_000).map(|number| Line::Old(format!("  line {number}"))));
    }
    let text = all(&report);
    assert_eq!(text.matches("line 9999\n").count(), report.differences.len());
}
