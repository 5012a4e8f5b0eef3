//! Real control planes on this machine, for the demo, the benchmark and the tests: kube-apiserver and etcd on free
//! loopback ports, on request with kube-controller-manager, kube-scheduler and a simulated node.
//!
//! [`Assets`] builds the programs once into a cache, from the Go module that is embedded here; [`ControlPlane`] starts
//! them. Everything that is started ends with this process, however it ends, and its folders are removed: each server
//! is the child of a guard that waits for the end of a pipe which only we hold open.
//!
//! Nothing here is meant to be reached from another machine, or to keep data.

mod audit;
mod build;
mod egress;
mod gateway;
mod guard;
pub mod landscape;
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
pub use server::{ControlPlane, Etcd, Extent, Options};

/// Why a control plane could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder of ours could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No Go toolchain is here and none can be had.
    #[error(
        "no usable Go toolchain: install Go {wanted} or newer, or python3 with its venv module, and run this again ({found})"
    )]
    NoGo {
        /// The version that the module asks for.
        wanted: String,
        /// What was found instead.
        found: String,
    },
    /// A build step failed.
    #[error("{step} failed: {log}")]
    Build {
        /// The step.
        step: String,
        /// The last lines that it printed.
        log: String,
    },
    /// A file of a Go module is not the one that was pinned.
    #[error("module {module} has the checksum {found}, but {wanted} is pinned")]
    Checksum {
        /// The module and its version.
        module: String,
        /// What the download says.
        found: String,
        /// What the table says.
        wanted: String,
    },
    /// A program could not be started.
    #[error("cannot start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A server ended although it should serve.
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
        /// How long was waited.
        waited: Duration,
        /// The last answer.
        last: String,
        /// The end of its log.
        log: String,
    },
    /// An exchange over TLS failed.
    #[error("an exchange on this machine failed")]
    Network {
        /// Why.
        source: io::Error,
    },
    /// A certificate could not be made, or not be used.
    #[error(transparent)]
    Credentials(#[from] kube_sim::CredentialsError),
    /// A client could not be made from a kubeconfig of ours.
    #[error("cannot make a client of {server}: {message}")]
    Client {
        /// The server.
        server: String,
        /// Why.
        message: String,
    },
    /// The repository could not be worked on.
    #[error("cannot {action} the repository {}", path.display())]
    Repository {
        /// What was tried, as a verb.
        action: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What libgit2 said.
        source: git2::Error,
    },
    /// A request to a server failed.
    #[error("{server}: cannot {action}")]
    Request {
        /// The server.
        server: String,
        /// What was asked, as a verb.
        action: &'static str,
        /// What the server said.
        source: Box<kube::Error>,
    },
}

impl Error {
    /// An error of the file system, in the form that `map_err` takes.
    fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { action, path, source }
    }
}
