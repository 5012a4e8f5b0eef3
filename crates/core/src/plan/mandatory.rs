//! The mandatory modules of one Kyma: those that every Kyma has, although no Kyma selects them.
//!
//! A ModuleReleaseMeta with `spec.mandatory` puts one version into every runtime of its namespace. Beta, internal and
//! restricted modules are no exception, and neither is the flag `spec.mandatory` of the ModuleTemplate: it only keeps
//! users from selecting that version. A problem with one module affects no other.
//!
//! * A lower version is refused, as for selected modules.
//! * While the ModuleReleaseMeta is being deleted, its module is removed. Its finalizer waits for that.
//! * If the ModuleReleaseMeta has channels now, Kymas that select the module keep it. The others lose it.
//! * If the ModuleReleaseMeta is gone without having waited, the module stays as it is: nothing shows that this was
//!   intended.

use std::collections::BTreeMap;

use super::{
    ModuleOutcome, ModulePlan, Offer, Refusal, RuntimePlan,
    module::{Inputs, ModuleDefinitions, Wanted},
    reason,
};
use crate::{
    api::{
        Manifest, ModuleReleaseMeta,
        names::{finalizer, label},
        shared::{CustomResourcePolicy, ObjectMeta},
    },
    landscape::{self, Landscape},
    name::Key,
};

/// The modules that a Kyma has Manifests of, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstalledModules(BTreeMap<String, InstalledModule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct InstalledModule {
    version: String,
    /// Whether its Manifest is one of a mandatory module, which stays without a ModuleReleaseMeta.
    is_mandatory: bool,
}

/// Whether a Manifest is one of a mandatory module.
pub fn is_mandatory(manifest: &ObjectMeta) -> bool {
    landscape::label(manifest, label::MANDATORY_MODULE) == Some("true")
}

/// Whether a ModuleReleaseMeta is one of a mandatory module, or was one and still has the finalizer.
pub fn is_mandatory_release(release: &ModuleReleaseMeta) -> bool {
    release.spec.mandatory.is_some()
        || release.metadata.finalizers.iter().flatten().any(|name| name == finalizer::MANDATORY_MODULE)
}

/// The plans for the mandatory modules of a Kyma, by name.
pub(super) fn plan(inputs: Inputs<'_>, installed: &InstalledModules) -> Vec<ModulePlan> {
    let namespace = inputs.class.namespace.as_str();
    let releases = inputs.landscape.releases.iter().filter(|(key, _)| key.namespace() == namespace);
    let wanted = releases.filter_map(|(key, release)| {
        let mandatory = release.spec.mandatory.as_ref()?;
        plan_one(inputs, key, release, &mandatory.version, installed)
    });
    let is_left = |(name, module): &(&String, &InstalledModule)| {
        module.is_mandatory && !inputs.landscape.releases.contains_key(&Key::new(namespace, name))
    };
    let left = installed.0.iter().filter(is_left).map(|(name, _)| {
        let hint = format!("to remove the module from this runtime, delete its Manifest; else declare {name} again");
        refused(name, Refusal::warning(reason::NO_RELEASE, "no ModuleReleaseMeta found").hint(hint))
    });
    let mut modules: Vec<ModulePlan> = wanted.chain(left).collect();
    modules.sort_by(|one, other| one.name.cmp(&other.name));
    modules
}

/// The plan for one mandatory module; none if it is being removed and is not installed.
fn plan_one(
    inputs: Inputs<'_>,
    key: &Key,
    release: &ModuleReleaseMeta,
    version: &str,
    installed: &InstalledModules,
) -> Option<ModulePlan> {
    let name = key.name();
    let present = installed.0.get(name);
    if release.metadata.deletion_timestamp.is_some() {
        let refusal = Refusal::waiting(reason::RELEASE_DELETED, "its ModuleReleaseMeta is being deleted");
        return present.map(|_| refused(name, refusal.uninstalling()));
    }
    let resolved = ModuleDefinitions::new(inputs.landscape, key.namespace(), name, release, version).and_then(|found| {
        let Some(present) = present else { return Ok(found) };
        let message = || {
            let version = &present.version;
            format!(
                "module template update not allowed: a higher version ({version}) of the module was previously installed"
            )
        };
        found.guard_downgrade(inputs.kyma, name, &present.version, message).map(|()| found)
    });
    let wanted = Wanted { name, offer: Offer::Mandatory, policy: CustomResourcePolicy::CreateAndDelete };
    Some(wanted.plan(inputs, resolved))
}

fn refused(name: &str, refusal: Refusal) -> ModulePlan {
    let outcome = ModuleOutcome::Refuse(refusal);
    ModulePlan { name: name.to_owned(), offer: Offer::Mandatory, component: None, outcome }
}

// === impl InstalledModules ===

impl InstalledModules {
    /// The modules of a Kyma's Manifests.
    pub fn from_manifests<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> InstalledModules {
        let modules = manifests.into_iter().filter_map(|manifest| {
            let name = landscape::label(&manifest.metadata, label::MODULE_NAME)?.to_owned();
            let version = manifest.spec.version.clone().unwrap_or_default();
            Some((name, InstalledModule { version, is_mandatory: is_mandatory(&manifest.metadata) }))
        });
        InstalledModules(modules.collect())
    }

    /// The modules once a plan is carried out. A ModuleReleaseMeta that is missing later was deleted, which removes its
    /// module.
    pub fn from_plan(plan: &RuntimePlan) -> InstalledModules {
        let modules = plan.deciding().into_iter().filter_map(|module| {
            let version = module.outcome.installed()?.version.clone();
            Some((module.name.clone(), InstalledModule { version, is_mandatory: false }))
        });
        InstalledModules(modules.collect())
    }

    /// The same, where the ModuleReleaseMetas of `before` exist: if one is missing later, it was deleted, which removes
    /// its module.
    #[must_use]
    pub fn released_in(mut self, namespace: &str, before: &Landscape) -> InstalledModules {
        for (name, module) in &mut self.0 {
            module.is_mandatory &= !before.releases.contains_key(&Key::new(namespace, name));
        }
        self
    }
}

#[cfg(test)]
mod tests;
