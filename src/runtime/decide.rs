//! What a pass over a runtime does, and what it reports. Pure: it reads and sends nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tidegate_cluster::Kind;
use tidegate_core::{
    api::{
        Kyma, Manifest, ModuleReleaseMeta,
        kyma::{KymaSpec, KymaStatus, Module, ModuleStatus},
        names::{MANAGED_BY_KCP, annotation, finalizer, label},
        shared::{ObjectMeta, State},
    },
    conditions,
    landscape::{self, Landscape, Switch},
    name::Key,
    object::Gvk,
    plan::{
        self, HeldVersion, ModuleOutcome, ModulesFrom, RuntimePlan, Wait, WaitFor,
        rollout::{self, Hold, Line, Policy, Upgrade},
    },
    status::{
        self, Facts, MaintenanceFact, MandatoryFact, ModuleFact, ModulesFromFact, Planned, RemovalFact, RolloutFact,
    },
};
use tidegate_process::retry::Class;
use tokio::time::Instant;

use super::{
    base,
    counterpart::KnownCounterpart,
    manifest, manifests,
    outcome::{Failed, FailedKind, NotReached},
    reporting,
    state::{AccessVersion, Request},
};
use crate::{
    controller::{
        Failure, Pass,
        events::{Severity, reason},
    },
    queue::{Finish, Trigger, Triggers},
};

/// What a pass over a runtime is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Its Kyma is being deleted: the pass removes what it installed.
    Remove,
    /// A user has paused it: the pass does nothing.
    Leave,
    /// The pass reconciles the runtime with its Kyma.
    Install,
}

/// What a pass checks in the runtime itself. Otherwise it relies on its knowledge and on the statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    /// Nothing.
    Nothing,
    /// The Kyma.
    Kyma,
    /// All objects with our ownership label.
    Everything,
}

/// A new problem, which is reported once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News<'a> {
    /// Tidegate cannot reconcile the runtime.
    Runtime(&'a status::Failure),
    /// A module is unhealthy. The message is one sentence, and the hint says what a user can do.
    Module { name: &'a str, message: &'a str, hint: Option<&'a str> },
    /// A module is not installed as its Kyma asks for.
    Refused { name: &'a str, message: &'a str, hint: Option<&'a str> },
    /// A mandatory module is unhealthy. Contains one sentence.
    Mandatory(String),
    /// The removal of a module waits until users delete their custom resources. Contains the hint that names them.
    Held { name: &'a str, hint: &'a str },
}

/// What a pass over a runtime is for.
pub(super) fn start(kyma: &Kyma) -> Start {
    if kyma.metadata.deletion_timestamp.is_some() {
        Start::Remove
    } else if is_skipped(kyma) {
        Start::Leave
    } else {
        Start::Install
    }
}

pub(super) fn is_skipped(kyma: &Kyma) -> bool {
    landscape::is_skipped(&kyma.metadata)
}

/// What a pass checks in the runtime: a user may have changed it, or asks for a check. `is_due` is whether a resync
/// checks everything.
pub(super) fn scope(triggers: Triggers, is_due: bool, kyma: &Kyma, manifests: &[Arc<Manifest>]) -> Scope {
    let is_asked_for = requested(kyma).is_some_and(|requested| Some(requested.as_str()) != handled(kyma))
        || manifests.iter().any(|manifest| manifest::is_asked_for(manifest));
    let asked = if is_asked_for { Scope::Everything } else { Scope::Nothing };
    let triggered = triggers.iter().map(|trigger| match trigger {
        Trigger::Drift => Scope::Everything,
        Trigger::Resync if is_due => Scope::Everything,
        // The agent has reported a change of the Kyma.
        Trigger::Reported => Scope::Kyma,
        Trigger::Resync | Trigger::Changed | Trigger::Requested | Trigger::Git | Trigger::Push | Trigger::Retry => {
            Scope::Nothing
        }
    });
    triggered.fold(asked, Scope::max)
}

/// Whether the pass reads the Kyma in the runtime: it may have changed, or the runtime has not answered yet with this
/// access Secret. Without that request, a Secret that leads nowhere would be noticed minutes later.
pub(super) fn must_read_kyma(scope: Scope, answered: Option<&AccessVersion>, access: &AccessVersion) -> bool {
    Scope::Kyma <= scope || answered != Some(access)
}

/// Whether the pass sends requests to a runtime that could not be reached a moment ago: a user asks for it.
pub(super) fn passes_breaker(triggers: Triggers) -> bool {
    triggers.contains(Trigger::Requested)
}

/// Whether the pass checks the webhook configurations, whose changes are not reported.
pub(super) fn checks_webhooks(scope: Scope, is_resync: bool) -> bool {
    is_resync && scope != Scope::Everything
}

/// What a pass checks in the runtime, once it knows whether the webhook configurations have changed.
pub(super) fn scope_after_webhooks(scope: Scope, have_changed: bool) -> Scope {
    if have_changed { Scope::Everything } else { scope }
}

/// What a pass checks in the runtime, once it knows whether the Kyma in the runtime exists. If it does not although the
/// runtime was installed, its definition may be gone, and others with it: only a check of all objects shows that.
pub(super) fn scope_after_read(scope: Scope, counterpart: Option<&Kyma>, kyma: &Kyma) -> Scope {
    let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let was_installed = conditions::find(conditions, conditions::APPLIED).is_some();
    if counterpart.is_none() && was_installed { Scope::Everything } else { scope }
}

/// Whether the pass may check what is not reported.
pub(super) fn is_resync(triggers: Triggers) -> bool {
    triggers.contains(Trigger::Resync)
}

/// The last requested pass that took all steps.
fn handled(kyma: &Kyma) -> Option<&str> {
    conditions::message(&kyma.status.as_ref()?.conditions, conditions::RECONCILE_REQUESTED)
}

/// The requested pass, whether or not it has already taken place.
pub(super) fn requested(kyma: &Kyma) -> Option<String> {
    landscape::annotation(&kyma.metadata, annotation::RECONCILE_REQUESTED_AT).map(str::to_owned)
}

/// The request of a user that is not handled yet, with the time when this process first saw it.
pub(super) fn pending_request(kyma: &Kyma, former: Option<Request>, now: Instant) -> Option<Request> {
    let value = requested(kyma).filter(|requested| Some(requested.as_str()) != handled(kyma))?;
    Some(former.filter(|former| former.value == value).unwrap_or(Request { value, since: now }))
}

/// The requested pass for the status, after a pass that took all steps. While it waits for a registry, the request is
/// not handled.
pub(super) fn handled_by_pass(kyma: &Kyma, is_waiting: bool) -> Option<String> {
    if is_waiting { handled(kyma).map(str::to_owned) } else { requested(kyma) }
}

/// The patch that adds our finalizer and label to the Kyma in KCP; none if it has both.
pub(super) fn charge_patch(kyma: &Kyma) -> Option<Value> {
    let metadata = &kyma.metadata;
    let mut finalizers = metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != finalizer::KYMA_PURGE);
    if !finalizers.iter().any(|name| name == finalizer::KYMA) {
        finalizers.push(finalizer::KYMA.to_owned());
    }
    let is_labelled = landscape::label(metadata, label::MANAGED_BY) == Some(MANAGED_BY_KCP);
    if is_labelled && metadata.finalizers.as_ref() == Some(&finalizers) {
        return None;
    }
    Some(json!({"metadata": {
        "labels": {label::MANAGED_BY: MANAGED_BY_KCP},
        "finalizers": finalizers,
        "resourceVersion": metadata.resource_version,
    }}))
}

/// Whether a Kyma is new in KCP, while its runtime has one that shows a status: the Kyma was deleted together with its
/// definition. What the runtime has is then compared, and not applied again.
pub(super) fn is_resumed(kyma: &Kyma, counterpart: Option<&Kyma>) -> bool {
    let is_reconciled = |kyma: &Kyma| kyma.status.as_ref().is_some_and(|status| status.state != State::Unknown);
    !is_reconciled(kyma) && counterpart.is_some_and(is_reconciled)
}

/// The Kyma whose status a new one continues: a Kyma without a status has the one that its runtime shows. So the times
/// of its conditions stay.
pub(super) fn continued(mut kyma: Kyma, counterpart: Option<&Kyma>) -> Kyma {
    if is_resumed(&kyma, counterpart) {
        kyma.status = counterpart.and_then(|kyma| kyma.status.clone());
    }
    kyma
}

/// The failure that the Kyma in the runtime cannot be read; none if it can.
pub(super) fn unreadable_counterpart(known: &KnownCounterpart) -> Option<status::Failure> {
    let problem = known.problem()?;
    let message = format!("{problem}; its last readable state stays in use");
    Some(status::Failure { reason: "UnreadableKyma", message, access: false })
}

/// The kinds of all objects that Tidegate applies in the runtime, each in one version.
pub(super) fn kinds(manifests: &[Arc<Manifest>], has_agent: bool, has_pull_secret: bool) -> Vec<Gvk> {
    let mut kinds: Vec<Gvk> = base::kinds(has_pull_secret);
    kinds.extend(reporting::kinds(has_agent));
    let synced = manifests.iter().filter_map(|manifest| manifest.status.as_ref()).flat_map(|status| &status.synced);
    kinds.extend(synced.map(|synced| Gvk::new(&synced.group, &synced.version, &synced.kind)));
    kinds.sort();
    kinds.dedup_by(|one, other| one.group == other.group && one.kind == other.kind);
    kinds
}

/// Who selects the modules, and which edits were reverted last.
pub(super) fn modules_from(kyma: &Kyma, mode: plan::ModulesFrom, reverted: &[String]) -> ModulesFromFact {
    let (reason, message) = match mode {
        plan::ModulesFrom::Runtime => ("Runtime", "the Kyma in the runtime decides the modules"),
        plan::ModulesFrom::Git => {
            ("Git", "the Kyma in the control plane decides the modules; edits in the runtime are reverted")
        }
        plan::ModulesFrom::Merge => {
            ("Merge", "modules of the Kyma in the control plane stay; others may be added in the runtime")
        }
    };
    if !reverted.is_empty() {
        return ModulesFromFact { reason, message: format!("{message}; last reverted: {}", reverted.join(", ")) };
    }
    // The status names reverted edits until the next ones, so that their author finds them. What an earlier spec has
    // reverted may be what the present one says.
    let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let before = conditions::find(conditions, conditions::MODULES_FROM)
        .filter(|before| before.observed_generation == kyma.metadata.generation)
        .map(|before| before.message.as_str());
    let message = before.filter(|before| before.starts_with(message)).unwrap_or(message);
    ModulesFromFact { reason, message: message.to_owned() }
}

/// What becomes of the runtime after a pass that took all steps. `window` is when its maintenance window is checked.
pub(super) fn finish(again: impl IntoIterator<Item = Option<Duration>>, window: Option<Duration>) -> Finish {
    match (again.into_iter().flatten().min(), window) {
        (Some(delay), window) if window.is_none_or(|window| delay <= window) => Finish::After(delay, Trigger::Retry),
        // It is as desired until then.
        (_, Some(window)) => Finish::After(window, Trigger::Resync),
        (_, None) => Finish::Done,
    }
}

/// The ModuleReleaseMetas that are being deleted, and whose mandatory modules the Manifests install.
pub(super) fn deleted_releases(
    landscape: &Landscape,
    namespace: &str,
    manifests: &[Arc<Manifest>],
) -> Vec<Arc<ModuleReleaseMeta>> {
    let modules = manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_none());
    let modules: BTreeSet<&str> = modules.filter_map(|manifest| manifests::module_of(&manifest.metadata)).collect();
    let releases = modules.into_iter().filter_map(|module| landscape.releases.get(&Key::new(namespace, module)));
    let is_deleted = |release: &&Arc<ModuleReleaseMeta>| {
        release.metadata.deletion_timestamp.is_some() && plan::is_mandatory_release(release)
    };
    releases.filter(is_deleted).cloned().collect()
}

/// The Manifests of mandatory modules that end although the pass failed: the runtime has no access Secret, and their
/// ModuleReleaseMetas are being deleted. As with Lifecycle Manager, what is in the runtime stays there.
pub(super) fn to_abandon(
    failed: &Failed,
    landscape: &Landscape,
    namespace: &str,
    manifests: &[Arc<Manifest>],
) -> Vec<Arc<Manifest>> {
    match failed.kind {
        FailedKind::NoAccess => {}
        FailedKind::Wrong | FailedKind::Unreachable | FailedKind::BadAccess | FailedKind::Stale => return Vec::new(),
    }
    let is_ended = |manifest: &&Arc<Manifest>| {
        let module = manifests::module_of(&manifest.metadata).unwrap_or_default();
        let release = landscape.releases.get(&Key::new(namespace, module));
        plan::is_mandatory(&manifest.metadata)
            && !manifest::is_skipped(manifest)
            && release.is_some_and(|release| release.metadata.deletion_timestamp.is_some())
    };
    manifests.iter().filter(is_ended).cloned().collect()
}

/// A window is open after its begin, not at it.
const WINDOW_MARGIN: Duration = Duration::from_secs(1);
/// Longest delay before a pass at the begin of a window. The clock of the machine may be corrected meanwhile.
const WINDOW_AHEAD_MAX: Duration = Duration::from_secs(3600);

/// The upgrades that wait for a maintenance window or for their turn in a rollout.
fn waits(plan: &RuntimePlan) -> impl Iterator<Item = (&str, &Wait)> {
    plan.modules.iter().chain(&plan.mandatory).filter_map(|module| match &module.outcome {
        ModuleOutcome::Wait(wait) => Some((module.name.as_str(), &**wait)),
        ModuleOutcome::Install(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    })
}

/// The upgrades that wait for a maintenance window.
fn window_waits(plan: &RuntimePlan) -> impl Iterator<Item = (&str, &Wait)> {
    waits(plan).filter(|(_, wait)| wait.why == WaitFor::Window)
}

/// The next version of an installed module, and how far it may spread without the answer of others.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spread<'a> {
    /// It may be installed.
    Free,
    /// It waits, whatever others do.
    Held(Hold),
    /// The policy of its ModuleReleaseMeta decides.
    Asked(Line, Policy, Upgrade<'a>),
}

/// Whether an upgrade waits, as far as this runtime alone tells. `delay_max` is over how long upgrades are spread.
pub(super) fn spread<'a>(
    landscape: &Landscape,
    kyma: &Kyma,
    upgrade: Upgrade<'a>,
    delay_max: Duration,
    now: Timestamp,
) -> Spread<'a> {
    if let Some(until) = rollout::delayed(kyma, upgrade.module, upgrade.to, delay_max, now) {
        return Spread::Held(Hold::Delay(until));
    }
    let release = Key::new(landscape::key(&kyma.metadata).namespace(), upgrade.module);
    let policy = landscape.releases.get(&release).map(|found| rollout::policy(&found.metadata));
    match policy {
        None | Some(Ok(None)) => Spread::Free,
        Some(Ok(Some(policy))) => Spread::Asked(Line { release, offer: upgrade.offer.clone() }, policy, upgrade),
        Some(Err(error)) => Spread::Held(Hold::Invalid(error.to_string())),
    }
}

/// The versions that this runtime cannot get for a reason of its own, for the index of rollouts.
pub(super) fn aside(landscape: &Landscape, namespace: &str, plan: &RuntimePlan) -> BTreeMap<Line, String> {
    let version = |(module, offer): (&str, &plan::Offer)| {
        let release = Key::new(namespace, module);
        let found = landscape.releases.get(&release)?;
        let (_, version) = plan::offers(found).find(|(found, _)| found == offer)?;
        Some((Line { release, offer: offer.clone() }, version.to_owned()))
    };
    rollout::aside(plan).filter_map(version).collect()
}

/// What the pass remembers of an upgrade that waits for its turn.
pub(super) fn held(upgrade: Upgrade<'_>, hold: Hold) -> (String, HeldVersion) {
    (upgrade.module.to_owned(), HeldVersion { version: upgrade.to.to_owned(), hold })
}

/// The versions that a plan does not install yet because they spread step by step, for the status.
pub(super) fn rollout(plan: &RuntimePlan) -> RolloutFact {
    let held = waits(plan).filter_map(|(module, wait)| match &wait.why {
        WaitFor::Rollout(hold) => Some((module, wait, hold)),
        WaitFor::Window => None,
    });
    let held: Vec<_> = held.collect();
    let Some((_, _, first)) = held.first() else { return RolloutFact::Nothing };
    // What a user must do something about comes first.
    let needs_user = |hold: &&Hold| matches!(hold, Hold::Invalid(_) | Hold::Halted | Hold::Paused(_));
    let reason = held.iter().map(|(_, _, hold)| *hold).find(needs_user).unwrap_or(first).reason();
    let each = held.iter().map(|(module, wait, hold)| format!("{module} {} to {}: {hold}", wait.from, wait.to));
    RolloutFact::Waiting { reason, message: each.collect::<Vec<_>>().join("; ") }
}

/// What a commit would remove from the runtime and waits for a confirmation. `are_visited` is whether this process
/// knows all sources: before that, what the status says stays.
pub(super) fn removal(kyma: &Kyma, waiting: Option<Arc<str>>, are_visited: impl FnOnce() -> bool) -> RemovalFact {
    let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let is_said = conditions::find(conditions, conditions::REMOVAL).is_some();
    match waiting {
        Some(sentence) => RemovalFact::Waiting(sentence),
        None if is_said && !are_visited() => RemovalFact::Unknown,
        None => RemovalFact::Nothing,
    }
}

/// Severity, reason and note of the Event about a rollout that continues only if a user does something. `failed`
/// returns the runtimes in which the version failed. The note is the same for each runtime that waits.
pub(super) fn rollout_news<'k>(
    upgrade: &Upgrade<'_>,
    hold: &Hold,
    failed: impl FnOnce() -> Vec<&'k Key>,
) -> Option<(Severity, &'static str, String)> {
    match hold {
        Hold::Halted => Some((Severity::Warning, reason::ROLLOUT_HALTED, halted_note(upgrade, &failed()))),
        Hold::Paused(_) => Some((Severity::Normal, reason::ROLLOUT_PAUSED, paused_note(upgrade, hold))),
        // The condition of the Kyma names the annotation.
        Hold::Invalid(_) | Hold::Wave { .. } | Hold::Unavailable | Hold::Delay(_) => None,
    }
}

/// The note of the Event about a paused rollout.
fn paused_note(upgrade: &Upgrade<'_>, hold: &Hold) -> String {
    format!(
        "version {} ({}) reaches no more runtimes: {hold}. Run `tidegate resume rollout/{}`, or remove the annotation \
         in git if git declares it",
        upgrade.to, upgrade.offer, upgrade.module
    )
}

/// The note of the Event about a halted rollout. It names the first runtimes that failed.
fn halted_note(upgrade: &Upgrade<'_>, failed: &[&Key]) -> String {
    let named: Vec<&str> = failed.iter().take(FAILED_NAMED_MAX).map(|kyma| kyma.name()).collect();
    let more = if FAILED_NAMED_MAX < failed.len() { " and others" } else { "" };
    format!(
        "the rollout of version {} ({}) is halted, because it failed in the runtimes of {}{more}; the others keep their \
         version. Fix it with a new version, or run `tidegate resume rollout/{}` to go on despite these \
         failures",
        upgrade.to,
        upgrade.offer,
        named.join(", "),
        upgrade.module
    )
}

/// How many runtimes the Event about a halted rollout names.
const FAILED_NAMED_MAX: usize = 3;

/// When to start the next pass, so that an upgrade begins with its maintenance window, or when its delay ends.
pub(super) fn window_pass(plan: &RuntimePlan, now: Timestamp) -> Option<Duration> {
    let next = waits(plan).filter_map(|(_, wait)| wait.next).min()?;
    let ahead = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    Some(ahead.saturating_add(WINDOW_MARGIN).min(WINDOW_AHEAD_MAX))
}

/// What waits for a maintenance window, for the status. `in_runtime` is what the Kyma in the runtime asks for.
pub(super) fn maintenance(plan: &RuntimePlan, in_runtime: Option<&KymaSpec>) -> MaintenanceFact {
    use conditions::maintenance::{NO_POLICY, NO_WINDOW, WAITING};
    let is_refused = |module: &plan::ModulePlan| {
        matches!(&module.outcome, ModuleOutcome::Refuse(refusal)
            if refusal.reason == plan::reason::NO_MAINTENANCE_POLICY)
    };
    let refused: Vec<&str> =
        plan.modules.iter().filter(|module| is_refused(module)).map(|module| module.name.as_str()).collect();
    let waiting: Vec<String> =
        window_waits(plan).map(|(module, wait)| format!("{module} {} to {}", wait.from, wait.to)).collect();
    let next = window_waits(plan).filter_map(|(_, wait)| wait.next).min();
    let (reason, message) = match (refused.is_empty(), waiting.is_empty(), next) {
        (true, true, _) => return MaintenanceFact::Nothing,
        (false, _, _) => {
            let modules = refused.join(", ");
            (NO_POLICY, format!("no policy of maintenance windows: use --maintenance-policy; waiting: {modules}"))
        }
        (true, false, Some(next)) => {
            let begin = format!("the next maintenance window begins at {next}");
            (WAITING, format!("{begin}; waiting: {}", waiting.join(", ")))
        }
        (true, false, None) => {
            let none = "the policy has no maintenance window left for this runtime";
            (NO_WINDOW, format!("{none}; waiting: {}", waiting.join(", ")))
        }
    };
    // Only the Kyma in the control plane decides this, and users cannot see that there.
    let hint = match in_runtime.is_some_and(|spec| spec.skip_maintenance_windows) {
        true => "; skipMaintenanceWindows of the Kyma in the runtime has no effect, set it in the control plane",
        false => "",
    };
    MaintenanceFact::Waiting { reason, message: format!("{message}{hint}") }
}

/// Whether a Kyma of git no longer has a module that is installed: git may still have it.
pub(super) fn has_dropped(kyma: &Kyma, manifests: &[Arc<Manifest>]) -> bool {
    landscape::label(&kyma.metadata, label::SOURCE).is_some()
        && kyma.metadata.deletion_timestamp.is_none()
        && !installed(manifests).all(|manifest| has_module(&kyma.spec, manifest.0))
}

/// What git says about a Kyma that no longer has a module that is installed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Declared<'a> {
    /// Nothing: the Kyma counts as it is. Its source is suspended, gone, or no longer declares it.
    Nothing,
    /// This definition, which was last applied.
    Applied(&'a KymaSpec),
    /// What was last applied is not known: the source has not been read yet, or its definition is held back.
    Unknown,
}

/// The Kyma with the installed modules that another client has dropped from it, and whether git must still say so.
///
/// A module that git declares is about to be put back: until then nothing of it leaves the runtime. While it is not
/// known what was last applied, a module of git may as well be one that git no longer has: nothing leaves either.
pub(super) fn with_dropped(kyma: &Arc<Kyma>, declared: Declared<'_>, manifests: &[Arc<Manifest>]) -> (Arc<Kyma>, bool) {
    let mut dropped = installed(manifests).filter(|(name, _)| !has_module(&kyma.spec, name));
    let (kept, is_unknown): (Vec<Module>, bool) = match declared {
        Declared::Nothing => (Vec::new(), false),
        Declared::Applied(spec) => {
            let names: BTreeSet<&str> = dropped.map(|(name, _)| name).collect();
            (spec.modules.iter().filter(|module| names.contains(module.name.as_str())).cloned().collect(), false)
        }
        Declared::Unknown => match plan::modules_from(kyma) {
            // All modules are git's.
            ModulesFrom::Git => (dropped.map(|(name, manifest)| installed_module(name, manifest)).collect(), true),
            // Some are users', who have them in the Kyma of the runtime, see `with_installed`.
            ModulesFrom::Merge => (Vec::new(), dropped.next().is_some()),
            ModulesFrom::Runtime => (Vec::new(), false),
        },
    };
    if kept.is_empty() {
        return (Arc::clone(kyma), is_unknown);
    }
    let mut whole = Kyma::clone(kyma);
    whole.spec.modules = kyma.spec.modules.iter().cloned().chain(kept).collect();
    (Arc::new(whole), is_unknown)
}

/// What the runtime should have, with the installed modules that neither side names, if users add modules to those of
/// git and it is not known what git says: a module of git may be among them. They are not written to the Kyma in the
/// runtime, which shows what users want.
pub(super) fn with_installed(
    wanted: KymaSpec,
    modules_from: ModulesFrom,
    is_unknown: bool,
    manifests: &[Arc<Manifest>],
) -> KymaSpec {
    if !is_unknown || modules_from != ModulesFrom::Merge {
        return wanted;
    }
    let kept = installed(manifests).filter(|(name, _)| !has_module(&wanted, name));
    let kept: Vec<Module> = kept.map(|(name, manifest)| installed_module(name, manifest)).collect();
    KymaSpec { modules: wanted.modules.iter().cloned().chain(kept).collect(), ..wanted }
}

/// How long a pass rests that does not know what git says of a module.
const UNKNOWN_RETRY: Duration = Duration::from_secs(5);

/// The finish of a pass that kept a module because it does not know what git says.
pub(super) fn finish_unknown(finish: Finish) -> Finish {
    match finish {
        Finish::Done => Finish::After(UNKNOWN_RETRY, Trigger::Changed),
        Finish::After(rest, _) if UNKNOWN_RETRY < rest => Finish::After(UNKNOWN_RETRY, Trigger::Changed),
        other => other,
    }
}

/// A module as its Manifest has it.
fn installed_module(name: &str, manifest: &Manifest) -> Module {
    Module {
        name: name.to_owned(),
        channel: landscape::label(&manifest.metadata, label::CHANNEL).map(str::to_owned),
        controller: None,
        custom_resource_policy: manifest.spec.custom_resource_policy,
        managed: !manifest::is_unmanaged(manifest),
        remote_module_template_ref: None,
    }
}

/// The modules that Kymas select and that have a Manifest which is not being deleted.
fn installed(manifests: &[Arc<Manifest>]) -> impl Iterator<Item = (&str, &Manifest)> {
    let present = manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_none());
    present.filter_map(|manifest| Some((manifests::selected_module_of(&manifest.metadata)?, &**manifest)))
}

fn has_module(spec: &KymaSpec, name: &str) -> bool {
    spec.modules.iter().any(|module| module.name == name)
}

/// Whether a pass would remove something because it is being deleted in KCP, or is gone there.
pub(super) fn follows_deletion(kyma: Option<&Kyma>, manifests: &[Arc<Manifest>]) -> bool {
    kyma.is_none_or(|kyma| kyma.metadata.deletion_timestamp.is_some())
        || manifests.iter().any(|manifest| manifest.metadata.deletion_timestamp.is_some())
}

/// The objects whose deletion or absence a pass would remove something for, with the UID that the stores show; none if
/// the stores show no object. `releases` are [`deleted_releases`].
pub(super) fn removed_for(
    key: &Key,
    kyma: Option<&Kyma>,
    manifests: &[Arc<Manifest>],
    releases: &[Arc<ModuleReleaseMeta>],
) -> Vec<(Kind, Key, Option<String>)> {
    let release = |release: &Arc<ModuleReleaseMeta>| {
        let uid = release.metadata.uid.clone();
        (Kind::namespaced::<ModuleReleaseMeta>(), landscape::key(&release.metadata), uid)
    };
    let releases = releases.iter().map(release);
    if !follows_deletion(kyma, manifests) {
        return releases.collect();
    }
    let uid = kyma.and_then(|kyma| kyma.metadata.uid.clone());
    let deleting = manifests.iter().filter(|manifest| manifest.metadata.deletion_timestamp.is_some());
    let deleting = deleting.map(|manifest| {
        let uid = manifest.metadata.uid.clone();
        (Kind::namespaced::<Manifest>(), landscape::key(&manifest.metadata), uid)
    });
    std::iter::once((Kind::namespaced::<Kyma>(), key.clone(), uid)).chain(deleting).chain(releases).collect()
}

/// When to try again if the stores are behind the control plane. A watch that is not interrupted takes less.
pub(super) const OUTDATED: Finish = Finish::After(Duration::from_secs(1), Trigger::Retry);

/// The status while deletions are held; none if nothing of the runtime is being deleted.
pub(super) fn held_facts(kyma: &Kyma, manifests: &[Arc<Manifest>], message: &str) -> Option<Facts> {
    if kyma.metadata.deletion_timestamp.is_some() {
        let modules = modules_as_they_are(kyma, manifests, message);
        return Some(Facts { modules, deleting: Some(message.to_owned()), ..Facts::default() });
    }
    let failure = || status::Failure { reason: "DeletionHeld", message: message.to_owned(), access: false };
    follows_deletion(Some(kyma), manifests).then(|| Facts {
        modules: modules_as_they_are(kyma, manifests, message),
        failure: Some(failure()),
        ..Facts::default()
    })
}

/// The status after a pass that failed. None if the failure says nothing about the runtime: an object had changed in
/// the meantime, and the next pass reads it.
pub(super) fn failed_facts(kyma: &Kyma, manifests: &[Arc<Manifest>], failed: &Failed) -> Option<Facts> {
    match failed.kind {
        FailedKind::Stale => None,
        FailedKind::Wrong | FailedKind::Unreachable | FailedKind::NoAccess | FailedKind::BadAccess => Some(Facts {
            modules: modules_as_they_are(kyma, manifests, &failed.message),
            failure: Some(status::Failure {
                reason: failed.reason,
                message: failed.message.clone(),
                access: failed.kind.is_access(),
            }),
            tried: requested(kyma).filter(|requested| Some(requested.as_str()) != handled(kyma)),
            ..Facts::default()
        }),
    }
}

/// Whether the Manifests cannot be reconciled either: the failure concerns the access to the runtime.
pub(super) fn concerns_manifests(failed: &Failed) -> bool {
    failed.kind.is_access()
}

/// The modules as they are, each with the failure that blocks the runtime.
fn modules_as_they_are(kyma: &Kyma, manifests: &[Arc<Manifest>], message: &str) -> Vec<ModuleFact> {
    let before = kyma.status.iter().flat_map(|status| &status.modules).map(|module| module.name.clone());
    let wanted = kyma.spec.modules.iter().map(|module| module.name.clone());
    let names: BTreeSet<String> = before.chain(wanted).collect();
    names
        .into_iter()
        .map(|name| ModuleFact {
            manifest: manifests
                .iter()
                .find(|manifest| manifests::selected_module_of(&manifest.metadata) == Some(&name))
                .cloned(),
            planned: Planned::Refused { state: State::Error, message: message.to_owned(), hint: None },
            name,
        })
        .collect()
}

/// What becomes of the runtime after a pass that failed.
pub(super) fn failed_finish(failed: Failed) -> Pass {
    let class = match failed.kind {
        // A retry cannot help. A change of the access Secrets wakes the runtime.
        FailedKind::NoAccess | FailedKind::BadAccess => return Ok(Finish::Deferred),
        FailedKind::Unreachable => {
            return Err(Failure::new(failed.class, failed.reason, NotReached(failed.message)));
        }
        FailedKind::Stale => Class::Transient,
        FailedKind::Wrong => failed.class,
    };
    Err(Failure::new(class, failed.reason, failed.message))
}

/// The problems in `next` that `before` does not have.
pub(super) fn news<'a>(before: Option<&KymaStatus>, next: &'a KymaStatus, facts: &'a Facts) -> Vec<News<'a>> {
    let said = before.and_then(|status| status.last_operation.as_ref()).map(|last| last.operation.as_str());
    if let Some(failure) = facts.failure.as_ref().filter(|failure| said != Some(failure.message.as_str())) {
        return vec![News::Runtime(failure)];
    }
    let is_wrong = |module: &&ModuleStatus| matches!(module.state, State::Error | State::Warning);
    let is_known = |module: &ModuleStatus| {
        let former = before.and_then(|status| status.modules.iter().find(|former| former.name == module.name));
        former.is_some_and(|former| former.state == module.state && former.message == module.message)
    };
    let module = |module: &'a ModuleStatus| {
        let fact = facts.modules.iter().find(|fact| fact.name == module.name);
        let (name, message) = (module.name.as_str(), module.message.as_deref().unwrap_or("no message"));
        let hint = fact.and_then(ModuleFact::hint);
        match fact.map(|fact| &fact.planned) {
            // While nothing can be done in the runtime, no module is as it should be.
            Some(Planned::Refused { .. }) if facts.failure.is_none() => News::Refused { name, message, hint },
            Some(
                Planned::Refused { .. }
                | Planned::Install { .. }
                | Planned::Waiting { .. }
                | Planned::Unmanaged
                | Planned::Removing,
            )
            | None => News::Module { name, message, hint },
        }
    };
    let of_modules = next.modules.iter().filter(is_wrong).filter(|module| !is_known(module)).map(module);
    let said = before.and_then(|status| conditions::find(&status.conditions, conditions::MANDATORY_MODULES));
    let mandatory = facts.mandatory.iter().flatten().filter_map(MandatoryFact::problem);
    let mandatory = mandatory.filter(|problem| !said.is_some_and(|said| said.message.contains(problem.as_str())));
    let waited = before.map(|before| status::held_by_users(&before.conditions)).unwrap_or_default();
    let is_news = |name: &str| waited.iter().all(|(known, _)| *known != name);
    let held = status::held_by_users(&next.conditions).into_iter().filter(|(name, _)| is_news(name));
    let held = held.map(|(name, hint)| News::Held { name, hint });
    of_modules.chain(mandatory.map(News::Mandatory)).chain(held).collect()
}

fn module_note(name: &str, message: &str, hint: Option<&str>) -> String {
    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("module {name}: {message}{hint}")
}

/// Who suspended a runtime, since when and why; `None` if it is not suspended. `metadata` are those of the Kyma, with
/// managedFields if that is not known otherwise.
pub(super) fn suspension(metadata: &ObjectMeta, kyma: &Kyma) -> Option<String> {
    let by_label = || format!("suspended by label {}", label::SKIP_RECONCILIATION);
    is_skipped(kyma).then(|| landscape::suspension(metadata, Switch::Label).unwrap_or_else(by_label))
}

/// Whether a user has suspended the runtime, given another reason, or resumed it, since the last pass: reason and note
/// of an Event. The first pass of a process does not know. Both are results of [`suspension`].
pub(super) fn suspension_news(before: Option<Option<&str>>, after: Option<&str>) -> Option<(&'static str, String)> {
    match (before?, after) {
        (before, Some(note)) if before != Some(note) => {
            Some((reason::SUSPENDED, format!("{note}; Tidegate does not change the runtime")))
        }
        // Each end names its suspension: the same sentence would not be published again.
        (Some(note), None) => {
            Some((reason::RESUMED, format!("resumed: Tidegate reconciles the runtime again; it was {note}")))
        }
        (None, None) | (Some(_), Some(_)) | (None, Some(_)) => None,
    }
}

/// Whether a Kyma is suspended and does not say by whom.
pub(super) fn must_ask_who_suspended(kyma: &Kyma) -> bool {
    is_skipped(kyma) && landscape::annotation(&kyma.metadata, annotation::SUSPENDED).is_none()
}

/// Whether a Kyma is not suspended, and still says who suspended it.
pub(super) fn has_stale_suspension(kyma: &Kyma) -> bool {
    kyma.metadata.deletion_timestamp.is_none()
        && !is_skipped(kyma)
        && landscape::annotation(&kyma.metadata, annotation::SUSPENDED).is_some()
}

// === impl News ===

impl News<'_> {
    /// Severity, reason and note of its Event.
    pub(super) fn event(&self) -> (Severity, &'static str, String) {
        match self {
            News::Runtime(failure) => {
                let reason = if failure.access { reason::UNREACHABLE } else { reason::RUNTIME_FAILED };
                (Severity::Warning, reason, failure.message.clone())
            }
            News::Module { name, message, hint } => {
                (Severity::Warning, reason::MODULE_FAILED, module_note(name, message, *hint))
            }
            News::Refused { name, message, hint } => {
                (Severity::Warning, reason::MODULE_REFUSED, module_note(name, message, *hint))
            }
            News::Mandatory(message) => (Severity::Warning, reason::MODULE_FAILED, message.clone()),
            News::Held { name, hint } => (Severity::Warning, reason::MODULE_HELD, module_note(name, hint, None)),
        }
    }
}

#[cfg(test)]
mod tests;
