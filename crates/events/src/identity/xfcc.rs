//! The header `X-Forwarded-Client-Cert`: which peers may send it, which element is used, and the certificate in it.
//!
//! A gateway writes one element (`Hash=…;Cert="…";Subject="…";URI=;DNS=…`). Every proxy behind it may append, after a
//! comma, an element about its own client. So the proxy nearest to us writes the last element, and anyone may have
//! written what comes before the gateway's element.

use std::{borrow::Cow, net::IpAddr};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::Error;
use crate::Peers;

/// Which peers may send the header, and which element of it is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Xfcc {
    /// The peers that may forward certificates.
    pub peers: Peers,
    /// The SPIFFE id of the gateway (`spiffe://…`), if a sidecar appends an element about the gateway. The gateway's
    /// own element is then the one before the last. Without it, the header must have exactly one element.
    pub gateway: Option<String>,
}

/// Limit of the header's length, in bytes. A certificate with an RSA key of 4096 bits takes 3,000.
const HEADER_MAX: usize = 32_768;

// === impl Xfcc ===

impl Xfcc {
    /// Selects the element that the gateway wrote, from all lines of the header.
    ///
    /// # Errors
    ///
    /// Fails if the peer is not trusted, if the header is missing or too long, or if the gateway's element cannot be
    /// determined.
    pub fn element<'a>(&self, peer: IpAddr, mut lines: impl Iterator<Item = &'a [u8]>) -> Result<Cow<'a, [u8]>, Error> {
        if !self.peers.contain(peer) {
            return Err(Error::PeerNotTrusted);
        }
        let first = lines.next().ok_or(Error::NoHeader)?;
        let rest: Vec<&[u8]> = lines.collect();
        let length = rest.iter().map(|line| line.len()).sum::<usize>() + first.len();
        if HEADER_MAX < length {
            return Err(Error::HeaderTooLong);
        }
        match &self.gateway {
            None => only(first, &rest).map(Cow::Borrowed),
            Some(gateway) if rest.is_empty() => before_last(first, gateway).map(Cow::Borrowed),
            Some(gateway) => {
                let lines: Vec<&[u8]> = std::iter::once(first).chain(rest).collect();
                before_last(&lines.join(&b","[..]), gateway).map(|element| Cow::Owned(element.to_vec()))
            }
        }
    }
}

/// The only element. Of several lines the first wins, as upstream. A second certificate in any line is an error,
/// because we cannot know which one our peer wrote.
fn only<'a>(first: &'a [u8], rest: &[&[u8]]) -> Result<&'a [u8], Error> {
    if 1 < certificates(first) + rest.iter().map(|line| certificates(line)).sum::<usize>() {
        return Err(Error::SeveralCertificates);
    }
    // Unbalanced quotes have no meaning.
    let elements = split(first, b',').unwrap_or_else(|| first.split(|byte| *byte == b',').collect());
    match elements.as_slice() {
        [element] => Ok(element),
        _ => Err(Error::SeveralElements),
    }
}

/// The element before the last, if the last describes the gateway.
fn before_last<'a>(value: &'a [u8], gateway: &str) -> Result<&'a [u8], Error> {
    // Unbalanced quotes could hide where elements begin.
    let elements = split(value, b',').ok_or(Error::NotFromGateway)?;
    let [.., element, last] = elements.as_slice() else { return Err(Error::NotFromGateway) };
    let pairs = split(last, b';').ok_or(Error::NotFromGateway)?;
    let mut uris = pairs.iter().filter_map(|pair| {
        let (name, value) = pair.split_at_checked(4)?;
        name.eq_ignore_ascii_case(b"URI=").then_some(value)
    });
    let uri = uris.next().map(|uri| uri.strip_prefix(b"\"").and_then(|uri| uri.strip_suffix(b"\"")).unwrap_or(uri));
    if uri != Some(gateway.as_bytes()) || uris.next().is_some() {
        return Err(Error::NotFromGateway);
    }
    if 1 < certificates(element) {
        return Err(Error::SeveralCertificates);
    }
    Ok(element)
}

const CERT: &[u8] = b"Cert=";

/// How many certificates begin in the text, at any position.
fn certificates(value: &[u8]) -> usize {
    value.windows(CERT.len()).filter(|window| window.eq_ignore_ascii_case(CERT)).count()
}

/// Splits at separators outside of quotes; `None` if a quote is not closed. A backslash escapes a quote within quotes.
fn split(value: &[u8], separator: u8) -> Option<Vec<&[u8]>> {
    let (mut parts, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (position, byte) in value.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            byte if *byte == separator && !quoted => {
                parts.push(value[start..position].trim_ascii());
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(value[start..].trim_ascii());
    (!quoted).then_some(parts)
}

/// The encoded certificate of an element: from `Cert=` to the next `;` or `,`, whether quoted or not.
pub(super) fn token(element: &[u8]) -> Result<&[u8], Error> {
    let start = element.windows(CERT.len()).position(|window| window == CERT).ok_or(Error::Empty)?;
    let rest = &element[start + CERT.len()..];
    let end = rest.iter().position(|byte| matches!(byte, b';' | b',')).unwrap_or(rest.len());
    if end == 0 { Err(Error::Empty) } else { Ok(&rest[..end]) }
}

/// Decodes the certificate to DER.
pub(super) fn der(token: &[u8]) -> Result<Vec<u8>, Error> {
    let decoded = unescape(token).ok_or(Error::Encoding)?;
    let start = decoded.iter().position(|byte| *byte != b'"').ok_or(Error::Empty)?;
    let end = decoded.iter().rposition(|byte| *byte != b'"').map_or(start, |last| last + 1);
    block(&decoded[start..end]).ok_or(Error::Pem)
}

/// Decodes URL query encoding: `%2B` is a plus, and a plus is a space.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => digit(bytes.next()?)? << 4 | digit(bytes.next()?)?,
            b'+' => b' ',
            other => other,
        });
    }
    Some(decoded)
}

/// The content of the first PEM block, whatever its label.
fn block(text: &[u8]) -> Option<Vec<u8>> {
    const BEGIN: &[u8] = b"-----BEGIN ";
    let mut from = 0;
    while let Some(found) = text[from..].windows(BEGIN.len()).position(|window| window == BEGIN) {
        let start = from + found;
        from = start + BEGIN.len();
        let begins_line = start == 0 || text[start - 1] == b'\n';
        if begins_line && let Some(content) = content(&text[from..]) {
            return Some(content);
        }
    }
    None
}

/// The content of a block, if `text` begins with the rest of its first line.
fn content(text: &[u8]) -> Option<Vec<u8>> {
    let line_end = text.iter().position(|byte| *byte == b'\n')?;
    let label = text[..line_end].trim_ascii_end().strip_suffix(b"-----")?;
    let end_line = [&b"-----END "[..], label, b"-----"].concat();
    let body = &text[line_end + 1..];
    let end = body.windows(end_line.len()).position(|window| window == end_line)?;
    // Lines with a colon are headers, which certificates do not need.
    let lines = body[..end].split(|byte| *byte == b'\n').filter(|line| !line.contains(&b':'));
    let base64: Vec<u8> = lines.flatten().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(base64).ok()
}
