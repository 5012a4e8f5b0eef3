//! All integration tests, in one binary.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests fail by panic, and say what they wait for")]
#![allow(clippy::needless_pass_by_value, reason = "values are written where they are used")]

mod agent;
mod agent_path;
mod certificates;
mod cluster;
mod confine;
mod conformance;
mod daemon;
mod demo;
mod deploy;
mod diagnostics;
mod diff;
mod events;
mod export;
mod fake;
mod fleet;
mod fuzz;
mod git;
mod gitsource;
mod golden;
#[allow(dead_code, reason = "a vocabulary for tests: not every word is used at every time")]
mod harness;
mod limits;
mod listener;
mod live_diff;
mod messages;
mod monitoring;
mod observe;
mod oci;
mod outputs;
mod pages;
mod pictures;
mod pipelines;
mod planted;
mod reasons;
mod release;
mod removal;
mod rollout;
mod runtimes;
mod series;
mod setup;
mod sim;
mod simulation;
mod source;
mod stage;
mod survive;
mod take_over;
mod telling;
mod testbed;
mod tidy;
mod truth;
mod unanswered;
mod upgrade;
mod validate;
mod watchers;
