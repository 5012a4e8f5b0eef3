//! One pass over the ModuleReleaseMeta of a mandatory module: its finalizer.
//!
//! Every Kyma has the module, so the deletion of the ModuleReleaseMeta removes it from every runtime. The passes over
//! the runtimes do that, and the finalizer keeps the ModuleReleaseMeta until no Manifest of the module is left. So a
//! runtime that is unreachable for a while still learns of the deletion.
//!
//! A pass removes the finalizer only after it has read anew that the ModuleReleaseMeta is being deleted, that no
//! Manifest is left, and that none of Tidegate's CustomResourceDefinitions is going away with it.

mod decide;
mod enact;

use tidegate_cluster::{Cause, Cluster, Error, Kind};
use tidegate_core::{
    api::{ModuleReleaseMeta, names::finalizer},
    name::Key,
};
use tidegate_process::ambient;

use self::decide::Step;
use crate::{
    controller::{
        self, Failure, Pass,
        events::{Recorder, Severity, reason},
        finalizers,
    },
    queue::{Finish, Trigger, Triggers},
    stores::{Stores, Table},
};

/// The parts of the daemon that passes over ModuleReleaseMetas use.
#[derive(Clone, Copy)]
pub struct ReleaseContext<'a> {
    /// The control plane. It refuses writes while this process does not lead.
    pub kcp: &'a Cluster,
    /// The objects in the control plane.
    pub stores: &'a Stores,
    /// Publishes Events.
    pub events: &'a Recorder,
}

/// Adds or removes the finalizer of a ModuleReleaseMeta.
///
/// # Errors
///
/// Errors of the control plane.
pub(crate) async fn reconcile(context: ReleaseContext<'_>, key: &Key, triggers: Triggers) -> Pass {
    let landscape = context.stores.landscape();
    if context.stores.unreadable_object(Table::Releases, key).is_some() {
        return Ok(Finish::Deferred);
    }
    let Some(release) = landscape.releases.get(key) else { return Ok(Finish::Gone) };
    let manifests = context.stores.manifests_of_mandatory(key);
    let cause = controller::cause(triggers);
    match decide::next(release, &manifests, ambient::now()) {
        Step::Nothing => Ok(Finish::Done),
        Step::Add(patch) => match enact::add(context.kcp, &cause, key, &patch).await {
            Ok(()) => Ok(Finish::Done),
            Err(error) => {
                let note = format!("cannot add the finalizer {}: {error}", finalizer::MANDATORY_MODULE);
                publish(context, release, Severity::Warning, reason::MANDATORY_FINALIZER, note);
                Err(failure(error))
            }
        },
        Step::Wait(message) => {
            publish(context, release, Severity::Normal, reason::MANDATORY_REMOVAL, message);
            Ok(Finish::Deferred)
        }
        Step::Later(delay) => Ok(Finish::After(delay, Trigger::Retry)),
        Step::Release => drop_finalizer(context, &cause, key, release).await,
    }
}

/// Removes the finalizer, if what the stores show is confirmed.
async fn drop_finalizer(context: ReleaseContext<'_>, cause: &Cause, key: &Key, release: &ModuleReleaseMeta) -> Pass {
    // The end of the hold wakes all subjects.
    if context.stores.hold(context.kcp, key.namespace()).await.is_some() {
        return Ok(Finish::Deferred);
    }
    let live = enact::read(context.kcp, key).await.map_err(failure)?;
    let left = enact::count_manifests(context.kcp, key).await.map_err(failure)?;
    if !decide::is_confirmed(release, live.as_ref(), left) {
        return Ok(decide::OUTDATED);
    }
    let kind = Kind::namespaced::<ModuleReleaseMeta>();
    let ours = [finalizer::MANDATORY_MODULE];
    finalizers::release(context.kcp, cause, &kind, &release.metadata, &ours).await.map_err(failure)?;
    Ok(Finish::Done)
}

fn publish(
    context: ReleaseContext<'_>,
    release: &ModuleReleaseMeta,
    severity: Severity,
    reason: &'static str,
    note: String,
) {
    context.events.publish(release, severity, reason, "Reconcile", note);
}

fn failure(error: Error) -> Failure {
    Failure::new(error.class(), error.reason(), error)
}
