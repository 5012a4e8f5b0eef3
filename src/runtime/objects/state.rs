//! What is known of shared objects in one runtime, and which of them must be applied. Pure.
//!
//! A process remembers this for every object of every runtime, so it is small: sixteen bytes an object. The order is
//! that of the shared objects, which all runtimes with the same module share.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_cluster::{Error, Metadata};
use tidegate_core::{
    api::names::FIELD_MANAGER,
    object::{Digest, Object, ObjectId},
    render::SharedObjects,
};

/// The live objects of a runtime that carry our ownership label, by their metadata.
pub(crate) type LiveObjects = BTreeMap<ObjectId, Metadata>;

/// What is known of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It must be applied.
    Missing,
    /// An earlier process applied it. This process has not read it.
    Recorded,
    /// It was as desired in this version.
    At(Version),
    /// In this version it was as Lifecycle Manager left it, and stays so while its runtime is adopted.
    Held(Version),
}

/// A version of a live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Digest of the resource version, which is opaque.
    resource_version: u64,
    /// Counts changes of the specification; 0 where the kind has no generation.
    generation: i64,
}

/// An object that was not applied.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The object.
    pub(crate) id: ObjectId,
    /// The error of its apply; none if another failure kept it from being applied.
    pub(crate) error: Option<Error>,
    /// One sentence for the status.
    pub(crate) message: String,
}

/// Shared objects in one runtime as they were last applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// The objects.
    pub(crate) objects: Arc<SharedObjects>,
    /// What is known of each, in the same order.
    pub(crate) seen: Box<[Seen]>,
    /// Whether an earlier process applied other objects in their place, and this one has not applied all of these yet.
    /// Objects that did not change are among the missing ones until they are compared.
    pub(crate) follows_another: bool,
}

/// How the metadata of a live object compares with what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The version is the known one.
    Same,
    /// It does not exist, or is being deleted.
    Gone,
    /// The version is another one: only the content tells whether the object is still as desired.
    Changed,
}

// === impl Seen ===

impl Seen {
    /// Whether a live object is known to be as desired.
    pub(crate) fn is_at(self, live: Option<&Metadata>) -> bool {
        self != Seen::Missing && compare(self, live) == Comparison::Same
    }

    /// What is known once nothing is held any more.
    pub(crate) fn released(self) -> Seen {
        match self {
            Seen::Missing | Seen::Recorded | Seen::Held(_) => Seen::Missing,
            Seen::At(version) => Seen::At(version),
        }
    }
}

// === impl Version ===

impl Version {
    /// The version that `metadata` was read from.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Version {
        Version { resource_version: fold(&metadata.resource_version), generation: metadata.generation }
    }

    /// The version of a whole object.
    pub(crate) fn of(object: &Object) -> Version {
        let metadata = &object.value()["metadata"];
        let resource_version = fold(metadata["resourceVersion"].as_str().unwrap_or_default());
        Version { resource_version, generation: metadata["generation"].as_i64().unwrap_or_default() }
    }
}

/// Folds a text into 64 bits. A collision of two versions of one object hides a drift; its chance is 2⁻⁶⁴.
fn fold(text: &str) -> u64 {
    // FNV-1a: resource versions are short, and clients cannot choose them.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

// === impl Applied ===

impl Applied {
    /// What is known before a pass that wants `objects`.
    ///
    /// `former` is the result of the last pass of this process: it holds for objects that are still the same. Without
    /// it, `recorded` decides: if the status has the digest of these very objects, all of them are applied. If it has
    /// another one, some of them may be.
    pub(crate) fn before(
        objects: &Arc<SharedObjects>,
        former: Option<Applied>,
        recorded: Option<&str>,
        desired: &Digest,
    ) -> Applied {
        let follows_another = match &former {
            // A pass may end before it applies anything.
            Some(former) => former.follows_another && !former.is_complete(),
            None => recorded.is_some_and(|recorded| recorded != desired.to_string()),
        };
        let seen = match former {
            Some(former) if former.objects.digest == objects.digest => former.seen,
            Some(former) => carried(objects, &former),
            None if recorded == Some(desired.to_string().as_str()) => {
                vec![Seen::Recorded; objects.objects.len()].into()
            }
            None => vec![Seen::Missing; objects.objects.len()].into(),
        };
        Applied { objects: Arc::clone(objects), seen, follows_another }
    }

    /// Indices of the objects that must be applied, in the order of apply.
    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.seen.len()).filter(|&index| self.seen[index] == Seen::Missing).collect()
    }

    /// Whether every object is as desired, as far as is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.seen.iter().all(|seen| *seen != Seen::Missing)
    }

    /// The same once nothing is held any more: what was held must be applied, and what an earlier process recorded may
    /// have been held.
    pub(crate) fn released(mut self) -> Applied {
        self.seen = self.seen.iter().map(|seen| seen.released()).collect();
        self
    }

    /// The indices of the objects that an earlier process left, although no record says so: their content must be
    /// compared. Until then, they count as missing.
    pub(crate) fn recognize(&self, live: &LiveObjects) -> Vec<usize> {
        let is_left = |metadata: &Metadata| !metadata.deleting && metadata.has_manager(FIELD_MANAGER);
        let is_found = |index: &usize| live.get(&self.objects.objects[*index].id).is_some_and(is_left);
        self.missing().into_iter().filter(is_found).collect()
    }

    /// Notes which objects are gone. Returns the indices of the objects whose content must be compared.
    pub(crate) fn check(&mut self, live: &LiveObjects) -> Vec<usize> {
        let mut suspects = Vec::new();
        for (index, object) in self.objects.objects.iter().enumerate() {
            match compare(self.seen[index], live.get(&object.id)) {
                Comparison::Same => {}
                Comparison::Gone => self.seen[index] = Seen::Missing,
                Comparison::Changed => suspects.push(index),
            }
        }
        suspects
    }
}

/// How the metadata of a live object compares with what is known of it. A new resource version counts even if the
/// generation is the same, because a changed label has no new generation.
fn compare(seen: Seen, live: Option<&Metadata>) -> Comparison {
    match (seen, live) {
        (Seen::Missing, _) => Comparison::Same,
        (_, None) => Comparison::Gone,
        // An object that is being deleted is as good as gone.
        (_, Some(live)) if live.deleting => Comparison::Gone,
        (Seen::Recorded, Some(_)) => Comparison::Changed,
        (Seen::At(known) | Seen::Held(known), Some(live)) => {
            if known == Version::from_metadata(live) {
                Comparison::Same
            } else {
                Comparison::Changed
            }
        }
    }
}

/// What is known of objects that are the same in two versions of a module.
fn carried(objects: &SharedObjects, former: &Applied) -> Box<[Seen]> {
    let known: BTreeMap<(&ObjectId, &Digest), Seen> = former
        .objects
        .objects
        .iter()
        .zip(&former.seen)
        .map(|(object, seen)| ((&object.id, &object.digest), *seen))
        .collect();
    objects
        .objects
        .iter()
        .map(|object| known.get(&(&object.id, &object.digest)).copied().unwrap_or(Seen::Missing))
        .collect()
}

#[cfg(test)]
mod tests;
