//! What a process knows of the Kyma in a runtime between passes. Pure.

use std::sync::Arc;

use tidegate_core::api::{
    Kyma,
    kyma::{KymaSpec, KymaStatus},
};

/// What a process knows of the Kyma in one runtime between passes.
#[derive(Debug, Default)]
pub(in crate::runtime) struct KnownCounterpart {
    /// As it was last read or written; none if it was not read yet, or is not there.
    pub(in crate::runtime) live: Option<Arc<Kyma>>,
    /// Its specification as the last pass left it. What is read later may differ: that is what users did since.
    pub(super) left: Option<KymaSpec>,
}

// === impl KnownCounterpart ===

impl KnownCounterpart {
    /// It has got this copy of the status.
    pub(super) fn shows(&mut self, status: KymaStatus) {
        if let Some(kyma) = &mut self.live {
            Arc::make_mut(kyma).status = Some(status);
        }
    }
}
