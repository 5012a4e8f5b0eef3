//! The workloads of a module: their health, and what the module waits for.
//!
//! `decide` is what to read of them, and what follows from the answers. This file only joins it with the requests.

use tidegate_cluster::Error;
use tidegate_core::{api::Manifest, health, name::Key, object::Gvk, status::WaitFact};
use tidegate_process::ambient;

use super::{ApplyTarget, enact};

pub(super) mod decide;

use decide::{WaitDetails, WorkloadsHealth};

/// Checks workloads, one after the other. Fails if a request fails.
pub(super) async fn check(target: &ApplyTarget<'_>, workloads: Vec<(Gvk, Key)>) -> Result<WorkloadsHealth, Error> {
    let mut checked = Vec::with_capacity(workloads.len());
    for (gvk, key) in workloads {
        let found = enact::read_workload(target.cluster, &gvk, &key).await?;
        let pods = match found.pods_to_list() {
            Some(selector) => enact::list_pods(target.cluster, key.namespace(), &selector).await?,
            None => Vec::new(),
        };
        checked.push(decide::check(&gvk, &key, &found, &pods));
    }
    Ok(WorkloadsHealth::of(checked))
}

/// What a module waits for. Asks for the pods of one workload only once the module has waited for a while. Fails if
/// that request fails.
pub(super) async fn wait_fact(
    target: &ApplyTarget<'_>,
    manifest: &Manifest,
    health: &WorkloadsHealth,
) -> Result<WaitFact, Error> {
    match decide::wait_details(manifest, health, ambient::now()) {
        WaitDetails::Known(fact) => Ok(fact),
        WaitDetails::OfPods { namespace, selector } => {
            let pods = enact::list_pods(target.cluster, namespace, selector).await?;
            Ok(decide::wait_fact(health, health::lack_of_pods(&pods)))
        }
    }
}
