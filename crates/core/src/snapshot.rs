//! The files of one revision as values: paths, object ids, and contents within limits.
//!
//! A snapshot contains only files that may matter: YAML and JSON files, and everything in the
//! folder of template overrides. A file that cannot be read (a symbolic link, a submodule, a file
//! that is too large) is included with the reason instead of its bytes. So a reader can report what
//! is wrong and where.
//!
//! This module reads no file and no repository: `git` creates snapshots.

use std::{collections::BTreeMap, sync::Arc};

use crate::revision::{Oid, Revision};

/// The limits of a snapshot. Each limit is named in the error that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest file whose bytes are read.
    pub file_bytes_max: u64,
    /// Maximum number of files that matter. With more, no snapshot is created.
    pub files_max: usize,
    /// Maximum total size of all files. Files beyond it, in path order, are not read.
    pub total_bytes_max: u64,
}

/// Which paths matter.
///
/// Names that start with `.` never matter, nor does anything in a folder with such a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Folder in which every file matters, regardless of its name: the template overrides.
    templates: Option<Arc<str>>,
    /// Whether nothing else matters.
    only_templates: bool,
}

/// The files of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision.
    pub revision: Revision,
    /// By path relative to the root of the repository, with `/`.
    pub files: BTreeMap<Arc<str>, File>,
    /// Tree id of every folder without a hidden name. The root is the empty path.
    ///
    /// A tree id covers all files in the folder, also those that do not matter here.
    pub trees: BTreeMap<Arc<str>, Oid>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Blob id. For a submodule, the commit that it names.
    pub id: Oid,
    /// Its bytes, or why they were not read.
    pub content: Content,
}

/// The bytes of a file, or why they were not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its bytes, shared by equal files and by consecutive snapshots. The parser checks whether
    /// they are UTF-8.
    Text(Arc<[u8]>),
    /// Larger than [`Limits::file_bytes_max`].
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// A symbolic link, regardless of its target.
    Symlink,
    /// A submodule, or a repository within the work tree.
    Submodule,
    /// A Git LFS pointer instead of the content.
    LfsPointer,
    /// Not read, because earlier files reached [`Limits::total_bytes_max`].
    OverBudget,
    /// The name is not UTF-8. The path shows invalid bytes as `\xNN`. For a folder, its content is
    /// left out.
    NameNotUtf8,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // The API server accepts objects of up to 1.5 MiB; a definition beyond 1 MiB is a mistake.
            file_bytes_max: 1 << 20,
            // Ten times the 5,000 Kymas of the performance budgets, with as many other files.
            files_max: 100_000,
            // 20,000 definitions of 1 KiB use a third of it.
            total_bytes_max: 64 << 20,
        }
    }
}

// === impl Filter ===

impl Filter {
    /// YAML and JSON files, and every file in `templates`, a folder relative to the root of the
    /// repository.
    pub fn new(templates: Option<&str>) -> Filter {
        let trimmed = templates.map(|folder| folder.trim_start_matches("./").trim_matches('/'));
        Filter { templates: trimmed.filter(|folder| !folder.is_empty()).map(Arc::from), only_templates: false }
    }

    /// Every file in `templates`, and no other.
    pub fn only(templates: &str) -> Filter {
        Filter { only_templates: true, ..Filter::new(Some(templates)) }
    }

    /// Whether the file at this path, relative to the root of the repository, matters.
    pub fn takes(&self, path: &str) -> bool {
        let hidden = path.split('/').any(|name| name.starts_with('.'));
        let is_definition = !self.only_templates && is_definition_name(path);
        !hidden && (is_definition || self.templates.as_deref().is_some_and(|folder| is_below(path, folder)))
    }
}

/// Whether a file is read for definitions, by its extension. Case does not matter: a file that is
/// skipped because of its name would look removed from git.
pub fn is_definition_name(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether `path` is `folder` or below it. Everything is below the empty path.
pub fn is_below(path: &str, folder: &str) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// A snapshot without files.
    pub fn empty(revision: Revision) -> Snapshot {
        Snapshot { revision, files: BTreeMap::new(), trees: BTreeMap::new() }
    }

    /// The tree id of a folder or the blob id of a file. The empty path is the root.
    ///
    /// A symbolic link or submodule has none: its target is not in the repository.
    pub fn object_id(&self, path: &str) -> Option<Oid> {
        if let Some(tree) = self.trees.get(path) {
            return Some(*tree);
        }
        self.files.get(path).and_then(|file| match file.content {
            Content::Text(_) | Content::TooLarge { .. } | Content::LfsPointer | Content::OverBudget => Some(file.id),
            Content::Symlink | Content::Submodule | Content::NameNotUtf8 => None,
        })
    }

    /// The file at `path`, or all files below it, in path order. The empty path returns all files.
    pub fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a File)> {
        let folder: Arc<str> = path.into();
        let start = Arc::clone(&folder);
        // Names such as `a-b` sort between `a` and `a/b`, so each name with the common prefix is checked.
        self.files
            .range(start..)
            .take_while({
                let folder = Arc::clone(&folder);
                move |(path, _)| path.starts_with(&*folder)
            })
            .filter(move |(path, _)| is_below(path, &folder))
    }

    /// The bytes of a file.
    pub fn text(&self, path: &str) -> Option<&Arc<[u8]>> {
        self.files.get(path).and_then(File::text)
    }
}

// === impl File ===

impl File {
    /// Its bytes.
    pub fn text(&self) -> Option<&Arc<[u8]>> {
        match &self.content {
            Content::Text(bytes) => Some(bytes),
            Content::TooLarge { .. }
            | Content::Symlink
            | Content::Submodule
            | Content::LfsPointer
            | Content::OverBudget
            | Content::NameNotUtf8 => None,
        }
    }
}

#[cfg(test)]
mod tests;
