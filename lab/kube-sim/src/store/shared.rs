// SPDX-License-Identifier: Apache-2.0

//! Bytes that many objects share, stored once in the process.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

/// Shorter texts are not worth an entry.
const LENGTH_MIN: usize = 256;
/// Dead entries are removed when the table has twice as many entries as after the last removal, and at least this many.
const SWEEP_MIN: usize = 1_024;

#[derive(Default)]
struct Known {
    by_hash: HashMap<u64, Weak<[u8]>>,
    sweep_at: usize,
}

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The bytes, or equal ones that are already stored.
pub(super) fn share(bytes: Vec<u8>) -> Arc<[u8]> {
    if bytes.len() < LENGTH_MIN {
        return bytes.into();
    }
    let hash = HASHER.hash_one(&bytes);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // A hash collision: the second text is not shared.
    match known.by_hash.get(&hash).and_then(Weak::upgrade) {
        Some(found) if *found == *bytes => return found,
        Some(_) => return bytes.into(),
        None => {}
    }
    let bytes: Arc<[u8]> = bytes.into();
    known.by_hash.insert(hash, Arc::downgrade(&bytes));
    if known.sweep_at.max(SWEEP_MIN) < known.by_hash.len() {
        known.by_hash.retain(|_, bytes| bytes.strong_count() > 0);
        known.sweep_at = 2 * known.by_hash.len();
    }
    bytes
}
