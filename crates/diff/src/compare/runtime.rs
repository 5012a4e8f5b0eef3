//! Compares one runtime: its own differences, and the parts that it has on both sides.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Comparison, FoundDifferences, Hit, Names, Runtime, Seen,
    held::HeldBy,
    modules::{self, Installed, Shared},
    overlap::{Clash, Clashes, Outcomes, content},
};
use tidegate_core::{
    api::{
        Kyma,
        kyma::{KymaSpec, KymaStatus, Module, ModuleStatus},
        names::label,
        shared::CustomResourcePolicy,
    },
    content::ContentId,
    definition::Kind,
    diagnostic::FilePosition,
    immutable::Context,
    intake::Loss,
    landscape,
    name::Key,
    object::ObjectId,
    plan::{
        self, Class, HeldVersions, InstalledModules, ModuleOutcome, ModulesFrom, Offer, RuntimePlan, Wait, Windows,
        rollout, window,
    },
    render::offline::Outline,
    template::Template,
};

use crate::model::{Effect, Side};

/// A Kyma on one side.
pub(super) struct Half<'a> {
    pub(super) outline: &'a Outline<'a>,
    pub(super) kyma: &'a Arc<Kyma>,
    /// The effective spec.
    spec: Cow<'a, KymaSpec>,
    class: Class,
    pub(super) class_number: u32,
    /// Whether git declares it.
    pub(super) is_declared: bool,
}

/// What a module of a runtime comes to. If two comparisons agree about it, they find the same differences.
#[derive(PartialEq)]
struct State {
    outcome: Option<ModuleOutcome>,
    wait: Option<Wait>,
    clashes: Vec<Clash>,
    refused: BTreeSet<ObjectId>,
}

/// The modules whose Manifests are paused.
type Paused = BTreeSet<String>;

/// The states of all modules of a runtime that may differ, by name.
type States = BTreeMap<String, State>;

/// Which of two comparisons of a runtime is made.
enum Turn<'s> {
    /// The only one: nothing waits for a confirmation.
    Only,
    /// That of what is active until a user confirms what waits. It notes the states.
    UntilConfirmed(&'s mut States),
    /// That of the new side, where other states than these wait for the confirmation.
    Confirmed(&'s States),
}

/// Compares one runtime.
pub(super) fn look(comparison: &Comparison<'_>, key: &Key, runtime: Runtime, seen: &mut Seen) {
    let Some(until) = &comparison.until_confirmed else {
        return look_once(comparison, key, runtime, seen, Turn::Only);
    };
    let mut states = States::new();
    let earlier = seen.until_confirmed.get_or_insert_default();
    look_once(until, key, runtime, earlier, Turn::UntilConfirmed(&mut states));
    look_once(comparison, key, runtime, seen, Turn::Confirmed(&states));
}

fn look_once(comparison: &Comparison<'_>, key: &Key, runtime: Runtime, seen: &mut Seen, turn: Turn<'_>) {
    let old = Half::old(comparison, key);
    let new = Half::new(comparison, key, old.as_ref());
    let same = is_same(comparison, old.as_ref(), new.as_ref());
    let place = || comparison.place_of(&(Kind::Kyma, key.clone()));
    // A runtime that is removed is removed even if it is suspended.
    if new.as_ref().is_some_and(|new| is_suspended(comparison, key, old.as_ref(), new)) {
        let definition = comparison.new.definition(Kind::Kyma, key);
        seen.hold(HeldBy::suspended(definition.map(|definition| &**definition)), &[runtime], place);
        seen.suspended += 1;
        return;
    }
    if let (Some(old), Some(new)) = (&old, &new)
        && new.is_declared
        && plan::modules_from(new.kyma) == ModulesFrom::Runtime
        && (&old.kyma.spec.channel, &*old.kyma.spec.modules) != (&new.kyma.spec.channel, &*new.kyma.spec.modules)
    {
        seen.hold(HeldBy::decided_by_runtime(), &[runtime], place);
    }
    if let Some(new) = &new {
        let decides = new.is_declared && plan::modules_from(new.kyma) != ModulesFrom::Git;
        if decides && !comparison.prepared.known.contains_key(key) {
            seen.deciding.push(runtime);
        }
    }
    // The modules that the runtime had selected are removed, but they are unknown here.
    let decided = |half: &Half<'_>| half.is_declared && plan::modules_from(half.kyma) == ModulesFrom::Runtime;
    let is_taken_over = new.as_ref().is_none_or(|new| plan::modules_from(new.kyma) == ModulesFrom::Git);
    if old.as_ref().is_some_and(decided) && is_taken_over && !comparison.prepared.known.contains_key(key) {
        seen.decided.push(runtime);
    }
    let number = |half: &Option<Half<'_>>| half.as_ref().map(|half| half.class_number);
    seen.classes.entry((number(&old), number(&new))).or_default().push(runtime);
    let effect = comparison.effect(&(Kind::Kyma, key.clone()));
    counterpart(comparison, key, runtime, (old.as_ref(), new.as_ref()), effect, seen);
    modules(comparison, key, runtime, (old.as_ref(), new.as_ref(), same), turn, seen);
}

/// Whether a runtime keeps a version that its module no longer offers, because it is suspended or its upgrade waits.
pub(super) fn keeps_version(comparison: &Comparison<'_>, loss: &Loss) -> bool {
    let key = &loss.runtime;
    let Some((module, version)) = loss.module.split_once(' ') else { return false };
    let old = Half::old(comparison, key);
    let Some(new) = Half::new(comparison, key, old.as_ref()) else { return false };
    if is_suspended(comparison, key, old.as_ref(), &new) {
        return true;
    }
    match outcome_of(comparison, key, (old.as_ref(), &new), module) {
        Some(ModuleOutcome::Install(installation)) => installation.version == version,
        Some(ModuleOutcome::Wait(_)) => true,
        Some(ModuleOutcome::Refuse(refusal)) => refusal.keep,
        Some(ModuleOutcome::Unmanage) | None => false,
    }
}

/// The version of a module that a runtime gets; `None` if it gets none, because it is suspended or waits.
pub(super) fn version_after(comparison: &Comparison<'_>, key: &Key, module: &str) -> Option<String> {
    let old = Half::old(comparison, key);
    let new = Half::new(comparison, key, old.as_ref())?;
    if is_suspended(comparison, key, old.as_ref(), &new) {
        return None;
    }
    match outcome_of(comparison, key, (old.as_ref(), &new), module)? {
        ModuleOutcome::Install(installation) => Some(installation.version),
        ModuleOutcome::Wait(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    }
}

/// What becomes of a module of a runtime on the new side.
fn outcome_of(
    comparison: &Comparison<'_>,
    key: &Key,
    (old, new): (Option<&Half<'_>>, &Half<'_>),
    module: &str,
) -> Option<ModuleOutcome> {
    let wanted = |name: &str| name == module;
    let old_kyma = old.map(|half| with_installed(comparison, key, half));
    let old_plan = match (old, &old_kyma) {
        (Some(half), Some(kyma)) => {
            let before = InstalledModules::default();
            Some(half.outline.plan(kyma, &half.only(&wanted), &before, Windows::Unknown))
        }
        _ => None,
    };
    let plan = new_plan(comparison, key, new, (&old_plan, old_kyma.as_deref()), &wanted);
    plan.into_deciding().into_iter().find(|one| one.name == module).map(|one| one.outcome)
}

/// Whether a label suspends a runtime, either in git or by `tidegate suspend`.
fn is_suspended(comparison: &Comparison<'_>, key: &Key, old: Option<&Half<'_>>, new: &Half<'_>) -> bool {
    let written =
        |half: &Half<'_>| landscape::label(&half.kyma.metadata, label::SKIP_RECONCILIATION).map(str::to_owned);
    let value = written(new).or_else(|| {
        // The label from the old revision is removed with it.
        let was_written = old.and_then(written).is_some();
        let known = comparison.prepared.known.get(key).filter(|_| !was_written)?;
        known.labels.get(label::SKIP_RECONCILIATION).cloned()
    });
    value.as_deref().is_some_and(landscape::says_true)
}

/// Whether everything that determines the modules is equal, except releases and versions.
fn is_same(comparison: &Comparison<'_>, old: Option<&Half<'_>>, new: Option<&Half<'_>>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return false };
    let kyma = Arc::ptr_eq(old.kyma, new.kyma) || old.kyma == new.kyma;
    kyma && old.spec == new.spec
        && old.class == new.class
        && comparison.templates[usize::from(new.is_declared)].manifest.is_none()
}

/// The effective channel of a module.
fn channel<'m>(comparison: &'m Comparison<'_>, spec: &'m KymaSpec, module: &'m Module) -> &'m str {
    let named = [module.channel.as_deref(), Some(spec.channel.as_str())];
    let named = named.into_iter().flatten().find(|channel| !channel.is_empty());
    named.unwrap_or(&comparison.request.settings.default_channel)
}

/// Compares the Kyma in the runtime.
fn counterpart(
    comparison: &Comparison<'_>,
    key: &Key,
    runtime: Runtime,
    (old, new): (Option<&Half<'_>>, Option<&Half<'_>>),
    effect: Effect,
    seen: &mut Seen,
) {
    let changes = |half: &Half<'_>| comparison.templates[usize::from(half.is_declared)].kyma.clone();
    let changed = new.and_then(changes);
    if let (Some(old), Some(new), None) = (old, new, &changed) {
        let same = Arc::ptr_eq(old.kyma, new.kyma) || old.kyma.metadata.labels == new.kyma.metadata.labels;
        if same && old.spec == new.spec {
            return;
        }
    }
    let render = |half: &Half<'_>| half.outline.runtime_kyma(half.kyma, &half.spec);
    let new_object = match new.map(render).transpose() {
        Ok(object) => object,
        Err(error) => {
            seen.diagnostics.push(error.diagnostic());
            return;
        }
    };
    // An object that the old side could not render never existed.
    let old_object = old.map(render).transpose().unwrap_or_default();
    let place = comparison.place_of(&(Kind::Kyma, key.clone()));
    let template: Option<FilePosition> = changed.flatten();
    let labels = new.or(old).and_then(|half| half.kyma.metadata.labels.as_ref()).into_iter().flatten();
    let own = labels.map(|(_, value)| (value.clone(), "label"));
    let own = own.chain([(key.to_string(), "key"), (key.name().to_owned(), "name")]);
    let hit = Hit {
        side: Side::Runtime,
        effect,
        old: old_object,
        new: new_object,
        places: place.or(template).into_iter().collect(),
        maker: Some(Template::Kyma.name()),
        own: Names::new(own),
        owner: None,
        moves: false,
        context: Context::default(),
    };
    FoundDifferences::add(&mut seen.found, hit, &[runtime]);
}

/// Compares the modules of a runtime: those on both sides.
fn modules(
    comparison: &Comparison<'_>,
    key: &Key,
    runtime: Runtime,
    (old, new, same): (Option<&Half<'_>>, Option<&Half<'_>>, bool),
    mut turn: Turn<'_>,
    seen: &mut Seen,
) {
    let may_differ = |name: &str| !same || comparison.touched.contains(&Key::new(key.namespace(), name));
    let halves = || old.into_iter().chain(new);
    let is_selected = halves().flat_map(|half| &half.spec.modules).any(|module| may_differ(&module.name));
    if !is_selected && !halves().flat_map(|half| half.mandatory(key)).any(&may_differ) {
        return;
    }
    let overlaps = &comparison.overlaps;
    let wanted = |name: &str| {
        let module = Key::new(key.namespace(), name);
        may_differ(name) || overlaps.concern(&module) || overlaps.is_unknown(&module) || comparison.is_unfit(&module)
    };
    let old_kyma = old.map(|half| with_installed(comparison, key, half));
    let old_plan = match (old, &old_kyma) {
        (Some(half), Some(kyma)) => {
            let before = InstalledModules::default();
            Some(half.outline.plan(kyma, &half.only(&wanted), &before, Windows::Unknown))
        }
        _ => None,
    };
    let new_plan = new.map(|half| new_plan(comparison, key, half, (&old_plan, old_kyma.as_deref()), &wanted));
    let outcomes = |plan: &Option<RuntimePlan>| -> Outcomes {
        let modules = plan.iter().flat_map(RuntimePlan::deciding).filter(|module| wanted(&module.name));
        modules.map(|module| (module.name.clone(), module.outcome.clone())).collect()
    };
    let (mut before, mut after) = (outcomes(&old_plan), outcomes(&new_plan));
    let waits = take_waits(&mut after);
    // Their objects stay as they are, but are not known, and others of the runtime may now contain them as well.
    let is_unknown = |name: &str, outcome: &ModuleOutcome| !may_differ(name) && is_not_known(outcome);
    if may_clash(&before, &after) {
        for (name, _) in after.iter().filter(|(name, outcome)| is_unknown(name, outcome)) {
            let what = format!("conflicts with objects that are not in git, of module {name}");
            seen.unknown.entry(what).or_default().push(runtime);
        }
    }
    after.retain(|name, outcome| !is_unknown(name, outcome));
    before.retain(|name, outcome| !is_unknown(name, outcome));
    let read = |tree: &ContentId, id: &ObjectId| {
        let module = comparison.old.module(*tree)?;
        module.objects().objects.iter().find(|object| object.id == *id).map(|object| object.object(key))
    };
    let adopts = |content: &ContentId, id: &ObjectId| {
        let module = comparison.new.module(*content);
        module.iter().flat_map(|module| &module.objects().objects).any(|object| object.id == *id && object.adopt)
    };
    let nothing = Paused::new();
    let paused = comparison.prepared.known.get(key).map_or(&nothing, |known| &known.paused);
    let mut clashes = overlaps.clashes(&before, &while_paused(&after, &before, paused), &read, &adopts);
    // Until an upgrade that waits has come, its module has what it keeps.
    let coming: Clashes = waits.keys().filter_map(|name| Some((name.clone(), clashes.remove(name)?))).collect();
    if !waits.is_empty() {
        let now = while_waiting(&after, &before, &waits);
        clashes = overlaps.clashes(&before, &while_paused(&now, &before, paused), &read, &adopts);
    }
    let mut refused = comparison.refused(seen, (key, runtime), (&before, &while_paused(&after, &before, paused)));
    let manifests = manifests(key, [&before, &after], &clashes);
    let names: Vec<String> =
        before.keys().chain(after.keys().filter(|name| !before.contains_key(*name))).cloned().collect();
    for name in names {
        let outcomes = (before.remove(&name), after.remove(&name));
        let shared = Shared {
            clashes: clashes.remove(&name).unwrap_or_default(),
            refused: refused.remove(&name).unwrap_or_default(),
            manifests: Some(&manifests),
            is_paused: paused.contains(&name),
        };
        let wait = waits.get(&name);
        let effect = turn.effect(&name, || State {
            outcome: outcomes.1.clone(),
            wait: wait.cloned(),
            clashes: shared.clashes.clone(),
            refused: shared.refused.clone(),
        });
        let kept = wait.and_then(|wait| wait.kept.as_ref());
        if let (Some(kept), Some(ModuleOutcome::Install(before))) = (kept, &outcomes.0) {
            let shared = shared.clone();
            One { comparison, key, runtime, name: &name, old, new, effect, shared }.keeps(before, kept, seen);
        }
        let (effect, shared) = match wait {
            Some(_) => {
                let clashes = coming.get(&name).cloned().unwrap_or_default();
                (Effect::Held, Shared { clashes, ..shared })
            }
            None => (effect, shared),
        };
        let module = One { comparison, key, runtime, name: &name, old, new, effect, shared };
        if let Some(wait) = wait {
            seen.hold(HeldBy::waits(&name, wait), &[runtime], || module.place());
        }
        module.look(outcomes, old_kyma.as_deref(), seen);
    }
}

/// The plan of the new side. Upgrades that no runtime gets now, whatever the others have, wait.
fn new_plan(
    comparison: &Comparison<'_>,
    key: &Key,
    half: &Half<'_>,
    (old_plan, old_kyma): (&Option<RuntimePlan>, Option<&Kyma>),
    wanted: &dyn Fn(&str) -> bool,
) -> RuntimePlan {
    // The downgrade guard of the new side sees the versions of the old side.
    let status = old_plan.as_ref().map(|plan| status_after(plan, old_kyma));
    let kyma = Kyma { status, ..Kyma::clone(half.kyma) };
    let before = old_plan.as_ref().map(InstalledModules::from_plan).unwrap_or_default();
    let (labels, installed) = (labels(comparison, key, &kyma), window::installed_in_status(&kyma));
    let plan = |held: &HeldVersions| {
        let windows = match comparison.request.maintenance {
            Some(at) => at.windows(&labels, &installed, held),
            None => Windows::Open { installed: &installed, held },
        };
        half.outline.plan(&kyma, &half.only(wanted), &before, windows)
    };
    let whole = plan(&HeldVersions::new());
    let held = rollout::held_in(half.outline.inputs().landscape, key.namespace(), &whole, &installed);
    if held.is_empty() { whole } else { plan(&held) }
}

/// Whether the plan does not know where the objects of a module are.
fn is_not_known(outcome: &ModuleOutcome) -> bool {
    matches!(outcome, ModuleOutcome::Refuse(refusal) if refusal.reason == plan::reason::SOURCE_UNAVAILABLE)
}

/// Whether some module gets objects that it did not have before, so that they may be those of another module.
fn may_clash(before: &Outcomes, after: &Outcomes) -> bool {
    let mut installed = after.iter().filter_map(|(name, outcome)| Some((name, content(outcome)?)));
    installed.any(|(name, content_after)| before.get(name).and_then(content) != Some(content_after))
}

/// Takes out the upgrades that wait for a maintenance window. What remains is what they come to then.
fn take_waits(outcomes: &mut Outcomes) -> BTreeMap<String, Wait> {
    let mut waits = BTreeMap::new();
    for (name, outcome) in outcomes.iter_mut() {
        if let ModuleOutcome::Wait(wait) = outcome {
            let wait = Wait::clone(wait);
            *outcome = match wait.coming.clone() {
                Ok(coming) => ModuleOutcome::Install(Box::new(coming)),
                Err(refusal) => ModuleOutcome::Refuse(refusal),
            };
            waits.insert(name.clone(), wait);
        }
    }
    waits
}

/// What the modules come to while upgrades wait.
fn while_waiting(after: &Outcomes, before: &Outcomes, waits: &BTreeMap<String, Wait>) -> Outcomes {
    let mut now = after.clone();
    for (name, wait) in waits {
        let kept = wait.kept.clone().map(|kept| ModuleOutcome::Install(Box::new(kept)));
        match kept.or_else(|| before.get(name).cloned()) {
            Some(kept) => now.insert(name.clone(), kept),
            None => now.remove(name),
        };
    }
    now
}

/// What the modules come to in the runtime while Manifests are paused: what they have.
fn while_paused<'o>(after: &'o Outcomes, before: &Outcomes, paused: &Paused) -> Cow<'o, Outcomes> {
    if paused.is_empty() {
        return Cow::Borrowed(after);
    }
    let mut now = after.clone();
    for name in paused {
        match before.get(name) {
            Some(before) => drop(now.insert(name.clone(), before.clone())),
            None => drop(now.remove(name)),
        }
    }
    Cow::Owned(now)
}

/// The labels of a Kyma, which decide about its maintenance windows: others may have set some that git does not have.
fn labels(comparison: &Comparison<'_>, key: &Key, kyma: &Kyma) -> BTreeMap<String, String> {
    let known = comparison.prepared.known.get(key).map(|known| known.labels.clone());
    let mut labels = known.unwrap_or_default();
    labels.extend(kyma.metadata.labels.clone().unwrap_or_default());
    labels
}

/// The names of the Manifests of modules that share objects, by module.
fn manifests(key: &Key, sides: [&Outcomes; 2], clashes: &Clashes) -> BTreeMap<String, Key> {
    let mut manifests = BTreeMap::new();
    if clashes.is_empty() {
        return manifests;
    }
    for (name, outcome) in sides.into_iter().flatten() {
        if let ModuleOutcome::Install(installation) = outcome {
            manifests.insert(name.clone(), Key::new(key.namespace(), &installation.manifest_name));
        }
    }
    manifests
}

/// The Kyma of the old side, with the facts from the landscape file.
fn with_installed<'a>(comparison: &Comparison<'_>, key: &Key, half: &Half<'a>) -> Cow<'a, Kyma> {
    match comparison.prepared.known.get(key) {
        Some(known) if half.is_declared => Cow::Owned(Kyma { status: Some(known.status()), ..Kyma::clone(half.kyma) }),
        _ => Cow::Borrowed(half.kyma),
    }
}

/// The status of a Kyma when the old side is active.
fn status_after(plan: &RuntimePlan, kyma: Option<&Kyma>) -> KymaStatus {
    let before = kyma.and_then(|kyma| kyma.status.as_ref());
    let modules = plan.modules.iter().filter_map(|module| match &module.outcome {
        ModuleOutcome::Install(installation) => Some(ModuleStatus {
            name: module.name.clone(),
            channel: installation.offer.channel().map(str::to_owned),
            version: Some(installation.version.clone()),
            ..ModuleStatus::default()
        }),
        ModuleOutcome::Refuse(refusal) if !refusal.keep => None,
        ModuleOutcome::Wait(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => {
            before?.modules.iter().find(|known| known.name == module.name).cloned()
        }
    });
    KymaStatus { modules: modules.collect(), ..KymaStatus::default() }
}

/// Compares one module of one runtime.
struct One<'c, 'a> {
    comparison: &'c Comparison<'a>,
    key: &'c Key,
    runtime: Runtime,
    name: &'c str,
    old: Option<&'c Half<'c>>,
    new: Option<&'c Half<'c>>,
    effect: Effect,
    shared: Shared<'c>,
}

// === impl Turn ===

impl Turn<'_> {
    /// Whether the differences of a module wait for a confirmation.
    fn effect(&mut self, module: &str, state: impl FnOnce() -> State) -> Effect {
        match self {
            Turn::Only => Effect::Applies,
            Turn::UntilConfirmed(states) => {
                states.insert(module.to_owned(), state());
                Effect::Applies
            }
            Turn::Confirmed(states) if states.get(module) == Some(&state()) => Effect::Applies,
            Turn::Confirmed(_) => Effect::NeedsConfirmation,
        }
    }
}

// === impl One ===

impl One<'_, '_> {
    fn look(
        &self,
        (before, after): (Option<ModuleOutcome>, Option<ModuleOutcome>),
        old_kyma: Option<&Kyma>,
        seen: &mut Seen,
    ) {
        use ModuleOutcome::{Install, Refuse, Unmanage, Wait};
        let is_touched = self.comparison.touched.contains(&self.release());
        if let Some(Refuse(refusal)) = &after
            && (is_touched || !matches!(&before, Some(Refuse(before)) if Comparison::refuse_alike(before, refusal)))
        {
            seen.hold(HeldBy::refused(self.name, refusal), &[self.runtime], || self.place());
        }
        if is_touched {
            self.count(&before, &after, seen);
        }
        if after.as_ref().is_some_and(is_not_known) {
            self.unknown(seen, "objects that are not in git, of");
        }
        let is_installed = old_kyma
            .and_then(|kyma| kyma.status.as_ref())
            .is_some_and(|status| status.modules.iter().any(|known| known.name == self.name));
        let record = |seen: &mut Seen, old: Option<&plan::Installation>, new: Option<&plan::Installation>| {
            let installed = |half: Option<&Half<'_>>, installation: Option<&plan::Installation>| {
                Some(Installed { half: half?, installation: installation? }.owned())
            };
            if self.shared.is_paused {
                seen.hold(HeldBy::paused(self.name), &[self.runtime], || self.place());
                // It keeps its name, and so itself.
                if old.zip(new).is_some_and(|(old, new)| old.manifest_name != new.manifest_name) {
                    return;
                }
            }
            let pair = (installed(self.old, old), installed(self.new, new));
            let shared = (self.effect, self.shared.clone());
            modules::record(self.comparison, seen, self.runtime, pair, shared, self.wishes());
        };
        match (before, after) {
            (Some(Install(old)), Some(Install(new))) => {
                if let Some(by) = self.spreads(&old, &new) {
                    seen.hold(by, &[self.runtime], || self.place());
                }
                if *old != *new
                    || self.is_manifest_rerendered()
                    || self.shared.clashes.iter().any(|clash| clash.is_news)
                {
                    record(seen, Some(&*old), Some(&*new));
                }
            }
            // A rejected module that stays is installed in a version that neither side names.
            (Some(Refuse(refusal)), Some(Install(_)) | None) if refusal.keep && is_installed => {
                self.unknown(seen, "installed version of");
            }
            (Some(Unmanage), Some(Install(_))) => self.unknown(seen, "installed version of the unmanaged"),
            (_, Some(Install(new))) => record(seen, None, Some(&*new)),
            (Some(Install(_)), Some(Refuse(refusal))) if refusal.keep => {}
            (Some(Install(old)), Some(Unmanage)) => {
                if self.shared.is_paused {
                    return record(seen, Some(&*old), None);
                }
                let installed = self.old.map(|half| Installed { half, installation: &old }.owned());
                modules::unmanage(self.comparison, seen, self.runtime, installed, (self.shared.clone(), self.wishes()));
            }
            (Some(Install(old)), Some(Refuse(_)) | None) => record(seen, Some(&*old), None),
            (Some(Unmanage), None) => self.unknown(seen, "installed version of the unmanaged"),
            (Some(Refuse(_) | Unmanage) | None, Some(Refuse(_) | Unmanage) | None) => {}
            // The old side is planned without windows, and those of the new side were taken out.
            (Some(Wait(_)), _) | (_, Some(Wait(_))) => {}
        }
    }

    /// Records what changes in the installed version while another one waits.
    fn keeps(&self, before: &plan::Installation, kept: &plan::Installation, seen: &mut Seen) {
        if before == kept {
            return;
        }
        let of = |half: Option<&Half<'_>>, installation| Some(Installed { half: half?, installation }.owned());
        let pair = (of(self.old, before), of(self.new, kept));
        modules::record(self.comparison, seen, self.runtime, pair, (self.effect, self.shared.clone()), self.wishes());
    }

    /// The rollout of a new version in the same channel; none if there is none, or if all runtimes get it at once.
    fn spreads(&self, old: &plan::Installation, new: &plan::Installation) -> Option<HeldBy> {
        if old.version == new.version || old.offer != new.offer {
            return None;
        }
        let release = self.new?.outline.inputs().landscape.releases.get(&self.release())?;
        HeldBy::spreads(self.name, &old.version, &new.version, release)
    }

    fn release(&self) -> Key {
        Key::new(self.key.namespace(), self.name)
    }

    /// Counts the offers from which the module is installed.
    fn count(&self, before: &Option<ModuleOutcome>, after: &Option<ModuleOutcome>, seen: &mut Seen) {
        let offer = |outcome: &Option<ModuleOutcome>| match outcome {
            Some(ModuleOutcome::Install(installation)) => Some((self.release(), installation.offer.clone())),
            Some(ModuleOutcome::Wait(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage) | None => None,
        };
        if let Some(on) = offer(before) {
            seen.on_offer.entry(on).or_default().0 += 1;
        }
        if let Some(on) = offer(after) {
            seen.on_offer.entry(on).or_default().1 += 1;
        }
    }

    /// Whether the template of Manifests changes.
    fn is_manifest_rerendered(&self) -> bool {
        let changes = self.new.map(|half| &self.comparison.templates[usize::from(half.is_declared)]);
        changes.is_some_and(|changes| changes.manifest.is_some())
    }

    fn unknown(&self, seen: &mut Seen, what: &str) {
        seen.unknown.entry(format!("{what} module {}", self.name)).or_default().push(self.runtime);
    }

    /// The line that requests the module, if it changes.
    fn wishes(&self) -> Option<FilePosition> {
        let wish = |half: Option<&Half<'_>>| -> Option<(Module, String)> {
            let half = half?;
            let module = half.spec.modules.iter().find(|module| module.name == self.name)?;
            Some((module.clone(), channel(self.comparison, &half.spec, module).to_owned()))
        };
        let (before, after) = (wish(self.old), wish(self.new));
        if before == after {
            return None;
        }
        match (&after, self.new) {
            (Some((module, _)), Some(half)) => {
                // A channel from the Kyma's default is named in the Kyma.
                let inherits = module.channel.is_none() && before.is_some_and(|(before, _)| before == *module);
                if inherits && let Some(definition) = half.outline.definition(Kind::Kyma, self.key) {
                    return Some(super::places::field(definition, &["spec".into(), "channel".into()]));
                }
                half.outline.wish(half.kyma, self.key, self.name)
            }
            // The module was removed from the list: the place is the list, now or before.
            (None, Some(half)) => {
                let definition = half.outline.definition(Kind::Kyma, self.key)?;
                Some(super::places::field(definition, &["spec".into(), "modules".into()]))
            }
            _ => self.old.and_then(|half| half.outline.wish(half.kyma, self.key, self.name)),
        }
    }

    /// The line that causes a rejection.
    fn place(&self) -> Option<FilePosition> {
        if let Some(place) = self.wishes() {
            return Some(place);
        }
        let half = self.new?;
        let release = (Kind::ModuleReleaseMeta, self.release());
        let changed = self.comparison.place_of(&release);
        let definition = half.outline.definition(release.0, &release.1);
        if half.mandatory(self.key).any(|name| name == self.name) {
            return definition.map(|release| {
                super::places::offer(release, &Offer::Mandatory).unwrap_or_else(|| release.place.clone())
            });
        }
        let module = half.spec.modules.iter().find(|module| module.name == self.name)?;
        let offer = || Offer::Channel(channel(self.comparison, &half.spec, module).to_owned());
        let channel = changed.as_ref().and_then(|_| super::places::offer(definition?, &offer()));
        channel.or(changed).or_else(|| half.outline.wish(half.kyma, self.key, self.name))
    }
}

// === impl Half ===

impl<'a> Half<'a> {
    fn old(comparison: &'a Comparison<'_>, key: &Key) -> Option<Half<'a>> {
        let kyma = comparison.prepared.old.kymas.get(key)?;
        let is_declared = comparison.old.definition(Kind::Kyma, key).is_some();
        let spec = with_dropped(comparison, key, kyma, effective(comparison, key, kyma, is_declared, None));
        let class = comparison.old.class(kyma);
        let class_number = comparison.old_classes.get(&class).copied().unwrap_or_default();
        Some(Half { outline: &comparison.old, kyma, spec, class, class_number, is_declared })
    }

    fn new(comparison: &'a Comparison<'_>, key: &Key, old: Option<&Half<'a>>) -> Option<Half<'a>> {
        let kyma = comparison.prepared.new.kymas.get(key)?;
        let is_declared = comparison.new.definition(Kind::Kyma, key).is_some();
        let spec = effective(comparison, key, kyma, is_declared, old.map(|old| &*old.spec));
        let class = comparison.new.class(kyma);
        let class_number = comparison.new_classes.get(&class).copied().unwrap_or_default();
        Some(Half { outline: &comparison.new, kyma, spec, class, class_number, is_declared })
    }

    /// The mandatory modules of the Kyma.
    fn mandatory(&self, key: &Key) -> impl Iterator<Item = &'a str> {
        let namespace = key.namespace().to_owned();
        let releases = self.outline.inputs().landscape.releases.iter();
        let mandatory = releases.filter(|(_, release)| release.spec.mandatory.is_some());
        mandatory.map(|(key, _)| key).filter(move |key| key.namespace() == namespace).map(Key::name)
    }

    /// The spec with only some of the modules.
    fn only(&self, wanted: &dyn Fn(&str) -> bool) -> KymaSpec {
        let modules = self.spec.modules.iter().filter(|module| wanted(&module.name)).cloned();
        KymaSpec {
            channel: self.spec.channel.clone(),
            skip_maintenance_windows: self.spec.skip_maintenance_windows,
            modules: modules.collect(),
        }
    }
}

/// The modules of the old side, with those that the Kyma has dropped while a label of git suspended it: the runtime
/// still has them, and loses them once the new side has no such label.
fn with_dropped<'a>(comparison: &Comparison<'_>, key: &Key, kyma: &Kyma, spec: Cow<'a, KymaSpec>) -> Cow<'a, KymaSpec> {
    let suspends = |kyma: &Kyma| landscape::is_skipped(&kyma.metadata);
    let Some(known) = comparison.prepared.known.get(key).filter(|_| suspends(kyma)) else { return spec };
    if comparison.prepared.new.kymas.get(key).is_none_or(|new| suspends(new)) {
        return spec;
    }
    let releases = &comparison.prepared.old.releases;
    let is_mandatory = |name: &str| {
        releases.get(&Key::new(key.namespace(), name)).is_some_and(|release| release.spec.mandatory.is_some())
    };
    let is_dropped = |name: &str| spec.modules.iter().all(|module| module.name != name) && !is_mandatory(name);
    let dropped: Vec<Module> = known
        .installed
        .iter()
        .filter(|module| is_dropped(&module.name))
        .map(|module| Module {
            name: module.name.clone(),
            channel: module.channel.clone(),
            controller: None,
            custom_resource_policy: CustomResourcePolicy::default(),
            managed: true,
            remote_module_template_ref: None,
        })
        .collect();
    if dropped.is_empty() {
        return spec;
    }
    let modules = spec.modules.iter().cloned().chain(dropped).collect();
    Cow::Owned(KymaSpec { modules, ..spec.into_owned() })
}

/// The effective module list and channel. `before` are those of the old side, for a runtime that
/// selects its own modules.
fn effective<'a>(
    comparison: &Comparison<'_>,
    key: &Key,
    kyma: &'a Kyma,
    is_declared: bool,
    before: Option<&KymaSpec>,
) -> Cow<'a, KymaSpec> {
    let from = plan::modules_from(kyma);
    match (comparison.prepared.known.get(key), from) {
        _ if !is_declared => Cow::Borrowed(&kyma.spec),
        (_, ModulesFrom::Git) | (None, ModulesFrom::Merge) => Cow::Borrowed(&kyma.spec),
        (Some(known), ModulesFrom::Runtime | ModulesFrom::Merge) => {
            Cow::Owned(plan::effective(kyma, Some(&known.spec())))
        }
        (None, ModulesFrom::Runtime) => match before {
            Some(before) => Cow::Owned(before.clone()),
            None => Cow::Borrowed(&kyma.spec),
        },
    }
}
