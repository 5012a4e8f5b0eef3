//! Removes Tidegate's finalizers from an object, and no others.
//!
//! A merge patch replaces the whole list, so it names the resourceVersion at which the list was read. If another client
//! adds a finalizer at the same moment, that finalizer stays, and Tidegate reads the object again.
//!
//! `decide` says what to do next, and `enact` does it with one request. This file only joins them.

mod decide;
mod enact;

use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{api::shared::ObjectMeta, landscape};

use decide::{FinalizerState, Step};

/// Writes to one object in one pass, while other clients keep writing it. The next pass continues.
const WRITES_MAX: u32 = 3;

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
    run(kcp, cause, kind, known, ours, WRITES_MAX).await
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
    run(kcp, cause, kind, known, ours, 1).await.map(drop)
}

/// Removes all finalizers of an object of the control plane, those of others included.
///
/// # Errors
///
/// As [`release`].
pub(crate) async fn release_all(kcp: &Cluster, cause: &Cause, kind: &Kind, known: &ObjectMeta) -> Result<(), Error> {
    let all: Vec<&str> = known.finalizers.iter().flatten().map(String::as_str).collect();
    release(kcp, cause, kind, known, &all).await.map(drop)
}

async fn run(
    kcp: &Cluster,
    cause: &Cause,
    kind: &Kind,
    known: &ObjectMeta,
    ours: &[&str],
    mut writes_left: u32,
) -> Result<Vec<String>, Error> {
    let key = landscape::key(known);
    let mut found = FinalizerState::shown(known);
    loop {
        found = match decide::next(found, ours, writes_left) {
            Step::Read => FinalizerState::read(known, enact::read(kcp, kind, &key).await?),
            Step::Write { left, resource_version } => {
                writes_left -= 1;
                enact::write(kcp, cause, kind, &key, left, &resource_version).await?
            }
            Step::End(result) => return result,
        };
    }
}

#[cfg(test)]
mod tests;
