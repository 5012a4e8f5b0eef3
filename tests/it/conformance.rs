//! What the upstream systems do, as facts about us: each file one part of their behaviour.

mod blocking;
mod catalog;
mod crds;
mod inject;
mod kymas;
mod land;
mod maintenance;
mod mandatory;
mod modules;
pub(crate) mod oci;
mod readiness;
mod removal;
mod texts;
