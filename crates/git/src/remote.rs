//! What to fetch: URL, reference, credentials and time-out.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::{proxy::Proxy, ssh::SshAccess, url::Url};
use tidegate_core::{revision::Oid, version_range::VersionRange};

/// The reference to follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reference {
    /// The repository's HEAD.
    Default,
    /// A branch.
    Branch(String),
    /// A tag, annotated or not.
    Tag(String),
    /// The tag with the highest version in a range.
    Versions(VersionRange),
    /// A reference by its full name.
    Name(String),
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

/// A certificate of the client, with its private key. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate and those of its CAs, in PEM.
    pub certificate: Vec<u8>,
    /// Its private key, in PEM.
    pub key: Vec<u8>,
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
    /// A certificate of the client, for a server that wants one.
    pub client: Option<ClientCertificate>,
    /// CAs in PEM that replace the system's.
    pub ca: Option<Vec<u8>>,
    /// The proxy for an http or https URL; without it, that of the [`State`](crate::State).
    pub proxy: Option<Proxy>,
    /// The private key and the known hosts of an ssh URL.
    pub ssh: Option<SshAccess>,
    /// Limit for the whole fetch, from name resolution to the last byte.
    pub timeout: Duration,
}

// === impl Reference ===

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Default => f.write_str("default branch"),
            Reference::Branch(name) => write!(f, "branch `{name}`"),
            Reference::Tag(name) => write!(f, "tag `{name}`"),
            Reference::Versions(range) => write!(f, "tag with a version in `{range}`"),
            Reference::Name(name) => write!(f, "reference `{name}`"),
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

// === impl ClientCertificate ===

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate(…)")
    }
}

// === impl Remote ===

impl Remote {
    /// The credentials to use.
    pub(super) fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref().or_else(|| self.url.credentials())
    }
}
