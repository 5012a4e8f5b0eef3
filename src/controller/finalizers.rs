//! Taking finalizers of ours off an object, and no one else's.
//!
//! A merge patch replaces the whole list, so it is bound to the version that the list was read at: who adds a finalizer
//! at the same moment keeps it, and we look again.

use bytes::Bytes;
use serde_json::json;
use tidegate_cluster::{Cause, Cluster, Error, Kind, Metadata};
use tidegate_core::{api::shared::ObjectMeta, landscape};

/// Looks at an object that others write at the same time, in one pass. The next pass goes on.
const LOOKS_MAX: u32 = 3;

/// Drops `ours` from an object of the control plane; returns whose finalizers are left. None are left of one that is gone.
///
/// What is known of the object may be old, or without a version; then it is read.
///
/// # Errors
///
/// What the control plane says; [`Error::Changed`] if others write faster than we do.
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

/// The same with one request, for a kind that the daemon may not read by name: where others wrote meanwhile, the pass
/// ends, and the next one has their version from its watch.
///
/// # Errors
///
/// What the control plane says; [`Error::Changed`] if the object is not what is known of it.
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

/// Whether it is the object that we knew, and not a later one of its name.
fn is_same(known: &ObjectMeta, live: &Metadata) -> bool {
    known.uid.as_ref().is_none_or(|uid| *uid == live.uid)
}

#[cfg(test)]
mod tests;
