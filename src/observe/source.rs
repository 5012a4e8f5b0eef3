//! The pass over a source: what the daemon would apply of it in the control plane, and prune there.

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt, stream};
use serde_json::json;
use tidegate_cluster::{Cluster, Error};
use tidegate_core::{
    adopt,
    api::names::FIELD_MANAGER,
    definition::{Definition, Kind},
    intake::{Decision, Held, HeldFor, Id, Wait},
    landscape::{self, SourceName},
    name::Key,
    object::{Digest, Object, ObjectId},
};
use tidegate_diff::{
    live::applied_by,
    mask::Masker,
    model::{Effect, Side},
};

use super::{
    Observation,
    difference::{ComparedCluster, Difference, Reason},
    state::SeenSource,
};
use crate::{
    controller::{Context, Failure, Pass},
    live::{
        Method,
        compare::{Comparer, Shared, Wish},
        world::{key as key_of, served},
    },
    queue::{Finish, Triggers},
    source::{self, Judgement, registry::Loaded},
};

/// Objects of a kind and namespace that are read one by one. More are read by one list.
const READS_MAX: usize = 8;
/// Concurrent reads.
const READS_AT_ONCE: usize = 8;

/// Compares what a source would bring about in the control plane.
pub(super) async fn compare(context: &Context, observation: &Observation, key: &Key, triggers: Triggers) -> Pass {
    let (finish, seen) = match source::judge(context.source(), key, triggers).await? {
        Judgement::Gone => {
            if observation.seen.lock().forget_source(key) {
                context.stores.wake_runtimes();
            }
            return Ok(Finish::Gone);
        }
        Judgement::Pending(finish) => return Ok(finish),
        Judgement::Idle(finish, why) => (finish, SeenSource { idle: Some(why), ..SeenSource::default() }),
        Judgement::Decided(finish, loaded, decision, unused) => {
            let decided = fingerprint(context, &loaded, &decision);
            observation.seen.lock().set_unused(key, unused.as_deref());
            if observation.seen.lock().sources.get(key).and_then(|seen| seen.decided) == Some(decided) {
                return Ok(finish);
            }
            let live = read(&context.kcp, &decision).await;
            let live = live.map_err(|error| Failure::new(error.class(), error.reason(), error))?;
            let seen = differences(context, observation, key, &loaded, &decision, &live).await;
            let seen = seen.map_err(|error| Failure::new(error.class(), error.reason(), error))?;
            (finish, SeenSource { decided: Some(decided), unused, ..seen })
        }
    };
    if observation.seen.lock().set_source(key, seen) {
        context.stores.wake_runtimes();
    }
    Ok(finish)
}

/// Digest of a decision and of the objects that it concerns, as the watches show them. While it is the same, nothing is
/// read again.
fn fingerprint(context: &Context, loaded: &Loaded, decision: &Decision) -> Digest {
    let Decision { apply, held, prune, waiting, .. } = decision;
    let held: Vec<(String, &str)> = held.iter().map(|(id, held)| (format!("{id:?}"), &*held.message)).collect();
    let concerned = apply.iter().map(|(id, _)| id).chain(decision.held.keys());
    let generations: Vec<Option<i64>> = concerned.map(|id| generation(context, id)).collect();
    Digest::from_value(&json!([
        loaded.revision.to_string(),
        format!("{apply:?}"),
        held,
        format!("{prune:?}"),
        format!("{waiting:?}"),
        generations,
    ]))
}

/// The generation of an object, as the watches show it.
fn generation(context: &Context, (kind, key): &Id) -> Option<i64> {
    let landscape = context.stores.landscape();
    match kind {
        Kind::ModuleTemplate => landscape.templates.get(key)?.metadata.generation,
        Kind::ModuleReleaseMeta => landscape.releases.get(key)?.metadata.generation,
        Kind::Watcher => landscape.watchers.get(key)?.metadata.generation,
        Kind::Kyma => context.stores.kyma(key)?.metadata.generation,
        Kind::Setup(_) => None,
    }
}

/// The live objects of a decision that have a desired form.
async fn read(kcp: &Cluster, decision: &Decision) -> Result<BTreeMap<Id, Object>, Error> {
    let is_compared = |held: &Held| matches!(held.why, HeldFor::Problem | HeldFor::Dependency | HeldFor::Removal);
    let held = decision.held.iter().filter(|(_, held)| is_compared(held)).map(|(id, _)| id);
    let mut wanted: BTreeMap<_, Vec<Key>> = BTreeMap::new();
    for (kind, key) in decision.apply.iter().map(|(id, _)| id).chain(held) {
        wanted.entry((*kind, key.namespace().to_owned())).or_default().push(key.clone());
    }
    let mut live = BTreeMap::new();
    for ((kind, namespace), keys) in wanted {
        let found: Vec<Object> = if keys.len() <= READS_MAX {
            let kind = &served(kind);
            // Collected, because the compiler cannot see that a stream of closures over borrowed values is `Send`.
            let reads: Vec<_> = keys.into_iter().map(|key| async move { kcp.get(kind, &key).await }).collect();
            let read: Vec<_> = stream::iter(reads).buffered(READS_AT_ONCE).collect().await;
            read.into_iter().filter_map(Result::transpose).collect::<Result<_, _>>()?
        } else {
            kcp.list(&served(kind), Some(&namespace), None).await?
        };
        live.extend(found.into_iter().map(|object| ((kind, key_of(&object)), object)));
    }
    Ok(live)
}

/// What differs in the control plane. Fails if it does not answer.
async fn differences(
    context: &Context,
    observation: &Observation,
    key: &Key,
    loaded: &Loaded,
    decision: &Decision,
    live: &BTreeMap<Id, Object>,
) -> Result<SeenSource, Error> {
    let name = SourceName::new(key.clone());
    let shared = Shared::new(Masker::new(observation.mask.clone()), Method::Reads, false);
    let comparer = Comparer::new(&shared, &context.kcp, Side::ControlPlane, Arc::default(), Vec::new());
    let mut seen = SeenSource { revision: Some(loaded.revision.to_string()), ..SeenSource::default() };
    for (id, _) in &decision.apply {
        let Some(definition) = loaded.definitions.good.get(id) else { continue };
        let wish = wish(definition, &name);
        let after = match live.get(id) {
            Some(live) => {
                let differs = comparer.existing(&wish, live).await?;
                let found = differs.map(|differs| comparer.found(&wish, &differs, Effect::Applies));
                seen.differences.extend(found.map(|found| Difference::from_found(&found, None)));
                applied(live, &wish)
            }
            None => {
                seen.differences.push(Difference::new(
                    ComparedCluster::ControlPlane,
                    Reason::Missing,
                    object_id(id),
                    &[],
                ));
                wish.object.into_value()
            }
        };
        seen.after.push((id.clone(), after));
    }
    for (id, held) in &decision.held {
        let fields = match (loaded.definitions.good.get(id), live.get(id)) {
            (Some(definition), Some(live)) => fields(&comparer, definition, live).await?,
            (Some(_) | None, _) => Vec::new(),
        };
        let reason = reason_of(held.why, decision.unread.contains_key(id));
        let difference = Difference::new(ComparedCluster::ControlPlane, reason, object_id(id), &fields);
        seen.differences.push(difference.with_detail(Some(held.message.clone())));
    }
    for (id, _) in &decision.prune {
        seen.differences.push(Difference::new(ComparedCluster::ControlPlane, Reason::Extra, object_id(id), &[]));
        seen.gone.insert(id.clone());
    }
    for (id, wait) in &decision.waiting {
        let difference = Difference::new(ComparedCluster::ControlPlane, Reason::Waiting, object_id(id), &[]);
        seen.differences.push(difference.with_detail(Some(waits_for(wait).to_owned())));
    }
    for withheld in &loaded.definitions.withheld {
        let id = (withheld.kind, withheld.key.clone());
        let difference = Difference::new(ComparedCluster::ControlPlane, Reason::Waiting, object_id(&id), &[]);
        let detail = format!("the definition is held back: {}", withheld.message);
        seen.differences.push(difference.with_detail(Some(detail)));
    }
    Ok(seen)
}

/// What the daemon does with an object whose definition it holds back: nothing now, or nothing at all. `is_unread`: its
/// owner is a GitSource that has not been read yet.
fn reason_of(held: HeldFor, is_unread: bool) -> Reason {
    match held {
        HeldFor::Problem if !is_unread => Reason::Foreign,
        HeldFor::Problem | HeldFor::Dependency | HeldFor::Terminating | HeldFor::Removal => Reason::Waiting,
    }
}

fn wish(definition: &Definition, source: &SourceName) -> Wish {
    let object = landscape::stamp(definition, source);
    Wish { gvk: object.gvk(), object, places: vec![definition.place.clone()], maker: None }
}

/// The object after an apply, with its identity and status.
fn applied(live: &Object, wish: &Wish) -> serde_json::Value {
    let mut after = applied_by(live.value(), wish.object.value(), &[FIELD_MANAGER]);
    for field in ["uid", "generation"] {
        if let Some(value) = live.value().pointer(&format!("/metadata/{field}")) {
            after["metadata"][field] = value.clone();
        }
    }
    if let Some(status) = live.field("status") {
        after["status"] = status.clone();
    }
    after
}

/// The fields in which an object of another owner differs from git: those of its spec, its labels and its annotations,
/// as `tidegate adopt plan` compares them. What Tidegate would add to the object is none.
async fn fields(comparer: &Comparer<'_>, definition: &Definition, live: &Object) -> Result<Vec<String>, Error> {
    let Ok(object) = Object::new(adopt::compared(definition, live.value())) else { return Ok(Vec::new()) };
    let wish = Wish { gvk: object.gvk(), object, places: vec![definition.place.clone()], maker: None };
    let Some(differs) = comparer.existing(&wish, live).await? else { return Ok(Vec::new()) };
    let found = comparer.found(&wish, &differs, Effect::Held);
    let is_declared = |field: &String| {
        ["metadata.labels.", "metadata.annotations."].iter().any(|of| field.starts_with(of))
            || !field.starts_with("metadata.")
    };
    Ok(Difference::from_found(&found, None).fields.into_iter().filter(is_declared).collect())
}

fn object_id(id: &Id) -> ObjectId {
    served(id.0).id(&id.1)
}

/// Why an object that git no longer declares stays.
fn waits_for(wait: &Wait) -> &'static str {
    match wait {
        Wait::Unconfirmed(_) => "its deletion waits for a confirmation, because runtimes would lose modules",
        Wait::Limit { .. } => "its deletion waits for a confirmation, because too many objects would be deleted",
        Wait::Unreadable => "it is no longer declared, but it cannot be read",
        Wait::InUse(_) => "it is no longer declared, but runtimes have this version until they get another one",
        Wait::Terminating => "it is being deleted",
        Wait::Off => "it is no longer declared, but its GitSource says `prune: false`",
        Wait::Errors => "it is no longer declared, but nothing is deleted while there are errors",
        Wait::Unread(_) => "it is no longer declared, but another GitSource has not been read",
        Wait::Kept => "it is no longer declared, but it is annotated `tidegate.dev/prune: disabled`",
        Wait::Tool(_) => "it is no longer declared, but another GitOps tool manages it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_object_of_another_owner_is_foreign_and_what_is_held_for_another_waits() {
        assert_eq!(reason_of(HeldFor::Problem, false), Reason::Foreign);
        assert_eq!(reason_of(HeldFor::Problem, true), Reason::Waiting, "its owner may not declare it any more");
        for held in [HeldFor::Dependency, HeldFor::Terminating, HeldFor::Removal] {
            assert_eq!(reason_of(held, false), Reason::Waiting, "{held:?}");
        }
    }
}
