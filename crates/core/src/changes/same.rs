//! Decides whether two declarations of an object have the same effect: an API server stores the same for both.
//!
//! It knows the defaults of well-known fields and the notations of quantities. A Service keeps what the API server has
//! assigned to it, also if the new declaration omits it. In doubt, two declarations differ.

use serde_json::{Map, Value, json};

use super::quantity;
use crate::{
    kubernetes,
    object::{Gvk, is_built_in_group},
};

/// A field, and its value if nobody sets it, as JSON. `[]` stands for each item of a list. A field has a default only
/// where its parent is.
type Defaults = &'static [(&'static str, &'static str)];

/// The defaults of the spec of a Pod.
const OF_POD: Defaults = &[
    ("restartPolicy", r#""Always""#),
    ("terminationGracePeriodSeconds", "30"),
    ("dnsPolicy", r#""ClusterFirst""#),
    ("schedulerName", r#""default-scheduler""#),
    ("volumes[].secret.defaultMode", "420"),
    ("volumes[].configMap.defaultMode", "420"),
    ("volumes[].downwardAPI.defaultMode", "420"),
    ("volumes[].projected.defaultMode", "420"),
    ("volumes[].projected.sources[].serviceAccountToken.expirationSeconds", "3600"),
];
/// The lists of containers in the spec of a Pod.
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// The defaults of a container.
const OF_CONTAINER: Defaults = &[
    ("terminationMessagePath", r#""/dev/termination-log""#),
    ("terminationMessagePolicy", r#""File""#),
    ("ports[].protocol", r#""TCP""#),
    ("env[].valueFrom.fieldRef.apiVersion", r#""v1""#),
    ("lifecycle.postStart.httpGet.path", r#""/""#),
    ("lifecycle.postStart.httpGet.scheme", r#""HTTP""#),
    ("lifecycle.preStop.httpGet.path", r#""/""#),
    ("lifecycle.preStop.httpGet.scheme", r#""HTTP""#),
];
/// The probes of a container.
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];
/// The defaults of a probe.
const OF_PROBE: Defaults = &[
    ("timeoutSeconds", "1"),
    ("periodSeconds", "10"),
    ("successThreshold", "1"),
    ("failureThreshold", "3"),
    ("httpGet.path", r#""/""#),
    ("httpGet.scheme", r#""HTTP""#),
];

/// The defaults of a kind, apart from those of its pods. Without those that other clients set as well, such as the
/// number of pods: who declares them takes them over.
fn defaults(gvk: &Gvk) -> Defaults {
    match (&*gvk.group, &*gvk.kind) {
        ("", "Service") => &[
            ("spec.type", r#""ClusterIP""#),
            ("spec.sessionAffinity", r#""None""#),
            ("spec.ports[].protocol", r#""TCP""#),
        ],
        ("", "Secret") => &[("type", r#""Opaque""#)],
        ("", "PersistentVolumeClaim" | "PersistentVolume") => &[("spec.volumeMode", r#""Filesystem""#)],
        ("apps", "Deployment") => &[
            ("spec.revisionHistoryLimit", "10"),
            ("spec.progressDeadlineSeconds", "600"),
            ("spec.strategy", "{}"),
            ("spec.strategy.type", r#""RollingUpdate""#),
        ],
        ("apps", "StatefulSet") => &[
            ("spec.revisionHistoryLimit", "10"),
            ("spec.podManagementPolicy", r#""OrderedReady""#),
            ("spec.updateStrategy", "{}"),
            ("spec.updateStrategy.type", r#""RollingUpdate""#),
            ("spec.volumeClaimTemplates[].spec.volumeMode", r#""Filesystem""#),
        ],
        ("apps", "DaemonSet") => &[
            ("spec.revisionHistoryLimit", "10"),
            ("spec.updateStrategy", "{}"),
            ("spec.updateStrategy.type", r#""RollingUpdate""#),
        ],
        ("batch", "Job") => &[("spec.completionMode", r#""NonIndexed""#), ("spec.manualSelector", "false")],
        ("batch", "CronJob") => &[
            ("spec.concurrencyPolicy", r#""Allow""#),
            ("spec.successfulJobsHistoryLimit", "3"),
            ("spec.failedJobsHistoryLimit", "1"),
        ],
        ("networking.k8s.io", "NetworkPolicy") => {
            &[("spec.ingress[].ports[].protocol", r#""TCP""#), ("spec.egress[].ports[].protocol", r#""TCP""#)]
        }
        ("scheduling.k8s.io", "PriorityClass") => &[("preemptionPolicy", r#""PreemptLowerPriority""#)],
        ("storage.k8s.io", "StorageClass") => {
            &[("reclaimPolicy", r#""Delete""#), ("volumeBindingMode", r#""Immediate""#)]
        }
        ("storage.k8s.io", "CSIDriver") => {
            &[("spec.attachRequired", "true"), ("spec.volumeLifecycleModes", r#"["Persistent"]"#)]
        }
        ("admissionregistration.k8s.io", _) => &[
            ("webhooks[].failurePolicy", r#""Fail""#),
            ("webhooks[].matchPolicy", r#""Equivalent""#),
            ("webhooks[].timeoutSeconds", "10"),
            ("webhooks[].clientConfig.service.port", "443"),
            ("webhooks[].rules[].scope", r#""*""#),
        ],
        _ => &[],
    }
}

/// Where the spec of the pods of a kind is.
fn pods(gvk: &Gvk) -> Option<&'static str> {
    match (&*gvk.group, &*gvk.kind) {
        ("", "Pod") => Some("spec"),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet") | ("batch", "Job") => {
            Some("spec.template.spec")
        }
        ("batch", "CronJob") => Some("spec.jobTemplate.spec.template.spec"),
        _ => None,
    }
}

/// Whether an apply of `new` over an object that was made from `old` changes nothing.
pub fn have_same_effect(gvk: &Gvk, old: &Value, new: &Value) -> bool {
    // A custom resource is stored as it is, and so is a schema with its defaults.
    if &*gvk.group == "apiextensions.k8s.io" || !is_built_in(gvk) {
        return old == new;
    }
    let old = complete(gvk, old);
    let mut new = complete(gvk, new);
    keep_assigned(gvk, &old, &mut new);
    is_same("", &old, &new)
}

/// Whether Kubernetes defines a kind.
fn is_built_in(gvk: &Gvk) -> bool {
    kubernetes::is_known_kind(&gvk.kind) && is_built_in_group(&gvk.group)
}

/// What a new declaration of a Service omits although the old one has it, and the API server keeps.
pub fn kept_fields(gvk: &Gvk, old: &Value, new: &Value) -> Vec<String> {
    let mut after = new.clone();
    keep_assigned(gvk, old, &mut after).into_iter().filter(|field| field != "spec.clusterIPs").collect()
}

/// A Service after an apply, with what the API server keeps of `old` although the new declaration omits it. Any other
/// object as it is.
pub fn with_kept_fields(gvk: &Gvk, old: &Value, mut new: Value) -> Value {
    keep_assigned(gvk, old, &mut new);
    new
}

/// An object of a built-in kind with the known defaults of the fields that it omits; any other as it is.
pub(crate) fn with_defaults(gvk: &Gvk, object: &Value) -> Value {
    if is_built_in(gvk) { complete(gvk, object) } else { object.clone() }
}

/// An object with the defaults of the fields that it omits.
fn complete(gvk: &Gvk, object: &Value) -> Value {
    let mut object = object.clone();
    if (&*gvk.group, &*gvk.kind) == ("autoscaling", "HorizontalPodAutoscaler") {
        in_newest_version(&mut object);
    }
    for (path, value) in defaults(gvk) {
        set(&mut object, path, value);
    }
    let Some(pods) = pods(gvk) else { return object };
    if let Some(pod) = object.pointer_mut(&format!("/{}", pods.replace('.', "/"))) {
        for (path, value) in OF_POD {
            set(pod, path, value);
        }
        for list in CONTAINERS {
            let containers = pod.get_mut(list).and_then(Value::as_array_mut);
            containers.into_iter().flatten().for_each(of_container);
        }
    }
    object
}

fn of_container(container: &mut Value) {
    for (path, value) in OF_CONTAINER {
        set(container, path, value);
    }
    for probe in PROBES {
        if let Some(probe) = container.get_mut(probe) {
            OF_PROBE.iter().for_each(|(path, value)| set(probe, path, value));
        }
    }
}

/// Sets a field that is absent, in each place where its parent is.
fn set(value: &mut Value, path: &str, default: &str) {
    let (part, rest) = path.split_once('.').map_or((path, None), |(part, rest)| (part, Some(rest)));
    let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
    let Some(map) = value.as_object_mut() else { return };
    match rest {
        None => {
            let field = map.entry(name).or_insert(Value::Null);
            if field.is_null() {
                *field = serde_json::from_str(default).unwrap_or_default();
            }
        }
        Some(rest) if is_list => {
            let items = map.get_mut(name).and_then(Value::as_array_mut);
            items.into_iter().flatten().for_each(|item| set(item, rest, default));
        }
        Some(rest) => {
            if let Some(inner) = map.get_mut(name) {
                set(inner, rest, default);
            }
        }
    }
}

/// A HorizontalPodAutoscaler of `autoscaling/v1` as `autoscaling/v2` has it.
fn in_newest_version(object: &mut Value) {
    if object["apiVersion"] != "autoscaling/v1" {
        return;
    }
    object["apiVersion"] = json!("autoscaling/v2");
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(average) = spec.shift_remove("targetCPUUtilizationPercentage") {
        let target = json!({"type": "Utilization", "averageUtilization": average});
        spec.insert("metrics".to_owned(), json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]));
    }
}

/// Copies to a Service what the API server assigned and the new declaration omits. Returns the fields.
fn keep_assigned(gvk: &Gvk, old: &Value, new: &mut Value) -> Vec<String> {
    if (&*gvk.group, &*gvk.kind) != ("", "Service") {
        return Vec::new();
    }
    let kind =
        |service: &Value| service.pointer("/spec/type").and_then(Value::as_str).unwrap_or("ClusterIP").to_owned();
    let (was, is) = (kind(old), kind(new));
    let mut kept = Vec::new();
    if was == "ExternalName" || is == "ExternalName" {
        return kept;
    }
    let had: Map<String, Value> = old["spec"].as_object().cloned().unwrap_or_default();
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else { return kept };
    for field in ["clusterIP", "clusterIPs"] {
        let is_unset = spec.get(field).is_none_or(|value| value.is_null() || value == "" || *value == json!([]));
        if let Some(value) = had.get(field).filter(|value| is_unset && !value.is_null() && *value != "") {
            spec.insert(field.to_owned(), value.clone());
            kept.push(format!("spec.{field}"));
        }
    }
    let has_node_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    if !has_node_ports(&was) || !has_node_ports(&is) {
        return kept;
    }
    let of_port = |port: &Value| port.get("nodePort").filter(|port| !port.is_null() && **port != json!(0)).cloned();
    let former = had.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    let mut ports: Vec<&mut Value> = ports.into_iter().flatten().collect();
    let mut used: Vec<Value> = ports.iter().filter_map(|port| of_port(port)).collect();
    for port in ports.iter_mut().filter(|port| port.is_object()) {
        let before = former.iter().rev().find(|before| before["name"] == port["name"]).and_then(of_port);
        if let Some(before) = before.filter(|before| of_port(port).is_none() && !used.contains(before)) {
            port["nodePort"] = before.clone();
            used.push(before);
            kept.push("spec.ports[].nodePort".to_owned());
        }
    }
    kept.dedup();
    kept
}

/// Whether two complete objects are the same. The order of lists counts.
fn is_same(field: &str, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let names = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name)));
            names.into_iter().all(|name| {
                let (old, new) = (old.get(name).unwrap_or(&Value::Null), new.get(name).unwrap_or(&Value::Null));
                quantity::are_in(field) && quantity::same(old, new) || is_same(name, old, new)
            })
        }
        (Value::Array(old), Value::Array(new)) => {
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_same("", old, new))
        }
        (Value::Null, other) | (other, Value::Null) => is_empty(other),
        (Value::Number(one), Value::Number(other)) if one.is_f64() != other.is_f64() => one.as_f64() == other.as_f64(),
        (old, new) => old == new,
    }
}

/// Whether an API server drops a value: `null`, and lists and mappings in which nothing is. An empty mapping says
/// something in some fields, such as `emptyDir` and selectors, so it counts as a value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(api_version: &str, kind: &str, old: &Value, new: &Value, expected: bool) {
        let gvk = Gvk::from_api_version(api_version, kind);
        let with = |value: &Value| {
            let mut value = value.clone();
            value["apiVersion"] = json!(api_version);
            value
        };
        assert_eq!(have_same_effect(&gvk, &with(old), &with(new)), expected, "{old}\n{new}");
        assert!(have_same_effect(&gvk, &with(old), &with(old)));
    }

    fn pod(container: Value) -> Value {
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    }

    #[test]
    fn quantities_and_defaults_have_one_effect_in_any_notation() {
        let resources =
            |cpu: Value, memory: &str| pod(json!({"resources": {"limits": {"cpu": cpu, "memory": memory}}}));
        let one = resources(json!("1000m"), "1024Mi");
        check("apps/v1", "Deployment", &one, &resources(json!("1"), "1Gi"), true);
        check("apps/v1", "Deployment", &one, &resources(json!(1), "1Gi"), true);
        check("apps/v1", "Deployment", &one, &resources(json!("2"), "1Gi"), false);
        let port = pod(json!({"ports": [{"containerPort": 80}]}));
        for (protocol, expected) in [("TCP", true), ("UDP", false)] {
            let explicit = pod(json!({"ports": [{"containerPort": 80, "protocol": protocol}]}));
            check("apps/v1", "Deployment", &port, &explicit, expected);
            check("apps/v1", "Deployment", &explicit, &port, expected);
            check("example.org/v1", "Deployment", &port, &explicit, false);
        }
        let job = |policy: &str| json!({"spec": {"concurrencyPolicy": policy}});
        check("batch/v1", "CronJob", &json!({"spec": {}}), &job("Allow"), true);
        check("batch/v1", "CronJob", &job("Forbid"), &json!({"spec": {}}), false);
        let probe = |probe: Value| pod(json!({"readinessProbe": probe}));
        check(
            "apps/v1",
            "DaemonSet",
            &probe(json!({"httpGet": {"port": 1}})),
            &probe(json!({"httpGet": {"port": 1, "scheme": "HTTP"}, "periodSeconds": 10})),
            true,
        );
        check(
            "apps/v1",
            "DaemonSet",
            &probe(json!({"httpGet": {"port": 1}})),
            &probe(json!({"httpGet": {"port": 1, "scheme": "HTTPS"}})),
            false,
        );
    }

    #[test]
    fn what_an_api_server_distinguishes_differs() {
        check("v1", "ConfigMap", &json!({"data": {"a": "1"}}), &json!({"data": {"a": "2"}}), false);
        check("v1", "ConfigMap", &json!({"data": {"cpu": "1000m"}}), &json!({"data": {"cpu": "1"}}), false);
        let order = |first: &str, second: &str| json!({"spec": {"template": {"spec": {"initContainers": [{"name": first}, {"name": second}]}}}});
        check("apps/v1", "Deployment", &order("a", "b"), &order("b", "a"), false);
        let volume = |volume: Value| json!({"spec": {"template": {"spec": {"volumes": [volume]}}}});
        check(
            "apps/v1",
            "Deployment",
            &volume(json!({"name": "a"})),
            &volume(json!({"name": "a", "emptyDir": {}})),
            false,
        );
        check("apps/v1", "Deployment", &json!({"spec": {"a": null, "b": []}}), &json!({"spec": {}}), true);
    }

    #[test]
    fn what_other_clients_set_and_what_is_stored_as_it_is_differs() {
        let spec = |spec: Value| json!({ "spec": spec });
        check("apps/v1", "Deployment", &spec(json!({})), &spec(json!({"replicas": 1})), false);
        check("batch/v1", "CronJob", &spec(json!({})), &spec(json!({"suspend": false})), false);
        check("example.org/v1", "Cache", &spec(json!({"x": []})), &spec(json!({})), false);
        let cpu = |cpu: &str| spec(json!({"resources": {"limits": {"cpu": cpu}}}));
        check("example.org/v1", "Cache", &cpu("1000m"), &cpu("1"), false);
        let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        check(crd.0, crd.1, &spec(json!({"default": []})), &spec(json!({})), false);
        let large = |number: u64| spec(json!({ "revisionHistoryLimit": number }));
        check("apps/v1", "Deployment", &large(9_007_199_254_740_993), &large(9_007_199_254_740_992), false);
    }

    #[test]
    fn an_autoscaler_has_one_effect_in_both_versions() {
        let gvk = Gvk::from_api_version("autoscaling/v2", "HorizontalPodAutoscaler");
        let old = json!({"apiVersion": "autoscaling/v1", "spec": {"minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
        let new = |average: u32| {
            json!({"apiVersion": "autoscaling/v2", "spec": {"maxReplicas": 3, "minReplicas": 1, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": average}}},
            ]}})
        };
        assert!(have_same_effect(&gvk, &old, &new(80)));
        assert!(!have_same_effect(&gvk, &old, &new(70)));
    }

    #[test]
    fn a_service_keeps_what_the_api_server_has_assigned() {
        let gvk = Gvk::from_api_version("v1", "Service");
        let service = |spec: Value| json!({"apiVersion": "v1", "kind": "Service", "spec": spec});
        #[track_caller]
        fn check(gvk: &Gvk, old: &Value, new: &Value, same: bool, kept: &[&str]) {
            assert_eq!(
                (have_same_effect(gvk, old, new), kept_fields(gvk, old, new)),
                (same, kept.iter().map(|one| (*one).to_owned()).collect())
            );
        }
        let headless = service(json!({"clusterIP": "None", "clusterIPs": ["None"]}));
        check(&gvk, &headless, &service(json!({})), true, &["spec.clusterIP"]);
        check(&gvk, &headless, &service(json!({"clusterIP": "", "selector": {"a": "b"}})), false, &["spec.clusterIP"]);
        check(&gvk, &headless, &service(json!({"type": "ExternalName"})), false, &[]);
        let ports = |kind: &str, port: Value| service(json!({"type": kind, "ports": [port]}));
        let with = ports("NodePort", json!({"name": "a", "port": 1, "nodePort": 30000}));
        check(
            &gvk,
            &with,
            &ports("NodePort", json!({"name": "a", "port": 1, "protocol": "TCP"})),
            true,
            &["spec.ports[].nodePort"],
        );
        check(&gvk, &with, &ports("LoadBalancer", json!({"name": "a", "port": 1})), false, &["spec.ports[].nodePort"]);
        check(&gvk, &with, &ports("NodePort", json!({"name": "b", "port": 1})), false, &[]);
        check(&gvk, &with, &ports("ClusterIP", json!({"name": "a", "port": 1})), false, &[]);
        check(&gvk, &with, &ports("NodePort", json!({"name": "a", "port": 1, "nodePort": 30001})), false, &[]);
    }
}
