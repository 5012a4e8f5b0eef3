//! From when until when a certificate is valid.
//!
//! rustls checks it and does not tell it. The certificates that are read here come from the mounted Secret, never from the
//! network; what is no certificate has no validity, and nothing more is read of it than the way to the two moments.

use std::time::Duration;

use rustls::{CertificateError, pki_types::UnixTime};

/// The two moments, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From this second on.
    pub not_before: u64,
    /// Until this second, which is the last.
    pub not_after: u64,
}

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The version, which may be left out.
const VERSION: u8 = 0xA0;

// === impl Validity ===

impl Validity {
    /// Reads the validity of a certificate in DER.
    pub fn of(der: &[u8]) -> Option<Validity> {
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

    /// Whether `now` is within.
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

/// The content of an element with this tag, and what comes after it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    if der.first() == Some(&tag) { any(der) } else { None }
}

/// The content of the first element, and what comes after it.
fn any(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        // Up to four bytes of length: more than any file here has.
        let count = usize::from(first & 0x7F);
        if !(1..=4).contains(&count) {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(count)?;
        (bytes.iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    rest.split_at_checked(length)
}

/// The first element as a moment, and what comes after it.
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
        // Two digits of a year: 1950 to 2049.
        (UTC_TIME, 12) => (number(0..2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        (GENERALIZED_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    let field = |index: usize| number(at + 2 * index..at + 2 * index + 2).and_then(|number| i8::try_from(number).ok());
    let (month, day, hour, minute, second) = (field(0)?, field(1)?, field(2)?, field(3)?, field(4)?);
    let moment = jiff::civil::DateTime::new(i16::try_from(year).ok()?, month, day, hour, minute, second, 0).ok()?;
    let seconds = moment.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second();
    // What begins before 1970 has begun.
    Some((u64::try_from(seconds).unwrap_or_default(), rest))
}

#[cfg(test)]
mod tests;
