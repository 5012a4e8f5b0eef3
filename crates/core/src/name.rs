//! Checked strings. Length and alphabet are validated once, when text becomes a name.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// Why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseNameError {
    /// The text is empty.
    #[error("a name must not be empty")]
    Empty,
    /// The text is too long.
    #[error("a name has at most {limit} characters, but this one has {found}")]
    TooLong {
        /// Characters found.
        found: usize,
        /// Characters allowed.
        limit: usize,
    },
    /// The text contains a forbidden character.
    #[error(
        "`{found}` is not allowed in a name; use lower-case letters, digits, `-` and `.`, and begin and end with a \
         letter or digit"
    )]
    Forbidden {
        /// The character.
        found: char,
    },
    /// The text is not `NAMESPACE/NAME`.
    #[error("`{found}` is not of the form NAMESPACE/NAME")]
    NoNamespace {
        /// The text.
        found: String,
    },
}

/// Maximum length of an RFC 1123 subdomain, which is the limit for object names.
const SUBDOMAIN_LEN_MAX: usize = 253;

/// Checks that `text` is an RFC 1123 subdomain: a valid object name.
///
/// # Errors
///
/// Fails if it is empty, too long, or contains a forbidden character.
pub fn check_subdomain(text: &str) -> Result<(), ParseNameError> {
    if text.is_empty() {
        return Err(ParseNameError::Empty);
    }
    if SUBDOMAIN_LEN_MAX < text.len() {
        return Err(ParseNameError::TooLong { found: text.len(), limit: SUBDOMAIN_LEN_MAX });
    }
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    for label in text.split('.') {
        if let Some(found) = label.chars().find(|&c| !alphanumeric(c) && c != '-') {
            return Err(ParseNameError::Forbidden { found });
        }
        if label.is_empty() {
            return Err(ParseNameError::Forbidden { found: '.' });
        }
        if label.starts_with('-') || label.ends_with('-') {
            return Err(ParseNameError::Forbidden { found: '-' });
        }
    }
    Ok(())
}

/// Namespace and name of an object: the key of everything that is indexed or queued.
///
/// Ordered by namespace, then name. Displays as `NAMESPACE/NAME`. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    namespace: Arc<str>,
    name: Arc<str>,
}

// === impl Key ===

impl Key {
    /// A key from parts that the API server or a check has accepted.
    pub fn new(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.into(), name: name.into() }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for Key {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Key, ParseNameError> {
        let (namespace, name) =
            text.split_once('/').ok_or_else(|| ParseNameError::NoNamespace { found: text.to_owned() })?;
        check_subdomain(namespace)?;
        check_subdomain(name)?;
        Ok(Key::new(namespace, name))
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
