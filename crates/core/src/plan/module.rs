//! Resolves one wanted module of one Kyma: from channel to version to ModuleTemplate to
//! installation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{
    Answer, Class, ComponentRecord, Components, InstallSource, Installation, InstalledVersion, ModuleOutcome,
    ModulePlan, Offer, Published, RESERVED_CHANNEL, Refusal, Settings, Wait, WaitFor, Windows, manifest_name, offers,
    reason, rollout,
    window::{self, Gate},
};
use crate::{
    api::{
        Kyma, ModuleReleaseMeta, ModuleTemplate,
        kyma::{KymaSpec, Module},
        names,
        shared::CustomResourcePolicy,
    },
    component::{Component, Source},
    content::ContentId,
    landscape::{self, Landscape, SourceName},
    name::Key,
};

/// The ModuleTemplate of a version.
pub(super) fn template_key(namespace: &str, module: &str, version: &str) -> Key {
    Key::new(namespace, &format!("{module}-{version}"))
}

/// What the plans of all modules of a runtime depend on.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) landscape: &'a Landscape,
    pub(super) components: &'a Components,
    pub(super) kyma: &'a Kyma,
    pub(super) class: &'a Class,
    pub(super) spec: &'a KymaSpec,
    pub(super) settings: &'a Settings,
    pub(super) windows: Windows<'a>,
}

pub(super) fn plan(inputs: Inputs<'_>, module: &Module) -> ModulePlan {
    let Inputs { landscape, kyma, class, spec, settings, .. } = inputs;
    let channel = channel_of(module, spec, settings).to_owned();
    let resolved = module.managed.then(|| {
        resolve(landscape, class, &module.name, &channel, settings)
            .and_then(|found| guard_downgrade(kyma, module, &channel, &found).map(|()| found))
    });
    let wanted = Wanted { name: &module.name, offer: Offer::Channel(channel), policy: module.custom_resource_policy };
    match resolved {
        Some(resolved) => wanted.plan(inputs, resolved),
        None => {
            let Wanted { name, offer, .. } = wanted;
            ModulePlan { name: name.to_owned(), offer, component: None, outcome: ModuleOutcome::Unmanage }
        }
    }
}

/// A module that is wanted, and how.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) offer: Offer,
    pub(super) policy: CustomResourcePolicy,
}

/// The components in registries that channels offer or that are mandatory, with their ModuleTemplates. Other versions
/// are not looked up before a runtime wants them.
pub fn components_named(landscape: &Landscape) -> BTreeMap<Component, BTreeSet<Key>> {
    let mut named: BTreeMap<Component, BTreeSet<Key>> = BTreeMap::new();
    for (key, release) in &landscape.releases {
        for (_, version) in offers(release) {
            let template = template_key(key.namespace(), key.name(), version);
            let found = landscape.templates.get(&template);
            if let Some(component) = found.and_then(|found| in_registry(release, found, version)) {
                named.entry(component).or_default().insert(template);
            }
        }
    }
    named
}

/// The component of a ModuleTemplate whose objects are in a registry.
fn in_registry(release: &ModuleReleaseMeta, template: &ModuleTemplate, version: &str) -> Option<Component> {
    if landscape::annotation(&template.metadata, names::annotation::MODULE_PATH).is_some() {
        return None;
    }
    Component::new(component(release, template)?, version).ok()
}

/// The definitions of a module.
pub(super) struct ModuleDefinitions<'a> {
    release: &'a ModuleReleaseMeta,
    template: &'a ModuleTemplate,
    key: Key,
    version: &'a str,
}

/// Resolves the channel to a ModuleTemplate, with the checks in Lifecycle Manager's order.
fn resolve<'a>(
    landscape: &'a Landscape,
    class: &Class,
    name: &str,
    channel: &str,
    settings: &Settings,
) -> Result<ModuleDefinitions<'a>, Refusal> {
    if channel == RESERVED_CHANNEL {
        let message = format!("invalid kyma spec: channel `{RESERVED_CHANNEL}` of module {name} is reserved");
        return Err(Refusal::error(reason::NO_CHANNEL, message));
    }
    let Some(release) = landscape.releases.get(&Key::new(&class.namespace, name)) else {
        return Err(Refusal::warning(reason::NO_RELEASE, "no ModuleReleaseMeta found"));
    };
    if release.spec.mandatory.is_some() {
        // Every runtime has it anyway. Upstream lets users enable it if its template lacks the marker.
        return Err(no_templates(name, channel));
    }
    if release.spec.channels.is_empty() {
        return Err(Refusal::error(reason::NO_CHANNEL, "no channels found for module"));
    }
    let version = release.spec.channels.iter().find(|entry| entry.channel == channel);
    let Some(version) = version.map(|entry| entry.version.as_str()) else {
        let message = format!("no versions found for channel: {channel} in module {name}");
        return Err(Refusal::error(reason::NO_CHANNEL, message));
    };
    let found = ModuleDefinitions::new(landscape, &class.namespace, name, release, version)?;
    class.may_use(found.template).map_err(not_allowed)?;
    if found.template.spec.mandatory {
        return Err(no_templates(name, channel));
    }
    if let Some(message) = class.restriction(name, release, settings) {
        return Err(Refusal::error(reason::NOT_ALLOWED, message).uninstalling());
    }
    Ok(found)
}

/// Whether a Kyma, whose effective modules `spec` has, must not have one of them, so that it is uninstalled: it is for
/// internal or beta runtimes, or for those that its ModuleReleaseMeta selects.
pub fn is_denied(landscape: &Landscape, kyma: &Kyma, spec: &KymaSpec, module: &Module, settings: &Settings) -> bool {
    let class = Class::for_kyma(landscape, kyma, settings);
    let channel = channel_of(module, spec, settings);
    module.managed && resolve(landscape, &class, &module.name, channel, settings).is_err_and(|refusal| !refusal.keep)
}

/// The channel from which a runtime has a module.
fn channel_of<'a>(module: &'a Module, spec: &'a KymaSpec, settings: &'a Settings) -> &'a str {
    let named = [module.channel.as_deref(), Some(spec.channel.as_str())];
    let channel = named.into_iter().flatten().find(|channel| !channel.is_empty());
    channel.unwrap_or(&settings.default_channel)
}

/// A user cannot enable a module that is mandatory. The sentence ends with a space, as Lifecycle Manager's.
fn no_templates(module: &str, channel: &str) -> Refusal {
    let message = format!("no templates were found: for module {module} in channel {channel} ");
    Refusal::warning(reason::NOT_ALLOWED, message)
}

/// A module that the runtime may not use is uninstalled.
fn not_allowed(what: &str) -> Refusal {
    Refusal::error(reason::NOT_ALLOWED, format!("module template not allowed: {what} module")).uninstalling()
}

/// Rejects a version below the installed one, unless a definition allows exactly this downgrade.
fn guard_downgrade(kyma: &Kyma, module: &Module, channel: &str, found: &ModuleDefinitions<'_>) -> Result<(), Refusal> {
    let installed = kyma.status.iter().flat_map(|status| &status.modules).find(|status| status.name == module.name);
    let Some(installed) = installed else { return Ok(()) };
    let Some(version) = installed.version.as_deref() else { return Ok(()) };
    found.guard_downgrade(kyma, &module.name, version, || {
        format!(
            "module template update not allowed: ignore channel skew (from {} to {channel}), \
             as a higher version ({version}) of the module was previously installed",
            installed.channel.as_deref().unwrap_or_default(),
        )
    })
}

// === impl ModuleDefinitions ===

impl<'a> ModuleDefinitions<'a> {
    /// The definitions of a version of a module. Refused without a ModuleTemplate.
    pub(super) fn new(
        landscape: &'a Landscape,
        namespace: &str,
        module: &str,
        release: &'a ModuleReleaseMeta,
        version: &'a str,
    ) -> Result<ModuleDefinitions<'a>, Refusal> {
        let key = template_key(namespace, module, version);
        let template = landscape.templates.get(&key).ok_or_else(|| {
            let name = key.name();
            let message =
                format!("failed to get module template: ModuleTemplate.operator.kyma-project.io \"{name}\" not found");
            Refusal::error(reason::NO_TEMPLATE, message)
        })?;
        Ok(ModuleDefinitions { release, template, key, version })
    }

    /// Refuses this version with `message` if `installed` is higher, unless a definition allows exactly this downgrade.
    pub(super) fn guard_downgrade(
        &self,
        kyma: &Kyma,
        module: &str,
        installed: &str,
        message: impl FnOnce() -> String,
    ) -> Result<(), Refusal> {
        let (Ok(from), Ok(to)) = (semver::Version::parse(installed), semver::Version::parse(self.version)) else {
            return Ok(());
        };
        let is_allowed = || {
            [&self.release.metadata, &kyma.metadata].iter().any(|metadata| {
                let listed = landscape::annotation(metadata, names::annotation::ALLOW_DOWNGRADE).unwrap_or_default();
                listed.split(',').any(|name| name.trim() == self.key.name())
            })
        };
        if from.cmp_precedence(&to).is_le() || is_allowed() {
            return Ok(());
        }
        let hint = format!(
            "to go back to {}, commit annotation `{}: {}` on ModuleReleaseMeta {module} or on the Kyma",
            self.version,
            names::annotation::ALLOW_DOWNGRADE,
            self.key.name(),
        );
        Err(Refusal::warning(reason::DOWNGRADE, message()).hint(hint))
    }
}

// === impl Wanted ===

impl Wanted<'_> {
    /// The plan for the module, once its definitions are resolved.
    pub(super) fn plan(self, inputs: Inputs<'_>, resolved: Result<ModuleDefinitions<'_>, Refusal>) -> ModulePlan {
        let published = |found: &ModuleDefinitions<'_>| in_registry(found.release, found.template, found.version);
        let component = resolved.as_ref().ok().and_then(published);
        let decided = resolved.and_then(|found| self.install_or_wait(inputs, &found));
        let outcome = decided.unwrap_or_else(ModuleOutcome::Refuse);
        ModulePlan { name: self.name.to_owned(), offer: self.offer, component, outcome }
    }

    /// Installs what was found, unless that waits for a maintenance window or for its turn in a rollout. Mandatory
    /// modules wait for no window.
    fn install_or_wait(&self, inputs: Inputs<'_>, found: &ModuleDefinitions<'_>) -> Result<ModuleOutcome, Refusal> {
        let Inputs { components, kyma, .. } = inputs;
        let coming = || installation(components, kyma, self, found);
        let windows = match &self.offer {
            Offer::Channel(_) => inputs.windows,
            Offer::Mandatory => Windows::Unknown,
        };
        let (why, installed, next) = match window::gate(windows, kyma, self.name, found.template, found.version)? {
            Gate::Open => match rollout::held(inputs.windows, self.name, found.version) {
                None => return Ok(ModuleOutcome::Install(Box::new(coming()?))),
                Some((installed, hold)) => (WaitFor::Rollout(hold.clone()), installed, hold.until()),
            },
            Gate::Closed { installed, next } => (WaitFor::Window, installed, next),
        };
        Ok(ModuleOutcome::Wait(Box::new(Wait {
            why,
            from: installed.version.clone(),
            to: found.version.to_owned(),
            next,
            kept: self.kept(inputs, found, installed),
            coming: coming(),
        })))
    }

    /// The installed version, if its ModuleTemplate still exists and says where its objects are. If a user has edited
    /// the version in the Manifest, the status of the Kyma still names the installed one.
    fn kept(
        &self,
        inputs: Inputs<'_>,
        found: &ModuleDefinitions<'_>,
        installed: &InstalledVersion,
    ) -> Option<Installation> {
        let Inputs { landscape, components, kyma, class, .. } = inputs;
        let reported = window::installed_in_status(kyma).remove(self.name);
        let (installed, key, template) =
            [Some(installed), reported.as_ref()].into_iter().flatten().find_map(|one| {
                let key = template_key(&class.namespace, self.name, &one.version);
                let template = landscape.templates.get(&key)?;
                Some((one, key, template))
            })?;
        let former = ModuleDefinitions { release: found.release, template, key, version: &installed.version };
        let offer = installed.channel.clone().map_or_else(|| self.offer.clone(), Offer::Channel);
        let wanted = Wanted { name: self.name, offer, policy: self.policy };
        installation(components, kyma, &wanted, &former).ok()
    }
}

fn installation(
    components: &Components,
    kyma: &Kyma,
    wanted: &Wanted<'_>,
    found: &ModuleDefinitions<'_>,
) -> Result<Installation, Refusal> {
    let kyma_key = landscape::key(&kyma.metadata);
    let component = component(found.release, found.template).ok_or_else(|| {
        let message = format!("ModuleReleaseMeta {} does not name an OCM component", wanted.name);
        Refusal::error(reason::NO_COMPONENT, message).hint("set `spec.ocmComponentName`")
    })?;
    let Origin { source, localized_images, record } = origin(components, component, found)?;
    let manifest_name = manifest_name(kyma_key.name(), component, wanted.name);
    let metadata = &found.template.metadata;
    let spec = &found.template.spec;
    let cluster_scoped = landscape::annotation(metadata, names::annotation::IS_CLUSTER_SCOPED);
    Ok(Installation {
        default_resource: spec.data.as_ref().map(|data| default_resource(data, &manifest_name)),
        default_resource_cluster_scoped: cluster_scoped == Some("true"),
        kyma: kyma_key,
        manifest_name,
        module: wanted.name.to_owned(),
        component: component.to_owned(),
        version: found.version.to_owned(),
        offer: wanted.offer.clone(),
        template: found.key.clone(),
        template_generation: metadata.generation,
        policy: wanted.policy,
        manager: spec.manager.clone(),
        controller: landscape::label(metadata, names::label::CONTROLLER_NAME).map(str::to_owned),
        source,
        localized_images,
        record,
    })
}

/// The OCM component from the ModuleReleaseMeta, otherwise from an inline descriptor.
fn component<'a>(release: &'a ModuleReleaseMeta, template: &'a ModuleTemplate) -> Option<&'a str> {
    let descriptor = || template.spec.descriptor.pointer("/component/name").and_then(Value::as_str);
    release.spec.ocm_component_name.as_deref().or_else(descriptor).filter(|name| !name.is_empty())
}

/// Where the objects of a module are from.
struct Origin {
    source: InstallSource,
    localized_images: Vec<String>,
    record: ComponentRecord,
}

/// A ModuleTemplate whose annotation names a path has its objects in git, any other in a registry.
fn origin(components: &Components, component: &str, found: &ModuleDefinitions<'_>) -> Result<Origin, Refusal> {
    match landscape::annotation(&found.template.metadata, names::annotation::MODULE_PATH) {
        Some(path) => Ok(Origin {
            source: git_source(found, path)?,
            localized_images: Vec::new(),
            record: ComponentRecord::default(),
        }),
        None => published(components, component, found.version)
            .or_else(|refusal| installed_from_git(components, component, found).ok_or(refusal)),
    }
}

/// The objects in git that a runtime has, of a ModuleTemplate that no GitSource owns and whose component is not found:
/// `tidegate adopt release` has removed the annotation with their path. What is installed stays.
fn installed_from_git(components: &Components, component: &str, found: &ModuleDefinitions<'_>) -> Option<Origin> {
    if landscape::label(&found.template.metadata, names::label::SOURCE).is_some() {
        return None;
    }
    let component = Component::new(component, found.version).ok()?;
    let source = components.installed_from_git(&component)?.clone();
    Some(Origin { source, localized_images: Vec::new(), record: ComponentRecord::default() })
}

/// The objects of a component in a registry.
fn published(components: &Components, name: &str, version: &str) -> Result<Origin, Refusal> {
    let component = Component::new(name, version)
        .map_err(|error| Refusal::error(reason::NO_COMPONENT, error.to_string()).hint(COMPONENT_HINT))?;
    match components.get(&component) {
        Answer::Found(found) => {
            let Published { repo, module, record } = &**found;
            let layer = module.layer;
            let source = Source { repo: repo.clone(), name: component.name, digest: layer.digest, kind: layer.kind };
            Ok(Origin {
                source: InstallSource::Oci(source),
                localized_images: module.localized_images.clone(),
                record: *record,
            })
        }
        Answer::Pending => {
            let message = format!("waiting for the component descriptor of {component}");
            Err(Refusal::waiting(reason::COMPONENT_PENDING, message))
        }
        Answer::Failed(message) => {
            Err(Refusal::error(reason::COMPONENT_FAILED, format!("error finding ComponentDescriptor: {message}")))
        }
        Answer::Unknown(message) => {
            Err(Refusal::error(reason::SOURCE_UNAVAILABLE, format!("{component} is not known offline: {message}")))
        }
    }
}

/// What to do about a component whose name or version is invalid.
const COMPONENT_HINT: &str =
    "the component is `spec.ocmComponentName` of the ModuleReleaseMeta in `spec.version` of the ModuleTemplate";

/// The objects of a module in git.
fn git_source(found: &ModuleDefinitions<'_>, path: &str) -> Result<InstallSource, Refusal> {
    let metadata = &found.template.metadata;
    let name = found.key.name();
    let Some(source) = SourceName::from_metadata(metadata) else {
        if let Some(left_by) = landscape::annotation(metadata, names::annotation::SOURCE) {
            let message = format!(
                "ModuleTemplate {name} was left by GitSource {left_by}, which does not own it any more; what is \
                 installed stays as it is"
            );
            let hint = "apply the GitSource again, or declare the ModuleTemplate in another one";
            return Err(Refusal::warning(reason::NO_SOURCE, message).hint(hint));
        }
        let message = format!(
            "ModuleTemplate {name} has annotation {}, but no GitSource owns it",
            names::annotation::MODULE_PATH
        );
        let hint = "declare the ModuleTemplate in the repository that has the module's objects";
        return Err(Refusal::error(reason::NO_SOURCE, message).hint(hint));
    };
    let tree = landscape::annotation(metadata, names::annotation::MODULE_TREE).and_then(|tree| tree.parse().ok());
    let Some(tree) = tree else {
        let message = format!("ModuleTemplate {name} does not specify the git tree of its objects");
        return Err(Refusal::error(reason::SOURCE_UNAVAILABLE, message));
    };
    Ok(InstallSource::Git { source: source.key().clone(), path: path.to_owned(), tree })
}

// === impl Installation ===

impl Installation {
    /// What identifies its objects.
    pub fn content(&self) -> ContentId {
        self.source.content(&self.localized_images)
    }

    /// The same module for another Kyma of the same namespace: only the names differ.
    #[must_use]
    pub fn of_kyma(&self, landscape: &Landscape, kyma: Key) -> Installation {
        let manifest_name = manifest_name(kyma.name(), &self.component, &self.module);
        let template = landscape.templates.get(&self.template);
        let data = template.and_then(|template| template.spec.data.as_ref());
        Installation {
            default_resource: data.map(|data| default_resource(data, &manifest_name)),
            kyma,
            manifest_name,
            ..self.clone()
        }
    }
}

/// The default custom resource, with the name of the Manifest, in the system namespace of the
/// runtime unless it specifies others.
fn default_resource(data: &Value, manifest_name: &str) -> Value {
    let mut data = data.clone();
    if let Some(map) = data.as_object_mut() {
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            for (field, default) in [("name", manifest_name), ("namespace", names::SKR_NAMESPACE)] {
                let given = metadata.get(field).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
                if !given {
                    metadata.insert(field.to_owned(), Value::from(default));
                }
            }
        }
    }
    data
}
