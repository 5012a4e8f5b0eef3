//! Identifies content in git: commits, trees and blobs, and the revision in the status.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The text is not 40 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a full object id of 40 hexadecimal digits")]
pub struct ParseOidError(pub String);

/// A git object id (SHA-1): of a commit, a tree or a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid([u8; 20]);

/// The source of a snapshot, as in the status: `main@sha1:<commit>`.
///
/// A work tree has no commit and prints as `worktree`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// A commit, and the name that resolved to it (branch, tag, or the commit itself).
    Commit {
        /// Branch or tag as the user wrote it.
        name: String,
        /// The commit.
        commit: Oid,
    },
    /// Files on disk.
    WorkTree,
}

// === impl Oid ===

impl Oid {
    /// An id from raw bytes.
    pub fn new(bytes: [u8; 20]) -> Oid {
        Oid(bytes)
    }

    /// The raw bytes.
    pub fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Oid {
    type Err = ParseOidError;

    fn from_str(text: &str) -> Result<Oid, ParseOidError> {
        let error = || ParseOidError(text.to_owned());
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(error());
        }
        let mut bytes = [0; 20];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16);
            let (Some(high), Some(low)) = (digit(pair[0]), digit(pair[1])) else { return Err(error()) };
            *byte = u8::try_from(high * 16 + low).map_err(|_| error())?;
        }
        Ok(Oid(bytes))
    }
}

impl Serialize for Oid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Oid {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Oid, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

// === impl Revision ===

impl Revision {
    /// The commit, if there is one.
    pub fn commit(&self) -> Option<Oid> {
        match self {
            Revision::Commit { commit, .. } => Some(*commit),
            Revision::WorkTree => None,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Revision::Commit { name, commit } => write!(f, "{name}@sha1:{commit}"),
            Revision::WorkTree => f.write_str("worktree"),
        }
    }
}

#[cfg(test)]
mod tests;
