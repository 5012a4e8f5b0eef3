//! What reports changes in a runtime: the webhook configuration, the agent that it calls, and the agent's certificate.
//!
//! Without a configured agent, Tidegate applies only the webhook configuration, for an agent that others install. With
//! an agent, it applies nothing before all prerequisites exist: the address for events, the CA bundle and the runtime's
//! certificate. The names are Lifecycle Manager's, so Tidegate takes over in place what that has installed.
//!
//! Most objects are shared: `reports` renders and serialises them once for all runtimes with the same kinds of objects.
//! Each runtime has its own Secret with its certificate, and a Deployment if that must restart for each certificate.
//! Their content is not kept in memory: Tidegate reads the Secret in KCP when it must apply it.
//!
//! While a runtime is adopted, the agent of Lifecycle Manager stays there as long as it works with Tidegate: `adopted`
//! says how long that is. The webhook configuration then calls it as Lifecycle Manager's did.
//!
//! `state` and `user`, `readiness` and `rhythm` are what is known between passes, `decide` what to apply and to report,
//! and `enact` sends the requests. This file only joins them.

use std::sync::Arc;

use tidegate_cluster::{Cluster, Error, Kind, managers_before};
use tidegate_core::{
    adopt,
    api::{Kyma, Manifest, names::annotation, shared::Condition},
    conditions::{self, kyma::Type},
    landscape::{self, Landscape},
    name::Key,
    object::Digest,
    plan::reporting::Agent,
    render::{Mark, SharedObjects},
    template::Templates,
};
use tokio::time::Instant;

use super::{
    RuntimePass,
    contacts::{News, WatchState},
    objects::{self, Applied, Failed, Filling, LiveObjects},
};
use crate::{
    controller::{
        annotations,
        events::{Severity, reason},
    },
    gateway::certificates,
    stores::Table,
};

mod adopted;
mod decide;
mod enact;
pub(crate) mod probe;
mod readiness;
mod remove;
mod reports;
mod rhythm;
mod state;
mod user;

pub(crate) use decide::drift;
pub(super) use decide::{ReportingReport, kinds};
pub(super) use remove::remove;
pub(crate) use reports::Reports;
pub(super) use state::KnownReporting;

use adopted::Hold;
use decide::{ApplyResults, ApplyStage, ApplyStep, Missing, OwnStep};
use readiness::{AgentState, Readiness, ReadinessStep};
use reports::{Report, WebhookInputs};
use state::{Installable, OwnObjects, Prerequisites};
use user::{KnownUser, Recorded, UserStep};

/// The note for users after changes are reported again.
const RESTORED: &str = "a probe came back from the runtime, so its changes are reported again";

/// Applies what reports changes in a runtime. `manifests` are as the passes over them left them.
///
/// # Errors
///
/// An error that concerns the runtime or KCP as a whole. Failures of single objects are in the report.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    landscape: &Arc<Landscape>,
    manifests: &[Arc<Manifest>],
    (live, left): (Option<&LiveObjects>, Option<&LiveObjects>),
    known: &mut KnownReporting,
) -> Result<ReportingReport, Error> {
    let context = pass.context;
    // Without the rules of a Watcher that cannot be read, changes would no longer be reported.
    let kept = if context.stores.unknown(&[Table::Watchers], None).is_some() {
        decide::kept(enact::read_webhooks(cluster).await?.as_ref())
    } else {
        Arc::default()
    };
    let conditions = pass.kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let recorded = Recorded::of(conditions);
    let Some(agent) = context.settings.agent else {
        let report = context.shared.reports.of_runtime(pass, landscape, &kept, None).await;
        let is_adopted = adopt::is_adopted(&pass.kyma.metadata);
        let report = match report.without_webhooks().filter(|_| is_adopted) {
            Some(silent) if is_silent(cluster, recorded, (&report.digest, &silent.digest)).await? => Arc::new(silent),
            Some(_) | None => report,
        };
        let report = &*report;
        let watch = ReportingPass { pass, cluster, live, left, conditions, recorded, report, agent: None, is_adopted };
        return watch.run(known).await;
    };
    let prerequisites = match find_prerequisites(pass, agent).await? {
        Ok(prerequisites) => prerequisites,
        Err(missing) => {
            context.contacts.rest(pass.key);
            return Ok(missing.report());
        }
    };
    let user = match known.user.step(live.is_some(), recorded) {
        UserStep::Use(user) => user,
        UserStep::Ask => cluster.user().await?,
    };
    known.user = KnownUser::Known(user.clone());
    let is_held = holds_former(pass, cluster, live, &prerequisites, known).await?;
    let (address, drift) = (&prerequisites.address, &decide::drift(manifests));
    let inputs = WebhookInputs { address, drift, user: user.as_ref(), is_held };
    let report = &*context.shared.reports.of_runtime(pass, landscape, &kept, Some(inputs)).await;
    let agent = Some(Installable { agent, prerequisites: &prerequisites, user: user.as_deref(), is_held });
    ReportingPass { pass, cluster, live, left, conditions, recorded, report, agent, is_adopted: is_held }
        .run(known)
        .await
}

/// Whether an adopted runtime has no webhook configuration, where no agent is configured: Lifecycle Manager left none,
/// so none is created, whatever Watchers ask for. `with` and `without` are the digests of the report with one, and of
/// the one without it.
async fn is_silent(
    cluster: &Cluster,
    recorded: Option<Recorded<'_>>,
    (with, without): (&Digest, &Digest),
) -> Result<bool, Error> {
    match recorded.and_then(|recorded| decide::which(recorded, [with, without])) {
        Some(index) => Ok(index == 1),
        None => Ok(enact::read_webhooks(cluster).await?.is_none()),
    }
}

/// Whether the agent of Lifecycle Manager stays in the runtime. If it cannot, the adoption of the runtime ends before
/// anything is written there.
async fn holds_former(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    live: Option<&LiveObjects>,
    prerequisites: &Prerequisites,
    known: &mut KnownReporting,
) -> Result<bool, Error> {
    if !adopt::is_adopted(&pass.kyma.metadata) {
        known.release();
        return Ok(false);
    }
    if known.former.as_ref().is_some_and(|agent| agent.is_same(prerequisites, live)) {
        return Ok(true);
    }
    let deployment = enact::read_deployment(cluster).await?;
    let secret = enact::read_secret(cluster).await?;
    let leaf = certificates::load(pass.context.certificates, &prerequisites.issued).await?;
    let observed = adopted::Observed { deployment: deployment.as_ref(), secret: secret.as_ref(), leaf: leaf.as_ref() };
    match Hold::of(observed, prerequisites, managers_before(cluster.name(), "")) {
        Hold::Keep(agent) => {
            known.former = Some(agent);
            Ok(true)
        }
        Hold::End(why) => {
            known.release();
            let kind = Kind::namespaced::<Kyma>();
            let (kcp, metadata) = (pass.context.kcp, &pass.kyma.metadata);
            if annotations::try_remove(kcp, pass.cause, &kind, metadata, annotation::ADOPTED).await? {
                tracing::info!(runtime = %pass.key, why, "a runtime does not stay as Lifecycle Manager left it");
                pass.publish(Severity::Normal, reason::ADOPTION_ENDED, "Adopt", adopted::end_note(why));
            }
            Ok(false)
        }
    }
}

/// Whether a webhook configuration in the runtime has changed since the last check. Lists them only from time to time.
///
/// # Errors
///
/// The error of the request.
pub(super) async fn webhooks_changed(cluster: &Cluster, known: &mut KnownReporting) -> Result<bool, Error> {
    let now = Instant::now();
    if !known.rhythm.must_list_webhooks(now) {
        return Ok(false);
    }
    let mut found = Vec::new();
    for kind in rhythm::webhook_kinds() {
        found.extend(enact::list_ours(cluster, &kind).await?);
    }
    Ok(known.rhythm.listed_webhooks(&found, now))
}

/// Finds what the agent needs. Without an address, no certificate is issued.
async fn find_prerequisites(pass: &RuntimePass<'_>, agent: &Agent) -> Result<Result<Prerequisites, Missing>, Error> {
    let stores = pass.context.stores;
    let gateways = stores.gateways();
    let address = match decide::address(agent.listener.resolve(gateways.iter().map(|entry| &entry.gateway))) {
        Ok(address) => address,
        Err(missing) => return Ok(Err(missing)),
    };
    let certificate = certificates::ensure(pass.context.certificates, pass.cause, pass.kyma, pass.now).await?;
    let pull_secret = stores.pull_secret().map(|secret| secret.version.clone());
    Ok(decide::prerequisites(agent, address, certificate, stores.ca_bundle(), pull_secret))
}

/// A pass over what reports changes in one runtime.
struct ReportingPass<'a> {
    pass: &'a RuntimePass<'a>,
    cluster: &'a Cluster,
    /// The live objects, if this pass checks all of them.
    live: Option<&'a LiveObjects>,
    /// The same, if the record of what was applied is lost.
    left: Option<&'a LiveObjects>,
    /// The conditions of the last status.
    conditions: &'a [Condition],
    /// What the status says was applied.
    recorded: Option<Recorded<'a>>,
    /// What the runtime shares with others.
    report: &'a Report,
    /// None if no agent is configured.
    agent: Option<Installable<'a>>,
    /// Whether what Lifecycle Manager left stays as it is.
    is_adopted: bool,
}

// === impl ReportingPass ===

impl ReportingPass<'_> {
    /// Applies the objects in the order in which no change goes unreported.
    async fn run(&self, known: &mut KnownReporting) -> Result<ReportingReport, Error> {
        let own = decide::own_digest(&self.report.own, self.agent);
        let is_held = self.agent.is_some_and(|agent| agent.is_held);
        let total = decide::total_digest(&self.report.digest, &own, is_held);
        let recorded = self.recorded.map(|recorded| recorded.digest);
        let is_recorded = recorded == Some(total.to_string().as_str());
        known.rhythm.checked(self.live, Instant::now());

        let owner = landscape::key(&self.pass.kyma.metadata);
        let filling = self.filling(&owner);
        let mut shared = Applied::before(&self.report.objects, known.shared.take(), recorded, &total);
        objects::check(self.cluster, filling, self.live, &mut shared).await?;
        if let Some(left) = self.left {
            objects::recognize(self.cluster, filling, left, &mut shared).await?;
        }
        if let Some(note) = decide::tampering_note(self.live.is_some(), is_recorded, &shared) {
            self.pass.publish(Severity::Warning, reason::REPORTING_CHANGED, "Watch", note);
        }
        let mut failed = self.adopt(&mut shared).await?;
        known.readiness.before_apply(&shared);
        let mut stage = ApplyStage::Webhooks;
        while let Some(step) = decide::next(stage, recorded.is_some(), &shared, &failed) {
            failed = match step {
                ApplyStep::Shared(indices) => self.apply(&mut shared, &indices).await?,
                ApplyStep::Own => self.apply_own(own, is_recorded, known).await?,
            };
            stage = stage.after();
        }
        let is_complete = shared.is_complete();
        known.shared = Some(shared);
        self.end(total, is_complete, &failed, known).await
    }

    /// What the objects of the Kyma, their owner, are filled with.
    fn filling<'a>(&'a self, owner: &'a Key) -> Filling<'a> {
        Filling { owner, kcp: self.pass.context.kcp }
    }

    /// Takes over what stays as Lifecycle Manager left it. Returns the objects that were not taken over.
    async fn adopt(&self, applied: &mut Applied) -> Result<Vec<Failed>, Error> {
        if !self.is_adopted {
            return Ok(Vec::new());
        }
        let owner = landscape::key(&self.pass.kyma.metadata);
        objects::adopt(self.cluster, self.pass.cause, self.filling(&owner), applied).await
    }

    /// Applies shared objects. Returns those that were not applied.
    async fn apply(&self, shared: &mut Applied, indices: &[usize]) -> Result<Vec<Failed>, Error> {
        let owner = landscape::key(&self.pass.kyma.metadata);
        let filling = self.filling(&owner);
        objects::apply(self.cluster, self.pass.cause, filling, shared, indices, &LiveObjects::new()).await
    }

    /// Applies the runtime's own objects that differ. Returns those that were not applied.
    async fn apply_own(
        &self,
        digest: Digest,
        is_recorded: bool,
        known: &mut KnownReporting,
    ) -> Result<Vec<Failed>, Error> {
        let former = known.own.take();
        let follows_another = former.is_none() && self.recorded.is_some() && !is_recorded;
        let Some(installable) = self.agent else { return Ok(Vec::new()) };
        let own = OwnObjects::before(former, digest, decide::own_ids(installable.agent), is_recorded);
        let (own, failed) = match decide::own_step(own, self.live) {
            OwnStep::Keep(own) => (own, Vec::new()),
            OwnStep::Apply(own) => match self.render_own(installable).await? {
                Ok(objects) => self.apply_content(own, (objects, follows_another), &mut known.readiness).await?,
                Err(failed) => (own.missing(), vec![failed]),
            },
        };
        known.own = Some(own);
        Ok(failed)
    }

    /// Applies the runtime's own objects with their content. The flag says whether an earlier process applied them with
    /// another one.
    async fn apply_content(
        &self,
        own: OwnObjects,
        (objects, follows_another): (SharedObjects, bool),
        readiness: &mut Readiness,
    ) -> Result<(OwnObjects, Vec<Failed>), Error> {
        let owner = landscape::key(&self.pass.kyma.metadata);
        let filling = self.filling(&owner);
        let mut applied = own.with_content(objects, follows_another);
        objects::check(self.cluster, filling, self.live, &mut applied).await?;
        if let Some(left) = self.left {
            objects::recognize(self.cluster, filling, left, &mut applied).await?;
        }
        let mut failed = self.adopt(&mut applied).await?;
        readiness.before_apply(&applied);
        if failed.is_empty() {
            let missing = applied.missing();
            failed = self.apply(&mut applied, &missing).await?;
        }
        Ok((own.after(&applied), failed))
    }

    /// Renders the runtime's own objects, in the order of apply. Fails if a Secret is gone, or a template fails.
    async fn render_own(&self, installable: Installable<'_>) -> Result<Result<SharedObjects, Failed>, Error> {
        let RuntimePass { context, .. } = self.pass;
        let Installable { agent, prerequisites, .. } = installable;
        let leaf = certificates::load(context.certificates, &prerequisites.issued).await?;
        let leaf = match decide::own_leaf(&prerequisites.issued, leaf) {
            Ok(leaf) => leaf,
            Err(message) => return Ok(Err(decide::own_failed(message))),
        };
        let (agent, address, bundle) =
            (agent.clone(), prerequisites.address.clone(), Arc::clone(&prerequisites.bundle));
        let render = move |templates: &Templates| decide::own_objects(templates, &agent, &address, &bundle, &leaf);
        let objects = context.templates.renderer.with(self.report.templates(), render).await;
        Ok(match objects {
            Ok(objects) => Ok(SharedObjects::new(&objects, Mark::Runtime, &|_| None)),
            Err(error) => Err(decide::own_failed(error.to_string())),
        })
    }

    /// Reports what the applies came to, and whether the agent runs.
    async fn end(
        &self,
        total: Digest,
        is_complete: bool,
        failed: &[Failed],
        known: &mut KnownReporting,
    ) -> Result<ReportingReport, Error> {
        let (attempt, again) = decide::retry(known.attempt, failed);
        known.attempt = attempt;
        let results =
            ApplyResults { failed, problems: &self.report.problems, complete: is_complete.then_some(&total), again };
        let installed = match decide::end(results, self.agent) {
            Ok(installed) => installed,
            Err(report) => {
                self.pass.context.contacts.rest(self.pass.key);
                return Ok(*report);
            }
        };
        let RuntimePass { context, key, .. } = self.pass;
        if let Some(bundle) = installed.trusts {
            context.certificates.trusts(key, bundle);
        }
        let found = self.find_readiness(known).await?;
        let (readiness, again) = known.readiness.after(&found);
        known.readiness = readiness;
        let now = Instant::now();
        let state = match known.rhythm.ready_since(&found, installed.program, now) {
            Some(ready) => {
                let (state, news) = context.contacts.report(key, ready, rhythm::former(self.conditions), now);
                self.tell(news, state);
                Some(state)
            }
            None => {
                context.contacts.rest(key);
                None
            }
        };
        let watch = rhythm::fact_of(&found, state);
        Ok(installed.report(found, watch, again))
    }

    /// Tells users that changes in the runtime are no longer reported, or are again.
    fn tell(&self, news: Option<News>, state: WatchState) {
        let runtime = self.pass.key;
        match news {
            None => {}
            Some(News::Broken) => {
                tracing::warn!(%runtime, reason = state.reason(), "changes in the runtime are not reported");
                self.pass.publish(Severity::Warning, reason::WATCH_BROKEN, "Watch", state.message());
            }
            Some(News::Restored) => {
                tracing::info!(%runtime, "changes in the runtime are reported again");
                self.pass.publish(Severity::Normal, reason::WATCH_RESTORED, "Watch", RESTORED);
            }
        }
    }

    /// Finds out whether the agent runs, with as few requests as possible.
    async fn find_readiness(&self, known: &KnownReporting) -> Result<AgentState, Error> {
        let is_recorded = conditions::is_true(self.conditions, Type::SkrWebhook.as_str());
        let mut observed = readiness::Observed::default();
        loop {
            match known.readiness.find(&observed, self.live.is_some(), is_recorded) {
                Ok(found) => return Ok(found),
                Err(ReadinessStep::ReadDeployment) => {
                    observed.deployment = Some(enact::read_deployment(self.cluster).await?);
                }
                Err(ReadinessStep::ListPods) => observed.pods = Some(enact::list_pods(self.cluster).await?),
            }
        }
    }
}
