//! All integration tests, in one binary.

#[allow(dead_code, reason = "a vocabulary for tests: not every word is used at every time")]
mod harness;
mod testbed;
mod tidy;
