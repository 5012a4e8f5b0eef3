//! Objects for which the active template overrides of a source fail.
//!
//! Samples show most mistakes before overrides become active. Some depend on values that only a cluster knows, or on
//! objects that git does not declare. The last good templates render such an object, and this is where the source
//! learns of it: its status says so, and the object keeps its state.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use tidegate_core::{
    diagnostic::{Diagnostics, Severity},
    name::Key,
    template::{self, Error, Template},
};
use tidegate_process::lock::Mutex;

use crate::{
    controller::{Queue, Subject},
    queue::Trigger,
};

/// The objects for which one set of overrides fails. Wakes the source when they change.
pub(crate) struct RenderFailures {
    source: Key,
    queue: Queue,
    objects: Mutex<BTreeMap<(Template, String), Failed>>,
    /// How many failures there have been.
    count: AtomicU64,
}

/// The last failure for an object.
struct Failed {
    error: Error,
    number: u64,
}

/// Maximum number of objects that are known of one set of overrides. The messages of one take 1 KiB.
const FAILED_OBJECTS_MAX: usize = 1_000;

// === impl RenderFailures ===

impl RenderFailures {
    /// No failures of the overrides of a source.
    pub(super) fn new(source: Key, queue: Queue) -> RenderFailures {
        RenderFailures { source, queue, objects: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// Records what became of an object.
    pub(super) fn record(&self, template: Template, subject: &str, error: Option<&Error>) {
        if error.is_none() && self.is_empty() {
            return;
        }
        let id = (template, subject.to_owned());
        let has_changed = {
            let mut objects = self.objects.lock();
            match error {
                None => objects.remove(&id).is_some(),
                Some(error) => {
                    let number = self.count.fetch_add(1, Ordering::Relaxed);
                    let is_same = objects.get(&id).is_some_and(|known| known.error == *error);
                    let has_room = objects.len() < FAILED_OBJECTS_MAX || objects.contains_key(&id);
                    if has_room {
                        objects.insert(id, Failed { error: error.clone(), number });
                    }
                    has_room && !is_same
                }
            }
        };
        if has_changed {
            if let Some(error) = error {
                tracing::warn!(source = %self.source, %error, "an active template override fails for an object");
            }
            self.wake();
        }
    }

    /// The number of failures so far, for [`RenderFailures::passed`].
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Records that a pass over a Kyma has rendered everything that the Kyma needs, and began after `count` failures.
    /// What failed before and was not rendered again is no longer needed.
    pub(crate) fn passed(&self, kyma: &Key, count: u64) {
        let end = format!("Kyma {kyma}");
        let has_changed = {
            let mut objects = self.objects.lock();
            let before = objects.len();
            objects.retain(|(_, subject), failed| count <= failed.number || !subject.ends_with(&end));
            objects.len() != before
        };
        if has_changed {
            self.wake();
        }
    }

    /// Whether there is any failure.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.lock().is_empty()
    }

    /// One error for each template that fails, except for those of which `known` has an error. An object whose
    /// definition no longer exists does not count.
    pub(super) fn diagnostics(&self, exists: impl Fn(&Key) -> bool, known: &Diagnostics) -> Diagnostics {
        let mut objects = self.objects.lock();
        objects.retain(|(_, subject), _| definition_of(subject).is_none_or(|key| exists(&key)));
        let mut found = Diagnostics::default();
        for template in Template::ALL {
            let mut failed = objects.iter().filter(|((of, _), _)| *of == template).map(|(_, failed)| &failed.error);
            if let Some(first) = failed.next()
                && !known.iter().any(|known| {
                    known.severity == Severity::Error
                        && known.code == template::CODE_TEMPLATE
                        && known.place.as_ref().map(|place| &place.path) == first.path.as_ref()
                })
            {
                found.push(first.diagnostic_of_first(1 + failed.count()));
            }
        }
        found
    }

    fn wake(&self) {
        self.queue.push(Subject::Source(self.source.clone()), Trigger::Changed);
    }
}

/// The definition behind an object, if the object is not that of all runtimes: its subject ends with the name.
fn definition_of(subject: &str) -> Option<Key> {
    let last = subject.rsplit(' ').next()?;
    last.contains('/').then(|| last.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
