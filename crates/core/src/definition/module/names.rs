//! The objects of a module by name only: those of a module in another source's repository.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::json;

use super::{ModuleObjects, SourceObject};
use crate::{
    content::ContentId,
    diagnostic::FilePosition,
    inventory::Inventory,
    object::{Gvk, Object, ObjectId},
};

/// The names of all objects of a module, each with the version of its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleNames(Inventory);

// === impl ModuleNames ===

impl ModuleNames {
    /// Reads `group/version/Kind/namespace/name`. A text that is none of these names nothing.
    pub fn from_texts<'t>(texts: impl IntoIterator<Item = &'t String>) -> ModuleNames {
        let parse = |text: &String| {
            let mut parts = text.splitn(5, '/');
            let [group, version, kind, namespace, name] = std::array::from_fn(|_| parts.next().unwrap_or_default());
            let is_whole = ![version, kind, name].contains(&"");
            is_whole.then(|| (ObjectId::new(group, kind, namespace, name), Arc::from(version)))
        };
        ModuleNames(texts.into_iter().filter_map(parse).collect())
    }

    /// The texts that [`ModuleNames::from_texts`] reads.
    pub fn to_texts(&self) -> Vec<String> {
        let text = |(ObjectId { group, kind, namespace, name }, version): (&ObjectId, &Arc<str>)| {
            format!("{group}/{version}/{kind}/{namespace}/{name}")
        };
        self.0.iter().map(text).collect()
    }

    /// The API groups of its CustomResourceDefinitions.
    pub fn groups(&self) -> BTreeSet<String> {
        let definitions = self.ids().filter(|id| &*id.kind == "CustomResourceDefinition");
        definitions.filter_map(|id| Some(id.name.split_once('.')?.1.to_owned())).collect()
    }

    /// The ids, sorted.
    pub fn ids(&self) -> impl Iterator<Item = &ObjectId> {
        self.0.ids()
    }

    /// Whether it has an object.
    pub fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains(id)
    }

    /// Adds what runtimes have of the module.
    pub fn extend(&mut self, inventory: &Inventory) {
        self.0 = self.0.union(inventory);
    }

    /// The objects with nothing but their names.
    pub fn outline(&self, content: ContentId) -> ModuleObjects {
        let object = |(id, version): (&ObjectId, &Arc<str>)| {
            let gvk = Gvk { group: Arc::clone(&id.group), version: Arc::clone(version), kind: Arc::clone(&id.kind) };
            let mut metadata = json!({"name": id.name});
            if !id.namespace.is_empty() {
                metadata["namespace"] = json!(id.namespace);
            }
            let value = json!({"apiVersion": gvk.api_version(), "kind": id.kind, "metadata": metadata});
            Some(SourceObject::new(&Object::new(value).ok()?, FilePosition::file("")))
        };
        ModuleObjects { content, objects: self.0.iter().filter_map(object).collect() }
    }
}

impl From<&ModuleObjects> for ModuleNames {
    fn from(module: &ModuleObjects) -> ModuleNames {
        let version = |object: &SourceObject| (object.id().clone(), object.object().gvk().version);
        ModuleNames(module.objects().iter().map(version).collect())
    }
}

impl From<Inventory> for ModuleNames {
    fn from(inventory: Inventory) -> ModuleNames {
        ModuleNames(inventory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_are_those_of_definitions() {
        let texts = [
            "apiextensions.k8s.io/v1/CustomResourceDefinition//things.example.org",
            "apiextensions.k8s.io/v1/CustomResourceDefinition//others.example.org",
            "/v1/ConfigMap/kyma-system/a.example.com",
        ];
        let groups = ModuleNames::from_texts(&texts.map(str::to_owned)).groups();
        assert_eq!(groups, BTreeSet::from(["example.org".to_owned()]));
    }

    #[test]
    fn names_survive_their_texts() {
        let texts = [
            "/v1/ConfigMap/kyma-system/a".to_owned(),
            "apps/v1/Deployment/kyma-system/a".to_owned(),
            "rbac.authorization.k8s.io/v1/ClusterRole//system:a".to_owned(),
        ];
        let names = ModuleNames::from_texts(&texts);
        assert_eq!(names.to_texts(), texts);
        let outline = names.outline(crate::revision::Oid::new([7; 20]).into());
        assert_eq!(ModuleNames::from(&outline), names);
        assert_eq!(ModuleNames::from_texts(&["ConfigMap a".to_owned()]), ModuleNames::default());
    }
}
