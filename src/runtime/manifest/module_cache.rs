//! Objects of modules, which the runtimes of this process share. Reads nothing and sends nothing.

use std::{collections::BTreeMap, sync::Arc};

use tidegate_core::{
    content::ContentId,
    render::{CompleteModule, InjectError, Injection},
};
use tidegate_process::lock::Mutex;

/// Objects of modules, labelled and serialised once for all runtimes that have them.
#[derive(Debug, Default)]
pub(crate) struct ModuleCache {
    /// As their sources have them.
    read: Mutex<BTreeMap<ContentId, CompleteModule>>,
    /// With what the landscape puts into them.
    injected: Mutex<BTreeMap<(ContentId, Injection), CompleteModule>>,
}

/// How many modules are kept. A landscape uses some hundred versions of modules.
const MODULES_MAX: usize = 2_000;

// === impl ModuleCache ===

impl ModuleCache {
    /// The objects, if they are in memory.
    pub(crate) fn get(&self, content: ContentId) -> Option<CompleteModule> {
        self.read.lock().get(&content).cloned()
    }

    /// Keeps objects. Returns those that were there first.
    pub(crate) fn put(&self, content: ContentId, module: CompleteModule) -> CompleteModule {
        let mut known = self.read.lock();
        make_room(&mut known);
        known.entry(content).or_insert(module).clone()
    }

    /// The objects `module`, whose content this is, with what is put into them.
    ///
    /// # Errors
    ///
    /// Fails if an object is not as the injection needs it.
    pub(super) fn injected(
        &self,
        content: ContentId,
        injection: Injection,
        module: &CompleteModule,
    ) -> Result<CompleteModule, InjectError> {
        if injection.is_empty() {
            return Ok(module.clone());
        }
        let key = (content, injection);
        if let Some(known) = self.injected.lock().get(&key) {
            return Ok(known.clone());
        }
        let injected = module.with(&key.1)?;
        let mut known = self.injected.lock();
        make_room(&mut known);
        Ok(known.entry(key).or_insert(injected).clone())
    }
}

/// Drops modules that no runtime uses, if there are too many.
fn make_room<K: Ord>(known: &mut BTreeMap<K, CompleteModule>) {
    if known.len() >= MODULES_MAX {
        known.retain(|_, module| Arc::strong_count(module.objects()) > 1);
    }
}
