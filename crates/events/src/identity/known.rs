//! Caches the results of checking certificates, because a runtime presents the same one for weeks.

use std::{collections::HashMap, sync::Arc};

use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use tidegate_process::lock::Mutex;

use super::{Authorities, Error, Identity, xfcc};

/// A cache of identities by certificate, for concurrent use.
///
/// A result is kept until the CAs change. The validity period is checked on every call. Memory is bounded: entries that
/// were not used lately are dropped.
#[derive(Debug, Default)]
pub struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    authorities: Option<Authorities>,
    young: Answers,
    /// The previous generation; an entry that is used moves back to `young`.
    old: Answers,
}

type Answers = HashMap<[u8; 32], Result<Arc<Identity>, Error>>;

/// Size of one generation: twice the largest known fleet. An entry takes a few hundred bytes.
const YOUNG_MAX: usize = 16_384;

// === impl Known ===

impl Known {
    /// Replaces the trusted CAs. With `None`, every certificate is rejected.
    pub fn set_authorities(&self, authorities: Option<Authorities>) {
        *self.lock() = State { authorities, ..State::default() };
    }

    /// Whether any CA is trusted.
    #[cfg(test)]
    pub fn has_authorities(&self) -> bool {
        self.lock().authorities.is_some()
    }

    /// The identity behind the certificate chain of a handshake.
    ///
    /// # Errors
    ///
    /// Fails if the chain is empty, or if its first certificate is malformed, not valid now or not issued by a trusted
    /// CA.
    pub fn by_chain(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Arc<Identity>, Error> {
        let (certificate, between) = chain.split_first().ok_or(Error::Missing)?;
        self.answer(certificate, now, || Ok(certificate.to_vec()), between)
    }

    /// The identity behind an element of the header.
    ///
    /// # Errors
    ///
    /// Fails if the element contains no certificate, or if this is malformed, not valid now or not issued by a trusted
    /// CA.
    pub fn by_element(&self, element: &[u8], now: UnixTime) -> Result<Arc<Identity>, Error> {
        let token = xfcc::token(element)?;
        self.answer(token, now, || xfcc::der(token), &[])
    }

    fn answer(
        &self,
        presented: &[u8],
        now: UnixTime,
        der: impl FnOnce() -> Result<Vec<u8>, Error>,
        between: &[CertificateDer<'_>],
    ) -> Result<Arc<Identity>, Error> {
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let (known, authorities) = self.lock().recall(&digest);
        let answer = match known {
            Some(answer) => answer,
            None => {
                let authorities = authorities.ok_or(Error::NoAuthorities)?;
                // Verify signatures outside the lock, because they take long.
                let answer = der().and_then(|der| judge(&authorities, &der.into(), between, now));
                self.lock().remember(digest, &authorities, &answer);
                answer
            }
        };
        let identity = answer?;
        identity.check_validity(now)?;
        Ok(identity)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let state = self.lock();
        state.young.len() + state.old.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// Reads and verifies a certificate. Checks the validity period first, because verifying signatures is expensive.
fn judge(
    authorities: &Authorities,
    certificate: &CertificateDer<'_>,
    between: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<Arc<Identity>, Error> {
    let identity = Identity::parse(certificate)?;
    identity.check_validity(now)?;
    authorities.check(certificate, between, now)?;
    Ok(Arc::new(identity))
}

// === impl State ===

impl State {
    fn recall(&mut self, digest: &[u8; 32]) -> (Option<Result<Arc<Identity>, Error>>, Option<Authorities>) {
        if let Some(answer) = self.young.get(digest) {
            return (Some(answer.clone()), None);
        }
        match self.old.remove(digest) {
            Some(answer) => {
                self.keep(*digest, answer.clone());
                (Some(answer), None)
            }
            None => (None, self.authorities.clone()),
        }
    }

    fn remember(&mut self, digest: [u8; 32], by: &Authorities, answer: &Result<Arc<Identity>, Error>) {
        let still = self.authorities.as_ref().is_some_and(|now| now.is_same(by));
        // A certificate may become valid later, so these results are not kept.
        let lasts = !matches!(answer, Err(Error::NotValidYet | Error::Expired));
        if still && lasts {
            self.keep(digest, answer.clone());
        }
    }

    fn keep(&mut self, digest: [u8; 32], answer: Result<Arc<Identity>, Error>) {
        if YOUNG_MAX <= self.young.len() {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(digest, answer);
    }
}
