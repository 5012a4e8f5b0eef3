//! The kinds that a rule may match. A misspelt kind would disable its rule, so it is reported.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Policies;
use tidegate_core::{
    definition::{Definitions, Kind, near},
    diagnostic::Diagnostic,
    object::{Object, is_built_in_group},
    template::Template,
};

use crate::model::{Difference, Report};

/// Kinds that may exist besides those of Kubernetes: kind and group.
#[derive(Clone, Debug, Default)]
pub struct Kinds(BTreeSet<(String, String)>);

/// Code of the warning about a kind that no object has.
const CODE_KIND: &str = "policy-kind";
/// Kubernetes kinds that users write rules for.
const BUILT_IN: [&str; 52] = [
    "APIService",
    "CSIDriver",
    "CertificateSigningRequest",
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "ControllerRevision",
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "DeviceClass",
    "EndpointSlice",
    "Endpoints",
    "Event",
    "FlowSchema",
    "HorizontalPodAutoscaler",
    "IPAddress",
    "Ingress",
    "IngressClass",
    "Job",
    "Lease",
    "LimitRange",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "MutatingWebhookConfiguration",
    "Namespace",
    "NetworkPolicy",
    "Node",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "PodTemplate",
    "PriorityClass",
    "PriorityLevelConfiguration",
    "ReplicaSet",
    "ReplicationController",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "RuntimeClass",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceCIDR",
    "StatefulSet",
    "StorageClass",
    "ValidatingAdmissionPolicy",
    "ValidatingWebhookConfiguration",
];

// === impl Kinds ===

impl Kinds {
    /// Adds the kinds of definitions, of module objects, of their CRDs, and of rendered objects.
    pub fn from_definitions(sides: &[&Definitions]) -> Kinds {
        let mut kinds = Kinds::default();
        for kind in Kind::ALL {
            kinds.add(kind.as_str(), kind.api().0);
        }
        for produced in Template::ALL.map(Template::produces) {
            let group = produced.api_versions.first().and_then(|version| version.split_once('/'));
            kinds.add(produced.kind, group.map_or("", |(group, _)| group));
        }
        let modules = sides.iter().flat_map(|side| side.modules.values());
        for source in modules.flat_map(|module| module.objects()) {
            kinds.add_object(&source.object());
        }
        let templates = sides.iter().flat_map(|side| side.good.values());
        for resource in templates.filter_map(|definition| definition.object.value().pointer("/spec/data")) {
            if let Ok(resource) = Object::new(resource.clone()) {
                kinds.add_object(&resource);
            }
        }
        kinds
    }

    fn add(&mut self, kind: &str, group: &str) {
        self.0.insert((kind.to_owned(), group.to_owned()));
    }

    pub(super) fn add_object(&mut self, object: &Object) {
        let id = object.id();
        self.add(&id.kind, &id.group);
        if &*id.kind == "CustomResourceDefinition" {
            let text = |pointer| object.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            self.add(text("/spec/names/kind"), text("/spec/group"));
        }
    }

    /// Whether objects of a kind may exist. The kind is written as in a rule.
    fn have(&self, wanted: &str, differences: &[Difference]) -> bool {
        let (kind, group) = wanted.split_once('.').map_or((wanted, None), |(kind, group)| (kind, Some(group)));
        let is_it = |found: &str, of: &str| found == kind && group.is_none_or(|group| group == of);
        self.0.iter().any(|(found, of)| is_it(found, of))
            || (BUILT_IN.contains(&kind) && group.is_none_or(is_built_in_group))
            || differences.iter().any(|one| is_it(&one.id.kind, &one.id.group))
    }
}

impl Policies {
    /// Warns about kinds that no object has: their rules never match.
    pub(crate) fn warn(&self, report: &mut Report, kinds: &Kinds) {
        for policy in &self.rules {
            for wanted in policy.matches.kinds.iter().filter(|wanted| !kinds.have(wanted, &report.differences)) {
                let message = format!(
                    "the rule `{}` matches the unknown kind `{}`, so it checks nothing",
                    tidegate_core::yaml::short(&policy.name),
                    tidegate_core::yaml::short(wanted),
                );
                let known = kinds.0.iter().map(|(kind, _)| kind.as_str()).chain(BUILT_IN);
                let kind = wanted.split_once('.').map_or(wanted.as_str(), |(kind, _)| kind);
                let hint = near::did_you_mean(kind, known).filter(|_| !kinds.have(kind, &report.differences));
                let hint = hint.unwrap_or_else(|| "correct `match.kinds`; write `Kind` or `Kind.group`".to_owned());
                report.diagnostics.push(Diagnostic::warning(CODE_KIND, message).hint(hint));
            }
        }
        report.diagnostics.sort();
        report.diagnostics.dedup();
    }
}
