//! Checks the first answer of a git server before libgit2 parses it.
//!
//! The answer is small enough for memory. The check gives useful errors, and keeps invalid data away from libgit2.

/// What is wrong with an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// It is truncated, or its framing is invalid.
    Broken,
    /// The server refuses the request in an `ERR` line.
    Refused,
    /// The repository uses SHA-256 ids.
    Sha256,
}

/// Checks the framing and the capabilities of a `git-upload-pack` advertisement. Returns it without lines that are not
/// UTF-8: nothing can request such a reference, and the bindings do not expect one.
pub(super) fn checked(bytes: &[u8]) -> Result<Vec<u8>, Problem> {
    // The line with the service and its flush come first, then the references and their flush.
    let mut rest = bytes;
    let mut flushes = 0;
    let mut lines = 0;
    let mut kept = Vec::with_capacity(bytes.len());
    while flushes < 2 {
        let (line, after) = packet(rest).ok_or(Problem::Broken)?;
        let packet = &rest[..rest.len() - after.len()];
        rest = after;
        let Some(line) = line else {
            flushes += 1;
            kept.extend_from_slice(packet);
            continue;
        };
        lines += 1;
        if lines == 1 && !line.starts_with(b"# service=git-upload-pack") {
            return Err(if line.starts_with(b"ERR ") { Problem::Refused } else { Problem::Broken });
        }
        if line.starts_with(b"ERR ") {
            return Err(Problem::Refused);
        }
        let capabilities = line.iter().position(|&byte| byte == 0).map_or(&b""[..], |zero| &line[zero + 1..]);
        let mut capabilities = capabilities.split(u8::is_ascii_whitespace);
        if capabilities.any(|capability| capability == b"object-format=sha256") {
            return Err(Problem::Sha256);
        }
        if std::str::from_utf8(line).is_ok() {
            kept.extend_from_slice(packet);
        }
    }
    Ok(kept)
}

/// The first packet (`None` for a flush) and the rest.
fn packet(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let length = std::str::from_utf8(bytes.get(..4)?).ok()?;
    if !length.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    match usize::from_str_radix(length, 16).ok()? {
        0 => Some((None, bytes.get(4..)?)),
        length => Some((Some(bytes.get(4..length)?), bytes.get(length..)?)),
    }
}

#[cfg(test)]
mod tests;
