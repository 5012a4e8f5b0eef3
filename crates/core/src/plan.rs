//! What definitions mean: which modules a runtime gets in which version, what it sees of the catalog, what is watched.
//!
//! Pure functions of a [`Landscape`]. Messages of refusals are Lifecycle Manager's, to the letter, because tools and
//! people search for them. This module writes no objects: `render` turns a plan into objects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    api::{
        Kyma,
        kyma::{KymaSpec, Module},
        names,
        shared::{CustomResourcePolicy, Manager, State},
    },
    landscape::{self, Landscape},
    name::Key,
};

mod catalog;
pub mod certificate;
mod install_source;
mod manifest_name;
mod module;
pub mod selector;
pub mod watch;

pub use catalog::{Catalog, Class, Release, catalog};
pub use install_source::{InstallSource, ParseInstallSourceError};
pub use manifest_name::manifest_name;

/// What a plan depends on beside definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Channel where neither module nor Kyma names one.
    pub default_channel: String,
    /// Modules that only Kymas selected by their ModuleReleaseMeta may use.
    pub restricted_modules: BTreeSet<String>,
}

/// Who decides which modules a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModulesFrom {
    /// The Kyma in the runtime, once it exists.
    Runtime,
    /// The Kyma in KCP; edits in the runtime are reverted.
    Git,
    /// The Kyma in KCP, and in the runtime users may add modules.
    Merge,
}

/// What one runtime shall have.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimePlan {
    /// The Kyma in KCP.
    pub kyma: Key,
    /// The wanted modules, by name.
    pub modules: Vec<ModulePlan>,
    /// Which catalog the runtime sees: equal classes see equal catalogs, see [`catalog()`].
    pub class: Class,
}

/// What becomes of one wanted module.
#[derive(Clone, Debug, PartialEq)]
pub struct ModulePlan {
    /// Name of the module.
    pub name: String,
    /// The channel that counts.
    pub channel: String,
    /// What becomes of it.
    pub outcome: ModuleOutcome,
}

/// What becomes of one wanted module.
#[derive(Clone, Debug, PartialEq)]
pub enum ModuleOutcome {
    /// Its Manifest is to be as described.
    Install(Box<Installation>),
    /// It cannot be installed as asked.
    Refuse(Refusal),
    /// The user takes care of it: an existing Manifest gets the annotation `is-unmanaged`, none is created.
    Unmanage,
}

/// Why a module cannot be installed as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// One word for programs, in PascalCase.
    pub reason: &'static str,
    /// The module's state: Warning or Error.
    pub state: State,
    /// One sentence for the module's status.
    pub message: String,
    /// What to do next, where there is more to say than Lifecycle Manager's sentence.
    pub hint: Option<String>,
    /// Whether an existing Manifest stays as it is; otherwise it is to be deleted.
    pub keep: bool,
}

/// Everything that a Manifest says.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    /// The Kyma in KCP.
    pub kyma: Key,
    /// Name of the Manifest, in the Kyma's namespace.
    pub manifest_name: String,
    /// Module.
    pub module: String,
    /// OCM component.
    pub component: String,
    /// Version.
    pub version: String,
    /// Channel from which the version came.
    pub channel: String,
    /// The ModuleTemplate.
    pub template: Key,
    /// Its generation, for the module's status.
    pub template_generation: Option<i64>,
    /// What becomes of the default custom resource.
    pub policy: CustomResourcePolicy,
    /// The default custom resource, with name and namespace.
    pub default_resource: Option<Value>,
    /// Whether the default custom resource is cluster-scoped, by the ModuleTemplate's annotation.
    pub default_resource_cluster_scoped: bool,
    /// The workload that operates the module.
    pub manager: Option<Manager>,
    /// The specialised controller, by the ModuleTemplate's label.
    pub controller: Option<String>,
    /// Where the objects come from.
    pub source: InstallSource,
    /// Images that replace those named in the objects.
    pub localized_images: Vec<String>,
}

/// Reasons of refusals.
pub mod reason {
    /// There is no ModuleReleaseMeta of that name.
    pub const NO_RELEASE: &str = "NoRelease";
    /// The channel is reserved, or the module does not have it.
    pub const NO_CHANNEL: &str = "NoChannel";
    /// The version has no ModuleTemplate.
    pub const NO_TEMPLATE: &str = "NoTemplate";
    /// The module is mandatory, internal, beta or restricted.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// A higher version is installed.
    pub const DOWNGRADE: &str = "Downgrade";
    /// The ModuleTemplate takes its objects from a repository, but no GitSource owns it.
    pub const NO_SOURCE: &str = "NoSource";
    /// Where the objects come from is not known or not supported.
    pub const SOURCE_UNAVAILABLE: &str = "SourceUnavailable";
    /// Neither ModuleReleaseMeta nor ModuleTemplate names the OCM component.
    pub const NO_COMPONENT: &str = "NoComponent";
}

/// The channel name that must not be used.
pub const RESERVED_CHANNEL: &str = "none";

impl Default for Settings {
    fn default() -> Settings {
        Settings { default_channel: "regular".to_owned(), restricted_modules: BTreeSet::new() }
    }
}

/// Whether the downgrade guard can judge a version.
pub fn is_version(text: &str) -> bool {
    semver::Version::parse(text).is_ok()
}

/// Who decides a Kyma's modules: its annotation; without a known value git, where git declares the Kyma with a list of
/// modules, be it an empty one.
pub fn modules_from(kyma: &Kyma) -> ModulesFrom {
    match landscape::annotation(&kyma.metadata, names::annotation::MODULES_FROM) {
        Some("runtime") => ModulesFrom::Runtime,
        Some("git") => ModulesFrom::Git,
        Some("merge") => ModulesFrom::Merge,
        _ => {
            let from_git = landscape::label(&kyma.metadata, names::label::SOURCE).is_some();
            if from_git && !kyma.spec.modules.is_absent() { ModulesFrom::Git } else { ModulesFrom::Runtime }
        }
    }
}

/// The module list and channel that count, from the Kyma in KCP and the one in the runtime, if that exists.
///
/// Whether maintenance windows are skipped is decided in KCP alone.
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

/// The module list and channel that count, as far as the control plane tells: what [`effective`] would give, without a
/// look into the runtime.
///
/// Where the runtime decides, its wishes are known from the Kyma's status, which names every module that is wanted; what
/// a status does not tell is as the Kyma in KCP has it.
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

/// What one runtime shall have; `spec` is what [`effective`] gave.
pub fn runtime(landscape: &Landscape, kyma: &Kyma, spec: &KymaSpec, settings: &Settings) -> RuntimePlan {
    let class = Class::of(landscape, kyma, settings);
    let wanted: BTreeMap<&str, &Module> = spec.modules.iter().map(|module| (module.name.as_str(), module)).collect();
    let modules = wanted.values().map(|module| module::plan(landscape, kyma, &class, spec, module, settings)).collect();
    RuntimePlan { kyma: landscape::key(&kyma.metadata), modules, class }
}

// === impl Refusal ===

impl Refusal {
    fn error(reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { reason, state: State::Error, message: message.into(), hint: None, keep: true }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { state: State::Warning, ..Refusal::error(reason, message) }
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
