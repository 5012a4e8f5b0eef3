//! The address on which a server listens, or `off`.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A listen address: `IP:PORT`, `:PORT` for all addresses of the machine, or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// On this address.
    On(SocketAddr),
    /// On no address.
    Off,
}

/// A text is not a listen address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address `{0}`: use IP:PORT, :PORT or off, for example 127.0.0.1:9000")]
pub struct ParseListenError(String);

/// A text is not an address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address `{0}`: use IP:PORT or :PORT, for example 0.0.0.0:8080")]
pub struct ParseAddressError(String);

/// The address of a server that always runs: `IP:PORT`, or `:PORT` for all addresses of the machine.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, ParseAddressError> {
    let listen = text.parse::<Listen>().ok().and_then(Listen::address);
    listen.ok_or_else(|| ParseAddressError(text.to_owned()))
}

/// The same, from a configuration file.
pub(super) fn deserialize_address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    parse_address(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

// === impl Listen ===

impl Listen {
    /// On a port of all addresses of the machine.
    const fn everywhere(port: u16) -> Listen {
        Listen::On(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), port))
    }

    /// The address; `None` for `off`.
    pub fn address(self) -> Option<SocketAddr> {
        match self {
            Listen::On(address) => Some(address),
            Listen::Off => None,
        }
    }
}

impl FromStr for Listen {
    type Err = ParseListenError;

    fn from_str(text: &str) -> Result<Listen, ParseListenError> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        let error = || ParseListenError(text.to_owned());
        match text.strip_prefix(':') {
            Some(port) => port.parse().map(Listen::everywhere).map_err(|_| error()),
            None => text.parse().map(Listen::On).map_err(|_| error()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::On(address) => address.fmt(f),
            Listen::Off => f.write_str("off"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
