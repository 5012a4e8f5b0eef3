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

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    controller::{
        Context,
        events::{Severity, reason},
        status_body,
    },
    runtime::objects::{self, Applied, Failed, concerns_all},
};
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{
    api::{
        Manifest,
        manifest::ManifestStatus,
        names::{FIELD_MANAGER, MANAGED_BY_SKR, annotation, label},
        shared::{CustomResourcePolicy, State},
    },
    changes::{Changes, Desired, Verdict},
    conditions, definition,
    health::{self, Health},
    inventory::Inventory,
    landscape,
    name::Key,
    object::{Digest, Gvk, Object, ObjectId},
    plan::InstallSource,
    render::{Mark, SharedObject, SharedObjects},
    revision::Oid,
    status::{self, ManifestFacts, ManifestOutcome},
};
use tidegate_process::{
    ambient,
    retry::{self, Class},
};

mod remove;

pub(crate) use remove::abandon;

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

/// What a process remembers of a Manifest between passes.
#[derive(Debug, Default)]
pub(crate) struct KnownManifest {
    /// Which Manifest: one that is made anew has the name of the former, and nothing else of it.
    uid: Option<String>,
    applied: Option<Applied>,
    /// What has left the module and stays: nobody asks for it again before a look for drift does.
    kept: BTreeSet<ObjectId>,
    /// Passes in a row that did not end well.
    attempt: u32,
    /// What the last pass wanted, and until when it need not be tried again.
    waiting: Option<(Digest, Instant)>,
    /// Whether the last pass has begun to write the status. If it failed, what the status says now is not known.
    wrote: bool,
}

/// How a pass ended.
pub(crate) struct ManifestReport {
    /// The Manifest, with the status that was written.
    pub(crate) manifest: Arc<Manifest>,
    /// When to go again, if unasked.
    pub(crate) again: Option<Duration>,
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
    memory: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    let cause = origin(target, manifest);
    let target = &ApplyTarget { cause: &cause, ..*target };
    memory.wrote = false;
    if manifest.metadata.deletion_timestamp.is_some() {
        return remove::reconcile(target, manifest, memory).await;
    }
    if is_skipped(manifest) {
        return Ok(ManifestReport { manifest: Arc::clone(manifest), again: None });
    }
    let recorded = recorded(manifest);
    let objects = match objects_of(target, manifest).await {
        Ok(objects) => objects,
        // What is recorded of just this specification stands, whether or not its objects can be read at the moment.
        Err(_) if target.live.is_none() && recorded.is_some_and(|digest| stands(manifest, digest)) => {
            return Ok(ManifestReport { manifest: Arc::clone(manifest), again: None });
        }
        Err(unavailable) => return source_unavailable(target, manifest, memory, &unavailable).await,
    };
    let desired = desired_digest(&objects, manifest);
    if let Some(again) = memory.rest(&desired).filter(|_| target.live.is_none()) {
        return Ok(ManifestReport { manifest: Arc::clone(manifest), again: Some(again) });
    }
    let mut applied = Applied::before(&objects, memory.applied.take(), recorded, &desired);
    let result = bring(target, manifest, &objects, desired, memory, &mut applied).await;
    // Whatever became of the pass: what is missing is still known to be.
    memory.applied = Some(applied);
    result
}

/// Looks for drift if that is asked for, and does what is to be done.
async fn bring(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    objects: &Arc<SharedObjects>,
    desired: Digest,
    memory: &mut KnownManifest,
    applied: &mut Applied,
) -> Result<ManifestReport, Error> {
    if let Some(live) = target.live {
        let suspects = applied.look(live);
        objects::compare(target.cluster, &landscape::key(&manifest.metadata), live, applied, suspects).await?;
    }
    let owned = Inventory::of(manifest.status.as_ref().map(|status| status.synced.as_slice()).unwrap_or_default());
    let wanted: Inventory =
        objects.objects.iter().map(|object| (object.id.clone(), Arc::clone(&object.gvk.version))).collect();
    let changes = Changes::between(&Desired::complete(wanted), &owned);
    if applied.is_complete()
        && changes.prune.iter().all(|prune| memory.kept.contains(&prune.id))
        && stands(manifest, &desired.to_string())
        && target.live.is_none()
    {
        memory.settle();
        return Ok(ManifestReport { manifest: Arc::clone(manifest), again: None });
    }
    let pass = ManifestPass { target, manifest, objects, desired, owned };
    pass.run(memory, applied, &changes).await
}

/// Digest of what was applied for just this specification. While another one is applied, what is recorded of an earlier
/// one says nothing: the runtime may hold some of both, and the earlier may come back before all of the other is there.
fn recorded(manifest: &Manifest) -> Option<&str> {
    let status = manifest.status.as_ref()?;
    let condition = conditions::find(&status.conditions, conditions::APPLIED)?;
    let is_of_this = condition.observed_generation == manifest.metadata.generation;
    conditions::message(&status.conditions, conditions::APPLIED).filter(|_| is_of_this)
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
    objects: &'a Arc<SharedObjects>,
    desired: Digest,
    owned: Inventory,
}

// === impl KnownManifest ===

impl KnownManifest {
    /// The memory of this very Manifest.
    pub(crate) fn of(self, manifest: &Manifest) -> KnownManifest {
        let uid = manifest.metadata.uid.clone();
        if self.uid == uid { self } else { KnownManifest { uid, ..KnownManifest::default() } }
    }

    /// Whether the pass that failed may have written the status.
    pub(crate) fn leaves_doubt(&self) -> bool {
        self.wrote
    }

    /// How long to wait before trying again what failed, unless there is news.
    fn rest(&self, desired: &Digest) -> Option<Duration> {
        let (wanted, until) = self.waiting.as_ref()?;
        let left = until.saturating_duration_since(Instant::now());
        (wanted == desired && !left.is_zero()).then_some(left)
    }

    fn settle(&mut self) {
        self.attempt = 0;
        self.waiting = None;
    }

    /// Notes that a pass did not end well. Returns when to try again.
    fn postpone(&mut self, class: Class, desired: Digest) -> Duration {
        self.attempt = self.attempt.saturating_add(1);
        let delay = match class {
            // Workloads are mostly ready within a second; the looks slow down while they are not.
            Class::Waiting => retry::backoff(READINESS_LOOK_MIN, retry::DEPENDENCY_POLL_MAX, self.attempt),
            Class::Stalled | Class::Transient => retry::delay(class, self.attempt, RETRY_STALLED),
        };
        // By a clock that nobody sets: a wait must not become one of hours.
        self.waiting = Some((desired, Instant::now() + delay));
        delay
    }
}

/// First look at a workload that is not ready yet.
const READINESS_LOOK_MIN: Duration = Duration::from_millis(250);
/// When to look again for a source that this process has not read yet.
const SOURCE_LOOK: Duration = Duration::from_secs(1);
/// How often what only a change can help is tried all the same: somebody may have mended it in the runtime.
const RETRY_STALLED: Duration = Duration::from_secs(300);

// === impl ManifestPass ===

impl ManifestPass<'_> {
    async fn run(
        self,
        memory: &mut KnownManifest,
        applied: &mut Applied,
        changes: &Changes,
    ) -> Result<ManifestReport, Error> {
        let target = self.target;
        let missing = applied.missing();
        let strangers = self.strangers(applied, &missing).await?;
        let sent: Vec<usize> =
            missing.into_iter().filter(|&index| !strangers.contains_key(&applied.objects.objects[index].id)).collect();
        let recorded = self.record(memory, applied, &sent).await?;
        let key = landscape::key(&self.manifest.metadata);
        let failed = objects::send(target.cluster, target.cause, &key, applied, &sent).await?;
        let inventory =
            Inventory::of(recorded.status.as_ref().map(|status| status.synced.as_slice()).unwrap_or_default());
        // What takes the place of something goes before it.
        let (inventory, pruning) = if failed.is_empty() && strangers.is_empty() {
            prune(target, &recorded, changes, inventory).await?
        } else {
            (inventory, PruneReport::default())
        };
        memory.kept = pruning.kept.iter().cloned().collect();
        if let Some(id) = pruning.kept.first() {
            let others = more(pruning.kept.len());
            let note = format!(
                "{id} has left the module and stays{others}; to let it go, annotate it with {}=enabled",
                annotation::PRUNE
            );
            target.context.events.publish(&**self.manifest, Severity::Normal, reason::KEPT, "Prune", note);
        }
        let resource = self.module_resource(&recorded).await?;
        let (outcome, class) = self.judge(&strangers, &failed, &pruning, resource).await?;
        let complete = applied.is_complete();
        if let Some((id, whose)) = strangers.iter().next() {
            let note = format!("{id} exists and is not ours: {whose}");
            target.context.events.publish(&**self.manifest, Severity::Warning, reason::CONFLICT, "Apply", note);
        }
        let facts = ManifestFacts {
            outcome,
            synced: inventory.to_synced(),
            applied: complete.then_some(self.desired),
            module_resource: resource,
            requested: requested(&recorded),
        };
        memory.wrote = true;
        let manifest = store_status(target, &recorded, &facts).await?;
        let again = match class {
            Some(class) => Some(memory.postpone(class, self.desired)),
            None => {
                memory.settle();
                None
            }
        };
        Ok(ManifestReport { manifest, again })
    }

    /// Objects that we never recorded and that exist without our mark, with the names of their managers.
    async fn strangers(&self, applied: &Applied, missing: &[usize]) -> Result<BTreeMap<ObjectId, String>, Error> {
        let unrecorded: Vec<&SharedObject> = missing
            .iter()
            .map(|&index| &applied.objects.objects[index])
            .filter(|object| !self.owned.contains(&object.id) && !object.adopt)
            .collect();
        if unrecorded.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut strangers: BTreeMap<ObjectId, String> = unrecorded
            .iter()
            .filter_map(|object| Some((object.id.clone(), self.sibling_with(&object.id)?)))
            .map(|(id, sibling)| (id, format!("it belongs to Manifest {sibling}")))
            .collect();
        let asked = unrecorded.iter().filter(|object| !strangers.contains_key(&object.id));
        let found = self.target.cluster.survey(asked.map(|object| (&object.gvk, &object.id))).await?;
        strangers.extend(
            found
                .into_iter()
                .filter(|(_, metadata)| !was_unmanaged(self.manifest, metadata))
                .filter_map(|(id, metadata)| whose(self.target, self.manifest, &metadata).map(|whose| (id, whose))),
        );
        Ok(strangers)
    }

    /// The Manifest of the same runtime that has an object, or brings it as well and comes first.
    fn sibling_with(&self, id: &ObjectId) -> Option<String> {
        let own = &self.manifest.metadata.name;
        let mut is_before = true;
        for sibling in self.target.manifests {
            if sibling.metadata.name == *own {
                is_before = false;
                continue;
            }
            let has = || {
                let synced = sibling.status.as_ref().map(|status| status.synced.as_slice()).unwrap_or_default();
                Inventory::of(synced).contains(id)
            };
            let brings = || {
                let source = InstallSource::try_from(&sibling.spec.install.source).ok();
                let objects = source.and_then(|InstallSource::Git { tree, .. }| self.target.context.modules.get(tree));
                objects.is_some_and(|objects| objects.objects.iter().any(|object| object.id == *id))
            };
            let stays = sibling.metadata.deletion_timestamp.is_none();
            if has() || (is_before && stays && brings()) {
                return sibling.metadata.name.clone();
            }
        }
        None
    }

    /// Writes the inventory with everything that is about to exist.
    async fn record(
        &self,
        memory: &mut KnownManifest,
        applied: &Applied,
        sent: &[usize],
    ) -> Result<Arc<Manifest>, Error> {
        let coming: Inventory = sent
            .iter()
            .map(|&index| &applied.objects.objects[index])
            .map(|object| (object.id.clone(), Arc::clone(&object.gvk.version)))
            .collect();
        let union = self.owned.union(&coming);
        if union == self.owned {
            return Ok(Arc::clone(self.manifest));
        }
        let facts = ManifestFacts {
            outcome: ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()),
            synced: union.to_synced(),
            applied: None,
            module_resource: None,
            requested: None,
        };
        memory.wrote = true;
        store_status(self.target, self.manifest, &facts).await
    }

    /// Creates the default custom resource once. Returns whether it was created; none if that is not ours.
    async fn module_resource(&self, manifest: &Manifest) -> Result<Option<bool>, Error> {
        let Some(resource) = module_resource(manifest) else { return Ok(None) };
        if is_resource_created(manifest) {
            return Ok(Some(true));
        }
        let Some(kind) = self.target.cluster.kind(&resource.gvk()).await? else { return Ok(Some(false)) };
        let body = Bytes::from(resource.value().to_string());
        let id = kind.id(&Key::new(resource.namespace(), resource.name()));
        match self.target.cluster.create(self.target.cause, &kind, &id, body).await {
            // A user's own counts: it was there, and it is never updated by us.
            Ok(_) | Err(Error::Exists { .. }) => Ok(Some(true)),
            Err(error) if concerns_all(&error) => Err(error),
            Err(error) => {
                tracing::warn!(object = %id, error = %error, "default custom resource cannot be created yet");
                Ok(Some(false))
            }
        }
    }

    /// What the pass came to, and what can help if it did not end well.
    async fn judge(
        &self,
        strangers: &BTreeMap<ObjectId, String>,
        failed: &[Failed],
        pruning: &PruneReport,
        resource: Option<bool>,
    ) -> Result<(ManifestOutcome, Option<Class>), Error> {
        if let Some((id, whose)) = strangers.iter().next() {
            let more = more(strangers.len());
            let message = format!(
                "{id} exists and is not ours: {whose}{more}; remove it, or annotate it in the module with {}: \"true\" to take it over",
                annotation::ADOPT
            );
            return Ok((ManifestOutcome::Failed(message), Some(Class::Stalled)));
        }
        if let Some(first) = failed.first() {
            let class = failed.iter().filter_map(|failed| failed.error.as_ref()).map(Error::class).max();
            let message = format!("{}{}", first.message, more(failed.len()));
            return Ok((ManifestOutcome::Failed(message), Some(class.unwrap_or(Class::Transient))));
        }
        if resource == Some(false) {
            return Ok((
                ManifestOutcome::Waiting("waiting until the module CR can be created".to_owned()),
                Some(Class::Waiting),
            ));
        }
        let health = self.health().await?;
        let waiting = (!pruning.is_finished()).then_some(Class::Waiting);
        Ok(match health.state {
            State::Ready | State::Warning => (ManifestOutcome::Ready, waiting),
            State::Error => (ManifestOutcome::Failed(health.message), Some(Class::Waiting)),
            State::Processing | State::Deleting | State::Unknown | State::Unmanaged => {
                (ManifestOutcome::Waiting(status::WAITING_FOR_RESOURCES.to_owned()), Some(Class::Waiting))
            }
        })
    }

    /// How the workloads fare: the module's manager if it names one, else all of them.
    async fn health(&self) -> Result<Health, Error> {
        let manager = self.manifest.spec.manager.as_ref();
        let mut all: Vec<(String, Health)> = Vec::new();
        let workloads: Vec<(Gvk, Key)> = match manager {
            Some(manager) => vec![(
                Gvk::new(&manager.group, &manager.version, &manager.kind),
                Key::new(manager.namespace.as_deref().unwrap_or_default(), &manager.name),
            )],
            None => self
                .objects
                .objects
                .iter()
                .filter(|object| is_workload(&object.id))
                .map(|object| (object.gvk.clone(), Key::new(&object.id.namespace, &object.id.name)))
                .collect(),
        };
        for (gvk, key) in workloads {
            let name = format!("{} {key}", gvk.kind);
            let health = match self.target.cluster.kind(&gvk).await? {
                None => Health::processing(format!("{gvk} is not served yet")),
                Some(kind) => match self.target.cluster.get(&kind, &key).await? {
                    Some(object) => health::of(object.value()),
                    None => Health::processing(format!("{name} is not there yet")),
                },
            };
            all.push((name, health));
        }
        Ok(health::worst(all.iter().map(|(name, health)| (name.as_str(), health))))
    }
}

/// What pruning came to.
#[derive(Default)]
struct PruneReport {
    /// Objects that are being deleted, or that could not be.
    waiting: Vec<ObjectId>,
    /// Objects that stay although they are no longer wanted.
    kept: Vec<ObjectId>,
}

impl PruneReport {
    fn is_finished(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Deletes what `changes` names and what bears our mark, on condition that it is still the same. Returns the inventory
/// without what is gone.
async fn prune(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    changes: &Changes,
    inventory: Inventory,
) -> Result<(Inventory, PruneReport), Error> {
    let results = target
        .cluster
        .prune(target.cause, &changes.prune, &|metadata| whose(target, manifest, metadata).is_none())
        .await;
    let (mut gone, mut pruning) = (Vec::new(), PruneReport::default());
    for pruned in results {
        if pruned.is_settled() {
            gone.push(pruned.id);
            continue;
        }
        match pruned.result {
            // They stay, with their entry in the inventory, until someone decides.
            Ok(Verdict::Disabled | Verdict::Guarded) => pruning.kept.push(pruned.id),
            Ok(Verdict::Delete | Verdict::Wait | Verdict::Gone | Verdict::Foreign) => pruning.waiting.push(pruned.id),
            Err(error) if concerns_all(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(object = %pruned.id, error = %error, "object cannot be pruned yet");
                pruning.waiting.push(pruned.id);
            }
        }
    }
    Ok((inventory.without(&gone), pruning))
}

/// Whose an object is; none if it is ours: it bears the mark, and names this Manifest or one of this runtime that is gone.
fn whose(target: &ApplyTarget<'_>, manifest: &Manifest, metadata: &Metadata) -> Option<String> {
    let managers = || match metadata.managers.as_slice() {
        [] => "it has no field manager".to_owned(),
        names => format!("managed by {}", names.join(", ")),
    };
    if metadata.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) {
        return Some(managers());
    }
    let owner = metadata.annotation(annotation::OWNED_BY).filter(|_| !names_owner(manifest, metadata))?;
    let Ok(key) = owner.parse::<Key>() else { return Some(managers()) };
    let present = || target.manifests.iter().any(|sibling| landscape::key(&sibling.metadata) == key);
    if present() || target.context.stores.manifest(&key).is_some() {
        return Some(format!("it belongs to Manifest {}", key.name()));
    }
    // What every runtime has names its Kyma; Manifests bear the names of their Kyma and module.
    let kyma = landscape::label(&manifest.metadata, label::KYMA_NAME).unwrap_or_default();
    let of_this_runtime = Some(key.namespace()) == manifest.metadata.namespace.as_deref()
        && key.name().strip_prefix(kyma).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    (!of_this_runtime).then(|| format!("it belongs to {key}, which this control plane does not have"))
}

fn names_owner(manifest: &Manifest, metadata: &Metadata) -> bool {
    metadata.annotation(annotation::OWNED_BY) == Some(landscape::key(&manifest.metadata).to_string().as_str())
}

/// Whether an object lost its mark by our own hand, when its module was handed to the user, who now hands it back.
fn was_unmanaged(manifest: &Manifest, metadata: &Metadata) -> bool {
    metadata.label(label::MANAGED_BY).is_none()
        && names_owner(manifest, metadata)
        && metadata.has_manager(FIELD_MANAGER)
}

/// The objects that a Manifest names, shared by all runtimes that have them.
async fn objects_of(target: &ApplyTarget<'_>, manifest: &Manifest) -> Result<Arc<SharedObjects>, String> {
    let InstallSource::Git { source, path, tree } =
        InstallSource::try_from(&manifest.spec.install.source).map_err(|error| error.to_string())?;
    let context = target.context;
    if let Some(objects) = context.modules.get(tree) {
        return Ok(objects);
    }
    let read = context.sources.module_objects(&source, tree, &path).await.map_err(|error| error.to_string())?;
    let objects = read.objects.iter().map(|object| &object.object);
    Ok(context.modules.put(tree, SharedObjects::new(objects, Mark::Module, &|_| None)))
}

async fn source_unavailable(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    memory: &mut KnownManifest,
    message: &str,
) -> Result<ManifestReport, Error> {
    let source = InstallSource::try_from(&manifest.spec.install.source).ok();
    let is_expected =
        |key: &Key| target.context.stores.source(key).is_some() && !target.context.sources.is_visited(key);
    if source.is_some_and(|InstallSource::Git { source, .. }| is_expected(&source)) {
        // A new process has not come to it yet; whoever reads it wakes the runtime.
        return Ok(ManifestReport { manifest: Arc::clone(manifest), again: Some(SOURCE_LOOK) });
    }
    let facts = ManifestFacts {
        outcome: ManifestOutcome::SourceUnavailable(message.to_owned()),
        synced: manifest.status.as_ref().map(|status| status.synced.clone()).unwrap_or_default(),
        applied: None,
        module_resource: None,
        requested: None,
    };
    let manifest = store_status(target, manifest, &facts).await?;
    memory.attempt = memory.attempt.saturating_add(1);
    Ok(ManifestReport { manifest, again: Some(retry::delay(Class::Transient, memory.attempt, RETRY_STALLED)) })
}

/// Writes the status if it differs. Returns the Manifest with it.
async fn store_status(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    facts: &ManifestFacts,
) -> Result<Arc<Manifest>, Error> {
    let next = status::manifest(manifest, facts, ambient::now());
    if manifest.status.as_ref() == Some(&next) {
        return Ok(Arc::clone(manifest));
    }
    let kind = Kind::namespaced::<Manifest>();
    let key = landscape::key(&manifest.metadata);
    let body = status_body("Manifest", &key, &next);
    let metadata = target.context.kcp.apply_status(target.cause, &kind, &kind.id(&key), body).await?;
    Ok(Arc::new(with_status(manifest, next, &metadata)))
}

fn with_status(manifest: &Manifest, status: ManifestStatus, metadata: &Metadata) -> Manifest {
    let mut manifest = manifest.clone();
    manifest.status = Some(status);
    manifest.metadata.resource_version = Some(metadata.resource_version.clone());
    manifest
}

/// Digest of everything that a Manifest wants in its runtime.
fn desired_digest(objects: &SharedObjects, manifest: &Manifest) -> Digest {
    // The manager only says what is looked at, but a change of it must be looked at.
    let manager = serde_json::to_value(&manifest.spec.manager).unwrap_or_default();
    Digest::all([&objects.digest, &Digest::of(&manager)])
}

/// Whether the status says that everything is as desired.
fn stands(manifest: &Manifest, desired: &str) -> bool {
    let Some(status) = &manifest.status else { return false };
    status.state == State::Ready
        && recorded(manifest) == Some(desired)
        && (module_resource(manifest).is_none() || is_resource_created(manifest))
        && !is_asked_for(manifest)
}

/// Whether somebody asked for a look, and has not got it yet.
pub(crate) fn is_asked_for(manifest: &Manifest) -> bool {
    let conditions = manifest.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let handled = conditions::message(conditions, conditions::RECONCILE_REQUESTED);
    let is_at_work = manifest.metadata.deletion_timestamp.is_none() && !is_skipped(manifest);
    is_at_work && requested(manifest).is_some_and(|requested| Some(requested.as_str()) != handled)
}

fn requested(manifest: &Manifest) -> Option<String> {
    landscape::annotation(&manifest.metadata, annotation::RECONCILE_REQUESTED_AT).map(str::to_owned)
}

fn is_skipped(manifest: &Manifest) -> bool {
    landscape::label(&manifest.metadata, label::SKIP_RECONCILIATION) == Some("true")
}

/// The default custom resource, if it is ours to make.
fn module_resource(manifest: &Manifest) -> Option<Object> {
    match manifest.spec.custom_resource_policy {
        CustomResourcePolicy::Ignore => None,
        CustomResourcePolicy::CreateAndDelete => Object::new(manifest.spec.resource.clone()?).ok(),
    }
}

fn is_resource_created(manifest: &Manifest) -> bool {
    manifest.status.as_ref().is_some_and(|status| conditions::message(&status.conditions, "ModuleCR").is_some())
}

fn is_workload(id: &ObjectId) -> bool {
    &*id.group == "apps" && matches!(&*id.kind, "Deployment" | "StatefulSet" | "DaemonSet")
}

fn more(count: usize) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

/// Whether nothing of ours holds a Manifest any more that is being deleted.
pub(crate) fn is_released(manifest: &Manifest) -> bool {
    manifest.metadata.deletion_timestamp.is_some() && manifest.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
}

/// Objects of modules, marked and serialised once for all runtimes that have them.
#[derive(Debug, Default)]
pub struct Modules(Mutex<BTreeMap<Oid, Arc<SharedObjects>>>);

/// Trees that are kept serialised: a landscape has some hundred versions in use.
const MODULES_MAX: usize = 2_000;

impl Modules {
    fn get(&self, tree: Oid) -> Option<Arc<SharedObjects>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&tree).cloned()
    }

    fn put(&self, tree: Oid, objects: SharedObjects) -> Arc<SharedObjects> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MODULES_MAX {
            // Those that no runtime holds go first.
            known.retain(|_, objects| Arc::strong_count(objects) > 1);
        }
        Arc::clone(known.entry(tree).or_insert_with(|| Arc::new(objects)))
    }
}

#[cfg(test)]
mod tests;
