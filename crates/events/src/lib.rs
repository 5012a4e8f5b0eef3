//! The watch path: a change in a runtime becomes work in the control plane within a second.
//!
//! ```text
//!  runtime: API server ── AdmissionReview ─▶ agent ── POST /v2/<manager>/event, mTLS ─▶ control plane: listener ─▶ queue
//! ```
//!
//! The wire is the Runtime Watcher's contract `v2`, both ways: our agent speaks to Lifecycle Manager's listener, our
//! listener hears the Go agents. What is said on it is a hint, never a state: *something happened to this object*. Whoever
//! hears it looks for himself, so an event may be sent twice, late or merged with others, and nothing is wrong; only that
//! none comes at all must not happen.
//!
//! * [`event`] is the message: exact bytes out, tolerant of all that ever was sent in. Pure.
//! * [`identity`] says who sends: from a certificate, or from the header of a gateway that we trust. Pure.
//! * [`listener`] takes events, for the daemon and for any other operator; [`metrics`] is what it counts.
//!
//! Refuses to carry objects: neither spec nor status nor any value of a Secret leaves the runtime.

pub mod event;
pub mod identity;
pub mod listener;
pub mod metrics;
mod peers;

pub use peers::{ParseNetworkError, Peers};
