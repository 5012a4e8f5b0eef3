//! The one place that chooses the TLS provider and the source of random bytes: ring.
//!
//! With no provider or two in one process, rustls panics at the first connection.
//!
//! AES-128 with SHA-256 comes first. Its strength matches the curves, and processors have instructions for SHA-256.
//! Without them for SHA-384 in ring, SHA-384 took an eighth of each handshake.
//!
//! ring is not a validated module. [`Algorithms::Approved`] only means that TLS offers and accepts no algorithm that
//! FIPS 140-3 does not approve.

use std::sync::Arc;

use rustls::{
    CipherSuite,
    crypto::{
        CryptoProvider,
        ring::{cipher_suite, default_provider, kx_group},
    },
};

/// Which algorithms TLS may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithms {
    /// All algorithms of the provider.
    #[default]
    All,
    /// AES-GCM and the curves P-256 and P-384; neither ChaCha20 nor X25519.
    Approved,
}

/// The provider for all TLS of this program.
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

/// Installs the provider for the whole process. Repeated calls do nothing.
pub fn install() {
    // An error means that an earlier call has installed it.
    let _ = all().install_default();
}

/// All algorithms of ring, in our order of preference.
fn all() -> CryptoProvider {
    let mut all = default_provider();
    all.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    all
}

/// Secure random bytes; `None` if the system provides none.
pub fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}
