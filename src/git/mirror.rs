//! A bare repository per source and URL.

use std::{collections::BTreeSet, sync::Arc};

use super::{error::Error, remote::Remote, state::State, url::Url};
use crate::{
    name::Key,
    revision::{Oid, Revision},
    snapshot::{Filter, Limits, Snapshot},
};

/// What a fetch found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The commit, under the name that was asked for.
    pub revision: Revision,
    /// Whether the last good revision of the same name is among its ancestors; true where there is none.
    pub fast_forward: bool,
    /// Bytes that came over the network; 0 from a local repository.
    pub received_bytes: u64,
}

/// A bare repository per source and URL. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    _state: State,
    url: Url,
}

impl Mirror {
    pub(super) fn open(state: State, _source: &Key, url: &Url) -> Result<Mirror, Error> {
        let _ = state.folder();
        Ok(Mirror { shared: Arc::new(Shared { _state: state, url: url.clone() }) })
    }

    /// Fetches what the remote has under the reference.
    pub async fn fetch(&self, remote: &Remote) -> Result<Fetched, Error> {
        Err(Error::Busy { url: Box::new(remote.url.clone()) })
    }

    /// Reads the files of a commit that was fetched.
    pub async fn snapshot(
        &self,
        revision: &Revision,
        previous: Option<Arc<Snapshot>>,
        filter: &Filter,
        limits: Limits,
    ) -> Result<Snapshot, Error> {
        let _ = (revision, previous, filter, limits);
        Err(Error::Thread)
    }

    /// Reads the YAML and JSON files of a tree, or the one file that a blob is; named below `path`.
    pub async fn read_object(&self, id: Oid, path: &str, limits: Limits) -> Result<Vec<(Arc<str>, Arc<[u8]>)>, Error> {
        let _ = (id, path, limits, &self.shared.url);
        Err(Error::Thread)
    }

    /// Keeps these trees, blobs and commits whatever becomes of the branch, and no others that were kept before.
    pub async fn keep(&self, ids: BTreeSet<Oid>) -> Result<(), Error> {
        let _ = ids;
        Err(Error::Thread)
    }

    /// The revision last recorded as good, if it can still be read.
    pub fn last_good(&self) -> Option<Revision> {
        None
    }

    /// Records a revision as good: it is kept, and found again after a restart.
    pub async fn record_good(&self, revision: &Revision) -> Result<(), Error> {
        let _ = revision;
        Err(Error::Thread)
    }
}
