//! Says that something happened to a local repository.

use std::path::Path;

use super::error::Error;

/// Watches a local repository's references.
#[derive(Debug)]
pub struct LocalWatch {
    changes: tokio::sync::mpsc::Receiver<()>,
}

impl LocalWatch {
    /// Begins to watch.
    pub fn new(path: &Path) -> Result<LocalWatch, Error> {
        Err(Error::NotARepository { path: path.to_owned() })
    }

    /// Waits until something changed, and it has been quiet since. May be dropped and called again.
    pub async fn changed(&mut self) {
        self.changes.recv().await;
    }
}
