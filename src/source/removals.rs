//! What a revision takes from runtimes: reads what the decision in [`tidegate_core::intake::removal`] compares, and
//! tells runtimes what waits for a confirmation.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

use tidegate_core::{
    api::{
        Kyma, Manifest,
        names::{annotation, label},
    },
    conditions,
    content::ContentId,
    definition::{Definition, Definitions, Kind, ModuleObjects},
    diagnostic::Diagnostics,
    intake::{
        Decision, Installed, Removals, WaitingRemoval,
        removal::{self, Removal},
    },
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::ObjectId,
    revision::Oid,
    status,
};

use super::{SourceContext, SourcePass, registry::Notices};
use crate::{controller::Subject, queue::Trigger, source::registry::Loaded};

/// The former objects of ModuleTemplates that were compared in the last pass: the same comparison reads nothing again.
#[derive(Debug, Default)]
pub(super) struct FormerModules(BTreeMap<ContentId, Arc<ModuleObjects>>);

/// What each definition of a decision would take from runtimes. Reads former objects of modules from the mirrors.
pub(super) async fn find(
    pass: &SourcePass<'_>,
    loaded: &Loaded,
    decision: &Decision,
    installed: &[Installed],
    former: &mut FormerModules,
) -> Removals {
    let mut by_runtime: BTreeMap<&Key, Vec<&Installed>> = BTreeMap::new();
    let has_kymas = removal::candidates(decision).any(|(kind, _)| *kind == Kind::Kyma);
    for one in installed.iter().filter(|_| has_kymas) {
        by_runtime.entry(&one.runtime).or_default().push(one);
    }
    let mut found = Removals::new();
    let mut used = BTreeSet::new();
    for id in removal::candidates(decision) {
        let Some(definition) = loaded.definitions.good.get(id) else { continue };
        let removals = match id.0 {
            Kind::Kyma => of_kyma(pass, definition, by_runtime.get(&id.1).map_or(&[], Vec::as_slice)),
            Kind::ModuleTemplate => of_template(pass, loaded, definition, installed, (former, &mut used)).await,
            Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_) => Vec::new(),
        };
        if !removals.is_empty() {
            found.insert(id.clone(), removals);
        }
    }
    former.0.retain(|content, _| used.contains(content));
    removal::merge(&mut found, of_access(pass, loaded, decision, installed));
    found
}

/// The modules that runtimes lose because they may no longer have them, or because these are no longer mandatory.
fn of_access(pass: &SourcePass<'_>, loaded: &Loaded, decision: &Decision, installed: &[Installed]) -> Removals {
    let SourceContext { stores, plan, .. } = pass.ctx;
    let mut changed = Definitions::default();
    for id in removal::candidates(decision) {
        let Some(definition) = loaded.definitions.good.get(id) else { continue };
        let live = stores.kyma(&id.1).filter(|_| id.0 == Kind::Kyma);
        if live.is_none_or(|live| removal::may_change_access(definition.object.value(), &live, plan)) {
            changed.good.insert(id.clone(), Arc::clone(definition));
        }
    }
    // What cannot be read is among the diagnostics of the revision.
    let name = SourceName::new(pass.key.clone());
    let changed = Landscape::from_definitions(&mut Diagnostics::default(), &changed, &name);
    if !removal::may_take(&stores.landscape(), &changed) {
        return Removals::new();
    }
    let kymas = stores.kymas().into_iter().map(|kyma| (landscape::key(&kyma.metadata), kyma));
    let before = Landscape { kymas: kymas.collect(), ..Landscape::clone(&stores.landscape()) };
    removal::of_access(&before, &changed, installed, plan)
}

/// The modules that a Kyma loses.
fn of_kyma(pass: &SourcePass<'_>, definition: &Definition, installed: &[&Installed]) -> Vec<Removal> {
    let installed = || installed.iter().copied();
    if removal::names_all(definition.object.value(), installed()) {
        return Vec::new();
    }
    let stamped = landscape::stamp(definition, &SourceName::new(pass.key.clone()));
    let Ok(declared) = serde_json::from_value::<Kyma>(stamped.into_value()) else { return Vec::new() };
    let live = pass.ctx.stores.kyma(&definition.key);
    removal::of_kyma(&declared, live.as_deref(), installed())
}

/// The objects that a version of a module loses.
async fn of_template(
    pass: &SourcePass<'_>,
    loaded: &Loaded,
    definition: &Definition,
    installed: &[Installed],
    (former, used): (&mut FormerModules, &mut BTreeSet<ContentId>),
) -> Vec<Removal> {
    let key = &definition.key;
    if !installed.iter().any(|one| removal::has_template(one, key)) {
        return Vec::new();
    }
    let landscape = pass.ctx.stores.landscape();
    let Some(live) = landscape.templates.get(key) else { return Vec::new() };
    let named = |name| landscape::annotation(&live.metadata, name);
    let tree = named(annotation::MODULE_TREE).and_then(|tree| tree.parse::<Oid>().ok());
    // The objects of other modules are in a registry, where no commit changes them.
    let (Some(tree), Some(path)) = (tree, named(annotation::MODULE_PATH)) else { return Vec::new() };
    let new = definition.module.as_ref().map(|module| ContentId::from(module.tree));
    let old = ContentId::from(tree);
    if new == Some(old) {
        return Vec::new();
    }
    used.insert(old);
    if let Entry::Vacant(entry) = former.0.entry(old) {
        let owner =
            SourceName::from_metadata(&live.metadata).map_or_else(|| pass.key.clone(), |name| name.key().clone());
        match pass.ctx.registry.module_objects(&owner, tree, path).await {
            Ok(objects) => drop(entry.insert(objects)),
            Err(error) => {
                tracing::warn!(source = %pass.key, template = %key, %error, "cannot read the former objects of a module");
            }
        }
    }
    let new = new.and_then(|new| loaded.definitions.modules.get(&new));
    let leaving = former.0.get(&old).map(|old| removal::leaving(old, new.map(|new| &**new)));
    let has = |one: &Installed, id: &ObjectId| {
        let manifests = pass.ctx.stores.manifests_of(&one.runtime);
        let mut of_module = manifests.iter().filter(|found| has_module(found, &one.module)).peekable();
        of_module.peek().is_none() || of_module.any(|found| status::has_had(found, id))
    };
    removal::of_template(key, leaving.as_deref(), installed, has)
}

fn has_module(manifest: &Manifest, module: &str) -> bool {
    landscape::label(&manifest.metadata, label::MODULE_NAME) == Some(module)
}

/// Tells runtimes what a decision would remove from them and waits for a confirmation.
pub(super) fn publish(pass: &SourcePass<'_>, loaded: &Loaded, decision: &Decision) {
    let revision = loaded.revision.commit().map_or_else(|| "worktree".to_owned(), |commit| commit.to_string());
    let mut sentences: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
    let notice = |removal: &WaitingRemoval| removal.notice(pass.key, &revision, pass.origin.confirm_by());
    let notices: Vec<String> = decision.removals.iter().map(notice).collect();
    for (index, removal) in decision.removals.iter().enumerate() {
        removal.runtimes.iter().for_each(|runtime| sentences.entry(runtime).or_default().push(index));
    }
    let mut shared: BTreeMap<Vec<usize>, Arc<str>> = BTreeMap::new();
    let mut of_runtimes = Notices::new();
    for (runtime, indices) in sentences {
        let text = || indices.iter().map(|&index| notices[index].as_str()).collect::<Vec<_>>().join("; ").into();
        let sentence = Arc::clone(shared.entry(indices.clone()).or_insert_with(text));
        of_runtimes.insert(runtime.clone(), sentence);
    }
    set(pass.ctx, pass.slot, &of_runtimes);
}

/// Replaces what runtimes are told, and wakes those that are told something else.
pub(super) fn set(ctx: SourceContext<'_>, slot: &super::Slot, notices: &Notices) {
    for runtime in ctx.registry.set_removals(slot, notices) {
        ctx.queue.push(Subject::Runtime(runtime), Trigger::Changed);
    }
}

/// The runtimes whose status says that a removal waits. A former process may have written that.
pub(super) fn told(ctx: SourceContext<'_>) -> impl Iterator<Item = Key> {
    let is_told = |kyma: &Arc<Kyma>| {
        let conditions = kyma.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions::find(conditions, conditions::REMOVAL).is_some()
    };
    ctx.stores.kymas().into_iter().filter(is_told).map(|kyma| landscape::key(&kyma.metadata))
}
