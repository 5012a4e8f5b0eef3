//! Limits on what a remote may make us do. Limits on files are [`tidegate_core::snapshot::Limits`].

use std::time::Duration;

/// Longest list of references that is read. A repository with 100,000 branches and tags needs 8 MiB.
pub const ADVERTISEMENT_BYTES_MAX: u64 = 64 << 20;
/// Largest pack that is taken. Definitions and module objects are text; a gigabyte of it, compressed, is not ours.
pub const PACK_BYTES_MAX: u64 = 1 << 30;
/// Most objects in a pack; it bounds the memory for the index, some 100 bytes an object.
pub const PACK_OBJECTS_MAX: usize = 10_000_000;
/// Most redirects that are followed, one after another.
pub const REDIRECTS_MAX: usize = 5;
/// Deepest folder that is read. Git itself has no limit; our walk is recursive.
pub const DEPTH_MAX: usize = 64;
/// Most entries in all folders together that are looked at, whether they matter or not.
pub const ENTRIES_MAX: usize = 2_000_000;
/// How long we wait beyond a deadline for a fetch to notice it, before it is left to itself: name resolution and
/// file systems cannot be interrupted.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(2);
/// Packs after which a mirror is packed anew; every fetch adds one, and every read looks into all of them.
pub const PACKS_MAX: usize = 50;
