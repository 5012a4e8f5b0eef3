//! Modules in OCI registries: what is published in a real registry is found, verified, cached, and read with its
//! credentials and CA.

use std::time::Duration;

use bytes::Bytes;
use tidegate_core::component::{Component, LayerKind, Source};
use tidegate_oci::{Credentials, DockerConfig, Registry, RegistryDescriptor, Settings};

use self::{
    artifact::{Artifact, Schema, YAML, component, gzip, tar, zstd},
    server::Server,
};

pub(crate) mod artifact;
mod cache;
pub(crate) mod hostile;
pub(crate) mod server;
mod tokens;
mod unpacker;

/// A registry's settings: CAs of this machine and a time-out for busy machines.
fn settings(address: &str) -> Settings {
    Settings { timeout: Duration::from_secs(60), ..Settings::new(address.parse().unwrap()) }
}

fn registry(address: &str) -> Registry {
    Registry::new(settings(address)).unwrap()
}

fn basic(password: &str) -> Option<Credentials> {
    Some(Credentials::Basic { username: "robot".to_owned(), password: password.to_owned() })
}

/// The source that a Manifest gets from what was found.
fn source(registry: &Registry, component: &Component, found: &RegistryDescriptor) -> Source {
    Source {
        repo: registry.address().to_string(),
        name: component.name.clone(),
        digest: found.module.layer.digest,
        kind: found.module.layer.kind,
    }
}

/// The YAML of a module, from its component and version.
async fn read(registry: &Registry, component: &Component) -> Result<Bytes, tidegate_oci::Error> {
    let found = registry.descriptor(component).await?;
    registry.layer(&source(registry, component, &found)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_is_read_in_both_schemas_and_in_every_compression() {
    let server = Server::start(None, None).await;
    let archive = tar(&[("._raw-manifest.yaml", b"macOS"), ("raw-manifest.yaml", YAML)]);
    let plain = "application/octet-stream";
    let cases = [
        ("1.0.0", Schema::V2, archive.clone(), "application/x-tar", LayerKind::Tar),
        ("1.1.0", Schema::V3, gzip(&archive), "application/x-tar", LayerKind::Tar),
        ("1.2.0-rc.1", Schema::V2, zstd(&archive), "application/x-tar", LayerKind::Tar),
        ("1.3.0+build.7", Schema::V3, YAML.to_vec(), plain, LayerKind::Yaml),
        ("1.4.0", Schema::V2, gzip(YAML), plain, LayerKind::Yaml),
        ("1.5.0", Schema::V3, zstd(YAML), plain, LayerKind::Yaml),
    ];
    for subpath in ["", "prod/modules"] {
        let registry = Registry::new(Settings {
            address: server
                .address()
                .parse::<tidegate_core::component::RegistryAddress>()
                .unwrap()
                .below(subpath)
                .unwrap(),
            ..settings(&server.address())
        })
        .unwrap();
        for (version, schema, layer, media_type, kind) in &cases {
            let component = component(version);
            let artifact = Artifact::new(&component, *schema, layer.clone(), media_type);
            let manifest = server.push(subpath, &artifact, None);
            let found = registry.descriptor(&component).await.unwrap();
            assert_eq!((found.manifest, found.module.layer.kind), (manifest, *kind), "{version}");
            assert_eq!(found.module.localized_images, ["r.example.com/a/keda:2.0.0"], "{version}");
            assert_eq!(registry.layer(&source(&registry, &component, &found)).await.unwrap(), YAML, "{version}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_is_an_index_or_missing_or_moved() {
    let server = Server::start(None, None).await;
    let registry = registry(&server.address());
    let component = component("1.0.0");
    let name = format!("{}/component-descriptors/kyma-project.io/module/keda:1.0.0", server.host());
    let error = registry.descriptor(&component).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{name} does not exist, or these credentials have no access to it"));
    assert_eq!(error.reason(), "ArtifactNotFound");

    let first = server.push("", &Artifact::new(&component, Schema::V2, YAML.to_vec(), ""), None);
    let found = registry.descriptor(&component).await.unwrap();
    assert_eq!((found.manifest, registry.resolve(&component).await.unwrap()), (first, first));
    let other = b"kind: Secret\n";
    let moved = server.push("", &Artifact::new(&component, Schema::V3, other.to_vec(), ""), None);
    assert_ne!(moved, first);
    assert_eq!(registry.resolve(&component).await.unwrap(), moved);
    assert_eq!(read(&registry, &component).await.unwrap(), other.as_slice());

    let index = server.push_index("", &component, &[first, moved]);
    let by_index = registry.descriptor(&component).await.unwrap();
    assert_eq!((by_index.manifest, by_index.module), (index, found.module));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_required_checked_and_rotated() {
    let server = Server::start(Some("first"), None).await;
    let component = component("1.0.0");
    server.push("", &Artifact::new(&component, Schema::V2, YAML.to_vec(), ""), Some("robot:first"));
    let registry = registry(&server.address());
    let name = format!("{}/component-descriptors/kyma-project.io/module/keda:1.0.0", server.host());
    let rejected = format!("{name} rejected the credentials: check whether they are correct and still valid");

    let error = registry.descriptor(&component).await.unwrap_err();
    assert_eq!(error.to_string(), format!("{name} requires credentials, but none are configured"));
    registry.set_credentials(basic("wrong")).unwrap();
    let error = registry.descriptor(&component).await.unwrap_err();
    assert_eq!((error.to_string(), error.reason()), (rejected.clone(), "AuthenticationFailed"));

    // As in the Secret: `robot:first`.
    let secret = format!(r#"{{"auths": {{"{}": {{"auth": "cm9ib3Q6Zmlyc3Q="}}}}}}"#, server.host());
    let secret = DockerConfig::parse(Some(secret.as_bytes())).unwrap();
    assert_eq!(&secret.registry, registry.address());
    registry.set_credentials(Some(secret.credentials)).unwrap();
    assert_eq!(read(&registry, &component).await.unwrap(), YAML);

    // The password is replaced, first in the registry, then here: no new connection, no wait.
    server.set_password("second");
    let error = registry.descriptor(&component).await.unwrap_err();
    assert_eq!(error.to_string(), rejected);
    registry.set_credentials(basic("second")).unwrap();
    assert_eq!(read(&registry, &component).await.unwrap(), YAML);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_ca_is_trusted_only_if_it_is_given() {
    let plain = Server::start(None, None).await;
    let component = component("1.0.0");
    plain.push("", &Artifact::new(&component, Schema::V2, YAML.to_vec(), ""), None);
    let server = Server::start(None, Some(plain.storage())).await;
    let error = registry(&server.address()).descriptor(&component).await.unwrap_err();
    let name = format!("{}/component-descriptors/kyma-project.io/module/keda:1.0.0", server.host());
    let expected =
        format!("the certificate of {name} is not trusted: if its CA is private, configure the CA certificate");
    assert_eq!((error.to_string(), error.reason()), (expected, "CertificateNotTrusted"));
    let with_ca = |ca: &[u8]| Registry::new(Settings { ca: Some(ca.to_vec()), ..settings(&server.address()) });
    assert_eq!(read(&with_ca(server.ca()).unwrap(), &component).await.unwrap(), YAML);
    let error = with_ca(b"-----BEGIN NOTHING-----").unwrap_err();
    assert_eq!(error.to_string(), "the CA of the registry contains no valid PEM certificate");
}
