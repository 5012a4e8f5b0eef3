//! How often a runtime is looked at for what others changed, and what its agent is said to do.
//!
//! An agent that was heard of lately reports every change, so looking is a safety net: every six hours. Of webhook
//! configurations alone nobody reports anything, since an API server asks no webhook about them: a list of their metadata
//! every ten minutes tells whether all must be looked at. Where no agent is heard of, everything is looked at on each resync.

use std::{collections::BTreeMap, time::Duration};

use tidegate_cluster::{Cluster, Error, Kind, Metadata};
use tidegate_core::{
    api::{
        names::{MANAGED_BY_SKR, label},
        shared::Condition,
    },
    conditions::{self, Status, watch as reason},
    name::Key,
    object::{Digest, Gvk, ObjectId},
    plan::reporting::Program,
    status::WatchFact,
};
use tokio::time::Instant;

use crate::runtime::contacts::{Contacts, SILENT_AFTER};

/// How often a runtime whose agent reports is looked at all the same.
const LOOK: Duration = Duration::from_secs(6 * 3600);
/// How often the webhook configurations in it are.
const LOOK_AT_WEBHOOKS: Duration = Duration::from_secs(600);

/// Where the configurations of webhooks are.
const GROUP: &str = "admissionregistration.k8s.io";

/// When one runtime was looked at, in this process.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// Since when its agent is known to be ready.
    ready: Option<Instant>,
    looked: Option<Instant>,
    looked_at_webhooks: Option<Instant>,
    /// Names and resource versions of its webhook configurations.
    webhooks: Option<Digest>,
}

// === impl Rhythm ===

impl Rhythm {
    /// Whether a resync must look at everything: nobody reports what changes, or too long ago was the last look. A new
    /// process looks once, since it does not know what was not reported while there was none.
    pub(super) fn is_due(&self, contacts: &Contacts, resync: Duration, kyma: &Key, now: Instant) -> bool {
        let recently = self.looked.is_some_and(|looked| now.duration_since(looked) < LOOK);
        // Who went silent since the last resync is found out by this one: the next would be one too late.
        !(recently && self.ready.is_some() && contacts.is_alive(kyma, now, resync / 2))
    }

    /// Takes note of a look at everything.
    pub(super) fn looked(&mut self, live: &BTreeMap<ObjectId, Metadata>, now: Instant) {
        self.looked = Some(now);
        self.looked_at_webhooks = Some(now);
        self.webhooks = Some(webhooks(live.values()));
    }

    /// Whether somebody touched a webhook configuration, if it is time to ask.
    pub(super) async fn webhooks_moved(&mut self, cluster: &Cluster, now: Instant) -> Result<bool, Error> {
        if !self.asks_for_webhooks(now) {
            return Ok(false);
        }
        let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
        let mut found = Vec::new();
        for (name, plural) in [
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ] {
            let kind = Kind::new(Gvk::new(GROUP, "v1", name), plural, false);
            found.extend(cluster.list_metadata(&kind, None, Some(&selector)).await?);
        }
        self.looked_at_webhooks = Some(now);
        Ok(self.webhooks != Some(webhooks(found.iter())))
    }

    /// Whether it is time to look at the webhook configurations.
    fn asks_for_webhooks(&self, now: Instant) -> bool {
        self.looked_at_webhooks.is_none_or(|looked| LOOK_AT_WEBHOOKS <= now.duration_since(looked))
    }

    /// What is said of an agent that runs.
    pub(super) fn watch(
        &mut self,
        contacts: &Contacts,
        kyma: &Key,
        program: Program,
        said: &[Condition],
        now: Instant,
    ) -> WatchFact {
        let ready = *self.ready.get_or_insert(now);
        let fact = |status, reason, message: &str| WatchFact { status, reason, message: message.to_owned() };
        if program == Program::RuntimeWatcher {
            let message = "the agent runs; it is of a kind that is heard only when something changes";
            return fact(Status::True, reason::INSTALLED, message);
        }
        if contacts.is_alive(kyma, now, SILENT_AFTER) {
            return fact(Status::True, reason::HEARD, "the agent runs, and what changes in the runtime is heard of");
        }
        let former = conditions::find(said, conditions::WATCH);
        let silent = now.duration_since(ready) >= SILENT_AFTER;
        match former {
            _ if silent => fact(
                Status::False,
                reason::SILENT,
                "the agent runs, and nothing was heard of it for ten minutes: see to its way to the control plane \
                 (address, certificates, network policies); until then the runtime is looked at on every resync",
            ),
            // A process that has only just begun has not heard of anybody.
            Some(former) if former.reason == reason::HEARD => {
                fact(Status::True, reason::HEARD, "the agent runs, and what changes in the runtime is heard of")
            }
            Some(_) | None => fact(Status::Unknown, reason::AWAITED, "the agent runs, and was not heard of yet"),
        }
    }

    /// Takes note that nothing can be said of an agent.
    pub(super) fn not_ready(&mut self) {
        self.ready = None;
    }
}

/// What tells whether anything is another than it was.
fn webhooks<'a>(live: impl Iterator<Item = &'a Metadata>) -> Digest {
    let mut found: Vec<String> = live
        .filter(|metadata| &*metadata.id.group == GROUP && metadata.id.kind.ends_with("WebhookConfiguration"))
        .map(|metadata| format!("{} {}", metadata.id, metadata.resource_version))
        .collect();
    found.sort();
    Digest::of_bytes(found.join("\n").as_bytes())
}

#[cfg(test)]
mod tests;
