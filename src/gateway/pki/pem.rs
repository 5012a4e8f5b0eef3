//! PEM with Go's rules: text before a block is skipped, and any other text outside a block is an error.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::Error;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// The contents of all blocks, whatever their labels are. Fails if there is none.
pub(super) fn blocks(text: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let mut rest = std::str::from_utf8(text).map_err(|_| Error::Pem { position: 1 })?;
    let mut found = Vec::new();
    loop {
        let position = found.len() + 1;
        match next(rest, position)? {
            Some(block) => {
                found.push(block.content);
                rest = block.rest;
            }
            None if found.is_empty() && rest.trim().is_empty() => return Err(Error::Empty),
            None if rest.trim().is_empty() => return Ok(found),
            None => return Err(Error::Pem { position }),
        }
    }
}

/// The content of the first block. The rest of the text is ignored. Fails if there is no valid block.
pub(super) fn first(text: &[u8]) -> Result<Vec<u8>, Error> {
    let text = std::str::from_utf8(text).map_err(|_| Error::Pem { position: 1 })?;
    next(text, 1)?.map(|block| block.content).ok_or(Error::Empty)
}

/// The label and content of the first block. Fails if there is no valid block.
pub(super) fn labelled(text: &[u8]) -> Result<(String, Vec<u8>), Error> {
    let text = std::str::from_utf8(text).map_err(|_| Error::Pem { position: 1 })?;
    next(text, 1)?.map(|block| (block.label.to_owned(), block.content)).ok_or(Error::Empty)
}

/// A certificate as a block.
pub(super) fn certificate(der: &[u8]) -> String {
    block("CERTIFICATE", der)
}

/// A block with this label.
pub(super) fn block(label: &str, der: &[u8]) -> String {
    const LINE: usize = 64;
    let encoded = STANDARD.encode(der);
    let mut text = format!("{BEGIN}{label}{DASHES}\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(LINE.min(rest.len()));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(END);
    text.push_str(label);
    text.push_str(DASHES);
    text.push('\n');
    text
}

struct Block<'a> {
    label: &'a str,
    content: Vec<u8>,
    rest: &'a str,
}

fn next(text: &str, position: usize) -> Result<Option<Block<'_>>, Error> {
    let wrong = || Error::Pem { position };
    let Some(start) = text.find(BEGIN) else { return Ok(None) };
    let (label, body) = text[start + BEGIN.len()..].split_once(DASHES).ok_or_else(wrong)?;
    let (body, rest) = body.split_once(&format!("{END}{label}{DASHES}")).ok_or_else(wrong)?;
    let encoded: String = body.split_ascii_whitespace().collect();
    let content = STANDARD.decode(encoded).map_err(|_| wrong())?;
    Ok(Some(Block { label, content, rest }))
}
