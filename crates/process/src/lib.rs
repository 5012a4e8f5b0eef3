//! What every program of Tidegate stands on: the time of day and chance, the TLS provider, delays between retries, the
//! log, and lines on a terminal.
//!
//! Nothing here knows Kubernetes, git or Tidegate's own words, so the agent and the event listener can use it without
//! becoming larger.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub mod ambient;
pub mod exit;
pub mod lock;
pub mod period;
pub mod retry;
pub mod say;
pub mod telemetry;
pub mod tls;

pub use exit::Exit;
