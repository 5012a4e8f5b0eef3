//! What the Manifest of each module needs, and what follows from the answers. Pure.
//!
//! The rules:
//!
//! * A Manifest that is being deleted, or is unmanaged, goes before its module is installed again.
//! * While the removal of a Manifest waits, a new version of its module reaches it: that may complete the removal.
//! * A Manifest that cannot be rendered stays as it is.
//! * While an upgrade waits for a maintenance window or for its turn in a rollout, the Manifest stays as the installed
//!   version says.
//! * A Manifest of a module that is not in the plan is deleted, if the status of the Kyma has the module or if Tidegate
//!   has applied the Manifest. Any other is an orphan: it stays, and its status says so.
//! * If the Kyma released the module before it dropped it, its objects stay, whether or not a pass has seen that.
//! * A Manifest that cannot be read stays as it is.
//! * If the component of a module gets another name, its Manifest does as well. The new one takes over the inventory
//!   before the former one ends, so nothing in the runtime is deleted or created. While the former one is paused, it
//!   keeps its name.
//! * A mandatory module decides about its Manifest, whether or not the Kyma selects a module of the same name. If its
//!   release gets channels, or the reverse, the Manifest gets other labels and its objects stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::json;
use tidegate_cluster::Metadata;
use tidegate_core::{
    adopt,
    api::{
        Kyma, Manifest, ModuleReleaseMeta,
        names::{FIELD_MANAGER, annotation, label},
        shared::{ObjectMeta, State, Time},
    },
    conditions,
    landscape::{self, Landscape},
    name::Key,
    object::Object,
    plan::{self, InstallSource, Installation, ModuleOutcome, ModulePlan, Offer, Refusal, RuntimePlan, WaitFor},
    status::Planned,
};

use super::state::{LiveManifests, Role};
use crate::{
    metrics::requeue::{Reason, Requeue},
    runtime::{
        manifest::{self, is_released, is_skipped, is_unmanaged},
        outcome::Failed,
    },
};

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
    /// Manifests of modules that neither the plan nor the status of the Kyma has, and that no record of Tidegate names.
    pub(super) unreferenced: Vec<Arc<Manifest>>,
    /// Why Manifests were not rendered.
    pub(super) problems: Vec<String>,
}

/// A Manifest that nothing references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Orphan {
    /// It does not exist any more.
    Gone,
    /// Tidegate has applied it.
    Ours,
    /// What manages it may still be at work. Contains how long to wait.
    Young(Duration),
    /// Nothing manages it.
    Old,
}

/// What one module needs.
#[derive(Debug)]
pub(super) struct ModuleStep {
    /// Name of the module.
    pub(super) name: String,
    /// What it is to the Kyma, for the status.
    pub(super) role: Role,
    /// What its Manifest needs.
    pub(super) act: Act,
    /// The Manifests that it had under other names: it takes over what they have.
    pub(super) former: Vec<Arc<Manifest>>,
    /// Those of them that it leaves alone, and that are being deleted.
    pub(super) beside: Vec<Arc<Manifest>>,
}

/// What a Manifest needs next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// Nothing. Contains the Manifest, if it exists.
    Keep(Option<Arc<Manifest>>),
    /// Applies it over the live one, if that exists.
    Apply { desired: Object, live: Option<Arc<Manifest>> },
    /// Applies a new version over the live one, which is being deleted.
    Upgrade { desired: Object, live: Arc<Manifest> },
    /// Reads it.
    Read(Key),
    /// Drops our finalizers, so that it ends and its objects stay. Then its successor is created.
    Release { desired: Object, live: Arc<Manifest> },
    /// Creates the successor of a Manifest that is gone. It takes over the inventory: objects that the module no longer
    /// has must still be pruned.
    Succeed { desired: Object, former: Arc<Manifest> },
    /// Writes the inventory of the former Manifest into the status of a new one, before anything is written to the
    /// runtime.
    Inherit { successor: Arc<Manifest>, former: Arc<Manifest> },
    /// The same for a former Manifest of another name, which still exists and ends then.
    TakeOver { successor: Arc<Manifest>, former: Arc<Manifest> },
    /// Drops our finalizers of a Manifest whose inventory another one has.
    Retire { successor: Arc<Manifest>, former: Arc<Manifest> },
    /// Deletes it then.
    End { successor: Arc<Manifest>, former: Arc<Manifest> },
    /// Annotates it as unmanaged.
    Unmanage(Arc<Manifest>),
    /// Deletes it.
    Delete(Arc<Manifest>),
}

/// As with Lifecycle Manager, a Manifest of this age that nothing references is an orphan.
const ORPHAN_AGE_MIN: Duration = Duration::from_secs(300);
/// Why a Manifest is an orphan, in Lifecycle Manager's words.
pub(super) const UNREFERENCED: &str = "manifest is not referenced in Kyma status";
/// Why a Manifest without a Kyma is one.
pub(in crate::runtime) const WITHOUT_KYMA: &str = "parent Kyma does not exist";

/// The modules that no Kyma wants and whose removal waits, with their channels.
pub(in crate::runtime) fn leaving<'a>(plan: &RuntimePlan, manifests: &'a [Arc<Manifest>]) -> Vec<(&'a str, &'a str)> {
    let is_planned = |name: &str| plan.modules.iter().any(|module| module.name == name);
    let of_manifest = |manifest: &'a Arc<Manifest>| {
        let module = landscape::label(&manifest.metadata, label::MODULE_NAME)?;
        let channel = landscape::label(&manifest.metadata, label::CHANNEL)?;
        (is_waiting_for_removal(manifest) && !is_planned(module)).then_some((module, channel))
    };
    manifests.iter().filter_map(of_manifest).collect()
}

/// The installations to render: those whose Manifests may be applied now.
pub(super) fn to_render<'a>(
    plan: &'a RuntimePlan,
    live: &LiveManifests<'_>,
    unreadable: &Unreadable<'_>,
    owner: Option<&str>,
) -> Vec<&'a Installation> {
    let installations = plan.deciding().into_iter().filter_map(|module| module.outcome.installed());
    installations
        .filter(|installation| !unreadable.contains_key(installation.module.as_str()))
        .filter(|installation| {
            let live = live.get(&installation.module);
            obstacle(live).is_none()
                || live.is_some_and(|live| is_of_former_kyma(live, owner) || is_waiting_for_removal(live))
        })
        .collect()
}

/// Whether the live Manifest of an installation stays as it is, and has the same objects. `stays` is whether it stays
/// if it does.
pub(super) fn is_left(
    installation: &Installation,
    live: &LiveManifests<'_>,
    stays: &dyn Fn(&Manifest) -> bool,
) -> bool {
    live.get(&installation.module).is_some_and(|live| {
        InstallSource::try_from(&live.spec.install.source).as_ref() == Ok(&installation.source) && stays(live)
    })
}

/// Decides what each Manifest needs. `left_unmanaged` are the modules that the Kyma released before it dropped them.
pub(super) fn decide(
    (plan, left_unmanaged): (&RuntimePlan, &BTreeSet<String>),
    live: &LiveManifests<'_>,
    rendered: &Rendered,
    unreadable: &Unreadable<'_>,
    kyma: &Kyma,
) -> Decision {
    let mut decision = Decision { steps: Vec::new(), unreferenced: Vec::new(), problems: Vec::new() };
    for (&name, message) in unreadable {
        let live = live.get(name);
        let is_mandatory = plan.has_mandatory(name) || live.is_some_and(|live| plan::is_mandatory(&live.metadata));
        let role = if is_mandatory {
            Role::Mandatory { refused: Some((State::Error, message.clone())) }
        } else {
            Role::Selected(Planned::Refused { state: State::Error, message: message.clone(), hint: None })
        };
        decision.steps.push(ModuleStep::alone(name, role, Act::Keep(live.cloned())));
    }
    let is_readable = |module: &&ModulePlan| !unreadable.contains_key(module.name.as_str());
    for module in plan.deciding().into_iter().filter(is_readable) {
        let (act, problem) = act(module, live.get(&module.name), rendered, &kyma.metadata);
        let role = match &module.offer {
            Offer::Channel(channel) => {
                decision.problems.extend(problem);
                Role::Selected(planned(&module.outcome, channel))
            }
            Offer::Mandatory => Role::Mandatory { refused: refused(&module.outcome, problem) },
        };
        decision.steps.push(ModuleStep::with_others(&module.name, role, act, live));
    }
    decision.steps.extend(plan.modules.iter().filter(|module| plan.has_mandatory(&module.name)).map(|module| {
        let channel = module.offer.channel().unwrap_or_default();
        let role = Role::Selected(planned(&module.outcome, channel));
        ModuleStep::alone(&module.name, role, Act::Keep(None))
    }));
    let is_planned = |name: &str| {
        unreadable.contains_key(name)
            || plan.has_mandatory(name)
            || plan.modules.iter().any(|module| module.name == name)
    };
    let (unwanted, unreferenced): (Vec<_>, Vec<_>) =
        live.iter().filter(|(name, _)| !is_planned(name)).partition(|(name, live)| is_known(kyma, name, live));
    decision.unreferenced = unreferenced.into_iter().map(|(_, live)| Arc::clone(live)).collect();
    decision.steps.extend(unwanted.into_iter().map(|(name, of_name)| {
        let is_mandatory = plan::is_mandatory(&of_name.metadata);
        let role = if is_mandatory { Role::Mandatory { refused: None } } else { Role::Selected(Planned::Removing) };
        let act = match rendered.get(name) {
            _ if !is_mandatory && left_unmanaged.contains(name) && of_name.metadata.deletion_timestamp.is_none() => {
                unmanage(of_name)
            }
            Some(Ok(desired)) => upgrade(desired, of_name),
            Some(Err(_)) | None => deletion(of_name),
        };
        ModuleStep::with_others(name, role, act, live)
    }));
    decision
}

/// What the Manifest of a module needs, and why it was not rendered.
fn act(
    module: &ModulePlan,
    live: Option<&Arc<Manifest>>,
    rendered: &Rendered,
    kyma: &ObjectMeta,
) -> (Act, Option<String>) {
    let owner = kyma.uid.as_deref();
    let follow = || {
        let former = live.filter(|live| is_of_former_kyma(live, owner));
        match (rendered.get(&module.name), former) {
            (Some(Err(problem)), None) => (Act::Keep(live.cloned()), Some(problem.clone())),
            (Some(Err(problem)), Some(_)) => (Act::Keep(None), Some(problem.clone())),
            (Some(Ok(desired)), Some(former)) => {
                (Act::Release { desired: desired.clone(), live: Arc::clone(former) }, None)
            }
            (Some(Ok(desired)), None) => match live {
                Some(live) if live.metadata.deletion_timestamp.is_some() => (upgrade(desired, live), None),
                Some(live) if !has_name(live, desired) && is_skipped(live) => (Act::Keep(Some(Arc::clone(live))), None),
                Some(live) if !has_name(live, desired) => (install(desired, None, kyma), None),
                Some(_) | None => (install(desired, live, kyma), None),
            },
            (None, _) => (obstacle(live).unwrap_or_else(|| Act::Keep(live.cloned())), None),
        }
    };
    match &module.outcome {
        ModuleOutcome::Install(_) => follow(),
        ModuleOutcome::Wait(wait) if wait.kept.is_some() => follow(),
        ModuleOutcome::Wait(_) => (Act::Keep(live.cloned()), None),
        ModuleOutcome::Refuse(refusal) => (refuse(refusal, live), None),
        ModuleOutcome::Unmanage => (live.map_or(Act::Keep(None), unmanage), None),
    }
}

/// What a module does about a Manifest that it had under another name, once its present one is as it is to be; none if
/// nothing is left to do. `present` is the present one.
pub(super) fn succeed(present: &Arc<Manifest>, former: &Arc<Manifest>) -> Act {
    let (successor, former) = (Arc::clone(present), Arc::clone(former));
    if manifest::has_all_of(&successor, &former) {
        Act::Retire { successor, former }
    } else {
        Act::TakeOver { successor, former }
    }
}

/// Whether a Manifest ends once one of another name has taken over what it has. One that is paused stays as it is, one
/// that is unmanaged ends by itself, and one that no Kyma owns belongs to others.
pub(crate) fn is_replaceable(live: &Manifest) -> bool {
    let mut owners = live.metadata.owner_references.iter().flatten();
    !is_skipped(live) && !is_unmanaged(live) && owners.any(|owner| owner.kind == "Kyma")
}

fn has_name(live: &Manifest, desired: &Object) -> bool {
    live.metadata.name.as_deref() == Some(desired.name())
}

/// What an applied Manifest counts. It has our finalizers from the beginning.
pub(super) fn requeues(is_created: bool) -> Vec<Requeue> {
    if !is_created {
        return Vec::new();
    }
    [Reason::ManifestInitialize, Reason::ManifestFinalizer].map(Requeue::Intended).into()
}

/// The ModuleReleaseMeta that is being deleted and whose mandatory module a Manifest installs; none for other
/// Manifests.
pub(super) fn release_of_mandatory(landscape: &Landscape, live: &Manifest) -> Option<Arc<ModuleReleaseMeta>> {
    let key = landscape::key(&live.metadata);
    let module = landscape::label(&live.metadata, label::MODULE_NAME).filter(|_| plan::is_mandatory(&live.metadata))?;
    let release = landscape.releases.get(&Key::new(key.namespace(), module))?;
    release.metadata.deletion_timestamp.is_some().then(|| Arc::clone(release))
}

/// Whether an unwanted Manifest is one of this Kyma: its status has the module, or the status of the Manifest is ours.
/// The status of a Kyma has no mandatory modules. A Manifest that is being deleted is removed, no matter who created
/// it.
fn is_known(kyma: &Kyma, module: &str, live: &Manifest) -> bool {
    let conditions = live.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    live.metadata.deletion_timestamp.is_some()
        || plan::is_mandatory(&live.metadata)
        || conditions::find(conditions, conditions::APPLIED).is_some()
        || kyma.status.iter().flat_map(|status| &status.modules).any(|known| known.name == module)
}

/// What to do about a Manifest that nothing references. `managed` has its field managers. That Tidegate has written its
/// status says nothing.
pub(super) fn orphan(live: &Manifest, managed: Option<&ObjectMeta>, now: Timestamp) -> Orphan {
    let Some(managed) = managed else { return Orphan::Gone };
    let is_applied = managed.managed_fields.iter().flatten().any(|entry| {
        entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.subresource.as_deref().unwrap_or_default().is_empty()
    });
    if is_applied { Orphan::Ours } else { orphan_check(live, now).map_or(Orphan::Old, Orphan::Young) }
}

/// When an orphan is old enough to be reported; none if it is.
pub(in crate::runtime) fn orphan_check(live: &Manifest, now: Timestamp) -> Option<Duration> {
    let created = live.metadata.creation_timestamp.as_ref().map_or(now, |created| created.0);
    let age = Duration::try_from(now.duration_since(created)).unwrap_or_default();
    ORPHAN_AGE_MIN.checked_sub(age).filter(|left| !left.is_zero())
}

/// Lifecycle Manager's message about an orphan.
pub(super) fn orphan_message(why: &str) -> String {
    format!("orphaned manifest detected: {why}")
}

/// The note of the Event about an orphan, `before` and after its status was written; none if the status said so before.
pub(super) fn orphan_note(before: &Manifest, after: &Manifest) -> Option<String> {
    news(before, after).map(|message| format!("{message}; its objects stay; delete the Manifest to remove them"))
}

/// What the status of a Manifest says, if it did not before.
pub(super) fn news(before: &Manifest, after: &Manifest) -> Option<String> {
    let said =
        |manifest: &Manifest| manifest.status.as_ref()?.last_operation.as_ref().map(|last| last.operation.clone());
    said(after).filter(|message| said(before).as_ref() != Some(message))
}

/// Why a Manifest is kept whose Kyma vanished together with the definition of Kymas.
pub(super) fn kept_message(live: &Manifest) -> String {
    let key = landscape::key(&live.metadata);
    format!(
        "its Kyma is gone together with the definition of Kymas, so its objects stay; to remove them, run `kubectl \
         annotate manifest -n {} {} {}=true`",
        key.namespace(),
        key.name(),
        annotation::CONFIRM_DELETION
    )
}

/// Whether a Manifest is being deleted and its objects are still there.
fn is_waiting_for_removal(live: &Manifest) -> bool {
    live.metadata.deletion_timestamp.is_some() && !is_released(live) && !is_unmanaged(live) && !is_skipped(live)
}

/// A new version for a Manifest that is being deleted. Its name stays, even if a new one would have another; its policy
/// stays, because the removal depends on it; finalizers cannot be added; and a Manifest that is gone meanwhile must not
/// be created.
fn upgrade(desired: &Object, live: &Arc<Manifest>) -> Act {
    let mut value = desired.value().clone();
    value["metadata"]["name"] = json!(live.metadata.name);
    value["spec"]["customResourcePolicy"] = json!(live.spec.custom_resource_policy);
    value["metadata"]["finalizers"] = json!(live.metadata.finalizers);
    value["metadata"]["uid"] = json!(live.metadata.uid);
    match Object::new(value) {
        Ok(desired) if !matches(&desired, live) => Act::Upgrade { desired, live: Arc::clone(live) },
        Ok(_) | Err(_) => Act::Keep(Some(Arc::clone(live))),
    }
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

fn install(desired: &Object, live: Option<&Arc<Manifest>>, kyma: &ObjectMeta) -> Act {
    match live {
        Some(live) if matches(desired, live) || is_as_left(desired, live, kyma) => Act::Keep(Some(Arc::clone(live))),
        Some(_) | None => Act::Apply { desired: desired.clone(), live: live.cloned() },
    }
}

/// Whether a Manifest is as Lifecycle Manager left it, in a runtime that stays so.
fn is_as_left(desired: &Object, live: &Manifest, kyma: &ObjectMeta) -> bool {
    let noted = landscape::annotation(&live.metadata, annotation::COMPONENT_DIGEST);
    adopt::without_note(kyma, desired, noted).is_some_and(|desired| matches(&desired, live))
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

/// What follows an upgrade: the Manifest is still being deleted. Fails if the applied object is not a valid Manifest.
pub(super) fn after_upgrade(desired: &Object, live: &Manifest, metadata: &Metadata) -> Result<Act, Failed> {
    let applied: Manifest = serde_json::from_value(desired.value().clone()).map_err(Failed::unreadable)?;
    let mut upgraded = Manifest { spec: applied.spec, ..live.clone() };
    upgraded.metadata.resource_version = Some(metadata.resource_version.clone());
    upgraded.metadata.generation = Some(metadata.generation);
    upgraded.metadata.labels = Some(metadata.labels.clone());
    upgraded.metadata.annotations = Some(metadata.annotations.clone());
    Ok(Act::Keep(Some(Arc::new(upgraded))))
}

/// What follows the release of a former Manifest. `left` are the finalizers of others: while there are any, it exists,
/// and a pass over it would remove its objects.
pub(super) fn after_release(desired: Object, former: Arc<Manifest>, left: &[String]) -> Act {
    if left.is_empty() { Act::Succeed { desired, former } } else { Act::Keep(None) }
}

/// What follows the creation of a successor: it gets the inventory of the former Manifest.
pub(super) fn after_succession(
    desired: Object,
    former: Arc<Manifest>,
    metadata: &Metadata,
    is_created: bool,
) -> Result<Act, Failed> {
    let has_inventory = former.status.as_ref().is_some_and(|status| !status.synced.is_empty());
    match after_apply(desired, None, metadata, is_created)? {
        Act::Keep(Some(successor)) if has_inventory => Ok(Act::Inherit { successor, former }),
        act => Ok(act),
    }
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

/// What follows once the successor of a Manifest of another name has its inventory.
pub(super) fn after_take_over(successor: Arc<Manifest>, former: Arc<Manifest>) -> Act {
    Act::Retire { successor, former }
}

/// What follows once a Manifest whose inventory another one has holds no finalizer of ours.
pub(super) fn after_retire(successor: Arc<Manifest>, former: Arc<Manifest>) -> Act {
    match former.metadata.deletion_timestamp {
        None => Act::End { successor, former },
        Some(_) => Act::Keep(Some(successor)),
    }
}

fn planned_installation(installation: &Installation, channel: &str) -> Planned {
    Planned::Install {
        template: installation.template.clone(),
        template_generation: installation.template_generation,
        channel: channel.to_owned(),
        policy: installation.policy,
        is_cluster_scoped: installation.default_resource_cluster_scoped,
    }
}

/// The decision about a module that the Kyma selects, for its status.
fn planned(outcome: &ModuleOutcome, channel: &str) -> Planned {
    match outcome {
        ModuleOutcome::Install(installation) => planned_installation(installation, channel),
        ModuleOutcome::Wait(wait) => {
            let kept = wait.kept.as_ref();
            let channel = |kept: &Installation| kept.offer.channel().unwrap_or(channel).to_owned();
            Planned::Waiting {
                kept: kept.map(|kept| Box::new(planned_installation(kept, &channel(kept)))),
                for_window: wait.why == WaitFor::Window,
            }
        }
        ModuleOutcome::Refuse(refusal) => {
            Planned::Refused { state: refusal.state, message: refusal.message.clone(), hint: refusal.hint.clone() }
        }
        ModuleOutcome::Unmanage => Planned::Unmanaged,
    }
}

/// Why a mandatory module is not installed as its definition says, and the state that this means. `problem` is why its
/// Manifest was not rendered.
fn refused(outcome: &ModuleOutcome, problem: Option<String>) -> Option<(State, String)> {
    match outcome {
        ModuleOutcome::Install(_) | ModuleOutcome::Wait(_) | ModuleOutcome::Unmanage => {
            problem.map(|problem| (State::Error, problem))
        }
        ModuleOutcome::Refuse(refusal) => {
            let state = if refusal.keep { refusal.state } else { State::Deleting };
            Some((state, sentence(refusal)))
        }
    }
}

/// The message with the hint: mandatory modules have no status that tools compare.
fn sentence(refusal: &Refusal) -> String {
    match &refusal.hint {
        Some(hint) => format!("{}; {hint}", refusal.message),
        None => refusal.message.clone(),
    }
}

/// Whether a live Manifest is as rendered. Other labels, annotations and finalizers of others do not matter.
fn matches(desired: &Object, live: &Manifest) -> bool {
    let Ok(wanted) = serde_json::from_value::<Manifest>(desired.value().clone()) else { return false };
    let holds = |wanted: &Option<BTreeMap<String, String>>, live: &Option<BTreeMap<String, String>>| {
        wanted.iter().flatten().all(|(key, value)| live.as_ref().and_then(|map| map.get(key)) == Some(value))
    };
    let finalizers = |metadata: &ObjectMeta| metadata.finalizers.clone().unwrap_or_default();
    let present = finalizers(&live.metadata);
    // These two labels name where the version is from. Only Tidegate sets them, and each excludes the other.
    let is_equal = |key: &str| landscape::label(&wanted.metadata, key) == landscape::label(&live.metadata, key);
    wanted.spec == live.spec
        && is_equal(label::CHANNEL)
        && is_equal(label::MANDATORY_MODULE)
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

// === impl ModuleStep ===

impl ModuleStep {
    /// A step that concerns one Manifest at most.
    fn alone(name: &str, role: Role, act: Act) -> ModuleStep {
        ModuleStep { name: name.to_owned(), role, act, former: Vec::new(), beside: Vec::new() }
    }

    /// A step of a module that may have had Manifests under other names.
    fn with_others(name: &str, role: Role, act: Act, live: &LiveManifests<'_>) -> ModuleStep {
        let is_new = matches!(act, Act::Apply { live: None, .. });
        let others = || live.get(name).filter(|_| is_new).into_iter().chain(live.others(name)).cloned();
        let former = others().filter(|other| is_replaceable(other)).collect();
        let ends = |other: &Arc<Manifest>| other.metadata.deletion_timestamp.is_some() && !is_replaceable(other);
        let beside = others().filter(ends).collect();
        ModuleStep { former, beside, ..ModuleStep::alone(name, role, act) }
    }
}

#[cfg(test)]
mod tests;
