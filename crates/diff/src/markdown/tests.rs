use super::*;
use crate::{
    fixture,
    model::{Action, Held},
};

fn by_default(report: &Report) -> String {
    markdown(report, &Options::default())
}

fn with(budget: usize) -> Options {
    Options { budget, ..Options::default() }
}

/// `count` differences of one kind with some thousand characters each.
fn many(action: Action, count: usize) -> Report {
    let mut one = fixture::difference();
    one.action = action;
    one.hunks[0].lines.extend((0..100).map(|line| Line::New(format!("  line {line} of the object"))));
    let differences = (0..count).map(|number| {
        let mut one = one.clone();
        one.id.name = format!("object-{number}").into();
        one
    });
    Report { differences: differences.collect(), ..fixture::report() }
}

#[test]
fn one_of_everything() {
    insta::assert_snapshot!(by_default(&fixture::report()));
}

#[test]
fn nothing_at_all() {
    insta::assert_snapshot!(by_default(&Report::default()));
}

#[test]
fn it_begins_with_its_marker() {
    assert!(by_default(&Report::default()).starts_with("<!-- tidegate-diff -->\n"));
    let options = Options { marker: "tidegate-diff.prod".parse().unwrap(), ..Options::default() };
    assert!(markdown(&Report::default(), &options).starts_with("<!-- tidegate-diff.prod -->\n"));
    for text in ["", "a--b", "-a", "a-", "a b", "a>", &"x".repeat(65)] {
        assert!(text.parse::<Marker>().is_err(), "{text}");
    }
}

#[test]
fn a_violated_rule_names_the_way_to_approve_it() {
    let cases = [
        (Approval::Trailer, "to approve `delete`, add the trailer `Tidegate-Approve: delete` to a commit"),
        (Approval::Option, "to approve `delete`, run the comparison with `--approve delete`"),
        (
            Approval::Label("ok/".to_owned()),
            "to approve `delete`, set the label `ok/delete` and run the comparison again",
        ),
    ];
    for (approval, expected) in cases {
        let text = markdown(&fixture::report(), &Options { approval, ..Options::default() });
        let steps: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("> - to approve")).collect();
        assert_eq!(steps.iter().map(|step| format!("to approve{step}")).collect::<Vec<_>>(), [expected], "{text}");
    }
}

#[test]
fn it_keeps_its_budget() {
    for action in [Action::Change, Action::Delete, Action::Conflict, Action::Create] {
        for count in [1, 30, 2_000] {
            for budget in [0, BUDGET_MIN, 20_000, BUDGET] {
                let text = markdown(&many(action, count), &with(budget));
                let length = text.chars().count();
                assert!(length <= budget.max(BUDGET_MIN), "{action} {count} {budget}: {length}");
                let shown = text.matches("line 99 of").count();
                assert_eq!(text.contains("This comment is cut"), shown < count, "{text}");
            }
        }
    }
    let nasty = fixture::nasty();
    for budget in [0, 10_000, BUDGET] {
        assert!(markdown(&nasty, &with(budget)).chars().count() <= budget.max(BUDGET_MIN));
    }
}

#[test]
fn no_line_is_long() {
    let mut long = fixture::report();
    long.differences[0].hunks[0].lines.push(Line::New("<&".repeat(2_000)));
    long.differences[0].id.name = "&".repeat(253).into();
    for report in [fixture::report(), fixture::nasty(), many(Action::Delete, 3_000), many(Action::Delete, 9_000), long]
    {
        for budget in [BUDGET_MIN, BUDGET] {
            let text = markdown(&report, &with(budget));
            let longest = text.lines().max_by_key(|line| line.chars().count()).unwrap();
            assert!(longest.chars().count() <= LINE_MAX, "{}: {longest}", longest.chars().count());
        }
    }
}

#[test]
fn what_a_user_does_next_is_whole() {
    let command = "kubectl annotate gitsource -n kcp-system landscape tidegate.dev/confirm-prune=worktree --overwrite";
    let (why, next) = ("the reason ".repeat(20), format!("to prune them, run `{command}`"));
    let of = |message: String, hint: Option<String>| Held { message, hint, ..fixture::report().held[0].clone() };
    let padded = format!("after the merge, and after everything that is described in the documentation, {next}");
    for held in
        [of(format!("{why}; {next}"), None), of("short".to_owned(), Some(format!("{padded}, {}", "x".repeat(40))))]
    {
        let text = by_default(&Report { held: vec![held], ..fixture::report() });
        assert!(text.contains(command), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= LINE_MAX), "{text}");
    }
}

#[test]
fn deletions_are_shown_before_changes_give_way() {
    let mut report = many(Action::Delete, 10);
    report.differences.extend(many(Action::Change, 100).differences);
    let text = by_default(&report);
    assert_eq!(text.matches("<b>delete</b>").count(), 10);
    assert_eq!(
        text.matches("line 99 of").count(),
        text.matches("<details").count() - text.matches("</b></summary>").count()
    );
    assert!(text.contains("differences without their lines"), "{text}");
}

#[test]
fn deletions_that_are_too_many_are_one_line_each() {
    let text = by_default(&many(Action::Delete, 300));
    assert_eq!(text.matches("- **delete** `Deployment.apps kyma-system/object-").count(), 300);
    assert!(text.contains("300 differences without their lines"), "{text}");
    // Of thousands of differences, only the names are shown.
    let text = by_default(&many(Action::Delete, 3_000));
    assert_eq!(text.matches("object-").count(), 3_000, "{text}");
    assert!(text.contains("- **delete** `Deployment` of namespace `kyma-system` in "), "{text}");
    assert!(text.chars().count() <= BUDGET);
    // Differences beyond the platform's limit are counted, and the comment says where they are.
    let elsewhere = Some("artifact tidegate of this run".to_owned());
    let text = markdown(&many(Action::Delete, 9_000), &Options { elsewhere, ..Options::default() });
    let rest = thousands(9_000 - text.matches("object-").count());
    assert!(text.contains(&format!("{rest} differences not shown at all")), "{text}");
    assert!(text.contains(&format!("> - delete `Deployment`: {rest}")), "{text}");
    assert!(text.contains("All of it is in `artifact tidegate of this run`."), "{text}");
    assert!(text.chars().count() <= BUDGET);
}

#[test]
fn what_does_not_fit_hides_nothing_that_does() {
    let mut report = many(Action::Create, 1);
    report.differences[0].hunks[0].lines = vec![Line::New("x".repeat(400)); 250];
    report.differences.extend(many(Action::Create, 3).differences);
    assert_eq!(by_default(&report).matches("<b>create</b>").count(), 3);
}

#[test]
fn lists_are_cut_and_counted() {
    let mut report = fixture::report();
    report.diagnostics = vec![report.diagnostics[1].clone(); 5_000];
    let text = by_default(&report);
    assert!(text.contains("; 5,000 errors; ") && text.contains("> - and 4,") && text.contains(" more\n"), "{text}");
    assert!(text.contains("<b>delete</b>"), "the differences have their room: {text}");
}

/// Parses a comment like a renderer, and returns the text outside of code spans and fences.
fn outside_of_code(text: &str) -> String {
    let mut outside = String::new();
    let mut fence: Option<String> = None;
    for line in text.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match &fence {
            Some(open) => {
                if ticks >= open.len() && line.trim_end().len() == ticks {
                    fence = None;
                }
                continue;
            }
            None if ticks >= 3 && !line[ticks..].contains('`') => {
                fence = Some("`".repeat(ticks));
                continue;
            }
            None => {}
        }
        if line.starts_with("<details") {
            // This is HTML, in which backticks are ordinary text.
            outside.push_str(&line.replace("<code>", "\u{1}").replace("</code>", "\u{2}"));
            outside.push('\n');
            continue;
        }
        // Blocks with a severity are quotes.
        let mut rest = line;
        while let Some(start) = rest.find('`') {
            outside.push_str(&rest[..start]);
            let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
            let behind = &rest[start + ticks..];
            let mut end = None;
            let mut from = 0;
            while let Some(at) = behind[from..].find('`').map(|at| at + from) {
                let run = behind[at..].len() - behind[at..].trim_start_matches('`').len();
                if run == ticks {
                    end = Some(at + run);
                    break;
                }
                from = at + run;
            }
            rest = &behind[end.expect("a code span ends on its line")..];
        }
        outside.push_str(rest);
        outside.push('\n');
    }
    assert!(fence.is_none(), "a fence is open at the end");
    outside
}

#[test]
fn values_stay_in_their_code() {
    for budget in [BUDGET_MIN, 20_000, 1_000_000] {
        let outside = outside_of_code(&markdown(&fixture::nasty(), &with(budget)));
        for injected in ["<script", "![", "@everyone", "#123", "GH-1", "https://", "-->\n@", "::error", "##["] {
            let plain: String = outside.lines().filter(|line| !line.starts_with("<details")).collect();
            assert!(!plain.contains(injected), "{injected} in {outside}");
        }
        for line in outside.lines().filter(|line| line.starts_with("<details")) {
            let (_, rest) = line.split_once("<summary>").unwrap();
            let inner = rest.strip_suffix("</summary>").unwrap();
            let tags: Vec<&str> = inner.split('<').skip(1).map(|tag| tag.split('>').next().unwrap()).collect();
            assert!(tags.iter().all(|tag| ["b", "/b"].contains(tag)), "{line}");
        }
    }
}
