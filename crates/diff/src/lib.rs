//! What changes between two renderings of a landscape, or between a rendering and what clusters hold.
//!
//! [`model`] is the result as a value: every distinct difference once, with all that it hits, in a total order, so that
//! two runs over the same inputs print the same bytes. Secrets are masked before anything is compared, and nothing
//! that is unknown is ever counted as unchanged.
//!
//! Nothing here reads a cluster or a repository, and nothing here decides what is desired: `plan` and `render` do.

pub mod clean;
pub mod compare;
mod escape;
pub mod gather;
pub mod github;
pub mod gitlab;
pub mod hunk;
pub mod json;
pub mod junit;
pub mod live;
pub mod markdown;
pub mod mask;
pub mod model;
pub mod names;
pub mod policy;
mod remark;
pub mod sample;
pub mod sarif;
mod summary;
pub mod text;
mod words;

#[cfg(test)]
mod fixture;
