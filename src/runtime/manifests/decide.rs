//! What the Manifest of each module needs, and what follows from the answers. Pure.
//!
//! The rules:
//!
//! * A Manifest that is being deleted, or is unmanaged, goes before its module is installed again.
//! * A Manifest that cannot be rendered stays as it is.
//! * A Manifest of a module that is not in the plan is deleted.
//! * A Manifest that cannot be read stays as it is.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::jiff::Timestamp;
use tidegate_cluster::Metadata;
use tidegate_core::{
    api::{
        Manifest,
        names::annotation,
        shared::{ObjectMeta, State, Time},
    },
    name::Key,
    object::Object,
    plan::{Installation, ModuleOutcome, Refusal, RuntimePlan},
    status::Planned,
};

use super::state::LiveManifests;
use crate::runtime::{manifest::is_unmanaged, outcome::Failed};

/// A rendered Manifest, or why it was not rendered.
pub(super) type Rendering = Result<Object, String>;

/// The modules whose Manifests cannot be read, each with one sentence about it.
pub(super) type Unreadable<'a> = BTreeMap<&'a str, String>;

/// Rendered Manifests, by module.
pub(super) type Rendered = BTreeMap<String, Rendering>;

/// What all modules need.
#[derive(Debug)]
pub(super) struct Decision {
    /// The modules: first those of the plan, then those that are removed.
    pub(super) steps: Vec<ModuleStep>,
    /// Why Manifests were not rendered.
    pub(super) problems: Vec<String>,
}

/// What one module needs.
#[derive(Debug)]
pub(super) struct ModuleStep {
    /// Name of the module.
    pub(super) name: String,
    /// The decision of the plan, for the status.
    pub(super) planned: Planned,
    /// What its Manifest needs.
    pub(super) act: Act,
}

/// What a Manifest needs next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// Nothing. Contains the Manifest, if it exists.
    Keep(Option<Arc<Manifest>>),
    /// Applies it over the live one, if that exists.
    Apply { desired: Object, live: Option<Arc<Manifest>> },
    /// Reads it.
    Read(Key),
    /// Drops our finalizers, so that it ends and its objects stay. Then applies the new one.
    Release { desired: Object, live: Arc<Manifest> },
    /// Annotates it as unmanaged.
    Unmanage(Arc<Manifest>),
    /// Deletes it.
    Delete(Arc<Manifest>),
}

/// The installations to render: those whose Manifests may be applied now.
pub(super) fn to_render<'a>(
    plan: &'a RuntimePlan,
    live: &LiveManifests<'_>,
    unreadable: &Unreadable<'_>,
    owner: Option<&str>,
) -> Vec<&'a Installation> {
    let installations = plan.modules.iter().filter_map(|module| match &module.outcome {
        ModuleOutcome::Install(installation) => Some(&**installation),
        ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    });
    installations
        .filter(|installation| !unreadable.contains_key(installation.module.as_str()))
        .filter(|installation| {
            let live = live.get(&installation.module);
            obstacle(live).is_none() || live.is_some_and(|live| is_of_former_kyma(live, owner))
        })
        .collect()
}

/// Decides what each Manifest needs.
pub(super) fn decide(
    plan: &RuntimePlan,
    live: &LiveManifests<'_>,
    rendered: &Rendered,
    unreadable: &Unreadable<'_>,
    owner: Option<&str>,
) -> Decision {
    let mut decision = Decision { steps: Vec::new(), problems: Vec::new() };
    for (&name, message) in unreadable {
        let planned = Planned::Refused { state: State::Error, message: message.clone() };
        let act = Act::Keep(live.get(name).cloned());
        decision.steps.push(ModuleStep { name: name.to_owned(), planned, act });
    }
    for module in plan.modules.iter().filter(|module| !unreadable.contains_key(module.name.as_str())) {
        let live = live.get(&module.name);
        let former = live.filter(|live| is_of_former_kyma(live, owner));
        let (planned, act) = match &module.outcome {
            ModuleOutcome::Install(installation) => {
                let act = match rendered.get(&module.name) {
                    Some(Err(problem)) => {
                        decision.problems.push(problem.clone());
                        Act::Keep(live.filter(|_| former.is_none()).cloned())
                    }
                    Some(Ok(desired)) => match former {
                        Some(former) => Act::Release { desired: desired.clone(), live: Arc::clone(former) },
                        None => install(desired, live),
                    },
                    None => obstacle(live).unwrap_or_else(|| Act::Keep(live.cloned())),
                };
                (planned(installation), act)
            }
            ModuleOutcome::Refuse(refusal) => (refused(refusal), refuse(refusal, live)),
            ModuleOutcome::Unmanage => (Planned::Unmanaged, live.map_or(Act::Keep(None), unmanage)),
        };
        decision.steps.push(ModuleStep { name: module.name.clone(), planned, act });
    }
    let is_planned =
        |name: &str| unreadable.contains_key(name) || plan.modules.iter().any(|module| module.name == name);
    let unwanted = live.iter().filter(|(name, _)| !is_planned(name));
    decision.steps.extend(unwanted.map(|(name, live)| ModuleStep {
        name: name.to_owned(),
        planned: Planned::Removing,
        act: deletion(live),
    }));
    decision
}

/// Whether a Manifest is being deleted because a former Kyma of this name is gone. The present Kyma, which has another
/// UID, wants its module: so the objects stay, and a new Manifest takes them over.
fn is_of_former_kyma(live: &Manifest, owner: Option<&str>) -> bool {
    let mut owners = live.metadata.owner_references.iter().flatten().peekable();
    let is_owned = owners.peek().is_some();
    live.metadata.deletion_timestamp.is_some()
        && !is_unmanaged(live)
        && owner.is_some()
        && is_owned
        && !owners.any(|reference| Some(reference.uid.as_str()) == owner)
}

/// What must happen to a live Manifest before its module can be installed.
fn obstacle(live: Option<&Arc<Manifest>>) -> Option<Act> {
    let live = live.filter(|live| live.metadata.deletion_timestamp.is_some() || is_unmanaged(live))?;
    Some(deletion(live))
}

fn install(desired: &Object, live: Option<&Arc<Manifest>>) -> Act {
    match live {
        Some(live) if matches(desired, live) => Act::Keep(Some(Arc::clone(live))),
        Some(_) | None => Act::Apply { desired: desired.clone(), live: live.cloned() },
    }
}

fn refuse(refusal: &Refusal, live: Option<&Arc<Manifest>>) -> Act {
    match live {
        Some(live) if !refusal.keep => deletion(live),
        Some(_) | None => Act::Keep(live.cloned()),
    }
}

fn unmanage(live: &Arc<Manifest>) -> Act {
    if is_unmanaged(live) { deletion(live) } else { Act::Unmanage(Arc::clone(live)) }
}

/// Deletes a Manifest, unless it is being deleted.
pub(super) fn deletion(live: &Arc<Manifest>) -> Act {
    let live = Arc::clone(live);
    if live.metadata.deletion_timestamp.is_some() { Act::Keep(Some(live)) } else { Act::Delete(live) }
}

/// What follows an apply. Fails if the applied object is not a valid Manifest.
pub(super) fn after_apply(
    desired: Object,
    live: Option<&Arc<Manifest>>,
    metadata: &Metadata,
    is_created: bool,
) -> Result<Act, Failed> {
    if live.is_none() && !is_created {
        // The watch had not shown it yet. Its status has its inventory, so it must be read.
        return Ok(Act::Read(Key::new(desired.namespace(), desired.name())));
    }
    let mut manifest: Manifest = serde_json::from_value(desired.into_value()).map_err(Failed::unreadable)?;
    manifest.metadata.uid = Some(metadata.uid.clone());
    manifest.metadata.resource_version = Some(metadata.resource_version.clone());
    manifest.metadata.generation = Some(metadata.generation);
    manifest.metadata.labels = Some(metadata.labels.clone());
    manifest.metadata.annotations = Some(metadata.annotations.clone());
    manifest.metadata.finalizers = Some(metadata.finalizers.clone());
    manifest.status = live.and_then(|live| live.status.clone());
    Ok(Act::Keep(Some(Arc::new(manifest))))
}

/// What follows the release of a former Manifest. `left` are the finalizers of others: while there are any, it exists,
/// and a pass over it would remove its objects.
pub(super) fn after_release(desired: Object, left: &[String]) -> Act {
    if left.is_empty() { Act::Apply { desired, live: None } } else { Act::Keep(None) }
}

/// What follows the annotation as unmanaged: the Manifest is deleted, and its objects stay without the ownership label.
pub(super) fn after_unmanage(live: &Manifest) -> Act {
    let mut unmanaged = live.clone();
    let annotations = unmanaged.metadata.annotations.get_or_insert_default();
    annotations.insert(annotation::IS_UNMANAGED.to_owned(), "true".to_owned());
    deletion(&Arc::new(unmanaged))
}

/// What follows a deletion: the Manifest exists until its finalizers are gone.
pub(super) fn after_delete(live: &Manifest, now: Timestamp) -> Act {
    let mut deleting = live.clone();
    deleting.metadata.deletion_timestamp = Some(Time(now));
    // The deletion has made a new version that this pass does not know. Later writes must not name the former one.
    deleting.metadata.resource_version = None;
    Act::Keep(Some(Arc::new(deleting)))
}

fn planned(installation: &Installation) -> Planned {
    Planned::Install {
        template: installation.template.clone(),
        template_generation: installation.template_generation,
        channel: installation.channel.clone(),
        policy: installation.policy,
    }
}

fn refused(refusal: &Refusal) -> Planned {
    let message = match &refusal.hint {
        Some(hint) => format!("{}; {hint}", refusal.message),
        None => refusal.message.clone(),
    };
    Planned::Refused { state: refusal.state, message }
}

/// Whether a live Manifest is as rendered. Labels, annotations and finalizers of others do not matter.
fn matches(desired: &Object, live: &Manifest) -> bool {
    let Ok(wanted) = serde_json::from_value::<Manifest>(desired.value().clone()) else { return false };
    let holds = |wanted: &Option<BTreeMap<String, String>>, live: &Option<BTreeMap<String, String>>| {
        wanted.iter().flatten().all(|(key, value)| live.as_ref().and_then(|map| map.get(key)) == Some(value))
    };
    let finalizers = |metadata: &ObjectMeta| metadata.finalizers.clone().unwrap_or_default();
    let present = finalizers(&live.metadata);
    wanted.spec == live.spec
        && holds(&wanted.metadata.labels, &live.metadata.labels)
        && holds(&wanted.metadata.annotations, &live.metadata.annotations)
        && finalizers(&wanted.metadata).iter().all(|finalizer| present.contains(finalizer))
        && wanted
            .metadata
            .owner_references
            .iter()
            .flatten()
            .all(|owner| live.metadata.owner_references.iter().flatten().any(|present| present.uid == owner.uid))
}

#[cfg(test)]
mod tests;
