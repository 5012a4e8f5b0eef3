//! Whether kcp-operator runs beside the daemon: what its leader Lease says.
//!
//! kcp-operator makes the same objects, with other content. So while it renews its Lease, the daemon writes nothing of
//! kcp landscapes: no definition, no object, no status. It continues by itself once the Lease has ended or was
//! released. A kcp-operator without leader election has no Lease, and cannot be seen.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::Lease,
    jiff::{SignedDuration, Timestamp},
};
use tidegate_core::name::Key;
use tidegate_process::ambient;

use crate::stores::Stores;

/// A Lease that a process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The identity of the process.
    pub(crate) holder: String,
    /// When it renewed the Lease last, by its own clock.
    pub(crate) renewed: Timestamp,
    /// How long the Lease holds without a renewal.
    pub(crate) duration: SignedDuration,
}

/// kcp-operator, while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// The namespace of its Lease.
    pub(crate) namespace: String,
    /// Who holds the Lease.
    pub(crate) holder: String,
    /// When the Lease ends unless it is renewed.
    pub(crate) until: Timestamp,
}

/// The Leases of kcp-operator that are held, by place, and when each ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leases(BTreeMap<Key, (Held, Timestamp)>);

/// Who holds a Lease; `None` if it was released.
pub(crate) fn held(lease: &Lease) -> Option<Held> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|name| !name.is_empty())?;
    let duration = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or_default()));
    Some(Held { holder, renewed: spec.renew_time.as_ref()?.0, duration })
}

/// Follows the end of the Lease: nothing else reports it. Never ends.
pub(crate) async fn follow(stores: &Stores) {
    let mut running = stores.kcp_operator();
    loop {
        let until = running.borrow_and_update().as_ref().map(|running| running.until);
        match until {
            Some(until) => {
                let left = Duration::try_from(until.duration_since(ambient::now())).unwrap_or_default();
                // A Lease holds at its very end, too.
                tokio::time::sleep(left + Duration::from_millis(1)).await;
                stores.judge_kcp_operator(ambient::now());
            }
            None if running.changed().await.is_err() => std::future::pending().await,
            None => {}
        }
    }
}

// === impl Held ===

impl Held {
    /// When the Lease ends unless it is renewed.
    pub(crate) fn until(&self) -> Timestamp {
        self.renewed.checked_add(self.duration).unwrap_or(Timestamp::MAX)
    }
}

// === impl Leases ===

impl Leases {
    /// Notes the state of a Lease at `now`.
    ///
    /// A Lease that is seen for the first time may be years old, so its own time counts. One that was renewed since
    /// holds from now on, whatever the clock of its holder says.
    pub(crate) fn set(&mut self, key: &Key, held: Option<Held>, now: Timestamp) {
        let before = self.0.remove(key);
        let Some(held) = held else { return };
        let until = match before {
            Some((before, until)) if before == held => until,
            Some(_) => now.checked_add(held.duration).unwrap_or(Timestamp::MAX).max(held.until()),
            None => held.until(),
        };
        self.0.insert(key.clone(), (held, until));
    }

    /// Whether there is such a Lease, and a process holds it.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// The process that runs at `now`. Of several, the one whose Lease ends last.
    pub(crate) fn running(&self, now: Timestamp) -> Option<Running> {
        let live = self.0.iter().filter(|(_, (_, until))| now <= *until);
        let (key, (held, until)) = live.max_by_key(|(_, (_, until))| *until)?;
        Some(Running { namespace: key.namespace().to_owned(), holder: held.holder.clone(), until: *until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T12:{text}Z").parse().expect("a time")
    }

    fn held_by(holder: &str, renewed: &str) -> Option<Held> {
        Some(Held { holder: holder.to_owned(), renewed: at(renewed), duration: SignedDuration::from_secs(15) })
    }

    #[test]
    fn r70_a_lease_holds_until_its_end_or_its_release() {
        let (mut leases, key) = (Leases::default(), Key::new("kcp-operator-system", "lease"));
        leases.set(&key, held_by("one", "00:00"), at("00:01"));
        assert_eq!(leases.running(at("00:15")).expect("it runs").holder, "one");
        assert_eq!(leases.running(at("00:16")), None, "it was not renewed");
        leases.set(&key, None, at("00:02"));
        assert_eq!(leases.running(at("00:03")), None, "it was released");
    }

    #[test]
    fn r70_a_lease_that_is_renewed_holds_whatever_the_clock_of_its_holder_says() {
        let (mut leases, key) = (Leases::default(), Key::new("kcp-operator-system", "lease"));
        leases.set(&key, held_by("one", "00:00"), at("50:00"));
        assert_eq!(leases.running(at("50:00")), None, "it may have ended long ago");
        leases.set(&key, held_by("one", "00:02"), at("50:02"));
        assert_eq!(leases.running(at("50:17")).expect("it runs").until, at("50:17"));
        leases.set(&key, held_by("one", "00:02"), at("50:10"));
        assert_eq!(leases.running(at("50:18")), None, "nothing new was seen");
    }
}
