//! The memory that the files of all sources share, and the part of it that each source is sure of.
//!
//! Half of it is divided evenly among the active sources: the share of each. The other half is for the sources that
//! need more than their share, in the order in which they come. So a source with large files keeps no other source
//! from its share, and one that is alone may use almost everything. Pure.

use std::{cmp::Reverse, collections::BTreeMap, error::Error, fmt};

use tidegate_core::name::Key;

use super::decide::Purpose;

/// Maximum size of the files of all sources together. Definitions take up to seven times their size in memory, and
/// objects of modules twice: with all of it, the Pod stays below the limit in `deploy/`.
pub(super) const SOURCES_BYTES_MAX: u64 = 96 << 20;
/// The part of it that is divided evenly among the sources.
const SHARED_BYTES: u64 = SOURCES_BYTES_MAX / 2;
/// How many sources a message names.
const NAMED_MAX: usize = 3;

/// The files of a revision do not fit beside those of the other sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// The size of its files.
    own: u64,
    /// What each active source is sure of.
    share: u64,
    /// The sizes of all other sources together.
    others: u64,
    /// The largest of them, with their sizes.
    largest: Vec<(Key, u64)>,
}

/// Fails if the files of a revision do not fit beside those of the other sources.
///
/// `active` is the size of the source's active revision. `others` are the sizes of all other sources with an active
/// revision, or with one that is about to be active.
///
/// Guarantees that all sources together never exceed [`SOURCES_BYTES_MAX`], that a revision no larger than the active
/// one fits, and that a revision of an active source fits if it is no larger than the source's share. The last does
/// not hold while sources have more than this divides among them, because an earlier process let them: what was active
/// in an earlier process is active again as long as there is memory.
pub(super) fn fits(purpose: Purpose, own: u64, active: Option<u64>, others: &BTreeMap<Key, u64>) -> Result<(), NoRoom> {
    let sum: u64 = others.values().sum();
    let share = SHARED_BYTES / (others.len() as u64 + 1);
    // What others are sure of stays free, whether or not they use it now. So does the rest of its own share.
    let reserved: u64 = others.values().map(|size| (*size).max(share)).sum();
    let has_memory = sum.saturating_add(own) <= SOURCES_BYTES_MAX;
    let has_room = match (purpose, active) {
        (_, Some(active)) if own <= active => true,
        (Purpose::Recall, _) => has_memory,
        (Purpose::Follow, Some(_)) if own <= share => has_memory,
        (Purpose::Follow, _) => reserved.saturating_add(own.max(share)) <= SOURCES_BYTES_MAX,
    };
    if has_room {
        return Ok(());
    }
    let mut largest: Vec<(Key, u64)> = others.iter().map(|(key, size)| (key.clone(), *size)).collect();
    largest.sort_by_key(|(key, size)| (Reverse(*size), key.clone()));
    largest.truncate(NAMED_MAX);
    Err(NoRoom { own, share, others: sum, largest })
}

// === impl NoRoom ===

impl Error for NoRoom {}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the files of this revision have {}, and those of all GitSources together may have {}",
            Mebibytes(self.own),
            Mebibytes(SOURCES_BYTES_MAX)
        )?;
        let largest: Vec<String> =
            self.largest.iter().map(|(key, size)| format!("{key} with {}", Mebibytes(*size))).collect();
        if !largest.is_empty() {
            write!(f, ": the others have {}, the largest are {}", Mebibytes(self.others), largest.join(", "))?;
        }
        write!(
            f,
            "; this source is sure of its share of {}: name folders without definitions in spec.ignore, or make the \
             largest sources smaller",
            Mebibytes(self.share)
        )
    }
}

/// A size in MiB, with one decimal place.
struct Mebibytes(u64);

impl fmt::Display for Mebibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_mul(10).div_ceil(1 << 20);
        write!(f, "{}.{} MiB", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests;
