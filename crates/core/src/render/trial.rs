//! Renders the overrides of a source for its own definitions, before they become active.
//!
//! The example of a context shows most mistakes, see [`Templates::check`], but it has fields and entries that a real
//! definition may lack. A template that fails for each of them would fail once for each runtime.
//!
//! Definitions with the same fields are rendered once, and only so many of them: a source may have thousands. Where a
//! context has values that only a cluster knows, `cluster` has samples of them: with and without each value that may be
//! missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use crate::{
    api::{
        Kyma,
        kyma::{KymaSpec, Module, Modules},
        names::label,
        shared::{CustomResourcePolicy, ObjectMeta},
    },
    definition::{Definition, Definitions, Kind},
    diagnostic::Diagnostics,
    landscape::{Landscape, SourceName},
    name::Key,
    plan::{
        self, Components, Installation, InstalledModules, ModuleOutcome, Release, Settings, Windows, reporting::Agent,
        setup,
    },
    render::live,
    template::{Error, Library, Template, Templates},
};

mod cluster;

pub use cluster::sample_agents;

/// The definitions that templates are rendered for.
#[derive(Clone, Copy, Debug)]
pub struct Trial<'a> {
    /// The source of the templates and the definitions.
    pub source: &'a SourceName,
    /// Its definitions.
    pub definitions: &'a Definitions,
    /// The catalog in the control plane, for Kymas with modules of other sources.
    pub catalog: &'a Landscape,
    /// The modules that runtimes have, by Kyma: users may have chosen them in the runtime.
    pub installed: &'a BTreeMap<Key, BTreeSet<String>>,
    /// The agents that runtimes may have: the one of the daemon, or [`sample_agents`].
    pub agents: &'a [Option<Agent>],
}

/// Maximum number of objects for which one template is rendered. A landscape has some ten different ones.
const SAMPLES_MAX: usize = 200;

// === impl Trial ===

impl Trial<'_> {
    /// Renders `templates` for these definitions. The first failure of each template is an error at its line.
    pub fn run(self, diagnostics: &mut Diagnostics, templates: &Templates) {
        let mut library = Library::new(Templates::embedded());
        library.set(self.source.clone(), templates.clone());
        let landscape = self.landscape();
        let mut run = Run {
            landscape: &landscape,
            source: self.source,
            library: &library,
            templates,
            agents: self.agents,
            samples: BTreeMap::new(),
        };
        run.render_catalog(diagnostics);
        run.render_kymas(diagnostics, self.installed);
        run.render_watchers(diagnostics);
        run.render_shared(diagnostics);
        run.render_setup(diagnostics);
    }

    /// The definitions with those in the control plane. Of Kymas that want the same, there is one.
    fn landscape(&self) -> Landscape {
        let mut wishes = BTreeSet::new();
        let mut is_new = |((kind, key), definition): &(&(Kind, Key), &Arc<Definition>)| match kind {
            Kind::Kyma => wishes.insert(self.wish(key, definition)),
            Kind::ModuleTemplate | Kind::ModuleReleaseMeta | Kind::Watcher | Kind::Setup(_) => true,
        };
        let good = self.definitions.good.iter().filter(&mut is_new).map(|(id, found)| (id.clone(), Arc::clone(found)));
        let definitions = Definitions { good: good.collect(), ..Definitions::default() };
        // What cannot be read was reported before.
        let mut landscape = Landscape::from_definitions(&mut Diagnostics::default(), &definitions, self.source);
        let is_other = |metadata: &ObjectMeta| SourceName::from_metadata(metadata).as_ref() != Some(self.source);
        for (key, template) in self.catalog.templates.iter().filter(|(_, template)| is_other(&template.metadata)) {
            landscape.templates.entry(key.clone()).or_insert_with(|| Arc::clone(template));
        }
        for (key, release) in self.catalog.releases.iter().filter(|(_, release)| is_other(&release.metadata)) {
            landscape.releases.entry(key.clone()).or_insert_with(|| Arc::clone(release));
        }
        for (key, watcher) in self.catalog.watchers.iter().filter(|(_, watcher)| is_other(&watcher.metadata)) {
            landscape.watchers.entry(key.clone()).or_insert_with(|| Arc::clone(watcher));
        }
        landscape
    }

    /// What a Kyma wants, and what it may have.
    fn wish(&self, key: &Key, definition: &Definition) -> String {
        let kyma = definition.object.value();
        let restrictions = [label::BETA, label::INTERNAL].map(|name| definition.object.label(name));
        json!([key.namespace(), kyma["spec"], restrictions, self.installed.get(key)]).to_string()
    }
}

/// A rendering of samples.
struct Run<'a> {
    landscape: &'a Landscape,
    source: &'a SourceName,
    library: &'a Library,
    templates: &'a Templates,
    agents: &'a [Option<Agent>],
    samples: BTreeMap<Template, Samples>,
}

/// What one template was rendered for.
#[derive(Default)]
struct Samples {
    shapes: BTreeSet<String>,
    has_failed: bool,
}

// === impl Run ===

impl Run<'_> {
    fn render_catalog(&mut self, diagnostics: &mut Diagnostics) {
        let (landscape, library) = (self.landscape, self.library);
        for (key, template) in &landscape.templates {
            if self.is_ours(&template.metadata) && self.is_new(Template::ModuleTemplate, shape_of(&template.spec)) {
                let result = super::catalog_template(library, landscape, key);
                self.note(diagnostics, Template::ModuleTemplate, result.transpose());
            }
        }
        for (key, release) in &landscape.releases {
            if self.is_ours(&release.metadata) && self.is_new(Template::ModuleReleaseMeta, shape_of(&release.spec)) {
                let shown = Release { key: key.clone(), channels: release.spec.channels.clone() };
                let result = super::catalog_release(library, landscape, &shown);
                self.note(diagnostics, Template::ModuleReleaseMeta, result.transpose());
            }
        }
    }

    /// Renders Kymas and the Manifests of their modules.
    fn render_kymas(&mut self, diagnostics: &mut Diagnostics, installed: &BTreeMap<Key, BTreeSet<String>>) {
        let (landscape, settings, components) = (self.landscape, Settings::default(), Components::default());
        for (key, kyma) in &landscape.kymas {
            if self.is_new(Template::Kyma, shape_of(&kyma.spec)) {
                let result = super::runtime_kyma(self.templates, kyma, &kyma.spec);
                self.note(diagnostics, Template::Kyma, result);
            }
            let modules = modules(kyma, installed.get(key));
            let spec = KymaSpec { modules, ..kyma.spec.clone() };
            let installed = InstalledModules::default();
            let plan = plan::runtime(landscape, &components, kyma, &spec, &settings, &installed, Windows::Unknown);
            for module in plan.into_deciding() {
                let ModuleOutcome::Install(installation) = module.outcome else { continue };
                if self.is_new(Template::Manifest, shape_of_installation(&installation)) {
                    let result = super::manifest(self.templates, &installation, "0");
                    self.note(diagnostics, Template::Manifest, result);
                }
            }
        }
    }

    /// Renders what kcp landscapes consist of.
    fn render_setup(&mut self, diagnostics: &mut Diagnostics) {
        let is_overridden = |template: Template| self.templates.overridden_by(template).is_some();
        if !Template::ALL.into_iter().any(|template| template.name().starts_with("setup/") && is_overridden(template)) {
            return;
        }
        // Why a resource has no plan was reported before.
        let (plans, _) = self.landscape.setup.plans(&setup::Known::default());
        for plan in plans.iter().take(SAMPLES_MAX) {
            for (template, result) in super::setup(self.templates, plan, &|name| live::placeholder(name)) {
                self.note(diagnostics, template, result);
            }
        }
    }

    fn is_ours(&self, metadata: &ObjectMeta) -> bool {
        SourceName::from_metadata(metadata).as_ref() == Some(self.source)
    }

    /// Whether a template is rendered for an object of this shape: it was not yet, and has not failed.
    fn is_new(&mut self, template: Template, shape: String) -> bool {
        let samples = self.samples.entry(template).or_default();
        self.templates.overridden_by(template).is_some()
            && !samples.has_failed
            && samples.shapes.len() < SAMPLES_MAX
            && samples.shapes.insert(shape)
    }

    fn note<T>(&mut self, diagnostics: &mut Diagnostics, template: Template, result: Result<T, Error>) {
        if let Err(error) = result {
            if std::mem::replace(&mut self.samples.entry(template).or_default().has_failed, true) {
                return;
            }
            let subject = format!("a sample: {}", error.subject);
            diagnostics.push(Error { subject, ..error }.diagnostic());
        }
    }
}

/// The modules that a Kyma wants, and others that its runtime has.
fn modules(kyma: &Kyma, installed: Option<&BTreeSet<String>>) -> Modules {
    let is_wanted = |name: &String| kyma.spec.modules.iter().any(|module| module.name == *name);
    let others = installed.into_iter().flatten().filter(|name| !is_wanted(name)).map(|name| Module {
        name: name.clone(),
        channel: None,
        controller: None,
        custom_resource_policy: CustomResourcePolicy::default(),
        managed: true,
        remote_module_template_ref: None,
    });
    kyma.spec.modules.iter().cloned().chain(others).collect()
}

/// What a template of a Manifest can tell apart: modules, and their versions.
fn shape_of_installation(installation: &Installation) -> String {
    let Installation { template, policy, default_resource, manager, localized_images, controller, offer, .. } =
        installation;
    let fields = json!([template.to_string(), policy, controller, offer.channel().is_some()]);
    format!("{fields}{}", shape_of(&json!([default_resource, manager, localized_images])))
}

fn shape_of(spec: &impl serde::Serialize) -> String {
    let mut text = String::new();
    shape(&serde_json::to_value(spec).unwrap_or_default(), &mut text);
    text
}

/// Writes the fields of a value and their types, without the values. Equal entries of a list are written once.
fn shape(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push('0'),
        Value::Bool(_) => text.push('b'),
        Value::Number(_) => text.push('n'),
        Value::String(_) => text.push('s'),
        Value::Array(items) => {
            let shapes: BTreeSet<String> = items.iter().map(shape_of).collect();
            text.push('[');
            shapes.iter().for_each(|shape| text.push_str(shape));
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (name, value) in fields {
                text.push_str(name);
                text.push(':');
                shape(value, text);
            }
            text.push('}');
        }
    }
}

#[cfg(test)]
mod tests;
