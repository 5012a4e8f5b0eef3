//! Values that runtimes share, made once for all of them.
//!
//! Template overrides can make this slow. Passes that need the same value await it, and other passes do not. If the
//! pass that makes a value is dropped, another pass starts again.

use std::{collections::HashMap, hash::Hash, sync::Arc};

use tidegate_process::lock::Mutex;
use tokio::sync::OnceCell;

/// Values by key, valid for one set of inputs. `I` is what values are made from beside the key.
pub(super) struct SharedValues<K, I, V>(Mutex<HashMap<K, Entry<I, V>>>);

struct Entry<I, V> {
    inputs: I,
    value: Arc<OnceCell<Arc<V>>>,
}

// === impl SharedValues ===

impl<K, I, V> Default for SharedValues<K, I, V> {
    fn default() -> SharedValues<K, I, V> {
        SharedValues(Mutex::default())
    }
}

impl<K: Eq + Hash, I: PartialEq, V> SharedValues<K, I, V> {
    /// The value of a key. `make` runs if none was made from these inputs.
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
        // Values of older inputs are useless.
        known.retain(|_, entry| entry.inputs == inputs);
        let value = Arc::default();
        known.insert(key, Entry { inputs, value: Arc::clone(&value) });
        value
    }
}
