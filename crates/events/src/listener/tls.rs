//! The listener's own TLS: its certificate and key, and the CAs of its clients.

use std::{fmt, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::NoServerSessionStorage,
};

use crate::identity::{self, Authorities};

/// The configuration of a TLS server. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) authorities: Authorities,
}

/// Why a TLS configuration is invalid. Never contains the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The chain contains no certificate.
    #[error("the server certificate is not a PEM certificate")]
    Certificate,
    /// The text contains no private key.
    #[error("the server key is not a PEM private key")]
    Key,
    /// The key does not match the certificate, or its algorithm is not supported.
    #[error("the server key does not match the server certificate")]
    Pair(#[source] rustls::Error),
    /// The bundle contains no usable CA.
    #[error("the client CA bundle contains no valid CA")]
    Authorities(#[source] identity::Error),
}

// === impl Tls ===

impl Tls {
    /// Reads PEM: the server's certificate with its intermediate certificates, its key (PKCS#1, PKCS#8 or SEC 1), and
    /// the CAs of the clients.
    ///
    /// Allows TLS 1.3 only, as upstream's gateway. A client must present a certificate. Sessions are not resumed,
    /// because resuming skips the check of the certificate.
    ///
    /// # Errors
    ///
    /// Fails if a text contains no certificate, no key or no valid CA, or if the key does not match the certificate.
    pub fn from_pem(chain: &[u8], key: &[u8], client_authorities: &[u8], now: UnixTime) -> Result<Tls, TlsError> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().map_err(|_| TlsError::Certificate)?;
        if chain.is_empty() {
            return Err(TlsError::Certificate);
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| TlsError::Key)?;
        let authorities = Authorities::parse(client_authorities, now).map_err(TlsError::Authorities)?;
        let provider = tidegate_process::tls::provider(tidegate_process::tls::Algorithms::All);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(TlsError::Pair)?
            .with_client_cert_verifier(authorities.verifier())
            .with_single_cert(chain, key)
            .map_err(TlsError::Pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Tls { config: Arc::new(config), authorities })
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("authorities", &self.authorities.count()).finish_non_exhaustive()
    }
}
