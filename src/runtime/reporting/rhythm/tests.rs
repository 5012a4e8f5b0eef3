use super::*;

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

    fn looked(&mut self, after: Duration, live: &BTreeMap<ObjectId, Metadata>) {
        self.rhythm.looked(live, self.start + after);
    }

    fn is_due(&self, after: Duration) -> bool {
        self.rhythm.is_due(&self.contacts, RESYNC, &self.kyma, self.start + after)
    }

    fn says(&mut self, after: Duration, said: &[Condition]) -> &'static str {
        self.says_of(Program::Tidegate, after, said)
    }

    fn says_of(&mut self, program: Program, after: Duration, said: &[Condition]) -> &'static str {
        self.rhythm.watch(&self.contacts, &self.kyma, program, said, self.start + after).reason
    }
}

fn said(reason: &str) -> Vec<Condition> {
    let now = tidegate_core::api::shared::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let mut all = Vec::new();
    conditions::set(&mut all, conditions::WATCH, Status::True, reason, "", None, &now);
    all
}

#[test]
fn a_runtime_whose_agent_is_heard_is_looked_at_every_six_hours_and_else_on_each_resync() {
    let mut bench = Bench::new();
    assert!(bench.is_due(Duration::ZERO), "a new process looks once");
    bench.looked(Duration::ZERO, &BTreeMap::new());
    assert!(bench.is_due(SECOND), "its agent is not known to run");
    bench.says(SECOND, &[]);
    assert!(bench.is_due(SECOND), "nor to be heard");
    let mut at = Duration::ZERO;
    while at < LOOK - PROBE {
        at += PROBE;
        bench.probes(at);
        assert!(!bench.is_due(at + SECOND), "{at:?}");
    }
    bench.probes(LOOK);
    assert!(bench.is_due(LOOK), "six hours are over");
    bench.looked(LOOK, &BTreeMap::new());
    assert!(!bench.is_due(LOOK + SECOND));
    assert!(bench.is_due(LOOK + RESYNC / 2), "its agent was silent for half a resync");
    bench.probes(LOOK + RESYNC);
    assert!(!bench.is_due(LOOK + RESYNC + SECOND));
    bench.rhythm.not_ready();
    assert!(bench.is_due(LOOK + RESYNC + SECOND), "it does not run any more");
}

#[test]
fn webhook_configurations_are_looked_at_every_ten_minutes() {
    let mut bench = Bench::new();
    assert!(bench.rhythm.asks_for_webhooks(bench.start));
    bench.looked(Duration::ZERO, &BTreeMap::new());
    assert!(!bench.rhythm.asks_for_webhooks(bench.start + LOOK_AT_WEBHOOKS - SECOND));
    assert!(bench.rhythm.asks_for_webhooks(bench.start + LOOK_AT_WEBHOOKS));
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
    bench.rhythm.not_ready();
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
    bench.looked(Duration::ZERO, &BTreeMap::new());
    assert!(bench.is_due(SECOND), "that it is heard says nothing of what it did not say");
}
