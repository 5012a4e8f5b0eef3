//! The objects of modules that live in git.

use std::sync::Arc;

use crate::{
    diagnostic::{Diagnostics, Place},
    object::Object,
    revision::Oid,
    yaml,
};

/// Where the objects of a module live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSource {
    /// Folder or file, relative to the repository's root.
    pub path: String,
    /// The git tree or blob behind it.
    pub tree: Oid,
}

/// The objects of one module.
#[derive(Clone, Debug, PartialEq)]
pub struct ModuleObjects {
    /// The git tree or blob that they were read from.
    pub tree: Oid,
    /// In the order of paths and documents.
    pub objects: Vec<SourceObject>,
}

/// An object of a module, and where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceObject {
    /// The object, as written.
    pub object: Object,
    /// Where it begins.
    pub place: Place,
}

/// Reads the objects of a module from its files, which must come in path order.
pub fn module_objects<'a>(
    _diagnostics: &mut Diagnostics,
    tree: Oid,
    _files: impl Iterator<Item = (&'a Arc<str>, &'a [u8])>,
    _limits: &yaml::Limits,
) -> ModuleObjects {
    ModuleObjects { tree, objects: Vec::new() }
}
