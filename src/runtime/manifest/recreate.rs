//! Objects whose apply the API server refuses because of an immutable field, or a rule about the old value.
//!
//! The live object says which field that is. With `tidegate.dev/recreate: enabled` on the desired object, the live one
//! is deleted, if it is ours and still as it was read, and created again. It stays in the inventory throughout, so a
//! process that ends in between leaves an object that the next pass applies, as any other that is missing.

use tidegate_cluster::{Deleted, Error, Kind, Propagation};
use tidegate_core::{
    api::Manifest,
    immutable::{self, Context, Immutable},
    name::Key,
    object::Object,
    render::SharedObject,
};

use super::{
    ApplyTarget, decide, enact,
    ownership::{self, Ownership},
};
use crate::{
    controller::events::{Severity, reason},
    runtime::objects::{Applied, Failed, LiveObjects, concerns_all},
};

/// Recreated objects of one pass over a Manifest that have an Event of their own; a few more Events name the rest.
const EVENTS_MAX: usize = 20;
/// Length of the names in one of these Events, in bytes: the API server accepts notes of 1 KiB.
const NAMES_BYTES_MAX: usize = 900;

/// What the API server refuses about one object.
struct Refusal {
    kind: Kind,
    live: Object,
    immutable: Immutable,
}

/// Explains why objects were not applied, and recreates those that allow it. Returns what is still not applied.
///
/// # Errors
///
/// An error that concerns the runtime as a whole.
pub(super) async fn resolve(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    owner: &Key,
    applied: &mut Applied,
    mut failed: Vec<Failed>,
) -> Result<Vec<Failed>, Error> {
    let mut recreated = Vec::new();
    let ended = delete_refused(target, manifest, owner, applied, &mut failed, &mut recreated).await;
    for note in notes_of_rest(&recreated) {
        enact::publish(target, manifest, Some(note));
    }
    ended?;
    if recreated.is_empty() {
        return Ok(failed);
    }
    // With them, what waited for them.
    let again: Vec<usize> = (0..applied.objects.objects.len())
        .filter(|&index| failed.iter().any(|one| one.id == applied.objects.objects[index].id))
        .collect();
    let left = enact::apply(target, owner, applied, &again, &LiveObjects::new()).await?;
    // The sentences about those that may not be deleted say more than the API server does.
    let told = |one: Failed| match failed.iter().find(|former| former.id == one.id) {
        Some(former) if matches!(one.error, Some(Error::Invalid { .. })) => {
            Failed { message: former.message.clone(), ..one }
        }
        _ => one,
    };
    Ok(left.into_iter().map(told).collect())
}

/// Explains why objects were not applied, and deletes those that may be created again. `recreated` gets each of them
/// with the reason, also if the function fails afterwards.
async fn delete_refused(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    owner: &Key,
    applied: &Applied,
    failed: &mut [Failed],
    recreated: &mut Vec<(String, String)>,
) -> Result<(), Error> {
    for one in failed {
        let Some(index) = refused(applied, one) else { continue };
        let object = &applied.objects.objects[index];
        let Some(refusal) = find(target, owner, object).await? else { continue };
        let sentence = refusal.immutable.sentence();
        one.message = format!("{} is refused: {sentence}", object.id);
        if refusal.immutable.is_recreated() && delete(target, manifest, &refusal).await? {
            let one = (refusal.live.id().to_string(), sentence);
            if recreated.len() < EVENTS_MAX {
                enact::publish(target, manifest, Some(note(&one)));
            }
            recreated.push(one);
        }
    }
    Ok(())
}

/// The index of an object that the API server rejected.
fn refused(applied: &Applied, failed: &Failed) -> Option<usize> {
    matches!(failed.error, Some(Error::Invalid { .. })).then_some(())?;
    applied.objects.objects.iter().position(|object| object.id == failed.id)
}

/// The immutable field that the desired object changes; `None` if the API server rejects the object for another reason.
async fn find(target: &ApplyTarget<'_>, owner: &Key, object: &SharedObject) -> Result<Option<Refusal>, Error> {
    let Some(kind) = target.cluster.kind(&object.gvk).await? else { return Ok(None) };
    let live = match target.cluster.get(&kind, &Key::new(&object.id.namespace, &object.id.name)).await {
        Ok(Some(live)) => live,
        Ok(None) => return Ok(None),
        Err(error) if concerns_all(&error) => return Err(error),
        Err(_) => return Ok(None),
    };
    let desired = serde_json::from_slice(&object.body(owner)).unwrap_or_default();
    let definition = match target.cluster.definition_of(&kind).await {
        Err(error) if concerns_all(&error) => return Err(error),
        definition => definition.ok().flatten(),
    };
    let context = definition.map(|one| Context::of_definition(&object.gvk, one.value())).unwrap_or_default();
    let found = immutable::over_live(&object.gvk, live.value(), &desired, &context);
    Ok(found.map(|immutable| Refusal { kind, live, immutable }))
}

/// Deletes the live object, if it is ours and was not replaced since it was read. Returns whether it is gone or going.
async fn delete(target: &ApplyTarget<'_>, manifest: &Manifest, refusal: &Refusal) -> Result<bool, Error> {
    let Refusal { kind, live, .. } = refusal;
    let exists = |key: &Key| target.exists_elsewhere(manifest, key);
    let ownership = Ownership { manifest, siblings: target.manifests, exists: &exists };
    let Some(metadata) = target.cluster.get_metadata(kind, &Key::new(live.namespace(), live.name())).await? else {
        return Ok(true);
    };
    let is_same = live.value()["metadata"]["resourceVersion"] == metadata.resource_version.as_str();
    if !is_same || ownership::is_of_platform(&metadata.id, target.pull_secret()) || ownership.owner(&metadata).is_some()
    {
        return Ok(false);
    }
    match target.cluster.delete(target.cause, kind, &metadata, Propagation::Background).await {
        Ok(Deleted::Gone | Deleted::Terminating) => Ok(true),
        // It is read again in the next pass.
        Ok(Deleted::Changed) => Ok(false),
        Err(error) if concerns_all(&error) => Err(error),
        Err(error) => {
            tracing::warn!(object = %metadata.id, error = %error, "object cannot be deleted to create it again");
            Ok(false)
        }
    }
}

/// The Event about one object that was deleted to be created again.
fn note((id, sentence): &(String, String)) -> decide::Note {
    told(format!("{id} is deleted and created again: {sentence}"))
}

/// The Events that name the objects beyond those with an Event of their own.
fn notes_of_rest(recreated: &[(String, String)]) -> Vec<decide::Note> {
    let mut parts: Vec<(usize, String)> = Vec::new();
    for (id, _) in recreated.iter().skip(EVENTS_MAX) {
        match parts.last_mut() {
            Some((count, names)) if names.len() + id.len() < NAMES_BYTES_MAX => {
                *count += 1;
                names.push_str(", ");
                names.push_str(id);
            }
            Some(_) | None => parts.push((1, id.clone())),
        }
    }
    let text = |(count, names)| format!("{count} more objects are deleted and created again: {names}");
    parts.into_iter().map(text).map(told).collect()
}

fn told(text: String) -> decide::Note {
    decide::Note { severity: Severity::Normal, reason: reason::RECREATED, action: "Recreate", text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recreated_object_is_named_in_a_bounded_number_of_events() {
        let recreated = |count: usize| -> Vec<(String, String)> {
            (0..count).map(|number| (format!("Job a/{number:0>40}"), "it cannot change".to_owned())).collect()
        };
        assert!(notes_of_rest(&recreated(EVENTS_MAX)).is_empty());
        let all = recreated(EVENTS_MAX + 60);
        assert_eq!(note(&all[0]).text, format!("{} is deleted and created again: it cannot change", all[0].0));
        let rest: Vec<String> = notes_of_rest(&all).into_iter().map(|note| note.text).collect();
        assert!(rest.len() <= 4 && rest.iter().all(|text| text.len() <= 1_024), "{rest:?}");
        assert!(all[EVENTS_MAX..].iter().all(|(id, _)| rest.iter().any(|text| text.contains(id))), "{rest:?}");
    }
}
