//! Our own end of TLS: certificate, key, and whose certificates are accepted.

use std::{fmt, sync::Arc};

use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    server::NoServerSessionStorage,
};

use crate::identity::{self, Authorities};

/// What a server needs to end TLS itself. Cheap to clone.
#[derive(Clone)]
pub struct Tls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) authorities: Authorities,
}

/// Why that cannot be used. Says nothing of the key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// There is no certificate in it.
    #[error("the certificate of the server is no PEM with a certificate in it")]
    Certificate,
    /// There is no key in it.
    #[error("the key of the server is no PEM with a private key in it")]
    Key,
    /// The key is not that of the certificate, or of a kind that we do not know.
    #[error("certificate and key of the server do not go together")]
    Pair(#[source] rustls::Error),
    /// Nobody could be believed.
    #[error("the bundle of authorities for clients holds none that counts")]
    Authorities(#[source] identity::Error),
}

// === impl Tls ===

impl Tls {
    /// From PEM: the certificate of the server with what stands between it and its authority, its key (PKCS#1, PKCS#8 or
    /// SEC 1), and the authorities of clients.
    ///
    /// TLS 1.3 only, as upstream's gateway. A client must present a certificate; sessions are not resumed, since whoever
    /// resumes one is not looked at.
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
