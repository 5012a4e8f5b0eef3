//! Collects the state of everything for a scrape.

use std::{collections::BTreeMap, sync::Arc};

use super::{Cluster, Context, Leadership};
use tidegate_cluster::{Requests, Verb};
use tidegate_core::{
    api::{
        Kyma, Manifest,
        names::{annotation, label},
        setup,
        shared::Condition,
    },
    conditions, landscape,
    overview::{Overview, SetupLine, SourceLine, SubjectState},
    plan::is_mandatory,
};
use tidegate_process::ambient;

use crate::{
    gateway,
    http::{health::Missing, metrics::Render},
    metrics::{
        KymaSeries, MandatorySeries, Observed, QueueSeries, RequestSeries, SetupResourceSeries, SetupSeries,
        SourceSeries,
    },
    observe::Observation,
    source::registry::SourceRegistry,
    stores::Stores,
};

/// The conditions that kcp-operator does not have begin with this.
const OWN_PREFIX: &str = "tidegate.dev/";

/// The sources of the metrics.
pub(super) struct Observer {
    pub(super) context: Arc<Context>,
    pub(super) leadership: Leadership,
    pub(super) election: Arc<Cluster>,
    pub(super) paused: bool,
    /// Whether the gauges of kcp-operator are served; `None` without kcp landscapes.
    pub(super) kcp_landscapes: Option<KcpOperatorGauges>,
    /// What this process lacks of the control plane.
    pub(super) missing: Missing,
}

/// Whether the gauges of kcp-operator are served as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KcpOperatorGauges {
    /// They are.
    Served,
    /// They are not.
    Left,
}

impl Observer {
    pub(super) fn render(self) -> Render {
        Arc::new(move || self.context.metrics.render(&self.observe()))
    }

    fn observe(&self) -> Observed {
        let context = &self.context;
        let now = ambient::now();
        let depths = context.queue.depths();
        let kymas = context.stores.kymas();
        let sources: Vec<_> = context.stores.sources().into_iter().map(|source| source.object).collect();
        let overview = Overview::from_objects(sources.iter().map(|source| &**source), [], []);
        let releases = &context.stores.landscape().releases;
        let mandatory_modules = releases.values().filter(|release| release.spec.mandatory.is_some()).count();
        Observed {
            kymas: kymas.iter().map(|kyma| series(kyma)).collect(),
            mandatory_modules: u64::try_from(mandatory_modules).unwrap_or(u64::MAX),
            mandatory_states: context.stores.manifests().iter().filter_map(|manifest| mandatory(manifest)).collect(),
            maintenance_policy_read: context.maintenance.is_read(),
            rollouts: context.stores.rollouts(|index| index.counts()),
            sources: overview.sources.iter().map(|source| source_series(&context.sources, source)).collect(),
            queue: QueueSeries {
                ready: depths.ready,
                running: depths.running,
                delayed: depths.delayed,
                failing: depths.failing,
                oldest: depths.oldest,
            },
            requests: self.requests(),
            registries: context.components.series(),
            unreachable_runtimes: kymas
                .iter()
                .map(|kyma| u64::from(context.pool.is_open(&landscape::key(&kyma.metadata))))
                .sum(),
            watches: watches(&kymas),
            unreadable: unreadable(context),
            leading: self.leadership.is_leading() && context.observation.is_none(),
            paused: self.paused,
            events_dropped: context.events.dropped(),
            certificates_overdue: gateway::overdue(context.gateway(), now),
            server_close_to_expiry: gateway::is_close_to_expiry(context.gateway(), now),
            comparison: context
                .observation
                .as_ref()
                .map(|observation: &Observation| observation.series((self.missing)().len())),
            setup: self.kcp_landscapes.as_ref().map(|asked| setup_series(&context.stores, *asked)),
        }
    }

    fn requests(&self) -> Vec<RequestSeries> {
        let kcp = [self.context.kcp.requests(), self.election.requests()];
        let runtimes: Vec<Requests> = self.context.pool.requests().into_values().collect();
        let series = |cluster, requests: &[Requests], verb: Verb| RequestSeries {
            cluster,
            verb: verb.as_str(),
            count: requests.iter().map(|requests| requests.count(verb)).sum(),
        };
        Verb::ALL.into_iter().flat_map(|verb| [series("kcp", &kcp, verb), series("runtime", &runtimes, verb)]).collect()
    }
}

/// The series of kcp landscapes. Each kind has one for each state, because alerts need them.
fn setup_series(stores: &Stores, gauges: KcpOperatorGauges) -> SetupSeries {
    let resources = stores.setup();
    let word = |state: SubjectState| match state {
        SubjectState::Wrong => "wrong",
        SubjectState::Waiting => "waiting",
        // A resource of a kcp landscape cannot be suspended, so none is stopped.
        SubjectState::Stopped | SubjectState::Well => "well",
    };
    let all = [SubjectState::Wrong, SubjectState::Waiting, SubjectState::Well];
    let mut states: BTreeMap<(&str, &str), usize> =
        setup::Kind::ALL.iter().flat_map(|kind| all.map(|state| ((kind.as_str(), word(state)), 0))).collect();
    let mut upstream = Vec::new();
    for (kind, key) in resources.ids() {
        let (Some(metadata), status) = (resources.metadata(kind, key), resources.status(kind, key)) else { continue };
        if let Some(line) = SetupLine::new(kind, metadata, &status) {
            *states.entry((kind.as_str(), word(line.standing))).or_default() += 1;
        }
        if gauges == KcpOperatorGauges::Left {
            continue;
        }
        let conditions: Vec<Condition> = serde_json::from_value(status["conditions"].clone()).unwrap_or_default();
        let is_exported = |one: &&Condition| {
            !one.type_.starts_with(OWN_PREFIX)
                && !matches!(kind, setup::Kind::CacheServer | setup::Kind::VirtualWorkspace)
        };
        let value = |one: &Condition| {
            let value = match one.status.as_str() {
                "True" => 1,
                "False" => 0,
                _ => -1,
            };
            (one.type_.clone(), value)
        };
        upstream.push(SetupResourceSeries {
            kind,
            namespace: key.namespace().to_owned(),
            name: key.name().to_owned(),
            phase: status["phase"].as_str().unwrap_or_default().to_owned(),
            conditions: conditions.iter().filter(is_exported).map(value).collect(),
        });
    }
    let clusters = stores.count_other_clusters();
    SetupSeries { states, clusters, upstream: (gauges == KcpOperatorGauges::Served).then_some(upstream) }
}

fn series(kyma: &Kyma) -> KymaSeries {
    let status = kyma.status.as_ref();
    let domain = landscape::annotation(&kyma.metadata, annotation::SKR_DOMAIN).unwrap_or_default();
    // As upstream, the first label of a domain is the shoot's name only if there are more than two labels.
    let shoot = if domain.split('.').count() > 2 { domain.split('.').next().unwrap_or_default() } else { "" };
    KymaSeries {
        name: kyma.metadata.name.clone().unwrap_or_default(),
        shoot: shoot.to_owned(),
        instance_id: landscape::label(&kyma.metadata, label::INSTANCE_ID).unwrap_or_default().to_owned(),
        state: status.map(|status| status.state).unwrap_or_default(),
        modules: status
            .map(|status| status.modules.iter().map(|module| (module.name.clone(), module.state)).collect())
            .unwrap_or_default(),
    }
}

/// The series of a Manifest; none if its module is not mandatory.
fn mandatory(manifest: &Manifest) -> Option<MandatorySeries> {
    let name = |key: &str| landscape::label(&manifest.metadata, key).map(str::to_owned);
    is_mandatory(&manifest.metadata).then_some(())?;
    Some(MandatorySeries {
        module: name(label::MODULE_NAME)?,
        kyma: name(label::KYMA_NAME)?,
        state: manifest.status.as_ref().map(|status| status.state).unwrap_or_default(),
    })
}

/// The number of runtimes by reason. Includes reasons without runtimes, because alerts need their series.
fn watches(kymas: &[Arc<Kyma>]) -> Vec<(&'static str, usize)> {
    let reason_of = |kyma: &Kyma| {
        let found = conditions::find(&kyma.status.as_ref()?.conditions, conditions::WATCH)?;
        conditions::watch::ALL.into_iter().find(|reason| *reason == found.reason)
    };
    let found: Vec<&str> = kymas.iter().filter_map(|kyma| reason_of(kyma)).collect();
    let count = |reason: &'static str| (reason, found.iter().filter(|found| **found == reason).count());
    conditions::watch::ALL.map(count).to_vec()
}

/// The number of unreadable objects by kind, in the control plane and in runtimes.
fn unreadable(context: &Context) -> BTreeMap<String, usize> {
    let mut kinds = context.runtimes.unreadable();
    for found in context.stores.unreadable() {
        *kinds.entry(found.table.kind().to_owned()).or_default() += 1;
    }
    kinds
}

fn source_series(registry: &SourceRegistry, source: &SourceLine) -> SourceSeries {
    let (bytes, listed) = source.name.parse().map(|key| registry.sizes(&key)).unwrap_or_default();
    SourceSeries {
        name: source.name.clone(),
        ready: source.standing == SubjectState::Well,
        suspended: source.standing == SubjectState::Stopped,
        applied: source.counts.applied,
        withheld: source.counts.withheld,
        to_prune: source.counts.to_prune,
        bytes,
        listed,
    }
}
