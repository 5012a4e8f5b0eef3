//! Wakes a source when its repository on this machine changes.
//!
//! `state` is what is watched, and decides what to watch. This file starts the watches and waits for them.

mod state;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use futures::{StreamExt, stream::FuturesUnordered};
use tidegate_core::name::Key;
use tidegate_git as git;
use tidegate_process::{ambient, lock::Mutex};
use tokio::{sync::Notify, time::Instant};

use self::state::{LocalWatches, RETRY, WatchId};
use crate::{
    controller::{Queue, Subject},
    queue::Trigger,
};

/// The repositories on this machine that sources name.
#[derive(Default)]
pub(super) struct LocalRepositories {
    paths: Mutex<BTreeMap<Key, PathBuf>>,
    changed: Notify,
}

// === impl LocalRepositories ===

impl LocalRepositories {
    /// Notes which repository on this machine a source names; `None` if it names none.
    pub(super) fn set(&self, source: &Key, path: Option<&Path>) {
        let mut paths = self.paths.lock();
        if paths.get(source).map(PathBuf::as_path) == path {
            return;
        }
        match path {
            Some(path) => paths.insert(source.clone(), path.to_owned()),
            None => paths.remove(source),
        };
        self.changed.notify_one();
    }

    /// Wakes a source when its repository changes. Runs until it is dropped. In a simulation it wakes no source: the
    /// machine reports changes at times that the seed does not determine.
    pub(super) async fn watch(&self, queue: &Queue) {
        if ambient::is_simulated() {
            std::future::pending::<()>().await;
        }
        let mut watches = LocalWatches::default();
        let mut changes = FuturesUnordered::new();
        loop {
            let paths = self.paths.lock().clone();
            for (source, path) in watches.due(&paths, Instant::now()) {
                match git::LocalWatch::new(&path) {
                    Ok(watch) => {
                        let id = watches.started(source.clone(), path);
                        changes.push(next_change(source, id, watch));
                    }
                    Err(error) => {
                        if watches.failed(source.clone(), path, Instant::now()) {
                            tracing::warn!(%source, %error, "cannot watch a local repository");
                        }
                    }
                }
            }
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(RETRY), if watches.has_failed() => {}
                Some((source, id, watch)) = changes.next() => {
                    if watches.is_current(&source, id, &self.paths.lock()) {
                        queue.push(Subject::Source(source.clone()), Trigger::Git);
                        changes.push(next_change(source, id, watch));
                    }
                }
            }
        }
    }
}

/// Waits for the next change of a repository.
async fn next_change(source: Key, id: WatchId, mut watch: git::LocalWatch) -> (Key, WatchId, git::LocalWatch) {
    watch.changed().await;
    (source, id, watch)
}
