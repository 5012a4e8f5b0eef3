//! Objects that many runtimes share, in one of them: what is known of each, which are applied, and applying them.
//!
//! `state` is what is known, `decide` what to read and apply and what follows from the answers, `repairs` what others
//! undo, `adopted` what Lifecycle Manager left, `enact` sends the requests. This file only joins them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_cluster::{Cause, Cluster, Error, managers_before};
use tidegate_core::{
    name::Key,
    object::{Object, ObjectId},
    render::SharedObjects,
};
use tokio::time::Instant;

mod adopted;
mod decide;
mod enact;
#[cfg(test)]
pub(crate) mod fixtures;
mod repairs;
mod state;

pub(crate) use adopted::is_touched;
pub(crate) use decide::concerns_all;
pub(crate) use repairs::{Repairs, Undone};
#[cfg(test)]
pub(crate) use state::Version;
pub(crate) use state::{Applied, Failed, LiveObjects, Seen};

/// What shared bodies are filled with before they are compared or sent.
#[derive(Clone, Copy)]
pub(crate) struct Filling<'a> {
    /// The owner that the objects name.
    pub(crate) owner: &'a Key,
    /// The control plane. It has the Secrets whose data some objects get; they are read each time, and not kept.
    pub(crate) kcp: &'a Cluster,
}

/// Notes which objects are not as desired in a runtime, if this pass has listed its `live` objects.
///
/// # Errors
///
/// The error of the request for the content of an object.
pub(crate) async fn check(
    cluster: &Cluster,
    filling: Filling<'_>,
    live: Option<&LiveObjects>,
    applied: &mut Applied,
) -> Result<(), Error> {
    let Some(live) = live else { return Ok(()) };
    let suspects = applied.check(live);
    compare(cluster, filling, live, applied, suspects).await
}

/// As [`check`]. Notes as well what others have undone since the last check, so that the same object is not repaired
/// without an end, and returns that. A repair waits for `pause` at most.
///
/// # Errors
///
/// The error of the request for the content of an object.
pub(crate) async fn check_repairs(
    cluster: &Cluster,
    filling: Filling<'_>,
    live: Option<&LiveObjects>,
    applied: &mut Applied,
    (repairs, pause): (&mut Repairs, Duration),
) -> Result<Vec<Undone>, Error> {
    let before = live.map(|_| applied.seen.clone()).unwrap_or_default();
    check(cluster, filling, live, applied).await?;
    let now = Instant::now();
    repairs.keep(applied, now);
    Ok(live.map(|live| repairs.note(&before, applied, live, pause, now)).unwrap_or_default())
}

/// Notes which of the objects to apply are already as desired, where the record of what was applied is lost: its custom
/// resource was deleted together with its definition. `live` are the objects that exist.
///
/// A field that the desired objects no longer have stays, until the object is applied the next time.
///
/// # Errors
///
/// The error of the request for the content of an object.
pub(crate) async fn recognize(
    cluster: &Cluster,
    filling: Filling<'_>,
    live: &LiveObjects,
    applied: &mut Applied,
) -> Result<(), Error> {
    let suspects = applied.recognize(live);
    compare(cluster, filling, live, applied, suspects).await
}

/// Takes over the objects to apply that Lifecycle Manager left in a runtime, and that stay as they are while the
/// runtime is adopted, with one write each. Returns those that were not taken over.
///
/// # Errors
///
/// An error that concerns the cluster as a whole.
pub(crate) async fn adopt(
    cluster: &Cluster,
    cause: &Cause,
    filling: Filling<'_>,
    applied: &mut Applied,
) -> Result<Vec<Failed>, Error> {
    let (objects, missing) = (Arc::clone(&applied.objects), applied.missing());
    let content = read(cluster, &objects, &missing).await?;
    let data = load(filling, &objects, &missing).await?;
    let bodies = decide::Bodies { owner: filling.owner, data: &data };
    let mut failed = Vec::new();
    for (index, adoption) in adopted::adoptions(applied, bodies, &content, managers_before(cluster.name(), "")) {
        let object = &objects.objects[index];
        let taken = enact::take_over(cluster, cause, &content[&object.id]).await;
        failed.extend(decide::after_take_over(applied, index, adoption, taken)?);
    }
    Ok(failed)
}

/// Compares the content of the objects at `suspects` with what is desired.
async fn compare(
    cluster: &Cluster,
    filling: Filling<'_>,
    live: &LiveObjects,
    applied: &mut Applied,
    suspects: Vec<usize>,
) -> Result<(), Error> {
    let objects = Arc::clone(&applied.objects);
    let content = read(cluster, &objects, &suspects).await?;
    let data = load(filling, &objects, &suspects).await?;
    decide::compare(applied, suspects, decide::Bodies { owner: filling.owner, data: &data }, live, &content);
    Ok(())
}

/// Applies the objects at `indices` and notes the answers. Returns the objects that were not applied.
///
/// `found` are live objects that were looked up before. What Lifecycle Manager applied of them is taken over with one
/// write each, and applied only if it is not as desired. Where an earlier process applied other objects in their place,
/// those that an apply would not change are not sent.
///
/// # Errors
///
/// An error that concerns the cluster as a whole.
pub(crate) async fn apply(
    cluster: &Cluster,
    cause: &Cause,
    filling: Filling<'_>,
    applied: &mut Applied,
    indices: &[usize],
    found: &LiveObjects,
) -> Result<Vec<Failed>, Error> {
    let data = load(filling, &applied.objects, indices).await?;
    let (mut indices, mut failed) = decide::complete(applied, indices, &data);
    if applied.follows_another {
        let bodies = decide::Bodies { owner: filling.owner, data: &data };
        let content = read(cluster, &applied.objects, &indices).await?;
        decide::recognize(applied, &indices, bodies, &content);
        indices.retain(|&index| applied.seen[index] == Seen::Missing);
    }
    let bodies = decide::Bodies { owner: filling.owner, data: &data };
    let outcomes = cluster.enact(cause, decide::tasks(applied, bodies, &indices, found)).await;
    failed.extend(decide::after_apply(applied, &indices, outcomes)?);
    Ok(failed)
}

/// Reads the objects at `indices`, as far as they exist. Others may be among them.
async fn read(
    cluster: &Cluster,
    objects: &SharedObjects,
    indices: &[usize],
) -> Result<BTreeMap<ObjectId, Object>, Error> {
    let mut content = BTreeMap::new();
    for read in decide::reads(objects, indices) {
        let found = enact::read(cluster, &read).await?;
        content.extend(found.into_iter().map(|object| (object.id(), object)));
    }
    Ok(content)
}

/// Reads the data of the Secrets in KCP that the objects at `indices` get.
async fn load(filling: Filling<'_>, objects: &SharedObjects, indices: &[usize]) -> Result<decide::Data, Error> {
    let mut data = decide::Data::new();
    for source in decide::data_sources(objects, indices) {
        let secret = enact::read_secret(filling.kcp, &source.secret).await?;
        data.extend(decide::data_of(&source, secret).map(|of_secret| (source, of_secret)));
    }
    Ok(data)
}
