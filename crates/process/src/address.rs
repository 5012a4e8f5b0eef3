//! Addresses that Tidegate never connects to: link-local ones, where clouds serve the metadata and credentials of
//! machines.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether Tidegate never connects to an address.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_forbidden_v4(address),
        IpAddr::V6(address) => is_forbidden_v6(address),
    }
}

fn is_forbidden_v4(address: Ipv4Addr) -> bool {
    // Alibaba Cloud's metadata service is the only one outside of the link-local range.
    address.is_link_local() || address == Ipv4Addr::new(100, 100, 100, 200)
}

fn is_forbidden_v6(address: Ipv6Addr) -> bool {
    // AWS's metadata service has a unique local address.
    const AWS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    address.is_unicast_link_local() || address == AWS || embedded_v4(address).is_some_and(is_forbidden_v4)
}

/// The IPv4 address inside an IPv6 address: mapped, compatible, NAT64 or 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, high, low] = address.segments();
    let of = |high: u16, low: u16| {
        let ([w, x], [y, z]) = (high.to_be_bytes(), low.to_be_bytes());
        Some(Ipv4Addr::new(w, x, y, z))
    };
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0 | 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, _, _, _, _) => of(high, low),
        (0x2002, high, low, _, _, _) => of(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
