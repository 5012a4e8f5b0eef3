//! OCI registries: finds the component descriptor of a module and the YAML of its objects.
//!
//! * [`Registry`] is one registry with its CA and credentials. [`Registry::descriptor`] resolves a component and
//!   version to its descriptor; [`Registry::layer`] reads the YAML that a descriptor or a Manifest names by digest.
//! * [`Layers`] is a cache of both on disk, by digest and under a quota. Every read verifies the digest. So each blob
//!   is fetched once, and what is installed can be read while the registry is away.
//! * [`Unpacker`] says where blobs are unpacked: in processes with limits on memory and time, or in this one.
//! * [`DockerConfig`] is the content of a Secret with credentials.
//!
//! It refuses: answers beyond the limits in [`limits`], as they are sent and inflated; content whose digest is not the
//! one that was asked for; archives with links or with paths that lead out of them; credentials over plain HTTP (except
//! to this machine), after a redirect to another origin, or to a token server on another host, unless it is allowed;
//! link-local addresses (metadata services), checked after name resolution for every connection. It takes no proxy and
//! no credentials from the environment, and retries nothing: [`Error::class`] and [`Error::retry_after`] say when to
//! try again.
//!
//! The requests are our own. The crate `oci-client` reads manifests, tokens and error texts into memory without a
//! limit, sends the credentials to whatever token server an answer names, and has no time-out for a whole transfer.
//! What remains after these are settled is five kinds of GET requests.

#![cfg_attr(test, allow(clippy::needless_pass_by_value, reason = "tests write values where they are used"))]

pub use self::{
    credentials::{Credentials, DockerConfig, DockerConfigError},
    error::{Error, Exhaustion, Flaw, Format, Realm},
    exchange::Traffic,
    layers::{Layers, stored_descriptor, stored_layer},
    registry::{Registry, RegistryDescriptor, Settings},
    unpacker::{EXIT_COMPUTING, EXIT_ELAPSED, Unpacker, serve},
};

mod authorization;
mod challenge;
mod connect;
mod credentials;
mod error;
mod exchange;
mod layers;
pub mod limits;
mod manifest;
mod registry;
mod unpack;
mod unpacker;
