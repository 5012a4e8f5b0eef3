//! Reads the files of a commit from git objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use git2::{ObjectType, Odb, Repository};

use super::{error::Error, limits, loose::LooseObjects};
use tidegate_core::{
    revision::{Oid, Revision},
    snapshot::{Content, File, Filter, Limits, OWN_FOLDER, Snapshot},
};

/// Creates the error for an unreadable object: a mirror and a user's repository have different ones.
pub(super) type Broken<'a> = &'a dyn Fn(String) -> Error;

/// Paths and their bytes, in path order.
pub type Files = Vec<(Arc<str>, Arc<[u8]>)>;

/// Collects the files of a snapshot within its limits.
///
/// Files arrive in path order, so that the limits omit the same files whatever the source.
pub(super) struct Collector {
    filter: Filter,
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

/// What receives the files of a walk: a [`Collector`], or the engine's way to one in another process.
pub(super) trait Visit {
    /// Counts one entry of a folder, relevant or not.
    fn entry(&mut self) -> Result<(), Error>;

    /// Whether a file is relevant.
    fn takes(&self, path: &str) -> bool;

    /// Whether anything in a folder is relevant.
    fn enters(&self, path: &str) -> bool;

    /// Length of a blob that need not be read again.
    fn known_bytes(&self, id: Oid) -> Option<u64>;

    /// Takes a folder.
    fn folder(&mut self, path: &str, id: Oid) -> Result<(), Error>;

    /// Takes a folder that is not opened.
    fn unopened(&mut self, path: &str) -> Result<(), Error>;

    /// Takes a file without bytes.
    fn special(&mut self, path: &str, id: Oid, content: Content) -> Result<(), Error>;

    /// Takes a relevant file of `bytes` length. Reads it if it is not known and the limits allow it.
    fn file(
        &mut self,
        path: &str,
        id: Oid,
        bytes: u64,
        read: &mut dyn FnMut() -> Result<Arc<[u8]>, Error>,
    ) -> Result<(), Error>;
}

/// Walks a tree and passes its files to a visitor.
struct Walk<'a, V> {
    repository: &'a Repository,
    odb: Odb<'a>,
    loose: LooseObjects,
    visitor: V,
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
    let collector = Collector::new(filter, limits, previous);
    Ok(visit_commit(repository, commit, collector, broken)?.finish(Revision::Commit { name: name.to_owned(), commit }))
}

/// Passes the files of a commit to a visitor.
pub(super) fn visit_commit<V: Visit>(
    repository: &Repository,
    commit: Oid,
    visitor: V,
    broken: Broken<'_>,
) -> Result<V, Error> {
    let loose = LooseObjects::of(repository);
    let found = loose.check(to_git(commit)).and_then(|()| repository.find_commit(to_git(commit)));
    let tree = found.map_err(|error| unread(broken, format!("commit {commit}"), &error))?.tree_id();
    let odb = repository.odb().map_err(|error| unread(broken, "its objects".to_owned(), &error))?;
    let mut walk = Walk { repository, odb, loose, visitor, broken };
    walk.folder(tree, "", 0)?;
    Ok(walk.visitor)
}

/// Passes the files of a tree, or one blob, to a visitor. They are named below `path`.
pub(super) fn visit_object<V: Visit>(
    repository: &Repository,
    loose: LooseObjects,
    id: Oid,
    path: &str,
    visitor: V,
    broken: Broken<'_>,
) -> Result<V, Error> {
    let odb = repository.odb().map_err(|error| unread(broken, "its objects".to_owned(), &error))?;
    let (_, kind) = odb.read_header(to_git(id)).map_err(|error| unread(broken, format!("object {id}"), &error))?;
    let mut walk = Walk { repository, odb, loose, visitor, broken };
    match kind {
        ObjectType::Tree => walk.folder(to_git(id), path, 0)?,
        ObjectType::Blob => walk.blob(to_git(id), path)?,
        ObjectType::Any | ObjectType::Commit | ObjectType::Tag => return Err(broken(format!("object {id}"))),
    }
    Ok(walk.visitor)
}

/// The error for an object that libgit2 cannot read. A lack of memory is no fault of the object.
fn unread(broken: Broken<'_>, what: String, error: &git2::Error) -> Error {
    if error.class() == git2::ErrorClass::NoMemory { Error::Memory } else { broken(what) }
}

/// What matters of a module's objects: everything at or below their path.
pub(super) fn module_filter(path: &str) -> Filter {
    Filter::default().with_modules([path.to_owned()].into())
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

/// The name as text, or a replacement for display if it is not UTF-8. A name with `/` is none that git itself writes:
/// it would look like a path through other folders.
pub(super) fn name_text(name: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(name);
    if let Ok(text) = text
        && text.contains('/')
    {
        return Err(text.replace('/', "\\x2f"));
    }
    text.map_err(|_| {
        let chunks = name.utf8_chunks();
        chunks.fold(String::new(), |mut text, chunk| {
            text.push_str(&chunk.valid().replace('/', "\\x2f"));
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
            text
        })
    })
}

/// Whether nothing at or below an entry of this name may be relevant.
pub(super) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != OWN_FOLDER.as_bytes()
}

/// Whether the bytes are a pointer of Git LFS instead of a file's content.
pub(super) fn is_lfs_pointer(bytes: &[u8]) -> bool {
    const LEN_MAX: usize = 1024; // The specification's limit for a pointer.
    bytes.len() < LEN_MAX && bytes.starts_with(b"version https://git-lfs.github.com/spec/")
}

/// The names that several entries of a folder have. Git never writes such a tree, but a server can send one.
fn ambiguous(tree: &git2::Tree<'_>) -> HashSet<Vec<u8>> {
    let mut seen = HashSet::new();
    tree.iter().map(|entry| entry.name_bytes().to_vec()).filter(|name| !seen.insert(name.clone())).collect()
}

// === impl Collector ===

impl Collector {
    pub(super) fn new(filter: &Filter, limits: Limits, previous: Option<&Snapshot>) -> Collector {
        let known = previous.into_iter().flat_map(|snapshot| snapshot.files.values());
        let known = known.filter_map(|file| Some((file.id, Arc::clone(file.text()?)))).collect();
        Collector {
            filter: filter.clone(),
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
        self.limits.is_too_large(bytes, self.filter.is_of_module(path))
    }

    /// Limit of the size of any file.
    pub(super) fn file_bytes_max(&self) -> u64 {
        self.limits.file_bytes_max.max(self.limits.module_file_bytes_max)
    }

    pub(super) fn folder(&mut self, path: &str, id: Oid) {
        self.trees.insert(path.into(), id);
    }

    /// The files with their bytes, in path order. Fails if one has none.
    pub(super) fn into_files(self) -> Result<Files, Error> {
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
        self.files.into_iter().map(readable).collect()
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

impl Visit for Collector {
    fn entry(&mut self) -> Result<(), Error> {
        Collector::entry(self)
    }

    fn takes(&self, path: &str) -> bool {
        Collector::takes(self, path)
    }

    fn enters(&self, path: &str) -> bool {
        Collector::enters(self, path)
    }

    fn known_bytes(&self, id: Oid) -> Option<u64> {
        self.known.get(&id).map(|text| text.len() as u64)
    }

    fn folder(&mut self, path: &str, id: Oid) -> Result<(), Error> {
        Collector::folder(self, path, id);
        Ok(())
    }

    fn unopened(&mut self, path: &str) -> Result<(), Error> {
        Collector::unopened(self, path);
        Ok(())
    }

    fn special(&mut self, path: &str, id: Oid, content: Content) -> Result<(), Error> {
        Collector::special(self, path, id, content)
    }

    fn file(
        &mut self,
        path: &str,
        id: Oid,
        bytes: u64,
        read: &mut dyn FnMut() -> Result<Arc<[u8]>, Error>,
    ) -> Result<(), Error> {
        Collector::file(self, path, id, bytes, read)
    }
}

// === impl Walk ===

impl<V: Visit> Walk<'_, V> {
    fn folder(&mut self, id: git2::Oid, path: &str, depth: usize) -> Result<(), Error> {
        if limits::DEPTH_MAX < depth {
            return Err(Error::TooDeep { path: path.to_owned(), limit: limits::DEPTH_MAX });
        }
        self.visitor.folder(path, from_git(id))?;
        let repository = self.repository;
        let tree = self.loose.check(id).and_then(|()| repository.find_tree(id));
        let tree = tree.map_err(|error| unread(self.broken, format!("tree {id}"), &error))?;
        let ambiguous = ambiguous(&tree);
        for entry in &tree {
            self.visitor.entry()?;
            let name = entry.name_bytes();
            if is_hidden(name) {
                continue;
            }
            if ambiguous.contains(name) {
                let shown = join(path, &name_text(name).map_or_else(|shown| shown, str::to_owned));
                if self.visitor.enters(&shown) {
                    self.visitor.special(&shown, from_git(entry.id()), Content::Ambiguous)?;
                }
                continue;
            }
            let mode = Mode::from_bits(entry.filemode());
            match name_text(name) {
                Ok(name) => self.entry(entry.id(), &mode, &join(path, name), depth)?,
                Err(shown) => {
                    let shown = join(path, &shown);
                    if !matches!(mode, Mode::File) || self.visitor.takes(&shown) {
                        self.visitor.special(&shown, from_git(entry.id()), Content::NameNotUtf8)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn entry(&mut self, id: git2::Oid, mode: &Mode, path: &str, depth: usize) -> Result<(), Error> {
        match mode {
            Mode::Folder if self.visitor.enters(path) => self.folder(id, path, depth + 1),
            Mode::Folder => {
                self.visitor.folder(path, from_git(id))?;
                self.visitor.unopened(path)
            }
            // Regardless of their names: either may replace a folder of definitions.
            Mode::Symlink if self.visitor.enters(path) => self.visitor.special(path, from_git(id), Content::Symlink),
            Mode::Submodule if self.visitor.enters(path) => {
                self.visitor.special(path, from_git(id), Content::Submodule)
            }
            Mode::Symlink | Mode::Submodule => Ok(()),
            Mode::File if self.visitor.takes(path) => self.blob(id, path),
            Mode::File => Ok(()),
        }
    }

    fn blob(&mut self, id: git2::Oid, path: &str) -> Result<(), Error> {
        let broken = |error: &git2::Error| unread(self.broken, format!("blob {id} of {path}"), error);
        let (loose, odb) = (&self.loose, &self.odb);
        let mut read = || {
            let object = loose.check(id).and_then(|()| odb.read(id));
            object.map(|object| Arc::from(object.data())).map_err(|error| broken(&error))
        };
        if let Some(bytes) = self.visitor.known_bytes(from_git(id)) {
            return self.visitor.file(path, from_git(id), bytes, &mut read);
        }
        // The header contains the size, so a large blob is not unpacked.
        let (bytes, kind) = odb.read_header(id).map_err(|error| broken(&error))?;
        if kind != ObjectType::Blob {
            return Err((self.broken)(format!("blob {id} of {path}")));
        }
        self.visitor.file(path, from_git(id), bytes as u64, &mut read)
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
