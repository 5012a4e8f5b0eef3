//! The files of one revision as values: paths, object ids, and contents within limits.
//!
//! A snapshot contains only files that may matter: YAML and JSON files within `paths` and outside of
//! `ignore`, those of module paths, and everything in the folder of template overrides. All other
//! folders are not opened: their entries are unknown, and no limit counts them. A file that cannot be read (a symbolic
//! link, a submodule, a file that is too large) is included with the reason instead of its bytes. So a reader can
//! report what is wrong and where.
//!
//! This module reads no file and no repository: `git` creates snapshots.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::{Deserialize, Serialize};

use crate::{
    definition::normalise,
    revision::{Oid, Revision},
};

/// The limits of a snapshot. Each limit is named in the error that it causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest file whose bytes are read.
    pub file_bytes_max: u64,
    /// Largest file below a module path whose bytes are read.
    pub module_file_bytes_max: u64,
    /// Maximum number of files that matter. With more, no snapshot is created.
    pub files_max: usize,
    /// Maximum total size of all files. Files beyond it, in path order, are not read.
    pub total_bytes_max: u64,
}

/// The folder in which a repository says how it is read.
pub const OWN_FOLDER: &str = ".tidegate";

/// Which paths matter.
///
/// Names that start with `.` never matter, nor does anything in a folder with such a name. One exception: the YAML and
/// JSON files in the folder [`OWN_FOLDER`] of the root, which say how the repository is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Filter {
    /// Folder in which every file matters, regardless of its name: the template overrides.
    templates: Option<Arc<str>>,
    /// Where definitions are; `None` for everywhere.
    #[serde(with = "scope")]
    scope: Option<Arc<Scope>>,
    /// Folders and files with objects of modules, in the scope or not.
    modules: BTreeSet<String>,
}

/// Where definitions are.
#[derive(Debug)]
struct Scope {
    /// The folder that paths and patterns are relative to. Nothing outside of it is in the scope.
    root: String,
    /// Empty for all.
    paths: Vec<String>,
    /// The patterns of `ignore`.
    patterns: Vec<String>,
    ignore: Gitignore,
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
    /// Folders that were not opened, because nothing in them matters.
    pub unopened: BTreeSet<Arc<str>>,
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
    /// The folder has several entries of this name. Which of them a reader takes is undefined.
    Ambiguous,
}

// === impl Limits ===

impl Limits {
    /// Whether a file of this size is too large to be read.
    pub fn is_too_large(&self, bytes: u64, is_of_module: bool) -> bool {
        let max = if is_of_module { self.module_file_bytes_max } else { self.file_bytes_max };
        max < bytes
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // The API server accepts objects of up to 1.5 MiB; a definition beyond 1 MiB is a mistake.
            file_bytes_max: 1 << 20,
            // Bundles of CustomResourceDefinitions have up to 3 MiB.
            module_file_bytes_max: 8 << 20,
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
        Filter { templates: trimmed.filter(|folder| !folder.is_empty()).map(Arc::from), ..Filter::default() }
    }

    /// Only definitions at or below one of these paths (all, if there are none) that do not match a
    /// gitignore pattern. What is invalid selects nothing; [`crate::definition::read`] reports it.
    #[must_use]
    pub fn within(self, paths: &[String], ignore: &[String]) -> Filter {
        self.within_folder("", paths, ignore)
    }

    /// The same in this folder only, which the paths and patterns are relative to.
    #[must_use]
    pub fn within_folder(self, root: &str, paths: &[String], ignore: &[String]) -> Filter {
        let mut paths: Vec<String> = paths.iter().filter_map(|path| normalise(path).ok()).collect();
        if paths.iter().any(String::is_empty) {
            paths.clear();
        }
        Filter { scope: Some(Arc::new(Scope::new(root.to_owned(), paths, ignore.to_vec()))), ..self }
    }

    /// Also the YAML and JSON files at or below these module paths.
    #[must_use]
    pub fn with_modules(self, modules: BTreeSet<String>) -> Filter {
        Filter { modules, ..self }
    }

    /// Whether the file at this path, relative to the root of the repository, matters.
    pub fn takes(&self, path: &str) -> bool {
        let found = self.is_template(path) || is_definition_name(path) && self.covers(path);
        if is_hidden(path) { self.is_of_own_folder(path) } else { found }
    }

    /// Whether anything at or below this folder may matter. A symbolic link or a submodule may replace
    /// such a folder.
    pub fn enters(&self, folder: &str) -> bool {
        let is_on_the_way = |to: &str| is_below(folder, to) || is_below(to, folder);
        folder.is_empty()
            // Also in other folders: their ids must be those that git computes.
            || folder.split('/').any(|name| name == OWN_FOLDER)
            || self.templates.as_deref().is_some_and(is_on_the_way)
            || self.is_of_module(folder)
            || self.is_above_module(folder)
            || self.scope.as_ref().is_none_or(|scope| scope.enters(folder))
    }

    /// Whether this path is at or below a module path.
    pub fn is_of_module(&self, path: &str) -> bool {
        is_below_any(path, &self.modules)
    }

    /// Whether a module path is below this folder.
    fn is_above_module(&self, folder: &str) -> bool {
        let within = format!("{folder}/");
        self.modules.range(within.clone()..).next().is_some_and(|module| module.starts_with(&within))
    }

    /// Whether the id of everything at this path may matter, regardless of its name.
    pub fn covers(&self, path: &str) -> bool {
        self.is_of_module(path) || self.scope.as_ref().is_none_or(|scope| scope.covers(path))
    }

    /// Whether a file says how the repository is read.
    fn is_of_own_folder(&self, path: &str) -> bool {
        let root = self.scope.as_ref().map_or("", |scope| &scope.root);
        let below = relative(path, root).and_then(|path| relative(path, OWN_FOLDER));
        below.is_some_and(|name| !name.contains('/') && !name.starts_with('.') && is_definition_name(name))
    }

    fn is_template(&self, path: &str) -> bool {
        self.templates.as_deref().is_some_and(|folder| is_below(path, folder))
    }
}

// === impl Scope ===

impl Scope {
    fn new(root: String, paths: Vec<String>, patterns: Vec<String>) -> Scope {
        let mut builder = GitignoreBuilder::new("");
        for pattern in &patterns {
            // An invalid pattern matches nothing.
            let _ = builder.add_line(None, pattern);
        }
        let ignore = builder.build().unwrap_or_else(|_| Gitignore::empty());
        Scope { root, paths, patterns, ignore }
    }

    fn covers(&self, path: &str) -> bool {
        let Some(path) = relative(path, &self.root) else { return false };
        let selected = self.paths.is_empty() || self.paths.iter().any(|folder| is_below(path, folder));
        selected && !self.ignore.matched_path_or_any_parents(path, false).is_ignore()
    }

    fn enters(&self, folder: &str) -> bool {
        if is_below(&self.root, folder) {
            return true;
        }
        let Some(folder) = relative(folder, &self.root) else { return false };
        let selected = |path: &String| is_below(folder, path) || is_below(path, folder);
        // A pattern with `!` may select a part of an ignored folder.
        let is_ignored =
            self.ignore.num_whitelists() == 0 && self.ignore.matched_path_or_any_parents(folder, true).is_ignore();
        (self.paths.is_empty() || self.paths.iter().any(selected)) && !is_ignored
    }
}

/// A scope as its paths and patterns: another process compiles the patterns again.
mod scope {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Scope;

    type Parts = (String, Vec<String>, Vec<String>);

    pub(super) fn serialize<S: Serializer>(scope: &Option<Arc<Scope>>, to: S) -> Result<S::Ok, S::Error> {
        scope.as_ref().map(|scope| (&scope.root, &scope.paths, &scope.patterns)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Scope>>, D::Error> {
        let parts = Option::<Parts>::deserialize(from)?;
        Ok(parts.map(|(root, paths, patterns)| Arc::new(Scope::new(root, paths, patterns))))
    }
}

/// Whether a name in the path starts with `.`.
pub fn is_hidden(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with('.'))
}

/// Whether a file is read for definitions, by its extension. Case does not matter: a file that is
/// skipped because of its name would look removed from git.
pub fn is_definition_name(path: &str) -> bool {
    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
    ["yaml", "yml", "json"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether `path` is one of the folders or below one. Looks up the parents of the path: a repository may have as many
/// folders as files.
pub fn is_below_any<T: Borrow<str> + Ord>(path: &str, folders: &BTreeSet<T>) -> bool {
    let mut ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
    !folders.is_empty() && (folders.contains("") || ends.any(|end| folders.contains(&path[..end])))
}

/// Whether `path` is `folder` or below it. Everything is below the empty path.
pub fn is_below(path: &str, folder: &str) -> bool {
    relative(path, folder).is_some()
}

/// The path relative to a folder, if it is the folder or below it.
fn relative<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    if folder.is_empty() || rest.is_empty() { Some(rest) } else { rest.strip_prefix('/') }
}

// === impl Snapshot ===

impl Snapshot {
    /// A snapshot without files.
    pub fn empty(revision: Revision) -> Snapshot {
        Snapshot { revision, files: BTreeMap::new(), trees: BTreeMap::new(), unopened: BTreeSet::new() }
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
            Content::Symlink | Content::Submodule | Content::NameNotUtf8 | Content::Ambiguous => None,
        })
    }

    /// Whether this path is at or below a folder that was not opened.
    pub fn is_unopened(&self, path: &str) -> bool {
        let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
        !self.unopened.is_empty() && ends.into_iter().any(|end| self.unopened.contains(&path[..end]))
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

    /// The size of all files that were read.
    pub fn bytes(&self) -> u64 {
        self.files.values().filter_map(File::text).map(|bytes| bytes.len() as u64).sum()
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
            | Content::NameNotUtf8
            | Content::Ambiguous => None,
        }
    }
}

#[cfg(test)]
mod tests;
