//! Values that runtimes share, made once for all of them.
//!
//! Making one may take long, where an override takes part in it: the runtimes that need the same value await it, and the
//! others get theirs meanwhile. If the pass that makes a value is dropped, another one begins anew.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use tidegate_process::lock::Mutex;
use tokio::sync::OnceCell;

/// Values by key, as long as they would be made the same again: `I` is what they are made from beside the key.
pub(super) struct Shelf<K, I, V>(Mutex<HashMap<K, Entry<I, V>>>);

struct Entry<I, V> {
    inputs: I,
    value: Arc<OnceCell<Arc<V>>>,
}

// === impl Shelf ===

impl<K, I, V> Default for Shelf<K, I, V> {
    fn default() -> Shelf<K, I, V> {
        Shelf(Mutex::default())
    }
}

impl<K: Eq + Hash, I: PartialEq, V> Shelf<K, I, V> {
    /// The value for a key. `make` runs if there is none that was made from these inputs.
    pub(super) async fn get(&self, key: K, inputs: I, make: impl Future<Output = V>) -> Arc<V> {
        let cell = self.cell(key, inputs);
        Arc::clone(cell.get_or_init(async || Arc::new(make.await)).await)
    }

    fn cell(&self, key: K, inputs: I) -> Arc<OnceCell<Arc<V>>> {
        let mut known = self.0.lock();
        if let Some(entry) = known.get(&key)
            && entry.inputs == inputs
        {
            return Arc::clone(&entry.value);
        }
        // What was made from older inputs is of no use.
        known.retain(|_, entry| entry.inputs == inputs);
        let value = Arc::default();
        known.insert(key, Entry { inputs, value: Arc::clone(&value) });
        value
    }
}
