//! An HTTP proxy before git servers: its address, and the hosts that are reached without it. Pure.
//!
//! The proxy gets a CONNECT for each connection and never sees what is inside. It resolves the name of the git server,
//! so Tidegate cannot check the address behind a name; an address in the URL itself is checked.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use ureq::http::Uri;

/// Why a proxy cannot be used. No message repeats the address, because it may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProxyProblem {
    /// The address is invalid.
    #[error("is not the address of a proxy: use http://host:port or https://host:port")]
    Address,
    /// The credentials are in the address and beside it.
    #[error("contains a user name, and there is one beside it: remove one of them")]
    Credentials,
    /// The credentials cannot be sent.
    #[error("has credentials with control characters or a colon in the user name")]
    Characters,
}

/// An HTTP proxy. `Debug` and `Display` show no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    is_encrypted: bool,
    host: String,
    port: u16,
    credentials: Option<(String, String)>,
    without: Vec<Exception>,
}

/// Hosts that are reached without a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Exception {
    All,
    /// A name and the names below it.
    Domain(String),
    /// Only the names below it.
    Below(String),
    Network(IpAddr, u8),
}

// === impl Proxy ===

impl Proxy {
    /// A proxy with this address, `http://host:port` or `https://host:port`, and these credentials.
    ///
    /// # Errors
    ///
    /// Fails if the address is invalid, or if there are credentials both in the address and beside it.
    pub fn new(address: &str, credentials: Option<(String, String)>) -> Result<Proxy, ProxyProblem> {
        let address = address.trim();
        let address = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let uri: Uri = address.parse().map_err(|_| ProxyProblem::Address)?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(ProxyProblem::Address),
        };
        let authority = uri.authority().ok_or(ProxyProblem::Address)?;
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() || authority.host().is_empty() {
            return Err(ProxyProblem::Address);
        }
        let user_info = authority.as_str().rsplit_once('@').map(|(user_info, _)| user_info);
        let credentials = match (user_info, credentials) {
            (Some(_), Some(_)) => return Err(ProxyProblem::Credentials),
            (None, credentials) => credentials,
            (Some(user_info), None) => {
                let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
                let decoded = |text| super::url::percent_decoded(text).ok_or(ProxyProblem::Address);
                Some((decoded(user)?, decoded(password)?))
            }
        };
        if let Some((user, password)) = &credentials
            && (user.contains(':') || user.chars().chain(password.chars()).any(char::is_control))
        {
            return Err(ProxyProblem::Characters);
        }
        let after_host = authority.as_str().rsplit_once(authority.host()).map_or("", |(_, rest)| rest);
        let port = match after_host.strip_prefix(':') {
            None | Some("") => {
                if is_encrypted {
                    443
                } else {
                    80
                }
            }
            Some(port) => port.parse().map_err(|_| ProxyProblem::Address)?,
        };
        Ok(Proxy { is_encrypted, host: authority.host().to_owned(), port, credentials, without: Vec::new() })
    }

    /// The same proxy, but not for these hosts, separated by commas or spaces: `*`, a name with all names below it, a
    /// name with a dot before it for those below it only, an address, or a network such as `10.0.0.0/8`. What is none
    /// of these is ignored, as other programs do with `NO_PROXY`.
    #[must_use]
    pub fn except(mut self, hosts: &str) -> Proxy {
        let words = hosts.split(|c: char| c == ',' || c.is_whitespace()).filter(|word| !word.is_empty());
        self.without.extend(words.filter_map(|word| word.parse::<Exception>().ok()));
        self
    }

    /// Whether a host is reached through the proxy.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        !self.without.iter().any(|exception| exception.contains(&host))
    }

    pub(super) fn to_ureq(&self) -> Result<ureq::Proxy, ureq::Error> {
        let protocol = if self.is_encrypted { ureq::ProxyProtocol::Https } else { ureq::ProxyProtocol::Http };
        let mut builder = ureq::Proxy::builder(protocol).host(&self.host).port(self.port);
        if let Some((user, password)) = &self.credentials {
            builder = builder.username(user).password(password);
        }
        builder.build()
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({self})")
    }
}

// === impl Exception ===

impl Exception {
    fn contains(&self, host: &str) -> bool {
        match self {
            Exception::All => true,
            Exception::Domain(name) => host == name || is_below(host, name),
            Exception::Below(name) => is_below(host, name),
            Exception::Network(network, bits) => {
                host.parse().is_ok_and(|address: IpAddr| is_within(address, *network, *bits))
            }
        }
    }
}

impl FromStr for Exception {
    type Err = ();

    fn from_str(text: &str) -> Result<Exception, ()> {
        let text = text.to_ascii_lowercase();
        if text == "*" {
            return Ok(Exception::All);
        }
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits): (IpAddr, u8) = (address.parse().map_err(drop)?, bits.parse().map_err(drop)?);
            return if bits <= width(address) { Ok(Exception::Network(address, bits)) } else { Err(()) };
        }
        // A port says nothing of the host.
        let text = match text.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_string(),
            Err(_) => text.trim_matches(['[', ']']).to_owned(),
        };
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Exception::Network(address, width(address)));
        }
        let name = text.split(':').next().unwrap_or_default();
        match name.strip_prefix("*.").or_else(|| name.strip_prefix('.')) {
            Some("") => Err(()),
            Some(name) => Ok(Exception::Below(name.to_owned())),
            None if name.is_empty() => Err(()),
            None => Ok(Exception::Domain(name.to_owned())),
        }
    }
}

fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|start| start.ends_with('.'))
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn is_within(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let (one, other) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u128::from(one.to_bits()) << 96, u128::from(other.to_bits()) << 96),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits()),
        _ => return false,
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
    (one ^ other) & mask == 0
}

#[cfg(test)]
mod tests;
