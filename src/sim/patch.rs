//! What an object is after a patch, as kube-apiserver answers it.
//!
//! Pure functions of values: no clock, no store, no I/O. What they do is compared with a real server, case by case, in
//! `tests/it/sim/`.
//!
//! Strategic merge patch is not here: nothing that we run sends it.

mod json;
mod merge;
mod syntax;

pub use self::{
    json::{OPERATIONS_MAX, json_patch},
    merge::merge_patch,
    syntax::syntax_error,
};

/// Why a patch cannot be applied. Each variant bears the message of the server's answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not of its format: 400, `BadRequest`.
    #[error("{0}")]
    Malformed(String),
    /// The patch does more than a patch may: 413, `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// The patch does not fit the object: 422, without a reason other than the code's.
    #[error("{0}")]
    Unfitting(String),
}

#[cfg(test)]
mod tests;
