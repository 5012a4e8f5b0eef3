//! The Manifests of a Kyma in KCP: Tidegate applies those that differ, and deletes those of unwanted modules.
//!
//! `state` is what is known of them, `decide` what each module needs and what follows from the answers, `enact` sends
//! one request an act. This file only joins them.

use std::sync::Arc;

use tidegate_core::{
    api::Manifest,
    plan::{Installation, RuntimePlan},
    render,
    template::Templates,
};

use super::{RuntimePass, manifest, outcome::Failed};

mod decide;
mod enact;
mod state;

pub(super) use enact::read;
pub(super) use state::{Modules, module_of};

use decide::{Act, ModuleStep, Rendered};
use state::LiveManifests;

/// Applies and deletes the Manifests of a Kyma.
///
/// # Errors
///
/// The error of a request, or that a rendered object is not a valid Manifest.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    plan: &RuntimePlan,
    manifests: &[Arc<Manifest>],
) -> Result<Modules, Failed> {
    let live = LiveManifests::new(manifests);
    let unreadable = pass.unreadable.modules();
    let owner = pass.kyma.metadata.uid.as_deref();
    let mut rendered = Rendered::new();
    for installation in decide::to_render(plan, &live, &unreadable, owner) {
        rendered.insert(installation.module.clone(), render(pass, installation).await);
    }
    let decision = decide::decide(plan, &live, &rendered, &unreadable, owner);
    let mut modules = Modules::new(decision.problems);
    for ModuleStep { name, planned, act } in decision.steps {
        modules.push(name, planned, enact(pass, act).await?);
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
                decide::after_apply(desired, live.as_ref(), &metadata, is_created)?
            }
            Act::Read(key) => Act::Keep(enact::read(kcp, &key).await?),
            Act::Unmanage(live) => {
                enact::unmanage(kcp, cause, &live).await?;
                decide::after_unmanage(&live)
            }
            Act::Release { desired, live } => {
                let left = manifest::abandon(kcp, cause, &live).await?;
                decide::after_release(desired, &left)
            }
            Act::Delete(live) => {
                enact::delete(kcp, cause, &live).await?;
                decide::after_delete(&live, pass.now)
            }
        };
    }
}
