//! A CA whose key Tidegate holds: one that Tidegate created, or an existing one that it keeps.
//!
//! Tidegate creates ECDSA keys on P-256. ring, the only cryptography in this program, creates no RSA keys, and both
//! sides of the protocol accept P-256. Tidegate can also sign with an existing RSA key.

use k8s_openapi::jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _, SanType,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{Error, pem};
use tidegate_core::plan::certificate::{Authority, Validity};

/// A CA that can sign.
pub struct Root {
    certificate: Authority,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, both in PEM.
pub struct Leaf {
    /// The certificate.
    pub certificate: String,
    /// The key, in PKCS#8.
    pub key: String,
    /// When it is valid.
    pub validity: Validity,
}

/// A request to sign.
#[derive(Clone, Copy, Debug)]
pub struct Issue<'a> {
    /// Common name.
    pub common_name: &'a str,
    /// DNS names and addresses.
    pub names: &'a [String],
    /// When it is valid. The end of its CA limits it.
    pub validity: Validity,
    /// Whether it is only for a server. Otherwise its use is unrestricted, because both sides of a runtime need it.
    pub is_server: bool,
}

/// The subject of everything that is signed, as in Lifecycle Manager's root.
const SUBJECT: [(DnType, &str); 5] = [
    (DnType::CountryName, "DE"),
    (DnType::StateOrProvinceName, "Baden-Württemberg"),
    (DnType::LocalityName, "Walldorf"),
    (DnType::OrganizationName, "SAP SE"),
    (DnType::OrganizationalUnitName, "BTP Kyma Runtime"),
];

impl Root {
    /// Creates a CA: its certificate and key. Fails if the certificate cannot be signed.
    pub fn generate(common_name: &str, validity: Validity) -> Result<Leaf, Error> {
        let failed = |source| Error::Sign { subject: common_name.to_owned(), source };
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(common_name, validity);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem(), validity })
    }

    /// Reads a CA from its certificate and key. Fails if one of them is unusable, or if they do not belong together.
    pub fn read(certificate: &[u8], key: &[u8]) -> Result<Root, Error> {
        let certificate = super::read_first(certificate)?;
        let key = read_key(key)?;
        let (_, parsed) =
            X509Certificate::from_der(&certificate.der).map_err(|_| Error::Certificate { position: 1 })?;
        if !parsed.is_ca() {
            return Err(Error::NoAuthority);
        }
        if *parsed.public_key().subject_public_key.data != *key.der_bytes() {
            return Err(Error::Mismatch);
        }
        let der = CertificateDer::from(certificate.der.to_vec());
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|_| Error::Certificate { position: 1 })?;
        Ok(Root { certificate, issuer })
    }

    /// Its certificate.
    pub fn certificate(&self) -> &Authority {
        &self.certificate
    }

    /// Signs a certificate for a new key. Fails if a name is invalid.
    pub fn issue(&self, issue: Issue<'_>) -> Result<Leaf, Error> {
        let failed = |source| Error::Sign { subject: issue.common_name.to_owned(), source };
        let not_after = issue.validity.not_after.min(self.certificate.validity.not_after);
        let validity = Validity { not_after, ..issue.validity };
        let mut params = params(issue.common_name, validity);
        for name in issue.names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(name.as_str().try_into().map_err(|_| Error::Name(name.clone()))?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        if issue.is_server {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem(), validity })
    }
}

fn params(common_name: &str, validity: Validity) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in SUBJECT {
        params.distinguished_name.push(kind, value);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let moment = |moment: Timestamp| {
        epoch + std::time::Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default())
    };
    params.not_before = moment(validity.not_before);
    params.not_after = moment(validity.not_after);
    params
}

/// Reads a key in any of the three formats that cert-manager writes. Fails if it is none that this program can sign
/// with.
pub(crate) fn read_key(text: &[u8]) -> Result<KeyPair, Error> {
    const EC: [u8; 9] = [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    const P256: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const P384: [u8; 7] = [0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
    const RSA: [u8; 13] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
    let (label, der) = pem::labelled(text).map_err(|_| Error::Key)?;
    let candidates = match label.as_str() {
        "PRIVATE KEY" => vec![der],
        "RSA PRIVATE KEY" => vec![pkcs8(&RSA, &der)],
        "EC PRIVATE KEY" => vec![pkcs8(&[&EC[..], &P256].concat(), &der), pkcs8(&[&EC[..], &P384].concat(), &der)],
        _ => Vec::new(),
    };
    candidates.into_iter().find_map(|der| KeyPair::try_from(&PrivatePkcs8KeyDer::from(der)).ok()).ok_or(Error::Key)
}

/// A key of a known algorithm in PKCS#8, the only format that ring reads.
fn pkcs8(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    const SEQUENCE: u8 = 0x30;
    const OCTETS: u8 = 0x04;
    const VERSION: [u8; 3] = [0x02, 0x01, 0x00];
    element(SEQUENCE, &[&VERSION[..], &element(SEQUENCE, algorithm), &element(OCTETS, key)].concat())
}

/// An element of DER. Keys are shorter than 64 kB.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let [.., high, low] = length;
    let mut text = vec![tag];
    match content.len() {
        0..=0x7f => text.push(low),
        0x80..=0xff => text.extend([0x81, low]),
        _ => text.extend([0x82, high, low]),
    }
    text.extend_from_slice(content);
    text
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Root").field("validity", &self.certificate.validity).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Leaf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaf").field("validity", &self.validity).finish_non_exhaustive()
    }
}
