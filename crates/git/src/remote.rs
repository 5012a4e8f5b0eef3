//! What to fetch: URL, reference, credentials and time-out.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::url::Url;
use tidegate_core::revision::Oid;

/// The reference to follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reference {
    /// The repository's HEAD.
    Default,
    /// A branch.
    Branch(String),
    /// A tag, annotated or not.
    Tag(String),
    /// A commit.
    Commit(Oid),
}

/// The credentials. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credentials {
    /// User name and password; a token may replace the password.
    Basic {
        /// The user name.
        username: String,
        /// The password.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

/// What to fetch.
#[derive(Clone, Debug)]
pub struct Remote {
    /// The URL.
    pub url: Url,
    /// The reference.
    pub reference: Reference,
    /// The credentials; without them, user name and password of the URL.
    pub credentials: Option<Credentials>,
    /// CAs in PEM that replace the system's.
    pub ca: Option<Vec<u8>>,
    /// Limit for the whole fetch, from name resolution to the last byte.
    pub timeout: Duration,
}

// === impl Reference ===

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Default => f.write_str("head"),
            Reference::Branch(name) => write!(f, "branch `{name}`"),
            Reference::Tag(name) => write!(f, "tag `{name}`"),
            Reference::Commit(id) => write!(f, "commit {id}"),
        }
    }
}

// === impl Credentials ===

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credentials::Basic { .. } => "Basic(…)",
            Credentials::Bearer(_) => "Bearer(…)",
        })
    }
}

// === impl Remote ===

impl Remote {
    /// The credentials to use.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref().or_else(|| self.url.credentials())
    }
}
