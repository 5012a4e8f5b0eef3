//! Modules in OCI registries: their names, what a component descriptor says about them, and the source that a Manifest
//! installs from. Pure: `tidegate_oci` fetches and unpacks what is read here.
//!
//! A module is an OCM component in one version. Its descriptor is an artifact in a registry; the objects are a blob
//! beside it, which the descriptor names by digest. [`read`] accepts the descriptor only if it is for the component and
//! version that were asked for, and only if every part of it is understood. What is not understood is an error that
//! names it: a module that is installed by half is worse than one that is not installed.
//!
//! It refuses: another mapping of component names than `urlPath`, access types that are neither a local blob nor an
//! image, and blobs that are named by anything but a SHA-256 digest. It verifies no signatures.

mod address;
mod descriptor;
mod identity;
mod localize;
mod source;

pub use self::{
    address::{ParseAddressError, RegistryAddress},
    descriptor::{DESCRIPTOR_BYTES_MAX, DescriptorError, FieldPath, Layer, LayerKind, Module, read},
    identity::{
        BlobDigest, Component, ComponentName, ComponentVersion, ParseComponentError, ParseDigestError, repository_path,
    },
    localize::Images,
    source::{ParseSourceError, Source},
};
