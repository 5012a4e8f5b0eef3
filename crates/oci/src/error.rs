//! The errors of registries. None of them contains text from a registry's answer, except names in a component
//! descriptor and the host of a token server, both cut and cleaned.

use std::{fmt, io, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use tidegate_core::component::{BlobDigest, DescriptorError};
use tidegate_process::retry::Class;

/// The operation that failed, and what it failed on. `from` names an artifact, a blob or a token server, without a
/// scheme.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operation exceeded its time-out.
    #[error("{from} took longer than {}", Seconds(*.timeout))]
    Deadline {
        /// What was read.
        from: String,
        /// The time-out.
        timeout: Duration,
    },
    /// The connection failed.
    #[error("cannot reach {from}: {why}")]
    Connect {
        /// What was read.
        from: String,
        /// The cause, in words of this crate.
        why: &'static str,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {from} is not trusted: if its CA is private, configure the CA certificate")]
    Certificate {
        /// What was read.
        from: String,
    },
    /// The given CAs cannot be read.
    #[error("the CA of the registry contains no valid PEM certificate")]
    Authorities,
    /// The certificates of the system cannot be used.
    #[error("cannot read the CA certificates of the system")]
    SystemAuthorities,
    /// The given credentials cannot be sent.
    #[error("the credentials for {host} contain characters that cannot be sent")]
    Credentials {
        /// The registry.
        host: String,
    },
    /// The credentials would be sent unencrypted.
    #[error("credentials are never sent over plain http: use https for the registry {host}")]
    CredentialsOverHttp {
        /// The registry.
        host: String,
    },
    /// The host has an address that Tidegate never connects to.
    #[error("{from} leads to a link-local or metadata address; connections to those are refused")]
    Address {
        /// What was read.
        from: String,
    },
    /// The credentials are wrong, or missing although the registry requires some.
    #[error(
        "{from} {}",
        if *.sent {
            "rejected the credentials: check whether they are correct and still valid"
        } else {
            "requires credentials, but none are configured"
        }
    )]
    Authentication {
        /// What was read.
        from: String,
        /// Whether credentials were sent.
        sent: bool,
    },
    /// The registry asks for something else than a password or a token.
    #[error("{from} requires a kind of authentication that is not supported: use a registry with Basic or Bearer")]
    Challenge {
        /// What was read.
        from: String,
    },
    /// The registry names a token server that does not get the credentials.
    #[error("{from} {why}")]
    Realm {
        /// What was read.
        from: String,
        /// The cause.
        why: Realm,
    },
    /// The credentials are valid but have no permission.
    #[error("{from} denied access (403): give the credentials permission to read the repository")]
    Forbidden {
        /// What was read.
        from: String,
    },
    /// The tag or blob does not exist, or these credentials have no access to it.
    #[error("{from} does not exist, or these credentials have no access to it")]
    NotFound {
        /// What was read.
        from: String,
    },
    /// The registry sent a redirect that is not followed.
    #[error("{from} redirects {why}")]
    Redirect {
        /// What was read.
        from: String,
        /// The cause, in words of this crate.
        why: &'static str,
    },
    /// An HTTP status without a more specific error.
    #[error("{from} answered with HTTP status {status}{}", advice(*.status, *.retry_after))]
    Status {
        /// What was read.
        from: String,
        /// The status.
        status: u16,
        /// How long the server asks to wait.
        retry_after: Option<Duration>,
    },
    /// The answer is truncated, or not what the protocol requires.
    #[error("the answer of {from} {why}")]
    Answer {
        /// What was read.
        from: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The answer exceeds a limit.
    #[error("{from} sends more than {limit} bytes")]
    TooMuch {
        /// What was read.
        from: String,
        /// The limit.
        limit: u64,
    },
    /// The content is not what was asked for.
    #[error("{from} has the digest {found}, not the one that was requested: the registry or a proxy changed it")]
    Digest {
        /// What was read.
        from: String,
        /// The digest of what was received.
        found: BlobDigest,
    },
    /// The artifact is not a component descriptor.
    #[error("{from} is not a component descriptor: {why}")]
    NotADescriptor {
        /// The artifact.
        from: String,
        /// The cause, in words of this crate, or in those of Lifecycle Manager.
        why: &'static str,
    },
    /// The component descriptor does not yield a module.
    #[error("{from}: {problem}")]
    Descriptor {
        /// The artifact.
        from: String,
        /// The cause.
        problem: DescriptorError,
    },
    /// A blob cannot be inflated, or its archive cannot be read.
    #[error("the blob of {from} {flaw}")]
    Unpack {
        /// The blob.
        from: String,
        /// The cause.
        flaw: Flaw,
    },
    /// Unpacking a blob exceeded a limit of the process that does it.
    #[error("unpacking {from} takes more than {limit}")]
    Exhausted {
        /// The blob, with its digest.
        from: String,
        /// The limit.
        limit: Exhaustion,
    },
    /// The process that unpacks blobs failed for another reason than a limit.
    #[error("the process that unpacks {from} failed: {why}")]
    Unpacker {
        /// The blob, with its digest.
        from: String,
        /// The cause.
        why: String,
    },
    /// The layer is larger than the whole cache.
    #[error("{from} has more than {quota} bytes, which is the quota of the module cache: raise the quota")]
    Quota {
        /// The blob.
        from: String,
        /// The quota.
        quota: u64,
    },
    /// The cache cannot be read or written.
    #[error("cannot {operation} {}", .path.display())]
    Cache {
        /// The operation.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Work on a blocking thread ended without a result.
    #[error("reading the module cache did not finish")]
    Thread,
}

/// Why a token server does not get the credentials, as the end of the sentence "the registry …".
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Realm {
    /// The URL cannot be used.
    #[error("names an invalid URL for tokens")]
    Invalid,
    /// Its connections are not encrypted.
    #[error("asks to send the credentials over plain http, which is refused")]
    Plain,
    /// The registry uses TLS, and its token server does not.
    #[error("has a token server with plain http, which is refused")]
    Downgrade,
    /// It is another host.
    #[error(
        "asks to send the credentials to {0}, which is another host: allow that host if it belongs to the registry"
    )]
    OtherHost(String),
}

/// Why a blob cannot be unpacked, as the end of the sentence "the blob …".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Flaw {
    /// The compressed data ends early or is invalid.
    #[error("is truncated or broken {0} data")]
    Compressed(Format),
    /// It is too large, inflated.
    #[error("has more than {0} bytes when it is inflated")]
    TooLarge(u64),
    /// The archive is truncated or invalid.
    #[error("is a truncated or broken tar archive")]
    Tar,
    /// An entry is not a regular file.
    #[error("is a tar archive with a link or a device; use regular files")]
    Link,
    /// An entry has a path that leads out of the archive.
    #[error("is a tar archive with a path that is absolute or contains `..`")]
    Path,
    /// Too many entries.
    #[error("is a tar archive with more than {0} entries before the first file")]
    Entries(usize),
    /// The archive has no regular file.
    #[error("is a tar archive without a file")]
    NoFile,
    /// The archive has no component descriptor.
    #[error("is a tar archive without `component-descriptor.yaml`")]
    NoDescriptor,
    /// The component descriptor is too large.
    #[error("has a `component-descriptor.yaml` of more than {0} bytes")]
    DescriptorTooLarge(u64),
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
}

/// The format of data that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// A blob, compressed or not.
    Blob,
    /// gzip.
    Gzip,
    /// zstd.
    Zstd,
}

/// A limit of a process that unpacks a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exhaustion {
    /// Memory, in MiB.
    Memory(u64),
    /// CPU time.
    Computing(Duration),
    /// Elapsed time.
    Elapsed(Duration),
}

/// Displays a duration for people.
struct Seconds(Duration);

/// What to do about an HTTP status.
fn advice(status: u16, retry_after: Option<Duration>) -> String {
    if let Some(wait) = retry_after {
        return format!(" and asks to wait {}", Seconds(wait));
    }
    let text = match status {
        429 => ": it limits the rate of requests",
        408 | 500..=599 => ": the registry or a proxy before it has a problem",
        _ => ": check the address of the registry, and what is between Tidegate and the registry",
    };
    text.to_owned()
}

// === impl Error ===

impl Error {
    /// What resolves the failure.
    pub fn class(&self) -> Class {
        match self {
            Error::Deadline { .. }
            | Error::Connect { .. }
            | Error::Answer { .. }
            | Error::Digest { .. }
            | Error::Cache { .. }
            | Error::Thread
            | Error::Unpacker { .. }
            | Error::Status { retry_after: Some(_), .. } => Class::Transient,
            Error::Status { status, .. } if matches!(status, 408 | 429) || 500 <= *status => Class::Transient,
            Error::Status { .. }
            | Error::Certificate { .. }
            | Error::Authorities
            | Error::SystemAuthorities
            | Error::Credentials { .. }
            | Error::CredentialsOverHttp { .. }
            | Error::Address { .. }
            | Error::Authentication { .. }
            | Error::Challenge { .. }
            | Error::Realm { .. }
            | Error::Forbidden { .. }
            | Error::NotFound { .. }
            | Error::Redirect { .. }
            | Error::TooMuch { .. }
            | Error::NotADescriptor { .. }
            | Error::Descriptor { .. }
            | Error::Unpack { .. }
            | Error::Exhausted { .. }
            | Error::Quota { .. } => Class::Stalled,
        }
    }

    /// One word for conditions and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Deadline { .. } => "Timeout",
            Error::Connect { .. } => "Unreachable",
            Error::Certificate { .. } | Error::Authorities | Error::SystemAuthorities => "CertificateNotTrusted",
            Error::Credentials { .. } | Error::Authentication { .. } | Error::Challenge { .. } => {
                "AuthenticationFailed"
            }
            Error::CredentialsOverHttp { .. } => "CredentialsOverHttp",
            Error::Realm { .. } => "TokenServerRefused",
            Error::Address { .. } => "AddressRefused",
            Error::Forbidden { .. } => "AccessDenied",
            Error::NotFound { .. } => "ArtifactNotFound",
            Error::Redirect { .. } => "RedirectRefused",
            Error::Status { .. } | Error::Answer { .. } => "AnswerNotUnderstood",
            Error::TooMuch { .. } | Error::Exhausted { .. } | Error::Quota { .. } => "LimitExceeded",
            Error::Unpacker { .. } => "EngineFailed",
            Error::Digest { .. } => "DigestMismatch",
            Error::NotADescriptor { .. } | Error::Descriptor { .. } => "InvalidDescriptor",
            Error::Unpack { flaw: Flaw::TooLarge(_) | Flaw::DescriptorTooLarge(_), .. } => "LimitExceeded",
            Error::Unpack { .. } => "NotReadable",
            Error::Cache { .. } | Error::Thread => "StorageFailed",
        }
    }

    /// How long the registry asks to wait before the next request.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

// === impl Format ===

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Blob => "blob",
            Format::Gzip => "gzip",
            Format::Zstd => "zstd",
        })
    }
}

// === impl Exhaustion ===

impl fmt::Display for Exhaustion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exhaustion::Memory(mib) => write!(f, "{mib} MiB of memory: publish the module with gzip, or smaller"),
            Exhaustion::Computing(time) => write!(f, "{} of CPU time: publish the module smaller", Seconds(*time)),
            Exhaustion::Elapsed(time) => write!(f, "{}: give Tidegate more CPU", Seconds(*time)),
        }
    }
}

// === impl Seconds ===

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write!(f, "{} s", self.0.as_secs()),
            _ => write!(f, "{} ms", self.0.as_millis()),
        }
    }
}
