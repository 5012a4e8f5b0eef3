//! The one place that chooses the cryptography behind TLS, and where randomness comes from: ring.
//!
//! With two providers in one process, or none, rustls and what builds on it panic at the first connection.
//!
//! Of what both sides can, AES-128 with SHA-256 is preferred: its strength is that of the curves, and processors have
//! instructions for SHA-256 where ring has none for SHA-384, which made up an eighth of each handshake.
//!
//! ring is not a validated module: [`Algorithms::Approved`] says that only algorithms which FIPS 140-3 approves are
//! offered and accepted, and no more.

use std::sync::Arc;

use rustls::{
    CipherSuite,
    crypto::{
        CryptoProvider,
        ring::{cipher_suite, default_provider, kx_group},
    },
};

/// What TLS may be made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithms {
    /// All that the provider has.
    #[default]
    All,
    /// AES-GCM and the curves P-256 and P-384: neither ChaCha20 nor X25519.
    Approved,
}

/// What all TLS of this program is made with.
pub fn provider(algorithms: Algorithms) -> Arc<CryptoProvider> {
    let all = all();
    Arc::new(match algorithms {
        Algorithms::All => all,
        Algorithms::Approved => CryptoProvider {
            cipher_suites: vec![
                cipher_suite::TLS13_AES_128_GCM_SHA256,
                cipher_suite::TLS13_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
                cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ],
            kx_groups: vec![kx_group::SECP256R1, kx_group::SECP384R1],
            ..all
        },
    })
}

/// Installs the provider for the whole process. May be called again, which does nothing.
pub fn install() {
    // An error says that a provider is installed already: ours, by an earlier call.
    let _ = all().install_default();
}

/// All that ring has, in our order.
fn all() -> CryptoProvider {
    let mut all = default_provider();
    all.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    all
}

/// Random bytes that nobody can guess; `None` if the system has none to give.
pub fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}
