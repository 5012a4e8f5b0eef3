//! One pass over a runtime: its Kyma, the objects that every runtime has, its Manifests, and the objects of each.
//!
//! A pass takes these steps:
//!
//! 1. It reads the Kyma in the runtime, if there is a reason to.
//! 2. It plans.
//! 3. It applies the namespace, the CRDs, the catalog, the Kyma in the runtime, and the Manifests in KCP.
//! 4. It passes over each Manifest, which applies the objects of the module.
//! 5. It applies what reports changes in the runtime.
//! 6. It writes the status of the Kyma once, and its copy in the runtime.
//!
//! Each step writes only differences. A pass over an unchanged runtime sends no request. The first pass of a process
//! reads the Kyma in the runtime once, and writes nothing that is as recorded. A pass detects changes by users only on
//! a resync, on request, or after an event. Then it lists the metadata of all objects, and reads only those that have
//! changed. An event about the Kyma in the runtime costs one read.
//!
//! A pass refuses to render before the template overrides behind the runtime have been read, and to prune while
//! anything is unknown. It does not take over objects without our ownership label. Without exactly one valid access
//! Secret, it sends nothing to the runtime.
//!
//! `state` is what is known between passes, `opening` what a pass begins with, `decide` what it does, and `enact` sends
//! its requests. Each module below has its own of these. This file only joins them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use serde::Deserialize as _;
use tidegate_cluster::{Cause, Cluster, Error, Pool};
use tidegate_core::{
    adopt,
    api::{Kyma, Manifest, ModuleReleaseMeta, kyma::KymaSpec, names::annotation, shared::ObjectMeta},
    definition,
    landscape::{self, Landscape, SourceName},
    name::Key,
    plan::{
        self, HeldVersions, Installation, InstalledModules, InstalledVersions, RuntimePlan, RuntimeWindows, Settings,
        Windows,
        reporting::Agent,
        rollout::{self, Verdict},
        window,
    },
    status::{Facts, RemovalFact},
};
use tidegate_process::{
    ambient,
    lock::Mutex,
    retry::{self, Class},
};

use crate::{
    components::{self, Components},
    controller::{
        self, Failure, Pass,
        events::{Recorder, Severity},
    },
    gateway::certificates::CertificatesContext,
    maintenance::Maintenance,
    metrics::{
        Metrics, Repair,
        requeue::{Reason, Requeue},
    },
    queue::{Finish, Triggers},
    renderer::CurrentTemplates,
    source::registry::SourceRegistry,
    stores::{Source, Stores, Table, definitions::Hold},
};

mod base;
pub(crate) mod contacts;
mod counterpart;
mod decide;
mod enact;
pub(crate) mod manifest;
pub(crate) mod manifests;
pub(crate) mod objects;
mod opening;
mod outcome;
mod progress;
mod remove;
pub(crate) mod reporting;
mod requeue;
mod shared_values;
mod state;
mod unreached;
mod unreadable;
mod without_registry;

pub(crate) use outcome::NotReached;
pub(crate) use state::KnownRuntimes;
pub(crate) use unreached::Unreached;

use base::Bases;
use contacts::Contacts;
use decide::{Declared, Scope, Spread, Start, Suspension};
use manifest::ModuleCache;
use objects::{LiveObjects, Undone};
use opening::{Course, Opening, RemovedFor, Shown};
use outcome::kcp_failure;
use reporting::Reports;
use state::{KnownRuntime, ShownManifests};
use unreadable::{Unreadable, UnreadableObjects};

/// Longest time for one pass. No step waits for anything slow, so a longer pass is stuck.
const PASS_MAX: Duration = Duration::from_secs(300);
/// How many Manifests of one runtime are reconciled at once. Their requests share the limit of the runtime.
const MANIFESTS_AT_ONCE: usize = 4;

/// What passes over runtimes use of the daemon.
#[derive(Clone, Copy)]
pub struct RuntimeContext<'a> {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: &'a Cluster,
    /// The clients of runtimes. They refuse writes in the same way.
    pub pool: &'a Pool,
    /// The objects in the control plane, as watches show them.
    pub stores: &'a Stores,
    /// Publishes Events.
    pub events: &'a Recorder,
    /// The configuration.
    pub settings: RuntimeSettings<'a>,
    /// The templates.
    pub templates: CurrentTemplates<'a>,
    /// The objects of modules, and which sources have been read.
    pub sources: &'a SourceRegistry,
    /// What this process knows of each runtime.
    pub runtimes: &'a KnownRuntimes,
    /// When each agent has connected.
    pub contacts: &'a Contacts,
    /// Components and layers in OCI registries.
    pub components: &'a Components,
    /// The policy of maintenance windows.
    pub maintenance: &'a Maintenance,
    /// The objects that runtimes share, rendered once.
    pub shared: &'a SharedByRuntimes,
    /// Counts why passes are repeated.
    pub metrics: &'a Metrics,
    /// What the certificate of a runtime uses.
    pub certificates: CertificatesContext<'a>,
}

/// The configuration of passes over runtimes.
#[derive(Clone, Copy)]
pub struct RuntimeSettings<'a> {
    /// What plans depend on beside definitions.
    pub plan: &'a Settings,
    /// The agent; none if none is configured.
    pub agent: Option<&'a Agent>,
    /// Over how long upgrades to a new version are spread.
    pub rollout_delay_max: Duration,
    /// Longest wait before an object is repaired that is undone again and again.
    pub drift_repair_pause_max: Duration,
}

/// The objects that many runtimes share. Each is rendered and serialised once.
#[derive(Default)]
pub struct SharedByRuntimes {
    /// The objects that every runtime has, once a class.
    pub(crate) bases: Bases,
    /// The objects that report changes, once for all runtimes with the same kinds of objects.
    pub(crate) reports: Reports,
    /// The objects of modules, with their ownership label.
    pub(crate) modules: ModuleCache,
    /// The runtimes that cannot be reached.
    pub(crate) unreached: Mutex<Unreached>,
}

// === impl RuntimeContext ===

impl RuntimeContext<'_> {
    /// The same cause, with the revision, file and line of the definition behind an object, if a source declares it.
    fn origin(&self, cause: &Cause, kind: definition::Kind, metadata: &ObjectMeta) -> Cause {
        controller::origin(self.sources, cause, kind, metadata)
    }

    /// Counts an object that another client undid in a runtime, and warns if its repair waits. `owner` is the Kyma or
    /// Manifest that it belongs to.
    fn report_undone(&self, owner: &Key, Undone { id, undoing, count, rest }: &Undone) {
        self.metrics.drift(if rest.is_zero() { Repair::Now } else { Repair::Later });
        if !rest.is_zero() {
            let rest_seconds = rest.as_secs();
            tracing::warn!(
                %owner, object = %id, %undoing, count, rest_seconds,
                "another client undoes an object again and again, so its next repair waits"
            );
        }
    }
}

/// Reconciles a runtime with its Kyma.
///
/// # Errors
///
/// The error of the control plane, that the pass took too long, or why the runtime cannot be reconciled.
pub(crate) async fn reconcile(context: RuntimeContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let mut known = context.runtimes.take(key);
    let passed = tokio::time::timeout(PASS_MAX, pass(context, key, triggers, &mut known)).await;
    match passed {
        Ok(Ok(Finish::Gone)) => {
            context.runtimes.forget(key);
            context.components.forget(key);
            outcome::tell_reached(context, key);
            Ok(Finish::Gone)
        }
        Ok(result) => {
            context.runtimes.put(key, known);
            result
        }
        // The dropped pass may have left incomplete knowledge, so it is not kept.
        Err(_) => Err(Failure::new(Class::Transient, "PassTimeout", "the pass took too long")),
    }
}

/// Writes into the status of a Kyma why the last pass over its runtime panicked. Other passes write their own status.
///
/// Fails if the control plane rejects the status.
pub(crate) async fn report_failure(
    context: RuntimeContext<'_>,
    key: &Key,
    triggers: Triggers,
    failure: &Failure,
) -> Result<(), Failure> {
    let Some(kyma) = context.stores.kyma(key) else { return Ok(()) };
    match decide::start(&kyma) {
        // While it is being deleted, its status says what that waits for.
        Start::Remove | Start::Leave => return Ok(()),
        Start::Install => {}
    }
    let manifests = context.stores.manifests_of(key);
    let failed = outcome::Failed {
        reason: failure.reason,
        message: failure.error.to_string(),
        class: failure.class,
        kind: outcome::FailedKind::Wrong,
    };
    let Some(facts) = decide::failed_facts(&kyma, &manifests, &failed) else { return Ok(()) };
    let cause = controller::cause(triggers);
    let (now, scope) = (ambient::now(), Scope::Nothing);
    let unreadable = Unreadable::default();
    let landscape = context.stores.landscape();
    let pass = RuntimePass {
        context,
        key,
        kyma: &kyma,
        landscape: &landscape,
        cause: &cause,
        now,
        scope,
        is_resync: false,
        is_unknown: false,
        unreadable: &unreadable,
    };
    let mut known = context.runtimes.take(key);
    let written = pass.write_status(&facts, &mut known).await;
    context.runtimes.put(key, known);
    written.map(drop).map_err(kcp_failure)
}

async fn pass(context: RuntimeContext<'_>, key: &Key, triggers: Triggers, known: &mut KnownRuntime) -> Pass {
    let now = ambient::now();
    let cause = controller::cause(triggers);
    let manifests = latest_manifests(context, key, known).await.map_err(kcp_failure)?;
    let unreadable = Unreadable {
        kyma: context.stores.unreadable_object(Table::Kymas, key),
        manifests: context.stores.unreadable_manifests_of(key),
    };
    let kyma = context.stores.kyma(key);
    let landscape = context.stores.landscape();
    let releases = decide::deleted_releases(&landscape, key.namespace(), &manifests);
    let hold = find_hold(context, key, kyma.as_deref(), &manifests, &releases).await;
    let shown = Shown {
        kyma: kyma.as_ref(),
        manifests: &manifests,
        releases: &releases,
        unreadable: &unreadable,
        hold: hold.as_ref(),
    };
    let (opening, confirm) = shown.opening(key);
    if is_outdated(context.kcp, &confirm).await.map_err(kcp_failure)? {
        return Ok(decide::OUTDATED);
    }
    let kyma = match opening {
        Opening::Defer => return Ok(Finish::Deferred),
        Opening::CleanUp => return remove::orphans(context, key, &cause, &manifests, known).await,
        Opening::Reconcile(kyma) => Arc::clone(kyma),
    };
    let (kyma, is_unknown) = as_declared(context, kyma, &manifests);
    let cause = context.origin(&cause, definition::Kind::Kyma, &kyma.metadata);
    let is_due = known.reporting.is_due(context.contacts, key, Instant::now());
    let scope = decide::scope(triggers, is_due, &kyma, &manifests);
    let is_resync = decide::is_resync(triggers);
    if decide::passes_breaker(triggers) {
        context.pool.probe_now(key);
    }
    let pass = RuntimePass {
        context,
        key,
        kyma: &kyma,
        landscape: &landscape,
        cause: &cause,
        now,
        scope,
        is_resync,
        is_unknown,
        unreadable: &unreadable,
    };
    pass.follow_suspension(known).await.map_err(kcp_failure)?;
    let (course, acts) = opening::course(decide::start(&kyma), hold.as_ref());
    acts.iter().for_each(|act| enact::note(context, key, *act));
    match course {
        Course::Hold(hold) => pass.held(hold, &manifests, known).await,
        Course::Remove => remove::reconcile(&pass, manifests, known).await,
        Course::Leave => Ok(Finish::Deferred),
        Course::Install => {
            let finish = pass.install(&manifests, known).await?;
            Ok(decide::finish_install(finish, is_unknown))
        }
    }
}

/// The Kyma with the installed modules that another client has dropped from it and that git has or may have, and
/// whether git must still say so.
fn as_declared(context: RuntimeContext<'_>, kyma: Arc<Kyma>, manifests: &[Arc<Manifest>]) -> (Arc<Kyma>, bool) {
    let name = SourceName::from_metadata(&kyma.metadata).filter(|_| decide::has_dropped(&kyma, manifests));
    let source = name.as_ref().and_then(|name| context.stores.source(name.key()));
    let is_at_work =
        |source: &Source| !source.object.spec.suspend && source.object.metadata.deletion_timestamp.is_none();
    let Some(name) = name.filter(|_| source.as_ref().is_some_and(is_at_work)) else { return (kyma, false) };
    let Some(loaded) = context.sources.loaded(name.key()) else {
        return decide::with_dropped(&kyma, Declared::Unknown, manifests);
    };
    let id = (definition::Kind::Kyma, landscape::key(&kyma.metadata));
    if !loaded.declares.contains(&id) {
        return decide::with_dropped(&kyma, Declared::Nothing, manifests);
    }
    let digest = landscape::annotation(&kyma.metadata, annotation::DIGEST);
    let is_applied = loaded.declared.get(&id).is_some_and(|declared| Some(&*declared.digest) == digest);
    let definition = loaded.definitions.good.get(&id).filter(|_| is_applied);
    let applied = definition.and_then(|definition| Kyma::deserialize(definition.object.value()).ok());
    let declared = applied.as_ref().map_or(Declared::Unknown, |applied| Declared::Applied(&applied.spec));
    decide::with_dropped(&kyma, declared, manifests)
}

/// Why nothing may be removed from the runtime now; `None` if it may. Asks the control plane only if something of the
/// runtime is being deleted, or is gone.
async fn find_hold(
    context: RuntimeContext<'_>,
    key: &Key,
    kyma: Option<&Kyma>,
    manifests: &[Arc<Manifest>],
    releases: &[Arc<ModuleReleaseMeta>],
) -> Option<Hold> {
    if decide::follows_deletion(kyma, manifests) || !releases.is_empty() {
        context.stores.hold(context.kcp, key.namespace()).await
    } else {
        context.stores.definitions().stop(key.namespace())
    }
}

/// Whether something that a pass would remove for is not as the stores show it. A definition may have been deleted and
/// made again before the watches show either: then the objects that are being deleted are gone, or new ones. The
/// definitions have been read before, so what is confirmed here was not deleted with one of them.
async fn is_outdated(kcp: &Cluster, removed_for: &[RemovedFor]) -> Result<bool, Error> {
    for (kind, key, shown) in removed_for {
        if enact::uid(kcp, kind, key).await? != *shown {
            return Ok(true);
        }
    }
    Ok(false)
}

/// One pass over a runtime.
struct RuntimePass<'a> {
    context: RuntimeContext<'a>,
    key: &'a Key,
    kyma: &'a Arc<Kyma>,
    /// The definitions as of the beginning of the pass. What is being deleted in them has been confirmed.
    landscape: &'a Arc<Landscape>,
    cause: &'a Cause,
    now: Timestamp,
    /// What the pass checks in the runtime, as far as the triggers tell.
    scope: Scope,
    /// Whether the pass may check the webhook configurations.
    is_resync: bool,
    /// Whether it is not known whether git has modules that are installed and that the Kyma does not name.
    is_unknown: bool,
    /// The Kyma and its Manifests, as far as they cannot be read.
    unreadable: &'a Unreadable,
}

/// The Manifests after the passes over them.
struct PassedManifests {
    passed: Vec<Arc<Manifest>>,
    /// When the first of them asks for the next pass.
    again: Option<Duration>,
    /// Whether the objects of one are still being read from a registry.
    is_waiting: bool,
}

/// What a runtime should have.
struct WantedModules {
    plan: RuntimePlan,
    /// The present versions of modules that the Kyma does not want and whose removal waits.
    leaving: Vec<Installation>,
    /// Whether a registry must answer before a request of a user is handled.
    must_wait: bool,
}

/// The findings of a pass that took all steps.
struct InstallReport {
    cluster: Arc<Cluster>,
    facts: Facts,
    finish: Finish,
}

// === impl RuntimePass ===

impl RuntimePass<'_> {
    /// Reports that a user has suspended or resumed the runtime, and removes what a former suspension has left. Reads
    /// the Kyma once if only its managedFields say who did it. Fails if the control plane rejects the removal.
    async fn follow_suspension(&self, known: &mut KnownRuntime) -> Result<(), Error> {
        let before = known.suspension.take();
        let suspension = match decide::find_suspension(self.kyma, before.as_ref()) {
            Suspension::Known(suspension) => suspension,
            Suspension::Ask => {
                // Without an answer, the note names the label alone.
                let live = enact::kyma_metadata(self.context.kcp, self.key).await;
                decide::suspension(live.as_ref().unwrap_or(&self.kyma.metadata), self.kyma)
            }
        };
        let news = decide::suspension_news(before.as_ref().map(Option::as_deref), suspension.as_deref());
        known.suspension = Some(suspension);
        if let Some((reason, note)) = news {
            tracing::info!(kyma = %self.key, note, "a runtime was suspended or resumed");
            self.publish(Severity::Normal, reason, "Reconcile", note);
        }
        if decide::forgets_suspension(self.kyma, before.as_ref()) {
            enact::forget_suspension(self.context.kcp, self.cause, self.kyma).await?;
        }
        Ok(())
    }

    /// Does nothing, and says why in the status of a Kyma that is concerned. The end of the hold wakes the runtime.
    async fn held(&self, hold: &Hold, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
        if let Some(facts) = decide::held_facts(self.kyma, manifests, &hold.to_string()) {
            match self.write_status(&facts, known).await {
                // The control plane may have deleted the Kyma, or stopped to serve its kind.
                Ok(_) | Err(Error::NotFound { .. } | Error::NotServed { .. }) => {}
                Err(error) => return Err(kcp_failure(error)),
            }
        }
        Ok(Finish::Deferred)
    }

    /// Installs what the Kyma wants, and writes the result to its status.
    async fn install(&self, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
        controller::templates_read(self.context.stores, self.context.sources, &self.kyma.metadata)?;
        let source = SourceName::from_metadata(&self.kyma.metadata);
        let failures = source.and_then(|source| self.context.sources.failures(source.key()));
        let before = failures.as_ref().map_or(0, |failures| failures.count());
        match self.apply(manifests, known).await {
            Ok(InstallReport { cluster, facts, finish }) => {
                failures.iter().for_each(|failures| failures.passed(self.key, before));
                outcome::tell_reached(self.context, self.key);
                self.conclude(&facts, &cluster, known).await?;
                Ok(finish)
            }
            Err(failed) => self.failed(failed, manifests, known).await,
        }
    }

    /// Applies everything in the runtime, and the Manifests in KCP.
    async fn apply(
        &self,
        manifests: &[Arc<Manifest>],
        known: &mut KnownRuntime,
    ) -> Result<InstallReport, outcome::Failed> {
        let (cluster, access) = outcome::versioned_access(self.context, self.key).await?;
        self.take_charge().await?;
        let landscape = self.landscape;
        let scope = self.check_webhooks(&cluster, known).await?;
        let must_read = decide::must_read_kyma(scope, known.access.as_ref(), &access);
        let former = known.counterpart.live().cloned();
        let refreshed = counterpart::refresh(&cluster, &mut known.counterpart, must_read).await;
        refreshed.map_err(|error| {
            self.count(Requeue::Unexpected(Reason::RemoteSpec));
            outcome::Failed::of_runtime(error)
        })?;
        if let (Some(before), Some(after)) = (former, known.counterpart.live()) {
            known.left_unmanaged.changed(before.spec.modules.iter(), after.spec.modules.iter());
        }
        known.access = Some(access);
        self.context.stores.rollouts(|index| index.set_reachable(self.key, true));
        let counterpart = known.counterpart.live().map(|live| &**live);
        let is_resumed = decide::is_resumed(self.kyma, counterpart);
        let scope = decide::scope_after_read(scope, counterpart, self.kyma);
        let scope = known.unreadable.scope(if is_resumed { Scope::Everything } else { scope });
        let spec = plan::effective(self.kyma, known.counterpart.live().map(|kyma| &kyma.spec));
        let spec = decide::with_installed(spec, plan::modules_from(self.kyma), self.is_unknown, manifests);
        let WantedModules { plan, leaving, must_wait } = self.plan(landscape, manifests, &spec, known);
        let maintenance = decide::maintenance(&plan, known.counterpart.live().map(|kyma| &kyma.spec));
        let rollout = decide::rollout(&plan);
        let live = self.survey(&cluster, manifests, scope).await?;
        if let Some(live) = &live {
            known.unreadable = UnreadableObjects::among(live);
        }
        let left = live.as_ref().filter(|_| is_resumed);
        let base = base::reconcile(self, &cluster, landscape, &plan, (live.as_ref(), left), &mut known.base).await?;
        let counterpart = counterpart::reconcile(self, &cluster, &mut known.counterpart).await?;
        let released = self.context.stores.left_unmanaged(self.key);
        let released = released.that_count(&known.left_unmanaged, plan::modules_from(self.kyma));
        let wanted = manifests::Wanted { plan: &plan, leaving: &leaving, left_unmanaged: &released };
        let modules = manifests::reconcile(self, &wanted, manifests).await?;
        let PassedManifests { passed, again, is_waiting } =
            self.pass_over(&cluster, &modules.present, live.as_ref(), known).await?;
        let reporting =
            reporting::reconcile(self, &cluster, landscape, &passed, (live.as_ref(), left), &mut known.reporting)
                .await?;
        let mode = plan::modules_from(self.kyma);
        let without_registry = self.without_registry(&passed);
        self.context.components.warn_without_registry(self.key, &without_registry);
        let facts = Facts {
            modules: modules.facts(&passed),
            mandatory: Some(modules.mandatory(&passed)),
            crds: base.crds,
            catalog: base.catalog,
            webhook: reporting.webhook,
            pull_secret: base.pull_secret,
            applied: base.applied,
            watch: Some(reporting.watch),
            watch_applied: reporting.applied,
            channel: spec.channel.clone(),
            requested: decide::handled_by_pass(self.kyma, must_wait || is_waiting),
            tried: None,
            modules_from: Some(decide::modules_from(self.kyma, mode, counterpart.reverted())),
            maintenance,
            rollout,
            removal: self.waiting_removal(),
            without_registry: Some(without_registry),
            failure: modules
                .failure()
                .or_else(|| decide::unreadable_counterpart(&known.counterpart))
                .or_else(|| known.unreadable.failure()),
            deleting: None,
        };
        let again = [again, modules.again, base.again, reporting.again, counterpart.again(), known.unreadable.again()];
        // The time of this moment, because the pass may have taken long.
        let finish = decide::finish(again, decide::window_pass(&plan, ambient::now()));
        Ok(InstallReport { cluster, facts, finish })
    }

    /// What the runtime should have.
    fn plan(
        &self,
        landscape: &Landscape,
        manifests: &[Arc<Manifest>],
        spec: &KymaSpec,
        known: &mut KnownRuntime,
    ) -> WantedModules {
        let RuntimeContext { components, settings, events, certificates, maintenance, .. } = self.context;
        let waker = components::Waker { queue: certificates.queue, events };
        known.request = decide::pending_request(self.kyma, known.request.take(), Instant::now());
        let requested = known.request.as_ref().map(|request| request.since);
        let (seen, must_wait) = components.seen_by(self.key, manifests, requested, waker);
        let before = InstalledModules::from_manifests(manifests.iter().map(|manifest| &**manifest));
        let policy = maintenance.policy();
        let installed = window::installed_in_manifests(manifests.iter().map(|manifest| &**manifest));
        let nothing = BTreeMap::new();
        let plan = |held: &HeldVersions| {
            let windows = Windows::Known(RuntimeWindows {
                policy: policy.as_deref(),
                now: self.now,
                size_min: maintenance.size_min(),
                labels: self.kyma.metadata.labels.as_ref().unwrap_or(&nothing),
                installed: &installed,
                held,
            });
            plan::runtime(landscape, &seen, self.kyma, spec, settings.plan, &before, windows)
        };
        let whole = plan(&HeldVersions::new());
        let held = self.hold(&whole, &installed);
        let plan = if held.is_empty() { whole } else { plan(&held) };
        components.wait(self.key, &plan, &seen, waker);
        let leaving = manifests::leaving(&plan, manifests).into_iter().filter_map(|(module, channel)| {
            plan::leaving(landscape, &seen, self.kyma, module, channel, settings.plan).map(|installation| *installation)
        });
        WantedModules { leaving: leaving.collect(), plan, must_wait }
    }

    /// The versions that a plan would install, and that the runtime does not get yet because they spread step by step.
    fn hold(&self, plan: &RuntimePlan, installed: &InstalledVersions) -> HeldVersions {
        let RuntimeContext { stores, settings, events, .. } = self.context;
        let aside = decide::aside(self.landscape, self.key.namespace(), plan);
        stores.rollouts(|index| index.set_aside(self.key, &aside));
        let upgrades = rollout::upgrades(plan, installed).into_iter();
        let held = upgrades.filter_map(|upgrade| {
            let spread = decide::spread(self.landscape, self.kyma, upgrade, settings.rollout_delay_max, self.now);
            let (line, policy, upgrade) = match spread {
                Spread::Free => return None,
                Spread::Held(hold) => return Some(decide::held(upgrade, hold)),
                Spread::Asked(line, policy, upgrade) => (line, policy, upgrade),
            };
            let ask = rollout::Ask { kyma: self.key, line: &line, to: upgrade.to, policy: &policy };
            let hold = match stores.rollouts(|index| index.ask(&ask)) {
                Verdict::Begin => return None,
                Verdict::Hold(hold) => hold,
            };
            let news =
                stores.rollouts(|index| decide::rollout_news(&upgrade, &hold, || index.failed(&line, upgrade.to)));
            if let (Some((severity, reason, note)), Some(release)) = (news, self.landscape.releases.get(&line.release))
            {
                events.publish(&**release, severity, reason, "Upgrade", note);
            }
            Some(decide::held(upgrade, hold))
        });
        held.collect()
    }

    /// What a commit would remove from the runtime, and waits for a confirmation.
    fn waiting_removal(&self) -> RemovalFact {
        let RuntimeContext { sources, stores, .. } = self.context;
        let are_visited = || stores.sources().iter().all(|source| sources.is_visited(&source.key()));
        decide::removal(self.kyma, sources.removal_of(self.key), are_visited)
    }

    /// What the pass checks in the runtime, once it knows whether the webhook configurations have changed.
    async fn check_webhooks(&self, cluster: &Cluster, known: &mut KnownRuntime) -> Result<Scope, Error> {
        if !decide::checks_webhooks(self.scope, self.is_resync) {
            return Ok(self.scope);
        }
        let have_changed = reporting::webhooks_changed(cluster, &mut known.reporting).await?;
        Ok(decide::scope_after_webhooks(self.scope, have_changed))
    }

    /// Reconciles each Manifest, a few at once. Returns them as the passes left them.
    async fn pass_over(
        &self,
        cluster: &Cluster,
        manifests: &[Arc<Manifest>],
        live: Option<&LiveObjects>,
        known: &mut KnownRuntime,
    ) -> Result<PassedManifests, Error> {
        // What cannot be read stays as it is, in the runtime as well.
        let (unreadable, manifests): (Vec<_>, Vec<_>) = manifests
            .iter()
            .cloned()
            .partition(|manifest| self.unreadable.has_manifest(manifest) || self.stays(manifest));
        let manifests = manifests.as_slice();
        let installed = &known.counterpart.installed();
        let (context, cause) = (self.context, self.cause);
        let target = manifest::ApplyTarget { context, cluster, cause, live, manifests, installed };
        // Knowledge of Manifests that no longer exist is dropped.
        let mut former = std::mem::take(&mut known.manifests);
        let mut taken: Vec<(Arc<Manifest>, manifest::KnownManifest)> = manifests
            .iter()
            .map(|manifest| {
                let known = former.remove(&landscape::key(&manifest.metadata)).unwrap_or_default();
                (Arc::clone(manifest), known.shown(manifest))
            })
            .collect();
        // Boxed, because the compiler cannot see that a stream of closures over borrowed values is `Send`.
        let passes: Vec<BoxFuture<'_, Result<manifest::ManifestReport, Error>>> =
            taken.iter_mut().map(|(manifest, known)| manifest::reconcile(&target, manifest, known).boxed()).collect();
        let results: Vec<Result<manifest::ManifestReport, Error>> =
            stream::iter(passes).buffered(MANIFESTS_AT_ONCE).collect().await;
        let (mut passed, mut again, mut failure, mut is_waiting) = (Vec::new(), Vec::new(), None, false);
        // The writes of one pass are known even if another pass failed.
        for ((manifest, of_manifest), result) in taken.into_iter().zip(results) {
            let key = landscape::key(&manifest.metadata);
            match result {
                Ok(report) => {
                    self.count(requeue::of_manifest(&manifest, &report.manifest, report.is_waiting));
                    known.writes.written(&report.manifest, Instant::now());
                    again.extend(report.again);
                    is_waiting |= report.is_waiting;
                    passed.push(report.manifest);
                }
                Err(error) => {
                    if of_manifest.leaves_doubt() {
                        known.writes.doubt(key.clone());
                    }
                    failure.get_or_insert(error);
                }
            }
            known.manifests.insert(key, of_manifest);
        }
        passed.extend(unreadable);
        match failure {
            Some(error) => Err(error),
            None => Ok(PassedManifests { passed, again: again.into_iter().min(), is_waiting }),
        }
    }

    /// Whether a Manifest stays as it is, because no registry is configured for its objects.
    fn stays(&self, manifest: &Manifest) -> bool {
        let is_adopted = adopt::is_adopted(&self.kyma.metadata);
        without_registry::stays(manifest, is_adopted, &|name| self.context.components.has_registry(name))
    }

    /// The modules whose Manifests stay as they are for this reason.
    fn without_registry(&self, manifests: &[Arc<Manifest>]) -> Vec<String> {
        let staying = manifests.iter().filter(|manifest| self.stays(manifest));
        let mut modules: Vec<String> =
            staying.filter_map(|manifest| manifests::module_of(&manifest.metadata).map(str::to_owned)).collect();
        modules.sort();
        modules
    }

    /// Counts why this pass is followed by another.
    fn count(&self, requeue: Requeue) {
        self.context.metrics.requeue(requeue);
    }

    /// Publishes an Event about the Kyma.
    fn publish(&self, severity: Severity, reason: &'static str, action: &'static str, note: impl Into<String>) {
        self.context.events.publish(&**self.kyma, severity, reason, action, note);
    }

    /// Lists the metadata of all objects in the runtime that carry our ownership label, one list a kind. None if the
    /// pass does not check all objects.
    async fn survey(
        &self,
        cluster: &Cluster,
        manifests: &[Arc<Manifest>],
        scope: Scope,
    ) -> Result<Option<LiveObjects>, Error> {
        if scope < Scope::Everything {
            return Ok(None);
        }
        let mut found = LiveObjects::new();
        let settings = self.context.settings;
        for gvk in decide::kinds(manifests, settings.agent.is_some(), settings.plan.pull_secret.is_some()) {
            let listed = enact::list_owned(cluster, &gvk).await?;
            found.extend(listed.into_iter().map(|metadata| (metadata.id.clone(), metadata)));
        }
        Ok(Some(found))
    }
}

/// The Manifests of a Kyma, as the watch shows them or as this process has written them since.
async fn latest_manifests(
    context: RuntimeContext<'_>,
    key: &Key,
    known: &mut KnownRuntime,
) -> Result<Vec<Arc<Manifest>>, Error> {
    let shown = context.stores.manifests_of(key);
    let shown: ShownManifests =
        shown.into_iter().map(|manifest| (landscape::key(&manifest.metadata), manifest)).collect();
    let is_elsewhere = |key: &Key| context.stores.manifest(key).is_some();
    for key in known.writes.must_ask(&shown, is_elsewhere, Instant::now()) {
        if context.stores.unreadable_object(Table::Manifests, &key).is_some() {
            continue;
        }
        // If this read fails, the knowledge stays as it is.
        match manifests::read(context.kcp, &key).await? {
            Some(manifest) => known.writes.written(&manifest, Instant::now()),
            None => known.writes.forget(&key),
        }
    }
    Ok(known.writes.latest(shown))
}

/// How often a pass over a stalled runtime is retried. A user may have fixed the problem in the runtime.
const RETRY_STALLED: Duration = Duration::from_secs(300);

/// The delay after `attempt` failures in a row.
fn delay(class: Class, attempt: u32) -> Duration {
    retry::delay(class, attempt, RETRY_STALLED)
}
