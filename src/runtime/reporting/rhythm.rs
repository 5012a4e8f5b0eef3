//! How often the objects of a runtime are checked, and what the status says of its agent. Pure.
//!
//! An agent that has connected lately reports every change. Then a check of all objects every six hours is a safety
//! net. Nothing reports changes of webhook configurations, because an API server calls no webhook for them. So Tidegate
//! lists their metadata every ten minutes, and checks all objects if they have changed. Without a connected agent, each
//! resync checks all objects.

use std::time::Duration;

use tidegate_cluster::{Kind, Metadata};
use tidegate_core::{
    api::shared::Condition,
    conditions::{self, Status, watch as reason},
    object::{Digest, Gvk},
    plan::reporting::Program,
    status::WatchFact,
};
use tokio::time::Instant;

use super::readiness::Found;
use crate::runtime::{contacts::SILENT_AFTER, objects::LiveObjects};

/// How often all objects are checked if the agent reports changes.
const CHECK: Duration = Duration::from_secs(6 * 3600);
/// How often the webhook configurations are checked.
const CHECK_WEBHOOKS: Duration = Duration::from_secs(600);

/// API group of the webhook configurations.
const GROUP: &str = "admissionregistration.k8s.io";

/// When this process checked one runtime.
#[derive(Debug, Default)]
pub(super) struct Rhythm {
    /// Since when the agent is known to run.
    ready: Option<Instant>,
    /// When all objects were checked.
    checked: Option<Instant>,
    /// When the webhook configurations were checked.
    checked_webhooks: Option<Instant>,
    /// Digest of the names and resource versions of the webhook configurations.
    webhooks: Option<Digest>,
}

/// The kinds of webhook configurations.
pub(super) fn webhook_kinds() -> [Kind; 2] {
    [
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ]
    .map(|(name, plural)| Kind::new(Gvk::new(GROUP, "v1", name), plural, false))
}

// === impl Rhythm ===

impl Rhythm {
    /// Whether a resync checks all objects: changes are not reported, or the last check was too long ago. A new process
    /// checks once, because it may have missed changes before its start. `is_heard` is whether the agent has connected
    /// lately.
    pub(super) fn is_due(&self, is_heard: bool, now: Instant) -> bool {
        let recently = self.checked.is_some_and(|checked| now.duration_since(checked) < CHECK);
        !(recently && self.ready.is_some() && is_heard)
    }

    /// Notes a check of all objects, if this pass has `live` objects.
    pub(super) fn checked(&mut self, live: Option<&LiveObjects>, now: Instant) {
        let Some(live) = live else { return };
        self.checked = Some(now);
        self.checked_webhooks = Some(now);
        self.webhooks = Some(digest(live.values()));
    }

    /// Whether it is time to list the webhook configurations.
    pub(super) fn must_list_webhooks(&self, now: Instant) -> bool {
        self.checked_webhooks.is_none_or(|checked| CHECK_WEBHOOKS <= now.duration_since(checked))
    }

    /// Notes a list of the webhook configurations. Returns whether they differ from those of the last check.
    pub(super) fn listed_webhooks(&mut self, found: &[Metadata], now: Instant) -> bool {
        self.checked_webhooks = Some(now);
        self.webhooks != Some(digest(found))
    }

    /// The status of the agent. `is_heard` is whether it has connected within [`SILENT_AFTER`], `said` are the
    /// conditions of the last status.
    pub(super) fn watch(
        &mut self,
        found: &Found,
        is_heard: bool,
        program: Program,
        said: &[Condition],
        now: Instant,
    ) -> WatchFact {
        match found {
            Found::Starting(message) | Found::Broken(message) => {
                self.ready = None;
                fact(Status::False, reason::NOT_READY, message)
            }
            Found::Ready => {
                let ready = *self.ready.get_or_insert(now);
                contact(program, is_heard, SILENT_AFTER <= now.duration_since(ready), said)
            }
        }
    }
}

/// The status of an agent that runs. `is_silent` is whether it has had enough time to connect.
fn contact(program: Program, is_heard: bool, is_silent: bool, said: &[Condition]) -> WatchFact {
    if program == Program::RuntimeWatcher {
        let message = "the agent runs; this kind of agent connects only when an object changes";
        return fact(Status::True, reason::INSTALLED, message);
    }
    // A new process has no connections yet, so it relies on the last status.
    let was_heard = || conditions::find(said, conditions::WATCH).is_some_and(|former| former.reason == reason::HEARD);
    if is_heard || (!is_silent && was_heard()) {
        return fact(Status::True, reason::HEARD, "the agent runs and reports changes in the runtime");
    }
    if is_silent {
        let message = "the agent runs but has not connected for ten minutes: check its connection to the control plane \
                       (address, certificates, network policies); until it connects, each resync checks the runtime";
        return fact(Status::False, reason::SILENT, message);
    }
    fact(Status::Unknown, reason::AWAITED, "the agent runs but has not connected yet")
}

fn fact(status: Status, reason: &'static str, message: &str) -> WatchFact {
    WatchFact { status, reason, message: message.to_owned() }
}

/// Digest of the webhook configurations among live objects. It changes whenever one of them changes.
fn digest<'a>(live: impl IntoIterator<Item = &'a Metadata>) -> Digest {
    let is_webhook =
        |metadata: &&Metadata| &*metadata.id.group == GROUP && metadata.id.kind.ends_with("WebhookConfiguration");
    let text = |metadata: &Metadata| format!("{} {}", metadata.id, metadata.resource_version);
    let mut found: Vec<String> = live.into_iter().filter(is_webhook).map(text).collect();
    found.sort();
    Digest::of_bytes(found.join("\n").as_bytes())
}

#[cfg(test)]
mod tests;
