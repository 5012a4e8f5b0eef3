//! Objects that many runtimes share, in one of them: what is known of each, which must be sent, and sending them.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;
use tidegate_cluster::{Cause, Cluster, Effect, Error, Metadata, Target, Task};
use tidegate_core::{
    changes::covers,
    name::Key,
    object::{Object, ObjectId},
};

mod seen;

pub(crate) use seen::{Applied, Seen, Version};

/// Above this many objects of one kind and namespace to look at, they are listed instead of read one by one.
const READ_ONE_BY_ONE_MAX: usize = 3;

/// An object that could not be applied.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) id: ObjectId,
    pub(crate) error: Option<Error>,
    pub(crate) message: String,
}

/// Looks at the content of the objects at `suspects`, and notes which of them must be sent again. `owner` is whom they name.
pub(crate) async fn compare(
    cluster: &Cluster,
    owner: &Key,
    live: &BTreeMap<ObjectId, Metadata>,
    applied: &mut Applied,
    suspects: Vec<usize>,
) -> Result<(), Error> {
    if suspects.is_empty() {
        return Ok(());
    }
    let objects = Arc::clone(&applied.objects);
    let content = read(cluster, suspects.iter().map(|&index| &objects.objects[index])).await?;
    for index in suspects {
        let object = &objects.objects[index];
        let desired: Value = serde_json::from_slice(&object.body(owner)).unwrap_or_default();
        let holds = content.get(&object.id).is_some_and(|content| covers(&desired, content.value()));
        applied.seen[index] = match live.get(&object.id) {
            Some(metadata) if holds => Seen::At(Version::from_metadata(metadata)),
            _ => Seen::Missing,
        };
    }
    Ok(())
}

/// Reads objects whole: one by one if there are few of a kind, else as lists.
async fn read<'a>(
    cluster: &Cluster,
    objects: impl Iterator<Item = &'a tidegate_core::render::SharedObject>,
) -> Result<BTreeMap<ObjectId, Object>, Error> {
    let mut places: BTreeMap<_, Vec<&ObjectId>> = BTreeMap::new();
    for object in objects {
        places.entry((&object.gvk, &object.id.namespace)).or_default().push(&object.id);
    }
    let mut found = BTreeMap::new();
    for ((gvk, namespace), ids) in places {
        let Some(kind) = cluster.kind(gvk).await? else { continue };
        if ids.len() > READ_ONE_BY_ONE_MAX {
            let listed = cluster.list(&kind, Some(namespace), None).await?;
            found.extend(listed.into_iter().map(|object| (object.id(), object)));
        } else {
            for id in ids {
                let object = cluster.get(&kind, &Key::new(&id.namespace, &id.name)).await?;
                found.extend(object.map(|object| (id.clone(), object)));
            }
        }
    }
    Ok(found)
}

/// Sends the objects at `indices` and notes what the cluster says. Returns those that could not be applied, by id.
///
/// # Errors
///
/// What concerns the cluster as a whole.
pub(crate) async fn send(
    cluster: &Cluster,
    cause: &Cause,
    owner: &Key,
    applied: &mut Applied,
    indices: &[usize],
) -> Result<Vec<Failed>, Error> {
    if indices.is_empty() {
        return Ok(Vec::new());
    }
    let tasks = indices
        .iter()
        .map(|&index| &applied.objects.objects[index])
        .map(|object| Task::forced(object.gvk.clone(), object.id.clone(), object.body(owner).into()))
        .collect();
    let outcomes = cluster.enact(cause, tasks).await;
    let mut failed = Vec::new();
    // One outcome for each task, in the order of the tasks.
    for (outcome, &index) in outcomes.into_iter().zip(indices) {
        match outcome.effect {
            Effect::Applied { metadata, .. } if metadata.deleting => {
                let message = format!("{} is being deleted; it is made anew once it is gone", outcome.id);
                let error = Some(Error::Terminating { target: Target::Object(outcome.id.clone()) });
                failed.push(Failed { id: outcome.id, error, message });
            }
            Effect::Applied { metadata, .. } => applied.seen[index] = Seen::At(Version::from_metadata(&metadata)),
            Effect::Failed(error) if concerns_all(&error) => return Err(error),
            Effect::Failed(error) => {
                failed.push(Failed { id: outcome.id, message: error.to_string(), error: Some(error) });
            }
            Effect::Skipped { needs } => {
                let message = format!("{} waits for {needs}, which could not be applied", outcome.id);
                failed.push(Failed { id: outcome.id, message, error: None });
            }
        }
    }
    // What failed by itself is said before what was skipped for it.
    failed.sort_by(|one, other| (one.error.is_none(), &one.id).cmp(&(other.error.is_none(), &other.id)));
    Ok(failed)
}

/// Whether an error concerns the cluster as a whole rather than one object.
pub(crate) fn concerns_all(error: &Error) -> bool {
    error.is_unreachable() || matches!(error, Error::Unauthorized { .. } | Error::NotLeading)
}
