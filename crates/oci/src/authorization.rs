//! What a registry has taught us to send: the password, or a token for each repository. In memory only.

use std::collections::BTreeMap;

use http::HeaderValue;
use tidegate_core::component::RegistryAddress;

use super::{credentials::Credentials, error::Error, limits::TOKENS_MAX};

/// The credentials, and what was obtained with them.
#[derive(Default)]
pub(super) struct Authorization {
    credentials: Option<Credentials>,
    /// Counts replacements: a token that was requested with earlier credentials is not kept.
    generation: u64,
    is_basic: bool,
    tokens: BTreeMap<String, HeaderValue>,
}

/// The credentials at one moment.
#[derive(Clone)]
pub(super) struct Proof {
    /// The header with the credentials themselves.
    pub(super) header: Option<HeaderValue>,
    /// Whether the header is a token already, so that none can be requested with it.
    pub(super) is_token: bool,
    generation: u64,
}

/// Checks credentials before the first use.
pub(super) fn check(credentials: &Credentials, address: &RegistryAddress) -> Result<(), Error> {
    let host = || address.to_string();
    if !address.is_encrypted() && !address.is_local() {
        return Err(Error::CredentialsOverHttp { host: host() });
    }
    credentials.header().map(drop).ok_or_else(|| Error::Credentials { host: host() })
}

// === impl Authorization ===

impl Authorization {
    /// Replaces the credentials and forgets what was obtained with the earlier ones. Equal ones change nothing.
    pub(super) fn replace(&mut self, credentials: Option<Credentials>) {
        if self.credentials != credentials {
            *self = Authorization { credentials, generation: self.generation + 1, ..Authorization::default() };
        }
    }

    /// What to send with the first request to a repository.
    pub(super) fn known(&self, repository: &str) -> Option<HeaderValue> {
        match &self.credentials {
            Some(Credentials::Bearer(_)) => self.header(),
            Some(Credentials::Basic { .. }) if self.is_basic => self.header(),
            _ => self.tokens.get(repository).cloned(),
        }
    }

    /// The current credentials.
    pub(super) fn proof(&self) -> Proof {
        let is_token = matches!(self.credentials, Some(Credentials::Bearer(_)));
        Proof { header: self.header(), is_token, generation: self.generation }
    }

    /// Whether there are credentials.
    pub(super) fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// The registry takes the credentials themselves.
    pub(super) fn learn_basic(&mut self, proof: &Proof) {
        if self.generation == proof.generation {
            self.is_basic = true;
        }
    }

    /// A token for a repository.
    pub(super) fn learn_token(&mut self, proof: &Proof, repository: &str, token: HeaderValue) {
        if self.generation != proof.generation {
            return;
        }
        if TOKENS_MAX <= self.tokens.len() {
            self.tokens.clear();
        }
        self.tokens.insert(repository.to_owned(), token);
    }

    fn header(&self) -> Option<HeaderValue> {
        self.credentials.as_ref().and_then(Credentials::header)
    }
}

#[cfg(test)]
mod tests;
