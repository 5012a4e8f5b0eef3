//! Doing what was decided: namespaces, objects in the order of kinds, then what is gone in reverse.
//!
//! What the watch does not show is looked for before it is created: a watch may be late, and an apply would merge what
//! git declares into an object of somebody else's, mark and all. That is no creation with POST, since fields that are
//! created that way, and git drops later, would stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use serde_json::json;
use tokio::time::Instant;

use super::{SourcePass, decide, known_objects::KnownObjects, survey::served};
use tidegate_cluster::{self as cluster, Cause, Effect, OnConflict, Outcome, Propagation, Task};
use tidegate_core::{
    api::names::FIELD_MANAGER,
    definition::Kind,
    intake::{Decision, Id, Why, text},
    landscape::{self, SourceName},
    name::Key,
    object::{Gvk, ObjectId},
};
use tidegate_process::retry::Class;

use crate::{controller::Failure, source::registry::Loaded};

/// What a pass did.
#[derive(Debug, Default)]
pub(super) struct Enacted {
    /// What KCP did not accept, and why.
    pub(super) failures: Vec<(Id, String)>,
    /// What can help, if anything failed.
    pub(super) class: Option<Class>,
    /// What was applied, and why.
    pub(super) applied: usize,
    /// What was pruned.
    pub(super) pruned: Vec<Id>,
    /// Something is on its way out: look again soon.
    pub(super) again: bool,
}

/// Objects whose bodies are in known at once.
const CHUNK: usize = 1000;
/// Deletes under way at once; pruning is rare and need not be fast.
const PRUNES_MAX: usize = 16;

/// Applies and prunes.
pub(super) async fn run(
    pass: &SourcePass<'_>,
    cause: &Cause,
    name: &SourceName,
    loaded: &Loaded,
    decision: &Decision,
    known: &mut KnownObjects,
) -> Result<Enacted, Failure> {
    let mut enacted = Enacted::default();
    for kind in Kind::ALL {
        let mut wanted: Vec<(&Id, Why)> =
            decision.apply.iter().filter(|(id, _)| id.0 == kind).map(|(id, why)| (id, *why)).collect();
        let appeared = appeared(pass, kind, &wanted).await.map_err(super::failure)?;
        wanted.retain(|(id, _)| !appeared.contains(*id));
        for id in appeared {
            enacted.worsen(Class::Waiting);
            enacted
                .failures
                .push((id, "it has appeared a moment ago, and whose it is will be known in another".to_owned()));
        }
        for chunk in wanted.chunks(CHUNK) {
            apply(pass, cause, name, (loaded, decision), chunk, known, &mut enacted).await;
        }
    }
    // What fails to be applied may be why something else must stay.
    if enacted.failures.is_empty() {
        for kind in Kind::ALL.into_iter().rev() {
            prune(pass, cause, name, kind, decision, known, &mut enacted).await;
        }
    }
    Ok(enacted)
}

/// What is there, of what is wanted since the watch shows no such object.
async fn appeared(pass: &SourcePass<'_>, kind: Kind, wanted: &[(&Id, Why)]) -> Result<BTreeSet<Id>, cluster::Error> {
    let served = served(kind);
    let absent: BTreeMap<ObjectId, Id> =
        wanted.iter().filter(|(_, why)| *why == Why::Absent).map(|(id, _)| (served.id(&id.1), (*id).clone())).collect();
    let found = pass.ctx.kcp.survey(absent.keys().map(|id| (&served.gvk, id))).await?;
    Ok(found.keys().filter_map(|id| absent.get(id).cloned()).collect())
}

/// Applies objects; what fails for want of its namespace is applied again once that is there.
async fn apply_with_namespaces(
    pass: &SourcePass<'_>,
    cause: &Cause,
    decision: &Decision,
    tasks: Vec<Task>,
) -> Vec<Outcome> {
    // Only where nothing stands may the namespace be missing; elsewhere there is nothing to try again.
    let may_lack = |task: &&Task| decision.namespaces.contains(&task.id.namespace);
    let again: BTreeMap<ObjectId, Task> =
        tasks.iter().filter(may_lack).map(|task| (task.id.clone(), task.clone())).collect();
    let mut outcomes = pass.ctx.kcp.enact(cause, tasks).await;
    let lacks = |outcome: &&Outcome| matches!(outcome.effect, Effect::Failed(cluster::Error::NotFound { .. }));
    let again: Vec<Task> =
        outcomes.iter().filter(lacks).filter_map(|outcome| again.get(&outcome.id).cloned()).collect();
    let namespaces: BTreeSet<Arc<str>> = again.iter().map(|task| Arc::clone(&task.id.namespace)).collect();
    for namespace in namespaces {
        if let Err(error) = create_namespace(pass, cause, &namespace).await {
            tracing::warn!(source = %pass.key, %namespace, %error, "a namespace that definitions need was not created");
        }
    }
    let retried: BTreeMap<ObjectId, Outcome> =
        pass.ctx.kcp.enact(cause, again).await.into_iter().map(|outcome| (outcome.id.clone(), outcome)).collect();
    for outcome in &mut outcomes {
        if let Some(retried) = retried.get(&outcome.id) {
            *outcome = retried.clone();
        }
    }
    outcomes
}

async fn create_namespace(pass: &SourcePass<'_>, cause: &Cause, name: &str) -> Result<(), cluster::Error> {
    let kind = cluster::Kind::built_in(&Gvk::new("", "v1", "Namespace")).expect("Namespace is a built-in kind");
    let key = Key::new("", name);
    // Without our mark: what else is in it is not ours to delete.
    let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let id = kind.id(&key);
    pass.ctx.kcp.apply(cause, &kind, &id, body.to_string().into(), OnConflict::Report).await.map(drop)
}

async fn apply(
    pass: &SourcePass<'_>,
    cause: &Cause,
    name: &SourceName,
    (loaded, decision): (&Loaded, &Decision),
    wanted: &[(&Id, Why)],
    known: &mut KnownObjects,
    enacted: &mut Enacted,
) {
    let failed: BTreeSet<Id> = enacted.failures.iter().map(|(id, _)| id.clone()).collect();
    let (mut created, mut tasks) = (Vec::with_capacity(wanted.len()), Vec::with_capacity(wanted.len()));
    for (id, why) in wanted {
        let Some(definition) = loaded.definitions.good.get(*id) else { continue };
        let needs = loaded.declared.get(*id).map_or(&[][..], |declared| &declared.needs);
        if let Some(needed) = needs.iter().find(|needed| failed.contains(*needed)) {
            enacted.failures.push(((*id).clone(), format!("it needs {}, which was not accepted", text(needed))));
            continue;
        }
        let object = landscape::stamp(definition, name);
        let on_conflict = match why {
            // What we meet for the first time keeps what others wrote, and we report them.
            Why::Absent => OnConflict::Report,
            Why::Changed | Why::Drifted | Why::Adopted | Why::Moved => OnConflict::Force,
        };
        let (gvk, object_id) = (object.gvk(), object.id());
        let body = serde_json::to_vec(object.value()).expect("JSON can be written").into();
        let place = Some(definition.place.clone());
        tasks.push(Task { gvk, id: object_id, body, on_conflict, known: None, place });
        created.push((*id, *why == Why::Absent));
    }
    let outcomes = apply_with_namespaces(pass, cause, decision, tasks).await;
    let now = Instant::now();
    for ((id, is_created), outcome) in created.into_iter().zip(outcomes) {
        match outcome.effect {
            // Somebody created it between our look and our apply.
            Effect::Applied { metadata, .. }
                if is_created && metadata.managers.iter().any(|name| name != FIELD_MANAGER) =>
            {
                if let Err(error) = super::leave::unmark(pass, cause, id.0, &metadata).await {
                    tracing::warn!(source = %pass.key, object = text(id), %error, "our mark stays on what others created");
                }
                enacted.worsen(Class::Waiting);
                enacted.failures.push((id.clone(), "somebody else created it at the same moment".to_owned()));
            }
            Effect::Applied { metadata, .. } => {
                if let Some(declared) = loaded.declared.get(id) {
                    known.applied(id, &declared.digest, &metadata, now);
                }
                enacted.applied += 1;
            }
            Effect::Failed(error) => {
                enacted.worsen(error.class());
                enacted.failures.push((id.clone(), crate::controller::chain(&error)));
            }
            Effect::Skipped { needs } => {
                enacted.worsen(Class::Waiting);
                enacted.failures.push((id.clone(), format!("it needs {needs}, which was not accepted")));
            }
        }
    }
}

async fn prune(
    pass: &SourcePass<'_>,
    cause: &Cause,
    name: &SourceName,
    kind: Kind,
    decision: &Decision,
    known: &mut KnownObjects,
    enacted: &mut Enacted,
) {
    let label = name.label_value();
    let label = label.as_str();
    // By value: a closure that borrows its argument makes a future that cannot be spawned.
    let wanted: Vec<_> = decision.prune.iter().filter(|(id, _)| id.0 == kind).cloned().collect();
    let results: Vec<_> = stream::iter(wanted)
        .map(|(id, uid)| async move {
            let result = prune_one(pass, cause, label, &id, &uid).await;
            (id, result)
        })
        .buffer_unordered(PRUNES_MAX)
        .collect()
        .await;
    for (id, result) in results {
        match result {
            Ok(true) => {
                known.forget(&id);
                enacted.pruned.push(id);
            }
            Ok(false) => enacted.again = true,
            Err(error) => {
                enacted.worsen(error.class());
                enacted.failures.push((id, crate::controller::chain(&error)));
            }
        }
    }
}

/// Deletes an object if it still is the one that was decided about; whether it did.
async fn prune_one(
    pass: &SourcePass<'_>,
    cause: &Cause,
    label_value: &str,
    id: &Id,
    uid: &str,
) -> Result<bool, cluster::Error> {
    let kind = served(id.0);
    let Some(metadata) = pass.ctx.kcp.get_metadata(&kind, &id.1).await? else { return Ok(true) };
    if !decide::may_prune(&metadata, label_value, uid) {
        return Ok(false);
    }
    match pass.ctx.kcp.delete(cause, &kind, &metadata, Propagation::Background).await? {
        cluster::Deleted::Gone | cluster::Deleted::Terminating => Ok(true),
        cluster::Deleted::Changed => Ok(false),
    }
}

// === impl Enacted ===

impl Enacted {
    /// Remembers what is most likely to help soon.
    fn worsen(&mut self, class: Class) {
        self.class = Some(match (self.class, class) {
            (Some(Class::Transient), _) | (_, Class::Transient) => Class::Transient,
            (Some(Class::Waiting), _) | (_, Class::Waiting) => Class::Waiting,
            (Some(Class::Stalled) | None, Class::Stalled) => Class::Stalled,
        });
    }
}
