//! Refuses addresses that Tidegate never connects to.
//!
//! A URL in a custom resource makes the daemon send a request from inside the network. The check runs between name
//! resolution and the connection. So it covers names that resolve to such an address, numbers in an unusual notation,
//! and redirects.

use std::io;

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
