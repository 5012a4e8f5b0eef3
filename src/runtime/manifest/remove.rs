//! The removal of a Manifest: first custom resources of users, then the default one, all objects, and the finalizers.
//!
//! The objects of an unmanaged Manifest stay. Tidegate removes only its ownership label from them.
//!
//! While custom resources exist, the module must work: its objects are repaired, and a new version reaches them.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata, Propagation};
use tidegate_core::{
    api::{
        Manifest,
        names::{finalizer, label},
    },
    landscape,
    name::Key,
    object::{Gvk, Object, ObjectId},
    status::{ManifestFacts, WaitFact},
};

use super::{ApplyTarget, KnownManifest, ManifestReport, Purpose, decide::NotRead, enact, ownership, read, recorded};
use crate::{controller::finalizers, runtime::objects::concerns_all};

pub(super) mod decide;

use decide::{Ending, ModuleResources, Removal};

/// Removes what a Manifest installed, then its finalizers. Fails as a pass over a Manifest does.
pub(super) async fn reconcile(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    match decide::start(manifest) {
        Removal::Release => {
            known.installed = None;
            release(target, manifest).await?;
            drop_finalizers(target, manifest).await
        }
        Removal::Remove => remove(target, manifest, known).await,
    }
}

/// Drops all finalizers without requests to the runtime, because it is unreachable for good. As with Lifecycle Manager,
/// this includes the finalizers of others: they have nothing to wait for either.
///
/// # Errors
///
/// Errors of the control plane.
pub(crate) async fn abandon(kcp: &Cluster, cause: &Cause, manifest: &Manifest) -> Result<(), Error> {
    let kind = Kind::namespaced::<Manifest>();
    finalizers::release_all(kcp, cause, &kind, &manifest.metadata).await
}

/// Deletes a Manifest and drops all finalizers without requests to the runtime.
///
/// # Errors
///
/// Errors of the control plane.
pub(crate) async fn end(kcp: &Cluster, cause: &Cause, manifest: &Manifest) -> Result<(), Error> {
    let kind = Kind::namespaced::<Manifest>();
    let id = kind.id(&landscape::key(&manifest.metadata));
    let uid = manifest.metadata.uid.clone().unwrap_or_default();
    kcp.delete_if(cause, &kind, &id, &uid, None, Propagation::Background).await?;
    let mut latest = manifest.clone();
    // The deletion has made a new version that is not known.
    latest.metadata.resource_version = None;
    abandon(kcp, cause, &latest).await
}

/// Removes custom resources, then objects; what is not gone yet is waited for.
async fn remove(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    known: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    known.holding = WaitFact::Nothing;
    if let Some(waiting) = remove_module_resources(target, manifest, &mut known.holding).await? {
        return keep(target, manifest, known, waiting).await;
    }
    // From now on, the objects are not as last applied.
    known.installed = None;
    let pruned = enact::prune(target, manifest, &decide::to_prune(manifest)).await?;
    match decide::ending(manifest, &pruned) {
        Ending::Gone => drop_finalizers(target, manifest).await,
        Ending::Wait(facts) => wait(target, manifest, known, facts).await,
    }
}

/// Keeps the module working while custom resources exist. Objects that cannot be read stay as they are.
async fn keep(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    known: &mut KnownManifest,
    waiting: String,
) -> Result<ManifestReport, Error> {
    match read::objects(target, manifest).await {
        Ok(module) => super::apply(target, manifest, &module, known, Purpose::Keep(waiting)).await,
        Err(NotRead::Pending | NotRead::Failed { .. } | NotRead::Refused(_)) => {
            wait(target, manifest, known, decide::resource_facts(manifest, waiting)).await
        }
    }
}

/// Waits for custom resources of users, then deletes the default one, and those of versions that declared one. Returns
/// what it waits for.
///
/// Custom resources count in any namespace and in whatever version the runtime serves: once their
/// CustomResourceDefinition is deleted, they are lost. `holding` gets those that are waited for.
async fn remove_module_resources(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    holding: &mut WaitFact,
) -> Result<Option<String>, Error> {
    let resource = decide::resource(manifest).map(|resource| resource.gvk());
    let kinds = target.cluster.kinds_of_definitions(&decide::definitions(manifest)).await?;
    let mut former = Vec::new();
    for kind in decide::other_kinds(&kinds, resource.as_ref()) {
        let present = target.cluster.list_served(kind).await?;
        let (defaults, present) = decide::former_defaults(target.manifests, present);
        if let Some((waiting, of_users)) = decide::users_resources(manifest, target.manifests, &kinds, &present) {
            *holding = of_users;
            return Ok(Some(waiting));
        }
        former.push((kind, defaults));
    }
    if let Some(resource) = &resource {
        let waiting = remove_default(target, manifest, &kinds, resource, holding).await?;
        if waiting.is_some() {
            return Ok(waiting);
        }
    }
    for (kind, former) in &former {
        let waiting = delete_former(target, manifest, kind, former).await?;
        if waiting.is_some() {
            return Ok(waiting);
        }
    }
    Ok(None)
}

/// Deletes the custom resources that Tidegate created by default for former versions. Returns what it waits for.
async fn delete_former(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    kind: &Kind,
    former: &[Metadata],
) -> Result<Option<String>, Error> {
    for metadata in former {
        let present = std::slice::from_ref(metadata);
        let next = decide::module_resources(Some(&metadata.id), present, target.has_installed(manifest));
        let waiting = delete_default(target, kind, next).await?;
        if waiting.is_some() {
            return Ok(waiting);
        }
    }
    Ok(None)
}

/// Waits for the custom resources of the kind of the default one, then deletes it, and those that had its place in
/// former versions. Returns what it waits for.
async fn remove_default(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    kinds: &[Kind],
    resource: &Gvk,
    holding: &mut WaitFact,
) -> Result<Option<String>, Error> {
    let Some((kind, present)) = target.cluster.list_metadata_in_any_version(resource).await? else { return Ok(None) };
    let present = decide::that_count(manifest, kinds, &kind, present);
    let (former, present) = decide::former_defaults_of_kind(manifest, target.manifests, kinds, &kind, present);
    let default = recorded::module_resource(manifest).map(|object| id_of(&kind, &object));
    *holding = decide::holding(default.as_ref(), &present);
    let next = decide::module_resources(default.as_ref(), &present, target.has_installed(manifest));
    match delete_default(target, &kind, next).await? {
        None => delete_former(target, manifest, &kind, &former).await,
        Some(waiting) => Ok(Some(waiting)),
    }
}

/// Deletes a default custom resource, if that is next. Returns what is waited for.
async fn delete_default(
    target: &ApplyTarget<'_>,
    kind: &Kind,
    next: ModuleResources<'_>,
) -> Result<Option<String>, Error> {
    match next {
        ModuleResources::Gone => Ok(None),
        ModuleResources::Wait(waiting) => Ok(Some(waiting)),
        ModuleResources::Delete(metadata) => {
            target.cluster.delete(target.cause, kind, metadata, Propagation::Background).await?;
            let left = target.cluster.get_metadata(kind, &metadata.key()).await?;
            Ok(left.map(|_| decide::waiting_for_default(metadata)))
        }
    }
}

/// Removes the ownership label from every object, which becomes the user's.
async fn release(target: &ApplyTarget<'_>, manifest: &Manifest) -> Result<(), Error> {
    let owned = recorded::inventory(manifest);
    let patch = Bytes::from(json!({"metadata": {"labels": {label::MANAGED_BY: null}}}).to_string());
    let of_module = owned.ids().filter(|id| !ownership::is_of_platform(id, target.pull_secret()));
    for (id, gvk) in of_module.filter_map(|id| Some((id, owned.gvk(id)?))) {
        let Some(kind) = target.cluster.kind(&gvk).await? else { continue };
        match target.cluster.merge_patch(target.cause, &kind, id, None, patch.clone()).await {
            // An object that does not exist needs no release.
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) if concerns_all(&error) => return Err(error),
            Err(error) => tracing::warn!(object = %id, error = %error, "cannot remove the ownership label"),
        }
    }
    Ok(())
}

/// Reports what the removal waits for, and when to check again.
pub(super) async fn wait(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    known: &mut KnownManifest,
    facts: ManifestFacts,
) -> Result<ManifestReport, Error> {
    let facts = ManifestFacts { waits_for: known.holding.clone(), ..facts };
    let manifest = super::write_status(target, manifest, &facts).await?;
    let (retry, again) = std::mem::take(&mut known.retry).after_removal();
    known.retry = retry;
    Ok(ManifestReport::unchanged(&manifest, Some(again)))
}

/// Drops our finalizers, and reports those of others.
async fn drop_finalizers(target: &ApplyTarget<'_>, manifest: &Arc<Manifest>) -> Result<ManifestReport, Error> {
    let foreign = release_finalizers(target.context.kcp, target.cause, manifest).await?;
    match decide::finalizer_facts(&foreign) {
        None => Ok(ManifestReport::unchanged(&Arc::new(decide::released(manifest)), None)),
        Some(facts) => {
            let manifest = super::write_status(target, manifest, &facts).await?;
            Ok(ManifestReport::unchanged(&manifest, Some(decide::finalizer_check())))
        }
    }
}

/// Drops our finalizers without requests to the runtime. Returns those of others.
///
/// # Errors
///
/// Errors of the control plane.
pub(crate) async fn release_finalizers(
    kcp: &Cluster,
    cause: &Cause,
    manifest: &Manifest,
) -> Result<Vec<String>, Error> {
    // If this pass has deleted the Manifest, it has no resource version: the deletion made one that is not known.
    let ours = [finalizer::MANIFEST, finalizer::LABEL_REMOVAL, finalizer::MANIFEST_RESOURCE];
    finalizers::release(kcp, cause, &Kind::namespaced::<Manifest>(), &manifest.metadata, &ours).await
}

pub(super) fn id_of(kind: &Kind, object: &Object) -> ObjectId {
    kind.id(&Key::new(object.namespace(), object.name()))
}
