//! Sends the requests of a decision: applies kinds in order, creates missing namespaces, prunes in reverse order.
//!
//! Kymas that a revision suspends come before everything else: what else it changes does not reach their runtimes. A
//! pass over a runtime reads the Kyma from the watch, so the others wait until the watch shows it.
//!
//! A pass asks the API server for an object that the watch does not show before it creates the object. The watch may be
//! late, and an apply would merge the definition and our ownership label into an object of another client. A POST would
//! not help: when git later drops a field that a POST created, the field stays.

mod decide;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::time::Instant;

use self::decide::{AppliedObject, PruneStep, PrunedObject, Wanted};
use super::{SourcePass, known_objects::KnownObjects, survey::served};
use tidegate_cluster::{self as cluster, Cause, Deleted, OnConflict, Outcome, Propagation, Task};
use tidegate_core::{
    definition::Kind,
    intake::{Decision, Id, Why, text},
    landscape::{self, SourceName},
    name::Key,
    object::{Gvk, ObjectId},
};
use tidegate_process::retry::Class;

use crate::{
    controller::{self, Failure},
    source::registry::Loaded,
};

/// The results of a pass.
#[derive(Debug, Default)]
pub(super) struct Enacted {
    /// The objects that KCP did not accept, and why.
    pub(super) failures: Vec<(Id, String)>,
    /// What can help, if anything failed.
    pub(super) class: Option<Class>,
    /// The number of applied objects.
    pub(super) applied: usize,
    /// The pruned objects.
    pub(super) pruned: Vec<Id>,
    /// Whether the next pass is due soon, because a watch is behind.
    pub(super) again: bool,
}

/// Maximum number of objects with their bodies in memory.
const CHUNK_MAX: usize = 1000;
/// How long a pass waits until the watch shows a Kyma that it has suspended.
const LAG_MAX: Duration = Duration::from_secs(5);
const LAG_POLL: Duration = Duration::from_millis(20);
/// Maximum number of deletes at the same time; prunes are rare and need not be fast.
const PRUNES_MAX: usize = 16;
/// Maximum number of deletes of an object in a pass. Another one is sent only if the object has changed meanwhile.
const PRUNE_TRIES_MAX: usize = 3;

/// What all requests of a pass use.
#[derive(Clone, Copy)]
struct Enactment<'a> {
    pass: &'a SourcePass<'a>,
    cause: &'a Cause,
    name: &'a SourceName,
    loaded: &'a Loaded,
    decision: &'a Decision,
}

/// Applies and prunes.
///
/// Fails if the API server does not answer which objects exist. Failures of single objects are part of the result.
pub(super) async fn run(
    pass: &SourcePass<'_>,
    cause: &Cause,
    name: &SourceName,
    loaded: &Loaded,
    decision: &Decision,
    known: &mut KnownObjects,
) -> Result<Enacted, Failure> {
    let enactment = Enactment { pass, cause, name, loaded, decision };
    let mut enacted = Enacted::default();
    let stopped = enactment.stop(known, &mut enacted).await;
    for kind in Kind::ALL {
        let mut wanted = decide::wanted(decision, kind);
        wanted.retain(|(id, _)| !stopped.contains(*id));
        let unseen = decide::unseen(&served(kind), &wanted);
        let found = enactment.find(kind, unseen.keys()).await.map_err(super::failure)?;
        let (wanted, appeared) = decide::appeared(wanted, &unseen, &found.iter().collect());
        enacted.fail_appeared(appeared);
        for chunk in wanted.chunks(CHUNK_MAX) {
            enactment.apply_beside(kind, chunk, known, &mut enacted).await;
        }
    }
    if decide::may_prune(&enacted.failures) {
        for kind in Kind::ALL.into_iter().rev() {
            enactment.prune(kind, known, &mut enacted).await;
        }
    }
    Ok(enacted)
}

// === impl Enactment ===

impl Enactment<'_> {
    /// Applies the Kymas that the revision suspends, and returns them.
    async fn stop(&self, known: &mut KnownObjects, enacted: &mut Enacted) -> BTreeSet<Id> {
        let stores = self.pass.ctx.stores;
        let is_skipped = |key: &Key| stores.kyma(key).map(|kyma| landscape::is_skipped(&kyma.metadata));
        let stopped = decide::suspended(self.decision, &self.loaded.definitions.good, &is_skipped);
        for chunk in stopped.chunks(CHUNK_MAX) {
            self.apply(chunk, known, enacted).await;
        }
        let failed = enacted.failed();
        let shown = |(id, _): &Wanted<'_>| failed.contains(*id) || is_skipped(&id.1) != Some(false);
        let began = Instant::now();
        while !stopped.iter().all(shown) && began.elapsed() < LAG_MAX {
            tokio::time::sleep(LAG_POLL).await;
        }
        stopped.into_iter().map(|(id, _)| id.clone()).collect()
    }

    /// Asks the API server which of these objects exist.
    async fn find(
        &self,
        kind: Kind,
        ids: impl ExactSizeIterator<Item = &ObjectId>,
    ) -> Result<BTreeSet<ObjectId>, cluster::Error> {
        let served = served(kind);
        let found = self.pass.ctx.kcp.survey(ids.map(|id| (&served.gvk, id))).await?;
        Ok(found.into_keys().collect())
    }

    /// Applies a batch of one kind. Sends nothing of a kcp landscape any more once kcp-operator runs.
    async fn apply_beside(&self, kind: Kind, wanted: &[Wanted<'_>], known: &mut KnownObjects, enacted: &mut Enacted) {
        let mut operator = self.pass.ctx.stores.kcp_operator();
        let is_of_kcp = matches!(kind, Kind::Setup(_));
        tokio::select! {
            biased;
            _ = operator.wait_for(Option::is_some), if is_of_kcp => enacted.fail_beside(wanted),
            () = self.apply(wanted, known, enacted) => {}
        }
    }

    /// Applies a batch of one kind.
    async fn apply(&self, wanted: &[Wanted<'_>], known: &mut KnownObjects, enacted: &mut Enacted) {
        let mut plan = decide::plan(self.name, self.loaded, wanted, &enacted.failed());
        enacted.skip(std::mem::take(&mut plan.skipped));
        let failed = self.drop_other_modules(&plan.sent).await;
        plan.leave_out(&failed.iter().map(|(id, _)| id).collect());
        failed.into_iter().for_each(|(id, error)| enacted.fail(id, error.class(), controller::chain(&error)));
        let outcomes = self.send(plan.tasks).await;
        let now = Instant::now();
        for ((id, why), outcome) in plan.sent.into_iter().zip(outcomes) {
            match decide::applied(why, outcome.effect) {
                AppliedObject::Ours(metadata) => {
                    if let Some(declared) = self.loaded.declared.get(id) {
                        known.applied(id, &declared.digest, &metadata, now);
                    }
                    enacted.applied += 1;
                    if why == Why::Replaced {
                        let (source, object) = (self.pass.key, text(id));
                        tracing::warn!(%source, object, "took over an object of another source with other content");
                    }
                }
                AppliedObject::Rival(metadata) => {
                    self.release(id, &metadata).await;
                    enacted.fail_rival(id.clone());
                }
                AppliedObject::Failed { class, message } => enacted.fail(id.clone(), class, message),
            }
        }
    }

    /// Takes from Kymas the modules that git does not have. An apply would leave those of other field managers. Returns
    /// the Kymas that keep them, and why.
    async fn drop_other_modules(&self, sent: &[Wanted<'_>]) -> Vec<(Id, cluster::Error)> {
        let kcp = self.pass.ctx.kcp;
        let kind = served(Kind::Kyma);
        let mut failed = Vec::new();
        for (id, _) in sent.iter().filter(|(id, _)| id.0 == Kind::Kyma) {
            let Some(live) = self.pass.ctx.stores.kyma(&id.1) else { continue };
            let Some(definition) = self.loaded.definitions.good.get(*id) else { continue };
            let Some(body) = decide::without_other_modules(definition.object.value(), &live) else { continue };
            match kcp.merge_patch(self.cause, &kind, &kind.id(&id.1), None, body).await {
                Ok(_) | Err(cluster::Error::NotFound { .. }) => {}
                Err(error) => failed.push(((*id).clone(), error)),
            }
        }
        failed
    }

    /// Sends tasks. Those that fail because their namespace does not exist are sent again after it was created.
    async fn send(&self, tasks: Vec<Task>) -> Vec<Outcome> {
        let kcp = self.pass.ctx.kcp;
        let retriable = decide::retriable(&tasks, &self.decision.namespaces);
        let outcomes = kcp.enact(self.cause, tasks).await;
        let again = decide::lacking_namespace(retriable, &outcomes);
        let namespaces: BTreeSet<Arc<str>> = again.iter().map(|task| Arc::clone(&task.id.namespace)).collect();
        for namespace in namespaces {
            self.create_namespace(&namespace).await;
        }
        decide::with_retried(outcomes, kcp.enact(self.cause, again).await)
    }

    /// Creates a namespace. A failure shows when its objects are sent again.
    async fn create_namespace(&self, name: &str) {
        let kind = cluster::Kind::built_in(&Gvk::new("", "v1", "Namespace")).expect("Namespace is a built-in kind");
        // Without our ownership label: other objects in it are not ours to delete.
        let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let id = kind.id(&Key::new("", name));
        let body = body.to_string().into();
        if let Err(error) = self.pass.ctx.kcp.apply(self.cause, &kind, &id, body, OnConflict::Report).await {
            let source = self.pass.key;
            tracing::warn!(%source, namespace = name, %error, "cannot create a namespace that definitions need");
        }
    }

    /// Removes our ownership label from an object of another client.
    async fn release(&self, id: &Id, metadata: &cluster::Metadata) {
        if let Err(error) = super::leave::release(self.pass, self.cause, id.0, metadata).await {
            let (source, object) = (self.pass.key, text(id));
            tracing::warn!(%source, object, %error, "cannot remove our ownership label from a foreign object");
        }
    }

    /// Prunes the objects of one kind.
    async fn prune(&self, kind: Kind, known: &mut KnownObjects, enacted: &mut Enacted) {
        let this = *self;
        // By value: a closure that borrows its argument makes a future that cannot be spawned.
        let wanted: Vec<_> = self.decision.prune.iter().filter(|(id, _)| id.0 == kind).cloned().collect();
        let results: Vec<_> = stream::iter(wanted)
            .map(|(id, uid)| async move {
                let result = this.prune_one(&id, &uid).await;
                (id, result)
            })
            .buffer_unordered(PRUNES_MAX)
            .collect()
            .await;
        for (id, result) in results {
            if matches!(result, Ok(PrunedObject::Gone)) {
                known.forget(&id);
            }
            enacted.prune(id, result);
        }
    }

    /// Deletes an object, if it is still the object of the decision. A pass of its runtime may write its status just
    /// before the delete: then it is read again.
    async fn prune_one(&self, id: &Id, uid: &str) -> Result<PrunedObject, cluster::Error> {
        let (kcp, kind) = (self.pass.ctx.kcp, served(id.0));
        for _ in 0..PRUNE_TRIES_MAX {
            let found = kcp.get_metadata(&kind, &id.1).await?;
            let live = match decide::prune_step(found, &self.name.label_value(), uid) {
                PruneStep::Gone => return Ok(PrunedObject::Gone),
                PruneStep::Leave => return Ok(PrunedObject::Changed),
                PruneStep::Delete(live) => live,
            };
            if !self.pass.may_write(id.0) {
                return Ok(PrunedObject::Left);
            }
            match kcp.delete(self.cause, &kind, &live, Propagation::Background).await? {
                Deleted::Gone | Deleted::Terminating => return Ok(PrunedObject::Gone),
                Deleted::Changed => {}
            }
        }
        Ok(PrunedObject::Changed)
    }
}
