//! The base of a runtime as rendered, and as a process knows it between passes. Pure.

use std::sync::Arc;

use tidegate_core::{name::Key, object::Digest, render::SharedObjects};

use crate::runtime::objects::{Applied, Repairs};

/// What a process knows of the base of one runtime between passes.
#[derive(Debug, Default)]
pub(in crate::runtime) struct KnownBase {
    /// The objects as last applied; none if only the status of the Kyma tells.
    pub(super) applied: Option<Applied>,
    /// The objects that others undo.
    pub(super) repairs: Repairs,
    /// Passes in a row in which an object was not applied.
    pub(super) attempt: u32,
    /// Whether the runtime may have objects of a former base. The status may say otherwise: it is shown late, and an
    /// earlier base can come back.
    pub(super) is_unpruned: bool,
}

// === impl KnownBase ===

impl KnownBase {
    /// Notes that the runtime gets this base next.
    pub(super) fn follow(&mut self, base: &Base) {
        let is_other = |applied: &Applied| applied.objects.digest != base.objects.digest;
        self.is_unpruned |= self.applied.as_ref().is_some_and(is_other);
    }
}

/// The objects of all runtimes that get the same base.
#[derive(Debug)]
pub(super) struct Base {
    /// The objects.
    pub(super) objects: Arc<SharedObjects>,
    /// Digest of the objects and of the generations of their definitions. A definition that gets its former text again
    /// has a new digest: some runtimes may have the text in between.
    pub(super) digest: Digest,
    /// Why some objects were not rendered.
    pub(super) problems: Vec<String>,
    /// The image pull Secret in the control plane, if one is configured.
    pub(super) credentials: Option<Credentials>,
}

/// The image pull Secret in the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// It exists.
    Found,
    /// It does not exist. What runtimes have stays.
    Missing(Key),
}
