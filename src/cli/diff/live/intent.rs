//! The effect of the revision's definitions on the current control plane. The daemon's own function decides, and its
//! applies are sent as dry runs. The result includes the landscape that the control plane would then contain.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use serde_json::Value;

use super::Inputs;
use crate::live::{
    Intent, Layers, Outcome, WindowsAt,
    compare::{Comparer, Differs, Wish},
    concerns_all, landscape_of, managers,
    runtime::{Planning, keeps_version, version_after},
    world::{World, typed},
};
use tidegate_cluster::Error;
use tidegate_core::{
    api::{
        GitSource, Kyma, Manifest, ModuleReleaseMeta,
        names::{FIELD_MANAGER, annotation, label},
    },
    changes,
    content::ContentId,
    definition::{self, Allow, Channels, Definition, Definitions, Elsewhere, Kind, ModuleObjects},
    diagnostic::{Diagnostics, FilePosition},
    intake::{
        self, Decision, Declared, HandOver, HeldFor, Id, Installed, Live, Loss, Moved, Other, Removals, Situation,
        Standing, Terms, Wait,
        removal::{self, Removed},
        status::Takeover,
    },
    inventory::Inventory,
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::{Object, ObjectId, PathPart},
    plan::Components,
    render::{CompleteModule, live as placeholder},
    revision::Oid,
    snapshot::Limits,
    status, yaml,
};
use tidegate_diff::{
    gather::ObjectDifference,
    live::differing,
    model::{Effect, Held, NotKnown, Why},
};
use tidegate_git as git;

/// Concurrent dry runs in the control plane. The limit of the cluster applies as well.
const AT_ONCE: usize = 16;

/// The catalog in the control plane that belongs to other sources, or that they declare as well.
pub(super) fn elsewhere(world: &World, source: &SourceName) -> Elsewhere {
    let own = source.label_value();
    let others = world.sources.iter().filter(|other| landscape::key(&other.metadata) != *source.key());
    let heirs: BTreeSet<Id> = others.flat_map(intake::status::held_back).collect();
    let mut elsewhere = Elsewhere::default();
    for (id, object) in &world.objects {
        let (kind, key) = id;
        let deleting = object.value().pointer("/metadata/deletionTimestamp").is_some();
        if deleting || object.label(label::SOURCE) == Some(&own) && !heirs.contains(id) {
            continue;
        }
        match kind {
            Kind::ModuleTemplate => {
                elsewhere.templates.insert(key.clone());
            }
            Kind::ModuleReleaseMeta => {
                let Some(release) = typed::<ModuleReleaseMeta>(object.value()) else { continue };
                elsewhere.releases.insert(key.clone(), Channels::from(&release));
            }
            Kind::Watcher | Kind::Kyma | Kind::Setup(_) => {}
        }
    }
    elsewhere
}

/// Decides, sends dry runs of all applies, and records what would differ. Fails if the control plane as a whole fails.
pub(super) async fn intend(
    inputs: &Inputs,
    world: &World,
    (components, windows): (&Components, Option<WindowsAt<'_>>),
    comparer: &Comparer<'_>,
    outcome: &mut Outcome,
) -> Result<Intent, Error> {
    let decision = decide(inputs, world, (components, windows));
    let mut after: BTreeMap<Id, Value> =
        world.objects.iter().map(|(id, object)| (id.clone(), object.value().clone())).collect();
    let before = landscape_of(&after);
    let tried: Vec<_> = stream::iter(&decision.apply)
        .map(|(id, _)| async move { (id, apply(inputs, world, comparer, id).await) })
        .buffered(AT_ONCE)
        .collect()
        .await;
    for (id, result) in tried {
        match result {
            Ok(Some((found, value))) => {
                outcome.found.extend(found);
                after.insert(id.clone(), value);
            }
            Ok(None) => {}
            Err(error) if concerns_all(&error) => return Err(error),
            Err(error) => {
                let place = inputs.wanted.definitions.good.get(id).map(|definition| &definition.place);
                outcome.problem("kcp", place, &error, comparer);
            }
        }
    }
    outcome.held.extend(inputs.wanted.definitions.withheld.iter().map(Held::withheld));
    outcome.held.extend(decision.removals.iter().map(|removal| Held::unconfirmed(inputs.source.key(), removal)));
    let mut unconfirmed = refused(inputs, world, comparer, &decision, outcome).await?;
    let handed = hand_over(inputs, world, comparer, &decision, outcome).await?;
    after.extend(handed.at_once);
    unconfirmed.extend(handed.unconfirmed);
    let (settings, landscape) = (&inputs.wanted.settings, landscape_of(&after));
    let planning = Planning { components, settings, windows, before: &before, after: &landscape };
    let own = world.sources.iter().find(|other| landscape::key(&other.metadata) == *inputs.source.key());
    let later: BTreeMap<Id, Value> =
        after.iter().map(|(id, value)| (id.clone(), value.clone())).chain(unconfirmed.iter().cloned()).collect();
    let later = landscape_of(&later);
    let plannings = [planning, Planning { after: &later, ..planning }];
    let gone = goes(world, plannings, comparer, (&decision, own), outcome);
    let (at_once, waiting): (Vec<_>, Vec<_>) = gone.into_iter().partition(|(_, effect)| *effect == Effect::Applies);
    at_once.iter().for_each(|(id, _)| drop(after.remove(id)));
    let of_kymas = |gone: &[(Id, Effect)]| -> BTreeSet<Key> {
        gone.iter().filter(|((kind, _), _)| *kind == Kind::Kyma).map(|((_, key), _)| key.clone()).collect()
    };
    let outlines = handed.outlines;
    let until = Intent {
        after: landscape_of(&after),
        before: before.clone(),
        gone: of_kymas(&at_once),
        outlines: outlines.clone(),
        until_confirmed: None,
    };
    if unconfirmed.is_empty() && waiting.is_empty() {
        return Ok(until);
    }
    after.extend(unconfirmed);
    waiting.iter().for_each(|(id, _)| drop(after.remove(id)));
    let gone = until.gone.union(&of_kymas(&waiting)).cloned().collect();
    Ok(Intent { after: landscape_of(&after), before, gone, outlines, until_confirmed: Some(Box::new(until)) })
}

fn decide(inputs: &Inputs, world: &World, plans: (&Components, Option<WindowsAt<'_>>)) -> Decision {
    let source = &inputs.source;
    let label = source.label_value();
    let broken = inputs.wanted.definitions.broken();
    let declared: BTreeMap<Id, Declared> = inputs
        .wanted
        .definitions
        .good
        .iter()
        .map(|(id, definition)| (id.clone(), declared(definition, source, &broken)))
        .collect();
    let withheld: BTreeSet<Id> =
        inputs.wanted.definitions.withheld.iter().map(|withheld| (withheld.kind, withheld.key.clone())).collect();
    let mut live = BTreeMap::new();
    for (id, object) in &world.objects {
        let ours = object.label(label::SOURCE) == Some(&label);
        if !ours && !declared.contains_key(id) && !broken.contains_key(id) {
            continue;
        }
        let Ok(metadata) = serde_json::from_value(object.value()["metadata"].clone()) else { continue };
        let mut one = Live::from_metadata(&metadata, Some(managers(object)));
        one.left = landscape::is_left_by(source, &metadata);
        if let Some(definition) = inputs.wanted.definitions.good.get(id) {
            one.drifted = ours && !is_covered(&landscape::expected(definition, source), object);
            one.same_content = match one.left {
                true => landscape::as_left(definition, source, &metadata).is_some_and(|left| is_covered(&left, object)),
                false => !ours && landscape::has_content(definition, &metadata),
            };
        }
        live.insert(id.clone(), one);
    }
    let own = world.sources.iter().find(|other| landscape::key(&other.metadata) == *source.key());
    let terms = own.and_then(|source| Terms::from_source(source).ok());
    let policy = terms.map_or_else(|| inputs.policy.clone(), |terms| terms.policy);
    let installed = installed(world);
    let leaving = leaving(inputs, world, &installed);
    let situation = Situation {
        source: source.key(),
        label: &label,
        commit: inputs.commit,
        declared: &declared,
        withheld: &withheld,
        broken: &broken,
        live: &live,
        others: &others(world, source),
        installed: &installed,
        leaving: &leaving,
        policy: &policy,
        errors: inputs.invalid,
        moved: Moved::No,
    };
    let mut decision = intake::decide(&situation);
    let mut taken = removals(inputs, world, &decision, situation.installed);
    removal::merge(&mut taken, of_access(inputs, world, &decision, situation.installed));
    removal::hold(&situation, &taken, &mut decision);
    let unmanaged = unmanaged(inputs, &decision, situation.installed);
    let is_suspended = |key: &Key| will_be_suspended(inputs, world, key);
    let remaining = removal::remaining(situation.installed, &taken, &unmanaged, is_suspended, &decision);
    let remaining = replaced(inputs, world, plans, (&decision, &taken), remaining);
    if remaining != situation.installed {
        // What no runtime has any more is pruned, or changes, without a confirmation.
        let situation = Situation { installed: &remaining, ..situation };
        decision = intake::decide(&situation);
        let mut taken = removals(inputs, world, &decision, &remaining);
        removal::merge(&mut taken, of_access(inputs, world, &decision, &remaining));
        removal::hold(&situation, &taken, &mut decision);
    }
    decision
}

/// The installed modules, with another version where the same revision replaces one that loses objects: the daemon
/// changes such a version once no runtime has it.
fn replaced(
    inputs: &Inputs,
    world: &World,
    (components, windows): (&Components, Option<WindowsAt<'_>>),
    (decision, taken): (&Decision, &Removals),
    installed: Vec<Installed>,
) -> Vec<Installed> {
    let waiting = taken.iter().filter(|(id, _)| decision.held.contains_key(id)).flat_map(|(_, all)| all);
    let of_versions = waiting.filter(|removal| removal.loss != Removed::Module);
    let losing: BTreeSet<(&Key, &str)> = of_versions
        .flat_map(|removal| removal.runtimes.iter().map(|runtime| (runtime, removal.module.name())))
        .collect();
    if losing.is_empty() {
        return installed;
    }
    let mut objects: BTreeMap<Id, Value> =
        world.objects.iter().map(|(id, object)| (id.clone(), object.value().clone())).collect();
    let before = landscape_of(&objects);
    for (id, definition) in inputs.wanted.definitions.good.iter().filter(|(id, _)| !decision.held.contains_key(id)) {
        let desired = landscape::stamp(definition, &inputs.source);
        let live = world.objects.get(id).map(Object::value);
        let value = match live {
            Some(live) => stored(live, &desired),
            None => desired.into_value(),
        };
        objects.insert(id.clone(), value);
    }
    let after = landscape_of(&objects);
    let planning = Planning { components, settings: &inputs.wanted.settings, windows, before: &before, after: &after };
    let replace = |one: Installed| {
        let is_losing = losing.contains(&(&one.runtime, one.module.as_str())) && one.standing != Standing::Leaving;
        let version = if is_losing { version_after(planning, world, &one.runtime, &one.module) } else { None };
        Installed { version: version.unwrap_or_else(|| one.version.clone()), ..one }
    };
    installed.into_iter().map(replace).collect()
}

/// An object as it is stored after an apply, with its current status.
fn stored(live: &Value, desired: &Object) -> Value {
    let mut value = tidegate_diff::live::applied(live, desired.value(), FIELD_MANAGER);
    for field in ["/metadata/uid", "/metadata/generation", "/status"] {
        restore(&mut value, live, field);
    }
    value
}

/// Whether every field of `desired` has the same value in the live object, and the list of modules has no other entry.
fn is_covered(desired: &Object, live: &Object) -> bool {
    changes::covers(desired.value(), live.value())
        && landscape::without_other_modules(desired.value(), live.value()).is_none()
}

/// Whether a label suspends a Kyma after the revision is applied.
fn will_be_suspended(inputs: &Inputs, world: &World, key: &Key) -> bool {
    let id = (Kind::Kyma, key.clone());
    if let Some(value) =
        inputs.wanted.definitions.good.get(&id).and_then(|one| one.object.label(label::SKIP_RECONCILIATION))
    {
        return landscape::says_true(value);
    }
    let Some(live) = world.objects.get(&id) else { return false };
    // A label from git goes with its definition's.
    let from_git = live.value().pointer("/metadata/managedFields").and_then(Value::as_array).is_some_and(|entries| {
        let path = format!("f:{}", label::SKIP_RECONCILIATION);
        let is_ours = |entry: &&Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
        entries.iter().filter(is_ours).any(|entry| !entry["fieldsV1"]["f:metadata"]["f:labels"][&path].is_null())
    });
    !from_git && live.label(label::SKIP_RECONCILIATION).is_some_and(landscape::says_true)
}

/// The modules that changed Kymas leave alone. A Kyma that waits changes nothing.
fn unmanaged<'a>(inputs: &Inputs, decision: &Decision, installed: &'a [Installed]) -> BTreeSet<&'a Installed> {
    let kymas = decision.apply.iter().filter(|(id, _)| id.0 == Kind::Kyma && !decision.held.contains_key(id));
    let declared = kymas.filter_map(|(id, _)| {
        let definition = inputs.wanted.definitions.good.get(id)?;
        Some((&id.1, typed::<Kyma>(landscape::stamp(definition, &inputs.source).value())?))
    });
    let of_one =
        |(key, kyma): (&Key, Kyma)| removal::unmanaged(&kyma, installed.iter().filter(|one| one.runtime == *key));
    declared.flat_map(of_one).collect()
}

/// What each definition of a decision would take from runtimes.
fn removals(inputs: &Inputs, world: &World, decision: &Decision, installed: &[Installed]) -> Removals {
    let of_one = |id: &Id| {
        let definition = inputs.wanted.definitions.good.get(id)?;
        let of_runtime = || installed.iter().filter(|one| one.runtime == id.1);
        Some(match id.0 {
            Kind::Kyma => {
                let stamped = landscape::stamp(definition, &inputs.source);
                let live = world.objects.get(id).and_then(|live| typed::<Kyma>(live.value()));
                removal::of_kyma(&typed(stamped.value())?, live.as_ref(), of_runtime())
            }
            Kind::ModuleTemplate => {
                let new = definition.module.as_ref().map(|module| module.tree);
                let live = world.objects.get(id)?.annotation(annotation::MODULE_TREE)?;
                if new.is_some_and(|new| new.to_string() == live) {
                    return None;
                }
                let new = new.and_then(|new| inputs.wanted.definitions.modules.get(&new.into()));
                let path = world.objects.get(id)?.annotation(annotation::MODULE_PATH).unwrap_or_default();
                let leaving = match former(inputs, live, path) {
                    Some(old) => removal::leaving(&old, new.map(|new| &**new)),
                    None => removal::leaving_inventory(&inventory(world, &id.1), new.map(|new| &**new)),
                };
                removal::of_template(&id.1, Some(&leaving), installed, |one, object| has_had(world, one, object))
            }
            Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_) => return None,
        })
    };
    removal::candidates(decision).filter_map(|id| Some((id.clone(), of_one(id)?))).collect()
}

/// The objects that a module has in the control plane, by the id of its tree; `None` if the repository does not have
/// it, for example because the clone is shallow.
fn former(inputs: &Inputs, tree: &str, path: &str) -> Option<ModuleObjects> {
    let tree: Oid = tree.parse().ok()?;
    let files = git::read_object(&inputs.root, tree, path, Limits::default()).ok()?;
    let files = files.iter().map(|(path, bytes)| (path, &**bytes));
    definition::module_objects(tree, files, &yaml::Limits::default()).ok()
}

/// The objects of the source's modules in git that the revision no longer has, and that runtimes keep, for now or until
/// a confirmation.
pub(super) fn former_modules(inputs: &Inputs, intent: &Intent) -> Layers {
    let known = &inputs.wanted.definitions.modules;
    let all = intent.until_confirmed.iter().map(|until| &until.after).chain([&intent.after]);
    let mut former = Layers::new();
    for template in all.flat_map(|landscape| landscape.templates.values()) {
        let named = |name| landscape::annotation(&template.metadata, name);
        let tree = named(annotation::MODULE_TREE);
        let Some(content) = tree.and_then(|tree| Some(ContentId::from(tree.parse::<Oid>().ok()?))) else { continue };
        let is_ours = SourceName::from_metadata(&template.metadata).as_ref() == Some(&inputs.source);
        if !is_ours || known.contains_key(&content) || former.contains_key(&content) {
            continue;
        }
        let path = named(annotation::MODULE_PATH).unwrap_or_default();
        let objects = self::former(inputs, tree.unwrap_or_default(), path);
        former.extend(objects.map(|objects| (content, CompleteModule::new(&objects))));
    }
    former
}

/// The modules that runtimes lose because they may no longer have them, or because these are no longer mandatory.
fn of_access(inputs: &Inputs, world: &World, decision: &Decision, installed: &[Installed]) -> Removals {
    let good = &inputs.wanted.definitions.good;
    let changed = removal::candidates(decision).filter_map(|id| Some((id.clone(), Arc::clone(good.get(id)?))));
    let changed = Definitions { good: changed.collect(), ..Definitions::default() };
    // What cannot be read is among the diagnostics of the revision.
    let changed = Landscape::from_definitions(&mut Diagnostics::default(), &changed, &inputs.source);
    let objects = world.objects.iter().map(|(id, object)| (id.clone(), object.value().clone()));
    removal::of_access(&landscape_of(&objects.collect()), &changed, installed, &inputs.wanted.settings)
}

/// Whether a runtime has had an object of a module, according to the Manifests of the module.
fn has_had(world: &World, installed: &Installed, id: &ObjectId) -> bool {
    let of_runtime = world.manifests_of(&installed.runtime);
    let of_module = of_runtime.filter(|manifest| manifest.label(label::MODULE_NAME) == Some(&*installed.module));
    let manifests: Vec<Manifest> = of_module.filter_map(|manifest| typed(manifest.value())).collect();
    manifests.is_empty() || manifests.iter().any(|manifest| status::has_had(manifest, id))
}

/// Everything that runtimes have of a version of a module, according to their Manifests.
fn inventory(world: &World, template: &Key) -> Inventory {
    let of_version = |manifest: &&Manifest| {
        let module = landscape::label(&manifest.metadata, label::MODULE_NAME).unwrap_or_default();
        let name = format!("{module}-{}", manifest.spec.version.as_deref().unwrap_or_default());
        template.name() == name && manifest.metadata.namespace.as_deref() == Some(template.namespace())
    };
    let manifests: Vec<Manifest> = world.manifests.values().filter_map(|manifest| typed(manifest.value())).collect();
    let statuses = manifests.iter().filter(of_version).filter_map(|manifest| manifest.status.as_ref());
    statuses.fold(Inventory::default(), |all, status| all.union(&Inventory::from_status(&status.synced)))
}

fn declared(definition: &Definition, source: &SourceName, broken: &BTreeMap<Id, FilePosition>) -> Declared {
    let stamped = landscape::stamp(definition, source);
    Declared {
        digest: stamped.annotation(annotation::DIGEST).unwrap_or_default().into(),
        place: definition.place.clone(),
        adopt: stamped.annotation(annotation::ADOPT) == Some("true"),
        needs: intake::needs(definition, broken),
    }
}

/// The other sources. Their definitions are unknown here, but objects with their ownership label belong to them, and
/// their statuses name the first ones that they declare and that are held back, and those that they no longer declare.
fn others(world: &World, source: &SourceName) -> BTreeMap<String, Other> {
    let others = world.sources.iter().map(|source| (landscape::key(&source.metadata), source));
    let others = others.filter(|(key, _)| key != source.key());
    let other = |(key, of): (Key, &GitSource)| {
        let label = SourceName::new(key.clone()).label_value();
        let undeclared = intake::status::undeclared(of);
        let is_declared =
            |id: &Id, object: &Object| object.label(label::SOURCE) == Some(&label) && !undeclared.contains(id);
        let marked = world.objects.iter().filter(|(id, object)| is_declared(id, object));
        let declares = marked.map(|(id, _)| id.clone()).chain(intake::status::held_back(of)).collect();
        let other = Other {
            key,
            idle: of.spec.suspend || of.metadata.deletion_timestamp.is_some(),
            declares: Some(Arc::new(declares)),
            allow: Allow::default(),
        };
        (label, other)
    };
    others.map(other).collect()
}

/// The modules that leave their runtimes anyway, as the daemon tells them.
fn leaving(inputs: &Inputs, world: &World, installed: &[Installed]) -> BTreeSet<Loss> {
    let leaves = |one: &&Installed| {
        let id = (Kind::Kyma, one.runtime.clone());
        let live = world.objects.get(&id).and_then(|live| typed::<Kyma>(live.value()));
        let declared = inputs.wanted.definitions.good.get(&id).map(|definition| definition.object.value());
        intake::is_leaving(one, live.as_ref(), declared)
    };
    installed.iter().filter(leaves).map(Loss::from).collect()
}

/// The installed modules of runtimes, from the Manifests.
fn installed(world: &World) -> Vec<Installed> {
    let installed = |manifest: &Object| {
        Some(Installed {
            runtime: Key::new(manifest.namespace(), manifest.label(label::KYMA_NAME)?),
            module: manifest.label(label::MODULE_NAME)?.to_owned(),
            version: manifest.value().pointer("/spec/version").and_then(Value::as_str).unwrap_or_default().to_owned(),
            standing: Standing::from_manifest(&serde_json::from_value(manifest.value()["metadata"].clone()).ok()?),
        })
    };
    world.manifests.values().filter_map(installed).collect()
}

/// The difference that an apply makes, and the object after it.
type Applied = Option<(Option<ObjectDifference>, Value)>;

async fn apply(inputs: &Inputs, world: &World, comparer: &Comparer<'_>, id: &Id) -> Result<Applied, Error> {
    let Some(definition) = inputs.wanted.definitions.good.get(id) else { return Ok(None) };
    let wish = wish(definition, &inputs.source);
    let Some(live) = world.objects.get(id) else {
        let found = found(comparer, id, &wish, &comparer.created(&wish));
        return Ok(Some((Some(found), wish.object.into_value())));
    };
    let (found, value) = apply_over(comparer, id, &wish, live).await?;
    let found = found.map(|found| match (&found.old, &found.new) {
        (Some(old), Some(new)) => ObjectDifference { places: vec![line(definition, &differing(old, new))], ..found },
        (Some(_), None) | (None, _) => found,
    });
    Ok(Some((found, value)))
}

/// The difference that an apply over an object makes, and the object after it.
async fn apply_over(
    comparer: &Comparer<'_>,
    id: &Id,
    wish: &Wish,
    live: &Object,
) -> Result<(Option<ObjectDifference>, Value), Error> {
    let differs = comparer.existing(wish, live).await?;
    let Some(differs) = differs.or_else(|| without_other_modules(comparer, wish, live)) else {
        return Ok((None, live.value().clone()));
    };
    let found = found(comparer, id, wish, &differs);
    // Planning uses the object that would be stored: the dry run's answer, unmasked.
    Ok((Some(found), stored(live.value(), &wish.object)))
}

/// The change of a Kyma that only has more modules than git: an apply leaves them, so the daemon removes them as well.
fn without_other_modules(comparer: &Comparer<'_>, wish: &Wish, live: &Object) -> Option<Arc<Differs>> {
    let modules = landscape::without_other_modules(wish.object.value(), live.value())?;
    let old = tidegate_diff::live::stripped(live.value());
    let mut new = old.clone();
    new["spec"]["modules"] = modules;
    comparer.merged(&old, &new)
}

fn found(comparer: &Comparer<'_>, id: &Id, wish: &Wish, differs: &Differs) -> ObjectDifference {
    ObjectDifference { runtimes: id_runtimes(id), ..comparer.found(wish, differs, Effect::Applies) }
}

fn goes_one(comparer: &Comparer<'_>, id: &Id, live: &Object, effect: Effect) -> ObjectDifference {
    ObjectDifference { runtimes: id_runtimes(id), ..comparer.found_gone(live, effect) }
}

fn restore(value: &mut Value, from: &Value, pointer: &str) {
    let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
    if let (Some(found), Some(parent)) =
        (from.pointer(pointer), value.pointer_mut(parent).and_then(Value::as_object_mut))
    {
        parent.insert(field.to_owned(), found.clone());
    }
}

fn wish(definition: &Definition, source: &SourceName) -> Wish {
    let object = landscape::stamp(definition, source);
    Wish { gvk: object.gvk(), object, places: vec![definition.place.clone()], maker: None }
}

/// The first line of a definition that differs from the live object.
fn line(definition: &Definition, paths: &[Vec<PathPart>]) -> FilePosition {
    let is_written = |path: &&Vec<PathPart>| {
        let step = |value: &'_ Value, part: &PathPart| match part {
            PathPart::Key(key) => value.get(key).cloned(),
            PathPart::Index(index) => value.get(*index).cloned(),
        };
        path.iter().try_fold(definition.object.value().clone(), |value, part| step(&value, part)).is_some()
    };
    let lines = paths.iter().filter(is_written).map(|path| definition.fields.position(path));
    match lines.min() {
        Some((line, column)) => FilePosition::at(&definition.place.path, line, column),
        // For a ModuleTemplate, only its objects may differ.
        None => definition.module_place().unwrap_or_else(|| definition.place.clone()),
    }
}

/// Valid definitions that are not applied, because their objects have another owner or because they take something from
/// runtimes. Returns the objects of the latter, as they are after a confirmation.
async fn refused(
    inputs: &Inputs,
    world: &World,
    comparer: &Comparer<'_>,
    decision: &Decision,
    outcome: &mut Outcome,
) -> Result<Vec<(Id, Value)>, Error> {
    let mut unconfirmed = Vec::new();
    for (id, held) in &decision.held {
        let both = inputs.wanted.definitions.good.get(id).zip(world.objects.get(id));
        let Some((definition, live)) = both.filter(|_| held.cause.is_none()) else {
            let (hint, place) = (held.hint(), Some(held.place.clone()));
            outcome.held.push(Held { hint, place, ..Held::of_definition(id, Why::Withheld, held.message.clone()) });
            continue;
        };
        match held.why {
            HeldFor::Problem => {}
            HeldFor::Terminating => continue,
            HeldFor::Dependency | HeldFor::Removal => {
                let needs_confirmation = held.why == HeldFor::Removal;
                let effect = if needs_confirmation { Effect::NeedsConfirmation } else { Effect::Held };
                if !needs_confirmation {
                    // It is its own, and no conflict: only what it depends on has one.
                    let (message, place) = (comparer.shared.scrub(&held.message), Some(held.place.clone()));
                    outcome.held.push(Held { place, ..Held::of_definition(id, Why::Waiting, message) });
                }
                match apply(inputs, world, comparer, id).await {
                    Ok(applied) => {
                        if let Some((found, value)) = applied {
                            outcome.found.extend(found.map(|one| ObjectDifference { effect, ..one }));
                            unconfirmed.extend(needs_confirmation.then(|| (id.clone(), value)));
                        }
                    }
                    Err(error) if concerns_all(&error) => return Err(error),
                    Err(error) => outcome.problem("kcp", Some(&held.place), &error, comparer),
                }
                continue;
            }
        }
        let wish = wish(definition, &inputs.source);
        match comparer.stranger(&wish, live, &managers(live)).await {
            Ok(differs) => {
                outcome.found.push(ObjectDifference { effect: Effect::Held, ..found(comparer, id, &wish, &differs) });
                let (message, place) = (comparer.shared.scrub(&held.message), Some(held.place.clone()));
                outcome.held.push(Held { place, ..Held::of_definition(id, Why::Conflict, message) });
            }
            Err(error) if concerns_all(&error) => return Err(error),
            Err(error) => outcome.problem("kcp", wish.places.first(), &error, comparer),
        }
    }
    Ok(unconfirmed)
}

fn id_runtimes(id: &Id) -> Vec<Key> {
    if id.0 == Kind::Kyma { vec![id.1.clone()] } else { Vec::new() }
}

/// What other sources make of objects that git no longer declares.
#[derive(Default)]
struct Handed {
    /// Those that change.
    at_once: Vec<(Id, Value)>,
    /// Those that change once a user confirms the commit of the other source.
    unconfirmed: Vec<(Id, Value)>,
    /// The modules that ModuleTemplates then name, as far as the names of their objects are known.
    outlines: Layers,
}

/// What becomes of the objects that git no longer declares and that other sources declare, as the statuses of these
/// say.
async fn hand_over(
    inputs: &Inputs,
    world: &World,
    comparer: &Comparer<'_>,
    decision: &Decision,
    outcome: &mut Outcome,
) -> Result<Handed, Error> {
    let mut handed = Handed::default();
    let installed = installed(world);
    for source in &world.sources {
        let heir = landscape::key(&source.metadata);
        let idle = landscape::idle(source);
        let takeovers = if idle.is_some() { BTreeMap::new() } else { intake::status::takeovers(source) };
        let ids = || decision.heirs.iter().filter(|(_, of)| **of == heir).map(|(id, _)| id);
        let of_one = |id: &Id| {
            let removals = takeovers.get(id).map(|takeover| of_takeover(inputs, world, id, takeover, &installed));
            (id.clone(), removals.unwrap_or_default())
        };
        let taken: Removals = ids().map(of_one).collect();
        let waits = wait_for(source, &taken, &installed);
        let elsewhere = |removal| Held { place: None, ..Held::unconfirmed_elsewhere(&heir, removal) };
        outcome.held.extend(waits.removals.iter().map(elsewhere));
        for id in ids() {
            let what_then = match (idle, takeovers.contains_key(id)) {
                (Some(idle), _) => HandOver::Idle(idle),
                (None, true) => HandOver::Changes(&taken[id]),
                (None, false) => HandOver::Same,
            };
            let (message, hint) = intake::handed_over(id, &heir, what_then);
            outcome.held.push(Held { hint: Some(hint), ..Held::of_definition(id, Why::Kept, message) });
            let (Some(takeover), Some(live)) = (takeovers.get(id), world.objects.get(id)) else { continue };
            handed.outlines.extend(outline(takeover));
            let Some(object) = takeover.object.clone() else {
                outcome.unknown.push(not_known(id, &heir));
                continue;
            };
            let wish = Wish { gvk: object.gvk(), object, places: Vec::new(), maker: None };
            match apply_over(comparer, id, &wish, live).await {
                Ok((found, value)) if waits.held.contains_key(id) => {
                    outcome
                        .found
                        .extend(found.map(|one| ObjectDifference { effect: Effect::NeedsConfirmation, ..one }));
                    handed.unconfirmed.push((id.clone(), value));
                }
                Ok((found, value)) => {
                    outcome.found.extend(found);
                    handed.at_once.push((id.clone(), value));
                }
                Err(error) if concerns_all(&error) => return Err(error),
                Err(error) => outcome.problem("kcp", None, &error, comparer),
            }
        }
    }
    Ok(handed)
}

/// The module that a ModuleTemplate names once another source has taken it over, by the names of its objects.
fn outline(takeover: &Takeover<Object>) -> Option<(ContentId, CompleteModule)> {
    let tree: Oid = takeover.object.as_ref()?.annotation(annotation::MODULE_TREE)?.parse().ok()?;
    let content = ContentId::from(tree);
    Some((content, CompleteModule::new(&takeover.module.as_ref()?.outline(content))))
}

/// What runtimes lose when another source takes an object over.
fn of_takeover(
    inputs: &Inputs,
    world: &World,
    id: &Id,
    takeover: &Takeover<Object>,
    installed: &[Installed],
) -> Vec<removal::Removal> {
    let typed_of = |object: &Object| typed::<Kyma>(object.value());
    match (id.0, takeover.object.as_ref().and_then(typed_of)) {
        (Kind::ModuleTemplate, _) => {
            let (Some(live), Some(new)) = (world.objects.get(id), &takeover.module) else { return Vec::new() };
            let named = |name| live.annotation(name).unwrap_or_default();
            let leaving = match former(inputs, named(annotation::MODULE_TREE), named(annotation::MODULE_PATH)) {
                Some(old) => removal::leaving_but(&old, |id| new.contains(id)),
                None => removal::leaving_names(inventory(world, &id.1).ids(), |id| new.contains(id)),
            };
            removal::of_template(&id.1, Some(&leaving), installed, |one, object| has_had(world, one, object))
        }
        (Kind::Kyma, Some(after)) => {
            let before = world.objects.get(id).and_then(typed_of);
            removal::of_kyma(&after, before.as_ref(), installed.iter().filter(|one| one.runtime == id.1))
        }
        (Kind::Kyma, None) | (Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_), _) => Vec::new(),
    }
}

/// Which of these removals wait for a confirmation of a commit of their source.
fn wait_for(source: &GitSource, taken: &Removals, installed: &[Installed]) -> Decision {
    let key = landscape::key(&source.metadata);
    let policy = Terms::from_source(source).map(|terms| terms.policy).unwrap_or_default();
    let declare = |id: &Id| {
        (id.clone(), Declared { digest: "".into(), place: FilePosition::file(""), adopt: true, needs: Vec::new() })
    };
    let apply = taken.keys().map(|id| (id.clone(), intake::Why::Replaced)).collect();
    let mut decision = Decision { apply, ..Decision::default() };
    let situation = Situation {
        source: &key,
        label: &SourceName::new(key.clone()).label_value(),
        commit: None,
        declared: &taken.keys().map(declare).collect(),
        withheld: &BTreeSet::new(),
        broken: &BTreeMap::new(),
        live: &BTreeMap::new(),
        others: &BTreeMap::new(),
        installed,
        leaving: &BTreeSet::new(),
        policy: &policy,
        errors: false,
        moved: Moved::No,
    };
    removal::hold(&situation, taken, &mut decision);
    decision
}

/// The content of an object is too long for the status of the source that takes it over.
fn not_known(id: &Id, heir: &Key) -> NotKnown {
    let value = format!("content that GitSource {heir} gives {}", intake::text(id));
    let first = placeholder::Unknown {
        value: value.clone(),
        target: "kcp".to_owned(),
        object: intake::text(id),
        path: "spec".to_owned(),
    };
    NotKnown { value, first, occurrences: 1, may_hide: true }
}

/// The objects that git no longer declares. Returns those that would be deleted, at once or after a confirmation.
fn goes(
    world: &World,
    [at_once, confirmed]: [Planning<'_>; 2],
    comparer: &Comparer<'_>,
    (decision, own): (&Decision, Option<&GitSource>),
    outcome: &mut Outcome,
) -> BTreeMap<Id, Effect> {
    let mut gone = BTreeMap::new();
    // What an earlier revision no longer declared is no news.
    let undeclared = own.map(intake::status::undeclared).unwrap_or_default();
    for (id, _) in &decision.prune {
        let Some(live) = world.objects.get(id) else { continue };
        outcome.found.push(goes_one(comparer, id, live, Effect::Applies));
        gone.insert(id.clone(), Effect::Applies);
    }
    for (id, wait) in &decision.waiting {
        let Some(live) = world.objects.get(id) else { continue };
        let kept = |why: &str| format!("{} is no longer declared, but is not deleted: {why}", intake::text(id));
        let message = match wait {
            Wait::Unconfirmed(losses) => {
                let mut found = goes_one(comparer, id, live, Effect::NeedsConfirmation);
                found.runtimes.extend(losses.iter().map(|loss| loss.runtime.clone()));
                outcome.found.push(found);
                gone.insert(id.clone(), Effect::NeedsConfirmation);
                continue;
            }
            Wait::Limit { .. } => {
                outcome.found.push(goes_one(comparer, id, live, Effect::NeedsConfirmation));
                gone.insert(id.clone(), Effect::NeedsConfirmation);
                continue;
            }
            Wait::InUse(losses) => {
                let keeping = |planning| -> BTreeSet<&Key> {
                    let keeping = losses.iter().filter(|loss| keeps_version(planning, world, loss));
                    keeping.map(|loss| &loss.runtime).collect()
                };
                let effect = if keeping(at_once).is_empty() { Effect::Applies } else { Effect::NeedsConfirmation };
                let later = keeping(confirmed);
                if effect == Effect::NeedsConfirmation && !later.is_empty() {
                    outcome.held.push(Held::in_use(id, later, None));
                    continue;
                }
                // It goes when the rollout of the same commit is over, or the removal of its module.
                outcome.found.push(goes_one(comparer, id, live, effect));
                gone.insert(id.clone(), effect);
                continue;
            }
            Wait::Unreadable => kept("it cannot be read"),
            Wait::Terminating => continue,
            Wait::Off => kept("its GitSource says `prune: false`"),
            Wait::Errors => kept("nothing is pruned while there are errors"),
            Wait::Unread(_) => kept("another GitSource has not been read"),
            Wait::Kept => kept("it is annotated `tidegate.dev/prune: disabled`"),
            Wait::Tool(tool) => kept(&format!("{} manages it", tool.text())),
        };
        let why = if undeclared.contains(id) { Why::KeptBefore } else { Why::Kept };
        outcome.held.push(Held::of_definition(id, why, message));
    }
    gone
}
