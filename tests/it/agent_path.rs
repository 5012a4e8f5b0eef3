//! What reports changes in a runtime: installed piece by piece, repaired, taken over, removed.
//!
//! Tests start in the order of their names, and these are the longest ones: named so, they end before the others.

mod agent;
mod end_to_end;
mod heard;
mod objects;
mod rotation;
mod take_over;
mod wire;
mod world;
mod zero_loss;
