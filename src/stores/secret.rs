//! The Secrets with certificates, as far as the stores keep them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::PartialObjectMeta;
use tidegate_core::{
    api::names::{annotation, label},
    landscape,
};

/// The whole gateway's Secret: its bundle goes to every runtime, and the daemon's own listener serves with its
/// certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct GatewaySecret {
    /// Its resource version.
    pub resource_version: String,
    /// When the newest CA was added to the bundle, as recorded in the Secret.
    pub bundled_at: Option<String>,
    /// The trusted CAs, in PEM.
    pub bundle: Option<Arc<[u8]>>,
    /// The served certificate, in PEM.
    pub certificate: Arc<[u8]>,
    /// Its key, in PEM.
    pub key: Arc<[u8]>,
}

/// The Secret of a runtime's certificate, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafSecret {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// `<namespace>/<name>` of the Kyma in its annotation.
    pub kyma: Option<String>,
    /// When it was issued, if Tidegate issued it.
    pub issued_at: Option<String>,
    /// When it expires, if Tidegate issued it.
    pub not_after: Option<String>,
    /// Digest of its inputs and its CA, if Tidegate issued it.
    pub issued_for: Option<String>,
}

/// The image pull Secret of runtimes, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PullSecret {
    /// Changes with every change of the Secret.
    pub version: String,
    /// Its type.
    pub type_: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// A Secret whose data Secrets of a module get, without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceSecret {
    /// The module that its label names.
    pub module: Option<String>,
    /// Changes with every change of the Secret.
    pub version: String,
}

/// Data keys of a Secret of type `kubernetes.io/tls`, and the additional one for the CAs.
pub(crate) mod key {
    /// The certificate.
    pub(crate) const CERTIFICATE: &str = "tls.crt";
    /// Its key.
    pub(crate) const KEY: &str = "tls.key";
    /// The CA bundle.
    pub(crate) const BUNDLE: &str = "ca.crt";
}

// === impl GatewaySecret ===

impl GatewaySecret {
    pub(crate) fn from_secret(secret: Secret) -> GatewaySecret {
        let mut data = secret.data.unwrap_or_default();
        let mut take = |key| data.remove(key).map(|bytes| Arc::<[u8]>::from(bytes.0));
        GatewaySecret {
            bundle: take(key::BUNDLE),
            certificate: take(key::CERTIFICATE).unwrap_or_default(),
            key: take(key::KEY).unwrap_or_default(),
            bundled_at: landscape::annotation(&secret.metadata, annotation::BUNDLED_AT).map(str::to_owned),
            resource_version: secret.metadata.resource_version.unwrap_or_default(),
        }
    }
}

impl fmt::Debug for GatewaySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewaySecret").field("resource_version", &self.resource_version).finish_non_exhaustive()
    }
}

// === impl PullSecret ===

impl PullSecret {
    pub(super) fn from_secret(secret: Secret) -> Option<PullSecret> {
        let ObjectMeta { uid, resource_version, labels, .. } = secret.metadata;
        Some(PullSecret {
            version: format!("{}/{}", uid.unwrap_or_default(), resource_version?),
            type_: secret.type_.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
        })
    }
}

// === impl SourceSecret ===

impl SourceSecret {
    /// Of a Secret with the label of a module.
    pub(super) fn from_metadata(secret: PartialObjectMeta<Secret>) -> Option<SourceSecret> {
        let module = landscape::label(&secret.metadata, label::MODULE_NAME)?.to_owned();
        let ObjectMeta { uid, resource_version, .. } = secret.metadata;
        let version = format!("{}/{}", uid.unwrap_or_default(), resource_version?);
        Some(SourceSecret { module: Some(module), version })
    }
}

// === impl LeafSecret ===

impl LeafSecret {
    pub(super) fn from_metadata(secret: PartialObjectMeta<Secret>) -> LeafSecret {
        let ObjectMeta { uid, resource_version, deletion_timestamp, creation_timestamp, annotations, .. } =
            secret.metadata;
        let annotations = annotations.unwrap_or_default();
        let text = |key: &str| annotations.get(key).cloned();
        LeafSecret {
            uid: uid.unwrap_or_default(),
            resource_version: resource_version.unwrap_or_default(),
            is_deleting: deletion_timestamp.is_some(),
            created: creation_timestamp.map(|time| time.0),
            kyma: text(annotation::KYMA),
            issued_at: text(annotation::ISSUED_AT),
            not_after: text(annotation::NOT_AFTER),
            issued_for: text(annotation::ISSUED_FOR),
        }
    }
}
