//! The first answer of a git server: its references. Pure.
//!
//! A repository may have a hundred thousand of them. They are read one after another, and only those that a fetch may
//! need are kept, so that a long list costs no memory.

use std::io::{self, Read};

use super::{
    packet::{self, Packet, Packets},
    remote::Reference,
};
use tidegate_core::{revision::Oid, version_range::VersionTag};

/// Limit of branches and tags that are requested together, to find a commit that the server does not serve by its id.
/// It bounds the request to 10 MiB.
const ALL_MAX: usize = 200_000;

/// What is wrong with an advertisement.
#[derive(Debug)]
pub(super) enum Problem {
    /// It ended too early.
    Cut,
    /// It is something else.
    Invalid,
    /// Reading failed.
    Read(io::Error),
    /// The server says in an `ERR` line with this text that there is no such repository.
    NoRepository(Vec<u8>),
    /// The server refuses the request in an `ERR` line with this text.
    Refused(Vec<u8>),
    /// The repository uses SHA-256 ids.
    Sha256,
}

/// Words of servers about a repository that does not exist, or that these credentials may not see. `git daemon` says
/// "access denied or repository not exported", or with `--informative-errors` "no such repository". Over ssh, git says
/// "does not appear to be a git repository". GitLab says "could not be found", Azure DevOps "does not exist", others
/// "not found".
const NOT_FOUND: [&str; 7] = [
    "access denied",
    "not exported",
    "no such repository",
    "not found",
    "not be found",
    "does not exist",
    "does not appear to be a git repository",
];

/// What a fetch needs of an advertisement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Advertisement {
    /// The object under the reference that is followed; of a commit, if a reference points to it.
    pub(super) found: Option<Oid>,
    /// The branch to which HEAD points, if the server says so.
    pub(super) head: Option<String>,
    /// The tag that is followed, if a range of versions is.
    pub(super) version: Option<VersionTag>,
    /// The objects under all branches and tags, if a commit is followed.
    pub(super) all: Vec<Oid>,
    /// Whether there is no reference at all.
    pub(super) is_empty: bool,
    pub(super) capabilities: Capabilities,
}

/// What the server can do, of what a fetch uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) side_band_64k: bool,
    pub(super) ofs_delta: bool,
    pub(super) agent: bool,
}

/// Reads an advertisement of `git-upload-pack`: the line with the service and a flush, then the references and a flush.
pub(super) fn read(stream: impl Read, follow: &Reference) -> Result<Advertisement, Problem> {
    let mut packets = Packets::new(stream);
    service(&mut packets)?;
    references(packets, follow)
}

/// Reads an advertisement as a program of git sends it over ssh: without the line with the service.
pub(super) fn read_without_service(stream: impl Read, follow: &Reference) -> Result<Advertisement, Problem> {
    references(Packets::new(stream), follow)
}

/// Reads over an advertisement that is known.
pub(super) fn skip(stream: impl Read) -> Result<(), Problem> {
    let mut packets = Packets::new(stream);
    while let Packet::Line(_) = packets.next()? {}
    Ok(())
}

fn references(mut packets: Packets<impl Read>, follow: &Reference) -> Result<Advertisement, Problem> {
    let mut advertisement = Advertisement { is_empty: true, ..Advertisement::default() };
    let mut is_first = true;
    while let Packet::Line(line) = packets.next()? {
        if let Some(text) = line.strip_prefix(b"ERR ") {
            return Err(refused(text));
        }
        let line = packet::trimmed(line);
        let zero = line.iter().position(|&byte| byte == 0);
        let (reference, capabilities) = zero.map_or((line, &b""[..]), |zero| (&line[..zero], &line[zero + 1..]));
        if is_first {
            advertisement.capabilities(capabilities)?;
        }
        is_first = false;
        advertisement.line(reference, follow)?;
    }
    Ok(advertisement)
}

fn service(packets: &mut Packets<impl Read>) -> Result<(), Problem> {
    match packets.next()? {
        Packet::Line(line) if line.starts_with(b"# service=git-upload-pack") => {}
        Packet::Line(line) if line.starts_with(b"ERR ") => return Err(refused(&line[4..])),
        Packet::Line(_) | Packet::Flush | Packet::Raw(_) => return Err(Problem::Invalid),
    }
    loop {
        match packets.next()? {
            Packet::Flush => return Ok(()),
            Packet::Line(_) => {}
            Packet::Raw(_) => return Err(Problem::Invalid),
        }
    }
}

/// What an `ERR` line or the output of a program for people means. Only its text tells a repository that does not exist
/// from one that is locked.
pub(super) fn refused(text: &[u8]) -> Problem {
    let lower = String::from_utf8_lossy(text).to_lowercase();
    if NOT_FOUND.iter().any(|words| lower.contains(words)) {
        Problem::NoRepository(text.to_vec())
    } else {
        Problem::Refused(text.to_vec())
    }
}

// === impl Advertisement ===

impl Advertisement {
    fn capabilities(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        for capability in bytes.split(u8::is_ascii_whitespace) {
            match capability {
                b"side-band-64k" => self.capabilities.side_band_64k = true,
                b"ofs-delta" => self.capabilities.ofs_delta = true,
                b"object-format=sha256" => return Err(Problem::Sha256),
                other if other.starts_with(b"agent=") => self.capabilities.agent = true,
                other => {
                    let target = other.strip_prefix(b"symref=HEAD:refs/heads/");
                    let name = target.and_then(|name| std::str::from_utf8(name).ok());
                    self.head = name.map(str::to_owned).or(self.head.take());
                }
            }
        }
        Ok(())
    }

    /// Takes one line: `<id> <name>`.
    fn line(&mut self, line: &[u8], follow: &Reference) -> Result<(), Problem> {
        if line.starts_with(b"shallow ") {
            return Ok(());
        }
        let id = line.get(..40).and_then(|id| std::str::from_utf8(id).ok()).and_then(|id| id.parse::<Oid>().ok());
        let (Some(id), Some(name)) = (id, line.get(40..).and_then(|rest| rest.strip_prefix(b" "))) else {
            return Err(Problem::Invalid);
        };
        // Of a repository without references, this line carries the capabilities. A reference whose name is not UTF-8
        // cannot be named in a GitSource.
        let Ok(name) = std::str::from_utf8(name) else { return Ok(()) };
        if name == "capabilities^{}" {
            return Ok(());
        }
        self.is_empty = false;
        let (branch, tag) = (name.strip_prefix("refs/heads/"), name.strip_prefix("refs/tags/"));
        let is_found = match follow {
            Reference::Default => name == "HEAD",
            Reference::Branch(wanted) => branch == Some(wanted),
            Reference::Tag(wanted) => tag == Some(wanted),
            Reference::Name(wanted) => name == wanted,
            // `tag^{}` names no version.
            Reference::Versions(range) => {
                let found = tag.and_then(VersionTag::parse).filter(|tag| range.contains(tag));
                let is_higher = found.is_some() && self.version < found;
                if is_higher {
                    self.version = found;
                }
                is_higher
            }
            // `tag^{}` is the object behind a tag, and cannot be requested.
            Reference::Commit(_) if name.ends_with("^{}") => false,
            Reference::Commit(wanted) => {
                if (branch.is_some() || tag.is_some()) && self.all.len() < ALL_MAX {
                    self.all.push(id);
                }
                *wanted == id
            }
        };
        if is_found {
            self.found = Some(id);
        }
        Ok(())
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
