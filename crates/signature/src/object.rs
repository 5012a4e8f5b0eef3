//! Commits and tags as git stores them: what is signed, and the signature.
//!
//! The signature of a commit is a header of it, that of a tag ends its message. What is signed is the object without
//! its signature, byte by byte. An object is refused if it could be read in two ways.

use tidegate_core::evidence::OBJECT_BYTES_MAX;

use crate::{limits, refusal::Refusal};

/// The kind of a signed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// A commit.
    Commit,
    /// An annotated tag.
    Tag,
}

/// A commit or tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedObject {
    payload: Vec<u8>,
    signature: Option<Vec<u8>>,
    signed_at: Option<i64>,
    tag: Option<String>,
    target: String,
}

/// An armored signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signature<'a> {
    OpenPgp(&'a str),
    Ssh(&'a str),
}

const OPENPGP: &str = "-----BEGIN PGP SIGNATURE-----";
const SSH: &str = "-----BEGIN SSH SIGNATURE-----";
const SMIME: &str = "-----BEGIN SIGNED MESSAGE-----";
/// The headers that a signature has in commits.
const HEADERS: [&[u8]; 2] = [b"gpgsig", b"gpgsig-sha256"];

// === impl SignedObject ===

impl SignedObject {
    /// Reads the content of an object.
    ///
    /// # Errors
    ///
    /// Fails if it is too large, or not as git writes it.
    pub fn parse(kind: ObjectKind, bytes: &[u8]) -> Result<SignedObject, Refusal> {
        if OBJECT_BYTES_MAX < bytes.len() {
            return Err(Refusal::TooLarge);
        }
        match kind {
            ObjectKind::Commit => commit(bytes),
            ObjectKind::Tag => tag(bytes),
        }
    }

    /// What is signed.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// When the object was made, as it claims: seconds since 1970.
    pub(crate) fn signed_at(&self) -> Option<i64> {
        self.signed_at
    }

    /// The name of a tag.
    pub fn tag_name(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// The id of the object that a tag names, or of the tree of a commit.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The signature, by its first line. Fails if there is none, if it is too large, or if its format is unknown.
    pub(crate) fn signature(&self) -> Result<Signature<'_>, Refusal> {
        let bytes = self.signature.as_deref().ok_or(Refusal::Unsigned)?;
        if limits::SIGNATURE_BYTES_MAX < bytes.len() {
            return Err(Refusal::NotUnderstood("it is larger than 16 KiB"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Refusal::NotUnderstood("it is not armored text"))?;
        match text.lines().next() {
            Some(OPENPGP) => Ok(Signature::OpenPgp(text)),
            Some(SSH) => Ok(Signature::Ssh(text)),
            Some(SMIME) => Err(Refusal::NotUnderstood("S/MIME is not supported; sign with OpenPGP or SSH")),
            Some(_) | None => Err(Refusal::NotUnderstood("it is neither OpenPGP nor SSH")),
        }
    }
}

/// One header of an object, with its continuation lines and line breaks.
struct Header<'a> {
    name: &'a [u8],
    /// Without the first space, and without the space before continuation lines.
    value: Vec<u8>,
    /// As it is in the object.
    raw: &'a [u8],
}

/// The headers, and what follows them: an empty line and the message.
fn headers(bytes: &[u8]) -> Result<(Vec<Header<'_>>, &[u8]), Refusal> {
    let mut headers = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() && rest[0] != b'\n' {
        let mut end = line(rest)?;
        while rest.get(end) == Some(&b' ') {
            end += line(&rest[end..])?;
        }
        let (raw, next) = rest.split_at(end);
        rest = next;
        let text = &raw[..raw.len() - 1];
        let space = text.iter().position(|byte| *byte == b' ').ok_or(Refusal::Strange("a header has no value"))?;
        let (name, value) = (&text[..space], &text[space + 1..]);
        let mut unfolded = Vec::with_capacity(value.len());
        for (index, line) in value.split(|byte| *byte == b'\n').enumerate() {
            if 0 < index {
                unfolded.push(b'\n');
            }
            unfolded.extend_from_slice(if 0 < index { &line[1..] } else { line });
        }
        headers.push(Header { name, value: unfolded, raw });
    }
    Ok((headers, rest))
}

/// The length of the first line, with its line break.
fn line(bytes: &[u8]) -> Result<usize, Refusal> {
    let end = bytes.iter().position(|byte| *byte == b'\n');
    end.map(|end| end + 1).ok_or(Refusal::Strange("a header has no end"))
}

fn commit(bytes: &[u8]) -> Result<SignedObject, Refusal> {
    let (headers, message) = headers(bytes)?;
    let mut names = headers.iter().map(|header| header.name).filter(|name| !HEADERS.contains(name));
    // In this order, so that no reader finds another tree or other parents.
    let is_in_order = names.next() == Some(b"tree")
        && names.by_ref().find(|name| *name != b"parent") == Some(b"author")
        && names.next() == Some(b"committer")
        && !names.any(|name| matches!(name, b"tree" | b"parent" | b"author" | b"committer"));
    if !is_in_order {
        return Err(Refusal::Strange("its headers are in another order"));
    }
    let mut payload = Vec::with_capacity(bytes.len());
    let mut signature = None;
    for header in &headers {
        if header.name == HEADERS[1] {
            return Err(Refusal::Strange("it has a signature for SHA-256 ids"));
        } else if header.name != HEADERS[0] {
            payload.extend_from_slice(header.raw);
        } else if signature.replace(header.value.clone()).is_some() {
            return Err(Refusal::Strange("it has several signatures"));
        }
    }
    payload.extend_from_slice(message);
    let value = |name: &[u8]| headers.iter().find(|header| header.name == name).map(|header| &*header.value);
    let target = text(value(b"tree").unwrap_or_default())?;
    Ok(SignedObject { payload, signature, signed_at: value(b"committer").and_then(date), tag: None, target })
}

fn tag(bytes: &[u8]) -> Result<SignedObject, Refusal> {
    let (headers, message) = headers(bytes)?;
    let names: Vec<&[u8]> = headers.iter().map(|header| header.name).collect();
    let (object, name, tagger) = match (&*names, &*headers) {
        ([b"object", b"type", b"tag", b"tagger"], [object, _, name, tagger]) => (object, name, Some(tagger)),
        ([b"object", b"type", b"tag"], [object, _, name]) => (object, name, None),
        _ => return Err(Refusal::Strange("its headers are in another order")),
    };
    let begin = bytes.len() - message.len();
    let at = signature_in(message).map(|at| begin + at);
    Ok(SignedObject {
        payload: bytes[..at.unwrap_or(bytes.len())].to_vec(),
        signature: at.map(|at| bytes[at..].to_vec()),
        signed_at: tagger.and_then(|header| date(&header.value)),
        tag: Some(text(&name.value)?),
        target: text(&object.value)?,
    })
}

/// Where the signature in a message begins: at the last line that begins one, as for git.
fn signature_in(message: &[u8]) -> Option<usize> {
    let mut found = None;
    let mut at = 0;
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        if [OPENPGP, SSH, SMIME].iter().any(|begin| line.starts_with(begin.as_bytes())) {
            found = Some(at);
        }
        at += line.len();
    }
    found
}

/// The seconds in `Anna <anna@example.com> 1700000000 +0100`.
fn date(person: &[u8]) -> Option<i64> {
    let after = person.iter().rposition(|byte| *byte == b'>')?;
    let text = std::str::from_utf8(&person[after + 1..]).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::Strange("a header is not UTF-8"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
