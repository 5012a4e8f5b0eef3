//! How often the objects of a runtime are checked, and what the status says of its agent. Pure.
//!
//! While probes go the whole path from the runtime's API server through the agent to this process, every change is
//! reported. Then a check of all objects every six hours is a safety net. Nothing reports changes of webhook
//! configurations, because an API server calls no webhook for them. So Tidegate lists their metadata every ten minutes,
//! and checks all objects if they have changed. Without such a proof, each resync checks all objects.

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

use super::readiness::AgentState;
use crate::runtime::{contacts::WatchState, objects::LiveObjects};

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
    /// checks once, because it may have missed changes before its start. `is_proven` is whether changes in the runtime
    /// reach this process.
    pub(super) fn is_due(&self, is_proven: bool, now: Instant) -> bool {
        let recently = self.checked.is_some_and(|checked| now.duration_since(checked) < CHECK);
        !(recently && self.ready.is_some() && is_proven)
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

    /// Since when the agent of Tidegate runs; none if it does not, or if another program is the agent.
    pub(super) fn ready_since(&mut self, found: &AgentState, program: Program, now: Instant) -> Option<Instant> {
        match found {
            AgentState::Starting(_) | AgentState::Broken(_) => {
                self.ready = None;
                None
            }
            AgentState::Ready => {
                let ready = *self.ready.get_or_insert(now);
                (program == Program::Tidegate).then_some(ready)
            }
        }
    }
}

/// The status of the agent. `state` is that of an agent of Tidegate that runs.
pub(super) fn fact_of(found: &AgentState, state: Option<WatchState>) -> WatchFact {
    match (found, state) {
        (AgentState::Starting(message) | AgentState::Broken(message), _) => {
            fact(Status::False, reason::NOT_READY, message)
        }
        (AgentState::Ready, None) => {
            let message = "the agent runs; this kind of agent connects only when an object changes";
            fact(Status::True, reason::INSTALLED, message)
        }
        (AgentState::Ready, Some(state)) => {
            let status = match state {
                WatchState::Awaited | WatchState::Unproven => Status::Unknown,
                WatchState::Heard => Status::True,
                WatchState::Silent | WatchState::Deaf | WatchState::Refused => Status::False,
            };
            fact(status, state.reason(), state.message())
        }
    }
}

/// The state that the last status reports.
pub(super) fn former(said: &[Condition]) -> Option<WatchState> {
    conditions::find(said, conditions::WATCH).and_then(|found| WatchState::of_reason(&found.reason))
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
