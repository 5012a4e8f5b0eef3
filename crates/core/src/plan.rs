//! Interprets definitions: the modules and versions of a runtime, its catalog, and its watched
//! objects.
//!
//! Pure functions of a [`Landscape`]. The messages of refusals are Lifecycle Manager's, to the
//! letter, because tools and users search for them. This module creates no objects: `render` turns
//! a plan into objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde_json::Value;

use crate::{
    api::{
        Kyma, ModuleReleaseMeta,
        kyma::{KymaSpec, Module},
        names,
        shared::{CustomResourcePolicy, Manager, State},
    },
    component::Component,
    landscape::{self, Landscape},
    name::Key,
};

mod catalog;
pub mod certificate;
pub mod components;
mod install_source;
mod left;
mod mandatory;
mod manifest_name;
mod module;
pub mod reporting;
pub mod rollout;
pub mod selector;
pub mod setup;
pub mod window;

pub use catalog::{Catalog, Class, Release, catalog};
pub use components::{Answer, ComponentRecord, Components, Published};
pub use install_source::{InstallSource, ParseInstallSourceError, has_followed};
pub use left::LeftUnmanaged;
pub use mandatory::{InstalledModules, is_mandatory, is_mandatory_release};
pub use manifest_name::manifest_name;
pub use module::{components_named, is_denied};
pub use rollout::{HeldVersion, HeldVersions};
pub use window::{InstalledVersion, InstalledVersions, PolicyAt, RuntimeWindows, Wait, WaitFor, Windows};

/// What a plan depends on besides definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Default channel if neither the module nor the Kyma specifies one.
    pub default_channel: String,
    /// Modules that only Kymas selected by their ModuleReleaseMeta may use.
    pub restricted_modules: BTreeSet<String>,
    /// The Secret with which the images of modules are pulled in runtimes.
    pub pull_secret: Option<String>,
}

/// Who selects the modules of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModulesFrom {
    /// The Kyma in the runtime, once it exists.
    Runtime,
    /// The Kyma in KCP. Edits in the runtime are reverted.
    Git,
    /// The Kyma in KCP, plus modules that users add in the runtime.
    Merge,
}

/// The desired modules and catalog of one runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimePlan {
    /// The Kyma in KCP.
    pub kyma: Key,
    /// The modules that the Kyma selects, by name.
    pub modules: Vec<ModulePlan>,
    /// The modules that every Kyma has, by name. They decide their Manifests even if the Kyma selects them as well.
    pub mandatory: Vec<ModulePlan>,
    /// The class of its catalog: equal classes see equal catalogs, see [`catalog()`].
    pub class: Class,
}

/// The plan for one wanted module.
#[derive(Clone, Debug, PartialEq)]
pub struct ModulePlan {
    /// Name of the module.
    pub name: String,
    /// Its effective channel, or that it is mandatory.
    pub offer: Offer,
    /// Its component, if its objects are in a registry, and nothing but a maintenance window prevents its installation.
    pub component: Option<Component>,
    /// The decision.
    pub outcome: ModuleOutcome,
}

/// Where the version of a module is from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Offer {
    /// From a channel that the Kyma selects.
    Channel(String),
    /// From `spec.mandatory` of the ModuleReleaseMeta: every Kyma has the module.
    Mandatory,
}

/// The decision about one wanted module.
#[derive(Clone, Debug, PartialEq)]
pub enum ModuleOutcome {
    /// Its Manifest must match this description.
    Install(Box<Installation>),
    /// Another version stays installed until a maintenance window opens.
    Wait(Box<Wait>),
    /// It cannot be installed as requested.
    Refuse(Refusal),
    /// The user manages it: an existing Manifest gets the annotation `is-unmanaged`, and no new one
    /// is created.
    Unmanage,
}

/// Why a module cannot be installed as requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The machine-readable reason, in PascalCase.
    pub reason: &'static str,
    /// The module's state: Warning or Error, or Processing while its component is looked up.
    pub state: State,
    /// One sentence for the status of the module.
    pub message: String,
    /// What to do next, if Lifecycle Manager's sentence does not say it.
    pub hint: Option<String>,
    /// Whether an existing Manifest stays as it is. Otherwise it is deleted.
    pub keep: bool,
}

/// The content of a Manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    /// The Kyma in KCP.
    pub kyma: Key,
    /// Name of the Manifest, in the namespace of the Kyma.
    pub manifest_name: String,
    /// Module.
    pub module: String,
    /// OCM component.
    pub component: String,
    /// Version.
    pub version: String,
    /// Where the version is from.
    pub offer: Offer,
    /// The ModuleTemplate.
    pub template: Key,
    /// Its generation, for the status of the module.
    pub template_generation: Option<i64>,
    /// Policy for the default custom resource.
    pub policy: CustomResourcePolicy,
    /// The default custom resource, with name and namespace.
    pub default_resource: Option<Value>,
    /// Whether the default custom resource is cluster-scoped, according to the annotation of the
    /// ModuleTemplate.
    pub default_resource_cluster_scoped: bool,
    /// The workload that operates the module.
    pub manager: Option<Manager>,
    /// The specialised controller, from the label of the ModuleTemplate.
    pub controller: Option<String>,
    /// The source of the objects.
    pub source: InstallSource,
    /// Images that replace those in the objects.
    pub localized_images: Vec<String>,
    /// What the Manifest records of a component in a registry.
    pub record: ComponentRecord,
}

/// Reasons for refusals.
pub mod reason {
    /// The ModuleReleaseMeta does not exist.
    pub const NO_RELEASE: &str = "NoRelease";
    /// The channel is reserved, or the module does not have it.
    pub const NO_CHANNEL: &str = "NoChannel";
    /// The version has no ModuleTemplate.
    pub const NO_TEMPLATE: &str = "NoTemplate";
    /// The module is mandatory, internal, beta or restricted.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// A higher version is installed.
    pub const DOWNGRADE: &str = "Downgrade";
    /// The ModuleTemplate refers to objects in a repository, but no GitSource owns it.
    pub const NO_SOURCE: &str = "NoSource";
    /// The source of the objects is unknown.
    pub const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";
    /// The component of the module is being looked up.
    pub const COMPONENT_PENDING: &str = "ComponentPending";
    /// The component of the module cannot be read from its registry.
    pub const COMPONENT_FAILED: &str = "ComponentFailed";
    /// Neither ModuleReleaseMeta nor ModuleTemplate names the OCM component.
    pub const NO_COMPONENT: &str = "NoComponent";
    /// The ModuleReleaseMeta of a mandatory module is being deleted.
    pub const RELEASE_DELETED: &str = "ReleaseDeleted";
    /// An upgrade needs a maintenance window, and no policy is configured.
    pub const NO_MAINTENANCE_POLICY: &str = "NoMaintenancePolicy";
}

/// The reserved channel name.
pub const RESERVED_CHANNEL: &str = "none";

impl Default for Settings {
    fn default() -> Settings {
        Settings { default_channel: "regular".to_owned(), restricted_modules: BTreeSet::new(), pull_secret: None }
    }
}

/// What a ModuleReleaseMeta offers, and in which version.
pub fn offers(release: &ModuleReleaseMeta) -> impl Iterator<Item = (Offer, &str)> {
    let channels = &release.spec.channels;
    let channels = channels.iter().map(|entry| (Offer::Channel(entry.channel.clone()), entry.version.as_str()));
    let mandatory = release.spec.mandatory.as_ref();
    channels.chain(mandatory.map(|mandatory| (Offer::Mandatory, mandatory.version.as_str())))
}

/// Whether the downgrade guard can compare a version.
pub fn is_version(text: &str) -> bool {
    semver::Version::parse(text).is_ok()
}

/// Who selects the modules of a Kyma, from its annotation. Without a valid annotation: git, if git
/// declares the Kyma with a list of modules.
///
/// [`landscape::stamp`] annotates a Kyma that git declares with an empty list. So an empty list
/// without the annotation is that of another client, and takes no module from the runtime.
pub fn modules_from(kyma: &Kyma) -> ModulesFrom {
    match landscape::annotation(&kyma.metadata, names::annotation::MODULES_FROM) {
        Some("runtime") => ModulesFrom::Runtime,
        Some("git") => ModulesFrom::Git,
        Some("merge") => ModulesFrom::Merge,
        _ => {
            let from_git = landscape::label(&kyma.metadata, names::label::SOURCE).is_some();
            if from_git && !kyma.spec.modules.is_empty() { ModulesFrom::Git } else { ModulesFrom::Runtime }
        }
    }
}

/// The effective module list and channel, from the Kyma in KCP and the Kyma in the runtime, if that
/// exists.
///
/// Only the Kyma in KCP decides whether maintenance windows are skipped.
pub fn effective(kyma: &Kyma, runtime: Option<&KymaSpec>) -> KymaSpec {
    let Some(runtime) = runtime else { return kyma.spec.clone() };
    match modules_from(kyma) {
        ModulesFrom::Git => kyma.spec.clone(),
        ModulesFrom::Runtime => KymaSpec {
            channel: runtime.channel.clone(),
            skip_maintenance_windows: kyma.spec.skip_maintenance_windows,
            modules: runtime.modules.clone(),
        },
        ModulesFrom::Merge => {
            let declared: BTreeSet<&str> = kyma.spec.modules.iter().map(|module| module.name.as_str()).collect();
            let added = runtime.modules.iter().filter(|module| !declared.contains(module.name.as_str())).cloned();
            KymaSpec { modules: kyma.spec.modules.iter().cloned().chain(added).collect(), ..kyma.spec.clone() }
        }
    }
}

/// The effective module list and channel according to the control plane: the result of
/// [`effective`] without access to the runtime.
///
/// If the runtime selects its modules, the status of the Kyma names every wanted module. Everything
/// that the status lacks is taken from the Kyma in KCP.
pub fn reported(kyma: &Kyma) -> KymaSpec {
    let Some(status) = &kyma.status else { return kyma.spec.clone() };
    let mode = modules_from(kyma);
    let channel = match mode {
        ModulesFrom::Git | ModulesFrom::Merge => &kyma.spec.channel,
        ModulesFrom::Runtime => status.active_channel.as_ref().unwrap_or(&kyma.spec.channel),
    };
    let wished = status.modules.iter().filter(|module| module.state != State::Deleting).map(|module| {
        let known = kyma.spec.modules.iter().find(|known| known.name == module.name);
        Module {
            name: module.name.clone(),
            channel: module.channel.clone().filter(|own| own != channel),
            controller: known.and_then(|known| known.controller.clone()),
            custom_resource_policy: known.map(|known| known.custom_resource_policy).unwrap_or_default(),
            managed: module.state != State::Unmanaged,
            remote_module_template_ref: None,
        }
    });
    let runtime = KymaSpec { channel: channel.clone(), modules: wished.collect(), ..KymaSpec::default() };
    effective(kyma, Some(&runtime))
}

/// The plan of one runtime. `spec` is the result of [`effective`], `components` that of [`Components::seen_by`].
/// `installed` are the modules that the Kyma has Manifests of: no mandatory one gets a lower version.
pub fn runtime(
    landscape: &Landscape,
    components: &Components,
    kyma: &Kyma,
    spec: &KymaSpec,
    settings: &Settings,
    installed: &InstalledModules,
    windows: Windows<'_>,
) -> RuntimePlan {
    let class = Class::for_kyma(landscape, kyma, settings);
    let wanted: BTreeMap<&str, &Module> = spec.modules.iter().map(|module| (module.name.as_str(), module)).collect();
    let inputs = module::Inputs { landscape, components, kyma, class: &class, spec, settings, windows };
    let modules = wanted.values().map(|module| module::plan(inputs, module)).collect();
    let mandatory = mandatory::plan(inputs, installed);
    RuntimePlan { kyma: landscape::key(&kyma.metadata), modules, mandatory, class }
}

// === impl RuntimePlan ===

impl RuntimePlan {
    /// The modules that decide Manifests, by name: the mandatory ones, and the others that the Kyma selects.
    pub fn deciding(&self) -> Vec<&ModulePlan> {
        let selected = self.modules.iter().filter(|module| !self.has_mandatory(&module.name));
        let mut all: Vec<&ModulePlan> = self.mandatory.iter().chain(selected).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The same, as values.
    pub fn into_deciding(self) -> Vec<ModulePlan> {
        self.deciding().into_iter().cloned().collect()
    }

    /// Whether a module of this name is mandatory, and decides the Manifest.
    pub fn has_mandatory(&self, module: &str) -> bool {
        self.mandatory.iter().any(|mandatory| mandatory.name == module)
    }
}

// === impl Offer ===

impl Offer {
    /// Its channel; none for a mandatory module.
    pub fn channel(&self) -> Option<&str> {
        match self {
            Offer::Channel(channel) => Some(channel),
            Offer::Mandatory => None,
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.channel().unwrap_or("mandatory"))
    }
}

/// The installation of a module whose removal waits: the version that `channel` offers now, which the removal may need.
/// `None` if the channel offers none, or if the runtime may not use it.
pub fn leaving(
    landscape: &Landscape,
    components: &Components,
    kyma: &Kyma,
    module: &str,
    channel: &str,
    settings: &Settings,
) -> Option<Box<Installation>> {
    let class = Class::for_kyma(landscape, kyma, settings);
    let windows = Windows::Unknown;
    let inputs = module::Inputs { landscape, components, kyma, class: &class, spec: &kyma.spec, settings, windows };
    let module = Module {
        name: module.to_owned(),
        channel: Some(channel.to_owned()),
        controller: None,
        custom_resource_policy: CustomResourcePolicy::default(),
        managed: true,
        remote_module_template_ref: None,
    };
    match module::plan(inputs, &module).outcome {
        ModuleOutcome::Install(installation) => Some(installation),
        ModuleOutcome::Wait(_) | ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
    }
}

// === impl ModuleOutcome ===

impl ModuleOutcome {
    /// What the Manifest must match now; `None` if it stays as it is or goes.
    pub fn installed(&self) -> Option<&Installation> {
        match self {
            ModuleOutcome::Install(installation) => Some(installation),
            ModuleOutcome::Wait(wait) => wait.kept.as_ref(),
            ModuleOutcome::Refuse(_) | ModuleOutcome::Unmanage => None,
        }
    }
}

// === impl Refusal ===

impl Refusal {
    fn error(reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { reason, state: State::Error, message: message.into(), hint: None, keep: true }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { state: State::Warning, ..Refusal::error(reason, message) }
    }

    fn waiting(reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { state: State::Processing, ..Refusal::error(reason, message) }
    }

    fn uninstalling(self) -> Refusal {
        Refusal { keep: false, ..self }
    }

    fn hint(self, hint: impl Into<String>) -> Refusal {
        Refusal { hint: Some(hint.into()), ..self }
    }
}

#[cfg(test)]
mod tests;
