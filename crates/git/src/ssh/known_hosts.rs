//! Which keys a host may have: the content of `known_hosts`, as `sshd(8)` describes it. Pure.
//!
//! A line that cannot be read vouches for no host, so it is skipped. One exception: a line with `@revoked` takes trust
//! away, so an unreadable one makes the whole content invalid.

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::{digest, hmac};

use crate::url::SSH_PORT;

/// The lines of `known_hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownHosts {
    entries: Vec<Entry>,
    /// The first line that was skipped because it cannot be read.
    flaw: Option<LineFlaw>,
}

/// A line that cannot be read, from 1, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {what}")]
pub(crate) struct LineFlaw {
    line: usize,
    what: &'static str,
}

/// Why the content vouches for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KnownHostsError {
    /// There is no line with a key.
    #[error("known_hosts contains no key: run `ssh-keyscan` for the git server, and compare the keys with its docs")]
    Empty,
    /// No line with a key can be read.
    #[error("known_hosts contains no valid line: {0}")]
    Invalid(LineFlaw),
    /// A line that takes trust away cannot be read.
    #[error("known_hosts contains a @revoked line that cannot be read: {0}")]
    Revoked(LineFlaw),
}

/// The keys of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostKeys<'a> {
    /// Its own keys, as they are on the wire.
    pub(crate) keys: Vec<&'a [u8]>,
    /// The keys of CAs that may sign a certificate of it.
    pub(crate) authorities: Vec<&'a [u8]>,
    /// Keys that it must not have, and that must have signed nothing.
    pub(crate) revoked: Vec<&'a [u8]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    marker: Marker,
    hosts: Hosts,
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    Key,
    Authority,
    Revoked,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    Patterns(Vec<Pattern>),
    /// The HMAC of one name, with SHA-1 as the format defines it. It hides the name and authenticates nothing.
    Hashed {
        salt: Vec<u8>,
        hash: Vec<u8>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    is_negated: bool,
    glob: String,
}

/// Length of a hash of SHA-1.
const HASH_LEN: usize = 20;

// === impl KnownHosts ===

impl KnownHosts {
    /// Parses the content. Fails if it contains no key, or a `@revoked` line that cannot be read.
    pub(crate) fn parse(text: &str) -> Result<KnownHosts, KnownHostsError> {
        let mut known = KnownHosts { entries: Vec::new(), flaw: None };
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Entry::parse(line) {
                Ok(entry) => known.entries.push(entry),
                Err(what) => {
                    let flaw = LineFlaw { line: index + 1, what };
                    if line.starts_with("@revoked") {
                        return Err(KnownHostsError::Revoked(flaw));
                    }
                    known.flaw.get_or_insert(flaw);
                }
            }
        }
        match (known.entries.is_empty(), known.flaw) {
            (false, _) => Ok(known),
            (true, Some(flaw)) => Err(KnownHostsError::Invalid(flaw)),
            (true, None) => Err(KnownHostsError::Empty),
        }
    }

    /// The keys of a host. As in OpenSSH, lines for a host without a port are for all its ports, unless a line for the
    /// port has a key. CAs are those of all lines.
    pub(crate) fn of(&self, host: &str, port: u16) -> HostKeys<'_> {
        let host = host.to_ascii_lowercase();
        if port == SSH_PORT {
            return self.named(&host);
        }
        let with_port = self.named(&format!("[{host}]:{port}"));
        let without = self.named(&host);
        // A pattern may match both names.
        fn union<'a>(mut all: Vec<&'a [u8]>, more: Vec<&'a [u8]>) -> Vec<&'a [u8]> {
            let new: Vec<_> = more.into_iter().filter(|key| !all.contains(key)).collect();
            all.extend(new);
            all
        }
        HostKeys {
            keys: if with_port.keys.is_empty() { without.keys } else { with_port.keys },
            authorities: union(with_port.authorities, without.authorities),
            revoked: union(with_port.revoked, without.revoked),
        }
    }

    /// The first line that was skipped because it cannot be read.
    pub(crate) fn flaw(&self) -> Option<LineFlaw> {
        self.flaw
    }

    fn named(&self, name: &str) -> HostKeys<'_> {
        let mut found = HostKeys::default();
        for entry in self.entries.iter().filter(|entry| entry.hosts.contain(name)) {
            let list = match entry.marker {
                Marker::Key => &mut found.keys,
                Marker::Authority => &mut found.authorities,
                Marker::Revoked => &mut found.revoked,
            };
            list.push(entry.key.as_slice());
        }
        found
    }
}

// === impl Entry ===

impl Entry {
    fn parse(line: &str) -> Result<Entry, &'static str> {
        let mut words = line.split_ascii_whitespace();
        let mut next = || words.next().ok_or("lacks a host name, a type of key or a key");
        let first = next()?;
        let (marker, hosts) = match first {
            "@cert-authority" => (Marker::Authority, next()?),
            "@revoked" => (Marker::Revoked, next()?),
            other if other.starts_with('@') => return Err("has an unknown marker"),
            hosts => (Marker::Key, hosts),
        };
        let (name, key) = (next()?, next()?);
        let key = STANDARD.decode(key).map_err(|_| "has a key that is not base64")?;
        if algorithm(&key) != Some(name) {
            return Err("has a key of another type than it says");
        }
        Ok(Entry { marker, hosts: Hosts::parse(hosts)?, key })
    }
}

/// The name of the algorithm of a key or signature as it is on the wire.
pub(crate) fn algorithm(blob: &[u8]) -> Option<&str> {
    let (length, rest) = blob.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    std::str::from_utf8(rest.get(..length)?).ok()
}

/// The fingerprint of a key, as `ssh-keygen -l` prints it.
pub(crate) fn fingerprint(key: &[u8]) -> String {
    let hash = digest::digest(&digest::SHA256, key);
    format!("SHA256:{}", STANDARD.encode(hash).trim_end_matches('='))
}

// === impl Hosts ===

impl Hosts {
    fn parse(text: &str) -> Result<Hosts, &'static str> {
        if let Some(hashed) = text.strip_prefix('|') {
            let (salt, hash) = hashed.strip_prefix("1|").and_then(|rest| rest.split_once('|')).ok_or(HASHED)?;
            let decode = |text| STANDARD.decode(text).map_err(|_| HASHED);
            let (salt, hash) = (decode(salt)?, decode(hash)?);
            if hash.len() != HASH_LEN || salt.is_empty() {
                return Err(HASHED);
            }
            return Ok(Hosts::Hashed { salt, hash });
        }
        let patterns = text.split(',').filter(|pattern| !pattern.is_empty()).map(|pattern| {
            let (is_negated, glob) = pattern.strip_prefix('!').map_or((false, pattern), |glob| (true, glob));
            Pattern { is_negated, glob: glob.to_ascii_lowercase() }
        });
        Ok(Hosts::Patterns(patterns.collect()))
    }

    /// Whether they contain a name in lower case. A pattern that is negated wins.
    fn contain(&self, name: &str) -> bool {
        match self {
            Hosts::Patterns(patterns) => {
                let mut matching = patterns.iter().filter(|pattern| glob_matches(&pattern.glob, name)).peekable();
                matching.peek().is_some() && matching.all(|pattern| !pattern.is_negated)
            }
            Hosts::Hashed { salt, hash } => {
                let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                hmac::verify(&key, name.as_bytes(), hash).is_ok()
            }
        }
    }
}

const HASHED: &str = "has a hashed host name that is not |1|salt|hash";

/// Whether a text matches a pattern with `*` and `?`. Takes at most the product of their lengths.
fn glob_matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut at, mut of) = (0, 0);
    // After the last star: the position in the pattern, and how much of the text the star takes.
    let mut star: Option<(usize, usize)> = None;
    while of < text.len() {
        match (glob.get(at), star) {
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, of));
            }
            (Some(&c), _) if c == b'?' || c == text[of] => {
                at += 1;
                of += 1;
            }
            (_, Some((after, taken))) => {
                star = Some((after, taken + 1));
                at = after;
                of = taken + 1;
            }
            (_, None) => return false,
        }
    }
    glob[at..].iter().all(|&c| c == b'*')
}

#[cfg(test)]
mod tests;
