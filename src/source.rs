//! The controller of GitSources: what git declares, KCP holds.
//!
//! A pass fetches if it is time to, reads the revision, asks [`tidegate_core::intake`] what is to be done, does it, and writes
//! the status if it differs. What stands in KCP comes from the watches; a pass over an unchanged world makes no request.
//!
//! Guarantees: what cannot be read leaves the last good revision in force, also across restarts; a pass that is dropped
//! anywhere may be run again. Never deletes what does not bear the source's mark, and never on an incomplete view.
//! Credentials are read from the Secret when a fetch needs them, and sent over TLS only. Nothing that a remote said is
//! written anywhere.

mod decide;
mod enact;
mod known_objects;
mod leave;
mod load;
pub mod registry;
mod report;
mod state;
mod survey;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::Instant;

use self::enact::Enacted;
use crate::{
    controller::{Failure, Pass, Queue, Subject, events::Recorder},
    metrics::Metrics,
    renderer::Renderer,
    source::registry::{Loaded, Slot, SourceRegistry},
    stores::{Source, Stores},
};
use tidegate_cluster::{Cause, Cluster};
use tidegate_core::{
    api::GitSource,
    intake::{
        self, Installed, Other, Situation, Terms, TermsError,
        status::{self, Fetched},
    },
    landscape::{self, SourceName},
    name::Key,
    revision::Oid,
    template::{Library, Templates},
};
use tidegate_process::{ambient, lock::RwLock};

use crate::queue::{Finish, Trigger, Triggers};

pub(crate) use state::Progress;

/// What passes over GitSources use of the daemon.
#[derive(Clone, Copy)]
pub struct SourceContext<'a> {
    /// The control plane. Writes through it are refused while we do not lead.
    pub kcp: &'a Cluster,
    /// What stands in the control plane.
    pub stores: &'a Stores,
    /// Where other subjects are woken.
    pub queue: &'a Queue,
    /// What is counted.
    pub metrics: &'a Metrics,
    /// What users are told.
    pub events: &'a Recorder,
    /// What has been read from git.
    pub registry: &'a SourceRegistry,
    /// The templates: those of the daemon, and the overrides of sources.
    pub library: &'a RwLock<Arc<Library>>,
    /// What reads and renders overrides of templates.
    pub renderer: &'a Renderer,
    /// Namespaces in which definitions are valid.
    pub namespaces: &'a BTreeSet<String>,
    /// Whether GitSources in KCP may name local paths.
    pub allow_local_sources: bool,
}

/// Brings KCP to what the source declares.
pub async fn reconcile(ctx: SourceContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let Some(Source { object, origin }) = ctx.stores.source(key) else {
        // Whoever declares what it leaves behind may have it now.
        ctx.set_templates(SourceName::new(key.clone()), None);
        for other in ctx.registry.forget(key) {
            ctx.queue.push(Subject::Source(other), Trigger::Changed);
        }
        ctx.registry.remove(key).await;
        return Ok(Finish::Gone);
    };
    let slot = ctx.registry.slot(key);
    let mut progress = slot.progress.lock().await;
    let source = report::current(&object, &progress);
    let pass = SourcePass { ctx, key, slot: &slot, source: &source, origin, triggers, now: Instant::now() };
    if source.metadata.deletion_timestamp.is_some() {
        return leave::run(&pass, &mut progress).await;
    }
    let result = match Terms::from_source(&source) {
        Ok(terms) if terms.suspend => pass.suspended(&mut progress, &terms).await,
        Ok(terms) => pass.run(&mut progress, &terms).await,
        Err(error) => pass.invalid(&mut progress, &error).await,
    };
    if ctx.registry.visited(&slot) {
        pass.wake_runtimes();
    }
    result
}

// === impl SourceContext ===

impl SourceContext<'_> {
    /// Sets or drops the overrides of a source. Where that changes anything, everything is rendered anew: a template may
    /// change without any custom resource changing.
    fn set_templates(&self, source: SourceName, templates: Option<Templates>) {
        {
            let mut library = self.library.write();
            if library.of_source(Some(&source)) == templates.as_ref().unwrap_or(library.base()) {
                return;
            }
            match templates {
                Some(templates) => Arc::make_mut(&mut library).set(source, templates),
                None => Arc::make_mut(&mut library).remove(&source),
            }
        }
        let landscape = self.stores.landscape();
        let runtimes = self.stores.kymas().into_iter().map(|kyma| Subject::Runtime(landscape::key(&kyma.metadata)));
        let watchers = landscape.watchers.keys().cloned().map(Subject::Watcher);
        for subject in runtimes.chain(watchers) {
            self.queue.push(subject, Trigger::Git);
        }
    }
}

/// One pass over one source.
struct SourcePass<'a> {
    ctx: SourceContext<'a>,
    key: &'a Key,
    slot: &'a Slot,
    source: &'a GitSource,
    origin: crate::stores::Origin,
    triggers: Triggers,
    now: Instant,
}

// === impl SourcePass ===

impl SourcePass<'_> {
    async fn run(&self, progress: &mut Progress, terms: &Terms) -> Pass {
        leave::guard(self).await?;
        self.load(progress, terms).await;
        let Some(loaded) = self.ctx.registry.loaded(self.key) else {
            self.report(progress, None, &Enacted::default(), terms).await?;
            return Ok(self.finish(progress, terms, &Enacted::default(), false));
        };
        let (decision, enacted) = self.settle(progress, &loaded, terms).await?;
        let again = !decision.look_up.is_empty() || enacted.again;
        for other in &decision.awaken {
            self.ctx.queue.push(Subject::Source(other.clone()), Trigger::Changed);
        }
        self.keep_trees(progress, &loaded).await;
        self.report(progress, Some((&loaded, &decision)), &enacted, terms).await?;
        Ok(self.finish(progress, terms, &enacted, again))
    }

    /// Decides and does it.
    async fn settle(
        &self,
        progress: &mut Progress,
        loaded: &Loaded,
        terms: &Terms,
    ) -> Result<(intake::Decision, Enacted), Failure> {
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
            live: &nothing,
            others: &others,
            installed: &installed,
            policy: &terms.policy,
            errors: loaded.diagnostics.has_errors() || progress.refused.is_some(),
            moved: decide::has_moved(self.source, progress.rewritten, terms),
        };
        let (live, mut behind) = survey::live(self, &name, loaded, &mut progress.memory);
        let mut decision = intake::decide(&Situation { live: &live, ..situation });
        if !decision.look_up.is_empty() {
            survey::look_up(self.ctx, &decision.look_up, &mut progress.memory).await.map_err(failure)?;
            let (live, still_behind) = survey::live(self, &name, loaded, &mut progress.memory);
            behind |= still_behind;
            decision = intake::decide(&Situation { live: &live, ..situation });
        }
        let cause = self.cause(progress, loaded);
        let mut enacted = enact::run(self, &cause, &name, loaded, &decision, &mut progress.memory).await?;
        // What the watch does not show yet may have been deleted since; nobody would wake us a second time.
        enacted.again |= behind;
        if enacted.failures.is_empty() && std::mem::take(&mut progress.is_new) {
            report::arrived(self.ctx, &loaded.revision);
        }
        Ok((decision, enacted))
    }

    /// The other sources, and what they declare as far as they have been read.
    fn others(&self) -> BTreeMap<String, Other> {
        let other = |source: Source| {
            let key = source.key();
            let loaded = self.ctx.registry.loaded(&key);
            let other = Other {
                idle: source.object.spec.suspend || source.object.metadata.deletion_timestamp.is_some(),
                declares: loaded.map(|loaded| Arc::clone(&loaded.declares)),
                key,
            };
            (SourceName::new(other.key.clone()).label_value(), other)
        };
        self.ctx.stores.sources().into_iter().map(other).filter(|(_, other)| other.key != *self.key).collect()
    }

    /// What runtimes have, as their Manifests say.
    fn installed(&self) -> Vec<Installed> {
        let installed = |manifest: Arc<tidegate_core::api::Manifest>| {
            let module = landscape::label(&manifest.metadata, tidegate_core::api::names::label::MODULE_NAME)?;
            Some(Installed {
                runtime: crate::stores::kyma_of(&manifest.metadata)?,
                module: module.to_owned(),
                version: manifest.spec.version.clone().unwrap_or_default(),
            })
        };
        self.ctx.stores.manifests().into_iter().filter_map(installed).collect()
    }

    /// Wakes the runtimes with modules from this source, which may have waited for its objects.
    fn wake_runtimes(&self) {
        let name = self.key.to_string();
        let manifests = self.ctx.stores.manifests();
        let ours = manifests.iter().filter(|manifest| manifest.spec.install.source["source"] == name.as_str());
        let runtimes: BTreeSet<Key> = ours.filter_map(|manifest| crate::stores::kyma_of(&manifest.metadata)).collect();
        for runtime in runtimes {
            self.ctx.queue.push(Subject::Runtime(runtime), Trigger::Changed);
        }
    }

    /// Why this pass writes, for the audit.
    fn cause(&self, progress: &Progress, loaded: &Loaded) -> Cause {
        let trigger = if progress.is_new { Trigger::Git.name().to_owned() } else { self.triggers.to_string() };
        Cause::trigger(&trigger).revision(loaded.revision.to_string())
    }

    /// Tells the mirror which trees must survive whatever becomes of the branch: those that live Manifests name.
    async fn keep_trees(&self, progress: &mut Progress, loaded: &Loaded) {
        let mut trees: BTreeSet<Oid> = loaded.definitions.modules.keys().copied().collect();
        let name = self.key.to_string();
        for manifest in self.ctx.stores.manifests() {
            let source = &manifest.spec.install.source;
            if source["type"] == "git" && source["source"] == name.as_str() {
                trees.extend(source["tree"].as_str().and_then(|tree| tree.parse::<Oid>().ok()));
            }
        }
        if trees == progress.kept {
            return;
        }
        let Some(mirror) = self.ctx.registry.opened(self.slot) else { return };
        match mirror.keep(trees.clone()).await {
            Ok(()) => progress.kept = trees,
            // The trees are in the mirror for now; the next pass tries again.
            Err(error) => {
                tracing::warn!(source = %self.key, %error, "trees of live Manifests may be lost from the mirror");
            }
        }
    }

    /// Nothing moves, and what is in force stays, also across a restart: modules' objects and template overrides.
    async fn suspended(&self, progress: &mut Progress, terms: &Terms) -> Pass {
        self.hold(progress, terms).await;
        // What was committed meanwhile is looked for at once when the source is resumed, not at the next poll.
        progress.fetch = None;
        let status = status::suspended(self.source, ambient::now());
        self.write(progress, status).await?;
        Ok(Finish::Done)
    }

    /// The GitSource makes no sense: what is in force stays.
    async fn invalid(&self, progress: &mut Progress, error: &TermsError) -> Pass {
        let fetched = Fetched::Failed { reason: "InvalidSpec", message: error.to_string(), stalled: true };
        let status = self.status(progress, &fetched, None, &Enacted::default(), None);
        self.write(progress, status).await?;
        Ok(Finish::Done)
    }

    /// When to look again.
    fn finish(&self, progress: &Progress, terms: &Terms, enacted: &Enacted, again: bool) -> Finish {
        decide::finish(terms, progress.fetch, &progress.reading, enacted.class, again, Instant::now())
    }
}

/// A request to KCP that failed and must end the pass.
fn failure(error: tidegate_cluster::Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}
