//! The requests of a pass over a Manifest. `decide` says which requests, and what follows from the answers.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata, Pruned};
use tidegate_core::{
    api::{Manifest, names::KCP_NAMESPACE},
    changes::Prune,
    content::ContentId,
    health::{self, Health},
    landscape,
    name::Key,
    object::{Gvk, Object, ObjectId},
    plan::InstallSource,
    render::{CompleteModule, SharedObject, SharedObjects},
    status::{ManifestFacts, WaitFact},
};
use tidegate_process::ambient;

use super::{
    ApplyTarget, decide,
    decide::{Note, PruneReport, Work, Workload, WorkloadsHealth},
    default_resource::SeenResource,
    in_use, inject,
    ownership::{self, Conflicts, Owner, Ownership},
};
use crate::{
    components::{Objects, Waiting},
    controller::status_body,
    runtime::objects::{self, Applied, Failed, LiveObjects, concerns_all},
    stores::{kyma_of, secret::SourceSecret},
};

/// The objects of a Manifest, which runtimes share.
pub(super) enum ReadObjects {
    /// All of them.
    Ready(CompleteModule),
    /// They are being read from a registry.
    Pending,
    /// Their source is invalid or cannot be read.
    Failed {
        /// Why.
        message: String,
        /// Whether they are read again without this pass, whose runtime is then woken.
        is_retried: bool,
        /// Whether only their registry is away.
        is_away: bool,
    },
    /// They have been read, but one of them belongs to Tidegate, or what the landscape puts into them is missing or
    /// does not fit. Contains the reason.
    Refused(String),
}

/// Reads the objects of a Manifest, and puts into them what the landscape adds. Waits for no registry and no git
/// server.
pub(super) async fn read_objects(target: &ApplyTarget<'_>, manifest: &Manifest) -> ReadObjects {
    match InstallSource::try_from(&manifest.spec.install.source) {
        Err(error) => ReadObjects::Failed { message: error.to_string(), is_retried: false, is_away: false },
        Ok(source) => {
            let content = source.content(&manifest.spec.localized_images);
            match read_source(target, manifest, source).await {
                ReadObjects::Ready(module) => {
                    if let Some(message) = ownership::refusal(&module, target.pull_secret()) {
                        return ReadObjects::Refused(message);
                    }
                    match inject(target, manifest, content, &module).await {
                        Ok(module) => ReadObjects::Ready(module),
                        Err(message) => ReadObjects::Refused(message),
                    }
                }
                other => other,
            }
        }
    }
}

/// Puts into the objects of a Manifest what the landscape adds. Fails with one sentence.
async fn inject(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    content: ContentId,
    module: &CompleteModule,
) -> Result<CompleteModule, String> {
    let context = target.context;
    let settings = context.settings.plan;
    let mut versions = BTreeMap::new();
    for name in inject::sources(settings, manifest, module) {
        let found = find_source(target, name).await;
        versions.insert(name.to_owned(), inject::version(name, found)?);
    }
    let injection = inject::injection(settings, manifest, versions);
    context.shared.modules.injected(content, injection, module).map_err(|error| error.to_string())
}

/// A Secret in KCP whose data a Secret of a module gets. Sends a request only if the watch does not show it: it is
/// gone, or has lost its label.
async fn find_source(target: &ApplyTarget<'_>, name: &str) -> Result<Option<SourceSecret>, String> {
    if let Some(known) = target.context.stores.source_secret(name) {
        return Ok(Some(SourceSecret::clone(&known)));
    }
    let key = Key::new(KCP_NAMESPACE, name);
    let found = target.context.kcp.get_metadata(&Kind::namespaced::<Secret>(), &key).await;
    match found {
        Ok(found) => Ok(found.map(|found| inject::source_of(&found))),
        Err(error) => Err(error.to_string()),
    }
}

/// Applies objects, of which `found` were looked up. Returns those that were not applied.
pub(super) async fn apply(
    target: &ApplyTarget<'_>,
    owner: &Key,
    applied: &mut Applied,
    indices: &[usize],
    found: &LiveObjects,
) -> Result<Vec<Failed>, Error> {
    objects::apply(target.cluster, target.cause, target.filling(owner), applied, indices, found).await
}

async fn read_source(target: &ApplyTarget<'_>, manifest: &Manifest, source: InstallSource) -> ReadObjects {
    let context = target.context;
    let (source, path, tree) = match source {
        InstallSource::Oci(source) => {
            let kyma = kyma_of(&manifest.metadata).unwrap_or_else(|| landscape::key(&manifest.metadata));
            let images = manifest.spec.localized_images.as_slice();
            let waiting = Waiting { kyma: &kyma, trigger: decide::pending_trigger(target.checks()) };
            return match context.components.objects(&context.shared.modules, waiting, &source, images) {
                Objects::Ready(module) => ReadObjects::Ready(module),
                Objects::Pending => ReadObjects::Pending,
                Objects::Failed { message, is_away } => ReadObjects::Failed { message, is_retried: true, is_away },
            };
        }
        InstallSource::Git { source, path, tree } => (source, path, tree),
    };
    if let Some(objects) = context.shared.modules.get(tree.into()) {
        return ReadObjects::Ready(objects);
    }
    match context.sources.module_objects(&source, tree, &path).await {
        Ok(read) => ReadObjects::Ready(context.shared.modules.put(tree.into(), CompleteModule::new(&read))),
        Err(error) => ReadObjects::Failed { message: error.to_string(), is_retried: false, is_away: false },
    }
}

/// Whether this process will read the source of a Manifest but has not yet.
pub(super) fn is_expected(target: &ApplyTarget<'_>, manifest: &Manifest) -> bool {
    let source = InstallSource::try_from(&manifest.spec.install.source).ok();
    match source {
        Some(InstallSource::Git { source, .. }) => {
            target.context.stores.source(&source).is_some() && !target.context.sources.is_visited(&source)
        }
        Some(InstallSource::Oci(_)) | None => false,
    }
}

/// Finds the objects to apply that exist and have another owner; and all that exist and are not in the inventory.
pub(super) async fn find_conflicts(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    applied: &Applied,
    work: &Work,
) -> Result<(Conflicts, LiveObjects), Error> {
    let exists = |key: &Key| exists_elsewhere(target, manifest, key);
    let ownership = Ownership { manifest, siblings: target.manifests, exists: &exists };
    let unrecorded = decide::unrecorded(manifest, applied, work);
    let siblings: Vec<&Arc<Manifest>> = ownership.siblings_with(&unrecorded).collect();
    for sibling in siblings {
        // Afterwards it is known whether its module still contains them.
        read_objects(target, sibling).await;
    }
    let mut conflicts = ownership.held_by_siblings(&unrecorded, |sibling| known_objects(target, sibling));
    let is_asked = |object: &&&SharedObject| match conflicts.get(&object.id) {
        None => !object.adopt,
        Some(owner) => matches!(owner, Owner::Leaving(_)),
    };
    let asked = unrecorded.iter().filter(is_asked);
    let mut found = target.cluster.survey(asked.map(|object| (&object.gvk, &object.id))).await?;
    ownership.settle_siblings(&mut conflicts, &mut found);
    conflicts.extend(ownership.held_by_others(found.clone()));
    Ok((conflicts, found))
}

/// Whether the control plane has a Manifest, of another module than `manifest`.
pub(super) fn exists_elsewhere(target: &ApplyTarget<'_>, manifest: &Manifest, key: &Key) -> bool {
    let other = target.context.stores.manifest(key);
    other.is_some_and(|other| !ownership::is_of_same_module(manifest, &other))
}

/// Prunes what is no longer part of an installed module. A CustomResourceDefinition stays while users have custom
/// resources of it, even if an annotation allows its deletion.
pub(super) async fn prune_unwanted(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    unwanted: &[Prune],
) -> Result<PruneReport, Error> {
    let in_use = in_use::definitions_in_use(target.cluster, manifest, target.manifests, unwanted).await?;
    let mut pruned = prune(target, manifest, &decide::without_used(unwanted, &in_use)).await?;
    publish(target, manifest, decide::kept_note(&pruned));
    publish(target, manifest, decide::in_use_note(&in_use));
    pruned.kept.extend(in_use.into_keys());
    Ok(pruned)
}

/// Deletes objects with our ownership label, unless they have changed since they were read.
pub(super) async fn prune(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    prune: &[Prune],
) -> Result<PruneReport, Error> {
    let exists = |key: &Key| exists_elsewhere(target, manifest, key);
    let ownership = Ownership { manifest, siblings: target.manifests, exists: &exists };
    let pull_secret = target.pull_secret();
    let is_ours = |metadata: &Metadata| {
        !ownership::is_of_platform(&metadata.id, pull_secret) && ownership.owner(metadata).is_none()
    };
    let results = target.cluster.prune(target.cause, prune, &is_ours).await;
    let (of_all, results): (Vec<Pruned>, Vec<Pruned>) =
        results.into_iter().partition(|pruned| pruned.result.as_ref().is_err_and(concerns_all));
    if let Some(Pruned { result: Err(error), .. }) = of_all.into_iter().next() {
        return Err(error);
    }
    for pruned in &results {
        if let Err(error) = &pruned.result {
            tracing::warn!(object = %pruned.id, error = %error, "object cannot be pruned yet");
        }
    }
    Ok(PruneReport::new(results))
}

/// Creates a default custom resource.
pub(super) async fn create_resource(
    target: &ApplyTarget<'_>,
    kind: &Kind,
    id: &ObjectId,
    object: &Object,
) -> Result<SeenResource, Error> {
    let body = Bytes::from(object.value().to_string());
    match target.cluster.create(target.cause, kind, id, body).await {
        Ok(_) => Ok(SeenResource::Created),
        // A user's own custom resource is as good: Tidegate never updates it.
        Err(Error::Exists { .. }) => Ok(SeenResource::Taken),
        Err(error) if concerns_all(&error) => Err(error),
        Err(error) => {
            tracing::warn!(object = %id, error = %error, "default custom resource cannot be created yet");
            Ok(SeenResource::Refused(error.to_string()))
        }
    }
}

/// Checks workloads. Returns the health of the worst.
pub(super) async fn check_workloads(
    target: &ApplyTarget<'_>,
    workloads: Vec<(Gvk, Key)>,
) -> Result<WorkloadsHealth, Error> {
    let mut all: Vec<(String, Health)> = Vec::with_capacity(workloads.len());
    let mut waiting = Vec::new();
    for (gvk, key) in workloads {
        let kind = target.cluster.kind(&gvk).await?;
        let live = match &kind {
            Some(kind) => target.cluster.get(kind, &key).await?,
            None => None,
        };
        let pods = match live.as_ref().and_then(|object| health::pods_of(object.value())) {
            Some(selector) => list_pods(target.cluster, key.namespace(), &selector).await?,
            None => Vec::new(),
        };
        let workload = match (&kind, &live) {
            (None, _) => Workload::NotServed,
            (Some(_), None) => Workload::Absent,
            (Some(_), Some(object)) => Workload::Live(object, &pods),
        };
        let (name, health) = decide::workload_health(&gvk, &key, workload);
        waiting.extend(decide::waiting_workload(&name, key.namespace(), &health, live.as_ref()));
        all.push((name, health));
    }
    let worst = health::worst(all.iter().map(|(name, health)| (name.as_str(), health)));
    Ok(WorkloadsHealth { worst, waiting })
}

/// What a module waits for. Asks for the pods of one workload only once the module has waited for a while.
pub(super) async fn wait_fact(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    health: &WorkloadsHealth,
) -> Result<WaitFact, Error> {
    let Some(first) = health.waiting.first() else { return Ok(WaitFact::Nothing) };
    if !decide::explains_wait(manifest, ambient::now()) {
        return Ok(WaitFact::Unknown);
    }
    let lack = match (&first.lack, &first.pods) {
        (Some(lack), _) => Some(lack.clone()),
        (None, Some((namespace, selector))) => {
            health::lack_of_pods(&list_pods(target.cluster, namespace, selector).await?)
        }
        (None, None) => None,
    };
    Ok(decide::wait_fact(health, lack))
}

/// Lists the pods with these labels.
async fn list_pods(cluster: &Cluster, namespace: &str, selector: &str) -> Result<Vec<Value>, Error> {
    let kind = Kind::new(Gvk::new("", "v1", "Pod"), "pods", true);
    let pods = cluster.list(&kind, Some(namespace), Some(selector)).await?;
    Ok(pods.into_iter().map(Object::into_value).collect())
}

/// Writes the status if it differs. Returns the Manifest with it.
pub(super) async fn write_status(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    facts: &ManifestFacts,
) -> Result<Arc<Manifest>, Error> {
    write_status_to(target.context.kcp, target.cause, manifest, facts).await
}

/// As [`write_status`], without access to the runtime.
pub(super) async fn write_status_to(
    kcp: &Cluster,
    cause: &Cause,
    manifest: &Arc<Manifest>,
    facts: &ManifestFacts,
) -> Result<Arc<Manifest>, Error> {
    let Some(status) = decide::status_change(manifest, facts, ambient::now()) else {
        return Ok(Arc::clone(manifest));
    };
    let kind = Kind::namespaced::<Manifest>();
    let key = landscape::key(&manifest.metadata);
    let body = status_body("Manifest", &key, &status);
    let metadata = kcp.apply_status(cause, &kind, &kind.id(&key), body).await?;
    let mut written = Manifest::clone(manifest);
    written.status = Some(status);
    written.metadata.resource_version = Some(metadata.resource_version);
    Ok(Arc::new(written))
}

/// Publishes an Event about the Manifest, if there is a note.
pub(super) fn publish(target: &ApplyTarget<'_>, manifest: &Manifest, note: Option<Note>) {
    let Some(Note { severity, reason, action, text }) = note else { return };
    target.context.events.publish(manifest, severity, reason, action, text);
}

/// The objects of a Manifest of the same runtime, if this process has read them.
fn known_objects(target: &ApplyTarget<'_>, manifest: &Manifest) -> Option<Arc<SharedObjects>> {
    let source = InstallSource::try_from(&manifest.spec.install.source).ok()?;
    let content = source.content(&manifest.spec.localized_images);
    target.context.shared.modules.get(content).map(|module| Arc::clone(module.objects()))
}
