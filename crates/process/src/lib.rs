//! What every program of Tidegate needs: the time of day and randomness, the TLS provider, refused addresses and
//! redirects, retry delays, the connections of a port, logs, and lines on a terminal.
//!
//! Nothing here depends on Kubernetes or git, so the agent and the event listener stay small.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub mod address;
pub mod ambient;
pub mod exit;
pub mod lock;
pub mod memory;
pub mod period;
pub mod port;
pub mod port_connections;
pub mod redirect;
pub mod retry;
pub mod say;
pub mod telemetry;
pub mod tls;

pub use exit::Exit;
