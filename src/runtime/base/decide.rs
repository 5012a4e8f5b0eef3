//! What to apply and prune of a runtime's base, and what the status reports of it. Pure.

use std::time::Duration;

use tidegate_cluster::{Error, Metadata};
use tidegate_core::{
    api::{
        KYMA_GROUP, KYMA_VERSION,
        names::{CATALOG_MANAGER_UPSTREAM, FIELD_MANAGER},
    },
    object::{Digest, Gvk, ObjectId},
    render::SharedObjects,
    status::Part,
};
use tokio::time::Instant;

use super::state::{Base, Credentials, KnownBase};
use crate::runtime::{
    delay,
    objects::{Applied, Failed, Repairs},
};

/// What a pass does about the base.
#[derive(Debug)]
pub(super) struct Work {
    /// Indices of the objects to apply, in the order of apply.
    pub(super) missing: Vec<usize>,
    /// Whether the catalog is pruned once all objects are applied.
    prunes: bool,
}

/// The base after a pass.
pub(in crate::runtime) struct BaseReport {
    /// The system namespace and the CRDs.
    pub(in crate::runtime) crds: Part,
    /// The module catalog.
    pub(in crate::runtime) catalog: Part,
    /// The image pull Secret, if one is configured.
    pub(in crate::runtime) pull_secret: Option<Part>,
    /// Digest of the base, once all of it is applied.
    pub(in crate::runtime) applied: Option<Digest>,
    /// When to try again.
    pub(in crate::runtime) again: Option<Duration>,
}

/// When a pass that did not prune because deletions are held is followed by the next. Most holds end within seconds.
const HELD_RETRY: Duration = Duration::from_secs(10);

/// The kinds of which every runtime has objects.
pub(in crate::runtime) fn kinds(has_pull_secret: bool) -> Vec<Gvk> {
    let [templates, releases] = catalog_kinds();
    let mut kinds = vec![
        Gvk::new("", "v1", "Namespace"),
        Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        templates,
        releases,
    ];
    kinds.extend(has_pull_secret.then(|| Gvk::new("", "v1", "Secret")));
    kinds
}

/// The kinds of the catalog, in the order of prune.
fn catalog_kinds() -> [Gvk; 2] {
    ["ModuleTemplate", "ModuleReleaseMeta"].map(|kind| Gvk::new(KYMA_GROUP, KYMA_VERSION, kind))
}

/// What to do. `recorded` is the digest in the status. `checks` is whether this pass lists the objects of the runtime,
/// or must because it may have some of a former base. `is_known` is whether every definition of the catalog in the
/// control plane could be read.
pub(super) fn work(base: &Base, applied: &Applied, recorded: Option<&str>, checks: bool, is_known: bool) -> Work {
    let missing = applied.missing();
    let is_new = !missing.is_empty() || recorded != Some(base.digest.to_string().as_str());
    // A catalog that is not rendered completely does not say which copies have left it.
    Work { missing, prunes: (is_new || checks) && base.problems.is_empty() && is_known }
}

/// Indices of the objects to send, and those that others undo again and again and whose repair waits.
pub(super) fn without_resting(
    applied: &Applied,
    work: &Work,
    repairs: &Repairs,
    now: Instant,
) -> (Vec<usize>, Vec<Failed>) {
    let id = |index: usize| &applied.objects.objects[index].id;
    let sent = work.missing.iter().copied().filter(|&index| !repairs.is_resting(id(index), now)).collect();
    let is_missing = |of: &ObjectId| work.missing.iter().any(|&index| id(index) == of);
    let resting = repairs.resting(now).filter(|(id, _)| is_missing(id));
    (sent, resting.map(|(id, message)| Failed { id: id.clone(), error: None, message }).collect())
}

/// These indices without those of objects that could not be taken over: the next pass tries it again.
pub(super) fn without(indices: Vec<usize>, applied: &Applied, untaken: &[Failed]) -> Vec<usize> {
    let is_untaken = |index: &usize| untaken.iter().any(|failed| failed.id == applied.objects.objects[*index].id);
    indices.into_iter().filter(|index| !is_untaken(index)).collect()
}

/// The kinds whose copies to list for pruning. While an object is not applied, nothing is pruned.
pub(super) fn kinds_to_prune(work: &Work, failed: &[Failed]) -> Vec<Gvk> {
    if work.prunes && failed.is_empty() { catalog_kinds().into() } else { Vec::new() }
}

/// Whether the runtime may still have objects of a former base.
pub(super) fn is_unpruned(known: &KnownBase, work: &Work, failed: &[Failed], is_held: bool) -> bool {
    known.is_unpruned && (is_held || kinds_to_prune(work, failed).is_empty())
}

/// The copies of definitions to delete: this runtime no longer sees them. Objects that users created stay, and while
/// the runtime is adopted, those that only Lifecycle Manager applied.
pub(super) fn to_prune<'a>(desired: &SharedObjects, copies: &'a [Metadata], is_adopted: bool) -> Vec<&'a Metadata> {
    let is_desired = |copy: &Metadata| desired.objects.iter().any(|object| object.id == copy.id);
    let is_left = |copy: &Metadata| copy.has_manager(CATALOG_MANAGER_UPSTREAM) && !is_adopted;
    let is_ours = |copy: &Metadata| copy.has_manager(FIELD_MANAGER) || is_left(copy);
    let may_go = |copy: &Metadata| !copy.deleting && copy.unreadable.is_none();
    copies.iter().filter(|copy| !is_desired(copy) && is_ours(copy) && may_go(copy)).collect()
}

/// What is known after a pass, and its report. `failed` are the objects that were not applied; `is_held` is whether
/// copies were not pruned because deletions are held. Then the base is not recorded as applied, so the next pass
/// prunes.
pub(super) fn ending(
    known: &KnownBase,
    base: &Base,
    applied: Applied,
    failed: &[Failed],
    is_held: bool,
) -> (KnownBase, BaseReport) {
    let attempt = if failed.is_empty() { 0 } else { known.attempt.saturating_add(1) };
    let is_complete = applied.is_complete() && base.problems.is_empty() && !is_held;
    let classes = failed.iter().filter_map(|failed| failed.error.as_ref()).map(Error::class);
    let report = BaseReport {
        crds: part(failed, &[], |id| matches!(&*id.kind, "Namespace" | "CustomResourceDefinition")),
        catalog: part(failed, &base.problems, |id| matches!(&*id.kind, "ModuleTemplate" | "ModuleReleaseMeta")),
        pull_secret: base.credentials.as_ref().map(|credentials| match credentials {
            Credentials::Found => part(failed, &[], |id| &*id.kind == "Secret"),
            Credentials::Missing(key) => {
                Part::Waiting(format!("there is no Secret {key} to pull images with: create it in the control plane"))
            }
        }),
        applied: is_complete.then_some(base.digest),
        again: classes.map(|class| delay(class, attempt)).chain(is_held.then_some(HELD_RETRY)).min(),
    };
    (KnownBase { applied: Some(applied), attempt, is_unpruned: known.is_unpruned, ..KnownBase::default() }, report)
}

/// Whether the objects that belong to a part are applied, and why not.
fn part(failed: &[Failed], problems: &[String], belongs: impl Fn(&ObjectId) -> bool) -> Part {
    let message = failed.iter().find(|failed| belongs(&failed.id)).map(|failed| &failed.message).or(problems.first());
    message.map_or(Part::Done, |message| Part::Failed(message.clone()))
}

#[cfg(test)]
mod tests;
