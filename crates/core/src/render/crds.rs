//! The CRDs of runtimes: those of the control plane, as Lifecycle Manager does. They come from no template: a changed
//! schema would break users.

use std::sync::Arc;

use serde_json::{Value, json};

use super::runtime_crds;
use crate::{
    api::names::{MANAGED_BY_SKR, label},
    object::Object,
};

/// The CRDs of every runtime. Those that the control plane has not shown are the ones that Tidegate is built with.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeCrds(Vec<Arc<Object>>);

/// A CRD as runtimes get it: its specification, without a conversion, whose webhook exists only in the control plane.
/// `None` if it is not an object.
pub fn runtime_crd(crd: &Value) -> Option<Object> {
    let mut spec = crd.get("spec")?.clone();
    if let Some(spec) = spec.as_object_mut().filter(|spec| spec.contains_key("conversion")) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    let mut object = Object::new(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": crd.pointer("/metadata/name")?},
        "spec": spec,
    }))
    .ok()?;
    object.set_label(label::MANAGED_BY, MANAGED_BY_SKR);
    Some(object)
}

// === impl RuntimeCrds ===

impl RuntimeCrds {
    /// Their names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        runtime_crds().iter().map(Object::name)
    }

    /// The objects, by name.
    pub fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.iter().map(|crd| &**crd)
    }

    /// The same with this one, which [`runtime_crd`] made, in place of that with its name.
    #[must_use]
    pub fn with(&self, crd: &Arc<Object>) -> RuntimeCrds {
        let replaced = |known: &Arc<Object>| Arc::clone(if known.name() == crd.name() { crd } else { known });
        RuntimeCrds(self.0.iter().map(replaced).collect())
    }
}

impl Default for RuntimeCrds {
    fn default() -> RuntimeCrds {
        RuntimeCrds(runtime_crds().iter().cloned().map(Arc::new).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_get_the_specification_of_a_crd_and_no_webhook() {
        let name = "kymas.operator.kyma-project.io";
        let live = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name, "uid": "1", "labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"group": "operator.kyma-project.io", "conversion": {"strategy": "Webhook", "webhook": {}}},
            "status": {"storedVersions": ["v1beta2"]},
        });
        let crd = Arc::new(runtime_crd(&live).unwrap());
        assert_eq!(
            *crd.value(),
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name, "labels": {"operator.kyma-project.io/managed-by": "kyma"}},
                "spec": {"group": "operator.kyma-project.io", "conversion": {"strategy": "None"}},
            })
        );
        let all = RuntimeCrds::default().with(&crd);
        assert!(all.objects().map(Object::name).eq(RuntimeCrds::names()), "the order stays");
        assert_eq!(all.objects().filter(|one| *one == &*crd).count(), 1);
        let other = runtime_crd(&json!({"metadata": {"name": "others.example.org"}, "spec": {}})).unwrap();
        assert_eq!(all.with(&Arc::new(other)), all, "it is none of those");
        assert_eq!(runtime_crd(&json!({"metadata": {"name": name}})), None);
    }
}
