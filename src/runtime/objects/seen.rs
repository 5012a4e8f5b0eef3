//! What is known of the objects of one Manifest in its runtime, and which of them must be sent. Pure.
//!
//! Kept small, since a process remembers it for every object of every runtime: sixteen bytes an object, in the order of
//! the shared objects, which all runtimes with the same module share.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_cluster::Metadata;
use tidegate_core::{
    object::{Digest, ObjectId},
    render::SharedObjects,
};

/// What is known of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It must be applied.
    Missing,
    /// It was applied by an earlier process, and not seen since.
    Recorded,
    /// It was as desired in this state.
    At(Version),
}

/// A state of a live object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Digest of the resource version, which is opaque.
    resource_version: u64,
    /// Counts changes of the specification; 0 where the kind has no generation.
    generation: i64,
}

/// The objects of one Manifest as they were last applied.
#[derive(Clone, Debug)]
pub(crate) struct Applied {
    /// The objects.
    pub(crate) objects: Arc<SharedObjects>,
    /// What is known of each, in the same order.
    pub(crate) seen: Box<[Seen]>,
}

/// How a live object compares with what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It is as it was.
    Same,
    /// It is not there.
    Gone,
    /// It is another state than the one known: only a look at its content tells whether it is still as desired.
    Changed,
}

// === impl Seen ===

impl Seen {
    /// Whether a live object is known to be as desired.
    pub(crate) fn is_at(self, live: Option<&Metadata>) -> bool {
        self != Seen::Missing && sight(self, live) == Sight::Same
    }
}

// === impl Version ===

impl Version {
    /// The state that `metadata` was read from.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Version {
        Version { resource_version: fold(&metadata.resource_version), generation: metadata.generation }
    }
}

/// 64 bits of a text; two states of one object that collide would hide a drift with a chance of 2⁻⁶⁴.
fn fold(text: &str) -> u64 {
    // FNV-1a: resource versions are short and not chosen by anyone.
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

// === impl Applied ===

impl Applied {
    /// What is known before a pass that wants `objects`: what the former pass left, as far as the objects are the same; or
    /// everything, if the status records the digest of just these objects; or nothing.
    pub(crate) fn before(
        objects: &Arc<SharedObjects>,
        former: Option<Applied>,
        recorded: Option<&str>,
        desired: &Digest,
    ) -> Applied {
        let seen = match former {
            Some(former) if former.objects.digest == objects.digest => former.seen,
            Some(former) => carried(objects, &former),
            None if recorded == Some(desired.to_string().as_str()) => {
                vec![Seen::Recorded; objects.objects.len()].into()
            }
            None => vec![Seen::Missing; objects.objects.len()].into(),
        };
        Applied { objects: Arc::clone(objects), seen }
    }

    /// Indices of the objects that must be sent, in the order of apply.
    pub(crate) fn missing(&self) -> Vec<usize> {
        (0..self.seen.len()).filter(|&index| self.seen[index] == Seen::Missing).collect()
    }

    /// Whether every object is as desired, as far as is known.
    pub(crate) fn is_complete(&self) -> bool {
        self.seen.iter().all(|seen| *seen != Seen::Missing)
    }

    /// Takes what the runtime holds into account. Returns the indices of the objects whose content must be looked at.
    pub(crate) fn look(&mut self, live: &BTreeMap<ObjectId, Metadata>) -> Vec<usize> {
        let mut suspects = Vec::new();
        for (index, object) in self.objects.objects.iter().enumerate() {
            match sight(self.seen[index], live.get(&object.id)) {
                Sight::Same => {}
                Sight::Gone => self.seen[index] = Seen::Missing,
                Sight::Changed => suspects.push(index),
            }
        }
        suspects
    }
}

/// How a live object compares with what is known of it. A new state of the same generation has another status or other
/// metadata, which a kind with generations keeps apart from what we declare; labels are looked at all the same.
fn sight(seen: Seen, live: Option<&Metadata>) -> Sight {
    match (seen, live) {
        (Seen::Missing, _) => Sight::Same,
        (_, None) => Sight::Gone,
        // Whoever deletes it is not done yet; what was asked for is gone all the same.
        (_, Some(live)) if live.deleting => Sight::Gone,
        (Seen::Recorded, Some(_)) => Sight::Changed,
        (Seen::At(known), Some(live)) => {
            if known == Version::from_metadata(live) {
                Sight::Same
            } else {
                Sight::Changed
            }
        }
    }
}

/// What is known of the objects that stay the same between two versions of a module.
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
