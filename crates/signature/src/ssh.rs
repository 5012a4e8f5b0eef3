//! SSH signatures, and the `allowed_signers` file of `ssh-keygen`.
//!
//! A line has principals, options, a key and a comment. `valid-after` and `valid-before` must hold at the time of the
//! commit and now: the first is a claim of the signer. Times without `Z` are in UTC, because a daemon has no other
//! zone.

use jiff::Timestamp;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents};
use signature::Verifier as _;
use ssh_key::{
    Algorithm, Certificate, HashAlg, PublicKey, SshSig,
    certificate::CertType,
    public::{KeyData, RsaPublicKey},
};

use crate::{Signer, limits, refusal::Refusal};

/// One line of an `allowed_signers` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllowedSigner {
    principals: Vec<String>,
    key: KeyData,
    /// Whether the key is a CA: it certifies the keys that sign.
    is_authority: bool,
    namespaces: Option<Vec<String>>,
    valid_after: Option<i64>,
    valid_before: Option<i64>,
}

/// The namespace of git's signatures.
const NAMESPACE: &str = "git";

/// Who signed these bytes at `signed_at`, in seconds since 1970. Fails if the signature is invalid, or if no signer may
/// have made it then.
pub(crate) fn verify(
    armored: &str,
    payload: &[u8],
    signers: &[AllowedSigner],
    signed_at: i64,
    now: Timestamp,
) -> Result<Signer, Refusal> {
    let signature = SshSig::from_pem(armored).map_err(|_| Refusal::NotUnderstood("it is not an SSH signature"))?;
    let now = now.as_second();
    let (key, certificate) = match signature.public_key() {
        KeyData::Certificate(certificate) => (certificate.public_key(), Some(&**certificate)),
        key => (key, None),
    };
    let shown = fingerprint(key);
    if signature.namespace() != NAMESPACE {
        return Err(Refusal::OtherNamespace { namespace: signature.namespace().chars().take(100).collect() });
    }
    check_algorithm(key, &signature.signature().algorithm())?;
    if now.saturating_add(limits::CLOCK_SKEW_MAX) < signed_at {
        return Err(Refusal::SignatureFromFuture { key: shown });
    }
    let signer = match certificate {
        Some(certificate) => certified(certificate, signers, signed_at, now)?,
        None => listed(key, &shown, signers, signed_at, now)?,
    };
    let data = SshSig::signed_data(NAMESPACE, signature.hash_alg(), payload)
        .map_err(|_| Refusal::NotUnderstood("it is not an SSH signature"))?;
    let is_valid = match key {
        KeyData::Rsa(key) => verify_rsa(key, &signature, &data),
        key => key.verify(&data, signature.signature()).is_ok(),
    };
    if is_valid { Ok(signer) } else { Err(Refusal::BadSignature { key: shown }) }
}

/// The fingerprint as `ssh-keygen -l` prints it.
fn fingerprint(key: &KeyData) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

/// Refuses weak algorithms by name.
fn check_algorithm(key: &KeyData, algorithm: &Algorithm) -> Result<(), Refusal> {
    let weak = |algorithm: &str| Err(Refusal::WeakAlgorithm { algorithm: algorithm.to_owned() });
    match (key, algorithm) {
        (KeyData::Dsa(_), _) | (_, Algorithm::Dsa) => weak("DSA"),
        (KeyData::Rsa(_), Algorithm::Rsa { hash: None }) => weak("SHA-1 (ssh-rsa)"),
        (KeyData::Rsa(key), Algorithm::Rsa { hash: Some(_) }) => {
            let bits = usize::try_from(key.key_size()).unwrap_or(usize::MAX);
            match bits {
                limits::RSA_BITS_MIN..=limits::RSA_BITS_MAX => Ok(()),
                bits if bits < limits::RSA_BITS_MIN => weak(&format!("an RSA key of {bits} bits")),
                _ => Err(Refusal::NotUnderstood("its RSA key is larger than 8,192 bits")),
            }
        }
        (KeyData::Ecdsa(_) | KeyData::Ed25519(_) | KeyData::SkEcdsaSha2NistP256(_) | KeyData::SkEd25519(_), _) => {
            Ok(())
        }
        // Both enums may grow.
        _ => Err(Refusal::NotUnderstood("its algorithm is unknown")),
    }
}

/// The signer whose key is in a line of its own.
fn listed(key: &KeyData, shown: &str, signers: &[AllowedSigner], signed_at: i64, now: i64) -> Result<Signer, Refusal> {
    let lines = signers.iter().filter(|line| !line.is_authority && line.key == *key);
    let mut refusal = Refusal::UnknownKey { key: shown.to_owned() };
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        match line.check(shown, signed_at, now) {
            Ok(()) => names.extend(line.principals.iter().filter(|name| !name.starts_with('!')).cloned()),
            Err(found) => refusal = found,
        }
    }
    if names.is_empty() { Err(refusal) } else { Ok(Signer { names, key: shown.to_owned() }) }
}

/// The signer whose key was certified by a CA.
fn certified(
    certificate: &Certificate,
    signers: &[AllowedSigner],
    signed_at: i64,
    now: i64,
) -> Result<Signer, Refusal> {
    let authority = certificate.signature_key();
    let (shown, ca) = (fingerprint(certificate.public_key()), fingerprint(authority));
    let unfit = |why| Refusal::KeyNotForSigning { key: shown.clone(), why };
    let mut refusal = Refusal::UnknownKey { key: format!("{shown} of CA {ca}") };
    let lines: Vec<&AllowedSigner> =
        signers.iter().filter(|line| line.is_authority && line.key == *authority).collect();
    if lines.is_empty() {
        return Err(refusal);
    }
    check_algorithm(authority, &certificate.signature().algorithm())?;
    if certificate.cert_type() != CertType::User {
        return Err(unfit("is certified for hosts"));
    }
    if !certificate.critical_options().is_empty() {
        return Err(unfit("is certified with critical options, which do not apply to git"));
    }
    // For the CA's own signature; the times follow.
    certificate.verify_signature().map_err(|_| unfit("has a certificate that its CA did not sign"))?;
    let at = |time: i64| u64::try_from(time).unwrap_or(0);
    if at(signed_at) < certificate.valid_after() || at(now) < certificate.valid_after() {
        return Err(Refusal::KeyNotYetValid { key: shown });
    }
    if certificate.valid_before() <= at(now) || certificate.valid_before() <= at(signed_at) {
        return Err(Refusal::KeyExpired { key: shown });
    }
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        match line.check(&ca, signed_at, now) {
            Ok(()) => {
                let principals = certificate.valid_principals().iter();
                names.extend(principals.filter(|name| matches(&line.principals, name)).cloned());
            }
            Err(found) => refusal = found,
        }
    }
    if names.is_empty() { Err(refusal) } else { Ok(Signer { names, key: ca }) }
}

/// Verifies with ring, as TLS does: it has no private keys to leak.
fn verify_rsa(key: &RsaPublicKey, signature: &SshSig, data: &[u8]) -> bool {
    let parameters = match signature.signature().algorithm() {
        Algorithm::Rsa { hash: Some(HashAlg::Sha256) } => &RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rsa { hash: Some(HashAlg::Sha512) } => &RSA_PKCS1_2048_8192_SHA512,
        _ => return false,
    };
    let (Some(n), Some(e)) = (key.n().as_positive_bytes(), key.e().as_positive_bytes()) else { return false };
    RsaPublicKeyComponents { n, e }.verify(parameters, data, signature.signature_bytes()).is_ok()
}

/// Whether a list of patterns matches a name: `*` and `?` are wildcards, and a pattern with `!` excludes.
fn matches(patterns: &[String], name: &str) -> bool {
    let mut is_matched = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(pattern) if glob(pattern.as_bytes(), name.as_bytes()) => return false,
            Some(_) => {}
            None => is_matched |= glob(pattern.as_bytes(), name.as_bytes()),
        }
    }
    is_matched
}

/// In time proportional to the product of both lengths.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, matched)) => {
                    star = Some((at, matched + 1));
                    p = at + 1;
                    n = matched + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

// === impl AllowedSigner ===

impl AllowedSigner {
    /// Reads a line. Fails with a sentence about what is wrong.
    pub(crate) fn parse(line: &str) -> Result<AllowedSigner, String> {
        let (principals, mut rest) = word(line);
        let mut signer = AllowedSigner {
            principals: principals.split(',').map(|name| name.trim_matches('"').to_owned()).collect(),
            key: KeyData::Ed25519(ssh_key::public::Ed25519PublicKey([0; 32])),
            is_authority: false,
            namespaces: None,
            valid_after: None,
            valid_before: None,
        };
        if signer.principals.iter().any(String::is_empty) {
            return Err("the line begins with an empty principal".to_owned());
        }
        if signer.principals.iter().all(|name| name.starts_with('!')) {
            return Err("the line only excludes principals: add one that it allows, for example `*`".to_owned());
        }
        loop {
            let (first, after) = word(rest);
            if first.is_empty() {
                return Err("there is no key; a line is `principals [options] key-type key`".to_owned());
            }
            if is_key_type(&first) {
                break;
            }
            for option in options(&first) {
                signer.set_option(&option)?;
            }
            rest = after;
        }
        let key = PublicKey::from_openssh(rest.trim()).map_err(|_| "the key cannot be read".to_owned())?;
        signer.key = key.key_data().clone();
        Ok(signer)
    }

    fn set_option(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let value = value.map(|value| value.trim_matches('"'));
        match (name.to_ascii_lowercase().as_str(), value) {
            ("cert-authority", None) => self.is_authority = true,
            ("namespaces", Some(value)) => {
                self.namespaces = Some(value.split(',').map(str::to_owned).collect());
            }
            ("valid-after", Some(value)) => self.valid_after = Some(time(value)?),
            ("valid-before", Some(value)) => self.valid_before = Some(time(value)?),
            _ => return Err(format!("the option {name:?} is unknown or has no value")),
        }
        Ok(())
    }

    /// Whether the line holds for git, at both times.
    fn check(&self, key: &str, signed_at: i64, now: i64) -> Result<(), Refusal> {
        let key = || key.to_owned();
        if self.namespaces.as_ref().is_some_and(|namespaces| !matches(namespaces, NAMESPACE)) {
            return Err(Refusal::KeyNotForSigning { key: key(), why: "is not allowed in the namespace git" });
        }
        let (first, last) = (signed_at.min(now), signed_at.max(now));
        if self.valid_after.is_some_and(|after| first < after) {
            return Err(Refusal::KeyNotYetValid { key: key() });
        }
        if self.valid_before.is_some_and(|before| before <= last) {
            return Err(Refusal::KeyExpired { key: key() });
        }
        Ok(())
    }
}

fn is_key_type(word: &str) -> bool {
    ["ssh-", "ecdsa-sha2-", "sk-ssh-", "sk-ecdsa-sha2-"].iter().any(|begin| word.starts_with(begin))
}

/// The first word, in which quotes hold spaces, and the rest.
fn word(text: &str) -> (String, &str) {
    let text = text.trim_start();
    let mut is_quoted = false;
    let end = text.find(|character: char| {
        is_quoted ^= character == '"';
        character.is_ascii_whitespace() && !is_quoted
    });
    let (first, rest) = text.split_at(end.unwrap_or(text.len()));
    let first = match first.strip_prefix('"').and_then(|first| first.strip_suffix('"')) {
        Some(inner) if !inner.contains('"') => inner,
        _ => first,
    };
    (first.to_owned(), rest)
}

/// The options in a word, separated by commas outside of quotes.
fn options(word: &str) -> Vec<String> {
    let mut is_quoted = false;
    let parts = word.split(|character: char| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    });
    parts.map(str::to_owned).collect()
}

/// Seconds since 1970 of `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, with or without `Z`.
fn time(text: &str) -> Result<i64, String> {
    let digits = text.strip_suffix('Z').unwrap_or(text);
    let parse = || {
        if !matches!(digits.len(), 8 | 12 | 14) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |part| part.parse::<i8>().ok());
        let year = digits.get(..4)?.parse().ok()?;
        let civil = jiff::civil::DateTime::new(
            year,
            number(4, 6)?,
            number(6, 8)?,
            number(8, 10)?,
            number(10, 12)?,
            number(12, 14)?,
            0,
        );
        Some(civil.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
    };
    parse().ok_or_else(|| format!("invalid time {text:?}: use YYYYMMDD or YYYYMMDDHHMMSS, for example 20270131"))
}

#[cfg(test)]
mod tests;
