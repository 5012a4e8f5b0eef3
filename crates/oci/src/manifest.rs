//! Reads manifests, indexes and the configuration of a component descriptor. Pure.

use serde::Deserialize;
use tidegate_core::component::BlobDigest;

/// The media types that are asked for: a registry may answer with another type if one is missing here.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// What is under a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Manifest {
    /// A manifest, and the digest of its configuration.
    Image {
        /// The configuration.
        config: BlobDigest,
    },
    /// An index, and its first manifest, as OCM's own readers take it.
    Index {
        /// The first manifest.
        first: BlobDigest,
    },
}

/// The blob with the component descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DescriptorBlob {
    pub(super) digest: BlobDigest,
    /// Whether it is an archive; otherwise it is the text.
    pub(super) is_tar: bool,
}

/// Why a manifest is not that of a component descriptor. Two texts are Lifecycle Manager's.
pub(super) type Why = &'static str;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManifestFile {
    config: Option<Reference>,
    manifests: Option<Vec<Reference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    component_descriptor_layer: Option<Reference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    digest: String,
}

/// Reads what is under a tag.
pub(super) fn read(bytes: &[u8]) -> Result<Manifest, Why> {
    let file: ManifestFile = serde_json::from_slice(bytes).map_err(|_| "its manifest is invalid")?;
    match (file.config, file.manifests) {
        (Some(config), None) => {
            let config =
                config.digest.parse().map_err(|_| "the configuration in its manifest has no SHA-256 digest")?;
            Ok(Manifest::Image { config })
        }
        (None, Some(manifests)) => {
            let first = manifests.first().ok_or("its index is empty")?;
            let first = first.digest.parse().map_err(|_| "the first manifest in its index has no SHA-256 digest")?;
            Ok(Manifest::Index { first })
        }
        _ => Err("it is neither an OCI image manifest nor an index"),
    }
}

/// Reads the configuration.
pub(super) fn read_config(bytes: &[u8]) -> Result<DescriptorBlob, Why> {
    let file: ConfigFile = serde_json::from_slice(bytes).map_err(|_| "its configuration is invalid")?;
    let layer =
        file.component_descriptor_layer.ok_or("ComponentDescriptorLayer is nil in ComponentDescriptorConfig")?;
    if layer.digest.is_empty() {
        return Err("ComponentDescriptorLayer.Digest is empty in ComponentDescriptorConfig");
    }
    let digest = layer.digest.parse().map_err(|_| "the descriptor in its configuration has no SHA-256 digest")?;
    Ok(DescriptorBlob { digest, is_tar: is_tar(&layer.media_type) })
}

/// Without a type it is an archive, as all of OCM's tools write.
fn is_tar(media_type: &str) -> bool {
    let media_type = media_type.split(';').next().unwrap_or_default().trim();
    media_type.is_empty() || media_type.split(['/', '+', '.', '-']).any(|part| matches!(part, "tar" | "tgz"))
}

#[cfg(test)]
mod tests;
