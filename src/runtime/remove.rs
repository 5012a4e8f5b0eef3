//! The end of a runtime: what the Kyma brought goes in Lifecycle Manager's order, then its finalizer.
//!
//! Manifests are asked to go, then what reports changes and its certificate, catalog and the Kyma in the runtime with their CRDs; the Kyma in
//! KCP waits for its Manifests. A runtime that cannot be reached keeps its Kyma `Deleting` until its access Secret is
//! gone; then nobody can reach it any more, and the finalizers are dropped.

use std::sync::Arc;

use super::{
    KnownRuntime, RuntimePass, manifests,
    outcome::{self, FailedKind},
    watch,
};
use tidegate_cluster::{Cause, Cluster, Deleted, Error, Kind, Propagation};
use tidegate_core::{
    api::{
        KYMA_GROUP, Kyma, Manifest,
        names::{MANAGED_BY_SKR, SKR_KYMA, SKR_NAMESPACE, finalizer, label},
        shared::State,
    },
    name::Key,
    object::Gvk,
    status::{Facts, ModuleFact, Planned},
};
use tidegate_process::retry::{self, Class};

use crate::{
    controller::{Context, Failure, Pass, events::Severity, finalizers},
    gateway::certificates,
    queue::{Finish, Trigger},
    runtime::manifest,
};

/// What every runtime has and a removed one loses, in order; the Kyma itself stands between the catalog's CRDs and its own.
const CATALOG_CRDS: [(&str, &str); 2] =
    [("moduletemplates", "DeleteSkrModuleTemplateCrd"), ("modulereleasemetas", "DeleteSkrModuleReleaseMetaCrd")];
const KYMA_CRD: &str = "kymas";

/// Takes a Kyma that is being deleted a step nearer to its end.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    manifests: Vec<Arc<Manifest>>,
    memory: &mut KnownRuntime,
) -> Pass {
    let ours = pass.kyma.metadata.finalizers.iter().flatten().any(|name| name == finalizer::KYMA);
    if !ours && manifests.is_empty() {
        return Ok(Finish::Gone);
    }
    match outcome::access(pass.context, pass.key).await {
        Ok(cluster) => match through(pass, &cluster, &manifests, memory).await {
            Ok(pass) => Ok(pass),
            Err(failed) => unreachable(pass, &failed, &manifests, memory).await,
        },
        Err(failed) if failed.kind == FailedKind::NoAccess => {
            abandon(pass, &manifests, memory).await.map_err(|error| Failure::new(error.class(), error.reason(), error))
        }
        Err(failed) => unreachable(pass, &failed, &manifests, memory).await,
    }
}

/// With access: everything goes in order.
async fn through(
    pass: &RuntimePass<'_>,
    cluster: &Arc<Cluster>,
    manifests: &[Arc<Manifest>],
    memory: &mut KnownRuntime,
) -> Result<Finish, outcome::Failed> {
    let mut deleting = Vec::with_capacity(manifests.len());
    for manifest in manifests {
        deleting.push(manifests::delete(pass, manifest).await?);
    }
    if manifests.iter().any(|manifest| manifest.metadata.deletion_timestamp.is_none()) {
        step(pass, "DeleteManifests", "the modules are asked to go");
    }
    let waiting = facts(&deleting, "waiting for modules to be deleted".to_owned());
    if memory.counterpart.is_none() {
        memory.counterpart = super::counterpart::read(cluster).await?;
    }
    let begun = pass.kyma.status.as_ref().is_some_and(|status| status.state == State::Deleting);
    if !begun {
        pass.conclude(&waiting, cluster, memory).await.map_err(said)?;
    }
    let (passed, _) = pass.pass_over(cluster, &deleting, None, memory).await?;
    let left: Vec<Arc<Manifest>> = passed.into_iter().filter(|manifest| !manifest::is_released(manifest)).collect();
    if let Some(step) = remove_base(pass, cluster).await? {
        let again = memory.look_again(&step);
        pass.conclude(&facts(&left, step), cluster, memory).await.map_err(said)?;
        return Ok(again);
    }
    if !left.is_empty() {
        let messages: Vec<String> = left.iter().filter_map(|manifest| message(manifest)).collect();
        let step = messages.first().cloned().unwrap_or_else(|| "waiting for modules to be deleted".to_owned());
        let again = memory.look_again(&step);
        pass.conclude(&facts(&left, step), cluster, memory).await.map_err(said)?;
        return Ok(again);
    }
    drop_finalizer(pass).await?;
    step(pass, "DropKymaFinalizer", "everything that the Kyma brought is gone");
    pass.context.pool.forget(pass.key);
    pass.context.contacts.forget(pass.key);
    Ok(Finish::Gone)
}

/// Tells of one step of the end, under the reason that Lifecycle Manager has for it.
fn step(pass: &RuntimePass<'_>, reason: &'static str, note: &str) {
    pass.tell(Severity::Normal, reason, "Delete", note);
}

/// First and slowest look for the end of something: most of it takes a second, and what a user holds may take days.
const LOOK_MIN: std::time::Duration = std::time::Duration::from_millis(250);
const LOOK_MAX: std::time::Duration = std::time::Duration::from_secs(10);

impl KnownRuntime {
    /// When to look again for the end of `step`: soon, and later each time that it has not come.
    fn look_again(&mut self, step: &str) -> Finish {
        let looks = match &self.removing {
            Some((former, looks)) if former == step => looks.saturating_add(1),
            Some(_) | None => 1,
        };
        self.removing = Some((step.to_owned(), looks));
        Finish::After(retry::backoff(LOOK_MIN, LOOK_MAX, looks), Trigger::Retry)
    }
}

fn message(manifest: &Manifest) -> Option<String> {
    let operation = manifest.status.as_ref()?.last_operation.as_ref()?.operation.clone();
    let module = manifest.metadata.labels.as_ref()?.get(label::MODULE_NAME)?;
    Some(format!("module {module}: {operation}"))
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

/// Deletes what every runtime has. Returns what is waited for, or nothing once all of it is gone.
async fn remove_base(pass: &RuntimePass<'_>, cluster: &Cluster) -> Result<Option<String>, Error> {
    if watch::remove(pass, cluster).await? != 0 {
        step(pass, "DeleteSkrWebhookResources", "what reported changes is deleted in the runtime");
    }
    // Nothing in the runtime needs it any more.
    if !certificates::remove(pass.context, pass.cause, pass.key).await? {
        return Ok(Some("waiting for the certificate of the runtime to be deleted".to_owned()));
    }
    for (plural, reason) in CATALOG_CRDS {
        if !remove(pass, cluster, reason, &crd(), &Key::new("", &format!("{plural}.{KYMA_GROUP}"))).await? {
            return Ok(Some(format!("waiting for the {plural} in the runtime to be deleted")));
        }
    }
    let kyma = Gvk::new(KYMA_GROUP, tidegate_core::api::KYMA_VERSION, "Kyma");
    if !remove(pass, cluster, "DeleteSkrKyma", &kyma, &Key::new(SKR_NAMESPACE, SKR_KYMA)).await? {
        return Ok(Some("waiting for the Kyma in the runtime to be deleted".to_owned()));
    }
    if !remove(pass, cluster, "DeleteSkrKymaCrd", &crd(), &Key::new("", &format!("{KYMA_CRD}.{KYMA_GROUP}"))).await? {
        return Ok(Some("waiting for the kymas in the runtime to be deleted".to_owned()));
    }
    Ok(None)
}

fn crd() -> Gvk {
    Gvk::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
}

/// Deletes an object that bears our mark. Returns whether it is gone, or is not ours.
async fn remove(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    reason: &'static str,
    gvk: &Gvk,
    key: &Key,
) -> Result<bool, Error> {
    let Some(kind) = cluster.kind(gvk).await? else { return Ok(true) };
    let Some(metadata) = cluster.get_metadata(&kind, key).await? else { return Ok(true) };
    if metadata.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) {
        return Ok(true);
    }
    if metadata.deleting {
        return Ok(false);
    }
    let deleted = cluster.delete(pass.cause, &kind, &metadata, Propagation::Background).await?;
    step(pass, reason, &format!("{} is deleted in the runtime", metadata.id));
    Ok(deleted == Deleted::Gone)
}

/// The status of a Kyma that is being deleted.
fn facts(manifests: &[Arc<Manifest>], step: String) -> Facts {
    let module = |manifest: &Arc<Manifest>| {
        let name = manifest.metadata.labels.as_ref()?.get(label::MODULE_NAME)?.clone();
        Some(ModuleFact { name, planned: Planned::Removing, manifest: Some(Arc::clone(manifest)) })
    };
    Facts { modules: manifests.iter().filter_map(module).collect(), deleting: Some(step), ..Facts::default() }
}

/// The runtime cannot be reached: the Kyma stays, and says why and what would help.
async fn unreachable(
    pass: &RuntimePass<'_>,
    failed: &outcome::Failed,
    manifests: &[Arc<Manifest>],
    memory: &mut KnownRuntime,
) -> Pass {
    let hint = if failed.kind.is_access() {
        "; it goes on once the runtime can be reached, or once its access Secret is gone"
    } else {
        ""
    };
    let mut facts = facts(manifests, format!("{}{hint}", failed.message));
    facts.failure = Some(tidegate_core::status::Failure {
        reason: failed.reason,
        message: failed.message.clone(),
        access: failed.kind.is_access(),
    });
    pass.write_status(&facts, memory).await.map_err(|error| Failure::new(error.class(), error.reason(), error))?;
    Err(Failure::new(failed.class.max(Class::Waiting), failed.reason, failed.message.clone()))
}

/// Without access Secret: nobody can reach the runtime any more.
async fn abandon(
    pass: &RuntimePass<'_>,
    manifests: &[Arc<Manifest>],
    memory: &mut KnownRuntime,
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
        return Ok(memory.look_again("certificate"));
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
    memory: &mut KnownRuntime,
) -> Pass {
    let deleting: Vec<Arc<Manifest>> =
        manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_some()).cloned().collect();
    let failure = |error: Error| Failure::new(error.class(), error.reason(), error);
    if !certificates::remove(context, cause, key).await.map_err(failure)? {
        return Ok(memory.look_again("certificate"));
    }
    if deleting.is_empty() {
        context.pool.forget(key);
        context.contacts.forget(key);
        return Ok(Finish::Gone);
    }
    match outcome::access(context, key).await {
        Ok(cluster) => {
            let target = manifest::ApplyTarget { context, cluster: &cluster, cause, live: None, manifests: &deleting };
            for manifest in &deleting {
                let key = tidegate_core::landscape::key(&manifest.metadata);
                let mut known = memory.manifests.remove(&key).unwrap_or_default().of(manifest);
                let passed = manifest::reconcile(&target, manifest, &mut known).await;
                memory.manifests.insert(key, known);
                passed.map_err(failure)?;
            }
            Ok(memory.look_again("orphans"))
        }
        Err(failed) if failed.kind == FailedKind::NoAccess => {
            for manifest in &deleting {
                manifest::abandon(&context.kcp, cause, manifest).await.map_err(failure)?;
            }
            Ok(Finish::Gone)
        }
        Err(failed) => Err(Failure::new(failed.class, failed.reason, failed.message)),
    }
}
