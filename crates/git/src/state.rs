//! The folder of all mirrors, and the lock that excludes other processes.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{ErrorKind, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{engine::Engine, error::Error, generation, mirror::Mirror, proxy::Proxy, thread, url::Url};
use tidegate_core::name::Key;

/// A state folder that belongs to this process until the value and all its mirrors are dropped.
///
/// The lock ends with the process, even if that is killed.
#[derive(Clone, Debug)]
pub struct State {
    folder: Arc<Path>,
    engine: Engine,
    proxy: Option<Proxy>,
    /// Holds the lock.
    _lock: Arc<File>,
}

// === impl State ===

impl State {
    /// Opens the folder, which is created if it is missing, and locks it. Its mirrors work in this process,
    /// unless [`State::with_engine`] says otherwise.
    ///
    /// # Errors
    ///
    /// Fails if another process uses the folder, or if it cannot be created or read.
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
        // The file's content is only for people, so a failed write does not matter.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
        Ok(State { folder: folder.into(), engine: Engine::local(), proxy: None, _lock: Arc::new(lock) })
    }

    /// The same folder, with mirrors whose objects this engine unpacks.
    pub fn with_engine(self, engine: Engine) -> State {
        State { engine, ..self }
    }

    /// The same folder, with mirrors that reach https servers through this proxy, unless a fetch has its own.
    pub fn with_proxy(self, proxy: Option<Proxy>) -> State {
        State { proxy, ..self }
    }

    /// The mirror of a source's repository, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read or written.
    pub fn mirror(&self, source: &Key, url: &Url) -> Result<Mirror, Error> {
        Mirror::open(self.clone(), source, url)
    }

    /// The sources that have mirrors here.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be read.
    pub async fn sources(&self) -> Result<BTreeSet<Key>, Error> {
        let folder = self.mirrors();
        thread::run(move || {
            let names = if folder.exists() { generation::names(&folder)? } else { Vec::new() };
            // A namespace contains no dot.
            let key = |name: String| name.split_once('.').map(|(namespace, name)| Key::new(namespace, name));
            Ok(names.into_iter().filter_map(key).collect())
        })
        .await
    }

    /// Removes all mirrors of a source. Readers find no more objects in them.
    ///
    /// # Errors
    ///
    /// Fails if a folder cannot be removed.
    pub async fn remove(&self, source: &Key) -> Result<(), Error> {
        let folder = self.mirrors().join(folder_of(source));
        thread::run(move || match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(state_error("remove", &folder)(error)),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The folder of all mirrors.
    pub(super) fn mirrors(&self) -> PathBuf {
        self.folder.join("git")
    }
}

/// The name of the folder of a source's mirrors.
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

/// Adds the operation and the path to an error.
pub(super) fn state_error(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path: PathBuf = path.to_owned();
    move |source| Error::State { operation, path, source }
}

/// Makes renames within a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(state_error("sync", folder))
}

/// The file with the last good revision.
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

    /// The recorded revision, if it is readable.
    pub(in super::super) fn load(folder: &Path) -> Option<Revision> {
        let path = folder.join("good");
        let bytes = fs::read(&path).ok()?;
        match serde_json::from_slice::<Record>(&bytes) {
            Ok(Record { name, commit }) => Some(Revision::Commit { name, commit }),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "cannot read the record of the last good revision");
                None
            }
        }
    }

    /// Records a commit atomically: after a crash, the file has either the old or the new record.
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
