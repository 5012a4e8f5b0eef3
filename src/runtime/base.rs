//! The base of a runtime: the system namespace, the CRDs, the module catalog and the image pull Secret, which every
//! runtime has.
//!
//! Tidegate renders and serialises the base once for all runtimes of a class. The platform reserves the names of these
//! objects. So Tidegate applies them without checking their owner, as Lifecycle Manager does.
//!
//! `rendered` makes the objects, `state` is what is known of them in a runtime, `decide` what to apply and to prune,
//! and `enact` sends the requests. This file only joins them.

use std::sync::Arc;

use tidegate_cluster::{Cluster, Error};
use tidegate_core::{
    adopt, conditions,
    landscape::{self, Landscape},
    plan::RuntimePlan,
};
use tokio::time::Instant;

use super::{
    RuntimePass,
    objects::{self, Applied, Filling, LiveObjects},
};
use crate::stores::Table;

mod decide;
mod enact;
mod rendered;
mod state;

pub(super) use decide::{BaseReport, kinds};
pub(crate) use rendered::Bases;
pub(super) use state::KnownBase;

/// Applies the objects that every runtime has, and prunes the catalog. `live` are the objects that exist, if this pass
/// checks them; `left` are the same if the record of what was applied is lost.
///
/// # Errors
///
/// An error that concerns the runtime as a whole. Failures of single objects are in the report.
pub(super) async fn reconcile(
    pass: &RuntimePass<'_>,
    cluster: &Cluster,
    landscape: &Arc<Landscape>,
    plan: &RuntimePlan,
    (live, left): (Option<&LiveObjects>, Option<&LiveObjects>),
    known: &mut KnownBase,
) -> Result<BaseReport, Error> {
    let base = pass.context.shared.bases.of_class(pass, landscape, &plan.class).await;
    let status = pass.kyma.status.as_ref();
    let recorded = status.and_then(|status| conditions::recorded(&status.conditions, conditions::APPLIED));
    let owner = landscape::key(&pass.kyma.metadata);
    let filling = Filling { owner: &owner, kcp: pass.context.kcp };

    known.follow(&base);
    let mut applied = Applied::before(&base.objects, known.applied.take(), recorded, &base.digest);
    let mut repairs = std::mem::take(&mut known.repairs);
    let pause = pass.context.settings.drift_repair_pause_max;
    let undone = objects::check_repairs(cluster, filling, live, &mut applied, (&mut repairs, pause)).await?;
    undone.iter().for_each(|undone| pass.context.report_undone(&owner, undone));
    if let Some(left) = left {
        objects::recognize(cluster, filling, left, &mut applied).await?;
    }
    let mut untaken = Vec::new();
    let is_adopted = adopt::is_adopted(&pass.kyma.metadata);
    if is_adopted {
        untaken = objects::adopt(cluster, pass.cause, filling, &mut applied).await?;
    }
    let catalog = [Table::Templates, Table::Releases];
    let is_known = pass.context.stores.unknown(&catalog, Some(pass.key.namespace())).is_none();
    let checks = live.is_some() || known.is_unpruned;
    let work = decide::work(&base, &applied, recorded, checks, is_known);
    let (sent, resting) = decide::without_resting(&applied, &work, &repairs, Instant::now());
    let sent = decide::without(sent, &applied, &untaken);
    let found = match adopt::may_be_held(pass.kyma) {
        true => enact::find(cluster, &applied, &sent).await?,
        false => LiveObjects::new(),
    };
    let mut failed = objects::apply(cluster, pass.cause, filling, &mut applied, &sent, &found).await?;
    failed.extend(resting);
    failed.extend(untaken);
    let mut is_held = false;
    for gvk in decide::kinds_to_prune(&work, &failed) {
        let Some((kind, copies)) = enact::list_copies(cluster, &gvk).await? else { continue };
        let copies = decide::to_prune(&base.objects, &copies, is_adopted);
        // A definition that is missing in the control plane may be so together with its kind.
        let stores = pass.context.stores;
        if !copies.is_empty()
            && (stores.definitions().may_lack_some()
                || stores.hold(pass.context.kcp, pass.key.namespace()).await.is_some())
        {
            is_held = true;
            break;
        }
        for copy in copies {
            enact::delete(cluster, pass.cause, &kind, copy).await?;
        }
    }
    let is_unpruned = decide::is_unpruned(known, &work, &failed, is_held);
    let (next, mut report) = decide::ending(known, &base, applied, &failed, is_held);
    report.again = report.again.into_iter().chain(repairs.again(Instant::now())).min();
    *known = KnownBase { is_unpruned, repairs, ..next };
    Ok(report)
}
