//! Whether kcp-operator runs beside the daemon: what its leader Lease says.
//!
//! kcp-operator makes the same objects, with other content. So while it renews its Lease, the daemon writes nothing of
//! kcp landscapes: no definition, no object, no status. It continues by itself once the Lease has ended or was
//! released. A kcp-operator without leader election has no Lease, and cannot be seen.
//!
//! As the candidates of a leader election do, the daemon compares no clocks: a Lease ends if it does not change for its
//! duration, by the clock of this process. So a process that finds a Lease at its start waits that long: the Lease may
//! be years old. The watch may be interrupted, so no Lease ends before the API server was asked once more.
//!
//! A command that asks once cannot wait for that: see [`holder`].

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::coordination::v1::Lease,
    jiff::{SignedDuration, Timestamp},
};
use tidegate_cluster::{Cluster, Kind};
use tidegate_core::name::Key;
use tokio::time::Instant;

use crate::stores::Stores;

/// A Lease that a process holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// The identity of the process.
    pub(crate) holder: String,
    /// When it renewed the Lease last, by its own clock. Only a change of it says something.
    pub(crate) renewed: Timestamp,
    /// How long the Lease holds without a renewal.
    pub(crate) duration: Duration,
}

/// kcp-operator, while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// The namespace of its Lease.
    pub(crate) namespace: String,
    /// Who holds the Lease.
    pub(crate) holder: String,
    /// Whether this process has seen the Lease change. If not, the holder may have stopped long ago.
    pub(crate) is_seen: bool,
    /// When the Lease ends unless it is renewed.
    pub(crate) until: Instant,
}

/// The Leases of kcp-operator that are held, by place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leases(BTreeMap<Key, Seen>);

/// What this process has seen of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    held: Held,
    /// When it was seen for the first time, or to change.
    since: Instant,
    /// Whether it was seen to change.
    has_changed: bool,
    /// When the last request began whose answer was the same.
    asked: Option<Instant>,
}

/// What a Lease says at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It holds.
    Holds,
    /// It has ended, unless the watch is behind: ask the API server.
    Ask,
    /// It has ended.
    Ended,
}

/// The pause between two requests for a Lease that did not succeed.
const RETRY: Duration = Duration::from_secs(1);
/// After the end of a Lease, the API server has answered after this time, or is asked again.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// How much longer a Lease counts for a command: its clock may differ from that of the API server.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// Who holds a Lease; `None` if it was released.
pub(crate) fn held(lease: &Lease) -> Option<Held> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|name| !name.is_empty())?;
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    Some(Held { holder, renewed: spec.renew_time.as_ref()?.0, duration: Duration::from_secs(seconds) })
}

/// Who holds a Lease, for a command that asks once and sees no renewal; `None` if no process does any more. The API
/// server notes by its own clock when it stored the last renewal, so the clock of the holder does not matter. Where the
/// note is missing, there is no other clock.
pub(crate) fn holder(lease: &Lease, now: Timestamp) -> Option<String> {
    let held = held(lease)?;
    let stored = lease.metadata.managed_fields.iter().flatten().filter_map(|entry| {
        let has_renewed = entry.fields_v1.as_ref()?.0["f:spec"].get("f:renewTime").is_some();
        entry.time.as_ref().filter(|_| has_renewed).map(|time| time.0)
    });
    let renewed = stored.max().unwrap_or(held.renewed);
    let duration = SignedDuration::try_from(held.duration).unwrap_or(SignedDuration::MAX);
    (now.duration_since(renewed) <= duration.saturating_add(SKEW)).then_some(held.holder)
}

/// Follows the end of the Lease: nothing else reports it. Never ends.
pub(crate) async fn follow(kcp: &Cluster, stores: &Stores) {
    let mut running = stores.kcp_operator();
    loop {
        let until = running.borrow_and_update().as_ref().map(|running| running.until);
        match until {
            Some(until) => {
                tokio::select! {
                    // A Lease holds at its very end, too.
                    () = tokio::time::sleep_until(until + Duration::from_millis(1)) => {
                        if !ask(kcp, stores).await {
                            tokio::time::sleep(RETRY).await;
                        }
                    }
                    // It was renewed or released. The sender lives as long as `stores`.
                    _ = running.changed() => {}
                }
            }
            None if running.changed().await.is_err() => std::future::pending().await,
            None => {}
        }
    }
}

/// Asks for the Leases that seem to have ended. Returns whether the API server has answered.
async fn ask(kcp: &Cluster, stores: &Stores) -> bool {
    for key in stores.doubtful_leases(Instant::now()) {
        let began = Instant::now();
        match kcp.get_as::<Lease>(&Kind::namespaced::<Lease>(), &key).await {
            Ok(found) => stores.answer_kcp_operator(&key, found.as_ref().and_then(held), (began, Instant::now())),
            Err(error) => {
                tracing::warn!(%error, "cannot read the Lease of kcp-operator; writing nothing of kcp landscapes");
                return false;
            }
        }
    }
    true
}

// === impl Held ===

impl Held {
    /// When the Lease ends unless it is renewed, by the clock of its holder.
    pub(crate) fn until(&self) -> Timestamp {
        self.renewed.checked_add(self.duration).unwrap_or(Timestamp::MAX)
    }
}

// === impl Seen ===

impl Seen {
    fn until(&self) -> Instant {
        self.since + self.held.duration
    }

    fn standing(&self, now: Instant) -> Standing {
        let is_asked = self.asked.is_some_and(|asked| self.until() < asked);
        match now <= self.until() {
            true => Standing::Holds,
            false if is_asked => Standing::Ended,
            false => Standing::Ask,
        }
    }
}

// === impl Leases ===

impl Leases {
    /// Notes what the watch shows of a Lease at `now`; `None` if it was released or is gone. `is_first` says that the
    /// first list is not complete: then the daemon does not know its age.
    pub(crate) fn set(&mut self, key: &Key, held: Option<Held>, is_first: bool, now: Instant) {
        let before = self.0.remove(key);
        let Some(held) = held else { return };
        let seen = match before {
            Some(before) if before.held == held => before,
            Some(_) => Seen { held, since: now, has_changed: true, asked: None },
            None => Seen { held, since: now, has_changed: !is_first, asked: None },
        };
        self.0.insert(key.clone(), seen);
    }

    /// Notes the answer at `now` to a request that began at `began`. What the watch has shown since is newer.
    pub(crate) fn answer(&mut self, key: &Key, held: Option<Held>, (began, now): (Instant, Instant)) {
        let Some(before) = self.0.get_mut(key).filter(|seen| seen.since < began) else { return };
        if held.as_ref() == Some(&before.held) {
            before.asked = Some(began);
        } else {
            self.set(key, held, false, now);
        }
    }

    /// Those that seem to have ended.
    pub(crate) fn doubtful(&self, now: Instant) -> Vec<Key> {
        let all = self.0.iter().filter(|(_, seen)| seen.standing(now) == Standing::Ask);
        all.map(|(key, _)| key.clone()).collect()
    }

    /// Whether there is such a Lease, and a process holds it.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// The process that runs at `now`. Of several, one whose Lease was seen to change, and ends last.
    pub(crate) fn running(&self, now: Instant) -> Option<Running> {
        let live = self.0.iter().filter(|(_, seen)| seen.standing(now) != Standing::Ended);
        let (key, seen) = live.max_by_key(|(_, seen)| (seen.has_changed, seen.until()))?;
        Some(Running {
            namespace: key.namespace().to_owned(),
            holder: seen.held.holder.clone(),
            is_seen: seen.has_changed,
            until: seen.until(),
        })
    }
}

#[cfg(test)]
mod tests;
