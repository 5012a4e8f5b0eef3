//! The Prometheus metrics of the daemon.
//!
//! A metric that Lifecycle Manager has keeps its name and labels; the others begin with `tidegate_`. Gauges are passed
//! in as a value at every scrape and then dropped, so no series of a deleted Kyma remains. This module only keeps
//! counters.

pub(crate) mod requeue;

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

use tidegate_core::{
    api::{setup, shared::State},
    plan::rollout::LineCounts,
};
use tidegate_events::metrics::ListenerMetrics;
use tidegate_process::lock::Mutex;

use self::requeue::Requeue;

/// The counters. A handle: clones share them.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Counted>);

/// The state of everything at a scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The runtimes.
    pub kymas: Vec<KymaSeries>,
    /// The number of ModuleReleaseMetas of mandatory modules.
    pub mandatory_modules: u64,
    /// The mandatory modules of runtimes.
    pub mandatory_states: Vec<MandatorySeries>,
    /// Whether the last read of the policy of maintenance windows succeeded.
    pub maintenance_policy_read: bool,
    /// The versions that spread over runtimes by a policy.
    pub rollouts: Vec<LineCounts>,
    /// The git sources.
    pub sources: Vec<SourceSeries>,
    /// The queue.
    pub queue: QueueSeries,
    /// Requests to API servers since the start.
    pub requests: Vec<RequestSeries>,
    /// The OCI registries.
    pub registries: Vec<RegistrySeries>,
    /// Runtimes with an open circuit breaker.
    pub unreachable_runtimes: u64,
    /// Runtimes by the reason of their Watch condition.
    pub watches: Vec<(&'static str, usize)>,
    /// Objects in the control plane and in runtimes that cannot be read, by kind.
    pub unreadable: BTreeMap<String, usize>,
    /// Whether this process leads.
    pub leading: bool,
    /// Whether the configuration pauses work.
    pub paused: bool,
    /// Events that were dropped because there were too many.
    pub events_dropped: u64,
    /// Names of the Kymas whose certificate should be from the current CA but is not.
    pub certificates_overdue: Vec<String>,
    /// Whether the gateway's server certificate expires soon; `None` if there is none.
    pub server_close_to_expiry: Option<bool>,
    /// What a process has found that only observes; `None` if the daemon reconciles.
    pub comparison: Option<ComparisonSeries>,
    /// The resources of kcp landscapes; `None` if the daemon leaves them alone.
    pub setup: Option<SetupSeries>,
}

/// The resources of kcp landscapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetupSeries {
    /// How many there are, by kind and state.
    pub states: BTreeMap<(&'static str, &'static str), usize>,
    /// How many other clusters there are, by state.
    pub clusters: BTreeMap<&'static str, usize>,
    /// The gauges that kcp-operator exports for each; `None` without `--kcp-operator-metrics`.
    pub upstream: Option<Vec<SetupResourceSeries>>,
}

/// What kcp-operator exports of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupResourceSeries {
    /// Its kind.
    pub kind: setup::Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The phase in its status; empty if there is none.
    pub phase: String,
    /// Its conditions by type: 1 for `True`, 0 for `False`, -1 otherwise.
    pub conditions: Vec<(String, i64)>,
}

/// What a process has found that only observes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparisonSeries {
    /// Objects that differ, by kind and reason.
    pub differences: BTreeMap<(String, &'static str), usize>,
    /// Objects that differ by a decision, by kind and row of the documentation.
    pub improvements: BTreeMap<(String, &'static str), usize>,
    /// What could not be compared, or not completely.
    pub not_compared: BTreeMap<&'static str, usize>,
    /// Runtimes by what became of their comparison.
    pub runtimes: BTreeMap<&'static str, usize>,
}

/// A runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KymaSeries {
    /// Name of the Kyma.
    pub name: String,
    /// The first label of its domain, or empty.
    pub shoot: String,
    /// Its service instance, or empty.
    pub instance_id: String,
    /// The state of the Kyma.
    pub state: State,
    /// The state of each module.
    pub modules: Vec<(String, State)>,
}

/// A mandatory module of a runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MandatorySeries {
    /// Name of the module.
    pub module: String,
    /// Name of the Kyma.
    pub kyma: String,
    /// The state of its Manifest.
    pub state: State,
}

/// A git source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceSeries {
    /// `<namespace>/<name>`.
    pub name: String,
    /// Whether the last revision is completely applied.
    pub ready: bool,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Definitions in KCP that match git.
    pub applied: i64,
    /// Definitions that are held back.
    pub withheld: i64,
    /// Objects in KCP that are no longer in git.
    pub to_prune: i64,
    /// Size of the files of its active revision.
    pub bytes: u64,
    /// Problems that are listed of its active revision, and of a refused one.
    pub listed: usize,
}

/// An OCI registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySeries {
    /// Its address.
    pub registry: String,
    /// Whether it has answered the last time.
    pub answering: bool,
    /// Components and layers whose last read failed.
    pub failing: usize,
    /// Requests since the start.
    pub requests: u64,
    /// Bytes that were received since the start.
    pub received_bytes: u64,
}

/// The queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueSeries {
    /// Subjects that are ready.
    pub ready: usize,
    /// Subjects in progress.
    pub running: usize,
    /// Subjects that wait for a later moment.
    pub delayed: usize,
    /// Subjects whose last work failed.
    pub failing: usize,
    /// How long the oldest ready subject has waited.
    pub oldest: Duration,
}

/// Requests of one cluster type and verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSeries {
    /// `kcp` or `runtime`.
    pub cluster: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// The number of requests.
    pub count: u64,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Successfully.
    Well,
    /// Waiting for something.
    Waiting,
    /// Failed.
    Failed,
    /// It panicked, which is a bug in Tidegate.
    Panicked,
}

/// When an object is repaired that another client undid in a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// At once.
    Now,
    /// After a rest, because it is undone again and again.
    Later,
}

struct Counted {
    passes: Histograms<PassLabels>,
    waits: Histograms<KindLabels>,
    commits: Histograms<ArrivalLabels>,
    requeues: Family<RequeueLabels, Counter>,
    repeats: Family<RepeatLabels, Counter>,
    deliveries: Family<OutcomeLabels, Counter>,
    drifts: Family<RepairLabels, Counter>,
    listener: ListenerMetrics,
    seen: Mutex<Seen>,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// When the latest commits were first seen.
#[derive(Default)]
struct Seen {
    moments: BTreeMap<String, Instant>,
    order: VecDeque<String>,
    /// When the last of them was seen.
    latest: Option<Instant>,
    /// Runtimes that a commit affects and that are not as desired yet, with the time when that commit was seen.
    runtimes: BTreeMap<String, Instant>,
}

/// Limit of tracked commits: more than are ever in progress, few enough for memory.
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
struct MandatoryLabels {
    module_name: String,
    kyma_name: String,
    state: &'static str,
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
    requeue_reason: &'static str,
    requeue_type: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RepeatLabels {
    subject: &'static str,
    reason: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RepairLabels {
    repair: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RolloutLabels {
    module_name: String,
    channel: String,
    version: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RolloutStateLabels {
    module_name: String,
    channel: String,
    version: String,
    state: &'static str,
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
struct ObjectKindLabels {
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct KindStateLabels {
    kind: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PhaseLabels {
    phase: String,
    namespace: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConditionLabels {
    resource_type: String,
    resource_name: String,
    namespace: String,
    condition_type: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DifferenceLabels {
    kind: String,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ImprovementLabels {
    kind: String,
    row: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RegistryLabels {
    registry: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PartLabels {
    part: &'static str,
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

    /// Counts how long a subject was ready before its work began.
    pub fn waited(&self, subject: &'static str, duration: Duration) {
        self.0.waits.get_or_create(&KindLabels { subject }).observe(duration.as_secs_f64());
    }

    /// Counts a requeue of a Kyma or a Manifest, as Lifecycle Manager does.
    pub(crate) fn requeue(&self, requeue: Requeue) {
        let (requeue_reason, requeue_type) = requeue.labels();
        self.0.requeues.get_or_create(&RequeueLabels { requeue_reason, requeue_type }).inc();
    }

    /// Counts a pass that is repeated because it waits or has failed.
    pub(crate) fn repeat(&self, subject: &'static str, reason: &'static str, ended: Ended) {
        let labels = RepeatLabels { subject, reason, result: ended.name() };
        self.0.repeats.get_or_create(&labels).inc();
    }

    /// Counts a delivery of a git host.
    pub(crate) fn delivery(&self, outcome: &'static str) {
        self.0.deliveries.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Counts an object that another client undid in a runtime.
    pub(crate) fn drift(&self, repair: Repair) {
        let repair = match repair {
            Repair::Now => "at_once",
            Repair::Later => "later",
        };
        self.0.drifts.get_or_create(&RepairLabels { repair }).inc();
    }

    /// Records when a commit was first seen.
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

    /// Counts the time from the first sight of a commit until it is completely in the control plane.
    pub fn arrived(&self, commit: &str, now: Instant) {
        let seen = self.lock().moments.remove(commit);
        if let Some(seen) = seen {
            self.observe_arrival("kcp", seen, now);
        }
    }

    /// Records that a commit affects a runtime. The time runs from its first sight until [`Metrics::runtime_arrived`].
    /// A commit that an earlier process saw is not measured.
    pub(crate) fn runtime_concerned(&self, runtime: &str) {
        let mut seen = self.lock();
        if let Some(latest) = seen.latest {
            seen.runtimes.entry(runtime.to_owned()).or_insert(latest);
        }
    }

    /// Records that a runtime is as desired.
    pub(crate) fn runtime_arrived(&self, runtime: &str, now: Instant) {
        let seen = self.lock().runtimes.remove(runtime);
        if let Some(seen) = seen {
            self.observe_arrival("runtime", seen, now);
        }
    }

    /// Forgets a deleted runtime.
    pub(crate) fn runtime_gone(&self, runtime: &str) {
        self.lock().runtimes.remove(runtime);
    }

    /// The metrics of the listener.
    pub fn listener(&self) -> &ListenerMetrics {
        &self.0.listener
    }

    /// All metrics in OpenMetrics text. `observed` is the current state.
    pub fn render(&self, observed: &Observed) -> String {
        let mut registry = Registry::default();
        self.register_counted(&mut registry);
        self.0.listener.register(&mut registry);
        register_kymas(&mut registry, observed);
        register_rollouts(&mut registry, &observed.rollouts);
        register_sources(&mut registry, &observed.sources);
        register_registries(&mut registry, &observed.registries);
        register_daemon(&mut registry, observed);
        register_certificates(&mut registry, observed);
        if let Some(comparison) = &observed.comparison {
            register_comparison(&mut registry, comparison);
        }
        if let Some(setup) = &observed.setup {
            register_setup(&mut registry, setup);
        }
        let mut text = String::new();
        text::encode(&mut text, &registry).expect("writing to a String cannot fail");
        text
    }

    fn register_counted(&self, registry: &mut Registry) {
        let counted = &self.0;
        let help = "Requeues of Kymas and Manifests, by reason";
        registry.register("lifecycle_mgr_requeue_reason", help, counted.requeues.clone());
        registry.register("tidegate_repeated_passes", "Passes that are repeated, by reason", counted.repeats.clone());
        let help = "Webhooks of git hosts, by what became of them";
        registry.register("tidegate_hook_deliveries", help, counted.deliveries.clone());
        let help = "Objects that others changed or deleted in runtimes, by when they are repaired";
        registry.register("tidegate_drift_repairs", help, counted.drifts.clone());
        registry.register_with_unit(
            "tidegate_pass_duration",
            "Duration of passes",
            Unit::Seconds,
            counted.passes.clone(),
        );
        registry.register_with_unit(
            "tidegate_queue_wait",
            "Time that subjects were ready before their work began",
            Unit::Seconds,
            counted.waits.clone(),
        );
        registry.register_with_unit(
            "tidegate_commit_to_applied",
            "Time from the first sight of a commit until it is completely in the control plane, or until a runtime \
             that it affects is as desired",
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

fn register_comparison(registry: &mut Registry, comparison: &ComparisonSeries) {
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let differences = Family::<DifferenceLabels, Gauge>::default();
    for ((kind, reason), &number) in &comparison.differences {
        differences.get_or_create(&DifferenceLabels { kind: kind.clone(), reason }).set(count(number));
    }
    let help = "Objects that the daemon would change, by kind and reason, without decided improvements";
    registry.register("tidegate_observed_differences", help, differences);
    let improvements = Family::<ImprovementLabels, Gauge>::default();
    for ((kind, row), &number) in &comparison.improvements {
        improvements.get_or_create(&ImprovementLabels { kind: kind.clone(), row }).set(count(number));
    }
    let help = "Objects that the daemon would change by a decided improvement, by kind and row of its documentation";
    registry.register("tidegate_observed_improvements", help, improvements);
    let not_compared = Family::<PartLabels, Gauge>::default();
    for (part, &number) in &comparison.not_compared {
        not_compared.get_or_create(&PartLabels { part }).set(count(number));
    }
    let help =
        "What could not be compared, or not completely: the control plane, sources, runtimes, or parts of runtimes";
    registry.register("tidegate_observed_not_compared", help, not_compared);
    let runtimes = Family::<StateLabels, Gauge>::default();
    for (state, &number) in &comparison.runtimes {
        runtimes.get_or_create(&StateLabels { state }).set(count(number));
    }
    registry.register("tidegate_observed_runtimes", "Runtimes, by what became of their comparison", runtimes);
}

fn register_setup(registry: &mut Registry, setup: &SetupSeries) {
    let states = Family::<KindStateLabels, Gauge>::default();
    for (&(kind, state), &number) in &setup.states {
        states.get_or_create(&KindStateLabels { kind, state }).set(i64::try_from(number).unwrap_or(i64::MAX));
    }
    registry.register("tidegate_kcp_resources", "Resources of kcp landscapes, by kind and state", states);
    let clusters = Family::<StateLabels, Gauge>::default();
    for (&state, &number) in &setup.clusters {
        clusters.get_or_create(&StateLabels { state }).set(i64::try_from(number).unwrap_or(i64::MAX));
    }
    registry.register("tidegate_kcp_clusters", "Other clusters of kcp landscapes, by state", clusters);
    if let Some(resources) = &setup.upstream {
        register_kcp_operator(registry, resources);
    }
}

/// The gauges of kcp-operator, for its dashboards.
fn register_kcp_operator(registry: &mut Registry, resources: &[SetupResourceSeries]) {
    let (root_shards, shards, proxies) = (
        Family::<PhaseLabels, Gauge>::default(),
        Family::<PhaseLabels, Gauge>::default(),
        Family::<PhaseLabels, Gauge>::default(),
    );
    let (caches, kubeconfigs, workspaces) = (
        Family::<NamespaceLabels, Gauge>::default(),
        Family::<NamespaceLabels, Gauge>::default(),
        Family::<NamespaceLabels, Gauge>::default(),
    );
    let conditions = Family::<ConditionLabels, Gauge>::default();
    for SetupResourceSeries { kind, namespace, name, phase, conditions: found } in resources {
        let phase = if phase.is_empty() { "Unknown" } else { phase.as_str() };
        let of_phase = PhaseLabels { phase: phase.to_owned(), namespace: namespace.clone() };
        let of_namespace = NamespaceLabels { namespace: namespace.clone() };
        match kind {
            setup::Kind::RootShard => root_shards.get_or_create(&of_phase).inc(),
            setup::Kind::Shard => shards.get_or_create(&of_phase).inc(),
            setup::Kind::FrontProxy => proxies.get_or_create(&of_phase).inc(),
            setup::Kind::CacheServer => caches.get_or_create(&of_namespace).inc(),
            setup::Kind::Kubeconfig => kubeconfigs.get_or_create(&of_namespace).inc(),
            setup::Kind::VirtualWorkspace => workspaces.get_or_create(&of_namespace).inc(),
        };
        for (condition_type, value) in found {
            let labels = ConditionLabels {
                resource_type: kind.as_str().to_lowercase(),
                resource_name: name.clone(),
                namespace: namespace.clone(),
                condition_type: condition_type.clone(),
            };
            conditions.get_or_create(&labels).set(*value);
        }
    }
    registry.register("kcp_operator_rootshard_count", "Number of RootShard objects by phase", root_shards);
    registry.register("kcp_operator_shard_count", "Number of Shard objects by phase", shards);
    registry.register("kcp_operator_frontproxy_count", "Number of FrontProxy objects by phase", proxies);
    registry.register("kcp_operator_cacheserver_count", "Number of CacheServer objects by namespace", caches);
    registry.register("kcp_operator_kubeconfig_count", "Number of Kubeconfig objects by namespace", kubeconfigs);
    let help = "Number of VirtualWorkspace objects by namespace";
    registry.register("kcp_operator_virtualworkspace_count", help, workspaces);
    registry.register("kcp_operator_condition_status", "Status of conditions", conditions);
}

/// The states of a Kyma; each has a series.
const KYMA_STATES: [State; 5] = [State::Processing, State::Deleting, State::Ready, State::Error, State::Warning];
/// The states of a module; each has a series.
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
    registry.register("lifecycle_mgr_kyma_state", "State of each Kyma: 1 for the current state", kymas);
    registry.register("lifecycle_mgr_module_state", "State of each module: 1 for the current state", modules);
    let mandatory = Gauge::<i64>::default();
    mandatory.set(i64::try_from(observed.mandatory_modules).unwrap_or(i64::MAX));
    registry.register("lifecycle_mgr_mandatory_modules", "Mandatory modules", mandatory);
    let states = Family::<MandatoryLabels, Gauge>::default();
    for series in &observed.mandatory_states {
        for state in KYMA_STATES {
            let labels = MandatoryLabels {
                module_name: series.module.clone(),
                kyma_name: series.kyma.clone(),
                state: name(state),
            };
            states.get_or_create(&labels).set(i64::from(series.state == state));
        }
    }
    let help = "State of each mandatory module: 1 for the current state";
    registry.register("lifecycle_mgr_mandatory_module_state", help, states);
}

fn register_rollouts(registry: &mut Registry, rollouts: &[LineCounts]) {
    let (runtimes, halted) =
        (Family::<RolloutStateLabels, Gauge>::default(), Family::<RolloutLabels, Gauge>::default());
    for LineCounts { line, version, counts, is_halted } in rollouts {
        let module_name = || line.release.name().to_owned();
        let labels =
            RolloutLabels { module_name: module_name(), channel: line.offer.to_string(), version: version.clone() };
        halted.get_or_create(&labels).set(i64::from(*is_halted));
        for (state, count) in [
            ("pending", counts.pending),
            ("upgrading", counts.upgrading),
            ("failed", counts.failed),
            ("done", counts.done),
            ("aside", counts.aside),
        ] {
            let labels = RolloutStateLabels {
                module_name: module_name(),
                channel: line.offer.to_string(),
                version: version.clone(),
                state,
            };
            runtimes.get_or_create(&labels).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
    registry.register("tidegate_rollout_runtimes", "Runtimes by how far the rollout of a version is", runtimes);
    registry.register("tidegate_rollout_halted", "Whether the rollout of a version is halted by failures", halted);
}

fn register_sources(registry: &mut Registry, sources: &[SourceSeries]) {
    let ready = Family::<SourceLabels, Gauge>::default();
    let suspended = Family::<SourceLabels, Gauge>::default();
    let definitions = Family::<SourceStateLabels, Gauge>::default();
    let (bytes, listed) = (Family::<SourceLabels, Gauge>::default(), Family::<SourceLabels, Gauge>::default());
    for source in sources {
        let labels = SourceLabels { source: source.name.clone() };
        ready.get_or_create(&labels).set(i64::from(source.ready));
        suspended.get_or_create(&labels).set(i64::from(source.suspended));
        bytes.get_or_create(&labels).set(i64::try_from(source.bytes).unwrap_or(i64::MAX));
        listed.get_or_create(&labels).set(i64::try_from(source.listed).unwrap_or(i64::MAX));
        let counts = [("applied", source.applied), ("withheld", source.withheld), ("to_prune", source.to_prune)];
        for (state, count) in counts {
            definitions.get_or_create(&SourceStateLabels { source: source.name.clone(), state }).set(count);
        }
    }
    registry.register("tidegate_source_ready", "Whether the last revision is completely applied", ready);
    registry.register("tidegate_source_suspended", "Whether the source is suspended", suspended);
    registry.register("tidegate_source_definitions", "Definitions by result", definitions);
    registry.register("tidegate_source_bytes", "Size of the files of the active revision", bytes);
    registry.register("tidegate_source_diagnostics", "Problems that the daemon keeps listed", listed);
}

fn register_registries(registry: &mut Registry, registries: &[RegistrySeries]) {
    let (answering, failing) = (Family::<RegistryLabels, Gauge>::default(), Family::<RegistryLabels, Gauge>::default());
    let (requests, received) =
        (Family::<RegistryLabels, Counter>::default(), Family::<RegistryLabels, Counter>::default());
    for series in registries {
        let labels = RegistryLabels { registry: series.registry.clone() };
        answering.get_or_create(&labels).set(i64::from(series.answering));
        failing.get_or_create(&labels).set(i64::try_from(series.failing).unwrap_or(i64::MAX));
        requests.get_or_create(&labels).inc_by(series.requests);
        received.get_or_create(&labels).inc_by(series.received_bytes);
    }
    registry.register("tidegate_registry_answering", "Whether the OCI registry has answered the last time", answering);
    let help = "Components and layers whose last read from the OCI registry failed";
    registry.register("tidegate_registry_failing", help, failing);
    registry.register("tidegate_registry_requests", "Requests to the OCI registry", requests);
    let help = "Bytes received from the OCI registry";
    registry.register_with_unit("tidegate_registry_received", help, Unit::Bytes, received);
}

fn register_daemon(registry: &mut Registry, observed: &Observed) {
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let gauge = |value: i64| {
        let gauge = Gauge::<i64>::default();
        gauge.set(value);
        gauge
    };
    registry.register("tidegate_leading", "Whether this process is the leader", gauge(i64::from(observed.leading)));
    registry.register(
        "lifecycle_mgr_maintenance_window_config_read_success",
        "Whether the last read of the policy of maintenance windows succeeded",
        gauge(i64::from(observed.maintenance_policy_read)),
    );
    registry.register(
        "tidegate_paused",
        "Whether the configuration pauses all work",
        gauge(i64::from(observed.paused)),
    );
    registry.register(
        "tidegate_unreachable_runtimes",
        "Unreachable runtimes, which get no requests except probes",
        gauge(i64::try_from(observed.unreachable_runtimes).unwrap_or(i64::MAX)),
    );
    let watches = Family::<ReasonLabels, Gauge>::default();
    for &(reason, number) in &observed.watches {
        watches.get_or_create(&ReasonLabels { reason }).set(count(number));
    }
    registry.register(
        "tidegate_watch_runtimes",
        "Runtimes by reason of their condition tidegate.dev/Watch, which says whether changes are reported",
        watches,
    );
    let unreadable = Family::<ObjectKindLabels, Gauge>::default();
    for (kind, &number) in &observed.unreadable {
        unreadable.get_or_create(&ObjectKindLabels { kind: kind.clone() }).set(count(number));
    }
    registry.register(
        "tidegate_unreadable_objects",
        "Objects in the control plane and in runtimes that do not match their type; none of them is deleted",
        unreadable,
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
    registry.register("tidegate_events_dropped", "Kubernetes Events dropped because there were too many", dropped);
    registry.register("lifecycle_mgr_fips_mode", "FIPS mode: 0 off, 1 on, 2 only", gauge(0));
}

/// Lifecycle Manager's metrics for alerts: a runtime has a series only while something is wrong.
fn register_certificates(registry: &mut Registry, observed: &Observed) {
    let overdue = Family::<NameLabels, Gauge>::default();
    for kyma in &observed.certificates_overdue {
        overdue.get_or_create(&NameLabels { kyma_name: kyma.clone() }).set(1);
    }
    registry.register(
        "lifecycle_mgr_self_signed_cert_not_renew",
        "Runtimes whose certificate should be from the current CA but is not",
        overdue,
    );
    if let Some(is_close) = observed.server_close_to_expiry {
        let close = Gauge::<i64>::default();
        close.set(i64::from(is_close));
        registry.register(
            "lifecycle_mgr_gateway_secret_server_cert_close_to_expiry",
            "Whether the gateway's server certificate expires soon",
            close,
        );
    }
}

/// A state as a label. A Kyma without a state, because it is not reconciled yet, has no series.
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

/// From a pass without work up to the time-outs of a dead runtime.
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
            repeats: Family::default(),
            deliveries: Family::default(),
            drifts: Family::default(),
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
