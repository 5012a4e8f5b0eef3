//! The desired objects of runtimes, rendered once for all runtimes that share them, and their lines in files.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Wanted, runtime::Baseline, world::Trusted};
use tidegate_core::{
    api::Kyma,
    content::ContentId,
    definition::{Kind, ModuleObjects},
    diagnostic::{Diagnostic, FilePosition},
    landscape::{self, Landscape},
    name::Key,
    object::{Object, ObjectId, PathPart},
    plan::{
        self, Class, Offer,
        reporting::{Address, Agent, Drift},
    },
    render::{self, CompleteModule, Injection, Mark, Reporting, SharedObjects},
    template::{self, Template},
};
use tidegate_process::lock::Mutex;

/// Objects that runtimes share.
#[derive(Default)]
pub(crate) struct Bases {
    classes: Mutex<HashMap<Class, Arc<Base>>>,
    modules: Mutex<BTreeMap<(ContentId, Injection), CompleteModule>>,
}

/// The agent that runtimes get, and where it sends events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agents {
    pub(crate) agent: Agent,
    pub(crate) address: Address,
}

/// The objects that every runtime of a class gets.
pub(crate) struct Base {
    pub(crate) objects: SharedObjects,
    /// Problems of the rendering.
    pub(crate) problems: Vec<Diagnostic>,
}

/// The restart label of an agent whose certificate is not read.
const UNKNOWN_CERTIFICATE: &str = "-";

// === impl Bases ===

impl Bases {
    /// The objects that every runtime of a class gets.
    pub(crate) fn for_class(&self, baseline: &Baseline<'_>, class: &Class) -> Arc<Base> {
        let mut classes = self.classes.lock();
        Arc::clone(classes.entry(class.clone()).or_insert_with(|| Arc::new(base(baseline, class))))
    }

    /// The objects of a module in git.
    pub(crate) fn module(&self, objects: &ModuleObjects) -> CompleteModule {
        let mut modules = self.modules.lock();
        let key = (objects.content(), Injection::default());
        modules.entry(key).or_insert_with(|| CompleteModule::new(objects)).clone()
    }

    /// The objects of a module, with what the landscape puts into them. If that does not fit, the daemon says so, and
    /// the objects are compared as they are.
    pub(crate) fn injected(&self, content: ContentId, module: CompleteModule, injection: &Injection) -> CompleteModule {
        if injection.is_empty() {
            return module;
        }
        let mut modules = self.modules.lock();
        modules.entry((content, injection.clone())).or_insert_with(|| module.with(injection).unwrap_or(module)).clone()
    }
}

fn base(baseline: &Baseline<'_>, class: &Class) -> Base {
    let Wanted { library, settings, .. } = baseline.wanted;
    let landscape = &baseline.intent.after;
    let catalog = plan::catalog(landscape, class, settings);
    let (mut objects, errors) = render::catalog(library, landscape, &catalog);
    let mut problems: Vec<Diagnostic> = errors.iter().map(tidegate_core::template::Error::diagnostic).collect();
    let of_kymas = library.of_all(landscape.kymas.values().map(|kyma| &kyma.metadata));
    let mut rendered = vec![render::runtime_namespace(of_kymas)];
    match &baseline.wanted.agents {
        // The webhook configuration is a runtime's own.
        Some(Agents { agent, address }) => {
            rendered.extend(render::agent(of_kymas, agent, address));
            if agent.program.restarts_for_certificates() {
                rendered.push(render::agent_deployment(of_kymas, agent, address, Some(UNKNOWN_CERTIFICATE)));
            }
        }
        None => rendered.extend(webhook(baseline, None)),
    }
    for result in rendered {
        match result {
            Ok(object) => objects.push(object),
            Err(error) => problems.push(error.diagnostic()),
        }
    }
    let objects = objects.iter().chain(baseline.world.crds.objects());
    Base { objects: SharedObjects::new(objects, Mark::Runtime, &|_| None), problems }
}

/// The webhook configuration of runtimes; `None` if the CA is unknown, which the report says once.
pub(crate) fn webhook(
    baseline: &Baseline<'_>,
    agents: Option<(&Agents, &Drift)>,
) -> Option<Result<Object, template::Error>> {
    let (library, landscape) = (&baseline.wanted.library, &baseline.intent.after);
    let (watches, _) = render::watches(landscape.watchers.values().map(|watcher| &**watcher));
    let of_watchers = library.of_all(landscape.watchers.values().map(|watcher| &watcher.metadata));
    let bundle = match &baseline.world.trusted {
        Trusted::Nothing => None,
        Trusted::Bundle(bundle) => Some(bundle.as_str()),
        Trusted::NotKnown => return None,
    };
    let mut reporting = Reporting::of_watchers(&watches, bundle);
    if let Some((agents, drift)) = agents {
        reporting.timeout_seconds = agents.agent.program.timeout_seconds();
        reporting.drift = Some(drift);
    }
    Some(render::webhook(of_watchers, &reporting))
}

/// The lines of an object of [`Bases::for_class`], and the template that rendered it.
pub(crate) fn base_places(
    wanted: &Wanted,
    landscape: &Landscape,
    runtime: &Key,
    id: &ObjectId,
) -> (Vec<FilePosition>, Option<&'static str>) {
    let of = |kind| wanted.place(kind, &Key::new(runtime.namespace(), &id.name)).into_iter().collect();
    match &*id.kind {
        "ModuleTemplate" => (of(Kind::ModuleTemplate), Some(Template::ModuleTemplate.name())),
        "ModuleReleaseMeta" => (of(Kind::ModuleReleaseMeta), Some(Template::ModuleReleaseMeta.name())),
        "ValidatingWebhookConfiguration" => {
            let places = landscape.watchers.keys().filter_map(|key| wanted.place(Kind::Watcher, key));
            (places.collect(), Some(Template::Webhook.name()))
        }
        "Namespace" => (Vec::new(), Some(Template::Namespace.name())),
        _ => (Vec::new(), Some("built in")),
    }
}

/// Where a Kyma selects a module; if it does not do so in git, where its version is named.
pub(crate) fn module_place(wanted: &Wanted, kyma: &Kyma, key: &Key, module: &str) -> Option<FilePosition> {
    let definition = wanted.definitions.good.get(&(Kind::Kyma, key.clone()));
    let index = kyma.spec.modules.iter().position(|wanted| wanted.name == module);
    if let (Some(definition), Some(index)) = (definition, index) {
        let path = [PathPart::from("spec"), PathPart::from("modules"), PathPart::from(index)];
        let (line, column) = definition.fields.position(&path);
        return Some(FilePosition::at(&definition.place.path, line, column));
    }
    wanted.place(Kind::ModuleReleaseMeta, &Key::new(key.namespace(), module))
}

// === impl Wanted ===

impl Wanted {
    /// The place of a definition.
    pub(crate) fn place(&self, kind: Kind, key: &Key) -> Option<FilePosition> {
        self.definitions.good.get(&(kind, key.clone())).map(|definition| definition.place.clone())
    }

    /// The place where a ModuleReleaseMeta assigns a version to an offer, or that of the ModuleReleaseMeta if the
    /// offer is gone.
    pub(crate) fn offer_place(&self, release: &Key, offer: &Offer) -> Option<FilePosition> {
        let definition = self.definitions.good.get(&(Kind::ModuleReleaseMeta, release.clone()))?;
        let Some(channel) = offer.channel() else {
            let path = [PathPart::from("spec"), PathPart::from("mandatory"), PathPart::from("version")];
            let (line, column) = definition.fields.position(&path);
            return Some(FilePosition::at(&definition.place.path, line, column));
        };
        let channels = definition.object.value().pointer("/spec/channels").and_then(serde_json::Value::as_array);
        let index = channels.and_then(|all| all.iter().position(|entry| entry["channel"] == channel));
        let Some(index) = index else { return Some(definition.place.clone()) };
        let path =
            [PathPart::from("spec"), PathPart::from("channels"), PathPart::from(index), PathPart::from("version")];
        let (line, column) = definition.fields.position(&path);
        Some(FilePosition::at(&definition.place.path, line, column))
    }

    /// The place of the ModuleTemplate from which a runtime gets a module.
    pub(crate) fn template_place(&self, kyma: &Kyma, module: &str, landscape: &Landscape) -> Option<FilePosition> {
        let key = landscape::key(&kyma.metadata);
        let release = landscape.releases.get(&Key::new(key.namespace(), module))?;
        let versions = plan::offers(release).map(|(_, version)| format!("{module}-{version}"));
        let mut templates = versions.map(|name| Key::new(key.namespace(), &name));
        templates.find_map(|template| self.place(Kind::ModuleTemplate, &template))
    }
}
