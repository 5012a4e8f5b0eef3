//! Hostile and broken input: what one object, one repository, one registry, one server, one client or one template does
//! may not stop the others. `cargo test survive` runs all of them.

mod client;
mod object;
mod pod;
mod registry;
mod repository;
mod server;
mod template;
