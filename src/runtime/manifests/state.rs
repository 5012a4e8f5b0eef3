//! The Manifests of a Kyma by module, before and after a pass. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_core::{
    api::{Manifest, names::label, shared::ObjectMeta},
    landscape,
    status::{Failure, ModuleFact, Planned},
};

use crate::runtime::manifest::is_released;

/// Label of Manifests of mandatory modules, which no Kyma selects.
const MANDATORY: &str = "operator.kyma-project.io/mandatory-module";

/// The Manifests of the modules that a Kyma can select, before the pass.
#[derive(Debug)]
pub(super) struct LiveManifests<'a>(BTreeMap<&'a str, &'a Arc<Manifest>>);

/// The modules of a runtime, after their Manifests were applied or deleted.
#[derive(Debug)]
pub(in crate::runtime) struct Modules {
    /// The Manifests that exist, including those that are being deleted.
    pub(in crate::runtime) present: Vec<Arc<Manifest>>,
    /// When to check Manifests again that may be orphans.
    pub(in crate::runtime) again: Option<Duration>,
    planned: Vec<(String, Planned)>,
    /// Why Manifests were not rendered.
    problems: Vec<String>,
}

// === impl LiveManifests ===

impl<'a> LiveManifests<'a> {
    pub(super) fn new(manifests: &'a [Arc<Manifest>]) -> LiveManifests<'a> {
        let selectable = manifests.iter().filter(|manifest| landscape::label(&manifest.metadata, MANDATORY).is_none());
        LiveManifests(selectable.filter_map(|manifest| Some((module_of(&manifest.metadata)?, manifest))).collect())
    }

    /// The Manifest of a module.
    pub(super) fn get(&self, module: &str) -> Option<&'a Arc<Manifest>> {
        self.0.get(module).copied()
    }

    /// All of them, by module.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a Arc<Manifest>)> {
        self.0.iter().map(|(&module, &manifest)| (module, manifest))
    }
}

// === impl Modules ===

impl Modules {
    pub(super) fn new(problems: Vec<String>) -> Modules {
        Modules { present: Vec::new(), again: None, planned: Vec::new(), problems }
    }

    /// Notes when to check a Manifest again that may be an orphan.
    pub(super) fn wait(&mut self, again: Option<Duration>) {
        self.again = self.again.into_iter().chain(again).min();
    }

    /// Adds a module with its Manifest, if that exists.
    pub(super) fn push(&mut self, name: String, planned: Planned, present: Option<Arc<Manifest>>) {
        self.planned.push((name, planned));
        self.present.extend(present);
    }

    /// The facts about each module for the status. `passed` are the Manifests after the passes over them.
    pub(in crate::runtime) fn facts(&self, passed: &[Arc<Manifest>]) -> Vec<ModuleFact> {
        let by_module: BTreeMap<&str, &Arc<Manifest>> =
            passed.iter().filter_map(|manifest| Some((module_of(&manifest.metadata)?, manifest))).collect();
        // A Manifest that a pass has just released no longer exists, even if the watch still shows it.
        let present = |name: &str| by_module.get(name).filter(|manifest| !is_released(manifest));
        let fact = |(name, planned): &(String, Planned)| ModuleFact {
            name: name.clone(),
            planned: planned.clone(),
            manifest: present(name).map(|manifest| Arc::clone(manifest)),
        };
        self.planned.iter().map(fact).collect()
    }

    /// Why Manifests were not rendered, if any were not.
    pub(in crate::runtime) fn failure(&self) -> Option<Failure> {
        self.problems.first().map(|message| Failure { reason: "RenderFailed", message: message.clone(), access: false })
    }
}

/// The module of a Manifest.
pub(in crate::runtime) fn module_of(metadata: &ObjectMeta) -> Option<&str> {
    landscape::label(metadata, label::MODULE_NAME)
}
