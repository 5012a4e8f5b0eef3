//! Real control planes on this machine, for the demo, the benchmark and the tests: kube-apiserver and etcd on free
//! loopback ports, optionally with kube-controller-manager, kube-scheduler and a simulated node.
//!
//! [`Assets`] builds the programs once into a cache, from the embedded Go module; [`ControlPlane`] starts them.
//! Everything ends with this process, however that ends, and all temporary folders are removed: the parent of each
//! server waits for the end of a pipe that only we hold open.
//!
//! Not for access from other machines, and not for data that must persist.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

mod audit;
mod build;
mod egress;
mod gateway;
mod guard;
pub use tidegate_landscape as landscape;
mod objects;
mod poll;
mod ports;
mod repository;
mod server;

use std::{io, path::PathBuf, time::Duration};

pub use audit::{Audit, Record, tally};
pub use build::{Assets, MODULE_FILES, Program};
pub use egress::Egress;
pub use gateway::{Caller, Gateway};
pub use guard::{Folder, Guarded, Pulse};
pub use objects::{api_of, apply, install_crds, read_crds};
pub use poll::{TimedOut, throughout, until};
pub use ports::free as free_port;
pub use repository::Repository;
pub use server::{Baseline, ControlPlane, Etcd, Extent, Options};

/// Why a control plane cannot be started or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// There is no Go toolchain, and none can be installed.
    #[error(
        "no usable Go toolchain: install Go {wanted} or newer, or python3 with its venv module, and run this again \
         ({found})"
    )]
    NoGo {
        /// The version that the module requires.
        wanted: String,
        /// What was found instead.
        found: String,
    },
    /// A build step failed.
    #[error("{step} failed: {log}")]
    Build {
        /// The step.
        step: String,
        /// The last lines of its output.
        log: String,
    },
    /// A build step prints nothing any more, usually because a download does not continue.
    #[error(
        "{step} printed nothing for {} min: check that the Go module proxy (`go env GOPROXY`) is reachable, and run \
         this again",
        waited.as_secs() / 60
    )]
    Stalled {
        /// The step.
        step: String,
        /// How long it has printed nothing.
        waited: Duration,
    },
    /// A file of a Go module differs from the pinned one.
    #[error("module {module} has the checksum {found}, but {wanted} is pinned")]
    Checksum {
        /// The module and its version.
        module: String,
        /// The checksum of the download.
        found: String,
        /// The pinned checksum.
        wanted: String,
    },
    /// A program cannot be started.
    #[error("cannot start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A server ended unexpectedly.
    #[error("{server} ended: {log}")]
    Ended {
        /// The server.
        server: String,
        /// The end of its log.
        log: String,
    },
    /// A server did not become ready in time.
    #[error("{server} is not ready after {waited:?} ({last}): {log}")]
    NotReady {
        /// The server.
        server: String,
        /// How long we waited.
        waited: Duration,
        /// The last answer.
        last: String,
        /// The end of its log.
        log: String,
    },
    /// A TLS connection failed.
    #[error("a TLS connection on this machine failed")]
    Network {
        /// The cause.
        source: io::Error,
    },
    /// A certificate cannot be created or used.
    #[error(transparent)]
    Credentials(#[from] kube_sim::CredentialsError),
    /// A client cannot be created from our own kubeconfig.
    #[error("cannot create a client for {server}: {message}")]
    Client {
        /// The server.
        server: String,
        /// The cause.
        message: String,
    },
    /// An operation on the repository failed.
    #[error("cannot {action} the repository {}", path.display())]
    Repository {
        /// The operation, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of libgit2.
        source: git2::Error,
    },
    /// A request to a server failed.
    #[error("{server}: cannot {action}")]
    Request {
        /// The server.
        server: String,
        /// The operation, as a verb.
        action: &'static str,
        /// The error of the server.
        source: Box<kube::Error>,
    },
}

impl Error {
    /// An error of the file system, for `map_err`.
    fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { action, path, source }
    }
}
