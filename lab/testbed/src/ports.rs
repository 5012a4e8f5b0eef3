//! Free loopback ports.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
    hash::{BuildHasher as _, Hasher as _},
    net::{Ipv4Addr, TcpListener},
};

use tidegate_process::lock::Mutex;

/// Below the range of outgoing connections, so that no client takes the port between our check and the server's bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// The ports of this process: servers that start in parallel must not get the same one.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A free port, a different one each time if possible. Another process may take it before the server binds it, so a
/// server's start must be retried.
pub fn free() -> u16 {
    // Two processes that start together must not try the same ports in the same order.
    let seed = RandomState::new().build_hasher().finish();
    let start = u16::try_from(seed % u64::from(COUNT)).unwrap_or(0);
    let ports = || (0..COUNT).map(|step| FIRST + (start + step) % COUNT);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let mut given = GIVEN.lock();
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
