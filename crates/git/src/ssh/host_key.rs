//! Whether a host is the one that is meant: its key or certificate against `known_hosts`. Pure.
//!
//! Nothing is trusted on first use: an unknown key is an error that names its fingerprint.

use std::fmt;

use russh::keys::{
    Algorithm, Certificate, HashAlg, PublicKey, PublicKeyBase64 as _, PublicKeyOrCertificate,
    ssh_key::certificate::CertType,
};

use super::{
    identity::RSA_BITS_MIN,
    known_hosts::{HostKeys, fingerprint},
};

/// Why a host is not trusted. `Display` continues a sentence that begins with its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKeyProblem {
    /// There is no `known_hosts`.
    NoKnownHosts(HostKey),
    /// `known_hosts` has no key of the host.
    Unknown(HostKey),
    /// `known_hosts` has no CA that signed the certificate of the host.
    UnknownAuthority(HostKey),
    /// `known_hosts` has other keys of the host.
    Changed {
        /// The key that the host has.
        found: HostKey,
        /// The fingerprints in `known_hosts`.
        expected: Vec<String>,
    },
    /// `known_hosts` revokes the key, or the CA of the certificate.
    Revoked(HostKey),
    /// The key is weak.
    Weak(HostKey),
    /// The certificate is not valid, for this reason.
    Certificate(&'static str),
}

/// A key of a host, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey {
    /// Its type.
    kind: String,
    /// Its fingerprint, as `ssh-keygen -l` prints it.
    fingerprint: String,
}

/// Compares a key or a certificate of a host with what is known of it. `now` is in seconds since 1970.
pub(super) fn check(
    found: &PublicKeyOrCertificate,
    host: &str,
    known: Option<&HostKeys<'_>>,
    now: u64,
) -> Result<(), HostKeyProblem> {
    let key = found.public_key();
    let Some(known) = known else { return Err(HostKeyProblem::NoKnownHosts(HostKey::new(&key))) };
    let blob = key.public_key_bytes();
    if known.revoked.contains(&blob.as_slice()) {
        return Err(HostKeyProblem::Revoked(HostKey::new(&key)));
    }
    if is_weak(&key) {
        return Err(HostKeyProblem::Weak(HostKey::new(&key)));
    }
    let by_certificate = found.certificate().map(|certificate| check_certificate(certificate, host, known, now));
    match by_certificate {
        // As in OpenSSH, a host whose CA is not known may have a key that is.
        Some(Err(HostKeyProblem::UnknownAuthority(_))) | None if known.keys.contains(&blob.as_slice()) => Ok(()),
        Some(Err(HostKeyProblem::UnknownAuthority(_))) if known.authorities.is_empty() => {
            Err(plain_problem(&key, known))
        }
        Some(verdict) => verdict,
        None => Err(plain_problem(&key, known)),
    }
}

/// Why a key that is none of the known ones is not trusted.
fn plain_problem(key: &PublicKey, known: &HostKeys<'_>) -> HostKeyProblem {
    if known.keys.is_empty() {
        return HostKeyProblem::Unknown(HostKey::new(key));
    }
    let expected = known.keys.iter().map(|key| fingerprint(key)).collect();
    HostKeyProblem::Changed { found: HostKey::new(key), expected }
}

fn check_certificate(
    certificate: &Certificate,
    host: &str,
    known: &HostKeys<'_>,
    now: u64,
) -> Result<(), HostKeyProblem> {
    let authority = PublicKey::new(certificate.signature_key().clone(), "");
    let blob = authority.public_key_bytes();
    if known.revoked.contains(&blob.as_slice()) {
        return Err(HostKeyProblem::Revoked(HostKey::new(&authority)));
    }
    if !known.authorities.contains(&blob.as_slice()) {
        return Err(HostKeyProblem::UnknownAuthority(HostKey::new(&authority)));
    }
    let is_sha1 = matches!(certificate.signature().algorithm(), Algorithm::Rsa { hash: None });
    if is_weak(&authority) || is_sha1 {
        return Err(HostKeyProblem::Weak(HostKey::new(&authority)));
    }
    let problem = |why| Err(HostKeyProblem::Certificate(why));
    if certificate.cert_type() != CertType::Host {
        return problem("is for users, not for hosts");
    }
    if !certificate.valid_principals().iter().any(|name| name.eq_ignore_ascii_case(host)) {
        return problem("is for other hosts: add the host of the URL to its principals");
    }
    if now < certificate.valid_after() {
        return problem("is not valid yet: check the clocks of the git server and of this machine");
    }
    if certificate.valid_before() <= now {
        return problem("has expired: renew it, and check the clock of this machine");
    }
    if !certificate.critical_options().is_empty() {
        return problem("has a critical option, and none is known for hosts");
    }
    match certificate.validate_at(now, [&authority.fingerprint(HashAlg::Sha256)]) {
        Ok(()) => Ok(()),
        Err(_) => problem("has an invalid signature"),
    }
}

fn is_weak(key: &PublicKey) -> bool {
    match key.key_data().rsa() {
        Some(rsa) => rsa.key_size() < RSA_BITS_MIN,
        None => matches!(key.algorithm(), Algorithm::Dsa),
    }
}

// === impl HostKey ===

impl HostKey {
    fn new(key: &PublicKey) -> HostKey {
        let kind = match key.algorithm() {
            Algorithm::Rsa { .. } => "ssh-rsa".to_owned(),
            Algorithm::Other(_) => "unknown".to_owned(),
            other => other.as_str().to_owned(),
        };
        HostKey { kind, fingerprint: fingerprint(&key.public_key_bytes()) }
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.fingerprint)
    }
}

// === impl HostKeyProblem ===

impl fmt::Display for HostKeyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostKeyProblem::NoKnownHosts(key) => write!(
                f,
                "has the host key {key}, and the Secret has no known_hosts: compare the fingerprint with the docs of \
                 the git server, and add the key of `ssh-keyscan` to the Secret"
            ),
            HostKeyProblem::Unknown(key) => write!(
                f,
                "has the host key {key}, which known_hosts does not contain: compare the fingerprint with the docs of \
                 the git server, and add the key of `ssh-keyscan` to known_hosts in the Secret"
            ),
            HostKeyProblem::UnknownAuthority(key) => write!(
                f,
                "has a host certificate of the CA {key}, which known_hosts does not contain: compare the fingerprint \
                 with the docs of the git server, and add a line with @cert-authority to known_hosts in the Secret"
            ),
            HostKeyProblem::Changed { found, expected } => write!(
                f,
                "has the host key {found}, but known_hosts has {}: someone may intercept the connection; if the git \
                 server has a new key, compare the fingerprint with its docs, and correct known_hosts in the Secret",
                expected.join(", ")
            ),
            HostKeyProblem::Revoked(key) => {
                write!(f, "has the host key or CA {key}, which known_hosts revokes: replace the key of the git server")
            }
            HostKeyProblem::Weak(key) => {
                write!(f, "has the host key or CA {key}, which is weak: give the git server an ed25519 key")
            }
            HostKeyProblem::Certificate(why) => write!(f, "has a host certificate that {why}"),
        }
    }
}

#[cfg(test)]
mod tests;
