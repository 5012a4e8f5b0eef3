//! The one place that chooses the cryptography behind TLS, and where randomness comes from: ring.
//!
//! With two providers in one process, or none, rustls and what builds on it panic at the first connection.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// What all TLS of this program is made with.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Installs the provider for the whole process. May be called again, which does nothing.
pub fn install() {
    // An error says that a provider is installed already: ours, by an earlier call.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Random bytes that nobody can guess; `None` if the system has none to give.
pub fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).ok()?;
    Some(bytes)
}
