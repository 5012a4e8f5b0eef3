//! The status of a Kyma and of a Manifest: computed once per pass from its findings, and written
//! only if it differs.
//!
//! Sorted, without a clock: a time only changes together with its value. Texts and the reason
//! `Ready` are Lifecycle Manager's, because tools compare them.

use std::{collections::BTreeSet, sync::Arc};

use k8s_openapi::jiff::Timestamp;

use crate::{
    api::{
        KYMA_GROUP, KYMA_VERSION, Kyma, Manifest,
        kyma::{KymaStatus, ModuleStatus, TrackingMetadata, TrackingObject},
        manifest::{ManifestStatus, SyncedObject},
        names::{annotation, label},
        shared::{Condition, CustomResourcePolicy, LastOperation, State, Time},
    },
    conditions::{self, Status, kyma::Type},
    inventory::Inventory,
    landscape,
    name::Key,
    object::{Digest, Gvk, ObjectId},
    plan::{components::NO_REGISTRY, window::WAITING},
    words::agreeing,
};

/// One module of a runtime after a pass.
#[derive(Clone, Debug)]
pub struct ModuleFact {
    /// Name of the module.
    pub name: String,
    /// The decision of the plan.
    pub planned: Planned,
    /// Its Manifest after the pass, if it exists.
    pub manifest: Option<Arc<Manifest>>,
}

/// The decision of the plan about a module.
#[derive(Clone, Debug, PartialEq)]
pub enum Planned {
    /// The module is installed.
    Install {
        /// Its ModuleTemplate.
        template: Key,
        /// Generation of the ModuleTemplate.
        template_generation: Option<i64>,
        /// Channel.
        channel: String,
        /// Whether Tidegate creates the default custom resource.
        policy: CustomResourcePolicy,
        /// Whether the default custom resource has no namespace.
        is_cluster_scoped: bool,
    },
    /// The installed version stays for a while.
    Waiting {
        /// How it stays; `None` if its ModuleTemplate is gone.
        kept: Option<Box<Planned>>,
        /// Whether it stays until a maintenance window opens. Lifecycle Manager's status says nothing of anything else.
        for_window: bool,
    },
    /// The module is not installed, or stays as it was, for a reason.
    Refused {
        /// `Error` or `Warning`.
        state: State,
        /// The reason, in Lifecycle Manager's words where it has some.
        message: String,
        /// What a user can do about it, if the message does not say it.
        hint: Option<String>,
    },
    /// The user manages the module.
    Unmanaged,
    /// The module is being removed.
    Removing,
}

/// A mandatory module of a runtime after a pass. It takes no part in the state of the Kyma.
#[derive(Clone, Debug)]
pub struct MandatoryFact {
    /// Name of the module.
    pub name: String,
    /// Why it is not installed as its definition says, and the state that this means.
    pub refused: Option<(State, String)>,
    /// Its Manifest after the pass, if it exists.
    pub manifest: Option<Arc<Manifest>>,
}

/// Whether a part of the runtime is as desired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// Not checked in this process, and nothing is recorded.
    #[default]
    Unknown,
    /// As desired.
    Done,
    /// Not yet as desired. Contains what it waits for.
    Waiting(String),
    /// Not as desired. Contains the reason.
    Failed(String),
}

/// Whether upgrades wait for a maintenance window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MaintenanceFact {
    /// The pass did not plan.
    #[default]
    Unknown,
    /// None waits.
    Nothing,
    /// Some wait.
    Waiting {
        /// One of [`conditions::maintenance`].
        reason: &'static str,
        /// When the next window begins, and what waits for it.
        message: String,
    },
}

/// Whether the runtime does not get new versions yet, because they spread step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RolloutFact {
    /// The pass did not plan.
    #[default]
    Unknown,
    /// It has all versions that it may have.
    Nothing,
    /// Some wait.
    Waiting {
        /// One of [`conditions::rollout`].
        reason: &'static str,
        /// What waits, and for what.
        message: String,
    },
}

/// Whether a commit would remove something from the runtime, and waits for a confirmation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RemovalFact {
    /// Not every source has been read, or the pass did not get to it.
    #[default]
    Unknown,
    /// Nothing waits.
    Nothing,
    /// Contains what would be removed, and the command that allows it.
    Waiting(Arc<str>),
}

/// Whether Tidegate receives changes in a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFact {
    /// Whether they are.
    pub status: Status,
    /// The reason.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

// === impl ModuleFact ===

impl ModuleFact {
    /// What a user can do about it, if its message does not say it.
    pub fn hint(&self) -> Option<&str> {
        match &self.planned {
            Planned::Refused { hint, .. } => hint.as_deref(),
            Planned::Install { .. } | Planned::Waiting { .. } | Planned::Unmanaged | Planned::Removing => None,
        }
    }
}

// === impl MandatoryFact ===

impl MandatoryFact {
    /// Its state, and what its Manifest or its definition says about it.
    fn state(&self) -> (State, Option<String>) {
        match (&self.refused, &self.manifest) {
            (Some((state, message)), _) => (*state, Some(message.clone())),
            (None, Some(manifest)) => {
                let ModuleStatus { state, message, .. } = of_manifest(&self.name, manifest);
                (state, message)
            }
            (None, None) => (State::Processing, None),
        }
    }

    /// What is wrong with it, in one sentence; none if it is ready or in progress.
    pub fn problem(&self) -> Option<String> {
        let (state, message) = self.state();
        let message = message.unwrap_or_else(|| format!("it is in state {state}"));
        matches!(state, State::Error | State::Warning).then(|| format!("mandatory module {}: {message}", self.name))
    }
}

// === impl WatchFact ===

impl WatchFact {
    /// No agent is configured.
    pub fn not_configured() -> WatchFact {
        WatchFact {
            status: Status::False,
            reason: conditions::watch::NOT_CONFIGURED,
            message: "no agent is installed: set --skr-watcher-image-tag to receive changes in the runtime at once"
                .to_owned(),
        }
    }
}

/// The findings of a pass about a runtime.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The modules, by name.
    pub modules: Vec<ModuleFact>,
    /// The mandatory modules, by name; `None` if the pass did not get to them.
    pub mandatory: Option<Vec<MandatoryFact>>,
    /// The custom resource definitions in the runtime.
    pub crds: Part,
    /// The module catalog in the runtime.
    pub catalog: Part,
    /// The webhook configuration in the runtime.
    pub webhook: Part,
    /// The image pull Secret of the agent in the runtime, if one is configured.
    pub pull_secret: Option<Part>,
    /// Digest of namespace, CRDs, catalog and webhook, if all of them are applied.
    pub applied: Option<Digest>,
    /// Whether Tidegate receives changes in the runtime.
    pub watch: Option<WatchFact>,
    /// The watch objects, if all of them are applied.
    pub watch_applied: Option<WatchApplied>,
    /// The active channel.
    pub channel: String,
    /// Value of the annotation that requested this pass, which took all steps.
    pub requested: Option<String>,
    /// Value of the annotation that requested this pass, which failed before it took all steps.
    pub tried: Option<String>,
    /// The owner of the module list, in one sentence.
    pub modules_from: Option<ModulesFromFact>,
    /// What waits for a maintenance window.
    pub maintenance: MaintenanceFact,
    /// New versions that the runtime does not get yet.
    pub rollout: RolloutFact,
    /// What a commit would remove and that waits for a confirmation.
    pub removal: RemovalFact,
    /// The installed modules that stay as they are because no registry is configured for them, by name; `None` if the
    /// pass did not get to them.
    pub without_registry: Option<Vec<String>>,
    /// What blocks the whole runtime.
    pub failure: Option<Failure>,
    /// The Kyma is being deleted. Contains what the deletion waits for.
    pub deleting: Option<String>,
}

/// What reports changes in a runtime, as it was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchApplied {
    /// Digest of the objects.
    pub digest: Digest,
    /// Who applied them, in one sentence.
    pub message: String,
}

/// The owner of the module list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModulesFromFact {
    /// `Runtime`, `Git` or `Merge`.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

/// What blocks a whole runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Static, PascalCase.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
    /// Whether the runtime is unreachable or denies access.
    pub access: bool,
}

/// The status of a Kyma after a pass.
pub fn kyma(kyma: &Kyma, facts: &Facts, now: Timestamp) -> KymaStatus {
    let now = seconds(now);
    let before = kyma.status.clone().unwrap_or_default();
    let mut modules: Vec<ModuleStatus> = facts.modules.iter().filter_map(|fact| module(fact, &before)).collect();
    modules.sort_by(|left, right| left.name.cmp(&right.name));
    if facts.failure.as_ref().is_some_and(|failure| failure.access) && facts.deleting.is_none() {
        // Without access, the state of every module is unknown: each has the message of the Kyma.
        modules.iter_mut().for_each(|module| module.state = State::Error);
    }
    let generation = kyma.metadata.generation;
    let conditions = kyma_conditions(&before, facts, &modules, generation, &Time(now));
    let (state, operation) = summary(facts, &modules, &conditions);
    let had_count = conditions::find(&before.conditions, conditions::MODULE_COUNT).is_some();
    let active_channel = match state {
        State::Ready | State::Warning => Some(facts.channel.clone()),
        _ => before.active_channel.clone(),
    };
    let mut status = KymaStatus {
        state,
        active_channel,
        last_operation: Some(operation_at(before.last_operation.as_ref(), operation, now)),
        conditions,
        modules,
    };
    if !had_count {
        // The count alone is no reason to write every status of a landscape that an earlier version left.
        let count = status.conditions.iter().position(|condition| condition.type_ == conditions::MODULE_COUNT);
        let counted = count.map(|position| status.conditions.remove(position));
        if status != before {
            status.conditions.extend(counted);
            status.conditions.sort_by(|one, other| one.type_.cmp(&other.type_));
        }
    }
    status
}

/// How many of the modules that a runtime should have are ready.
fn module_count(modules: &[ModuleStatus]) -> String {
    let wanted = || modules.iter().filter(|module| !matches!(module.state, State::Deleting | State::Unmanaged));
    let ready = wanted().filter(|module| module.state == State::Ready).count();
    match wanted().count() {
        1 => format!("{ready} of 1 module is ready"),
        count => format!("{ready} of {count} modules are ready"),
    }
}

fn kyma_conditions(
    before: &KymaStatus,
    facts: &Facts,
    modules: &[ModuleStatus],
    generation: Option<i64>,
    now: &Time,
) -> Vec<Condition> {
    let mut all = before.conditions.clone();
    conditions::remove(&mut all, conditions::kyma::DEPRECATED);
    let done = modules.iter().all(|module| matches!(module.state, State::Ready | State::Unmanaged));
    conditions::kyma::set(&mut all, Type::Modules, (done && facts.deleting.is_none()).into(), generation, now);
    let mut parts =
        vec![(Type::CrdsSync, &facts.crds), (Type::ModuleCatalog, &facts.catalog), (Type::SkrWebhook, &facts.webhook)];
    match &facts.pull_secret {
        Some(part) => parts.push((Type::SkrImagePullSecretSync, part)),
        // A part that was not processed was not checked.
        None if facts.failure.is_some() || facts.deleting.is_some() => {}
        None => {
            conditions::remove(&mut all, Type::SkrImagePullSecretSync.as_str());
        }
    }
    for (type_, part) in parts {
        let status = match part {
            Part::Done => Status::True,
            Part::Waiting(_) | Part::Failed(_) => Status::False,
            // The result of an earlier pass is the latest known one.
            Part::Unknown if conditions::find(&all, type_.as_str()).is_some() => continue,
            Part::Unknown => Status::Unknown,
        };
        conditions::kyma::set(&mut all, type_, status, generation, now);
    }
    let mut set = |type_: &str, holds: bool, reason: &str, message: &str| {
        conditions::set(&mut all, type_, holds.into(), reason, message, generation, now);
    };
    if let Some(requested) = &facts.requested {
        set(conditions::RECONCILE_REQUESTED, true, conditions::RECONCILE_REQUESTED_REASON, requested);
    }
    if let Some(tried) = &facts.tried {
        set(conditions::RECONCILE_REQUESTED, false, conditions::RECONCILE_FAILED_REASON, tried);
    }
    if let Some(from) = &facts.modules_from {
        set(conditions::MODULES_FROM, true, from.reason, &from.message);
    }
    match &facts.failure {
        Some(failure) if failure.access => set(conditions::REACHABLE, false, failure.reason, &failure.message),
        Some(_) => {}
        None => set(conditions::REACHABLE, true, "Reached", "the runtime is reachable"),
    }
    if let Some(digest) = &facts.applied {
        conditions::record(&mut all, conditions::APPLIED, digest, KYMA_APPLIED, generation, now);
    }
    if let Some(WatchApplied { digest, message }) = &facts.watch_applied {
        conditions::record(&mut all, conditions::WATCH_APPLIED, digest, message, generation, now);
    }
    let count = module_count(modules);
    conditions::set(
        &mut all,
        conditions::MODULE_COUNT,
        Status::True,
        conditions::MODULE_COUNT_REASON,
        &count,
        generation,
        now,
    );
    let mut hints = hints(&facts.modules);
    // A pass that failed may know nothing new.
    if facts.failure.is_none() || !hints.is_empty() {
        hints.extend(mandatory_hints(facts, conditions::message(&all, conditions::HINTS).unwrap_or_default()));
        hints.sort();
        let (message, reason) = (hints.join("; "), conditions::HINTS_REASON);
        if hints.is_empty() {
            conditions::remove(&mut all, conditions::HINTS);
        } else {
            conditions::set(&mut all, conditions::HINTS, Status::True, reason, &message, generation, now);
        }
    }
    match facts.mandatory.as_deref() {
        None => {}
        Some([]) => {
            conditions::remove(&mut all, conditions::MANDATORY_MODULES);
        }
        Some(modules) => {
            let (reason, message) = mandatory(modules);
            let holds = reason == conditions::MANDATORY_READY;
            conditions::set(&mut all, conditions::MANDATORY_MODULES, holds.into(), reason, &message, generation, now);
        }
    }
    match &facts.maintenance {
        MaintenanceFact::Unknown => {}
        MaintenanceFact::Waiting { reason, message } => {
            conditions::set(&mut all, conditions::MAINTENANCE_WINDOW, Status::False, reason, message, generation, now);
        }
        MaintenanceFact::Nothing => {
            conditions::remove(&mut all, conditions::MAINTENANCE_WINDOW);
        }
    }
    match &facts.rollout {
        RolloutFact::Unknown => {}
        RolloutFact::Waiting { reason, message } => {
            conditions::set(&mut all, conditions::ROLLOUT, Status::False, reason, message, generation, now);
        }
        RolloutFact::Nothing => {
            conditions::remove(&mut all, conditions::ROLLOUT);
        }
    }
    match &facts.removal {
        RemovalFact::Unknown => {}
        RemovalFact::Waiting(message) => {
            let reason = conditions::REMOVAL_REASON;
            conditions::set(&mut all, conditions::REMOVAL, Status::False, reason, message, generation, now);
        }
        RemovalFact::Nothing => {
            conditions::remove(&mut all, conditions::REMOVAL);
        }
    }
    match facts.without_registry.as_deref() {
        None => {}
        Some([]) => {
            conditions::remove(&mut all, conditions::REGISTRY);
        }
        Some(modules) => {
            let (reason, message) = (conditions::REGISTRY_REASON, without_registry(modules));
            conditions::set(&mut all, conditions::REGISTRY, Status::False, reason, &message, generation, now);
        }
    }
    if let Some(WatchFact { status, reason, message }) = &facts.watch {
        conditions::set(&mut all, conditions::WATCH, *status, reason, message, generation, now);
    }
    all
}

/// What stays as it is without a registry, and what to configure.
fn without_registry(modules: &[String]) -> String {
    let stay = agreeing(modules.len(), "module stays as it is and is", "modules stay as they are and are");
    format!("{} installed {stay} not checked ({}): {NO_REGISTRY}", modules.len(), modules.join(", "))
}

/// What a user can do about modules that are not installed as requested, and what modules wait for.
fn hints(modules: &[ModuleFact]) -> Vec<String> {
    let of_manifest = |fact: &ModuleFact| {
        let manifest = fact.manifest.as_deref()?;
        let waits = waits_for(manifest);
        let is_wanted = matches!(fact.planned, Planned::Install { .. });
        if !is_wanted || manifest.metadata.deletion_timestamp.is_none() {
            return waits;
        }
        let which = |waits: &str| if waits.starts_with(PAUSED) { ", which is" } else { ", which" };
        let waits = waits.map(|waits| format!("{} {waits}", which(&waits))).unwrap_or_default();
        Some(format!("selected again; Tidegate installs it after its removal{waits}"))
    };
    let hint = |fact: &ModuleFact| fact.hint().map(str::to_owned).or_else(|| of_manifest(fact));
    modules.iter().filter_map(|fact| Some(format!("module {}: {}", fact.name, hint(fact)?))).collect()
}

/// Which mandatory modules are paused, and what to do about it. What else they wait for, their condition says. `before`
/// are the hints so far: a pass that does not get to the mandatory modules leaves theirs.
fn mandatory_hints(facts: &Facts, before: &str) -> Vec<String> {
    let Some(modules) = &facts.mandatory else {
        let is_selected = |name: &str| facts.modules.iter().any(|module| module.name == name);
        let known = split_hints(before).into_iter();
        let known = known.filter(|(name, what)| what.starts_with(PAUSED) && !is_selected(name));
        return known.map(|(name, what)| format!("module {name}: {what}")).collect();
    };
    let hint = |module: &MandatoryFact| {
        let manifest = module.manifest.as_deref().filter(|manifest| is_paused(manifest))?;
        Some(format!("module {}: {}", module.name, paused(manifest)))
    };
    modules.iter().filter_map(hint).collect()
}

/// The hints of a Kyma, each with its module. `hints` is the message of [`conditions::HINTS`].
pub fn split_hints(hints: &str) -> Vec<(&str, &str)> {
    let (mut found, mut rest) = (Vec::new(), hints);
    while !rest.is_empty() {
        let end = rest.find(HINT_SEPARATOR).unwrap_or(rest.len());
        let (hint, after) = rest.split_at(end);
        rest = after.strip_prefix("; ").unwrap_or(after);
        found.extend(hint.strip_prefix("module ").and_then(|hint| hint.split_once(": ")));
    }
    found
}

/// What separates the hints of two modules.
const HINT_SEPARATOR: &str = "; module ";

/// The modules of a Kyma whose pause holds back a change or their removal, each with its hint.
pub fn held_by_pauses(conditions: &[Condition]) -> Vec<(&str, &str)> {
    let mut found = split_hints(conditions::message(conditions, conditions::HINTS).unwrap_or_default());
    found.retain(|(_, what)| what.starts_with(PAUSED) && what.contains(HOLDS_BACK));
    found
}

/// The modules of a Kyma whose removal waits until users delete their custom resources, each with its hint.
pub fn held_by_users(conditions: &[Condition]) -> Vec<(&str, &str)> {
    let mut found = split_hints(conditions::message(conditions, conditions::HINTS).unwrap_or_default());
    found.retain(|(_, what)| what.ends_with(BY_USERS));
    found
}

/// How the text ends that says which custom resources a removal waits for, if users must delete them.
pub const BY_USERS: &str = " by their users";

/// Whether a user has paused a Manifest.
pub fn is_paused(manifest: &Manifest) -> bool {
    landscape::label(&manifest.metadata, label::SKIP_RECONCILIATION) == Some("true")
}

/// How the hint about a module begins whose Manifest is paused.
pub const PAUSED: &str = "paused by the label ";
/// How it continues if there is something to do for the module.
const HOLDS_BACK: &str = ", which holds back ";

/// Which label pauses a Manifest, what that holds back, and how to continue.
fn paused(manifest: &Manifest) -> String {
    let state = manifest.status.as_ref().map(|status| status.state).unwrap_or_default();
    let held = if manifest.metadata.deletion_timestamp.is_some() {
        format!("{HOLDS_BACK}its removal")
    } else if is_outdated(manifest) || matches!(state, State::Unknown | State::Processing) {
        format!("{HOLDS_BACK}a change")
    } else {
        String::new()
    };
    let (label, key) = (label::SKIP_RECONCILIATION, landscape::key(&manifest.metadata));
    let command = format!("kubectl label manifest {} -n {} {label}-", key.name(), key.namespace());
    format!("{PAUSED}{label} of its Manifest{held}; to continue, run `{command}`")
}

/// How [`waits_for`] begins, unless the module is paused.
pub(crate) const WAITS: &str = "waits ";

/// What a module waits for, and since when; or what pauses it.
pub(crate) fn waits_for(manifest: &Manifest) -> Option<String> {
    if is_paused(manifest) {
        return Some(paused(manifest));
    }
    let status = manifest.status.as_ref()?;
    let what = conditions::message(&status.conditions, conditions::WAITS_FOR)?;
    let since = status.last_operation.as_ref().and_then(|last| last.last_update_time.as_ref());
    let since = since.map(|since| format!("since {} ", since.0)).unwrap_or_default();
    Some(format!("{WAITS}{since}for {what}"))
}

/// Reason and message of the condition about mandatory modules. Problems come first.
fn mandatory(modules: &[MandatoryFact]) -> (&'static str, String) {
    let problems: Vec<String> = modules.iter().filter_map(MandatoryFact::problem).collect();
    if !problems.is_empty() {
        return (conditions::MANDATORY_FAILED, problems.join("; "));
    }
    let (ready, waiting): (Vec<_>, Vec<_>) = modules.iter().partition(|module| module.state().0 == State::Ready);
    if waiting.is_empty() {
        let names: Vec<&str> = ready.iter().map(|module| module.name.as_str()).collect();
        return (conditions::MANDATORY_READY, format!("mandatory modules are ready: {}", names.join(", ")));
    }
    let waits = |module: &&MandatoryFact| match module.manifest.as_deref().and_then(waits_for) {
        Some(waits) => format!("{} ({waits})", module.name),
        None => module.name.clone(),
    };
    let waiting: Vec<String> = waiting.iter().map(waits).collect();
    (conditions::MANDATORY_PROCESSING, format!("waiting for mandatory modules: {}", waiting.join(", ")))
}

/// The state and message of the Kyma. Errors come first, then warnings, then modules in progress;
/// conditions come last.
fn summary(facts: &Facts, modules: &[ModuleStatus], conditions: &[Condition]) -> (State, String) {
    if let Some(waiting) = &facts.deleting {
        return (State::Deleting, waiting.clone());
    }
    if let Some(failure) = &facts.failure {
        return (State::Error, failure.message.clone());
    }
    let failed: Vec<&str> = [&facts.crds, &facts.catalog, &facts.webhook]
        .into_iter()
        .filter_map(|part| match part {
            Part::Failed(message) => Some(message.as_str()),
            Part::Unknown | Part::Done | Part::Waiting(_) => None,
        })
        .collect();
    if !failed.is_empty() {
        return (State::Error, failed.join("; "));
    }
    let any = |state: State| modules.iter().any(|module| module.state == state);
    if any(State::Error) {
        let messages: Vec<String> = modules
            .iter()
            .filter(|module| module.state == State::Error)
            .map(|module| match &module.message {
                Some(message) => format!("module {}: {message}", module.name),
                None => format!("module {} is in error state", module.name),
            })
            .collect();
        return (State::Error, messages.join("; "));
    }
    let waiting = if any(State::Deleting) {
        "waiting for modules to be deleted"
    } else {
        "waiting for all modules to become ready"
    };
    if any(State::Warning) {
        return (State::Warning, waiting.to_owned());
    }
    let hold = [Type::CrdsSync, Type::ModuleCatalog, Type::Modules, Type::SkrWebhook]
        .iter()
        .all(|type_| conditions::is_true(conditions, type_.as_str()));
    if any(State::Processing) || any(State::Unknown) || !hold {
        return (State::Processing, waiting.to_owned());
    }
    (State::Ready, "kyma is ready".to_owned())
}

/// The status of one module. `None` once a module that is being removed has no Manifest any more.
fn module(fact: &ModuleFact, before: &KymaStatus) -> Option<ModuleStatus> {
    let previous = before.modules.iter().find(|module| module.name == fact.name).cloned();
    let installed = fact.manifest.as_deref().map(|manifest| of_manifest(&fact.name, manifest));
    match &fact.planned {
        Planned::Install { template, template_generation, channel, policy, is_cluster_scoped } => {
            let base = installed.unwrap_or_else(|| ModuleStatus {
                name: fact.name.clone(),
                channel: Some(channel.clone()),
                state: State::Processing,
                ..ModuleStatus::default()
            });
            Some(ModuleStatus {
                template: Some(reference("ModuleTemplate", template, *template_generation)),
                resource: fact
                    .manifest
                    .as_deref()
                    .and_then(|manifest| default_resource(manifest, *policy, *is_cluster_scoped)),
                ..base
            })
        }
        Planned::Waiting { kept, for_window } => {
            let base = match kept {
                Some(kept) => module(&ModuleFact { planned: Planned::clone(kept), ..fact.clone() }, before)?,
                None => ModuleStatus { template: previous.and_then(|module| module.template), ..installed? },
            };
            if !for_window {
                return Some(base);
            }
            // What is wrong with the installed version is not hidden.
            let message = match base.state {
                State::Error | State::Warning | State::Deleting => base.message.clone(),
                State::Ready | State::Processing | State::Unmanaged | State::Unknown => None,
            };
            Some(ModuleStatus { maintenance: true, message: message.or_else(|| Some(WAITING.to_owned())), ..base })
        }
        Planned::Refused { state, message, hint: _ } => {
            // The installed version stays; the message says why no newer one is installed.
            let base = installed
                .or(previous)
                .unwrap_or_else(|| ModuleStatus { name: fact.name.clone(), ..ModuleStatus::default() });
            Some(ModuleStatus { state: *state, message: Some(message.clone()), ..base })
        }
        Planned::Unmanaged => Some(ModuleStatus {
            state: State::Unmanaged,
            manifest: None,
            resource: None,
            template: None,
            message: None,
            ..installed
                .or(previous)
                .unwrap_or_else(|| ModuleStatus { name: fact.name.clone(), ..ModuleStatus::default() })
        }),
        Planned::Removing => {
            let installed = installed?;
            Some(ModuleStatus {
                state: State::Deleting,
                template: previous.and_then(|module| module.template),
                ..installed
            })
        }
    }
}

fn of_manifest(module: &str, manifest: &Manifest) -> ModuleStatus {
    let status = manifest.status.as_ref();
    let metadata = &manifest.metadata;
    let annotation = |key: &str| metadata.annotations.as_ref().and_then(|map| map.get(key)).cloned();
    let state = match status.map(|status| status.state) {
        None | Some(State::Unknown) => State::Processing,
        // It was ready before, and no pass has processed the new specification yet.
        Some(State::Ready | State::Warning) if is_outdated(manifest) => State::Processing,
        Some(state) => state,
    };
    let message = status
        .filter(|_| matches!(state, State::Error | State::Warning | State::Deleting))
        .and_then(|status| status.last_operation.as_ref())
        .map(|last| last.operation.clone());
    ModuleStatus {
        name: module.to_owned(),
        fqdn: annotation(annotation::FQDN),
        ocm_component_name: annotation(annotation::OCM_COMPONENT_NAME),
        channel: metadata.labels.as_ref().and_then(|labels| labels.get(label::CHANNEL)).cloned(),
        version: manifest.spec.version.clone(),
        message,
        state,
        maintenance: false,
        manifest: Some(TrackingObject {
            api_version: Some(format!("{KYMA_GROUP}/{KYMA_VERSION}")),
            kind: Some("Manifest".to_owned()),
            metadata: TrackingMetadata {
                name: metadata.name.clone().unwrap_or_default(),
                namespace: metadata.namespace.clone().unwrap_or_default(),
                generation: metadata.generation,
            },
        }),
        resource: None,
        template: None,
    }
}

/// Whether the status of a Manifest is for an earlier specification.
pub fn is_outdated(manifest: &Manifest) -> bool {
    let conditions = manifest.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let said = conditions::find(conditions, conditions::manifest::Type::Installation.as_str());
    let observed = said.and_then(|condition| condition.observed_generation);
    matches!((observed, manifest.metadata.generation), (Some(observed), Some(now)) if observed < now)
}

fn reference(kind: &str, key: &Key, generation: Option<i64>) -> TrackingObject {
    TrackingObject {
        api_version: Some(format!("{KYMA_GROUP}/{KYMA_VERSION}")),
        kind: Some(kind.to_owned()),
        metadata: TrackingMetadata { name: key.name().to_owned(), namespace: key.namespace().to_owned(), generation },
    }
}

/// The default custom resource. A cluster-scoped one has no namespace, whatever the Manifest says.
fn default_resource(
    manifest: &Manifest,
    policy: CustomResourcePolicy,
    is_cluster_scoped: bool,
) -> Option<TrackingObject> {
    if policy == CustomResourcePolicy::Ignore {
        return None;
    }
    let resource = manifest.spec.resource.as_ref()?;
    let text = |pointer: &str| resource.pointer(pointer).and_then(serde_json::Value::as_str);
    let gvk = Gvk::from_api_version(text("/apiVersion")?, text("/kind")?);
    Some(TrackingObject {
        api_version: Some(gvk.api_version()),
        kind: Some(gvk.kind.to_string()),
        metadata: TrackingMetadata {
            name: text("/metadata/name").unwrap_or_default().to_owned(),
            namespace: text("/metadata/namespace").filter(|_| !is_cluster_scoped).unwrap_or_default().to_owned(),
            generation: None,
        },
    })
}

/// The state of a module in its runtime after a pass over its Manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestOutcome {
    /// Everything is applied and the workloads are ready.
    Ready,
    /// Everything is applied. Contains what the module waits for.
    Waiting(String),
    /// The workload failed, or an object could not be applied.
    Failed(String),
    /// Another client in the runtime undoes an object again and again, so its repair may wait. Contains a sentence.
    Contested(String),
    /// The source of the objects cannot be read. Nothing was changed.
    SourceUnavailable(String),
    /// The module is being removed. Contains what the removal waits for.
    Deleting(String),
    /// Nothing was read or changed, so the conditions stay. Contains why.
    Blocked(String),
}

/// The findings of a pass about a Manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFacts {
    /// Its state.
    pub outcome: ManifestOutcome,
    /// The inventory.
    pub synced: Vec<SyncedObject>,
    /// Digest of the objects, if all of them are applied.
    pub applied: Option<Digest>,
    /// Whether the default custom resource was created. `None` if Tidegate does not create it.
    pub module_resource: Option<bool>,
    /// Value of the annotation that requested this pass.
    pub requested: Option<String>,
    /// What the module waits for.
    pub waits_for: WaitFact,
    /// The objects of the inventory that have never existed, because the API server refuses them. `None` if the pass
    /// has not looked.
    pub not_created: Option<Vec<ObjectId>>,
}

/// What a module waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WaitFact {
    /// The pass has not looked.
    #[default]
    Unknown,
    /// Nothing, or it waits only since a moment.
    Nothing,
    /// The first object, how many more there are, and what it lacks.
    For(String),
}

/// The status of a Manifest after a pass.
pub fn manifest(manifest: &Manifest, facts: &ManifestFacts, now: Timestamp) -> ManifestStatus {
    let now = seconds(now);
    let before = manifest.status.clone().unwrap_or_default();
    let generation = manifest.metadata.generation;
    let now = Time(now);
    let (state, operation) = match &facts.outcome {
        ManifestOutcome::Ready => (State::Ready, INSTALLED.to_owned()),
        ManifestOutcome::Waiting(what) => (State::Processing, what.clone()),
        ManifestOutcome::Failed(message) | ManifestOutcome::SourceUnavailable(message) => {
            (State::Error, message.clone())
        }
        ManifestOutcome::Contested(message) => (State::Warning, message.clone()),
        ManifestOutcome::Deleting(what) => (State::Deleting, what.clone()),
        ManifestOutcome::Blocked(why) => (State::Error, why.clone()),
    };
    let mut all = before.conditions.clone();
    if !matches!(facts.outcome, ManifestOutcome::Deleting(_) | ManifestOutcome::Blocked(_)) {
        use conditions::manifest::{Type, set};
        let is_unavailable = matches!(facts.outcome, ManifestOutcome::SourceUnavailable(_));
        let reason = is_unavailable.then_some("SourceUnavailable");
        set(&mut all, Type::Resources, !is_unavailable, reason, generation, &now);
        set(&mut all, Type::Installation, matches!(state, State::Ready | State::Warning), None, generation, &now);
        if let Some(created) = facts.module_resource {
            set(&mut all, Type::ModuleCr, created, None, generation, &now);
        }
    }
    let mut set = |type_: &str, holds: bool, reason: &str, message: &str| {
        conditions::set(&mut all, type_, holds.into(), reason, message, generation, &now);
    };
    if let Some(requested) = &facts.requested {
        // A pass without the objects of the module has done nothing: the request stays open.
        let reason = match &facts.outcome {
            ManifestOutcome::SourceUnavailable(_) | ManifestOutcome::Blocked(_) => conditions::RECONCILE_FAILED_REASON,
            ManifestOutcome::Ready
            | ManifestOutcome::Waiting(_)
            | ManifestOutcome::Failed(_)
            | ManifestOutcome::Contested(_)
            | ManifestOutcome::Deleting(_) => conditions::RECONCILE_REQUESTED_REASON,
        };
        let is_handled = reason == conditions::RECONCILE_REQUESTED_REASON;
        set(conditions::RECONCILE_REQUESTED, is_handled, reason, requested);
    }
    if let Some(digest) = &facts.applied {
        conditions::record(&mut all, conditions::APPLIED, digest, MANIFEST_APPLIED, generation, &now);
    }
    match &facts.waits_for {
        WaitFact::Unknown => {}
        WaitFact::Nothing => {
            conditions::remove(&mut all, conditions::WAITS_FOR);
        }
        WaitFact::For(what) => {
            let (type_, reason) = (conditions::WAITS_FOR, conditions::WAITS_FOR_REASON);
            conditions::set(&mut all, type_, Status::True, reason, what, generation, &now);
        }
    }
    if let Some(ids) = &facts.not_created {
        let named: Vec<String> = ids.iter().take(NOT_CREATED_MAX).map(ObjectId::to_string).collect();
        if named.is_empty() {
            conditions::remove(&mut all, conditions::NOT_CREATED);
        } else {
            let (type_, reason) = (conditions::NOT_CREATED, conditions::NOT_CREATED_REASON);
            conditions::set(&mut all, type_, Status::True, reason, &named.join(", "), generation, &now);
        }
    }
    let mut synced = facts.synced.clone();
    synced.sort();
    ManifestStatus {
        state,
        conditions: all,
        last_operation: Some(operation_at(before.last_operation.as_ref(), operation, now.0)),
        synced,
    }
}

/// Most objects that [`conditions::NOT_CREATED`] names. Of the others it is assumed that they exist, so their removal
/// is asked for.
const NOT_CREATED_MAX: usize = 50;

/// Whether a runtime has had an object, according to the Manifest of a module that wants it. One without a status has
/// lost it, so it may have every object.
pub fn has_had(manifest: &Manifest, id: &ObjectId) -> bool {
    let Some(status) = &manifest.status else { return true };
    let is_recorded = Inventory::from_status(&status.synced).contains(id);
    is_recorded && !not_created(manifest).contains(id.to_string().as_str())
}

/// The objects of the inventory that have never existed, as texts.
pub fn not_created(manifest: &Manifest) -> BTreeSet<&str> {
    let conditions = manifest.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    conditions::message(conditions, conditions::NOT_CREATED).into_iter().flat_map(|all| all.split(", ")).collect()
}

/// The message of the condition that records what was applied for a Kyma.
const KYMA_APPLIED: &str = "namespace, CRDs and catalog of this digest were applied to the runtime";
/// The message of the condition that records what was applied for a Manifest.
const MANIFEST_APPLIED: &str = "all objects of this digest were applied to the runtime";
/// The message of a Manifest that is ready.
pub const INSTALLED: &str = "installation is ready and resources can be used";
/// The message of a Manifest whose workloads are starting.
pub const WAITING_FOR_RESOURCES: &str = "waiting for resources to become ready";
/// The message of a Manifest with a workload that failed.
pub const WORKLOAD_FAILED: &str = "manager is in error state";
/// The message of a Manifest while users' custom resources block its removal.
pub const WAITING_FOR_MODULE_RESOURCES: &str = "waiting for module crs deletion";

/// The message of the last pass, with the time of its first occurrence.
pub fn operation_at(before: Option<&LastOperation>, operation: String, now: Timestamp) -> LastOperation {
    match before {
        Some(before) if before.operation == operation && before.last_update_time.is_some() => before.clone(),
        _ => LastOperation { operation, last_update_time: Some(Time(seconds(now))) },
    }
}

/// The API stores times in seconds; a finer comparison would always differ.
pub fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests;
