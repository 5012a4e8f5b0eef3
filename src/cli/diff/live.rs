//! `tidegate diff --live`: compares a revision with the control plane and its runtimes.
//!
//! The same functions decide as in the daemon: which definitions are applied, what runtimes get, what is pruned. An
//! object that differs is sent to the API server as a dry run; nothing is written. Secrets are compared by keyed
//! digests and never sent.
//!
//! Runtimes are compared concurrently, each with a timeout of its own. A runtime that cannot be reached is reported and
//! delays no other. For an object that does not exist there is no dry run: that would need the right to create it, and
//! the same change may have to create its kind or namespace first.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use futures::{StreamExt, stream};

use tidegate_cluster::{Cluster, ClusterName, Error, Limits, Pool};
use tidegate_core::{
    adopt,
    api::{Kyma, Watcher, names::label, shared::State},
    definition,
    diagnostic::{Diagnostics, Severity},
    intake::{self, Policy},
    landscape::{self, Idle, Landscape, ResumeBy, SourceName},
    name::Key,
    object::Object,
    plan::{self, Class, Components, Offer, PolicyAt, Settings},
    render::{self, Trial, live as placeholder},
    revision::{Oid, Revision},
    snapshot::Snapshot,
    template::{Library, Template},
};
use tidegate_diff::{
    clean::{Draft, REFUSED},
    compare::{Lines, touched},
    gather::{Gatherer, ObjectDifference},
    mask::Masker,
    model::{Action, Effect, Held, LIVE, Move, NotKnown, Report, Runtimes, Side, Subject, Unreached},
    policy::{Kinds, Labels},
    sample::{Stratum, sample},
};

use crate::{
    cli::{
        self,
        control_plane::{self, ControlPlaneFailure},
        modules::Modules,
        progress::Progress,
        repository::{Loaded, try_templates},
    },
    live::{
        Intent, Layers, Method, Outcome, Wanted, WindowsAt,
        compare::{Comparer, Shared},
        desired::Bases,
        route,
        runtime::{self, Baseline, RuntimeResult},
        world::{Trusted, World},
    },
    observe::{
        difference::{Reason, changed_fields},
        improvement,
    },
};

mod intent;

/// The clusters that `--live` compares with.
#[derive(clap::Args)]
pub(super) struct Clusters {
    /// Compare the revision with real clusters: the control plane and its runtimes. Nothing is written [default: off]
    #[arg(long, conflicts_with_all = ["from", "assume", "landscape", "target"])]
    pub(super) live: bool,
    #[command(flatten)]
    access: control_plane::Access,
    /// Compare only this many runtimes, a sample that covers each combination of modules and channels and is the same
    /// each time, for example `20` [default: all]
    #[arg(
        long, value_name = "N", requires = "live", conflicts_with = "runtimes",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    sample: Option<u32>,
    /// Compare only this runtime, for example `kcp-system/dev`; repeat the option for more [default: all]
    #[arg(long = "runtime", value_name = "NAMESPACE/NAME", requires = "live")]
    runtimes: Vec<Key>,
    /// Compare this many runtimes at once
    #[arg(
        long, value_name = "N", requires = "live", default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    parallel: u16,
    /// Report a runtime as unreachable after this many seconds
    #[arg(
        long, value_name = "SECONDS", requires = "live", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    runtime_timeout: u64,
    /// Read the CA that runtimes trust from a Secret in this namespace
    #[arg(long, value_name = "NAME", requires = "live", default_value = "istio-system")]
    istio_namespace: String,
    /// Compare as a daemon with this `--skr-image-pull-secret`, whose name is in the workloads of modules [default:
    /// none]
    #[arg(long, value_name = "NAME", requires = "live")]
    skr_image_pull_secret: Option<String>,
    /// Compare as a daemon with `--kcp-landscapes`, which applies RootShards, Shards and so on [default: off]
    #[arg(long, requires = "live")]
    kcp_landscapes: bool,
    /// Compare as a daemon with these `--restricted-default-modules`, separated by commas [default: none]
    #[arg(long, value_name = "NAMES", requires = "live", value_delimiter = ',')]
    restricted_default_modules: Vec<String>,
}

/// The revision with its templates.
pub(super) struct Given {
    pub(super) loaded: Loaded,
    pub(super) library: Library,
    /// The problems of its templates.
    pub(super) diagnostics: Diagnostics,
    pub(super) masker: Masker,
    /// Whether digests become numbers, because the key differs in every run.
    pub(super) numbers: bool,
    /// The cache of modules in registries.
    pub(super) modules: Modules,
    /// The policy of maintenance windows.
    pub(super) maintenance: Option<PolicyAt>,
    /// Whether only people read the result. Programs get a report also if the control plane cannot be reached.
    pub(super) is_text: bool,
}

/// The report, and the data that the rules need besides it.
pub(super) struct Compared {
    pub(super) draft: Draft,
    pub(super) labels: Labels,
    /// `None` if nothing could be read.
    pub(super) kinds: Option<Kinds>,
}

/// The revision that is compared, and what it wants.
struct Inputs {
    wanted: Wanted,
    source: SourceName,
    snapshot: Snapshot,
    /// The repository, which may have former objects of modules.
    root: PathBuf,
    commit: Option<Oid>,
    /// The deletion policy of the GitSource, if the control plane has no GitSource.
    policy: Policy,
    /// Whether there is an error, so that nothing is pruned.
    invalid: bool,
    /// Whether the GitSource that was given as a file is suspended.
    suspended: bool,
    /// Whether digests become numbers, because the key differs in every run.
    numbers: bool,
}

/// Longest time for one request to a runtime. It is short because a pipeline waits.
const REQUEST_MAX: Duration = Duration::from_secs(20);
/// Concurrent requests for objects of the control plane.
const KCP_REQUESTS: usize = 32;
/// Concurrent requests to one runtime.
const RUNTIME_REQUESTS: usize = 8;

/// Compares a revision with real clusters.
///
/// # Errors
///
/// Fails if an argument is invalid, or if the definitions could not all be checked in time. The report names clusters
/// that cannot be reached; for people, it is an error that the control plane cannot be.
pub(super) async fn compare(arguments: &Clusters, given: Given, progress: &Progress) -> anyhow::Result<Compared> {
    let shared = Shared::new(given.masker, Method::DryRun, false);
    let limits = |concurrency| Limits { concurrency, request_timeout: REQUEST_MAX, ..Limits::default() };
    let config = arguments.access.config().await?;
    let kcp = Cluster::new(ClusterName::Kcp, &config, arguments.access.limits(KCP_REQUESTS));
    let kcp = kcp.context("cannot use the kubeconfig")?;
    let kcp = Arc::new(kcp);
    let is_text = given.is_text;
    let mut subject = subject(&given.loaded);
    progress.step("comparing the control plane");
    let (namespaces, istio) = (&given.loaded.options.namespaces, &arguments.istio_namespace);
    let world = World::read(Arc::clone(&kcp), namespaces, istio, arguments.kcp_landscapes).await;
    let world = match world {
        Ok(world) => world,
        Err(error) => return unreachable(subject, &shared, &error, is_text),
    };
    // Only now: a control plane that does not answer is said above. Without its kinds, a landscape looks empty.
    match cli::adopt::missing(&kcp).await {
        Ok(missing) if missing.is_empty() => {}
        Ok(missing) => return Ok(unread(subject, &shared, &control_plane::not_served(&missing))),
        Err(error) => return Ok(unread(subject, &shared, &control_plane::conclude(&error).0)),
    }
    // The daemon creates namespaces that definitions name, but not those of a landscape that has nothing yet.
    if world.objects.is_empty() && world.sources.is_empty() {
        cli::adopt::check_namespaces(&kcp, namespaces).await?;
    }
    let assumed = super::source_assumed(&given.loaded, None);
    let (mut inputs, components, mut diagnostics) =
        read(given.loaded, given.library, given.diagnostics, &given.modules, &world)?;
    diagnostics.extend(assumed);
    let others = world.sources.iter().filter(|other| landscape::key(&other.metadata) != *inputs.source.key());
    let others = others.map(|other| (landscape::key(&other.metadata), intake::status::unnamed(other)));
    diagnostics.extend(others.filter(|(_, count)| 0 < *count).map(|(key, count)| super::unnamed(&key, count)));
    inputs.wanted.settings.pull_secret.clone_from(&arguments.skr_image_pull_secret);
    inputs.wanted.settings.restricted_modules = arguments.restricted_default_modules.iter().cloned().collect();
    inputs.numbers = given.numbers;
    shared.meet(&inputs.wanted.definitions);
    subject.files = inputs.wanted.definitions.files;
    let mut outcome = Outcome::default();
    let comparer = Comparer::new(&shared, &kcp, Side::ControlPlane, Arc::default(), Vec::new());
    let windows = given.maintenance.as_ref().map(WindowsAt::from);
    let mut intent = match intent::intend(&inputs, &world, (&components, windows), &comparer, &mut outcome).await {
        Ok(intent) => intent,
        Err(error) => return unreachable(subject, &shared, &error, is_text),
    };
    if let Err(error) = virtual_services(&inputs, &world, &intent, &comparer, &mut outcome).await {
        return unreachable(subject, &shared, &error, is_text);
    }
    let chosen = choose(arguments, &inputs.wanted.settings, &intent)?;
    // What is kept until a confirmation is not in the revision.
    let layers = intent::former_modules(&inputs, &intent);
    let around = Around {
        arguments,
        wanted: &inputs.wanted,
        components: &components,
        layers: &layers,
        windows,
        world: &world,
        shared: &shared,
        chosen: &chosen,
        limits: limits(RUNTIME_REQUESTS),
    };
    let mut results = around.compare(&intent, progress).await;
    let in_use: BTreeSet<Key> = results
        .iter()
        .filter_map(|(_, result)| result.as_ref().ok())
        .flat_map(|one| &one.outcome.in_use)
        .cloned()
        .collect();
    let kept = intent.keep(&in_use);
    if !kept.is_empty() {
        // Runtimes keep their copies of these versions as well.
        hold_in_use(&kept, &results, &mut outcome);
        results = around.compare(&intent, progress).await;
    }
    let bases = Bases::default();
    let baseline = around.baseline(&intent, &bases);
    let stuck = stuck(&intent);
    let of_stuck =
        results.iter_mut().filter(|(key, _)| stuck.contains(key)).filter_map(|(_, result)| result.as_mut().ok());
    let overridden = overridden(&inputs);
    of_stuck.for_each(|result| is_former(&mut result.outcome, &overridden));
    let idle = inputs.suspended.then_some(Idle::Suspended).or_else(|| world.idle(&inputs.source));
    let report = Summing { subject, diagnostics, outcome, installed: BTreeMap::new(), idle, compared: 0 };
    let kinds = Some(Kinds::from_definitions(&[&inputs.wanted.definitions]));
    Ok(Compared { draft: report.finish(&inputs, &baseline, results), labels: intent.labels(), kinds })
}

/// Marks what waits because runtimes keep a version: users have custom resources of its module.
fn hold_in_use(kept: &BTreeSet<Key>, results: &[(Key, Result<RuntimeResult, String>)], outcome: &mut Outcome) {
    let key = |found: &ObjectDifference| Key::new(&found.id.namespace, &found.id.name);
    let is_kept = |found: &&mut ObjectDifference| {
        found.action == Action::Delete && &*found.id.kind == "ModuleTemplate" && kept.contains(&key(found))
    };
    outcome.found.iter_mut().filter(is_kept).for_each(|found| found.effect = Effect::Held);
    outcome.held.extend(kept.iter().map(|template| {
        let keeps = |result: &RuntimeResult| result.outcome.in_use.contains(template);
        let runtimes = results.iter().filter(|(_, result)| result.as_ref().is_ok_and(keeps)).map(|(key, _)| key);
        Held::in_use(&(definition::Kind::ModuleTemplate, template.clone()), runtimes, None)
    }));
}

/// What the comparisons of runtimes share, beside what the change intends.
struct Around<'a> {
    arguments: &'a Clusters,
    wanted: &'a Wanted,
    components: &'a Components,
    layers: &'a Layers,
    windows: Option<WindowsAt<'a>>,
    world: &'a World,
    shared: &'a Shared,
    chosen: &'a BTreeSet<Key>,
    limits: Limits,
}

// === impl Around ===

impl<'a> Around<'a> {
    fn baseline<'i>(&self, intent: &'i Intent, bases: &'i Bases) -> Baseline<'i>
    where
        'a: 'i,
    {
        Baseline {
            wanted: self.wanted,
            components: self.components,
            layers: self.layers,
            windows: self.windows,
            world: self.world,
            intent,
            shared: self.shared,
            bases,
            until_confirmed: None,
        }
    }

    /// Compares the chosen runtimes.
    async fn compare(&self, intent: &Intent, progress: &Progress) -> Vec<(Key, Result<RuntimeResult, String>)> {
        let (bases, bases_until) = (Bases::default(), Bases::default());
        let until = intent.until_confirmed.as_deref().map(|intent| self.baseline(intent, &bases_until));
        let baseline = Baseline { until_confirmed: until.as_ref(), ..self.baseline(intent, &bases) };
        progress.start_step("comparing runtimes", self.chosen.len());
        compare_all(self.arguments, &baseline, self.chosen, self.limits, progress).await
    }
}

fn subject(loaded: &Loaded) -> Subject {
    Subject {
        from: LIVE.to_owned(),
        to: loaded.snapshot.revision.to_string(),
        source: loaded.source.to_string(),
        landscape_written: None,
        files: 0,
    }
}

/// The report if the control plane cannot be read. It contains only that error. Fails with it if it does not answer, or
/// rejects the credentials, and only people read the result: as of every command, that is one sentence.
fn unreachable(subject: Subject, shared: &Shared, error: &Error, is_text: bool) -> anyhow::Result<Compared> {
    let message = match ControlPlaneFailure::of(error) {
        Some(failure) if is_text => return Err(failure.into()),
        Some(failure) => failure.to_string(),
        None => error.to_string(),
    };
    Ok(unread(subject, shared, &message))
}

/// The report that contains only why the control plane cannot be compared.
fn unread(subject: Subject, shared: &Shared, why: &str) -> Compared {
    let unreached = Unreached { target: "kcp".to_owned(), message: shared.scrub(why) };
    let report = Report { subject, unreached: vec![unreached], ..Report::default() };
    let draft = Draft::new(report, shared.met(), true);
    Compared { draft, labels: Labels::default(), kinds: None }
}

/// Reads the definitions, which may refer to objects in the control plane.
///
/// Fails if they could not all be checked in time.
fn read(
    mut loaded: Loaded,
    library: Library,
    mut diagnostics: Diagnostics,
    modules: &Modules,
    world: &World,
) -> anyhow::Result<(Inputs, Components, Diagnostics)> {
    // What the control plane took to answer is no time of the check.
    loaded.restart()?;
    loaded.options.elsewhere = Arc::new(intent::elsewhere(world, &loaded.source));
    let own = world.sources.iter().find(|source| landscape::key(&source.metadata) == *loaded.source.key());
    diagnostics.extend(own.map(|own| loaded.differs_from(&own.spec)).unwrap_or_default());
    let mut definitions =
        definition::read(&mut diagnostics, &loaded.snapshot, &loaded.options, &mut definition::Cache::default());
    definitions.retain_applied(&mut diagnostics, world.kcp_landscapes);
    loaded.complete()?;
    let catalog = world.catalog();
    let installed = world.installed();
    let (source, agents) = (&loaded.source, &render::sample_agents());
    let trial = Trial { source, definitions: &definitions, catalog: &catalog, installed: &installed, agents };
    let diagnostics = try_templates(diagnostics, &library, trial);
    let components = modules.read(&loaded.source, None, &mut [&mut definitions]);
    let commit = match &loaded.snapshot.revision {
        Revision::Commit { commit, .. } => Some(*commit),
        Revision::WorkTree => None,
    };
    let wanted = Wanted {
        definitions,
        sources: [loaded.source.key().clone()].into(),
        library,
        settings: Settings::default(),
        agents: None,
    };
    let inputs = Inputs {
        invalid: diagnostics.has_errors(),
        wanted,
        source: loaded.source,
        snapshot: loaded.snapshot,
        root: loaded.root,
        commit,
        policy: loaded.policy,
        suspended: loaded.suspended,
        numbers: false,
    };
    Ok((inputs, components, diagnostics))
}

/// The VirtualService of each Watcher.
async fn virtual_services(
    inputs: &Inputs,
    world: &World,
    intent: &Intent,
    comparer: &Comparer<'_>,
    outcome: &mut Outcome,
) -> Result<(), Error> {
    for (key, watcher) in &intent.after.watchers {
        route::compare(&inputs.wanted, &world.gateways(watcher), (key, watcher), comparer, outcome).await?;
    }
    Ok(())
}

/// The runtimes to compare. Fails if `--runtime` names one that does not exist.
fn choose(arguments: &Clusters, settings: &Settings, intent: &Intent) -> anyhow::Result<BTreeSet<Key>> {
    let all = intent.runtimes();
    if let Some(unknown) = arguments.runtimes.iter().find(|key| !all.contains(*key)) {
        bail!("no Kyma {unknown} in the control plane or in the revision: check `--runtime`");
    }
    if !arguments.runtimes.is_empty() {
        return Ok(arguments.runtimes.iter().cloned().collect());
    }
    let Some(size) = arguments.sample else { return Ok(all) };
    let stratum = |key: &Key| {
        let (landscape, kyma) = intent.kyma(key)?;
        Some((key.clone(), Stratum::for_kyma(kyma, Class::for_kyma(landscape, kyma, settings))))
    };
    Ok(sample(all.iter().filter_map(stratum), usize::try_from(size).unwrap_or(usize::MAX)))
}

/// Compares runtimes concurrently. Returns the results in the order of their keys.
async fn compare_all(
    arguments: &Clusters,
    baseline: &Baseline<'_>,
    chosen: &BTreeSet<Key>,
    limits: Limits,
    progress: &Progress,
) -> Vec<(Key, Result<RuntimeResult, String>)> {
    let pool = Pool::new(Arc::clone(&baseline.world.kcp), limits, None);
    let longest = Duration::from_secs(arguments.runtime_timeout);
    let pool = &pool;
    let mut results: Vec<(Key, Result<RuntimeResult, String>)> = stream::iter(chosen.iter().cloned())
        .map(|key| async move {
            let result = match tokio::time::timeout(longest, compare_one(baseline, pool, &key)).await {
                Ok(result) => result,
                Err(_) => Err(format!("timeout: the comparison took longer than {} s", longest.as_secs())),
            };
            pool.forget(&key);
            progress.advance();
            (key, result.map_err(|message| baseline.shared.scrub(&message)))
        })
        .buffer_unordered(usize::from(arguments.parallel))
        .collect()
        .await;
    results.sort_by(|(one, _), (other, _)| one.cmp(other));
    results
}

async fn compare_one(baseline: &Baseline<'_>, pool: &Pool, key: &Key) -> Result<RuntimeResult, String> {
    let cluster = match baseline.world.access.get(key).map(Vec::as_slice) {
        Some([(secret, resource_version)]) => {
            let cluster = pool.cluster(key, secret, resource_version).await;
            Some(cluster.map_err(|error| error.to_string())?)
        }
        Some([_, _, ..]) => return Err("the runtime has more than one access Secret".to_owned()),
        // A Kyma that only the revision declares has no runtime yet: all its objects are new.
        Some([]) | None if !baseline.intent.before.kymas.contains_key(key) => None,
        Some([]) | None => return Err("the runtime has no access Secret".to_owned()),
    };
    let compare = async |baseline: &Baseline<'_>| match baseline.intent.kyma(key) {
        Some((_, kyma)) => runtime::compare_runtime(baseline, key, kyma, cluster.as_deref()).await,
        None => Ok(RuntimeResult::default()),
    };
    let mut result = compare(baseline).await.map_err(|error| error.to_string())?;
    if let Some(until) = baseline.until_confirmed {
        let until = compare(until).await.map_err(|error| error.to_string())?;
        result.outcome.follow(until.outcome);
    }
    if baseline.intent.before.kymas.get(key).is_some_and(|kyma| adopt::is_adopted(&kyma.metadata)) {
        hold(&mut result.outcome, key);
    }
    if cluster.is_none() && !result.suspended {
        result.unseen = true;
        let message = "the runtime has no access Secret yet: all its objects are shown as new".to_owned();
        result.outcome.problems.push(Unreached { target: format!("skr/{key}"), message });
    }
    Ok(result)
}

/// The runtimes that have errors already, and of which the revision changes neither the Kyma nor a module. None if it
/// changes Watchers.
fn stuck(intent: &Intent) -> BTreeSet<Key> {
    let (before, after) = (&intent.before.watchers, &intent.after.watchers);
    let is_same =
        |(key, watcher): (&Key, &Arc<Watcher>)| after.get(key).is_some_and(|after| after.spec == watcher.spec);
    if before.len() != after.len() || !before.iter().all(is_same) {
        return BTreeSet::new();
    }
    let touched = touched(&intent.before, &intent.after);
    intent.before.kymas.keys().filter(|key| is_stuck(intent, key, &touched)).cloned().collect()
}

/// Whether a runtime has errors already, and the revision changes neither its Kyma nor one of its modules. `touched`
/// are all modules that the revision changes.
fn is_stuck(intent: &Intent, key: &Key, touched: &BTreeSet<Key>) -> bool {
    let (Some(before), Some(after)) = (intent.before.kymas.get(key), intent.after.kymas.get(key)) else { return false };
    let facts = |kyma: &Kyma| (kyma.metadata.labels.clone(), kyma.metadata.annotations.clone(), kyma.spec.clone());
    let status = before.status.as_ref();
    let is_in_error = status.is_some_and(|status| status.state == State::Error);
    if !is_in_error || facts(before) != facts(after) {
        return false;
    }
    let has = |module: &Key| {
        let is_it = |name: &str| name == module.name() && key.namespace() == module.namespace();
        let selected = before.spec.modules.iter().map(|module| module.name.as_str());
        let installed = status.into_iter().flat_map(|status| &status.modules).map(|module| module.name.as_str());
        let is_mandatory = |landscape: &Landscape| {
            landscape.releases.get(module).is_some_and(|release| release.spec.mandatory.is_some())
        };
        selected.chain(installed).any(is_it) || is_mandatory(&intent.before) || is_mandatory(&intent.after)
    };
    !touched.iter().any(has)
}

/// The templates that the repository overrides. Those of the active revision are not known here, so the revision may
/// have changed each of them.
fn overridden(inputs: &Inputs) -> BTreeSet<&'static str> {
    let library = &inputs.wanted.library;
    let (own, base) = (library.of_source(Some(&inputs.source)), library.base());
    let is_overridden = |template: &Template| own.differs(base, *template).is_some();
    Template::ALL.into_iter().filter(is_overridden).map(Template::name).collect()
}

/// Marks what is there whatever the revision says, apart from what these templates render. An API server that rejects
/// an object rejects that of the active revision as well, so it is no error of this one.
fn is_former(outcome: &mut Outcome, overridden: &BTreeSet<&str>) {
    let is_other = |found: &&mut ObjectDifference| found.maker.is_none_or(|maker| !overridden.contains(maker));
    outcome.found.iter_mut().filter(is_other).for_each(|found| found.is_former = true);
    let rejected = outcome.diagnostics.iter_mut().filter(|one| one.code == REFUSED);
    rejected.for_each(|one| one.severity = Severity::Warning);
}

/// What the daemon leaves in a runtime as Lifecycle Manager had it.
fn hold(outcome: &mut Outcome, key: &Key) {
    let of_runtime = outcome.found.iter_mut().filter(|found| found.target == Side::Runtime);
    for found in of_runtime.filter(|found| found.action == Action::Change) {
        let (Some(old), Some(new)) = (&found.old, &found.new) else { continue };
        if improvement::explaining(Reason::Changed, &found.id, &changed_fields(old, new)).is_some() {
            found.effect = Effect::Held;
        }
    }
    outcome.held.push(Held { runtimes: [key.clone()].into(), ..Held::runtime_adopted() });
}

/// A report under construction.
struct Summing {
    subject: Subject,
    diagnostics: Diagnostics,
    outcome: Outcome,
    /// How many runtimes have a module installed from an offer.
    installed: BTreeMap<(Key, Offer), usize>,
    idle: Option<Idle>,
    compared: usize,
}

// === impl Summing ===

impl Summing {
    fn finish(
        mut self,
        inputs: &Inputs,
        baseline: &Baseline<'_>,
        results: Vec<(Key, Result<RuntimeResult, String>)>,
    ) -> Draft {
        for (key, result) in results {
            match result {
                Ok(result) => {
                    self.compared += usize::from(!result.suspended && !result.unseen);
                    for on in result.installed {
                        *self.installed.entry(on).or_default() += 1;
                    }
                    self.outcome.append(result.outcome);
                }
                Err(message) => self.outcome.problems.push(Unreached { target: format!("skr/{key}"), message }),
            }
        }
        let Outcome { found, held, unknown, diagnostics: more, problems, .. } = self.outcome;
        let mut held = Held::together(held);
        let resume_by = if inputs.suspended { ResumeBy::File } else { ResumeBy::Command };
        held.extend(self.idle.map(|idle| Held::source_idle(&inputs.source, idle, resume_by)));
        self.diagnostics.extend(more);
        let mut gatherer = Gatherer::default();
        let mut lines = Lines::new(&inputs.snapshot);
        for mut one in found {
            let (old, new) = (one.old.as_deref(), one.new.as_deref());
            if let (Some(old), Some(new), Some(place)) = (old, new, one.places.last_mut()) {
                *place = lines.of_written(place, old, new);
            }
            gatherer.add(one);
        }
        let mut differences = gatherer.finish();
        for difference in &mut differences {
            if self.idle.is_some() {
                difference.effect = Effect::Held;
            }
        }
        let mut unknown = together(unknown);
        if matches!(baseline.world.trusted, Trusted::NotKnown) {
            unknown.push(ca_bundle());
        }
        let mut problems = problems;
        problems.sort();
        problems.dedup();
        let total = baseline.intent.runtimes().len();
        let mut report = Report {
            subject: self.subject,
            differences,
            runtimes: Runtimes { total, compared: self.compared, ..Runtimes::default() },
            moves: moves(baseline, &self.installed),
            held: held_together(held),
            unknown,
            diagnostics: self.diagnostics.sorted(),
            unreached: problems,
            ..Report::default()
        };
        report.count_runtimes();
        let mut masker = baseline.shared.met();
        for key in baseline.intent.runtimes() {
            masker.is_name(key.name());
        }
        for difference in &report.differences {
            masker.is_name(&difference.id.namespace);
            masker.is_name(&difference.id.name);
        }
        Draft::new(report, masker, inputs.numbers)
    }
}

fn ca_bundle() -> NotKnown {
    NotKnown {
        value: placeholder::CA_BUNDLE.to_owned(),
        first: placeholder::Unknown {
            value: placeholder::CA_BUNDLE.to_owned(),
            target: "skr".to_owned(),
            object: "ValidatingWebhookConfiguration.admissionregistration.k8s.io skr-webhook".to_owned(),
            path: "webhooks".to_owned(),
        },
        occurrences: 1,
        may_hide: true,
    }
}

/// Each unknown value once.
fn together(unknown: Vec<NotKnown>) -> Vec<NotKnown> {
    let mut by_value: BTreeMap<String, NotKnown> = BTreeMap::new();
    for one in unknown {
        by_value
            .entry(one.value.clone())
            .and_modify(|all| {
                all.occurrences += one.occurrences;
                all.may_hide |= one.may_hide;
                all.first = all.first.clone().min(one.first.clone());
            })
            .or_insert(one);
    }
    by_value.into_values().collect()
}

/// Each held change once, with all its runtimes.
fn held_together(held: Vec<Held>) -> Vec<Held> {
    let mut groups: BTreeMap<Held, BTreeSet<Key>> = BTreeMap::new();
    for one in held {
        let runtimes: Vec<Key> = one.runtimes.to_vec();
        groups.entry(Held { runtimes: Arc::default(), ..one }).or_default().extend(runtimes);
    }
    let whole = |(held, runtimes): (Held, BTreeSet<Key>)| Held { runtimes: runtimes.into_iter().collect(), ..held };
    let mut held: Vec<Held> = groups.into_iter().map(whole).collect();
    held.sort_by(|a, b| {
        (&*a.runtimes, &a.module, a.why, &a.message).cmp(&(&*b.runtimes, &b.module, b.why, &b.message))
    });
    held
}

/// Whether a Manifest has its version by an offer of a release.
fn is_offered_by(manifest: &Object, (release, offer): &(Key, Offer)) -> bool {
    let is_of_release = manifest.namespace() == release.namespace();
    let is_of_offer = match offer.channel() {
        Some(channel) => manifest.label(label::CHANNEL) == Some(channel),
        None => manifest.label(label::MANDATORY_MODULE) == Some("true"),
    };
    is_of_release && is_of_offer && manifest.label(label::MODULE_NAME) == Some(release.name())
}

/// Offers whose version changes. `installed` is the number of runtimes that have an offer's version afterwards.
fn moves(baseline: &Baseline<'_>, installed: &BTreeMap<(Key, Offer), usize>) -> Vec<Move> {
    let Intent { before, after, .. } = baseline.intent;
    let versions = |landscape: &Landscape| -> BTreeMap<(Key, Offer), String> {
        let releases = landscape.releases.iter();
        let offers = releases.flat_map(|(key, release)| {
            plan::offers(release).map(|(offer, version)| ((key.clone(), offer), version.to_owned()))
        });
        offers.collect()
    };
    let (old, new) = (versions(before), versions(after));
    let keys: BTreeSet<&(Key, Offer)> = old.keys().chain(new.keys()).collect();
    let moved = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    moved
        .map(|key| Move {
            module: key.0.clone(),
            channel: key.1.to_string(),
            from: old.get(key).cloned(),
            to: new.get(key).cloned(),
            runtimes: match new.contains_key(key) {
                true => installed.get(key).copied().unwrap_or_default(),
                false => baseline.world.manifests.values().filter(|manifest| is_offered_by(manifest, key)).count(),
            },
            place: baseline.wanted.offer_place(&key.0, &key.1),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidegate_core::{
        diagnostic::Diagnostic,
        object::{Gvk, ObjectId},
    };
    use tidegate_diff::model::Why;

    use super::*;

    fn found(kind: &str, name: &str, old: Value, new: Value) -> ObjectDifference {
        ObjectDifference {
            target: Side::Runtime,
            id: ObjectId::new("example.org", kind, "", name),
            gvk: Gvk::new("example.org", "v1", kind),
            action: Action::Change,
            effect: Effect::Applies,
            runtimes: Vec::new(),
            old: Some(Arc::new(old)),
            new: Some(Arc::new(new)),
            places: Vec::new(),
            maker: None,
            conflicts: Vec::new(),
            refusal: None,
            is_former: false,
            names: Arc::default(),
        }
    }

    #[test]
    fn what_a_runtime_with_errors_rejects_already_is_no_error_of_the_revision() {
        let mut outcome = Outcome {
            found: vec![found("ConfigMap", "cache", json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}}))],
            diagnostics: vec![Diagnostic::error(REFUSED, "rejected"), Diagnostic::error("template", "broken")],
            ..Outcome::default()
        };
        let rendered = ObjectDifference { maker: Some("skr/kyma.yaml"), ..outcome.found[0].clone() };
        outcome.found.push(rendered.clone());
        is_former(&mut outcome, &BTreeSet::from(["skr/kyma.yaml"]));
        let former: Vec<bool> = outcome.found.iter().map(|found| found.is_former).collect();
        assert_eq!(former, [true, false], "the revision may have changed the template");
        let severities: Vec<Severity> = outcome.diagnostics.iter().map(|one| one.severity).collect();
        assert_eq!(severities, [Severity::Warning, Severity::Error]);
    }

    #[test]
    fn only_decided_improvements_wait_in_a_runtime_as_lifecycle_manager_left_it() {
        let hooks = |seconds: u32| json!({"webhooks": [{"name": "a", "timeoutSeconds": seconds}]});
        let other = json!({"webhooks": [{"name": "a", "timeoutSeconds": 10, "failurePolicy": "Fail"}]});
        let configuration = "ValidatingWebhookConfiguration";
        let mut outcome = Outcome {
            found: vec![
                found(configuration, "skr-webhook", hooks(15), hooks(10)),
                found(configuration, "skr-webhook", hooks(15), other),
                found("ConfigMap", "cache", json!({"data": {"a": "1"}}), json!({"data": {"a": "2"}})),
            ],
            ..Outcome::default()
        };
        let key = Key::new("kcp-system", "dev");
        hold(&mut outcome, &key);
        let effects: Vec<Effect> = outcome.found.iter().map(|found| found.effect).collect();
        assert_eq!(effects, [Effect::Held, Effect::Applies, Effect::Applies]);
        let held: Vec<(Why, &[Key])> = outcome.held.iter().map(|held| (held.why, &*held.runtimes)).collect();
        assert_eq!(held, [(Why::Adopted, &[key][..])]);
    }
}
