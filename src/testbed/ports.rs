//! Loopback ports that are free at the moment.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
    net::{Ipv4Addr, TcpListener},
};

/// Below the range that systems use for outgoing connections, so that no client's port gets in the way between our
/// look and the server's bind.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// A port that nobody listens on. Somebody may take it before its server does: who starts a server tries again.
pub fn free() -> u16 {
    // Two processes that start at once must not walk the same ports in the same order.
    let seed = RandomState::new().build_hasher().finish();
    let start = u16::try_from(seed % u64::from(COUNT)).unwrap_or(0);
    (0..COUNT)
        .map(|step| FIRST + (start + step) % COUNT)
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
        .unwrap_or(FIRST)
}
