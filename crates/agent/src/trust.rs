//! Verifies the control plane's certificate.
//!
//! In landscapes, the gateway serves the CA certificate itself. Go and OpenSSL accept it because it is in the bundle.
//! The default verifier of rustls rejects it because it is not an end entity. So this verifier has two rules:
//!
//! * A certificate that is byte for byte in the bundle is trusted, within its validity period and for the names in it.
//! * Any other certificate must be signed by a CA of the bundle. After a rotation, several CAs may have one subject and
//!   different keys; all are tried. As in Go, a CA is used only within its own validity period.
//!
//! The signature of the handshake is always verified. Nothing outside of the bundle is trusted.

use std::sync::Arc;

use rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor, verify_server_name,
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::validity::Validity;

/// Trusts the certificates of a bundle, and certificates that they signed.
#[derive(Debug)]
pub struct Bundle {
    authorities: Vec<Authority>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Authority {
    certificate: CertificateDer<'static>,
    validity: Validity,
}

// === impl Bundle ===

impl Bundle {
    /// Reads the certificates of a bundle. `None` if the bundle is empty or one of them is invalid.
    pub fn new(certificates: Vec<CertificateDer<'static>>, provider: Arc<CryptoProvider>) -> Option<Bundle> {
        let authority = |certificate: CertificateDer<'static>| {
            let validity = Validity::from_der(&certificate)?;
            ParsedCertificate::try_from(&certificate).ok()?;
            Some(Authority { certificate, validity })
        };
        let authorities = certificates.into_iter().map(authority).collect::<Option<Vec<_>>>()?;
        (!authorities.is_empty()).then_some(Bundle { authorities, provider })
    }

    /// The certificates, in the order of the bundle.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.authorities.iter().map(|authority| &authority.certificate)
    }
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let presented = ParsedCertificate::try_from(end_entity)?;
        match self.authorities.iter().find(|authority| authority.certificate.as_ref() == end_entity.as_ref()) {
            Some(authority) => authority.validity.check(now).map_err(Error::InvalidCertificate)?,
            None => {
                let mut roots = RootCertStore::empty();
                let valid = self.authorities.iter().filter(|authority| authority.validity.check(now).is_ok());
                let (added, _) = roots.add_parsable_certificates(valid.map(|authority| authority.certificate.clone()));
                if added == 0 {
                    return Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
                }
                let algorithms = self.provider.signature_verification_algorithms.all;
                verify_server_cert_signed_by_trust_anchor(&presented, &roots, intermediates, now, algorithms)?;
            }
        }
        verify_server_name(&presented, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
