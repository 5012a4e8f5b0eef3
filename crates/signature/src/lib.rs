//! Who signed a commit or a tag of git, and whether that signer may change what it changes.
//!
//! Everything is a pure function of bytes, keys and the time: nothing is read, sent or cached. The parsers are those of
//! `pgp` and `ssh-key`, written in Rust; [`limits`] bounds what they get.
//!
//! * [`Keys`] are the keys of a Secret: armored OpenPGP public keys, and an `allowed_signers` file of SSH.
//! * [`SignedObject`] is a commit or tag as git stores it, split into what is signed and the signature.
//! * [`verify`] says who signed an object, or a [`Refusal`] by name.
//! * [`judge()`] decides on a revision: its signature, and the signers of everything that changed a guarded path.
//!
//! It refuses SHA-1 and other weak algorithms, keys that are expired or revoked, keys that are expired now although
//! they were valid when they signed (the time in a signature is the signer's claim), signatures over another object,
//! tags under another name, and S/MIME.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests fail by panic"))]

mod judge;
mod keys;
pub mod limits;
mod object;
mod openpgp;
mod refusal;
mod ssh;

pub use self::{
    judge::{Verified, judge},
    keys::{Keys, KeysError},
    object::{ObjectKind, SignedObject},
    refusal::Refusal,
};

use jiff::Timestamp;

/// Who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signer {
    /// The names that the keys give: the mail addresses and user ids of an OpenPGP key, the principals of an SSH key.
    pub names: Vec<String>,
    /// The key: the fingerprint of the OpenPGP primary key in upper-case hexadecimal digits, or `SHA256:…` of the SSH
    /// key or of the CA that certified it.
    pub key: String,
}

/// Who signed an object.
///
/// # Errors
///
/// Fails with the reason why its signature proves nothing.
pub fn verify(object: &SignedObject, keys: &Keys, now: Timestamp) -> Result<Signer, Refusal> {
    let signature = object.signature()?;
    match signature {
        object::Signature::OpenPgp(armored) => openpgp::verify(armored, object.payload(), keys.certificates(), now),
        object::Signature::Ssh(armored) => {
            let signed_at = object.signed_at().ok_or(Refusal::Strange("it has no date"))?;
            ssh::verify(armored, object.payload(), keys.allowed_signers(), signed_at, now)
        }
    }
}

// === impl Signer ===

impl Signer {
    /// Whether a name in a rule means this signer: one of its names, or its key in any spelling. Whoever has an OpenPGP
    /// key can give it any name: see [`judge()`].
    pub fn is(&self, name: &str) -> bool {
        self.is_key(name) || self.names.iter().any(|own| own == name)
    }

    /// Whether a name in a rule is this signer's key, in any spelling.
    fn is_key(&self, name: &str) -> bool {
        let compact = |text: &str| {
            let text: String = text.chars().filter(|character| !character.is_whitespace()).collect();
            text.strip_prefix("0x").unwrap_or(&text).to_ascii_uppercase()
        };
        if self.key.starts_with("SHA256:") { self.key == name } else { self.key == compact(name) }
    }
}

impl std::fmt::Display for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.names.first() {
            Some(name) => write!(f, "{name} with key {}", self.key),
            None => write!(f, "key {}", self.key),
        }
    }
}

#[cfg(test)]
mod tests;
