//! Limits on the work that a remote can cause. For limits on files, see [`tidegate_core::snapshot::Limits`].

use std::time::Duration;

/// Limit of the list of references. A repository with 100,000 branches and tags needs 8 MiB.
pub const ADVERTISEMENT_BYTES_MAX: u64 = 64 << 20;
/// Limit of an answer of GitHub's API with a token. It has about a kilobyte.
pub const GITHUB_ANSWER_BYTES_MAX: u64 = 64 << 10;
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
/// Limit of commits whose messages a command reads. A change with more is no pull request that someone approves.
pub const MESSAGES_MAX: usize = 1_000;
/// How long to wait after the deadline until a fetch stops. Then it is abandoned, because name resolution and file
/// systems cannot be interrupted.
pub const DEADLINE_GRACE: Duration = Duration::from_secs(2);
/// Number of packs that triggers repacking. Every fetch adds one, and every read searches all of them.
pub const PACKS_MAX: usize = 50;
/// Longest wait that a server can ask for with `Retry-After`. Hosts limit requests per hour at most.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest path in a repository: the limit of Linux for paths of files.
pub const PATH_BYTES_MAX: usize = 4096;
/// Processes that may unpack objects at the same time. With two, a slow repository does not block all others, and their
/// memory stays within the limit of the pod.
pub const ENGINES_MAX: usize = 2;
/// Memory that such a process may write to, in MiB. It is enough for a commit of many files of 1 MiB; a delta needs
/// the file before and after the change.
pub const ENGINE_MEMORY_MIB: u64 = 96;
/// CPU time of one task on objects. The pack of a repository of 1 GiB needs about half of it.
pub const ENGINE_COMPUTING: Duration = Duration::from_secs(120);
/// Elapsed time of one task on objects. A busy machine may give the process little CPU time.
pub const ENGINE_TIME: Duration = Duration::from_secs(300);
/// How long a commit that exceeded a limit is not unpacked again, because each attempt costs all that the limit allows.
pub const EXHAUSTED_RETRY: Duration = Duration::from_secs(60 * 60);

/// Commits between the active revision and a new one, if the signers of paths are checked: months of a busy repository.
pub const EVIDENCE_COMMITS_MAX: usize = 10_000;
/// Those of them that change guarded paths. Each has a signature to verify.
pub const EVIDENCE_TOUCHED_MAX: usize = 1_000;
/// Size of these commits together. It bounds the memory of the daemon.
pub const EVIDENCE_BYTES_MAX: usize = 16 << 20;
/// Guarded paths that one commit changes. For a merge, each is compared with all parents.
pub const EVIDENCE_PATHS_MAX: usize = 100_000;
/// Entries of folders that are read or compared, together: enough for [`EVIDENCE_COMMITS_MAX`] commits of one file each
/// in a folder of 6,000. They are read within [`ENGINE_COMPUTING`].
pub const EVIDENCE_STEPS_MAX: usize = 200_000_000;
/// Parents of a commit. Each is compared with each other one.
pub const EVIDENCE_PARENTS_MAX: usize = 16;
/// Tags that name each other.
pub const EVIDENCE_TAGS_MAX: usize = 8;

/// What a process may use for one task on objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Memory that it may write to, in MiB.
    pub memory_mib: u64,
    /// CPU time.
    pub computing: Duration,
    /// Elapsed time.
    pub time: Duration,
}

// === impl EngineLimits ===

impl Default for EngineLimits {
    fn default() -> EngineLimits {
        EngineLimits { memory_mib: ENGINE_MEMORY_MIB, computing: ENGINE_COMPUTING, time: ENGINE_TIME }
    }
}
