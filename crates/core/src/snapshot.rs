//! The files of one revision, as values: paths, object ids, contents within limits.
//!
//! A snapshot holds what may matter and nothing else: YAML and JSON files, and everything below the folder of
//! template overrides. What cannot be read as a definition (a symbolic link, a submodule, a file that is too large)
//! is in it as well, with the reason instead of the bytes, so that a reader can say what is wrong and where.
//!
//! Nothing here reads a file or a repository: `git` makes snapshots, this module says what is in them.

use std::{collections::BTreeMap, sync::Arc};

use crate::revision::{Oid, Revision};

/// What a snapshot may hold at most. Each limit is named in the error that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest file whose bytes are read.
    pub file_bytes_max: u64,
    /// Most files that matter; with more, no snapshot is made at all.
    pub files_max: usize,
    /// Most bytes in all files together; what comes after them in path order is not read.
    pub total_bytes_max: u64,
}

/// Which paths matter.
///
/// Names that start with `.` never do, nor does anything below a folder whose name starts with `.`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Folder below which every file matters, whatever its name: the template overrides.
    templates: Option<Arc<str>>,
}

/// The files of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Where they come from.
    pub revision: Revision,
    /// By path relative to the repository's root, with `/`.
    pub files: BTreeMap<Arc<str>, File>,
    /// Tree id of every folder without a hidden name; the root is the empty path.
    ///
    /// A tree id covers all files below the folder, also those that do not matter here.
    pub trees: BTreeMap<Arc<str>, Oid>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Blob id; of a submodule the commit that it names.
    pub id: Oid,
    /// Its bytes, or why there are none.
    pub content: Content,
}

/// The bytes of a file, or why there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Its bytes, shared by equal files and by snapshots that follow each other. Whether they are UTF-8 is for the
    /// parser to say.
    Text(Arc<[u8]>),
    /// Larger than [`Limits::file_bytes_max`].
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// A symbolic link, whatever it points to.
    Symlink,
    /// A submodule, or a repository within the work tree.
    Submodule,
    /// A pointer of Git LFS in place of the content.
    LfsPointer,
    /// Not read, since [`Limits::total_bytes_max`] was reached before.
    OverBudget,
    /// The name is no UTF-8; the path shows the offending bytes as `\xNN`. It may be a folder, whose content is
    /// then left out.
    NameNotUtf8,
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // The API server takes objects of up to 1.5 MiB; a definition beyond 1 MiB is a mistake.
            file_bytes_max: 1 << 20,
            // Ten times the 5,000 Kymas that the budgets speak of, with as many files beside them.
            files_max: 100_000,
            // 20,000 definitions of 1 KiB take a third of it.
            total_bytes_max: 64 << 20,
        }
    }
}

// === impl Filter ===

impl Filter {
    /// YAML and JSON files, and every file below `templates`, a folder relative to the repository's root.
    pub fn new(templates: Option<&str>) -> Filter {
        let trimmed = templates.map(|folder| folder.trim_start_matches("./").trim_matches('/'));
        Filter { templates: trimmed.filter(|folder| !folder.is_empty()).map(Arc::from) }
    }

    /// Whether a file matters, by its path relative to the repository's root.
    pub fn takes(&self, path: &str) -> bool {
        let hidden = path.split('/').any(|name| name.starts_with('.'));
        !hidden && (is_definition_name(path) || self.templates.as_deref().is_some_and(|folder| is_below(path, folder)))
    }
}

/// Whether a file is read for definitions, by the end of its name. Case does not matter: a file that is passed over for
/// its name would count as gone from git.
pub fn is_definition_name(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether `path` is `folder` or stands below it; everything stands below the empty path.
pub fn is_below(path: &str, folder: &str) -> bool {
    match path.strip_prefix(folder) {
        Some(rest) => folder.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

// === impl Snapshot ===

impl Snapshot {
    /// One without files.
    pub fn empty(revision: Revision) -> Snapshot {
        Snapshot { revision, files: BTreeMap::new(), trees: BTreeMap::new() }
    }

    /// The tree id of a folder or the blob id of a file; the empty path is the root.
    ///
    /// A symbolic link and a submodule have none: what they stand for is not in the repository.
    pub fn object_id(&self, path: &str) -> Option<Oid> {
        if let Some(tree) = self.trees.get(path) {
            return Some(*tree);
        }
        self.files.get(path).and_then(|file| match file.content {
            Content::Text(_) | Content::TooLarge { .. } | Content::LfsPointer | Content::OverBudget => Some(file.id),
            Content::Symlink | Content::Submodule | Content::NameNotUtf8 => None,
        })
    }

    /// The file at `path`, or all files below it, in path order; the empty path gives all.
    pub fn below<'a>(&'a self, path: &str) -> impl Iterator<Item = (&'a Arc<str>, &'a File)> {
        let folder: Arc<str> = path.into();
        let start = Arc::clone(&folder);
        // Between `a` and `a/b` stand names such as `a-b`, so being below is asked of each name that begins alike.
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
