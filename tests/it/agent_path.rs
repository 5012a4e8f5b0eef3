//! The agent in runtimes: how it is installed, repaired, taken over and removed.
//!
//! Tests start in the order of their names. These are the longest ones, and their name makes them start early.

pub(crate) mod agent;
mod end_to_end;
mod heard;
mod objects;
mod rotation;
mod take_over;
mod wire;
pub(crate) mod world;
mod zero_loss;
