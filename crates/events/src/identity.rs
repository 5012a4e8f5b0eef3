//! Identifies the sender of an event: which runtime the certificate names, and whether the certificate is trusted.
//!
//! The port decides how a certificate arrives: in the TLS handshake, or in the header `X-Forwarded-Client-Cert` of a
//! gateway that terminated TLS in front of us ([`Xfcc`] says which peers may send this header). In both cases the
//! certificate must be valid now and chain to one of the [`Authorities`]. The result is an [`Identity`]; its common
//! name is the id of a runtime. [`Identity::is_named`] compares the alternative names; the caller does this if it knows
//! the domain of the runtime.
//!
//! Pure: the time is an argument. Does not guess: a malformed, ambiguous or untrusted certificate gives no identity.

mod authorities;
mod known;
mod xfcc;

use std::{net::IpAddr, time::Duration};

use rustls::pki_types::UnixTime;
use x509_parser::{
    der_parser::asn1_rs::{Any, Tag},
    extensions::GeneralName,
};

pub use self::{authorities::Authorities, known::Known, xfcc::Xfcc};
pub use crate::{ParseNetworkError, Peers};

/// The contents of a certificate that identify its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    common_name: String,
    names: Vec<String>,
    dns_names: Vec<String>,
    valid: Validity,
}

/// Why a request has no trusted identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// The client presented no certificate.
    #[error("no certificate was presented")]
    Missing,
    /// The request has no such header.
    #[error("X-Forwarded-Client-Cert header is missing")]
    NoHeader,
    /// The header is longer than any gateway sends.
    #[error("X-Forwarded-Client-Cert header is longer than 32768 bytes")]
    HeaderTooLong,
    /// The peer that opened the connection may not forward certificates.
    #[error("this peer is not trusted to forward certificates")]
    PeerNotTrusted,
    /// The last element of the header was not written on behalf of the gateway.
    #[error("X-Forwarded-Client-Cert header does not come from the gateway")]
    NotFromGateway,
    /// The header describes more than one client.
    #[error("X-Forwarded-Client-Cert header names more than one client")]
    SeveralElements,
    /// An element contains more than one certificate.
    #[error("X-Forwarded-Client-Cert header holds more than one certificate")]
    SeveralCertificates,
    /// The header contains no certificate.
    #[error("empty certificate")]
    Empty,
    /// The certificate is not URL-encoded.
    #[error("certificate is not URL-encoded")]
    Encoding,
    /// The decoded text is not PEM.
    #[error("not a PEM certificate")]
    Pem,
    /// The PEM block does not contain an X.509 certificate.
    #[error("not an X.509 certificate")]
    X509,
    /// The validity period begins in the future.
    #[error("certificate is not valid yet")]
    NotValidYet,
    /// The validity period is over.
    #[error("certificate has expired")]
    Expired,
    /// The certificate does not chain to one of the trusted CAs.
    #[error("certificate is not issued by a trusted CA")]
    Foreign,
    /// No trusted CAs are configured yet. This is not the sender's fault.
    #[error("no trusted CA is configured yet")]
    NoAuthorities,
}

/// The validity period of a certificate, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Validity {
    not_before: i64,
    not_after: i64,
}

/// Limit of alternative names that are compared. No runtime's certificate has more.
const NAMES_MAX: usize = 100;

// === impl Identity ===

impl Identity {
    /// Reads a certificate. Does not check whether it is trusted.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not exactly one X.509 certificate.
    pub fn parse(der: &[u8]) -> Result<Identity, Error> {
        let (rest, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| Error::X509)?;
        if !rest.is_empty() {
            return Err(Error::X509);
        }
        // The last of several common names wins, as in Go.
        let common_name = certificate.subject().iter_common_name().last();
        let alternative = certificate.subject_alternative_name().map_err(|_| Error::X509)?;
        let (mut names, mut dns_names) = (Vec::new(), Vec::new());
        for name in alternative.iter().flat_map(|extension| &extension.value.general_names) {
            match name {
                GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                GeneralName::URI(uri) => names.push((*uri).to_owned()),
                GeneralName::IPAddress(bytes) => names.extend(ip(bytes).map(|ip| ip.to_string())),
                _ => {}
            }
        }
        let validity = certificate.validity();
        Ok(Identity {
            common_name: common_name.map(|name| text(name.attr_value())).unwrap_or_default(),
            names,
            dns_names,
            valid: Validity { not_before: validity.not_before.timestamp(), not_after: validity.not_after.timestamp() },
        })
    }

    /// The common name, which is the id of the runtime. Empty if the certificate has none.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// Whether one of the alternative names equals `name`. DNS names are compared without regard to case, IP addresses
    /// and URIs exactly. Wildcards never match. A certificate with more than 100 names matches nothing.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.len() + self.dns_names.len() <= NAMES_MAX
            && (self.names.iter().any(|own| own == name)
                || self.dns_names.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }

    /// Fails if the certificate is not valid at that time.
    fn check_validity(&self, now: UnixTime) -> Result<(), Error> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < self.valid.not_before {
            Err(Error::NotValidYet)
        } else if self.valid.not_after < now {
            Err(Error::Expired)
        } else {
            Ok(())
        }
    }
}

/// Converts a duration since 1970 to the type that the checks take.
pub fn moment(since_1970: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(since_1970)
}

/// The address in Go's notation: an IPv4 address in IPv6 form is written as IPv4.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| IpAddr::from(sixteen).to_canonical())
}

/// The text of an attribute, in any of the encodings that X.509 allows.
fn text(value: &Any<'_>) -> String {
    let bytes = value.data;
    if value.tag() == Tag::BmpString {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
        return String::from_utf16_lossy(&units);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

// === impl Error ===

impl Error {
    /// One word for metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Error::Missing | Error::NoHeader => "certificate-missing",
            Error::PeerNotTrusted => "peer-not-trusted",
            Error::NotFromGateway => "not-from-gateway",
            Error::SeveralElements | Error::SeveralCertificates => "several-certificates",
            Error::HeaderTooLong | Error::Empty | Error::Encoding | Error::Pem | Error::X509 => "certificate-malformed",
            Error::NotValidYet => "certificate-not-valid-yet",
            Error::Expired => "certificate-expired",
            Error::Foreign => "certificate-foreign",
            Error::NoAuthorities => "no-authorities",
        }
    }
}

#[cfg(test)]
mod tests;
