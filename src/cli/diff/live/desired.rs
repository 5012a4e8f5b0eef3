//! The desired objects of runtimes, rendered once for all runtimes that share them, and their lines in files.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use super::{Inputs, runtime::Baseline, world::Trusted};
use tidegate_core::{
    api::Kyma,
    content::ContentId,
    definition::{Kind, ModuleObjects},
    diagnostic::{Diagnostic, Place},
    landscape::{self, Landscape},
    name::Key,
    object::{ObjectId, PathPart},
    plan::{self, Class, Offer},
    render::{self, CompleteModule, Injection, Mark, Reporting, SharedObjects},
    template::Template,
};
use tidegate_process::lock::Mutex;

/// Objects that runtimes share.
#[derive(Default)]
pub(super) struct Bases {
    classes: Mutex<HashMap<Class, Arc<Base>>>,
    modules: Mutex<BTreeMap<(ContentId, Injection), CompleteModule>>,
}

/// The objects that every runtime of a class gets.
pub(super) struct Base {
    pub(super) objects: SharedObjects,
    /// Problems of the rendering.
    pub(super) problems: Vec<Diagnostic>,
}

// === impl Bases ===

impl Bases {
    /// The objects that every runtime of a class gets.
    pub(super) fn for_class(&self, baseline: &Baseline<'_>, class: &Class) -> Arc<Base> {
        let mut classes = self.classes.lock();
        Arc::clone(classes.entry(class.clone()).or_insert_with(|| Arc::new(base(baseline, class))))
    }

    /// The objects of a module, with what the landscape puts into them. If that does not fit, the daemon says so, and
    /// the objects are compared as they are.
    pub(super) fn module(&self, objects: &ModuleObjects, injection: &Injection) -> CompleteModule {
        let make = || {
            let module = CompleteModule::new(objects);
            module.with(injection).unwrap_or(module)
        };
        self.modules.lock().entry((objects.content(), injection.clone())).or_insert_with(make).clone()
    }
}

fn base(baseline: &Baseline<'_>, class: &Class) -> Base {
    let Inputs { library, settings, .. } = baseline.inputs;
    let landscape = &baseline.intent.after;
    let catalog = plan::catalog(landscape, class, settings);
    let (mut objects, errors) = render::catalog(library, landscape, &catalog);
    let mut problems: Vec<Diagnostic> = errors.iter().map(tidegate_core::template::Error::diagnostic).collect();
    let of_kymas = library.of_all(landscape.kymas.values().map(|kyma| &kyma.metadata));
    let mut rendered = vec![render::runtime_namespace(of_kymas)];
    let (watches, _) = render::watches(landscape.watchers.values().map(|watcher| &**watcher));
    let of_watchers = library.of_all(landscape.watchers.values().map(|watcher| &watcher.metadata));
    match &baseline.world.trusted {
        Trusted::Nothing => rendered.push(render::webhook(of_watchers, &Reporting::of_watchers(&watches, None))),
        Trusted::Bundle(bundle) => {
            rendered.push(render::webhook(of_watchers, &Reporting::of_watchers(&watches, Some(bundle))));
        }
        // The report says once that the CA is unknown.
        Trusted::NotKnown => {}
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

/// The lines of an object of [`Bases::for_class`], and the template that rendered it.
pub(super) fn base_places(
    inputs: &Inputs,
    landscape: &Landscape,
    runtime: &Key,
    id: &ObjectId,
) -> (Vec<Place>, Option<&'static str>) {
    let of = |kind| inputs.place(kind, &Key::new(runtime.namespace(), &id.name)).into_iter().collect();
    match &*id.kind {
        "ModuleTemplate" => (of(Kind::ModuleTemplate), Some(Template::ModuleTemplate.name())),
        "ModuleReleaseMeta" => (of(Kind::ModuleReleaseMeta), Some(Template::ModuleReleaseMeta.name())),
        "ValidatingWebhookConfiguration" => {
            let places = landscape.watchers.keys().filter_map(|key| inputs.place(Kind::Watcher, key));
            (places.collect(), Some(Template::Webhook.name()))
        }
        "Namespace" => (Vec::new(), Some(Template::Namespace.name())),
        _ => (Vec::new(), Some("built in")),
    }
}

/// Where a Kyma selects a module; if it does not do so in git, where its version is named.
pub(super) fn module_place(inputs: &Inputs, kyma: &Kyma, key: &Key, module: &str) -> Option<Place> {
    let definition = inputs.definitions.good.get(&(Kind::Kyma, key.clone()));
    let index = kyma.spec.modules.iter().position(|wanted| wanted.name == module);
    if let (Some(definition), Some(index)) = (definition, index) {
        let path = [PathPart::from("spec"), PathPart::from("modules"), PathPart::from(index)];
        let (line, column) = definition.fields.position(&path);
        return Some(Place::at(&definition.place.path, line, column));
    }
    inputs.place(Kind::ModuleReleaseMeta, &Key::new(key.namespace(), module))
}

// === impl Inputs ===

impl Inputs {
    /// The place of a definition.
    pub(super) fn place(&self, kind: Kind, key: &Key) -> Option<Place> {
        self.definitions.good.get(&(kind, key.clone())).map(|definition| definition.place.clone())
    }

    /// The place where a ModuleReleaseMeta assigns a version to an offer, or that of the ModuleReleaseMeta if the
    /// offer is gone.
    pub(super) fn offer_place(&self, release: &Key, offer: &Offer) -> Option<Place> {
        let definition = self.definitions.good.get(&(Kind::ModuleReleaseMeta, release.clone()))?;
        let Some(channel) = offer.channel() else {
            let path = [PathPart::from("spec"), PathPart::from("mandatory"), PathPart::from("version")];
            let (line, column) = definition.fields.position(&path);
            return Some(Place::at(&definition.place.path, line, column));
        };
        let channels = definition.object.value().pointer("/spec/channels").and_then(serde_json::Value::as_array);
        let index = channels.and_then(|all| all.iter().position(|entry| entry["channel"] == channel));
        let Some(index) = index else { return Some(definition.place.clone()) };
        let path =
            [PathPart::from("spec"), PathPart::from("channels"), PathPart::from(index), PathPart::from("version")];
        let (line, column) = definition.fields.position(&path);
        Some(Place::at(&definition.place.path, line, column))
    }

    /// The place of the ModuleTemplate from which a runtime gets a module.
    pub(super) fn template_place(&self, kyma: &Kyma, module: &str, landscape: &Landscape) -> Option<Place> {
        let key = landscape::key(&kyma.metadata);
        let release = landscape.releases.get(&Key::new(key.namespace(), module))?;
        let versions = plan::offers(release).map(|(_, version)| format!("{module}-{version}"));
        let mut templates = versions.map(|name| Key::new(key.namespace(), &name));
        templates.find_map(|template| self.place(Kind::ModuleTemplate, &template))
    }
}
