//! The agent in runtimes: which program it is, and where it sends its events.

use std::fmt;

use super::Gateway;
use crate::{api::names, name::Key};

/// How the agent is installed in runtimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Which program the image holds.
    pub program: Program,
    /// The image, with registry and tag.
    pub image: String,
    /// The Secret with which it is pulled: of this name in the namespace of the control plane, from where it is copied, and
    /// in runtimes.
    pub pull_secret: Option<String>,
    /// Its priority class. The one of [`PRIORITY_CLASS`] is made, any other must be there.
    pub priority_class: String,
    /// Limit of its memory, as Kubernetes writes it.
    pub memory_limit: String,
    /// Limit of its computing, as Kubernetes writes it.
    pub cpu_limit: String,
    /// Settings of the Go runtime, for a program that has one.
    pub godebug: Option<String>,
    /// Where its events go.
    pub listener: ListenerSettings,
}

/// A program that is an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// `tidegate agent`: it has health endpoints, takes renewed certificates without a restart and probes its way to the
    /// control plane.
    Tidegate,
    /// The Runtime Watcher of Kyma, which does none of that.
    RuntimeWatcher,
}

/// How the address is found that agents send to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The Istio Gateway whose host it is.
    pub gateway: Key,
    /// A port in place of the Gateway's.
    pub port_overwrite: Option<u16>,
    /// An address in place of the Gateway's: for a listener that agents reach directly.
    pub address: Option<Address>,
}

/// Where agents send events: a host name or IP address, and a port. Displays as `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

/// A text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address; write HOST:PORT")]
pub struct ParseAddressError(String);

/// Why there is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The Gateway does not exist.
    #[error("there is no Gateway {0}; create it, or give --listener-address")]
    NoGateway(Key),
    /// The Gateway has no server, or several.
    #[error("Gateway {gateway} has {found} servers; it must have exactly one")]
    Servers {
        /// The Gateway.
        gateway: Key,
        /// How many it has.
        found: usize,
    },
    /// Its server has no host, or several.
    #[error("the server of Gateway {gateway} has {found} hosts; it must have exactly one")]
    Hosts {
        /// The Gateway.
        gateway: Key,
        /// How many it has.
        found: usize,
    },
    /// Its host is not the name of one.
    #[error("host `{host}` of Gateway {gateway} is not the name of one host")]
    Host {
        /// The Gateway.
        gateway: Key,
        /// The host.
        host: String,
    },
    /// Its port is none.
    #[error("the server of Gateway {0} has no port between 1 and 65535")]
    Port(Key),
}

/// The priority class that comes with the agent.
pub const PRIORITY_CLASS: &str = "skr-webhook-priority";

// === impl Agent ===

impl Agent {
    /// Where the Secret with which it is pulled comes from, in the control plane.
    pub fn pull_secret(&self) -> Option<Key> {
        self.pull_secret.as_deref().map(|name| Key::new(names::KCP_NAMESPACE, name))
    }
}

// === impl Program ===

impl Program {
    /// Its name in options and templates.
    pub fn name(self) -> &'static str {
        match self {
            Program::Tidegate => "tidegate",
            Program::RuntimeWatcher => "runtime-watcher",
        }
    }

    /// Whether it serves with a renewed certificate only after a restart.
    pub fn restarts_for_certificates(self) -> bool {
        match self {
            Program::Tidegate => false,
            Program::RuntimeWatcher => true,
        }
    }

    /// How long an API server may wait for its answer, in seconds. Ours answers before it sends anything.
    pub fn timeout_seconds(self) -> u8 {
        match self {
            Program::Tidegate => 5,
            Program::RuntimeWatcher => 15,
        }
    }
}

// === impl ListenerSettings ===

impl ListenerSettings {
    /// The address, as the Gateways of now have it.
    pub fn resolve<'a>(&self, gateways: impl IntoIterator<Item = &'a Gateway>) -> Result<Address, AddressError> {
        if let Some(address) = &self.address {
            return Ok(address.clone());
        }
        let key = &self.gateway;
        let gateway = gateways
            .into_iter()
            .find(|gateway| gateway.key == *key)
            .ok_or_else(|| AddressError::NoGateway(key.clone()))?;
        let [server] = gateway.servers.as_slice() else {
            return Err(AddressError::Servers { gateway: key.clone(), found: gateway.servers.len() });
        };
        let hosts: Vec<&str> = server.hosts.iter().map(|host| host.trim()).filter(|host| !host.is_empty()).collect();
        let [host] = hosts.as_slice() else {
            return Err(AddressError::Hosts { gateway: key.clone(), found: hosts.len() });
        };
        // Istio allows `NAMESPACE/HOST` and a wildcard; neither is where a client can go.
        if host.contains(['*', '/']) {
            return Err(AddressError::Host { gateway: key.clone(), host: (*host).to_owned() });
        }
        let port = self.port_overwrite.or(server.port).ok_or_else(|| AddressError::Port(key.clone()))?;
        Ok(Address { host: (*host).to_owned(), port })
    }
}

// === impl Address ===

impl Address {
    /// The host: a name or an IP address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl std::str::FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Address, ParseAddressError> {
        let error = || ParseAddressError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port: u16 = port.parse().ok().filter(|port| *port != 0).ok_or_else(error)?;
        let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_v6 = bracketed.is_some_and(|host| host.parse::<core::net::Ipv6Addr>().is_ok());
        let is_name = host.split('.').all(|label| {
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        });
        if is_v6 || is_name { Ok(Address { host: host.to_owned(), port }) } else { Err(error()) }
    }
}
