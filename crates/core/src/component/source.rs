//! The source of a Manifest whose objects are in a registry: `spec.install.source`.

use serde_json::{Value, json};

use super::{BlobDigest, ComponentName, LayerKind, RegistryAddress, repository_path};

/// A blob in the registry, as a Manifest names it. The digest is of the content itself: no tag is involved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// Host and subpath, without a scheme: `registry.example.com/modules`.
    pub repo: String,
    /// The component whose repository has the blob.
    pub name: ComponentName,
    /// The digest of the blob.
    pub digest: BlobDigest,
    /// How the blob holds the objects.
    pub kind: LayerKind,
}

/// Why `spec.install.source` is not a blob in a registry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseSourceError {
    /// The type is neither `oci-ref` nor `oci-dir`.
    #[error("the type of the source is neither `oci-ref` nor `oci-dir`")]
    Type,
    /// A field is missing or malformed.
    #[error("`{0}` of the OCI source is missing or malformed")]
    Field(&'static str),
}

// === impl Source ===

impl Source {
    /// The value of `spec.install.source`.
    pub fn to_value(&self) -> Value {
        json!({
            "repo": self.repo,
            "name": self.name.as_str(),
            "ref": self.digest.to_string(),
            "type": self.kind.as_str(),
        })
    }

    /// The registry that `repo` names. Without a scheme, so TLS unless the host is local.
    ///
    /// # Errors
    ///
    /// Fails if `repo` is not the address of a registry.
    pub fn registry(&self) -> Result<RegistryAddress, ParseSourceError> {
        self.repo.parse().map_err(|_| ParseSourceError::Field("repo"))
    }

    /// The path of the repository below the registry's address.
    pub fn repository_path(&self) -> String {
        repository_path(&self.name)
    }
}

impl TryFrom<&Value> for Source {
    type Error = ParseSourceError;

    fn try_from(value: &Value) -> Result<Source, ParseSourceError> {
        let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = match text("type") {
            "oci-ref" => LayerKind::Yaml,
            "oci-dir" => LayerKind::Tar,
            _ => return Err(ParseSourceError::Type),
        };
        let source = Source {
            repo: text("repo").to_owned(),
            name: text("name").parse().map_err(|_| ParseSourceError::Field("name"))?,
            digest: text("ref").parse().map_err(|_| ParseSourceError::Field("ref"))?,
            kind,
        };
        source.registry()?;
        Ok(source)
    }
}

#[cfg(test)]
mod tests;
