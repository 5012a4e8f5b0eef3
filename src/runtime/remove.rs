//! The removal of a runtime: Tidegate deletes what the Kyma installed, then drops the finalizer of the Kyma.
//!
//! The order is Lifecycle Manager's: the Manifests, what reports changes, the certificate, and the catalog and the Kyma
//! in the runtime with their CRDs. The Kyma in KCP waits for its Manifests. While the runtime is unreachable, its Kyma
//! stays `Deleting`. Once its access Secret is gone, the runtime is unreachable for good, and the finalizers are
//! dropped.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use super::{
    PassedManifests, RuntimeContext, RuntimePass, counterpart, manifests,
    outcome::{self, FailedKind},
    reporting,
    state::KnownRuntime,
};
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, Propagation};
use tidegate_core::{
    api::{Kyma, Manifest, names::finalizer},
    landscape,
    name::Key,
    plan::certificate,
};
use tidegate_process::ambient;
use tokio::time::Instant;

use crate::{
    controller::{
        Failure, Pass,
        events::{Severity, reason},
        finalizers,
    },
    gateway::certificates,
    metrics::requeue::{Reason, Requeue},
    queue::{Finish, Trigger},
    runtime::manifest,
};

mod decide;
mod state;

pub(super) use state::RemovalWait;

use decide::{BaseObject, Fate, NoAccess, Progress, Start, Step};

/// Removes a runtime whose Kyma is being deleted.
///
/// # Errors
///
/// The error of a request, or why the runtime is unreachable.
pub(super) async fn reconcile(pass: &RuntimePass<'_>, manifests: Vec<Arc<Manifest>>, known: &mut KnownRuntime) -> Pass {
    if let Some(step) = pass.unreadable.keeps_from_removal() {
        pass.write_status(&decide::facts(&manifests, step.clone()), known).await.map_err(failure)?;
        return Ok(wait(pass, known, &step));
    }
    match decide::start(pass.kyma, &manifests) {
        Start::Gone => Ok(Finish::Gone),
        Start::Remove => remove(pass, &manifests, known).await,
    }
}

/// Removes what the Kyma installed, if the runtime is reachable.
async fn remove(pass: &RuntimePass<'_>, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
    match outcome::access(pass.context, pass.key).await {
        Ok(cluster) => match remove_all(pass, &cluster, manifests, known).await {
            Ok(finish) => Ok(finish),
            Err(failed) => unreachable(pass, &failed, manifests, known).await,
        },
        Err(failed) => match decide::without_access(&failed) {
            NoAccess::Abandon => abandon(pass, manifests, known).await.map_err(failure),
            NoAccess::Wait => unreachable(pass, &failed, manifests, known).await,
        },
    }
}

/// Removes everything in order.
async fn remove_all(
    pass: &RuntimePass<'_>,
    cluster: &Arc<Cluster>,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Result<Finish, outcome::Failed> {
    let mut deleting = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        deleting.extend(manifests::delete(pass, manifest).await?);
    }
    if decide::deletes_modules(manifests) {
        took(pass, Step::Manifests);
    }
    counterpart::refresh(cluster, &mut known.counterpart, false).await?;
    if let Some(facts) = decide::first_facts(pass.kyma, &deleting) {
        pass.conclude(&facts, cluster, known).await.map_err(failed)?;
        took(pass, Step::KymaState);
        if known.counterpart.live().is_some() {
            took(pass, Step::RuntimeKymaState);
        }
    }
    let PassedManifests { passed, .. } = pass.pass_over(cluster, &deleting, None, known).await?;
    let left = decide::left(passed);
    match decide::progress(remove_base(pass, cluster).await?, &left) {
        Progress::Wait(step) => {
            let again = wait(pass, known, &step);
            pass.conclude(&decide::facts(&left, step), cluster, known).await.map_err(failed)?;
            Ok(again)
        }
        Progress::WaitForManifests(step) => {
            took(pass, Step::LastManifests);
            let again = wait(pass, known, &step);
            pass.conclude(&decide::facts(&left, step), cluster, known).await.map_err(failed)?;
            Ok(again)
        }
        Progress::Gone => {
            drop_finalizer(pass).await?;
            took(pass, Step::Finalizer);
            pass.context.pool.forget(pass.key);
            pass.context.contacts.forget(pass.key);
            Ok(Finish::Gone)
        }
    }
}

/// Publishes an Event about a step, and counts it. A step that takes several passes has one Event.
fn took(pass: &RuntimePass<'_>, step: Step) {
    pass.count(step.requeue());
    pass.publish(Severity::Normal, step.reason(), "Delete", step.note());
}

/// Notes that the removal of a Kyma waits for `step`, and reports it once it has done so for long.
fn wait(pass: &RuntimePass<'_>, known: &mut KnownRuntime, step: &str) -> Finish {
    let finish = wait_for(known, step);
    if let Some(step) = known.removal.stuck(decide::STUCK_AFTER, Instant::now()) {
        pass.publish(Severity::Warning, reason::DELETION_STUCK, "Delete", decide::stuck_note(step));
    }
    finish
}

/// Notes that a removal waits for `step`.
fn wait_for(known: &mut KnownRuntime, step: &str) -> Finish {
    let (removal, delay) = std::mem::take(&mut known.removal).after(step, Instant::now());
    known.removal = removal;
    Finish::After(delay, Trigger::Retry)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
fn failed(failure: Failure) -> outcome::Failed {
    outcome::Failed {
        reason: failure.reason,
        message: failure.error.to_string(),
        class: failure.class,
        kind: FailedKind::Wrong,
    }
}

fn failure(error: Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}

/// Deletes what every runtime has. Returns what the removal waits for; none once all of it is gone.
async fn remove_base(pass: &RuntimePass<'_>, cluster: &Cluster) -> Result<Option<String>, Error> {
    if reporting::remove(pass, cluster).await? != 0 {
        took(pass, Step::Webhook);
    }
    if certificates::exists(pass.context.certificates, pass.key) {
        took(pass, Step::Certificate);
    }
    // Nothing in the runtime needs the certificate now.
    if !certificates::remove(pass.context.certificates, pass.cause, pass.key).await? {
        return Ok(Some(decide::WAITING_FOR_CERTIFICATE.to_owned()));
    }
    for object in decide::base_objects() {
        if !remove_object(pass, cluster, &object).await? {
            return Ok(Some(object.waiting));
        }
    }
    Ok(None)
}

/// Deletes an object with our ownership label. Returns whether it is gone or has another owner.
async fn remove_object(pass: &RuntimePass<'_>, cluster: &Cluster, object: &BaseObject) -> Result<bool, Error> {
    let Some(kind) = cluster.kind(&object.gvk).await? else { return Ok(true) };
    let live = cluster.get_metadata(&kind, &object.key).await?;
    match decide::fate(live.as_ref()) {
        Fate::Gone => Ok(true),
        Fate::Wait => Ok(false),
        Fate::Delete(metadata) => {
            let deleted = cluster.delete(pass.cause, &kind, metadata, Propagation::Background).await?;
            took(pass, object.step);
            Ok(deleted == Deleted::Gone)
        }
    }
}

/// The runtime is unreachable: the Kyma stays, and its status says why and what helps.
async fn unreachable(
    pass: &RuntimePass<'_>,
    failed: &outcome::Failed,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Pass {
    // The failure has its own delays.
    wait(pass, known, &failed.message);
    pass.write_status(&decide::failed_facts(failed, manifests), known).await.map_err(failure)?;
    Err(Failure::new(decide::failed_class(failed), failed.reason, failed.message.clone()))
}

/// Without an access Secret, the runtime is unreachable for good: only the finalizers in KCP are dropped.
async fn abandon(
    pass: &RuntimePass<'_>,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Result<Finish, Error> {
    for manifest in manifests {
        manifest::end(pass.context.kcp, pass.cause, manifest).await?;
    }
    if !certificates::remove(pass.context.certificates, pass.cause, pass.key).await? {
        return Ok(wait(pass, known, decide::WAITING_FOR_CERTIFICATE));
    }
    drop_finalizer(pass).await?;
    pass.count(Requeue::Intended(Reason::DeletionWithoutAccess));
    let note = "the runtime has no access Secret any more, so nothing in it is deleted";
    pass.publish(Severity::Normal, Step::Finalizer.reason(), "Delete", note);
    pass.context.contacts.forget(pass.key);
    Ok(Finish::Gone)
}

async fn drop_finalizer(pass: &RuntimePass<'_>) -> Result<(), Error> {
    let ours = [finalizer::KYMA, finalizer::KYMA_PURGE];
    let kind = Kind::namespaced::<Kyma>();
    finalizers::release(pass.context.kcp, pass.cause, &kind, &pass.kyma.metadata, &ours).await.map(drop)
}

/// Removes Manifests that are being deleted and whose Kyma is gone.
///
/// # Errors
///
/// The error of a request, or why the runtime is unreachable.
pub(super) async fn orphans(
    context: RuntimeContext<'_>,
    key: &Key,
    cause: &Cause,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Pass {
    let deleting = decide::deleting(manifests);
    let name = certificate::key_of(key, context.certificates.rules());
    let certificate = context.stores.certificate_secret(name.name()).and_then(|secret| secret.created);
    if decide::outlived_definition(context.stores.definitions().kymas_since(), certificate, &deleting) {
        for manifest in &deleting {
            let reported = manifests::report_kept(context, cause, manifest).await;
            reported.map_err(|failed| Failure::new(failed.class, failed.reason, failed.message))?;
        }
        return Ok(Finish::Deferred);
    }
    if !certificates::remove(context.certificates, cause, key).await.map_err(failure)? {
        return Ok(wait_for(known, "certificate"));
    }
    let again = report_orphans(context, cause, manifests).await?;
    if deleting.is_empty() {
        context.pool.forget(key);
        context.contacts.forget(key);
        return Ok(again.map_or(Finish::Gone, |again| Finish::After(again, Trigger::Retry)));
    }
    match outcome::access(context, key).await {
        Ok(cluster) => {
            remove_orphans(context, &cluster, cause, &deleting, known).await.map_err(failure)?;
            Ok(wait_for(known, "orphans"))
        }
        Err(failed) => match decide::without_access(&failed) {
            NoAccess::Abandon => {
                for manifest in &deleting {
                    manifest::abandon(context.kcp, cause, manifest).await.map_err(failure)?;
                }
                Ok(Finish::Gone)
            }
            NoAccess::Wait => Err(Failure::new(failed.class, failed.reason, failed.message)),
        },
    }
}

/// Reports Manifests that outlive their Kyma, unless they are being deleted. Returns when to check again.
async fn report_orphans(
    context: RuntimeContext<'_>,
    cause: &Cause,
    manifests: &[Arc<Manifest>],
) -> Result<Option<Duration>, Failure> {
    let mut again = None;
    for manifest in manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_none()) {
        match manifests::orphan_check(manifest, ambient::now()) {
            Some(left) => again = again.into_iter().chain([left]).min(),
            None => {
                let reported = manifests::report_orphan(context, cause, manifest, manifests::WITHOUT_KYMA).await;
                reported.map_err(|failed| Failure::new(failed.class, failed.reason, failed.message))?;
            }
        }
    }
    Ok(again)
}

/// Reconciles each of them, one after the other.
async fn remove_orphans(
    context: RuntimeContext<'_>,
    cluster: &Cluster,
    cause: &Cause,
    deleting: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Result<(), Error> {
    let installed = &BTreeSet::new();
    let target = manifest::ApplyTarget { context, cluster, cause, live: None, manifests: deleting, installed };
    for manifest in deleting {
        let key = landscape::key(&manifest.metadata);
        let mut of_manifest = known.manifests.remove(&key).unwrap_or_default().shown(manifest);
        let passed = manifest::reconcile(&target, manifest, &mut of_manifest).await;
        known.manifests.insert(key, of_manifest);
        passed?;
    }
    Ok(())
}
