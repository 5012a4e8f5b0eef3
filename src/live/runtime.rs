//! Compares the desired objects of one runtime with its live objects.
//!
//! For each kind that is desired or recorded, the comparison lists all objects with Tidegate's ownership label
//! completely. A list of metadata would need as many requests, and `managedFields`, which show edits, are most of an
//! object anyway. Objects that are not in the lists are read by their metadata.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use serde_json::Value;

use super::{
    Intent, Layers, Outcome, Wanted, WindowsAt,
    compare::{Comparer, Shared, Wish},
    concerns_all,
    desired::{self, Bases, base_places, module_place},
    is_refusal, managers,
    world::{World, key, typed},
};
use crate::runtime::{
    manifest::{
        OF_TWO_MODULES, OwnershipClaim, definitions_in_use, former_defaults, is_skipped as is_paused, module_in_use,
    },
    manifests::{LiveManifests, is_replaceable},
    reporting,
};
use tidegate_cluster::{Cluster, Error, Kind};
use tidegate_core::{
    adopt,
    api::{
        Kyma, Manifest,
        kyma::KymaSpec,
        names::{
            CATALOG_MANAGER_UPSTREAM, DEPLOYER, FIELD_MANAGER, MANAGED_BY_SKR, SKR_KYMA, SKR_NAMESPACE, annotation,
            label,
        },
        shared::CustomResourcePolicy,
    },
    changes::{Desired, Live, Prune, Verdict, prune_annotation},
    conditions,
    content::ContentId,
    counterpart::{self, Write},
    definition,
    diagnostic::{Diagnostic, FilePosition},
    intake::Loss,
    inventory::Inventory,
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::{Gvk, Object, ObjectId},
    plan::{
        self, Components, HeldVersions, InstallSource, Installation, InstalledModules, ModuleOutcome, ModulesFrom,
        Offer, RuntimePlan, RuntimeWindows, Windows, rollout, window,
    },
    render::{self, CompleteModule, Injection, Mark, SharedObjects, live as placeholder},
    template::Template,
};
use tidegate_diff::{
    clean::REFUSED,
    gather::ObjectDifference,
    live::{kept, stripped},
    model::{Action, Effect, Held, NotKnown, Side, Why},
    names::Names,
};

/// What the comparisons of all runtimes share.
#[derive(Clone, Copy)]
pub(crate) struct Baseline<'a> {
    pub(crate) wanted: &'a Wanted,
    /// What is known of components in registries.
    pub(crate) components: &'a Components,
    /// The objects of modules in registries that `wanted` does not have.
    pub(crate) layers: &'a Layers,
    /// The maintenance windows; without them, upgrades are compared as if a window were open.
    pub(crate) windows: Option<WindowsAt<'a>>,
    pub(crate) world: &'a World,
    pub(crate) intent: &'a Intent,
    pub(crate) shared: &'a Shared,
    pub(crate) bases: &'a Bases,
    /// The same until a user confirms what waits; `None` if nothing waits.
    pub(crate) until_confirmed: Option<&'a Baseline<'a>>,
}

// === impl Baseline ===

impl<'a> Baseline<'a> {
    /// What the plans of runtimes depend on.
    pub(crate) fn planning(&self) -> Planning<'a> {
        Planning {
            components: self.components,
            settings: &self.wanted.settings,
            windows: self.windows,
            before: &self.intent.before,
            after: &self.intent.after,
        }
    }
}

/// The result for one runtime.
#[derive(Default)]
pub(crate) struct RuntimeResult {
    pub(crate) outcome: Outcome,
    /// The installed modules and their offers.
    pub(crate) installed: Vec<(Key, Offer)>,
    /// The module of each object that one wants or has recorded, and of its Manifest.
    pub(crate) modules: BTreeMap<ObjectId, String>,
    /// The number of objects that were compared.
    pub(crate) objects: usize,
    /// The Kyma in the runtime.
    pub(crate) in_runtime: Option<KymaSpec>,
    /// Whether the runtime is suspended, so that nothing was compared.
    pub(crate) suspended: bool,
    /// Whether the runtime does not exist yet, so that nothing was compared.
    pub(crate) unseen: bool,
}

/// Concurrent lists in one runtime.
const LISTS_AT_ONCE: usize = 8;
/// Concurrent comparisons of objects in one runtime. The limit of the cluster applies as well.
const OBJECTS_AT_ONCE: usize = 8;

/// One runtime under comparison.
struct RuntimeComparison<'a> {
    baseline: &'a Baseline<'a>,
    key: &'a Key,
    kyma: &'a Kyma,
    /// `None` for a runtime that is only being created and cannot be reached yet.
    cluster: Option<&'a Cluster>,
    /// The Manifest of each module.
    manifests: BTreeMap<String, &'a Object>,
    /// The Manifests that modules had under other names, because their components had.
    former: BTreeMap<String, Vec<&'a Object>>,
    /// The Manifest that takes over what one of another name has.
    renamed: BTreeMap<Key, Key>,
    names: Arc<Names>,
    outcome: Outcome,
}

/// The objects of one module, and its recorded inventory.
struct Module {
    name: String,
    manifest: Key,
    /// `None` if the module is removed.
    wishes: Option<Vec<(Wish, bool)>>,
    /// The same objects; `None` if the module is removed.
    desired: Option<CompleteModule>,
    owned: Inventory,
    /// The default custom resource, and whether it will be created.
    resource: Option<Object>,
    /// Why its objects stay, whatever it contains; none if they do not.
    rests: Option<Rest>,
    /// The ModuleTemplate of the version that leaves; `None` if the module stays, or its version is not known.
    template: Option<Key>,
    /// Whether its Manifest is as desired already, or being deleted if the module leaves. Then the change does not
    /// remove what it no longer contains: an earlier one did.
    is_applied: bool,
}

/// Why nothing of a module is applied or pruned in the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// It becomes unmanaged: its objects lose the ownership label.
    Released,
    /// A label pauses its Manifest.
    Paused,
}

/// What custom resources of users keep of a module that leaves the runtime, or that changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum InUse {
    #[default]
    Nothing,
    /// The whole module, until users have deleted them. Contains the first one, and how many more there are.
    Module(String),
    /// These definitions, each with the first one, and how many more there are.
    Definitions(BTreeMap<ObjectId, String>),
}

/// A wish for a Secret whose data are from the control plane: this comparison does not read them, so they count as they
/// are.
fn with_live_data(wish: &Wish, live: &BTreeMap<ObjectId, Object>) -> Wish {
    let mut wish = wish.clone();
    let asks = wish.object.annotation(annotation::INJECT_DATA_FROM_KCP) == Some("true");
    let found = live.get(&wish.object.id()).filter(|_| asks && &*wish.gvk.kind == "Secret");
    if let Some(data) = found.and_then(|found| found.field("data")) {
        wish.object.map_mut().insert("data".to_owned(), data.clone());
    }
    wish
}

/// Compares one runtime. `cluster` is `None` for a runtime that is only being created. Fails if a cluster does not
/// answer.
pub(crate) async fn compare_runtime(
    baseline: &Baseline<'_>,
    key: &Key,
    kyma: &Kyma,
    cluster: Option<&Cluster>,
) -> Result<RuntimeResult, Error> {
    if kyma.metadata.deletion_timestamp.is_some() {
        return Ok(RuntimeResult::default());
    }
    if landscape::is_skipped(&kyma.metadata) && !baseline.intent.gone.contains(key) {
        let place = baseline.wanted.place(definition::Kind::Kyma, key);
        let declared = baseline.wanted.definitions.good.get(&(definition::Kind::Kyma, key.clone()));
        let suspended = Held::runtime_suspended(declared.map(|declared| &**declared));
        let held = Held { runtimes: [key.clone()].into(), place, ..suspended };
        let outcome = Outcome { held: vec![held], ..Outcome::default() };
        return Ok(RuntimeResult { outcome, suspended: true, ..RuntimeResult::default() });
    }
    let counterpart = match cluster {
        Some(cluster) => cluster.get(&Kind::namespaced::<Kyma>(), &Key::new(SKR_NAMESPACE, SKR_KYMA)).await?,
        None => None,
    };
    let in_runtime: Option<Kyma> = counterpart.as_ref().and_then(|object| typed(object.value()));
    let all: Vec<&Object> = baseline.world.manifests_of(key).collect();
    let recorded: Vec<Manifest> = all.iter().filter_map(|manifest| typed(manifest.value())).collect();
    let plan = plan_of(baseline.planning(), kyma, &recorded, in_runtime.as_ref().map(|kyma| &kyma.spec));
    let names = Arc::new(names(kyma, key, &all, &plan));
    let (manifests, former) = by_module(&all, recorded, &plan);
    let renamed = BTreeMap::new();
    let mut comparison = RuntimeComparison {
        baseline,
        key,
        kyma,
        cluster,
        manifests,
        former,
        renamed,
        names,
        outcome: Outcome::default(),
    };
    if baseline.intent.gone.contains(key) {
        let plan = RuntimePlan { modules: Vec::new(), mandatory: Vec::new(), ..plan };
        let modules = comparison.modules(&plan).await?;
        comparison.compare(Vec::new(), &modules).await?;
        comparison.leave(counterpart.as_ref(), &plan).await?;
        let modules = modules_of(&modules, &comparison.renamed);
        return Ok(RuntimeResult { outcome: comparison.outcome, modules, ..RuntimeResult::default() });
    }
    let installed = plan.deciding().into_iter().filter_map(|module| {
        let installation = module.outcome.installed()?;
        Some((Key::new(key.namespace(), &module.name), installation.offer.clone()))
    });
    let installed = installed.collect();
    comparison.decided_by_runtime(in_runtime.as_ref());
    comparison.counterpart(counterpart.as_ref(), in_runtime.as_ref());
    let base = comparison.base(&plan);
    let modules = comparison.modules(&plan).await?;
    // The Kyma in the runtime, and a Manifest for each module.
    let of_modules = modules.iter().map(|module| 1 + module.wishes.iter().flatten().count());
    let objects = 1 + base.len() + of_modules.sum::<usize>();
    comparison.compare(base, &modules).await?;
    let in_runtime = in_runtime.map(|kyma| kyma.spec);
    let (modules, outcome) = (modules_of(&modules, &comparison.renamed), comparison.outcome);
    Ok(RuntimeResult { outcome, installed, modules, objects, in_runtime, ..RuntimeResult::default() })
}

/// What the plans of all runtimes depend on.
#[derive(Clone, Copy)]
pub(crate) struct Planning<'a> {
    /// As [`Baseline::components`].
    pub(crate) components: &'a Components,
    pub(crate) settings: &'a plan::Settings,
    /// As [`Baseline::windows`].
    pub(crate) windows: Option<WindowsAt<'a>>,
    /// The landscape now.
    pub(crate) before: &'a Landscape,
    /// The landscape after the change.
    pub(crate) after: &'a Landscape,
}

/// Whether a runtime keeps the version of a module that it has, because it is suspended or its upgrade waits. The Kyma
/// in the runtime is not read.
pub(crate) fn keeps_version(planning: Planning<'_>, world: &World, loss: &Loss) -> bool {
    let Some((module, version)) = loss.module.split_once(' ') else { return false };
    let Some(kyma) = planning.after.kymas.get(&loss.runtime) else { return false };
    if landscape::is_skipped(&kyma.metadata) {
        return true;
    }
    match outcome_of(planning, world, kyma, module) {
        Some(ModuleOutcome::Install(installation)) => installation.version == version,
        Some(ModuleOutcome::Wait(_)) => true,
        Some(ModuleOutcome::Refuse(refusal)) => refusal.keep,
        Some(ModuleOutcome::Unmanage) | None => false,
    }
}

/// The version of a module that a runtime gets; `None` if it gets none, because it is suspended or waits. The Kyma in
/// the runtime is not read.
pub(crate) fn version_after(planning: Planning<'_>, world: &World, runtime: &Key, module: &str) -> Option<String> {
    let kyma = planning.after.kymas.get(runtime).filter(|kyma| !landscape::is_skipped(&kyma.metadata))?;
    match outcome_of(planning, world, kyma, module)? {
        ModuleOutcome::Install(installation) => Some(installation.version),
        ModuleOutcome::Wait(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    }
}

/// What becomes of a module of a runtime.
fn outcome_of(planning: Planning<'_>, world: &World, kyma: &Kyma, module: &str) -> Option<ModuleOutcome> {
    let key = landscape::key(&kyma.metadata);
    let manifests = world.manifests_of(&key);
    let recorded: Vec<Manifest> = manifests.filter_map(|manifest| typed(manifest.value())).collect();
    let plan = plan_of(planning, kyma, &recorded, None);
    plan.into_deciding().into_iter().find(|one| one.name == module).map(|one| one.outcome)
}

/// What a runtime should have, by its Kyma, its Manifests and the Kyma in the runtime.
pub(crate) fn plan_of(
    planning: Planning<'_>,
    kyma: &Kyma,
    recorded: &[Manifest],
    in_runtime: Option<&KymaSpec>,
) -> RuntimePlan {
    let namespace = kyma.metadata.namespace.as_deref().unwrap_or_default();
    let spec = plan::effective(kyma, in_runtime);
    let components = planning.components.seen_by(recorded, &|_| false);
    let before = InstalledModules::from_manifests(recorded).released_in(namespace, planning.before);
    let (nothing, installed) = (BTreeMap::new(), window::installed_in_manifests(recorded));
    let labels = kyma.metadata.labels.as_ref().unwrap_or(&nothing);
    let Planning { after, settings, .. } = planning;
    let plan = |held: &HeldVersions| {
        let windows = match planning.windows {
            Some(WindowsAt { policy, now, size_min }) => {
                Windows::Known(RuntimeWindows { policy, now, size_min, labels, installed: &installed, held })
            }
            None => Windows::Open { installed: &installed, held },
        };
        plan::runtime(after, &components, kyma, &spec, settings, &before, windows)
    };
    // How far rollouts are is not known, but those that hold every runtime are.
    let whole = plan(&HeldVersions::new());
    let held = rollout::held_in(after, namespace, &whole, &installed);
    if held.is_empty() { whole } else { plan(&held) }
}

/// What identifies the objects of a Manifest.
fn content(manifest: &Object) -> Option<ContentId> {
    let manifest: Manifest = typed(manifest.value())?;
    let source = InstallSource::try_from(&manifest.spec.install.source).ok()?;
    Some(source.content(&manifest.spec.localized_images))
}

/// The module of each object that one wants or has recorded, and of its Manifest. `renamed` has the Manifests of other
/// names, and those that take over what they have.
fn modules_of(modules: &[Module], renamed: &BTreeMap<Key, Key>) -> BTreeMap<ObjectId, String> {
    let of_one = |module: &Module| {
        let former = renamed.iter().filter(|(_, present)| **present == module.manifest).map(|(former, _)| former);
        let manifests = former.chain([&module.manifest]).map(|key| Kind::namespaced::<Manifest>().id(key));
        let wanted = module.wishes.iter().flatten().map(|(wish, _)| wish.object.id());
        let resource = module.resource.iter().map(Object::id);
        let ids = module.owned.ids().cloned().chain(wanted).chain(resource).chain(manifests);
        ids.map(|id| (id, module.name.clone())).collect::<Vec<_>>()
    };
    modules.iter().rev().flat_map(of_one).collect()
}

/// The Manifest of each module, and those that it had under other names and takes over, as the daemon tells them apart.
fn by_module<'a>(
    all: &[&'a Object],
    recorded: Vec<Manifest>,
    plan: &RuntimePlan,
) -> (BTreeMap<String, &'a Object>, BTreeMap<String, Vec<&'a Object>>) {
    let recorded: Vec<Arc<Manifest>> = recorded.into_iter().map(Arc::new).collect();
    let live = LiveManifests::new(&recorded, plan);
    let object = |manifest: &Manifest| {
        let key = landscape::key(&manifest.metadata);
        all.iter().copied().find(|object| self::key(object) == key)
    };
    let manifests = live.iter().filter_map(|(module, manifest)| Some((module.to_owned(), object(manifest)?)));
    let former = live.iter().map(|(module, _)| {
        let others = live.others(module).filter(|other| is_replaceable(other));
        (module.to_owned(), others.filter_map(|other| object(other)).collect())
    });
    (manifests.collect(), former.collect())
}

/// The names that only this runtime has.
fn names(kyma: &Kyma, key: &Key, manifests: &[&Object], plan: &RuntimePlan) -> Names {
    let planned: BTreeMap<String, String> = plan
        .deciding()
        .into_iter()
        .filter_map(|module| {
            let installation = module.outcome.installed()?;
            Some((installation.manifest_name.clone(), module.name.clone()))
        })
        .collect();
    let present = manifests.iter().filter_map(|manifest| {
        let (name, module) = (manifest.name().to_owned(), manifest.label(label::MODULE_NAME)?.to_owned());
        // Objects name their Manifest, so one of another name is a change of them.
        let is_former = !planned.contains_key(&name) && planned.values().any(|planned| *planned == module);
        Some((name, if is_former { format!("{module} before") } else { module }))
    });
    let manifests: BTreeMap<String, String> = present.chain(planned.clone()).collect();
    let own = [
        (key.name().to_owned(), "Kyma".to_owned()),
        (kyma.metadata.uid.clone().unwrap_or_default(), "uid of Kyma".to_owned()),
    ];
    Names::new(
        own.into_iter().chain(manifests.into_iter().map(|(name, module)| (name, format!("Manifest of {module}")))),
    )
}

// === impl RuntimeComparison ===

impl<'a> RuntimeComparison<'a> {
    fn comparer(&self, cluster: &'a Cluster, side: Side) -> Comparer<'a> {
        Comparer::new(self.baseline.shared, cluster, side, Arc::clone(&self.names), vec![self.key.clone()])
    }

    /// A comparer for the control plane.
    fn kcp(&self) -> Comparer<'a> {
        self.comparer(&self.baseline.world.kcp, Side::ControlPlane)
    }

    /// A comparer for the runtime. For a runtime that is only being created, no request goes to its stand-in.
    fn skr(&self) -> Comparer<'a> {
        self.comparer(self.cluster.unwrap_or(&self.baseline.world.kcp), Side::Runtime)
    }

    /// The rollout that brings a new version to this runtime in its turn; none if all runtimes get it at once.
    fn rollout(
        &self,
        installation: &Installation,
        live: Option<&Object>,
        place: Option<&FilePosition>,
    ) -> Option<Held> {
        let live: Manifest = typed(live?.value())?;
        let from = live.spec.version.as_deref().filter(|from| *from != installation.version)?;
        if landscape::label(&live.metadata, label::CHANNEL) != installation.offer.channel() {
            return None;
        }
        let release = Key::new(self.key.namespace(), &installation.module);
        let release = self.baseline.intent.after.releases.get(&release)?;
        let held = Held::rollout(&installation.module, from, &installation.version, release)?;
        Some(Held { runtimes: [self.key.clone()].into(), place: place.cloned(), ..held })
    }

    /// Reports that the module list in git is not used, if it differs from the one that is used.
    fn decided_by_runtime(&mut self, in_runtime: Option<&Kyma>) {
        let wanted = self.baseline.wanted;
        let definition = wanted.definitions.good.get(&(definition::Kind::Kyma, self.key.clone()));
        let (Some(definition), Some(live)) = (definition, in_runtime) else { return };
        let differs = *self.kyma.spec.modules != *live.spec.modules || self.kyma.spec.channel != live.spec.channel;
        // A list that only the control plane has is not git's.
        let has_list = definition.object.value().pointer("/spec/modules").is_some();
        if plan::modules_from(self.kyma) != ModulesFrom::Runtime || !has_list || !differs {
            return;
        }
        // If the definition lets git decide, then it only waits, which another entry says.
        let source = wanted.sources.first().cloned().map(SourceName::new);
        let declared = source.and_then(|source| typed::<Kyma>(landscape::stamp(definition, &source).value()));
        if declared.is_some_and(|declared| plan::modules_from(&declared) != ModulesFrom::Runtime) {
            return;
        }
        self.outcome.held.push(Held {
            why: Why::DecidedByRuntime,
            module: String::new(),
            runtimes: [self.key.clone()].into(),
            message: "the Kyma in the runtime decides the modules; the list in git has no effect".to_owned(),
            hint: Some(format!("to let git decide, annotate the Kyma with `{}: git`", annotation::MODULES_FROM)),
            place: Some(definition.place.clone()),
        });
    }

    /// The Kyma in the runtime.
    fn counterpart(&mut self, live: Option<&Object>, in_runtime: Option<&Kyma>) {
        let wanted = self.baseline.wanted;
        let desired =
            match render::runtime_kyma(wanted.library.for_object(&self.kyma.metadata), self.kyma, &self.kyma.spec) {
                Ok(desired) => desired,
                Err(error) => {
                    self.outcome.diagnostics.push(error.diagnostic());
                    return;
                }
            };
        if in_runtime.is_some_and(|kyma| kyma.metadata.deletion_timestamp.is_some()) {
            return;
        }
        let wish = Wish {
            gvk: desired.gvk(),
            places: vec![wanted.place(definition::Kind::Kyma, self.key)].into_iter().flatten().collect(),
            maker: Some(Template::Kyma.name()),
            object: desired,
        };
        let comparer = self.skr();
        let effect = Effect::Applies;
        match (counterpart::write(&wish.object, self.kyma, in_runtime), live) {
            (Write::Create(_), _) => {
                self.outcome.found.push(comparer.found(&wish, &comparer.created(&wish), effect));
            }
            (Write::Merge { patch, .. }, Some(live)) => {
                let old = stripped(live.value());
                let mut new = old.clone();
                merge(&mut new, &patch);
                self.outcome
                    .found
                    .extend(comparer.merged(&old, &new).map(|differs| comparer.found(&wish, &differs, effect)));
            }
            (Write::Merge { .. } | Write::Nothing, _) => {}
        }
    }

    /// What every runtime has leaves it with its Kyma, except its namespace.
    async fn leave(&mut self, counterpart: Option<&Object>, plan: &RuntimePlan) -> Result<(), Error> {
        let Some(cluster) = self.cluster else { return Ok(()) };
        let base = self.base(plan);
        let ids: BTreeSet<ObjectId> = base.iter().map(|wish| wish.object.id()).collect();
        let comparer = self.skr();
        let live = marked(cluster, &kinds(&base, &[])).await?;
        let leaves = |id: &ObjectId, object: &Object| {
            &*id.kind != "Namespace"
                && (ids.contains(id) || is_catalog_copy(id, object))
                && object.value().pointer("/metadata/deletionTimestamp").is_none()
        };
        let leaving = live.iter().filter(|(id, object)| leaves(id, object)).map(|(_, object)| object);
        self.outcome.found.extend(leaving.chain(counterpart).map(|one| comparer.found_gone(one, Effect::Applies)));
        Ok(())
    }

    /// The objects that every runtime gets.
    fn base(&mut self, plan: &RuntimePlan) -> Vec<Wish> {
        let base = self.baseline.bases.for_class(self.baseline, &plan.class);
        self.outcome.diagnostics.extend(base.problems.iter().cloned());
        let webhook = self.webhook();
        let wish = |one: &render::SharedObject| {
            let (places, maker) = base_places(self.baseline.wanted, &self.baseline.intent.after, self.key, &one.id);
            Wish { gvk: one.gvk.clone(), object: one.object(self.key), places, maker }
        };
        base.objects.objects.iter().chain(webhook.iter().flat_map(|one| &one.objects)).map(wish).collect()
    }

    /// The webhook configuration of a runtime with an agent: it depends on the kinds of the runtime's objects. The
    /// user of its conditions is not known.
    fn webhook(&mut self) -> Option<SharedObjects> {
        let agents = self.baseline.wanted.agents.as_ref()?;
        let manifests: Vec<Arc<Manifest>> =
            self.manifests.values().filter_map(|manifest| typed(manifest.value()).map(Arc::new)).collect();
        match desired::webhook(self.baseline, Some((agents, &reporting::drift(&manifests))))? {
            Ok(object) => Some(SharedObjects::new(&[object], Mark::Runtime, &|_| None)),
            Err(error) => {
                self.outcome.diagnostics.push(error.diagnostic());
                None
            }
        }
    }

    /// The Manifests, which this function compares, and the objects of each.
    async fn modules(&mut self, plan: &RuntimePlan) -> Result<Vec<Module>, Error> {
        let mut modules = Vec::new();
        let mut rest = self.manifests.clone();
        for module in plan.deciding() {
            let live = rest.remove(&module.name);
            let place = match &module.offer {
                Offer::Channel(_) => module_place(self.baseline.wanted, self.kyma, self.key, &module.name),
                Offer::Mandatory => {
                    let release = Key::new(self.key.namespace(), &module.name);
                    self.baseline.wanted.offer_place(&release, &Offer::Mandatory)
                }
            };
            match &module.outcome {
                ModuleOutcome::Install(installation) => {
                    let held = self.rollout(installation, live, place.as_ref());
                    self.outcome.held.extend(held);
                    modules.extend(self.install(installation, live, place).await?);
                }
                ModuleOutcome::Wait(wait) => {
                    let runtimes = [self.key.clone()].into();
                    self.outcome.held.push(Held {
                        runtimes,
                        place: place.clone(),
                        ..Held::waiting(&module.name, wait)
                    });
                    if let Some(kept) = &wait.kept {
                        modules.extend(self.install(kept, live, place).await?);
                    }
                }
                ModuleOutcome::Refuse(refusal) => {
                    let why = if refusal.reason == plan::reason::DOWNGRADE { Why::Downgrade } else { Why::Refused };
                    self.outcome.held.push(Held {
                        why,
                        module: module.name.clone(),
                        runtimes: [self.key.clone()].into(),
                        message: refusal.message.clone(),
                        hint: refusal.hint.clone(),
                        place,
                    });
                    modules.extend(live.filter(|_| !refusal.keep).map(|live| self.removed(&module.name, live)));
                }
                ModuleOutcome::Unmanage => {
                    let removed = live.map(|live| self.removed(&module.name, live));
                    modules.extend(removed.map(|removed| Module {
                        rests: removed.rests.or(Some(Rest::Released)),
                        resource: None,
                        ..removed
                    }));
                }
            }
            if let Some(live) = live {
                self.take_over(&module.name, &key(live));
            }
        }
        for (module, live) in rest {
            modules.push(self.removed(&module, live));
        }
        Ok(modules)
    }

    async fn install(
        &mut self,
        installation: &Installation,
        live: Option<&'a Object>,
        place: Option<FilePosition>,
    ) -> Result<Option<Module>, Error> {
        let wanted = self.baseline.wanted;
        let uid = self
            .kyma
            .metadata
            .uid
            .clone()
            .unwrap_or_else(|| placeholder::placeholder(&placeholder::uid("Kyma", self.key)));
        let desired = match render::manifest(wanted.library.for_object(&self.kyma.metadata), installation, &uid) {
            Ok(desired) => desired,
            Err(error) => {
                self.outcome.diagnostics.push(error.diagnostic());
                return Ok(None);
            }
        };
        let manifest = key(&desired);
        let former = live.filter(|live| key(live) != manifest && !is_deleting(live));
        let (live, present) = match former.map(|former| (former, typed::<Manifest>(former.value()))) {
            // It keeps its name and what it has.
            Some((former, Some(found))) if is_paused(&found) => {
                let rests = self.paused(&installation.module, former);
                return Ok(Some(Module::resting(&installation.module, key(former), recorded(Some(former)).0, rests)));
            }
            Some((former, Some(found))) if is_replaceable(&found) => {
                self.former.entry(installation.module.clone()).or_default().push(former);
                (Some(former), None)
            }
            Some(_) => (None, None),
            None => (live, live),
        };
        let cause = self.moved(installation, live);
        let place = cause.clone().or_else(|| self.edited(installation, live)).or(place);
        let wish = Wish {
            gvk: desired.gvk(),
            object: desired,
            places: place.into_iter().collect(),
            maker: Some(Template::Manifest.name()),
        };
        let wish = self.as_left(wish, present);
        let comparer = self.kcp();
        match present {
            Some(live) if is_deleting(live) => {}
            Some(live) => match comparer.existing(&wish, live).await {
                Ok(differs) => {
                    if differs.is_none() && Comparer::would_take_over(live) {
                        self.outcome.to_take_over.push(wish.object.id());
                    }
                    let found = differs.map(|differs| comparer.found(&wish, &differs, Effect::Applies));
                    self.outcome.found.extend(found);
                }
                Err(error) if concerns_all(&error) => return Err(error),
                Err(error) => self.outcome.problem("kcp", wish.places.first(), &error, &comparer),
            },
            None => self.outcome.found.push(comparer.found(&wish, &comparer.created(&wish), Effect::Applies)),
        }
        let (own, of_former) = (recorded(live), self.take_over(&installation.module, &manifest));
        let (owned, has_resource) = (own.0.union(&of_former.0), own.1 || of_former.1);
        if let Some(live) = present.filter(|live| typed::<Manifest>(live.value()).is_some_and(|live| is_paused(&live)))
        {
            let rests = self.paused(&installation.module, live);
            return Ok(Some(Module::resting(&installation.module, manifest, owned, rests)));
        }
        let is_applied = present.and_then(content) == Some(installation.content());
        let wishes = self.objects(installation, &manifest, live, cause.as_ref());
        // Of a module in another repository, what leaves is known by its name.
        let outline = || self.baseline.intent.outlines.get(&installation.content()).cloned();
        let wishes = wishes.or_else(|| Some((outline()?, Vec::new())));
        let creates = installation.policy == CustomResourcePolicy::CreateAndDelete && !has_resource;
        let resource =
            installation.default_resource.clone().filter(|_| creates).and_then(|value| Object::new(value).ok());
        Ok(wishes.map(|(desired, wishes)| Module {
            name: installation.module.clone(),
            manifest,
            wishes: Some(wishes),
            desired: Some(desired),
            owned,
            resource,
            rests: None,
            template: None,
            is_applied,
        }))
    }

    /// The Manifest without what is noted later, if the runtime stays as Lifecycle Manager left it and nothing else
    /// changes.
    fn as_left(&self, wish: Wish, live: Option<&Object>) -> Wish {
        let before = self.baseline.intent.before.kymas.get(self.key);
        let without = before.zip(live).and_then(|(kyma, live)| {
            let noted = live.annotation(annotation::COMPONENT_DIGEST);
            let object = adopt::without_note(&kyma.metadata, &wish.object, noted)?;
            tidegate_core::changes::covers(object.value(), live.value()).then_some(object)
        });
        match without {
            Some(object) => Wish { object, ..wish },
            None => wish,
        }
    }

    /// Whether a desired object is a webhook configuration that is not created where Lifecycle Manager left none: no
    /// agent is configured, or it has no webhook.
    fn is_silent(&self, wish: &Wish, live: &BTreeMap<ObjectId, Object>) -> bool {
        let before = self.baseline.intent.before.kymas.get(self.key);
        wish.maker == Some(Template::Webhook.name())
            && before.is_some_and(|kyma| adopt::is_adopted(&kyma.metadata))
            && (self.baseline.wanted.agents.is_none() || !render::has_webhooks(wish.object.value()))
            && !live.contains_key(&wish.object.id())
    }

    /// The line that gives the offer a version other than the installed one.
    fn moved(&self, installation: &Installation, live: Option<&Object>) -> Option<FilePosition> {
        let before = live?.value().pointer("/spec/version").and_then(Value::as_str);
        let release = Key::new(self.key.namespace(), &installation.module);
        let was = plan::offers(self.baseline.intent.before.releases.get(&release)?);
        let was = was.filter(|(offer, _)| *offer == installation.offer).map(|(_, version)| version).next();
        let moves = before != Some(installation.version.as_str()) && was != Some(installation.version.as_str());
        self.baseline.wanted.offer_place(&release, &installation.offer).filter(|_| moves)
    }

    /// The line of the ModuleTemplate that differs from the Manifest, if both have the same version.
    fn edited(&self, installation: &Installation, live: Option<&Object>) -> Option<FilePosition> {
        let template = (definition::Kind::ModuleTemplate, installation.template.clone());
        let definition = self.baseline.wanted.definitions.good.get(&template)?;
        let said = |pointer: &str| live.and_then(|live| live.value().pointer(pointer));
        let before = live.and_then(content);
        if before.is_some_and(|before| before != installation.content()) {
            return definition.module_place();
        }
        let manager = installation.manager.as_ref().and_then(|manager| serde_json::to_value(manager).ok());
        let pairs = [
            ("data", said("/spec/resource"), installation.default_resource.as_ref()),
            ("manager", said("/spec/manager"), manager.as_ref()),
        ];
        let differs = pairs.into_iter().find(|(_, before, after)| {
            after.is_some_and(|after| before.is_some_and(|before| !tidegate_core::changes::covers(after, before)))
        });
        let (line, column) = definition.fields.position(&["spec".into(), differs?.0.into()]);
        Some(FilePosition::at(&definition.place.path, line, column))
    }

    /// The objects of a module; `None` if they are unknown here.
    fn objects(
        &mut self,
        installation: &Installation,
        manifest: &Key,
        live: Option<&Object>,
        cause: Option<&FilePosition>,
    ) -> Option<(CompleteModule, Vec<(Wish, bool)>)> {
        let wanted = self.baseline.wanted;
        let (object, path, is_ours) = match &installation.source {
            InstallSource::Git { source, path, .. } => {
                (format!("GitSource {source}"), path.clone(), wanted.sources.contains(source))
            }
            InstallSource::Oci(source) => {
                (format!("registry {}", source.repo), format!("{}@{}", source.name, source.digest), true)
            }
        };
        let in_git = wanted.definitions.modules.get(&installation.content()).filter(|_| is_ours);
        let known = match in_git {
            Some(module) => Some(self.baseline.bases.module(module)),
            None => self.baseline.layers.get(&installation.content()).cloned(),
        };
        let Some(module) = known else {
            self.outcome.unknown.push(NotKnown {
                value: format!("objects of module {} {}", installation.module, installation.version),
                first: placeholder::Unknown {
                    value: format!("objects of module {} {}", installation.module, installation.version),
                    target: format!("skr/{}", self.key),
                    object,
                    path,
                },
                occurrences: 1,
                may_hide: live.and_then(content) != Some(installation.content()),
            });
            return None;
        };
        let injection = match &wanted.settings.pull_secret {
            Some(name) => Injection::default().pull_secret(name, installation.manager.as_ref()),
            None => Injection::default(),
        };
        let complete = self.baseline.bases.injected(installation.content(), module, &injection);
        let place_of = |index: usize| in_git.and_then(|module| module.objects().get(index));
        let wish = |one: &render::SharedObject| {
            let place = place_of(one.index).map(|source| source.place.clone());
            let wish = Wish {
                gvk: one.gvk.clone(),
                object: one.object(manifest),
                places: cause.cloned().into_iter().chain(place).collect(),
                maker: None,
            };
            (wish, one.adopt)
        };
        let wishes = complete.objects().objects.iter().map(wish).collect();
        Some((complete, wishes))
    }

    /// The Manifests that a module had under other names end, and this one takes over what they have. Returns that: the
    /// inventory, and whether the default custom resource was created.
    fn take_over(&mut self, module: &str, manifest: &Key) -> (Inventory, bool) {
        let (mut owned, mut has_resource) = (Inventory::default(), false);
        for former in self.former.remove(module).unwrap_or_default() {
            if !is_deleting(former) {
                self.outcome.found.push(self.kcp().found_gone(former, Effect::Applies));
            }
            self.renamed.insert(key(former), manifest.clone());
            let of_former = recorded(Some(former));
            owned = owned.union(&of_former.0);
            has_resource |= of_former.1;
        }
        (owned, has_resource)
    }

    /// Reports that a Manifest is paused. It also keeps the name that it has from the former name of its component.
    fn paused(&mut self, module: &str, live: &Object) -> Option<Rest> {
        let runtimes = [self.key.clone()].into();
        self.outcome.held.push(Held { runtimes, ..Held::manifest_paused(module, Some(live.name())) });
        Some(Rest::Paused)
    }

    /// A Manifest that is removed, with all objects of its inventory.
    fn removed(&mut self, module: &str, live: &Object) -> Module {
        if !is_deleting(live) {
            self.outcome.found.push(self.kcp().found_gone(live, Effect::Applies));
        }
        let owned = recorded(Some(live)).0.union(&self.take_over(module, &key(live)).0);
        let manifest: Option<Manifest> = typed(live.value());
        let rests = if manifest.as_ref().is_some_and(is_paused) { self.paused(module, live) } else { None };
        let is_ours =
            |manifest: &Manifest| manifest.spec.custom_resource_policy == CustomResourcePolicy::CreateAndDelete;
        let ours = manifest.filter(|manifest| rests.is_none() && is_ours(manifest));
        let resource = ours.and_then(|manifest| Object::new(manifest.spec.resource?).ok());
        let version = live.value().pointer("/spec/version").and_then(Value::as_str);
        let template = version.map(|version| Key::new(live.namespace(), &format!("{module}-{version}")));
        let (name, manifest, is_applied) = (module.to_owned(), key(live), is_deleting(live));
        Module { name, manifest, wishes: None, desired: None, owned, resource, rests, template, is_applied }
    }

    /// Compares all desired and all recorded objects with the runtime.
    async fn compare(&mut self, base: Vec<Wish>, modules: &[Module]) -> Result<(), Error> {
        let live = match self.cluster {
            Some(cluster) => marked(cluster, &kinds(&base, modules)).await?,
            None => BTreeMap::new(),
        };
        let desired: BTreeSet<ObjectId> = base
            .iter()
            .chain(modules.iter().flat_map(|module| &module.wishes).flatten().map(|(wish, _)| wish))
            .map(|wish| wish.object.id())
            .collect();
        self.prune_catalog(&live, &desired);
        let in_use = self.in_use(modules).await?;
        // The default custom resources that modules delete as they leave. Another module may want the same.
        let mut leaving = BTreeSet::new();
        for (module, in_use) in modules.iter().zip(&in_use) {
            self.report_in_use(module, in_use);
            self.outcome.in_use.extend(module.template.clone().filter(|_| matches!(in_use, InUse::Module(_))));
            leaving.extend(self.leaving_resource(module, in_use).await?);
            self.leaving_defaults(module, in_use).await?;
        }
        for module in modules {
            self.resource(module, &leaving).await?;
        }
        let silent: BTreeSet<ObjectId> =
            base.iter().filter(|wish| self.is_silent(wish, &live)).map(|wish| wish.object.id()).collect();
        // An observer names what waits for the end of the adoption.
        let names_silent = self.baseline.shared.only_reads();
        let base: Vec<Wish> =
            base.into_iter().filter(|wish| names_silent || !silent.contains(&wish.object.id())).collect();
        let wishes = base.into_iter().map(|wish| (wish, Whose::Platform));
        let (restricted, present) = (&self.baseline.wanted.settings.restricted_modules, &live);
        let of_module = modules.iter().flat_map(|module| {
            let wishes = module.wishes.iter().flatten();
            let has_injected = module.name == DEPLOYER && restricted.contains(DEPLOYER);
            wishes.map(move |(wish, adopt)| {
                let id = wish.object.id();
                let is_ours = module.owned.contains(&id) || *adopt && !module.is_held_by_sibling(&id, modules);
                let whose = if is_ours { Whose::Ours } else { Whose::Manifest(module.manifest.clone()) };
                (if has_injected { with_live_data(wish, present) } else { wish.clone() }, whose)
            })
        });
        let wishes: Vec<(Wish, Whose)> = wishes.chain(of_module).collect();
        let strangers = self.look_up(&wishes, &live).await?;
        let mut blocked = self.sort_out(wishes, modules, (&live, &strangers));
        for wish in self.take_homeless(&mut blocked, &desired).await? {
            blocked.modules.extend(self.without_namespace(modules, &wish));
        }
        let comparer = self.skr();
        // Boxed, because the compiler cannot see that a stream of closures over borrowed values is `Send`.
        let comparisons: Vec<BoxFuture<'_, _>> =
            blocked.wishes.iter().map(|(wish, ownership)| one(&comparer, wish, ownership).boxed()).collect();
        let results: Vec<_> = stream::iter(comparisons).buffered(OBJECTS_AT_ONCE).collect().await;
        for (wish, live) in blocked.wishes.iter().filter_map(|(wish, ownership)| Some((wish, ownership.ours()?))) {
            self.assigned(modules, wish, live);
        }
        // The objects of other modules, which delete them or leave the runtime first.
        let mut moving: Vec<(ObjectDifference, Key)> = Vec::new();
        for ((wish, ownership), result) in blocked.wishes.iter().zip(results) {
            match result {
                Ok(found) => {
                    let is_refused = found.as_ref().is_some_and(|found| found.action == Action::Refuse);
                    let module = modules.iter().find(|module| is_refused && module.wants(&wish.object.id()));
                    blocked.modules.extend(module.map(|module| module.manifest.clone()));
                    if found.is_none()
                        && let Ownership::Ours(live) = ownership
                        && Comparer::would_take_over(live)
                    {
                        self.outcome.to_take_over.push(wish.object.id());
                    }
                    match ownership {
                        Ownership::Moves(_, giver) | Ownership::Left(_, giver) => {
                            moving.extend(found.map(|found| (found, giver.clone())));
                        }
                        _ => {
                            let is_silent = silent.contains(&wish.object.id());
                            self.outcome.found.extend(found.map(|found| match is_silent {
                                true => ObjectDifference { effect: Effect::Held, ..found },
                                false => found,
                            }));
                        }
                    }
                }
                Err(error) if concerns_all(&error) => return Err(error),
                Err(error) => {
                    self.outcome.problem(&format!("skr/{}", self.key), wish.places.first(), &error, &comparer);
                    if is_refusal(&error) {
                        blocked.modules.extend(self.refused(modules, wish));
                    }
                }
            }
        }
        for (found, giver) in moving {
            // A module of which users have custom resources stays as a whole, and so does a definition.
            let stays = modules.iter().zip(&in_use).any(|(module, in_use)| match in_use {
                InUse::Nothing => false,
                InUse::Module(_) => module.manifest == giver,
                InUse::Definitions(kept) => module.manifest == giver && kept.contains_key(&found.id),
            });
            let is_held = stays || blocked.modules.contains(&giver);
            let giver = modules.iter().find(|module| is_held && module.manifest == giver);
            self.outcome.held.extend(giver.map(|giver| self.stays_with(giver, &found)));
            let effect = if is_held { Effect::Held } else { found.effect };
            self.outcome.found.push(ObjectDifference { effect, ..found });
        }
        for (module, in_use) in modules.iter().zip(&in_use) {
            match module.rests {
                Some(Rest::Released) => self.release(module, modules, &live),
                Some(Rest::Paused) => {}
                None => {
                    let is_blocked = blocked.modules.contains(&module.manifest) || matches!(in_use, InUse::Module(_));
                    self.prune(module, &live, &desired, (is_blocked, in_use));
                }
            }
        }
        Ok(())
    }

    /// Reports what the desired form of an object no longer sets, and the API server keeps.
    fn assigned(&mut self, modules: &[Module], wish: &Wish, live: &Object) {
        let id = wish.object.id();
        let Some(module) = modules.iter().find(|module| module.wants(&id)) else { return };
        for field in kept(&wish.gvk, wish.object.value(), live.value(), FIELD_MANAGER) {
            let held = Held::assigned(&module.name, &id, &field);
            let place = wish.places.last().cloned();
            self.outcome.held.push(Held { runtimes: [self.key.clone()].into(), place, ..held });
        }
    }

    /// An object that would move to another module, but stays with the one that has it.
    fn stays_with(&self, giver: &Module, found: &ObjectDifference) -> Held {
        let place = found.places.first().cloned();
        Held { runtimes: [self.key.clone()].into(), place, ..Held::stays_with(&giver.name, &found.id) }
    }

    /// Takes the objects that cannot be created, because their namespace is neither in the runtime nor among what is
    /// applied. Reads each of these namespaces once.
    async fn take_homeless(
        &self,
        sorted: &mut SortedOut<'_>,
        desired: &BTreeSet<ObjectId>,
    ) -> Result<Vec<Wish>, Error> {
        let Some(cluster) = self.cluster else { return Ok(Vec::new()) };
        let namespace = |wish: &Wish| wish.object.id().namespace;
        let is_applied = |name: &str| desired.contains(&ObjectId::new("", "Namespace", "", name));
        let absent = sorted.wishes.iter().filter(|(_, ownership)| matches!(ownership, Ownership::Absent));
        let needed: BTreeSet<Arc<str>> =
            absent.map(|(wish, _)| namespace(wish)).filter(|name| !name.is_empty() && !is_applied(name)).collect();
        let kind = tidegate_cluster::Kind::new(Gvk::new("", "v1", "Namespace"), "namespaces", false);
        let mut missing: BTreeSet<Arc<str>> = BTreeSet::new();
        for name in needed {
            match cluster.get_metadata(&kind, &Key::new("", &name)).await {
                Ok(None) => drop(missing.insert(name)),
                Err(error) if concerns_all(&error) => return Err(error),
                // Whether it exists is not known.
                Ok(Some(_)) | Err(_) => {}
            }
        }
        let all = std::mem::take(&mut sorted.wishes);
        let (homeless, wishes): (Vec<_>, Vec<_>) = all.into_iter().partition(|(wish, ownership)| {
            matches!(ownership, Ownership::Absent) && missing.contains(&namespace(wish))
        });
        sorted.wishes = wishes;
        Ok(homeless.into_iter().map(|(wish, _)| wish).collect())
    }

    /// Reports that the namespace of an object of a module does not exist. Returns the module's Manifest.
    fn without_namespace(&mut self, modules: &[Module], wish: &Wish) -> Option<Key> {
        let id = wish.object.id();
        let why = format!(": namespace {} does not exist, and the module does not create it", id.namespace);
        let hint = "add the Namespace to the module, or create it in the runtime";
        let text =
            format!("skr/{} rejects the object: {id} not found: namespace {} does not exist", self.key, id.namespace);
        let diagnostic = Diagnostic::error(REFUSED, self.baseline.shared.scrub(&text)).hint(hint);
        self.outcome.diagnostics.push(match wish.places.last() {
            Some(place) => diagnostic.at(place.clone()),
            None => diagnostic,
        });
        self.rejected(modules, wish, &why, Some(hint.to_owned()))
    }

    /// The owner of each desired object. Reports the modules with an object of another owner.
    fn sort_out<'l>(
        &mut self,
        wishes: Vec<(Wish, Whose)>,
        modules: &[Module],
        (live, strangers): (&'l BTreeMap<ObjectId, Object>, &'l BTreeMap<ObjectId, Object>),
    ) -> SortedOut<'l> {
        let mut sorted = SortedOut::default();
        let mut first: BTreeMap<ObjectId, (Key, Object)> = BTreeMap::new();
        for (wish, whose) in wishes {
            let id = wish.object.id();
            let object = live.get(&id).or_else(|| strangers.get(&id));
            let ownership = match (&whose, object) {
                (Whose::Platform | Whose::Ours, Some(object)) => Ownership::Ours(object),
                (Whose::Platform | Whose::Ours, None) => Ownership::Absent,
                (Whose::Manifest(manifest), Some(object)) => self.ownership(manifest, modules, object),
                // If two Manifests have the same object, the first one owns it.
                (Whose::Manifest(_), None) => match first.get(&id) {
                    Some((other, object)) => {
                        Ownership::InEarlierManifest(object.clone(), format!("Manifest {}", other.name()))
                    }
                    None => Ownership::Absent,
                },
            };
            if let Whose::Manifest(manifest) = whose {
                if let Some(managers) = ownership.strangers() {
                    self.hold(modules, &manifest, &wish, &managers);
                    sorted.modules.insert(manifest);
                } else {
                    first.entry(id).or_insert_with(|| (manifest, wish.object.clone()));
                }
            }
            sorted.wishes.push((wish, ownership));
        }
        sorted
    }

    /// The owner of an object that is not recorded for this Manifest.
    fn ownership<'l>(&self, manifest: &Key, modules: &[Module], object: &'l Object) -> Ownership<'l> {
        let Some(managers) = self.stranger(manifest, object) else { return Ownership::Ours(object) };
        let id = object.id();
        // Another module that no longer contains the object deletes it first.
        let owner = object.annotation(annotation::OWNED_BY).and_then(|owner| owner.parse::<Key>().ok());
        let owner = owner.map(|owner| self.renamed.get(&owner).cloned().unwrap_or(owner));
        let giver = modules.iter().find(|module| Some(&module.manifest) == owner.as_ref());
        match giver.filter(|giver| giver.owned.contains(&id) && !giver.wants(&id)) {
            // What a module leaves to the user goes to no other module without leave, nor does what one keeps.
            Some(giver) if giver.rests.is_some() => Ownership::Foreign(object, managers),
            Some(giver) => match (giver.verdict(&id, object, true), &giver.wishes) {
                (Some(Verdict::Delete), _) => Ownership::Moves(object, giver.manifest.clone()),
                // An annotation keeps it in the runtime, and not with a module that leaves.
                (Some(Verdict::Disabled), None) => Ownership::Left(object, giver.manifest.clone()),
                _ => Ownership::Foreign(object, managers),
            },
            None => Ownership::Foreign(object, managers),
        }
    }

    /// Reports that a module has an object of another owner.
    fn hold(&mut self, modules: &[Module], manifest: &Key, wish: &Wish, managers: &[String]) {
        let module = modules.iter().find(|module| module.manifest == *manifest);
        let id = wish.object.id();
        let is_of_manifest = matches!(managers, [manifest] if manifest.starts_with("Manifest "));
        let is_released = |other: &&Module| other.rests == Some(Rest::Released) && other.owned.contains(&id);
        let released = modules.iter().find(is_released);
        let is_held = || is_of_manifest || module.is_some_and(|module| module.is_held_by_sibling(&id, modules));
        let is_of_sibling = released.is_none() && is_held();
        let whose = match (released, managers) {
            (Some(released), _) => format!("module {}, which becomes unmanaged", released.name),
            (None, []) => "another owner; it has no field manager".to_owned(),
            (None, [manifest]) if is_of_manifest => manifest.clone(),
            (None, managers) => format!("another owner; its field managers are {}", managers.join(", ")),
        };
        self.outcome.held.push(Held {
            why: Why::Conflict,
            module: module.map(|module| module.name.clone()).unwrap_or_default(),
            runtimes: [self.key.clone()].into(),
            message: self.baseline.shared.scrub(&format!(
                "{id} exists and belongs to {whose}: until this is resolved, it is not applied, and Tidegate prunes \
                 nothing of the module"
            )),
            hint: Some(if is_of_sibling {
                OF_TWO_MODULES.to_owned()
            } else {
                format!("remove it, or annotate it in the module with `{}: \"true\"`", annotation::ADOPT)
            }),
            place: wish.places.first().cloned(),
        });
    }

    /// Reports that an API server rejects an object of a module. Returns the module's Manifest.
    fn refused(&mut self, modules: &[Module], wish: &Wish) -> Option<Key> {
        self.rejected(modules, wish, "", None)
    }

    fn rejected(&mut self, modules: &[Module], wish: &Wish, why: &str, hint: Option<String>) -> Option<Key> {
        let id = wish.object.id();
        let module = modules.iter().find(|module| module.wants(&id))?;
        self.outcome.held.push(Held {
            why: Why::Refused,
            module: module.name.clone(),
            runtimes: [self.key.clone()].into(),
            message: format!(
                "the API server rejects {id}{why}{}until this is resolved, Tidegate prunes nothing of the module",
                if why.is_empty() { ": " } else { "; " }
            ),
            hint,
            place: wish.places.first().cloned(),
        });
        Some(module.manifest.clone())
    }

    /// The managers of an object that does not belong to this Manifest; `None` if it does.
    fn stranger(&self, manifest: &Key, live: &Object) -> Option<Vec<String>> {
        let owner = live.annotation(annotation::OWNED_BY);
        if live.label(label::MANAGED_BY) != Some(MANAGED_BY_SKR) {
            let managers = managers(live);
            let managed_by = live.label(label::MANAGED_BY);
            let claim = OwnershipClaim { managed_by, owned_by: owner, managers: &managers };
            return (!claim.was_unmanaged(manifest)).then(|| managers.to_vec());
        }
        let owner = owner?;
        let other = (owner != manifest.to_string()).then(|| owner.parse::<Key>().ok()).flatten()?;
        let other = self.renamed.get(&other).cloned().unwrap_or(other);
        let is_other = other != *manifest && self.baseline.world.manifests.contains_key(&other);
        is_other.then(|| vec![format!("Manifest {}", other.name())])
    }

    /// The live objects without Tidegate's ownership label.
    async fn look_up(
        &self,
        wishes: &[(Wish, Whose)],
        live: &BTreeMap<ObjectId, Object>,
    ) -> Result<BTreeMap<ObjectId, Object>, Error> {
        let Some(cluster) = self.cluster else { return Ok(BTreeMap::new()) };
        let missing: Vec<(&Gvk, ObjectId)> = wishes
            .iter()
            .map(|(wish, _)| (&wish.gvk, wish.object.id()))
            .filter(|(_, id)| !live.contains_key(id))
            .collect();
        let found = cluster.survey(missing.iter().map(|(gvk, id)| (*gvk, id))).await?;
        let mut objects = BTreeMap::new();
        for (gvk, id) in missing.into_iter().filter(|(_, id)| found.contains_key(id)) {
            let Some(kind) = cluster.kind(gvk).await? else { continue };
            let object = cluster.get(&kind, &Key::new(&id.namespace, &id.name)).await?;
            objects.extend(object.map(|object| (id, object)));
        }
        Ok(objects)
    }

    /// What custom resources of users keep, for each module. Lists only those of definitions that would be deleted.
    async fn in_use(&self, modules: &[Module]) -> Result<Vec<InUse>, Error> {
        let siblings = self.siblings();
        let mut found = Vec::with_capacity(modules.len());
        for module in modules {
            found.push(match (self.cluster, self.manifest_of(module, &siblings)) {
                (Some(cluster), Some(manifest)) if module.rests.is_none() => {
                    module.in_use(cluster, manifest, &siblings, modules).await?
                }
                _ => InUse::Nothing,
            });
        }
        Ok(found)
    }

    /// The Manifests of the runtime.
    fn siblings(&self) -> Vec<Arc<Manifest>> {
        self.manifests.values().filter_map(|manifest| typed(manifest.value()).map(Arc::new)).collect()
    }

    /// The Manifest of a module.
    fn manifest_of<'m>(&self, module: &Module, siblings: &'m [Arc<Manifest>]) -> Option<&'m Arc<Manifest>> {
        siblings.iter().find(|manifest| {
            let key = landscape::key(&manifest.metadata);
            key == module.manifest || self.renamed.get(&key) == Some(&module.manifest)
        })
    }

    /// The custom resources that Tidegate created by default for former versions of a module that leaves.
    async fn leaving_defaults(&mut self, module: &Module, in_use: &InUse) -> Result<(), Error> {
        let is_leaving = module.wishes.is_none() && module.rests.is_none() && *in_use == InUse::Nothing;
        let Some(cluster) = self.cluster.filter(|_| is_leaving) else { return Ok(()) };
        let siblings = self.siblings();
        let Some(manifest) = self.manifest_of(module, &siblings) else { return Ok(()) };
        for (kind, key) in former_defaults(cluster, manifest, &siblings).await? {
            if let Some(live) = cluster.get(&kind, &key).await? {
                self.outcome.found.push(self.skr().found_gone(&live, Effect::Applies));
            }
        }
        Ok(())
    }

    /// Reports what stays, because users have custom resources. Its Manifest stays as well.
    fn report_in_use(&mut self, module: &Module, in_use: &InUse) {
        let messages = match in_use {
            InUse::Nothing => return,
            InUse::Module(first) => {
                let is_manifest = |found: &&mut ObjectDifference| {
                    found.target == Side::ControlPlane
                        && &*found.id.kind == "Manifest"
                        && *found.id.name == *module.manifest.name()
                };
                self.outcome.found.iter_mut().filter(is_manifest).for_each(|found| found.effect = Effect::Held);
                vec![format!("module {} stays until users have deleted their custom resources: {first}", module.name)]
            }
            InUse::Definitions(kept) => kept
                .iter()
                .map(|(id, first)| {
                    format!("{id} is no longer declared, but stays, because users have custom resources: {first}")
                })
                .collect(),
        };
        self.outcome.held.extend(messages.into_iter().map(|message| Held {
            why: module.why_kept(),
            module: module.name.clone(),
            runtimes: [self.key.clone()].into(),
            message,
            hint: None,
            place: None,
        }));
    }

    /// The default custom resource of a module that leaves, if it exists. Returns its id if it is deleted at once.
    async fn leaving_resource(&mut self, module: &Module, in_use: &InUse) -> Result<Option<ObjectId>, Error> {
        let Some(resource) = module.resource.as_ref().filter(|_| module.wishes.is_none()) else { return Ok(None) };
        let Some(live) = self.live(resource).await? else { return Ok(None) };
        let is_held = *in_use != InUse::Nothing;
        let effect = if is_held { Effect::Held } else { Effect::Applies };
        if !(is_held && module.is_applied) {
            self.outcome.found.push(self.skr().found_gone(&live, effect));
        }
        Ok((!is_held).then(|| live.id()))
    }

    /// The default custom resource of a module, which is created once: when it does not exist, or after a module of
    /// another name has deleted it.
    async fn resource(&mut self, module: &Module, leaving: &BTreeSet<ObjectId>) -> Result<(), Error> {
        let Some(resource) = module.resource.as_ref().filter(|_| module.wishes.is_some()) else { return Ok(()) };
        if self.live(resource).await?.is_some_and(|live| !leaving.contains(&live.id())) {
            return Ok(());
        }
        let place = self.baseline.wanted.template_place(self.kyma, &module.name, &self.baseline.intent.after);
        let wish =
            Wish { gvk: resource.gvk(), object: resource.clone(), places: place.into_iter().collect(), maker: None };
        let comparer = self.skr();
        self.outcome.found.push(comparer.found(&wish, &comparer.created(&wish), Effect::Applies));
        Ok(())
    }

    /// An object as the runtime has it.
    async fn live(&self, object: &Object) -> Result<Option<Object>, Error> {
        let Some(cluster) = self.cluster else { return Ok(None) };
        match cluster.kind(&object.gvk()).await? {
            Some(kind) => cluster.get(&kind, &key(object)).await,
            None => Ok(None),
        }
    }

    /// The objects of a module that its runtime manages itself from now on: they stay, without the ownership label. One
    /// that another of `modules` takes over is that one's.
    fn release(&mut self, module: &Module, modules: &[Module], live: &BTreeMap<ObjectId, Object>) {
        let comparer = self.skr();
        let is_taken = |id: &ObjectId| modules.iter().any(|other| other.adopts(id, modules));
        let owned = module.owned.ids().filter(|id| !render::is_in_every_runtime(id) && !is_taken(id));
        for object in owned.filter_map(|id| live.get(id)) {
            let old = stripped(object.value());
            let mut new = old.clone();
            if let Some(labels) = new.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
                labels.shift_remove(label::MANAGED_BY);
            }
            let wish = Wish { gvk: object.gvk(), object: object.clone(), places: Vec::new(), maker: None };
            let differs = comparer.merged(&old, &new);
            self.outcome.found.extend(differs.map(|differs| comparer.found(&wish, &differs, Effect::Applies)));
        }
    }

    /// The objects that a module no longer contains, by the rules of the daemon.
    fn prune(
        &mut self,
        module: &Module,
        live: &BTreeMap<ObjectId, Object>,
        desired: &BTreeSet<ObjectId>,
        (is_blocked, in_use): (bool, &InUse),
    ) {
        let comparer = self.skr();
        let is_kept = |id: &ObjectId| matches!(in_use, InUse::Definitions(kept) if kept.contains_key(id));
        for prune in module.prunes() {
            let Some(object) = live.get(&prune.id).filter(|_| !desired.contains(&prune.id)) else { continue };
            match prune.verdict(Some(&seen(object, self.stranger(&module.manifest, object).is_none()))) {
                // An earlier change has removed it already.
                Verdict::Delete if module.is_applied && (is_kept(&prune.id) || matches!(in_use, InUse::Module(_))) => {}
                Verdict::Delete => {
                    let is_held = is_blocked || is_kept(&prune.id);
                    let effect = if is_held { Effect::Held } else { Effect::Applies };
                    self.outcome.found.push(comparer.found_gone(object, effect));
                }
                verdict @ (Verdict::Disabled | Verdict::Guarded) => {
                    let reason = match verdict {
                        Verdict::Disabled => "it is annotated `tidegate.dev/prune: disabled`",
                        _ => "a delete would also remove users' data",
                    };
                    self.outcome.held.push(Held {
                        why: module.why_kept(),
                        module: module.name.clone(),
                        runtimes: [self.key.clone()].into(),
                        message: format!("{} is no longer declared, but is not deleted: {reason}", prune.id),
                        hint: None,
                        place: None,
                    });
                }
                Verdict::Gone | Verdict::Wait | Verdict::Foreign => {}
            }
        }
    }

    /// Copies of definitions that the runtime no longer gets.
    fn prune_catalog(&mut self, live: &BTreeMap<ObjectId, Object>, desired: &BTreeSet<ObjectId>) {
        // A deleted runtime loses its catalog anyway, and an incomplete rendering of the catalog proves nothing.
        if desired.is_empty()
            || self.outcome.diagnostics.iter().any(|one| one.severity == tidegate_core::diagnostic::Severity::Error)
        {
            return;
        }
        let comparer = self.skr();
        let before = self.baseline.intent.before.kymas.get(self.key);
        let is_adopted = before.is_some_and(|kyma| adopt::is_adopted(&kyma.metadata));
        for (id, object) in live {
            let deleting = object.value().pointer("/metadata/deletionTimestamp").is_some();
            if is_catalog_copy(id, object) && !deleting && !desired.contains(id) {
                // What only Lifecycle Manager applied stays while the runtime is adopted.
                let stays = is_adopted && managers(object).iter().all(|name| name != FIELD_MANAGER);
                let effect = if stays { Effect::Held } else { Effect::Applies };
                self.outcome.found.push(comparer.found_gone(object, effect));
            }
        }
    }
}

/// Whether an object of a runtime is a copy of a definition.
fn is_catalog_copy(id: &ObjectId, object: &Object) -> bool {
    let is_catalog = matches!(&*id.kind, "ModuleTemplate" | "ModuleReleaseMeta")
        && &*id.group == tidegate_core::api::KYMA_GROUP
        && &*id.namespace == SKR_NAMESPACE;
    is_catalog && managers(object).iter().any(|name| name == FIELD_MANAGER || name == CATALOG_MANAGER_UPSTREAM)
}

/// Compares one object.
async fn one(
    comparer: &Comparer<'_>,
    wish: &Wish,
    ownership: &Ownership<'_>,
) -> Result<Option<ObjectDifference>, Error> {
    let (differs, effect) = match ownership {
        Ownership::Absent => (Some(Arc::new(comparer.created(wish))), Effect::Applies),
        Ownership::Ours(live) | Ownership::Left(live, _) => (comparer.existing(wish, live).await?, Effect::Applies),
        Ownership::Moves(live, _) => (Some(Arc::new(comparer.moved(wish, live))), Effect::Applies),
        Ownership::Foreign(live, managers) => {
            (Some(Arc::new(comparer.stranger(wish, live, managers).await?)), Effect::Held)
        }
        Ownership::InEarlierManifest(other, manifest) => {
            (Some(Arc::new(comparer.brought(wish, other, manifest))), Effect::Held)
        }
    };
    Ok(differs.map(|differs| comparer.found(wish, &differs, effect)))
}

fn is_deleting(object: &Object) -> bool {
    object.value().pointer("/metadata/deletionTimestamp").is_some()
}

/// Whether a live object can be pruned.
fn seen(object: &Object, marked: bool) -> Live<'_> {
    Live {
        marked,
        deleting: object.value().pointer("/metadata/deletionTimestamp").is_some(),
        prune: prune_annotation(object.value()),
    }
}

/// The owners of the desired objects.
#[derive(Default)]
struct SortedOut<'l> {
    wishes: Vec<(Wish, Ownership<'l>)>,
    /// Manifests with an object of another owner.
    modules: BTreeSet<Key>,
}

/// The owner of a desired object.
enum Ownership<'l> {
    Absent,
    /// It belongs to Tidegate, or Tidegate may take it over.
    Ours(&'l Object),
    /// Another module of the runtime, with this Manifest, deletes it first.
    Moves(&'l Object, Key),
    /// Another module, with this Manifest, leaves the runtime without it. Then it is taken over as it is.
    Left(&'l Object, Key),
    /// It has another owner: its managers, or its Manifest.
    Foreign(&'l Object, Vec<String>),
    /// It does not exist, and an earlier Manifest contains it as well.
    InEarlierManifest(Object, String),
}

impl<'l> Ownership<'l> {
    /// The live object, if Tidegate applies it.
    fn ours(&self) -> Option<&'l Object> {
        match self {
            Ownership::Ours(live) | Ownership::Left(live, _) => Some(live),
            Ownership::Absent | Ownership::Moves(..) | Ownership::Foreign(..) | Ownership::InEarlierManifest(..) => {
                None
            }
        }
    }

    /// The other owner, if the object is in conflict.
    fn strangers(&self) -> Option<Vec<String>> {
        match self {
            Ownership::Absent | Ownership::Ours(_) | Ownership::Moves(..) | Ownership::Left(..) => None,
            Ownership::Foreign(_, managers) => Some(managers.clone()),
            Ownership::InEarlierManifest(_, manifest) => Some(vec![manifest.clone()]),
        }
    }
}

impl Module {
    /// One of which nothing is applied or pruned.
    fn resting(name: &str, manifest: Key, owned: Inventory, rests: Option<Rest>) -> Module {
        Module {
            name: name.to_owned(),
            manifest,
            wishes: None,
            desired: None,
            owned,
            resource: None,
            rests,
            template: None,
            is_applied: true,
        }
    }

    /// Why something of it stays that it no longer contains.
    fn why_kept(&self) -> Why {
        if self.is_applied { Why::KeptBefore } else { Why::Kept }
    }

    /// The recorded objects that are removed.
    fn prunes(&self) -> Vec<Prune> {
        Prune::between(self.desired.as_ref().map_or(Desired::Nothing, Desired::Module), &self.owned)
    }

    /// What custom resources of users keep of this module.
    async fn in_use(
        &self,
        cluster: &Cluster,
        manifest: &Manifest,
        siblings: &[Arc<Manifest>],
        modules: &[Module],
    ) -> Result<InUse, Error> {
        if self.wishes.is_none() {
            let first = module_in_use(cluster, manifest, siblings).await?;
            return Ok(first.map_or(InUse::Nothing, InUse::Module));
        }
        // What another module has or takes over is no longer this one's.
        let is_of_another = |id: &ObjectId| {
            let mut others = modules.iter().filter(|other| other.manifest != self.manifest && other.wants(id));
            others.any(|other| other.owned.contains(id) || other.adopts(id, modules))
        };
        let unwanted: Vec<Prune> = self.prunes().into_iter().filter(|prune| !is_of_another(&prune.id)).collect();
        let kept = definitions_in_use(cluster, manifest, siblings, &unwanted).await?;
        Ok(if kept.is_empty() { InUse::Nothing } else { InUse::Definitions(kept) })
    }

    /// Whether another of `modules`, which are in order, has an object in its inventory, or also wants it and comes
    /// first. Its annotation does not take it from that one.
    fn is_held_by_sibling(&self, id: &ObjectId, modules: &[Module]) -> bool {
        let is_other = |module: &&Module| module.manifest != self.manifest;
        let has = |other: &Module| other.rests != Some(Rest::Released) && other.owned.contains(id);
        modules.iter().filter(is_other).any(has) || modules.iter().take_while(is_other).any(|other| other.wants(id))
    }

    /// Whether it takes an object over that it does not have.
    fn adopts(&self, id: &ObjectId, modules: &[Module]) -> bool {
        let mut wishes = self.wishes.iter().flatten();
        let may_adopt = wishes.any(|(wish, adopt)| *adopt && wish.object.id() == *id);
        may_adopt && !self.owned.contains(id) && !self.is_held_by_sibling(id, modules)
    }

    fn wants(&self, id: &ObjectId) -> bool {
        self.wishes.iter().flatten().any(|(wish, _)| wish.object.id() == *id)
    }

    /// What happens to a recorded object.
    fn verdict(&self, id: &ObjectId, object: &Object, marked: bool) -> Option<Verdict> {
        let prune = self.prunes().into_iter().find(|prune| prune.id == *id)?;
        Some(prune.verdict(Some(&seen(object, marked))))
    }
}

/// The owner of a live object where one is desired.
enum Whose {
    /// The platform reserves its name: it is applied without a check of the owner.
    Platform,
    /// It is recorded, or may be adopted.
    Ours,
    /// It belongs to this Manifest if it has its ownership label, otherwise to another owner.
    Manifest(Key),
}

/// What the status of a Manifest records: its inventory, and whether the default custom resource was created.
fn recorded(live: Option<&Object>) -> (Inventory, bool) {
    let status = live.and_then(|live| typed::<Manifest>(live.value())).and_then(|manifest| manifest.status);
    let Some(status) = status else { return (Inventory::default(), false) };
    (Inventory::from_status(&status.synced), conditions::message(&status.conditions, "ModuleCR").is_some())
}

/// The kinds that are desired or recorded, each in one version.
fn kinds(base: &[Wish], modules: &[Module]) -> Vec<Gvk> {
    let of_modules = modules.iter().flat_map(|module| &module.wishes).flatten().map(|(wish, _)| &wish.gvk);
    let desired = base.iter().map(|wish| &wish.gvk).chain(of_modules).cloned();
    let recorded = modules.iter().flat_map(|module| module.owned.ids().filter_map(|id| module.owned.gvk(id)));
    let mut kinds: BTreeMap<(Arc<str>, Arc<str>), Gvk> = BTreeMap::new();
    for gvk in desired.chain(recorded) {
        kinds.entry((Arc::clone(&gvk.group), Arc::clone(&gvk.kind))).or_insert(gvk);
    }
    kinds.into_values().collect()
}

/// All objects of some kinds with Tidegate's ownership label.
async fn marked(cluster: &Cluster, kinds: &[Gvk]) -> Result<BTreeMap<ObjectId, Object>, Error> {
    let selector = format!("{}={MANAGED_BY_SKR}", label::MANAGED_BY);
    let selector = selector.as_str();
    let lists: Vec<Vec<Object>> = stream::iter(kinds.to_vec())
        .map(|gvk| async move {
            match cluster.kind(&gvk).await? {
                Some(kind) => cluster.list(&kind, None, Some(selector)).await,
                None => Ok(Vec::new()),
            }
        })
        .buffered(LISTS_AT_ONCE)
        .try_collect()
        .await?;
    Ok(lists.into_iter().flatten().map(|object| (object.id(), object)).collect())
}

/// A merge patch (RFC 7396), applied.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    let Some(map) = value.as_object_mut() else { return };
    for (key, patch) in patch {
        if patch.is_null() {
            map.shift_remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), patch);
        }
    }
}
