//! What names a module and its parts: component, version, tag and digest.

use std::{fmt, str::FromStr, sync::LazyLock};

use regex::Regex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::api::crd::pattern;

/// The name of an OCM component, for example `kyma-project.io/module/keda`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentName(String);

/// The version of an OCM component: Semantic Versioning 2, short enough for a tag.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComponentVersion(String);

/// An OCM component in one version. Displays as `kyma-project.io/module/keda:1.2.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Component {
    /// Its name.
    pub name: ComponentName,
    /// Its version.
    pub version: ComponentVersion,
}

/// The SHA-256 digest of a blob or manifest. Displays as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest([u8; 32]);

/// Why a component has no valid name or version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseComponentError {
    /// No name was given. The text is Lifecycle Manager's.
    #[error("invalid component name: value not provided")]
    NoName,
    /// No version was given. The text is Lifecycle Manager's.
    #[error("invalid component version: value not provided")]
    NoVersion,
    /// The name does not match the pattern.
    #[error("invalid component name: use a domain and a path, for example kyma-project.io/module/keda")]
    Name,
    /// The version is not a semantic version.
    #[error("invalid component version: use a semantic version, for example 1.2.0")]
    Version,
    /// The name or version is longer than the limit.
    #[error("invalid component {what}: it has more than {limit} characters")]
    TooLong {
        /// Name or version.
        what: &'static str,
        /// The limit.
        limit: usize,
    },
}

/// The text is not a SHA-256 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a digest: use `sha256:` and 64 hexadecimal digits in lower case")]
pub struct ParseDigestError;

/// The folder that OCM puts component descriptors into.
const DESCRIPTORS: &str = "component-descriptors";

/// The path of a component's repository in its registry, without the registry's subpath: the mapping `urlPath`.
pub fn repository_path(name: &ComponentName) -> String {
    format!("{DESCRIPTORS}/{name}")
}

// === impl ComponentName ===

impl ComponentName {
    /// As in the CRDs.
    const LEN_MAX: usize = 255;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ComponentName {
    type Err = ParseComponentError;

    fn from_str(text: &str) -> Result<ComponentName, ParseComponentError> {
        static PATTERN: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(pattern::OCM_COMPONENT_NAME).expect("a constant that a test compiles"));
        if text.is_empty() {
            return Err(ParseComponentError::NoName);
        }
        if Self::LEN_MAX < text.len() {
            return Err(ParseComponentError::TooLong { what: "name", limit: Self::LEN_MAX });
        }
        if PATTERN.is_match(text) { Ok(ComponentName(text.to_owned())) } else { Err(ParseComponentError::Name) }
    }
}

impl fmt::Display for ComponentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl ComponentVersion ===

impl ComponentVersion {
    /// The longest tag that registries accept.
    const TAG_LEN_MAX: usize = 128;

    /// The version as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tag of this version. A tag has no `+`, so OCM's tools write `.build-` instead.
    pub fn tag(&self) -> String {
        self.0.replace('+', ".build-")
    }
}

impl FromStr for ComponentVersion {
    type Err = ParseComponentError;

    fn from_str(text: &str) -> Result<ComponentVersion, ParseComponentError> {
        if text.is_empty() {
            return Err(ParseComponentError::NoVersion);
        }
        if Self::TAG_LEN_MAX < text.len() {
            return Err(ParseComponentError::TooLong { what: "version", limit: Self::TAG_LEN_MAX });
        }
        semver::Version::parse(text).map_err(|_| ParseComponentError::Version)?;
        let version = ComponentVersion(text.to_owned());
        if Self::TAG_LEN_MAX < version.tag().len() {
            return Err(ParseComponentError::TooLong { what: "version", limit: Self::TAG_LEN_MAX });
        }
        Ok(version)
    }
}

impl fmt::Display for ComponentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl Component ===

impl Component {
    /// A component from the name in the ModuleReleaseMeta and the version in the ModuleTemplate.
    ///
    /// # Errors
    ///
    /// Fails if either is missing, malformed or too long.
    pub fn new(name: &str, version: &str) -> Result<Component, ParseComponentError> {
        Ok(Component { name: name.parse()?, version: version.parse()? })
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.version)
    }
}

// === impl BlobDigest ===

impl BlobDigest {
    const PREFIX: &str = "sha256:";

    /// The digest of bytes.
    pub fn of(bytes: &[u8]) -> BlobDigest {
        BlobDigest(Sha256::digest(bytes).into())
    }

    /// The result of a SHA-256 computation.
    pub fn from_bytes(bytes: [u8; 32]) -> BlobDigest {
        BlobDigest(bytes)
    }

    /// The 64 hexadecimal digits, without the algorithm.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The digest with these 64 hexadecimal digits in lower case.
    ///
    /// # Errors
    ///
    /// Fails if the text is anything else.
    pub fn from_hex(text: &str) -> Result<BlobDigest, ParseDigestError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(ParseDigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(BlobDigest(bytes))
    }
}

/// The value of a hexadecimal digit. Upper case is refused: a digest is also a path, and has one spelling.
fn digit(character: u8) -> Result<u8, ParseDigestError> {
    match character {
        b'0'..=b'9' => Ok(character - b'0'),
        b'a'..=b'f' => Ok(character - b'a' + 10),
        _ => Err(ParseDigestError),
    }
}

impl FromStr for BlobDigest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<BlobDigest, ParseDigestError> {
        BlobDigest::from_hex(text.strip_prefix(Self::PREFIX).ok_or(ParseDigestError)?)
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.hex())
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for BlobDigest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobDigest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<BlobDigest, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
