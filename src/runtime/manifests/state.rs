//! The Manifests of a Kyma by module, before and after a pass. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tidegate_core::{
    api::{
        Manifest,
        names::label,
        shared::{ObjectMeta, State},
    },
    landscape,
    plan::{self, RuntimePlan},
    status::{Failure, MandatoryFact, ModuleFact, Planned},
};

use crate::runtime::manifest::is_released;

/// The Manifests of a Kyma by module, before the pass.
///
/// A module has one Manifest. It has several after its component got another name, because the name of a Manifest
/// contains a hash of it: the one with the name of the plan, or else the newest, is its Manifest.
#[derive(Debug)]
pub(crate) struct LiveManifests<'a>(BTreeMap<&'a str, OfModule<'a>>);

/// The Manifests of one module.
#[derive(Debug)]
struct OfModule<'a> {
    manifest: &'a Arc<Manifest>,
    others: Vec<&'a Arc<Manifest>>,
}

/// The modules of a runtime, after their Manifests were applied or deleted.
#[derive(Debug)]
pub(in crate::runtime) struct Modules {
    /// The Manifests that exist, including those that are being deleted.
    pub(in crate::runtime) present: Vec<Arc<Manifest>>,
    /// When to check Manifests again that may be orphans.
    pub(in crate::runtime) again: Option<Duration>,
    roles: Vec<(String, Role)>,
    /// Why Manifests were not rendered.
    problems: Vec<String>,
}

/// What a module is to a Kyma.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::runtime) enum Role {
    /// The Kyma selects or selected it. Contains the decision of the plan, for its status.
    Selected(Planned),
    /// It is or was mandatory: the status of the Kyma does not list it.
    Mandatory {
        /// Why it is not installed as its definition says, and the state that this means.
        refused: Option<(State, String)>,
    },
}

// === impl LiveManifests ===

impl<'a> LiveManifests<'a> {
    pub(crate) fn new(manifests: &'a [Arc<Manifest>], plan: &RuntimePlan) -> LiveManifests<'a> {
        let mut all: BTreeMap<&str, Vec<&Arc<Manifest>>> = BTreeMap::new();
        for manifest in manifests {
            if let Some(module) = module_of(&manifest.metadata) {
                all.entry(module).or_default().push(manifest);
            }
        }
        let planned: BTreeMap<&str, &str> = plan
            .deciding()
            .into_iter()
            .filter_map(|module| Some((module.name.as_str(), module.outcome.installed()?.manifest_name.as_str())))
            .collect();
        let of_module = |(module, mut all): (&'a str, Vec<&'a Arc<Manifest>>)| {
            all.sort_by_key(|manifest| {
                let metadata = &manifest.metadata;
                let is_planned = metadata.name.as_deref() == planned.get(module).copied();
                let created = metadata.creation_timestamp.as_ref().map(|created| created.0);
                (is_planned, metadata.deletion_timestamp.is_none(), created, metadata.name.as_deref())
            });
            let manifest = all.pop()?;
            Some((module, OfModule { manifest, others: all }))
        };
        LiveManifests(all.into_iter().filter_map(of_module).collect())
    }

    /// The Manifest of a module.
    pub(crate) fn get(&self, module: &str) -> Option<&'a Arc<Manifest>> {
        self.0.get(module).map(|of| of.manifest)
    }

    /// The Manifests that a module had under other names.
    pub(crate) fn others(&self, module: &str) -> impl Iterator<Item = &'a Arc<Manifest>> {
        self.0.get(module).into_iter().flat_map(|of| of.others.iter().copied())
    }

    /// The Manifest of each module, by module.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a Arc<Manifest>)> {
        self.0.iter().map(|(&module, of)| (module, of.manifest))
    }
}

// === impl Modules ===

impl Modules {
    pub(super) fn new(problems: Vec<String>) -> Modules {
        Modules { present: Vec::new(), again: None, roles: Vec::new(), problems }
    }

    /// Notes when to check a Manifest again that may be an orphan.
    pub(super) fn wait(&mut self, again: Option<Duration>) {
        self.again = self.again.into_iter().chain(again).min();
    }

    /// Adds a module with its Manifest, if that exists.
    pub(super) fn push(&mut self, name: String, role: Role, present: Option<Arc<Manifest>>) {
        self.roles.push((name, role));
        self.present.extend(present);
    }

    /// Adds Manifests that a module had under other names, and that end by themselves. The one that it has comes after
    /// them.
    pub(super) fn beside(&mut self, others: Vec<Arc<Manifest>>) {
        self.present.extend(others);
    }

    /// The facts about each module that the Kyma selects. `passed` are the Manifests after the passes over them. The
    /// Manifest of a module that is mandatory as well is none of the Kyma's.
    pub(in crate::runtime) fn facts(&self, passed: &[Arc<Manifest>]) -> Vec<ModuleFact> {
        let by_module = present(passed);
        let is_mandatory =
            |name: &str| self.roles.iter().any(|(of, role)| of == name && matches!(role, Role::Mandatory { .. }));
        let fact = |(name, role): &(String, Role)| match role {
            Role::Selected(planned) => Some(ModuleFact {
                name: name.clone(),
                planned: planned.clone(),
                manifest: by_module.get(name.as_str()).filter(|_| !is_mandatory(name)).map(|found| Arc::clone(found)),
            }),
            Role::Mandatory { .. } => None,
        };
        self.roles.iter().filter_map(fact).collect()
    }

    /// The facts about each mandatory module, by name. Leaves out those that are gone.
    pub(in crate::runtime) fn mandatory(&self, passed: &[Arc<Manifest>]) -> Vec<MandatoryFact> {
        let by_module = present(passed);
        let fact = |(name, role): &(String, Role)| match role {
            Role::Selected(_) => None,
            Role::Mandatory { refused } => {
                let manifest = by_module.get(name.as_str()).map(|found| Arc::clone(found));
                let is_gone = manifest.is_none() && refused.as_ref().is_none_or(|(state, _)| *state == State::Deleting);
                (!is_gone).then(|| MandatoryFact { name: name.clone(), refused: refused.clone(), manifest })
            }
        };
        let mut facts: Vec<MandatoryFact> = self.roles.iter().filter_map(fact).collect();
        facts.sort_by(|one, other| one.name.cmp(&other.name));
        facts
    }

    /// Why Manifests were not rendered, if any were not.
    pub(in crate::runtime) fn failure(&self) -> Option<Failure> {
        self.problems.first().map(|message| Failure { reason: "RenderFailed", message: message.clone(), access: false })
    }
}

/// The Manifests by module. One that a pass has just released no longer exists, even if the watch still shows it.
fn present(passed: &[Arc<Manifest>]) -> BTreeMap<&str, &Arc<Manifest>> {
    let present = passed.iter().filter(|manifest| !is_released(manifest));
    present.filter_map(|manifest| Some((module_of(&manifest.metadata)?, manifest))).collect()
}

/// The module of a Manifest, if the Kyma selected it.
pub(in crate::runtime) fn selected_module_of(metadata: &ObjectMeta) -> Option<&str> {
    module_of(metadata).filter(|_| !plan::is_mandatory(metadata))
}

/// The module of a Manifest.
pub(in crate::runtime) fn module_of(metadata: &ObjectMeta) -> Option<&str> {
    landscape::label(metadata, label::MODULE_NAME)
}
