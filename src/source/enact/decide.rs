//! Which requests apply and prune the objects of a source, and what the answers mean. Pure: nothing is read or sent.
//!
//! The decisions, in the order in which a pass asks for them: [`suspended`], [`wanted`], [`unseen`] and [`appeared`],
//! [`plan`], [`retriable`], [`lacking_namespace`] and [`with_retried`], [`applied`]; then [`may_prune`], [`prune_step`]
//! and what a [`PrunedObject`] says.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_cluster::{self as cluster, Claims, Effect, Metadata, OnConflict, Outcome, Task};
use tidegate_core::{
    api::{
        Kyma,
        names::{FIELD_MANAGER, label},
    },
    definition::{Definition, KCP_OPERATOR_RUNS, Kind},
    intake::{Decision, Id, Why, text},
    landscape::{self, SourceName},
    name::Key,
    object::ObjectId,
};
use tidegate_process::retry::Class;

use super::Enacted;
use crate::{
    controller,
    source::{decide, registry::Loaded},
};

/// A definition that is applied, and why.
pub(super) type Wanted<'a> = (&'a Id, Why);

/// The requests for a batch of definitions.
#[derive(Debug, Default)]
pub(super) struct Plan<'a> {
    /// One request for each of `sent`.
    pub(super) tasks: Vec<Task>,
    /// The definitions that are sent.
    pub(super) sent: Vec<Wanted<'a>>,
    /// The definitions that are not sent, with the failed definition on which each depends.
    pub(super) skipped: Vec<(Id, Id)>,
}

/// The result of one apply.
#[derive(Debug)]
pub(super) enum AppliedObject {
    /// The object is as git declares it.
    Ours(Box<Metadata>),
    /// Another client created the object between our read and our apply. The apply added our ownership label.
    Rival(Box<Metadata>),
    /// The object was not applied.
    Failed {
        /// What can help.
        class: Class,
        /// One sentence.
        message: String,
    },
}

/// The next step of one prune.
#[derive(Debug)]
pub(super) enum PruneStep {
    /// The object does not exist.
    Gone,
    /// The object has changed since the decision, and stays.
    Leave,
    /// This object is deleted.
    Delete(Box<Metadata>),
}

/// The result of one prune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PrunedObject {
    /// The object is gone, or is being deleted.
    Gone,
    /// The object has changed since the decision: the next pass decides again.
    Changed,
    /// The object stays, because kcp-operator has started.
    Left,
}

/// The definitions of one kind that are applied.
pub(super) fn wanted(decision: &Decision, kind: Kind) -> Vec<Wanted<'_>> {
    decision.apply.iter().filter(|(id, _)| id.0 == kind).map(|(id, why)| (id, *why)).collect()
}

/// The Kymas that are suspended by their definition and not in KCP. `is_skipped` is `None` for a Kyma that does not
/// exist.
pub(super) fn suspended<'a>(
    decision: &'a Decision,
    good: &BTreeMap<Id, Arc<Definition>>,
    is_skipped: &dyn Fn(&Key) -> Option<bool>,
) -> Vec<Wanted<'a>> {
    let is_stopped = |id: &Id| {
        let label = good.get(id).and_then(|definition| definition.object.label(label::SKIP_RECONCILIATION));
        label.is_some_and(landscape::says_true) && is_skipped(&id.1) == Some(false)
    };
    wanted(decision, Kind::Kyma).into_iter().filter(|(id, _)| is_stopped(id)).collect()
}

/// The objects that the watch does not show. The API server is asked for them before they are created.
pub(super) fn unseen(kind: &cluster::Kind, wanted: &[Wanted<'_>]) -> BTreeMap<ObjectId, Id> {
    wanted.iter().filter(|(_, why)| is_first(*why)).map(|(id, _)| (kind.id(&id.1), (*id).clone())).collect()
}

/// Drops the definitions whose objects the API server has although the watch does not show them. Returns those.
pub(super) fn appeared<'a>(
    wanted: Vec<Wanted<'a>>,
    unseen: &BTreeMap<ObjectId, Id>,
    found: &BTreeSet<&ObjectId>,
) -> (Vec<Wanted<'a>>, Vec<Id>) {
    let appeared: BTreeSet<&Id> = found.iter().filter_map(|id| unseen.get(*id)).collect();
    let rest = wanted.into_iter().filter(|(id, _)| !appeared.contains(id)).collect();
    (rest, appeared.into_iter().cloned().collect())
}

/// The requests for a batch of definitions. `failed` are the definitions that were not applied before.
pub(super) fn plan<'a>(name: &SourceName, loaded: &Loaded, wanted: &[Wanted<'a>], failed: &BTreeSet<&Id>) -> Plan<'a> {
    let mut plan = Plan::default();
    for (id, why) in wanted {
        let Some(definition) = loaded.definitions.good.get(*id) else { continue };
        let needs = loaded.declared.get(*id).map_or(&[][..], |declared| &declared.needs);
        if let Some(needed) = failed_need(needs, failed) {
            plan.skipped.push(((*id).clone(), needed.clone()));
            continue;
        }
        let object = landscape::stamp(definition, name);
        plan.tasks.push(Task {
            gvk: object.gvk(),
            id: object.id(),
            body: serde_json::to_vec(object.value()).expect("JSON can be written").into(),
            on_conflict: on_conflict(*why),
            known: None,
            place: Some(definition.place.clone()),
            claims: Claims::None,
        });
        plan.sent.push((id, *why));
    }
    plan
}

/// The patch that takes the modules from a Kyma in KCP that its definition does not have; none if it has no others. It
/// names the version of the Kyma, so that no module is lost that a client has added meanwhile. None either while the
/// definition is about to suspend the Kyma: until the label is there, the runtime would lose these modules. The apply
/// drops those of git with the label, and the modules of others go when the label goes.
pub(super) fn without_other_modules(declared: &Value, live: &Kyma) -> Option<Bytes> {
    let present = serde_json::to_value(live).ok()?;
    let is_suspended = |kyma: &Value| {
        let value = kyma["metadata"]["labels"][label::SKIP_RECONCILIATION].as_str();
        value.is_some_and(landscape::says_true)
    };
    if is_suspended(declared) && !is_suspended(&present) {
        return None;
    }
    let modules = landscape::without_other_modules(declared, &present)?;
    let version = live.metadata.resource_version.as_deref()?;
    Some(json!({"metadata": {"resourceVersion": version}, "spec": {"modules": modules}}).to_string().into())
}

/// The first definition that failed, of those on which another one depends.
fn failed_need<'a>(needs: &'a [Id], failed: &BTreeSet<&Id>) -> Option<&'a Id> {
    needs.iter().find(|needed| failed.contains(needed))
}

/// What an apply does about fields of other managers. An object that we see for the first time keeps them.
fn on_conflict(why: Why) -> OnConflict {
    if is_first(why) { OnConflict::Report } else { OnConflict::Force }
}

/// Whether no object is known to exist.
fn is_first(why: Why) -> bool {
    match why {
        Why::Absent => true,
        Why::Changed | Why::Drifted | Why::Displaced | Why::Adopted | Why::Moved | Why::Replaced => false,
    }
}

/// The tasks that are sent again if their namespace does not exist. `namespaces` are those that may be missing.
pub(super) fn retriable(tasks: &[Task], namespaces: &BTreeSet<Arc<str>>) -> Vec<Task> {
    tasks.iter().filter(|task| namespaces.contains(&task.id.namespace)).cloned().collect()
}

/// Of the tasks that may be sent again, those that failed because their namespace does not exist.
pub(super) fn lacking_namespace(mut retriable: Vec<Task>, outcomes: &[Outcome]) -> Vec<Task> {
    let is_lacking = |outcome: &&Outcome| matches!(outcome.effect, Effect::Failed(cluster::Error::NotFound { .. }));
    let lacking: BTreeSet<&ObjectId> = outcomes.iter().filter(is_lacking).map(|outcome| &outcome.id).collect();
    retriable.retain(|task| lacking.contains(&task.id));
    retriable
}

/// The outcomes, with the later one of each task that was sent twice.
pub(super) fn with_retried(outcomes: Vec<Outcome>, retried: Vec<Outcome>) -> Vec<Outcome> {
    let mut retried: BTreeMap<ObjectId, Outcome> =
        retried.into_iter().map(|outcome| (outcome.id.clone(), outcome)).collect();
    outcomes.into_iter().map(|outcome| retried.remove(&outcome.id).unwrap_or(outcome)).collect()
}

/// What the outcome of an apply means.
pub(super) fn applied(why: Why, effect: Effect) -> AppliedObject {
    match effect {
        Effect::Applied { metadata, .. } if is_first(why) && has_other_managers(&metadata) => {
            AppliedObject::Rival(metadata)
        }
        Effect::Applied { metadata, .. } => AppliedObject::Ours(metadata),
        Effect::Failed(error) => AppliedObject::Failed { class: error.class(), message: controller::chain(&error) },
        Effect::Skipped { needs } => {
            AppliedObject::Failed { class: Class::Waiting, message: depends_on(&needs.to_string()) }
        }
    }
}

fn has_other_managers(metadata: &Metadata) -> bool {
    metadata.managers.iter().any(|name| name != FIELD_MANAGER)
}

/// Whether this pass prunes: an object that could not be applied may be the reason that another one must stay.
pub(super) fn may_prune(failures: &[(Id, String)]) -> bool {
    failures.is_empty()
}

/// The next step of a prune, by the object in KCP.
pub(super) fn prune_step(found: Option<Metadata>, label_value: &str, uid: &str) -> PruneStep {
    match found {
        None => PruneStep::Gone,
        Some(live) if decide::may_prune(&live, label_value, uid) => PruneStep::Delete(Box::new(live)),
        Some(_) => PruneStep::Leave,
    }
}

fn depends_on(needed: &str) -> String {
    format!("it depends on {needed}, which was not applied")
}

// === impl Plan ===

impl Plan<'_> {
    /// Leaves out the requests for some definitions.
    pub(super) fn leave_out(&mut self, ids: &BTreeSet<&Id>) {
        let tasks = std::mem::take(&mut self.tasks).into_iter();
        let kept = tasks.zip(std::mem::take(&mut self.sent)).filter(|(_, (id, _))| !ids.contains(id));
        (self.tasks, self.sent) = kept.unzip();
    }
}

// === impl Enacted ===

impl Enacted {
    /// Adds an object that was not applied or not pruned.
    pub(super) fn fail(&mut self, id: Id, class: Class, message: String) {
        self.class = Some(soonest(self.class, class));
        self.failures.push((id, message));
    }

    /// Adds objects that appeared in KCP while this pass was about to create them.
    pub(super) fn fail_appeared(&mut self, appeared: Vec<Id>) {
        for id in appeared {
            let message = "it appeared a moment ago; the next pass decides whether Tidegate may apply it";
            self.fail(id, Class::Waiting, message.to_owned());
        }
    }

    /// Adds an object that another client created at the same time.
    pub(super) fn fail_rival(&mut self, id: Id) {
        let message = "another client created it at the same time; the next pass decides whether Tidegate may apply it";
        self.fail(id, Class::Waiting, message.to_owned());
    }

    /// Adds objects of a kcp landscape that were not sent, or of which that is not known, because kcp-operator has
    /// started. The next pass says the same in a condition.
    pub(super) fn fail_beside(&mut self, wanted: &[Wanted<'_>]) {
        for (id, _) in wanted {
            self.fail((*id).clone(), Class::Waiting, KCP_OPERATOR_RUNS.to_owned());
        }
    }

    /// Adds objects that were not sent. What can help is what helps the objects on which they depend.
    pub(super) fn skip(&mut self, skipped: Vec<(Id, Id)>) {
        self.failures.extend(skipped.into_iter().map(|(id, needed)| (id, depends_on(&text(&needed)))));
    }

    /// Adds the result of a prune.
    pub(super) fn prune(&mut self, id: Id, result: Result<PrunedObject, cluster::Error>) {
        match result {
            Ok(PrunedObject::Gone) => self.pruned.push(id),
            Ok(PrunedObject::Changed) => {
                let message = "it changed a moment ago; the next pass decides whether to delete it";
                self.fail(id, Class::Waiting, message.to_owned());
            }
            Ok(PrunedObject::Left) => self.fail(id, Class::Waiting, KCP_OPERATOR_RUNS.to_owned()),
            Err(error) => self.fail(id, error.class(), controller::chain(&error)),
        }
    }

    /// The definitions that were not applied.
    pub(super) fn failed(&self) -> BTreeSet<&Id> {
        self.failures.iter().map(|(id, _)| id).collect()
    }
}

/// Of two failures, what is likely to help sooner.
fn soonest(before: Option<Class>, class: Class) -> Class {
    match (before, class) {
        (Some(Class::Transient), _) | (_, Class::Transient) => Class::Transient,
        (Some(Class::Waiting), _) | (_, Class::Waiting) => Class::Waiting,
        (Some(Class::Stalled) | None, Class::Stalled) => Class::Stalled,
    }
}

#[cfg(test)]
mod tests;
