// SPDX-License-Identifier: Apache-2.0

//! Defaults of Pods and Pod templates.

use serde_json::{Value, json};

use super::canonical::{absent, empty, items};

/// Default permissions of files from volumes, 0644.
const MODE: u32 = 420;

pub(super) fn template(template: Option<&mut Value>) {
    let Some(template) = template.filter(|template| template.is_object()) else { return };
    if let Some(given) = absent(template, "spec", empty()) {
        spec(given);
    }
}

pub(super) fn spec(spec: &mut Value) {
    absent(spec, "restartPolicy", "Always");
    absent(spec, "terminationGracePeriodSeconds", 30);
    absent(spec, "dnsPolicy", "ClusterFirst");
    absent(spec, "securityContext", empty());
    absent(spec, "schedulerName", "default-scheduler");
    // One account with two field names.
    let account = [&spec["serviceAccountName"], &spec["serviceAccount"]].into_iter().find(|name| name.is_string());
    if let Some(account) = account.cloned() {
        spec["serviceAccountName"] = account.clone();
        spec["serviceAccount"] = account;
    }
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        items(spec, list).for_each(container);
    }
    items(spec, "volumes").for_each(volume);
}

/// Defaults of a Pod that a template does not have.
pub(super) fn of_pod(spec: &mut Value) {
    absent(spec, "enableServiceLinks", true);
    let of_host = spec["hostNetwork"] == true;
    for list in ["initContainers", "containers"] {
        for port in items(spec, list).flat_map(|container| items(container, "ports")).filter(|_| of_host) {
            let number = port["containerPort"].clone();
            absent(port, "hostPort", number);
        }
    }
}

fn container(container: &mut Value) {
    absent(container, "terminationMessagePath", "/dev/termination-log");
    absent(container, "terminationMessagePolicy", "File");
    absent(container, "resources", empty());
    let image = container["image"].as_str().unwrap_or_default();
    let policy = if is_latest(image) { "Always" } else { "IfNotPresent" };
    absent(container, "imagePullPolicy", policy);
    for port in items(container, "ports") {
        absent(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            absent(field, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(given) = container.get_mut(name).filter(|given| given.is_object()) {
            probe(given);
        }
    }
    for hook in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(given) = container.pointer_mut(hook) {
            http(given);
        }
    }
}

/// Whether an image has no digest, and no tag or the tag `latest`.
fn is_latest(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or_default();
    !name.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn probe(probe: &mut Value) {
    absent(probe, "timeoutSeconds", 1);
    absent(probe, "periodSeconds", 10);
    absent(probe, "successThreshold", 1);
    absent(probe, "failureThreshold", 3);
    http(probe);
    if let Some(grpc) = probe.get_mut("grpc") {
        absent(grpc, "service", "");
    }
}

fn http(action: &mut Value) {
    if let Some(get) = action.get_mut("httpGet") {
        absent(get, "path", "/");
        absent(get, "scheme", "HTTP");
    }
}

fn volume(volume: &mut Value) {
    if volume.as_object().is_some_and(|fields| fields.keys().all(|name| name == "name")) {
        volume["emptyDir"] = json!({});
    }
    for kind in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(kind).filter(|source| source.is_object()) {
            absent(source, "defaultMode", MODE);
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        absent(path, "type", "");
    }
    let fields = |source: &mut Value| {
        for item in items(source, "items") {
            if let Some(field) = item.get_mut("fieldRef") {
                absent(field, "apiVersion", "v1");
            }
        }
    };
    if let Some(source) = volume.get_mut("downwardAPI") {
        fields(source);
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in items(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                absent(token, "expirationSeconds", 3600);
            }
            if let Some(source) = source.get_mut("downwardAPI") {
                fields(source);
            }
        }
    }
}
