//! The folder in which mirrors live, and the lock that keeps other processes out of it.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{error::Error, generation, mirror::Mirror, thread, url::Url};
use tidegate_core::name::Key;

/// A state folder that belongs to this process until the value and all its mirrors are dropped.
///
/// The lock goes with the process: one that was killed leaves none behind.
#[derive(Clone, Debug)]
pub struct State {
    folder: Arc<Path>,
    /// Held open for the lock.
    _lock: Arc<File>,
}

// === impl State ===

impl State {
    /// Opens the folder, which is made if it is absent, and locks it.
    pub fn open(folder: &Path) -> Result<State, Error> {
        super::prepare();
        fs::create_dir_all(folder).map_err(state_error("create", folder))?;
        let path = folder.join("lock");
        let mut lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(state_error("open", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::StateInUse { folder: folder.to_owned(), holder: holder(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(state_error("lock", &path)(source)),
        }
        // Who holds it is for people only, so a failure to write it is none of ours.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(State { folder: folder.into(), _lock: Arc::new(lock) })
    }

    /// The mirror of a source's repository, which is made if it is absent.
    pub fn mirror(&self, source: &Key, url: &Url) -> Result<Mirror, Error> {
        Mirror::open(self.clone(), source, url)
    }

    /// The sources that have mirrors here.
    pub async fn sources(&self) -> Result<BTreeSet<Key>, Error> {
        let folder = self.mirrors();
        thread::run(move || {
            let names = if folder.exists() { generation::names(&folder)? } else { Vec::new() };
            // No namespace has a dot in its name.
            let key = |name: String| name.split_once('.').map(|(namespace, name)| Key::new(namespace, name));
            Ok(names.into_iter().filter_map(key).collect())
        })
        .await
    }

    /// Removes all mirrors of a source. Whoever still reads one of them finds nothing more in it.
    pub async fn remove(&self, source: &Key) -> Result<(), Error> {
        let folder = self.mirrors().join(folder_of(source));
        thread::run(move || match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(state_error("remove", &folder)(error)),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }

    /// The folder of all mirrors.
    pub(super) fn mirrors(&self) -> PathBuf {
        self.folder.join("git")
    }
}

/// The folder of a source's mirrors, in that of all.
pub(super) fn folder_of(source: &Key) -> String {
    format!("{}.{}", source.namespace(), source.name())
}

/// The process that the lock file names.
fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    let read = lock.rewind().and_then(|()| lock.take(32).read_to_string(&mut text));
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(id)) => format!("process {id}"),
        _ => "another process".to_owned(),
    }
}

/// An error with what was tried on which path.
pub(super) fn state_error(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path: PathBuf = path.to_owned();
    move |source| Error::State { operation, path, source }
}

/// Makes renames within a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(state_error("sync", folder))
}

/// The file that says which revision was good last.
pub(super) mod good {
    use std::{
        fs::{self, File},
        io::Write,
        path::Path,
    };

    use serde::{Deserialize, Serialize};

    use super::{Error, state_error, sync_folder};
    use tidegate_core::revision::{Oid, Revision};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Record {
        name: String,
        commit: Oid,
    }

    /// What was recorded, if it can be read.
    pub(in super::super) fn load(folder: &Path) -> Option<Revision> {
        let path = folder.join("good");
        let bytes = fs::read(&path).ok()?;
        match serde_json::from_slice::<Record>(&bytes) {
            Ok(Record { name, commit }) => Some(Revision::Commit { name, commit }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "record of the last good revision cannot be read");
                None
            }
        }
    }

    /// Records a commit so that either the old or the new record is there whatever happens.
    pub(in super::super) fn store(folder: &Path, revision: &Revision) -> Result<(), Error> {
        let Revision::Commit { name, commit } = revision else { return Ok(()) };
        let path = folder.join("good");
        let new = folder.join("good.new");
        let record = serde_json::json!({ "name": name, "commit": commit });
        File::create(&new)
            .and_then(|mut file| writeln!(file, "{record}").and_then(|()| file.sync_all()))
            .map_err(state_error("write", &new))?;
        fs::rename(&new, &path).map_err(state_error("rename to", &path))?;
        sync_folder(folder)
    }
}
