//! When agents were last heard of, in this process.
//!
//! An agent of ours probes its way to us every two minutes if nothing changes, so silence says that a
//! runtime's changes do not reach us. Another agent is heard only when it has something to say.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tidegate_core::name::Key;
use tokio::time::Instant;

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

/// Five probes of our agent, which come every two minutes: that an agent misses all of them is worth telling.
pub const SILENT_AFTER: Duration = Duration::from_secs(600);

// === impl Contacts ===

impl Contacts {
    /// An event came from a runtime.
    pub fn event(&self, kyma: &Key, now: Instant) {
        let mut contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let probe = contacts.get(kyma).and_then(|contact| contact.probe);
        contacts.insert(kyma.clone(), Contact { any: now, probe });
    }

    /// An agent of ours was heard of, by a probe or an event. Returns whether that is news, after silence.
    pub fn probe(&self, kyma: &Key, now: Instant) -> bool {
        let is_news = !self.is_alive(kyma, now, SILENT_AFTER);
        let mut contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contacts.insert(kyma.clone(), Contact { any: now, probe: Some(now) });
        is_news
    }

    /// Whether a runtime's changes reach us: its agent is one that probes its way, and it was heard not longer ago than
    /// `within`.
    pub fn is_alive(&self, kyma: &Key, now: Instant, within: Duration) -> bool {
        let contacts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        contacts
            .get(kyma)
            .is_some_and(|contact| contact.probe.is_some() && now.saturating_duration_since(contact.any) < within)
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
        let is_alive = |contacts: &Contacts, now| contacts.is_alive(&one, now, SILENT_AFTER);
        assert!(!contacts.is_known(&one));
        contacts.event(&one, start);
        assert!(contacts.is_known(&one));
        assert!(!is_alive(&contacts, start), "silence of such an agent says nothing");
        assert!(contacts.probe(&one, start), "it is the first");
        assert!(!contacts.probe(&one, start));
        assert!(is_alive(&contacts, start + SILENT_AFTER / 2));
        assert!(!is_alive(&contacts, start + SILENT_AFTER));
        contacts.event(&one, start + SILENT_AFTER);
        assert!(is_alive(&contacts, start + SILENT_AFTER + SILENT_AFTER / 2), "an event is as good as a probe");
        contacts.forget(&one);
        assert!(!contacts.is_known(&one));
    }
}
