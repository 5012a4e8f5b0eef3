//! Listing and deleting objects of the catalog in a runtime. Decides nothing.

use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata, Propagation};
use tidegate_core::{
    api::names::{MANAGED_BY_SKR, SKR_NAMESPACE, label},
    object::Gvk,
};

use crate::runtime::objects::{Applied, LiveObjects};

/// Looks up the objects at `indices`.
pub(super) async fn find(cluster: &Cluster, applied: &Applied, indices: &[usize]) -> Result<LiveObjects, Error> {
    let objects = indices.iter().map(|&index| &applied.objects.objects[index]);
    cluster.survey(objects.map(|object| (&object.gvk, &object.id))).await
}

/// Lists the objects of a kind of the catalog that carry our ownership label; none if the runtime does not serve the
/// kind.
pub(super) async fn list_copies(cluster: &Cluster, gvk: &Gvk) -> Result<Option<(Kind, Vec<Metadata>)>, Error> {
    let Some(kind) = cluster.kind(gvk).await? else { return Ok(None) };
    let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
    let copies = cluster.list_metadata(&kind, Some(SKR_NAMESPACE), Some(&selector)).await?;
    Ok(Some((kind, copies)))
}

/// Deletes one copy, unless it has changed since it was listed.
pub(super) async fn delete(cluster: &Cluster, cause: &Cause, kind: &Kind, copy: &Metadata) -> Result<(), Error> {
    cluster.delete(cause, kind, copy, Propagation::Background).await.map(drop)
}
