//! Loose objects that are cut, as a full disk or a crash leaves them: libgit2 reads such a file for ever.
//!
//! So a loose object is inflated once before libgit2 reads it. Before libgit2 searches for a commit, for example for
//! `HEAD~3` or a merge base, all loose commits, tags and trees are. Objects in packs are not: libgit2 reports those
//! that are cut.

use std::{
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
};

use flate2::bufread::ZlibDecoder;
use git2::{ErrorClass, ErrorCode, Oid, Repository};

/// The folders in which a repository has loose objects: its own, and those of other repositories that it uses.
pub(super) struct LooseObjects(Vec<PathBuf>);

/// How a loose blob begins.
const BLOB: &[u8; 5] = b"blob ";

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

    /// A commit, tag or tree in a loose file that is cut or damaged, if there is one. No search reads blobs.
    pub(super) fn damaged(&self) -> Option<Oid> {
        let folders = self.0.iter().flat_map(|objects| entries(objects));
        let files = folders.filter(|folder| hexadecimal(folder).is_some_and(|name| name.len() == 2));
        let mut files = files.flat_map(|folder| entries(&folder).collect::<Vec<_>>());
        files.find_map(|file| {
            let id = Oid::from_str(&format!("{}{}", hexadecimal(file.parent()?)?, hexadecimal(&file)?)).ok()?;
            // A file may go while `git gc` runs.
            let mut file = ZlibDecoder::new(BufReader::new(File::open(&file).ok()?));
            let mut kind = [0; BLOB.len()];
            let is_sound = match file.read_exact(&mut kind) {
                Ok(()) => kind == *BLOB || io::copy(&mut file, &mut io::sink()).is_ok(),
                Err(_) => false,
            };
            (!is_sound).then_some(id)
        })
    }
}

/// The paths in a folder.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The last part of a path, if it consists of hexadecimal digits.
fn hexadecimal(path: &Path) -> Option<&str> {
    path.file_name()?.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Fails if an object is in a loose file that is cut or damaged.
pub(super) fn check(repository: &Repository, id: Oid) -> Result<(), git2::Error> {
    LooseObjects::of(repository).check(id)
}
