//! What Lifecycle Manager applied in runtimes and nothing names any more: objects of modules that no Manifest has, and
//! copies of definitions that the catalog lacks. They are reported, so that a user decides on them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Level, Topic};
use crate::{
    api::{
        KYMA_GROUP, KYMA_VERSION, Manifest,
        names::{CATALOG_MANAGER_UPSTREAM, FIELD_MANAGER, MODULE_MANAGER_UPSTREAM, SKR_NAMESPACE, label},
    },
    landscape::{self, Landscape},
    name::Key,
    object::{Gvk, ObjectId},
    plan::{self, Class, Settings},
    words::{agreeing, counted, few},
};

/// An object in a runtime that has the ownership label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labelled {
    /// The object.
    pub id: ObjectId,
    /// The Manifest that it belongs to, by its annotation: `NAMESPACE/NAME`.
    pub owner: Option<String>,
    /// Its field managers.
    pub managers: Vec<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// What a runtime has with the ownership label, or why it could not be read.
pub type Answer = Result<Vec<Labelled>, String>;

/// What names the objects of a runtime.
struct Named {
    /// The objects in the inventories of its Manifests, and the default custom resources.
    objects: BTreeSet<ObjectId>,
    /// Its Manifests that say what they have, by `NAMESPACE/NAME`.
    complete: BTreeSet<String>,
    /// Its Manifests.
    manifests: BTreeSet<String>,
    /// The kinds and names of its catalog.
    catalog: BTreeSet<(&'static str, String)>,
}

/// Why an object is left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// No Manifest of the runtime names it.
    Manifest,
    /// The catalog of the runtime lacks it.
    Catalog,
}

/// Kinds that modules usually have. A module that no Manifest has any more cannot say which kinds it had.
const USUAL: [(&str, &str, &str); 17] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Namespace"),
    ("", "v1", "Secret"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("scheduling.k8s.io", "v1", "PriorityClass"),
];

/// Kinds that modules usually have.
pub fn usual_kinds() -> impl Iterator<Item = Gvk> {
    USUAL.iter().map(|(group, version, kind)| Gvk::new(group, version, kind))
}

/// The kinds to list in each runtime: those of the catalog, those that modules usually have, and those in the
/// inventory of any Manifest of the landscape.
pub fn kinds_left(manifests: &[Manifest]) -> Vec<Gvk> {
    let catalog = ["ModuleTemplate", "ModuleReleaseMeta"].map(|kind| Gvk::new(KYMA_GROUP, KYMA_VERSION, kind));
    let synced = manifests.iter().filter_map(|manifest| manifest.status.as_ref()).flat_map(|status| &status.synced);
    let synced = synced.map(|synced| Gvk::new(&synced.group, &synced.version, &synced.kind));
    let mut kinds: Vec<Gvk> = catalog.into_iter().chain(usual_kinds()).chain(synced).collect();
    kinds.sort();
    kinds.dedup_by(|one, other| one.group == other.group && one.kind == other.kind);
    kinds
}

/// What is left over in each runtime, by Kyma. `landscape` is as it will be after the take-over, `manifests` are all
/// that there are.
pub fn leftovers(
    runtimes: &BTreeMap<Key, Answer>,
    landscape: &Landscape,
    manifests: &[Manifest],
    settings: &Settings,
) -> Vec<Finding> {
    let finding = |level: Level, message: String| Finding::new(level, Topic::Leftovers, message);
    let mut of_kyma: BTreeMap<Key, Vec<&Manifest>> = BTreeMap::new();
    for manifest in manifests {
        let Some(kyma) = landscape::label(&manifest.metadata, label::KYMA_NAME) else { continue };
        let namespace = manifest.metadata.namespace.as_deref().unwrap_or_default();
        of_kyma.entry(Key::new(namespace, kyma)).or_default().push(manifest);
    }
    let (mut findings, mut silent) = (Vec::new(), Vec::new());
    for (key, answer) in runtimes {
        let labelled = match answer {
            Ok(labelled) => labelled,
            Err(error) => {
                silent.push(format!("{key} ({error})"));
                continue;
            }
        };
        let named = Named::by(key, landscape, of_kyma.get(key).map_or(&[], Vec::as_slice), settings);
        let mut left: BTreeMap<Why, Vec<String>> = BTreeMap::new();
        for object in labelled {
            if let Some(why) = named.why(object) {
                left.entry(why).or_default().push(object.id.to_string());
            }
        }
        findings.extend(left.into_iter().map(|(why, objects)| why.finding(key, objects)));
    }
    if findings.is_empty() && silent.len() < runtimes.len() {
        let asked = counted(runtimes.len() - silent.len(), "runtime");
        let message = format!("{asked} read: Manifests and the catalog name every object of Lifecycle Manager");
        findings.push(finding(Level::Ready, message));
    }
    if !silent.is_empty() {
        let what = counted(silent.len(), "runtime");
        let message =
            format!("{what} could not be read, and may have objects that no Manifest names: {}", few(&silent));
        let next = "run the command again when they can be reached, or skip the runtimes with `--no-runtimes`";
        findings.push(finding(Level::Note, message).next(next));
    }
    findings
}

// === impl Why ===

impl Why {
    /// What these objects of a runtime mean for the take-over.
    fn finding(self, runtime: &Key, mut objects: Vec<String>) -> Finding {
        objects.sort_unstable();
        let (count, names) = (objects.len(), few(&objects));
        let (message, next) = match self {
            Why::Manifest => (
                format!(
                    "runtime {runtime} has {} that no Manifest names, and {}: {names}",
                    counted(count, "object"),
                    agreeing(count, "it stays", "they stay"),
                ),
                "delete those that no user needs; Tidegate deletes none of them",
            ),
            Why::Catalog => (
                format!(
                    "runtime {runtime} has {count} {} that its catalog lacks: {names}",
                    agreeing(count, "copy of a definition", "copies of definitions"),
                ),
                "correct the definitions in the control plane if users need them: Tidegate deletes such copies, as \
                 Lifecycle Manager does, but not before `tidegate adopt take --finish`",
            ),
        };
        Finding::new(Level::Note, Topic::Leftovers, message).next(next)
    }
}

// === impl Named ===

impl Named {
    /// What names the objects in the runtime of this Kyma, which has these Manifests.
    fn by(kyma: &Key, landscape: &Landscape, manifests: &[&Manifest], settings: &Settings) -> Named {
        let (mut objects, mut complete, mut all) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for manifest in manifests {
            let key = landscape::key(&manifest.metadata);
            let synced = manifest.status.as_ref().map_or(&[][..], |status| &status.synced);
            if !synced.is_empty() {
                complete.insert(key.to_string());
            }
            objects.extend(synced.iter().map(|one| ObjectId::new(&one.group, &one.kind, &one.namespace, &one.name)));
            objects.extend(manifest.spec.resource.as_ref().and_then(id_of));
            all.insert(key.to_string());
        }
        let mut catalog = BTreeSet::new();
        if let Some(kyma) = landscape.kymas.get(kyma) {
            let seen = plan::catalog(landscape, &Class::for_kyma(landscape, kyma, settings), settings);
            catalog.extend(seen.templates.iter().map(|key| ("ModuleTemplate", key.name().to_owned())));
            catalog.extend(seen.releases.iter().map(|release| ("ModuleReleaseMeta", release.key.name().to_owned())));
        }
        Named { objects, complete, manifests: all, catalog }
    }

    /// Why an object is left over; `None` if it is not, or if it is none of Lifecycle Manager's modules and copies.
    fn why(&self, object: &Labelled) -> Option<Why> {
        let Labelled { id, owner, managers, deleting } = object;
        if *deleting || self.objects.contains(id) {
            return None;
        }
        let has = |manager: &str| managers.iter().any(|one| one == manager);
        match (&*id.group, &*id.kind) {
            (KYMA_GROUP, kind @ ("ModuleTemplate" | "ModuleReleaseMeta")) => {
                let is_copy = &*id.namespace == SKR_NAMESPACE && (has(CATALOG_MANAGER_UPSTREAM) || has(FIELD_MANAGER));
                return (is_copy && !self.catalog.contains(&(kind, id.name.to_string()))).then_some(Why::Catalog);
            }
            // It names the Kyma in the control plane.
            (KYMA_GROUP, "Kyma") => return None,
            _ => {}
        }
        let is_left = match owner {
            // A Manifest without an inventory does not say what it has.
            Some(owner) => self.complete.contains(owner) || !self.manifests.contains(owner),
            // Objects that every runtime has name no Manifest, and have other managers.
            None => has(MODULE_MANAGER_UPSTREAM),
        };
        is_left.then_some(Why::Manifest)
    }
}

/// The identity of an object in a Manifest.
fn id_of(object: &serde_json::Value) -> Option<ObjectId> {
    let text = |pointer: &str| object.pointer(pointer).and_then(serde_json::Value::as_str);
    let group = text("/apiVersion")?.split_once('/').map_or("", |(group, _)| group);
    let namespace = text("/metadata/namespace").unwrap_or_default();
    Some(ObjectId::new(group, text("/kind")?, namespace, text("/metadata/name")?))
}

#[cfg(test)]
mod tests;
