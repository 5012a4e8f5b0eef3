//! The data of a pass over the gateway's Secret and the CA: configured, and observed by its requests.

use std::sync::Arc;

use k8s_openapi::{ByteString, api::core::v1::Secret};
use tidegate_core::{
    name::Key,
    plan::certificate::{self, Authority, Backend, Rules},
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
    /// Who wrote the Secret with the CA.
    pub(super) authority_writer: AuthorityWriter,
    /// What the pass has read since.
    pub(super) reads: Reads,
}

/// Who wrote the Secret with the CA, as far as this pass knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AuthorityWriter {
    /// Another pass or another client, if it exists.
    #[default]
    Other,
    /// This pass.
    ThisPass,
}

/// What a pass has read, each after the one before it.
#[derive(Clone, Debug, Default)]
pub(super) enum Reads {
    /// Nothing.
    #[default]
    Nothing,
    /// The Secret with the CA does not exist.
    NoAuthority,
    /// The Secret with the CA.
    Authority(AuthoritySecret),
    /// The gateway's Secret as well; `None` if it does not exist.
    Secrets(AuthoritySecret, Option<GatewaySecret>),
    /// The number of runtimes that are not known to trust the CA as well.
    Everything(AuthoritySecret, Option<GatewaySecret>, certificate::Observed),
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

// === impl Observed ===

impl Observed {
    /// After the read of the Secret with the CA.
    pub(super) fn found_authority(self, secret: Option<AuthoritySecret>) -> Observed {
        Observed { reads: secret.map_or(Reads::NoAuthority, Reads::Authority), ..self }
    }

    /// After the read of the gateway's Secret.
    pub(super) fn found_gateway(self, secret: Option<GatewaySecret>) -> Observed {
        let reads = match self.reads {
            Reads::Authority(authority) | Reads::Secrets(authority, _) | Reads::Everything(authority, ..) => {
                Reads::Secrets(authority, secret)
            }
            reads @ (Reads::Nothing | Reads::NoAuthority) => reads,
        };
        Observed { reads, ..self }
    }

    /// After the count of the runtimes that are not known to trust the CA.
    pub(super) fn counted(self, behind: usize) -> Observed {
        let reads = match self.reads {
            Reads::Secrets(authority, gateway) | Reads::Everything(authority, gateway, _) => {
                Reads::Everything(authority, gateway, certificate::Observed { behind })
            }
            reads @ (Reads::Nothing | Reads::NoAuthority | Reads::Authority(_)) => reads,
        };
        Observed { reads, ..self }
    }

    /// After this pass has written the Secret with the CA: the rest is read again.
    pub(super) fn made_authority(self) -> Observed {
        Observed { authority_writer: AuthorityWriter::ThisPass, reads: Reads::Nothing }
    }
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
