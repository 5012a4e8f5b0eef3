//! The agent in runtimes: its program and the address for its events.

use std::fmt;

use super::Gateway;
use crate::{api::names, name::Key};

/// How the agent is installed in runtimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The program in the image.
    pub program: Program,
    /// The image, with registry and tag.
    pub image: String,
    /// The name of the image pull Secret. Tidegate copies it from the namespace of the control
    /// plane to the runtimes.
    pub pull_secret: Option<String>,
    /// Its priority class. Tidegate creates [`PRIORITY_CLASS`]; any other must exist.
    pub priority_class: String,
    /// Its memory limit, as a Kubernetes quantity.
    pub memory_limit: String,
    /// Its CPU limit, as a Kubernetes quantity.
    pub cpu_limit: String,
    /// Settings of the Go runtime, for a Go program.
    pub godebug: Option<String>,
    /// The destination of its events.
    pub listener: ListenerSettings,
}

/// An agent program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// `tidegate agent`: it has health endpoints, loads renewed certificates without a restart and
    /// probes the connection to the control plane.
    Tidegate,
    /// The Runtime Watcher of Kyma, which has none of these features.
    RuntimeWatcher,
}

/// How the address of the listener is determined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// The Istio Gateway with the host.
    pub gateway: Key,
    /// A port instead of the Gateway's.
    pub port_overwrite: Option<u16>,
    /// An address instead of the Gateway's, for a listener that agents reach directly.
    pub address: Option<Address>,
}

/// The address to which agents send events: a host name or IP address, and a port. Displays as
/// `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    host: String,
    port: u16,
}

/// The text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid address `{0}`: use HOST:PORT")]
pub struct ParseAddressError(String);

/// Why the address cannot be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The Gateway does not exist.
    #[error("Gateway {0} does not exist: create it, or set --listener-address")]
    NoGateway(Key),
    /// The Gateway has no server or several.
    #[error("Gateway {gateway} has {found} servers; it must have exactly one")]
    Servers {
        /// The Gateway.
        gateway: Key,
        /// The number of servers.
        found: usize,
    },
    /// The server of the Gateway has no host or several.
    #[error("the server of Gateway {gateway} has {found} hosts; it must have exactly one")]
    Hosts {
        /// The Gateway.
        gateway: Key,
        /// The number of hosts.
        found: usize,
    },
    /// The host is not a single host name.
    #[error("host `{host}` of Gateway {gateway} is not a single host name")]
    Host {
        /// The Gateway.
        gateway: Key,
        /// The host.
        host: String,
    },
    /// The server has no valid port.
    #[error("the server of Gateway {0} has no port from 1 to 65535")]
    Port(Key),
}

/// The priority class that Tidegate creates for the agent.
pub const PRIORITY_CLASS: &str = "skr-webhook-priority";

// === impl Agent ===

impl Agent {
    /// The image pull Secret in the control plane.
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

    /// Whether it needs a restart to serve a renewed certificate.
    pub fn restarts_for_certificates(self) -> bool {
        match self {
            Program::Tidegate => false,
            Program::RuntimeWatcher => true,
        }
    }

    /// How long an API server waits for its answer, in seconds. Tidegate's agent answers before it sends anything.
    pub fn timeout_seconds(self) -> u8 {
        match self {
            Program::Tidegate => 5,
            Program::RuntimeWatcher => 15,
        }
    }
}

// === impl ListenerSettings ===

impl ListenerSettings {
    /// Determines the address from the current Gateways.
    ///
    /// # Errors
    ///
    /// Fails if the Gateway does not exist, or does not have exactly one server with one host and a valid port.
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
        // Istio allows `NAMESPACE/HOST` and a wildcard. Clients cannot use either.
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
