//! Reports that a local repository changed: a commit, a tag, or a checkout of another branch.

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

/// How long the repository must be quiet: git replaces several files for one commit.
const QUIET: Duration = Duration::from_millis(30);
/// Limit of waiting for a repository that is never quiet.
const QUIET_MAX: Duration = Duration::from_millis(500);

/// Watches a local repository's references until it is dropped.
///
/// It is only a trigger, without content. It may report when nothing changed, and file events may get lost, so the
/// interval is still necessary.
#[derive(Debug)]
pub struct LocalWatch {
    changes: Receiver<()>,
    /// Whether a change is not yet reported.
    is_pending: bool,
    /// Stops the watch when it is dropped.
    _watcher: RecommendedWatcher,
}

impl LocalWatch {
    /// Starts to watch the repository at `path`, bare or not.
    ///
    /// # Errors
    ///
    /// Fails if there is no readable repository, or if file events are not available.
    pub fn new(path: &Path) -> Result<LocalWatch, Error> {
        super::prepare();
        let repository = Repository::open(path).map_err(|_| Error::NotARepository { path: path.to_owned() })?;
        let (notice, changes) = channel(1);
        // A linked work tree has HEAD in one folder and the references in another. Watch folders, not files: git
        // replaces files by renaming, and the watch would stay with the old ones.
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
                // Events were lost, so report a change.
                Err(_) => true,
            };
            if is_news {
                // One pending notice is enough.
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

    /// Waits until the repository changed and is quiet again. May be dropped at its `await` and called again.
    pub async fn changed(&mut self) {
        if !self.is_pending && self.changes.recv().await.is_none() {
            // `_watcher` lives as long as `self` and holds the sender.
            std::future::pending::<()>().await;
        }
        self.is_pending = true;
        let end = Instant::now() + QUIET_MAX;
        while Instant::now() < end && timeout(QUIET, self.changes.recv()).await.is_ok() {}
        self.is_pending = false;
    }
}

/// Events contain paths without links.
fn canonical(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}
