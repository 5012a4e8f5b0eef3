use tidegate_core::object::ObjectId;

use super::*;
use crate::runtime::objects::fixtures::{live, metadata};

const SECOND: Duration = Duration::from_secs(1);

/// A runtime as one process sees it.
struct Bench {
    rhythm: Rhythm,
    start: Instant,
}

impl Bench {
    fn new() -> Bench {
        Bench { rhythm: Rhythm::default(), start: Instant::now() }
    }

    fn looked(&mut self, after: Duration, live: &LiveObjects) {
        self.rhythm.checked(Some(live), self.start + after);
    }

    fn runs(&mut self, found: &AgentState, program: Program, after: Duration) -> Option<Duration> {
        let since = self.rhythm.ready_since(found, program, self.start + after);
        since.map(|since| since.duration_since(self.start))
    }
}

#[test]
fn a_runtime_whose_changes_are_reported_is_checked_every_six_hours_and_else_on_each_resync() {
    let mut bench = Bench::new();
    let is_due = |bench: &Bench, is_proven, after| bench.rhythm.is_due(is_proven, bench.start + after);
    assert!(is_due(&bench, true, Duration::ZERO), "a new process checks once");
    bench.looked(Duration::ZERO, &LiveObjects::new());
    assert!(is_due(&bench, true, SECOND), "its agent is not known to run");
    bench.runs(&AgentState::Ready, Program::Tidegate, SECOND);
    assert!(is_due(&bench, false, SECOND), "no probe has come back");
    assert!(!is_due(&bench, true, SECOND));
    assert!(!is_due(&bench, true, CHECK - SECOND));
    assert!(is_due(&bench, true, CHECK), "six hours are over");
    bench.looked(CHECK, &LiveObjects::new());
    assert!(!is_due(&bench, true, CHECK + SECOND));
    bench.runs(&AgentState::Starting("not yet".to_owned()), Program::Tidegate, CHECK);
    assert!(is_due(&bench, true, CHECK + SECOND), "it does not run any more");
}

#[test]
fn only_an_agent_of_ours_that_runs_can_be_probed() {
    let mut bench = Bench::new();
    assert_eq!(bench.runs(&AgentState::Ready, Program::Tidegate, SECOND), Some(SECOND));
    assert_eq!(bench.runs(&AgentState::Ready, Program::Tidegate, SECOND * 9), Some(SECOND), "since it runs");
    assert_eq!(bench.runs(&AgentState::Broken("no".to_owned()), Program::Tidegate, SECOND * 9), None);
    assert_eq!(bench.runs(&AgentState::Ready, Program::Tidegate, SECOND * 10), Some(SECOND * 10));
    assert_eq!(bench.runs(&AgentState::Ready, Program::RuntimeWatcher, SECOND * 10), None);
}

#[test]
fn the_condition_names_the_broken_part_of_the_path() {
    let not_yet = AgentState::Starting("not yet".to_owned());
    for (found, state, expected) in [
        (&not_yet, None, (Status::False, reason::NOT_READY)),
        (&AgentState::Ready, None, (Status::True, reason::INSTALLED)),
        (&AgentState::Ready, Some(WatchState::Awaited), (Status::Unknown, reason::AWAITED)),
        (&AgentState::Ready, Some(WatchState::Unproven), (Status::Unknown, reason::AWAITED)),
        (&AgentState::Ready, Some(WatchState::Heard), (Status::True, reason::HEARD)),
        (&AgentState::Ready, Some(WatchState::Silent), (Status::False, reason::SILENT)),
        (&AgentState::Ready, Some(WatchState::Deaf), (Status::False, reason::DEAF)),
        (&AgentState::Ready, Some(WatchState::Refused), (Status::False, reason::REFUSED)),
    ] {
        let fact = fact_of(found, state);
        assert_eq!((fact.status, fact.reason), expected);
        assert_eq!(state.is_some_and(WatchState::is_broken), reason::BROKEN.contains(&fact.reason), "{state:?}");
    }
    assert_eq!(fact_of(&not_yet, None).message, "not yet");
}

#[test]
fn webhook_configurations_are_listed_every_ten_minutes() {
    let mut bench = Bench::new();
    assert!(bench.rhythm.must_list_webhooks(bench.start));
    bench.looked(Duration::ZERO, &LiveObjects::new());
    assert!(!bench.rhythm.must_list_webhooks(bench.start + CHECK_WEBHOOKS - SECOND));
    assert!(bench.rhythm.must_list_webhooks(bench.start + CHECK_WEBHOOKS));
}

#[test]
fn a_changed_webhook_configuration_is_noticed() {
    let id = |kind: &str| ObjectId::new(GROUP, kind, "", "skr-webhook");
    let webhook = |resource_version: &str| metadata(&id("ValidatingWebhookConfiguration"), resource_version);
    let other = metadata(&ObjectId::new("", "Secret", "kyma-system", "a"), "1");
    let mut bench = Bench::new();
    assert!(bench.rhythm.listed_webhooks(&[], bench.start), "nothing is known yet");
    bench.looked(Duration::ZERO, &live([webhook("1"), other]));
    let moved = [
        (vec![webhook("1")], false),
        (vec![webhook("2")], true),
        (vec![], true),
        (vec![webhook("1"), metadata(&id("MutatingWebhookConfiguration"), "1")], true),
    ];
    for (found, expected) in moved {
        assert_eq!(bench.rhythm.listed_webhooks(&found, bench.start), expected, "{}", found.len());
        assert!(!bench.rhythm.must_list_webhooks(bench.start + SECOND));
    }
}
