//! Checks all definitions together: collisions and references. The cost is linear, so every pass
//! repeats it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{
    Channels, Definition, Definitions, Kind, Options, SourceObject, Unfit, Withheld, code,
    file::{Cache, Candidate, ModuleRead},
    module::{
        self, ModuleSource,
        object::{Opinion, Refusing},
    },
    near,
};
use crate::{
    api::{
        ModuleReleaseMeta,
        names::{DEPLOYER, annotation},
        shared::Manager,
    },
    content::ContentId,
    diagnostic::{Diagnostic, Diagnostics, FilePosition, LISTED_IN_FILE_MAX, Severity},
    kubernetes::{Api, Served},
    landscape::setup::Resources,
    name::Key,
    object::{Object, ObjectId, PathPart},
    plan::setup::{self, Known, Problem},
    render,
    schema::ViolationKind,
    snapshot::Snapshot,
    yaml,
};

/// The hint when an unreadable file may declare the missing object.
const PARTIAL_HINT: &str = "if an unreadable file declares it, correct that file first";

/// How many names a hint lists.
const LISTED_MAX: usize = 10;

/// Collects candidates until they become definitions.
struct Work<'a> {
    options: &'a Options,
    /// What is declared, valid or not.
    declared: BTreeMap<(Kind, Key), &'a Candidate>,
    /// Invalid definitions by the name that they should have.
    meant: BTreeMap<(Kind, Key), FilePosition>,
    /// Whether some documents could not be read, so that their declarations are unknown.
    is_partial: bool,
    good: BTreeMap<(Kind, Key), Arc<Definition>>,
    withheld: BTreeMap<(Kind, Key), Withheld>,
    outside: BTreeSet<(Kind, Key)>,
    unfit: Vec<Unfit>,
    /// The same, to find duplicates.
    known_unfit: HashSet<Unfit>,
    diagnostics: Diagnostics,
}

/// The objects of modules in git.
#[derive(Default)]
struct Modules {
    objects: BTreeMap<ContentId, Arc<super::ModuleObjects>>,
    /// By ModuleTemplate; only modules without errors.
    reads: Vec<TemplateObjects>,
    /// Each module that was read, with errors or without, once.
    all: Vec<Arc<ModuleRead>>,
}

/// One ModuleTemplate with its objects.
struct TemplateObjects {
    id: (Kind, Key),
    module: String,
    objects: Arc<super::ModuleObjects>,
}

/// Turns candidates into definitions. The candidates must be in the order of files and lines.
pub(super) fn resolve(
    diagnostics: &mut Diagnostics,
    snapshot: &Snapshot,
    options: &Options,
    cache: &mut Cache,
    candidates: &[&Candidate],
    sources: &BTreeMap<FilePosition, Result<ModuleSource, Diagnostic>>,
) -> Definitions {
    let mut work = Work {
        options,
        declared: BTreeMap::new(),
        meant: BTreeMap::new(),
        is_partial: diagnostics.has_code(is_unreadable),
        good: BTreeMap::new(),
        withheld: BTreeMap::new(),
        outside: BTreeSet::new(),
        unfit: Vec::new(),
        known_unfit: HashSet::new(),
        diagnostics: Diagnostics::default(),
    };
    work.declare(candidates);
    let modules = work.modules(snapshot, cache, sources);
    work.custom_resources(&modules.reads);
    work.injections(&modules.reads);
    work.managers(&modules.reads);
    work.undefined_kinds(&modules.all);
    work.default_kinds(&modules);
    let modules = modules.objects;
    work.releases();
    work.kymas();
    work.setup();
    diagnostics.append(work.diagnostics);
    let withheld = work.withheld.into_values().collect();
    Definitions {
        good: work.good,
        withheld,
        meant: work.meant,
        modules,
        unfit: work.unfit,
        outside: work.outside,
        files: 0,
    }
}

impl<'a> Work<'a> {
    /// Splits candidates into valid and invalid. A duplicate declaration is invalid.
    fn declare(&mut self, candidates: &[&'a Candidate]) {
        for candidate in candidates {
            let id = (candidate.kind, candidate.key.clone());
            if let (Some(meant), Some((place, _))) = (&candidate.meant, &candidate.problem) {
                self.meant.insert((candidate.kind, meant.clone()), place.clone());
            }
            if let Some(first) = self.declared.get(&id) {
                let message = format!("{} {} is already declared at {}", candidate.kind, candidate.key, first.place);
                let diagnostic = Diagnostic::error(code::DUPLICATE_DEFINITION, message.clone());
                let hint = "remove one of the two; until then Tidegate applies neither";
                self.diagnostics.push(diagnostic.hint(hint).at(candidate.place.clone()));
                let message = format!("{} {} is declared twice", candidate.kind, candidate.key);
                self.withhold(&id, &first.place.clone(), message);
                continue;
            }
            match (&candidate.problem, &candidate.definition) {
                (None, Some(definition)) => {
                    self.good.insert(id.clone(), Arc::clone(definition));
                }
                (problem, _) => {
                    let unknown = || (candidate.place.clone(), "it is invalid".to_owned());
                    let (place, message) = problem.clone().unwrap_or_else(unknown);
                    self.withhold(&id, &place, message);
                }
            }
            self.declared.insert(id, candidate);
        }
    }

    fn withhold(&mut self, id: &(Kind, Key), place: &FilePosition, message: String) {
        self.good.remove(id);
        let (kind, key) = id.clone();
        let place = place.clone();
        self.withheld.entry(id.clone()).or_insert(Withheld { kind, key, place, message });
    }

    /// Reports an error in a definition and holds the definition back.
    fn refuse(&mut self, id: &(Kind, Key), diagnostic: Diagnostic) {
        let begin = self.declared.get(id).map(|candidate| candidate.place.clone());
        if let Some(place) = begin.map(|begin| diagnostic.place.clone().unwrap_or(begin)) {
            self.withhold(id, &place, diagnostic.message.clone());
        }
        self.diagnostics.push(diagnostic);
    }

    /// Reads the objects of modules in git, and fills in descriptors.
    fn modules(
        &mut self,
        snapshot: &Snapshot,
        cache: &mut Cache,
        sources: &BTreeMap<FilePosition, Result<ModuleSource, Diagnostic>>,
    ) -> Modules {
        let mut modules = Modules::default();
        let templates: Vec<(&(Kind, Key), &&Candidate)> =
            self.declared.iter().filter(|((kind, _), _)| *kind == Kind::ModuleTemplate).collect();
        let templates: Vec<((Kind, Key), &Candidate)> =
            templates.into_iter().map(|(id, candidate)| (id.clone(), *candidate)).collect();
        let mut reported = BTreeSet::new();
        for (id, candidate) in templates {
            let Some((_, place)) = &candidate.module_path else { continue };
            let source = match sources.get(place) {
                Some(Ok(source)) => source.clone(),
                Some(Err(diagnostic)) => {
                    self.refuse(&id, diagnostic.clone());
                    continue;
                }
                None => continue,
            };
            let read = module::read(cache, snapshot, &source, self.options);
            // Two ModuleTemplates may name the same folder. Its problems are reported once.
            if reported.insert(source.path.clone()) {
                self.diagnostics.extend(read.diagnostics.iter().cloned());
                modules.all.push(Arc::clone(&read));
            }
            let Some(objects) = &read.objects else {
                let errors = || read.diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error);
                let (first, errors) = (errors().next(), errors().count());
                let message = format!(
                    "the module's objects have {errors} {}, the first at {}",
                    if errors == 1 { "error" } else { "errors" },
                    first.map(place_text).unwrap_or_default()
                );
                let diagnostic = Diagnostic::error(code::MODULE_BROKEN, message);
                self.refuse(
                    &id,
                    diagnostic
                        .hint("correct the module's objects; until then this version is held back")
                        .at(place.clone()),
                );
                continue;
            };
            if objects.objects().is_empty() {
                let message = format!("the module path `{}` contains no objects", yaml::short(&source.path));
                let hint = "Tidegate reads objects from files that end in `.yaml`, `.yml` or `.json`";
                self.refuse(&id, Diagnostic::error(code::MODULE_EMPTY, message).hint(hint).at(place.clone()));
                continue;
            }
            modules.objects.entry(source.tree.into()).or_insert_with(|| Arc::clone(objects));
            let module = candidate.definition.as_ref().and_then(|definition| {
                definition.object.value().pointer("/spec/moduleName").and_then(Value::as_str).map(str::to_owned)
            });
            let (module, objects) = (module.unwrap_or_default(), Arc::clone(objects));
            modules.reads.push(TemplateObjects { id: id.clone(), module, objects });
            if let Some(definition) = self.good.get(&id) {
                let filled = self.fill(definition, candidate, source);
                self.good.insert(id, filled);
            }
        }
        modules
    }

    /// Checks custom resources against the kinds that all modules define. If every API server would
    /// reject a resource, its module version is held back. If only some would, it is recorded.
    fn custom_resources(&mut self, reads: &[TemplateObjects]) {
        let mut defined = module::object::Defined::default();
        for brought in reads {
            defined.add(&brought.module, &brought.id.1, &brought.objects);
        }
        let mut told = BTreeSet::new();
        for brought in reads {
            let TemplateObjects { id, module, objects, .. } = brought;
            let own = (module.as_str(), objects.content());
            for source in objects.objects().iter().filter(|source| defined.defines(source.id())) {
                if self.options.budget.is_over() {
                    return;
                }
                let wrong = match defined.opinion(own, source.object().value(), &self.options.budget) {
                    Opinion::All(wrong) => wrong,
                    Opinion::Some(refusing) => {
                        self.unfit(brought, source.id(), &source.place, refusing);
                        continue;
                    }
                };
                for (_, message) in wrong {
                    let message = format!("{}: {message}", source.id());
                    let diagnostic = Diagnostic::error(code::MODULE_OBJECT, message.clone())
                        .hint("no API server accepts it with the CRDs that this revision declares")
                        .at(source.place.clone());
                    // Two ModuleTemplates may name the same folder. Its problems are reported once.
                    if told.insert((source.place.clone(), message.clone())) {
                        self.refuse(id, diagnostic);
                    } else {
                        self.withhold(id, &source.place, message);
                    }
                }
            }
            if let Some(definition) = self.good.get(id).cloned() {
                self.default_resource(&definition, brought, &defined);
            }
        }
    }

    /// Checks the default resource of a module in the same way.
    fn default_resource(
        &mut self,
        template: &Definition,
        brought: &TemplateObjects,
        defined: &module::object::Defined<'_>,
    ) {
        let Some(data) = template.object.value().pointer("/spec/data") else { return };
        let below = |path: Vec<PathPart>| -> FilePosition {
            at(template, &["spec".into(), "data".into()].into_iter().chain(path).collect::<Vec<_>>())
        };
        let mut wrong = module::object::unknown_fields(data);
        match defined.opinion((&brought.module, brought.objects.content()), data, &self.options.budget) {
            Opinion::All(more) => wrong.extend(more),
            Opinion::Some(refusing) => {
                if let Ok(resource) = Object::new(data.clone()) {
                    self.unfit(brought, &resource.id(), &below(Vec::new()), refusing);
                }
            }
        }
        for (path, message) in wrong {
            let hint = "no API server accepts it with the CRDs that this revision declares";
            let diagnostic = Diagnostic::error(code::MODULE_OBJECT, format!("default resource: {message}"));
            self.refuse(&brought.id, diagnostic.hint(hint).at(below(path)));
        }
    }

    /// Records an object that the API servers of some runtimes will reject, and warns about it.
    fn unfit(
        &mut self,
        brought: &TemplateObjects,
        object: &ObjectId,
        place: &FilePosition,
        refusing: Vec<Refusing<'_>>,
    ) {
        for Refusing { module, template, content, message } in refusing {
            let unfit = Unfit {
                content: brought.objects.content(),
                module: Key::new(brought.id.1.namespace(), &brought.module),
                object: object.clone(),
                place: place.clone(),
                definer: content,
                definer_module: Key::new(template.namespace(), module),
                definer_name: template.name().to_owned(),
                message: format!("{object}: {message}"),
            };
            // Two ModuleTemplates may name the same folder.
            if self.known_unfit.insert(unfit.clone()) {
                let hint = format!("runtimes that have {} reject it", template.name());
                let warning = Diagnostic::warning(code::MODULE_OBJECT_UNFIT, unfit.message.clone());
                self.diagnostics.push(warning.hint(hint).at(place.clone()));
                self.unfit.push(unfit);
            }
        }
    }

    /// A ModuleTemplate with its module source, and with a generated descriptor if it has none.
    fn fill(&self, definition: &Definition, candidate: &Candidate, source: ModuleSource) -> Arc<Definition> {
        let mut filled = Definition { module: Some(source), ..definition.clone() };
        if candidate.needs_descriptor {
            let spec = definition.object.field("spec");
            let field = |name: &str| spec.and_then(|spec| spec.get(name)).and_then(Value::as_str).unwrap_or_default();
            let (module, version) = (field("moduleName").to_owned(), field("version").to_owned());
            let release = (Kind::ModuleReleaseMeta, Key::new(definition.key.namespace(), &module));
            let component = self.component(&release);
            // The naming scheme of Kyma's own modules.
            let component = component.unwrap_or_else(|| format!("kyma-project.io/module/{module}"));
            let descriptor =
                json!({"component": {"name": component, "version": version}, "meta": {"schemaVersion": "v2"}});
            if let Some(spec) = filled.object.map_mut().get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("descriptor".to_owned(), descriptor);
            }
            filled.digest = filled.object.digest();
        }
        Arc::new(filled)
    }

    /// The component that a ModuleReleaseMeta names. An invalid one that is held back counts as well, also under the
    /// name that it is most likely meant to have: its mistake changes no ModuleTemplate.
    fn component(&self, release: &(Kind, Key)) -> Option<String> {
        let is_meant = |(id, candidate): &(&(Kind, Key), &&Candidate)| {
            id.0 == release.0 && candidate.meant.as_ref() == Some(&release.1)
        };
        let meant = || self.declared.iter().find(is_meant).map(|(_, candidate)| *candidate);
        self.declared.get(release).copied().or_else(meant)?.component.clone()
    }

    /// Whether definitions of a kind may be declared elsewhere. True if the GitSource forbids to
    /// declare them here, so another source must have them.
    fn is_elsewhere(&self, kind: Kind) -> bool {
        let kinds = &self.options.allow.kinds;
        !kinds.is_empty() && !kinds.iter().any(|allowed| allowed == kind.as_str())
    }

    /// Warns of Secrets that ask for data and are of a module that gets none.
    fn injections(&mut self, reads: &[TemplateObjects]) {
        // Several versions may share their objects.
        let mut told = HashSet::new();
        for read in reads.iter().filter(|read| read.module != DEPLOYER) {
            let secrets = read
                .objects
                .objects()
                .iter()
                .filter(|source| (&*source.id().group, &*source.id().kind) == ("", "Secret"));
            for source in secrets {
                let asks = || source.object().annotation(annotation::INJECT_DATA_FROM_KCP) == Some("true");
                if told.contains(&source.place) || !asks() {
                    continue;
                }
                told.insert(source.place.clone());
                let message = format!("annotation `{}` has no effect here", annotation::INJECT_DATA_FROM_KCP);
                let hint = format!("remove it; only Secrets of the module `{DEPLOYER}` get data of Secrets in KCP");
                let diagnostic = Diagnostic::warning(code::NO_EFFECT, message).hint(hint);
                self.diagnostics.push(diagnostic.at(source.place.clone()));
            }
        }
    }

    /// Warns of a `spec.manager` that the module does not have.
    fn managers(&mut self, reads: &[TemplateObjects]) {
        for read in reads {
            let Some(template) = self.good.get(&read.id) else { continue };
            let written = template.object.value().pointer("/spec/manager").cloned().unwrap_or_default();
            let Ok(manager) = serde_json::from_value::<Manager>(written) else { continue };
            let is_manager = |source: &SourceObject| {
                let id = source.id();
                // An object that names no namespace is created in `default`.
                let is_in_default =
                    || render::is_manager(&manager, &ObjectId { namespace: "default".into(), ..id.clone() });
                render::is_manager(&manager, id) || id.namespace.is_empty() && is_in_default()
            };
            if read.objects.objects().iter().any(is_manager) {
                continue;
            }
            let namespace = manager.namespace.as_deref().filter(|namespace| !namespace.is_empty());
            let message = format!(
                "`spec.manager` names {} `{}`{}, which is not among the module's objects",
                yaml::short(&manager.kind),
                yaml::short(&manager.name),
                namespace.map(|namespace| format!(" in namespace `{}`", yaml::short(namespace))).unwrap_or_default()
            );
            let hint = "correct it; until then all workloads of the module decide whether it is ready";
            let place = at(template, &["spec".into(), "manager".into(), "name".into()]);
            self.diagnostics.push(Diagnostic::warning(code::MODULE_MANAGER, message).hint(hint).at(place));
        }
    }

    /// Warns of objects whose kind neither Kubernetes nor a module defines. A group that a module of another source
    /// brings is not judged: its kinds are not known.
    fn undefined_kinds(&mut self, reads: &[Arc<ModuleRead>]) {
        let defined: BTreeSet<_> = reads.iter().flat_map(|read| &read.kinds.defined).collect();
        let uses = reads.iter().flat_map(|read| &read.kinds.used);
        for ((group, version, kind), used) in uses {
            if defined.contains(&(group.clone(), kind.clone())) || self.options.elsewhere.groups.contains(&**group) {
                continue;
            }
            let role = match used.objects {
                1 => String::new(),
                objects => format!(", the kind of {objects} objects of this module"),
            };
            let api_version = format!("{group}/{version}");
            let diagnostic = self.undefined_kind((&*api_version, &**kind), &role, used.did_you_mean, None);
            self.diagnostics.push(diagnostic.at(used.place.clone()));
        }
    }

    /// A kind that neither Kubernetes nor a module defines. `role` says what it is the kind of. The hint is `meant`, or
    /// the API version of Kubernetes that may be meant.
    fn undefined_kind(
        &self,
        (api_version, kind): (&str, &str),
        role: &str,
        did_you_mean: Option<&str>,
        meant: Option<String>,
    ) -> Diagnostic {
        let message = format!(
            "neither Kubernetes nor a module of this repository defines {} of `{}`{role}",
            yaml::short(kind),
            yaml::short(api_version)
        );
        let hint = meant.unwrap_or_else(|| match did_you_mean {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "each runtime that gets this module needs its CustomResourceDefinition first".to_owned(),
        });
        let severity = if self.options.strict { Severity::Error } else { Severity::Warning };
        Diagnostic { severity, ..Diagnostic::warning(code::UNDEFINED_KIND, message) }.hint(hint)
    }

    /// Checks the kind and the fields of default resources, as those of a module's objects. A kind that Kubernetes does
    /// not serve is only judged if the module's objects are in git: those in a registry may define it.
    fn default_kinds(&mut self, modules: &Modules) {
        let Some(version) = self.options.kubernetes else { return };
        let in_git: BTreeSet<&(Kind, Key)> = modules.reads.iter().map(|read| &read.id).collect();
        let mut defined: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (group, kind) in modules.all.iter().flat_map(|read| &read.kinds.defined) {
            defined.entry(group).or_default().insert(kind);
        }
        for template in self.of_kind(Kind::ModuleTemplate) {
            if self.options.budget.is_over() {
                return;
            }
            let Some(data) = template.object.value().pointer("/spec/data") else { continue };
            let field = |name: &str| data.get(name).and_then(Value::as_str).unwrap_or_default();
            let (api_version, kind) = (field("apiVersion"), field("kind"));
            let group = api_version.split_once('/').map_or("", |(group, _)| group);
            let siblings = defined.get(group);
            let is_defined = siblings.is_some_and(|kinds| kinds.contains(kind));
            if api_version.is_empty() || kind.is_empty() || is_defined {
                continue;
            }
            match version.api(api_version, kind) {
                // `default_resource` checks Secrets without quoting a value.
                Api::Served(_) if (api_version, kind) == ("v1", "Secret") => {}
                Api::Served(served) => self.default_fields(&template, served, data),
                Api::Absent { message, hint, field } => {
                    let message = format!("default resource: {}", yaml::printable(&message));
                    let place = at(&template, &["spec".into(), "data".into(), field.into()]);
                    self.diagnostics.push(Diagnostic::error(code::KUBERNETES_KIND, message).hint(hint).at(place));
                }
                Api::Foreign { did_you_mean } => {
                    let is_known = in_git.contains(&(Kind::ModuleTemplate, template.key.clone()));
                    if is_known && !self.options.elsewhere.groups.contains(group) {
                        // A kind of a module may be meant, or an API version of Kubernetes.
                        let sibling = near::did_you_mean(kind, siblings.into_iter().flatten().copied());
                        let field = if sibling.is_some() { "kind" } else { "apiVersion" };
                        let place = at(&template, &["spec".into(), "data".into(), field.into()]);
                        let role = ", the kind of the default resource";
                        let diagnostic = self.undefined_kind((api_version, kind), role, did_you_mean, sibling);
                        self.diagnostics.push(diagnostic.at(place));
                    }
                }
            }
        }
    }

    /// Reports what Kubernetes rejects in the fields of a default resource. The daemon asks the API servers, so this
    /// holds nothing back.
    fn default_fields(&mut self, template: &Definition, served: Served, data: &Value) {
        let (violations, more) = served.check(data, LISTED_IN_FILE_MAX, &self.options.budget);
        self.diagnostics.count_more(&template.place.path, Severity::Error, more);
        for violation in violations {
            let path: Vec<PathPart> =
                ["spec".into(), "data".into()].into_iter().chain(violation.path.iter().cloned()).collect();
            let (line, column) = match violation.kind {
                ViolationKind::UnknownField { .. } => template.fields.key_position(&path),
                _ => template.fields.position(&path),
            };
            let message = format!("default resource: {}", module::object::sentence(&violation));
            let hint = violation.hint.as_deref().unwrap_or("check the indentation and the quotes");
            let error = Diagnostic::error(code::KUBERNETES_FIELD, message).hint(yaml::printable(hint));
            self.diagnostics.push(error.at(FilePosition::at(&template.place.path, line, column)));
        }
    }

    /// Checks that every version that a ModuleReleaseMeta offers has its ModuleTemplate.
    fn releases(&mut self) {
        if self.is_elsewhere(Kind::ModuleTemplate) {
            return;
        }
        for definition in self.of_kind(Kind::ModuleReleaseMeta) {
            let id = (Kind::ModuleReleaseMeta, definition.key.clone());
            let value = definition.object.value();
            let module = value.pointer("/spec/moduleName").and_then(Value::as_str).unwrap_or_default();
            for (path, what, version) in offers(value) {
                let template = (Kind::ModuleTemplate, template_key(&definition, module, &version));
                self.selectable(&definition, &path, &template);
                if !self.declared.contains_key(&template) {
                    self.outside.insert(template);
                }
                if let Some(diagnostic) = self.offer(&definition, module, &path, &what, &version) {
                    self.refuse(&id, diagnostic);
                }
            }
        }
    }

    /// Warns of a channel whose version no Kyma can select.
    fn selectable(&mut self, release: &Definition, path: &[PathPart], template: &(Kind, Key)) {
        let is_channel = path.get(1) == Some(&PathPart::from("channels"));
        let found = self.good.get(template).filter(|_| is_channel);
        let is_mandatory =
            |found: &&Arc<Definition>| found.object.value().pointer("/spec/mandatory") == Some(&Value::Bool(true));
        let Some(found) = found.filter(is_mandatory) else { return };
        let name = yaml::short(found.key.name());
        let message = format!("no Kyma can select ModuleTemplate `{name}`, because its `spec.mandatory` is true");
        let hint = format!("remove that at {}, or make the module mandatory in the ModuleReleaseMeta", found.place);
        self.diagnostics.push(Diagnostic::warning(code::MANDATORY_MODULE, message).hint(hint).at(at(release, path)));
    }

    fn offer(
        &self,
        release: &Definition,
        module: &str,
        path: &[PathPart],
        what: &str,
        version: &str,
    ) -> Option<Diagnostic> {
        let namespace = release.key.namespace();
        let key = template_key(release, module, version);
        let template = (Kind::ModuleTemplate, key.clone());
        if self.good.contains_key(&template) || self.options.elsewhere.templates.contains(&key) {
            return None;
        }
        let at = at(release, path);
        let broken = self.withheld.get(&template).map(|withheld| &withheld.place).or_else(|| self.meant.get(&template));
        if let Some(broken) = broken {
            let message = format!("{what} ModuleTemplate {}, which is held back", key.name());
            let hint = format!("correct it at {broken}; until then all channels of the module stay as they are");
            return Some(Diagnostic::error(code::REFERENCE_WITHHELD, message).hint(hint).at(at));
        }
        let message = format!(
            "{what} ModuleTemplate `{}` in namespace `{namespace}`, which is not declared",
            yaml::short(key.name())
        );
        let versions = if self.is_listing(release) { self.declared_versions(namespace, module) } else { Vec::new() };
        let hint = if versions.is_empty() && self.is_partial {
            PARTIAL_HINT.to_owned()
        } else if versions.is_empty() {
            format!("add a ModuleTemplate named `{}`", yaml::short(key.name()))
        } else {
            format!("the declared versions of the module are {}", listed(&versions))
        };
        Some(Diagnostic::error(code::TEMPLATE_MISSING, message).hint(hint).at(at))
    }

    /// Whether the next error in a definition is listed. If not, its hint is not shown, and finding one takes longer
    /// than all checks.
    fn is_listing(&self, definition: &Definition) -> bool {
        self.diagnostics.lists_error(&definition.place.path)
    }

    /// The versions of a module that have a ModuleTemplate.
    fn declared_versions(&self, namespace: &str, module: &str) -> Vec<&str> {
        let prefix = format!("{module}-");
        let first = (Kind::ModuleTemplate, Key::new(namespace, &prefix));
        let of_namespace = self
            .declared
            .range(first..)
            .map(|(id, _)| id)
            .take_while(|(kind, key)| *kind == Kind::ModuleTemplate && key.namespace() == namespace);
        of_namespace.map_while(|(_, key)| key.name().strip_prefix(&prefix)).collect()
    }

    /// Checks that every module of a Kyma is known and has the channel.
    fn kymas(&mut self) {
        if self.is_elsewhere(Kind::ModuleReleaseMeta) {
            return;
        }
        let releases = self.known_releases();
        for definition in self.of_kind(Kind::Kyma) {
            let id = (Kind::Kyma, definition.key.clone());
            let value = definition.object.value();
            let modules = value.pointer("/spec/modules").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (index, module) in modules.iter().enumerate() {
                let name = module.get("name").and_then(Value::as_str).unwrap_or_default();
                let release = (Kind::ModuleReleaseMeta, Key::new(definition.key.namespace(), name));
                if !self.declared.contains_key(&release) {
                    self.outside.insert(release);
                }
                let hints = Hints {
                    releases: &releases,
                    is_partial: self.is_partial,
                    is_listing: self.is_listing(&definition),
                };
                let diagnostic = check_module(&hints, &definition, index, module);
                match diagnostic {
                    Some(diagnostic) if diagnostic.severity == Severity::Error => self.refuse(&id, diagnostic),
                    Some(diagnostic) => self.diagnostics.push(diagnostic),
                    None => {}
                }
            }
        }
    }

    /// Checks the rules of kcp landscapes, most of which are about what is planned for all of their resources.
    fn setup(&mut self) {
        let (mut resources, mut definitions) = (Resources::default(), BTreeMap::new());
        for (id, definition) in &self.good {
            let Kind::Setup(kind) = id.0 else { continue };
            // What cannot be read was reported before.
            drop(resources.insert(kind, &id.1, definition.object.value().clone()));
            definitions.insert(id.clone(), Arc::clone(definition));
        }
        if definitions.is_empty() || self.options.budget.is_over() {
            return;
        }
        let is_incomplete = self.withheld.keys().any(|(kind, _)| matches!(kind, Kind::Setup(_)));
        let (plans, mut problems) = resources.plans(&Known::default());
        problems.extend(setup::problems(&resources, &plans));
        for Problem { severity, kind, key, field, message, hint, missing } in problems {
            let id = (Kind::Setup(kind), key);
            let missing = missing.map(|missing| (Kind::Setup(missing.0), missing.1));
            let (code, hint) = match missing {
                // What is wrong with it was reported, or it is none of this source's.
                Some(missing) if self.declared.contains_key(&missing) || self.is_elsewhere(missing.0) => continue,
                Some(_) if self.is_partial => (code::SETUP_REFERENCE, PARTIAL_HINT.to_owned()),
                Some(_) => (code::SETUP_REFERENCE, hint),
                None => (code::SETUP_RULE, hint),
            };
            let Some(definition) = definitions.get(&id) else { continue };
            // What is missing may be only held back.
            if severity == Severity::Warning && (self.is_partial || is_incomplete) {
                continue;
            }
            let path: Vec<PathPart> = field.split('.').map(PathPart::from).collect();
            let diagnostic = Diagnostic { severity, ..Diagnostic::error(code, yaml::printable(&message)) };
            let diagnostic = diagnostic.hint(yaml::printable(&hint)).at(at(definition, &path));
            match severity {
                Severity::Error => self.refuse(&id, diagnostic),
                Severity::Warning => self.diagnostics.push(diagnostic),
            }
        }
    }

    /// The channels of every ModuleReleaseMeta that is declared here or exists elsewhere. `None`
    /// for an invalid one.
    fn known_releases(&self) -> BTreeMap<Key, Option<Channels>> {
        let elsewhere = self.options.elsewhere.releases.iter();
        let mut releases: BTreeMap<Key, Option<Channels>> =
            elsewhere.map(|(key, channels)| (key.clone(), Some(channels.clone()))).collect();
        for ((kind, key), candidate) in &self.declared {
            if *kind != Kind::ModuleReleaseMeta {
                continue;
            }
            // A ModuleReleaseMeta that is held back for a missing ModuleTemplate still defines its channels.
            let channels =
                candidate.definition.as_ref().map(|definition| Channels::from_release(definition.object.value()));
            releases.insert(key.clone(), channels);
        }
        let meant = self.meant.keys().filter(|(kind, _)| *kind == Kind::ModuleReleaseMeta);
        for (_, key) in meant {
            releases.entry(key.clone()).or_insert(None);
        }
        releases
    }

    fn of_kind(&self, kind: Kind) -> Vec<Arc<Definition>> {
        self.good.iter().filter(|((of, _), _)| *of == kind).map(|(_, definition)| Arc::clone(definition)).collect()
    }
}

/// The ModuleTemplate of a version that a ModuleReleaseMeta offers.
fn template_key(release: &Definition, module: &str, version: &str) -> Key {
    Key::new(release.key.namespace(), &format!("{module}-{version}"))
}

// === impl Channels ===

impl Channels {
    fn from_release(release: &Value) -> Channels {
        if release.pointer("/spec/mandatory").is_some_and(|mandatory| !mandatory.is_null()) {
            return Channels::Mandatory;
        }
        let channels = release.pointer("/spec/channels").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let name = |entry: &Value| entry.get("channel").and_then(Value::as_str).map(str::to_owned);
        Channels::Known(channels.iter().filter_map(name).collect())
    }
}

impl From<&ModuleReleaseMeta> for Channels {
    fn from(release: &ModuleReleaseMeta) -> Channels {
        match release.spec.mandatory {
            Some(_) => Channels::Mandatory,
            None => Channels::Known(release.spec.channels.iter().map(|channel| channel.channel.clone()).collect()),
        }
    }
}

/// What a Kyma may refer to, and how much a hint may say of it.
struct Hints<'a> {
    releases: &'a BTreeMap<Key, Option<Channels>>,
    is_partial: bool,
    /// See [`Work::is_listing`].
    is_listing: bool,
}

fn check_module(
    Hints { releases, is_partial, is_listing }: &Hints<'_>,
    kyma: &Definition,
    index: usize,
    module: &Value,
) -> Option<Diagnostic> {
    let path = |field: &str| -> [PathPart; 4] { ["spec".into(), "modules".into(), index.into(), field.into()] };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    // Tidegate does not touch an unmanaged module, regardless of its channel.
    if module.get("managed") == Some(&Value::Bool(false)) {
        return None;
    }
    let name = text(module.get("name"))?;
    let namespace = kyma.key.namespace();
    match releases.get(&Key::new(namespace, &name)) {
        None => {
            let known = releases.keys().filter(|key| *is_listing && key.namespace() == namespace);
            let known: Vec<&str> = known.map(Key::name).collect();
            let message =
                format!("no ModuleReleaseMeta in namespace `{namespace}` declares the module `{}`", yaml::short(&name));
            let hint = near::did_you_mean(&name, known.iter().copied()).unwrap_or_else(|| match known.as_slice() {
                _ if *is_partial => PARTIAL_HINT.to_owned(),
                [] => "declare a ModuleReleaseMeta with that name".to_owned(),
                known => format!("the declared modules are {}", listed(known)),
            });
            Some(Diagnostic::error(code::UNKNOWN_MODULE, message).hint(hint).at(at(kyma, &path("name"))))
        }
        Some(None) => None,
        Some(Some(Channels::Mandatory)) => {
            let message = format!("the module `{name}` is mandatory: every runtime has it, and no Kyma can select it");
            let diagnostic = Diagnostic::warning(code::MANDATORY_MODULE, message);
            let hint = "remove it from the list; to let Kymas select it, offer it in `channels`";
            Some(diagnostic.hint(hint).at(at(kyma, &path("name"))))
        }
        Some(Some(Channels::Known(channels))) => {
            let own = text(module.get("channel"));
            let place =
                if own.is_some() { at(kyma, &path("channel")) } else { at(kyma, &["spec".into(), "channel".into()]) };
            let channel = own.or_else(|| text(kyma.object.value().pointer("/spec/channel")))?;
            if channels.contains(&channel) {
                return None;
            }
            let message = format!("the module `{name}` has no channel `{}`", yaml::short(&channel));
            let names: Vec<&str> = channels.iter().map(String::as_str).collect();
            let hint = near::did_you_mean(&channel, names.iter().copied())
                .unwrap_or_else(|| format!("its channels are {}", listed(&names)));
            Some(Diagnostic::error(code::UNKNOWN_CHANNEL, message).hint(hint).at(place))
        }
    }
}

/// The versions that a ModuleReleaseMeta offers: the first place of each, what offers it, and the
/// version.
fn offers(release: &Value) -> Vec<(Vec<PathPart>, String, String)> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let channels = release.pointer("/spec/channels").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut versions: BTreeMap<String, (usize, Vec<String>)> = BTreeMap::new();
    for (index, entry) in channels.iter().enumerate() {
        let (_, names) = versions.entry(text(entry.get("version"))).or_insert((index, Vec::new()));
        names.push(text(entry.get("channel")));
    }
    let mut offers: Vec<_> = versions
        .into_iter()
        .map(|(version, (index, names))| {
            let path = vec!["spec".into(), "channels".into(), index.into(), "version".into()];
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let what = if names.len() == 1 {
                format!("the channel {} needs", listed(&names))
            } else {
                format!("the channels {} need", listed(&names))
            };
            (path, what, version)
        })
        .collect();
    if let Some(mandatory) = release.pointer("/spec/mandatory").filter(|mandatory| !mandatory.is_null()) {
        let path = vec!["spec".into(), "mandatory".into(), "version".into()];
        offers.push((path, "the mandatory version needs".to_owned(), text(mandatory.get("version"))));
    }
    offers
}

/// Whether a diagnostic with this code hides what a document would have declared.
fn is_unreadable(code: &str) -> bool {
    const CODES: [&str; 20] = [
        code::SYNTAX,
        code::AMBIGUOUS_NAME,
        code::TAG,
        code::ENCRYPTED,
        code::CHART,
        code::OCI_LAYOUT,
        code::DUPLICATE_KEY,
        code::YAML_LIMIT,
        code::NOT_UTF8,
        code::FILE_TOO_LARGE,
        code::OVER_BUDGET,
        code::SYMLINK,
        code::SUBMODULE,
        code::LFS_POINTER,
        code::NOT_AN_OBJECT,
        code::TYPE_MISSING,
        code::API_VERSION,
        code::UNKNOWN_KIND,
        code::LIST,
        code::GENERATE_NAME,
    ];
    CODES.contains(&code)
}

fn at(definition: &Definition, path: &[PathPart]) -> FilePosition {
    let (line, column) = definition.fields.position(path);
    FilePosition::at(&definition.place.path, line, column)
}

fn listed(names: &[&str]) -> String {
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{}`", yaml::short(name))).collect();
    let more = names.len().saturating_sub(LISTED_MAX);
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

fn place_text(diagnostic: &Diagnostic) -> String {
    diagnostic.place.as_ref().map_or_else(|| "an unknown location".to_owned(), ToString::to_string)
}
