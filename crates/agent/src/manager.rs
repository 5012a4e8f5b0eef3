//! The manager that an event is for, from the path of a review: `/validate/<manager>`.
//!
//! The manager becomes part of the path of its events. So a path that another program could normalise to a different
//! one is refused: no empty segment, no `.`, no `..` and no control characters, in any encoding.

use std::{fmt, str, sync::Arc};

use tidegate_events::event;

/// The name of a manager, which may contain slashes. Clones share it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Manager(Arc<str>);

/// The prefix of the paths that accept reviews.
pub const PREFIX: &str = "/validate/";
/// Limit of a manager's name, in bytes. In practice, the API server allows no longer label value or path segment.
const BYTES_MAX: usize = 256;

// === impl Manager ===

impl Manager {
    /// The manager of Tidegate's control plane.
    pub fn ours() -> Manager {
        Manager(event::MANAGER.into())
    }

    /// The manager in the path of a request, which is still encoded and has no query. It ends at the first white space.
    pub fn of_path(path: &str) -> Option<Manager> {
        let decoded = decoded(path.strip_prefix(PREFIX)?)?;
        let name = decoded.split(char::is_whitespace).next().unwrap_or_default();
        let is_plain = |segment: &str| !matches!(segment, "" | "." | "..") && !segment.contains(char::is_control);
        (name.len() <= BYTES_MAX && name.split('/').all(is_plain)).then(|| Manager(name.into()))
    }

    /// The encoded path for events to this manager.
    pub fn event_path(&self, contract: &str) -> String {
        let mut encoded = String::with_capacity(self.0.len());
        for byte in self.0.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => encoded.push(char::from(byte)),
                b'-' | b'.' | b'_' | b'~' | b'/' | b'$' | b'&' | b'+' | b',' | b':' | b';' | b'=' | b'@' => {
                    encoded.push(char::from(byte));
                }
                other => {
                    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                    encoded.push('%');
                    encoded.push(char::from(DIGITS[usize::from(other >> 4)]));
                    encoded.push(char::from(DIGITS[usize::from(other & 15)]));
                }
            }
        }
        event::path(contract, &encoded)
    }
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Decodes `%XX`; `None` if the encoding or the UTF-8 is invalid.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let hex = after.get(..2).filter(|hex| hex.iter().all(u8::is_ascii_hexdigit))?;
            bytes.push(u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests;
