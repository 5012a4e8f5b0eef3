//! The CAs that may issue certificates of runtimes.

use std::sync::Arc;

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, UnixTime, pem::PemObject as _},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use super::{Error, Identity};

/// The trusted CAs of a bundle. During a CA rotation, the bundle contains the old and the new CA.
#[derive(Clone, Debug)]
pub struct Authorities {
    verifier: Arc<dyn ClientCertVerifier>,
    count: usize,
}

// === impl Authorities ===

impl Authorities {
    /// Reads a PEM bundle and keeps the CAs that are valid at that time. Skips every other entry, so that one broken
    /// entry does not lock out all runtimes.
    ///
    /// # Errors
    ///
    /// Fails if no CA is left.
    pub fn parse(bundle: &[u8], now: UnixTime) -> Result<Authorities, Error> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle).flatten() {
            let holds = Identity::parse(&certificate).is_ok_and(|authority| authority.check_validity(now).is_ok());
            if holds {
                // `add` rejects a certificate that cannot be a CA.
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

    /// The number of CAs.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Fails unless the certificate chains to one of the CAs through `between`.
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

    /// Whether both are the same instance. Equal instances are not the same.
    pub(super) fn is_same(&self, other: &Authorities) -> bool {
        Arc::ptr_eq(&self.verifier, &other.verifier)
    }

    /// The verifier for TLS handshakes.
    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }
}
