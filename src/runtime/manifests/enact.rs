//! Reading, applying and deleting Manifests in KCP: one act, one request. Decides nothing.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata, OnConflict, Propagation};
use tidegate_core::{
    api::{Manifest, names::annotation, shared::ObjectMeta},
    landscape,
    name::Key,
    object::Object,
};

/// Reads a Manifest.
///
/// # Errors
///
/// The error of the request.
pub(in crate::runtime) async fn read(kcp: &Cluster, key: &Key) -> Result<Option<Arc<Manifest>>, Error> {
    let manifest: Option<Manifest> = kcp.get_as(&Kind::namespaced::<Manifest>(), key).await?;
    Ok(manifest.map(|mut manifest| {
        manifest.metadata.managed_fields = None;
        Arc::new(manifest)
    }))
}

/// The metadata of a Manifest with its field managers; none if it does not exist.
pub(super) async fn managed(kcp: &Cluster, live: &Manifest) -> Result<Option<ObjectMeta>, Error> {
    kcp.get_object_meta(&Kind::namespaced::<Manifest>(), &landscape::key(&live.metadata)).await
}

/// Applies a Manifest. Returns its metadata, and whether the apply created it.
pub(super) async fn apply(kcp: &Cluster, cause: &Cause, desired: &Object) -> Result<(Metadata, bool), Error> {
    let body = Bytes::from(desired.value().to_string());
    let kind = Kind::namespaced::<Manifest>();
    kcp.apply_telling(cause, &kind, &desired.id(), body, OnConflict::Force).await
}

/// Annotates a Manifest as unmanaged: its objects become the user's.
pub(super) async fn unmanage(kcp: &Cluster, cause: &Cause, live: &Manifest) -> Result<(), Error> {
    let kind = Kind::namespaced::<Manifest>();
    let id = kind.id(&landscape::key(&live.metadata));
    let patch = json!({"metadata": {"annotations": {annotation::IS_UNMANAGED: "true"}}});
    kcp.merge_patch(cause, &kind, &id, None, Bytes::from(patch.to_string())).await.map(drop)
}

/// Deletes a Manifest, unless another one has its name by now.
pub(super) async fn delete(kcp: &Cluster, cause: &Cause, live: &Manifest) -> Result<(), Error> {
    let kind = Kind::namespaced::<Manifest>();
    let id = kind.id(&landscape::key(&live.metadata));
    let uid = live.metadata.uid.clone().unwrap_or_default();
    kcp.delete_if(cause, &kind, &id, &uid, None, Propagation::Background).await.map(drop)
}
