//! The private key with which Tidegate authenticates over ssh. Pure.
//!
//! Refuses keys that are too weak to trust, and formats whose decryption may cost any amount of memory.

use russh::keys::{
    Algorithm, PrivateKey, decode_secret_key,
    ssh_key::{Error as KeyError, Kdf},
};

/// What an ssh URL needs. `Debug` shows no secret.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SshAccess {
    /// The private key, as text.
    pub identity: Option<String>,
    /// The passphrase of the private key.
    pub passphrase: Option<String>,
    /// The content of `known_hosts`.
    pub known_hosts: Option<String>,
}

/// Why a private key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityProblem {
    /// There is no Secret.
    #[error(
        "an ssh URL needs a private key: add a Secret with `identity` and `known_hosts`, and name it in spec.secretRef"
    )]
    NoSecret,
    /// The Secret has none.
    #[error("the Secret has no `identity`: an ssh URL needs a private key, for example of `ssh-keygen -t ed25519`")]
    Missing,
    /// It is the public key.
    #[error("the `identity` is a public key: add the private key, which is the file without .pub")]
    Public,
    /// It has a format of another program.
    #[error("the `identity` is a PuTTY key: convert it with `puttygen KEY -O private-openssh`")]
    Putty,
    /// It is not a private key.
    #[error("the `identity` is not a private key in PEM: use the whole file of `ssh-keygen -t ed25519`")]
    Invalid,
    /// It is encrypted, and there is no passphrase.
    #[error("the `identity` is encrypted: add its passphrase to the Secret as `password`")]
    Encrypted,
    /// The passphrase is wrong.
    #[error("the `identity` cannot be decrypted: `password` is not its passphrase")]
    Passphrase,
    /// It is encrypted in an old format.
    #[error("the `identity` is encrypted in a format that is not supported: convert it with `ssh-keygen -p -f KEY`")]
    Format,
    /// Decrypting it would take too long.
    #[error("the `identity` needs more than {} rounds to decrypt: use `ssh-keygen -p -a 100 -f KEY`", ROUNDS_MAX)]
    Rounds,
    /// Its algorithm is broken.
    #[error("the `identity` is an ssh-dss key, which is weak: use a key of `ssh-keygen -t ed25519`")]
    Dsa,
    /// It is too short.
    #[error("the `identity` is an RSA key with less than {} bits, which is weak: use a longer one", RSA_BITS_MIN)]
    Short,
    /// It needs a device.
    #[error("the `identity` is for a hardware security key: use a key of `ssh-keygen -t ed25519`")]
    Hardware,
    /// Its algorithm is not known.
    #[error("the `identity` has an algorithm that is not supported: use ed25519, ecdsa or rsa")]
    Algorithm,
}

/// Shortest RSA key, of Tidegate and of hosts.
pub(crate) const RSA_BITS_MIN: u32 = 2048;
/// Most rounds of bcrypt for the passphrase of a key: about 15 s. `ssh-keygen` makes 24.
const ROUNDS_MAX: u32 = 1_000;

// === impl SshAccess ===

impl SshAccess {
    /// The private key.
    ///
    /// # Errors
    ///
    /// Fails if there is none, if it is in another format or too weak, or if the passphrase does not fit.
    pub(crate) fn key(&self) -> Result<PrivateKey, IdentityProblem> {
        let text = self.identity.as_deref().ok_or(IdentityProblem::Missing)?;
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        let begins = |start: &str| lines.iter().any(|line| line.starts_with(start));
        if begins("PuTTY-User-Key-File-") {
            return Err(IdentityProblem::Putty);
        }
        if begins("ssh-") || begins("ecdsa-sha2-") || begins("-----BEGIN PUBLIC KEY") {
            return Err(IdentityProblem::Public);
        }
        if begins("-----BEGIN DSA PRIVATE KEY") {
            return Err(IdentityProblem::Dsa);
        }
        if begins("-----BEGIN ENCRYPTED PRIVATE KEY") || begins("Proc-Type: 4,ENCRYPTED") {
            return Err(IdentityProblem::Format);
        }
        let text = format!("{}\n", lines.join("\n").trim());
        let key = if begins("-----BEGIN OPENSSH PRIVATE KEY") { self.open(&text)? } else { decode(&text)? };
        check(&key)?;
        Ok(key)
    }

    /// A key in OpenSSH's own format.
    fn open(&self, text: &str) -> Result<PrivateKey, IdentityProblem> {
        let key = PrivateKey::from_openssh(text).map_err(|_| IdentityProblem::Invalid)?;
        if !key.is_encrypted() {
            return Ok(key);
        }
        match key.kdf() {
            Kdf::Bcrypt { rounds, .. } if *rounds <= ROUNDS_MAX => {}
            Kdf::Bcrypt { .. } => return Err(IdentityProblem::Rounds),
            _ => return Err(IdentityProblem::Format),
        }
        let passphrase = self.passphrase.as_deref().ok_or(IdentityProblem::Encrypted)?;
        key.decrypt(passphrase).map_err(|error| match error {
            KeyError::Crypto => IdentityProblem::Passphrase,
            KeyError::AlgorithmUnknown | KeyError::AlgorithmUnsupported { .. } => IdentityProblem::Format,
            // A wrong passphrase may give bytes that are not a key.
            _ => IdentityProblem::Passphrase,
        })
    }
}

impl std::fmt::Debug for SshAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SshAccess(…)")
    }
}

fn decode(text: &str) -> Result<PrivateKey, IdentityProblem> {
    decode_secret_key(text, None).map_err(|_| IdentityProblem::Invalid)
}

fn check(key: &PrivateKey) -> Result<(), IdentityProblem> {
    match key.algorithm() {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => Ok(()),
        Algorithm::Rsa { .. } => {
            let bits =
                key.public_key().key_data().rsa().map_or(0, russh::keys::ssh_key::public::RsaPublicKey::key_size);
            if bits < RSA_BITS_MIN { Err(IdentityProblem::Short) } else { Ok(()) }
        }
        Algorithm::Dsa => Err(IdentityProblem::Dsa),
        Algorithm::SkEcdsaSha2NistP256 | Algorithm::SkEd25519 => Err(IdentityProblem::Hardware),
        _ => Err(IdentityProblem::Algorithm),
    }
}

#[cfg(test)]
mod tests;
