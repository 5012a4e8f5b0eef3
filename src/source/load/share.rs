//! The memory that the files of all sources share, and the part of it that each source is sure of.
//!
//! Half of it is divided evenly among the sources: the share of each, unless larger ones leave less, which those below
//! their share then divide evenly. A source that needs more than its share gets what the others are not sure of, in the
//! order in which sources come. A part of the memory is kept for sources that come late: each may take a fraction of
//! what is left. So whatever the sources before it hold, there is always room for a small one. Pure.

use std::{cmp::Reverse, collections::BTreeMap, error::Error, fmt};

use tidegate_core::{diagnostic::grouped, name::Key};
use tidegate_process::retry::Class;

use super::decide::Purpose;

/// Maximum size of the files of all sources together. Definitions take up to seven times their [`size`] in memory, and
/// objects of modules twice: with all of it, the Pod stays below the limit in `deploy/`.
pub(super) const SOURCES_BYTES_MAX: u64 = 96 << 20;
/// The part of it that is divided evenly among the sources.
const SHARED_BYTES: u64 = SOURCES_BYTES_MAX / 2;
/// The part of it that stays free however large sources grow, so that new ones find room. The first finds at least
/// 1 MiB, which the definitions of a thousand runtimes do not need.
const KEPT_BYTES: u64 = 8 << 20;
/// Whatever others hold, a source may take this fraction of the memory that is left. So some is always left.
const FRACTION_OF_REST: u64 = 8;
/// What a value of a definition counts at least: `[1, 1]` takes hundreds of bytes for each of its values.
pub(super) const VALUE_BYTES: u64 = 128;
/// How many sources a message names.
const NAMED_MAX: usize = 3;

/// The files of a revision do not fit beside those of the other sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoRoom {
    /// The size of its files.
    own: u64,
    /// What the source is sure of.
    sure: u64,
    /// The sizes of all other sources together.
    others: u64,
    /// The largest of them, with their sizes.
    largest: Vec<(Key, u64)>,
    /// How many values its definitions have, as far as they were read, if it is these that do not fit.
    values: Option<u64>,
}

/// What the files of a revision count: their bytes, or more for the values of definitions.
pub(super) fn size(bytes: u64, values: u64) -> u64 {
    bytes.max(values.saturating_mul(VALUE_BYTES))
}

/// Fails if the files of a revision do not fit beside those of the other sources.
///
/// `active` is the size of the source's active revision. `others` are the sizes of all other sources with an active
/// revision, or with one that is about to be active.
///
/// Guarantees that all sources together never exceed [`SOURCES_BYTES_MAX`], and that a revision fits if it is no larger
/// than the active one, or than what its source is [`sure`] of, which is never nothing. What was active in an earlier
/// process is active again as long as there is memory.
pub(super) fn fits(purpose: Purpose, own: u64, active: Option<u64>, others: &BTreeMap<Key, u64>) -> Result<(), NoRoom> {
    let sum: u64 = others.values().sum();
    let (share, sure) = (share(others), sure(others));
    // What others are sure of stays free, whether or not they use it now.
    let reserved: u64 = others.values().map(|size| (*size).max(share)).sum();
    let has_room = match (purpose, active) {
        (_, Some(active)) if own <= active => true,
        _ if own <= sure => true,
        (Purpose::Recall, _) => sum.saturating_add(own) <= SOURCES_BYTES_MAX,
        (Purpose::Follow, _) => reserved.saturating_add(own) <= SOURCES_BYTES_MAX - KEPT_BYTES,
    };
    if has_room {
        return Ok(());
    }
    let mut largest: Vec<(Key, u64)> = others.iter().map(|(key, size)| (key.clone(), *size)).collect();
    largest.sort_by_key(|(key, size)| (Reverse(*size), key.clone()));
    largest.truncate(NAMED_MAX);
    Err(NoRoom { own, sure, others: sum, largest, values: None })
}

/// What each source is sure of if none has more.
fn share(others: &BTreeMap<Key, u64>) -> u64 {
    SHARED_BYTES / (others.len() as u64 + 1)
}

/// What a source is sure of beside others of these sizes: its share, unless larger sources leave less, and always a
/// fraction of the memory that is left.
fn sure(others: &BTreeMap<Key, u64>) -> u64 {
    let left = SOURCES_BYTES_MAX.saturating_sub(others.values().sum());
    share(others).min(level(others)).max(left / FRACTION_OF_REST)
}

/// What all sources can have at the same time beside those that have more.
fn level(others: &BTreeMap<Key, u64>) -> u64 {
    let mut sizes: Vec<u64> = others.values().copied().collect();
    sizes.sort_unstable_by_key(|size| Reverse(*size));
    let mut left = SOURCES_BYTES_MAX - KEPT_BYTES;
    let mut sources = sizes.len() as u64 + 1;
    for size in sizes {
        if size <= left / sources {
            break;
        }
        left = left.saturating_sub(size);
        sources -= 1;
    }
    left / sources
}

// === impl NoRoom ===

impl NoRoom {
    /// What resolves it: another source may become smaller. To read the values again costs more than to count bytes.
    pub(super) fn class(&self) -> Class {
        if self.values.is_some() { Class::Transient } else { Class::Waiting }
    }

    /// The same for definitions with so many values.
    pub(super) fn of_values(self, values: u64) -> NoRoom {
        NoRoom { values: Some(values), ..self }
    }
}

impl Error for NoRoom {}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values {
            None => write!(f, "the files of this revision have {}", Mebibytes(self.own))?,
            Some(values) => write!(
                f,
                "the definitions of this revision have {} values or more, which count as {}",
                grouped(usize::try_from(values).unwrap_or(usize::MAX)),
                Mebibytes(self.own)
            )?,
        }
        write!(f, ", and those of all GitSources together may have {}", Mebibytes(SOURCES_BYTES_MAX))?;
        let largest: Vec<String> =
            self.largest.iter().map(|(key, size)| format!("{key} with {}", Mebibytes(*size))).collect();
        if !largest.is_empty() {
            write!(f, ": the others have {}, the largest are {}", Mebibytes(self.others), largest.join(", "))?;
        }
        write!(
            f,
            "; this source is sure of its share of {}: name folders without definitions in spec.ignore, or make the \
             largest sources smaller",
            Mebibytes(self.sure)
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
