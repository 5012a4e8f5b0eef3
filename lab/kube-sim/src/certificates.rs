// SPDX-License-Identifier: Apache-2.0

//! Certificates for servers and users, from a CA that exists as long as its control plane.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
/// A certificate authority. Clones are the same CA.
#[derive(Clone)]
pub struct Authority {
    pem: String,
    issuer: Arc<Issuer<'static, KeyPair>>,
}

/// Why credentials or a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A certificate cannot be created.
    #[error("cannot create a certificate for {subject}")]
    Certificate {
        /// The subject of the certificate.
        subject: String,
        /// The error of rcgen.
        source: rcgen::Error,
    },
    /// A client cannot be created from a kubeconfig.
    #[error("cannot create a client for {server}: {message}")]
    Client {
        /// The server.
        server: String,
        /// The cause.
        message: String,
    },
}

/// A certificate and its key, both in PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// An RSA key of 4,096 bits in PKCS#1. It is public and only for tests: making one takes seconds.
const RSA_4096: &str = include_str!("certificates/rsa-4096.txt");

// === impl Authority ===

impl Authority {
    /// Creates a self-signed CA.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn new(name: &str) -> Result<Authority, CredentialsError> {
        let failed = |source| CredentialsError::Certificate { subject: name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let pem = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Authority { pem, issuer: Arc::new(Issuer::new(params, key)) })
    }

    /// The CA certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Creates a server certificate for these DNS names and IP addresses.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn server(&self, name: &str, addresses: &[&str]) -> Result<Identity, CredentialsError> {
        self.issue(name, None, addresses, vec![ExtendedKeyUsagePurpose::ServerAuth], &generate(name)?)
    }

    /// Creates a client certificate: the common name is the user, the organisation is the group.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Identity, CredentialsError> {
        self.issue(user, group, &[], vec![ExtendedKeyUsagePurpose::ClientAuth], &generate(user)?)
    }

    /// Creates a certificate for both ends, as runtimes have it, without an extended key usage.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn runtime(&self, name: &str, addresses: &[&str]) -> Result<Identity, CredentialsError> {
        self.issue(name, None, addresses, Vec::new(), &generate(name)?)
    }

    /// The same with an RSA key of 4,096 bits, as cert-manager makes them. All have the same key.
    ///
    /// # Errors
    ///
    /// Fails if the certificate cannot be created.
    pub fn runtime_rsa(&self, name: &str, addresses: &[&str]) -> Result<Identity, CredentialsError> {
        let failed = |source| CredentialsError::Certificate { subject: name.to_owned(), source };
        let key =
            KeyPair::from_pkcs8_der_and_sign_algo(&rsa_pkcs8().into(), &rcgen::PKCS_RSA_SHA256).map_err(failed)?;
        let identity = self.issue(name, None, addresses, Vec::new(), &key)?;
        let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n", RSA_4096.trim());
        Ok(Identity { key, ..identity })
    }

    /// Creates a key pair without a certificate, public and private, in PEM.
    ///
    /// # Errors
    ///
    /// Fails if the key cannot be created.
    pub fn key_pair(subject: &str) -> Result<(String, String), CredentialsError> {
        let key = generate(subject)?;
        Ok((key.public_key_pem(), key.serialize_pem()))
    }

    fn issue(
        &self,
        name: &str,
        group: Option<&str>,
        addresses: &[&str],
        usages: Vec<ExtendedKeyUsagePurpose>,
        key: &KeyPair,
    ) -> Result<Identity, CredentialsError> {
        let failed = |source| CredentialsError::Certificate { subject: name.to_owned(), source };
        let mut params = CertificateParams::new(addresses.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
            .map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = usages;
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(key, self.issuer.as_ref()).map_err(failed)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

fn generate(subject: &str) -> Result<KeyPair, CredentialsError> {
    KeyPair::generate().map_err(|source| CredentialsError::Certificate { subject: subject.to_owned(), source })
}

/// The key in PKCS#8: version 0, the algorithm rsaEncryption, and the key as octets. Lengths take two bytes each.
fn rsa_pkcs8() -> Vec<u8> {
    const ALGORITHM: [u8; 18] = [2, 1, 0, 0x30, 13, 6, 9, 0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 1, 5, 0];
    let key = STANDARD.decode(RSA_4096.replace('\n', "")).expect("the file is Base64");
    let length = |length: usize| u16::try_from(length).expect("a key has few bytes").to_be_bytes();
    let mut pkcs8 = vec![0x30, 0x82];
    pkcs8.extend(length(ALGORITHM.len() + 4 + key.len()));
    pkcs8.extend(ALGORITHM);
    pkcs8.extend([4, 0x82]);
    pkcs8.extend(length(key.len()));
    pkcs8.extend(key);
    pkcs8
}
