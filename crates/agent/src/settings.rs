//! What the agent is told: the Runtime Watcher's environment, and options of our own with defaults.
//!
//! Names and meaning of the variables are upstream's. What is missing is an error that names the variable; a port that is
//! none keeps its default, as upstream does, and is told of.

use std::{net::Ipv6Addr, path::PathBuf, str::FromStr, time::Duration};

use rustls::pki_types::ServerName;
use tidegate_process::tls::Algorithms;

/// Everything the agent is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Port of the admission server.
    pub webhook_port: u16,
    /// Port of metrics and health.
    pub metrics_port: u16,
    /// Where certificate, key and CA bundle stand.
    pub files: Files,
    /// Who is told.
    pub control_plane: ControlPlane,
    /// First segment of the event's path.
    pub contract: String,
    /// What `GODEBUG` says of FIPS.
    pub fips: Fips,
    /// What was given and is not used, in words.
    pub remarks: Vec<String>,
}

/// Files of the mounted Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The certificate, both as admission server and as client of the control plane.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The certificates one of which the control plane's must be, or be signed by.
    pub authorities: PathBuf,
}

/// The control plane's gateway, or its listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    /// As it was given: this is the `Host` of requests.
    pub authority: String,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// What its certificate must be for.
    pub server_name: ServerName<'static>,
}

/// Which algorithms may be used, in the words of Go's FIPS mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fips {
    /// All.
    Off,
    /// Approved ones.
    On,
    /// Approved ones only.
    Only,
}

/// How long things take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a review until its event is sent: admission comes before the write is stored.
    pub settle: Duration,
    /// From a review until its event is sent once more, in case storing took longer; zero for never.
    pub resend: Duration,
    /// How often the path to the control plane is proven where nothing else proves it; zero for never.
    pub probe_interval: Duration,
    /// Within this time of its start, or of the end of an outage, the agent has the runtime looked at; zero for never.
    pub resync_within: Duration,
    /// How often it does so anyway; zero for never.
    pub resync_interval: Duration,
    /// After SIGTERM, how long reviews are still accepted while the runtime's Service learns of it.
    pub shutdown_delay: Duration,
    /// After that, how long events are still sent.
    pub flush: Duration,
    /// How often the mounted Secret is looked at.
    pub reload_interval: Duration,
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A variable is missing.
    #[error("the environment variable {name} is not set; it is {what}")]
    Missing {
        /// The variable.
        name: &'static str,
        /// What it says.
        what: &'static str,
    },
    /// The address is none.
    #[error("KCP_ADDR is `{found}`, which is no address; write HOST:PORT")]
    Address {
        /// What was given.
        found: String,
    },
    /// The contract is none.
    #[error("KCP_CONTRACT is `{found}`; write a version such as `v2`")]
    Contract {
        /// What was given.
        found: String,
    },
}

/// Port of the admission server where none is given.
pub const WEBHOOK_PORT: u16 = 8443;
/// Port of metrics and health where none is given.
pub const METRICS_PORT: u16 = 2112;
/// Port of the control plane where none is given.
const HTTPS_PORT: u16 = 443;

// === impl Settings ===

impl Settings {
    /// Reads the environment through `variable`, which knows no empty values.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, Error> {
        let required = |name: &'static str, what: &'static str| {
            variable(name).filter(|value| !value.is_empty()).ok_or(Error::Missing { name, what })
        };
        let mut remarks = Vec::new();
        let mut port = |name: &str, default: u16| match variable(name).filter(|text| !text.is_empty()) {
            None => default,
            Some(text) => text.trim().parse().ok().filter(|port| *port != 0).unwrap_or_else(|| {
                remarks.push(format!("{name} is `{text}`, which is no port from 1 to 65535; it is {default} now"));
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
            // An IPv6 address has colons of its own, and stands in brackets.
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
    /// What `GODEBUG` says: the last `fips140=` counts, and what Go does not know is off. Where it says nothing, approved
    /// algorithms only are used: every control plane and every API server has them.
    pub fn of_godebug(text: Option<&str>) -> Fips {
        let mut settings = text.unwrap_or_default().split(',').filter_map(|setting| setting.split_once('='));
        let last = settings.rfind(|(name, _)| name.trim() == "fips140");
        match last.map(|(_, value)| value.trim()) {
            None | Some("only") => Fips::Only,
            Some("on" | "debug") => Fips::On,
            Some(_) => Fips::Off,
        }
    }

    /// The algorithms that TLS gets.
    pub fn algorithms(self) -> Algorithms {
        match self {
            Fips::Off => Algorithms::All,
            Fips::On | Fips::Only => Algorithms::Approved,
        }
    }

    /// The number that the Runtime Watcher's metric has for it.
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
            // Five thousand runtimes are forty requests a second, and no load balancer forgets a connection so soon.
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
