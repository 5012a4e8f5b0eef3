//! The objects that Tidegate itself keeps in every runtime. No module owns them.

use std::{collections::BTreeSet, sync::LazyLock};

use super::{RUNTIME_KINDS, Reporting, scope};
use crate::{
    api::{KYMA_GROUP, names},
    object::{Object, ObjectId},
    plan::reporting::Address,
    template::Templates,
};

/// Whether Tidegate keeps an object in every runtime: a CRD of its own or an object of these kinds, the webhook
/// configuration, or a part of the agent. A module must not contain it, and no removal of a module deletes it.
///
/// The Namespace `kyma-system` is not among them: modules contain it, see [`is_runtime_namespace`]. The image pull
/// Secret is not either: only the options of a daemon have its name.
pub fn is_in_every_runtime(id: &ObjectId) -> bool {
    static IDS: LazyLock<BTreeSet<ObjectId>> = LazyLock::new(ids);
    let is_of_kind = &*id.group == KYMA_GROUP && RUNTIME_KINDS.contains(&&*id.kind);
    // A cluster-scoped object loses a namespace that its module writes.
    let has_stray_namespace = || !id.namespace.is_empty() && scope::built_in_scope(&id.group, &id.kind) == Some(false);
    let is_known =
        || IDS.contains(id) || has_stray_namespace() && IDS.contains(&ObjectId::new(&id.group, &id.kind, "", &id.name));
    is_of_kind || is_known()
}

/// Whether an object is the Namespace with the runtime's own Kyma. Modules may contain it, but Tidegate applies its
/// own.
pub fn is_runtime_namespace(id: &ObjectId) -> bool {
    id.group.is_empty() && &*id.kind == "Namespace" && &*id.name == names::SKR_NAMESPACE
}

/// The ids of the objects with fixed names. Overrides of templates cannot change them.
fn ids() -> BTreeSet<ObjectId> {
    let templates = Templates::embedded();
    let address: Address = "events.example.com:443".parse().expect("a host and a port");
    let agents = super::sample_agents();
    let of_agent = agents.iter().flatten().flat_map(|agent| super::agent(&templates, agent, &address));
    let rendered = of_agent
        .chain([super::webhook(&templates, &Reporting::of_watchers(&[], None)), super::agent_secret(&templates, [])])
        .map(|object| object.expect("the embedded templates render their samples").id());
    super::runtime_crds().iter().map(Object::id).chain(rendered).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{definition, yaml::Limits};

    #[track_caller]
    fn check(group: &str, kind: &str, namespace: &str, name: &str, expected: bool) {
        let id = ObjectId::new(group, kind, namespace, name);
        assert_eq!(is_in_every_runtime(&id), expected, "{id}");
    }

    #[test]
    fn what_every_runtime_has_belongs_to_no_module() {
        for kind in ["kymas", "modulereleasemetas", "moduletemplates"] {
            let name = format!("{kind}.operator.kyma-project.io");
            check("apiextensions.k8s.io", "CustomResourceDefinition", "", &name, true);
            check("apiextensions.k8s.io", "CustomResourceDefinition", "stray", &name, true);
        }
        for kind in ["Kyma", "ModuleReleaseMeta", "ModuleTemplate"] {
            check("operator.kyma-project.io", kind, "kyma-system", "any", true);
            check("example.org", kind, "kyma-system", "any", false);
        }
        check("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "", "skr-webhook", true);
        check("scheduling.k8s.io", "PriorityClass", "", "skr-webhook-priority", true);
        for namespace in ["kyma-system", "elsewhere"] {
            let is_ours = namespace == "kyma-system";
            check("apps", "Deployment", namespace, "skr-webhook", is_ours);
            check("", "Service", namespace, "skr-webhook", is_ours);
            check("", "Service", namespace, "skr-webhook-metrics", is_ours);
            check("", "Secret", namespace, "skr-webhook-tls", is_ours);
            for name in names::SKR_WEBHOOK_POLICIES {
                check("networking.k8s.io", "NetworkPolicy", namespace, name, is_ours);
            }
        }
    }

    #[test]
    fn a_module_that_contains_what_every_runtime_has_is_refused_at_its_place() {
        let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kyma-system}\n---\napiVersion: \
                    apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: \
                    kymas.operator.kyma-project.io}\n";
        let (tree, path) = ("0".repeat(40).parse().unwrap(), Arc::from("crd.yaml"));
        let files = [(&path, text.as_bytes())].into_iter();
        let refused = definition::module_objects(tree, files, &Limits::default()).unwrap_err();
        assert_eq!(
            refused.message,
            "CustomResourceDefinition.apiextensions.k8s.io kymas.operator.kyma-project.io must not be among a module's \
             objects, because Tidegate keeps it in every runtime"
        );
        assert!(refused.to_string().starts_with("crd.yaml:5:1"), "{refused}");
    }

    #[test]
    fn what_a_module_may_contain_is_not_of_every_runtime() {
        check("apiextensions.k8s.io", "CustomResourceDefinition", "", "watchers.operator.kyma-project.io", false);
        check("apiextensions.k8s.io", "CustomResourceDefinition", "", "boxes.example.org", false);
        check("operator.kyma-project.io", "Keda", "kyma-system", "default", false);
        check("", "Namespace", "", "kyma-system", false);
        check("", "ConfigMap", "kyma-system", "skr-webhook", false);
        check("apps", "Deployment", "kyma-system", "keda", false);
    }
}
