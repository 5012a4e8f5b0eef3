// SPDX-License-Identifier: Apache-2.0

//! The defaults of the server, kind by kind. `tests/it/sim/builtin.rs` compares them with the real server.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    canonical::{absent, canonical, empty, fill_texts, items},
    component, pod,
};
use tidegate_core::object::Gvk;

/// Sets the defaults of a built-in object and converts it to its canonical form. Idempotent.
///
/// Values that the server allocates (addresses and ports of Services) or computes from other objects are not set.
pub fn default(kind: &Gvk, object: &mut Value) {
    let Some(component) = component(kind) else { return };
    // Metadata, including managed fields, have their own rules.
    let metadata = object.get_mut("metadata").map(Value::take);
    *object = canonical(component, object.take());
    if let (Some(mut metadata), Some(fields)) = (metadata, object.as_object_mut()) {
        fill_texts(metadata.get_mut("labels"));
        fill_texts(metadata.get_mut("annotations"));
        fields.insert("metadata".to_owned(), metadata);
    }
    match (&*kind.group, &*kind.kind) {
        ("", "Secret") => secret(object),
        ("", "Service") => service(object),
        ("", "Namespace") => namespace(object),
        ("", "Endpoints") => endpoints(object),
        ("", "PersistentVolumeClaim") => claim(object),
        ("", "LimitRange") => limit_range(object),
        ("", "Pod") => {
            if let Some(spec) = object.get_mut("spec") {
                pod::spec(spec);
                pod::of_pod(spec);
            }
            phase(object, "Pending");
        }
        ("", "PodTemplate" | "ReplicationController") => pod::template(object.get_mut("template")),
        ("apps", "Deployment") => with_spec(object, deployment),
        ("apps", "StatefulSet") => with_spec(object, stateful_set),
        ("apps", "DaemonSet") => {
            with_spec(object, daemon_set);
            // The server counts changes of the template here; we do not.
            if let Some(annotations) =
                object.get_mut("metadata").and_then(|metadata| absent(metadata, "annotations", empty()))
            {
                absent(annotations, "deprecated.daemonset.template.generation", "1");
            }
        }
        ("apps", "ReplicaSet") => with_spec(object, |spec| {
            absent(spec, "replicas", 1);
            pod::template(spec.get_mut("template"));
        }),
        ("batch", "Job") => with_spec(object, job),
        ("batch", "CronJob") => with_spec(object, cron_job),
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => binding(object),
        ("admissionregistration.k8s.io", _) => items(object, "webhooks").for_each(|webhook| admission(webhook, kind)),
        ("networking.k8s.io", "NetworkPolicy") => with_spec(object, network_policy),
        ("scheduling.k8s.io", "PriorityClass") => {
            absent(object, "preemptionPolicy", "PreemptLowerPriority");
        }
        _ => {}
    }
}

fn with_spec(object: &mut Value, fill_in: impl FnOnce(&mut Value)) {
    if let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) {
        fill_in(spec);
    }
}

fn phase(object: &mut Value, phase: &str) {
    if let Some(status) = absent(object, "status", empty()) {
        absent(status, "phase", phase);
    }
}

fn secret(object: &mut Value) {
    absent(object, "type", "Opaque");
    let Some(fields) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = fields.shift_remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(empty);
    for (name, text) in texts {
        if let (Some(data), Value::String(text)) = (data.as_object_mut(), text) {
            data.insert(name, json!(BASE64_STANDARD.encode(text)));
        }
    }
}

fn service(object: &mut Value) {
    with_spec(object, |spec| {
        absent(spec, "sessionAffinity", "None");
        absent(spec, "type", "ClusterIP");
        if spec["sessionAffinity"] == "ClientIP"
            && let Some(client) =
                absent(spec, "sessionAffinityConfig", empty()).and_then(|config| absent(config, "clientIP", empty()))
        {
            absent(client, "timeoutSeconds", 10_800);
        }
        let kind = spec["type"].as_str().unwrap_or_default().to_owned();
        if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
            absent(spec, "externalTrafficPolicy", "Cluster");
        }
        if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
            absent(spec, "internalTrafficPolicy", "Cluster");
        }
        if kind == "LoadBalancer" {
            absent(spec, "allocateLoadBalancerNodePorts", true);
        }
        for port in items(spec, "ports") {
            absent(port, "protocol", "TCP");
            let number = port["port"].clone();
            // Zero and an empty name count as absent.
            if matches!(&port["targetPort"], Value::Null) || port["targetPort"] == 0 || port["targetPort"] == "" {
                port["targetPort"] = number;
            }
        }
    });
}

fn namespace(object: &mut Value) {
    phase(object, "Active");
    let name = object["metadata"]["name"].clone();
    if let (Value::String(name), Some(metadata)) = (name, object.get_mut("metadata"))
        && let Some(labels) = absent(metadata, "labels", empty())
    {
        labels["kubernetes.io/metadata.name"] = json!(name);
    }
}

fn endpoints(object: &mut Value) {
    for subset in items(object, "subsets") {
        for port in items(subset, "ports") {
            absent(port, "protocol", "TCP");
        }
    }
}

fn claim(object: &mut Value) {
    phase(object, "Pending");
    with_spec(object, |spec| {
        absent(spec, "volumeMode", "Filesystem");
    });
}

fn limit_range(object: &mut Value) {
    with_spec(object, |spec| {
        for item in items(spec, "limits").filter(|item| item["type"] == "Container") {
            let limits = |item: &Value, name: &str| item[name].as_object().cloned().unwrap_or_default();
            for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
                for (resource, quantity) in limits(item, source) {
                    if let Some(target) = absent(item, target, empty()) {
                        absent(target, &resource, quantity);
                    }
                }
            }
        }
    });
}

fn deployment(spec: &mut Value) {
    absent(spec, "replicas", 1);
    absent(spec, "revisionHistoryLimit", 10);
    absent(spec, "progressDeadlineSeconds", 600);
    if let Some(strategy) = absent(spec, "strategy", empty()) {
        absent(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate"
            && let Some(rolling) = absent(strategy, "rollingUpdate", empty())
        {
            absent(rolling, "maxUnavailable", "25%");
            absent(rolling, "maxSurge", "25%");
        }
    }
    pod::template(spec.get_mut("template"));
}

fn stateful_set(spec: &mut Value) {
    absent(spec, "replicas", 1);
    absent(spec, "revisionHistoryLimit", 10);
    absent(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = absent(spec, "updateStrategy", empty()) {
        absent(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate"
            && let Some(rolling) = absent(strategy, "rollingUpdate", empty())
        {
            absent(rolling, "partition", 0);
        }
    }
    if let Some(retention) = absent(spec, "persistentVolumeClaimRetentionPolicy", empty()) {
        absent(retention, "whenDeleted", "Retain");
        absent(retention, "whenScaled", "Retain");
    }
    for template in items(spec, "volumeClaimTemplates") {
        absent(template, "apiVersion", "v1");
        absent(template, "kind", "PersistentVolumeClaim");
        claim(template);
    }
    pod::template(spec.get_mut("template"));
}

fn daemon_set(spec: &mut Value) {
    absent(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = absent(spec, "updateStrategy", empty()) {
        absent(strategy, "type", "RollingUpdate");
        if strategy["type"] == "RollingUpdate"
            && let Some(rolling) = absent(strategy, "rollingUpdate", empty())
        {
            absent(rolling, "maxUnavailable", 1);
            absent(rolling, "maxSurge", 0);
        }
    }
    pod::template(spec.get_mut("template"));
}

fn job(spec: &mut Value) {
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        absent(spec, "completions", 1);
    }
    absent(spec, "parallelism", 1);
    if spec["podFailurePolicy"].is_null() {
        absent(spec, "podReplacementPolicy", "TerminatingOrFailed");
    } else {
        absent(spec, "podReplacementPolicy", "Failed");
    }
    if spec["backoffLimitPerIndex"].is_null() {
        absent(spec, "backoffLimit", 6);
    } else {
        absent(spec, "backoffLimit", i32::MAX);
    }
    absent(spec, "completionMode", "NonIndexed");
    absent(spec, "suspend", false);
    absent(spec, "manualSelector", false);
    pod::template(spec.get_mut("template"));
}

fn cron_job(spec: &mut Value) {
    absent(spec, "concurrencyPolicy", "Allow");
    absent(spec, "suspend", false);
    absent(spec, "successfulJobsHistoryLimit", 3);
    absent(spec, "failedJobsHistoryLimit", 1);
    pod::template(spec.pointer_mut("/jobTemplate/spec/template"));
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if let Some(role) = object.get_mut("roleRef") {
        if role["apiGroup"] == "" {
            role["apiGroup"] = json!(GROUP);
        }
        absent(role, "apiGroup", GROUP);
    }
    for subject in items(object, "subjects") {
        match subject["kind"].as_str() {
            Some("User" | "Group") => {
                if subject["apiGroup"] == "" {
                    subject["apiGroup"] = json!(GROUP);
                }
                absent(subject, "apiGroup", GROUP);
            }
            _ if subject["apiGroup"] == "" => {
                if let Some(fields) = subject.as_object_mut() {
                    fields.shift_remove("apiGroup");
                }
            }
            _ => {}
        }
    }
}

fn admission(webhook: &mut Value, kind: &Gvk) {
    absent(webhook, "failurePolicy", "Fail");
    absent(webhook, "matchPolicy", "Equivalent");
    absent(webhook, "namespaceSelector", empty());
    absent(webhook, "objectSelector", empty());
    absent(webhook, "timeoutSeconds", 10);
    if &*kind.kind == "MutatingWebhookConfiguration" {
        absent(webhook, "reinvocationPolicy", "Never");
    }
    if let Some(service) = webhook.pointer_mut("/clientConfig/service") {
        absent(service, "port", 443);
    }
    for rule in items(webhook, "rules") {
        absent(rule, "scope", "*");
    }
}

fn network_policy(spec: &mut Value) {
    let has_egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            for port in items(rule, "ports") {
                absent(port, "protocol", "TCP");
            }
        }
    }
    absent(spec, "policyTypes", if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) });
}
