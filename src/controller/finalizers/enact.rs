//! Enacts what was decided about the finalizers of an object: one act, one request. Decides nothing.

use bytes::Bytes;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::name::Key;

use super::decide::FinalizerState;

/// Reads the metadata of the object; none if it does not exist. Fails if the control plane does not return it.
pub(super) async fn read(kcp: &Cluster, kind: &Kind, key: &Key) -> Result<Option<Metadata>, Error> {
    kcp.get_metadata(kind, key).await
}

/// Replaces the finalizers of an object at a resource version. Fails if the request fails for another reason than that
/// the object has changed or is gone.
pub(super) async fn write(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    key: &Key,
    left: Vec<String>,
    resource_version: &str,
) -> Result<FinalizerState, Error> {
    let patch = json!({"metadata": {"finalizers": left, "resourceVersion": resource_version}});
    match kcp.merge_patch(cause, kind, &kind.id(key), None, Bytes::from(patch.to_string())).await {
        Ok(_) => Ok(FinalizerState::Released(left)),
        Err(Error::NotFound { .. }) => Ok(FinalizerState::Gone),
        Err(error @ Error::Changed { .. }) => Ok(FinalizerState::Changed(error)),
        Err(error) => Err(error),
    }
}
