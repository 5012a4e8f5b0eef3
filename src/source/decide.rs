//! What a pass over a source does, beside what [`tidegate_core::intake`] decides: when to fetch, what becomes of a
//! revision that was found, what is deleted, and when to look again.
//!
//! Decisions over values; nothing is read and nothing is sent from here.

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        GitSource,
        git_source::OnError,
        names::{annotation, label},
    },
    intake::{Follow, OtherTool, Terms, status},
    object::Digest,
    revision::Revision,
};
use tidegate_process::retry::Class;
use tokio::time::{Duration, Instant};

use super::state::{LastFetch, Reading, RefusedRevision, Remedy};
use crate::queue::{Finish, Trigger, Triggers};

/// How often the Secret of a source is looked at that cannot be read for want of a better one.
const SECRET_LOOK: Duration = Duration::from_secs(10);
/// How long a pass that must look again soon waits: for a watch that is behind, or an object that just went.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What becomes of a revision that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FetchedRevision {
    /// It is in force already.
    InForce,
    /// It is broken, and kept out as before.
    StillRefused,
    /// This branch was rewritten, which the GitSource does not allow.
    Rewritten(String),
    /// It is read, after a note that what is gone must be confirmed: its reference does not follow what it was.
    ReadRewritten,
    /// It is read.
    Read,
}

/// What becomes of an object whose GitSource is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// It is deleted.
    Delete,
    /// It stays, without the marks of the source.
    Unmark,
}

/// Whether it is time to fetch.
pub(super) fn is_due(
    source: &GitSource,
    terms: &Terms,
    last: Option<LastFetch>,
    reading: &Reading,
    triggers: Triggers,
    now: Instant,
) -> bool {
    let requested = status::requested(source);
    let handled = source.status.as_ref().and_then(|status| status.last_handled_reconcile_at.clone());
    last.is_none_or(|last| last.next <= now || last.fetching != terms.fetching())
        || (requested.is_some() && requested != handled)
        || triggers.contains(Trigger::Git)
        || triggers.contains(Trigger::Requested)
        || (reading.has_failed() && triggers.contains(Trigger::Retry))
}

/// What becomes of a revision that was fetched. `in_force` is the one that counts and the digest of the settings with
/// which it was read; `follows` says whether it follows the one that was good before.
pub(super) fn fetched(
    terms: &Terms,
    found: &Revision,
    follows: bool,
    in_force: Option<(&Revision, Digest)>,
    refused: Option<&RefusedRevision>,
) -> FetchedRevision {
    let is_refused = |refused: &RefusedRevision| {
        refused.revision == *found && refused.reading == terms.reading() && terms.on_error == OnError::RefuseRevision
    };
    if in_force == Some((found, terms.reading())) {
        return FetchedRevision::InForce;
    }
    if refused.is_some_and(is_refused) {
        return FetchedRevision::StillRefused;
    }
    match (&terms.follow, terms.allow_rewrite) {
        _ if follows => FetchedRevision::Read,
        (Follow::Branch(name), false) => FetchedRevision::Rewritten(name.clone()),
        (Follow::Branch(_) | Follow::Tag(_) | Follow::Commit(_), _) => FetchedRevision::ReadRewritten,
    }
}

/// What can help a source that failed with an error of this class. `is_of_access` says that another Secret might.
pub(super) fn remedy(class: Class, is_of_access: bool) -> Remedy {
    match class {
        // What fails for a moment is tried again anyway.
        Class::Transient | Class::Waiting => Remedy::Retry,
        Class::Stalled if is_of_access => Remedy::Secret,
        Class::Stalled => Remedy::Edit,
    }
}

/// Whether what is gone from git may be gone because somebody pointed the source elsewhere.
pub(super) fn has_moved(source: &GitSource, rewritten: bool, terms: &Terms) -> bool {
    match status::settled_scope(source) {
        None => rewritten,
        Some((scope, settled)) => rewritten || !settled || scope != terms.scope(),
    }
}

/// Whether an object is deleted that git no longer declares: it still is the one that was decided about.
pub(super) fn may_prune(live: &Metadata, label_value: &str, uid: &str) -> bool {
    let ours = live.label(label::SOURCE) == Some(label_value) && live.uid == uid;
    ours && !is_kept(live) && !live.deleting
}

/// What becomes of an object whose GitSource is deleted; `prune` says that the GitSource wants its objects deleted.
pub(super) fn parting(live: &Metadata, prune: bool) -> Parting {
    let has_other_tool = || OtherTool::recognize(&live.labels, &live.annotations, &live.managers).is_some();
    if prune && !is_kept(live) && !has_other_tool() { Parting::Delete } else { Parting::Unmark }
}

/// When to look again. `failure` is what can help if KCP did not accept something; `again` says that something is on its
/// way.
pub(super) fn finish(
    terms: &Terms,
    last: Option<LastFetch>,
    reading: &Reading,
    failure: Option<Class>,
    again: bool,
    now: Instant,
) -> Finish {
    if let Some(class) = failure {
        return Finish::Failed(class);
    }
    let until_fetch = last.map_or(terms.interval, |last| last.next.saturating_duration_since(now));
    let until = match reading {
        Reading::Failed { remedy: Remedy::Retry, .. } => return Finish::Failed(Class::Transient),
        Reading::Failed { remedy: Remedy::Secret, .. } => until_fetch.min(SECRET_LOOK),
        Reading::Failed { remedy: Remedy::Edit, .. } | Reading::Never | Reading::Done => until_fetch,
    };
    if again && LOOK_AGAIN < until {
        return Finish::After(LOOK_AGAIN, Trigger::Retry);
    }
    Finish::After(until, Trigger::Resync)
}

fn is_kept(live: &Metadata) -> bool {
    live.annotation(annotation::PRUNE) == Some("disabled")
}

#[cfg(test)]
mod tests;
