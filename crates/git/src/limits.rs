//! Limits on the work that a remote can cause. For limits on files, see [`tidegate_core::snapshot::Limits`].

use std::time::Duration;

/// Limit of the list of references. A repository with 100,000 branches and tags needs 8 MiB.
pub const ADVERTISEMENT_BYTES_MAX: u64 = 64 << 20;
/// Limit of a pack. Definitions and module objects are text; a compressed gigabyte is not plausible.
pub const PACK_BYTES_MAX: u64 = 1 << 30;
/// Limit of objects in a pack. It bounds the memory for the index, some 100 bytes per object.
pub const PACK_OBJECTS_MAX: usize = 10_000_000;
/// Limit of consecutive redirects.
pub const REDIRECTS_MAX: usize = 5;
/// Limit of the depth of folders. Git has none, but the walk is recursive.
pub const DEPTH_MAX: usize = 64;
/// Limit of entries in all folders together, relevant or not.
pub const ENTRIES_MAX: usize = 2_000_000;
/// How long to wait after the deadline until a fetch stops. Then it is abandoned, because name resolution and file
/// systems cannot be interrupted.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(2);
/// Number of packs that triggers repacking. Every fetch adds one, and every read searches all of them.
pub const PACKS_MAX: usize = 50;
