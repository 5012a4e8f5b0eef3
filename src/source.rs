//! The controller of GitSources: applies to KCP what git declares.
//!
//! A pass requests a fetch if that is due, and ends; the end of the fetch wakes the source. The next pass reads the
//! revision, and asks [`tidegate_core::intake`] what to apply and prune. Then it sends the requests, and writes the
//! status if it differs. The objects in KCP come from the watches, so a pass over an unchanged world makes no request.
//!
//! Guarantees:
//!
//! * While a source cannot be read, its last good revision stays active, also across restarts.
//! * A pass may be dropped at any `await` and run again.
//! * It deletes no object without the ownership label of the source, and none on an incomplete view.
//! * It reads credentials from the Secret when a fetch needs them, and sends them over TLS only.
//! * It writes no text from a remote anywhere, except what a git server says of an error, cleaned, in a condition.

mod decide;
mod enact;
pub(crate) mod failures;
#[cfg(test)]
mod fixtures;
mod known_objects;
mod leave;
mod load;
mod local;
pub(crate) mod receiver;
pub mod registry;
mod removals;
mod report;
mod said;
mod state;
mod survey;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::{Duration, Instant};

use self::{
    decide::Start,
    enact::Enacted,
    failures::RenderFailures,
    load::Loading,
    state::{Fetching, KeptTrees},
};
use crate::{
    controller::{Failure, Pass, Queue, Subject, annotations, events::Recorder},
    metrics::Metrics,
    renderer::Renderer,
    source::registry::{Loaded, Slot, SourceRegistry},
    stores::{Origin, Source, Stores, Table},
};
use tidegate_cluster::{self as cluster, Cause, Cluster};
use tidegate_core::{
    api::{GitSource, names::annotation},
    definition,
    diagnostic::Diagnostics,
    intake::{
        self, Confirmation, Installed, Loss, Other, Situation, Standing, Terms, TermsError,
        status::{self, Fetched},
    },
    landscape::{self, SourceName},
    name::Key,
    plan::{Settings, reporting::Agent},
    template::{self, Library, Templates},
};
use tidegate_process::{ambient, lock::RwLock};

use crate::queue::{Finish, Trigger, Triggers};

pub(crate) use state::KnownSource;

/// The parts of the daemon that a pass over a GitSource uses.
#[derive(Clone, Copy)]
pub struct SourceContext<'a> {
    /// The control plane. It refuses writes while this process is not the leader.
    pub kcp: &'a Cluster,
    /// The objects in the control plane.
    pub stores: &'a Stores,
    /// The queue that wakes other subjects.
    pub queue: &'a Queue,
    /// The metrics.
    pub metrics: &'a Metrics,
    /// The recorder of Events.
    pub events: &'a Recorder,
    /// The active revisions of all sources.
    pub registry: &'a SourceRegistry,
    /// The templates: those of the daemon, and the overrides of sources.
    pub library: &'a RwLock<Arc<Library>>,
    /// The renderer of template overrides.
    pub renderer: &'a Renderer,
    /// The agent in runtimes; none if none is configured.
    pub agent: Option<&'a Agent>,
    /// What plans of runtimes depend on besides definitions.
    pub plan: &'a Settings,
    /// Namespaces in which definitions are valid.
    pub namespaces: &'a BTreeSet<String>,
    /// Whether GitSources in KCP may name local paths.
    pub allow_local_sources: bool,
}

/// How often a GitSource that is gone is looked for, while its definition may be gone with it.
const RETURN_CHECK: Duration = Duration::from_secs(600);

/// Applies to KCP what the source declares, and prunes what it no longer declares.
///
/// Fails with the first request to KCP that must succeed before the pass can continue.
pub async fn reconcile(ctx: SourceContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let unreadable = ctx.stores.unreadable_object(Table::Sources, key);
    let unreadable = unreadable.as_ref().map(|found| &found.object.metadata);
    let is_held = ctx.stores.definitions().known_hold(key.namespace()).is_some();
    let source = ctx.stores.source(key);
    let start = decide::start(source.as_ref().map(|source| &source.object.metadata), unreadable, is_held);
    match (start, source) {
        (Start::Reconcile | Start::Leave, Some(source)) => reconcile_present(ctx, key, triggers, source, start).await,
        (Start::AwaitReturn, _) => Ok(Finish::After(RETURN_CHECK, Trigger::Retry)),
        (Start::Forget, _) => {
            forget(ctx, key).await;
            Ok(Finish::Gone)
        }
        (Start::Defer, _) | (_, None) => Ok(Finish::Deferred),
    }
}

/// What the daemon would apply of a source and prune: the result of a pass that writes nothing.
pub(crate) enum Judgement {
    /// The GitSource is gone.
    Gone,
    /// Nothing is known yet.
    Pending(Finish),
    /// Nothing would be written now: it is suspended, being deleted, or cannot be read.
    Idle(Finish, String),
    /// This is decided of the active revision. The sentence says why a later one is not used.
    Decided(Finish, Arc<Loaded>, Box<intake::Decision>, Option<String>),
}

/// Fetches and reads a source, and decides, as [`reconcile`] does. Sends nothing but reads, and writes no status.
///
/// # Errors
///
/// Fails with the first request to KCP that must succeed before the pass can continue.
pub(crate) async fn judge(ctx: SourceContext<'_>, key: &Key, triggers: Triggers) -> Result<Judgement, Failure> {
    let Some(Source { object: source, origin }) = ctx.stores.source(key) else {
        forget(ctx, key).await;
        return Ok(Judgement::Gone);
    };
    let slot = ctx.registry.slot(key);
    let mut known = slot.known().await;
    let of_fetch = known.running.as_ref().map(|running| running.triggers).unwrap_or_default();
    let pass = SourcePass {
        ctx,
        key,
        slot: &slot,
        source: &source,
        origin,
        asked: triggers,
        triggers: triggers.union(of_fetch),
        now: Instant::now(),
    };
    if source.metadata.deletion_timestamp.is_some() {
        pass.keep_in_use(&mut known).await;
        return Ok(Judgement::Idle(Finish::Done, "the GitSource is being deleted".to_owned()));
    }
    let judgement = match pass.terms() {
        Ok(terms) if terms.suspend => {
            pass.give_up_fetch(&mut known);
            pass.hold(&mut known, &terms).await;
            known.fetch = Fetching::Pending;
            Judgement::Idle(Finish::Done, "the GitSource is suspended".to_owned())
        }
        Ok(terms) => pass.judge(&mut known, &terms).await?,
        Err(error) => {
            pass.give_up_fetch(&mut known);
            Judgement::Idle(Finish::Done, error.to_string())
        }
    };
    let has_revision = known.running.is_none() || ctx.registry.loaded(key).is_some();
    if has_revision && ctx.registry.visited(&slot) {
        pass.wake_runtimes();
    }
    Ok(judgement)
}

/// Gives up what a GitSource declared that is gone.
async fn forget(ctx: SourceContext<'_>, key: &Key) {
    // Another source may take over the objects that it leaves.
    ctx.set_templates(key, None, None);
    removals::set(ctx, &ctx.registry.slot(key), &registry::Notices::new());
    ctx.stores.set_awaited(key, BTreeSet::new());
    for other in ctx.registry.forget(key) {
        ctx.queue.push(Subject::Source(other), Trigger::Changed);
    }
    ctx.registry.remove(key).await;
}

/// Reconciles a GitSource that exists.
async fn reconcile_present(
    ctx: SourceContext<'_>,
    key: &Key,
    triggers: Triggers,
    Source { object, origin }: Source,
    start: Start,
) -> Pass {
    let slot = ctx.registry.slot(key);
    let mut known = slot.known().await;
    let source = known.writes.status.shown(&object).into_owned();
    let of_fetch = known.running.as_ref().map(|running| running.triggers).unwrap_or_default();
    let pass = SourcePass {
        ctx,
        key,
        slot: &slot,
        source: &source,
        origin,
        asked: triggers,
        triggers: triggers.union(of_fetch),
        now: Instant::now(),
    };
    if start == Start::Leave {
        return pass.leave(&mut known).await;
    }
    let result = match pass.terms() {
        Ok(terms) if terms.suspend => pass.suspended(&mut known, &terms).await,
        Ok(terms) => pass.run(&mut known, &terms).await,
        Err(error) => pass.invalid(&mut known, &error).await,
    };
    let has_revision = known.running.is_none() || ctx.registry.loaded(key).is_some();
    if has_revision && ctx.registry.visited(&slot) {
        pass.wake_runtimes();
    }
    result
}

/// Writes into the status of a GitSource why its last pass panicked. Other passes write their own status. Fails if the
/// control plane rejects the status.
pub(crate) async fn report_failure(
    ctx: SourceContext<'_>,
    key: &Key,
    triggers: Triggers,
    failure: &Failure,
) -> Result<(), Failure> {
    let Some(Source { object, origin }) = ctx.stores.source(key) else { return Ok(()) };
    let slot = ctx.registry.slot(key);
    let mut known = slot.known().await;
    let source = known.writes.status.shown(&object).into_owned();
    let (asked, now) = (triggers, Instant::now());
    let pass = SourcePass { ctx, key, slot: &slot, source: &source, origin, asked, triggers, now };
    let status = status::not_ready(&source, failure.reason, &failure.error.to_string(), ambient::now());
    pass.write(&mut known, status).await
}

// === impl SourceContext ===

impl SourceContext<'_> {
    /// Sets or drops the template overrides of a source. If that changes a template, every runtime, Watcher and
    /// resource of a kcp landscape is reconciled: their custom resources do not change with it. `former` are the last
    /// good ones before them, for a process that has just started.
    fn set_templates(&self, source: &Key, templates: Option<Templates>, former: Option<Templates>) {
        let name = SourceName::new(source.clone());
        {
            let mut library = self.library.write();
            if library.of_source(Some(&name)) == templates.as_ref().unwrap_or(library.base()) {
                return;
            }
            match templates {
                Some(templates) => {
                    let have_failed = self.registry.failures(source).is_some_and(|failures| !failures.is_empty());
                    let present = library.overrides_of(&name);
                    let fallbacks = decide::fallbacks(present, have_failed, former, library.base());
                    let failures = Arc::new(RenderFailures::new(source.clone(), self.queue.clone()));
                    self.registry.set_failures(source, Some(&failures));
                    let report = move |template, subject: &str, error: Option<&template::Error>| {
                        failures.record(template, subject, error);
                    };
                    let templates = templates.with_fallback(fallbacks, Box::new(report));
                    Arc::make_mut(&mut library).set(name, templates);
                }
                None => {
                    self.registry.set_failures(source, None);
                    Arc::make_mut(&mut library).remove(&name);
                }
            }
        }
        let landscape = self.stores.landscape();
        let resources = self.stores.setup();
        let runtimes = self.stores.kymas().into_iter().map(|kyma| Subject::Runtime(landscape::key(&kyma.metadata)));
        let watchers = landscape.watchers.keys().cloned().map(Subject::Watcher);
        let of_setup = resources.ids().map(|(kind, key)| Subject::Setup(kind, key.clone()));
        for subject in runtimes.chain(watchers).chain(of_setup) {
            self.queue.push(subject, Trigger::Git);
        }
    }
}

/// What a pass decides.
struct Decided {
    decision: intake::Decision,
    /// Whether a watch is behind.
    behind: bool,
    confirmation: Confirmation,
}

/// One pass over one source.
struct SourcePass<'a> {
    ctx: SourceContext<'a>,
    key: &'a Key,
    slot: &'a Slot,
    source: &'a GitSource,
    origin: crate::stores::Origin,
    /// The triggers since the last pass.
    asked: Triggers,
    /// The same, and those of the fetch in progress.
    triggers: Triggers,
    now: Instant,
}

// === impl SourcePass ===

impl SourcePass<'_> {
    /// The terms of the source. Fails with the first invalid field.
    fn terms(&self) -> Result<Terms, TermsError> {
        let mut terms = Terms::from_source(self.source)?;
        terms.policy.confirm_by = self.origin.confirm_by();
        Ok(terms)
    }

    async fn run(&self, known: &mut KnownSource, terms: &Terms) -> Pass {
        leave::guard(self).await?;
        self.check_receiver(terms).await;
        match self.load(known, terms).await {
            Loading::Loaded => {}
            Loading::Waits(limit) => return Ok(Finish::Awaiting(limit)),
        }
        let Some(loaded) = self.ctx.registry.loaded(self.key) else {
            self.report(known, None, &Enacted::default(), terms).await?;
            return Ok(self.finish(known, terms, &Enacted::default(), false));
        };
        // A status that says so would be written at each start, if a Lease was never released.
        let has_kcp_landscapes = loaded.diagnostics.iter().any(|found| found.code == definition::code::NOT_RECONCILED);
        if has_kcp_landscapes && let Some(limit) = self.ctx.stores.kcp_operator_doubt() {
            return Ok(Finish::Awaiting(limit));
        }
        let (Decided { mut decision, confirmation, .. }, enacted) = self.settle(known, &loaded, terms).await?;
        let is_over = self.ctx.stores.set_awaited(self.key, decide::awaited(&decision));
        let again = !decision.look_up.is_empty() || enacted.again || is_over || confirmation == Confirmation::Acting;
        for other in &decision.awaken {
            self.ctx.queue.push(Subject::Source(other.clone()), Trigger::Changed);
        }
        self.keep_trees(known, &loaded).await;
        // What is in doubt only until another source is read, in a moment, is no news.
        let is_early = self.set_aside(known, &mut decision);
        let again = again || is_early;
        self.report(known, Some((&loaded, &decision, is_early)), &enacted, terms).await?;
        if confirmation == Confirmation::Spent && !again {
            self.forget(annotation::CONFIRM_PRUNE).await?;
        }
        self.forget(annotation::SUSPENDED).await?;
        Ok(self.finish(known, terms, &enacted, again))
    }

    /// Leaves out of a decision what is held back only because another source has not been read yet, which will be
    /// soon. Returns whether there is such a thing.
    fn set_aside(&self, known: &mut KnownSource, decision: &mut intake::Decision) -> bool {
        // A pass over a source that cannot be read, or whose revision is refused, ends as well.
        let is_coming = |owner: &&Key| {
            let source = self.ctx.stores.source(owner);
            !self.ctx.registry.is_visited(owner) && source.is_some_and(|source| !landscape::is_idle(&source.object))
        };
        let coming: BTreeSet<Key> = decision.unread.values().filter(is_coming).cloned().collect();
        known.early_since = decide::early_since(known.early_since, !coming.is_empty(), self.now);
        let is_early = decide::is_early(known.early_since, self.now);
        if is_early {
            decision.set_aside(&coming);
        }
        is_early
    }

    /// Whether objects of a kind may be written: those of kcp landscapes not while kcp-operator runs, also if it
    /// started during this pass.
    fn may_write(&self, kind: definition::Kind) -> bool {
        match kind {
            definition::Kind::ModuleTemplate
            | definition::Kind::ModuleReleaseMeta
            | definition::Kind::Watcher
            | definition::Kind::Kyma => true,
            definition::Kind::Setup(_) => self.ctx.stores.kcp_operator().borrow().is_none(),
        }
    }

    /// Removes an annotation of the GitSource that is no longer true.
    async fn forget(&self, name: &str) -> Result<(), Failure> {
        let metadata = &self.source.metadata;
        if landscape::annotation(metadata, name).is_none() {
            return Ok(());
        }
        if self.origin == Origin::CommandLine {
            self.ctx.stores.forget_local(self.key, name);
            return Ok(());
        }
        let cause = Cause::trigger(&self.triggers.to_string());
        let kind = cluster::Kind::namespaced::<GitSource>();
        annotations::remove(self.ctx.kcp, &cause, &kind, metadata, name).await.map_err(failure)
    }

    /// As [`SourcePass::run`], without a write.
    async fn judge(&self, known: &mut KnownSource, terms: &Terms) -> Result<Judgement, Failure> {
        match self.load(known, terms).await {
            Loading::Loaded => {}
            Loading::Waits(limit) => return Ok(Judgement::Pending(Finish::Awaiting(limit))),
        }
        let nothing = Enacted::default();
        let unused = self.unused(known, terms);
        let Some(loaded) = self.ctx.registry.loaded(self.key) else {
            self.warn(known, None);
            let finish = self.finish(known, terms, &nothing, false);
            return Ok(match unused {
                Some(why) => Judgement::Idle(finish, why),
                None => Judgement::Pending(finish),
            });
        };
        let decision = self.decide(known, &loaded, terms).await?.decision;
        let mut rest = decision.clone();
        let is_early = self.set_aside(known, &mut rest);
        self.warn(known, Some((&loaded, &rest, is_early)));
        self.keep_trees(known, &loaded).await;
        let finish = self.finish(known, terms, &nothing, false);
        Ok(Judgement::Decided(finish, loaded, Box::new(decision), unused))
    }

    /// Why the revision that was fetched last is not used, as the status says it; `None` if it is used.
    fn unused(&self, known: &KnownSource, terms: &Terms) -> Option<String> {
        let fetched = self.fetched(known, terms);
        match &fetched {
            Fetched::Failed { message, .. } | Fetched::Unverified { message, .. } => return Some(message.clone()),
            Fetched::Done => {}
        }
        let refused = known.revision.refused()?;
        let status = self.status(known, &fetched, None, &Enacted::default(), Some(terms));
        let applied = status.conditions.into_iter().find(|condition| condition.type_ == status::APPLIED);
        Some(applied.map_or_else(|| format!("{} is refused", refused.revision), |applied| applied.message))
    }

    /// Decides what to apply and prune, and sends the requests.
    async fn settle(
        &self,
        known: &mut KnownSource,
        loaded: &Loaded,
        terms: &Terms,
    ) -> Result<(Decided, Enacted), Failure> {
        let decided = self.decide(known, loaded, terms).await?;
        let decision = &decided.decision;
        let name = SourceName::new(self.key.clone());
        let rollout = known.revision.rollout();
        let cause = Cause::trigger(&decide::cause(rollout, self.triggers)).revision(loaded.revision.to_string());
        let mut enacted = enact::run(self, &cause, &name, loaded, decision, &mut known.writes.objects).await?;
        // An object that the watch does not show yet may have been deleted since. No later event would wake the source.
        enacted.again |= decided.behind;
        if decide::is_rolled_out(rollout, &enacted.failures) {
            known.revision = std::mem::take(&mut known.revision).rolled_out();
            report::arrived(self.ctx, &loaded.revision);
        }
        Ok((decided, enacted))
    }

    /// Decides what to apply and prune.
    async fn decide(&self, known: &mut KnownSource, loaded: &Loaded, terms: &Terms) -> Result<Decided, Failure> {
        let name = SourceName::new(self.key.clone());
        let label = name.label_value();
        let others = self.others();
        let installed = self.installed();
        let withheld = loaded.withheld.iter().map(|withheld| withheld.id.clone()).collect();
        let nothing = BTreeMap::new();
        let situation = Situation {
            source: self.key,
            label: &label,
            commit: loaded.revision.commit(),
            declared: &loaded.declared,
            withheld: &withheld,
            broken: &loaded.broken,
            live: &nothing,
            others: &others,
            installed: &installed,
            leaving: &BTreeSet::new(),
            policy: &terms.policy,
            errors: self.diagnostics(loaded).has_errors() || known.revision.refused().is_some(),
            moved: decide::moved(self.source, known.history, terms),
        };
        let is_asked = decide::is_asked(self.source, known.handled.as_deref());
        let objects = &mut known.writes.objects;
        let mut found = survey::live(self, &name, loaded, objects, is_asked);
        survey::compare_unreadable(self, &name, loaded, &mut found, objects).await.map_err(failure)?;
        let leaving = self.leaving(loaded, &installed, &decide::dropped(&found.live, &label, &loaded.declares));
        let situation = Situation { leaving: &leaving, ..situation };
        let mut decision = intake::decide(&Situation { live: &found.live, ..situation });
        let mut behind = found.behind;
        if !decision.look_up.is_empty() {
            survey::look_up(self.ctx, &decision.look_up, objects).await.map_err(failure)?;
            found = survey::live(self, &name, loaded, objects, is_asked);
            survey::compare_unreadable(self, &name, loaded, &mut found, objects).await.map_err(failure)?;
            behind |= found.behind;
            decision = intake::decide(&Situation { live: &found.live, ..situation });
        }
        for (id, takeover) in &mut decision.takeovers {
            let Some(definition) = loaded.definitions.good.get(id) else { continue };
            let module = definition.module.as_ref().map(|module| module.tree.into());
            let module = module.and_then(|content| loaded.definitions.modules.get(&content));
            *takeover = status::takeover(definition, module.map(|module| &**module), &name);
        }
        let taken = removals::find(self, loaded, &decision, &installed, &mut known.former).await;
        intake::removal::hold(&situation, &taken, &mut decision);
        removals::publish(self, loaded, &decision);
        let confirmation = intake::confirmation(&Situation { live: &found.live, ..situation }, &decision);
        Ok(Decided { decision, behind, confirmation })
    }

    /// The problems of the active revision, with those of templates that only real objects have shown.
    fn diagnostics<'l>(&self, loaded: &'l Loaded) -> Cow<'l, Diagnostics> {
        let failures = self.ctx.registry.failures(self.key).filter(|failures| !failures.is_empty());
        let Some(failures) = failures else { return Cow::Borrowed(&loaded.diagnostics) };
        let stores = self.ctx.stores;
        let (landscape, resources) = (stores.landscape(), stores.setup());
        let exists = |key: &Key| {
            stores.kyma(key).is_some()
                || landscape.templates.contains_key(key)
                || landscape.releases.contains_key(key)
                || landscape.watchers.contains_key(key)
                || resources.ids().any(|(_, found)| found == key)
        };
        let failed = failures.diagnostics(exists, &loaded.diagnostics);
        let mut all = loaded.diagnostics.clone();
        all.append(failed);
        Cow::Owned(all)
    }

    /// The other sources, with the declarations of those that have been read.
    fn others(&self) -> BTreeMap<String, Other> {
        // What a source declares that was read when other kinds were applied is not known yet.
        let kcp_landscapes = self.ctx.stores.kcp_landscapes();
        let is_current = |loaded: &Arc<Loaded>| loaded.kcp_landscapes == kcp_landscapes;
        let other = |source: Source| {
            let key = source.key();
            let loaded = self.ctx.registry.loaded(&key);
            let other = Other {
                idle: landscape::is_idle(&source.object),
                declares: loaded.filter(is_current).map(|loaded| Arc::clone(&loaded.declares)),
                allow: source.object.spec.allow.as_ref().map(definition::Allow::from).unwrap_or_default(),
                key,
            };
            (SourceName::new(other.key.clone()).label_value(), other)
        };
        // What a GitSource declares that never could be read is not known.
        let unknown = self.ctx.stores.all_unknown(&[Table::Sources], None).into_iter().map(|found| {
            let key = found.object.key();
            (
                SourceName::new(key.clone()).label_value(),
                Other { key, idle: false, declares: None, allow: definition::Allow::default() },
            )
        });
        let known = self.ctx.stores.sources().into_iter().map(other);
        known.chain(unknown).filter(|(_, other)| other.key != *self.key).collect()
    }

    /// The installed modules of runtimes, according to their Manifests.
    fn installed(&self) -> Vec<Installed> {
        let installed = |manifest: Arc<tidegate_core::api::Manifest>| {
            let module = landscape::label(&manifest.metadata, tidegate_core::api::names::label::MODULE_NAME)?;
            Some(Installed {
                runtime: crate::stores::kyma_of(&manifest.metadata)?,
                module: module.to_owned(),
                version: manifest.spec.version.clone().unwrap_or_default(),
                standing: Standing::from_manifest(&manifest.metadata),
            })
        };
        self.ctx.stores.manifests().into_iter().filter_map(installed).collect()
    }

    /// The modules that leave their runtimes anyway, of the versions of these ModuleTemplates.
    fn leaving(&self, loaded: &Loaded, installed: &[Installed], dropped: &BTreeSet<&Key>) -> BTreeSet<Loss> {
        if dropped.is_empty() {
            return BTreeSet::new();
        }
        let template = |one: &Installed| Key::new(one.runtime.namespace(), &format!("{}-{}", one.module, one.version));
        let leaves = |one: &&Installed| {
            let declared = loaded.definitions.good.get(&(definition::Kind::Kyma, one.runtime.clone()));
            let declared = declared.map(|definition| definition.object.value());
            intake::is_leaving(one, self.ctx.stores.kyma(&one.runtime).as_deref(), declared)
        };
        let of_dropped = installed.iter().filter(|one| dropped.contains(&template(one)));
        of_dropped.filter(leaves).map(Loss::from).collect()
    }

    /// Wakes the runtimes with modules from this source, which may wait for its objects, and those whose status says
    /// that a removal waits.
    fn wake_runtimes(&self) {
        let name = self.key.to_string();
        let manifests = self.ctx.stores.manifests();
        let ours = manifests.iter().filter(|manifest| manifest.spec.install.source["source"] == name.as_str());
        let runtimes = ours.filter_map(|manifest| crate::stores::kyma_of(&manifest.metadata));
        let runtimes: BTreeSet<Key> = runtimes.chain(removals::told(self.ctx)).collect();
        for runtime in runtimes {
            self.ctx.queue.push(Subject::Runtime(runtime), Trigger::Changed);
        }
    }

    /// Makes the mirror keep the trees that live Manifests name, whatever happens to the branch.
    async fn keep_trees(&self, known: &mut KnownSource, loaded: &Loaded) {
        let trees = decide::trees(self.key, loaded.definitions.modules.keys(), &self.ctx.stores.manifests());
        let Some(mirror) = self.ctx.registry.opened(self.slot) else { return };
        if known.writes.trees.are(mirror.url(), &trees) {
            return;
        }
        match mirror.keep(trees.clone()).await {
            Ok(()) => known.writes.trees = KeptTrees::Kept { url: mirror.url().clone(), trees },
            // The mirror still has the trees, and the next pass tries again.
            Err(error) => {
                tracing::warn!(source = %self.key, %error, "cannot protect trees of live Manifests in the mirror");
            }
        }
    }

    /// Applies and prunes nothing. The last good revision stays active, also across a restart: runtimes use its modules
    /// and template overrides.
    async fn suspended(&self, known: &mut KnownSource, terms: &Terms) -> Pass {
        self.give_up_fetch(known);
        let kept = self.hold(known, terms).await;
        // A resumed source is fetched at once, not at the end of the interval.
        known.fetch = Fetching::Pending;
        let status = status::suspended(self.source, kept, ambient::now());
        self.publish(&status, None);
        self.write(known, status).await?;
        Ok(Finish::Done)
    }

    /// Deletes or releases its objects, because it is being deleted. While that waits, its last good revision stays
    /// active.
    async fn leave(&self, known: &mut KnownSource) -> Pass {
        let kept = self.keep_in_use(known).await;
        leave::run(self, known, kept).await
    }

    /// Fetches no more. Runtimes use the modules and template overrides of the last good revision until the source is
    /// gone, also after a restart.
    async fn keep_in_use(&self, known: &mut KnownSource) -> status::Kept {
        self.give_up_fetch(known);
        let kept = match self.terms() {
            Ok(terms) => self.hold(known, &terms).await,
            Err(_) => status::Kept::Lost,
        };
        if self.ctx.registry.visited(self.slot) {
            self.wake_runtimes();
        }
        kept
    }

    /// Reports that the GitSource is invalid. The active revision stays.
    async fn invalid(&self, known: &mut KnownSource, error: &TermsError) -> Pass {
        let fetched = Fetched::Failed { reason: "InvalidSpec", message: error.to_string(), said: None, stalled: true };
        self.give_up_fetch(known);
        known.handled = status::requested(self.source);
        let status = self.status(known, &fetched, None, &Enacted::default(), None);
        self.write(known, status).await?;
        Ok(Finish::Done)
    }

    /// When the next pass is due.
    fn finish(&self, known: &KnownSource, terms: &Terms, enacted: &Enacted, again: bool) -> Finish {
        let (is_running, now) = (known.running.is_some(), Instant::now());
        let again = again || (terms.receiver.is_some() && known.announced.is_undecided(now));
        decide::finish(terms, &known.fetch, is_running, enacted.class, again, now, ambient::fraction())
    }
}

/// Ends the pass with a request to KCP that failed.
fn failure(error: tidegate_cluster::Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}
