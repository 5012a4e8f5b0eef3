//! The data of a pass over the gateway's Secret and the CA: configured, and observed by its requests.

use std::sync::Arc;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::{
    name::Key,
    plan::certificate::{Authority, Backend, Rules},
};

use super::pki;
use crate::stores::secret::{GatewaySecret, key};

/// The data at the start of a pass.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    /// The gateway's Secret.
    pub(super) key: &'a Key,
    /// The configuration.
    pub(super) rules: &'a Rules,
    /// The certificate issuer.
    pub(super) backend: Backend,
    /// The host names at which agents reach the listener.
    pub(super) hosts: Vec<String>,
    /// The certificate of the CA that this process signs with, in DER.
    pub(super) signs_with: Option<Arc<[u8]>>,
}

/// The results of this pass's acts so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The Secret with the CA.
    pub(super) authority: Lookup<AuthoritySecret>,
    /// Whether this pass has written that Secret.
    pub(super) is_made: bool,
    /// The gateway's Secret.
    pub(super) gateway: Lookup<GatewaySecret>,
    /// The number of runtimes that are not known to trust the CA.
    pub(super) behind: Option<usize>,
}

/// One object in the control plane.
#[derive(Clone, Debug, Default)]
pub(super) enum Lookup<T> {
    /// The pass has not read it, or has written it since.
    #[default]
    Unread,
    /// It does not exist.
    Absent,
    /// The pass has read it.
    Found(T),
}

/// The content of the CA's Secret.
#[derive(Clone)]
pub(super) struct AuthoritySecret {
    /// Its resource version.
    pub(super) resource_version: String,
    /// The certificate in PEM.
    pub(super) certificate: Vec<u8>,
    /// Its key in PEM.
    pub(super) key: Vec<u8>,
    /// The parsed certificate, or why it cannot be read.
    pub(super) authority: Result<Authority, Arc<pki::Error>>,
}

// === impl AuthoritySecret ===

impl AuthoritySecret {
    pub(super) fn from_secret(secret: Secret) -> AuthoritySecret {
        let mut data = secret.data.unwrap_or_default();
        let mut take = |key| data.remove(key).map(|ByteString(bytes)| bytes).unwrap_or_default();
        let (certificate, key) = (take(key::CERTIFICATE), take(key::KEY));
        AuthoritySecret {
            resource_version: secret.metadata.resource_version.unwrap_or_default(),
            authority: pki::read_first(&certificate).map_err(Arc::new),
            certificate,
            key,
        }
    }
}

impl std::fmt::Debug for AuthoritySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuthoritySecret").field("resource_version", &self.resource_version).finish_non_exhaustive()
    }
}
