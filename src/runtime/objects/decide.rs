//! Which shared objects are read and applied, and what follows from the answers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use tidegate_cluster::{Claims, Effect, Error, Metadata, Outcome, Target, Task, is_as_applied};
use tidegate_core::{
    api::names::label,
    changes::covers,
    landscape::label as label_value,
    name::Key,
    object::{Gvk, Object, ObjectId},
    render::{DataSource, SharedObject, SharedObjects, is_in_every_runtime},
};

use super::{
    adopted::Adoption,
    state::{Applied, Failed, LiveObjects, Seen, Version},
};

/// One request for the content of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// Reads one object.
    One { gvk: &'a Gvk, id: &'a ObjectId },
    /// Lists the objects of a kind in a namespace.
    All { gvk: &'a Gvk, namespace: &'a str },
}

/// More objects than this of one kind and namespace are listed, not read one by one.
const READ_ONE_BY_ONE_MAX: usize = 3;

// === impl Bodies ===

impl Bodies<'_> {
    /// The body of an object; `None` if its data are gone.
    pub(super) fn of(self, object: &SharedObject) -> Option<Vec<u8>> {
        match &object.data_from {
            None => Some(object.body(self.owner)),
            Some(source) => Some(object.body_with(self.owner, self.data.get(&**source)?)),
        }
    }
}

// === impl Read ===

impl Read<'_> {
    /// The kind of the objects.
    pub(super) fn gvk(&self) -> &Gvk {
        match self {
            Read::One { gvk, .. } | Read::All { gvk, .. } => gvk,
        }
    }
}

/// The requests for the content of the objects at `suspects`.
pub(super) fn reads<'a>(objects: &'a SharedObjects, suspects: &[usize]) -> Vec<Read<'a>> {
    let mut places: BTreeMap<(&Gvk, &str), Vec<&ObjectId>> = BTreeMap::new();
    for object in suspects.iter().map(|&index| &objects.objects[index]) {
        places.entry((&object.gvk, &object.id.namespace)).or_default().push(&object.id);
    }
    let reads = places.into_iter().flat_map(|((gvk, namespace), ids)| {
        if ids.len() > READ_ONE_BY_ONE_MAX {
            vec![Read::All { gvk, namespace }]
        } else {
            ids.into_iter().map(|id| Read::One { gvk, id }).collect()
        }
    });
    reads.collect()
}

/// The data of Secrets in KCP that objects get. Must not outlive the requests that need them.
pub(super) type Data = BTreeMap<DataSource, Value>;

/// What bodies are filled with.
#[derive(Clone, Copy)]
pub(super) struct Bodies<'a> {
    /// The owner that the objects name.
    pub(super) owner: &'a Key,
    /// The data of Secrets in KCP.
    pub(super) data: &'a Data,
}

/// The Secrets in KCP whose data the objects at `indices` get.
pub(super) fn data_sources(objects: &SharedObjects, indices: &[usize]) -> BTreeSet<DataSource> {
    let sources = indices.iter().filter_map(|&index| objects.objects[index].data_from.as_deref());
    sources.cloned().collect()
}

/// The data of a Secret in KCP; `None` if it is gone, or is no longer meant for the module.
pub(super) fn data_of(source: &DataSource, secret: Option<Secret>) -> Option<Value> {
    let is_meant = |secret: &Secret| {
        source.module.is_none_or(|module| label_value(&secret.metadata, label::MODULE_NAME) == Some(module))
    };
    let secret = secret.filter(is_meant)?;
    serde_json::to_value(secret.data.unwrap_or_default()).ok()
}

/// The indices whose objects can be sent, and the objects whose data are gone since the pass began.
pub(super) fn complete(applied: &Applied, indices: &[usize], data: &Data) -> (Vec<usize>, Vec<Failed>) {
    let source = |index: usize| applied.objects.objects[index].data_from.as_deref();
    let (complete, failed): (Vec<usize>, Vec<usize>) =
        indices.iter().partition(|&&index| source(index).is_none_or(|source| data.contains_key(source)));
    let failed = failed.into_iter().map(|index| {
        let id = applied.objects.objects[index].id.clone();
        let message = format!("the Secret in KCP whose data {id} gets has just changed");
        Failed { id, error: None, message }
    });
    (complete, failed.collect())
}

/// Notes which of the objects at `suspects` are as desired, given their `content`.
pub(super) fn compare(
    applied: &mut Applied,
    suspects: Vec<usize>,
    bodies: Bodies<'_>,
    live: &LiveObjects,
    content: &BTreeMap<ObjectId, Object>,
) {
    for index in suspects {
        let object = &applied.objects.objects[index];
        // What cannot be filled in is reported when the object is applied.
        let desired: Option<Value> = bodies.of(object).and_then(|body| serde_json::from_slice(&body).ok());
        let is_as_desired = content
            .get(&object.id)
            .is_some_and(|content| desired.is_some_and(|desired| covers(&desired, content.value())));
        applied.seen[index] = match live.get(&object.id) {
            Some(metadata) if is_as_desired => Seen::At(Version::from_metadata(metadata)),
            Some(_) | None => Seen::Missing,
        };
    }
}

/// Notes which of the objects at `suspects` an apply would not change, given their `content`.
pub(super) fn recognize(
    applied: &mut Applied,
    suspects: &[usize],
    bodies: Bodies<'_>,
    content: &BTreeMap<ObjectId, Object>,
) {
    for &index in suspects {
        let object = &applied.objects.objects[index];
        let Some(live) = content.get(&object.id) else { continue };
        let is_deleted = !live.value()["metadata"]["deletionTimestamp"].is_null();
        let desired: Option<Value> = bodies.of(object).and_then(|body| serde_json::from_slice(&body).ok());
        if !is_deleted && desired.is_some_and(|desired| is_as_applied(&desired, live)) {
            applied.seen[index] = Seen::At(Version::of(live));
        }
    }
}

/// The applies of the objects at `indices`, in this order. `found` are live objects.
pub(super) fn tasks(applied: &Applied, bodies: Bodies<'_>, indices: &[usize], found: &LiveObjects) -> Vec<Task> {
    let objects = indices.iter().map(|&index| &applied.objects.objects[index]);
    let task = |object: &SharedObject| {
        let body = bodies.of(object).expect("objects without their data have been left out");
        // What every runtime has gets its data from Tidegate, and never as texts.
        let is_secret = (&*object.gvk.group, &*object.gvk.kind) == ("", "Secret") && !is_in_every_runtime(&object.id);
        let claims = match found.get(&object.id) {
            Some(live) if live.has_other_claims() && !live.deleting => Claims::ToTakeOver,
            None if is_secret => Claims::OfSecret,
            Some(_) | None => Claims::None,
        };
        Task { claims, ..Task::forced(object.gvk.clone(), object.id.clone(), body.into()) }
    };
    objects.map(task).collect()
}

/// Notes the outcomes of applies, one for each of `indices`. Returns the objects that were not applied: first those
/// whose own apply failed, then those that were skipped, each by id.
///
/// # Errors
///
/// An error that concerns the cluster as a whole.
pub(super) fn after_apply(
    applied: &mut Applied,
    indices: &[usize],
    outcomes: Vec<Outcome>,
) -> Result<Vec<Failed>, Error> {
    let mut failed = Vec::new();
    for (Outcome { id, effect, .. }, &index) in outcomes.into_iter().zip(indices) {
        match effect {
            Effect::Applied { metadata, .. } if metadata.deleting => {
                let message = format!("{id} is being deleted; Tidegate applies it again once it is gone");
                let error = Error::Terminating { target: Target::Object(id.clone()) };
                failed.push(Failed { id, error: Some(error), message });
            }
            Effect::Applied { metadata, .. } => applied.seen[index] = Seen::At(Version::from_metadata(&metadata)),
            Effect::Failed(error) if concerns_all(&error) => return Err(error),
            Effect::Failed(error) => failed.push(Failed { id, message: error.to_string(), error: Some(error) }),
            Effect::Skipped { needs } => {
                let message = format!("{id} waits for {needs}, which was not applied");
                failed.push(Failed { id, error: None, message });
            }
        }
    }
    failed.sort_by(|one, other| (one.error.is_none(), &one.id).cmp(&(other.error.is_none(), &other.id)));
    Ok(failed)
}

/// Notes the answer to the take-over of the object at `index`. Returns it if it was not taken over.
///
/// # Errors
///
/// An error that concerns the cluster as a whole.
pub(super) fn after_take_over(
    applied: &mut Applied,
    index: usize,
    adoption: Adoption,
    taken: Result<Metadata, Error>,
) -> Result<Option<Failed>, Error> {
    match taken {
        Ok(metadata) => {
            applied.seen[index] = adoption.seen(Version::from_metadata(&metadata));
            Ok(None)
        }
        Err(error) if concerns_all(&error) => Err(error),
        Err(error) => {
            let id = applied.objects.objects[index].id.clone();
            Ok(Some(Failed { id, message: error.to_string(), error: Some(error) }))
        }
    }
}

/// Whether an error concerns the cluster as a whole, not one object.
pub(crate) fn concerns_all(error: &Error) -> bool {
    error.is_unreachable() || matches!(error, Error::Unauthorized { .. } | Error::NotLeading)
}

#[cfg(test)]
mod tests;
