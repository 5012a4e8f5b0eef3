//! What is known of reporting in one runtime, and what an agent needs. Pure.

use std::sync::Arc;

use tidegate_core::{
    name::Key,
    object::{Digest, ObjectId},
    plan::{
        certificate::Issued,
        reporting::{Address, Agent},
    },
    render::SharedObjects,
};
use tokio::time::Instant;

use super::{adopted::FormerAgent, readiness::Readiness, rhythm::Rhythm, user::KnownUser};
use crate::runtime::{
    contacts::Contacts,
    objects::{Applied, LiveObjects, Seen},
};

/// What a process knows of reporting in one runtime between passes.
#[derive(Debug, Default)]
pub(in crate::runtime) struct KnownReporting {
    /// The objects that runtimes share; `None` if known only from the Kyma's status.
    pub(super) shared: Option<Applied>,
    /// The objects of this runtime; `None` if known only from the Kyma's status, or without an agent.
    pub(super) own: Option<OwnObjects>,
    /// Our user in the runtime.
    pub(super) user: KnownUser,
    /// Passes in a row in which an object was not applied.
    pub(super) attempt: u32,
    /// Whether the agent runs.
    pub(super) readiness: Readiness,
    /// When the runtime was checked.
    pub(super) rhythm: Rhythm,
    /// The agent of Lifecycle Manager, if it stays.
    pub(super) former: Option<FormerAgent>,
}

/// The objects of one runtime, which no other runtime shares. Their content is not kept: it has secrets.
#[derive(Clone, Debug)]
pub(super) struct OwnObjects {
    /// Digest of their inputs.
    of: Digest,
    /// Each object, in the order of apply.
    objects: Vec<(ObjectId, Seen)>,
}

/// What an agent needs before it is installed.
#[derive(Clone, Debug)]
pub(super) struct Prerequisites {
    /// Where it sends events.
    pub(super) address: Address,
    /// The CA bundle that it trusts.
    pub(super) bundle: Arc<[u8]>,
    /// Its certificate.
    pub(super) issued: Issued,
    /// Version of the image pull Secret in the control plane, if one is configured.
    pub(super) pull_secret: Option<String>,
}

/// The agent of a runtime, with all that it needs.
#[derive(Clone, Copy)]
pub(super) struct Installable<'a> {
    /// The agent.
    pub(super) agent: &'a Agent,
    /// What it needs.
    pub(super) prerequisites: &'a Prerequisites,
    /// Our user in the runtime, if its API server tells it.
    pub(super) user: Option<&'a str>,
    /// Whether the agent of Lifecycle Manager stays instead.
    pub(super) is_held: bool,
}

// === impl KnownReporting ===

impl KnownReporting {
    /// Notes that nothing is held any more.
    pub(super) fn release(&mut self) {
        if self.former.take().is_some() {
            self.shared = self.shared.take().map(Applied::released);
            self.own = self.own.take().map(OwnObjects::released);
        }
    }

    /// Whether a resync checks all objects of the runtime.
    pub(in crate::runtime) fn is_due(&self, contacts: &Contacts, kyma: &Key, now: Instant) -> bool {
        self.rhythm.is_due(contacts.is_proven(kyma, now), now)
    }
}

// === impl OwnObjects ===

impl OwnObjects {
    /// What is known before a pass that wants the objects `ids`, made from the inputs `of`.
    ///
    /// `former` is the result of the last pass of this process. Without it, `is_recorded` decides: whether the status
    /// has the digest of these very inputs.
    pub(super) fn before(former: Option<OwnObjects>, of: Digest, ids: Vec<ObjectId>, is_recorded: bool) -> OwnObjects {
        let all = |seen: Seen, ids: Vec<ObjectId>| ids.into_iter().map(|id| (id, seen)).collect();
        match former {
            Some(former) if former.of == of && former.ids().eq(&ids) => former,
            None if is_recorded => OwnObjects { of, objects: all(Seen::Recorded, ids) },
            Some(_) | None => OwnObjects { of, objects: all(Seen::Missing, ids) },
        }
    }

    /// Whether all objects are as desired, as far as the process knows or `live` tells.
    pub(super) fn is_complete(&self, live: Option<&LiveObjects>) -> bool {
        self.objects.iter().all(|(id, seen)| match live {
            Some(live) => seen.is_at(live.get(id)),
            None => *seen != Seen::Missing,
        })
    }

    /// The same objects, to be applied with this content. `follows_another` is whether an earlier process applied them
    /// with another one.
    pub(super) fn with_content(&self, objects: SharedObjects, follows_another: bool) -> Applied {
        let seen = self.objects.iter().map(|(_, seen)| *seen).collect();
        Applied { objects: Arc::new(objects), seen, follows_another }
    }

    /// The same objects, as the pass left them.
    pub(super) fn after(self, applied: &Applied) -> OwnObjects {
        let ids = self.objects.into_iter().map(|(id, _)| id);
        OwnObjects { of: self.of, objects: ids.zip(applied.seen.iter().copied()).collect() }
    }

    /// The same objects once nothing is held any more.
    pub(super) fn released(mut self) -> OwnObjects {
        for (_, seen) in &mut self.objects {
            *seen = seen.released();
        }
        self
    }

    /// The same objects, none of them applied.
    pub(super) fn missing(self) -> OwnObjects {
        let ids = self.objects.into_iter().map(|(id, _)| (id, Seen::Missing));
        OwnObjects { of: self.of, objects: ids.collect() }
    }

    fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.objects.iter().map(|(id, _)| id)
    }
}
