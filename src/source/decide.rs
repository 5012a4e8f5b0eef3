//! What a pass over a source decides beside [`tidegate_core::intake`] and [`super::load`]: which deletes are safe, and
//! when the next pass is due. Pure: nothing is read or sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        GitSource, Manifest,
        names::{annotation, label},
        shared::ObjectMeta,
    },
    content::ContentId,
    definition::Kind,
    intake::{Decision, Id, Live, Moved, OtherTool, Terms, Wait, status},
    name::Key,
    revision::Oid,
    template::Templates,
};
use tidegate_process::retry::{self, Class};
use tokio::time::{Duration, Instant};

use super::state::{BranchHistory, Fetching, Remedy, Rollout};
use crate::queue::{Finish, Trigger, Triggers};

/// How often a pass compares the version of a Secret that did not help.
const SECRET_LOOK: Duration = Duration::from_secs(10);
/// How often a pass checks a source whose fetch takes long. The end of the fetch wakes it anyway.
const FETCH_LOOK: Duration = Duration::from_secs(30);
/// Delay of the next pass if a watch is behind, or if an object was just deleted.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Maximum time for which a source does not report what it holds back because another one has not been read yet:
/// fetches take less, except those that a git server keeps waiting.
const EARLY_MAX: Duration = Duration::from_secs(60);

/// How a pass starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Reconcile the GitSource.
    Reconcile,
    /// Delete or release its objects: it is being deleted.
    Leave,
    /// Leave everything as it is until the GitSource can be read.
    Defer,
    /// Keep what it declared in use: it may come back with its definition.
    AwaitReturn,
    /// Forget the GitSource: it is gone.
    Forget,
}

/// What happens to an object when its GitSource is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parting {
    /// It is deleted.
    Delete,
    /// It stays, without the ownership label.
    Release,
}

/// Decides how a pass starts, from the last readable state of the GitSource and, if it cannot be read now, its
/// metadata. `is_held` says whether no deletion in its namespace is acted upon.
pub(super) fn start(readable: Option<&ObjectMeta>, unreadable: Option<&ObjectMeta>, is_held: bool) -> Start {
    let is_leaving = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_some();
    match (readable, unreadable) {
        // It exists, so nothing that it declares is given up.
        (None, Some(_)) => Start::Defer,
        (None, None) if is_held => Start::AwaitReturn,
        (None, None) => Start::Forget,
        // An object that cannot be read is not known to be deleted on purpose.
        (Some(readable), Some(unreadable)) if is_leaving(readable) || is_leaving(unreadable) => Start::Defer,
        (Some(readable), _) if is_leaving(readable) => Start::Leave,
        (Some(_), _) => Start::Reconcile,
    }
}

/// Whether objects may be missing in git because the scope of the source changed, or because the branch was rewritten.
pub(super) fn moved(source: &GitSource, history: BranchHistory, terms: &Terms) -> Moved {
    match (status::settled_scope(source), history) {
        (Some((scope, _)), _) if scope != terms.scope() => Moved::Spec,
        // The status remembers a rewrite across a restart.
        (Some((_, false)), _) | (_, BranchHistory::Rewritten) => Moved::Rewrite,
        (Some((_, true)) | None, BranchHistory::Linear) => Moved::No,
    }
}

/// Whether a user has requested this pass. `handled` is the request whose fetch has ended; the status has the one
/// before until the pass is over.
pub(super) fn is_asked(source: &GitSource, handled: Option<&str>) -> bool {
    let before = source.status.as_ref().and_then(|status| status.last_handled_reconcile_at.as_deref());
    handled.is_some() && handled != before
}

/// What renders objects for which template overrides fail that become active: the last good ones of the source, then
/// those of the daemon. `present` are the ones that they replace, and `have_failed` whether these have failed as well.
/// `former` are the last good ones in git, for a process that has just started.
pub(super) fn fallbacks(
    present: Option<&Templates>,
    have_failed: bool,
    former: Option<Templates>,
    base: &Templates,
) -> Vec<Templates> {
    match present {
        None => former.into_iter().chain([base.clone()]).collect(),
        Some(present) if have_failed => present.fallbacks().to_vec(),
        Some(present) => vec![present.clone(), base.clone()],
    }
}

/// The ModuleTemplates in KCP that the source no longer declares. Only for these it matters which runtimes lose their
/// module anyway.
pub(super) fn dropped<'l>(live: &'l BTreeMap<Id, Live>, label: &str, declares: &BTreeSet<Id>) -> BTreeSet<&'l Key> {
    let is_dropped = |(id, live): &(&Id, &Live)| {
        id.0 == Kind::ModuleTemplate && live.source.as_deref() == Some(label) && !declares.contains(*id)
    };
    live.iter().filter(is_dropped).map(|(id, _)| &id.1).collect()
}

/// The ModuleTemplates that are pruned as soon as no runtime has their version.
pub(super) fn awaited(decision: &Decision) -> BTreeSet<Key> {
    let is_in_use = |wait: &Wait| match wait {
        Wait::InUse(_) => true,
        Wait::Errors
        | Wait::Unread(_)
        | Wait::Off
        | Wait::Kept
        | Wait::Unreadable
        | Wait::Tool(_)
        | Wait::Unconfirmed(_)
        | Wait::Limit { .. }
        | Wait::Terminating => false,
    };
    let in_use = decision.waiting.iter().filter(|(id, wait)| id.0 == Kind::ModuleTemplate && is_in_use(wait));
    in_use.map(|(id, _)| id.1.clone()).collect()
}

/// The cause of a write, as the audit log names it.
pub(super) fn cause(rollout: Rollout, triggers: Triggers) -> String {
    match rollout {
        Rollout::Pending => Trigger::Git.name().to_owned(),
        Rollout::Done => triggers.to_string(),
    }
}

/// Whether this pass completed the rollout of a new revision.
pub(super) fn is_rolled_out(rollout: Rollout, failures: &[(Id, String)]) -> bool {
    match rollout {
        Rollout::Done => false,
        Rollout::Pending => failures.is_empty(),
    }
}

/// The trees and blobs that the mirror keeps: the modules of the active revision, and those that Manifests name.
pub(super) fn trees<'a>(
    source: &Key,
    modules: impl Iterator<Item = &'a ContentId>,
    manifests: &[Arc<Manifest>],
) -> BTreeSet<Oid> {
    let name = source.to_string();
    let named = |manifest: &Arc<Manifest>| {
        let install = &manifest.spec.install.source;
        let ours = install["type"] == "git" && install["source"] == name.as_str();
        install["tree"].as_str().filter(|_| ours)?.parse::<Oid>().ok()
    };
    let tree = |content: &ContentId| match content {
        ContentId::Tree(tree) => Some(*tree),
        ContentId::Layer { .. } => None,
    };
    modules.filter_map(tree).chain(manifests.iter().filter_map(named)).collect()
}

/// Whether an object that git no longer declares is deleted: only if it is still the object of the decision.
pub(super) fn may_prune(live: &Metadata, label_value: &str, uid: &str) -> bool {
    let ours = live.label(label::SOURCE) == Some(label_value) && live.uid == uid;
    ours && !is_kept(live) && !live.deleting
}

/// What happens to an object when its GitSource is deleted. `prune` says whether the GitSource asks for deletes.
pub(super) fn parting(live: &Metadata, prune: bool) -> Parting {
    let has_other_tool = || OtherTool::recognize(&live.labels, &live.annotations, &live.managers).is_some();
    if prune && !is_kept(live) && !has_other_tool() { Parting::Delete } else { Parting::Release }
}

/// Since when a source waits without a break for others that are about to be read.
pub(super) fn early_since(before: Option<Instant>, waits: bool, now: Instant) -> Option<Instant> {
    if waits { Some(before.unwrap_or(now)) } else { None }
}

/// Whether a source that waits since then does not report it yet.
pub(super) fn is_early(since: Option<Instant>, now: Instant) -> bool {
    since.is_some_and(|since| now.saturating_duration_since(since) < EARLY_MAX)
}

/// When the next pass is due. `is_running` says whether a fetch is in progress. `failure` is what can help if KCP did
/// not accept something. `again` says whether a watch is behind, or an object is being deleted. `fraction` is a random
/// number from 0 to 1.
pub(super) fn finish(
    terms: &Terms,
    last: &Fetching,
    is_running: bool,
    failure: Option<Class>,
    again: bool,
    now: Instant,
    fraction: f64,
) -> Finish {
    if let Some(class) = failure {
        return Finish::Failed(class);
    }
    if is_running {
        return Finish::Awaiting(if again { LOOK_AGAIN } else { FETCH_LOOK });
    }
    let until_fetch = match last {
        Fetching::Pending => terms.interval,
        Fetching::Ended(last) => last.next.saturating_duration_since(now),
    };
    let until = match last.failure().map(|failure| &failure.remedy) {
        Some(Remedy::Retry) => {
            let asked = last.failure().and_then(|failure| failure.retry_after).unwrap_or_default();
            let delay = retry::at_least(retry::within(terms.interval, last.failures(), fraction), asked);
            return Finish::FailedFor(Class::Transient, delay);
        }
        Some(Remedy::Secret(_) | Remedy::Keys(_)) => until_fetch.min(SECRET_LOOK),
        Some(Remedy::Edit | Remedy::Later) | None => until_fetch,
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
