//! The agent's settings: the Runtime Watcher's environment variables, and our own options with defaults.
//!
//! Names and meaning of the variables are upstream's. A missing variable is an error that names it. An invalid port
//! keeps its default, as upstream does, and causes a warning.

use std::{net::Ipv6Addr, path::PathBuf, str::FromStr, time::Duration};

use rustls::pki_types::ServerName;
use tidegate_process::tls::Algorithms;

/// The settings from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Port of the admission server.
    pub webhook_port: u16,
    /// Port of metrics and health.
    pub metrics_port: u16,
    /// Paths of certificate, key and CA bundle.
    pub files: Files,
    /// The control plane that receives the events.
    pub control_plane: ControlPlane,
    /// First segment of the event's path.
    pub contract: String,
    /// The FIPS mode from `GODEBUG`.
    pub fips: Fips,
    /// Warnings about ignored values.
    pub remarks: Vec<String>,
}

/// Files of the mounted Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, both of the admission server and of the client of the control plane.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The CA bundle. The control plane's certificate must be in it or be signed by one of its CAs.
    pub authorities: PathBuf,
}

/// The control plane's gateway or listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// The address as it was given: the `Host` of requests.
    pub authority: String,
    /// The host name or IP address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name that the control plane's certificate must contain.
    pub server_name: ServerName<'static>,
}

/// Which algorithms are allowed, in the terms of Go's FIPS mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fips {
    /// All algorithms.
    Off,
    /// Approved algorithms.
    On,
    /// Only approved algorithms.
    Only,
}

/// Delays and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a review until its event is sent, because admission comes before the write is persisted.
    pub settle: Duration,
    /// From a review until its event is sent again, in case persisting took longer; zero disables it.
    pub resend: Duration,
    /// Interval of probes while no other request proves the connection; zero disables them.
    pub probe_interval: Duration,
    /// A start or the end of an outage triggers a full resync within this time; zero disables it.
    pub resync_within: Duration,
    /// Interval of full resyncs; zero disables them.
    pub resync_interval: Duration,
    /// How long reviews are accepted after SIGTERM, until the runtime's Service stops sending them.
    pub shutdown_delay: Duration,
    /// How long events are sent after that.
    pub flush: Duration,
    /// Interval of checking the mounted Secret for changes.
    pub reload_interval: Duration,
}

/// Why the settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A variable is missing.
    #[error("the environment variable {name} is not set; it is {what}")]
    Missing {
        /// The name of the variable.
        name: &'static str,
        /// What the variable contains.
        what: &'static str,
    },
    /// The address is invalid.
    #[error("invalid KCP_ADDR `{found}`: use HOST:PORT")]
    Address {
        /// The value.
        found: String,
    },
    /// The contract is invalid.
    #[error("invalid KCP_CONTRACT `{found}`: use a version, for example `v2`")]
    Contract {
        /// The value.
        found: String,
    },
}

/// Default port of the admission server.
pub const WEBHOOK_PORT: u16 = 8443;
/// Default port of metrics and health.
pub const METRICS_PORT: u16 = 2112;
/// Default port of the control plane.
const HTTPS_PORT: u16 = 443;

// === impl Settings ===

impl Settings {
    /// Reads the environment through `variable`, which returns no empty values.
    ///
    /// # Errors
    ///
    /// Fails if a required variable is missing or invalid.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let required = |name: &'static str, what: &'static str| {
            variable(name).filter(|value| !value.is_empty()).ok_or(Error::Missing { name, what })
        };
        let mut remarks = Vec::new();
        let mut port = |name: &str, default: u16| match variable(name).filter(|text| !text.is_empty()) {
            None => default,
            Some(text) => text.trim().parse().ok().filter(|port| *port != 0).unwrap_or_else(|| {
                remarks
                    .push(format!("invalid {name} `{text}`: use a port from 1 to 65535; using the default {default}"));
                default
            }),
        };
        let (webhook_port, metrics_port) = (port("WEBHOOK_PORT", WEBHOOK_PORT), port("METRICS_PORT", METRICS_PORT));
        let files = Files {
            authorities: required("CA_CERT", "the file with the CA bundle of the control plane")?.into(),
            certificate: required("TLS_CERT", "the file with the agent's certificate")?.into(),
            key: required("TLS_KEY", "the file with the agent's key")?.into(),
        };
        let control_plane = required("KCP_ADDR", "the control plane's address, HOST:PORT")?.parse()?;
        let contract = required("KCP_CONTRACT", "the version of the contract, `v2`")?;
        if !contract.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
            || contract.starts_with('.')
        {
            return Err(Error::Contract { found: contract });
        }
        let fips = Fips::of_godebug(variable("GODEBUG").as_deref());
        Ok(Settings { webhook_port, metrics_port, files, control_plane, contract, fips, remarks })
    }
}

// === impl ControlPlane ===

impl FromStr for ControlPlane {
    type Err = Error;

    fn from_str(text: &str) -> Result<ControlPlane, Error> {
        let error = || Error::Address { found: text.to_owned() };
        if text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '?' | '#' | '@')) {
            return Err(error());
        }
        let (host, port) = match text.rsplit_once(':') {
            // An IPv6 address contains colons and is written in brackets.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| error())?),
            _ => (text, HTTPS_PORT),
        };
        let host = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
            Some(bracketed) => {
                let address = bracketed.ok_or_else(error)?;
                address.parse::<Ipv6Addr>().map_err(|_| error())?;
                address
            }
            None if host.contains(':') => return Err(error()),
            None => host,
        };
        let server_name = ServerName::try_from(host.to_owned()).map_err(|_| error())?;
        if port == 0 {
            return Err(error());
        }
        Ok(ControlPlane { authority: text.to_owned(), host: host.to_owned(), port, server_name })
    }
}

// === impl Fips ===

impl Fips {
    /// Reads `GODEBUG`: the last `fips140=` wins, and a value that Go does not know means off. Without one, only
    /// approved algorithms are used: every control plane and every API server supports them.
    pub fn of_godebug(text: Option<&str>) -> Fips {
        let mut settings = text.unwrap_or_default().split(',').filter_map(|setting| setting.split_once('='));
        let last = settings.rfind(|(name, _)| name.trim() == "fips140");
        match last.map(|(_, value)| value.trim()) {
            None | Some("only") => Fips::Only,
            Some("on" | "debug") => Fips::On,
            Some(_) => Fips::Off,
        }
    }

    /// The algorithms for TLS.
    pub fn algorithms(self) -> Algorithms {
        match self {
            Fips::Off => Algorithms::All,
            Fips::On | Fips::Only => Algorithms::Approved,
        }
    }

    /// The value of the Runtime Watcher's metric.
    pub fn number(self) -> i64 {
        match self {
            Fips::Off => 0,
            Fips::On => 1,
            Fips::Only => 2,
        }
    }
}

// === impl Timing ===

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            settle: Duration::from_millis(300),
            resend: Duration::from_secs(5),
            // With 5,000 runtimes, this causes 40 requests a second, and no load balancer drops a connection earlier.
            probe_interval: Duration::from_secs(120),
            resync_within: Duration::from_secs(60),
            resync_interval: Duration::from_secs(12 * 3600),
            shutdown_delay: Duration::from_secs(2),
            flush: Duration::from_secs(10),
            reload_interval: Duration::from_secs(2),
        }
    }
}

#[cfg(test)]
mod tests;
