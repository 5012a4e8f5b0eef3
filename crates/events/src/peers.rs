//! Networks of trusted peers.

use std::{fmt, net::IpAddr, str::FromStr};

/// A set of networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers(Vec<Network>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

/// The text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid network `{0}`: use an address or ADDRESS/BITS, for example `10.1.2.3` or `127.0.0.0/8`")]
pub struct ParseNetworkError(String);

// === impl Peers ===

impl Peers {
    /// Parses networks, each as an address or as `ADDRESS/BITS`.
    ///
    /// # Errors
    ///
    /// Fails if one of them is not a network.
    pub fn parse<'a>(networks: impl IntoIterator<Item = &'a str>) -> Result<Peers, ParseNetworkError> {
        networks.into_iter().map(str::parse).collect::<Result<_, _>>().map(Peers)
    }

    /// The loopback networks: only peers on this machine, for example a sidecar.
    pub fn loopback() -> Peers {
        Peers(vec![
            Network { address: IpAddr::from([127, 0, 0, 0]), bits: 8 },
            Network { address: IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), bits: 128 },
        ])
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a network contains the peer. An IPv4 address in IPv6 form is compared as IPv4.
    pub fn contain(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.0.iter().any(|network| network.contains(peer))
    }
}

impl Default for Peers {
    fn default() -> Peers {
        Peers::loopback()
    }
}

// === impl Network ===

impl Network {
    fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer) {
            (IpAddr::V4(network), IpAddr::V4(peer)) => {
                let differ = u32::from(network) ^ u32::from(peer);
                differ.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(peer)) => {
                let differ = u128::from(network) ^ u128::from(peer);
                differ.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Network {
    type Err = ParseNetworkError;

    fn from_str(text: &str) -> Result<Network, ParseNetworkError> {
        let error = || ParseNetworkError(text.to_owned());
        let (address, bits) = match text.trim().split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), |bits| bits.parse().map_err(|_| error()))?;
        if all < bits { Err(error()) } else { Ok(Network { address, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
