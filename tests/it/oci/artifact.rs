//! A module as OCM's tools publish it: layer, descriptor, configuration and manifest.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use tidegate_core::component::{BlobDigest, Component};

pub(crate) const YAML: &[u8] = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: keda}\n";

/// The schema of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    V2,
    V3,
}

/// A component in one version.
pub(crate) struct Artifact {
    pub(crate) component: Component,
    pub(crate) layer: Vec<u8>,
    pub(crate) descriptor: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
}

pub(crate) fn component(version: &str) -> Component {
    Component::new("kyma-project.io/module/keda", version).unwrap()
}

impl Artifact {
    /// With this blob as its layer.
    pub(crate) fn new(component: &Component, schema: Schema, layer: Vec<u8>, media_type: &str) -> Artifact {
        let resources = json!([
            {
                "name": "keda",
                "version": "2.0.0",
                "relation": "external",
                "type": "ociArtifact",
                "access": {"type": "ociArtifact", "imageReference": "r.example.com/a/keda:2.0.0"},
            },
            {
                "name": "raw-manifest",
                "version": component.version.as_str(),
                "relation": "local",
                "type": "directory",
                "access": {
                    "type": "localBlob",
                    "localReference": BlobDigest::of(&layer).to_string(),
                    "mediaType": media_type,
                },
                "digest": {
                    "hashAlgorithm": "SHA-256",
                    "normalisationAlgorithm": "genericBlobDigest/v1",
                    "value": BlobDigest::of(&layer).hex(),
                },
            },
        ]);
        let text = serde_yaml::to_string(&descriptor(component, schema, &resources)).unwrap();
        Artifact::with_descriptor(component, layer, tar(&[("component-descriptor.yaml", text.as_bytes())]))
    }

    /// With this blob as its descriptor.
    pub(crate) fn with_descriptor(component: &Component, layer: Vec<u8>, descriptor: Vec<u8>) -> Artifact {
        let blob = |media_type: &str, bytes: &[u8]| json!({"mediaType": media_type, "digest": BlobDigest::of(bytes).to_string(), "size": bytes.len()});
        let of_descriptor = blob("application/vnd.ocm.software.component-descriptor.v2+yaml+tar", &descriptor);
        let config = json!({"componentDescriptorLayer": of_descriptor}).to_string().into_bytes();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("application/vnd.ocm.software.component.config.v1+json", &config),
            "layers": [of_descriptor, blob("application/octet-stream", &layer)],
        });
        Artifact {
            component: component.clone(),
            layer,
            descriptor,
            config,
            manifest: manifest.to_string().into_bytes(),
        }
    }

    /// The blobs, as they are pushed.
    pub(crate) fn blobs(&self) -> [&[u8]; 3] {
        [&self.layer, &self.descriptor, &self.config]
    }
}

pub(crate) fn descriptor(component: &Component, schema: Schema, resources: &Value) -> Value {
    let (name, version) = (component.name.as_str(), component.version.as_str());
    let contexts = json!([{
        "type": "OCIRegistry",
        "baseUrl": "elsewhere.example.com",
        "subPath": "team",
        "componentNameMapping": "urlPath",
    }]);
    match schema {
        Schema::V2 => json!({
            "meta": {"schemaVersion": "v2"},
            "component": {
                "name": name,
                "version": version,
                "provider": "kyma-project.io",
                "repositoryContexts": contexts,
                "sources": [],
                "componentReferences": [],
                "resources": resources,
            },
        }),
        Schema::V3 => json!({
            "apiVersion": "ocm.software/v3alpha1",
            "kind": "ComponentVersion",
            "metadata": {"name": name, "version": version, "provider": {"name": "kyma-project.io"}},
            "repositoryContexts": contexts,
            "spec": {"resources": resources},
        }),
    }
}

pub(crate) fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, path, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// An archive with one entry, which the library would refuse to write: a path that leads elsewhere, or a link to
/// `/etc/passwd`.
pub(crate) fn archive(path: &str, kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.set_link_name("/etc/passwd").unwrap();
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, content).unwrap();
    builder.into_inner().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}
