//! What a Manifest in KCP says: the requests in its metadata and specification, and the records in its status. Pure.

use tidegate_core::{
    api::{
        Manifest,
        names::annotation,
        shared::{CustomResourcePolicy, State},
    },
    conditions,
    inventory::Inventory,
    landscape,
    object::Object,
    status,
};

/// Digest of what was applied for this very generation. The record of another generation says nothing: the runtime may
/// have objects of both.
pub(super) fn digest(manifest: &Manifest) -> Option<&str> {
    let status = manifest.status.as_ref()?;
    let condition = conditions::find(&status.conditions, conditions::APPLIED)?;
    let is_of_this = condition.observed_generation == manifest.metadata.generation;
    // While others undo an object again and again, it may be missing.
    let is_contested = status.state == State::Warning;
    conditions::recorded(&status.conditions, conditions::APPLIED).filter(|_| is_of_this && !is_contested)
}

/// Whether the status says that all objects were applied once. A Manifest that has just taken over the inventory of
/// another one does not say so.
pub(super) fn was_applied(manifest: &Manifest) -> bool {
    let conditions = manifest.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::find(conditions, conditions::APPLIED).is_some()
}

/// Whether the status says that all objects are as `desired`.
pub(super) fn is_as_desired(manifest: &Manifest, desired: &str) -> bool {
    let Some(status) = &manifest.status else { return false };
    status.state == State::Ready
        && digest(manifest) == Some(desired)
        && (module_resource(manifest).is_none() || is_resource_created(manifest))
        && !is_asked_for(manifest)
}

/// Whether the status says that the Manifest is as Tidegate applied it last, whatever it desires now.
pub(crate) fn is_as_recorded(manifest: &Manifest) -> bool {
    digest(manifest).is_some_and(|digest| is_as_desired(manifest, digest))
}

/// The objects that the Manifest has in its runtime.
pub(super) fn inventory(manifest: &Manifest) -> Inventory {
    Inventory::from_status(manifest.status.as_ref().map(|status| status.synced.as_slice()).unwrap_or_default())
}

/// Whether a user has requested a pass that has not taken place.
pub(crate) fn is_asked_for(manifest: &Manifest) -> bool {
    let conditions = manifest.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let handled = conditions::message(conditions, conditions::RECONCILE_REQUESTED);
    let is_at_work = manifest.metadata.deletion_timestamp.is_none() && !is_skipped(manifest);
    is_at_work && requested(manifest).is_some_and(|requested| Some(requested.as_str()) != handled)
}

/// The requested pass, whether or not it has already taken place.
pub(super) fn requested(manifest: &Manifest) -> Option<String> {
    landscape::annotation(&manifest.metadata, annotation::RECONCILE_REQUESTED_AT).map(str::to_owned)
}

/// Whether a user has paused the Manifest.
pub(crate) fn is_skipped(manifest: &Manifest) -> bool {
    status::is_paused(manifest)
}

/// Whether its objects become the user's.
pub(crate) fn is_unmanaged(manifest: &Manifest) -> bool {
    landscape::annotation(&manifest.metadata, annotation::IS_UNMANAGED) == Some("true")
}

/// Whether a Manifest is being deleted and no finalizer holds it.
pub(crate) fn is_released(manifest: &Manifest) -> bool {
    manifest.metadata.deletion_timestamp.is_some() && manifest.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
}

/// Whether a Manifest records everything that another one of its module does.
pub(crate) fn has_all_of(manifest: &Manifest, other: &Manifest) -> bool {
    let (own, others) = (inventory(manifest), inventory(other));
    own.union(&others) == own && (is_resource_created(manifest) || !has_resource_to_give(other))
}

/// Whether the Manifest that takes over what this one has need not create the default custom resource. One that is
/// being deleted may have deleted it.
pub(super) fn has_resource_to_give(manifest: &Manifest) -> bool {
    is_resource_created(manifest) && manifest.metadata.deletion_timestamp.is_none()
}

/// The default custom resource, if Tidegate creates it.
pub(super) fn module_resource(manifest: &Manifest) -> Option<Object> {
    match manifest.spec.custom_resource_policy {
        CustomResourcePolicy::Ignore => None,
        CustomResourcePolicy::CreateAndDelete => Object::new(manifest.spec.resource.clone()?).ok(),
    }
}

/// Whether the default custom resource has been created.
pub(super) fn is_resource_created(manifest: &Manifest) -> bool {
    manifest.status.as_ref().is_some_and(|status| conditions::message(&status.conditions, "ModuleCR").is_some())
}
