//! What passes over one source leave for the next.

use std::collections::BTreeSet;

use tidegate_core::{
    definition,
    diagnostic::Diagnostics,
    intake::status::Fetched,
    object::Digest,
    revision::{Oid, Revision},
};
use tokio::time::Instant;

use super::{known_objects::KnownObjects, load::SourceAccess, report::Written};

/// What passes over one source leave for the next.
#[derive(Default)]
pub(crate) struct Progress {
    /// The last fetch, unless the next pass is to fetch whatever it was.
    pub(super) fetch: Option<LastFetch>,
    /// How reading the source ended last.
    pub(super) reading: Reading,
    /// The revision last looked at, whether it is in force or not.
    pub(super) attempted: Option<Revision>,
    /// The revision that `onError: RefuseRevision` keeps out.
    pub(super) refused: Option<RefusedRevision>,
    /// The branch was rewritten, and what is gone since has not been settled. The status says so as well, in the
    /// condition with the scope, so that the next process knows it.
    pub(super) rewritten: bool,
    /// The revision in force has not been applied yet.
    pub(super) is_new: bool,
    /// The Secret's content, until a server refuses it.
    pub(super) access: Option<SourceAccess>,
    /// Resource version of the Secret when it was read last; nothing if it was not there.
    pub(super) seen_secret: Option<String>,
    /// Parsed files.
    pub(super) cache: definition::Cache,
    /// What is known of the objects in KCP.
    pub(super) memory: KnownObjects,
    /// Trees and blobs that the mirror was told to keep.
    pub(super) kept: BTreeSet<Oid>,
    /// Our last status, until the watch shows it.
    pub(super) written: Option<Written>,
}

/// A fetch, whether it succeeded or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastFetch {
    /// What was fetched, see [`tidegate_core::intake::Terms::fetching`].
    pub(super) fetching: Digest,
    /// When to fetch again.
    pub(super) next: Instant,
}

/// How reading a source ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Reading {
    /// It was not read yet.
    #[default]
    Never,
    /// The revision that was found is read.
    Done,
    /// It cannot be read. The last good revision stays in force.
    Failed {
        /// One word in PascalCase.
        reason: &'static str,
        /// One sentence, without anything that a remote said.
        message: String,
        /// What can help.
        remedy: Remedy,
    },
}

/// What can help a source that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Trying again.
    Retry,
    /// Another Secret.
    Secret,
    /// An edit of the GitSource, or of its repository.
    Edit,
}

/// A revision that is kept out since it is broken.
#[derive(Clone, Debug)]
pub(super) struct RefusedRevision {
    /// Which one.
    pub(super) revision: Revision,
    /// Digest of the settings with which it was read.
    pub(super) reading: Digest,
    /// Why.
    pub(super) diagnostics: Diagnostics,
}

// === impl Reading ===

impl Reading {
    /// As the status says it.
    pub(super) fn fetched(&self) -> Fetched {
        match self {
            Reading::Never | Reading::Done => Fetched::Done,
            Reading::Failed { reason, message, remedy } => {
                let stalled = match remedy {
                    Remedy::Retry => false,
                    Remedy::Secret | Remedy::Edit => true,
                };
                Fetched::Failed { reason, message: message.clone(), stalled }
            }
        }
    }

    /// Whether it failed.
    pub(super) fn has_failed(&self) -> bool {
        matches!(self, Reading::Failed { .. })
    }

    /// Whether another Secret is what can help.
    pub(super) fn awaits_secret(&self) -> bool {
        matches!(self, Reading::Failed { remedy: Remedy::Secret, .. })
    }
}
