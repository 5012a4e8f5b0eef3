//! Loopback ports that are free at the moment.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
    hash::{BuildHasher as _, Hasher as _},
    net::{Ipv4Addr, TcpListener},
    sync::{Mutex, PoisonError},
};

/// Below the range that systems use for outgoing connections, so that no client's port gets in the way between our
/// look and the server's bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// What this process was given: servers that start side by side must not get one port.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nobody listens on, another one each time as long as there are any. Another process may take it before its
/// server does: who starts a server tries again.
pub fn free() -> u16 {
    // Two processes that start at once must not walk the same ports in the same order.
    let seed = RandomState::new().build_hasher().finish();
    let start = u16::try_from(seed % u64::from(COUNT)).unwrap_or(0);
    let ports = || (0..COUNT).map(|step| FIRST + (start + step) % COUNT);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let port = ports().find(|port| !given.contains(port) && is_free(port));
    let port = port.or_else(|| ports().find(is_free)).unwrap_or(FIRST);
    given.insert(port);
    port
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let ports: BTreeSet<u16> = (0..500).map(|_| free()).collect();
        assert_eq!(ports.len(), 500);
    }
}
