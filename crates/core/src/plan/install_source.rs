//! The source of a Manifest's objects, as a type and as `spec.install.source`.

use serde_json::{Value, json};

use crate::{
    api::Manifest,
    component::{ParseSourceError, Source},
    conditions,
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

/// Whether a Manifest names this content, and the status says that all of it has been applied to the runtime since.
pub fn has_followed(manifest: &Manifest, content: ContentId) -> bool {
    let source = InstallSource::try_from(&manifest.spec.install.source);
    let names_it = source.is_ok_and(|source| source.content(&manifest.spec.localized_images) == content);
    let conditions = manifest.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let applied = conditions::find(conditions, conditions::APPLIED);
    names_it && applied.is_some_and(|applied| applied.observed_generation == manifest.metadata.generation)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_has_followed_once_its_manifest_names_the_content_and_all_of_it_is_applied() {
        let (old, new) = ("c15cab3d04ec92b416507419d7124ec912699dc9", "d15cab3d04ec92b416507419d7124ec912699dc9");
        let manifest = |tree: &str, observed: Option<i64>| -> Manifest {
            let applied = observed.map(|generation| {
                json!({
                    "type": conditions::APPLIED, "status": "True", "reason": "x", "message": "x",
                    "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
                })
            });
            let source = json!({"type": "git", "source": "kcp-system/a", "path": "modules/a", "tree": tree});
            serde_json::from_value(json!({
                "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
                "metadata": {"name": "eu-a", "namespace": "kcp-system", "generation": 2},
                "spec": {"remote": true, "install": {"name": "raw-manifest", "source": source}},
                "status": {"state": "Ready", "conditions": applied.into_iter().collect::<Vec<Value>>()},
            }))
            .unwrap()
        };
        let content = ContentId::Tree(new.parse().unwrap());
        for (manifest, expected) in [
            (manifest(new, Some(2)), true),
            // The control plane has another content of the version, or the pass over the runtime has not ended.
            (manifest(old, Some(2)), false),
            (manifest(new, Some(1)), false),
            (manifest(new, None), false),
        ] {
            assert_eq!(has_followed(&manifest, content), expected, "{manifest:?}");
        }
    }
}
