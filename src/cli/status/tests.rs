use std::collections::BTreeSet;

use clap::Parser as _;

use super::*;
use tidegate_core::{
    api::{
        git_source::{Counts, DiagnosticEntry},
        shared::State,
    },
    overview::{RolloutLine, UnreadableLine, WatcherLine},
};

/// The command by itself.
#[derive(clap::Parser)]
struct Program {
    #[command(flatten)]
    arguments: Arguments,
}

fn source_line(name: &str, standing: SubjectState, message: &str, errors: usize) -> SourceLine {
    let diagnostic = |number: usize| DiagnosticEntry {
        severity: "error".to_owned(),
        code: "unknown-field".to_owned(),
        path: Some(format!("modules/cache/{number}.yaml")),
        line: Some(7),
        column: Some(3),
        message: "there is no field `spec.versoin`; did you mean `version`?".to_owned(),
    };
    SourceLine {
        name: name.to_owned(),
        standing,
        message: message.to_owned(),
        applied_revision: Some("main@sha1:1111111111111111111111111111111111111111".to_owned()),
        attempted_revision: None,
        counts: Counts { applied: 12, withheld: 2, to_prune: 0 },
        diagnostics: (1..=errors).map(diagnostic).collect(),
        deliveries: None,
    }
}

fn runtime_line(
    name: &str,
    standing: SubjectState,
    state: State,
    message: &str,
    modules: Vec<ModuleLine>,
) -> RuntimeLine {
    let (name, message) = (name.to_owned(), message.to_owned());
    RuntimeLine {
        name,
        standing,
        state,
        message,
        maintenance: None,
        rollout: None,
        removal: None,
        adopted: false,
        hint: None,
        modules,
        mandatory: Vec::new(),
    }
}

fn module_line(name: &str, standing: SubjectState, state: State, message: Option<&str>) -> ModuleLine {
    ModuleLine {
        name: name.to_owned(),
        standing,
        state,
        version: Some("1.0.0".to_owned()),
        channel: Some("regular".to_owned()),
        message: message.map(str::to_owned),
        maintenance: false,
    }
}

fn text(overview: &Overview) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    write_text(&mut out, overview, LINES_MAX).unwrap();
    String::from_utf8(out.into_inner()).unwrap()
}

#[test]
fn problems_come_first_and_what_is_well_is_counted() {
    let overview = Overview {
        not_served: BTreeSet::new(),
        is_foreign: false,
        no_leader: None,
        no_lease: false,
        setup: Vec::new(),
        kcp_operator: None,
        rollouts: Vec::new(),
        unreadable: vec![UnreadableLine {
            kind: "ModuleTemplate".to_owned(),
            name: "kcp-system/cache-1.0.0".to_owned(),
            problem: "spec.version: invalid type, expected a string".to_owned(),
            has_templates: false,
        }],
        sources: vec![
            source_line("kcp-system/bad", SubjectState::Wrong, "2 definitions are held back", 7),
            source_line("kcp-system/good", SubjectState::Well, "applied", 0),
        ],
        runtimes: vec![
            runtime_line(
                "kcp-system/broken",
                SubjectState::Wrong,
                State::Error,
                "module cache: no version 1.2.0",
                vec![
                    module_line("cache", SubjectState::Wrong, State::Error, Some("no version 1.2.0")),
                    module_line("mailer", SubjectState::Well, State::Ready, None),
                ],
            ),
            runtime_line("kcp-system/fresh", SubjectState::Waiting, State::Unknown, "not reconciled yet", Vec::new()),
            runtime_line(
                "kcp-system/quiet",
                SubjectState::Stopped,
                State::Ready,
                "stopped by label operator.kyma-project.io/skip-reconciliation",
                Vec::new(),
            ),
            runtime_line("kcp-system/well", SubjectState::Well, State::Ready, "kyma is ready", Vec::new()),
        ],
        watchers: vec![WatcherLine {
            name: "kcp-system/watcher".to_owned(),
            standing: SubjectState::Well,
            message: "Ready".to_owned(),
        }],
    };
    insta::assert_snapshot!(text(&overview));
}

#[test]
fn a_kind_that_is_not_served_is_one_line_and_the_rest_is_shown() {
    for (kinds, expected, code) in [
        (&[][..], "Healthy: 1 source\n", Exit::Ok),
        (
            &["kymas"],
            "Problems (1)\n  deletions are held: the control plane does not serve kymas: apply what `tidegate crds` prints; to remove everything from the runtimes, then run `kubectl annotate crd kymas.operator.kyma-project.io tidegate.dev/confirm-deletion=true` and delete it again\n\nHealthy: 1 source",
            Exit::Incomplete,
        ),
        (&["kymas", "watchers"], "Problems (2)", Exit::Incomplete),
    ] {
        let not_served: BTreeSet<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let sources = vec![source_line("kcp-system/good", SubjectState::Well, "applied", 0)];
        let overview = Overview { sources, ..Overview::default() }.with_not_served(not_served);
        assert_eq!(exit(&overview), code);
        let shown = text(&overview);
        assert!(shown.starts_with(expected), "{shown}");
        // Where no daemon has led, as beside Lifecycle Manager, nothing holds deletions.
        let foreign = text(&Overview { is_foreign: true, ..overview });
        assert!(!foreign.contains("held") && !foreign.contains("annotate"), "{foreign}");
    }
}

#[test]
fn a_source_that_cannot_be_read_says_what_waits_for_its_templates() {
    let with = |has_templates| {
        let unreadable = vec![UnreadableLine {
            kind: "GitSource".to_owned(),
            name: "kcp-system/landscape".to_owned(),
            problem: "spec.prune: invalid type, expected a boolean".to_owned(),
            has_templates,
        }];
        text(&Overview { unreadable, ..Overview::default() })
    };
    let first = "Problems (1)\n  GitSource kcp-system/landscape cannot be read: spec.prune: invalid type, expected a \
                 boolean\n      what Tidegate has read of it before, if anything, stays in use; upgrade Tidegate, or \
                 correct the field\n";
    let wait = "      if Tidegate has read nothing of it since its start, Kymas and Watchers that may use its templates \
                (spec.templates) wait for it\n";
    assert!(with(false).starts_with(&format!("{first}\n")), "{}", with(false));
    assert!(with(true).starts_with(&format!("{first}{wait}\n")), "{}", with(true));
}

#[test]
fn a_healthy_runtime_whose_upgrade_waits_is_shown() {
    let line = |name: &str, standing: SubjectState| RuntimeLine {
        maintenance: Some("the next maintenance window begins at 2026-11-28T20:00:00Z; waiting: cache".to_owned()),
        ..runtime_line(name, standing, State::Ready, "kyma is ready", Vec::new())
    };
    let runtimes = vec![line("kcp-system/one", SubjectState::Well), line("kcp-system/quiet", SubjectState::Stopped)];
    let text = text(&Overview { runtimes, ..Overview::default() });
    let expected = "Waiting for a maintenance window (1)\n  runtime kcp-system/one  the next maintenance window begins at \
                    2026-11-28T20:00:00Z; waiting: cache\n\nHealthy: 1 runtime\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn runtimes_that_are_as_lifecycle_manager_left_them_are_counted() {
    let line = |name: &str, adopted: bool| RuntimeLine {
        adopted,
        ..runtime_line(name, SubjectState::Well, State::Ready, "kyma is ready", Vec::new())
    };
    let of = |adopted: [bool; 2]| {
        let runtimes = vec![line("kcp-system/one", adopted[0]), line("kcp-system/two", adopted[1])];
        text(&Overview { runtimes, ..Overview::default() })
    };
    let held = "are as Lifecycle Manager left them, until `tidegate adopt take --finish`";
    assert!(of([true, true]).contains(&format!("2 runtimes {held}\n")), "{}", of([true, true]));
    assert!(of([true, false]).contains("1 runtime is as Lifecycle Manager left it, until "), "{}", of([true, false]));
    assert!(!of([false, false]).contains("Lifecycle Manager"), "{}", of([false, false]));
}

#[test]
fn a_healthy_runtime_whose_turn_in_a_rollout_has_not_come_is_shown() {
    let line = RuntimeLine {
        rollout: Some("cache 1.0.0 to 1.1.0: wave 1 of 2 is not complete".to_owned()),
        ..runtime_line("kcp-system/one", SubjectState::Well, State::Ready, "kyma is ready", Vec::new())
    };
    let text = text(&Overview { runtimes: vec![line], ..Overview::default() });
    let expected = "Waiting for their turn in a rollout (1)\n  runtime kcp-system/one  cache 1.0.0 to 1.1.0: wave 1 of 2 \
                    is not complete\n\nHealthy: 1 runtime\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn an_empty_control_plane_is_one_line() {
    assert_eq!(text(&Overview::default()), "There is nothing in this namespace\n");
}

#[test]
fn a_thousand_problems_leave_room_on_the_screen() {
    let wrong = |number: usize| {
        let message = format!("no answer from server {number}");
        runtime_line(&format!("kcp-system/{number:04}"), SubjectState::Wrong, State::Error, &message, Vec::new())
    };
    let overview = Overview { runtimes: (0..1000).map(wrong).collect(), ..Overview::default() };
    let text = text(&overview);
    assert!(text.lines().count() < 25);
    assert!(text.contains("and 980 more"), "{text}");
}

#[test]
fn runtimes_with_the_same_cause_are_one_line_unless_all_are_asked_for() {
    let line = |name: &str, message: &str| {
        let module = module_line("cache", SubjectState::Wrong, State::Error, Some(message));
        let window = Some("the next maintenance window begins at noon".to_owned());
        let line = runtime_line(name, SubjectState::Wrong, State::Error, message, vec![module]);
        RuntimeLine { maintenance: window, ..line }
    };
    let mut runtimes: Vec<RuntimeLine> =
        (0..10).map(|number| line(&format!("kcp-system/a{number}"), "no image")).collect();
    runtimes.insert(1, line("kcp-system/other", "no answer"));
    let overview = Overview { runtimes, ..Overview::default() };
    let module = |message: &str| format!("      module cache 1.0.0 (regular)  Error: {message}\n");
    let expected = format!(
        "Problems (11)\n  runtime kcp-system/a0 and 9 more  Error: no image\n{}  runtime kcp-system/other  Error: no \
         answer\n{}  `tidegate status -o wide` names all\n\nWaiting for a maintenance window (11)\n  runtime \
         kcp-system/a0 and 10 more  the next",
        module("no image"),
        module("no answer")
    );
    let shown = text(&overview);
    assert!(shown.starts_with(&expected), "{shown}");
    let asked = Program::try_parse_from(["status", "-o", "wide"]).unwrap().arguments;
    let wide = anstream::adapter::strip_str(&super::text(&asked, &overview).unwrap()).to_string();
    assert_eq!((wide.matches("  Error: no image\n").count(), wide.contains(" more")), (20, false), "{wide}");
    let json = serde_json::to_value(&overview).unwrap();
    assert_eq!(json["runtimes"].as_array().map(Vec::len), Some(11));
}

#[test]
fn without_a_lease_nothing_is_wrong_and_the_text_says_what_is_not_known() {
    let overview = |leader| two_runtimes_well().with_leader(leader);
    let absent = overview(Leader::Absent("it sleeps".to_owned()));
    assert_eq!(exit(&absent), Exit::Changes);
    assert!(text(&absent).contains("no daemon reconciles this landscape: it sleeps\n"));
    let not_known = overview(Leader::NotKnown);
    assert_eq!(exit(&not_known), Exit::Ok);
    assert!(text(&not_known).contains(NO_LEASE), "{}", text(&not_known));
    assert!(!text(&overview(Leader::Present)).contains("Lease"));
}

/// The healthy one of [`two_runtimes`].
fn two_runtimes_well() -> Overview {
    let mut overview = two_runtimes();
    overview.runtimes.remove(0);
    overview
}

/// Two runtimes: in one, module `cache` has failed.
fn two_runtimes() -> Overview {
    let cache = |standing, state, message| module_line("cache", standing, state, message);
    let mailer = || module_line("mailer", SubjectState::Well, State::Ready, None);
    let broken = vec![cache(SubjectState::Wrong, State::Error, Some("no version 1.2.0")), mailer()];
    let well = vec![cache(SubjectState::Well, State::Ready, None), mailer()];
    Overview {
        sources: vec![source_line("kcp-system/landscape", SubjectState::Well, "applied", 0)],
        runtimes: vec![
            runtime_line("kcp-system/broken", SubjectState::Wrong, State::Error, "1 module failed", broken),
            runtime_line("kcp-system/well", SubjectState::Well, State::Ready, "kyma is ready", well),
        ],
        ..Overview::default()
    }
}

fn whole_text(subject: &str, overview: Overview) -> Option<(String, Exit)> {
    let subject: Subject = subject.parse().unwrap();
    let overview = subject.of(overview)?;
    let mut out = anstream::StripStream::new(Vec::new());
    whole::write(&mut out, &subject, &overview).unwrap();
    Some((String::from_utf8(out.into_inner()).unwrap(), exit(&overview)))
}

#[test]
fn one_subject_is_shown_whole_and_its_exit_code_is_its_own() {
    let cases = [
        (
            "kyma/broken",
            "runtime kcp-system/broken  wrong\n  1 module failed\n  MODULE  VERSION  CHANNEL  STATE  MESSAGE\n  \
             cache   1.0.0    regular  Error  no version 1.2.0\n  mailer  1.0.0    regular  Ready\n",
            Exit::Changes,
        ),
        (
            "kyma/well",
            "runtime kcp-system/well  healthy\n  kyma is ready\n  MODULE  VERSION  CHANNEL  STATE  MESSAGE\n  \
             cache   1.0.0    regular  Ready\n  mailer  1.0.0    regular  Ready\n",
            Exit::Ok,
        ),
        (
            "module/cache",
            "module cache  wrong\n  in 2 runtimes\n  VERSION  CHANNEL  STATE  RUNTIMES\n  1.0.0    regular  Error  1\n  \
             1.0.0    regular  Ready  1\n  runtime kcp-system/broken  Error: no version 1.2.0\n",
            Exit::Changes,
        ),
        (
            "module/mailer",
            "module mailer  healthy\n  in 2 runtimes\n  VERSION  CHANNEL  STATE  RUNTIMES\n  1.0.0    regular  Ready  2\n",
            Exit::Ok,
        ),
        (
            "gitsource/landscape",
            "source kcp-system/landscape  healthy\n  applied\n  active revision: \
             main@sha1:1111111111111111111111111111111111111111\n  read revision:   none\n  12 applied, 2 skipped, 0 to \
             prune\n",
            Exit::Ok,
        ),
    ];
    for (subject, text, code) in cases {
        let (found, exit) = whole_text(subject, two_runtimes()).expect("it is there");
        assert_eq!((found.as_str(), exit), (text, code), "{subject}");
    }
    for absent in ["kyma/cache", "module/one", "gitsource/well", "watcher/landscape"] {
        assert_eq!(whole_text(absent, two_runtimes()), None, "{absent}");
    }
}

#[test]
fn a_module_whose_rollout_is_suspended_says_who_waits_for_it() {
    let mut overview = two_runtimes();
    overview.runtimes.remove(0);
    let hold = "cache 1.0.0 to 1.1.0: the rollout is paused by annotation tidegate.dev/rollout-paused";
    overview.runtimes[0].rollout = Some(format!("{hold}; mailer 1.0.0 to 2.0.0: wave 1 of 2 is not complete"));
    let message = "suspended by anna since noon: it is slow".to_owned();
    overview.rollouts = vec![RolloutLine { name: "kcp-system/cache".to_owned(), message: message.clone() }];
    assert!(text(&overview).contains(&format!(
        "Suspended (1)\n  rollout kcp-system/cache  {message}; `tidegate resume rollout/cache` continues it\n"
    )));
    let (found, exit) = whole_text("module/cache", overview.clone()).unwrap();
    let expected = format!(
        "module cache  suspended\n  in 1 runtime\n  VERSION  CHANNEL  STATE  RUNTIMES\n  1.0.0    regular  Ready  1\n  \
         rollout: {message}; `tidegate resume rollout/cache` continues it\n  1 runtime waits: {hold}; first \
         kcp-system/well\n"
    );
    assert_eq!((found, exit), (expected, Exit::Ok));
    let (found, _) = whole_text("module/mailer", overview).unwrap();
    assert!(found.starts_with("module mailer  in progress\n") && !found.contains("paused"), "{found}");
}

#[test]
fn a_ready_module_that_is_paused_is_shown_as_suspended() {
    let mut overview = two_runtimes_well();
    let message = "paused by the label l of its Manifest; to continue, run `x`";
    overview.runtimes[0].modules[0].message = Some(message.to_owned());
    let expected = format!("Suspended (1)\n  module cache of runtime kcp-system/well  {message}\n\nHealthy: ");
    assert!(text(&overview).starts_with(&expected), "{}", text(&overview));
    assert_eq!(exit(&overview), Exit::Ok);
    let (found, _) = whole_text("module/cache", overview).unwrap();
    assert!(found.ends_with(&format!("\n  runtime kcp-system/well  Ready: {message}\n")), "{found}");
}

#[test]
fn wide_omits_no_error_and_a_full_list_says_where_the_rest_is() {
    let overview = |errors| Overview {
        sources: vec![source_line("kcp-system/bad", SubjectState::Wrong, "held back", errors)],
        ..Overview::default()
    };
    let wide = |errors| {
        let mut out = anstream::StripStream::new(Vec::new());
        write_text(&mut out, &overview(errors), usize::MAX).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    };
    let end = "run `tidegate validate` in the repository for all";
    assert!(text(&overview(7)).contains("      and 2 more: `tidegate status -o wide` lists them\n"));
    assert_eq!((wide(7).matches("error: ").count(), wide(7).contains(end)), (7, false));
    assert_eq!((wide(20).matches("error: ").count(), wide(20).contains(end)), (20, true));
    let (whole, _) = whole_text("gitsource/bad", overview(20)).unwrap();
    assert!(whole.contains(end), "{whole}");
}

#[test]
fn what_there_is_none_of_is_not_counted_and_mandatory_modules_are_counted_apart() {
    assert_eq!(text(&Overview::default()), "There is nothing in this namespace\n");
    let mut overview = two_runtimes();
    overview.sources.clear();
    overview.runtimes.remove(0);
    overview.runtimes[0].mandatory = vec![module_line("warden", SubjectState::Well, State::Ready, None)];
    let shown = text(&overview);
    let row = "kcp-system/well  Ready  2/2 + 1/1  cache 1.0.0, mailer 1.0.0, warden 1.0.0 (mandatory)\n";
    assert!(shown.contains(row) && shown.ends_with("Healthy: 1 runtime, 3 modules\n"), "{shown}");
}

#[test]
fn a_subject_is_a_kind_and_a_name() {
    for (text, expected) in [
        ("dev", "`dev` is not KIND/NAME, for example kyma/dev"),
        ("kyma/", "`kyma/` is not KIND/NAME, for example kyma/dev"),
        ("pod/dev", "unknown kind `pod`: use gitsource, kyma, module or watcher"),
    ] {
        assert_eq!(text.parse::<Subject>().unwrap_err(), expected);
    }
}

#[test]
fn where_all_is_well_the_runtimes_are_a_table() {
    let mut overview = two_runtimes();
    assert_eq!(exit(&overview), Exit::Changes);
    assert!(!text(&overview).contains("RUNTIME"), "{}", text(&overview));
    overview.runtimes.remove(0);
    assert_eq!(exit(&overview), Exit::Ok);
    assert_eq!(
        text(&overview),
        "  RUNTIME          STATE  READY  MODULES\n  kcp-system/well  Ready  2/2    cache 1.0.0, mailer 1.0.0\n\nHealthy: \
         1 source, 1 runtime, 2 modules\n  source kcp-system/landscape at \
         main@sha1:1111111111111111111111111111111111111111, 12 applied\n"
    );
}

#[test]
fn what_is_to_be_known_of_a_healthy_source_is_a_warning_and_no_problem() {
    let tag = DiagnosticEntry {
        severity: "warning".to_owned(),
        code: "tag-moved".to_owned(),
        path: None,
        line: None,
        column: None,
        message: "the tag v1 was moved".to_owned(),
    };
    let source = SourceLine {
        diagnostics: vec![tag],
        deliveries: Some("no delivery announced main@sha1:2".to_owned()),
        ..source_line("kcp-system/landscape", SubjectState::Well, "applied", 0)
    };
    let overview = Overview { sources: vec![source], ..Overview::default() };
    let expected = "Warnings (2)\n  source kcp-system/landscape  no delivery announced main@sha1:2\n  source \
                    kcp-system/landscape  warning: the tag v1 was moved\n\nHealthy: 1 source";
    assert!(text(&overview).starts_with(expected), "{}", text(&overview));
    assert_eq!(exit(&overview), Exit::Ok);
}

#[test]
fn runtimes_with_a_removal_that_waits_are_no_healthy_ones() {
    let mut overview = two_runtimes_well();
    let removal = "abc of GitSource a/b removes module mailer from 2 runtimes; to allow it, run `x`";
    let runtime = &mut overview.runtimes[0];
    (runtime.standing, runtime.message) = (SubjectState::Wrong, removal.to_owned());
    runtime.removal = Some(removal.to_owned());
    let other = RuntimeLine { name: "kcp-system/other".to_owned(), ..runtime.clone() };
    overview.runtimes.push(other);
    let shown = text(&overview);
    let expected = format!(
        "Problems (2)\n  runtime kcp-system/well and 1 more  Ready: {removal}\n  `tidegate status -o wide` names all\n\n\
         Healthy: 1 source, 0 runtimes, 4 modules\n"
    );
    assert!(shown.starts_with(&expected), "{shown}");
    let (whole, exit) = whole_text("kyma/well", overview).unwrap();
    assert_eq!((whole.matches(removal).count(), exit), (1, Exit::Changes), "{whole}");
}

#[test]
fn a_module_is_told_only_of_its_own_removal() {
    let of_mailer = "abc of GitSource a/b removes module mailer from this runtime; to allow it, run `x`";
    let of_cache =
        "abc of GitSource a/b removes Service a/b of module cache 1.0.0 from this runtime; to allow it, run `x`";
    let all = format!("{of_cache}; {of_mailer}");
    assert_eq!(removal_of(&all, "mailer").as_deref(), Some(of_mailer));
    assert_eq!(removal_of(&all, "cache").as_deref(), Some(of_cache));
    assert_eq!(removal_of(&all, "mail"), None);
}
