//! Whether a delivery is from who knows the secret.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::{Headers, Host};

/// The tokens of a receiver's Secret. Both are valid, so that a token can be rotated without losing a delivery.
///
/// `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct HookSecret {
    token: Vec<u8>,
    previous: Option<Vec<u8>>,
}

/// Why a Secret has no valid tokens. No message contains any of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookSecretError {
    /// The key is missing.
    #[error("has no key `token`")]
    Missing,
    /// A token is too short to be secret.
    #[error(
        "has a `{key}` of fewer than {} bytes; use a random one, for example of `openssl rand -hex 32`",
        HookSecret::TOKEN_BYTES_MIN
    )]
    Short {
        /// The key.
        key: &'static str,
    },
}

/// What a delivery shows to be authentic.
enum Proof<'a> {
    /// HMAC-SHA256 of the body.
    Signature([u8; 32]),
    /// The token itself.
    Token(&'a [u8]),
}

type HmacSha256 = Hmac<Sha256>;

// === impl HookSecret ===

impl HookSecret {
    /// The keys that are read.
    pub const KEYS: [&str; 2] = ["token", "previousToken"];
    /// Shortest token. A shorter one can be guessed offline from one signed delivery.
    pub const TOKEN_BYTES_MIN: usize = 16;

    /// Reads the keys `token` and `previousToken`. A line break at the end, which editors add, is part of no token.
    ///
    /// # Errors
    ///
    /// Fails if there is no token, or if a token is too short.
    pub fn from_data<'a>(data: impl Fn(&str) -> Option<&'a [u8]>) -> Result<HookSecret, HookSecretError> {
        let read = |key: &'static str| match data(key).map(<[u8]>::trim_ascii_end) {
            Some(token) if token.len() < HookSecret::TOKEN_BYTES_MIN => Err(HookSecretError::Short { key }),
            token => Ok(token.map(<[u8]>::to_vec)),
        };
        let previous = read("previousToken")?;
        Ok(HookSecret { token: read("token")?.ok_or(HookSecretError::Missing)?, previous })
    }

    /// A secret that no sender knows, for deliveries to names that have no receiver: they take the same time as a wrong
    /// signature.
    pub fn unknown(random: [u8; 32]) -> HookSecret {
        HookSecret { token: random.to_vec(), previous: None }
    }

    fn tokens(&self) -> [&[u8]; 2] {
        // The work is the same with one token and with two.
        [&self.token, self.previous.as_ref().unwrap_or(&self.token)]
    }
}

impl fmt::Debug for HookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HookSecret(…)")
    }
}

/// Whether the signature or token of a delivery belongs to one of the secret's tokens.
pub fn is_authentic(host: Host, headers: &Headers, body: &[u8], secret: &HookSecret) -> bool {
    let decoded = password(headers);
    let proof = match host {
        Host::GitLab => headers.get("x-gitlab-token").map(|token| Proof::Token(token.as_bytes())),
        Host::AzureDevOps => decoded.as_deref().map(Proof::Token),
        Host::GitHub => signature(headers.get("x-hub-signature-256"), "sha256="),
        Host::Gitea => signature(headers.get("x-gitea-signature"), ""),
        Host::Forgejo => signature(headers.get("x-forgejo-signature").or(headers.get("x-gitea-signature")), ""),
        Host::BitbucketCloud | Host::BitbucketServer => signature(headers.get("x-hub-signature"), "sha256="),
        Host::Generic => signature(headers.get("x-signature"), "sha256="),
    };
    let Some(proof) = proof else { return false };
    // Both are always compared: the time does not tell which one was right.
    secret.tokens().map(|token| proof.holds(token, body)).contains(&true)
}

/// A signature of 32 bytes in hexadecimal digits.
fn signature(text: Option<&str>, prefix: &str) -> Option<Proof<'static>> {
    let digits = text?.strip_prefix(prefix)?.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = u8::try_from(digit(0)? * 16 + digit(1)?).ok()?;
    }
    Some(Proof::Signature(bytes))
}

/// The password of basic authentication. The user name does not matter.
fn password(headers: &Headers) -> Option<Vec<u8>> {
    let (scheme, encoded) = headers.get("authorization")?.split_once(' ')?;
    let decoded = STANDARD.decode(encoded.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

// === impl Proof ===

impl Proof<'_> {
    /// Whether it belongs to this token. The time depends on lengths only.
    fn holds(&self, token: &[u8], body: &[u8]) -> bool {
        match self {
            Proof::Signature(signature) => hmac(token, body).verify_slice(signature).is_ok(),
            // Two MACs are compared in constant time, whatever the lengths of the two tokens.
            Proof::Token(shown) => hmac(token, shown).verify_slice(&hmac(token, token).finalize().into_bytes()).is_ok(),
        }
    }
}

fn hmac(key: &[u8], message: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of any length").chain_update(message)
}
