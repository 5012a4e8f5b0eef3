//! The authorities that stand behind certificates of runtimes.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{Error, Identity};

/// The authorities of a bundle. While an authority is exchanged, the bundle holds the new and the old one.
#[derive(Clone, Debug)]
pub struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
    count: usize,
}

// === impl Authorities ===

impl Authorities {
    /// The authorities of a bundle in PEM that hold at that moment. What is none is left out, so that one broken part does
    /// not lock all runtimes out; none at all is an error.
    pub fn parse(bundle: &[u8], now: UnixTime) -> Result<Authorities, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle).flatten() {
            let holds = Identity::parse(&certificate).is_ok_and(|authority| authority.check_validity(now).is_ok());
            if holds {
                // One that cannot be an authority stands behind nothing.
                let _ = roots.add(certificate);
            }
        }
        let count = roots.len();
        let provider = tidegate_process::tls::provider(tidegate_process::tls::Algorithms::All);
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|_| Error::NoAuthorities)?;
        Ok(Authorities { verifier, count })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Fails unless one of them stands behind a certificate, by way of `between`.
    pub(super) fn check(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        use rustls::{CertificateError, Error as TlsError};
        match self.verifier.verify_client_cert(certificate, between, now) {
            Ok(_) => Ok(()),
            Err(TlsError::InvalidCertificate(
                CertificateError::BadEncoding | CertificateError::UnhandledCriticalExtension,
            )) => Err(Error::X509),
            Err(_) => Err(Error::Foreign),
        }
    }

    /// Whether these are the very same, not only equal ones.
    pub(super) fn is_same(&self, other: &Authorities) -> bool {
        Arc::ptr_eq(&self.verifier, &other.verifier)
    }

    /// What the handshake asks.
    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }
}
