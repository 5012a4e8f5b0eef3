//! Limits on the work that a registry can cause.

use std::time::Duration;

pub use tidegate_core::component::DESCRIPTOR_BYTES_MAX;

/// Limit of a manifest or index. The specification asks registries to accept 4 MiB; those of component descriptors have
/// 2 KiB.
pub const MANIFEST_BYTES_MAX: u64 = 1 << 20;
/// Limit of the configuration of a component descriptor, which names one blob.
pub const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// Limit of the blob with the descriptor, as it is sent and inflated: the descriptor itself, and what a tar archive
/// adds.
pub const DESCRIPTOR_BLOB_BYTES_MAX: u64 = 1 << 20;
/// Limit of a layer, as it is sent. The layers of Kyma's modules have at most 2 MiB, inflated.
pub const LAYER_BYTES_MAX: u64 = 64 << 20;
/// Limit of what is read of an inflated layer, and so of its YAML. It bounds the memory of one read. Smaller than
/// [`LAYER_BYTES_MAX`], because what follows the first file of an archive is not read.
pub const LAYER_INFLATED_BYTES_MAX: u64 = 32 << 20;
/// Limit of the answer of a token server.
pub const TOKEN_BYTES_MAX: u64 = 64 << 10;
/// Limit of consecutive redirects.
pub const REDIRECTS_MAX: usize = 5;
/// Limit of entries before the first regular file of an archive.
pub const TAR_ENTRIES_MAX: usize = 1000;
/// Limit of tokens that are kept, one for each repository. With more, all are requested again.
pub const TOKENS_MAX: usize = 1000;
/// Limit of concurrent downloads into the cache. With [`LAYER_BYTES_MAX`] it bounds the disk space beyond the quota.
pub const DOWNLOADS_MAX: usize = 4;
/// Processes that may unpack blobs at the same time. With two, a slow blob does not block all others, and their memory
/// stays within the limit of the pod.
pub const UNPACKERS_MAX: usize = 2;
/// Memory that such a process may write to, in MiB: the content, and a window of zstd that is as large, which needs
/// twice its size while it grows.
pub const UNPACK_MEMORY_MIB_MAX: u64 = 160;
/// CPU time of one blob. A layer of [`LAYER_BYTES_MAX`] needs a tenth of it.
pub const UNPACK_COMPUTING_MAX: Duration = Duration::from_secs(20);
/// Elapsed time of one blob. A busy machine may give the process little CPU time.
pub const UNPACK_TIME_MAX: Duration = Duration::from_secs(40);
/// Longest wait that a registry can ask for with `Retry-After`. Registries limit requests per hour at most.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(60 * 60);
/// How long to wait for a TCP connection to one address.
pub const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long to wait for a whole operation, from name resolution to the last byte, unless the caller says otherwise.
pub const OPERATION_MAX: Duration = Duration::from_secs(60);

/// What a process may use to unpack one blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpackLimits {
    /// Memory that it may write to, in MiB.
    pub memory_mib: u64,
    /// CPU time.
    pub computing: Duration,
    /// Elapsed time.
    pub time: Duration,
}

// === impl UnpackLimits ===

impl Default for UnpackLimits {
    fn default() -> UnpackLimits {
        UnpackLimits { memory_mib: UNPACK_MEMORY_MIB_MAX, computing: UNPACK_COMPUTING_MAX, time: UNPACK_TIME_MAX }
    }
}
