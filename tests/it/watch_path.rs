//! What reports changes in a runtime, on real API servers: installed piece by piece, repaired, taken over, removed.

mod objects;
mod rotation;
mod world;
