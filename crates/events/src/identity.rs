//! Who sends an event: the runtime that a certificate names, and whether the certificate is to be believed.
//!
//! A certificate comes in one of two ways, and the port decides which: by the TLS handshake, or in the header
//! `X-Forwarded-Client-Cert` of a gateway that ended the handshake in front of us ([`Xfcc`] says whose header counts).
//! Either way it must be valid now and lead to one of the [`Authorities`]; what it then says is an [`Identity`]: the common
//! name is the id of a runtime. Names beside it are looked at by whoever knows which domain that runtime has
//! ([`Identity::is_named`]).
//!
//! Pure: the time is an argument. Refuses to guess: what is malformed, doubled or from nobody we trust names nobody.

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

/// What a certificate says of whoever presents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    common_name: String,
    names: Vec<String>,
    dns_names: Vec<String>,
    valid: Validity,
}

/// Why a request names nobody that we believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// There is no certificate at all.
    #[error("no certificate was presented")]
    Missing,
    /// The header is not there.
    #[error("X-Forwarded-Client-Cert header is missing")]
    NoHeader,
    /// The header is longer than anything that a gateway sends.
    #[error("X-Forwarded-Client-Cert header is longer than 32768 bytes")]
    HeaderTooLong,
    /// Whoever connected may not speak for others.
    #[error("this peer is not trusted to forward certificates")]
    PeerNotTrusted,
    /// The header was not last written on behalf of the gateway.
    #[error("X-Forwarded-Client-Cert header does not come from the gateway")]
    NotFromGateway,
    /// More than one client is spoken of.
    #[error("X-Forwarded-Client-Cert header names more than one client")]
    SeveralElements,
    /// There is more than one certificate.
    #[error("X-Forwarded-Client-Cert header holds more than one certificate")]
    SeveralCertificates,
    /// The certificate is left out.
    #[error("empty certificate")]
    Empty,
    /// The certificate is not encoded as in a URL.
    #[error("certificate is not URL-encoded")]
    Encoding,
    /// What was encoded is no PEM.
    #[error("certificate is no PEM")]
    Pem,
    /// What stands in the PEM is no certificate.
    #[error("certificate is no X.509")]
    X509,
    /// It holds from later on.
    #[error("certificate is not valid yet")]
    NotValidYet,
    /// It held until a while ago.
    #[error("certificate has expired")]
    Expired,
    /// None of our authorities stands behind it.
    #[error("certificate is not from one of the authorities that count here")]
    Foreign,
    /// Nobody has told us yet whom to believe: that is not the sender's fault.
    #[error("no authority is known yet")]
    NoAuthorities,
}

/// From when until when a certificate holds, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Validity {
    not_before: i64,
    not_after: i64,
}

/// Names beyond this are not compared: no certificate of a runtime has so many.
const NAMES_MAX: usize = 100;

// === impl Identity ===

impl Identity {
    /// Reads a certificate. Says nothing about whether to believe it.
    pub fn parse(der: &[u8]) -> Result<Identity, Error> {
        let (rest, certificate) = x509_parser::parse_x509_certificate(der).map_err(|_| Error::X509)?;
        if !rest.is_empty() {
            return Err(Error::X509);
        }
        // Of several common names the last one counts, as in Go.
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

    /// The common name: the id of the runtime. Empty if the certificate has none.
    pub fn common_name(&self) -> &str {
        &self.common_name
    }

    /// Whether one of the alternative names is just `name`: a DNS name in any case, an IP address or a URI to the letter.
    /// No wildcard is honoured. A certificate with more than a hundred names is named nothing.
    pub fn is_named(&self, name: &str) -> bool {
        self.names.len() + self.dns_names.len() <= NAMES_MAX
            && (self.names.iter().any(|own| own == name)
                || self.dns_names.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }

    /// Fails if the certificate does not hold at that moment.
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

/// A moment as the checks take it.
pub fn moment(since_1970: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(since_1970)
}

/// An address as Go writes it: IPv4 also where it is wrapped in IPv6.
fn ip(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(IpAddr::from(four));
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| IpAddr::from(sixteen).to_canonical())
}

/// The text of an attribute, whichever of its many encodings it has.
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
