//! One pass over a Manifest: the objects of one module in one runtime.
//!
//! A pass takes these steps: it reads the objects, records them in the inventory, applies missing ones, prunes unwanted
//! ones, creates the default custom resource once, checks the workloads, and writes the status if it differs. It may be
//! dropped at any `await` and run again. The inventory grows before the first write and shrinks after the last one, so
//! each live object is recorded.
//!
//! The queue has no work for a Manifest: this pass is part of the pass over its runtime (see [`crate::runtime`]). It
//! refuses to apply an object that exists without our ownership label. It prunes nothing while the objects cannot be
//! read. It sends nothing to a runtime for a Manifest that is as recorded.
//!
//! `state` is what is known between passes, `recorded` what the Manifest in KCP says, `ownership` who owns an object,
//! and `inject` what the landscape puts into objects. `decide` is what to do, `default_resource` how the default custom
//! resource comes to exist, and `enact` sends the requests. `read` joins them for the objects and `workloads` for the
//! workloads; `recreate` does what follows from an immutable field. This file joins all of it.

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc, time::Duration};

use tidegate_cluster::{Cause, Cluster, Error};
use tidegate_core::{
    api::{Manifest, names::label},
    changes::Prune,
    definition, landscape,
    name::Key,
    object::Digest,
    render::CompleteModule,
    status::{ManifestFacts, ManifestOutcome},
};
use tidegate_process::ambient;
use tokio::time::Instant;

use crate::runtime::{
    RuntimeContext,
    objects::{self, Applied, Failed, Filling, LiveObjects},
};

mod decide;
mod default_resource;
mod enact;
mod in_use;
mod inject;
mod module_cache;
mod ownership;
mod read;
mod recorded;
mod recreate;
mod remove;
mod state;
mod workloads;

pub(crate) use decide::OF_TWO_MODULES;
pub(crate) use in_use::{definitions_in_use, former_defaults, module_in_use};
pub(crate) use module_cache::ModuleCache;
pub(crate) use ownership::OwnershipClaim;
pub(crate) use recorded::{has_all_of, is_as_recorded, is_asked_for, is_released, is_skipped, is_unmanaged};
pub(crate) use remove::{abandon, end, release_finalizers};
pub(crate) use state::KnownManifest;

use decide::{FoundResource, ModuleResource, NotRead, Observed, PruneReport, Resting, Start, Unavailable, Work};
use default_resource::{ResourceStep, SeenResource, WantedResource};
use ownership::{Conflicts, Ownership};
use state::{InstalledObjects, Retry, StatusWrite};

/// The runtime of a pass.
pub(crate) struct ApplyTarget<'a> {
    /// What passes over runtimes use of the daemon.
    pub(crate) context: RuntimeContext<'a>,
    /// The client of the runtime.
    pub(crate) cluster: &'a Cluster,
    /// Why the pass writes, for the audit.
    pub(crate) cause: &'a Cause,
    /// The live objects, if this pass checks all of them.
    pub(crate) live: Option<&'a LiveObjects>,
    /// All Manifests of the runtime, in the order of modules. If two of them have one object, the first one owns it.
    pub(crate) manifests: &'a [Arc<Manifest>],
    /// The modules that the Kyma in the runtime shows as installed. It keeps its status when a Manifest loses its own.
    /// So while it shows a module, the default custom resource of the module is not deleted.
    pub(crate) installed: &'a BTreeSet<String>,
}

/// What the objects of a Manifest are applied for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Its module is installed.
    Install,
    /// Its module is removed, but must work until custom resources are gone. Contains the message. Nothing is pruned,
    /// and no custom resource is created.
    Keep(String),
}

/// A Manifest after a pass.
pub(crate) struct ManifestReport {
    /// The Manifest, with the status that was written.
    pub(crate) manifest: Arc<Manifest>,
    /// When to start the next pass, if nothing else does.
    pub(crate) again: Option<Duration>,
    /// Whether its objects are still being read from a registry.
    pub(crate) is_waiting: bool,
}

// === impl ApplyTarget ===

impl ApplyTarget<'_> {
    /// Whether the Kyma in the runtime shows the module of a Manifest as installed.
    fn has_installed(&self, manifest: &Manifest) -> bool {
        landscape::label(&manifest.metadata, label::MODULE_NAME).is_some_and(|module| self.installed.contains(module))
    }

    /// What the objects of a Manifest, their owner, are filled with.
    fn filling<'a>(&'a self, owner: &'a Key) -> Filling<'a> {
        Filling { owner, kcp: self.context.kcp }
    }

    /// The name of the image pull Secret that Tidegate keeps in every runtime, if one is configured.
    fn pull_secret(&self) -> Option<&str> {
        self.context.settings.plan.pull_secret.as_deref()
    }

    /// Whether the control plane has a Manifest, of another module than `manifest`.
    fn exists_elsewhere(&self, manifest: &Manifest, key: &Key) -> bool {
        let other = self.context.stores.manifest(key);
        other.is_some_and(|other| !ownership::is_of_same_module(manifest, &other))
    }

    /// Whether this pass checks all objects of the runtime.
    fn checks(&self) -> bool {
        self.live.is_some()
    }
}

// === impl ManifestReport ===

impl ManifestReport {
    /// The report of a pass that left the Manifest as it was.
    fn unchanged(manifest: &Arc<Manifest>, again: Option<Duration>) -> ManifestReport {
        ManifestReport { manifest: Arc::clone(manifest), again, is_waiting: false }
    }
}

/// Applies and prunes the objects of a Manifest.
///
/// # Errors
///
/// An error that concerns the runtime or KCP as a whole. The status reports failures of single objects.
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
        Start::Apply => match read::objects(target, manifest).await {
            Ok(module) => apply(target, manifest, &module, known, Purpose::Install).await,
            Err(NotRead::Pending) => {
                Ok(ManifestReport { is_waiting: true, ..ManifestReport::unchanged(manifest, None) })
            }
            Err(NotRead::Failed { message, is_retried, is_away }) => {
                let is_expected = read::is_expected(target, manifest);
                match decide::unavailable(manifest, target.checks(), is_expected, is_away) {
                    Unavailable::Leave => {
                        enact::publish(target, manifest, decide::unchecked_note(target.checks()));
                        Ok(ManifestReport::unchanged(manifest, None))
                    }
                    Unavailable::TryAgain(delay) => Ok(ManifestReport::unchanged(manifest, Some(delay))),
                    Unavailable::Report => report_unavailable(target, manifest, &message, is_retried, known).await,
                }
            }
            Err(NotRead::Refused(message)) => report_unavailable(target, manifest, &message, false, known).await,
        },
    }
}

/// Writes into the status why nothing can be done for a Manifest. Returns the Manifest with its status.
///
/// # Errors
///
/// The error of the request.
pub(crate) async fn block(
    kcp: &Cluster,
    cause: &Cause,
    manifest: &Arc<Manifest>,
    why: &str,
) -> Result<Arc<Manifest>, Error> {
    match decide::blocked_facts(manifest, why) {
        Some(facts) => write_status_to(kcp, cause, manifest, &facts).await,
        None => Ok(Arc::clone(manifest)),
    }
}

/// Writes into the status of a Manifest what the one that it follows has in the runtime, and returns it.
///
/// # Errors
///
/// The error of the request.
pub(crate) async fn inherit(
    kcp: &Cluster,
    cause: &Cause,
    successor: &Arc<Manifest>,
    former: &Manifest,
) -> Result<Arc<Manifest>, Error> {
    let facts = decide::inherited_facts(successor, former);
    write_status_to(kcp, cause, &decide::without_record(successor), &facts).await
}

/// The objects cannot be read, so the pass changes nothing in the runtime.
async fn report_unavailable(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    message: &str,
    is_retried: bool,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    let facts = decide::unavailable_facts(manifest, message);
    let manifest = write_status(target, manifest, &facts).await?;
    let (retry, again) = std::mem::take(&mut known.retry).after_unavailable();
    known.retry = retry;
    // The end of the retry wakes the runtime.
    Ok(ManifestReport::unchanged(&manifest, (!is_retried).then_some(again)))
}

/// Applies the objects, unless a failed apply rests.
async fn apply(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    module: &CompleteModule,
    known: &mut KnownManifest,
    purpose: Purpose,
) -> Result<ManifestReport, Error> {
    let desired = decide::desired_digest(module.objects(), manifest);
    let tried = decide::tried(&desired, manifest, target.manifests);
    if let Some(again) = decide::rest(&known.retry, &purpose, &tried, Instant::now()).filter(|_| !target.checks()) {
        return Ok(ManifestReport::unchanged(manifest, Some(again)));
    }
    let recorded = recorded::digest(manifest);
    let is_new = known.installed.is_none();
    let mut installed = InstalledObjects::before(module, known.installed.take(), recorded, &desired);
    // The record of another generation says nothing of single objects, but that an earlier process applied some.
    installed.applied.follows_another |= is_new && recorded::was_applied(manifest);
    let result = apply_known(target, manifest, desired, &mut installed, known, purpose).await;
    // Missing objects stay known as missing even if the pass failed.
    known.installed = Some(installed);
    result
}

/// Checks the live objects if this pass does so, then applies and prunes what differs.
async fn apply_known(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    desired: Digest,
    installed: &mut InstalledObjects,
    known: &mut KnownManifest,
    purpose: Purpose,
) -> Result<ManifestReport, Error> {
    let owner = landscape::key(&manifest.metadata);
    let (filling, applied) = (target.filling(&owner), &mut installed.applied);
    let repairs = (&mut known.repairs, target.context.settings.drift_repair_pause_max);
    let undone = objects::check_repairs(target.cluster, filling, target.live, applied, repairs).await?;
    undone.iter().for_each(|undone| target.context.report_undone(&owner, undone));
    let resting = Resting { repairs: &known.repairs, now: Instant::now() };
    let work = match &purpose {
        Purpose::Install => decide::work(manifest, installed, &desired, target.checks(), resting),
        Purpose::Keep(_) => decide::keeping_work(manifest, installed, &desired, resting),
    };
    match (work, purpose) {
        (None, Purpose::Install) => {
            known.retry = Retry::Settled;
            Ok(ManifestReport::unchanged(manifest, None))
        }
        (None, Purpose::Keep(waiting)) => {
            let facts = decide::keeping_facts(manifest, ManifestOutcome::Deleting(waiting), None);
            remove::wait(target, manifest, known, facts).await
        }
        (Some(work), Purpose::Install) => ManifestPass { target, manifest, desired, work }.run(installed, known).await,
        (Some(work), Purpose::Keep(waiting)) => {
            ManifestPass { target, manifest, desired, work }.keep(waiting, installed, known).await
        }
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

/// A pass that has work to do.
struct ManifestPass<'a> {
    target: &'a ApplyTarget<'a>,
    manifest: &'a Arc<Manifest>,
    desired: Digest,
    work: Work,
}

/// What a pass has sent to a runtime.
struct SentObjects {
    /// The objects that have another owner.
    conflicts: Conflicts,
    /// All that exist and are not in the inventory.
    found: LiveObjects,
    /// Whether all objects were found as desired although the Manifest has no record of them.
    was_found: bool,
    /// The objects that were not applied.
    failed: Vec<Failed>,
    /// The Manifest with the inventory that was written before the apply.
    recorded: Arc<Manifest>,
}

// === impl ManifestPass ===

impl ManifestPass<'_> {
    /// Applies what is missing in a module that must work until custom resources are gone.
    async fn keep(
        self,
        waiting: String,
        installed: &mut InstalledObjects,
        known: &mut KnownManifest,
    ) -> Result<ManifestReport, Error> {
        let purpose = Purpose::Keep(waiting);
        let SentObjects { conflicts, failed, recorded, .. } = self.send(&purpose, installed, known).await?;
        let Self { target, manifest, desired, .. } = self;
        enact::publish(target, manifest, decide::conflict_note(&conflicts));
        enact::publish(target, manifest, decide::failure_note(&failed, decide::module_path(manifest)));
        let applied = installed.applied.is_complete().then_some(desired);
        let facts = decide::keeping_facts(&recorded, decide::outcome_before(&purpose), applied);
        known.status = StatusWrite::Begun;
        remove::wait(target, &recorded, known, facts).await
    }

    /// Finds the objects to apply that exist and have another owner; and all that exist and are not in the inventory.
    async fn find_conflicts(&self, applied: &Applied) -> Result<(Conflicts, LiveObjects), Error> {
        let (target, manifest) = (self.target, self.manifest);
        let exists = |key: &Key| target.exists_elsewhere(manifest, key);
        let ownership = Ownership { manifest, siblings: target.manifests, exists: &exists };
        let unrecorded = decide::unrecorded(manifest, applied, &self.work);
        let siblings: Vec<&Arc<Manifest>> = ownership.siblings_with(&unrecorded).collect();
        for sibling in siblings {
            // Afterwards it is known whether its module still contains them.
            let _ = read::objects(target, sibling).await;
        }
        let held = ownership.held_by_siblings(&unrecorded, |sibling| read::known_objects(target, sibling));
        let looked_up = ownership::to_look_up(&unrecorded, &held);
        let found = target.cluster.survey(looked_up.iter().map(|object| (&object.gvk, &object.id))).await?;
        Ok(ownership.settle(held, found))
    }

    /// Records what comes to exist, then applies what is missing and has no other owner.
    async fn send(
        &self,
        purpose: &Purpose,
        installed: &mut InstalledObjects,
        known: &mut KnownManifest,
    ) -> Result<SentObjects, Error> {
        let (target, manifest, work) = (self.target, self.manifest, &self.work);
        let (conflicts, found) = self.find_conflicts(&installed.applied).await?;
        let coming = decide::to_send(&installed.applied, work, &conflicts);
        let owner = landscape::key(&manifest.metadata);
        if decide::recognizes(purpose, manifest, &found) {
            objects::recognize(target.cluster, target.filling(&owner), &found, &mut installed.applied).await?;
        }
        let sent = decide::still_missing(&installed.applied, &coming);
        let outcome = decide::outcome_before(purpose);
        let recorded = match decide::facts_before(&installed.applied, work, &coming, &outcome) {
            Some(facts) => {
                known.status = StatusWrite::Begun;
                write_status(target, manifest, &facts).await?
            }
            None => Arc::clone(manifest),
        };
        let failed = enact::apply(target, &owner, &mut installed.applied, &sent, &found).await?;
        let was_found = decide::was_found(manifest, &coming, &sent);
        Ok(SentObjects { conflicts, found, was_found, failed, recorded })
    }

    /// Does the work in an order in which each live object is recorded.
    async fn run(self, installed: &mut InstalledObjects, known: &mut KnownManifest) -> Result<ManifestReport, Error> {
        let sent = self.send(&Purpose::Install, installed, known).await?;
        let SentObjects { conflicts, found, was_found, failed, recorded } = sent;
        let Self { target, manifest, desired, work } = self;
        let owner = landscape::key(&manifest.metadata);
        let failed = recreate::resolve(target, manifest, &owner, &mut installed.applied, failed).await?;
        let never_created = decide::never_created(manifest, &work.owned, &failed, &found);
        let unwanted = decide::to_prune(&work, &conflicts, &failed);
        let pruned = prune_unwanted(target, &recorded, unwanted).await?;
        installed.kept = pruned.kept.iter().cloned().collect();
        let was_installed = was_found && target.has_installed(manifest);
        let resource = decide::module_resource(&recorded, was_installed, manifest.status.is_some());
        let resource = create_resource(target, manifest, resource).await?;
        let path = decide::module_path(manifest);
        let observed = Observed { conflicts: &conflicts, failed: &failed, pruned: &pruned, resource: &resource, path };
        let (judgement, waits_for) = match decide::judge(&observed) {
            Some(judgement) => {
                let waits_for = decide::wait_before_workloads(&observed, &judgement);
                (judgement, waits_for)
            }
            None => {
                let of_module = workloads::decide::of_module(manifest, &installed.applied.objects);
                let health = workloads::check(target, of_module).await?;
                enact::publish(target, manifest, decide::workload_note(&health.worst));
                let waits_for = workloads::wait_fact(target, &recorded, &health).await?;
                (decide::judge_workloads(&health.worst, &pruned, known.repairs.sentence()), waits_for)
            }
        };
        enact::publish(target, manifest, decide::conflict_note(&conflicts));
        enact::publish(target, manifest, decide::undone_note(&known.repairs));
        let tried = decide::tried(&desired, manifest, target.manifests);
        let applied = installed.applied.is_complete().then_some(desired);
        let facts = decide::ending_facts(&recorded, &observed, judgement.outcome, applied, waits_for);
        let facts = ManifestFacts { not_created: Some(never_created), ..facts };
        known.status = StatusWrite::Begun;
        let manifest = write_status(target, &recorded, &facts).await?;
        let (retry, again) = std::mem::take(&mut known.retry).after(judgement.class, tried, Instant::now());
        known.retry = retry;
        let again = again.into_iter().chain(known.repairs.again(Instant::now())).min();
        Ok(ManifestReport::unchanged(&manifest, again))
    }
}

/// Prunes what is no longer part of an installed module. A CustomResourceDefinition stays while users have custom
/// resources of it, even if an annotation allows its deletion.
async fn prune_unwanted(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    unwanted: &[Prune],
) -> Result<PruneReport, Error> {
    let in_use = in_use::definitions_in_use(target.cluster, manifest, target.manifests, unwanted).await?;
    let mut pruned = enact::prune(target, manifest, &decide::without_used(unwanted, &in_use)).await?;
    enact::publish(target, manifest, decide::kept_note(&pruned));
    enact::publish(target, manifest, decide::in_use_note(&in_use));
    pruned.kept.extend(in_use.into_keys());
    Ok(pruned)
}

/// Writes the status if it differs. Returns the Manifest with it.
async fn write_status(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    facts: &ManifestFacts,
) -> Result<Arc<Manifest>, Error> {
    write_status_to(target.context.kcp, target.cause, manifest, facts).await
}

/// As [`write_status`], without access to the runtime.
async fn write_status_to(
    kcp: &Cluster,
    cause: &Cause,
    manifest: &Arc<Manifest>,
    facts: &ManifestFacts,
) -> Result<Arc<Manifest>, Error> {
    match decide::status_change(manifest, facts, ambient::now()) {
        Some(status) => enact::write_status(kcp, cause, manifest, status).await,
        None => Ok(Arc::clone(manifest)),
    }
}

/// Creates the default custom resource once. Returns whether it exists, and why not.
async fn create_resource(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    resource: ModuleResource,
) -> Result<FoundResource, Error> {
    let wanted = match WantedResource::new(resource, manifest, target.manifests) {
        ControlFlow::Break(found) => return Ok(found),
        ControlFlow::Continue(wanted) => wanted,
    };
    let gvk = wanted.object.gvk();
    let Some(kind) = target.cluster.kind(&gvk).await? else { return Ok(decide::unserved_resource(&gvk)) };
    let key = Key::new(wanted.object.namespace(), wanted.object.name());
    let id = kind.id(&key);
    let mut seen = wanted.unknown();
    loop {
        seen = match seen.next(&id) {
            ResourceStep::Look => SeenResource::Looked(target.cluster.get_metadata(&kind, &key).await?),
            ResourceStep::Create => enact::create_resource(target, &kind, &id, &wanted.object).await?,
            ResourceStep::Meet => SeenResource::Met(target.cluster.get_metadata(&kind, &key).await?),
            ResourceStep::End(found) => return Ok(found),
        };
    }
}
