// SPDX-License-Identifier: Apache-2.0

//! The resources of a server: the built-in ones, and those of CustomResourceDefinitions.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use super::{builtin, crd::Custom, patch::Schema, reviews};
use tidegate_core::object::Gvk;

/// A resource in one version.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) kind: Gvk,
    /// `group/version`, or `version` alone.
    pub(super) api_version: Arc<str>,
    pub(super) plural: Arc<str>,
    pub(super) singular: Arc<str>,
    pub(super) list_kind: Arc<str>,
    pub(super) namespaced: bool,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    /// The collection of its objects, independent of the version.
    pub(super) collection: Arc<str>,
    /// The `apiVersion` of stored objects.
    pub(super) stored: Arc<str>,
    pub(super) habits: Habits,
    pub(super) schema: Schema,
    /// The content of its CustomResourceDefinition; `None` for a built-in one.
    pub(super) custom: Option<Custom>,
}

/// How objects of a resource are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Habits {
    /// Whether it has the subresource `status`.
    pub(super) status: bool,
    /// Whether a PUT creates a missing object.
    pub(super) put_creates: bool,
    /// Whether a PUT must name the resource version.
    pub(super) put_needs_version: bool,
    /// Which changes increment `metadata.generation`.
    pub(super) generation: Generation,
    pub(super) names: Names,
}

/// Which changes of an object increment its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// None: it has no generation.
    None,
    /// Changes of everything but `metadata` and `status`.
    Content,
    /// Changes of everything but `metadata`.
    All,
}

/// The format of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Subdomain,
    Label,
    Segment,
}

/// The resources of one server, by group, version and plural.
pub(super) type Resources = BTreeMap<(Arc<str>, Arc<str>, Arc<str>), Arc<Resource>>;

/// The fields of an Event that describe its object, by their names in both groups.
pub(super) const INVOLVED: [(&str, &str); 7] = [
    ("involvedObject.kind", "regarding.kind"),
    ("involvedObject.namespace", "regarding.namespace"),
    ("involvedObject.name", "regarding.name"),
    ("involvedObject.uid", "regarding.uid"),
    ("involvedObject.apiVersion", "regarding.apiVersion"),
    ("involvedObject.resourceVersion", "regarding.resourceVersion"),
    ("involvedObject.fieldPath", "regarding.fieldPath"),
];

/// The name of CustomResourceDefinitions' collection.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// The name of Namespaces' collection.
pub(super) const NAMESPACES: &str = "namespaces";

/// Group, version, kind, plural, flags, short names and categories. Flags: `n`amespaced, `s`tatus, `p`ut creates, needs
/// a `v`ersion, `g`eneration of its content, and names that are `l`abels or any path se`/`gment.
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

/// In the order of discovery. The crate's documentation lists the missing groups.
const ROWS: &[Row] = &[
    ("", "v1", "ConfigMap", "configmaps", "n", "cm", ""),
    ("", "v1", "Endpoints", "endpoints", "np", "ep", ""),
    ("", "v1", "Event", "events", "np", "ev", ""),
    ("", "v1", "LimitRange", "limitranges", "np", "limits", ""),
    ("", "v1", "Namespace", "namespaces", "sl", "ns", ""),
    ("", "v1", "Node", "nodes", "s", "no", ""),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "ns", "pvc", ""),
    ("", "v1", "PersistentVolume", "persistentvolumes", "s", "pv", ""),
    ("", "v1", "Pod", "pods", "nsg", "po", "all"),
    ("", "v1", "PodTemplate", "podtemplates", "n", "", ""),
    ("", "v1", "ReplicationController", "replicationcontrollers", "nsg", "rc", "all"),
    ("", "v1", "ResourceQuota", "resourcequotas", "ns", "quota", ""),
    ("", "v1", "Secret", "secrets", "n", "", ""),
    ("", "v1", "ServiceAccount", "serviceaccounts", "n", "sa", ""),
    ("", "v1", "Service", "services", "nspl", "svc", "all"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "n", "", ""),
    ("apps", "v1", "DaemonSet", "daemonsets", "nsg", "ds", "all"),
    ("apps", "v1", "Deployment", "deployments", "nsg", "deploy", "all"),
    ("apps", "v1", "ReplicaSet", "replicasets", "nsg", "rs", "all"),
    ("apps", "v1", "StatefulSet", "statefulsets", "nsg", "sts", "all"),
    ("events.k8s.io", "v1", "Event", "events", "np", "ev", ""),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "", "", ""),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "", "", ""),
    ("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", "n", "", ""),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "", "", ""),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "", "", ""),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "g", "", ""),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "nsg", "ing", ""),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "ng", "netpol", ""),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "nsg", "pdb", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "p/", "", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "p/", "", ""),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "np/", "", ""),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "np/", "", ""),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "vg",
        "",
        "api-extensions",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "vg",
        "",
        "api-extensions",
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "svg",
        "crd,crds",
        "api-extensions",
    ),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "g", "pc", ""),
    ("coordination.k8s.io", "v1", "Lease", "leases", "npv", "", ""),
];

static BUILT_IN: LazyLock<Resources> = LazyLock::new(|| {
    let resources = ROWS.iter().map(Resource::built_in);
    resources.map(|resource| (resource.place(), Arc::new(resource))).collect()
});

/// The built-in resources, by group, version and plural. All servers share this table.
pub(super) fn built_in() -> &'static Resources {
    &BUILT_IN
}

/// The built-in resources, in the order of discovery.
pub(super) fn in_order() -> impl Iterator<Item = &'static Arc<Resource>> {
    ROWS.iter().filter_map(|row| BUILT_IN.get(&(row.0.into(), row.1.into(), row.3.into())))
}

/// The collection of a group and a plural, which is the resource's name in messages.
pub(super) fn collection(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

// === impl Resource ===

impl Resource {
    fn built_in(row: &Row) -> Resource {
        let (group, version, kind, plural, what, short_names, categories) = *row;
        let has = |sign: char| what.contains(sign);
        let kind = Gvk::new(group, version, kind);
        let words = |text: &str| text.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
        let names = match () {
            () if has('l') => Names::Label,
            () if has('/') => Names::Segment,
            () => Names::Subdomain,
        };
        let api_version: Arc<str> = kind.api_version().into();
        Resource {
            singular: kind.kind.to_lowercase().into(),
            list_kind: format!("{}List", kind.kind).into(),
            plural: plural.into(),
            namespaced: has('n'),
            short_names: words(short_names),
            categories: words(categories),
            // Events have two groups and one store.
            collection: if plural == "events" { "events".into() } else { collection(group, plural) },
            stored: if plural == "events" { "v1".into() } else { Arc::clone(&api_version) },
            api_version,
            habits: Habits {
                status: has('s'),
                put_creates: has('p'),
                put_needs_version: has('v'),
                generation: if has('g') { Generation::Content } else { Generation::None },
                names,
            },
            schema: builtin::schema(&kind).expect("the schemas of all rows are recorded"),
            custom: None,
            kind,
        }
    }

    /// Its key among the resources of a server.
    pub(super) fn place(&self) -> (Arc<str>, Arc<str>, Arc<str>) {
        (Arc::clone(&self.kind.group), Arc::clone(&self.kind.version), Arc::clone(&self.plural))
    }

    /// Whether it is built in. Lists of built-in objects have no type in their items.
    pub(super) fn is_built_in(&self) -> bool {
        self.custom.is_none()
    }

    /// Whether it is this built-in collection.
    pub(super) fn is(&self, collection: &str) -> bool {
        &*self.collection == collection
    }

    /// Its verbs, in the order of discovery.
    pub(super) fn verbs(&self) -> &'static [&'static str] {
        match &*self.collection {
            NAMESPACES => &["create", "delete", "get", "list", "patch", "update", "watch"],
            _ if reviews::is_review(self) => &["create"],
            _ if self.is_built_in() => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
            _ => &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
        }
    }

    /// The fields that a field selector may use; `None` if there are only the common ones.
    pub(super) fn selectable(&self) -> Option<Vec<&str>> {
        let mut fields = vec!["metadata.name"];
        if let Some(custom) = &self.custom {
            fields.extend(self.namespaced.then_some("metadata.namespace"));
            fields.extend(custom.selectable.iter().map(String::as_str));
            return Some(fields);
        }
        match &*self.collection {
            NAMESPACES => fields.push("status.phase"),
            "nodes" => fields.push("spec.unschedulable"),
            "events" if self.kind.group.is_empty() => fields.extend(
                ["metadata.namespace", "reason", "reportingComponent", "source", "type"]
                    .into_iter()
                    .chain(INVOLVED.iter().map(|(old, _)| *old)),
            ),
            "events" => fields.extend(
                ["metadata.namespace", "reason", "reportingController", "type"]
                    .into_iter()
                    .chain(INVOLVED.iter().map(|(_, new)| *new)),
            ),
            "secrets" => fields.extend(["metadata.namespace", "type"]),
            "services" => fields.extend(["metadata.namespace", "spec.clusterIP", "spec.type"]),
            "replicationcontrollers" => fields.extend(["metadata.namespace", "status.replicas"]),
            "pods" => fields.extend([
                "metadata.namespace",
                "spec.host",
                "spec.hostNetwork",
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "status.nominatedNodeName",
                "status.phase",
                "status.podIP",
                "status.podIPs",
            ]),
            _ => return None,
        }
        Some(fields)
    }
}
