//! A Kubernetes API in memory.
//!
//! [`patch`] says what an object is after a write: JSON patch, merge patch and server-side apply, with the managed
//! fields that the real API server would keep. It is pure: values in, values out.

pub mod patch;
