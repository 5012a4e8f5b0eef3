//! When agents last connected to this process.
//!
//! Our agent probes its connection every two minutes if nothing changes. Its silence means that the changes of its
//! runtime do not reach the control plane. Other agents connect only when an object changes.

use std::{collections::HashMap, time::Duration};

use tidegate_core::name::Key;
use tidegate_process::lock::Mutex;
use tokio::time::Instant;

/// When the agent of each runtime last connected.
#[derive(Debug, Default)]
pub struct Contacts(Mutex<HashMap<Key, Contact>>);

/// When one agent last connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Contact {
    /// For an event or a probe.
    any: Instant,
    /// For a probe, if it has ever sent one.
    probe: Option<Instant>,
}

/// An agent that connects no more for this long is silent. Our agent probes every two minutes, so it has missed five
/// probes.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(600);

// === impl Contacts ===

impl Contacts {
    /// Notes an event of a runtime.
    pub fn event(&self, kyma: &Key, now: Instant) {
        let mut contacts = self.0.lock();
        let probe = contacts.get(kyma).and_then(|contact| contact.probe);
        contacts.insert(kyma.clone(), Contact { any: now, probe });
    }

    /// Notes a probe or an event of our agent. Returns whether it was silent before.
    pub fn probe(&self, kyma: &Key, now: Instant) -> bool {
        let is_news = !self.is_alive(kyma, now, SILENT_AFTER);
        let mut contacts = self.0.lock();
        contacts.insert(kyma.clone(), Contact { any: now, probe: Some(now) });
        is_news
    }

    /// Whether the changes of a runtime reach the control plane: its agent sends probes, and has connected `within`
    /// this time.
    pub fn is_alive(&self, kyma: &Key, now: Instant, within: Duration) -> bool {
        let contacts = self.0.lock();
        contacts
            .get(kyma)
            .is_some_and(|contact| contact.probe.is_some() && now.saturating_duration_since(contact.any) < within)
    }

    /// Forgets a runtime that is gone.
    pub fn forget(&self, kyma: &Key) {
        self.0.lock().remove(kyma);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_agent_that_sends_probes_is_known_to_be_alive() {
        let contacts = Contacts::default();
        let (one, start) = (Key::new("kcp-system", "one"), Instant::now());
        let is_alive = |contacts: &Contacts, now| contacts.is_alive(&one, now, SILENT_AFTER);
        assert!(!contacts.0.lock().contains_key(&one));
        contacts.event(&one, start);
        assert!(contacts.0.lock().contains_key(&one));
        assert!(!is_alive(&contacts, start), "silence of such an agent says nothing");
        assert!(contacts.probe(&one, start), "it is the first");
        assert!(!contacts.probe(&one, start));
        assert!(is_alive(&contacts, start + SILENT_AFTER / 2));
        assert!(!is_alive(&contacts, start + SILENT_AFTER));
        contacts.event(&one, start + SILENT_AFTER);
        assert!(is_alive(&contacts, start + SILENT_AFTER + SILENT_AFTER / 2), "an event is as good as a probe");
        contacts.forget(&one);
        assert!(!contacts.0.lock().contains_key(&one));
    }
}
