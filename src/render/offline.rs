//! Everything that the definitions of one revision lead to, without any cluster.
//!
//! One target is the control plane, the others are the runtimes. What only a cluster knows is a placeholder unless it is
//! assumed. Objects that the daemon makes only where they are absent (a namespace in the control plane) are not shown.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use serde::Deserialize;
use serde_json::Value;

use super::{
    Mark, SharedObjects,
    live::{self, Unknown},
};
use crate::{
    api::Kyma,
    definition::{Definitions, Kind},
    diagnostic::{Diagnostic, Diagnostics, Place},
    landscape::{self, Landscape, SourceName},
    name::Key,
    object::{Object, PathPart},
    plan::{self, Class, Installation, ModuleOutcome, RuntimePlan, Settings, watch::Gateways, watch::Watch},
    revision::Oid,
    template::{Error, Library, Template},
};

/// Where objects go.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TargetName {
    /// The control plane.
    Kcp,
    /// The runtime of a Kyma.
    Runtime(Key),
}

/// The objects of one target, in the order of apply.
#[derive(Clone, Debug)]
pub struct Target {
    /// Where they go.
    pub name: TargetName,
    /// The objects.
    pub objects: Vec<Rendered>,
}

/// One object, and what it comes from.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The object.
    pub object: Object,
    /// The definitions behind it.
    pub places: Vec<Place>,
    /// What made it: a template's name, or `built in`; `None` for what is written as it is.
    pub maker: Option<&'static str>,
}

/// Everything that definitions lead to.
#[derive(Clone, Debug)]
pub struct Rendering {
    /// The targets: the control plane, then runtimes by name.
    pub targets: Vec<Target>,
    /// Every placeholder that is left.
    pub unknown: Vec<Unknown>,
}

/// What stands for values that only a cluster knows: by the name in the placeholder.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Assumptions(BTreeMap<String, Assumed>);

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Assumed {
    One(String),
    Many(Vec<String>),
}

/// What made the objects that come from no template.
const BUILT_IN: &str = "built in";

/// Code of the warning about a module that the plan refuses.
pub const CODE_REFUSED: &str = "module-refused";
/// Code of the error about a Watcher that cannot be acted upon.
pub const CODE_WATCHER: &str = "watcher";
/// Code of the error about a Manifest's objects that are not there.
pub const CODE_MODULE_OBJECTS: &str = "module-objects-absent";

/// Renders what `definitions` lead to, for the targets that `wanted` asks for.
///
/// What cannot be rendered is a diagnostic, and everything else is still there.
pub fn render(
    diagnostics: &mut Diagnostics,
    definitions: &Definitions,
    source: &SourceName,
    library: &Library,
    assumptions: &Assumptions,
    wanted: &dyn Fn(&TargetName) -> bool,
) -> Rendering {
    let landscape = Landscape::of(diagnostics, definitions, source);
    let settings = Settings::default();
    let mut offline = Offline {
        diagnostics,
        definitions,
        source,
        library,
        assumptions,
        landscape: &landscape,
        settings: &settings,
        made: Made::default(),
    };
    let runtimes: Vec<(&Key, RuntimePlan)> = landscape
        .kymas
        .iter()
        .map(|(key, kyma)| (key, plan::runtime(&landscape, kyma, &kyma.spec, &settings)))
        .filter(|(key, _)| wanted(&TargetName::Kcp) || wanted(&TargetName::Runtime((*key).clone())))
        .collect();
    let watches = offline.watches();
    let mut targets = Vec::new();
    if wanted(&TargetName::Kcp) {
        targets.push(offline.control_plane(&runtimes, &watches));
    }
    for (key, plan) in &runtimes {
        let name = TargetName::Runtime((*key).clone());
        if wanted(&name) {
            targets.push(offline.runtime(name, key, plan, &watches));
        }
    }
    let unknown = targets.iter().flat_map(Target::unknown).collect();
    Rendering { targets, unknown }
}

/// One rendering under way.
struct Offline<'a> {
    diagnostics: &'a mut Diagnostics,
    definitions: &'a Definitions,
    source: &'a SourceName,
    library: &'a Library,
    assumptions: &'a Assumptions,
    landscape: &'a Landscape,
    settings: &'a Settings,
    made: Made,
}

/// What many runtimes share, made once.
#[derive(Default)]
struct Made {
    base: Option<Vec<Part>>,
    webhook: Option<Option<Arc<SharedObjects>>>,
    catalogs: HashMap<Class, Vec<Part>>,
    modules: HashMap<Oid, Arc<SharedObjects>>,
}

/// Objects that runtimes share, and what they come from.
#[derive(Clone)]
struct Part {
    shared: Arc<SharedObjects>,
    /// The definition; `None` for the runtime's own Kyma.
    place: Option<Place>,
    maker: &'static str,
}

// === impl Offline ===

impl Offline<'_> {
    fn control_plane(&mut self, runtimes: &[(&Key, RuntimePlan)], watches: &[Watch]) -> Target {
        let mut objects: Vec<Rendered> = self
            .definitions
            .good
            .values()
            .map(|definition| {
                Rendered::new(landscape::stamp(definition, self.source), vec![definition.place.clone()], None)
            })
            .collect();
        let mut generated = Vec::new();
        for (key, plan) in runtimes {
            generated.extend(self.manifests(key, plan));
        }
        generated.extend(watches.iter().filter_map(|watch| self.virtual_service(watch)));
        generated.sort_by(|a, b| a.object.id().apply_order().cmp(&b.object.id().apply_order()));
        objects.extend(generated);
        Target { name: TargetName::Kcp, objects }
    }

    fn manifests(&mut self, key: &Key, plan: &RuntimePlan) -> Vec<Rendered> {
        let Some(kyma) = self.landscape.kymas.get(key) else { return Vec::new() };
        let templates = self.library.of(&kyma.metadata);
        let uid = self.assumptions.one(&live::uid("Kyma", key));
        let mut manifests = Vec::new();
        for module in &plan.modules {
            let place = self.module_place(kyma, key, &module.name);
            match &module.outcome {
                ModuleOutcome::Install(installation) => match super::manifest(templates, installation, &uid) {
                    Ok(object) => {
                        manifests.push(Rendered::new(object, vec![place], Some(Template::Manifest.name())));
                    }
                    Err(error) => self.failed(&error),
                },
                ModuleOutcome::Refuse(refusal) => {
                    let message = format!("module {} of Kyma {key} is refused: {}", module.name, refusal.message);
                    let warning = Diagnostic::warning(CODE_REFUSED, message).at(place);
                    self.diagnostics.push(match &refusal.hint {
                        Some(hint) => warning.hint(hint.as_str()),
                        None => warning,
                    });
                }
                ModuleOutcome::Unmanage => {}
            }
        }
        manifests
    }

    fn virtual_service(&mut self, watch: &Watch) -> Option<Rendered> {
        let place = self.place(Kind::Watcher, &watch.watcher);
        let port = match watch.port() {
            Ok(port) => port,
            Err(error) => {
                self.diagnostics.push(Diagnostic::error(CODE_WATCHER, error.to_string()).at(place));
                return None;
            }
        };
        let gateways = Gateways {
            names: self.assumptions.many(live::GATEWAYS),
            hosts: self.assumptions.many(live::GATEWAY_HOSTS),
        };
        let uid = self.assumptions.one(&live::uid("Watcher", &watch.watcher));
        let watcher = self.landscape.watchers.get(&watch.watcher)?;
        let templates = self.library.of(&watcher.metadata);
        match super::virtual_service(templates, watch, port, &gateways, &uid) {
            Ok(object) => Some(Rendered::new(object, vec![place], Some(Template::VirtualService.name()))),
            Err(error) => {
                self.failed(&error);
                None
            }
        }
    }

    /// The Watchers that can be acted upon; the others are diagnostics.
    fn watches(&mut self) -> Vec<Watch> {
        let (watches, errors) = super::watches(self.landscape.watchers.values().map(|watcher| &**watcher));
        for error in errors {
            let place = self.place(Kind::Watcher, error.key());
            self.diagnostics.push(Diagnostic::error(CODE_WATCHER, error.to_string()).at(place));
        }
        watches
    }

    fn runtime(&mut self, name: TargetName, key: &Key, plan: &RuntimePlan, watches: &[Watch]) -> Target {
        let place = self.place(Kind::Kyma, key);
        let mut objects = Vec::new();
        for part in self.base() {
            objects.extend(part.rendered(key, &place));
        }
        if let Some(kyma) = self.landscape.kymas.get(key) {
            match super::runtime_kyma(self.library.of(&kyma.metadata), kyma, &kyma.spec) {
                Ok(object) => {
                    objects.push(Rendered::new(object, vec![place.clone()], Some(Template::Kyma.name())));
                }
                Err(error) => self.failed(&error),
            }
        }
        for part in self.catalog(&plan.class) {
            objects.extend(part.rendered(key, &place));
        }
        if let Some(shared) = self.webhook(watches) {
            let places: Vec<Place> = watches.iter().map(|watch| self.place(Kind::Watcher, &watch.watcher)).collect();
            let maker = Some(Template::Webhook.name());
            objects.extend(shared.objects.iter().map(|one| Rendered::new(one.object(key), places.clone(), maker)));
        }
        for module in &plan.modules {
            if let ModuleOutcome::Install(installation) = &module.outcome {
                objects.extend(self.module(installation));
            }
        }
        objects.sort_by(|a, b| a.object.id().apply_order().cmp(&b.object.id().apply_order()));
        Target { name, objects }
    }

    /// What every runtime has, whatever its modules are.
    fn base(&mut self) -> Vec<Part> {
        if let Some(base) = &self.made.base {
            return base.clone();
        }
        let part = |objects: &[Object], maker| Part {
            shared: Arc::new(SharedObjects::new(objects, Mark::Runtime, &|_| None)),
            place: None,
            maker,
        };
        let mut base = vec![part(&super::runtime_crds(), BUILT_IN)];
        // Every Kyma here is of this one source, so its template for the namespace counts for all of them.
        match super::runtime_namespace(self.library.of_source(Some(self.source))) {
            Ok(namespace) => base.push(part(&[namespace], Template::Namespace.name())),
            Err(error) => self.failed(&error),
        }
        self.made.base = Some(base.clone());
        base
    }

    fn catalog(&mut self, class: &Class) -> Vec<Part> {
        if let Some(made) = self.made.catalogs.get(class) {
            return made.clone();
        }
        let catalog = plan::catalog(self.landscape, class, self.settings);
        let mut copies = Vec::new();
        for key in &catalog.templates {
            let copy = super::catalog_template(self.library, self.landscape, key);
            copies.push((Kind::ModuleTemplate, key, Template::ModuleTemplate.name(), copy));
        }
        for release in &catalog.releases {
            let copy = super::catalog_release(self.library, self.landscape, release);
            copies.push((Kind::ModuleReleaseMeta, &release.key, Template::ModuleReleaseMeta.name(), copy));
        }
        let mut made = Vec::new();
        for (kind, key, maker, copy) in copies {
            match copy {
                Some(Ok(object)) => {
                    let shared = Arc::new(SharedObjects::new([&object], Mark::Runtime, &|_| None));
                    made.push(Part { shared, place: Some(self.place(kind, key)), maker });
                }
                Some(Err(error)) => self.failed(&error),
                None => {}
            }
        }
        self.made.catalogs.insert(class.clone(), made.clone());
        made
    }

    fn webhook(&mut self, watches: &[Watch]) -> Option<Arc<SharedObjects>> {
        if let Some(made) = &self.made.webhook {
            return made.clone();
        }
        let bundle = self.assumptions.one(live::CA_BUNDLE);
        let templates = self.library.of_all(self.landscape.watchers.values().map(|watcher| &watcher.metadata));
        let made = match super::webhook(templates, watches, Some(&bundle)) {
            Ok(object) => Some(Arc::new(SharedObjects::new([&object], Mark::Runtime, &|_| None))),
            Err(error) => {
                self.failed(&error);
                None
            }
        };
        self.made.webhook = Some(made.clone());
        made
    }

    /// The objects of a module and its default custom resource.
    fn module(&mut self, installation: &Installation) -> Vec<Rendered> {
        let plan::InstallSource::Git { tree, .. } = &installation.source;
        let template = self.place(Kind::ModuleTemplate, &installation.template);
        let Some(module) = self.definitions.modules.get(tree) else {
            let message = format!("the objects of ModuleTemplate {} are not there", installation.template);
            self.diagnostics.push(Diagnostic::error(CODE_MODULE_OBJECTS, message).at(template));
            return Vec::new();
        };
        let shared = self.made.modules.entry(*tree).or_insert_with(|| {
            let objects = module.objects.iter().map(|source| &source.object);
            Arc::new(SharedObjects::new(objects, Mark::Module, &|_| None))
        });
        let manifest = Key::new(installation.kyma.namespace(), &installation.manifest_name);
        let rendered = shared.objects.iter().map(|one| {
            let place = module.objects.get(one.index).map(|source| source.place.clone());
            Rendered::new(one.object(&manifest), place.into_iter().collect(), None)
        });
        let mut rendered: Vec<Rendered> = rendered.collect();
        let creates = installation.policy == crate::api::shared::CustomResourcePolicy::CreateAndDelete;
        let resource = installation.default_resource.as_ref().filter(|_| creates);
        if let Some(object) = resource.and_then(|resource| Object::new(resource.clone()).ok()) {
            rendered.push(Rendered::new(object, vec![template], None));
        }
        rendered
    }

    /// Where a definition stands.
    fn place(&self, kind: Kind, key: &Key) -> Place {
        let definition = self.definitions.good.get(&(kind, key.clone()));
        definition.map_or_else(|| Place::file(""), |definition| definition.place.clone())
    }

    /// Where a Kyma asks for a module.
    fn module_place(&self, kyma: &Kyma, key: &Key, module: &str) -> Place {
        let Some(definition) = self.definitions.good.get(&(Kind::Kyma, key.clone())) else { return Place::file("") };
        let index = kyma.spec.modules.iter().position(|wanted| wanted.name == module).unwrap_or_default();
        let path = [PathPart::Key("spec".to_owned()), PathPart::Key("modules".to_owned()), PathPart::Index(index)];
        let (line, column) = definition.fields.position(&path);
        Place::at(&definition.place.path, line, column)
    }

    fn failed(&mut self, error: &Error) {
        self.diagnostics.push(error.diagnostic());
    }
}

// === impl Part ===

impl Part {
    fn rendered<'a>(&'a self, owner: &'a Key, kyma: &'a Place) -> impl Iterator<Item = Rendered> + 'a {
        let place = self.place.as_ref().unwrap_or(kyma);
        let objects = self.shared.objects.iter();
        objects.map(move |one| Rendered::new(one.object(owner), vec![place.clone()], Some(self.maker)))
    }
}

// === impl Assumptions ===

impl Assumptions {
    /// A key that no placeholder ever has.
    pub fn unknown_key(&self) -> Option<&str> {
        let known = |key: &&String| {
            let fixed = [live::GATEWAYS, live::GATEWAY_HOSTS, live::CA_BUNDLE].contains(&key.as_str());
            fixed || key.starts_with(live::UID_OF)
        };
        self.0.keys().find(|key| !known(key)).map(String::as_str)
    }

    fn one(&self, name: &str) -> String {
        match self.0.get(name) {
            Some(Assumed::One(value)) => value.clone(),
            Some(Assumed::Many(values)) => values.join(","),
            None => live::placeholder(name),
        }
    }

    fn many(&self, name: &str) -> Vec<String> {
        match self.0.get(name) {
            Some(Assumed::One(value)) => vec![value.clone()],
            Some(Assumed::Many(values)) => values.clone(),
            None => vec![live::placeholder(name)],
        }
    }
}

// === impl Target ===

impl Target {
    fn unknown(&self) -> Vec<Unknown> {
        let target = self.name.to_string();
        // What is written as it is may hold any text.
        let made = self.objects.iter().filter(|rendered| rendered.maker.is_some());
        made.flat_map(|rendered| {
            let object = rendered.object.id().to_string();
            let target = target.clone();
            live::placeholders(rendered.object.value()).into_iter().map(move |(path, value)| Unknown {
                value,
                target: target.clone(),
                object: object.clone(),
                path,
            })
        })
        .collect()
    }

    /// As in the output of `tidegate render -o json`.
    pub fn to_value(&self) -> Value {
        let objects: Vec<&Value> = self.objects.iter().map(|rendered| rendered.object.value()).collect();
        serde_json::json!({ "name": self.name.to_string(), "objects": objects })
    }
}

// === impl Rendered ===

impl Rendered {
    fn new(object: Object, places: Vec<Place>, maker: Option<&'static str>) -> Rendered {
        Rendered { object, places, maker }
    }

    /// Where it comes from: `path:line (template)`.
    pub fn from(&self) -> String {
        let places = self.places.iter().map(|place| match place.line {
            0 => place.path.to_string(),
            line => format!("{}:{line}", place.path),
        });
        let places = places.collect::<Vec<_>>().join(", ");
        match self.maker {
            Some(maker) => format!("{places} ({maker})").trim_start().to_owned(),
            None => places,
        }
    }
}

// === impl TargetName ===

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetName::Kcp => f.write_str("kcp"),
            TargetName::Runtime(key) => write!(f, "skr/{key}"),
        }
    }
}
