//! Folders of commits as sorted lists, and those that were read last.
//!
//! Most commits change one file, so a commit and its parent have nearly all folders in common, and a merge asks for the
//! same folders again for each path.

use std::{cmp::Ordering, collections::HashMap, rc::Rc};

use git2::{Oid as GitOid, Tree};

/// An entry of a folder: its mode and object.
pub(super) type Entry = (i32, GitOid);

/// A folder. No two of its entries have the same name.
#[derive(Default)]
pub(super) struct Folder {
    /// All names, one after the other.
    names: Vec<u8>,
    /// Sorted by name, byte by byte.
    entries: Vec<Listed>,
}

struct Listed {
    start: usize,
    end: usize,
    entry: Entry,
}

/// The folders that were read last, in two halves: when the newer one is full, the older one is forgotten.
#[derive(Default)]
pub(super) struct Folders {
    newer: HashMap<GitOid, Rc<Folder>>,
    older: HashMap<GitOid, Rc<Folder>>,
    /// Memory of the newer half.
    bytes: usize,
}

/// Memory of each half. Folders of 200,000 files fit in, and both halves fit into that of an engine several times.
const HALF_BYTES_MAX: usize = 12 << 20;

// === impl Folder ===

impl Folder {
    /// Reads a folder. `None` if a name is ambiguous, or none that git writes.
    pub(super) fn read(tree: &Tree<'_>) -> Option<Folder> {
        let mut folder = Folder { names: Vec::new(), entries: Vec::with_capacity(tree.len()) };
        for entry in tree {
            let name = entry.name_bytes();
            if name.is_empty() || name.contains(&b'/') || name == b"." || name == b".." {
                return None;
            }
            let start = folder.names.len();
            folder.names.extend_from_slice(name);
            let entry = (entry.filemode(), entry.id());
            folder.entries.push(Listed { start, end: folder.names.len(), entry });
        }
        // Git sorts a folder as if its name ended with a slash, and a hostile server sorts as it likes.
        let Folder { names, entries } = &mut folder;
        entries.sort_by(|one, other| names[one.start..one.end].cmp(&names[other.start..other.end]));
        let is_ambiguous = (1..folder.len()).any(|index| folder.name(index - 1) == folder.name(index));
        (!is_ambiguous).then_some(folder)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry with this name.
    pub(super) fn get(&self, name: &[u8]) -> Option<Entry> {
        let found = self.entries.binary_search_by(|one| self.names[one.start..one.end].cmp(name));
        found.ok().map(|index| self.entries[index].entry)
    }

    fn name(&self, index: usize) -> &[u8] {
        let Listed { start, end, .. } = self.entries[index];
        &self.names[start..end]
    }

    fn bytes(&self) -> usize {
        self.names.len() + self.entries.len() * size_of::<Listed>()
    }
}

/// The names at which two folders differ, with both entries.
pub(super) fn differences<'a>(
    before: &'a Folder,
    after: &'a Folder,
) -> impl Iterator<Item = (&'a [u8], Option<Entry>, Option<Entry>)> {
    let (mut old, mut new) = (0, 0);
    let pairs = std::iter::from_fn(move || {
        let order = match (old < before.len(), new < after.len()) {
            (false, false) => return None,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (true, true) => before.name(old).cmp(after.name(new)),
        };
        let name = if order == Ordering::Greater { after.name(new) } else { before.name(old) };
        let one = (order != Ordering::Greater).then(|| before.entries[old].entry);
        let other = (order != Ordering::Less).then(|| after.entries[new].entry);
        old += usize::from(one.is_some());
        new += usize::from(other.is_some());
        Some((name, one, other))
    });
    pairs.filter(|(_, one, other)| one != other)
}

// === impl Folders ===

impl Folders {
    /// The folder with this id, if it is remembered.
    pub(super) fn get(&mut self, id: GitOid) -> Option<Rc<Folder>> {
        if let Some(folder) = self.newer.get(&id) {
            return Some(Rc::clone(folder));
        }
        let folder = self.older.remove(&id)?;
        self.insert(id, Rc::clone(&folder));
        Some(folder)
    }

    pub(super) fn insert(&mut self, id: GitOid, folder: Rc<Folder>) {
        let bytes = folder.bytes();
        if HALF_BYTES_MAX < self.bytes + bytes {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += bytes;
        self.newer.insert(id, folder);
    }
}
