//! The source of a Manifest's objects, as a type and as `spec.install.source`.
//!
//! Only git is supported. An image in a registry becomes a second variant, together with the
//! adapter that pulls it.

use serde_json::{Value, json};

use crate::{name::Key, revision::Oid};

/// The source of a Manifest's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallSource {
    /// A folder or file in the repository of a GitSource.
    Git {
        /// The GitSource.
        source: Key,
        /// Path in the repository.
        path: String,
        /// The tree or blob at that path: the content itself, independent of the current head.
        tree: Oid,
    },
}

/// Why `spec.install.source` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseInstallSourceError {
    /// The type is not supported.
    #[error("source type `{0}` is not supported: use `git`")]
    Type(String),
    /// A field of a git source is missing or malformed.
    #[error("`{0}` of the git source is missing or malformed")]
    Field(&'static str),
}

// === impl InstallSource ===

impl InstallSource {
    /// The value of `spec.install.source`.
    pub fn to_value(&self) -> Value {
        match self {
            InstallSource::Git { source, path, tree } => json!({
                "type": "git",
                "source": source.to_string(),
                "path": path,
                "tree": tree.to_string(),
            }),
        }
    }
}

impl TryFrom<&Value> for InstallSource {
    type Error = ParseInstallSourceError;

    fn try_from(value: &Value) -> Result<InstallSource, ParseInstallSourceError> {
        let text = |field| value.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("type") != "git" {
            return Err(ParseInstallSourceError::Type(text("type").to_owned()));
        }
        let path = text("path");
        if path.is_empty() {
            return Err(ParseInstallSourceError::Field("path"));
        }
        Ok(InstallSource::Git {
            source: text("source").parse().map_err(|_| ParseInstallSourceError::Field("source"))?,
            path: path.to_owned(),
            tree: text("tree").parse().map_err(|_| ParseInstallSourceError::Field("tree"))?,
        })
    }
}
