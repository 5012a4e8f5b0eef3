//! What is remembered of deliveries, and when they wake a source. Pure: times are passed in. All of it is bounded.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    mem,
    net::IpAddr,
    time::Duration,
};

use jiff::Timestamp;
use tidegate_core::{name::Key, object::Digest, push::Host};
use tidegate_process::port_connections;
use tokio::time::Instant;

/// What is remembered of deliveries.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The ids of the last deliveries.
    known: BTreeSet<Digest>,
    /// The same, in the order in which they came.
    order: VecDeque<Digest>,
    /// Addresses whose deliveries were refused.
    addresses: HashMap<IpAddr, Bucket>,
    /// The sources that deliveries named.
    sources: BTreeMap<Key, Pace>,
    /// The sources whose Secret became usable or unusable.
    affected: BTreeSet<Key>,
}

/// A token bucket, which is full at some time.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    full: Instant,
}

/// How often deliveries wake one source.
#[derive(Debug)]
struct Pace {
    deliveries: Bucket,
    /// Whether the bucket was empty, and has not been full since.
    is_storm: bool,
    /// When the last delivery came.
    last: (Instant, Timestamp),
    /// When a delivery last woke the source.
    woken: Option<Instant>,
    /// When one wakes it next.
    due: Option<Instant>,
}

/// Maximum number of ids of deliveries that are remembered. Hosts repeat a delivery within minutes.
const DELIVERIES_MAX: usize = 10_000;
/// Maximum number of addresses that are remembered because their deliveries were refused.
const ADDRESSES_MAX: usize = 10_000;
/// Maximum number of refused deliveries of an address at once, of which one more is allowed each second.
const REFUSED_MAX: u32 = 20;
/// Maximum number of deliveries for a source at once that are no storm, of which one more is allowed each second. A
/// storm is over after a pause in which all of them are allowed again.
const CALM_MAX: u32 = 20;
/// The time after which a bucket has one more token.
const REFILL: Duration = Duration::from_secs(1);
/// Time between two deliveries that wake a source. Those in between are served by the second one.
const GAP: Duration = Duration::from_millis(500);
/// The same in a storm: as often as the shortest interval of polling.
const STORM_GAP: Duration = Duration::from_secs(10);

// === impl State ===

impl State {
    /// Whether an address may send a delivery.
    pub(super) fn admits(&mut self, address: IpAddr, now: Instant) -> bool {
        self.addresses.get(&port_connections::peer(address)).is_none_or(|bucket| bucket.has_token(REFUSED_MAX, now))
    }

    /// Records that a delivery of an address was refused.
    pub(super) fn refused(&mut self, address: IpAddr, now: Instant) {
        let address = port_connections::peer(address);
        if ADDRESSES_MAX <= self.addresses.len() && !self.addresses.contains_key(&address) {
            self.addresses.retain(|_, bucket| now < bucket.full);
            // More addresses than that at once: the one that has waited longest is forgotten.
            let first = self.addresses.iter().min_by_key(|(address, bucket)| (bucket.full, **address));
            if let Some(first) = first.map(|(address, _)| *address).filter(|_| ADDRESSES_MAX <= self.addresses.len()) {
                self.addresses.remove(&first);
            }
        }
        self.addresses.entry(address).or_insert(Bucket { full: now }).take(now);
    }

    /// Whether a delivery with this id came before, to the receiver of this GitSource. It is remembered.
    pub(super) fn is_known(&mut self, source: &Key, host: Host, id: &str) -> bool {
        let digest = Digest::of_bytes(format!("{source}\n{}\n{id}", host.name()).as_bytes());
        if !self.known.insert(digest) {
            return true;
        }
        self.order.push_back(digest);
        if DELIVERIES_MAX < self.order.len()
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        false
    }

    /// Records a delivery that names a source, which is to be woken.
    pub(super) fn delivered(&mut self, source: &Key, now: Instant, at: Timestamp) {
        let new =
            || Pace { deliveries: Bucket { full: now }, is_storm: false, last: (now, at), woken: None, due: None };
        let pace = self.sources.entry(source.clone()).or_insert_with(new);
        pace.last = (now, at);
        if pace.deliveries.has_token(CALM_MAX, now) {
            pace.is_storm &= now < pace.deliveries.full;
            pace.deliveries.take(now);
        } else {
            pace.is_storm = true;
        }
        let gap = if pace.is_storm { STORM_GAP } else { GAP };
        let next = pace.woken.map_or(now, |woken| now.max(woken + gap));
        pace.due = Some(match pace.due {
            // Those that come first in a storm do not know of it.
            Some(due) if pace.is_storm => due.max(next),
            Some(due) => due.min(next),
            None => next,
        });
    }

    /// The sources to wake now, and when to look again.
    pub(super) fn due(&mut self, now: Instant) -> (Vec<Key>, Option<Instant>) {
        let mut due = Vec::new();
        for (source, pace) in &mut self.sources {
            if pace.due.is_some_and(|due| due <= now) {
                (pace.woken, pace.due) = (Some(now), None);
                due.push(source.clone());
            }
        }
        (due, self.sources.values().filter_map(|pace| pace.due).min())
    }

    /// Records that the Secret of these sources became usable or unusable.
    pub(super) fn affects(&mut self, sources: impl Iterator<Item = Key>) {
        self.affected.extend(sources);
    }

    /// The sources whose Secret became usable or unusable since the last call.
    pub(super) fn affected(&mut self) -> BTreeSet<Key> {
        mem::take(&mut self.affected)
    }

    /// When the last delivery came that named a source.
    pub(super) fn last(&self, source: &Key) -> Option<(Instant, Timestamp)> {
        self.sources.get(source).map(|pace| pace.last)
    }

    /// Forgets a source.
    pub(super) fn forget(&mut self, source: &Key) {
        self.sources.remove(source);
    }
}

// === impl Bucket ===

impl Bucket {
    /// Whether it has a token, of this many when it is full.
    fn has_token(self, capacity: u32, now: Instant) -> bool {
        self.full.saturating_duration_since(now) <= REFILL * (capacity - 1)
    }

    /// Takes a token.
    fn take(&mut self, now: Instant) {
        self.full = self.full.max(now) + REFILL;
    }
}

#[cfg(test)]
mod tests;
