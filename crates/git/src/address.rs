//! Refuses addresses that Tidegate never connects to.
//!
//! A URL in a custom resource makes the daemon send a request from inside the network. The check runs between name
//! resolution and the connection. So it covers names that resolve to such an address, numbers in an unusual notation,
//! and redirects.

use std::{io, net::IpAddr};

use tidegate_process::address::is_forbidden;
use ureq::{
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// Resolves names with the system's resolver, and refuses a name with a forbidden address.
#[derive(Debug, Default)]
pub(super) struct GuardedResolver(DefaultResolver);

/// A host has an address that Tidegate never connects to.
#[derive(Debug, thiserror::Error)]
#[error("{host} is a link-local or metadata address")]
pub(super) struct Refused {
    pub(super) host: String,
}

/// Whether a host is an address that Tidegate never connects to, or one in a notation that only some programs read. It
/// says nothing of a name.
pub(super) fn is_forbidden_literal(host: &str) -> bool {
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(address) => is_forbidden(address),
        // As for web browsers, a host whose last part is a number is an address.
        Err(_) => {
            let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
            !last.is_empty() && (last.bytes().all(|c| c.is_ascii_digit()) || last.starts_with("0x"))
        }
    }
}

impl Resolver for GuardedResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let addresses = self.0.resolve(uri, config, timeout).map_err(|error| match error {
            // The system's resolver reports an unknown name as an error without a specific kind.
            ureq::Error::Io(error) if error.kind() != io::ErrorKind::TimedOut => ureq::Error::HostNotFound,
            other => other,
        })?;
        // One forbidden address among valid ones is suspicious, so refuse the name.
        if addresses.iter().any(|address| is_forbidden(address.ip())) {
            let host = uri.host().unwrap_or_default().to_owned();
            return Err(ureq::Error::Other(Box::new(Refused { host })));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_refused_in_any_notation() {
        for host in
            ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166", "169.254.43518", "0xa9fea9fe"]
        {
            assert!(is_forbidden_literal(host), "{host}");
        }
        for host in ["git.example.com", "10.0.0.1", "[::1]", "localhost", "git1", "a.1x"] {
            assert!(!is_forbidden_literal(host), "{host}");
        }
    }
}
