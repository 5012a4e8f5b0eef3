//! One pass over a Manifest: the objects of one module in one runtime.
//!
//! What a pass does, in order: read the objects, record them in the inventory, apply what is missing, prune what is no
//! longer wanted, create the default custom resource once, look at the workloads, write the status if it differs. It may
//! be dropped at any `await` and run again: the inventory grows before the first write and shrinks after the last, so no
//! live object of ours is ever unrecorded.
//!
//! It is part of a pass over its runtime (see [`crate::runtime`]) and no subject of its own in the queue. What it refuses:
//! to send an object that exists without our mark, to prune anything while the objects cannot be read, and to touch a
//! runtime for a Manifest that stands as recorded.
//!
//! `state` is what is known between passes, `recorded` what the Manifest in KCP says, `ownership` whose an object is,
//! `decide` what is done about all that, and `enact` does it. This file only joins them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tidegate_cluster::{Cause, Cluster, Error, Metadata};
use tidegate_core::{
    api::{Manifest, names::label},
    definition, landscape,
    name::Key,
    object::{Digest, ObjectId},
    render::CompleteModule,
    revision::Oid,
};
use tokio::time::Instant;

use crate::{controller::Context, runtime::objects};

mod decide;
mod enact;
mod ownership;
mod recorded;
mod remove;
mod state;

pub(crate) use recorded::{is_asked_for, is_released, is_unmanaged};
pub(crate) use remove::abandon;
pub(crate) use state::KnownManifest;

use decide::{Observed, Start, Unavailable, Work};
use state::{InstalledObjects, Retry, StatusWrite};

/// Where a pass takes place.
pub(crate) struct ApplyTarget<'a> {
    pub(crate) context: &'a Context,
    pub(crate) cluster: &'a Cluster,
    pub(crate) cause: &'a Cause,
    /// What the runtime holds of ours, if this pass looks for drift.
    pub(crate) live: Option<&'a BTreeMap<ObjectId, Metadata>>,
    /// All Manifests of the runtime, in the order of the modules: of two that bring one object, the first has it.
    pub(crate) manifests: &'a [Arc<Manifest>],
}

/// How a pass ended.
pub(crate) struct ManifestReport {
    /// The Manifest, with the status that was written.
    pub(crate) manifest: Arc<Manifest>,
    /// When to go again, if unasked.
    pub(crate) again: Option<Duration>,
}

// === impl ApplyTarget ===

impl ApplyTarget<'_> {
    /// Whether this pass looks for drift.
    fn looks(&self) -> bool {
        self.live.is_some()
    }
}

// === impl ManifestReport ===

impl ManifestReport {
    /// Of a pass that left the Manifest as it was.
    fn unchanged(manifest: &Arc<Manifest>, again: Option<Duration>) -> ManifestReport {
        ManifestReport { manifest: Arc::clone(manifest), again }
    }
}

/// Brings the objects of a Manifest to what it says.
///
/// # Errors
///
/// Only what concerns the runtime or KCP as a whole: that it cannot be reached or does not let us in. What is wrong with
/// one object is in the status.
pub(crate) async fn reconcile(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    let cause = origin(target, manifest);
    let target = &ApplyTarget { cause: &cause, ..*target };
    known.status = StatusWrite::NotBegun;
    match decide::start(manifest) {
        Start::Remove => remove::reconcile(target, manifest, known).await,
        Start::Leave => Ok(ManifestReport::unchanged(manifest, None)),
        Start::Apply => match enact::read_objects(target, manifest).await {
            Ok(module) => apply(target, manifest, &module, known).await,
            Err(message) => report_unavailable(target, manifest, &message, known).await,
        },
    }
}

/// The objects cannot be read: nothing is touched.
async fn report_unavailable(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    message: &str,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    match decide::unavailable(manifest, target.looks(), enact::is_expected(target, manifest)) {
        Unavailable::Leave => Ok(ManifestReport::unchanged(manifest, None)),
        Unavailable::LookAgain(delay) => Ok(ManifestReport::unchanged(manifest, Some(delay))),
        Unavailable::Report => {
            let facts = decide::unavailable_facts(manifest, message);
            let manifest = enact::write_status(target, manifest, &facts).await?;
            let (retry, again) = std::mem::take(&mut known.retry).after_unavailable();
            known.retry = retry;
            Ok(ManifestReport { manifest, again: Some(again) })
        }
    }
}

/// The objects are read: what is missing is applied, and what is too much goes.
async fn apply(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    module: &CompleteModule,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    let desired = decide::desired_digest(module.objects(), manifest);
    if let Some(again) = known.retry.rest(&desired, Instant::now()).filter(|_| !target.looks()) {
        return Ok(ManifestReport::unchanged(manifest, Some(again)));
    }
    let recorded = recorded::digest(manifest);
    let mut installed = InstalledObjects::before(module, known.installed.take(), recorded, &desired);
    let result = apply_known(target, manifest, desired, &mut installed, known).await;
    // Whatever became of the pass: what is missing is still known to be.
    known.installed = Some(installed);
    result
}

/// Looks for drift if that is asked for, and does what is to be done.
async fn apply_known(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    desired: Digest,
    installed: &mut InstalledObjects,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    if let Some(live) = target.live {
        let suspects = installed.applied.look(live);
        let owner = landscape::key(&manifest.metadata);
        objects::compare(target.cluster, &owner, live, &mut installed.applied, suspects).await?;
    }
    match decide::work(manifest, installed, &desired, target.looks()) {
        None => {
            known.retry = Retry::Settled;
            Ok(ManifestReport::unchanged(manifest, None))
        }
        Some(work) => ManifestPass { target, manifest, desired, work }.run(installed, known).await,
    }
}

/// The same cause, with the revision and file of the ModuleTemplate behind the Manifest.
fn origin(target: &ApplyTarget<'_>, manifest: &Manifest) -> Cause {
    let module = landscape::label(&manifest.metadata, label::MODULE_NAME).unwrap_or_default();
    let version = manifest.spec.version.as_deref().unwrap_or_default();
    let template = Key::new(manifest.metadata.namespace.as_deref().unwrap_or_default(), &format!("{module}-{version}"));
    match target.context.stores.landscape().templates.get(&template) {
        Some(template) => target.context.origin(target.cause, definition::Kind::ModuleTemplate, &template.metadata),
        None => target.cause.clone(),
    }
}

/// A pass that has something to do.
struct ManifestPass<'a> {
    target: &'a ApplyTarget<'a>,
    manifest: &'a Arc<Manifest>,
    desired: Digest,
    work: Work,
}

// === impl ManifestPass ===

impl ManifestPass<'_> {
    /// Does the work, in the order that leaves nothing unrecorded.
    async fn run(self, installed: &mut InstalledObjects, known: &mut KnownManifest) -> Result<ManifestReport, Error> {
        let Self { target, manifest, desired, work } = self;
        let strangers = enact::find_strangers(target, manifest, &installed.applied, &work).await?;
        let sent = decide::to_send(&installed.applied, &work, &strangers);
        let recorded = match decide::coming(&installed.applied, &work, &sent) {
            Some(facts) => {
                known.status = StatusWrite::Begun;
                enact::write_status(target, manifest, &facts).await?
            }
            None => Arc::clone(manifest),
        };
        let owner = landscape::key(&manifest.metadata);
        let failed = objects::send(target.cluster, target.cause, &owner, &mut installed.applied, &sent).await?;
        let pruned = enact::prune(target, &recorded, decide::to_prune(&work, &strangers, &failed)).await?;
        installed.kept = pruned.kept.iter().cloned().collect();
        enact::publish(target, manifest, decide::kept_note(&pruned));
        let resource = enact::create_module_resource(target, decide::module_resource(&recorded)).await?;
        let observed = Observed { strangers: &strangers, failed: &failed, pruned: &pruned, resource };
        let judgement = match decide::judge(&observed) {
            Some(judgement) => judgement,
            None => {
                let workloads = decide::workloads(manifest, &installed.applied.objects);
                decide::judge_workloads(enact::look_at_workloads(target, workloads).await?, &pruned)
            }
        };
        enact::publish(target, manifest, decide::conflict_note(&strangers));
        let applied = installed.applied.is_complete().then_some(desired);
        let facts = decide::ending_facts(&recorded, &observed, judgement.outcome, applied);
        known.status = StatusWrite::Begun;
        let manifest = enact::write_status(target, &recorded, &facts).await?;
        let (retry, again) = std::mem::take(&mut known.retry).after(judgement.class, desired, Instant::now());
        known.retry = retry;
        Ok(ManifestReport { manifest, again })
    }
}

/// Objects of modules, marked and serialised once for all runtimes that have them.
#[derive(Debug, Default)]
pub struct Modules(Mutex<BTreeMap<Oid, CompleteModule>>);

/// Trees that are kept serialised: a landscape has some hundred versions in use.
const MODULES_MAX: usize = 2_000;

// === impl Modules ===

impl Modules {
    fn get(&self, tree: Oid) -> Option<CompleteModule> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&tree).cloned()
    }

    fn put(&self, tree: Oid, module: CompleteModule) -> CompleteModule {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MODULES_MAX {
            // Those that no runtime holds go first.
            known.retain(|_, module| Arc::strong_count(module.objects()) > 1);
        }
        known.entry(tree).or_insert(module).clone()
    }
}
