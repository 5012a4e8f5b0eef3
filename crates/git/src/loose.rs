//! Loose objects that are cut, as a full disk or a crash leaves them: libgit2 reads such a file for ever.
//!
//! So a loose object is inflated once before libgit2 reads it. Objects in packs are not: libgit2 reports those that are
//! cut.

use std::{
    fs::{self, File},
    io::{self, BufReader},
    path::PathBuf,
};

use flate2::bufread::ZlibDecoder;
use git2::{ErrorClass, ErrorCode, Oid, Repository};

/// The folders in which a repository has loose objects: its own, and those of other repositories that it uses.
pub(super) struct LooseObjects(Vec<PathBuf>);

// === impl LooseObjects ===

impl LooseObjects {
    pub(super) fn of(repository: &Repository) -> LooseObjects {
        let own = repository.commondir().join("objects");
        let others = fs::read_to_string(own.join("info/alternates")).unwrap_or_default();
        let others = others.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        // A path may be relative.
        let others: Vec<PathBuf> = others.map(|line| own.join(line)).collect();
        LooseObjects([own].into_iter().chain(others).collect())
    }

    /// None: the repository is in memory.
    pub(super) fn none() -> LooseObjects {
        LooseObjects(Vec::new())
    }

    /// Fails if an object is in a loose file that is cut or damaged.
    pub(super) fn check(&self, id: Oid) -> Result<(), git2::Error> {
        let name = id.to_string();
        let (folder, file) = name.split_at(2);
        for objects in &self.0 {
            let Ok(file) = File::open(objects.join(folder).join(file)) else { continue };
            // What follows the end of the stream does not matter to libgit2 either.
            let inflated = io::copy(&mut ZlibDecoder::new(BufReader::new(file)), &mut io::sink());
            return inflated.map(drop).map_err(|_| {
                git2::Error::new(ErrorCode::GenericError, ErrorClass::Zlib, format!("the loose object {id} is cut"))
            });
        }
        Ok(())
    }
}

/// Fails if an object is in a loose file that is cut or damaged.
pub(super) fn check(repository: &Repository, id: Oid) -> Result<(), git2::Error> {
    LooseObjects::of(repository).check(id)
}
