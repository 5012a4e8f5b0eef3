//! Requests about a ModuleReleaseMeta: one act, one request. Decides nothing.

use bytes::Bytes;
use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{
    api::{Manifest, ModuleReleaseMeta, names::label},
    name::Key,
};

/// Reads the metadata of the ModuleReleaseMeta; none if it does not exist.
pub(super) async fn read(kcp: &Cluster, key: &Key) -> Result<Option<Metadata>, Error> {
    kcp.get_metadata(&Kind::namespaced::<ModuleReleaseMeta>(), key).await
}

/// Adds the finalizer.
pub(super) async fn add(kcp: &Cluster, cause: &Cause, key: &Key, patch: &Value) -> Result<(), Error> {
    let kind = Kind::namespaced::<ModuleReleaseMeta>();
    kcp.merge_patch(cause, &kind, &kind.id(key), None, Bytes::from(patch.to_string())).await.map(drop)
}

/// The number of Manifests of the module, as the control plane lists them now.
pub(super) async fn count_manifests(kcp: &Cluster, key: &Key) -> Result<usize, Error> {
    let selector = format!("{}=true,{}={}", label::MANDATORY_MODULE, label::MODULE_NAME, key.name());
    let kind = Kind::namespaced::<Manifest>();
    Ok(kcp.list_metadata(&kind, Some(key.namespace()), Some(&selector)).await?.len())
}
