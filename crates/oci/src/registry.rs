//! One registry: component descriptors and layers, verified.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use tidegate_core::component::{
    self, BlobDigest, Component, ComponentName, Module, RegistryAddress, Source, repository_path,
};
use tidegate_process::lock::Mutex;
use tokio::time::timeout;

use super::{
    authorization::{self, Authorization},
    connect,
    credentials::Credentials,
    error::Error,
    exchange::{Sink, Target, Traffic, Wire},
    limits::{CONFIG_BYTES_MAX, DESCRIPTOR_BLOB_BYTES_MAX, LAYER_BYTES_MAX, MANIFEST_BYTES_MAX, OPERATION_MAX},
    manifest::{self, Manifest},
    unpack::Packed,
    unpacker::{Blob, Unpacker},
};

/// How a registry is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Host, and the path that all components are below.
    pub address: RegistryAddress,
    /// CAs in PEM that replace the system's.
    pub ca: Option<Vec<u8>>,
    /// The credentials. Without them, everything is read anonymously.
    pub credentials: Option<Credentials>,
    /// Other hosts that may get the credentials because the registry requests tokens there.
    pub token_hosts: Vec<String>,
    /// Limit of one operation, from name resolution to the last byte.
    pub timeout: Duration,
    /// Where blobs are unpacked.
    pub unpacker: Unpacker,
    /// Counts what is exchanged.
    pub traffic: Arc<Traffic>,
}

/// A registry. Clones share connections, credentials and tokens.
#[derive(Clone)]
pub struct Registry {
    wire: Arc<Wire>,
    unpacker: Unpacker,
}

/// A component descriptor that a registry has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryDescriptor {
    /// The digest of what the tag names. If it differs from an earlier one, the tag was moved.
    pub manifest: BlobDigest,
    /// The text of the descriptor, YAML or JSON.
    pub text: Bytes,
    /// What it says.
    pub module: Module,
}

// === impl Settings ===

impl Settings {
    /// Reads `address` anonymously, with the system's CAs and the default time-out, and unpacks in this process.
    pub fn new(address: RegistryAddress) -> Settings {
        Settings {
            address,
            ca: None,
            credentials: None,
            token_hosts: Vec::new(),
            timeout: OPERATION_MAX,
            unpacker: Unpacker::local(),
            traffic: Arc::default(),
        }
    }
}

// === impl Registry ===

impl Registry {
    /// Prepares the use of a registry. Connects to nothing.
    ///
    /// # Errors
    ///
    /// Fails if the CAs cannot be read, or if the credentials cannot be sent or would be sent unencrypted.
    pub fn new(settings: Settings) -> Result<Registry, Error> {
        let Settings { address, ca, credentials, token_hosts, timeout, unpacker, traffic } = settings;
        let http = connect::client(ca.as_deref())?;
        let authorization = Mutex::new(Authorization::default());
        let wire = Arc::new(Wire { http, address, token_hosts, authorization, timeout, traffic });
        let registry = Registry { wire, unpacker };
        registry.set_credentials(credentials)?;
        Ok(registry)
    }

    /// Its address.
    pub fn address(&self) -> &RegistryAddress {
        &self.wire.address
    }

    /// Replaces the credentials. The next request uses the new ones; tokens that were obtained with the old ones are
    /// forgotten. Equal credentials change nothing.
    ///
    /// # Errors
    ///
    /// Fails, and keeps the old ones, if the new ones cannot be sent or would be sent unencrypted.
    pub fn set_credentials(&self, credentials: Option<Credentials>) -> Result<(), Error> {
        if let Some(credentials) = &credentials {
            authorization::check(credentials, &self.wire.address)?;
        }
        self.wire.authorization.lock().replace(credentials);
        Ok(())
    }

    /// The digest of what the tag of a version names now.
    ///
    /// # Errors
    ///
    /// Fails if there is no such version, or if the registry cannot be read.
    pub async fn resolve(&self, component: &Component) -> Result<BlobDigest, Error> {
        let target = self.tag(component);
        self.within(&target.name, async { Ok(self.manifest(&target, None).await?.0) }).await
    }

    /// The descriptor of a component, by the tag of its version.
    ///
    /// # Errors
    ///
    /// Fails if there is no such version, if its descriptor is invalid or describes something else, or if the registry
    /// cannot be read.
    pub async fn descriptor(&self, component: &Component) -> Result<RegistryDescriptor, Error> {
        let target = self.tag(component);
        let found = async {
            let (digest, manifest) = self.manifest(&target, None).await?;
            self.find(component, &target, digest, &manifest).await
        };
        self.within(&target.name, found).await
    }

    /// The same if an earlier result is at hand: with one request, unless the tag was moved since.
    ///
    /// # Errors
    ///
    /// As [`Registry::descriptor`].
    pub async fn descriptor_again(
        &self,
        component: &Component,
        earlier: RegistryDescriptor,
    ) -> Result<RegistryDescriptor, Error> {
        let target = self.tag(component);
        let found = async {
            match self.manifest(&target, None).await? {
                (digest, _) if digest == earlier.manifest => Ok(earlier),
                (digest, manifest) => self.find(component, &target, digest, &manifest).await,
            }
        };
        self.within(&target.name, found).await
    }

    /// The YAML of a module's objects. The blob is read from this registry, whatever [`Source::repo`] says.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not have the blob or cannot be read, or if the blob cannot be unpacked.
    pub async fn layer(&self, source: &Source) -> Result<Bytes, Error> {
        let target = self.blob_target(&source.name, source.digest);
        let bytes = self.within(&target.name, self.small_blob(&target, source.digest, LAYER_BYTES_MAX)).await?;
        let (packed, name) = (Packed::Layer(source.kind), &target.name);
        self.unpacker.unpack(packed, Blob::Bytes(bytes), name, name).await.map(Bytes::from)
    }

    /// Checks with one request that the registry has the blob of a module's objects. Its content is not read.
    ///
    /// # Errors
    ///
    /// Fails if the registry does not have the blob or cannot be read.
    pub async fn check(&self, source: &Source) -> Result<(), Error> {
        let target = self.blob_target(&source.name, source.digest);
        self.within(&target.name, async { self.wire.get(&target).await.map(drop) }).await
    }

    /// Writes a layer's blob, as it is sent, and verifies its digest.
    pub(super) async fn layer_into(&self, source: &Source, sink: &mut Sink) -> Result<(), Error> {
        let target = self.blob_target(&source.name, source.digest);
        self.within(&target.name, self.blob(&target, source.digest, LAYER_BYTES_MAX, sink)).await
    }

    /// Runs an operation with the time-out.
    async fn within<T>(&self, name: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let limit = self.wire.timeout;
        timeout(limit, work).await.unwrap_or_else(|_| Err(Error::Deadline { from: name.to_owned(), timeout: limit }))
    }

    /// Reads what a manifest leads to: configuration and descriptor, each by the digest that the one before names.
    async fn find(
        &self,
        component: &Component,
        target: &Target,
        digest: BlobDigest,
        manifest: &[u8],
    ) -> Result<RegistryDescriptor, Error> {
        let invalid = |why| Error::NotADescriptor { from: target.name.clone(), why };
        let config = match manifest::read(manifest).map_err(invalid)? {
            Manifest::Image { config } => config,
            Manifest::Index { first } => {
                let (_, bytes) = self.manifest(&self.manifest_target(&component.name, first), Some(first)).await?;
                match manifest::read(&bytes).map_err(invalid)? {
                    Manifest::Image { config } => config,
                    Manifest::Index { .. } => return Err(invalid("its index contains another index")),
                }
            }
        };
        let config_target = self.blob_target(&component.name, config);
        let bytes = self.small_blob(&config_target, config, CONFIG_BYTES_MAX).await?;
        let blob = manifest::read_config(&bytes).map_err(invalid)?;
        let blob_target = self.blob_target(&component.name, blob.digest);
        let bytes = self.small_blob(&blob_target, blob.digest, DESCRIPTOR_BLOB_BYTES_MAX).await?;
        let packed = Packed::Descriptor { is_tar: blob.is_tar };
        let text = self.unpacker.unpack(packed, Blob::Bytes(bytes), &blob_target.name, &target.name).await?;
        let module = component::read(&text, component)
            .map_err(|problem| Error::Descriptor { from: target.name.clone(), problem })?;
        Ok(RegistryDescriptor { manifest: digest, text: text.into(), module })
    }

    /// A manifest or index, and its digest. A tag has no expected digest; what it names is hashed here.
    async fn manifest(&self, target: &Target, expected: Option<BlobDigest>) -> Result<(BlobDigest, Vec<u8>), Error> {
        let response = self.wire.get(target).await?;
        let stated = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        let stated: Option<BlobDigest> = stated.and_then(|text| text.parse().ok());
        let mut sink = Sink::Memory(Vec::new());
        let found = self.wire.receive(response, MANIFEST_BYTES_MAX, &target.name, &mut sink).await?;
        if expected.or(stated).is_some_and(|expected| expected != found) {
            return Err(Error::Digest { from: target.name.clone(), found });
        }
        Ok((found, sink.into_bytes()))
    }

    async fn small_blob(&self, target: &Target, digest: BlobDigest, limit: u64) -> Result<Vec<u8>, Error> {
        let mut sink = Sink::Memory(Vec::new());
        self.blob(target, digest, limit, &mut sink).await?;
        Ok(sink.into_bytes())
    }

    async fn blob(&self, target: &Target, digest: BlobDigest, limit: u64, sink: &mut Sink) -> Result<(), Error> {
        let response = self.wire.get(target).await?;
        let found = self.wire.receive(response, limit, &target.name, sink).await?;
        if found == digest { Ok(()) } else { Err(Error::Digest { from: target.name.clone(), found }) }
    }

    fn tag(&self, component: &Component) -> Target {
        let path = repository_path(&component.name);
        let tag = component.version.tag();
        Target {
            repository: self.wire.address.repository(&path),
            tail: format!("manifests/{tag}"),
            name: format!("{}/{path}:{tag}", self.wire.address),
            accept: Some(manifest::ACCEPT),
        }
    }

    fn manifest_target(&self, name: &ComponentName, digest: BlobDigest) -> Target {
        let tail = format!("manifests/{digest}");
        Target { tail, accept: Some(manifest::ACCEPT), ..self.blob_target(name, digest) }
    }

    fn blob_target(&self, name: &ComponentName, digest: BlobDigest) -> Target {
        let path = repository_path(name);
        Target {
            repository: self.wire.address.repository(&path),
            tail: format!("blobs/{digest}"),
            name: format!("{}/{path}@{digest}", self.wire.address),
            accept: None,
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Registry").field(&self.wire.address).finish()
    }
}
