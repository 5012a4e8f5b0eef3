//! Reads the validity period of a certificate.
//!
//! rustls checks it but does not expose it. The certificates here come from the mounted Secret, never from the network.
//! The code parses only what comes before the two times; an invalid certificate has no validity.

use std::time::Duration;

use rustls::{CertificateError, pki_types::UnixTime};

/// The period, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first valid second.
    pub not_before: u64,
    /// The last valid second.
    pub not_after: u64,
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which is optional.
const VERSION: u8 = 0xA0;

// === impl Validity ===

impl Validity {
    /// Reads the validity period of a certificate in DER.
    pub fn from_der(der: &[u8]) -> Option<Validity> {
        let (certificate, _) = element(der, SEQUENCE)?;
        let (mut body, _) = element(certificate, SEQUENCE)?;
        if body.first() == Some(&VERSION) {
            (_, body) = any(body)?;
        }
        // serial number, signature algorithm, issuer
        for _ in 0..3 {
            (_, body) = any(body)?;
        }
        let (validity, _) = element(body, SEQUENCE)?;
        let (not_before, rest) = time(validity)?;
        let (not_after, _) = time(rest)?;
        Some(Validity { not_before, not_after })
    }

    /// # Errors
    ///
    /// Fails unless `now` is within the period.
    pub fn check(&self, now: UnixTime) -> Result<(), CertificateError> {
        let moment = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        if now.as_secs() < self.not_before {
            return Err(CertificateError::NotValidYetContext { time: now, not_before: moment(self.not_before) });
        }
        if self.not_after < now.as_secs() {
            return Err(CertificateError::ExpiredContext { time: now, not_after: moment(self.not_after) });
        }
        Ok(())
    }
}

/// The content of an element with this tag, and the rest.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if der.first() == Some(&tag) { any(der) } else { None }
}

/// The content of the first element, and the rest.
fn any(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // Up to four bytes of length: enough for any file here.
        let count = usize::from(first & 0x7F);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(count)?;
        (bytes.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    rest.split_at_checked(length)
}

/// Parses the first element as a time, and returns the rest.
fn time(der: &[u8]) -> Option<(u64, &[u8])> {
    let (text, rest) = any(der)?;
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        Some(digits.get(range)?.iter().fold(0_i32, |number, digit| number * 10 + i32::from(digit - b'0')))
    };
    let (year, at) = match (*der.first()?, digits.len()) {
        // Two-digit years mean 1950 to 2049.
        (UTC_TIME, 12) => (number(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        (GENERALIZED_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let field = |index: usize| number(at + 2 * index..at + 2 * index + 2).and_then(|number| i8::try_from(number).ok());
    let (month, day, hour, minute, second) = (field(0)?, field(1)?, field(2)?, field(3)?, field(4)?);
    let moment = jiff::civil::DateTime::new(i16::try_from(year).ok()?, month, day, hour, minute, second, 0).ok()?;
    let seconds = moment.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    // A time before 1970 counts as 1970.
    Some((u64::try_from(seconds).unwrap_or_default(), rest))
}

#[cfg(test)]
mod tests;
