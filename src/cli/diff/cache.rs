//! What a comparison keeps for the next one: definitions as they were checked, in one file of a folder.
//!
//! A file is written beside its place and moved there, so nobody ever reads half of one. What cannot be read, is damaged
//! or was made by another program is passed over: then everything is parsed. A cache that cannot be written is a warning,
//! since the comparison does not depend on it.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use crate::definition::{self, Options};

/// A cache of definitions, and where it is kept. Cheap to clone.
#[derive(Clone)]
pub(super) struct Cache {
    path: Option<PathBuf>,
    checked: Option<definition::Cache>,
    /// How many files were parsed by others when it was loaded: with none since, it need not be written.
    is_stored: bool,
}

/// A larger file was not written by us.
const BYTES_MAX: u64 = 512 << 20;

// === impl Cache ===

impl Cache {
    /// A cache that is kept in `folder`, or nowhere.
    pub(super) fn new(folder: Option<&Path>) -> Cache {
        let path = folder.map(|folder| folder.join(format!("definitions-{:016x}.bin", program())));
        Cache { path, checked: None, is_stored: false }
    }

    /// The definitions; loaded when they are asked for first, since they depend on the options.
    pub(super) fn of(&mut self, options: &Options) -> &mut definition::Cache {
        if self.checked.is_none() {
            let loaded = self.path.as_deref().and_then(|path| load(path, options));
            self.is_stored = loaded.is_some();
            self.checked = Some(loaded.unwrap_or_default());
        }
        self.checked.get_or_insert_default()
    }

    /// Writes it, with what was asked for on the old side only, if there is anything new in it.
    pub(super) fn store(&mut self, of_old: Cache) {
        let (Some(path), Some(checked)) = (&self.path, &mut self.checked) else { return };
        if self.is_stored && checked.parsed() == 0 {
            return;
        }
        of_old.checked.into_iter().for_each(|old| checked.merge(old));
        if let Err(error) = write(path, &checked.to_bytes()) {
            anstream::eprintln!("warning: cannot write the cache {}: {error}", path.display());
        }
    }
}

fn load(path: &Path, options: &Options) -> Option<definition::Cache> {
    let length = fs::metadata(path).ok()?.len();
    if BYTES_MAX < length {
        return None;
    }
    definition::Cache::from_bytes(&fs::read(path).ok()?, options)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(())
}

/// This very program: another build may check definitions otherwise.
fn program() -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = std::env::current_exe().and_then(fs::metadata).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    (env!("CARGO_PKG_VERSION"), metadata.map(|metadata| metadata.len()), modified).hash(&mut hasher);
    hasher.finish()
}
