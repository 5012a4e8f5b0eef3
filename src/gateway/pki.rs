//! Certificates: reading them, issuing them, and the objects that request them from other issuers.
//!
//! There are three issuers behind one interface: cert-manager, Gardener's cert-management, and [`Root`], a CA of
//! Tidegate. [`object`] reads the status of the first two. [`tidegate_core::plan::certificate`] decides which
//! certificates exist and when they are replaced. The controllers send the requests.
//!
//! Nothing here sends a request. No error quotes unreadable text, because it may be a key.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tidegate_core::plan::certificate::{Authority, Bundle, Validity};
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub mod object;
mod pem;
mod root;

pub(crate) use root::read_key;
pub use root::{Issue, Leaf, Root};

/// Why a certificate or key could not be read or created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no PEM block.
    #[error("it contains no certificate")]
    Empty,
    /// A part of the text is not PEM, or a block has no end.
    #[error("block {position} is not PEM")]
    Pem {
        /// Position of the block, from 1.
        position: usize,
    },
    /// A block is not an X.509 certificate.
    #[error("block {position} is not an X.509 certificate")]
    Certificate {
        /// Position of the block, from 1.
        position: usize,
    },
    /// A certificate does not say when it expires.
    #[error("the certificate in block {position} has no expiry date")]
    NoEnd {
        /// Position of the block, from 1.
        position: usize,
    },
    /// The key has an unsupported algorithm or format.
    #[error("unsupported signing key: use ECDSA (P-256, P-384), Ed25519 or RSA (2048 to 4096 bits)")]
    Key,
    /// The key belongs to another certificate.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// The certificate of a CA is not a CA certificate.
    #[error("the certificate is not a CA certificate")]
    NoAuthority,
    /// A certificate cannot contain this name.
    #[error("`{0}` is not a valid name in a certificate: names must be ASCII")]
    Name(String),
    /// The certificate could not be signed.
    #[error("cannot sign a certificate for {subject}")]
    Sign {
        /// The subject of the certificate.
        subject: String,
        /// The error of rcgen.
        source: rcgen::Error,
    },
}

/// Reads all certificates of a PEM text. Fails if any part of the text is not a certificate, because a CA that is left
/// out would not be trusted.
pub fn read_bundle(text: &[u8]) -> Result<Bundle, Error> {
    let blocks = pem::blocks(text)?;
    let authorities = blocks.into_iter().zip(1..).map(|(der, position)| authority(der, position));
    Ok(Bundle::new(authorities.collect::<Result<_, _>>()?))
}

/// Reads the first certificate of a PEM text. Fails if there is none, or if it cannot be read.
pub fn read_first(text: &[u8]) -> Result<Authority, Error> {
    authority(pem::first(text)?, 1)
}

/// A bundle as PEM.
pub(crate) fn write_bundle(bundle: &Bundle) -> String {
    write_certificates(bundle.authorities())
}

/// Certificates as PEM.
pub(crate) fn write_certificates<'a>(certificates: impl IntoIterator<Item = &'a Authority>) -> String {
    certificates.into_iter().map(|authority| pem::certificate(&authority.der)).collect()
}

/// A block of PEM with this label.
pub(crate) fn write_block(label: &str, der: &[u8]) -> String {
    pem::block(label, der)
}

/// Whether a certificate is signed with its own key.
pub(crate) fn is_self_signed(certificate: &Authority) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(&certificate.der) else { return false };
    certificate.issuer().as_raw() == certificate.subject().as_raw() && certificate.verify_signature(None).is_ok()
}

/// Whether a certificate is that of a CA.
pub(crate) fn is_authority(certificate: &Authority) -> bool {
    X509Certificate::from_der(&certificate.der).is_ok_and(|(_, certificate)| certificate.is_ca())
}

/// Whether a CA has signed a certificate, or is that certificate.
pub fn is_of(certificate: &Authority, authority: &Authority) -> bool {
    if certificate.der == authority.der {
        return true;
    }
    let (Ok((_, certificate)), Ok((_, authority))) =
        (X509Certificate::from_der(&certificate.der), X509Certificate::from_der(&authority.der))
    else {
        return false;
    };
    certificate.issuer().as_raw() == authority.subject().as_raw()
        && certificate.verify_signature(Some(authority.public_key())).is_ok()
}

/// Whether a certificate is one of a CA.
pub fn is_ca(certificate: &Authority) -> bool {
    X509Certificate::from_der(&certificate.der).is_ok_and(|(_, certificate)| certificate.is_ca())
}

/// Whether two certificates are for the same key and the same subject.
pub fn is_same_key(one: &Authority, other: &Authority) -> bool {
    let (Ok((_, one)), Ok((_, other))) = (X509Certificate::from_der(&one.der), X509Certificate::from_der(&other.der))
    else {
        return false;
    };
    one.subject().as_raw() == other.subject().as_raw() && one.public_key().raw == other.public_key().raw
}

/// Whether a certificate contains all these DNS names and addresses, and is not a CA certificate.
pub fn is_server_of(certificate: &Authority, names: &[String]) -> bool {
    use x509_parser::prelude::GeneralName;
    let Ok((_, certificate)) = X509Certificate::from_der(&certificate.der) else { return false };
    let Ok(alternatives) = certificate.subject_alternative_name() else { return false };
    let known = alternatives.map_or(&[][..], |alternatives| &alternatives.value.general_names);
    let bears = |name: &String| {
        known.iter().any(|known| match (known, name.parse::<std::net::IpAddr>()) {
            (GeneralName::DNSName(known), Err(_)) => known.eq_ignore_ascii_case(name),
            (GeneralName::IPAddress(known), Ok(std::net::IpAddr::V4(address))) => *known == address.octets(),
            (GeneralName::IPAddress(known), Ok(std::net::IpAddr::V6(address))) => *known == address.octets(),
            _ => false,
        })
    };
    !certificate.is_ca() && names.iter().all(bears)
}

fn authority(der: Vec<u8>, position: usize) -> Result<Authority, Error> {
    let (rest, certificate) = X509Certificate::from_der(&der).map_err(|_| Error::Certificate { position })?;
    if !rest.is_empty() {
        return Err(Error::Certificate { position });
    }
    let validity = certificate.validity();
    let validity = Validity {
        not_before: moment(validity.not_before.timestamp()),
        not_after: moment(validity.not_after.timestamp()),
    };
    // An unset time is before the first certificates.
    if validity.not_after <= Timestamp::UNIX_EPOCH {
        return Err(Error::NoEnd { position });
    }
    Ok(Authority { der: Arc::from(der), validity })
}

/// Converts seconds to a time: certificates may end in the year 9999, a little after the last possible time.
fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests;
