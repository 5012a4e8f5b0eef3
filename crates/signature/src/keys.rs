//! The trusted keys: the content of a Secret, or of files.

use jiff::Timestamp;

use crate::{Signer, limits, openpgp::Certificate, ssh::AllowedSigner};

/// The trusted keys.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    openpgp: Vec<Certificate>,
    ssh: Vec<AllowedSigner>,
}

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct KeysError {
    /// The key of the Secret, or the file.
    pub name: String,
    /// The line, from 1, where that is known.
    pub line: Option<usize>,
    /// What is wrong, in one sentence.
    pub problem: String,
}

/// The key of a Secret with the signers of SSH.
const ALLOWED_SIGNERS: &str = "allowed_signers";
const PUBLIC: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
const PRIVATE: [&str; 2] = ["-----BEGIN PGP PRIVATE KEY BLOCK-----", "-----BEGIN OPENSSH PRIVATE KEY-----"];

// === impl Keys ===

impl Keys {
    /// Reads the keys of a Secret, by name and content: `allowed_signers` is a file of SSH, any other one has armored
    /// OpenPGP public keys.
    ///
    /// # Errors
    ///
    /// Fails if one cannot be read, if there is a private key, or if there is no key at all.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Keys, KeysError> {
        let mut keys = Keys::default();
        let mut bytes = 0;
        for (name, content) in files {
            let error = |problem: String| KeysError { name: name.to_owned(), line: None, problem };
            bytes += content.len();
            if limits::KEYS_BYTES_MAX < bytes {
                return Err(error("all keys together are larger than 1 MiB".to_owned()));
            }
            let text = std::str::from_utf8(content).map_err(|_| error("it is not text".to_owned()))?;
            if PRIVATE.iter().any(|begin| text.contains(begin)) {
                let problem = "it contains a private key: replace that key, and keep only public keys here";
                return Err(error(problem.to_owned()));
            }
            // On the command line, the name is a path.
            if name.rsplit('/').next() == Some(ALLOWED_SIGNERS) {
                keys.read_allowed_signers(name, text)?;
            } else {
                keys.read_openpgp(name, text)?;
            }
        }
        if keys.openpgp.is_empty() && keys.ssh.is_empty() {
            let problem = "there is no key: add armored OpenPGP public keys, or an allowed_signers file".to_owned();
            return Err(KeysError { name: "verify.secretRef".to_owned(), line: None, problem });
        }
        Ok(keys)
    }

    /// Another OpenPGP key that is valid now and claims the same name as this one.
    pub(crate) fn rival(&self, signer: &Signer, name: &str, now: Timestamp) -> Option<&str> {
        // The names of SSH keys come from the operator.
        if signer.is_key(name) || !self.openpgp.iter().any(|one| one.fingerprint() == signer.key) {
            return None;
        }
        let mut others = self.openpgp.iter().filter(|one| one.fingerprint() != signer.key);
        others.find(|one| one.claims(name, now)).map(Certificate::fingerprint)
    }

    pub(crate) fn certificates(&self) -> &[Certificate] {
        &self.openpgp
    }

    pub(crate) fn allowed_signers(&self) -> &[AllowedSigner] {
        &self.ssh
    }

    fn read_allowed_signers(&mut self, name: &str, text: &str) -> Result<(), KeysError> {
        for (index, line) in text.lines().enumerate() {
            let error = |problem| KeysError { name: name.to_owned(), line: Some(index + 1), problem };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if limits::SSH_LINES_MAX <= self.ssh.len() {
                return Err(error(format!("there are more than {} signers", limits::SSH_LINES_MAX)));
            }
            self.ssh.push(AllowedSigner::parse(line).map_err(error)?);
        }
        Ok(())
    }

    fn read_openpgp(&mut self, name: &str, text: &str) -> Result<(), KeysError> {
        let error = |problem: String| KeysError { name: name.to_owned(), line: None, problem };
        let starts: Vec<usize> = text.match_indices(PUBLIC).map(|(at, _)| at).collect();
        if starts.is_empty() {
            let problem = "it is no armored OpenPGP public key; signers of SSH are read from allowed_signers";
            return Err(error(problem.to_owned()));
        }
        for (index, start) in starts.iter().enumerate() {
            let end = starts.get(index + 1).copied().unwrap_or(text.len());
            for certificate in Certificate::parse(&text[*start..end]).map_err(error)? {
                certificate.add_to(&mut self.openpgp).map_err(error)?;
            }
        }
        Ok(())
    }
}
