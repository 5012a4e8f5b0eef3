//! What is known of the gateway's Secret and of the authority: configured, and as the answers come in.

use std::sync::Arc;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::{
    name::Key,
    plan::certificate::{Authority, Backend, Rules},
};

use super::pki;
use crate::stores::secret::{GatewaySecret, key};

/// What is known without a request.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    /// The gateway's Secret.
    pub(super) key: &'a Key,
    /// What is configured.
    pub(super) rules: &'a Rules,
    /// Who issues certificates.
    pub(super) backend: Backend,
    /// By which names agents reach the listener.
    pub(super) hosts: Vec<String>,
    /// The certificate of the authority that this process signs with, in DER.
    pub(super) signs_with: Option<Arc<[u8]>>,
}

/// What this pass has found out so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// The Secret with the authority.
    pub(super) authority: Lookup<AuthoritySecret>,
    /// Whether this pass has written that Secret.
    pub(super) is_made: bool,
    /// The gateway's Secret.
    pub(super) gateway: Lookup<GatewaySecret>,
    /// Runtimes that are not known to trust the authority.
    pub(super) behind: Option<usize>,
}

/// One object in the control plane.
#[derive(Clone, Debug, Default)]
pub(super) enum Lookup<T> {
    /// It was not read, or it was written since.
    #[default]
    Unread,
    /// There is none.
    Absent,
    /// It was read.
    Found(T),
}

/// The authority as its Secret holds it.
#[derive(Clone)]
pub(super) struct AuthoritySecret {
    /// Tells this state of it from every other.
    pub(super) resource_version: String,
    /// The certificate in PEM.
    pub(super) certificate: Vec<u8>,
    /// Its key in PEM.
    pub(super) key: Vec<u8>,
    /// The certificate as it was read, or why it cannot be.
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
