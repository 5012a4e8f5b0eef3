//! Who holds which place on a port, and which connection goes when a place is needed.
//!
//! A connection that has not shown who it is costs its peer nothing, so anyone can open thousands of them. Therefore
//! it is in one of four stages, and a stage has its own number of places:
//!
//! ```text
//!  accepted ─▶ Opening ── first message is complete ─▶ Unproven ── sender is known ─▶ Busy ◀─▶ Idle
//! ```
//!
//! *Opening* is cheap: a socket and the bytes that came. *Unproven* holds the state of TLS or HTTP. If all places of
//! one of these stages are taken, the oldest connection of the address with the most of them goes. So one address never
//! takes the places of others, and many connections behind one load balancer still let new ones in. A connection whose
//! sender is known (*Busy* or *Idle*) counts neither against its address nor against these places. If a place is needed
//! for another sender, the one goes that has been idle longest. A busy connection never goes.
//!
//! Values in, values out: the caller closes what has to go, and keeps the lock.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::{Duration, Instant},
};

/// The number of a connection.
pub type Number = u64;

/// How many connections each stage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections whose first message is incomplete.
    pub opening: usize,
    /// Connections of known senders, busy or idle.
    pub proven: usize,
    /// Connections of one known sender.
    pub sender: usize,
}

/// The connections of one port.
#[derive(Debug)]
pub struct PortConnections {
    limits: Limits,
    /// Orders what happened: numbers of connections, and moments at which they changed their stage.
    clock: u64,
    all: HashMap<Number, Connection>,
    opening: Line,
    unproven: Line,
    /// Idle connections, by the end of their last request.
    idle: BTreeMap<u64, Number>,
    /// Connections that are busy or idle.
    proven: usize,
    senders: HashMap<Arc<str>, usize>,
}

/// Whether a connection may count as that of a known sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proven {
    /// It may.
    Placed,
    /// It may, and this idle connection goes for it.
    InsteadOf(Number),
    /// All places are taken by busy connections.
    Full,
}

#[derive(Debug)]
struct Connection {
    stage: Stage,
    /// When it came to this stage, on the clock of all places.
    at: u64,
    address: IpAddr,
    sender: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Opening,
    Unproven { since: Instant },
    Busy,
    Idle,
}

/// The connections of a stage, so that the oldest one of the fullest address is found at once.
#[derive(Debug, Default)]
struct Line {
    length: usize,
    by_address: HashMap<IpAddr, BTreeMap<u64, Number>>,
    /// Each address by its connections, and among equals by the age of its oldest.
    fullest: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
}

/// Leading bits of an IPv6 address that name one peer: the owner of one address has the whole network.
const IPV6_PEER_BITS: u32 = 64;

// === impl PortConnections ===

impl PortConnections {
    /// No connections yet.
    pub fn new(limits: Limits) -> PortConnections {
        PortConnections {
            limits,
            clock: 0,
            all: HashMap::new(),
            opening: Line::default(),
            unproven: Line::default(),
            idle: BTreeMap::new(),
            proven: 0,
            senders: HashMap::new(),
        }
    }

    /// Adds a connection that was just accepted. Also returns the one that goes for it.
    pub fn admit(&mut self, address: IpAddr) -> (Number, Option<Number>) {
        let evicted = if self.limits.opening <= self.opening.length { self.opening.oldest_of_fullest() } else { None };
        if let Some(evicted) = evicted {
            self.leave(evicted);
        }
        let (at, address) = (self.tick(), peer(address));
        self.all.insert(at, Connection { stage: Stage::Opening, at, address, sender: None });
        self.opening.insert(address, at, at);
        (at, evicted)
    }

    /// The first message of a connection is complete. Returns false if it has left.
    pub fn begin(&mut self, number: Number, now: Instant) -> bool {
        let at = self.tick();
        let Some(place) = self.all.get_mut(&number) else { return false };
        if place.stage == Stage::Opening {
            self.opening.remove(place.address, place.at);
            (place.stage, place.at) = (Stage::Unproven { since: now }, at);
            self.unproven.insert(place.address, at, number);
        }
        true
    }

    /// Removes the connection that makes room for another that is to begin: the oldest of the address with the most
    /// unproven ones. None goes that is younger than `grace`, because it may just be on its way.
    pub fn make_room(&mut self, now: Instant, grace: Duration) -> Option<Number> {
        let number = self.unproven.oldest_of_fullest()?;
        self.leave_after(number, now, grace)
    }

    /// Removes the oldest unproven connection of an address, unless it is younger than `grace`.
    pub fn make_room_at(&mut self, address: IpAddr, now: Instant, grace: Duration) -> Option<Number> {
        let number = self.unproven.oldest_of(peer(address))?;
        self.leave_after(number, now, grace)
    }

    /// The sender of a connection is known. From now on it is busy, until [`PortConnections::rest`].
    pub fn prove(&mut self, number: Number, sender: Option<&str>) -> Proven {
        let Some(Connection { stage: Stage::Opening | Stage::Unproven { .. }, .. }) = self.all.get(&number) else {
            return Proven::Placed;
        };
        let own = sender.and_then(|sender| self.senders.get(sender)).copied().unwrap_or_default();
        let evicted = if self.limits.sender <= own {
            self.longest_idle(|place| place.sender.as_deref() == sender)
        } else if self.limits.proven <= self.proven {
            self.longest_idle(|_| true)
        } else {
            None
        };
        if evicted.is_none() && (self.limits.sender <= own || self.limits.proven <= self.proven) {
            return Proven::Full;
        }
        if let Some(evicted) = evicted {
            self.leave(evicted);
        }
        self.settle(number, sender);
        evicted.map_or(Proven::Placed, Proven::InsteadOf)
    }

    /// A connection works on a request. An idle one cannot go from now on.
    pub fn work(&mut self, number: Number) {
        if let Some(place) = self.all.get_mut(&number)
            && place.stage == Stage::Idle
        {
            self.idle.remove(&place.at);
            place.stage = Stage::Busy;
        }
    }

    /// A connection has answered all its requests.
    pub fn rest(&mut self, number: Number, now: Instant) {
        let at = self.tick();
        let Some(place) = self.all.get_mut(&number) else { return };
        match place.stage {
            Stage::Busy => {
                (place.stage, place.at) = (Stage::Idle, at);
                self.idle.insert(at, number);
            }
            // Its sender is unknown, but it is as good as new.
            Stage::Unproven { .. } => {
                self.unproven.remove(place.address, place.at);
                (place.stage, place.at) = (Stage::Unproven { since: now }, at);
                self.unproven.insert(place.address, at, number);
            }
            Stage::Opening | Stage::Idle => {}
        }
    }

    /// Removes the connection that has been idle longest.
    pub fn evict_idle(&mut self) -> Option<Number> {
        let number = self.longest_idle(|_| true)?;
        self.leave(number);
        Some(number)
    }

    /// Removes a connection. Does nothing if it has left already.
    pub fn leave(&mut self, number: Number) {
        let Some(place) = self.all.remove(&number) else { return };
        match place.stage {
            Stage::Opening => self.opening.remove(place.address, place.at),
            Stage::Unproven { .. } => self.unproven.remove(place.address, place.at),
            Stage::Busy | Stage::Idle => {
                self.idle.remove(&place.at);
                self.proven -= 1;
                if let Some(sender) = place.sender
                    && let Some(count) = self.senders.get_mut(&sender)
                {
                    *count -= 1;
                    if *count == 0 {
                        self.senders.remove(&sender);
                    }
                }
            }
        }
    }

    fn leave_after(&mut self, number: Number, now: Instant, grace: Duration) -> Option<Number> {
        let Stage::Unproven { since } = self.all.get(&number)?.stage else { return None };
        if now < since + grace {
            return None;
        }
        self.leave(number);
        Some(number)
    }

    fn settle(&mut self, number: Number, sender: Option<&str>) {
        let Some(place) = self.all.get_mut(&number) else { return };
        match place.stage {
            Stage::Opening => self.opening.remove(place.address, place.at),
            Stage::Unproven { .. } => self.unproven.remove(place.address, place.at),
            Stage::Busy | Stage::Idle => return,
        }
        place.stage = Stage::Busy;
        self.proven += 1;
        if let Some(sender) = sender {
            let sender: Arc<str> =
                self.senders.get_key_value(sender).map_or_else(|| sender.into(), |(key, _)| Arc::clone(key));
            *self.senders.entry(Arc::clone(&sender)).or_default() += 1;
            place.sender = Some(sender);
        }
    }

    fn longest_idle(&self, of: impl Fn(&Connection) -> bool) -> Option<Number> {
        self.idle.values().copied().find(|number| self.all.get(number).is_some_and(&of))
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

// === impl Line ===

impl Line {
    fn insert(&mut self, address: IpAddr, at: u64, number: Number) {
        self.edit(address, |connections| connections.insert(at, number).is_none());
        self.length += 1;
    }

    fn remove(&mut self, address: IpAddr, at: u64) {
        if self.edit(address, |connections| connections.remove(&at).is_some()) {
            self.length -= 1;
        }
    }

    fn oldest_of_fullest(&self) -> Option<Number> {
        let (_, _, address) = self.fullest.last()?;
        self.oldest_of(*address)
    }

    fn oldest_of(&self, address: IpAddr) -> Option<Number> {
        self.by_address.get(&address)?.values().next().copied()
    }

    fn edit(&mut self, address: IpAddr, edit: impl FnOnce(&mut BTreeMap<u64, Number>) -> bool) -> bool {
        let connections = self.by_address.entry(address).or_default();
        if let Some(rank) = rank(address, connections) {
            self.fullest.remove(&rank);
        }
        let done = edit(connections);
        match rank(address, connections) {
            Some(rank) => _ = self.fullest.insert(rank),
            None => _ = self.by_address.remove(&address),
        }
        done
    }
}

fn rank(address: IpAddr, connections: &BTreeMap<u64, Number>) -> Option<(usize, Reverse<u64>, IpAddr)> {
    connections.first_key_value().map(|(oldest, _)| (connections.len(), Reverse(*oldest), address))
}

/// The address that identifies a peer.
pub fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> (u128::BITS - IPV6_PEER_BITS) << (u128::BITS - IPV6_PEER_BITS);
            Ipv6Addr::from(network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests;
