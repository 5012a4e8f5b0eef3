//! Which sources a push names, what a Secret means, and whether pushes are announced. Pure: nothing is read or sent.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use tidegate_cluster as cluster;
use tidegate_core::{
    api::GitSource,
    intake::{Terms, status::Receiving},
    landscape,
    name::Key,
    push::{HookSecret, Push},
    revision::Revision,
};
use tokio::time::Instant;

use super::Outcome;
use crate::queue::{Trigger, Triggers};

/// How long the content of a Secret is used without a read. A token that is removed is refused after it.
pub(super) const FRESH: Duration = Duration::from_secs(10);
/// The same for a delivery that is about to be refused: a new token is accepted after it.
pub(super) const FRESH_FOR_REFUSAL: Duration = Duration::from_secs(1);
/// A push that polling finds may be delivered a moment later: less than the next pass takes.
const LATE: Duration = Duration::from_secs(4);

/// Whether the pushes of a source are announced by deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::source) struct Announced {
    /// When the last successful fetch was requested.
    fetched: Option<Instant>,
    /// A revision that no delivery announced, and when it was found.
    missed: Option<(String, Instant)>,
}

/// The Secret of a source's receiver.
pub(super) fn secret_of(source: &GitSource) -> Option<Key> {
    let receiver = source.spec.receiver.as_ref()?;
    Some(Key::new(landscape::key(&source.metadata).namespace(), &receiver.secret_ref.name))
}

/// What a push means for the sources whose receivers have this Secret.
pub(super) fn named<'a>(push: &Push, secret: &Key, sources: impl Iterator<Item = &'a GitSource>) -> Outcome {
    let (mut woken, mut suspended, mut is_repository_known) = (Vec::new(), Vec::new(), false);
    for source in sources.filter(|source| secret_of(source).as_ref() == Some(secret)) {
        if !push.is_to(&source.spec.url) {
            continue;
        }
        is_repository_known = true;
        // An invalid source says so in its own status.
        if Terms::from_source(source).is_ok_and(|terms| push.names(&terms.follow)) {
            let list = if source.spec.suspend { &mut suspended } else { &mut woken };
            list.push(landscape::key(&source.metadata));
        }
    }
    match (woken.is_empty() && suspended.is_empty(), is_repository_known) {
        (false, _) => Outcome::Accepted { woken, suspended },
        (true, true) => Outcome::OtherRef,
        (true, false) => Outcome::OtherRepository,
    }
}

/// The tokens of a Secret, from the answer of the control plane. Without an answer, the tokens `known` before stay
/// valid.
pub(super) fn after_read(
    key: &Key,
    answer: Result<Option<Secret>, cluster::Error>,
    known: Option<Result<HookSecret, String>>,
) -> Result<HookSecret, String> {
    match answer {
        Ok(Some(secret)) => {
            let data = secret.data.unwrap_or_default();
            let read = HookSecret::from_data(|name| data.get(name).map(|value| value.0.as_slice()));
            read.map_err(|error| format!("Secret {key} {error}"))
        }
        Ok(None) => Err(format!("Secret {key} does not exist")),
        Err(_) if matches!(known, Some(Ok(_))) => known.expect("it was just matched"),
        Err(error) => Err(format!("cannot read Secret {key}: {error}")),
    }
}

/// The keys of a Secret that nothing reads, from the answer of the control plane. Without an answer, those `known`
/// before.
pub(super) fn unread(answer: &Result<Option<Secret>, cluster::Error>, known: Option<&[String]>) -> Vec<String> {
    match answer {
        Ok(found) => {
            let names = found.iter().filter_map(|secret| secret.data.as_ref()).flat_map(|data| data.keys());
            names.filter(|name| !HookSecret::KEYS.contains(&name.as_str())).cloned().collect()
        }
        Err(_) => known.unwrap_or_default().to_vec(),
    }
}

/// Whether the status of the sources says something else of their Secret after a read than `before` it.
pub(super) fn is_news(before: Option<&Result<HookSecret, String>>, read: &Result<HookSecret, String>) -> bool {
    before.is_some_and(|before| before.as_ref().err() != read.as_ref().err())
}

// === impl Announced ===

impl Announced {
    /// After a successful fetch that was requested at `since`. `news` is its revision, if it differs from the one
    /// before. `last` is the last delivery.
    pub(in crate::source) fn after_fetch(
        self,
        news: Option<&Revision>,
        triggers: Triggers,
        since: Instant,
        last: Option<Instant>,
        now: Instant,
    ) -> Announced {
        // Others than the git host may ask for a fetch before a delivery comes.
        let is_asked = [Trigger::Push, Trigger::Requested, Trigger::Git].iter().any(|one| triggers.contains(*one));
        let missed = match (news, self.fetched) {
            // The first fetch of a process finds what came while no process ran.
            (None, _) | (_, None) => self.missed,
            (Some(_), Some(before)) if is_asked || last.is_some_and(|last| before <= last) => None,
            (Some(news), Some(_)) => Some((news.to_string(), now)),
        };
        Announced { fetched: Some(since), missed }
    }

    /// Whether a revision was found a moment ago whose delivery may be late: the next pass knows.
    pub(in crate::source) fn is_undecided(&self, now: Instant) -> bool {
        self.missed.as_ref().is_some_and(|(_, found)| now < *found + LATE)
    }

    /// What the status says, with the time of the last delivery.
    pub(super) fn receiving(&self, last: Option<(Instant, Timestamp)>, now: Instant) -> Receiving {
        match (&self.missed, last) {
            (Some((_, found)), Some((last, at))) if *found <= last => Receiving::Delivered(at),
            (Some((revision, found)), _) if *found + LATE <= now => Receiving::Missed { revision: revision.clone() },
            (_, Some((_, at))) => Receiving::Delivered(at),
            (_, None) => Receiving::Waiting,
        }
    }
}

#[cfg(test)]
mod tests;
