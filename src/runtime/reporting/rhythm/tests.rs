use tidegate_core::{name::Key, object::ObjectId};

use super::*;
use crate::runtime::{
    contacts::Contacts,
    objects::fixtures::{live, metadata},
};

const RESYNC: Duration = Duration::from_secs(300);
const PROBE: Duration = Duration::from_secs(120);
const SECOND: Duration = Duration::from_secs(1);

/// A runtime whose agent runs, as one process sees it.
struct Bench {
    rhythm: Rhythm,
    contacts: Contacts,
    kyma: Key,
    start: Instant,
}

impl Bench {
    fn new() -> Bench {
        let start = Instant::now();
        Bench { rhythm: Rhythm::default(), contacts: Contacts::default(), kyma: Key::new("kcp-system", "one"), start }
    }

    fn probes(&self, after: Duration) {
        self.contacts.probe(&self.kyma, self.start + after);
    }

    fn looked(&mut self, after: Duration, live: &LiveObjects) {
        self.rhythm.checked(Some(live), self.start + after);
    }

    fn is_due(&self, after: Duration) -> bool {
        let now = self.start + after;
        self.rhythm.is_due(self.contacts.is_alive(&self.kyma, now, RESYNC / 2), now)
    }

    /// The agent does not run.
    fn stops(&mut self, after: Duration) {
        let found = Found::Starting("not yet".to_owned());
        let fact = self.rhythm.watch(&found, true, Program::Tidegate, &[], self.start + after);
        assert_eq!((fact.status, fact.reason, fact.message.as_str()), (Status::False, reason::NOT_READY, "not yet"));
    }

    fn says(&mut self, after: Duration, said: &[Condition]) -> &'static str {
        self.says_of(Program::Tidegate, after, said)
    }

    fn says_of(&mut self, program: Program, after: Duration, said: &[Condition]) -> &'static str {
        let now = self.start + after;
        let is_heard = self.contacts.is_alive(&self.kyma, now, SILENT_AFTER);
        self.rhythm.watch(&Found::Ready, is_heard, program, said, now).reason
    }
}

fn said(reason: &str) -> Vec<Condition> {
    let now = tidegate_core::api::shared::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let mut all = Vec::new();
    conditions::set(&mut all, conditions::WATCH, Status::True, reason, "", None, &now);
    all
}

#[test]
fn a_runtime_whose_agent_connects_is_checked_every_six_hours_and_else_on_each_resync() {
    let mut bench = Bench::new();
    assert!(bench.is_due(Duration::ZERO), "a new process checks once");
    bench.looked(Duration::ZERO, &LiveObjects::new());
    assert!(bench.is_due(SECOND), "its agent is not known to run");
    bench.says(SECOND, &[]);
    assert!(bench.is_due(SECOND), "nor to be heard");
    let mut at = Duration::ZERO;
    while at < CHECK - PROBE {
        at += PROBE;
        bench.probes(at);
        assert!(!bench.is_due(at + SECOND), "{at:?}");
    }
    bench.probes(CHECK);
    assert!(bench.is_due(CHECK), "six hours are over");
    bench.looked(CHECK, &LiveObjects::new());
    assert!(!bench.is_due(CHECK + SECOND));
    assert!(bench.is_due(CHECK + RESYNC / 2), "its agent was silent for half a resync");
    bench.probes(CHECK + RESYNC);
    assert!(!bench.is_due(CHECK + RESYNC + SECOND));
    bench.stops(Duration::ZERO);
    assert!(bench.is_due(CHECK + RESYNC + SECOND), "it does not run any more");
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
fn an_agent_that_is_not_heard_for_ten_minutes_is_silent() {
    let mut bench = Bench::new();
    assert_eq!(bench.says(Duration::ZERO, &[]), reason::AWAITED);
    assert_eq!(bench.says(SILENT_AFTER - SECOND, &said(reason::AWAITED)), reason::AWAITED);
    assert_eq!(bench.says(SILENT_AFTER, &said(reason::AWAITED)), reason::SILENT, "it was never heard");
    bench.probes(SILENT_AFTER);
    assert_eq!(bench.says(SILENT_AFTER + SECOND, &said(reason::SILENT)), reason::HEARD);
    assert_eq!(bench.says(SILENT_AFTER * 2 - SECOND, &said(reason::HEARD)), reason::HEARD);
    assert_eq!(bench.says(SILENT_AFTER * 2, &said(reason::HEARD)), reason::SILENT);
    // One that did not run meanwhile has its ten minutes again.
    bench.stops(SILENT_AFTER * 2);
    assert_eq!(bench.says(SILENT_AFTER * 3, &said(reason::SILENT)), reason::AWAITED);
}

#[test]
fn a_new_process_believes_what_was_said_until_it_knows_better() {
    let mut bench = Bench::new();
    assert_eq!(bench.says(Duration::ZERO, &said(reason::HEARD)), reason::HEARD);
    assert_eq!(bench.says(SILENT_AFTER - SECOND, &said(reason::HEARD)), reason::HEARD);
    assert_eq!(bench.says(SILENT_AFTER, &said(reason::HEARD)), reason::SILENT);
}

#[test]
fn the_runtime_watcher_is_not_expected_to_say_anything() {
    let mut bench = Bench::new();
    for after in [Duration::ZERO, SILENT_AFTER * 10] {
        assert_eq!(bench.says_of(Program::RuntimeWatcher, after, &[]), reason::INSTALLED);
    }
    bench.contacts.event(&bench.kyma, bench.start);
    bench.looked(Duration::ZERO, &LiveObjects::new());
    assert!(bench.is_due(SECOND), "that it is heard says nothing of what it did not say");
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
