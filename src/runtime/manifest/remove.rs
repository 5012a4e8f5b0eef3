//! The end of a Manifest: users' custom resources first, then the default one, then all objects, then the finalizers.
//!
//! A Manifest that is unmanaged leaves its objects where they are and only takes the mark off them.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::json;

use super::{
    ApplyTarget, KnownManifest, ManifestReport, PruneReport, concerns_all, module_resource, prune, store_status,
};
use tidegate_cluster::{Cause, Cluster, Error, Kind, Propagation};
use tidegate_core::{
    api::{
        Manifest,
        names::{annotation, finalizer, label},
        shared::CustomResourcePolicy,
    },
    changes::{Changes, Desired},
    inventory::Inventory,
    landscape,
    name::Key,
    object::{Object, ObjectId},
    status::{self, ManifestFacts, ManifestOutcome},
};
use tidegate_process::retry::{self, Class};

use crate::controller::finalizers;

/// What keeps a Manifest from being removed, in words; none if nothing does.
type Waiting = Option<String>;

/// Removes what a Manifest installed, then its finalizers.
pub(super) async fn reconcile(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    memory: &mut KnownManifest,
) -> Result<ManifestReport, Error> {
    // What goes now is not there for the next Manifest of this name.
    memory.applied = None;
    if is_unmanaged(manifest) {
        release(target, manifest).await?;
        return finish(target, manifest).await;
    }
    if let Some(waiting) = remove_resources(target, manifest).await? {
        return wait(target, manifest, memory, waiting, None).await;
    }
    let owned = Inventory::of(manifest.status.as_ref().map(|status| status.synced.as_slice()).unwrap_or_default());
    let changes = Changes::between(&Desired::nothing(), &owned);
    let (left, pruning): (Inventory, PruneReport) = prune(target, manifest, &changes, owned).await?;
    if pruning.is_finished() {
        return finish(target, manifest).await;
    }
    let first = pruning.waiting.first().map(ToString::to_string).unwrap_or_default();
    let waiting = format!("deletion is not yet finished: {first}{}", super::more(pruning.waiting.len()));
    wait(target, manifest, memory, waiting, Some(left)).await
}

/// Drops our finalizers without a look at the runtime: nobody can reach it any more.
pub(crate) async fn abandon(kcp: &Cluster, cause: &Cause, manifest: &Manifest) -> Result<(), Error> {
    drop_finalizers(kcp, cause, manifest).await.map(drop)
}

/// Waits for custom resources of users, then deletes the default one and waits for that.
async fn remove_resources(target: &ApplyTarget<'_>, manifest: &Manifest) -> Result<Waiting, Error> {
    let Some(resource) = manifest.spec.resource.clone().and_then(|value| Object::new(value).ok()) else {
        return Ok(None);
    };
    let Some(kind) = target.cluster.kind(&resource.gvk()).await? else { return Ok(None) };
    let ours = module_resource(manifest).map(|object| kind.id(&Key::new(object.namespace(), object.name())));
    let all = target.cluster.list_metadata(&kind, None, None).await?;
    if all.iter().any(|metadata| Some(&metadata.id) != ours.as_ref()) {
        return Ok(Some(status::WAITING_FOR_MODULE_RESOURCES.to_owned()));
    }
    let Some(metadata) = all.first() else { return Ok(None) };
    if manifest.spec.custom_resource_policy == CustomResourcePolicy::Ignore {
        return Ok(Some(status::WAITING_FOR_MODULE_RESOURCES.to_owned()));
    }
    if !metadata.deleting {
        target.cluster.delete(target.cause, &kind, metadata, Propagation::Background).await?;
        if target.cluster.get_metadata(&kind, &metadata.key()).await?.is_none() {
            return Ok(None);
        }
    }
    Ok(Some(format!("waiting for the default module CR {} to be deleted", metadata.id)))
}

/// Takes the mark off every object: from now on they are the user's.
async fn release(target: &ApplyTarget<'_>, manifest: &Manifest) -> Result<(), Error> {
    let owned = Inventory::of(manifest.status.as_ref().map(|status| status.synced.as_slice()).unwrap_or_default());
    let patch = Bytes::from(json!({"metadata": {"labels": {label::MANAGED_BY: null}}}).to_string());
    for id in owned.ids() {
        let Some(kind) = kind_of(target, &owned, id).await? else { continue };
        match target.cluster.merge_patch(target.cause, &kind, id, None, patch.clone()).await {
            // What is not there needs no release.
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) if concerns_all(&error) => return Err(error),
            Err(error) => tracing::warn!(object = %id, error = %error, "the mark cannot be taken off"),
        }
    }
    Ok(())
}

async fn kind_of(target: &ApplyTarget<'_>, owned: &Inventory, id: &ObjectId) -> Result<Option<Kind>, Error> {
    match owned.gvk(id) {
        Some(gvk) => target.cluster.kind(&gvk).await,
        None => Ok(None),
    }
}

async fn wait(
    target: &ApplyTarget<'_>,
    manifest: &Arc<Manifest>,
    memory: &mut KnownManifest,
    waiting: String,
    left: Option<Inventory>,
) -> Result<ManifestReport, Error> {
    let synced = match left {
        Some(left) => left.to_synced(),
        None => manifest.status.as_ref().map(|status| status.synced.clone()).unwrap_or_default(),
    };
    let facts = ManifestFacts {
        outcome: ManifestOutcome::Deleting(waiting),
        synced,
        applied: None,
        module_resource: None,
        requested: super::requested(manifest),
    };
    let manifest = store_status(target, manifest, &facts).await?;
    memory.attempt = memory.attempt.saturating_add(1);
    let again = retry::backoff(Duration::from_millis(250), retry::DEPENDENCY_POLL_MAX, memory.attempt);
    Ok(ManifestReport { manifest, again: Some(again) })
}

/// Drops our finalizers; says which others are left.
async fn finish(target: &ApplyTarget<'_>, manifest: &Arc<Manifest>) -> Result<ManifestReport, Error> {
    let foreign = drop_finalizers(&target.context.kcp, target.cause, manifest).await?;
    if foreign.is_empty() {
        let mut released = Manifest::clone(manifest);
        released.metadata.finalizers = None;
        return Ok(ManifestReport { manifest: Arc::new(released), again: None });
    }
    let facts = ManifestFacts {
        outcome: ManifestOutcome::Deleting(format!("waiting as other finalizers are present: [{}]", foreign.join(" "))),
        synced: Vec::new(),
        applied: None,
        module_resource: None,
        requested: None,
    };
    let manifest = store_status(target, manifest, &facts).await?;
    Ok(ManifestReport { manifest, again: Some(retry::delay(Class::Waiting, u32::MAX, Duration::ZERO)) })
}

/// Returns the finalizers of others.
async fn drop_finalizers(kcp: &Cluster, cause: &Cause, manifest: &Manifest) -> Result<Vec<String>, Error> {
    // Without a resource version if we have just asked for its deletion, which has made a state of it that we have not
    // seen.
    let ours = [finalizer::MANIFEST, finalizer::LABEL_REMOVAL, finalizer::MANIFEST_RESOURCE];
    finalizers::release(kcp, cause, &Kind::namespaced::<Manifest>(), &manifest.metadata, &ours).await
}

fn is_unmanaged(manifest: &Manifest) -> bool {
    landscape::annotation(&manifest.metadata, annotation::IS_UNMANAGED) == Some("true")
}
