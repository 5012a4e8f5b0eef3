//! What a process knows of one GitSource between passes. Pure: times and results are passed in.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use tidegate_core::{
    api::{GitSource, git_source::GitSourceStatus},
    definition,
    diagnostic::{Diagnostic, Diagnostics},
    intake::{
        Terms, Verify,
        status::{Fetched, Trust},
    },
    object::Digest,
    revision::{Oid, Revision},
};
use tidegate_git::Url;
use tokio::time::Instant;

use super::{
    known_objects::KnownObjects,
    load::{access::SourceAccess, checks::UncheckedRevision},
    receiver::Announced,
    removals::FormerModules,
    said::Said,
};
use crate::queue::Triggers;

/// What a process knows of one GitSource between passes.
#[derive(Default)]
pub(crate) struct KnownSource {
    /// The last fetch.
    pub(super) fetch: Fetching,
    /// The fetch in progress.
    pub(super) running: Option<RunningFetch>,
    /// The value of the annotation with which a user requested the last fetch that ended.
    pub(super) handled: Option<String>,
    /// Whether deliveries of the git host announce its pushes.
    pub(super) announced: Announced,
    /// The content of the Secret, as of the last successful fetch. A fetch that fails drops it.
    pub(super) access: Option<SourceAccess>,
    /// What the last fetch found that is no problem of a revision.
    pub(super) remarks: Remarks,
    /// The revision that was read last.
    pub(super) revision: KnownRevision,
    /// Whose signatures were verified.
    pub(super) trust: KnownTrust,
    /// The revision that could not be checked in time.
    pub(super) unchecked: Option<UncheckedRevision>,
    /// Whether the branch was rewritten.
    pub(super) history: BranchHistory,
    /// The former objects of ModuleTemplates whose definitions remove some.
    pub(super) former: FormerModules,
    /// Since when it waits for other sources that are about to be read.
    pub(super) early_since: Option<Instant>,
    /// Parsed files.
    pub(super) cache: definition::Cache,
    /// What this process has written.
    pub(super) writes: KnownWrites,
    /// What the log has of definitions that are held back and of prunes that wait.
    pub(super) said: Said,
}

/// Warnings about the source itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remarks {
    /// Keys of its Secrets that nothing reads.
    unread: Vec<Diagnostic>,
    /// A tag that was moved, and the revision that it then pointed to.
    moved: Option<(Diagnostic, Revision)>,
}

/// The last fetch of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Fetching {
    /// The next pass fetches: this process has not fetched yet, or not since the source was suspended.
    #[default]
    Pending,
    /// The last fetch ended.
    Ended(Box<LastFetch>),
}

/// A fetch that was requested and has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunningFetch {
    /// Digest of the settings, see [`tidegate_core::intake::Terms::fetching`].
    pub(super) settings: Digest,
    /// The value of the annotation that requests a reconcile, when the fetch was requested.
    pub(super) requested: Option<String>,
    /// When it was requested.
    pub(super) since: Instant,
    /// Why it was requested, and why later passes ran.
    pub(super) triggers: Triggers,
    /// Whether the repository may have changed since: another fetch follows.
    pub(super) again: bool,
}

/// A fetch that ended, successful or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastFetch {
    /// Digest of the settings, see [`tidegate_core::intake::Terms::fetching`].
    pub(super) settings: Digest,
    /// When the next fetch is due.
    pub(super) next: Instant,
    /// Consecutive failures.
    pub(super) failures: u32,
    /// The outcome of the fetch, and of reading its revision.
    pub(super) outcome: ReadOutcome,
}

/// The outcome of fetching and reading a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// The fetched revision has been read.
    Done,
    /// The source could not be read. The last good revision stays active.
    Failed(ReadFailure),
}

/// Why a source could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReadFailure {
    /// One word in PascalCase.
    pub(super) reason: &'static str,
    /// One sentence, without any text from a remote.
    pub(super) message: String,
    /// What the git server says of it, cleaned: for the condition only.
    pub(super) said: Option<String>,
    /// What can help.
    pub(super) remedy: Remedy,
    /// How long the server asked to wait.
    pub(super) retry_after: Option<Duration>,
    /// The revision, if it was read but its signatures are not those that are asked for.
    pub(super) unverified: Option<Revision>,
}

/// The revision whose signatures were verified last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KnownTrust {
    /// This process has verified none, or not since one was not verified.
    #[default]
    Unknown,
    /// The GitSource asks for no signature.
    NotAsked,
    /// This one, with these settings.
    Verified { settings: Verify, revision: Revision, by: String },
}

/// What can help a source that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// A retry.
    Retry,
    /// A retry, after the time that the git server asks to wait.
    Later,
    /// A change of this Secret.
    Secret(SeenSecret),
    /// A change of the Secret with the trusted keys.
    Keys(SeenSecret),
    /// An edit of the GitSource or of its repository.
    Edit,
}

/// The resource version of a Secret when it was read; `None` if it did not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenSecret(pub(super) Option<String>);

/// The revision that was read last, and the rollout of the active one.
#[derive(Debug, Default)]
pub(super) enum KnownRevision {
    /// This process has not read a revision.
    #[default]
    Unread,
    /// The revision that was read last is active.
    Active {
        /// The revision.
        revision: Revision,
        /// Its rollout.
        rollout: Rollout,
    },
    /// The revision that was read last is refused. An earlier one may be active.
    Refused {
        /// The refused revision.
        refused: RefusedRevision,
        /// The rollout of the active revision; done if there is none.
        rollout: Rollout,
    },
}

/// Whether a new active revision has reached KCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rollout {
    /// All of it was applied once, by this process or an earlier one.
    #[default]
    Done,
    /// No pass has applied all of it yet.
    Pending,
}

/// A revision that `onError: RefuseRevision` keeps from becoming active.
#[derive(Clone, Debug)]
pub(super) struct RefusedRevision {
    /// The revision.
    pub(super) revision: Revision,
    /// Digest of the settings with which it was read.
    pub(super) reading: Digest,
    /// The reasons.
    pub(super) diagnostics: Diagnostics,
}

/// Whether the branch was rewritten. The status has the same fact in its scope condition, for the next process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BranchHistory {
    /// Not since the status was last settled.
    #[default]
    Linear,
    /// It was, and the prunes that result from it are not settled.
    Rewritten,
}

/// What this process has written, so that it writes nothing twice.
#[derive(Default)]
pub(super) struct KnownWrites {
    /// Objects in KCP.
    pub(super) objects: KnownObjects,
    /// The trees and blobs that the mirror keeps.
    pub(super) trees: KeptTrees,
    /// The status.
    pub(super) status: KnownStatus,
}

/// The trees and blobs that a mirror keeps for live Manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KeptTrees {
    /// This process has asked no mirror to keep any.
    #[default]
    None,
    /// The mirror of this URL keeps these. The mirror of another URL knows nothing of them.
    Kept {
        /// The URL of the mirror.
        url: Url,
        /// The trees and blobs.
        trees: BTreeSet<Oid>,
    },
}

/// The status that this process wrote last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum KnownStatus {
    /// This process has not written a status.
    #[default]
    Unwritten,
    /// The watch may not show it yet.
    Written {
        /// The resource version in the answer of the API server. A GitSource from the command line has none.
        resource_version: Option<u64>,
        /// The status.
        status: Box<GitSourceStatus>,
    },
}

// === impl Fetching ===

impl Fetching {
    /// After a revision could not be read outside of a fetch. The next fetch stays due when it was.
    pub(super) fn with_failure(self, failure: ReadFailure) -> Fetching {
        match self {
            Fetching::Pending => Fetching::Pending,
            Fetching::Ended(mut last) => {
                last.failures = last.failures.saturating_add(1);
                last.outcome = ReadOutcome::Failed(failure);
                Fetching::Ended(last)
            }
        }
    }

    /// Consecutive failures.
    pub(super) fn failures(&self) -> u32 {
        match self {
            Fetching::Ended(last) => last.failures,
            Fetching::Pending => 0,
        }
    }

    /// Why the source could not be read, if so.
    pub(super) fn failure(&self) -> Option<&ReadFailure> {
        match self {
            Fetching::Pending => None,
            Fetching::Ended(last) => match &last.outcome {
                ReadOutcome::Failed(failure) => Some(failure),
                ReadOutcome::Done => None,
            },
        }
    }

    /// The outcome, as the status reports it.
    pub(super) fn fetched(&self) -> Fetched {
        self.failure().map_or(Fetched::Done, |failure| {
            let (reason, message) = (failure.reason, failure.message.clone());
            if let Some(revision) = &failure.unverified {
                return Fetched::Unverified { revision: revision.clone(), reason, message };
            }
            let stalled = match failure.remedy {
                Remedy::Retry | Remedy::Later => false,
                Remedy::Secret(_) | Remedy::Keys(_) | Remedy::Edit => true,
            };
            Fetched::Failed { reason, message, said: failure.said.clone(), stalled }
        })
    }
}

// === impl Remarks ===

impl Remarks {
    /// Takes what a fetch found. A move of a tag is reported as long as its revision is the newest.
    pub(super) fn fetched(&mut self, unread: Vec<Diagnostic>, moved: Option<Diagnostic>, found: &Revision) {
        self.unread = unread;
        match moved {
            Some(moved) => self.moved = Some((moved, found.clone())),
            None => self.moved = self.moved.take().filter(|(_, revision)| revision == found),
        }
    }

    /// The warnings.
    pub(super) fn diagnostics(&self) -> Diagnostics {
        let mut all = Diagnostics::default();
        all.extend(self.unread.iter().chain(self.moved.iter().map(|(moved, _)| moved)).cloned());
        all
    }
}

// === impl KnownTrust ===

impl KnownTrust {
    /// Whether this process has verified a revision with these settings.
    pub(super) fn covers(&self, revision: &Revision, settings: &Verify) -> bool {
        match self {
            KnownTrust::Verified { settings: of, revision: verified, .. } => of == settings && verified == revision,
            KnownTrust::Unknown | KnownTrust::NotAsked => false,
        }
    }

    /// What the status says of it.
    pub(super) fn shown(&self, terms: Option<&Terms>) -> Trust<'_> {
        // Settings that are invalid now say nothing of what was verified before.
        let Some(terms) = terms else { return Trust::Unknown };
        match (self, &terms.verify) {
            (_, None) => Trust::NotAsked,
            (KnownTrust::Verified { revision, by, .. }, Some(_)) => Trust::Verified { revision, by },
            (KnownTrust::Unknown | KnownTrust::NotAsked, Some(_)) => Trust::Unknown,
        }
    }
}

// === impl SeenSecret ===

impl SeenSecret {
    /// Whether a Secret with this resource version differs from the one that was read.
    pub(super) fn differs(&self, found: Option<&str>) -> bool {
        self.0.as_deref() != found
    }
}

// === impl KnownRevision ===

impl KnownRevision {
    /// The revision that was read last.
    pub(super) fn attempted(&self) -> Option<&Revision> {
        match self {
            KnownRevision::Unread => None,
            KnownRevision::Active { revision, .. } => Some(revision),
            KnownRevision::Refused { refused, .. } => Some(&refused.revision),
        }
    }

    /// The refused revision, unless a later one was accepted.
    pub(super) fn refused(&self) -> Option<&RefusedRevision> {
        match self {
            KnownRevision::Unread | KnownRevision::Active { .. } => None,
            KnownRevision::Refused { refused, .. } => Some(refused),
        }
    }

    /// The rollout of the active revision.
    pub(super) fn rollout(&self) -> Rollout {
        match self {
            KnownRevision::Unread => Rollout::Done,
            KnownRevision::Active { rollout, .. } | KnownRevision::Refused { rollout, .. } => *rollout,
        }
    }

    /// After the active revision was found or read again.
    pub(super) fn found_again(self, revision: Revision) -> KnownRevision {
        KnownRevision::Active { revision, rollout: self.rollout() }
    }

    /// After a revision became active that was not active before.
    pub(super) fn advanced(self, revision: Revision) -> KnownRevision {
        KnownRevision::Active { revision, rollout: Rollout::Pending }
    }

    /// After a revision was refused. The active one stays.
    pub(super) fn after_refusal(self, refused: RefusedRevision) -> KnownRevision {
        KnownRevision::Refused { refused, rollout: self.rollout() }
    }

    /// After the last good revision of an earlier process became active. A later revision stays refused.
    pub(super) fn recalled(self, revision: Revision) -> KnownRevision {
        match self {
            KnownRevision::Unread => KnownRevision::Active { revision, rollout: Rollout::Done },
            KnownRevision::Active { .. } | KnownRevision::Refused { .. } => self,
        }
    }

    /// After a pass that applied all of the active revision.
    pub(super) fn rolled_out(self) -> KnownRevision {
        let rollout = Rollout::Done;
        match self {
            KnownRevision::Unread => KnownRevision::Unread,
            KnownRevision::Active { revision, .. } => KnownRevision::Active { revision, rollout },
            KnownRevision::Refused { refused, .. } => KnownRevision::Refused { refused, rollout },
        }
    }
}

// === impl BranchHistory ===

impl BranchHistory {
    /// After a status was written. Once it is settled, later prunes have nothing to do with the rewrite.
    pub(super) fn after_status(self, is_settled: bool) -> BranchHistory {
        if is_settled { BranchHistory::Linear } else { self }
    }
}

// === impl KeptTrees ===

impl KeptTrees {
    /// Whether the mirror of `url` keeps exactly these trees.
    pub(super) fn are(&self, url: &Url, wanted: &BTreeSet<Oid>) -> bool {
        match self {
            KeptTrees::None => wanted.is_empty(),
            KeptTrees::Kept { url: kept, trees } => kept == url && trees == wanted,
        }
    }
}

// === impl KnownStatus ===

impl KnownStatus {
    /// The GitSource with the status that this process wrote last, if the watch is behind.
    pub(super) fn shown<'a>(&self, source: &'a GitSource) -> Cow<'a, GitSource> {
        let KnownStatus::Written { resource_version, status } = self else { return Cow::Borrowed(source) };
        let shown = source.metadata.resource_version.as_deref().and_then(|text| text.parse::<u64>().ok());
        let is_behind = match (shown, resource_version) {
            (Some(shown), Some(written)) => shown < *written,
            // A GitSource from the command line: no other process writes its status.
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if is_behind {
            Cow::Owned(GitSource { status: Some((**status).clone()), ..source.clone() })
        } else {
            Cow::Borrowed(source)
        }
    }
}

#[cfg(test)]
mod tests;
