//! What a process knows of the Kyma in a runtime between passes. Pure.

use std::sync::Arc;

use tidegate_core::api::{
    Kyma,
    kyma::{KymaSpec, KymaStatus},
};

/// What a process knows of the Kyma in one runtime between passes.
#[derive(Debug, Default)]
pub(in crate::runtime) struct KnownCounterpart {
    /// The Kyma as last read or written; none if it has not been read or does not exist.
    pub(in crate::runtime) live: Option<Arc<Kyma>>,
    /// Why it cannot be read, as it is now. Then `live` is as it was before.
    pub(in crate::runtime) unreadable: Option<String>,
    /// Its specification after the last pass. A later read may differ by the edits of users.
    pub(super) left: Option<KymaSpec>,
}

// === impl KnownCounterpart ===

impl KnownCounterpart {
    /// Notes the copy of the status.
    pub(super) fn shows(&mut self, status: KymaStatus) {
        if let Some(kyma) = &mut self.live {
            Arc::make_mut(kyma).status = Some(status);
        }
    }
}
