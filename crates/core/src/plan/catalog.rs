//! The catalog: the modules that a runtime sees.
//!
//! Many Kymas see the same catalog, so it is computed once for a [`Class`] of Kymas.

use std::collections::BTreeSet;

use kube::core::SelectorExt as _;

use super::{Settings, module, selector};
use crate::{
    api::{Kyma, ModuleReleaseMeta, ModuleTemplate, module_release_meta::ChannelVersion, names},
    landscape::{self, Landscape},
    name::Key,
};

/// Everything that decides which modules a Kyma may see and use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// The Kyma's namespace. Definitions in other namespaces do not apply to it.
    pub namespace: String,
    /// Whether it may use beta modules.
    pub beta: bool,
    /// Whether it may use internal modules.
    pub internal: bool,
    /// The restricted modules that it may use.
    pub restricted: BTreeSet<String>,
}

/// The catalog of a class, in the order of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// ModuleReleaseMetas with their visible channels.
    pub releases: Vec<Release>,
    /// ModuleTemplates that [`Catalog::releases`] refer to.
    pub templates: Vec<Key>,
}

/// A ModuleReleaseMeta as a runtime sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// The ModuleReleaseMeta.
    pub key: Key,
    /// Its channels, without those that the runtime may not use.
    pub channels: Vec<ChannelVersion>,
}

/// The catalog of a class.
pub fn catalog(landscape: &Landscape, class: &Class, settings: &Settings) -> Catalog {
    let mut releases = Vec::new();
    let mut templates = BTreeSet::new();
    let ours = landscape.releases.iter().filter(|(key, _)| key.namespace() == class.namespace);
    for (key, release) in ours.filter(|(_, release)| release.spec.mandatory.is_none()) {
        if class.restriction(key.name(), release, settings).is_some() {
            continue;
        }
        let mut channels = Vec::new();
        for channel in &release.spec.channels {
            let template = module::template_key(&class.namespace, key.name(), &channel.version);
            let shown = landscape
                .templates
                .get(&template)
                .is_some_and(|found| !found.spec.mandatory && class.may_use(found).is_ok());
            if shown {
                channels.push(channel.clone());
                templates.insert(template);
            }
        }
        if !channels.is_empty() {
            releases.push(Release { key: key.clone(), channels });
        }
    }
    Catalog { releases, templates: templates.into_iter().collect() }
}

// === impl Class ===

impl Class {
    /// The class of a Kyma.
    pub fn for_kyma(landscape: &Landscape, kyma: &Kyma, settings: &Settings) -> Class {
        let key = landscape::key(&kyma.metadata);
        let none = std::collections::BTreeMap::new();
        let labels = kyma.metadata.labels.as_ref().unwrap_or(&none);
        let selected = |module: &&String| {
            let release = landscape.releases.get(&Key::new(key.namespace(), module));
            let chosen = release.and_then(|release| release.spec.kyma_selector.as_ref());
            // An empty selector selects nothing here: a restricted module is denied until a user allows it.
            let chosen = chosen.and_then(selector::parse);
            chosen.is_some_and(|chosen| !chosen.selects_all() && chosen.matches(labels))
        };
        Class {
            namespace: key.namespace().to_owned(),
            beta: is_true(landscape::label(&kyma.metadata, names::label::BETA)),
            internal: is_true(landscape::label(&kyma.metadata, names::label::INTERNAL)),
            restricted: settings.restricted_modules.iter().filter(selected).cloned().collect(),
        }
    }

    /// Whether the labels of a ModuleTemplate allow the class to use it. If not, fails with the
    /// word for its restriction.
    pub(super) fn may_use(&self, template: &ModuleTemplate) -> Result<(), &'static str> {
        if is_true(landscape::label(&template.metadata, names::label::INTERNAL)) && !self.internal {
            return Err("internal");
        }
        if is_true(landscape::label(&template.metadata, names::label::BETA)) && !self.beta {
            return Err("beta");
        }
        Ok(())
    }

    /// Why restriction keeps the class from a module, in Lifecycle Manager's words; `None` if it does not. A selector
    /// on an unrestricted module is a mistake, and denies access.
    pub(super) fn restriction(
        &self,
        module: &str,
        release: &ModuleReleaseMeta,
        settings: &Settings,
    ) -> Option<&'static str> {
        let is_listed = settings.restricted_modules.contains(module);
        match (is_listed, release.spec.kyma_selector.is_some()) {
            (false, false) => None,
            (true, _) if self.restricted.contains(module) => None,
            (false, true) => {
                Some("module template not allowed: module has kymaSelector but is not in restricted modules list")
            }
            (true, true) => Some("module template not allowed: restricted module not allowed for this Kyma"),
            (true, false) => Some("module template not allowed"),
        }
    }
}

fn is_true(label: Option<&str>) -> bool {
    label.is_some_and(landscape::says_true)
}
