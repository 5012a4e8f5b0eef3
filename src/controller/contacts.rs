//! When agents were last heard of, in this process.
//!
//! An agent of ours probes its way to us every few minutes, whether or not anything changes, so silence says that a
//! runtime's changes do not reach us. Another agent is heard only when it has something to say.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::name::Key;

/// When each runtime was last heard of.
#[derive(Debug, Default)]
pub struct Contacts(Mutex<HashMap<Key, Contact>>);

/// When a runtime was last heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    /// Anything at all.
    any: Instant,
    /// A probe of its way, if there ever was one.
    probe: Option<Instant>,
}

/// Three probes of our agent, which come every five minutes: whoever misses them all is silent.
pub const SILENT_AFTER: Duration = Duration::from_secs(16 * 60);

// === impl Contacts ===

impl Contacts {
    /// An event came from a runtime.
    pub fn event(&self, kyma: &Key, now: Instant) {
        let mut contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let probe = contacts.get(kyma).and_then(|contact| contact.probe);
        contacts.insert(kyma.clone(), Contact { any: now, probe });
    }

    /// An agent probed its way from a runtime.
    pub fn probe(&self, kyma: &Key, now: Instant) {
        let mut contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contacts.insert(kyma.clone(), Contact { any: now, probe: Some(now) });
    }

    /// Whether a runtime's changes reach us: its agent is one that probes its way, and it was heard not long ago.
    pub fn is_alive(&self, kyma: &Key, now: Instant) -> bool {
        let contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contacts
            .get(kyma)
            .is_some_and(|contact| contact.probe.is_some() && now.saturating_duration_since(contact.any) < SILENT_AFTER)
    }

    /// Whether a runtime was ever heard of.
    pub fn is_known(&self, kyma: &Key) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(kyma)
    }

    /// Forgets a runtime that is gone.
    pub fn forget(&self, kyma: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(kyma);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_agent_that_probes_its_way_is_known_to_be_alive() {
        let contacts = Contacts::default();
        let (one, start) = (Key::new("kcp-system", "one"), Instant::now());
        assert!(!contacts.is_known(&one));
        contacts.event(&one, start);
        assert!(contacts.is_known(&one));
        assert!(!contacts.is_alive(&one, start), "silence of such an agent says nothing");
        contacts.probe(&one, start);
        assert!(contacts.is_alive(&one, start + SILENT_AFTER / 2));
        assert!(!contacts.is_alive(&one, start + SILENT_AFTER));
        contacts.event(&one, start + SILENT_AFTER);
        assert!(contacts.is_alive(&one, start + SILENT_AFTER + SILENT_AFTER / 2), "an event is as good as a probe");
        contacts.forget(&one);
        assert!(!contacts.is_known(&one));
    }
}
