//! Decides whether what a commit takes from runtimes waits for a confirmation.
//!
//! A commit can remove a module from Kymas, change whether runtimes may have it ([`of_access`]), or remove objects from
//! a version of a module that stays installed. All of these reach every runtime within seconds, and no new version or
//! rollout slows them down. So beyond a number of runtimes, the definitions that do it stay in KCP as they are until a
//! user confirms the commit. Everything else of the commit is applied.
//!
//! Nothing is recorded: the objects in KCP are what runtimes have, and each pass compares them with git. So the wait
//! also holds in a new process, and ends when the commit is confirmed or reverted.

mod access;

use std::collections::{BTreeMap, BTreeSet};

pub use self::access::{may_change_access, may_take, of_access};
use super::{
    ConfirmBy, Decision, Held, HeldFor, Id, Installed, Moved, Situation, Standing, Why, code,
    prune::{NAMED_MAX, is_confirmed},
    text,
};
use crate::{
    api::{Kyma, kyma::Module},
    changes::{self, Purpose, Verdict},
    conditions,
    definition::{Kind, ModuleObjects, SourceObject},
    diagnostic::{Diagnostic, FilePosition},
    inventory::Inventory,
    name::Key,
    object::ObjectId,
    plan::{self, ModulesFrom},
    words::{agreeing, counted},
};

/// What a definition takes from runtimes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Namespace and name of the module.
    pub module: Key,
    /// What they lose.
    pub loss: Removed,
    /// Their Kymas.
    pub runtimes: BTreeSet<Key>,
}

/// What leaves a runtime.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Removed {
    /// The module.
    Module,
    /// Objects of a version that stays installed, sorted and not empty.
    Objects {
        /// The version.
        version: String,
        /// The objects.
        objects: Vec<ObjectId>,
    },
    /// It is not known which objects of this version: those in KCP cannot be read any more.
    Unknown {
        /// The version.
        version: String,
    },
}

/// Removals by the definition that makes them.
pub type Removals = BTreeMap<Id, Vec<Removal>>;

/// A removal that waits for a confirmation, from all runtimes that lose the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingRemoval {
    /// Namespace and name of the module.
    pub module: Key,
    /// What leaves.
    pub loss: Removed,
    /// The runtimes that lose it.
    pub runtimes: BTreeSet<Key>,
    /// How many runtimes may lose something of the module without a confirmation.
    pub limit: usize,
    /// What exceeds the limit.
    pub exceeding: Exceeding,
    /// The first definition that removes it.
    pub place: FilePosition,
    /// Whether something else than a commit removes it.
    pub moved: Moved,
}

/// The runtimes of a module that count for its removal limit, each once, whatever it loses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeding {
    /// Runtimes that lose something of the module.
    pub losing: usize,
    /// Other runtimes with the module whose Kyma is held back: the next revision may remove it from them.
    pub unknown: usize,
}

/// A removal of fewer runtimes never exceeds the default limit.
const LIMIT_MIN: usize = 5;
/// A removal from more runtimes always exceeds the default limit.
const LIMIT_RUNTIMES_MAX: usize = 50;
/// Percentage of the runtimes with the module, for the default limit.
const LIMIT_PERCENT: usize = 10;

/// The definitions of a decision that may take something from runtimes: those that differ from what is in KCP. A field
/// that another client changed in KCP is no removal by git, apart from modules that it added to a Kyma.
pub fn candidates(decision: &Decision) -> impl Iterator<Item = &Id> {
    decision.apply.iter().filter_map(|(id, why)| {
        let is_kind = match id.0 {
            Kind::Kyma | Kind::ModuleTemplate | Kind::ModuleReleaseMeta => true,
            Kind::Watcher | Kind::Setup(_) => false,
        };
        let is_change = match why {
            Why::Changed | Why::Adopted | Why::Moved | Why::Replaced => true,
            Why::Drifted => id.0 == Kind::Kyma,
            Why::Absent | Why::Displaced => false,
        };
        (is_kind && is_change).then_some(id)
    })
}

/// The modules that leave the runtime of a Kyma when its definition is applied over the live object, which is `None` if
/// it cannot be read. `installed` are the modules of this runtime.
pub fn of_kyma<'a>(
    declared: &Kyma,
    live: Option<&Kyma>,
    installed: impl IntoIterator<Item = &'a Installed>,
) -> Vec<Removal> {
    let modules = |kyma: &Kyma| kyma.spec.modules.iter().cloned().collect::<Vec<Module>>();
    let of_live = live.map(modules).unwrap_or_default();
    let managed: BTreeSet<&str> =
        of_live.iter().filter(|module| module.managed).map(|module| module.name.as_str()).collect();
    let after = plan::modules_from(declared);
    // Of an object that cannot be read, every module may be one of git.
    let before = live.map_or(ModulesFrom::Runtime, plan::modules_from);
    let named: BTreeSet<&str> = of_live.iter().map(|module| module.name.as_str()).collect();
    let wanted: BTreeSet<String> = modules(declared).into_iter().map(|module| module.name).collect();
    // While a removal waits, a client that drops the module from the Kyma does not confirm it.
    let has_waited = live
        .and_then(|live| live.status.as_ref())
        .is_some_and(|status| conditions::find(&status.conditions, conditions::REMOVAL).is_some());
    let is_lost = |module: &str| match (before, after) {
        // The runtime decides, or keeps what it has added.
        (_, ModulesFrom::Runtime) | (ModulesFrom::Runtime, ModulesFrom::Merge) => false,
        (ModulesFrom::Runtime, ModulesFrom::Git) => !wanted.contains(module),
        // What the Kyma in KCP no longer has is being removed already, or is the runtime's own.
        (ModulesFrom::Git | ModulesFrom::Merge, ModulesFrom::Merge) | (ModulesFrom::Git, ModulesFrom::Git) => {
            (managed.contains(module) || has_waited && !named.contains(module)) && !wanted.contains(module)
        }
        (ModulesFrom::Merge, ModulesFrom::Git) => !wanted.contains(module),
    };
    let lost = installed.into_iter().filter(|one| one.standing == Standing::Selected && is_lost(&one.module));
    lost.map(|one| Removal { module: module_key(one), loss: Removed::Module, runtimes: [one.runtime.clone()].into() })
        .collect()
}

/// Whether the definition of a Kyma names all modules that its runtime has, which needs no further comparison.
pub fn names_all<'a>(declared: &serde_json::Value, installed: impl IntoIterator<Item = &'a Installed>) -> bool {
    let modules = declared["spec"]["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
    installed.into_iter().all(|one| modules.iter().any(|module| module["name"] == one.module.as_str()))
}

/// What runtimes lose when a ModuleTemplate is applied over the live object, of the same version. `objects` are those
/// of [`leaving`], or `None` if they cannot be compared. `installed` are the modules of all runtimes, and `has` says
/// whether one of them has had an object: one that the API server has always refused leaves no runtime.
pub fn of_template<'a>(
    template: &Key,
    objects: Option<&[ObjectId]>,
    installed: impl IntoIterator<Item = &'a Installed>,
    has: impl Fn(&Installed, &ObjectId) -> bool,
) -> Vec<Removal> {
    let mut removals: BTreeMap<(Key, String), (BTreeSet<Key>, BTreeSet<ObjectId>)> = BTreeMap::new();
    for one in installed.into_iter().filter(|one| has_template(one, template) && one.standing != Standing::Leaving) {
        let lost: Vec<&ObjectId> = objects.into_iter().flatten().filter(|id| has(one, id)).collect();
        if lost.is_empty() && objects.is_some() {
            continue;
        }
        let of_module = removals.entry((module_key(one), one.version.clone())).or_default();
        of_module.0.insert(one.runtime.clone());
        of_module.1.extend(lost.into_iter().cloned());
    }
    let removal = |((module, version), (runtimes, lost))| {
        let loss = match objects {
            Some(_) => Removed::Objects { version, objects: Vec::from_iter(lost) },
            None => Removed::Unknown { version },
        };
        Removal { module, loss, runtimes }
    };
    removals.into_iter().map(removal).collect()
}

/// Whether a runtime has the version of a ModuleTemplate.
pub fn has_template(installed: &Installed, template: &Key) -> bool {
    let name = template.name().strip_prefix(installed.module.as_str()).and_then(|rest| rest.strip_prefix('-'));
    name == Some(installed.version.as_str()) && installed.runtime.namespace() == template.namespace()
}

/// The objects of a module that would be deleted in runtimes because they are no longer part of it, sorted. `new` is
/// `None` if no objects are in git any more.
pub fn leaving(old: &ModuleObjects, new: Option<&ModuleObjects>) -> Vec<ObjectId> {
    let stays = ids(new);
    leaving_but(old, |id| stays.contains(id))
}

/// As [`leaving`], where `stays` says what the new module has.
pub fn leaving_but(old: &ModuleObjects, stays: impl Fn(&ObjectId) -> bool) -> Vec<ObjectId> {
    let gone = old.objects().iter().filter(|object| !stays(object.id()));
    let is_deleted =
        |object: &&SourceObject| is_deleted(object.id(), changes::prune_annotation(object.object().value()));
    let mut leaving: Vec<ObjectId> = gone.filter(is_deleted).map(|object| object.id().clone()).collect();
    leaving.sort();
    leaving
}

/// As [`leaving`], from what a runtime has according to its Manifest.
pub fn leaving_inventory(inventory: &Inventory, new: Option<&ModuleObjects>) -> Vec<ObjectId> {
    let stays = ids(new);
    leaving_names(inventory.ids(), |id| stays.contains(id))
}

/// As [`leaving`], from names: whether an annotation protects an object is not known. `stays` says what the new module
/// has.
pub fn leaving_names<'i>(
    old: impl IntoIterator<Item = &'i ObjectId>,
    stays: impl Fn(&ObjectId) -> bool,
) -> Vec<ObjectId> {
    old.into_iter().filter(|id| !stays(id) && is_deleted(id, None)).cloned().collect()
}

fn ids(module: Option<&ModuleObjects>) -> BTreeSet<&ObjectId> {
    module.into_iter().flat_map(ModuleObjects::objects).map(SourceObject::id).collect()
}

/// Whether an object is deleted once its module no longer has it.
fn is_deleted(id: &ObjectId, prune: Option<&str>) -> bool {
    let live = changes::Live { marked: true, deleting: false, prune };
    changes::forecast(id, Purpose::Install, &live) == Some(Verdict::Delete)
}

fn module_key(installed: &Installed) -> Key {
    Key::new(installed.runtime.namespace(), &installed.module)
}

/// Adds removals to those of the same definitions.
pub fn merge(removals: &mut Removals, more: Removals) {
    for (id, more) in more {
        removals.entry(id).or_default().extend(more);
    }
}

/// Holds back the definitions of a decision whose removals exceed the limit of their module and are not confirmed.
pub fn hold(situation: &Situation<'_>, removals: &Removals, decision: &mut Decision) {
    if removals.values().all(Vec::is_empty) || is_confirmed(situation) {
        return;
    }
    let modules: BTreeSet<&Key> = removals.values().flatten().map(|removal| &removal.module).collect();
    for module in modules {
        let own = || removals.values().flatten().filter(|removal| removal.module == *module);
        let losing: BTreeSet<&Key> = own().flat_map(|removal| &removal.runtimes).collect();
        let has_it = |one: &&Installed| one.module == module.name() && one.runtime.namespace() == module.namespace();
        let having: BTreeSet<&Key> = situation.installed.iter().filter(has_it).map(|one| &one.runtime).collect();
        // A definition that cannot be read may remove the module as well, once it can.
        let is_unknown = |runtime: &Key| situation.withheld.contains(&(Kind::Kyma, runtime.clone()));
        let unknown = having.difference(&losing).filter(|runtime| is_unknown(runtime)).count();
        let exceeding = Exceeding { losing: losing.len(), unknown };
        let limit = limit(situation.policy.removal_limit, having.len());
        if limit < exceeding.count() {
            let of_module = removals.iter().filter(|(_, all)| all.iter().any(|removal| removal.module == *module));
            of_module.for_each(|(id, all)| wait(situation, id, all, decision));
            decision.removals.extend(merged(situation, removals, module, (limit, exceeding)));
        }
    }
    decision.apply.retain(|(id, _)| !decision.held.contains_key(id));
    report(situation, decision);
}

/// The modules of a runtime that a definition of its Kyma leaves alone (`managed: false`): their objects stay, whatever
/// else a commit changes. `installed` are the modules of this runtime.
pub fn unmanaged<'a>(declared: &Kyma, installed: impl IntoIterator<Item = &'a Installed>) -> Vec<&'a Installed> {
    if plan::modules_from(declared) == ModulesFrom::Runtime {
        return Vec::new();
    }
    let is_left = |one: &&Installed| {
        declared.spec.modules.iter().any(|module| module.name == one.module && !module.managed)
            && one.standing == Standing::Selected
    };
    installed.into_iter().filter(is_left).collect()
}

/// The installed modules without those that leave their runtimes at once, and without `unmanaged` ones: nothing of a
/// module waits for a runtime that no longer wants it. A suspended runtime keeps what it has. `decision` is that of the
/// same commit, after [`hold`].
pub fn remaining(
    installed: &[Installed],
    removals: &Removals,
    unmanaged: &BTreeSet<&Installed>,
    is_suspended: impl Fn(&Key) -> bool,
    decision: &Decision,
) -> Vec<Installed> {
    let at_once = removals.iter().filter(|(id, _)| !decision.held.contains_key(id)).flat_map(|(_, all)| all);
    let leaving: BTreeSet<(&Key, &Key)> = at_once
        .filter(|removal| removal.loss == Removed::Module)
        .flat_map(|removal| removal.runtimes.iter().map(|runtime| (&removal.module, runtime)))
        .collect();
    let leaves = |one: &Installed| unmanaged.contains(one) || leaving.contains(&(&module_key(one), &one.runtime));
    installed.iter().filter(|one| !leaves(one) || is_suspended(&one.runtime)).cloned().collect()
}

/// How many of the runtimes with a module may lose something of it without a confirmation.
fn limit(given: Option<usize>, runtimes: usize) -> usize {
    given.unwrap_or_else(|| (runtimes * LIMIT_PERCENT / 100).clamp(LIMIT_MIN, LIMIT_RUNTIMES_MAX))
}

/// Holds back one definition.
fn wait(situation: &Situation<'_>, id: &Id, removals: &[Removal], decision: &mut Decision) {
    let Some(declared) = situation.declared.get(id) else { return };
    let what: Vec<String> = removals.iter().map(|removal| removal.loss.of(removal.module.name())).collect();
    let message = format!("{} removes {} and waits for a confirmation", text(id), what.join(", "));
    decision
        .held
        .insert(id.clone(), Held { place: declared.place.clone(), message, why: HeldFor::Removal, cause: None });
}

/// The removals of a module, one for each loss.
fn merged(
    situation: &Situation<'_>,
    removals: &Removals,
    module: &Key,
    (limit, exceeding): (usize, Exceeding),
) -> Vec<WaitingRemoval> {
    let mut by_loss: BTreeMap<&Removed, WaitingRemoval> = BTreeMap::new();
    for (id, removal) in removals.iter().flat_map(|(id, all)| all.iter().map(move |removal| (id, removal))) {
        let Some(declared) = situation.declared.get(id).filter(|_| removal.module == *module) else { continue };
        let waiting = by_loss.entry(&removal.loss).or_insert_with(|| WaitingRemoval {
            module: module.clone(),
            loss: removal.loss.clone(),
            runtimes: BTreeSet::new(),
            limit,
            exceeding,
            place: declared.place.clone(),
            moved: situation.moved,
        });
        waiting.runtimes.extend(removal.runtimes.iter().cloned());
    }
    by_loss.into_values().collect()
}

/// One diagnostic for each removal that waits.
fn report(situation: &Situation<'_>, decision: &mut Decision) {
    let instruction = situation.policy.confirm_by.instruction(situation.source, &situation.revision());
    let hint = format!("to remove it, {instruction}");
    let diagnostics = decision.removals.iter().map(|removal| {
        Diagnostic::warning(code::REMOVAL_UNCONFIRMED, removal.to_string()).hint(hint.clone()).at(removal.place.clone())
    });
    let diagnostics: Vec<Diagnostic> = diagnostics.collect();
    decision.diagnostics.extend(diagnostics);
}

// === impl Removed ===

impl Removed {
    /// Whether a sentence about it has the verb `are`.
    fn is_plural(&self) -> bool {
        match self {
            Removed::Module => false,
            Removed::Objects { objects, .. } => 1 < objects.len(),
            Removed::Unknown { .. } => true,
        }
    }

    /// What it is, as the object of a sentence about a module.
    fn of(&self, module: &str) -> String {
        match self {
            Removed::Module => format!("module {module}"),
            Removed::Objects { version, objects } => format!("{} of module {module} {version}", first_of(objects)),
            Removed::Unknown { version } => {
                format!("objects of module {module} {version}, which cannot be compared with the last ones,")
            }
        }
    }
}

/// What leaves runtimes, one sentence for each removal. Several modules of one runtime are one.
pub fn sentences(removals: &[Removal]) -> Vec<String> {
    let modules: Vec<&str> =
        removals.iter().filter(|one| one.loss == Removed::Module).map(|one| one.module.name()).collect();
    let of_modules = match modules.as_slice() {
        [] => None,
        [one] => Some(format!("module {one} leaves the runtime")),
        all => Some(format!("modules {} leave the runtime", all.join(", "))),
    };
    let others = removals.iter().filter(|one| one.loss != Removed::Module).map(|one| {
        let leave = if one.loss.is_plural() { "leave" } else { "leaves" };
        format!("{} {leave} {}", one.loss.of(one.module.name()), counted(one.runtimes.len(), "runtime"))
    });
    of_modules.into_iter().chain(others).collect()
}

/// The first of several objects, and how many more there are.
fn first_of(objects: &[ObjectId]) -> String {
    match objects {
        [] => "nothing".to_owned(),
        [one] => one.to_string(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
    }
}

// === impl WaitingRemoval ===

impl std::fmt::Display for WaitingRemoval {
    /// One sentence: what leaves how many runtimes, which, and what is more than the limit.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<String> = self.runtimes.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        let more = match self.runtimes.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (count, limit, module) = (self.runtimes.len(), self.limit, self.module.name());
        let runtimes = counted(count, "runtime");
        write!(
            f,
            "{} {} removed from {runtimes}",
            self.loss.of(module),
            if self.loss.is_plural() { "are" } else { "is" }
        )?;
        let names = names.join(", ");
        let Exceeding { losing, unknown } = self.exceeding;
        if self.exceeding.count() == count {
            return write!(f, ", more than the removal limit of {limit}: {names}{more}");
        }
        // The limit is one for all that the module loses, so this number alone does not explain the wait.
        write!(
            f,
            ": {names}{more}; in all, {} {} something of module {module}",
            counted(losing, "runtime"),
            agreeing(losing, "loses", "lose")
        )?;
        if 0 < unknown {
            let kymas = agreeing(unknown, "its Kyma is", "their Kymas are");
            write!(f, ", and {unknown} more may, because {kymas} held back")?;
        }
        write!(f, ": more than the removal limit of {limit}")
    }
}

// === impl Exceeding ===

impl Exceeding {
    fn count(self) -> usize {
        self.losing + self.unknown
    }
}

impl WaitingRemoval {
    /// The sentence for the status of a runtime that would lose it. `revision` is the commit, or `worktree`.
    pub fn notice(&self, source: &Key, revision: &str, confirm_by: ConfirmBy) -> String {
        let cause = match self.moved {
            Moved::No => format!("{revision} of GitSource {source}"),
            Moved::Spec => format!("a change of url, ref, paths or ignore of GitSource {source}"),
            Moved::Rewrite => format!("a rewrite of the branch of GitSource {source}"),
        };
        let from = match self.runtimes.len() {
            1 => "this runtime".to_owned(),
            count => format!("{count} runtimes, this one included"),
        };
        format!(
            "{cause} removes {} from {from}; to allow it, {}",
            self.loss.of(self.module.name()),
            confirm_by.instruction(source, revision)
        )
    }
}

#[cfg(test)]
mod tests;
