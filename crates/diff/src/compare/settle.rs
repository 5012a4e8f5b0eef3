//! Computes what the control plane contains after the new side is merged: its valid definitions,
//! the old version of definitions that are held back, and objects that are not deleted although
//! they are no longer declared. The rules are those of the daemon.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tidegate_core::{
    api::{
        Kyma,
        names::{annotation, label},
        shared::ObjectMeta,
    },
    definition::{Allow, Definition, Definitions, Kind, ModuleNames, ModuleObjects},
    diagnostic::{Diagnostics, FilePosition},
    intake::{
        self, Decision, Declared, HandOver, HeldFor, Id, Installed, Live, Loss, Moved, Other, Policy, Removals,
        Situation, Wait,
        removal::{self, Removal, Removed},
    },
    landscape::{
        self, Landscape, SourceName,
        file::{KnownKyma, KnownSource, LandscapeFile, Owner, Takeover, as_taken_over},
    },
    name::Key,
    object::Object,
    plan::Settings,
};

use crate::model::{Held, Why};

/// The future active definitions, and what is held.
pub(super) struct Settled {
    /// The future active definitions.
    pub(super) definitions: Definitions,
    /// Definitions whose deletion a user must confirm.
    pub(super) unconfirmed: BTreeSet<Id>,
    /// Definitions that are held back or kept. Their runtimes are added later.
    pub(super) held: Vec<Held>,
    /// Versions that are pruned as soon as no runtime has them, and the runtimes that have them now.
    pub(super) in_use: BTreeMap<Id, Vec<Loss>>,
    /// Runtimes that lose objects of a version, which waits for a confirmation, with this version.
    pub(super) losing: Vec<Loss>,
    /// Objects that the new side no longer declares and that other sources take over.
    pub(super) handed: BTreeMap<Id, Handed>,
    /// New definitions that are not applied, because these own their objects.
    pub(super) conflicts: BTreeMap<Id, Owner>,
}

/// An object that another source takes over with other content.
#[derive(Clone)]
pub(super) struct Handed {
    /// The object of the old side, as in the control plane.
    pub(super) before: Object,
    /// What it is then; `None` if that is not known.
    pub(super) after: Option<Object>,
}

/// Versions that stay in use after the commit, with the runtimes that keep them.
pub(super) type InUse = BTreeMap<Id, BTreeSet<Key>>;

/// The versions that runtimes get in place of those of [`Settled::losing`], by runtime and module.
pub(super) type Replaced = BTreeMap<(Key, String), String>;

/// What is known besides the two sides.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    /// Whether the new side has errors, so that nothing is pruned.
    pub(super) errors: bool,
    pub(super) source: &'a SourceName,
    pub(super) policy: &'a Policy,
    /// The catalog of other sources and of users.
    pub(super) known: Option<&'a LandscapeFile>,
    /// Returns the old side with everything that is known of runtimes. It is only called if something is deleted or
    /// changes.
    pub(super) before: &'a dyn Fn() -> Landscape,
    /// Returns the modules of runtimes in a landscape.
    pub(super) installed: &'a dyn Fn(&Landscape) -> Vec<Installed>,
    pub(super) settings: &'a Settings,
    /// What runtimes keep, of [`Settled::in_use`] of an earlier call.
    pub(super) stays_in_use: &'a InUse,
    /// What runtimes do not keep, of [`Settled::losing`] of an earlier call.
    pub(super) replaced: &'a Replaced,
}

// === impl Handed ===

impl Handed {
    /// Adds the object as it is then.
    pub(super) fn insert(&self, (kind, key): &Id, landscape: &mut Landscape) {
        // What is not known stays as it is.
        let value = self.after.as_ref().unwrap_or(&self.before).value().clone();
        match kind {
            Kind::Kyma => typed_into(&mut landscape.kymas, key, value),
            Kind::ModuleTemplate => typed_into(&mut landscape.templates, key, value),
            Kind::ModuleReleaseMeta => typed_into(&mut landscape.releases, key, value),
            Kind::Watcher => typed_into(&mut landscape.watchers, key, value),
            Kind::Setup(kind) => drop(landscape.setup.insert(*kind, key, value)),
        }
    }
}

/// Adds an object. One that cannot be read changes nothing that this comparison knows.
fn typed_into<K: DeserializeOwned>(into: &mut BTreeMap<Key, Arc<K>>, key: &Key, value: Value) {
    if let Ok(object) = serde_json::from_value(value) {
        into.insert(key.clone(), Arc::new(object));
    }
}

// === impl Settled ===

impl Settled {
    /// The objects that other sources take over without a confirmation.
    pub(super) fn handed_at_once(&self) -> BTreeMap<Id, Handed> {
        let at_once = self.handed.iter().filter(|(id, _)| !self.unconfirmed.contains(*id));
        at_once.map(|(id, handed)| (id.clone(), handed.clone())).collect()
    }

    /// The definitions that are active until a user confirms what waits; `None` if nothing waits.
    pub(super) fn until_confirmed(&self, from: &Definitions) -> Option<Definitions> {
        if self.unconfirmed.is_empty() {
            return None;
        }
        let mut definitions = self.definitions.clone();
        for id in &self.unconfirmed {
            match from.good.get(id) {
                Some(before) => definitions.good.insert(id.clone(), Arc::clone(before)),
                None => definitions.good.remove(id),
            };
        }
        Some(definitions)
    }
}

/// Decides about everything that either side declares.
pub(super) fn settle(from: &Definitions, to: &Definitions, around: &Around<'_>) -> Settled {
    let mut good = to.good.clone();
    let mut modules = to.modules.clone();
    let mut held = Vec::new();
    for withheld in &to.withheld {
        held.push(Held::withheld(withheld));
        if let Some(before) = from.good.get(&(withheld.kind, withheld.key.clone())) {
            good.insert((withheld.kind, withheld.key.clone()), Arc::clone(before));
        }
    }
    let declared = to.declared();
    let gone: BTreeMap<&Id, &Arc<Definition>> = from.good.iter().filter(|(id, _)| !declared.contains(*id)).collect();
    let claimed: BTreeMap<&Id, Owner> = to
        .good
        .keys()
        .filter(|id| !from.good.contains_key(*id))
        .filter_map(|id| Some((id, around.known?.owner(id.0, &id.1, around.source)?)))
        .collect();
    let (mut unconfirmed, mut in_use) = (BTreeSet::new(), BTreeMap::new());
    let (mut handed, mut conflicts) = (BTreeMap::new(), BTreeMap::new());
    let broken = to.broken();
    let without_release = without_release((from, to, &broken), around);
    let is_without_release = !without_release.is_empty();
    // What waits takes nothing from runtimes.
    let applied = match is_without_release {
        true => Cow::Owned(with_former(from, to, &without_release)),
        false => Cow::Borrowed(to),
    };
    let taken_over = taken_over(&claimed, (from, to, &broken), around);
    let removals = removals(from, &applied, &taken_over, around);
    if !gone.is_empty() || !claimed.is_empty() || is_without_release {
        let installed = match &removals {
            Some((remaining, ..)) => remaining.clone(),
            None if gone.is_empty() => Vec::new(),
            None => (around.installed)(&(around.before)()),
        };
        let decision = decide(&gone, &claimed, (from, to, &broken), around, &installed);
        for (id, wait) in &decision.waiting {
            let Some(definition) = gone.get(id) else { continue };
            match wait {
                Wait::Unconfirmed(_) | Wait::Limit { .. } => {
                    unconfirmed.insert(id.clone());
                }
                // It goes when the rollout of the same commit is over.
                Wait::InUse(losses) => match around.stays_in_use.get(id) {
                    None => drop(in_use.insert(id.clone(), losses.clone())),
                    Some(runtimes) => {
                        good.insert(id.clone(), Arc::clone(definition));
                        held.push(Held::in_use(id, runtimes, Some(definition.place.clone())));
                    }
                },
                Wait::Errors
                | Wait::Unread(_)
                | Wait::Off
                | Wait::Kept
                | Wait::Unreadable
                | Wait::Tool(_)
                | Wait::Terminating => {
                    good.insert(id.clone(), Arc::clone(definition));
                    held.push(kept(id, definition, wait));
                }
            }
        }
        hand_over((&decision, &gone, from), around, &installed, (&mut held, &mut unconfirmed, &mut handed));
        for id in decision.heirs.keys() {
            if let Some(definition) = gone.get(id).filter(|_| !handed.contains_key(id)) {
                good.insert(id.clone(), Arc::clone(definition));
            }
        }
        for (id, of) in &decision.held {
            match from.good.get(id) {
                Some(before) => good.insert(id.clone(), Arc::clone(before)),
                None => good.remove(id),
            };
            held.push(of_another(id, of, &decision));
            if let Some(owner) = claimed.get(id).filter(|_| of.cause.is_none()) {
                conflicts.insert(id.clone(), owner.clone());
            }
        }
    }
    let mut losing = Vec::new();
    if let Some((_, decision, of_versions)) = removals {
        losing = of_versions;
        held.extend(decision.removals.iter().map(|removal| Held::unconfirmed(around.source.key(), removal)));
        unconfirmed.extend(decision.held.into_keys());
    }
    // Kept objects may refer to objects that only the old side has.
    for (tree, objects) in &from.modules {
        modules.entry(*tree).or_insert_with(|| Arc::clone(objects));
    }
    let definitions = Definitions { good, modules, ..to.clone() };
    Settled { definitions, unconfirmed, held, in_use, losing, handed, conflicts }
}

/// What becomes of the objects that the new side no longer declares and that other sources declare.
fn hand_over(
    (decision, gone, from): (&Decision, &BTreeMap<&Id, &Arc<Definition>>, &Definitions),
    around: &Around<'_>,
    installed: &[Installed],
    (held, unconfirmed, handed): (&mut Vec<Held>, &mut BTreeSet<Id>, &mut BTreeMap<Id, Handed>),
) {
    let mut taken: BTreeMap<&Key, Removals> = BTreeMap::new();
    for (id, heir) in &decision.heirs {
        let Some(definition) = gone.get(id) else { continue };
        let before = landscape::stamp(definition, around.source);
        let heir_name = SourceName::new(heir.clone());
        let takeover = around.known.map(|known| known.takeover(id, &heir_name));
        let after = match takeover {
            None | Some(Takeover::Stays) => None,
            Some(Takeover::Changes(object)) => Some(object.map(|object| as_taken_over(&before, &object))),
        };
        let module = definition.module.as_ref().and_then(|module| from.modules.get(&module.tree.into()));
        let names = around.known.and_then(|known| known.module_of_takeover(id, &heir_name));
        let modules = (module.map(|module| &**module), names.as_ref());
        let removals = of_takeover(id, (&before, after.as_ref().and_then(Option::as_ref)), modules, installed);
        let what_then = match (&after, around.known.and_then(|known| known.idle(heir))) {
            (_, Some(idle)) => HandOver::Idle(idle),
            (Some(_), None) => HandOver::Changes(&removals),
            (None, None) => HandOver::Same,
        };
        let (message, hint) = intake::handed_over(id, heir, what_then);
        let place = Some(definition.place.clone());
        held.push(Held { hint: Some(hint), place, ..Held::of_definition(id, Why::Kept, message) });
        taken.entry(heir).or_default().insert(id.clone(), removals);
        handed.extend(after.map(|after| (id.clone(), Handed { before, after })));
    }
    for (heir, taken) in taken {
        let source = SourceName::new(heir.clone());
        let policy = around.known.and_then(|known| known.source(heir)?.policy(&KnownSource::default()).ok());
        let policy = policy.unwrap_or_default();
        let around = Around { source: &source, policy: &policy, ..*around };
        let good = taken.keys().filter_map(|id| Some((id.clone(), Arc::clone(gone.get(id)?)))).collect();
        let apply = taken.keys().map(|id| (id.clone(), intake::Why::Replaced)).collect();
        let mut decision = Decision { apply, ..Decision::default() };
        hold(&taken, &Definitions { good, ..Definitions::default() }, &around, installed, &mut decision);
        held.extend(decision.removals.iter().map(|removal| Held::unconfirmed_elsewhere(heir, removal)));
        unconfirmed.extend(decision.held.into_keys());
    }
}

/// What leaves runtimes when another source takes an object over. `modules` are the objects of a ModuleTemplate, before
/// and then.
fn of_takeover(
    id: &Id,
    (before, after): (&Object, Option<&Object>),
    modules: (Option<&ModuleObjects>, Option<&ModuleNames>),
    installed: &[Installed],
) -> Vec<Removal> {
    let typed = |object: &Object| serde_json::from_value::<Kyma>(object.value().clone()).ok();
    match (id.0, after.and_then(typed)) {
        (Kind::Kyma, Some(after)) => {
            let of_runtime = installed.iter().filter(|one| one.runtime == id.1);
            removal::of_kyma(&after, typed(before).as_ref(), of_runtime)
        }
        (Kind::ModuleTemplate, _) => {
            let (Some(old), Some(new)) = modules else { return Vec::new() };
            let leaving = removal::leaving_but(old, |id| new.contains(id));
            removal::of_template(&id.1, Some(&leaving), installed, |_, _| true)
        }
        (Kind::Kyma, None) | (Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_), _) => Vec::new(),
    }
}

/// The new definitions whose objects other sources or users have, and that take these over.
fn taken_over<'c>(
    claimed: &BTreeMap<&'c Id, Owner>,
    sides: (&Definitions, &Definitions, &BTreeMap<Id, FilePosition>),
    around: &Around<'_>,
) -> BTreeSet<&'c Id> {
    if claimed.is_empty() {
        return BTreeSet::new();
    }
    let decision = decide(&BTreeMap::new(), claimed, sides, around, &[]);
    let applied: BTreeSet<&Id> = decision.apply.iter().map(|(id, _)| id).collect();
    claimed.keys().filter(|id| applied.contains(**id)).copied().collect()
}

/// The Kymas that are not applied because a ModuleReleaseMeta that they name is invalid.
fn without_release(
    (from, to, broken): (&Definitions, &Definitions, &BTreeMap<Id, FilePosition>),
    around: &Around<'_>,
) -> BTreeSet<Id> {
    let names_one =
        |(id, definition): (&Id, &Arc<Definition>)| id.0 == Kind::Kyma && !intake::needs(definition, broken).is_empty();
    if !to.good.iter().any(names_one) {
        return BTreeSet::new();
    }
    let decision = decide(&BTreeMap::new(), &BTreeMap::new(), (from, to, broken), around, &[]);
    decision.held.into_iter().filter(|(_, held)| held.cause.is_some()).map(|(id, _)| id).collect()
}

/// The new side, with these definitions as they are on the old side.
fn with_former(from: &Definitions, to: &Definitions, ids: &BTreeSet<Id>) -> Definitions {
    let mut definitions = to.clone();
    for id in ids {
        match from.good.get(id) {
            Some(before) => definitions.good.insert(id.clone(), Arc::clone(before)),
            None => definitions.good.remove(id),
        };
    }
    definitions
}

/// The waiting prunes and the refused definitions, with their reasons. All other removed objects are pruned
/// immediately.
fn decide(
    gone: &BTreeMap<&Id, &Arc<Definition>>,
    claimed: &BTreeMap<&Id, Owner>,
    (from, to, broken): (&Definitions, &Definitions, &BTreeMap<Id, FilePosition>),
    around: &Around<'_>,
    installed: &[Installed],
) -> Decision {
    let label = around.source.label_value();
    let digest: Arc<str> = "".into();
    let declared: BTreeMap<Id, Declared> = to
        .good
        .iter()
        .map(|(id, definition)| {
            let (place, needs) = (definition.place.clone(), intake::needs(definition, broken));
            let adopt = definition.object.annotation(annotation::ADOPT) == Some("true");
            (id.clone(), Declared { digest: Arc::clone(&digest), place, adopt, needs })
        })
        .collect();
    let withheld: BTreeSet<Id> = to.withheld.iter().map(|one| (one.kind, one.key.clone())).collect();
    let metadata_of = |definition: &Definition| -> ObjectMeta {
        let metadata = definition.object.field("metadata");
        metadata.and_then(|value| serde_json::from_value(value.clone()).ok()).unwrap_or_default()
    };
    let ours = || Some(Arc::from(label.as_str()));
    let mut live: BTreeMap<Id, Live> = BTreeMap::new();
    for (id, definition) in gone {
        live.insert((*id).clone(), Live { source: ours(), ..Live::from_metadata(&metadata_of(definition), None) });
    }
    // What does not change does not depend on what is refused.
    for (id, definition) in &to.good {
        let is_same =
            |before: &Arc<Definition>| before.digest == definition.digest && before.module == definition.module;
        if from.good.get(id).is_some_and(is_same) {
            live.insert(id.clone(), Live { source: ours(), digest: Some(Arc::clone(&digest)), ..Live::default() });
        }
    }
    let mut others: BTreeMap<String, Other> = BTreeMap::new();
    for id in gone.keys() {
        if let Some(heir) = around.known.and_then(|known| known.heir(id, around.source)) {
            declare(&mut others, &heir, id);
        }
    }
    for (id, owner) in claimed {
        let (source, managers) = match owner {
            Owner::Source(other) => {
                let is_gone = |known: &LandscapeFile| known.has_sources() && known.source(other.key()).is_none();
                // Its owner may have dropped it, or may be gone.
                match around.known {
                    Some(known) if is_gone(known) => {}
                    Some(known) if known.is_undeclared(id, other) => drop(note(&mut others, other)),
                    Some(_) | None => declare(&mut others, other, id),
                }
                (Some(Arc::from(other.label_value())), None)
            }
            Owner::User => (None, Some(Arc::from([]))),
        };
        let (new, known) = (to.good.get(*id), around.known);
        // No client but the deleted source has written it, as far as the file says.
        let left = known.is_some_and(|known| known.is_left(id, around.source));
        let same_content = new.zip(known).is_some_and(|(new, known)| match left {
            true => known.is_as_left(new, around.source),
            false => known.has_content(new),
        });
        live.insert((*id).clone(), Live { source, managers, same_content, left, ..Live::default() });
    }
    // What is invalid may be in KCP as it was before.
    let releases = broken.keys().filter(|id| id.0 == Kind::ModuleReleaseMeta && !live.contains_key(*id));
    let is_present = |id: &&Id| from.good.contains_key(*id) || (around.before)().releases.contains_key(&id.1);
    let present: Vec<Id> = releases.filter(is_present).cloned().collect();
    live.extend(present.into_iter().map(|id| (id, Live { source: ours(), ..Live::default() })));
    intake::decide(&Situation {
        source: around.source.key(),
        label: &label,
        commit: None,
        declared: &declared,
        withheld: &withheld,
        broken,
        live: &live,
        others: &others,
        installed,
        leaving: &BTreeSet::new(),
        policy: around.policy,
        errors: around.errors,
        moved: Moved::No,
    })
}

/// Notes that another source declares an object.
fn declare(others: &mut BTreeMap<String, Other>, source: &SourceName, id: &Id) {
    Arc::make_mut(note(others, source).declares.get_or_insert_default()).insert(id.clone());
}

/// Notes that there is another source.
fn note<'o>(others: &'o mut BTreeMap<String, Other>, source: &SourceName) -> &'o mut Other {
    others.entry(source.label_value()).or_insert_with(|| Other {
        key: source.key().clone(),
        idle: false,
        declares: Some(Arc::default()),
        allow: Allow::default(),
    })
}

/// A definition that is not applied, because another source or a user has its object, or one that it needs, or because
/// one that it needs is invalid.
fn of_another(id: &Id, held: &intake::Held, decision: &Decision) -> Held {
    let hint = decision.diagnostics.iter().find(|one| one.message == held.message).and_then(|one| one.hint.clone());
    let why = match held.why {
        _ if held.cause.is_some() => Why::Withheld,
        HeldFor::Dependency => Why::Waiting,
        HeldFor::Problem | HeldFor::Terminating | HeldFor::Removal => Why::Conflict,
    };
    let place = Some(held.place.clone());
    let hint = hint.or_else(|| held.hint());
    Held { hint, place, ..Held::of_definition(id, why, held.message.clone()) }
}

/// The modules that stay in runtimes, the decision which definitions wait, because they take something from more
/// runtimes than the limit, and [`Settled::losing`]. `None` if none takes anything.
fn removals(
    from: &Definitions,
    to: &Definitions,
    taken_over: &BTreeSet<&Id>,
    around: &Around<'_>,
) -> Option<(Vec<Installed>, Decision, Vec<Loss>)> {
    let is_changed = |id: &Id, definition: &Definition| match from.good.get(id) {
        Some(before) => before.digest != definition.digest || before.module != definition.module,
        None => taken_over.contains(id),
    };
    let changed = to.good.iter().filter(|(id, definition)| is_changed(id, definition));
    let apply = changed.map(|(id, _)| (id.clone(), intake::Why::Changed)).collect();
    let mut decision = Decision { apply, ..Decision::default() };
    removal::candidates(&decision).next()?;
    let (source, known) = (around.source, (around.before)());
    let changed = may_change_access(&decision, to, &known, around);
    let takes_objects = |(kind, _): &Id| matches!(kind, Kind::Kyma | Kind::ModuleTemplate);
    if !removal::candidates(&decision).any(takes_objects) && !removal::may_take(&known, &changed) {
        return None;
    }
    let installed = (around.installed)(&known);
    let declared =
        |id: &Id| serde_json::from_value::<Kyma>(landscape::stamp(to.good.get(id)?, source).into_value()).ok();
    let candidates = decision.apply.clone();
    let mut taken = taken((from, to), around, (&decision, &changed), &installed);
    hold(&taken, to, around, &installed, &mut decision);
    // A Kyma that waits changes nothing.
    let kymas = candidates.iter().filter(|(id, _)| id.0 == Kind::Kyma && !decision.held.contains_key(id));
    let unmanaged = kymas.filter_map(|(id, _)| Some((&id.1, declared(id)?)));
    let unmanaged =
        unmanaged.flat_map(|(key, kyma)| removal::unmanaged(&kyma, installed.iter().filter(|one| one.runtime == *key)));
    let unmanaged = unmanaged.collect();
    let is_known = |kyma: &&KnownKyma| {
        kyma.labels.get(label::SKIP_RECONCILIATION).is_some_and(|value| landscape::says_true(value))
    };
    let by_user: BTreeSet<Key> =
        around.known.iter().flat_map(|file| &file.kymas).filter(is_known).map(KnownKyma::key).collect();
    let is_suspended = |key: &Key| {
        let id = (Kind::Kyma, key.clone());
        let label = |definition: &Arc<Definition>| {
            definition.object.label(label::SKIP_RECONCILIATION).map(landscape::says_true)
        };
        let (before, after) = (from.good.get(&id).and_then(label), to.good.get(&id).and_then(label));
        // The label from the old revision goes with it.
        after.unwrap_or_else(|| before.is_none() && by_user.contains(key))
    };
    let mut remaining = removal::remaining(&installed, &taken, &unmanaged, is_suspended, &decision);
    for one in &mut remaining {
        if let Some(version) = around.replaced.get(&(one.runtime.clone(), one.module.clone())) {
            one.version.clone_from(version);
        }
    }
    if remaining != installed {
        // What no runtime has any more changes without a confirmation.
        decision = Decision { apply: candidates, ..Decision::default() };
        taken = self::taken((from, to), around, (&decision, &changed), &remaining);
        hold(&taken, to, around, &remaining, &mut decision);
    }
    let losing = losing(&taken, &decision, &remaining);
    Some((remaining, decision, losing))
}

/// The runtimes that lose objects of versions whose definitions wait.
fn losing(taken: &Removals, decision: &Decision, installed: &[Installed]) -> Vec<Loss> {
    let waiting = taken.iter().filter(|(id, _)| decision.held.contains_key(id)).flat_map(|(_, all)| all);
    let waiting = waiting.filter(|removal| removal.loss != Removed::Module);
    let of_one = |removal: &'_ Removal| {
        let (module, runtimes) = (removal.module.name().to_owned(), removal.runtimes.clone());
        installed.iter().filter(move |one| one.module == module && runtimes.contains(&one.runtime)).map(Loss::from)
    };
    waiting.flat_map(of_one).collect()
}

/// What the definitions of a decision take from runtimes. `changed` are those that may change which modules they have.
fn taken(
    (from, to): (&Definitions, &Definitions),
    around: &Around<'_>,
    (decision, changed): (&Decision, &Landscape),
    installed: &[Installed],
) -> Removals {
    let (source, known) = (around.source, (around.before)());
    let mut taken = Removals::new();
    for id in removal::candidates(decision) {
        let (before, Some(after)) = (from.good.get(id), to.good.get(id)) else { continue };
        let of_runtime = || installed.iter().filter(|one| one.runtime == id.1);
        let removals = match id.0 {
            Kind::Kyma if removal::names_all(after.object.value(), of_runtime()) => continue,
            Kind::Kyma => {
                let typed = |definition| serde_json::from_value(landscape::stamp(definition, source).into_value());
                let Ok(after) = typed(after) else { continue };
                let before = match before {
                    Some(before) => typed(before).ok().map(Arc::new),
                    None => known.kymas.get(&id.1).cloned(),
                };
                removal::of_kyma(&after, before.as_deref(), of_runtime())
            }
            Kind::ModuleTemplate => {
                let objects = |definitions: &Definitions, definition: &Definition| {
                    definitions.modules.get(&definition.module.as_ref()?.tree.into()).cloned()
                };
                let new = objects(to, after);
                let leaving = match before {
                    Some(before) => {
                        let Some(old) = objects(from, before) else { continue };
                        removal::leaving(&old, new.as_deref())
                    }
                    // The objects of another source are not here, but those that runtimes have may be known.
                    None => {
                        let Some(old) = around.known.and_then(|known| known.module(&id.1)) else { continue };
                        let new = new.as_deref().map(ModuleNames::from).unwrap_or_default();
                        removal::leaving_names(old.ids(), |id| new.contains(id))
                    }
                };
                // What the API server has refused is not known here.
                removal::of_template(&id.1, Some(&leaving), installed, |_, _| true)
            }
            Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_) => continue,
        };
        taken.insert(id.clone(), removals);
    }
    removal::merge(&mut taken, removal::of_access(&known, changed, installed, around.settings));
    taken
}

/// Decides which definitions wait.
fn hold(taken: &Removals, to: &Definitions, around: &Around<'_>, installed: &[Installed], decision: &mut Decision) {
    let source = around.source;
    let digest: Arc<str> = "".into();
    let declare = |(id, definition): (&Id, &Arc<Definition>)| {
        let place = definition.place.clone();
        (id.clone(), Declared { digest: Arc::clone(&digest), place, adopt: false, needs: Vec::new() })
    };
    let situation = Situation {
        source: source.key(),
        label: &source.label_value(),
        commit: None,
        declared: &to.good.iter().map(declare).collect(),
        withheld: &to.withheld.iter().map(|one| (one.kind, one.key.clone())).collect(),
        broken: &BTreeMap::new(),
        live: &BTreeMap::new(),
        others: &BTreeMap::new(),
        installed,
        leaving: &BTreeSet::new(),
        policy: around.policy,
        errors: false,
        moved: Moved::No,
    };
    removal::hold(&situation, taken, decision);
}

/// The changed definitions that may change which modules runtimes may have.
fn may_change_access(decision: &Decision, to: &Definitions, known: &Landscape, around: &Around<'_>) -> Landscape {
    let changed = removal::candidates(decision).filter_map(|id| {
        let definition = to.good.get(id)?;
        let live = known.kymas.get(&id.1).filter(|_| id.0 == Kind::Kyma);
        let may = |live: &Arc<Kyma>| removal::may_change_access(definition.object.value(), live, around.settings);
        live.is_none_or(may).then(|| (id.clone(), Arc::clone(definition)))
    });
    let changed = Definitions { good: changed.collect(), ..Definitions::default() };
    // What cannot be read is among the diagnostics of the new side.
    Landscape::from_definitions(&mut Diagnostics::default(), &changed, around.source)
}

fn kept(id: &Id, definition: &Definition, wait: &Wait) -> Held {
    let (reason, hint) = match wait {
        Wait::Errors => ("Tidegate prunes nothing while there are errors", Some("correct the errors first")),
        Wait::Off => ("the GitSource has `prune: false`", None),
        Wait::Kept => ("its annotation `tidegate.dev/prune: disabled` protects it", None),
        Wait::Tool(_) => ("another tool manages it", None),
        Wait::Unread(_) => ("another source may declare it", None),
        Wait::Unreadable => ("it cannot be read", None),
        Wait::Terminating | Wait::Unconfirmed(_) | Wait::InUse(_) | Wait::Limit { .. } => ("it waits", None),
    };
    let message = format!("{} is no longer declared, but is not deleted: {reason}", intake::text(id));
    Held {
        hint: hint.map(str::to_owned),
        place: Some(definition.place.clone()),
        ..Held::of_definition(id, Why::Kept, message)
    }
}
