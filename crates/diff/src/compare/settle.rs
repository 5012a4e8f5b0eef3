//! Computes what the control plane contains after the new side is merged: its valid definitions,
//! the old version of definitions that are held back, and objects that are not deleted although
//! they are no longer declared. The rules are those of the daemon.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tidegate_core::{
    api::{
        Kyma,
        names::{annotation, label},
        shared::ObjectMeta,
    },
    definition::{Allow, Definition, Definitions, Kind},
    diagnostic::{Diagnostics, Place},
    intake::{
        self, Decision, Declared, Id, Installed, Live, Loss, Moved, Other, Policy, Removals, Situation, Wait, removal,
    },
    landscape::{
        self, Landscape, SourceName,
        file::{KnownKyma, LandscapeFile, Owner},
    },
    name::Key,
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
}

/// Versions that stay in use after the commit, with the runtimes that keep them.
pub(super) type InUse = BTreeMap<Id, BTreeSet<Key>>;

/// What is known besides the two sides.
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
}

// === impl Settled ===

impl Settled {
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
    let broken = to.broken();
    let without_release = without_release((from, to, &broken), around);
    let is_without_release = !without_release.is_empty();
    // What waits takes nothing from runtimes.
    let applied = match is_without_release {
        true => Cow::Owned(with_former(from, to, &without_release)),
        false => Cow::Borrowed(to),
    };
    let removals = removals(from, &applied, around);
    if !gone.is_empty() || !claimed.is_empty() || is_without_release {
        let installed = match &removals {
            Some((remaining, _)) => remaining.clone(),
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
        for (id, heir) in &decision.heirs {
            let Some(definition) = gone.get(id) else { continue };
            good.insert(id.clone(), Arc::clone(definition));
            let (message, hint) = intake::handed_over(id, heir);
            let place = Some(definition.place.clone());
            held.push(Held { hint: Some(hint), place, ..Held::of_definition(id, Why::Kept, message) });
        }
        for (id, of) in &decision.held {
            match from.good.get(id) {
                Some(before) => good.insert(id.clone(), Arc::clone(before)),
                None => good.remove(id),
            };
            held.push(of_another(id, of, &decision));
        }
    }
    if let Some((_, decision)) = removals {
        held.extend(decision.removals.iter().map(|removal| Held::unconfirmed(around.source.key(), removal)));
        unconfirmed.extend(decision.held.into_keys());
    }
    // Kept objects may refer to objects that only the old side has.
    for (tree, objects) in &from.modules {
        modules.entry(*tree).or_insert_with(|| Arc::clone(objects));
    }
    let definitions = Definitions { good, modules, ..to.clone() };
    Settled { definitions, unconfirmed, held, in_use }
}

/// The Kymas that are not applied because a ModuleReleaseMeta that they name is invalid.
fn without_release(
    (from, to, broken): (&Definitions, &Definitions, &BTreeMap<Id, Place>),
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
    (from, to, broken): (&Definitions, &Definitions, &BTreeMap<Id, Place>),
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
                declare(&mut others, other, id);
                (Some(Arc::from(other.label_value())), None)
            }
            Owner::User => (None, Some(Arc::from([]))),
        };
        live.insert((*id).clone(), Live { source, managers, ..Live::default() });
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
    let of = others.entry(source.label_value()).or_insert_with(|| Other {
        key: source.key().clone(),
        idle: false,
        declares: Some(Arc::default()),
        allow: Allow::default(),
    });
    Arc::make_mut(of.declares.get_or_insert_default()).insert(id.clone());
}

/// A definition that is not applied, because another source or a user has its object, or one that it needs, or because
/// one that it needs is invalid.
fn of_another(id: &Id, held: &intake::Held, decision: &Decision) -> Held {
    let hint = decision.diagnostics.iter().find(|one| one.message == held.message).and_then(|one| one.hint.clone());
    let (why, place) = (if held.cause.is_some() { Why::Withheld } else { Why::Conflict }, Some(held.place.clone()));
    let hint = hint.or_else(|| held.hint());
    Held { hint, place, ..Held::of_definition(id, why, held.message.clone()) }
}

/// The modules that stay in runtimes, and the decision which definitions wait, because they take something from more
/// runtimes than the limit. `None` if none takes anything.
fn removals(from: &Definitions, to: &Definitions, around: &Around<'_>) -> Option<(Vec<Installed>, Decision)> {
    let is_changed = |id: &Id, definition: &Definition| {
        let before = from.good.get(id);
        before.is_some_and(|before| before.digest != definition.digest || before.module != definition.module)
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
    let taken = taken((from, to), around, (&decision, &changed), &installed);
    hold(&taken, to, around, &installed, &mut decision);
    // A Kyma that waits changes nothing.
    let kymas = candidates.iter().filter(|(id, _)| id.0 == Kind::Kyma && !decision.held.contains_key(id));
    let unmanaged = kymas.filter_map(|(id, _)| Some((&id.1, declared(id)?)));
    let unmanaged =
        unmanaged.flat_map(|(key, kyma)| removal::unmanaged(&kyma, installed.iter().filter(|one| one.runtime == *key)));
    let unmanaged = unmanaged.collect();
    let is_known = |kyma: &&KnownKyma| {
        kyma.labels.get(label::SKIP_RECONCILIATION).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    };
    let by_user: BTreeSet<Key> =
        around.known.iter().flat_map(|file| &file.kymas).filter(is_known).map(KnownKyma::key).collect();
    let is_suspended = |key: &Key| {
        let id = (Kind::Kyma, key.clone());
        let label = |definition: &Arc<Definition>| {
            definition.object.label(label::SKIP_RECONCILIATION).map(|value| value.eq_ignore_ascii_case("true"))
        };
        let (before, after) = (from.good.get(&id).and_then(label), to.good.get(&id).and_then(label));
        // The label from the old revision goes with it.
        after.unwrap_or_else(|| before.is_none() && by_user.contains(key))
    };
    let remaining = removal::remaining(&installed, &taken, &unmanaged, is_suspended, &decision);
    if remaining.len() < installed.len() {
        // What no runtime has any more changes without a confirmation.
        decision = Decision { apply: candidates, ..Decision::default() };
        let taken = self::taken((from, to), around, (&decision, &changed), &remaining);
        hold(&taken, to, around, &remaining, &mut decision);
    }
    Some((remaining, decision))
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
        let (Some(before), Some(after)) = (from.good.get(id), to.good.get(id)) else { continue };
        let of_runtime = || installed.iter().filter(|one| one.runtime == id.1);
        let removals = match id.0 {
            Kind::Kyma if removal::names_all(after.object.value(), of_runtime()) => continue,
            Kind::Kyma => {
                let typed = |definition| serde_json::from_value(landscape::stamp(definition, source).into_value());
                let (Ok(after), before) = (typed(after), typed(before).ok()) else { continue };
                removal::of_kyma(&after, before.as_ref(), of_runtime())
            }
            Kind::ModuleTemplate => {
                let objects = |definitions: &Definitions, definition: &Definition| {
                    definitions.modules.get(&definition.module.as_ref()?.tree.into()).cloned()
                };
                let Some(old) = objects(from, before) else { continue };
                let leaving = removal::leaving(&old, objects(to, after).as_deref());
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
