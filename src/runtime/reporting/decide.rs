//! What reporting needs in a runtime, what to apply, and what the status reports of it. Pure.
//!
//! The rules:
//!
//! * While a prerequisite of the agent is missing, its objects stay as they are.
//! * If reporting was installed before, the API server gets the webhook configuration first, with the new CA bundle.
//!   Otherwise it would reject the agent's next certificate, and the changes in between would not be reported.
//! * The runtime's own objects come next. The API server must not call an agent without a certificate.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tidegate_cluster::{Error, Kind};
use tidegate_core::{
    api::{
        Manifest,
        names::{SKR_NAMESPACE, SKR_WEBHOOK, SKR_WEBHOOK_SECRET},
    },
    conditions::{Status, watch as reason},
    name::Key,
    object::{Digest, Gvk, Object, ObjectId},
    plan::{
        certificate::{CertificateState, Issued},
        reporting::{Address, AddressError, Agent, Drift, Program},
    },
    render,
    status::{Part, WatchApplied, WatchFact},
    template::{self, Templates},
};
use tidegate_process::retry::Class;

use super::{
    readiness::AgentState,
    state::{Installable, OwnObjects, Prerequisites},
    user::{self, Recorded},
};
use crate::{
    gateway::certificates::Leaf,
    runtime::{
        base, delay,
        objects::{Applied, Failed, LiveObjects},
    },
};

/// A prerequisite of the agent that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// Reason of the condition.
    pub(super) reason: &'static str,
    /// One sentence.
    pub(super) message: String,
    /// Whether a user must act before it can exist.
    pub(super) wrong: bool,
}

/// How far a pass over the objects is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApplyStage {
    /// The webhook configuration is due.
    Webhooks,
    /// The runtime's own objects are due.
    Own,
    /// The rest of the shared objects is due.
    Rest,
    /// Nothing is due.
    End,
}

/// The objects to apply next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ApplyStep {
    /// The shared objects with these indices.
    Shared(Vec<usize>),
    /// The runtime's own objects.
    Own,
}

/// What the applies of one pass came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ApplyResults<'a> {
    /// The objects that were not applied.
    pub(super) failed: &'a [Failed],
    /// Templates that failed, one sentence each.
    pub(super) problems: &'a [String],
    /// The digest of all objects, if all are applied.
    pub(super) complete: Option<&'a Digest>,
    /// When to try again.
    pub(super) again: Option<Duration>,
}

/// An agent whose objects are applied without a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledAgent {
    /// Which program it is.
    pub(super) program: Program,
    /// The bundle that the runtime trusts, once all objects are applied.
    pub(super) trusts: Option<Digest>,
    /// What to record, once all objects are applied.
    applied: Option<WatchApplied>,
}

/// What a pass does about the objects of one runtime.
#[derive(Clone, Debug)]
pub(super) enum OwnStep {
    /// Nothing: they are as desired.
    Keep(OwnObjects),
    /// It makes their content and applies those that differ.
    Apply(OwnObjects),
}

/// Reporting after a pass.
#[derive(Debug)]
pub(in crate::runtime) struct ReportingReport {
    /// The webhook configuration and the agent.
    pub(in crate::runtime) webhook: Part,
    /// Whether Tidegate receives changes.
    pub(in crate::runtime) watch: WatchFact,
    /// What to record, once all objects are applied.
    pub(in crate::runtime) applied: Option<WatchApplied>,
    /// When to try again.
    pub(in crate::runtime) again: Option<Duration>,
}

/// Data keys of Secrets with certificates.
pub(super) const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA_BUNDLE: &str = "ca.crt";

const WEBHOOKS: &str = "ValidatingWebhookConfiguration";
const DEPLOYMENT: &str = "Deployment";

/// The note for users after a change of the webhook configuration.
const TAMPERED: &str = "The webhook configuration in the runtime was modified or deleted, so changes since then may \
                        have been missed. It has been restored and all objects were rechecked.";

/// The kinds of the objects.
pub(in crate::runtime) fn kinds(with_agent: bool) -> Vec<Gvk> {
    let mut kinds = vec![Gvk::new("admissionregistration.k8s.io", "v1", WEBHOOKS)];
    if with_agent {
        kinds.extend([
            Gvk::new("apps", "v1", DEPLOYMENT),
            Gvk::new("", "v1", "Service"),
            Gvk::new("", "v1", "Secret"),
            Gvk::new("networking.k8s.io", "v1", "NetworkPolicy"),
            Gvk::new("scheduling.k8s.io", "v1", "PriorityClass"),
        ]);
    }
    kinds
}

/// The webhooks that stay although no Watcher that can be read declares them, while one cannot be read and never
/// could: this process cannot know which of them it declares. `live` is the webhook configuration in the runtime.
pub(super) fn kept(live: Option<&Object>) -> Arc<[Value]> {
    live.map(|live| render::of_watchers(live.value())).unwrap_or_default().into()
}

/// The kinds of all objects that Tidegate applies in a runtime.
pub(crate) fn drift(manifests: &[Arc<Manifest>]) -> Drift {
    let mut drift = Drift::default();
    let synced = manifests.iter().filter_map(|manifest| manifest.status.as_ref()).flat_map(|status| &status.synced);
    let synced = synced.map(|synced| Gvk::new(&synced.group, &synced.version, &synced.kind));
    for gvk in base::kinds(true).into_iter().chain(kinds(true)) {
        let plural = Kind::built_in(&gvk)
            .map_or_else(|| format!("{}s", gvk.kind.to_lowercase()), |kind| kind.plural.to_string());
        drift.insert(&gvk.group, Some(&plural));
    }
    for gvk in synced {
        drift.insert(&gvk.group, Kind::built_in(&gvk).map(|kind| kind.plural).as_deref());
    }
    drift
}

/// The address that the agent sends events to.
pub(super) fn address(resolved: Result<Address, AddressError>) -> Result<Address, Missing> {
    resolved.map_err(|error| Missing::waiting(reason::NO_ADDRESS, error.to_string()))
}

/// What the agent needs, or the first missing part in the order in which a platform team sets them up.
pub(super) fn prerequisites(
    agent: &Agent,
    address: Address,
    certificate: CertificateState,
    bundle: Option<Arc<[u8]>>,
    pull_secret: Option<String>,
) -> Result<Prerequisites, Missing> {
    let issued = match certificate {
        CertificateState::Issued(issued) => issued,
        CertificateState::Pending(message) => return Err(Missing::waiting(reason::NO_CERTIFICATE, message)),
        CertificateState::Refused(message) => {
            return Err(Missing { reason: reason::NO_CERTIFICATE, message, wrong: true });
        }
    };
    let bundle = bundle.ok_or_else(|| {
        Missing::waiting(reason::NO_AUTHORITY, "the control plane has no CA bundle for runtimes yet".to_owned())
    })?;
    let pull_secret = match agent.pull_secret() {
        None => None,
        Some(key) => Some(pull_secret.ok_or_else(|| {
            let message = format!("there is no Secret {key} to pull its image with: create it in the control plane");
            Missing::waiting(reason::NO_PULL_SECRET, message)
        })?),
    };
    Ok(Prerequisites { address, bundle, issued, pull_secret })
}

/// Digest of the inputs of the runtime's own objects. `shared` is that of the inputs that runtimes share.
pub(super) fn own_digest(shared: &Digest, agent: Option<Installable<'_>>) -> Digest {
    match agent {
        None => Digest::from_value(&Value::Null),
        Some(Installable { prerequisites, .. }) => Digest::from_value(&json!([
            shared.to_string(),
            prerequisites.issued.secret.to_string(),
            prerequisites.issued.version,
            Digest::of_bytes(&prerequisites.bundle).to_string(),
            prerequisites.pull_secret,
        ])),
    }
}

/// Digest of all objects. An agent of Lifecycle Manager that stays has another one, so that the end of the adoption is
/// acted upon.
pub(super) fn total_digest(shared: &Digest, own: &Digest, is_held: bool) -> Digest {
    match is_held {
        true => Digest::all([shared, own, &Digest::of_bytes(b"adopted")]),
        false => Digest::all([shared, own]),
    }
}

/// Which of some reports without an agent was applied last, by their digests; `None` if it is none of them.
pub(super) fn which(recorded: Recorded<'_>, reports: [&Digest; 2]) -> Option<usize> {
    let total = |report: &Digest| total_digest(report, &own_digest(report, None), false).to_string();
    reports.into_iter().position(|report| total(report) == recorded.digest)
}

/// The note for users if the webhook configuration was changed in the runtime. Only this check detects it, because the
/// API server does not report changes of webhook configurations.
pub(super) fn tampering_note(checks: bool, is_recorded: bool, shared: &Applied) -> Option<&'static str> {
    (checks && is_recorded && !missing_of(shared, WEBHOOKS).is_empty()).then_some(TAMPERED)
}

/// What to apply at a stage; none at the end, and after a stage with failures. `is_installed` is whether reporting was
/// installed before.
pub(super) fn next(stage: ApplyStage, is_installed: bool, shared: &Applied, failed: &[Failed]) -> Option<ApplyStep> {
    if !failed.is_empty() {
        return None;
    }
    match stage {
        ApplyStage::Webhooks if is_installed => Some(ApplyStep::Shared(missing_of(shared, WEBHOOKS))),
        ApplyStage::Webhooks => Some(ApplyStep::Shared(Vec::new())),
        ApplyStage::Own => Some(ApplyStep::Own),
        ApplyStage::Rest => Some(ApplyStep::Shared(shared.missing())),
        ApplyStage::End => None,
    }
}

/// Whether the agent's Deployment is not as desired.
pub(super) fn lacks_deployment(applied: &Applied) -> bool {
    !missing_of(applied, DEPLOYMENT).is_empty()
}

/// Indices of the objects of a kind that must be applied.
fn missing_of(applied: &Applied, kind: &str) -> Vec<usize> {
    let is_of_kind = |index: &usize| &*applied.objects.objects[*index].id.kind == kind;
    applied.missing().into_iter().filter(is_of_kind).collect()
}

/// What to do about the objects of one runtime. Their content is needed only if one of them must be applied, or was
/// changed by others.
pub(super) fn own_step(own: OwnObjects, live: Option<&LiveObjects>) -> OwnStep {
    if own.is_complete(live) { OwnStep::Keep(own) } else { OwnStep::Apply(own) }
}

/// The runtime's certificate, given what the control plane has. Fails if its Secret is gone or incomplete.
pub(super) fn own_leaf(issued: &Issued, leaf: Option<Leaf>) -> Result<Leaf, String> {
    leaf.ok_or_else(|| format!("Secret {} lacks the runtime's certificate or its key", issued.secret))
}

/// None of the runtime's own objects can be applied.
pub(super) fn own_failed(message: String) -> Failed {
    Failed { id: secret_kind().id(&secret_key()), error: None, message }
}

/// The runtime's own objects, in the order of apply. Fails if a template does.
pub(super) fn own_objects(
    templates: &Templates,
    agent: &Agent,
    address: &Address,
    bundle: &[u8],
    leaf: &Leaf,
) -> Result<Vec<Object>, template::Error> {
    let data = [(CERTIFICATE, &*leaf.certificate), (KEY, &*leaf.key), (CA_BUNDLE, bundle)];
    let mut objects = vec![render::agent_secret(templates, data)?];
    if agent.program.restarts_for_certificates() {
        // Only a new certificate needs a restart, not other changes of its Secret.
        let restart = Digest::of_bytes(&leaf.certificate).to_string();
        objects.push(render::agent_deployment(templates, agent, address, Some(&restart[..16]))?);
    }
    Ok(objects)
}

/// The identities of the runtime's own objects, in the order of apply.
pub(super) fn own_ids(agent: &Agent) -> Vec<ObjectId> {
    let mut ids = vec![secret_kind().id(&secret_key())];
    if agent.program.restarts_for_certificates() {
        ids.push(deployment_kind().id(&deployment_key()));
    }
    ids
}

/// Failures in a row, and when to try again.
pub(super) fn retry(attempt: u32, failed: &[Failed]) -> (u32, Option<Duration>) {
    let attempt = if failed.is_empty() { 0 } else { attempt.saturating_add(1) };
    let class = |failed: &Failed| failed.error.as_ref().map_or(Class::Transient, Error::class);
    (attempt, failed.iter().map(|failed| delay(class(failed), attempt)).min())
}

/// Why the objects are not as desired: the first failed apply, or else the first failed template.
fn problem(failed: &[Failed], problems: &[String]) -> Option<String> {
    failed.first().map(|failed| &failed.message).or(problems.first()).cloned()
}

/// The agent whose state the pass reports.
///
/// # Errors
///
/// The report, if there is no agent or an object is not as desired.
pub(super) fn end(
    results: ApplyResults<'_>,
    agent: Option<Installable<'_>>,
) -> Result<InstalledAgent, Box<ReportingReport>> {
    if let Some(message) = problem(results.failed, results.problems) {
        return Err(Box::new(ReportingReport::not_applied(message, results.again)));
    }
    let applied = results.complete.map(|total| user::record(total, agent.and_then(|found| found.user)));
    let Some(Installable { agent, prerequisites, is_held, .. }) = agent else {
        return Err(Box::new(ReportingReport::without_agent(applied)));
    };
    let trusts = applied.is_some().then(|| Digest::of_bytes(&prerequisites.bundle));
    let program = if is_held { Program::RuntimeWatcher } else { agent.program };
    Ok(InstalledAgent { program, trusts, applied })
}

/// The kind of Secrets.
pub(super) fn secret_kind() -> Kind {
    Kind::new(Gvk::new("", "v1", "Secret"), "secrets", true)
}

/// The kind of Deployments.
pub(super) fn deployment_kind() -> Kind {
    Kind::new(Gvk::new("apps", "v1", DEPLOYMENT), "deployments", true)
}

/// Namespace and name of the agent's Deployment.
pub(super) fn deployment_key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_WEBHOOK)
}

/// Namespace and name of the Secret with the agent's certificate.
pub(super) fn secret_key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_WEBHOOK_SECRET)
}

// === impl ApplyStage ===

impl ApplyStage {
    /// The stage after this one.
    pub(super) fn after(self) -> ApplyStage {
        match self {
            ApplyStage::Webhooks => ApplyStage::Own,
            ApplyStage::Own => ApplyStage::Rest,
            ApplyStage::Rest | ApplyStage::End => ApplyStage::End,
        }
    }
}

// === impl InstalledAgent ===

impl InstalledAgent {
    /// The report. `watch` is its status, see [`super::rhythm::fact_of`].
    pub(super) fn report(self, found: AgentState, watch: WatchFact, again: Option<Duration>) -> ReportingReport {
        let webhook = match found {
            AgentState::Ready => Part::Done,
            AgentState::Starting(message) => Part::Waiting(message),
            AgentState::Broken(message) => Part::Failed(message),
        };
        ReportingReport { webhook, watch, applied: self.applied, again }
    }
}

// === impl Missing ===

impl Missing {
    /// A prerequisite that can appear without an act of a user.
    pub(super) fn waiting(reason: &'static str, message: String) -> Missing {
        Missing { reason, message, wrong: false }
    }

    /// The report. The objects stay as they are, and the prerequisite wakes the runtime when it appears.
    pub(super) fn report(self) -> ReportingReport {
        let message = format!("no agent is installed: {}", self.message);
        ReportingReport {
            webhook: if self.wrong { Part::Failed(message.clone()) } else { Part::Waiting(message.clone()) },
            watch: WatchFact { status: Status::False, reason: self.reason, message },
            applied: None,
            again: None,
        }
    }
}

// === impl ReportingReport ===

impl ReportingReport {
    /// Some objects are not as desired.
    pub(super) fn not_applied(message: String, again: Option<Duration>) -> ReportingReport {
        ReportingReport {
            webhook: Part::Failed(message.clone()),
            watch: WatchFact { status: Status::False, reason: reason::NOT_APPLIED, message },
            applied: None,
            again,
        }
    }

    /// The webhook configuration is as desired, and no agent is configured.
    pub(super) fn without_agent(applied: Option<WatchApplied>) -> ReportingReport {
        let watch = WatchFact::not_configured();
        ReportingReport { webhook: Part::Done, watch, applied, again: None }
    }
}

#[cfg(test)]
mod tests;
