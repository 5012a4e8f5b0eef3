//! A Kubernetes API in memory.
//!
//! [`builtin`] knows the built-in kinds, [`fault`] stands before a server, this one or a real one, and lets it fail by a
//! seed; [`patch`] says what an object is after a write: JSON patch, merge patch and server-side apply, with the managed
//! fields that the real API server would keep. It is pure: values in, values out.

#[expect(dead_code, reason = "the server that uses it comes next")]
mod body;
pub mod builtin;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod clock;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod convert;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod crd;
pub mod fault;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod identity;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod metadata;
pub mod patch;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod refusal;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod request;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod resource;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod selector;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod store;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod table;
#[expect(dead_code, reason = "the server that uses it comes next")]
mod text;
