//! The outline of what definitions produce. Objects that many runtimes share are rendered once, the
//! rest on demand.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    super::{CompleteModule, Mark, SharedObject, SharedObjects},
    Assumptions, BUILT_IN, CODE_MODULE_OBJECTS, CODE_REFUSED, CODE_WATCHER, Piece, Rendered, Take, TargetName, live,
};
use crate::{
    api::{KYMA_GROUP, Kyma, kyma::KymaSpec, shared::CustomResourcePolicy},
    content::ContentId,
    definition::{Definition, Definitions, Kind, SourceObject},
    diagnostic::{Diagnostic, Diagnostics, FilePosition},
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::{Object, ObjectId, PathPart, Stage},
    plan::{
        self, Class, Components, Installation, InstalledModules, ModuleOutcome, Offer, RuntimePlan, Settings, Windows,
        reporting::{Gateways, Watch},
        setup::{self, Known},
    },
    render::{self, Reporting},
    template::{Error, Library, Template, Templates},
};

/// The inputs of a rendering.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Definitions, for objects that are applied as written, for objects of modules, and for
    /// places.
    pub definitions: &'a Definitions,
    /// The same, typed. May contain Kymas that git does not declare.
    pub landscape: &'a Landscape,
    /// What is known of components in registries.
    pub components: &'a Components,
    /// The source of the definitions.
    pub source: &'a SourceName,
    /// Templates.
    pub library: &'a Library,
    /// Values that replace placeholders.
    pub assumptions: &'a Assumptions,
    /// What the plan depends on besides definitions.
    pub settings: &'a Settings,
}

/// The result of definitions. Several threads may read it at once.
pub struct Outline<'a> {
    inputs: Inputs<'a>,
    watches: Vec<Watch>,
    /// Objects that every runtime has, regardless of its modules.
    base: Vec<Part>,
    /// The catalogs by class of runtimes.
    catalogs: BTreeMap<Class, Vec<Part>>,
    is_partial: bool,
}

/// Objects that runtimes share, and their origin.
#[derive(Clone, Debug)]
pub struct Part {
    /// The objects.
    pub shared: Arc<SharedObjects>,
    /// The definitions; empty for objects from the runtime's own Kyma.
    pub places: Vec<FilePosition>,
    /// The name of a template, or [`BUILT_IN`].
    pub maker: &'static str,
}

/// The objects of one resource of a kcp landscape.
#[derive(Clone, Debug)]
pub struct SetupPart {
    /// The resource.
    pub id: (Kind, Key),
    /// Its objects, in the order of apply.
    pub objects: Vec<Rendered>,
    /// Whether all of its objects could be rendered.
    pub is_complete: bool,
}

/// The objects of requested modules.
pub(super) type Modules = HashMap<ContentId, CompleteModule>;

/// A generated object of the control plane. Of Manifests there may be more than fit into memory, so each is rendered
/// when it is its turn.
enum Generated<'a> {
    Manifest { kyma: &'a Key, name: String },
    Other { id: ObjectId, rendered: Rendered },
}

// === impl Generated ===

impl Generated<'_> {
    /// The order of apply, as that of [`ObjectId`].
    fn order(&self) -> (Stage, [&str; 4]) {
        let (group, kind, namespace, name) = match self {
            Generated::Manifest { kyma, name } => (KYMA_GROUP, "Manifest", kyma.namespace(), name.as_str()),
            Generated::Other { id: ObjectId { group, kind, namespace, name }, .. } => {
                (group.as_ref(), kind.as_ref(), namespace.as_ref(), name.as_ref())
            }
        };
        (Stage::for_kind(group, kind), [group, kind, namespace, name])
    }
}

// === impl Outline ===

impl<'a> Outline<'a> {
    /// Renders what runtimes share. A failure is a diagnostic and affects no other object.
    pub fn new(diagnostics: &mut Diagnostics, inputs: Inputs<'a>) -> Outline<'a> {
        let mut outline =
            Outline { inputs, watches: Vec::new(), base: Vec::new(), catalogs: BTreeMap::new(), is_partial: false };
        let mut found = Diagnostics::default();
        outline.watches = outline.usable_watches(&mut found);
        outline.base = outline.make_base(&mut found);
        let landscape = inputs.landscape;
        let classes: BTreeSet<Class> =
            landscape.kymas.values().map(|kyma| Class::for_kyma(landscape, kyma, inputs.settings)).collect();
        for class in classes {
            let catalog = outline.make_catalog(&mut found, &class);
            outline.catalogs.insert(class, catalog);
        }
        outline.is_partial = !found.is_empty();
        diagnostics.append(found);
        outline
    }

    /// The inputs.
    pub fn inputs(&self) -> Inputs<'a> {
        self.inputs
    }

    /// The plan of a runtime. `installed` are the modules that it has before.
    pub fn plan(
        &self,
        kyma: &Kyma,
        spec: &KymaSpec,
        installed: &InstalledModules,
        windows: Windows<'_>,
    ) -> RuntimePlan {
        let Inputs { landscape, components, settings, .. } = self.inputs;
        plan::runtime(landscape, components, kyma, spec, settings, installed, windows)
    }

    /// The class of a Kyma.
    pub fn class(&self, kyma: &Kyma) -> Class {
        Class::for_kyma(self.inputs.landscape, kyma, self.inputs.settings)
    }

    /// The templates of a Kyma.
    pub fn templates(&self, kyma: &Kyma) -> &'a Templates {
        self.inputs.library.for_object(&kyma.metadata)
    }

    /// The classes that runtimes belong to, sorted.
    pub fn classes(&self) -> impl Iterator<Item = &Class> {
        self.catalogs.keys()
    }

    /// Whether a shared part could not be rendered. Then an object that is missing in it may still
    /// be desired.
    pub fn is_partial(&self) -> bool {
        self.is_partial
    }

    /// Objects that every runtime of a class has: CRDs, namespace, webhook configuration and
    /// catalog.
    pub fn shared(&self, class: &Class) -> impl Iterator<Item = &Part> {
        self.base.iter().chain(self.catalogs.get(class).into_iter().flatten())
    }

    /// Renders a Manifest.
    ///
    /// # Errors
    ///
    /// Fails if the template fails.
    pub fn manifest(&self, kyma: &Kyma, installation: &Installation) -> Result<Object, Error> {
        let uid = self.inputs.assumptions.one(&live::uid("Kyma", &installation.kyma));
        render::manifest(self.templates(kyma), installation, &uid)
    }

    /// Renders the Kyma of a runtime.
    ///
    /// # Errors
    ///
    /// Fails if the template fails.
    pub fn runtime_kyma(&self, kyma: &Kyma, spec: &KymaSpec) -> Result<Object, Error> {
        render::runtime_kyma(self.templates(kyma), kyma, spec)
    }

    /// The VirtualServices with their Watchers. A failure is a diagnostic.
    pub fn virtual_services(&self, diagnostics: &mut Diagnostics) -> Vec<(Key, Rendered)> {
        let made = self.watches.iter().filter_map(|watch| {
            let rendered = self.virtual_service(diagnostics, watch)?;
            Some((watch.watcher.clone(), rendered))
        });
        made.collect()
    }

    /// The objects of a module; `None` if they are missing.
    pub fn module(&self, content: ContentId) -> Option<CompleteModule> {
        self.inputs.definitions.modules.get(&content).map(|module| CompleteModule::new(module))
    }

    /// An object of a module, as written.
    pub fn module_source(&self, content: ContentId, object: &SharedObject) -> Option<&'a SourceObject> {
        self.inputs.definitions.modules.get(&content)?.objects().get(object.index)
    }

    /// A definition.
    pub fn definition(&self, kind: Kind, key: &Key) -> Option<&'a Arc<Definition>> {
        self.inputs.definitions.good.get(&(kind, key.clone()))
    }

    /// The place of a definition.
    pub fn place(&self, kind: Kind, key: &Key) -> FilePosition {
        self.definition(kind, key).map_or_else(|| FilePosition::file(""), |definition| definition.place.clone())
    }

    /// The place where a Kyma requests a module; `None` for a Kyma that git does not declare.
    pub fn wish(&self, kyma: &Kyma, key: &Key, module: &str) -> Option<FilePosition> {
        let definition = self.definition(Kind::Kyma, key)?;
        let index = kyma.spec.modules.iter().position(|wanted| wanted.name == module).unwrap_or_default();
        let path = [PathPart::from("spec"), PathPart::from("modules"), PathPart::from(index)];
        let (line, column) = definition.fields.position(&path);
        Some(FilePosition::at(&definition.place.path, line, column))
    }

    /// Passes on all objects of the control plane: definitions first, then what is generated, in the order of apply.
    pub(super) fn control_plane<E>(&self, diagnostics: &mut Diagnostics, take: &mut Take<'_, E>) -> Result<(), E> {
        take(Piece::Target(TargetName::Kcp))?;
        for definition in self.inputs.definitions.good.values() {
            let object = landscape::stamp(definition, self.inputs.source);
            take(Piece::Object(Rendered::new(object, vec![definition.place.clone()], None)))?;
        }
        let (mut generated, mut unknown) = (Vec::new(), BTreeSet::new());
        for (key, kyma) in &self.inputs.landscape.kymas {
            generated.extend(self.manifests(diagnostics, key, kyma, &mut unknown));
        }
        let others = self.virtual_services(diagnostics).into_iter();
        generated.extend(others.map(|(_, rendered)| Generated::Other { id: rendered.object.id(), rendered }));
        generated.sort_by(|a, b| a.order().cmp(&b.order()));
        // Manifests of one Kyma mostly follow each other, so its plan is made twice, and not once for each of them.
        let mut planned = None;
        for one in generated {
            let rendered = match one {
                Generated::Other { rendered, .. } => Some(rendered),
                Generated::Manifest { kyma, name } => {
                    let plan = match planned.take() {
                        Some((of, plan)) if of == kyma => plan,
                        Some(_) | None => self.first_plan(kyma),
                    };
                    let (_, plan) = planned.insert((kyma, plan));
                    self.planned_manifest(diagnostics, kyma, plan.as_ref(), &name)
                }
            };
            rendered.map_or(Ok(()), |rendered| take(Piece::Object(rendered)))?;
        }
        // The order of apply of a kcp landscape is that of its resources.
        let setup = self.setup(diagnostics).into_iter().flat_map(|part| part.objects);
        setup.into_iter().try_for_each(|rendered| take(Piece::Object(rendered)))
    }

    /// The objects of kcp landscapes, in the order of apply. A failure is a diagnostic. Why a resource has no plan was
    /// reported with its definition.
    pub fn setup(&self, diagnostics: &mut Diagnostics) -> Vec<SetupPart> {
        let Inputs { landscape, library, assumptions, source, .. } = self.inputs;
        let templates = library.of_source(Some(source));
        let (plans, _) = landscape.setup.plans(&Known::default());
        let part = |plan: &setup::Plan| {
            let id = (Kind::Setup(plan.kind), plan.key.clone());
            let place = self.place(id.0, &id.1);
            let mut part = SetupPart { id, objects: Vec::new(), is_complete: true };
            for (template, object) in render::setup(templates, plan, &|name| assumptions.one(name)) {
                match object {
                    Ok(object) => {
                        let mut rendered = Rendered::new(object, vec![place.clone()], Some(template.name()));
                        rendered.waits_for = render::setup_gates(plan, &rendered.object);
                        let kind = rendered.object.gvk().kind;
                        rendered.cluster = landscape.setup.cluster_of_object(plan, &kind).map(str::to_owned);
                        part.objects.push(rendered);
                    }
                    Err(error) => {
                        part.is_complete = false;
                        diagnostics.push(error.diagnostic());
                    }
                }
            }
            part
        };
        plans.iter().map(part).collect()
    }

    /// The plan of a Kyma that has no modules yet.
    fn first_plan(&self, key: &Key) -> Option<RuntimePlan> {
        let kyma = self.inputs.landscape.kymas.get(key)?;
        Some(self.plan(kyma, &kyma.spec, &InstalledModules::default(), Windows::Unknown))
    }

    /// The Manifest of this name in a plan. A failure is a diagnostic.
    fn planned_manifest(
        &self,
        diagnostics: &mut Diagnostics,
        key: &Key,
        plan: Option<&RuntimePlan>,
        name: &str,
    ) -> Option<Rendered> {
        let kyma = self.inputs.landscape.kymas.get(key)?;
        let (module, installation) = plan?.deciding().into_iter().find_map(|module| match &module.outcome {
            ModuleOutcome::Install(installation) if installation.manifest_name == name => Some((module, installation)),
            _ => None,
        })?;
        match self.manifest(kyma, installation) {
            Ok(object) => {
                let place = self.place_of_module(kyma, key, &module.name, &module.offer);
                Some(Rendered::new(object, vec![place], Some(Template::Manifest.name())))
            }
            Err(error) => {
                diagnostics.push(error.diagnostic());
                None
            }
        }
    }

    /// The place that makes a module part of a Kyma: its entry in `spec.modules`, or its release.
    fn place_of_module(&self, kyma: &Kyma, key: &Key, module: &str, offer: &Offer) -> FilePosition {
        match offer {
            Offer::Channel(_) => self.wish(kyma, key, module).unwrap_or_else(|| FilePosition::file("")),
            Offer::Mandatory => self.place(Kind::ModuleReleaseMeta, &Key::new(key.namespace(), module)),
        }
    }

    /// The Manifests of a Kyma. `unknown` are the modules of which was said before that their objects are not known:
    /// that concerns many Kymas in the same way.
    fn manifests<'k>(
        &self,
        diagnostics: &mut Diagnostics,
        key: &'k Key,
        kyma: &Kyma,
        unknown: &mut BTreeSet<String>,
    ) -> Vec<Generated<'k>> {
        let mut manifests = Vec::new();
        let plan = self.plan(kyma, &kyma.spec, &InstalledModules::default(), Windows::Unknown);
        // A module that is mandatory as well is refused to the Kyma, which its check says.
        for module in plan.deciding() {
            match &module.outcome {
                // Nothing is known of windows here.
                ModuleOutcome::Wait(_) => {}
                ModuleOutcome::Install(installation) => {
                    manifests.push(Generated::Manifest { kyma: key, name: installation.manifest_name.clone() });
                }
                ModuleOutcome::Refuse(refusal) if refusal.reason == plan::reason::SOURCE_UNAVAILABLE => {
                    let message = format!("module {} is left out: {}", module.name, refusal.message);
                    if unknown.insert(message.clone()) {
                        let release = Key::new(key.namespace(), &module.name);
                        let place = self.place(Kind::ModuleReleaseMeta, &release);
                        diagnostics.push(Diagnostic::warning(CODE_REFUSED, message).at(place));
                    }
                }
                ModuleOutcome::Refuse(refusal) => {
                    let message =
                        format!("module {} of Kyma {key} cannot be installed: {}", module.name, refusal.message);
                    let place = self.place_of_module(kyma, key, &module.name, &module.offer);
                    let warning = Diagnostic::warning(CODE_REFUSED, message).at(place);
                    diagnostics.push(match &refusal.hint {
                        Some(hint) => warning.hint(hint.as_str()),
                        None => warning,
                    });
                }
                ModuleOutcome::Unmanage => {}
            }
        }
        manifests
    }

    fn virtual_service(&self, diagnostics: &mut Diagnostics, watch: &Watch) -> Option<Rendered> {
        let place = self.place(Kind::Watcher, &watch.watcher);
        let port = match watch.port() {
            Ok(port) => port,
            Err(error) => {
                diagnostics.push(Diagnostic::error(CODE_WATCHER, error.to_string()).at(place));
                return None;
            }
        };
        let assumptions = self.inputs.assumptions;
        let gateways =
            Gateways { names: assumptions.many(live::GATEWAYS), hosts: assumptions.many(live::GATEWAY_HOSTS) };
        let uid = assumptions.one(&live::uid("Watcher", &watch.watcher));
        let watcher = self.inputs.landscape.watchers.get(&watch.watcher)?;
        let templates = self.inputs.library.for_object(&watcher.metadata);
        match render::virtual_service(templates, watch, port, &gateways, &uid) {
            Ok(object) => Some(Rendered::new(object, vec![place], Some(Template::VirtualService.name()))),
            Err(error) => {
                diagnostics.push(error.diagnostic());
                None
            }
        }
    }

    /// The valid Watchers. The others are diagnostics.
    fn usable_watches(&self, diagnostics: &mut Diagnostics) -> Vec<Watch> {
        let (watches, errors) = render::watches(self.inputs.landscape.watchers.values().map(|watcher| &**watcher));
        for error in errors {
            let place = self.place(Kind::Watcher, error.key());
            diagnostics.push(Diagnostic::error(CODE_WATCHER, error.to_string()).at(place));
        }
        watches
    }

    /// All objects of a runtime.
    pub(super) fn runtime(
        &self,
        diagnostics: &mut Diagnostics,
        key: &Key,
        kyma: &Kyma,
        modules: &mut Modules,
    ) -> Vec<Rendered> {
        let place = self.place(Kind::Kyma, key);
        let plan = self.plan(kyma, &kyma.spec, &InstalledModules::default(), Windows::Unknown);
        let mut objects = Vec::new();
        for part in self.shared(&plan.class) {
            let places = if part.places.is_empty() { std::slice::from_ref(&place) } else { &part.places };
            let rendered = part.shared.objects.iter();
            objects.extend(rendered.map(|one| Rendered::new(one.object(key), places.to_vec(), Some(part.maker))));
        }
        match self.runtime_kyma(kyma, &kyma.spec) {
            Ok(object) => objects.push(Rendered::new(object, vec![place], Some(Template::Kyma.name()))),
            Err(error) => diagnostics.push(error.diagnostic()),
        }
        for module in plan.deciding() {
            if let ModuleOutcome::Install(installation) = &module.outcome {
                objects.extend(self.module_objects(diagnostics, installation, modules));
            }
        }
        objects.sort_by(|a, b| a.object.id().apply_order().cmp(&b.object.id().apply_order()));
        objects
    }

    /// The objects of a module, and its default custom resource.
    fn module_objects(
        &self,
        diagnostics: &mut Diagnostics,
        installation: &Installation,
        modules: &mut Modules,
    ) -> Vec<Rendered> {
        let content = installation.content();
        let template = self.place(Kind::ModuleTemplate, &installation.template);
        let module = match modules.get(&content) {
            Some(module) => module.clone(),
            None => match self.module(content) {
                Some(module) => modules.entry(content).or_insert(module).clone(),
                None => {
                    let message = format!("the objects of ModuleTemplate {} are missing", installation.template);
                    diagnostics.push(Diagnostic::error(CODE_MODULE_OBJECTS, message).at(template));
                    return Vec::new();
                }
            },
        };
        let manifest = Key::new(installation.kyma.namespace(), &installation.manifest_name);
        let rendered = module.objects().objects.iter().map(|one| {
            let place = self.module_source(content, one).map(|source| source.place.clone());
            Rendered::new(one.object(&manifest), place.into_iter().collect(), None)
        });
        let mut rendered: Vec<Rendered> = rendered.collect();
        rendered.extend(default_resource(installation).map(|object| Rendered::new(object, vec![template], None)));
        rendered
    }

    fn make_base(&self, diagnostics: &mut Diagnostics) -> Vec<Part> {
        let part = |objects: &[Object], places, maker| Part {
            shared: Arc::new(SharedObjects::new(objects, Mark::Runtime, &|_| None)),
            places,
            maker,
        };
        let Inputs { landscape, library, assumptions, .. } = self.inputs;
        let mut base = vec![part(render::runtime_crds(), Vec::new(), BUILT_IN)];
        // Shared objects use the overrides of a source only if all their definitions are from that source.
        let of_kymas = library.of_all(landscape.kymas.values().map(|kyma| &kyma.metadata));
        match render::runtime_namespace(of_kymas) {
            Ok(namespace) => base.push(part(&[namespace], Vec::new(), Template::Namespace.name())),
            Err(error) => diagnostics.push(error.diagnostic()),
        }
        let bundle = assumptions.one(live::CA_BUNDLE);
        let of_watchers = library.of_all(landscape.watchers.values().map(|watcher| &watcher.metadata));
        match render::webhook(of_watchers, &Reporting::of_watchers(&self.watches, Some(&bundle))) {
            Ok(webhook) => {
                let places = self.watches.iter().map(|watch| self.place(Kind::Watcher, &watch.watcher)).collect();
                base.push(part(&[webhook], places, Template::Webhook.name()));
            }
            Err(error) => diagnostics.push(error.diagnostic()),
        }
        base
    }

    fn make_catalog(&self, diagnostics: &mut Diagnostics, class: &Class) -> Vec<Part> {
        let Inputs { landscape, library, settings, .. } = self.inputs;
        let catalog = plan::catalog(landscape, class, settings);
        let templates = catalog.templates.iter().map(|key| {
            let copy = render::catalog_template(library, landscape, key);
            (Kind::ModuleTemplate, key, Template::ModuleTemplate.name(), copy)
        });
        let releases = catalog.releases.iter().map(|release| {
            let copy = render::catalog_release(library, landscape, release);
            (Kind::ModuleReleaseMeta, &release.key, Template::ModuleReleaseMeta.name(), copy)
        });
        let mut made = Vec::new();
        for (kind, key, maker, copy) in templates.chain(releases) {
            match copy {
                Some(Ok(object)) => {
                    let shared = Arc::new(SharedObjects::new([&object], Mark::Runtime, &|_| None));
                    made.push(Part { shared, places: vec![self.place(kind, key)], maker });
                }
                Some(Err(error)) => diagnostics.push(error.diagnostic()),
                None => {}
            }
        }
        made
    }
}

/// The default custom resource of a module, if Tidegate creates it.
pub fn default_resource(installation: &Installation) -> Option<Object> {
    match installation.policy {
        CustomResourcePolicy::CreateAndDelete => Object::new(installation.default_resource.clone()?).ok(),
        CustomResourcePolicy::Ignore => None,
    }
}
