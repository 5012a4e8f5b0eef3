//! Enacts the acts that were decided about a Watcher: one act, one request. Decides nothing.

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, OnConflict, Propagation, Target};
use tidegate_core::{
    api::{Watcher, names::finalizer, watcher::WatcherStatus},
    name::Key,
    object::Object,
};

use super::state::{Charge, Route};
use crate::controller::{finalizers, status_body};

/// Adds Tidegate's finalizer. Fails if the Watcher has changed since, or if the request fails.
pub(super) async fn take_charge(kcp: &Cluster, cause: &Cause, key: &Key, watcher: &Watcher) -> Result<Charge, Error> {
    let kind = Kind::namespaced::<Watcher>();
    let mut finalizers = watcher.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer::WATCHER.to_owned());
    let metadata = json!({ "finalizers": finalizers, "resourceVersion": watcher.metadata.resource_version });
    let body = Bytes::from(json!({ "metadata": metadata }).to_string());
    match kcp.merge_patch(cause, &kind, &kind.id(key), None, body).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(Charge::Taken),
        Err(error) => Err(error),
    }
}

/// Removes Tidegate's finalizer. Fails if a request fails, or if other clients keep changing the Watcher.
pub(super) async fn release(kcp: &Cluster, cause: &Cause, watcher: &Watcher) -> Result<Charge, Error> {
    let kind = Kind::namespaced::<Watcher>();
    finalizers::release(kcp, cause, &kind, &watcher.metadata, &[finalizer::WATCHER]).await?;
    Ok(Charge::Released)
}

/// Reads the VirtualService. Fails if the request fails.
pub(super) async fn read(kcp: &Cluster, kind: &Kind, key: &Key) -> Result<Route, Error> {
    Ok(kcp.get(kind, key).await?.map_or(Route::Absent, Route::Found))
}

/// Applies the VirtualService. Fails if the request fails; a rejected object is an answer.
pub(super) async fn apply(kcp: &Cluster, cause: &Cause, kind: &Kind, object: &Object) -> Result<Route, Error> {
    let body = Bytes::from(object.value().to_string());
    match kcp.apply(cause, kind, &object.id(), body, OnConflict::Force).await {
        Ok(_) => Ok(Route::Applied),
        Err(error @ (Error::Invalid { .. } | Error::UndeclaredField { .. } | Error::Forbidden { .. })) => {
            Ok(Route::Refused(error.to_string()))
        }
        Err(error) => Err(error),
    }
}

/// Deletes a VirtualService. Fails if it has changed since it was read, or if the request fails.
pub(super) async fn delete(kcp: &Cluster, cause: &Cause, kind: &Kind, live: &Object) -> Result<Route, Error> {
    let text = |field: &str| live.value()["metadata"].get(field).and_then(Value::as_str).unwrap_or_default();
    let (id, uid, version) = (live.id(), text("uid"), text("resourceVersion"));
    match kcp.delete_if(cause, kind, &id, uid, Some(version), Propagation::Background).await? {
        Deleted::Gone | Deleted::Terminating => Ok(Route::Absent),
        // The next pass reads the new version, which may have another owner.
        Deleted::Changed => Err(Error::Changed { target: Target::Object(id) }),
    }
}

/// Writes the status. Fails if the request fails.
pub(super) async fn report(kcp: &Cluster, cause: &Cause, key: &Key, status: &WatcherStatus) -> Result<(), Error> {
    let kind = Kind::namespaced::<Watcher>();
    kcp.apply_status(cause, &kind, &kind.id(key), status_body("Watcher", key, status)).await.map(drop)
}
