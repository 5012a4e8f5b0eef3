//! The watch path: a change in a runtime triggers work in the control plane within a second.
//!
//! ```text
//!  runtime: API server ── AdmissionReview ─▶ agent ── POST /v2/<manager>/event, mTLS ─▶ control plane: listener ─▶ queue
//! ```
//!
//! The protocol is contract `v2` of the Runtime Watcher, in both directions: our agent can send to Lifecycle Manager's
//! listener, and our listener accepts the Go agents. An event is a hint, not a state: *this object changed*. The
//! receiver reads the object itself. So an event may arrive twice, late or merged with others; only losing an event is
//! an error.
//!
//! * [`event`] is the message. It writes exact bytes and reads everything that agents ever sent. Pure.
//! * [`identity`] identifies the sender by its certificate or by the header of a trusted gateway. Pure.
//! * [`listener`] accepts events, for the daemon and for any other operator; [`metrics`] counts them.
//!
//! An event carries no objects: no spec, no status and no value of a Secret leaves the runtime.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod event;
pub mod identity;
pub mod listener;
pub mod metrics;
mod peers;

pub use peers::{ParseNetworkError, Peers};
