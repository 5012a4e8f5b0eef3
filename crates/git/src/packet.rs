//! The packets of git's protocol: four hexadecimal digits of length, then the content. Pure.

use std::io::{self, Read};

/// Longest packet, as git defines it.
const BYTES_MAX: usize = 65_520;

/// A packet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packet<'a> {
    /// The end of a section.
    Flush,
    /// Content.
    Line(&'a [u8]),
    /// The stream goes on without packets; these are its next four bytes. Only a pack does so.
    Raw([u8; 4]),
}

/// Why a stream of packets cannot be read.
#[derive(Debug)]
pub(super) enum Problem {
    /// It ended within a packet, or before the last one.
    Cut,
    /// It is something else.
    Framing,
    /// Reading failed.
    Read(io::Error),
}

/// Reads packets, one at a time.
pub(super) struct Packets<R> {
    stream: R,
    buffer: Vec<u8>,
}

// === impl Packets ===

impl<R: Read> Packets<R> {
    pub(super) fn new(stream: R) -> Packets<R> {
        Packets { stream, buffer: Vec::new() }
    }

    /// The next packet.
    pub(super) fn next(&mut self) -> Result<Packet<'_>, Problem> {
        let mut digits = [0; 4];
        fill(&mut self.stream, &mut digits)?;
        if &digits == b"PACK" {
            return Ok(Packet::Raw(digits));
        }
        let digit = |c: u8| char::from(c).to_digit(16);
        let length = digits.iter().try_fold(0, |sum, &c| Some(sum * 16 + digit(c)?)).ok_or(Problem::Framing)?;
        let length = usize::try_from(length).map_err(|_| Problem::Framing)?;
        match length {
            0 => Ok(Packet::Flush),
            4..=BYTES_MAX => {
                self.buffer.resize(length - 4, 0);
                fill(&mut self.stream, &mut self.buffer)?;
                Ok(Packet::Line(&self.buffer))
            }
            _ => Err(Problem::Framing),
        }
    }

    /// The stream after the packets so far.
    pub(super) fn into_stream(self) -> R {
        self.stream
    }
}

/// Reads exactly as many bytes as the buffer has.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> Result<(), Problem> {
    stream.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Problem::Cut,
        _ => Problem::Read(error),
    })
}

/// The content without the line break at its end.
pub(super) fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// A packet with this content.
pub(super) fn packet(line: &str) -> String {
    format!("{:04x}{line}", line.len() + 4)
}
