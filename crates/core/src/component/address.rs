//! The address of a registry: scheme, host, port and the path that all its components are below.

use core::net::{IpAddr, Ipv6Addr};
use std::{fmt, str::FromStr};

/// Where a registry is. Displays without the scheme, as Manifests have it: `registry.example.com/modules`.
///
/// Without a scheme, TLS is used, except for `localhost`, names below it and loopback addresses, as Docker's clients
/// do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryAddress {
    is_encrypted: bool,
    /// Host and port.
    authority: String,
    /// Without a slash at either end; may be empty.
    path: String,
}

/// Why an address is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid registry address: {0}, for example europe-docker.pkg.dev or registry.example.com:5000/modules")]
pub struct ParseAddressError(&'static str);

// === impl RegistryAddress ===

impl RegistryAddress {
    /// Limit of the text. A host name has at most 253 characters, a repository at most 255.
    const LEN_MAX: usize = 512;

    /// The same registry with all components below `path`.
    ///
    /// # Errors
    ///
    /// Fails if the path cannot be a part of a repository's name.
    pub fn below(mut self, path: &str) -> Result<RegistryAddress, ParseAddressError> {
        let path = path.trim_matches('/');
        check_path(path)?;
        if !self.path.is_empty() && !path.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(path);
        Ok(self)
    }

    /// Whether requests use TLS.
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The host without the port; an IPv6 address in brackets.
    pub fn host(&self) -> &str {
        host_of(&self.authority)
    }

    /// Whether the host is this machine: only then may credentials travel unencrypted.
    pub fn is_local(&self) -> bool {
        is_local(self.host())
    }

    /// The path of a repository below this address.
    pub fn repository(&self, path: &str) -> String {
        if self.path.is_empty() { path.to_owned() } else { format!("{}/{path}", self.path) }
    }

    /// The URL of the registry's API, without a slash at the end.
    pub fn url(&self) -> String {
        format!("{}://{}/v2", if self.is_encrypted { "https" } else { "http" }, self.authority)
    }
}

impl FromStr for RegistryAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<RegistryAddress, ParseAddressError> {
        let text = text.trim();
        if Self::LEN_MAX < text.len() {
            return Err(ParseAddressError("it is too long; use a host and a path"));
        }
        let (scheme, rest) = match text.split_once("://") {
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some(_) => return Err(ParseAddressError("its scheme is neither http nor https")),
            None => (None, text),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = authority.to_ascii_lowercase();
        check_authority(&authority)?;
        let path = path.trim_end_matches('/');
        check_path(path)?;
        let is_encrypted = scheme.unwrap_or_else(|| !is_local(host_of(&authority)));
        Ok(RegistryAddress { is_encrypted, authority, path: path.to_owned() })
    }
}

impl fmt::Display for RegistryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)?;
        if self.path.is_empty() { Ok(()) } else { write!(f, "/{}", self.path) }
    }
}

fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn is_local(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|address| address.is_loopback())
}

fn check_authority(authority: &str) -> Result<(), ParseAddressError> {
    if authority.is_empty() {
        return Err(ParseAddressError("it has no host; begin with the host"));
    }
    if authority.contains('@') {
        return Err(ParseAddressError("it contains credentials; use a Secret"));
    }
    let host = host_of(authority);
    let port = authority.strip_prefix(host).and_then(|rest| rest.strip_prefix(':'));
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(ParseAddressError("its port is not a number up to 65535"));
    }
    let is_v6 = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    let is_name = !host.is_empty()
        && host.bytes().all(|character| character.is_ascii_alphanumeric() || matches!(character, b'.' | b'-' | b'_'));
    if is_v6 || is_name { Ok(()) } else { Err(ParseAddressError("its host is invalid; use a name or an IP address")) }
}

fn check_path(path: &str) -> Result<(), ParseAddressError> {
    let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, b'.' | b'-' | b'_');
    // Registries require a letter or digit first. So `..` is refused as well.
    let is_part =
        |part: &str| part.bytes().all(is_allowed) && part.bytes().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if path.is_empty() || path.split('/').all(is_part) {
        return Ok(());
    }
    Err(ParseAddressError("its path is invalid; use lower-case letters, digits, `.`, `-` and `_` between slashes"))
}

#[cfg(test)]
mod tests;
