//! What reports changes in a runtime: installed piece by piece, repaired, taken over, removed.

mod agent;
mod end_to_end;
mod heard;
mod objects;
mod rotation;
mod take_over;
mod wire;
mod world;
mod zero_loss;
