//! What this package's integration tests use beside the command line. Not an interface: it changes without notice.
//!
//! A feature enables this module, and only the tests do that. All other modules are private, so a build without the
//! feature reports everything that the program does not use.

#![allow(missing_docs, reason = "the items have their documentation where they are")]

pub mod adopt {
    pub use crate::cli::adopt::{KcpArguments, ReleaseArguments, TakeArguments, finish, kcp, release, take};
}

pub mod config {
    pub use crate::config::{Config, Options, Registries};
}

pub mod controller {
    pub use crate::controller::{Context, Queue, Subject, dispatch, events};
}

pub mod daemon {
    pub use crate::daemon::{Daemon, Ended, EventReceiver, Mode, Report, hook_routes};
}

pub mod gateway {
    pub use crate::gateway::{certificates, is_close_to_expiry, overdue, pki, reconcile};
}

pub mod queue {
    pub use crate::queue::{Finish, Limits, Trigger};
}

pub mod source {
    pub use crate::source::{reconcile, registry};
}

pub mod stores {
    pub use crate::stores::{AccessSecret, Stores, feed};
}

pub mod watcher {
    pub use crate::watcher::reconcile;
}

pub use crate::{components::Components, maintenance::Maintenance, metrics::Metrics, renderer::Renderer};
