//! The Manifests of a Kyma in KCP: Tidegate applies those that differ, and deletes those of unwanted modules.
//!
//! `state` is what is known of them, `decide` what each module needs and what follows from the answers, `enact` sends
//! one request an act. This file only joins them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tidegate_cluster::{Cause, Error};
use tidegate_core::{
    api::Manifest,
    landscape,
    plan::{Installation, RuntimePlan},
    render,
    template::Templates,
};

use super::{RuntimeContext, RuntimePass, manifest, outcome::Failed};
use crate::{
    controller::events::{Severity, reason},
    metrics::requeue::{Reason, Requeue},
};

mod decide;
mod enact;
mod state;

pub(crate) use decide::is_replaceable;
pub(super) use decide::{WITHOUT_KYMA, leaving, orphan_check};
pub(super) use enact::read;
pub(crate) use state::LiveManifests;
pub(super) use state::{Modules, module_of, selected_module_of};

use decide::{Act, ModuleStep, Orphan, Rendered, UNREFERENCED};

/// What the Manifests of a Kyma follow from.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// The modules of the runtime.
    pub(super) plan: &'a RuntimePlan,
    /// The present versions of modules whose removal waits.
    pub(super) leaving: &'a [Installation],
    /// The modules that the Kyma released before it dropped them.
    pub(super) left_unmanaged: &'a BTreeSet<String>,
}

/// Applies and deletes the Manifests of a Kyma.
///
/// # Errors
///
/// The error of a request, or that a rendered object is not a valid Manifest.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    &Wanted { plan, leaving, left_unmanaged }: &Wanted<'_>,
    manifests: &[Arc<Manifest>],
) -> Result<Modules, Failed> {
    let live = LiveManifests::new(manifests, plan);
    let unreadable = pass.unreadable.modules();
    let owner = pass.kyma.metadata.uid.as_deref();
    let mut rendered = Rendered::new();
    let is_left = |installation: &&Installation| decide::is_left(installation, &live, &|live| pass.stays(live));
    let wanted = decide::to_render(plan, &live, &unreadable, owner).into_iter().filter(|one| !is_left(one));
    for installation in wanted.chain(leaving) {
        rendered.insert(installation.module.clone(), render(pass, installation).await);
    }
    let decision = decide::decide((plan, left_unmanaged), &live, &rendered, &unreadable, pass.kyma);
    let mut modules = Modules::new(decision.problems);
    for ModuleStep { name, role, act, former, beside } in decision.steps {
        let mut present = enact(pass, act).await?;
        for former in &former {
            if let Some(act) = present.as_ref().map(|present| decide::succeed(present, former)) {
                present = enact(pass, act).await?;
            }
        }
        modules.beside(beside);
        modules.push(name, role, present);
    }
    for manifest in decision.unreferenced {
        modules.wait(unreferenced(pass, &manifest).await?);
    }
    Ok(modules)
}

/// Deletes a Manifest, unless it is being deleted. The pass over it removes its objects. Returns it as it is
/// afterwards.
///
/// # Errors
///
/// The error of the request.
pub(super) async fn delete(pass: &RuntimePass<'_>, live: &Arc<Manifest>) -> Result<Option<Arc<Manifest>>, Failed> {
    enact(pass, decide::deletion(live)).await
}

/// Deletes a Manifest that Tidegate has applied and that nothing references. Leaves one of others, and reports it once
/// it is old enough. Returns when to check again.
async fn unreferenced(pass: &RuntimePass<'_>, live: &Arc<Manifest>) -> Result<Option<Duration>, Failed> {
    let managed = enact::managed(pass.context.kcp, live).await?;
    match decide::orphan(live, managed.as_ref(), pass.now) {
        Orphan::Gone => Ok(None),
        Orphan::Ours => delete(pass, live).await.map(|_| None),
        Orphan::Young(age_left) => Ok(Some(age_left)),
        Orphan::Old => report_orphan(pass.context, pass.cause, live, UNREFERENCED).await.map(|()| None),
    }
}

/// Writes into the status of a Manifest that it is an orphan, and publishes one Event.
pub(super) async fn report_orphan(
    context: RuntimeContext<'_>,
    cause: &Cause,
    live: &Arc<Manifest>,
    why: &str,
) -> Result<(), Failed> {
    context.metrics.requeue(Requeue::Unexpected(Reason::ManifestOrphaned));
    let reported = manifest::block(context.kcp, cause, live, &decide::orphan_message(why)).await?;
    if let Some(note) = decide::orphan_note(live, &reported) {
        context.events.publish(&**live, Severity::Warning, reason::ORPHANED, "Reconcile", note);
    }
    Ok(())
}

/// Writes into the status of a Manifest that it is kept although it is being deleted, and publishes one Event.
pub(super) async fn report_kept(
    context: RuntimeContext<'_>,
    cause: &Cause,
    live: &Arc<Manifest>,
) -> Result<(), Failed> {
    let reported = manifest::block(context.kcp, cause, live, &decide::kept_message(live)).await?;
    if let Some(note) = decide::news(live, &reported) {
        context.events.publish(&**live, Severity::Warning, reason::ORPHANED, "Reconcile", note);
    }
    Ok(())
}

/// Reports on the ModuleReleaseMeta that is being deleted that the Manifest of its mandatory module cannot be deleted.
fn report_undeleted(pass: &RuntimePass<'_>, live: &Manifest, error: &Error) {
    if let Some(release) = decide::release_of_mandatory(pass.landscape, live) {
        let note = format!("cannot delete Manifest {}: {error}", landscape::key(&live.metadata));
        pass.context.events.publish(&*release, Severity::Warning, reason::MANDATORY_MANIFEST, "Delete", note);
    }
}

/// Renders the Manifest of a module.
async fn render(pass: &RuntimePass<'_>, installation: &Installation) -> decide::Rendering {
    let uid = pass.kyma.metadata.uid.clone().unwrap_or_default();
    let installation = installation.clone();
    let render = move |templates: &Templates| render::manifest(templates, &installation, &uid);
    let rendered = pass.context.templates.for_object(&pass.kyma.metadata, render).await;
    rendered.map_err(|error| error.to_string())
}

/// Enacts one act after the other, until nothing is left to do. Returns the Manifest as it is then.
async fn enact(pass: &RuntimePass<'_>, first: Act) -> Result<Option<Arc<Manifest>>, Failed> {
    let (kcp, cause) = (pass.context.kcp, pass.cause);
    let mut act = first;
    loop {
        act = match act {
            Act::Keep(present) => return Ok(present),
            Act::Apply { desired, live } => {
                let (metadata, is_created) = enact::apply(kcp, cause, &desired).await?;
                decide::requeues(is_created).into_iter().for_each(|requeue| pass.count(requeue));
                decide::after_apply(desired, live.as_ref(), &metadata, is_created)?
            }
            Act::Upgrade { desired, live } => {
                let (metadata, _) = enact::apply(kcp, cause, &desired).await?;
                decide::after_upgrade(&desired, &live, &metadata)?
            }
            Act::Read(key) => Act::Keep(enact::read(kcp, &key).await?),
            Act::Unmanage(live) => {
                enact::unmanage(kcp, cause, &live).await?;
                pass.count(Requeue::Intended(Reason::ManifestUnmanaged));
                decide::after_unmanage(&live)
            }
            Act::Release { desired, live } => {
                let left = manifest::release_finalizers(kcp, cause, &live).await?;
                decide::after_release(desired, live, &left)
            }
            Act::Succeed { desired, former } => {
                let (metadata, is_created) = enact::apply(kcp, cause, &desired).await?;
                decide::requeues(is_created).into_iter().for_each(|requeue| pass.count(requeue));
                decide::after_succession(desired, former, &metadata, is_created)?
            }
            Act::Inherit { successor, former } => {
                Act::Keep(Some(manifest::inherit(kcp, cause, &successor, &former).await?))
            }
            Act::TakeOver { successor, former } => {
                let successor = manifest::inherit(kcp, cause, &successor, &former).await?;
                decide::after_take_over(successor, former)
            }
            Act::Retire { successor, former } => {
                manifest::release_finalizers(kcp, cause, &former).await?;
                decide::after_retire(successor, former)
            }
            Act::End { successor, former } => {
                enact::delete(kcp, cause, &former).await?;
                Act::Keep(Some(successor))
            }
            Act::Delete(live) => {
                enact::delete(kcp, cause, &live).await.inspect_err(|error| report_undeleted(pass, &live, error))?;
                decide::after_delete(&live, pass.now)
            }
        };
    }
}
