//! What reports changes in a runtime, on real API servers: installed piece by piece, repaired, taken over, removed.

mod end_to_end;
mod objects;
mod rotation;
mod take_over;
mod world;
