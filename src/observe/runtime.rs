//! The pass over a runtime: what the daemon would write to it, and to its Manifests in the control plane.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::json;
use tidegate_cluster::{Cluster, Error, Kind, Requests};
use tidegate_core::{
    api::{
        Kyma, Manifest,
        kyma::KymaSpec,
        names::{SKR_KYMA, SKR_NAMESPACE, label},
    },
    conditions, landscape,
    name::Key,
    object::Digest,
    plan::{InstallSource, RuntimePlan},
    render::CompleteModule,
};
use tidegate_diff::mask::Masker;
use tokio::time::Instant;

use super::{
    Observation, credentials,
    decide::{self, Compared, Due, Unknown},
    difference::Difference,
    expected::Expected,
    state::{SeenRuntime, Standing},
};
use crate::{
    components::{Objects, Waiting, Waker},
    controller::{self, Context, Pass},
    live::{
        Layers, Method,
        compare::Shared,
        runtime::{self, Baseline, RuntimeResult},
        world::typed,
    },
    queue::{Finish, Trigger},
    stores::Access,
};

/// The longest comparison of one runtime. A slow one is reported, and tried again later.
const COMPARE_MAX: Duration = Duration::from_secs(120);
/// How often a runtime is tried that cannot be compared.
const RETRY: Duration = Duration::from_secs(900);

/// Compares a runtime, if there is a reason to.
pub(super) async fn compare(context: &Context, observation: &Observation, key: &Key) -> Pass {
    let expected = observation.expected(context);
    // A Kyma that git would create has no runtime yet: the source's differences show it.
    let Some(live) = context.stores.kyma(key) else {
        observation.seen.lock().runtimes.remove(key);
        reached(observation, key);
        context.components.forget(key);
        return Ok(Finish::Gone);
    };
    let kyma = expected.as_declared(&live);
    if let Some(why) = skipped(&kyma, expected.intent.gone.contains(key)) {
        observation.set_standing(key, Standing::Skipped(why));
        reached(observation, key);
        return Ok(Finish::Done);
    }
    controller::templates_read(&context.stores, &context.sources, &kyma.metadata)?;
    let runtime = Runtime { context, observation, expected: &expected, key, kyma: &kyma };
    match runtime.run().await {
        Ok(finish) => {
            reached(observation, key);
            Ok(finish)
        }
        Err(error) => {
            observation.set_standing(key, Standing::Unreachable(error.to_string()));
            let reason = error.reason();
            match observation.unreached.lock().add(key, reason) {
                Some(runtimes) => tracing::warn!(runtime = %key, reason, %error, runtimes, "a runtime is not compared"),
                None => tracing::debug!(runtime = %key, reason, %error, "a runtime is not compared"),
            }
            // A process that ends after one comparison of each waits for no retry.
            match observation.is_brief() {
                true => Ok(Finish::After(RETRY, Trigger::Resync)),
                false => Ok(Finish::FailedFor(error.class(), RETRY)),
            }
        }
    }
}

/// Notes that a runtime can be reached, or need not be.
fn reached(observation: &Observation, key: &Key) {
    for reason in observation.unreached.lock().remove(key) {
        tracing::info!(runtime = %key, reason, "all runtimes of this cause are compared again, or gone");
    }
}

/// Why the daemon would not reconcile a runtime.
fn skipped(kyma: &Kyma, is_gone: bool) -> Option<&'static str> {
    if kyma.metadata.deletion_timestamp.is_some() {
        return Some("the Kyma is being deleted");
    }
    (landscape::is_skipped(&kyma.metadata) && !is_gone)
        .then_some("the Kyma is labelled `operator.kyma-project.io/skip-reconciliation`")
}

/// One pass over one runtime.
struct Runtime<'a> {
    context: &'a Context,
    observation: &'a Observation,
    expected: &'a Expected,
    key: &'a Key,
    kyma: &'a Kyma,
}

/// Why a runtime is not compared.
#[derive(Debug, thiserror::Error)]
enum NotCompared {
    #[error(transparent)]
    Request(#[from] Error),
    #[error("{0}")]
    Access(String),
    #[error("the comparison took longer than {} s", COMPARE_MAX.as_secs())]
    Timeout,
}

// === impl NotCompared ===

impl NotCompared {
    fn class(&self) -> tidegate_process::retry::Class {
        match self {
            NotCompared::Request(error) => error.class(),
            NotCompared::Access(_) => tidegate_process::retry::Class::Waiting,
            NotCompared::Timeout => tidegate_process::retry::Class::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            NotCompared::Request(error) => error.reason(),
            NotCompared::Access(_) => "NoAccess",
            NotCompared::Timeout => "Timeout",
        }
    }
}

// === impl Expected ===

impl Expected {
    /// A Kyma as git would leave it.
    fn as_declared(&self, live: &Arc<Kyma>) -> Arc<Kyma> {
        let key = landscape::key(&live.metadata);
        match (self.intent.before.kymas.get(&key), self.intent.after.kymas.get(&key)) {
            // Git changes it.
            (Some(before), Some(after)) if !Arc::ptr_eq(before, after) => Arc::clone(after),
            (_, _) => Arc::clone(live),
        }
    }
}

// === impl Observation ===

impl Observation {
    fn set_standing(&self, key: &Key, standing: Standing) {
        let mut seen = self.seen.lock();
        let runtime = seen.runtimes.entry(key.clone()).or_default();
        if let Standing::Skipped(_) = standing {
            *runtime = SeenRuntime::default();
        }
        runtime.standing = standing;
    }
}

// === impl Runtime ===

impl Runtime<'_> {
    async fn run(&self) -> Result<Finish, NotCompared> {
        let Runtime { context, observation, expected, key, kyma } = *self;
        let manifests = context.stores.manifests_of(key);
        let waker = Waker { queue: &context.queue, events: &context.events };
        let (components, _) = context.components.seen_by(key, &manifests, None, waker);
        let recorded: Vec<Manifest> = manifests.iter().map(|manifest| (**manifest).clone()).collect();
        let (last, known) = {
            let mut seen = observation.seen.lock();
            let known = seen.runtimes.entry(key.clone()).or_default();
            (known.last, known.in_runtime.clone())
        };
        let access = context.stores.access(key);
        let in_runtime = match known {
            Some(known) => Some(known),
            // The plan needs it, and the objects of the modules that its user selected.
            None => {
                let cluster = self.connect(access.clone()).await?;
                read_kyma(&cluster).await?
            }
        };
        let shared =
            Shared::new(Masker::new(observation.mask.clone()), Method::Reads, expected.wanted.agents.is_some());
        let nothing = Layers::new();
        let world = expected.world(context, Vec::new());
        let planning = Baseline {
            wanted: &expected.wanted,
            components: &components,
            layers: &nothing,
            windows: Some(expected.windows(context)),
            world: &world,
            intent: &expected.intent,
            shared: &shared,
            bases: &expected.bases,
            until_confirmed: None,
        };
        let plan = runtime::plan_of(planning.planning(), kyma, &recorded, in_runtime.as_ref());
        context.components.wait(key, &plan, &components, waker);
        let base = expected.bases.for_class(&planning, &plan.class).objects.digest;
        let (layers, mut unknown) = self.layers(&plan).await;
        unknown.add(decide::not_planned(&plan, kyma, &recorded));
        unknown.is_waiting |= context.components.wait_for_installed(key, &plan, &components, waker);
        let mut found: Vec<String> = layers.keys().map(|content| format!("{content:?}")).collect();
        // The end of the wait changes what the Manifests would be, or only that nothing else is to come.
        found.push(format!("waiting: {}", unknown.is_waiting));
        let base = Digest::all([&base, &credentials::fingerprint(context, key)]);
        let wanted = fingerprint(kyma, &recorded, &plan, &access, base, &[found, unknown.lines.clone()]);
        if let Due::In(rest) =
            decide::due(last.as_ref(), wanted, (observation.interval, observation.gap()), Instant::now())
        {
            self.say();
            return Ok(Finish::After(rest, Trigger::Resync));
        }
        let cluster = self.connect(access).await?;
        let (at, before) = (Instant::now(), cluster.requests());
        let selector = format!("{}={}", label::KYMA_NAME, key.name());
        let kind = Kind::namespaced::<Manifest>();
        let live = context.kcp.list(&kind, Some(key.namespace()), Some(&selector)).await?;
        let world = expected.world(context, live);
        let baseline = Baseline { layers: &layers, world: &world, ..planning };
        let comparing = runtime::compare_runtime(&baseline, key, kyma, Some(&cluster));
        let result = tokio::time::timeout(COMPARE_MAX, comparing).await.map_err(|_| NotCompared::Timeout)??;
        let credentials = credentials::compare(context, observation, kyma, &cluster);
        let credentials = tokio::time::timeout(COMPARE_MAX, credentials).await.map_err(|_| NotCompared::Timeout)??;
        unknown.lines.extend(credentials.unknown);
        // The list of the Manifests is a read of the control plane.
        let reads = 1 + credentials.reads + reads_since(&cluster, &before);
        let last = Compared { wanted, at, reads, objects: result.objects };
        // What its user has selected meanwhile is compared with the objects of its modules.
        let in_time = match result.in_runtime == in_runtime {
            true => decide::pause(observation.interval, reads, result.objects),
            false => observation.gap(),
        };
        self.record(last, result, credentials.differences, unknown);
        Ok(Finish::After(in_time, Trigger::Resync))
    }

    async fn connect(&self, access: Access) -> Result<Arc<Cluster>, NotCompared> {
        match access {
            Access::One { secret, resource_version } => {
                Ok(self.context.pool.cluster(self.key, &secret, &resource_version).await?)
            }
            Access::Missing => Err(NotCompared::Access("the runtime has no access Secret".to_owned())),
            Access::Ambiguous(names) => {
                Err(NotCompared::Access(format!("several Secrets name the runtime: {}", names.join(", "))))
            }
            Access::Unreadable(why) => Err(NotCompared::Access(why)),
        }
    }

    /// The objects of modules in registries, and of modules in git that no active revision has. The second value says
    /// which are not known.
    async fn layers(&self, plan: &RuntimePlan) -> (Layers, Unknown) {
        let Runtime { context, expected, key, .. } = *self;
        let (mut layers, mut unknown) = (Layers::new(), Unknown::default());
        for module in plan.deciding() {
            let Some(installation) = module.outcome.installed() else { continue };
            let content = installation.content();
            if expected.wanted.definitions.modules.contains_key(&content) {
                continue;
            }
            let objects = match &installation.source {
                InstallSource::Git { source, path, tree } => {
                    let objects = context.sources.module_objects(source, *tree, path).await;
                    objects.map(|objects| CompleteModule::new(&objects)).map_err(|error| error.to_string())
                }
                InstallSource::Oci(source) => {
                    let waiting = Waiting { kyma: key, trigger: Trigger::Changed };
                    let images = &installation.localized_images;
                    match context.components.objects(&context.shared.modules, waiting, source, images) {
                        Objects::Ready(module) => Ok(module),
                        Objects::Pending => {
                            unknown.is_waiting = true;
                            Err("its objects are being read from the registry".to_owned())
                        }
                        Objects::Failed { message, .. } => Err(message),
                    }
                }
            };
            match objects {
                Ok(objects) => drop(layers.insert(content, objects)),
                Err(why) => unknown.lines.push(format!("module {} {}: {why}", module.name, installation.version)),
            }
        }
        (layers, unknown)
    }

    fn record(&self, last: Compared, result: RuntimeResult, credentials: Vec<Difference>, unknown: Unknown) {
        let Unknown { lines: mut unknown, is_waiting } = unknown;
        let module = |id| result.modules.get(id).map(String::as_str);
        let found = result.outcome.found.iter().map(|found| Difference::from_found(found, module(&found.id)));
        let to_take_over = result.outcome.to_take_over.iter().map(|id| Difference::managers(id.clone(), module(id)));
        let mut differences: Vec<Difference> = found.chain(to_take_over).chain(credentials).collect();
        differences.sort();
        let modules: BTreeSet<String> = result.modules.values().cloned().collect();
        unknown.extend(result.outcome.problems.iter().map(|problem| problem.message.clone()));
        unknown.extend(result.outcome.diagnostics.iter().map(ToString::to_string));
        let known = SeenRuntime {
            standing: Standing::Compared(last.at),
            last: Some(last),
            in_runtime: result.in_runtime,
            modules,
            differences,
            unknown,
            is_waiting,
        };
        self.observation.seen.lock().runtimes.insert(self.key.clone(), known);
        self.say();
    }

    /// Says in the log what of the runtime is not compared, once everything that it depends on was read: until then, it
    /// only waits for that.
    fn say(&self) {
        let sources = self.context.stores.sources();
        if sources.iter().any(|source| !self.context.sources.is_visited(&source.key())) {
            return;
        }
        let unknown = match self.observation.seen.lock().runtimes.get(self.key) {
            Some(known) if !known.is_waiting => known.unknown.clone(),
            Some(_) | None => return,
        };
        let news = self.observation.news(&unknown);
        news.iter().for_each(|why| tracing::warn!(runtime = %self.key, why, "a part of runtimes is not compared"));
    }
}

/// The modules that the user of a runtime has selected there.
async fn read_kyma(cluster: &Cluster) -> Result<Option<KymaSpec>, Error> {
    let found = cluster.get(&Kind::namespaced::<Kyma>(), &Key::new(SKR_NAMESPACE, SKR_KYMA)).await?;
    Ok(found.and_then(|found| typed::<Kyma>(found.value())).map(|kyma| kyma.spec))
}

fn reads_since(cluster: &Cluster, before: &Requests) -> u64 {
    cluster.requests().since(before).total()
}

/// Digest of everything that decides what a runtime should have, and of what its Manifests record. Statuses of
/// Lifecycle Manager that say nothing new do not change it.
fn fingerprint(
    kyma: &Kyma,
    manifests: &[Manifest],
    plan: &RuntimePlan,
    access: &Access,
    base: Digest,
    layers: &[Vec<String>; 2],
) -> Digest {
    let of_manifest = |manifest: &Manifest| {
        let (metadata, status) = (&manifest.metadata, manifest.status.as_ref());
        json!([
            metadata.name,
            metadata.uid,
            metadata.generation,
            metadata.labels,
            metadata.annotations,
            metadata.deletion_timestamp.is_some(),
            status.map(|status| json!(status.synced)),
            status.is_some_and(|status| conditions::message(&status.conditions, "ModuleCR").is_some()),
        ])
    };
    let manifests: Vec<_> = manifests.iter().map(of_manifest).collect();
    let metadata = &kyma.metadata;
    Digest::from_value(&json!([
        metadata.uid,
        metadata.generation,
        metadata.labels,
        metadata.annotations,
        kyma.spec,
        manifests,
        format!("{plan:?}"),
        format!("{access:?}"),
        base.to_string(),
        layers,
    ]))
}
