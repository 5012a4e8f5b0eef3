//! One server: git servers that never answer or that fail, and runtimes whose access changes.

mod access;
mod git_errors;
mod lanes;
mod outage;
mod prune;
