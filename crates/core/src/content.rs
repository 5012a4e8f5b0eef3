//! What identifies the objects of a module: their content, whatever its name.
//!
//! Equal ids are equal objects. So objects are read, labelled and serialised once, for all runtimes and definitions
//! that have them.

use std::fmt;

use crate::{
    component::{BlobDigest, LayerKind},
    revision::Oid,
};

/// The content of a module's objects. Displays as the id of a tree or the digest of a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentId {
    /// A folder or file in git.
    Tree(Oid),
    /// A blob in a registry.
    Layer {
        /// The digest of the blob.
        digest: BlobDigest,
        /// How the blob holds the objects.
        kind: LayerKind,
        /// The digest of the list of images that replace those in the objects.
        images: BlobDigest,
    },
}

// === impl ContentId ===

impl ContentId {
    /// The content of a blob whose images are replaced by `images`.
    pub fn layer(digest: BlobDigest, kind: LayerKind, images: &[String]) -> ContentId {
        // A line break is in no reference of an image.
        ContentId::Layer { digest, kind, images: BlobDigest::of(images.join("\n").as_bytes()) }
    }
}

impl From<Oid> for ContentId {
    fn from(tree: Oid) -> ContentId {
        ContentId::Tree(tree)
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContentId::Tree(tree) => fmt::Display::fmt(tree, f),
            ContentId::Layer { digest, .. } => fmt::Display::fmt(digest, f),
        }
    }
}

impl fmt::Debug for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
