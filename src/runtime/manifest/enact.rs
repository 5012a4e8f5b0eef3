//! The requests of a pass over a Manifest: each function is one act. `decide` says which acts, and what follows from
//! the answers. An act fails if its request fails; [`prune`] and [`create_resource`] only if the runtime as a whole is
//! concerned.

use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{
    api::{Manifest, manifest::ManifestStatus, names::KCP_NAMESPACE},
    changes::Prune,
    component::Source,
    landscape,
    name::Key,
    object::{Gvk, Object, ObjectId},
    render::CompleteModule,
    revision::Oid,
};

use super::{
    ApplyTarget, decide,
    decide::{NotRead, Note, PruneReport},
    default_resource::SeenResource,
    inject,
    ownership::{self, Ownership},
    workloads::decide::Workload,
};
use crate::{
    components::{Objects, Waiting},
    controller::status_body,
    runtime::objects::{self, Applied, Failed, LiveObjects, concerns_all},
    stores::{kyma_of, secret::SourceSecret},
};

/// Asks for the objects of a Manifest in a registry. They are read beside the passes.
pub(super) fn ask_registry(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    source: &Source,
) -> Result<CompleteModule, NotRead> {
    let context = target.context;
    let kyma = kyma_of(&manifest.metadata).unwrap_or_else(|| landscape::key(&manifest.metadata));
    let waiting = Waiting { kyma: &kyma, trigger: decide::pending_trigger(target.checks()) };
    match context.components.objects(&context.shared.modules, waiting, source, &manifest.spec.localized_images) {
        Objects::Ready(module) => Ok(module),
        Objects::Pending => Err(NotRead::Pending),
        Objects::Failed { message, is_away } => Err(NotRead::Failed { message, is_retried: true, is_away }),
    }
}

/// Reads the objects of a Manifest in the mirror of a repository.
pub(super) async fn read_mirror(
    target: &ApplyTarget<'_>,
    source: &Key,
    tree: Oid,
    path: &str,
) -> Result<CompleteModule, NotRead> {
    let read =
        target.context.sources.module_objects(source, tree, path).await.map_err(|error| NotRead::failed(&error))?;
    Ok(target.context.shared.modules.put(tree.into(), CompleteModule::new(&read)))
}

/// Reads a Secret in KCP whose data a Secret of a module gets.
pub(super) async fn read_source_secret(kcp: &Cluster, name: &str) -> Result<Option<SourceSecret>, String> {
    let key = Key::new(KCP_NAMESPACE, name);
    let found = kcp.get_metadata(&Kind::namespaced::<Secret>(), &key).await;
    found.map(|found| found.as_ref().map(inject::source_of)).map_err(|error| error.to_string())
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

/// Deletes objects with our ownership label, unless they have changed since they were read.
pub(super) async fn prune(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    prune: &[Prune],
) -> Result<PruneReport, Error> {
    let exists = |key: &Key| target.exists_elsewhere(manifest, key);
    let ownership = Ownership { manifest, siblings: target.manifests, exists: &exists };
    let pull_secret = target.pull_secret();
    let is_ours = |metadata: &Metadata| {
        !ownership::is_of_platform(&metadata.id, pull_secret) && ownership.owner(metadata).is_none()
    };
    let results = decide::of_single_objects(target.cluster.prune(target.cause, prune, &is_ours).await)?;
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

/// Reads a workload.
pub(super) async fn read_workload(cluster: &Cluster, gvk: &Gvk, key: &Key) -> Result<Workload, Error> {
    let Some(kind) = cluster.kind(gvk).await? else { return Ok(Workload::NotServed) };
    Ok(cluster.get(&kind, key).await?.map_or(Workload::Absent, Workload::Live))
}

/// Lists the pods with these labels.
pub(super) async fn list_pods(cluster: &Cluster, namespace: &str, selector: &str) -> Result<Vec<Value>, Error> {
    let kind = Kind::new(Gvk::new("", "v1", "Pod"), "pods", true);
    let pods = cluster.list(&kind, Some(namespace), Some(selector)).await?;
    Ok(pods.into_iter().map(Object::into_value).collect())
}

/// Writes the status. Returns the Manifest with it.
pub(super) async fn write_status(
    kcp: &Cluster,
    cause: &Cause,
    manifest: &Manifest,
    status: ManifestStatus,
) -> Result<Arc<Manifest>, Error> {
    let kind = Kind::namespaced::<Manifest>();
    let key = landscape::key(&manifest.metadata);
    let body = status_body("Manifest", &key, &status);
    let metadata = kcp.apply_status(cause, &kind, &kind.id(&key), body).await?;
    let mut written = manifest.clone();
    written.status = Some(status);
    written.metadata.resource_version = Some(metadata.resource_version);
    Ok(Arc::new(written))
}

/// Publishes an Event about the Manifest, if there is a note.
pub(super) fn publish(target: &ApplyTarget<'_>, manifest: &Manifest, note: Option<Note>) {
    let Some(Note { severity, reason, action, text }) = note else { return };
    target.context.events.publish(manifest, severity, reason, action, text);
}
