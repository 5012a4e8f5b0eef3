//! Tidegate.
pub mod api;
pub mod cli;
pub mod controller;
pub mod counterpart;
pub mod diagnostic;
pub mod git;
pub mod landscape;
pub mod name;
pub mod object;
pub mod plan;
pub mod queue;
pub mod retry;
pub mod revision;
pub mod schema;
pub mod snapshot;
pub mod status;
pub mod testbed;
