//! Prunes objects: reads each first, and deletes it only in exactly the state that was read.

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};

use super::{Cause, Cluster, Deleted, Error, Metadata, Propagation};
use tidegate_core::{
    api::names::annotation,
    changes::{Live, Prune, Verdict},
    name::Key,
    object::{ObjectId, Stage},
};

/// The outcome of pruning one object.
#[derive(Clone, Debug)]
pub struct Pruned {
    /// The object's identity.
    pub id: ObjectId,
    /// The outcome. [`Verdict::Gone`] and [`Verdict::Foreign`] leave the inventory, everything else stays in it.
    pub result: Result<Verdict, Error>,
}

// === impl Pruned ===

impl Pruned {
    /// Whether the object leaves the inventory.
    pub fn is_settled(&self) -> bool {
        self.result.as_ref().is_ok_and(|verdict| verdict.is_settled())
    }
}

// === impl Cluster ===

impl Cluster {
    /// Prunes objects, stage by stage in reverse order. `marked` says whether an object has Tidegate's ownership label.
    ///
    /// While a custom resource exists, later stages wait, because it may need its operator for its finalizers. Returns
    /// one result for each object, in their order.
    pub async fn prune(
        &self,
        cause: &Cause,
        prune: &[Prune],
        marked: &(dyn Fn(&Metadata) -> bool + Sync),
    ) -> Vec<Pruned> {
        let mut results: BTreeMap<&ObjectId, Result<Verdict, Error>> = BTreeMap::new();
        for stages in [
            &[Stage::CustomResource][..],
            &[Stage::Webhook, Stage::Workload, Stage::Configuration, Stage::Rbac],
            &[Stage::Namespace, Stage::Crd],
        ] {
            // Boxed, because the compiler cannot prove that a stream of closures over borrowed objects is `Send`.
            let members: Vec<BoxFuture<'_, (&ObjectId, Result<Verdict, Error>)>> = prune
                .iter()
                .filter(|prune| stages.contains(&prune.id.stage()))
                .map(|prune| async { (&prune.id, self.prune_one(cause, prune, marked).await) }.boxed())
                .collect();
            let done: Vec<(&ObjectId, Result<Verdict, Error>)> =
                stream::iter(members).buffer_unordered(self.transport.concurrency()).collect().await;
            let lingers =
                |result: &Result<Verdict, Error>| matches!(result, Ok(Verdict::Wait | Verdict::Delete) | Err(_));
            let wait = stages[0] == Stage::CustomResource && done.iter().any(|(_, result)| lingers(result));
            results.extend(done);
            if wait {
                break;
            }
        }
        let result = |prune: &Prune| Pruned {
            id: prune.id.clone(),
            result: results.remove(&prune.id).unwrap_or(Ok(Verdict::Wait)),
        };
        prune.iter().map(result).collect()
    }

    async fn prune_one(
        &self,
        cause: &Cause,
        prune: &Prune,
        marked: &(dyn Fn(&Metadata) -> bool + Sync),
    ) -> Result<Verdict, Error> {
        let Some(kind) = self.kind_in_any_version(&prune.gvk()).await? else { return Ok(Verdict::Gone) };
        let Some(metadata) = self.get_metadata(&kind, &Key::new(&prune.id.namespace, &prune.id.name)).await? else {
            return Ok(Verdict::Gone);
        };
        let live = Live {
            marked: marked(&metadata),
            deleting: metadata.deleting,
            prune: metadata.annotation(annotation::PRUNE),
        };
        match prune.verdict(Some(&live)) {
            Verdict::Delete => match self.delete(cause, &kind, &metadata, Propagation::Background).await? {
                Deleted::Gone => Ok(Verdict::Gone),
                // The object changed after the read: the next pass reads it again.
                Deleted::Terminating | Deleted::Changed => Ok(Verdict::Wait),
            },
            verdict => Ok(verdict),
        }
    }
}
