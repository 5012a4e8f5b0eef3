//! The files of a work tree, as `git add -A` would see them.
//!
//! Every folder is opened relative to its parent and no link is followed. So nothing outside of the tree is read, even
//! if an entry is replaced by a link meanwhile.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use git2::{AttrCheckFlags, AttrValue, ObjectType, Oid, Repository};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, RawMode, Stat, openat, readlinkat, statat},
    io::Errno,
};

use self::ignored::Ignored;
use super::{
    error::Error,
    limits,
    local::RepositoryPath,
    loose,
    objects::{Collector, from_git, is_hidden, join, name_text},
};
use tidegate_core::{
    revision::Revision,
    snapshot::{Content, Filter, Limits, Snapshot},
};

mod ignored;

const MODE_FOLDER: u32 = 0o040_000;
const MODE_FILE: u32 = 0o100_644;
const MODE_PROGRAM: u32 = 0o100_755;
const MODE_LINK: u32 = 0o120_000;
const MODE_SUBMODULE: u32 = 0o160_000;

/// Files that are not needed are hashed in memory up to this size, and through a file descriptor beyond it.
const HASHED_IN_MEMORY_BYTES_MAX: u64 = 8 << 20;
/// Files that are not needed are hashed up to this size, a few tenths of a second each, and up to a total that takes a
/// few seconds. Beyond that, size and time of the last change stand in for the content.
const HASHED_BYTES_MAX: u64 = 64 << 20;
const HASHED_TOTAL_BYTES_MAX: u64 = 1 << 30;

/// Reads a folder that is not a repository, or one file.
pub(super) fn read_folder(place: &RepositoryPath, filter: &Filter, limits: Limits) -> Result<Snapshot, Error> {
    let mut walk = Walk::new(&place.root, None, filter, limits);
    let root = open_root(&place.root)?;
    if place.below.is_empty() {
        walk.folder(&root, &Position::root(), &Ignored::nothing())?;
    } else {
        let name = place.below.as_bytes();
        let stat = statat(&root, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| walk.error(name, error))?;
        // A file on the command line is read whatever its name.
        walk.takes_all = true;
        walk.file(&root, name, &Position::root().child(name), &stat)?;
    }
    Ok(walk.collector.finish(Revision::WorkTree))
}

/// Reads the work tree of a repository.
pub(super) fn read_repository(
    repository: &Repository,
    root: &Path,
    previous: Option<&Snapshot>,
    filter: &Filter,
    limits: Limits,
) -> Result<Snapshot, Error> {
    let mut walk = Walk::new(root, Some(Index::load(repository, root)?), filter, limits);
    walk.collector = Collector::new(filter, limits, previous);
    let folder = open_root(root)?;
    let ignored = Ignored::of_repository(repository);
    let has_attributes = repository.commondir().join("info/attributes").is_file();
    walk.folder(&folder, &Position { has_attributes, ..Position::root() }, &ignored)?;
    Ok(walk.collector.finish(Revision::WorkTree))
}

fn open_root(root: &Path) -> Result<OwnedFd, Error> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty())
        .map_err(|error| Error::Path { path: root.to_owned(), source: error.into() })
}

/// What git's index says about the work tree.
struct Index<'r> {
    repository: &'r Repository,
    entries: BTreeMap<Vec<u8>, git2::IndexEntry>,
    /// When the index was written. Entries of the same age may have changed since without a trace.
    written: (i64, i64),
    /// `core.fileMode`: whether the file system stores the executable bit.
    file_mode: bool,
    /// `core.autocrlf`.
    converts_line_ends: bool,
}

/// The position of the walk.
#[derive(Clone)]
struct Position {
    path: Vec<u8>,
    /// The path as text, or a replacement for display.
    text: Result<String, String>,
    /// Whether no part of the path begins with `.`, and all of it is UTF-8.
    is_visible: bool,
    /// Whether the folder is ignored, so that only tracked files count.
    only_tracked: bool,
    /// Whether attributes may apply here; looking them up is slow.
    has_attributes: bool,
    depth: usize,
}

struct Walk<'a> {
    root: &'a Path,
    index: Option<Index<'a>>,
    collector: Collector,
    takes_all: bool,
    /// Bytes of files that are not needed and were hashed.
    hashed_bytes: u64,
}

/// An entry of a folder.
struct Entry {
    name: Vec<u8>,
    stat: Stat,
}

// === impl Index ===

impl<'r> Index<'r> {
    fn load(repository: &'r Repository, root: &Path) -> Result<Index<'r>, Error> {
        let broken = |what: &str| Error::Repository { path: root.to_owned(), what: what.to_owned() };
        let index = repository.index().map_err(|_| broken("its index is broken"))?;
        let mut entries = BTreeMap::new();
        for entry in index.iter() {
            let flags = git2::IndexEntryExtendedFlag::from_bits_truncate(entry.flags_extended);
            if flags.is_skip_worktree() {
                return Err(broken(
                    "its checkout is sparse; set a revision with `--rev`, or `--to` of `tidegate diff`",
                ));
            }
            entries.insert(entry.path.clone(), entry);
        }
        let written = index.path().and_then(|path| rustix::fs::stat(path).ok());
        let written = written.map_or((0, 0), |stat| (stat.st_mtime, stat.st_mtime_nsec as i64));
        let config = repository.config().map_err(|_| broken("its configuration is broken"))?;
        Ok(Index {
            repository,
            entries,
            written,
            file_mode: config.get_bool("core.fileMode").unwrap_or(true),
            converts_line_ends: config
                .get_string("core.autocrlf")
                .is_ok_and(|value| value == "input" || value == "true"),
        })
    }

    /// Whether a path, or anything below it, is tracked.
    fn tracks(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let next = self.entries.range(below.clone()..).next();
        self.entries.contains_key(path) || next.is_some_and(|(next, _)| next.starts_with(&below))
    }

    /// The blob id of a file that is unchanged according to the index.
    fn unchanged(&self, path: &[u8], stat: &Stat) -> Option<Oid> {
        let entry = self.entries.get(path)?;
        let modified = (stat.st_mtime, stat.st_mtime_nsec as i64);
        let same = |time: git2::IndexTime, seconds: i64, nanoseconds: i64| {
            i64::from(time.seconds()) == seconds && i64::from(time.nanoseconds()) == nanoseconds
        };
        let is_unchanged = u64::from(entry.file_size) == stat.st_size as u64
            && u64::from(entry.ino) == stat.st_ino & u64::from(u32::MAX)
            && same(entry.mtime, modified.0, modified.1)
            && same(entry.ctime, stat.st_ctime, stat.st_ctime_nsec as i64)
            && modified < self.written
            && entry.mode & 0o170_000 == 0o100_000;
        is_unchanged.then_some(entry.id)
    }

    /// The mode that a commit would give a file.
    fn mode(&self, path: &[u8], on_disk: u32) -> u32 {
        match self.entries.get(path) {
            Some(entry) if !self.file_mode && entry.mode & 0o170_000 == 0o100_000 => entry.mode,
            _ if self.file_mode => on_disk,
            _ => MODE_FILE,
        }
    }

    /// An attribute of a path. The three special values are compared by identity, so nothing is copied.
    fn attribute(&self, path: &str, name: &str) -> AttrValue<'_> {
        let value = self.repository.get_attr(Path::new(path), name, AttrCheckFlags::FILE_THEN_INDEX);
        AttrValue::from_string(value.ok().flatten())
    }

    /// Whether a commit would store LF for the file's CRLF.
    fn converts_line_ends(&self, path: &str, has_attributes: bool, bytes: &[u8]) -> bool {
        let may_convert = has_attributes || self.converts_line_ends;
        if !may_convert || !bytes.windows(2).any(|pair| pair == b"\r\n") {
            return false;
        }
        match self.attribute(path, "text") {
            AttrValue::True => true,
            AttrValue::False => false,
            AttrValue::String("auto") => self.converts_unasked(path, bytes),
            _ if self.attribute(path, "eol") != AttrValue::Unspecified => true,
            _ => self.converts_line_ends && self.converts_unasked(path, bytes),
        }
    }

    /// Without an explicit attribute, git does not convert binary files and files that already contain CRLF.
    fn converts_unasked(&self, path: &str, bytes: &[u8]) -> bool {
        let committed = self.entries.get(path.as_bytes()).and_then(|entry| {
            loose::check(self.repository, entry.id).and_then(|()| self.repository.find_blob(entry.id)).ok()
        });
        let has_crlf = |blob: &git2::Blob<'_>| blob.content().windows(2).any(|pair| pair == b"\r\n");
        !bytes.contains(&0) && !committed.as_ref().is_some_and(has_crlf)
    }
}

// === impl Position ===

impl Position {
    fn root() -> Position {
        Position {
            path: Vec::new(),
            text: Ok(String::new()),
            is_visible: true,
            only_tracked: false,
            has_attributes: false,
            depth: 0,
        }
    }

    fn child(&self, name: &[u8]) -> Position {
        let path = if self.path.is_empty() { name.to_vec() } else { [&self.path, &b"/"[..], name].concat() };
        let text = match (&self.text, name_text(name)) {
            (Ok(folder), Ok(name)) => Ok(join(folder, name)),
            (Ok(folder), Err(shown)) => Err(join(folder, &shown)),
            (Err(folder), name) => Err(join(folder, &name.map_or_else(|shown| shown, str::to_owned))),
        };
        Position {
            is_visible: self.is_visible && self.text.is_ok() && !is_hidden(name),
            path,
            text,
            only_tracked: self.only_tracked,
            has_attributes: self.has_attributes,
            depth: self.depth + 1,
        }
    }

    /// The path as text, if the entry may be relevant.
    fn visible(&self) -> Option<Result<&str, &str>> {
        self.is_visible.then(|| self.text.as_deref().map_err(String::as_str))
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    fn new(root: &'a Path, index: Option<Index<'a>>, filter: &'a Filter, limits: Limits) -> Walk<'a> {
        Walk { root, index, collector: Collector::new(filter, limits, None), takes_all: false, hashed_bytes: 0 }
    }

    fn error(&self, path: &[u8], error: Errno) -> Error {
        Error::Path { path: self.full_path(path), source: error.into() }
    }

    fn full_path(&self, path: &[u8]) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        self.root.join(std::ffi::OsStr::from_bytes(path))
    }

    /// Reads a folder; `None` if a commit would not contain it.
    fn folder(&mut self, folder: &OwnedFd, at: &Position, ignored: &Ignored) -> Result<Option<Oid>, Error> {
        if limits::DEPTH_MAX < at.depth {
            let path = at.text.clone().unwrap_or_else(|shown| shown);
            return Err(Error::TooDeep { path, limit: limits::DEPTH_MAX });
        }
        let ignored = match self.index {
            Some(_) => ignored.within(folder, &at.path),
            None => Ignored::nothing(),
        };
        let mut tree = Vec::new();
        let entries = self.entries(folder, at)?;
        let has_attributes = at.has_attributes || entries.iter().any(|entry| entry.name == b".gitattributes");
        for entry in entries {
            let mut below = Position { has_attributes, ..at.child(&entry.name) };
            if !self.counts(&entry, &mut below, &ignored) {
                continue;
            }
            let Some((mode, id)) = self.entry(folder, &entry, &below, &ignored)? else { continue };
            tree.extend_from_slice(format!("{mode:o} ").as_bytes());
            tree.extend_from_slice(&entry.name);
            tree.push(0);
            tree.extend_from_slice(id.as_bytes());
        }
        if tree.is_empty() && at.depth != 0 {
            return Ok(None);
        }
        let id = hash(ObjectType::Tree, &tree);
        if let Some(Ok(path)) = at.visible() {
            self.collector.folder(path, from_git(id));
        }
        Ok(Some(id))
    }

    /// The entries of a folder in git's order, which compares folder names with a final `/`.
    fn entries(&mut self, folder: &OwnedFd, at: &Position) -> Result<Vec<Entry>, Error> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(folder).map_err(|errno| self.error(&at.path, errno))? {
            let entry = entry.map_err(|errno| self.error(&at.path, errno))?;
            let name = entry.file_name().to_bytes().to_vec();
            if matches!(&name[..], b"." | b"..") || name.eq_ignore_ascii_case(b".git") {
                continue;
            }
            match statat(folder, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.push(Entry { name, stat }),
                Err(Errno::NOENT) => {} // Gone since we listed it.
                Err(errno) => return Err(self.error(&at.child(&name).path, errno)),
            }
            self.collector.entry()?;
        }
        let sort_name = |entry: &Entry| {
            let end: &[u8] = if kind(&entry.stat) == FileType::Directory { b"/" } else { b"" };
            [&entry.name, end].concat()
        };
        entries.sort_by_cached_key(sort_name);
        Ok(entries)
    }

    /// Whether git would include an entry; in an ignored folder only if it is tracked.
    fn counts(&self, entry: &Entry, below: &mut Position, ignored: &Ignored) -> bool {
        let Some(index) = &self.index else { return true };
        let is_folder = kind(&entry.stat) == FileType::Directory;
        below.only_tracked |= ignored.matches(&below.path, is_folder);
        !below.only_tracked || index.tracks(&below.path)
    }

    /// Mode and id of an entry; `None` if a commit would not contain it.
    fn entry(
        &mut self,
        folder: &OwnedFd,
        entry: &Entry,
        at: &Position,
        ignored: &Ignored,
    ) -> Result<Option<(u32, Oid)>, Error> {
        match kind(&entry.stat) {
            FileType::Directory => {
                if let Some(Ok(path)) = at.visible()
                    && !self.collector.enters(path)
                {
                    self.collector.unopened(path);
                    return Ok(None);
                }
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = match openat(folder, &entry.name[..], flags, Mode::empty()) {
                    Ok(opened) => opened,
                    // It was replaced since the listing: treat it as gone.
                    Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
                    Err(errno) => return Err(self.error(&at.path, errno)),
                };
                if let Some(id) = self.submodule(&opened, at) {
                    self.special(at, id, Content::Submodule)?;
                    return Ok(Some((MODE_SUBMODULE, id)));
                }
                let Some(id) = self.folder(&opened, at, ignored)? else { return Ok(None) };
                if let Some(Err(shown)) = at.visible() {
                    self.collector.special(shown, from_git(id), Content::NameNotUtf8)?;
                }
                Ok(Some((MODE_FOLDER, id)))
            }
            FileType::Symlink => {
                let target = match readlinkat(folder, &entry.name[..], Vec::new()) {
                    Ok(target) => target,
                    Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
                    Err(errno) => return Err(self.error(&at.path, errno)),
                };
                let id = hash(ObjectType::Blob, target.as_bytes());
                self.special(at, id, Content::Symlink)?;
                Ok(Some((MODE_LINK, id)))
            }
            FileType::RegularFile => self.file(folder, &entry.name, at, &entry.stat),
            // Git ignores pipes, sockets and devices.
            _ => Ok(None),
        }
    }

    /// Adds an entry without bytes, if it may be relevant.
    fn special(&mut self, at: &Position, id: Oid, content: Content) -> Result<(), Error> {
        match at.visible() {
            Some(Ok(path)) if !self.collector.enters(path) => Ok(()),
            Some(Ok(path)) => self.collector.special(path, from_git(id), content),
            Some(Err(shown)) => self.collector.special(shown, from_git(id), Content::NameNotUtf8),
            None => Ok(()),
        }
    }

    /// The commit of a nested repository, or of a submodule that is not checked out.
    fn submodule(&self, folder: &OwnedFd, at: &Position) -> Option<Oid> {
        let index = self.index.as_ref();
        let recorded = index.and_then(|index| index.entries.get(&at.path)).filter(|entry| entry.mode == MODE_SUBMODULE);
        if statat(folder, ".git", AtFlags::SYMLINK_NOFOLLOW).is_ok()
            && let Ok(repository) = Repository::open(self.full_path(&at.path))
        {
            let head = repository.head().ok().and_then(|head| head.target());
            return Some(head.or(recorded.map(|entry| entry.id)).unwrap_or(Oid::ZERO_SHA1));
        }
        recorded.map(|entry| entry.id)
    }

    /// Reads or hashes a file.
    fn file(&mut self, folder: &OwnedFd, name: &[u8], at: &Position, stat: &Stat) -> Result<Option<(u32, Oid)>, Error> {
        let Some(opened) = self.open(folder, name, at)? else { return Ok(None) };
        let is_program = stat.st_mode as RawMode & 0o100 != 0;
        let on_disk = if is_program { MODE_PROGRAM } else { MODE_FILE };
        let mode = self.index.as_ref().map_or(on_disk, |index| index.mode(&at.path, on_disk));
        let unchanged = self.index.as_ref().and_then(|index| index.unchanged(&at.path, stat));
        let wanted = match at.visible() {
            Some(Ok(path)) if self.takes_all || self.collector.takes(path) => Some(path.to_owned()),
            Some(Err(shown)) if self.collector.takes(shown) => {
                let id = self.id(&opened, at, stat, unchanged)?;
                self.collector.special(shown, from_git(id), Content::NameNotUtf8)?;
                return Ok(Some((mode, id)));
            }
            _ => None,
        };
        let Some(path) = wanted else {
            // The ids of folders matter only where modules may be.
            let is_covered = at.text.as_deref().map_or_else(|_| true, |path| self.collector.covers(path));
            return if is_covered { Ok(Some((mode, self.id(&opened, at, stat, unchanged)?))) } else { Ok(None) };
        };
        if self.collector.is_too_large(&path, stat.st_size as u64) {
            let id = self.id(&opened, at, stat, unchanged)?;
            self.collector.special(&path, from_git(id), Content::TooLarge { bytes: stat.st_size as u64 })?;
            return Ok(Some((mode, id)));
        }
        let known = unchanged.and_then(|id| Some((id, self.collector.known(from_git(id))?)));
        let (id, bytes) = match known {
            Some(known) => known,
            None => {
                let bytes = self.bytes(&opened, at)?;
                (unchanged.unwrap_or_else(|| hash(ObjectType::Blob, &bytes)), Arc::from(bytes))
            }
        };
        let is_lfs =
            self.index.as_ref().is_some_and(|index| index.attribute(&path, "filter") == AttrValue::String("lfs"));
        if is_lfs {
            self.collector.special(&path, from_git(id), Content::LfsPointer)?;
        } else {
            self.collector.file(&path, from_git(id), bytes.len() as u64, || Ok(bytes))?;
        }
        Ok(Some((mode, id)))
    }

    /// Opens a file; `None` if it is no longer a file.
    fn open(&self, folder: &OwnedFd, name: &[u8], at: &Position) -> Result<Option<File>, Error> {
        // Without `NONBLOCK`, opening a pipe that replaced the file would block.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(folder, name, flags, Mode::empty()) {
            Ok(opened) => {
                let stat = rustix::fs::fstat(&opened).map_err(|errno| self.error(&at.path, errno))?;
                Ok((kind(&stat) == FileType::RegularFile).then(|| File::from(opened)))
            }
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
            Err(errno) => Err(self.error(&at.path, errno)),
        }
    }

    /// The bytes that a commit would store.
    fn bytes(&self, file: &File, at: &Position) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        let mut limited = file.take(HASHED_IN_MEMORY_BYTES_MAX.max(self.collector.file_bytes_max()));
        limited.read_to_end(&mut bytes).map_err(|source| Error::Path { path: self.full_path(&at.path), source })?;
        let converts = match (&self.index, &at.text) {
            (Some(index), Ok(path)) => index.converts_line_ends(path, at.has_attributes, &bytes),
            _ => false,
        };
        if !converts {
            return Ok(bytes);
        }
        let is_dropped = |at: usize| bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n');
        Ok((0..bytes.len()).filter(|&at| !is_dropped(at)).map(|at| bytes[at]).collect())
    }

    /// The blob id of a file that is not needed.
    fn id(&mut self, file: &File, at: &Position, stat: &Stat, unchanged: Option<Oid>) -> Result<Oid, Error> {
        if let Some(id) = unchanged {
            return Ok(id);
        }
        let bytes = stat.st_size as u64;
        self.hashed_bytes = self.hashed_bytes.saturating_add(bytes);
        if HASHED_BYTES_MAX < bytes || HASHED_TOTAL_BYTES_MAX < self.hashed_bytes {
            let stand_in = format!("{bytes} bytes, {}.{:09}", stat.st_mtime, stat.st_mtime_nsec);
            return Ok(hash(ObjectType::Blob, stand_in.as_bytes()));
        }
        if stat.st_size as u64 <= HASHED_IN_MEMORY_BYTES_MAX {
            return Ok(hash(ObjectType::Blob, &self.bytes(file, at)?));
        }
        let path = format!("/dev/fd/{}", file.as_fd().as_raw_fd());
        Oid::hash_file(ObjectType::Blob, path).map_err(|error| Error::Path {
            path: self.full_path(&at.path),
            source: io::Error::other(error.message().to_owned()),
        })
    }
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode as RawMode)
}

fn hash(kind: ObjectType, bytes: &[u8]) -> Oid {
    Oid::hash_object(kind, bytes).expect("hashing bytes in memory needs nothing that could fail")
}
