//! Certificates: reading them, issuing them, and the objects by which others are asked for them.
//!
//! Three issue, behind one interface: cert-manager, Gardener's cert-management, and [`Root`], an authority of our own.
//! For the first two [`object`] reads what they say; which certificate there shall be, and when it is replaced, is decided
//! in [`tidegate_core::plan::certificate`], and requests are made by the controllers.
//!
//! Nothing here makes a request, and no error quotes what it could not read: it may be a key.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tidegate_core::plan::certificate::{Authority, Bundle, Validity};
use x509_parser::prelude::{FromDer as _, X509Certificate};

pub mod object;
mod pem;
mod root;

pub use root::{Issue, Leaf, Root};

/// Why a certificate or key could not be read, or not made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no PEM block.
    #[error("there is no certificate in it")]
    Empty,
    /// Something is no PEM, or not the end of one.
    #[error("block {position} is not PEM")]
    Pem {
        /// Which block, from 1.
        position: usize,
    },
    /// A block is no certificate.
    #[error("block {position} is no X.509 certificate")]
    Certificate {
        /// Which block, from 1.
        position: usize,
    },
    /// A certificate has no end.
    #[error("the certificate in block {position} has no end")]
    NoEnd {
        /// Which block, from 1.
        position: usize,
    },
    /// The key cannot be read.
    #[error(
        "the key is none that we can sign with: it must be ECDSA (P-256, P-384), Ed25519 or RSA (2048 to 4096 bits)"
    )]
    Key,
    /// The key is another certificate's.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// The certificate of an authority is none.
    #[error("the certificate is not that of a certificate authority")]
    NoAuthority,
    /// A name cannot stand in a certificate.
    #[error("`{0}` cannot stand in a certificate: names must be ASCII")]
    Name(String),
    /// The certificate could not be signed.
    #[error("cannot sign a certificate for {subject}")]
    Sign {
        /// For whom.
        subject: String,
        /// What rcgen said.
        source: rcgen::Error,
    },
}

/// Reads all certificates of a PEM text. Something that is none is an error: whoever is left out is not trusted.
pub fn read_bundle(text: &[u8]) -> Result<Bundle, Error> {
    let blocks = pem::blocks(text)?;
    let authorities = blocks.into_iter().zip(1..).map(|(der, position)| authority(der, position));
    Ok(Bundle::new(authorities.collect::<Result<_, _>>()?))
}

/// Reads the first certificate of a PEM text.
pub fn read_first(text: &[u8]) -> Result<Authority, Error> {
    authority(pem::first(text)?, 1)
}

/// A bundle as PEM.
pub fn write_bundle(bundle: &Bundle) -> String {
    bundle.authorities().iter().map(|authority| pem::certificate(&authority.der)).collect()
}

/// Whether a certificate is an authority's: signed by it, or itself.
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

/// Whether a certificate bears all these DNS names and addresses, and is no authority's.
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
    // What was never set is a moment before there were certificates.
    if validity.not_after <= Timestamp::UNIX_EPOCH {
        return Err(Error::NoEnd { position });
    }
    Ok(Authority { der: Arc::from(der), validity })
}

/// Seconds as a moment: certificates may end in the year 9999, a little after the last moment that there is.
fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

#[cfg(test)]
mod tests;
