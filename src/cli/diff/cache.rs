//! The cache of a comparison: parsed definitions for the next comparison, in one file of a folder.
//!
//! A file is written under another name and then renamed, so no process reads a partial file. A file that is
//! unreadable, damaged or from another program is ignored, and everything is parsed. A failed write of the cache is
//! only a warning, because the comparison does not depend on it.

use std::{
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use tidegate_core::definition::{self, Options};
use tidegate_process::tell;

/// A cache of definitions, and its place.
pub(super) struct Cache {
    path: Option<PathBuf>,
    /// The entries of an earlier process. Loaded on first use, because they depend on the options.
    loaded: Option<definition::Cache>,
    /// The entries that were used. Only these are stored, so that the cache does not grow without limit.
    used: definition::Cache,
    /// Whether anything was parsed that was not in the cache.
    is_new: bool,
}

/// Longest file that Tidegate writes.
const BYTES_MAX: u64 = 512 << 20;

// === impl Cache ===

impl Cache {
    /// A cache that is kept in `folder`, or nowhere.
    pub(super) fn new(folder: Option<&Path>) -> Cache {
        let path = folder.map(|folder| folder.join(format!("definitions-{:016x}.bin", program())));
        Cache { path, loaded: None, used: definition::Cache::default(), is_new: false }
    }

    /// All known entries, for one pass; give them to [`Cache::end`] afterwards.
    pub(super) fn begin(&mut self, options: &Options) -> definition::Cache {
        if self.loaded.is_none() {
            let loaded = self.path.as_deref().and_then(|path| load(path, options));
            self.is_new = loaded.is_none();
            self.loaded = Some(loaded.unwrap_or_default());
        }
        let mut known = self.loaded.clone().unwrap_or_default();
        known.merge(self.used.clone());
        known
    }

    /// Takes over the entries that a pass used.
    pub(super) fn end(&mut self, pass: definition::Cache) {
        self.is_new |= pass.parsed() > 0;
        self.used.merge(pass);
    }

    /// Writes the cache if it has new entries.
    pub(super) fn store(&self) {
        let Some(path) = self.path.as_deref().filter(|_| self.is_new) else { return };
        if let Err(error) = write(path, &self.used.to_bytes()) {
            tell!("warning: cannot write the cache {}: {error}", path.display());
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

/// Identifies this program: another build may check definitions differently.
fn program() -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = std::env::current_exe().and_then(fs::metadata).ok();
    let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
    (env!("CARGO_PKG_VERSION"), metadata.map(|metadata| metadata.len()), modified).hash(&mut hasher);
    hasher.finish()
}
