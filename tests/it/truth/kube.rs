//! What `validate` rejects of Kubernetes' own kinds, an API server rejects as well.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use kube::{
    Client,
    api::{Patch, PatchParams, PostParams, ValidationDirective},
};
use serde_json::{Value, json};
use tidegate_core::{
    budget::Budget,
    kubernetes::{Api, Version},
};

use crate::harness;

#[path = "../../../crates/core/examples/kubernetes-schemas/table.rs"]
mod table;

const TABLE: &str = include_str!("../../../crates/core/src/kubernetes/schemas.txt");

/// The version of the API server that the tests run.
fn version() -> Version {
    "1.36".parse().unwrap()
}

/// Whether `validate` rejects an object, and why.
fn rejected(object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    match version().api(text("apiVersion"), text("kind")) {
        Api::Served(served) => {
            let (found, _) = served.check(object, usize::MAX, &Budget::default());
            found.first().map(|first| format!("{:?}: {}", first.path, first.message))
        }
        Api::Absent { message, .. } => Some(message),
        Api::Foreign { .. } => None,
    }
}

/// Whether the API server rejects an object, when it is applied as the daemon applies it.
async fn refused(client: &Client, object: &Value) -> Option<String> {
    let api = harness::api_of(client, object).await.unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let params = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("testbed").force()
    };
    match api.patch(name, &params, &Patch::Apply(object)).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{object}: {error}"),
    }
}

/// Whether the API server rejects an object that it is asked to create.
async fn refused_at_creation(client: &Client, object: &Value) -> Option<String> {
    let api = harness::api_of(client, object).await.unwrap();
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(object.clone()).unwrap();
    api.create(&params, &object).await.err().map(|error| error.to_string())
}

/// Objects of many kinds that every API server accepts.
fn good() -> Vec<Value> {
    let labels = json!({"app": "a"});
    let pod = json!({
        "metadata": {"labels": labels, "annotations": {"example.org/a": "b"}},
        "spec": {
            "serviceAccountName": "a", "terminationGracePeriodSeconds": 5, "hostNetwork": false,
            "nodeSelector": {"a": "b"}, "securityContext": {"runAsUser": 1, "runAsNonRoot": true},
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 5, "effect": "NoExecute"}],
            "volumes": [
                {"name": "a", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "b", "configMap": {"name": "b", "items": [{"key": "a", "path": "b", "mode": 256}]}},
            ],
            "containers": [{
                "name": "a", "image": "a:1", "args": ["a"], "imagePullPolicy": "Always",
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                ],
                "ports": [{"containerPort": 80, "name": "http", "protocol": "TCP"}],
                "resources": {"limits": {"cpu": 1, "memory": "64Mi"}, "requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3},
                "readinessProbe": {"tcpSocket": {"port": 80}},
                "volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": true}],
            }],
        },
    });
    let selector = json!({"matchLabels": labels});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let list = [
        (
            "apps/v1",
            "Deployment",
            json!({"spec": {
                "replicas": 2, "paused": false, "selector": selector, "template": pod,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            }}),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({"spec": {
                "serviceName": "a", "selector": selector, "template": pod,
                "volumeClaimTemplates": [{"metadata": {"name": "c"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                }}],
            }}),
        ),
        (
            "v1",
            "Service",
            json!({"spec": {
                "selector": labels, "type": "ClusterIP",
                "ports": [{"name": "a", "port": 80, "targetPort": "http"}, {"name": "b", "port": 81, "targetPort": 81}],
            }}),
        ),
        ("v1", "ConfigMap", json!({"data": {"a": "b", "c": null}, "binaryData": {"d": "YQ=="}, "immutable": false})),
        ("v1", "Secret", json!({"data": {"a": "YQ==", "b": "", "c": "YWFh\nYWFh\n"}, "stringData": {"d": "d"}})),
        (
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {
                "holderIdentity": "a", "leaseDurationSeconds": 5, "renewTime": "2026-01-31T12:00:00.000000+01:00",
            }}),
        ),
        ("v1", "ServiceAccount", json!({"automountServiceAccountToken": false, "imagePullSecrets": [{"name": "a"}]})),
        ("v1", "Namespace", json!({"spec": {"finalizers": ["kubernetes"]}})),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            json!({
                "rules": rules, "aggregationRule": {"clusterRoleSelectors": [selector]},
            }),
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
                "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}],
            }),
        ),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {
                "podSelector": {}, "ingress": [{"ports": [{"port": "http"}, {"port": 80, "endPort": 90}]}],
            }}),
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"host": "a.example.org", "http": {"paths": [{
                "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80}}},
            }]}}]}}),
        ),
        ("policy/v1", "PodDisruptionBudget", json!({"spec": {"minAvailable": "50%", "selector": selector}})),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {
                "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target":
                    {"type": "AverageValue", "averageValue": "500m"}}}],
            }}),
        ),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "suspend": true, "jobTemplate": {"spec": {
                "backoffLimit": 2, "template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}],
                }},
            }}}}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [{
                "name": "a.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
                "clientConfig": {"caBundle": "", "service": {"name": "a", "namespace": "b", "port": 443}},
                "rules": [{
                    "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["a"], "operations": ["CREATE"],
                }],
            }]}),
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            json!({
                "provisioner": "example.org/a", "parameters": {"a": "1"}, "allowVolumeExpansion": true,
            }),
        ),
    ];
    let object = |(api_version, kind, mut object): (&str, &str, Value)| {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": "kube-truth", "namespace": "default"});
        if let Api::Served(served) = version().api(api_version, kind)
            && !served.is_namespaced
        {
            object["metadata"] = json!({"name": "kube-truth"});
        }
        object
    };
    list.into_iter().map(object).collect()
}

/// The pointers of all values of an object below these fields.
fn pointers(value: &Value, here: &str, found: &mut Vec<String>) {
    found.push(here.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| {
                let name = name.replace('~', "~0").replace('/', "~1");
                pointers(value, &format!("{here}/{name}"), found);
            });
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| pointers(item, &format!("{here}/{index}"), found));
        }
        _ => {}
    }
}

/// An object with one value replaced by others, or with one more field.
fn changed(object: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    for (name, value) in object.as_object().unwrap() {
        if !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            pointers(value, &format!("/{name}"), &mut found);
        }
    }
    let others = [json!("eighty"), json!("1"), json!(3), json!(3_000_000_000_u32), json!(1.5), json!(2.0), json!(true)];
    let others = others.into_iter().chain([json!(null), json!([]), json!({}), json!([{}]), json!({"zebra": null})]);
    let others: Vec<Value> = others.collect();
    let with = |pointer: &String, value: &Value| {
        let mut changed = object.clone();
        *changed.pointer_mut(pointer).unwrap() = value.clone();
        changed
    };
    let replaced = found.iter().flat_map(|pointer| others.iter().map(move |value| with(pointer, value)));
    let more = found.iter().filter_map(|pointer| {
        let mut changed = object.clone();
        changed.pointer_mut(pointer)?.as_object_mut()?.insert("zebra".to_owned(), json!("a"));
        Some(changed)
    });
    replaced.chain(more).collect()
}

#[tokio::test]
async fn validate_rejects_nothing_of_kubernetes_that_an_api_server_accepts() {
    let client = &harness::api_server().await.client().unwrap();
    for object in good() {
        assert_eq!(rejected(&object), None, "{object}");
        assert_eq!(refused(client, &object).await, None, "{object}");
        assert_eq!(refused_at_creation(client, &object).await, None, "{object}");
    }
    let tried: Vec<Value> = good().iter().flat_map(changed).collect();
    let ours: Vec<(&Value, String)> =
        tried.iter().filter_map(|object| rejected(object).map(|message| (object, message))).collect();
    assert!(ours.len() > 1_000, "{}", ours.len());
    let wrong: Vec<String> = stream::iter(&ours)
        .map(|(object, message)| async move {
            let refused = refused(client, object).await.is_some();
            (!refused).then(|| format!("{message}: {object}"))
        })
        .buffer_unordered(16)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{} of {}: {:#?}", wrong.len(), ours.len(), &wrong[..wrong.len().min(20)]);
}

#[tokio::test]
async fn kinds_that_validate_does_not_know_are_not_served() {
    let client = &harness::api_server().await.client().unwrap();
    for (api_version, kind, expected) in [
        ("apps/v1", "Deploymnt", "Kubernetes 1.36 does not serve Deploymnt of `apps/v1`"),
        ("apps/v1beta1", "Deployment", "Kubernetes 1.16 removed Deployment of `apps/v1beta1`"),
        ("extensions/v1beta1", "Ingress", "Kubernetes 1.22 removed Ingress of `extensions/v1beta1`"),
        ("batch/v1beta1", "CronJob", "Kubernetes 1.25 removed CronJob of `batch/v1beta1`"),
        ("v1", "Deployment", "Kubernetes 1.36 does not serve Deployment of `v1`"),
    ] {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
        assert_eq!(rejected(&object).as_deref(), Some(expected));
        assert!(harness::api_of(client, &object).await.is_err(), "{kind} of {api_version} is served");
    }
}

/// The rows of a table in the version with this bit: kinds, and by type its fields.
fn rows(table: &str, bit: u32) -> (BTreeSet<String>, BTreeMap<String, BTreeSet<String>>) {
    let (mut kinds, mut types) = (BTreeSet::new(), BTreeMap::<String, BTreeSet<String>>::new());
    let mut name = "";
    for line in table.lines() {
        let (row, bits) = line.split_once(" =").unwrap_or((line, "ffffffff"));
        if u32::from_str_radix(bits, 16).unwrap() & bit == 0 {
            continue;
        }
        if let Some(kind) = row.strip_prefix("kind ") {
            kinds.insert(kind.to_owned());
        } else if let Some(next) = row.strip_prefix("type ") {
            name = next;
        } else if let Some(field) = row.strip_prefix(' ') {
            types.entry(name.to_owned()).or_default().insert(field.to_owned());
        }
    }
    (kinds, types)
}

/// The embedded table says of 1.36 what an API server of this version says of itself. A server serves no alpha and few
/// beta versions by default, so it has fewer kinds.
#[tokio::test]
async fn the_embedded_kinds_and_fields_are_those_of_an_api_server() {
    let client = harness::api_server().await.client().unwrap();
    let request = http::Request::get("/openapi/v2").header("accept", "application/json").body(Vec::new()).unwrap();
    let mut document: Value = serde_json::from_str(&client.request_text(request).await.unwrap()).unwrap();
    // Other tests install CustomResourceDefinitions.
    let is_own = |path: &str| {
        let group = path.strip_prefix("/apis/").and_then(|rest| rest.split('/').next());
        group.is_none_or(|group| !group.contains('.') || group.ends_with(".k8s.io"))
    };
    document["paths"].as_object_mut().unwrap().retain(|path, _| is_own(path));
    let info = client.apiserver_version().await.unwrap();
    assert_eq!((info.major.as_str(), info.minor.as_str()), ("1", "36"));
    let (kinds, types) = rows(&table::table(&[("1.36.3".to_owned(), document)]), 1);
    let bit = 1 << Version::all().position(|known| known == version()).unwrap();
    let (known_kinds, known_types) = rows(TABLE, bit);
    let unknown: Vec<&String> = kinds.difference(&known_kinds).collect();
    assert!(unknown.is_empty() && kinds.len() > 40, "{unknown:?} of {}", kinds.len());
    for (name, fields) in &types {
        assert_eq!(Some(fields), known_types.get(name), "{name}");
    }
    assert!(types.len() > 300, "{}", types.len());
}
