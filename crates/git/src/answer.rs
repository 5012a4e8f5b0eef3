//! The second answer of a git server: a pack within packets. Pure, but for the stream that it writes to.

use std::io::{self, Read, Write};

use super::{
    advertisement::{Advertisement, Capabilities},
    limits::PACK_OBJECTS_MAX,
    packet::{self, Packet, Packets},
    server_message,
};
use tidegate_core::revision::Oid;

/// Why an answer contains no complete pack.
#[derive(Debug)]
pub(super) enum Problem {
    /// It ended too early.
    Cut,
    /// It is something else.
    Invalid,
    /// It has no pack.
    NoPack,
    /// The pack has too many objects.
    TooManyObjects,
    /// The server reports an error with this text.
    Refused(Vec<u8>),
    /// Reading failed.
    Read(io::Error),
    /// Writing failed, on this machine.
    Write(io::Error),
}

/// The pack as it arrives.
struct Pack<W> {
    target: W,
    bytes: u64,
    /// Signature, version and number of objects.
    header: Vec<u8>,
}

/// Length of the header of a pack.
const HEADER_BYTES: usize = 12;

/// The request for these objects, and for all that they refer to, but for what `have` has.
///
/// It is complete, so that one answer ends it: a server that knows none of `have` sends everything.
pub(super) fn request(wants: &[Oid], haves: &[Oid], capabilities: Capabilities) -> Vec<u8> {
    let agent = concat!(" agent=git/tidegate-", env!("CARGO_PKG_VERSION"));
    let optional = |is_known: bool, text: &'static str| if is_known { text } else { "" };
    let mut first = format!(
        "{}{}{}",
        optional(capabilities.side_band_64k, " side-band-64k"),
        optional(capabilities.ofs_delta, " ofs-delta"),
        optional(capabilities.agent, agent),
    );
    let mut request = String::new();
    for want in wants {
        request.push_str(&packet::packet(&format!("want {want}{}\n", std::mem::take(&mut first))));
    }
    request.push_str("0000");
    for have in haves {
        request.push_str(&packet::packet(&format!("have {have}\n")));
    }
    request.push_str(&packet::packet("done\n"));
    request.into_bytes()
}

/// What to request to get a commit: from a reference, by its id, or with all branches and tags.
pub(super) fn attempts(commit: Option<Oid>, advertisement: &Advertisement) -> Vec<Vec<Oid>> {
    match (advertisement.found, commit) {
        (Some(found), _) => vec![vec![found]],
        // Many servers serve any commit by its id. The others refuse early, which costs nothing.
        (None, Some(commit)) if advertisement.all.is_empty() => vec![vec![commit]],
        (None, Some(commit)) => vec![vec![commit], advertisement.all.clone()],
        (None, None) => Vec::new(),
    }
}

/// Copies the pack of an answer to `target`.
pub(super) fn unwrap(stream: impl Read, target: impl Write) -> Result<(), Problem> {
    let mut packets = Packets::new(stream);
    let mut pack = Pack { target, bytes: 0, header: Vec::new() };
    // What a hook or the server prints; the last words are quoted if the answer ends without a pack.
    let mut words = Vec::new();
    loop {
        match packets.next()? {
            Packet::Line([1, bytes @ ..]) => pack.write(bytes)?,
            Packet::Line([2, bytes @ ..]) => remember(&mut words, bytes),
            Packet::Line([3, bytes @ ..]) => return Err(Problem::Refused(bytes.to_vec())),
            Packet::Line(line) if line.starts_with(b"ERR ") => return Err(Problem::Refused(line[4..].to_vec())),
            Packet::Line(line) if is_negotiation(line) && pack.bytes == 0 => {}
            Packet::Line(_) => return Err(Problem::Invalid),
            Packet::Flush if pack.bytes != 0 => return Ok(()),
            Packet::Flush => {
                let is_silent = words.iter().all(u8::is_ascii_whitespace);
                return Err(if is_silent { Problem::NoPack } else { Problem::Refused(words) });
            }
            Packet::Raw(start) if pack.bytes == 0 => {
                pack.write(&start)?;
                return pack.copy(packets.into_stream());
            }
            Packet::Raw(_) => return Err(Problem::Invalid),
        }
    }
}

fn is_negotiation(line: &[u8]) -> bool {
    ["NAK", "ACK ", "shallow ", "unshallow "].iter().any(|word| line.starts_with(word.as_bytes()))
}

/// Keeps the end of what is printed. A carriage return begins a line anew.
fn remember(words: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        match byte {
            b'\r' => words.clear(),
            _ if words.len() < server_message::BYTES_MAX => words.push(byte),
            _ => {}
        }
    }
}

// === impl Pack ===

impl<W: Write> Pack<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        if self.header.len() < HEADER_BYTES {
            self.header.extend(bytes.iter().take(HEADER_BYTES - self.header.len()));
            self.check_header()?;
        }
        self.bytes += bytes.len() as u64;
        self.target.write_all(bytes).map_err(Problem::Write)
    }

    fn check_header(&self) -> Result<(), Problem> {
        let start = self.header.len().min(4);
        if self.header[..start] != b"PACK"[..start] {
            return Err(Problem::Invalid);
        }
        let Some(count) = self.header.get(8..HEADER_BYTES) else { return Ok(()) };
        let count = count.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        if (PACK_OBJECTS_MAX as u64) < count { Err(Problem::TooManyObjects) } else { Ok(()) }
    }

    fn copy(&mut self, mut stream: impl Read) -> Result<(), Problem> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match stream.read(&mut buffer).map_err(Problem::Read)? {
                0 => return Ok(()),
                count => self.write(&buffer[..count])?,
            }
        }
    }
}

// === impl Problem ===

impl From<packet::Problem> for Problem {
    fn from(problem: packet::Problem) -> Problem {
        match problem {
            packet::Problem::Cut => Problem::Cut,
            packet::Problem::Framing => Problem::Invalid,
            packet::Problem::Read(error) => Problem::Read(error),
        }
    }
}

#[cfg(test)]
mod tests;
