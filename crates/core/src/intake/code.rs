//! The codes of this module's diagnostics. They are stable. `docs/diagnostics.md` explains each,
//! and a test compares the two.

/// Another source owns the object.
pub const OWNED_BY_SOURCE: &str = "owned-by-source";
/// The object exists without Tidegate's ownership label.
pub const FOREIGN_OBJECT: &str = "foreign-object";
/// The source that owns the object no longer declares it, but has applied other content.
pub const OTHER_CONTENT: &str = "other-content";
/// Flux manages the object.
pub const MANAGED_BY_FLUX: &str = "managed-by-flux";
/// Argo CD manages the object.
pub const MANAGED_BY_ARGO_CD: &str = "managed-by-argocd";
/// The object is being deleted.
pub const TERMINATING: &str = "terminating";
/// The definition refers to one that is held back.
pub const REFERS_TO_WITHHELD: &str = "refers-to-withheld";
/// A user must confirm a prune.
pub const PRUNE_UNCONFIRMED: &str = "prune-unconfirmed";
/// The prune exceeds the limit.
pub const PRUNE_LIMIT: &str = "prune-limit";
/// A user must confirm what a definition takes from runtimes.
pub const REMOVAL_UNCONFIRMED: &str = "removal-unconfirmed";
/// A source that has not been read might declare an object that is removed from git.
pub const PRUNE_WAITS: &str = "prune-waits";
/// Another tool manages an object that is removed from git.
pub const PRUNE_OTHER_TOOL: &str = "prune-other-tool";
/// The API server rejected the object.
pub const APPLY_FAILED: &str = "apply-failed";
/// The repository's file about itself is invalid.
pub const SOURCE_FILE: &str = "source-file";
/// The GitSource differs from the repository's file about itself.
pub const SOURCE_DIFFERS: &str = "source-differs";
/// A push was found by polling although the source has a receiver.
pub const PUSH_NOT_DELIVERED: &str = "push-not-delivered";
/// Nothing reads a key of the Secret.
pub const SECRET_KEY_UNREAD: &str = "secret-key-unread";
/// The tag that a source follows was moved.
pub const TAG_MOVED: &str = "tag-moved";
