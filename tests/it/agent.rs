//! The agent over real sockets: what its API server and its control plane see of it.

mod admission;
pub(crate) mod certificates;
mod control_plane;
mod credentials;
mod delivery;
mod hostile;
pub(crate) mod http;
mod neighbours;
mod pair;
mod process;
pub(crate) mod stage;
