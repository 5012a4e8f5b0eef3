//! One pass over a runtime: its Kyma, what every runtime has, its Manifests, and the objects of each.
//!
//! What a pass does, in order: look at the Kyma in the runtime if there is reason to; plan; bring namespace, CRDs,
//! catalog and webhook configuration to what they should be; write the Kyma in the runtime and the Manifests in KCP where
//! they differ; pass over each Manifest; write the status of the Kyma once, and its copy in the runtime, where they differ.
//!
//! A pass over a runtime without news makes no request. The first pass of a process reads the runtime's Kyma, once, and
//! writes nothing that is as recorded. What users did in a runtime is looked for on a resync, on request, or when an event
//! says so: objects are listed by their metadata and only what changed is looked at closer. An event about the Kyma in the
//! runtime costs one read of it.
//!
//! What it refuses: to render before the template overrides of the sources behind it have been read, to prune while anything is unknown, to create objects that exist without our mark, and to work on a
//! runtime whose access Secret is absent, ambiguous or asks for more than inline credentials.
//!
//! `state` is what is known between passes, `decide` what is done about it; each subject below has its own of both.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::controller::{
    Context, Failure, Pass,
    events::{Severity, reason},
};
use tidegate_cluster::{Cause, Cluster, Error, Metadata};
use tidegate_core::{
    api::{
        Kyma, Manifest,
        names::{MANAGED_BY_SKR, label},
    },
    definition, landscape,
    name::Key,
    object::ObjectId,
    plan,
    status::Facts,
};
use tidegate_process::{
    ambient,
    retry::{self, Class},
};

use crate::queue::{Finish, Triggers};

mod base;
pub mod contacts;
mod counterpart;
mod decide;
pub mod manifest;
mod manifests;
pub mod objects;
mod outcome;
mod remove;
mod reporting;
mod shelf;
mod state;

pub use base::Bases;
pub use reporting::Reports;
pub use state::KnownRuntimes;

use decide::{Look, Start};
use state::{KnownRuntime, ShownManifests};

/// Longest time for one pass. Nothing in it waits for anything slow, so a pass that takes longer is stuck.
const PASS_MAX: Duration = Duration::from_secs(300);
/// Manifests of one runtime that are worked on at once; their requests share the runtime's bound.
const MANIFESTS_AT_ONCE: usize = 4;

/// Brings a runtime a step nearer to what its Kyma says.
pub async fn reconcile(context: &Context, key: &Key, triggers: Triggers) -> Pass {
    let mut known = context.runtimes.take(key);
    let passed = tokio::time::timeout(PASS_MAX, pass(context, key, triggers, &mut known)).await;
    match passed {
        Ok(Ok(Finish::Gone)) => Ok(Finish::Gone),
        Ok(result) => {
            context.runtimes.put(key, known);
            result
        }
        // What was remembered may be half true: it is not put back.
        Err(_) => Err(Failure::new(Class::Transient, "PassTimeout", "the pass took too long")),
    }
}

async fn pass(context: &Context, key: &Key, triggers: Triggers, known: &mut KnownRuntime) -> Pass {
    let now = ambient::now();
    let cause = crate::controller::cause(triggers);
    let manifests = latest_manifests(context, key, known)
        .await
        .map_err(|error| Failure::new(error.class(), error.reason(), error))?;
    let Some(kyma) = context.stores.kyma(key) else {
        return remove::orphans(context, key, &cause, &manifests, known).await;
    };
    let cause = context.origin(&cause, definition::Kind::Kyma, &kyma.metadata);
    let look = decide::look(triggers, known.watch.is_due(context, key), &kyma, &manifests);
    let resync = decide::is_resync(triggers);
    let pass = RuntimePass { context, key, kyma: &kyma, cause: &cause, now, look, resync };
    match decide::start(&kyma) {
        Start::Remove => remove::reconcile(&pass, manifests, known).await,
        Start::Leave => Ok(Finish::Deferred),
        Start::Install => pass.install_or_tell(&manifests, known).await,
    }
}

/// One pass over a runtime.
struct RuntimePass<'a> {
    context: &'a Context,
    key: &'a Key,
    kyma: &'a Arc<Kyma>,
    cause: &'a Cause,
    now: Timestamp,
    /// How closely the runtime itself is looked at, as far as that is known before it is asked anything.
    look: Look,
    /// Whether it is time to look at what nobody reports.
    resync: bool,
}

/// What a pass that went through found.
struct InstallReport {
    cluster: Arc<Cluster>,
    facts: Facts,
    finish: Finish,
}

// === impl RuntimePass ===

impl RuntimePass<'_> {
    /// Installs what the Kyma says, and says in its status how that went.
    async fn install_or_tell(&self, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
        self.context.templates_read(&self.kyma.metadata)?;
        match self.install(manifests, known).await {
            Ok(InstallReport { cluster, facts, finish }) => {
                self.conclude(&facts, &cluster, known).await?;
                Ok(finish)
            }
            Err(failed) => self.failed(failed, manifests, known).await,
        }
    }

    /// Brings everything in the runtime, and the Manifests in KCP, to what they should be.
    async fn install(
        &self,
        manifests: &[Arc<Manifest>],
        known: &mut KnownRuntime,
    ) -> Result<InstallReport, outcome::Failed> {
        let cluster = outcome::access(self.context, self.key).await?;
        self.take_charge().await?;
        let landscape = self.context.stores.landscape();
        let look = self.look_at_webhooks(&cluster, known).await?;
        counterpart::look(&cluster, &mut known.counterpart, Look::Kyma <= look).await?;
        let spec = plan::effective(self.kyma, known.counterpart.live.as_ref().map(|kyma| &kyma.spec));
        let plan = plan::runtime(&landscape, self.kyma, &spec, &self.context.settings);
        let live = self.survey(&cluster, manifests, look).await?;
        let base = base::bring(self, &cluster, &landscape, &plan, live.as_ref(), &mut known.base).await?;
        let counterpart = counterpart::bring(self, &cluster, &mut known.counterpart).await?;
        if let Some(note) = decide::reverted_note(&counterpart.reverted) {
            self.tell(Severity::Normal, reason::METADATA_SYNCHRONIZATION, "Revert", note);
        }
        let modules = manifests::bring(self, &plan, manifests).await?;
        let (passed, again) = self.pass_over(&cluster, &modules.present, live.as_ref(), known).await?;
        let watch = reporting::bring(self, &cluster, &landscape, &passed, live.as_ref(), &mut known.watch).await?;
        let mode = plan::modules_from(self.kyma);
        let facts = Facts {
            modules: modules.facts(&passed),
            crds: base.crds,
            catalog: base.catalog,
            webhook: watch.webhook,
            pull_secret: watch.pull_secret,
            applied: base.applied,
            watch: Some(watch.watch),
            watch_applied: watch.applied,
            channel: spec.channel.clone(),
            requested: decide::requested(self.kyma),
            modules_from: Some(decide::modules_from(self.kyma, mode, &counterpart.reverted)),
            failure: modules.failure(),
            deleting: None,
        };
        let finish = decide::finish([again, base.again, watch.again, counterpart.again]);
        Ok(InstallReport { cluster, facts, finish })
    }

    /// How closely the runtime is looked at, once it was asked for what nobody reports.
    async fn look_at_webhooks(&self, cluster: &Cluster, known: &mut KnownRuntime) -> Result<Look, Error> {
        if self.look == Look::Everything || !self.resync {
            return Ok(self.look);
        }
        let have_moved = known.watch.webhooks_moved(cluster).await?;
        Ok(if have_moved { Look::Everything } else { self.look })
    }

    /// Passes over each Manifest that is there, a few at once. Returns them as the passes left them, and when the first
    /// of them asks to go again.
    async fn pass_over(
        &self,
        cluster: &Cluster,
        manifests: &[Arc<Manifest>],
        live: Option<&BTreeMap<ObjectId, Metadata>>,
        known: &mut KnownRuntime,
    ) -> Result<(Vec<Arc<Manifest>>, Option<Duration>), Error> {
        let target = manifest::ApplyTarget { context: self.context, cluster, cause: self.cause, live, manifests };
        // What is known of those that are not there any more is forgotten.
        let mut former = std::mem::take(&mut known.manifests);
        let mut taken: Vec<(Arc<Manifest>, manifest::KnownManifest)> = manifests
            .iter()
            .map(|manifest| {
                let known = former.remove(&landscape::key(&manifest.metadata)).unwrap_or_default();
                (Arc::clone(manifest), known.shown(manifest))
            })
            .collect();
        // Boxed, since the compiler cannot see that a stream of closures over borrowed values is `Send`.
        let passes: Vec<BoxFuture<'_, Result<manifest::ManifestReport, Error>>> =
            taken.iter_mut().map(|(manifest, known)| manifest::reconcile(&target, manifest, known).boxed()).collect();
        let results: Vec<Result<manifest::ManifestReport, Error>> =
            stream::iter(passes).buffered(MANIFESTS_AT_ONCE).collect().await;
        let (mut passed, mut again, mut failure) = (Vec::new(), Vec::new(), None);
        // What one pass has written counts, whatever became of the others.
        for ((manifest, of_manifest), result) in taken.into_iter().zip(results) {
            let key = landscape::key(&manifest.metadata);
            match result {
                Ok(report) => {
                    known.writes.written(&report.manifest, Instant::now());
                    again.extend(report.again);
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
        match failure {
            Some(error) => Err(error),
            None => Ok((passed, again.into_iter().min())),
        }
    }

    /// Tells whoever looks at the Kyma.
    fn tell(&self, severity: Severity, reason: &'static str, action: &'static str, note: impl Into<String>) {
        self.context.events.publish(&**self.kyma, severity, reason, action, note);
    }

    /// The metadata of everything in the runtime that bears our mark, of the kinds that we put there: a list a kind.
    /// None if the runtime is not looked at that closely.
    async fn survey(
        &self,
        cluster: &Cluster,
        manifests: &[Arc<Manifest>],
        look: Look,
    ) -> Result<Option<BTreeMap<ObjectId, Metadata>>, Error> {
        if look < Look::Everything {
            return Ok(None);
        }
        let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
        let mut found = BTreeMap::new();
        for gvk in decide::kinds(manifests, self.context.agent.is_some()) {
            let Some(kind) = cluster.kind(&gvk).await? else { continue };
            let listed = cluster.list_metadata(&kind, None, Some(&selector)).await?;
            found.extend(listed.into_iter().map(|metadata| (metadata.id.clone(), metadata)));
        }
        Ok(Some(found))
    }
}

/// The Manifests of a Kyma: what the watch says, or what we wrote since.
async fn latest_manifests(context: &Context, key: &Key, known: &mut KnownRuntime) -> Result<Vec<Arc<Manifest>>, Error> {
    let shown = context.stores.manifests_of(key);
    let shown: ShownManifests =
        shown.into_iter().map(|manifest| (landscape::key(&manifest.metadata), manifest)).collect();
    let is_elsewhere = |key: &Key| context.stores.manifest(key).is_some();
    for key in known.writes.must_ask(&shown, is_elsewhere, Instant::now()) {
        // If this fails, all that is remembered stays remembered.
        match manifests::read(&context.kcp, &key).await? {
            Some(manifest) => known.writes.written(&manifest, Instant::now()),
            None => known.writes.forget(&key),
        }
    }
    Ok(known.writes.latest(shown))
}

/// How often a runtime that cannot be worked on is tried all the same.
const RETRY_STALLED: Duration = Duration::from_secs(300);

/// Delay after failures in a row.
fn delay(class: Class, attempt: u32) -> Duration {
    retry::delay(class, attempt, RETRY_STALLED)
}
