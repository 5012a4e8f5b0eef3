//! The codes of this module's diagnostics. Stable: `docs/diagnostics.md` explains each, and a test compares the two.

/// Another source owns the object.
pub const OWNED_BY_SOURCE: &str = "owned-by-source";
/// The object exists and was not applied by us.
pub const FOREIGN_OBJECT: &str = "foreign-object";
/// Flux applies the object.
pub const MANAGED_BY_FLUX: &str = "managed-by-flux";
/// Argo CD applies the object.
pub const MANAGED_BY_ARGO_CD: &str = "managed-by-argocd";
/// The object is being deleted.
pub const TERMINATING: &str = "terminating";
/// The definition needs one that is withheld.
pub const REFERS_TO_WITHHELD: &str = "refers-to-withheld";
/// Somebody must confirm a prune.
pub const PRUNE_UNCONFIRMED: &str = "prune-unconfirmed";
/// Too many prunes at once.
pub const PRUNE_LIMIT: &str = "prune-limit";
/// What is gone from git is managed by another tool.
pub const PRUNE_OTHER_TOOL: &str = "prune-other-tool";
/// The control plane did not accept the object.
pub const APPLY_FAILED: &str = "apply-failed";
