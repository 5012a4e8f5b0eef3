//! Reads the files of a commit from git objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use git2::{ObjectType, Odb, Repository};

use super::{error::Error, limits};
use tidegate_core::{
    revision::{Oid, Revision},
    snapshot::{Content, File, Filter, Limits, Snapshot},
};

/// Creates the error for an unreadable object: a mirror and a user's repository have different ones.
pub(super) type Broken<'a> = &'a dyn Fn(String) -> Error;

/// Paths and their bytes, in path order.
pub type Files = Vec<(Arc<str>, Arc<[u8]>)>;

/// Collects the files of a snapshot within its limits.
///
/// Files arrive in path order, so that the limits omit the same files whatever the source.
pub(super) struct Collector<'a> {
    filter: &'a Filter,
    limits: Limits,
    /// Bytes in memory, by blob id.
    known: HashMap<Oid, Arc<[u8]>>,
    files: BTreeMap<Arc<str>, File>,
    trees: BTreeMap<Arc<str>, Oid>,
    unopened: BTreeSet<Arc<str>>,
    entries: usize,
    total_bytes: u64,
    is_over_budget: bool,
}

/// Walks a tree and passes its files to a collector.
struct Walk<'a> {
    repository: &'a Repository,
    odb: Odb<'a>,
    collector: Collector<'a>,
    broken: Broken<'a>,
}

/// The kind of a tree entry.
enum Mode {
    Folder,
    File,
    Symlink,
    Submodule,
}

/// The files of a commit. Blobs that `previous` contains are not read again, and share its bytes.
pub(super) fn snapshot(
    repository: &Repository,
    commit: Oid,
    name: &str,
    previous: Option<&Snapshot>,
    filter: &Filter,
    limits: Limits,
    broken: Broken<'_>,
) -> Result<Snapshot, Error> {
    let tree = repository.find_commit(to_git(commit)).map_err(|_| broken(format!("commit {commit}")))?.tree_id();
    let odb = repository.odb().map_err(|_| broken("its objects".to_owned()))?;
    let mut walk = Walk { repository, odb, collector: Collector::new(filter, limits, previous), broken };
    walk.folder(tree, "", 0)?;
    Ok(walk.collector.finish(Revision::Commit { name: name.to_owned(), commit }))
}

/// The YAML and JSON files of a tree, or the one file of a blob, in path order and named below `path`.
pub(super) fn files(
    repository: &Repository,
    id: Oid,
    path: &str,
    limits: Limits,
    broken: Broken<'_>,
) -> Result<Files, Error> {
    let odb = repository.odb().map_err(|_| broken("its objects".to_owned()))?;
    let (_, kind) = odb.read_header(to_git(id)).map_err(|_| broken(format!("object {id}")))?;
    let filter = Filter::default().with_modules([path.to_owned()].into());
    let mut walk = Walk { repository, odb, collector: Collector::new(&filter, limits, None), broken };
    match kind {
        ObjectType::Tree => walk.folder(to_git(id), path, 0)?,
        ObjectType::Blob => walk.blob(to_git(id), path)?,
        ObjectType::Any | ObjectType::Commit | ObjectType::Tag => return Err(broken(format!("object {id}"))),
    }
    let readable = |(path, file): (Arc<str>, File)| match file.content {
        Content::Text(bytes) => Ok((path, bytes)),
        Content::TooLarge { .. } => Err(unreadable(&path, "a file beyond the size limit")),
        Content::OverBudget => Err(unreadable(&path, "a file beyond the limit on all files")),
        Content::LfsPointer => Err(unreadable(&path, "a pointer of Git LFS")),
        Content::Symlink => Err(unreadable(&path, "a symbolic link")),
        Content::Submodule => Err(unreadable(&path, "a submodule")),
        Content::NameNotUtf8 => Err(unreadable(&path, "a file whose name is not UTF-8")),
        Content::Ambiguous => Err(unreadable(&path, "a name that occurs several times")),
    };
    walk.collector.files.into_iter().map(readable).collect()
}

fn unreadable(path: &str, what: &'static str) -> Error {
    Error::Unreadable { path: path.to_owned(), what }
}

/// Converts an id from libgit2's type.
pub(super) fn from_git(id: git2::Oid) -> Oid {
    let mut bytes = [0; 20];
    // Ids have 20 bytes: SHA-256 repositories are refused when they are opened.
    bytes.iter_mut().zip(id.as_bytes()).for_each(|(to, from)| *to = *from);
    Oid::new(bytes)
}

/// Converts an id to libgit2's type.
pub(super) fn to_git(id: Oid) -> git2::Oid {
    git2::Oid::from_bytes(id.as_bytes()).expect("20 bytes are an object id")
}

/// `name` in `folder`.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The name as text, or a replacement for display if it is not UTF-8.
pub(super) fn name_text(name: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(name).map_err(|_| {
        let chunks = name.utf8_chunks();
        chunks.fold(String::new(), |mut text, chunk| {
            text.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
            text
        })
    })
}

/// Whether the bytes are a pointer of Git LFS instead of a file's content.
fn is_lfs_pointer(bytes: &[u8]) -> bool {
    const LEN_MAX: usize = 1024; // The specification's limit for a pointer.
    bytes.len() < LEN_MAX && bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

/// The names that several entries of a folder have. Git never writes such a tree, but a server can send one.
fn ambiguous(tree: &git2::Tree<'_>) -> HashSet<Vec<u8>> {
    let mut seen = HashSet::new();
    tree.iter().map(|entry| entry.name_bytes().to_vec()).filter(|name| !seen.insert(name.clone())).collect()
}

// === impl Collector ===

impl<'a> Collector<'a> {
    pub(super) fn new(filter: &'a Filter, limits: Limits, previous: Option<&Snapshot>) -> Collector<'a> {
        let known = previous.into_iter().flat_map(|snapshot| snapshot.files.values());
        let known = known.filter_map(|file| Some((file.id, Arc::clone(file.text()?)))).collect();
        Collector {
            filter,
            limits,
            known,
            files: BTreeMap::new(),
            trees: BTreeMap::new(),
            unopened: BTreeSet::new(),
            entries: 0,
            total_bytes: 0,
            is_over_budget: false,
        }
    }

    /// Counts one entry of a folder, relevant or not.
    pub(super) fn entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        if limits::ENTRIES_MAX < self.entries {
            return Err(Error::TooManyFiles { what: "entries in all folders", limit: limits::ENTRIES_MAX });
        }
        Ok(())
    }

    /// Whether a file is relevant.
    pub(super) fn takes(&self, path: &str) -> bool {
        self.filter.takes(path)
    }

    /// Whether anything in a folder is relevant.
    pub(super) fn enters(&self, path: &str) -> bool {
        self.filter.enters(path)
    }

    /// Whether the id of an entry is relevant.
    pub(super) fn covers(&self, path: &str) -> bool {
        self.filter.covers(path)
    }

    /// Records a folder that is not opened.
    pub(super) fn unopened(&mut self, path: &str) {
        self.unopened.insert(path.into());
    }

    /// The bytes of a blob that is already in memory.
    pub(super) fn known(&self, id: Oid) -> Option<Arc<[u8]>> {
        self.known.get(&id).cloned()
    }

    /// Whether a file of this size is too large to be read.
    pub(super) fn is_too_large(&self, path: &str, bytes: u64) -> bool {
        let module = self.filter.is_of_module(path);
        let max = if module { self.limits.module_file_bytes_max } else { self.limits.file_bytes_max };
        max < bytes
    }

    /// Limit of the size of any file.
    pub(super) fn file_bytes_max(&self) -> u64 {
        self.limits.file_bytes_max.max(self.limits.module_file_bytes_max)
    }

    pub(super) fn folder(&mut self, path: &str, id: Oid) {
        self.trees.insert(path.into(), id);
    }

    /// Adds a file without bytes.
    pub(super) fn special(&mut self, path: &str, id: Oid, content: Content) -> Result<(), Error> {
        if self.limits.files_max <= self.files.len() {
            return Err(Error::TooManyFiles { what: "files", limit: self.limits.files_max });
        }
        self.files.insert(path.into(), File { id, content });
        Ok(())
    }

    /// Adds a relevant file of `bytes` length. Reads it if it is not in memory and the limits allow it.
    pub(super) fn file<B: AsRef<[u8]>>(
        &mut self,
        path: &str,
        id: Oid,
        bytes: u64,
        read: impl FnOnce() -> Result<B, Error>,
    ) -> Result<(), Error> {
        if self.is_too_large(path, bytes) {
            return self.special(path, id, Content::TooLarge { bytes });
        }
        self.is_over_budget |= self.limits.total_bytes_max < self.total_bytes.saturating_add(bytes);
        if self.is_over_budget {
            return self.special(path, id, Content::OverBudget);
        }
        self.total_bytes += bytes;
        let text = match self.known.get(&id) {
            Some(text) => Arc::clone(text),
            None => Arc::from(read()?.as_ref()),
        };
        if is_lfs_pointer(&text) {
            return self.special(path, id, Content::LfsPointer);
        }
        self.known.insert(id, Arc::clone(&text));
        self.special(path, id, Content::Text(text))
    }

    pub(super) fn finish(self, revision: Revision) -> Snapshot {
        Snapshot { revision, files: self.files, trees: self.trees, unopened: self.unopened }
    }
}

// === impl Walk ===

impl Walk<'_> {
    fn folder(&mut self, id: git2::Oid, path: &str, depth: usize) -> Result<(), Error> {
        if limits::DEPTH_MAX < depth {
            return Err(Error::TooDeep { path: path.to_owned(), limit: limits::DEPTH_MAX });
        }
        self.collector.folder(path, from_git(id));
        let repository = self.repository;
        let tree = repository.find_tree(id).map_err(|_| (self.broken)(format!("tree {id}")))?;
        let ambiguous = ambiguous(&tree);
        for entry in &tree {
            self.collector.entry()?;
            let name = entry.name_bytes();
            if name.starts_with(b".") {
                continue;
            }
            if ambiguous.contains(name) {
                let shown = join(path, &name_text(name).map_or_else(|shown| shown, str::to_owned));
                if self.collector.enters(&shown) {
                    self.collector.special(&shown, from_git(entry.id()), Content::Ambiguous)?;
                }
                continue;
            }
            let mode = Mode::from_bits(entry.filemode());
            match name_text(name) {
                Ok(name) => self.entry(entry.id(), &mode, &join(path, name), depth)?,
                Err(shown) => {
                    let shown = join(path, &shown);
                    if !matches!(mode, Mode::File) || self.collector.takes(&shown) {
                        self.collector.special(&shown, from_git(entry.id()), Content::NameNotUtf8)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, id: git2::Oid, mode: &Mode, path: &str, depth: usize) -> Result<(), Error> {
        match mode {
            Mode::Folder if self.collector.enters(path) => self.folder(id, path, depth + 1),
            Mode::Folder => {
                self.collector.folder(path, from_git(id));
                self.collector.unopened(path);
                Ok(())
            }
            // Regardless of their names: either may replace a folder of definitions.
            Mode::Symlink if self.collector.enters(path) => {
                self.collector.special(path, from_git(id), Content::Symlink)
            }
            Mode::Submodule if self.collector.enters(path) => {
                self.collector.special(path, from_git(id), Content::Submodule)
            }
            Mode::Symlink | Mode::Submodule => Ok(()),
            Mode::File if self.collector.takes(path) => self.blob(id, path),
            Mode::File => Ok(()),
        }
    }

    fn blob(&mut self, id: git2::Oid, path: &str) -> Result<(), Error> {
        let broken = || (self.broken)(format!("blob {id} of {path}"));
        if let Some(known) = self.collector.known(from_git(id)) {
            return self.collector.file(path, from_git(id), known.len() as u64, || Ok(known));
        }
        // The header contains the size, so a large blob is not unpacked.
        let (bytes, kind) = self.odb.read_header(id).map_err(|_| broken())?;
        if kind != ObjectType::Blob {
            return Err(broken());
        }
        let odb = &self.odb;
        let read = || odb.read(id).map(|object| object.data().to_vec()).map_err(|_| broken());
        self.collector.file(path, from_git(id), bytes as u64, read)
    }
}

// === impl Mode ===

impl Mode {
    fn from_bits(mode: i32) -> Mode {
        match mode & 0o170_000 {
            0o040_000 => Mode::Folder,
            0o120_000 => Mode::Symlink,
            0o160_000 => Mode::Submodule,
            _ => Mode::File,
        }
    }
}
