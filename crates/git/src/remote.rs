//! What to fetch: where, what, as whom, for how long.

use std::{fmt, time::Duration};

use super::url::Url;
use tidegate_core::revision::Oid;

/// What to follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// Whatever the repository calls its head.
    Default,
    /// A branch.
    Branch(String),
    /// A tag, annotated or not.
    Tag(String),
    /// A commit.
    Commit(Oid),
}

/// Who asks. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credentials {
    /// User name and password, or token in place of the password.
    Basic {
        /// User name.
        username: String,
        /// Password.
        password: String,
    },
    /// A token of its own.
    Bearer(String),
}

/// What to fetch.
#[derive(Clone, Debug)]
pub struct Remote {
    /// Where.
    pub url: Url,
    /// What.
    pub reference: Reference,
    /// As whom; without them, as the user name and password in the URL say.
    pub credentials: Option<Credentials>,
    /// Authorities in PEM, in place of those of the system.
    pub ca: Option<Vec<u8>>,
    /// How long it may take in total, from name resolution to the last byte.
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
    /// Credentials in force.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref().or_else(|| self.url.credentials())
    }
}
