//! The built-in kinds: the recording of their schemas, and their defaults.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use http::Request;
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Map, Value, json};
use tidegate_core::{changes::have_same_effect, object::Gvk};

use super::{
    both::{self, Both},
    custom::definition,
    sides::{Ask, collection, compare},
};
use crate::harness;

/// The documents whose kinds we have.
const DOCUMENTS: &[&str] = &[
    "api/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/apps/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/coordination.k8s.io/v1",
    "apis/events.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
];
/// What of a schema the simulator reads.
const KEPT: &[&str] = &[
    "$ref",
    "additionalProperties",
    "default",
    "format",
    "items",
    "properties",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-preserve-unknown-fields",
];

#[tokio::test(flavor = "multi_thread")]
async fn recorded_schemas_are_those_of_the_server() {
    let client = harness::api_server().await.client().unwrap();
    let recording = record(&client).await;
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("lab/kube-sim/src/builtin/schemas.json");
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        fs::write(&file, &recording).unwrap();
    }
    let recorded = fs::read_to_string(&file).unwrap();
    assert!(recorded == recording, "{} differs: run this test with UPDATE_EXPECTED=1", file.display());
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_are_those_of_the_server() {
    let objects: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).unwrap();
    // Each as it is created, as it is applied again, and as it is when a label is added.
    let mut differences = Vec::new();
    for object in &objects {
        let of = |ask: Ask| ask.kind(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let name = object["metadata"]["name"].as_str().unwrap();
        let asks = [
            of(Ask::create("one", object)),
            of(Ask::force("two", object)),
            of(Ask::merge(name, "three", &json!({"metadata": {"labels": {"a": "b"}}}))),
            of(Ask::apply("two", object)),
        ];
        differences.extend(compare(&asks).await.err());
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// What the simulator tells of schemas is what the server tells, as far as it tells it: lists and their keys among it.
#[tokio::test(flavor = "multi_thread")]
async fn published_schemas_are_those_of_the_server() {
    let both = Both::new().await;
    both.install(&definition()).await;
    let index = document(&both.simulated, "").await.unwrap();
    let names: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
    assert!(names.iter().any(|name| *name == "apis/sim.example.com/v1"), "{index}");
    let mut kinds = 0;
    for name in names {
        let found = document(&both.simulated, name).await.unwrap();
        let schemas = found["components"]["schemas"].as_object().unwrap();
        harness::eventually("the real server publishes the schemas", harness::SOON, async || {
            let expected = document(&both.real, name).await?;
            for (component, schema) in schemas {
                let of_server = &expected["components"]["schemas"][component];
                let kind = "x-kubernetes-group-version-kind";
                let (left, right) = (compacted(of_server), compacted(schema));
                if left != right || of_server[kind][0] != schema[kind][0] {
                    return Err(format!("{name} {component}\n{left:?}\n{right:?}"));
                }
            }
            Ok(())
        })
        .await;
        kinds += schemas.len();
    }
    assert!(kinds > 100, "{kinds}");
}

/// A document of `/openapi/v3`, or the index of all.
async fn document(client: &Client, name: &str) -> Result<Value, String> {
    let request = Request::get(format!("/openapi/v3/{name}")).body(Vec::new()).unwrap();
    let text = client.request_text(request).await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

/// Go's typed clients send protobuf: each kind as the server itself writes it.
#[tokio::test(flavor = "multi_thread")]
async fn bodies_in_protobuf_say_what_they_say_to_the_server() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    let both = Both::new().await;
    let objects: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).unwrap();
    let mut asks = Vec::new();
    // Of some, only schemas and defaults are known; and addresses are not given twice.
    let is_served = |object: &&Value| {
        let version = object["apiVersion"].as_str().unwrap();
        !version.starts_with("batch/") && !version.starts_with("autoscaling/") && object["kind"] != "Service"
    };
    for object in objects.iter().filter(is_served) {
        let kind = Gvk::from_api_version(object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
        let path = format!("{}?dryRun=All", collection(&kind, &both.namespace));
        let sent = object.to_string().replace("NAMESPACE", &both.namespace);
        let mut sent: Value = serde_json::from_str(&sent).unwrap();
        // Those of the cluster may be there under the other test's names.
        sent["metadata"]["name"] = json!(format!("{}-{}", both.namespace, asks.len()));
        sent["metadata"]["labels"] = json!({"a": "b"});
        sent["metadata"]["annotations"] = json!({"c": "d"});
        let request = Request::post(&path)
            .header("content-type", "application/json")
            .header("accept", PROTOBUF)
            .body(Body::from(sent.to_string().into_bytes()))
            .unwrap();
        let response = both.real.send(request).await.unwrap();
        assert_eq!(response.status(), 201, "{object}");
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        assert!(bytes.starts_with(b"k8s\0"));
        asks.push(both::Ask::bytes(&format!("{path}&fieldManager=m"), PROTOBUF, bytes.to_vec()));
    }
    asks.push(both::Ask::bytes("/api/v1/namespaces/{ns}/configmaps", PROTOBUF, b"{}".to_vec()).loosely());
    asks.push(both::Ask::bytes("/api/v1/namespaces/{ns}/configmaps", PROTOBUF, b"k8s\0\x0a\xff".to_vec()).loosely());
    both.check(&asks).await;
}

/// All components that the kinds reach, one a line.
async fn record(client: &Client) -> String {
    let mut all = BTreeMap::new();
    for document in DOCUMENTS {
        let document = self::document(client, document).await.unwrap();
        for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
            all.insert(name.clone(), schema.clone());
        }
    }
    let mut reached = BTreeSet::new();
    let mut compact: BTreeMap<&str, Value> = BTreeMap::new();
    let mut next: Vec<&str> =
        all.iter().filter(|(name, schema)| is_kind(name, schema)).map(|(name, _)| &**name).collect();
    while let Some(name) = next.pop() {
        if !reached.insert(name) {
            continue;
        }
        let mut schema = compacted(&all[name]);
        if is_kind(name, &all[name]) {
            let kind = &all[name]["x-kubernetes-group-version-kind"][0];
            schema["kind"] = json!([kind["group"], kind["version"], kind["kind"]]);
        }
        let mut references = BTreeSet::new();
        collect(&schema, &mut references);
        next.extend(all.keys().map(String::as_str).filter(|name| references.contains(*name)));
        compact.insert(name, schema);
    }
    let lines: Vec<String> = compact.iter().map(|(name, schema)| format!("{}:{schema}", json!(name))).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// Whether it is the schema of a kind that is stored, and that we have.
fn is_kind(name: &str, schema: &Value) -> bool {
    const OTHERS: &[&str] =
        &["Binding", "ComponentStatus", "Eviction", "Scale", "SelfSubjectRulesReview", "TokenRequest"];
    let kind = name.rsplit('.').next().unwrap_or_default();
    let has = |field: &str| schema["properties"].get(field).is_some();
    schema["x-kubernetes-group-version-kind"].is_array()
        && has("kind")
        && has("metadata")
        && !has("items")
        && !OTHERS.contains(&kind)
        && !kind.contains("AdmissionPolicy")
}

/// The schema without what we do not read, and references in one form.
fn compacted(schema: &Value) -> Value {
    let mut compact = Map::new();
    for (name, value) in schema.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("allOf", Value::Array(all)) => {
                if let [only] = all.as_slice() {
                    compact.insert("$ref".to_owned(), compacted(only)["$ref"].clone());
                }
            }
            ("$ref", Value::String(target)) => {
                let target = target.trim_start_matches("#/components/schemas/");
                compact.insert(name.clone(), json!(target));
            }
            ("properties", Value::Object(properties)) => {
                let properties: BTreeMap<&String, Value> =
                    properties.iter().map(|(name, schema)| (name, compacted(schema))).collect();
                compact.insert(name.clone(), json!(properties));
            }
            ("items" | "additionalProperties", Value::Object(_)) => {
                compact.insert(name.clone(), compacted(value));
            }
            (name, value) if KEPT.contains(&name) => {
                compact.insert(name.to_owned(), value.clone());
            }
            _ => {}
        }
    }
    compact.sort_keys();
    Value::Object(compact)
}

fn collect(schema: &Value, references: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => {
                        references.insert(target.clone());
                    }
                    other => collect(other, references),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The fields of `full` that `part` lacks, each as its path and value.
fn added(part: &Value, full: &Value, path: &str, to: &mut Vec<(String, Value)>) {
    match (part, full) {
        (_, Value::Object(full)) if !full.is_empty() && (part.is_object() || part.is_null()) => {
            for (name, value) in full {
                added(&part[name.as_str()], value, &format!("{path}/{name}"), to);
            }
        }
        (Value::Array(part), Value::Array(full)) => {
            for (index, (part, full)) in part.iter().zip(full).enumerate() {
                added(part, full, &format!("{path}/{index}"), to);
            }
        }
        (part, full) if part != full => to.push((path.to_owned(), full.clone())),
        _ => {}
    }
}

/// Sets a field, and the mappings around it.
fn put(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.trim_start_matches('/').split('/') {
        at = match part.parse::<usize>() {
            Ok(index) if at.is_array() => &mut at[index],
            _ => &mut at[part],
        };
    }
    *at = value;
}

/// A comparison without a cluster knows defaults of the server. Of these samples, it does not know those at the end.
/// Some of them it leaves out, since other clients set them as well, such as the number of replicas.
#[test]
fn defaults_that_a_comparison_knows_are_those_of_the_server() {
    let container = json!({
        "name": "a", "image": "a:1", "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "readinessProbe": {"httpGet": {"port": 80}}, "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
    });
    let pod = json!({"containers": [container], "volumes": [
        {"name": "a", "secret": {"secretName": "a"}}, {"name": "b", "configMap": {"name": "b"}},
        {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}},
    ]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let workload = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    let webhook = json!({"webhooks": [{
        "name": "a.example.org", "clientConfig": {"service": {"name": "a", "namespace": "a"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "sideEffects": "None", "admissionReviewVersions": ["v1"],
    }]});
    let samples = [
        ("v1", "Service", json!({"spec": {"ports": [{"port": 80}]}})),
        ("v1", "Secret", json!({"data": {"a": "YQ=="}})),
        ("v1", "Pod", json!({"spec": pod})),
        ("apps/v1", "Deployment", workload.clone()),
        ("apps/v1", "StatefulSet", workload.clone()),
        ("apps/v1", "DaemonSet", workload.clone()),
        ("apps/v1", "ReplicaSet", workload.clone()),
        ("batch/v1", "Job", json!({"spec": {"template": template}})),
        (
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}}),
        ),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
        ),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1})),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", webhook),
    ];
    let (mut known, mut unknown) = (0, BTreeSet::new());
    for (api_version, kind, mut sample) in samples {
        sample["apiVersion"] = json!(api_version);
        sample["kind"] = json!(kind);
        let gvk = Gvk::from_api_version(api_version, kind);
        let mut full = sample.clone();
        kube_sim::builtin::default(&gvk, &mut full);
        let mut fields = Vec::new();
        added(&sample, &full, "", &mut fields);
        for (path, value) in
            fields.into_iter().filter(|(path, _)| !path.starts_with("/status") && !path.starts_with("/metadata"))
        {
            let mut explicit = sample.clone();
            put(&mut explicit, &path, value);
            if have_same_effect(&gvk, &sample, &explicit) {
                known += 1;
                put(&mut explicit, &path, json!("another value"));
                assert!(!have_same_effect(&gvk, &sample, &explicit), "{kind} {path}");
            } else {
                unknown.insert(path.rsplit('/').next().unwrap_or_default().to_owned());
            }
        }
    }
    assert!(known > 120, "{known}");
    let expected = [
        "backoffLimit",
        "completions",
        "enableServiceLinks",
        "imagePullPolicy",
        "internalTrafficPolicy",
        "maxSurge",
        "maxUnavailable",
        "metadata",
        "namespaceSelector",
        "objectSelector",
        "parallelism",
        "partition",
        "podReplacementPolicy",
        "policyTypes",
        "replicas",
        "resources",
        "securityContext",
        "serviceName",
        "suspend",
        "targetPort",
        "whenDeleted",
        "whenScaled",
    ];
    assert_eq!(unknown.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
