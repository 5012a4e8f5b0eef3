//! What Prometheus sees.
//!
//! Names and labels are Lifecycle Manager's where it has a metric for the thing; what it has none for begins with
//! `tidegate_`. What is a state (gauges) is passed in as a value at every scrape and forgotten afterwards, so series of
//! a deleted Kyma cannot linger. Only what must be counted as it happens is kept here.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, MutexGuard, atomic::AtomicU64},
    time::{Duration, Instant},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use tidegate_core::api::shared::State;
use tidegate_events::metrics::ListenerMetrics;
use tidegate_process::lock::Mutex;

/// What is counted while it happens. A handle; clones share it.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Counted>);

/// The state of everything at the moment of a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The runtimes.
    pub kymas: Vec<KymaSeries>,
    /// Mandatory modules: their ModuleReleaseMetas.
    pub mandatory_modules: u64,
    /// The git sources.
    pub sources: Vec<SourceSeries>,
    /// The queue.
    pub queue: QueueSeries,
    /// Requests to API servers since the start.
    pub requests: Vec<RequestSeries>,
    /// Runtimes that requests are refused to, since they could not be reached.
    pub unreachable_runtimes: u64,
    /// Runtimes by whether their changes are heard of: reasons of the condition, each with how many have it.
    pub watches: Vec<(&'static str, usize)>,
    /// Whether we may write.
    pub leading: bool,
    /// Whether work is paused by the configuration.
    pub paused: bool,
    /// Events that were not written, since there were too many.
    pub events_dropped: u64,
    /// Names of the Kymas whose certificates should be of the present authority by now and are not.
    pub certificates_overdue: Vec<String>,
    /// Whether the certificate that the gateway serves is near its end; absent if there is none.
    pub server_close_to_expiry: Option<bool>,
}

/// A runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KymaSeries {
    /// Name of the Kyma.
    pub name: String,
    /// First label of its domain, or empty.
    pub shoot: String,
    /// Its service instance, or empty.
    pub instance_id: String,
    /// The Kyma in one word.
    pub state: State,
    /// Its modules, each in one word.
    pub modules: Vec<(String, State)>,
}

/// A git source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSeries {
    /// `<namespace>/<name>`.
    pub name: String,
    /// Whether the last revision is applied as a whole.
    pub ready: bool,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Definitions that are in KCP as git has them.
    pub applied: i64,
    /// Definitions that are kept back.
    pub withheld: i64,
    /// Objects that are gone from git and still in KCP.
    pub to_prune: i64,
}

/// The queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSeries {
    /// Subjects that could be worked on now.
    pub ready: usize,
    /// Subjects being worked on.
    pub running: usize,
    /// Subjects with nothing to do before some later moment.
    pub delayed: usize,
    /// Subjects whose last work failed.
    pub failing: usize,
    /// How long the oldest ready subject has waited.
    pub oldest: Duration,
}

/// Requests of one sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSeries {
    /// `kcp` or `runtime`.
    pub cluster: &'static str,
    /// What they do.
    pub verb: &'static str,
    /// How many there were.
    pub count: u64,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Well,
    /// It waits for something.
    Waiting,
    /// It failed.
    Failed,
    /// It panicked: a mistake of ours.
    Panicked,
}

struct Counted {
    passes: Histograms<PassLabels>,
    waits: Histograms<KindLabels>,
    commits: Histograms<ArrivalLabels>,
    requeues: Family<RequeueLabels, Counter>,
    listener: ListenerMetrics,
    seen: Mutex<Seen>,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// When commits were first seen, the latest ones only.
#[derive(Default)]
struct Seen {
    moments: BTreeMap<String, Instant>,
    order: VecDeque<String>,
    /// When the last of them was.
    latest: Option<Instant>,
    /// Runtimes that a commit concerns and that are not as desired yet, and when that commit was seen.
    runtimes: BTreeMap<String, Instant>,
}

/// Commits whose arrival can be timed: more than are ever on their way, little enough to keep.
const SEEN_MAX: usize = 4096;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KymaLabels {
    kyma_name: String,
    state: &'static str,
    shoot: String,
    instance_id: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NameLabels {
    kyma_name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModuleLabels {
    module_name: String,
    kyma_name: String,
    state: &'static str,
    shoot: String,
    instance_id: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PassLabels {
    subject: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindLabels {
    subject: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ArrivalLabels {
    target: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequeueLabels {
    requeue_reason: String,
    requeue_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct SourceStateLabels {
    source: String,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    cluster: &'static str,
    verb: &'static str,
}

// === impl Metrics ===

impl Metrics {
    /// Counts a pass.
    pub fn pass(&self, subject: &'static str, ended: Ended, duration: Duration) {
        let labels = PassLabels { subject, result: ended.name() };
        self.0.passes.get_or_create(&labels).observe(duration.as_secs_f64());
    }

    /// Counts how long a subject stood ready before work on it began.
    pub fn waited(&self, subject: &'static str, duration: Duration) {
        self.0.waits.get_or_create(&KindLabels { subject }).observe(duration.as_secs_f64());
    }

    /// Counts that a subject is looked at again, as planned (`intended`) or after a failure. The reason is spelled in
    /// snake case, as Lifecycle Manager's are.
    pub fn requeue(&self, reason: &str, intended: bool) {
        let requeue_type = if intended { "intended" } else { "unexpected" };
        let labels = RequeueLabels { requeue_reason: snake_case(reason), requeue_type };
        self.0.requeues.get_or_create(&labels).inc();
    }

    /// Takes note that a commit was seen, the first time it is.
    pub fn seen(&self, commit: &str, now: Instant) {
        let mut seen = self.lock();
        if seen.moments.contains_key(commit) {
            return;
        }
        seen.moments.insert(commit.to_owned(), now);
        seen.latest = Some(now);
        seen.order.push_back(commit.to_owned());
        if SEEN_MAX < seen.order.len()
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.moments.remove(&oldest);
        }
    }

    /// Counts how long it took from the first sight of a commit until all of it was in the control plane.
    pub fn arrived(&self, commit: &str, now: Instant) {
        let seen = self.lock().moments.remove(commit);
        if let Some(seen) = seen {
            self.observe_arrival("kcp", seen, now);
        }
    }

    /// Takes note that a commit concerns a runtime: the clock runs from its first sight until
    /// [`Metrics::runtime_arrived`]. A commit that an earlier process saw is not timed.
    pub fn runtime_concerned(&self, runtime: &str) {
        let mut seen = self.lock();
        if let Some(latest) = seen.latest {
            seen.runtimes.entry(runtime.to_owned()).or_insert(latest);
        }
    }

    /// Takes note that a runtime is as desired.
    pub fn runtime_arrived(&self, runtime: &str, now: Instant) {
        let seen = self.lock().runtimes.remove(runtime);
        if let Some(seen) = seen {
            self.observe_arrival("runtime", seen, now);
        }
    }

    /// Forgets a runtime that is gone.
    pub fn runtime_gone(&self, runtime: &str) {
        self.lock().runtimes.remove(runtime);
    }

    /// What is counted where events of runtimes come in.
    pub fn listener(&self) -> &ListenerMetrics {
        &self.0.listener
    }

    /// Everything in OpenMetrics text. `observed` is the state of now.
    pub fn render(&self, observed: &Observed) -> String {
        let mut registry = Registry::default();
        self.register_counted(&mut registry);
        self.0.listener.register(&mut registry);
        register_kymas(&mut registry, observed);
        register_sources(&mut registry, &observed.sources);
        register_daemon(&mut registry, observed);
        register_certificates(&mut registry, observed);
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String cannot fail");
        text
    }

    fn register_counted(&self, registry: &mut Registry) {
        let counted = &self.0;
        registry.register("lifecycle_mgr_requeue_reason", "Why subjects are looked at again", counted.requeues.clone());
        registry.register_with_unit(
            "tidegate_pass_duration",
            "Duration of passes",
            Unit::Seconds,
            counted.passes.clone(),
        );
        registry.register_with_unit(
            "tidegate_queue_wait",
            "Time that subjects stood ready before work on them began",
            Unit::Seconds,
            counted.waits.clone(),
        );
        registry.register_with_unit(
            "tidegate_commit_to_applied",
            "Time from the first sight of a commit until all of it is in the control plane, or a runtime that it concerns is as desired",
            Unit::Seconds,
            counted.commits.clone(),
        );
    }

    fn observe_arrival(&self, target: &'static str, seen: Instant, now: Instant) {
        let duration = now.saturating_duration_since(seen).as_secs_f64();
        self.0.commits.get_or_create(&ArrivalLabels { target }).observe(duration);
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock()
    }
}

/// States of a Kyma, each of which is a series of its own.
const KYMA_STATES: [State; 5] = [State::Processing, State::Deleting, State::Ready, State::Error, State::Warning];
/// States of a module, likewise.
const MODULE_STATES: [State; 6] =
    [State::Processing, State::Deleting, State::Ready, State::Error, State::Warning, State::Unmanaged];

fn register_kymas(registry: &mut Registry, observed: &Observed) {
    let kymas = Family::<KymaLabels, Gauge>::default();
    let modules = Family::<ModuleLabels, Gauge>::default();
    for kyma in &observed.kymas {
        for state in KYMA_STATES {
            let labels = KymaLabels {
                kyma_name: kyma.name.clone(),
                state: name(state),
                shoot: kyma.shoot.clone(),
                instance_id: kyma.instance_id.clone(),
            };
            kymas.get_or_create(&labels).set(i64::from(kyma.state == state));
        }
        for (module, module_state) in &kyma.modules {
            for state in MODULE_STATES {
                let labels = ModuleLabels {
                    module_name: module.clone(),
                    kyma_name: kyma.name.clone(),
                    state: name(state),
                    shoot: kyma.shoot.clone(),
                    instance_id: kyma.instance_id.clone(),
                };
                modules.get_or_create(&labels).set(i64::from(*module_state == state));
            }
        }
    }
    registry.register("lifecycle_mgr_kyma_state", "State of each Kyma: 1 for the one that it is in", kymas);
    registry.register("lifecycle_mgr_module_state", "State of each module: 1 for the one that it is in", modules);
    let mandatory = Gauge::<i64>::default();
    mandatory.set(i64::try_from(observed.mandatory_modules).unwrap_or(i64::MAX));
    registry.register("lifecycle_mgr_mandatory_modules", "Mandatory modules", mandatory);
}

fn register_sources(registry: &mut Registry, sources: &[SourceSeries]) {
    let ready = Family::<SourceLabels, Gauge>::default();
    let suspended = Family::<SourceLabels, Gauge>::default();
    let definitions = Family::<SourceStateLabels, Gauge>::default();
    for source in sources {
        let labels = SourceLabels { source: source.name.clone() };
        ready.get_or_create(&labels).set(i64::from(source.ready));
        suspended.get_or_create(&labels).set(i64::from(source.suspended));
        let counts = [("applied", source.applied), ("withheld", source.withheld), ("to_prune", source.to_prune)];
        for (state, count) in counts {
            definitions.get_or_create(&SourceStateLabels { source: source.name.clone(), state }).set(count);
        }
    }
    registry.register("tidegate_source_ready", "Whether the last revision is applied as a whole", ready);
    registry.register("tidegate_source_suspended", "Whether the source is suspended", suspended);
    registry.register("tidegate_source_definitions", "Definitions by what became of them", definitions);
}

fn register_daemon(registry: &mut Registry, observed: &Observed) {
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let gauge = |value: i64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        gauge
    };
    registry.register("tidegate_leading", "Whether this process may write", gauge(i64::from(observed.leading)));
    registry.register(
        "tidegate_paused",
        "Whether the configuration pauses all work",
        gauge(i64::from(observed.paused)),
    );
    registry.register(
        "tidegate_unreachable_runtimes",
        "Runtimes that are left alone for a while, since they cannot be reached",
        gauge(i64::try_from(observed.unreachable_runtimes).unwrap_or(i64::MAX)),
    );
    let watches = Family::<ReasonLabels, Gauge>::default();
    for &(reason, number) in &observed.watches {
        watches.get_or_create(&ReasonLabels { reason }).set(count(number));
    }
    registry.register(
        "tidegate_watch_runtimes",
        "Runtimes by reason of their condition tidegate.dev/Watch: whether changes in them are heard of",
        watches,
    );
    let queue = Family::<StateLabels, Gauge>::default();
    let QueueSeries { ready, running, delayed, failing, oldest } = observed.queue;
    for (state, number) in [("ready", ready), ("running", running), ("delayed", delayed), ("failing", failing)] {
        queue.get_or_create(&StateLabels { state }).set(count(number));
    }
    registry.register("tidegate_queue_subjects", "Subjects in the queue", queue);
    let age = Gauge::<f64, AtomicU64>::default();
    age.set(oldest.as_secs_f64());
    registry.register_with_unit(
        "tidegate_queue_oldest",
        "How long the oldest ready subject has waited",
        Unit::Seconds,
        age,
    );
    let requests = Family::<RequestLabels, Counter>::default();
    for series in &observed.requests {
        let labels = RequestLabels { cluster: series.cluster, verb: series.verb };
        requests.get_or_create(&labels).inc_by(series.count);
    }
    registry.register("tidegate_api_requests", "Requests to API servers", requests);
    let dropped = Counter::<u64>::default();
    dropped.inc_by(observed.events_dropped);
    registry.register("tidegate_events_dropped", "Events that were not written, since there were too many", dropped);
    registry.register("lifecycle_mgr_fips_mode", "FIPS mode: 0 off, 1 on, 2 only", gauge(0));
}

/// Lifecycle Manager's, on which alerts stand: a runtime has a series only while something is wrong.
fn register_certificates(registry: &mut Registry, observed: &Observed) {
    let overdue = Family::<NameLabels, Gauge>::default();
    for kyma in &observed.certificates_overdue {
        overdue.get_or_create(&NameLabels { kyma_name: kyma.clone() }).set(1);
    }
    registry.register(
        "lifecycle_mgr_self_signed_cert_not_renew",
        "Runtimes whose certificate should be of the present authority by now and is not",
        overdue,
    );
    if let Some(is_close) = observed.server_close_to_expiry {
        let close = Gauge::<i64>::default();
        close.set(i64::from(is_close));
        registry.register(
            "lifecycle_mgr_gateway_secret_server_cert_close_to_expiry",
            "Whether the certificate that the gateway serves is near its end",
            close,
        );
    }
}

/// A state as a label; the empty one of a Kyma that nobody has looked at has no series.
fn name(state: State) -> &'static str {
    match state {
        State::Processing => "Processing",
        State::Deleting => "Deleting",
        State::Ready => "Ready",
        State::Error => "Error",
        State::Unknown => "",
        State::Warning => "Warning",
        State::Unmanaged => "Unmanaged",
    }
}

fn snake_case(reason: &str) -> String {
    let mut snake = String::with_capacity(reason.len() + 4);
    for (position, c) in reason.char_indices() {
        if c.is_ascii_uppercase() && position != 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// From a pass that finds nothing to do up to the time-outs of a dead runtime.
fn pass_buckets() -> Histogram {
    Histogram::new([0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

/// From a local commit to a rollout over thousands of runtimes.
fn arrival_buckets() -> Histogram {
    Histogram::new([0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0])
}

// === impl Counted ===

impl Default for Counted {
    fn default() -> Counted {
        Counted {
            passes: Family::new_with_constructor(pass_buckets),
            waits: Family::new_with_constructor(pass_buckets),
            commits: Family::new_with_constructor(arrival_buckets),
            requeues: Family::default(),
            listener: ListenerMetrics::default(),
            seen: Mutex::default(),
        }
    }
}

// === impl Ended ===

impl Ended {
    fn name(self) -> &'static str {
        match self {
            Ended::Well => "done",
            Ended::Waiting => "waiting",
            Ended::Failed => "failed",
            Ended::Panicked => "panicked",
        }
    }
}

#[cfg(test)]
mod tests;
