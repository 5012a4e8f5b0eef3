//! One server: git servers that never answer, that fail for a while, and runtimes whose access changes.

mod access;
mod lanes;
mod outage;
mod prune;
