//! The source of a Manifest's objects, as a type and as `spec.install.source`.

use serde_json::{Value, json};

use crate::{
    component::{ParseSourceError, Source},
    content::ContentId,
    name::Key,
    revision::Oid,
};

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
    /// A blob in an OCI registry.
    Oci(Source),
}

/// Why `spec.install.source` is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseInstallSourceError {
    /// The type is not supported.
    #[error("source type `{0}` is not supported: use `git`, `oci-ref` or `oci-dir`")]
    Type(String),
    /// A field of a git source is missing or malformed.
    #[error("`{0}` of the git source is missing or malformed")]
    Field(&'static str),
    /// An OCI source is invalid.
    #[error(transparent)]
    Oci(ParseSourceError),
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
            InstallSource::Oci(source) => source.to_value(),
        }
    }

    /// What identifies the objects. `images` are those that replace images in objects from a registry.
    pub fn content(&self, images: &[String]) -> ContentId {
        match self {
            InstallSource::Git { tree, .. } => ContentId::Tree(*tree),
            InstallSource::Oci(source) => ContentId::layer(source.digest, source.kind, images),
        }
    }
}

impl TryFrom<&Value> for InstallSource {
    type Error = ParseInstallSourceError;

    fn try_from(value: &Value) -> Result<InstallSource, ParseInstallSourceError> {
        let text = |field| value.get(field).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "git" => {}
            other => {
                return match Source::try_from(value) {
                    Ok(source) => Ok(InstallSource::Oci(source)),
                    Err(ParseSourceError::Type) => Err(ParseInstallSourceError::Type(other.to_owned())),
                    Err(error @ ParseSourceError::Field(_)) => Err(ParseInstallSourceError::Oci(error)),
                };
            }
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
