//! Says that something happened to a local repository: a commit, a tag, another branch checked out.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use git2::Repository;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{
    sync::mpsc::{Receiver, channel},
    time::{Instant, timeout},
};

use super::error::Error;

/// How long it must be quiet before a change counts: git replaces several files for one commit.
const QUIET: Duration = Duration::from_millis(30);
/// How long a repository that is never quiet is waited for.
const QUIET_MAX: Duration = Duration::from_millis(500);

/// Watches a local repository's references, as long as it lives.
///
/// It is a trigger and says why to look, never what to find. It may speak when nothing changed, and file events may get
/// lost, so the interval stays in force beside it.
#[derive(Debug)]
pub struct LocalWatch {
    changes: Receiver<()>,
    /// Something changed, and nobody was told.
    is_pending: bool,
    /// Ends when dropped.
    _watcher: RecommendedWatcher,
}

impl LocalWatch {
    /// Begins to watch the repository at `path`, bare or not.
    pub fn new(path: &Path) -> Result<LocalWatch, Error> {
        super::prepare();
        let repository = Repository::open(path).map_err(|_| Error::NotARepository { path: path.to_owned() })?;
        let (notice, changes) = channel(1);
        // A linked work tree has its head in one folder and the references in another. Folders are watched, not
        // files: git replaces files by renaming, and the watch would stay with the old ones.
        let heads = [repository.path().to_owned(), repository.commondir().to_owned()].map(canonical);
        let references = canonical(repository.commondir().join("refs"));
        let is_relevant = {
            let (heads, references) = (heads.clone(), references.clone());
            move |path: &Path| {
                let is_lock = path.extension().is_some_and(|extension| extension == "lock");
                let is_head = || {
                    let name = path.file_name().and_then(|name| name.to_str());
                    matches!(name, Some("HEAD" | "packed-refs"))
                        && path.parent().is_some_and(|folder| heads.iter().any(|head| head == folder))
                };
                !is_lock && (path.starts_with(&references) || is_head())
            }
        };
        let on_event = move |event: Result<notify::Event, notify::Error>| {
            let is_news = match event {
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
                Ok(event) => event.need_rescan() || event.paths.iter().any(|path| is_relevant(path)),
                // Events were lost: somebody should look.
                Err(_) => true,
            };
            if is_news {
                // One notice that nobody has taken yet is enough.
                let _ = notice.try_send(());
            }
        };
        let error = |source| Error::Watch { path: path.to_owned(), source };
        let mut watcher = notify::recommended_watcher(on_event).map_err(error)?;
        for head in &heads {
            watcher.watch(head, RecursiveMode::NonRecursive).map_err(error)?;
        }
        watcher.watch(&references, RecursiveMode::Recursive).map_err(error)?;
        Ok(LocalWatch { changes, is_pending: false, _watcher: watcher })
    }

    /// Waits until something changed and it has been quiet since. May be dropped at its `await` and called again.
    pub async fn changed(&mut self) {
        if !self.is_pending && self.changes.recv().await.is_none() {
            // The watcher lives as long as we do and holds the other end.
            std::future::pending::<()>().await;
        }
        self.is_pending = true;
        let end = Instant::now() + QUIET_MAX;
        while Instant::now() < end && timeout(QUIET, self.changes.recv()).await.is_ok() {}
        self.is_pending = false;
    }
}

/// Events name paths without links.
fn canonical(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}
