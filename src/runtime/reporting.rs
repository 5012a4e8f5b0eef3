//! What reports changes in a runtime: the webhook configuration, the agent that it asks, and the agent's certificate.
//!
//! Without an agent in the options only the webhook configuration is applied, for whoever installs one. With an agent,
//! nothing is applied before every piece is there: the address that events go to, the CA bundle, the runtime's
//! certificate; and while a piece is missing later, what stands is left as it is. The names are Lifecycle Manager's, so
//! what it installed is taken over in place.
//!
//! What runtimes share is rendered and serialised once for all that have the same kinds of objects. A runtime's own part
//! is the Secret with its certificate, and a Deployment that must start anew with each certificate. Neither is kept in
//! memory: the Secret is read from the control plane when it has to be written.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{RuntimePass, base, delay};
use tidegate_cluster::{Cluster, Error, Kind, Metadata};
use tidegate_core::{
    api::{
        Manifest,
        names::{SKR_NAMESPACE, SKR_WEBHOOK, SKR_WEBHOOK_SECRET},
        shared::Condition,
    },
    conditions::{self, Status, kyma::Type, watch as reason},
    landscape::{self, Landscape},
    name::Key,
    object::{Digest, Gvk, Object, ObjectId},
    plan::{
        certificate::{Issued, Standing},
        reporting::{Address, Agent, Drift, Program},
    },
    render::{self, Mark, SharedObjects},
    status::{Part, WatchFact},
    template::{self, Templates},
};
use tidegate_process::retry::Class;

use crate::{
    controller::{
        Context,
        events::{Severity, reason as told},
    },
    gateway::certificates::{self, Leaf},
    runtime::objects::{self, Applied, Failed, Seen},
};

mod ours;
mod readiness;
mod remove;
mod reports;
mod rhythm;

use ours::{Ours, Recorded};
use readiness::Readiness;
pub(super) use remove::remove;
use reports::Report;
pub use reports::Reports;

/// What a process remembers of it in one runtime.
#[derive(Debug, Default)]
pub(super) struct KnownWatch {
    shared: Option<Applied>,
    own: Option<Own>,
    ours: Ours,
    /// Passes in a row in which something could not be applied.
    attempt: u32,
    readiness: Readiness,
    rhythm: rhythm::Rhythm,
}

/// What is known of a runtime's own objects: no more than where they stand.
#[derive(Debug)]
struct Own {
    /// Of what they were made from.
    of: Digest,
    ids: Vec<ObjectId>,
    seen: Vec<Seen>,
}

/// How it fares after a pass.
pub(super) struct WatchReport {
    pub(super) webhook: Part,
    /// The Secret with which its image is pulled, where one is configured.
    pub(super) pull_secret: Option<Part>,
    pub(super) watch: WatchFact,
    /// What is to be recorded of it, once all of it is applied.
    pub(super) applied: Option<String>,
    pub(super) again: Option<Duration>,
}

/// What must be there before an agent is installed.
struct Pieces {
    address: Address,
    bundle: Arc<[u8]>,
    issued: Issued,
    /// The state of the Secret with which its image is pulled, where one is configured.
    pull_secret: Option<String>,
}

/// What is missing.
struct Missing {
    reason: &'static str,
    message: String,
    /// Whether somebody must change something before it can be there.
    wrong: bool,
}

/// Keys of the Secrets with certificates.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITIES: &str = "ca.crt";

/// What an API server is told of whom it asks.
const WEBHOOKS: &str = "ValidatingWebhookConfiguration";

/// The kinds of its objects.
pub(super) fn kinds(with_agent: bool) -> Vec<Gvk> {
    let mut kinds = vec![Gvk::new("admissionregistration.k8s.io", "v1", WEBHOOKS)];
    if with_agent {
        kinds.extend([
            Gvk::new("apps", "v1", "Deployment"),
            Gvk::new("", "v1", "Service"),
            Gvk::new("", "v1", "Secret"),
            Gvk::new("networking.k8s.io", "v1", "NetworkPolicy"),
            Gvk::new("scheduling.k8s.io", "v1", "PriorityClass"),
        ]);
    }
    kinds
}

/// The kinds of all objects that we applied in a runtime.
fn drift(manifests: &[Arc<Manifest>]) -> Drift {
    let mut drift = Drift::default();
    let synced = manifests.iter().filter_map(|manifest| manifest.status.as_ref()).flat_map(|status| &status.synced);
    let synced = synced.map(|synced| Gvk::new(&synced.group, &synced.version, &synced.kind));
    for gvk in base::kinds().into_iter().chain(kinds(true)) {
        let plural = Kind::built_in(&gvk)
            .map_or_else(|| format!("{}s", gvk.kind.to_lowercase()), |kind| kind.plural.to_string());
        drift.insert(&gvk.group, Some(&plural));
    }
    for gvk in synced {
        drift.insert(&gvk.group, Kind::built_in(&gvk).map(|kind| kind.plural).as_deref());
    }
    drift
}

// === impl KnownWatch ===

impl KnownWatch {
    /// Whether a resync must look at everything.
    pub(super) fn is_due(&self, context: &Context, kyma: &Key) -> bool {
        self.rhythm.is_due(&context.contacts, context.resync, kyma, Instant::now())
    }

    /// Whether somebody touched a webhook configuration, which nobody reports.
    pub(super) async fn webhooks_moved(&mut self, cluster: &Cluster) -> Result<bool, Error> {
        self.rhythm.webhooks_moved(cluster, Instant::now()).await
    }
}

/// Brings it to what it should be. `manifests` are as the pass over them left them.
pub(super) async fn bring(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    landscape: &Arc<Landscape>,
    manifests: &[Arc<Manifest>],
    live: Option<&BTreeMap<ObjectId, Metadata>>,
    memory: &mut KnownWatch,
) -> Result<WatchReport, Error> {
    let context = pass.context;
    let conditions = pass.kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let recorded = conditions::message(conditions, conditions::WATCH_APPLIED).map(Recorded::parse);
    let Some(agent) = &context.agent else {
        let report = context.reports.reported_by(pass, landscape, None).await;
        let watch = WatchPass { pass, cluster, live, recorded, report: &report, pieces: None, user: None };
        return watch.bring(memory).await;
    };
    let pieces = match pieces(pass, agent).await? {
        Ok(pieces) => pieces,
        Err(missing) => return Ok(missing.brought(agent)),
    };
    let drift = drift(manifests);
    let user = memory.ours.user(cluster, live.is_some(), recorded).await?;
    let told = reports::Told { address: &pieces.address, drift: &drift, user: user.as_ref() };
    let report = context.reports.reported_by(pass, landscape, Some(told)).await;
    let watch = WatchPass { pass, cluster, live, recorded, report: &report, pieces: Some((agent, &pieces)), user };
    watch.bring(memory).await
}

/// Looks for what an agent needs, in the order in which a platform team sets it up.
async fn pieces(pass: &RuntimePass<'_>, agent: &Agent) -> Result<Result<Pieces, Missing>, Error> {
    let stores = &pass.context.stores;
    let gateways = stores.gateways();
    let address = match agent.listener.resolve(gateways.iter().map(|entry| &entry.gateway)) {
        Ok(address) => address,
        Err(error) => return Ok(Err(Missing::waiting(reason::NO_ADDRESS, error.to_string()))),
    };
    let issued = match certificates::ensure(pass.context, pass.cause, pass.kyma, pass.now).await? {
        Standing::Issued(issued) => issued,
        Standing::Pending(message) => return Ok(Err(Missing::waiting(reason::NO_CERTIFICATE, message))),
        Standing::Refused(message) => {
            return Ok(Err(Missing { reason: reason::NO_CERTIFICATE, message, wrong: true }));
        }
    };
    let Some(bundle) = stores.ca_bundle() else {
        let message = "there is no CA bundle that runtimes could trust yet".to_owned();
        return Ok(Err(Missing::waiting(reason::NO_AUTHORITY, message)));
    };
    let pull_secret = match agent.pull_secret() {
        None => None,
        Some(key) => match stores.pull_secret() {
            Some(version) => Some(version),
            None => {
                let message =
                    format!("there is no Secret {key} to pull its image with: create it in the control plane");
                return Ok(Err(Missing::waiting(reason::NO_PULL_SECRET, message)));
            }
        },
    };
    Ok(Ok(Pieces { address, bundle, issued, pull_secret }))
}

/// Where a pass takes place, and what it wants.
struct WatchPass<'a> {
    pass: &'a RuntimePass<'a>,
    cluster: &'a Cluster,
    live: Option<&'a BTreeMap<ObjectId, Metadata>>,
    /// What the status says was applied.
    recorded: Option<Recorded<'a>>,
    report: &'a Report,
    pieces: Option<(&'a Agent, &'a Pieces)>,
    /// As whom we write, where that matters and is known.
    user: Option<Arc<str>>,
}

// === impl Missing ===

impl Missing {
    fn waiting(reason: &'static str, message: String) -> Missing {
        Missing { reason, message, wrong: false }
    }

    /// What stands is left as it is, and whatever brings the piece wakes the runtime.
    fn brought(self, agent: &Agent) -> WatchReport {
        let message = format!("no agent is installed: {}", self.message);
        let pull_secret = agent.pull_secret.as_ref().map(|_| match self.reason {
            reason::NO_PULL_SECRET => Part::Waiting(message.clone()),
            _ => Part::Unknown,
        });
        WatchReport {
            pull_secret,
            webhook: if self.wrong { Part::Failed(message.clone()) } else { Part::Waiting(message.clone()) },
            watch: WatchFact { status: Status::False, reason: self.reason, message },
            applied: None,
            again: None,
        }
    }
}

// === impl WatchPass ===

impl WatchPass<'_> {
    async fn bring(&self, memory: &mut KnownWatch) -> Result<WatchReport, Error> {
        if let Some(live) = self.live {
            memory.rhythm.looked(live, Instant::now());
        }
        let own = self.own();
        let total = Digest::all([&self.report.digest, &own]);
        let conditions = self.pass.kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let recorded = self.recorded.map(|recorded| recorded.digest);
        let mut shared = Applied::before(&self.report.objects, memory.shared.take(), recorded, &total);
        let owner = landscape::key(&self.pass.kyma.metadata);
        if let Some(live) = self.live {
            let suspects = shared.look(live);
            objects::compare(self.cluster, &owner, live, &mut shared, suspects).await?;
        }
        let is_recorded = recorded == Some(total.to_string().as_str());
        let is_webhooks = |index: &usize| &*shared.objects.objects[*index].id.kind == WEBHOOKS;
        if self.live.is_some() && is_recorded && shared.missing().iter().any(is_webhooks) {
            // Nobody is asked about it, so this is the only sign that there ever is.
            let note = "somebody changed or deleted the webhook configuration in the runtime, so changes there may not have \
                        been told since; everything is looked at, and it is as it should be again";
            self.pass.tell(Severity::Warning, told::REPORTING_CHANGED, "Watch", note);
        }
        let mut failed = self.bring_trust(recorded.is_some(), &mut shared).await?;
        if failed.is_empty() {
            failed = self.bring_own(&own, is_recorded, memory).await?;
        }
        let deployment =
            || shared.missing().iter().any(|&index| &*shared.objects.objects[index].id.kind == "Deployment");
        if deployment() {
            memory.readiness.doubt();
        }
        let missing = shared.missing();
        // Whoever is asked before he has his certificate would only fail.
        if failed.is_empty() {
            failed = objects::send(self.cluster, self.pass.cause, &owner, &mut shared, &missing).await?;
        }
        let complete = failed.is_empty() && shared.is_complete() && self.report.problems.is_empty();
        memory.shared = Some(shared);
        memory.attempt = if failed.is_empty() { 0 } else { memory.attempt.saturating_add(1) };
        let again = failed
            .iter()
            .map(|failed| delay(failed.error.as_ref().map_or(Class::Transient, Error::class), memory.attempt))
            .min();
        let pull_secret = self.pull_secret(memory, &failed);
        if let Some(message) = failed.first().map(|failed| &failed.message).or(self.report.problems.first()) {
            return Ok(WatchReport {
                webhook: Part::Failed(message.clone()),
                pull_secret,
                watch: WatchFact { status: Status::False, reason: reason::NOT_APPLIED, message: message.clone() },
                applied: None,
                again,
            });
        }
        let applied = complete.then(|| ours::record(&total, self.user.as_deref()));
        match self.pieces {
            None => {
                Ok(WatchReport { webhook: Part::Done, pull_secret, watch: WatchFact::not_configured(), applied, again })
            }
            Some((agent, pieces)) => {
                if applied.is_some() {
                    let RuntimePass { context, key, .. } = self.pass;
                    context.certificates.trusts(key, Digest::of_bytes(&pieces.bundle), &context.queue);
                }
                let brought = self.readiness(agent.program, applied, conditions, memory).await?;
                Ok(WatchReport { pull_secret, ..brought })
            }
        }
    }

    /// How the Secret with which the agent's image is pulled fares, where one is configured.
    fn pull_secret(&self, memory: &KnownWatch, failed: &[Failed]) -> Option<Part> {
        let (agent, _) = self.pieces?;
        let id = secret_kind().id(&Key::new(SKR_NAMESPACE, agent.pull_secret.as_deref()?));
        if let Some(failed) = failed.iter().find(|failed| failed.id == id) {
            return Some(Part::Failed(failed.message.clone()));
        }
        let own = memory.own.as_ref();
        let stands = own.is_some_and(|own| {
            own.ids.iter().zip(&own.seen).any(|(found, seen)| *found == id && *seen != Seen::Missing)
        });
        let waiting = || Part::Waiting("the Secret to pull the agent's image with is not applied yet".to_owned());
        Some(if stands { Part::Done } else { waiting() })
    }

    /// How the agent fares, once all is applied.
    async fn readiness(
        &self,
        program: Program,
        applied: Option<String>,
        conditions: &[Condition],
        memory: &mut KnownWatch,
    ) -> Result<WatchReport, Error> {
        let said = conditions::is_true(conditions, Type::SkrWebhook.as_str());
        let found = memory.readiness.look(self.cluster, self.live.is_some(), said).await?;
        let (webhook, not_ready, again) = match found {
            readiness::Found::Ready => (Part::Done, None, None),
            readiness::Found::Starting(message) => {
                (Part::Waiting(message.clone()), Some(message), Some(memory.readiness.again()))
            }
            readiness::Found::Broken(message) => {
                (Part::Failed(message.clone()), Some(message), Some(memory.readiness.again()))
            }
        };
        let watch = match not_ready {
            Some(message) => {
                memory.rhythm.not_ready();
                WatchFact { status: Status::False, reason: reason::NOT_READY, message }
            }
            None => {
                let RuntimePass { context, key, .. } = self.pass;
                memory.rhythm.watch(&context.contacts, key, program, conditions, Instant::now())
            }
        };
        Ok(WatchReport { webhook, pull_secret: None, watch, applied, again })
    }

    /// Digest of what the runtime's own objects are made from.
    fn own(&self) -> Digest {
        match self.pieces {
            None => Digest::from_value(&Value::Null),
            Some((_, pieces)) => Digest::from_value(&json!([
                self.report.own.to_string(),
                pieces.issued.secret.to_string(),
                pieces.issued.version,
                Digest::of_bytes(&pieces.bundle).to_string(),
                pieces.pull_secret,
            ])),
        }
    }

    /// Has the API server of a runtime that has an agent trust the authority of its next certificate, before the agent can
    /// show that one: a review that fails in between would be a change that nobody tells of.
    async fn bring_trust(&self, stands: bool, shared: &mut Applied) -> Result<Vec<Failed>, Error> {
        if !stands {
            return Ok(Vec::new());
        }
        let mut configurations = shared.missing();
        configurations.retain(|&index| &*shared.objects.objects[index].id.kind == WEBHOOKS);
        let owner = landscape::key(&self.pass.kyma.metadata);
        objects::send(self.cluster, self.pass.cause, &owner, shared, &configurations).await
    }

    /// Brings the runtime's own objects to what they should be. Their content is read only if they have to be written, or
    /// if somebody else wrote them.
    async fn bring_own(&self, of: &Digest, is_recorded: bool, memory: &mut KnownWatch) -> Result<Vec<Failed>, Error> {
        let Some((agent, pieces)) = self.pieces else {
            memory.own = None;
            return Ok(Vec::new());
        };
        let ids = own_ids(agent);
        let seen = match memory.own.take() {
            Some(own) if own.of == *of && own.ids == ids => own.seen,
            None if is_recorded => vec![Seen::Recorded; ids.len()],
            Some(_) | None => vec![Seen::Missing; ids.len()],
        };
        let stands = ids.iter().zip(&seen).all(|(id, seen)| match self.live {
            Some(live) => seen.is_at(live.get(id)),
            None => *seen != Seen::Missing,
        });
        if stands {
            memory.own = Some(Own { of: *of, ids, seen });
            return Ok(Vec::new());
        }
        let objects = match self.own_objects(agent, pieces).await? {
            Ok(objects) => objects,
            Err(failed) => {
                memory.own = Some(Own { of: *of, seen: vec![Seen::Missing; ids.len()], ids });
                return Ok(vec![failed]);
            }
        };
        let mut applied = Applied { objects: Arc::new(objects), seen: seen.into() };
        let owner = landscape::key(&self.pass.kyma.metadata);
        if let Some(live) = self.live {
            let suspects = applied.look(live);
            objects::compare(self.cluster, &owner, live, &mut applied, suspects).await?;
        }
        let missing = applied.missing();
        let sends_deployment = missing.iter().any(|&index| &*applied.objects.objects[index].id.kind == "Deployment");
        if sends_deployment {
            memory.readiness.doubt();
        }
        let failed = objects::send(self.cluster, self.pass.cause, &owner, &mut applied, &missing).await?;
        memory.own = Some(Own { of: *of, ids, seen: applied.seen.into() });
        Ok(failed)
    }

    /// The runtime's own objects, in the order of apply, or why they cannot be made.
    async fn own_objects(&self, agent: &Agent, pieces: &Pieces) -> Result<Result<SharedObjects, Failed>, Error> {
        let failed = |message| {
            let id = secret_kind().id(&Key::new(SKR_NAMESPACE, SKR_WEBHOOK_SECRET));
            Ok(Err(Failed { id, error: None, message }))
        };
        let Some(leaf) = certificates::load(self.pass.context, &pieces.issued).await? else {
            return failed(format!("Secret {} lacks the runtime's certificate or its key", pieces.issued.secret));
        };
        let pull_secret = match agent.pull_secret() {
            Some(key) => {
                let kind = Kind::namespaced::<Secret>();
                let Some(secret) = self.pass.context.kcp.get_as::<Secret>(&kind, &key).await? else {
                    return failed(format!("Secret {key} is gone"));
                };
                Some((key, secret))
            }
            None => None,
        };
        let (agent, address, bundle) = (agent.clone(), pieces.address.clone(), Arc::clone(&pieces.bundle));
        let render = move |templates: &Templates| own_objects(templates, &agent, &address, &leaf, &bundle, pull_secret);
        let objects = self.pass.context.renderer.with(self.report.templates(), render).await;
        match objects {
            Ok(objects) => Ok(Ok(SharedObjects::new(&objects, Mark::Runtime, &|_| None))),
            Err(error) => failed(error.to_string()),
        }
    }
}

/// A runtime's own objects, in the order of apply.
fn own_objects(
    templates: &Templates,
    agent: &Agent,
    address: &Address,
    leaf: &Leaf,
    bundle: &[u8],
    pull_secret: Option<(Key, Secret)>,
) -> Result<Vec<Object>, template::Error> {
    let data = [(CERTIFICATE, &*leaf.certificate), (KEY, &*leaf.key), (AUTHORITIES, bundle)];
    let mut objects = vec![render::agent_secret(templates, data)?];
    if let Some((key, secret)) = pull_secret {
        let (type_, labels) = (secret.type_.unwrap_or_default(), secret.metadata.labels.unwrap_or_default());
        let data = secret.data.unwrap_or_default();
        let data = data.iter().map(|(key, bytes)| (key.as_str(), bytes.0.as_slice()));
        objects.push(render::agent_pull_secret(templates, key.name(), &type_, &labels, data)?);
    }
    if agent.program.restarts_for_certificates() {
        // Of the certificate alone: what else changes in its Secret is no reason to start anew.
        let restart = Digest::of_bytes(&leaf.certificate).to_string();
        objects.push(render::agent_deployment(templates, agent, address, Some(&restart[..16]))?);
    }
    Ok(objects)
}

/// Their identities, in the order of apply.
fn own_ids(agent: &Agent) -> Vec<ObjectId> {
    let secret = |name| secret_kind().id(&Key::new(SKR_NAMESPACE, name));
    let mut ids = vec![secret(SKR_WEBHOOK_SECRET)];
    ids.extend(agent.pull_secret.as_deref().map(secret));
    if agent.program.restarts_for_certificates() {
        ids.push(deployment_kind().id(&deployment_key()));
    }
    ids
}

fn secret_kind() -> Kind {
    Kind::new(Gvk::new("", "v1", "Secret"), "secrets", true)
}

fn deployment_kind() -> Kind {
    Kind::new(Gvk::new("apps", "v1", "Deployment"), "deployments", true)
}

fn deployment_key() -> Key {
    Key::new(SKR_NAMESPACE, SKR_WEBHOOK)
}

#[cfg(test)]
mod tests;
