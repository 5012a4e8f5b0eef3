//! The parsers of what a git server sends and of what a Secret contains, for fuzz targets. No other code uses this
//! module.

use std::{collections::HashMap, io::Write as _, path::Path, sync::Arc};

use git2::{Indexer, ObjectType, Odb, Repository};

use super::{
    advertisement, answer,
    error::Error,
    generation,
    loose::LooseObjects,
    objects::{self, Visit, from_git},
    remote::Reference,
    ssh::known_hosts::{HostKeys, KnownHosts},
};
use tidegate_core::{revision::Oid, snapshot::Content};

/// Paths of a walk, by kind.
#[derive(Debug, Default)]
struct Paths {
    files: HashMap<String, Oid>,
    entries: usize,
}

/// Reads an advertisement. Returns whether it is valid, and the number of objects that a fetch of `id` could request.
pub fn advertisement(bytes: &[u8], id: Oid) -> (bool, usize) {
    advertisement::read(bytes, &Reference::Commit(id)).map_or((false, 0), |found| (true, found.all.len()))
}

/// Unwraps the pack of an answer, and indexes it in `folder`. Returns the number of bytes of the pack.
pub fn pack(bytes: &[u8], folder: &Path) -> Option<usize> {
    super::prepare();
    let mut pack = Vec::new();
    answer::unwrap(bytes, &mut pack).ok()?;
    let mut indexer = Indexer::new(None, folder, 0, true).ok()?;
    indexer.write_all(&pack).ok()?;
    indexer.commit().ok()?;
    Some(pack.len())
}

/// Parses `known_hosts`. Returns the number of keys that a host has for a port, in all roles.
pub fn known_hosts(text: &str, host: &str, port: u16) -> Option<usize> {
    let known = KnownHosts::parse(text).ok()?;
    let HostKeys { keys, authorities, revoked } = known.of(host, port);
    Some(keys.len() + authorities.len() + revoked.len())
}

/// Walks a tree object with these bytes, in which every blob is missing. Returns the paths, and the ids that a copy of
/// the tree would follow.
pub fn tree(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    super::prepare();
    let odb = Odb::new().ok()?;
    odb.add_new_mempack_backend(1).ok()?;
    let id = odb.write(ObjectType::Tree, bytes).ok()?;
    let repository = Repository::from_odb(odb).ok()?;
    let broken = |what| Error::Repository { path: Path::new("").to_owned(), what };
    let found = objects::visit_object(&repository, LooseObjects::none(), from_git(id), "", Paths::default(), &broken);
    let children = generation::children(bytes).len();
    Some((found.map_or_else(|_| Vec::new(), |paths| paths.files.into_keys().collect()), children))
}

// === impl Paths ===

impl Visit for Paths {
    fn entry(&mut self) -> Result<(), Error> {
        self.entries += 1;
        Ok(())
    }

    fn takes(&self, _: &str) -> bool {
        true
    }

    fn enters(&self, _: &str) -> bool {
        true
    }

    fn unopened(&mut self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn known_bytes(&self, _: Oid) -> Option<u64> {
        Some(0)
    }

    fn folder(&mut self, _: &str, _: Oid) -> Result<(), Error> {
        Ok(())
    }

    fn special(&mut self, path: &str, id: Oid, _: Content) -> Result<(), Error> {
        self.files.insert(path.to_owned(), id);
        Ok(())
    }

    fn file(
        &mut self,
        path: &str,
        id: Oid,
        _: u64,
        _: &mut dyn FnMut() -> Result<Arc<[u8]>, Error>,
    ) -> Result<(), Error> {
        self.files.insert(path.to_owned(), id);
        Ok(())
    }
}
