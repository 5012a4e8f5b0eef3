//! One client of a port: unfinished handshakes, unfinished requests, floods of reviews.

mod agent;
mod listener;
