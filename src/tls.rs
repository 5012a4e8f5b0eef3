//! The one place that chooses the cryptography behind TLS: ring.
//!
//! With two providers in one process, or none, rustls and what builds on it panic at the first connection.

/// Installs the provider for the whole process. May be called again, which does nothing.
pub fn install() {
    // An error says that a provider is installed already: ours, by an earlier call.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
