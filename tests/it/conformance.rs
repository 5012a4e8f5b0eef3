//! What the upstream systems do, as facts about us: each file one part of their behaviour.

mod catalog;
mod crds;
mod inject;
mod maintenance;
mod mandatory;
pub(crate) mod oci;
mod readiness;
mod removal;
mod texts;
