//! Who owns an object in a runtime. Pure.
//!
//! An object without our ownership label belongs to others, unless Tidegate or Lifecycle Manager removed the label when
//! the module became unmanaged. An object with the label belongs to the Manifest that it names, as long as that exists.
//! If that was a Manifest of this runtime and is gone, its successor owns the object. What Tidegate keeps in every
//! runtime is no Manifest's.
//!
//! An object that moves from one module of a runtime to another is deleted by the first and created by the second,
//! which waits for it: [`Owner::Leaving`]. A module that becomes unmanaged deletes nothing, so nothing moves from it.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        Manifest,
        names::{FIELD_MANAGER, MANAGED_BY_SKR, MODULE_MANAGER_UPSTREAM, SKR_NAMESPACE, annotation, label},
    },
    changes::{self, Verdict},
    landscape,
    name::Key,
    object::ObjectId,
    render::{self, CompleteModule, SharedObject, SharedObjects},
};

use super::recorded;

/// Objects that exist and have another owner, each with its owner.
pub(super) type Conflicts = BTreeMap<ObjectId, Owner>;

/// The other owner of an object. Displays as a clause about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The Manifest of the same runtime with this name. No annotation takes the object from it.
    Sibling(String),
    /// The same, but it deletes the object: it is being deleted, or its module no longer contains the object.
    Leaving(String),
    /// Anybody else. Contains the clause.
    Other(String),
}

/// What a live object says about its owner.
#[derive(Clone, Copy)]
pub(crate) struct OwnershipClaim<'a> {
    /// The value of the ownership label.
    pub(crate) managed_by: Option<&'a str>,
    /// The Manifest that its annotation names.
    pub(crate) owned_by: Option<&'a str>,
    /// Its field managers.
    pub(crate) managers: &'a [String],
}

/// What the owner of an object depends on.
pub(super) struct Ownership<'a> {
    /// The Manifest that wants the object.
    pub(super) manifest: &'a Manifest,
    /// All Manifests of the runtime, in the order of modules. If two of them have one object, the first one owns it.
    pub(super) siblings: &'a [Arc<Manifest>],
    /// Whether the control plane has a Manifest, of another module.
    pub(super) exists: &'a (dyn Fn(&Key) -> bool + Sync),
}

/// Whether Tidegate keeps an object in every runtime. `pull_secret` is the name of the image pull Secret, if one is
/// configured.
pub(super) fn is_of_platform(id: &ObjectId, pull_secret: Option<&str>) -> bool {
    let is_pull_secret =
        || (&*id.group, &*id.kind, &*id.namespace) == ("", "Secret", SKR_NAMESPACE) && pull_secret == Some(&*id.name);
    render::is_in_every_runtime(id) || is_pull_secret()
}

/// Why the objects of a module are not applied: one of them is an object of [`is_of_platform`].
pub(super) fn refusal(module: &CompleteModule, pull_secret: Option<&str>) -> Option<String> {
    let mut ids = module.objects().objects.iter().map(|object| &object.id);
    let id = ids.find(|id| is_of_platform(id, pull_secret))?;
    Some(format!("{id} must not be among a module's objects, because Tidegate keeps it in every runtime"))
}

/// Whether two Manifests are of one module of one Kyma. One of them takes over what the other one has, which the watch
/// may still show.
pub(super) fn is_of_same_module(one: &Manifest, other: &Manifest) -> bool {
    let of = |manifest: &Manifest| {
        let label = |name| landscape::label(&manifest.metadata, name).map(str::to_owned);
        (manifest.metadata.namespace.clone(), label(label::KYMA_NAME), label(label::MODULE_NAME))
    };
    let of_one = of(one);
    of_one.1.is_some() && of_one.2.is_some() && of_one == of(other)
}

/// The unrecorded objects to look up in the runtime, where `held` are those that other Manifests of the runtime have.
/// Not among them are objects that stay with one of these, and those without another owner that may be adopted.
pub(super) fn to_look_up<'a>(unrecorded: &[&'a SharedObject], held: &Conflicts) -> Vec<&'a SharedObject> {
    let is_looked_up = |object: &&SharedObject| match held.get(&object.id) {
        None => !object.adopt,
        Some(owner) => owner.is_leaving(),
    };
    unrecorded.iter().copied().filter(is_looked_up).collect()
}

/// Whether a Manifest deletes nothing, whatever its module contains: its objects become the user's, or a user has
/// paused it.
fn keeps_all(manifest: &Manifest) -> bool {
    recorded::is_unmanaged(manifest) || recorded::is_skipped(manifest)
}

// === impl OwnershipClaim ===

impl OwnershipClaim<'_> {
    /// Whether Tidegate, or Lifecycle Manager before a take-over, removed the ownership label when the module of this
    /// Manifest became unmanaged. Now the module is managed again. Both leave the annotation and their field manager: a
    /// copy of such an object, which a user made, lacks the manager.
    pub(crate) fn was_unmanaged(&self, manifest: &Key) -> bool {
        let was_applied = || self.managers.iter().any(|name| name == FIELD_MANAGER || name == MODULE_MANAGER_UPSTREAM);
        self.managed_by.is_none() && self.owned_by == Some(manifest.to_string().as_str()) && was_applied()
    }
}

// === impl Owner ===

impl Owner {
    /// Whether the object is free soon, without an act of a user.
    pub(super) fn is_leaving(&self) -> bool {
        match self {
            Owner::Leaving(_) => true,
            Owner::Sibling(_) | Owner::Other(_) => false,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Sibling(manifest) | Owner::Leaving(manifest) => write!(f, "it belongs to Manifest {manifest}"),
            Owner::Other(clause) => f.write_str(clause),
        }
    }
}

// === impl Ownership ===

impl Ownership<'_> {
    /// The unrecorded objects that another Manifest of the runtime owns. `objects_of` returns the objects of a
    /// Manifest, if they have been read. While they have not, it may give up what it has.
    pub(super) fn held_by_siblings(
        &self,
        unrecorded: &[&SharedObject],
        objects_of: impl Fn(&Manifest) -> Option<Arc<SharedObjects>>,
    ) -> Conflicts {
        unrecorded
            .iter()
            .filter_map(|object| Some((object.id.clone(), self.sibling_with(&object.id, &objects_of)?)))
            .collect()
    }

    /// The Manifests of the runtime that have an unrecorded object in their inventory and are not being deleted.
    pub(super) fn siblings_with(&self, unrecorded: &[&SharedObject]) -> impl Iterator<Item = &Arc<Manifest>> {
        let has = |sibling: &Manifest| {
            let inventory = recorded::inventory(sibling);
            unrecorded.iter().any(|object| inventory.contains(&object.id))
        };
        self.siblings.iter().filter(move |sibling| {
            let is_other = sibling.metadata.name != self.manifest.metadata.name;
            is_other && sibling.metadata.deletion_timestamp.is_none() && has(sibling)
        })
    }

    /// The objects that have another owner, and those that exist and that no other Manifest of the runtime has. `held`
    /// are those that other Manifests of the runtime have, and `found` those that were looked up and exist.
    pub(super) fn settle(
        &self,
        mut held: Conflicts,
        mut found: BTreeMap<ObjectId, Metadata>,
    ) -> (Conflicts, BTreeMap<ObjectId, Metadata>) {
        self.settle_siblings(&mut held, &mut found);
        held.extend(self.held_by_others(found.clone()));
        (held, found)
    }

    /// Takes those of `found` out that another Manifest of the runtime has. One of them that its module no longer
    /// contains may stay with it, for example by an annotation.
    fn settle_siblings(&self, conflicts: &mut Conflicts, found: &mut BTreeMap<ObjectId, Metadata>) {
        for (id, owner) in conflicts {
            let Some(metadata) = found.remove(id) else { continue };
            if let Owner::Leaving(manifest) = owner
                && self.is_kept(manifest, &metadata)
            {
                *owner = Owner::Sibling(std::mem::take(manifest));
            }
        }
    }

    /// Whether an object stays with a Manifest whose module no longer contains it.
    fn is_kept(&self, manifest: &str, metadata: &Metadata) -> bool {
        let named = self.siblings.iter().find(|sibling| sibling.metadata.name.as_deref() == Some(manifest));
        let is_installed = named.is_some_and(|sibling| sibling.metadata.deletion_timestamp.is_none());
        let marked = metadata.label(label::MANAGED_BY) == Some(MANAGED_BY_SKR);
        let live = changes::Live { marked, deleting: metadata.deleting, prune: metadata.annotation(annotation::PRUNE) };
        is_installed
            && match changes::forecast(&metadata.id, changes::Purpose::Install, &live) {
                None | Some(Verdict::Disabled | Verdict::Guarded) => true,
                Some(Verdict::Delete | Verdict::Wait | Verdict::Gone | Verdict::Foreign) => false,
            }
    }

    /// The unrecorded objects that exist in the runtime and have another owner.
    fn held_by_others(&self, found: BTreeMap<ObjectId, Metadata>) -> Conflicts {
        found
            .into_iter()
            .filter(|(_, metadata)| !self.was_unmanaged(metadata))
            .filter_map(|(id, metadata)| self.owner(&metadata).map(|owner| (id, Owner::Other(owner))))
            .collect()
    }

    /// The owner of an object; none if it is this Manifest. It is if the object has our ownership label and names this
    /// Manifest, or one of this runtime that is gone.
    pub(super) fn owner(&self, metadata: &Metadata) -> Option<String> {
        let managers = || match metadata.managers.as_slice() {
            [] => "it has no field manager".to_owned(),
            names => format!("managed by {}", names.join(", ")),
        };
        // Its labels may be among what cannot be read.
        if let Some(problem) = &metadata.unreadable {
            return Some(format!("it cannot be read: {problem}"));
        }
        if metadata.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) {
            return Some(managers());
        }
        let owner = metadata.annotation(annotation::OWNED_BY).filter(|_| !self.names_us(metadata))?;
        let Ok(key) = owner.parse::<Key>() else { return Some(managers()) };
        let present = || self.siblings.iter().any(|sibling| landscape::key(&sibling.metadata) == key);
        if present() || (self.exists)(&key) {
            return Some(format!("it belongs to Manifest {}", key.name()));
        }
        // The name of a Manifest begins with the name of its Kyma.
        let kyma = landscape::label(&self.manifest.metadata, label::KYMA_NAME).unwrap_or_default();
        let of_this_runtime = Some(key.namespace()) == self.manifest.metadata.namespace.as_deref()
            && key.name().strip_prefix(kyma).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        (!of_this_runtime).then(|| format!("it belongs to {key}, which this control plane does not have"))
    }

    /// The Manifest of the same runtime that has an object in its inventory, or also has it and comes first.
    fn sibling_with(
        &self,
        id: &ObjectId,
        objects_of: &impl Fn(&Manifest) -> Option<Arc<SharedObjects>>,
    ) -> Option<Owner> {
        let own = &self.manifest.metadata.name;
        let mut is_before = true;
        for sibling in self.siblings {
            if sibling.metadata.name == *own {
                is_before = false;
                continue;
            }
            let stays = sibling.metadata.deletion_timestamp.is_none();
            let brings = || {
                let objects = objects_of(sibling)?;
                Some(objects.objects.iter().any(|object| object.id == *id))
            };
            let name = || sibling.metadata.name.clone().unwrap_or_default();
            if recorded::inventory(sibling).contains(id) {
                let keeps = keeps_all(sibling) || stays && brings() == Some(true);
                return Some(if keeps { Owner::Sibling(name()) } else { Owner::Leaving(name()) });
            }
            // One that is paused gets nothing that it does not have.
            if is_before && stays && !recorded::is_skipped(sibling) && brings() == Some(true) {
                return Some(Owner::Sibling(name()));
            }
        }
        None
    }

    fn was_unmanaged(&self, metadata: &Metadata) -> bool {
        let claim = OwnershipClaim {
            managed_by: metadata.label(label::MANAGED_BY),
            owned_by: metadata.annotation(annotation::OWNED_BY),
            managers: &metadata.managers,
        };
        claim.was_unmanaged(&landscape::key(&self.manifest.metadata))
    }

    fn names_us(&self, metadata: &Metadata) -> bool {
        metadata.annotation(annotation::OWNED_BY) == Some(landscape::key(&self.manifest.metadata).to_string().as_str())
    }
}

#[cfg(test)]
mod tests;
