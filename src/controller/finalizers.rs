//! Removes Tidegate's finalizers from an object, and no others.
//!
//! A merge patch replaces the whole list, so it names the resourceVersion at which the list was read. If another client
//! adds a finalizer at the same moment, that finalizer stays, and Tidegate reads the object again.

use bytes::Bytes;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{api::shared::ObjectMeta, landscape};

/// Reads of one object in one pass, while other clients keep writing it. The next pass continues.
const LOOKS_MAX: u32 = 3;

/// Removes `ours` from an object of the control plane, and returns the finalizers that are left. An object that no
/// longer exists has none.
///
/// The known object may be outdated or without a version; then this function reads it.
///
/// # Errors
///
/// Errors of the control plane, and [`Error::Changed`] if other clients write faster than Tidegate.
pub(crate) async fn release(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    known: &ObjectMeta,
    ours: &[&str],
) -> Result<Vec<String>, Error> {
    let key = landscape::key(known);
    let mut state =
        known.resource_version.clone().map(|version| (known.finalizers.clone().unwrap_or_default(), version));
    let mut looks = 0;
    loop {
        let (present, resource_version) = match state.take() {
            Some(state) => state,
            None => match kcp.get_metadata(kind, &key).await? {
                Some(metadata) if is_same(known, &metadata) => (metadata.finalizers, metadata.resource_version),
                Some(_) | None => return Ok(Vec::new()),
            },
        };
        let left: Vec<String> = present.iter().filter(|name| !ours.contains(&name.as_str())).cloned().collect();
        if left.len() == present.len() {
            return Ok(left);
        }
        let patch = json!({"metadata": {"finalizers": left, "resourceVersion": resource_version}});
        looks += 1;
        match kcp.merge_patch(cause, kind, &kind.id(&key), None, Bytes::from(patch.to_string())).await {
            Ok(_) => return Ok(left),
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            Err(Error::Changed { .. }) if looks < LOOKS_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes the finalizers with one request, for a kind that the daemon may not read by name. If another client wrote
/// meanwhile, the pass ends, and the next pass has the new version from its watch.
///
/// # Errors
///
/// Errors of the control plane, and [`Error::Changed`] if the object differs from the known one.
pub(crate) async fn release_known(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    known: &ObjectMeta,
    ours: &[&str],
) -> Result<(), Error> {
    let present = known.finalizers.clone().unwrap_or_default();
    let left: Vec<&String> = present.iter().filter(|name| !ours.contains(&name.as_str())).collect();
    if left.len() == present.len() {
        return Ok(());
    }
    let patch = json!({"metadata": {"finalizers": left, "resourceVersion": known.resource_version}});
    match kcp.merge_patch(cause, kind, &kind.id(&landscape::key(known)), None, Bytes::from(patch.to_string())).await {
        Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the object is the known one, and not a later one with the same name.
fn is_same(known: &ObjectMeta, live: &Metadata) -> bool {
    known.uid.as_ref().is_none_or(|uid| *uid == live.uid)
}

#[cfg(test)]
mod tests;
