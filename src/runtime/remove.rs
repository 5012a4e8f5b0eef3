//! The end of a runtime: what the Kyma brought goes in Lifecycle Manager's order, then its finalizer.
//!
//! Manifests are asked to go, then what reports changes and its certificate, catalog and the Kyma in the runtime with their CRDs; the Kyma in
//! KCP waits for its Manifests. A runtime that cannot be reached keeps its Kyma `Deleting` until its access Secret is
//! gone; then nobody can reach it any more, and the finalizers are dropped.

use std::sync::Arc;

use super::{
    RuntimePass, counterpart, manifests,
    outcome::{self, FailedKind},
    reporting,
    state::KnownRuntime,
};
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, Propagation};
use tidegate_core::{
    api::{Kyma, Manifest, names::finalizer},
    name::Key,
};

use crate::{
    controller::{Context, Failure, Pass, events::Severity, finalizers},
    gateway::certificates,
    queue::{Finish, Trigger},
    runtime::manifest,
};

mod decide;
mod state;

pub(super) use state::RemovalWait;

use decide::{BaseObject, Fate, NoAccess, Progress, Start};

/// Takes a Kyma that is being deleted a step nearer to its end.
pub(super) async fn reconcile(pass: &RuntimePass<'_>, manifests: Vec<Arc<Manifest>>, known: &mut KnownRuntime) -> Pass {
    match decide::start(pass.kyma, &manifests) {
        Start::Gone => Ok(Finish::Gone),
        Start::Remove => remove(pass, &manifests, known).await,
    }
}

/// Removes what the Kyma brought, as far as the runtime lets us.
async fn remove(pass: &RuntimePass<'_>, manifests: &[Arc<Manifest>], known: &mut KnownRuntime) -> Pass {
    match outcome::access(pass.context, pass.key).await {
        Ok(cluster) => match through(pass, &cluster, manifests, known).await {
            Ok(finish) => Ok(finish),
            Err(failed) => unreachable(pass, &failed, manifests, known).await,
        },
        Err(failed) => match decide::without_access(&failed) {
            NoAccess::Abandon => abandon(pass, manifests, known).await.map_err(failure),
            NoAccess::Wait => unreachable(pass, &failed, manifests, known).await,
        },
    }
}

/// With access: everything goes in order.
async fn through(
    pass: &RuntimePass<'_>,
    cluster: &Arc<Cluster>,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Result<Finish, outcome::Failed> {
    let mut deleting = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        deleting.push(manifests::delete(pass, manifest).await?);
    }
    if decide::asks_modules_to_go(manifests) {
        tell(pass, "DeleteManifests", "the modules are asked to go");
    }
    counterpart::look(cluster, &mut known.counterpart, false).await?;
    if let Some(facts) = decide::first_facts(pass.kyma, &deleting) {
        pass.conclude(&facts, cluster, known).await.map_err(said)?;
    }
    let (passed, _) = pass.pass_over(cluster, &deleting, None, known).await?;
    let left = decide::left(passed);
    match decide::progress(remove_base(pass, cluster).await?, &left) {
        Progress::Wait(step) => {
            let again = look_again(known, &step);
            pass.conclude(&decide::facts(&left, step), cluster, known).await.map_err(said)?;
            Ok(again)
        }
        Progress::Gone => {
            drop_finalizer(pass).await?;
            tell(pass, "DropKymaFinalizer", "everything that the Kyma brought is gone");
            pass.context.pool.forget(pass.key);
            pass.context.contacts.forget(pass.key);
            Ok(Finish::Gone)
        }
    }
}

/// Tells of one step of the end, under the reason that Lifecycle Manager has for it.
fn tell(pass: &RuntimePass<'_>, reason: &'static str, note: &str) {
    pass.tell(Severity::Normal, reason, "Delete", note);
}

/// Notes that `step` has not come to its end.
fn look_again(known: &mut KnownRuntime, step: &str) -> Finish {
    let (removal, delay) = std::mem::take(&mut known.removal).after(step);
    known.removal = removal;
    Finish::After(delay, Trigger::Retry)
}

#[expect(clippy::needless_pass_by_value, reason = "the form that `map_err` takes")]
fn said(failure: Failure) -> outcome::Failed {
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

/// Deletes what every runtime has. Returns what is waited for, or nothing once all of it is gone.
async fn remove_base(pass: &RuntimePass<'_>, cluster: &Cluster) -> Result<Option<String>, Error> {
    if reporting::remove(pass, cluster).await? != 0 {
        tell(pass, "DeleteSkrWebhookResources", "what reported changes is deleted in the runtime");
    }
    // Nothing in the runtime needs it any more.
    if !certificates::remove(pass.context, pass.cause, pass.key).await? {
        return Ok(Some(decide::WAITING_FOR_CERTIFICATE.to_owned()));
    }
    for object in decide::base_objects() {
        if !remove_object(pass, cluster, &object).await? {
            return Ok(Some(object.waiting));
        }
    }
    Ok(None)
}

/// Deletes an object that bears our mark. Returns whether it is gone, or is not ours.
async fn remove_object(pass: &RuntimePass<'_>, cluster: &Cluster, object: &BaseObject) -> Result<bool, Error> {
    let Some(kind) = cluster.kind(&object.gvk).await? else { return Ok(true) };
    let live = cluster.get_metadata(&kind, &object.key).await?;
    match decide::fate(live.as_ref()) {
        Fate::Gone => Ok(true),
        Fate::Wait => Ok(false),
        Fate::Delete(metadata) => {
            let deleted = cluster.delete(pass.cause, &kind, metadata, Propagation::Background).await?;
            tell(pass, object.reason, &format!("{} is deleted in the runtime", metadata.id));
            Ok(deleted == Deleted::Gone)
        }
    }
}

/// The runtime cannot be reached: the Kyma stays, and says why and what would help.
async fn unreachable(
    pass: &RuntimePass<'_>,
    failed: &outcome::Failed,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Pass {
    pass.write_status(&decide::failed_facts(failed, manifests), known).await.map_err(failure)?;
    Err(Failure::new(decide::failed_class(failed), failed.reason, failed.message.clone()))
}

/// Without access Secret: nobody can reach the runtime any more.
async fn abandon(
    pass: &RuntimePass<'_>,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Result<Finish, Error> {
    for manifest in manifests {
        let kind = Kind::namespaced::<Manifest>();
        let id = kind.id(&tidegate_core::landscape::key(&manifest.metadata));
        let uid = manifest.metadata.uid.clone().unwrap_or_default();
        pass.context.kcp.delete_if(pass.cause, &kind, &id, &uid, None, Propagation::Background).await?;
        let mut latest = Manifest::clone(manifest);
        latest.metadata.resource_version = None;
        manifest::abandon(&pass.context.kcp, pass.cause, &latest).await?;
    }
    if !certificates::remove(pass.context, pass.cause, pass.key).await? {
        return Ok(look_again(known, "certificate"));
    }
    drop_finalizer(pass).await?;
    pass.context.contacts.forget(pass.key);
    Ok(Finish::Gone)
}

async fn drop_finalizer(pass: &RuntimePass<'_>) -> Result<(), Error> {
    let ours = [finalizer::KYMA, finalizer::KYMA_PURGE];
    let kind = Kind::namespaced::<Kyma>();
    finalizers::release(&pass.context.kcp, pass.cause, &kind, &pass.kyma.metadata, &ours).await.map(drop)
}

/// Manifests whose Kyma is gone: those that are being deleted are brought to their end.
pub(super) async fn orphans(
    context: &Context,
    key: &Key,
    cause: &Cause,
    manifests: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Pass {
    let deleting = decide::deleting(manifests);
    if !certificates::remove(context, cause, key).await.map_err(failure)? {
        return Ok(look_again(known, "certificate"));
    }
    if deleting.is_empty() {
        context.pool.forget(key);
        context.contacts.forget(key);
        return Ok(Finish::Gone);
    }
    match outcome::access(context, key).await {
        Ok(cluster) => {
            remove_orphans(context, &cluster, cause, &deleting, known).await.map_err(failure)?;
            Ok(look_again(known, "orphans"))
        }
        Err(failed) => match decide::without_access(&failed) {
            NoAccess::Abandon => {
                for manifest in &deleting {
                    manifest::abandon(&context.kcp, cause, manifest).await.map_err(failure)?;
                }
                Ok(Finish::Gone)
            }
            NoAccess::Wait => Err(Failure::new(failed.class, failed.reason, failed.message)),
        },
    }
}

/// Passes over each of them, one after the other.
async fn remove_orphans(
    context: &Context,
    cluster: &Cluster,
    cause: &Cause,
    deleting: &[Arc<Manifest>],
    known: &mut KnownRuntime,
) -> Result<(), Error> {
    let target = manifest::ApplyTarget { context, cluster, cause, live: None, manifests: deleting };
    for manifest in deleting {
        let key = tidegate_core::landscape::key(&manifest.metadata);
        let mut of_manifest = known.manifests.remove(&key).unwrap_or_default().shown(manifest);
        let passed = manifest::reconcile(&target, manifest, &mut of_manifest).await;
        known.manifests.insert(key, of_manifest);
        passed?;
    }
    Ok(())
}
