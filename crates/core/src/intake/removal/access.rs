//! Modules that leave runtimes although their Kymas still name them, or although no Kyma names them.
//!
//! Labels of a Kyma and of a ModuleTemplate, and the selector of a ModuleReleaseMeta, say whether a runtime may have a
//! module; one that it may no longer have is uninstalled. A mandatory module that becomes one that Kymas select leaves
//! every runtime whose Kyma does not select it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{Removal, Removals, Removed, module_key};
use crate::{
    api::{Kyma, ModuleReleaseMeta, names::label, shared::ObjectMeta},
    definition::Kind,
    intake::{Id, Installed, Standing},
    landscape::{self, Landscape},
    name::Key,
    plan::{self, Settings},
};

/// The definitions of one module.
struct Module {
    /// As they are.
    before: Landscape,
    /// With all changes.
    after: Landscape,
    /// With one of the changes each.
    changes: Vec<(Id, Landscape)>,
}

/// The modules that leave runtimes when the definitions of `changed` are applied over those of `before`, by the
/// definitions that cause it. `installed` are the modules of all runtimes.
pub fn of_access(before: &Landscape, changed: &Landscape, installed: &[Installed], settings: &Settings) -> Removals {
    let mut found: BTreeMap<Id, BTreeMap<Key, Removal>> = BTreeMap::new();
    let mut modules: BTreeMap<Key, Module> = BTreeMap::new();
    if !may_take(before, changed) {
        return Removals::new();
    }
    for one in installed.iter().filter(|one| one.standing != Standing::Leaving) {
        let key = module_key(one);
        let module = modules.entry(key.clone()).or_insert_with(|| Module::between(before, changed, &key));
        let new = changed.kymas.get(&one.runtime);
        let Some(old) = before.kymas.get(&one.runtime).filter(|_| new.is_some() || !module.changes.is_empty()) else {
            continue;
        };
        let new = new.map(|new| Kyma { status: old.status.clone(), ..Kyma::clone(new) });
        for id in module.causes(one, old, new.as_ref(), settings) {
            let removal = || Removal { module: key.clone(), loss: Removed::Module, runtimes: [].into() };
            let of_id = found.entry(id).or_default().entry(key.clone()).or_insert_with(removal);
            of_id.runtimes.insert(one.runtime.clone());
        }
    }
    found.into_iter().map(|(id, removals)| (id, removals.into_values().collect())).collect()
}

/// Whether the definitions of `changed` can take a module from a runtime at all: a change of a Kyma, or one of a module
/// after which fewer runtimes may have it. If not, [`of_access`] finds nothing, and need not know the runtimes.
pub fn may_take(before: &Landscape, changed: &Landscape) -> bool {
    let is_for_some = |metadata: &ObjectMeta| {
        [label::BETA, label::INTERNAL].into_iter().any(|name| landscape::label(metadata, name).is_some())
    };
    let template = |key: &Key| changed.templates.get(key).or_else(|| before.templates.get(key));
    let is_offered_to_some = |(key, release): (&Key, &Arc<ModuleReleaseMeta>)| {
        plan::offers(release).any(|(_, version)| {
            let template = template(&Key::new(key.namespace(), &format!("{}-{version}", key.name())));
            template.is_some_and(|template| is_for_some(&template.metadata))
        })
    };
    let was_mandatory = |key: &Key| before.releases.get(key).is_some_and(|old| old.spec.mandatory.is_some());
    !changed.kymas.is_empty()
        || changed.templates.values().any(|template| is_for_some(&template.metadata))
        || changed.releases.iter().any(|(key, release)| {
            (was_mandatory(key) && release.spec.mandatory.is_none())
                || release.spec.kyma_selector.is_some()
                || is_offered_to_some((key, release))
        })
}

/// Whether the definition of a Kyma may change which modules it may have, compared with the live object: its labels or
/// its channels differ. If not, [`of_access`] need not know it.
pub fn may_change_access(declared: &Value, live: &Kyma, settings: &Settings) -> bool {
    let none = BTreeMap::new();
    let before = live.metadata.labels.as_ref().unwrap_or(&none);
    let after = |name: &str| declared.pointer("/metadata/labels").and_then(|labels| labels[name].as_str());
    let differs = |name: &str| before.get(name).map(String::as_str) != after(name);
    let has_selectors = || {
        let labels = declared.pointer("/metadata/labels").and_then(Value::as_object);
        !settings.restricted_modules.is_empty()
            && (before.keys().any(|name| differs(name))
                || labels.is_some_and(|labels| labels.keys().any(|name| differs(name))))
    };
    let modules = declared["spec"]["modules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_other = |module: &Value| {
        let known = live.spec.modules.iter().find(|known| module["name"] == known.name.as_str());
        known.is_some_and(|known| known.channel.as_deref() != module["channel"].as_str())
    };
    [label::BETA, label::INTERNAL].into_iter().any(differs)
        || declared["spec"]["channel"] != live.spec.channel.as_str()
        || modules.iter().any(is_other)
        || has_selectors()
}

// === impl Module ===

impl Module {
    fn between(before: &Landscape, changed: &Landscape, key: &Key) -> Module {
        let old = own(before, key);
        let changes = own(changed, key);
        let mut after = old.clone();
        after.releases.extend(changes.releases.clone());
        after.templates.extend(changes.templates.clone());
        let of_release = changes.releases.into_iter().map(|(key, release)| {
            let mut with = old.clone();
            with.releases.insert(key.clone(), release);
            ((Kind::ModuleReleaseMeta, key), with)
        });
        let of_template = changes.templates.into_iter().map(|(key, template)| {
            let mut with = old.clone();
            with.templates.insert(key.clone(), template);
            ((Kind::ModuleTemplate, key), with)
        });
        let changes = of_release.chain(of_template).collect();
        Module { before: old, after, changes }
    }

    /// The definitions that take the module from a runtime: each that does so alone, or else all together.
    fn causes(&self, one: &Installed, old: &Kyma, new: Option<&Kyma>, settings: &Settings) -> Vec<Id> {
        let lost = |landscape: &Landscape, kyma: &Kyma| is_lost(landscape, kyma, one, settings);
        if lost(&self.before, old) || !lost(&self.after, new.unwrap_or(old)) {
            return Vec::new();
        }
        let of_kyma = new.map(|new| ((Kind::Kyma, one.runtime.clone()), lost(&self.before, new)));
        let of_module = self.changes.iter().map(|(id, landscape)| (id.clone(), lost(landscape, old)));
        let all: Vec<(Id, bool)> = of_kyma.into_iter().chain(of_module).collect();
        let is_single = all.iter().any(|(_, alone)| *alone);
        all.into_iter().filter(|(_, alone)| *alone || !is_single).map(|(id, _)| id).collect()
    }
}

/// The definitions of a module.
fn own(landscape: &Landscape, module: &Key) -> Landscape {
    let first = Key::new(module.namespace(), &format!("{}-", module.name()));
    let versions = landscape.templates.range(first.clone()..);
    let is_own = |key: &Key| key.namespace() == first.namespace() && key.name().starts_with(first.name());
    Landscape {
        releases: landscape
            .releases
            .get_key_value(module)
            .map(|(key, one)| (key.clone(), one.clone()))
            .into_iter()
            .collect(),
        templates: versions
            .take_while(|(key, _)| is_own(key))
            .map(|(key, template)| (key.clone(), template.clone()))
            .collect(),
        ..Landscape::default()
    }
}

/// Whether an installed module is uninstalled although its Kyma may name it. What no Kyma names is another decision.
fn is_lost(landscape: &Landscape, kyma: &Kyma, one: &Installed, settings: &Settings) -> bool {
    let spec = plan::reported(kyma);
    let entry = spec.modules.iter().find(|module| module.name == one.module);
    match (one.standing, entry) {
        (Standing::Mandatory, entry) => {
            let release = landscape.releases.get(&module_key(one));
            release.is_some_and(|release| release.spec.mandatory.is_none()) && entry.is_none()
        }
        (Standing::Selected, Some(entry)) => plan::is_denied(landscape, kyma, &spec, entry, settings),
        (Standing::Selected, None) | (Standing::Leaving, _) => false,
    }
}

#[cfg(test)]
mod tests;
