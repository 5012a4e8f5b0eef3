//! Conditions of resources of kcp landscapes. One that is false names what is missing.

/// Whether the definition keeps all rules.
pub const VALID: &str = "tidegate.dev/Valid";
/// Whether all Certificates of the resource are ready.
pub const CERTIFICATES: &str = "tidegate.dev/Certificates";
/// Whether everything exists that its objects mount, contain or come after.
pub const MOUNTS: &str = "tidegate.dev/Mounts";
/// Reason of [`MOUNTS`]: something exists and cannot be used. The reason is another one while something is missing.
pub const UNUSABLE: &str = "Unusable";
/// Whether all its objects are applied.
pub const OBJECTS: &str = "tidegate.dev/Objects";
/// Present and false while a CA or a key of service accounts of the resource is being replaced. Says how far that is.
pub const TRUST: &str = "tidegate.dev/Trust";
/// Present once the resource has a key of service accounts: the message is the certificate of the last one that a pass
/// has seen, in PEM.
pub const KEY: &str = "tidegate.dev/Key";
/// Present while the resource is being deleted. Says what it waits for.
pub const DELETION: &str = "tidegate.dev/Deletion";
/// Whether its objects are in the cluster that it asks for.
pub const CLUSTER: &str = "tidegate.dev/Cluster";
/// Present while other clusters may have objects of the resource: the message has their names and UIDs.
pub const PLACES: &str = "tidegate.dev/Places";
/// Whether what the resource asks for inside kcp is there.
pub const KCP: &str = "tidegate.dev/Kcp";
/// Reason of [`KCP`]: something is missing there that a user provides.
pub const MISSING_IN_KCP: &str = "Missing";
