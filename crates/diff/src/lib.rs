//! Computes the changes between two renderings of a landscape, or between a rendering and live
//! clusters.
//!
//! [`model`] is the result as a value: every distinct difference once, with everything that it
//! affects, in a total order. So two runs with the same inputs print the same bytes. Secrets are
//! masked before the comparison, and an unknown value never appears as unchanged.
//!
//! This crate reads no cluster and no repository. It does not decide what is desired: `plan` and
//! `render` do.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub mod clean;
pub mod compare;
mod escape;
pub mod gather;
pub mod github;
pub mod gitlab;
mod groups;
pub mod hunk;
pub mod json;
pub mod junit;
pub mod live;
pub mod markdown;
pub mod mask;
pub mod model;
pub mod names;
mod notable;
pub mod policy;
mod remark;
pub mod sample;
pub mod sarif;
mod summary;
pub mod text;
mod words;

#[cfg(test)]
mod fixture;
