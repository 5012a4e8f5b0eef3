//! Fields that no API server changes in an object that exists.

use std::{collections::BTreeMap, process::Command};

use kube::{
    Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_core::{
    api::names::FIELD_MANAGER,
    immutable::{self, Context},
    object::Gvk,
    plan::manifest_name,
};
use tidegate_testbed::Extent;

use crate::{
    harness::{self, SOON, apply, eventually},
    stage::{self, Stage, scenarios},
};

scenarios! {
    a_landscape_file_that_is_older_than_the_application_hides_no_recreation,
}

/// A changed object: its kind, the object, the field that changes, and its new value.
type Case = (&'static str, &'static str, Value, &'static str, Value);

/// Changes that an API server refuses, and others of the same kinds that it makes.
fn cases() -> Vec<Case> {
    let pods = |image: &str| {
        json!({
            "metadata": {"labels": {"app": "a"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]},
        })
    };
    let always = |image: &str| {
        let mut template = pods(image);
        template["spec"]["restartPolicy"] = json!("Always");
        template
    };
    let labels = |more: &str| json!({"matchLabels": {"app": "a", "more": more}});
    let workload = |kind: &str| {
        let mut spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": always("a:1")});
        if kind == "StatefulSet" {
            spec["serviceName"] = json!("one");
        }
        json!({"spec": spec})
    };
    let wide = |kind: &str| {
        let mut object = workload(kind);
        object["spec"]["selector"] = labels("one");
        object["spec"]["template"]["metadata"]["labels"] = json!({"app": "a", "more": "one", "other": "two"});
        object
    };
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "one"}],
    });
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let frozen = |value: &str| json!({"immutable": true, "data": {"a": value}});
    let claim = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "one", "resources": {"requests": {"storage": "1Gi"}},
    }});
    let definition = json!({"spec": {
        "group": "refuse.example.org", "scope": "Namespaced",
        "names": {"kind": "Fixed", "listKind": "FixedList", "plural": "fixeds", "singular": "fixed"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    }});
    let class = json!({"provisioner": "example.org/one", "parameters": {"a": "1"}, "reclaimPolicy": "Delete"});
    let service = json!({"spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}});
    let headless = json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"app": "a"}}});
    let balancer = json!({"spec": {
        "type": "LoadBalancer", "loadBalancerClass": "example.org/one", "ports": [{"port": 80}], "selector": {"app": "a"},
    }});
    let suspended = json!({"spec": {"suspend": true, "template": pods("a:1")}});
    let elsewhere = json!({"example.org/zone": "two"});
    let range = json!({"spec": {"cidrs": ["10.111.0.0/24"]}});
    let request =
        |class: &str| json!({"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": class}}]}});
    let disk = json!({"driverName": "example.org/one", "parameters": {"a": "1"}});
    let copy = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "dataSource": {"kind": "PersistentVolumeClaim", "name": "one"},
    }});
    let (rbac, apps) = ("rbac.authorization.k8s.io/v1", "apps/v1");
    let (resource, storage) = ("resource.k8s.io/v1", "storage.k8s.io/v1");
    vec![
        (apps, "Deployment", wide("Deployment"), "/spec/selector/matchLabels", json!({"app": "a"})),
        (apps, "DaemonSet", wide("DaemonSet"), "/spec/selector/matchLabels", json!({"app": "a"})),
        (apps, "Deployment", workload("Deployment"), "/spec/template", always("a:2")),
        (apps, "StatefulSet", workload("StatefulSet"), "/spec/serviceName", json!("two")),
        (apps, "StatefulSet", workload("StatefulSet"), "/spec/podManagementPolicy", json!("Parallel")),
        (apps, "StatefulSet", workload("StatefulSet"), "/spec/template", always("a:2")),
        ("batch/v1", "Job", json!({"spec": {"template": pods("a:1")}}), "/spec/template", pods("a:2")),
        ("batch/v1", "Job", json!({"spec": {"template": pods("a:1")}}), "/spec/parallelism", json!(2)),
        (rbac, "RoleBinding", binding.clone(), "/roleRef", role("edit")),
        (rbac, "ClusterRoleBinding", binding.clone(), "/roleRef", role("edit")),
        (rbac, "RoleBinding", binding, "/subjects/0/name", json!("two")),
        ("v1", "Secret", json!({"type": "Opaque"}), "/type", json!("example.org/other")),
        ("v1", "Secret", json!({"type": "Opaque"}), "/data", json!({"a": "YQ=="})),
        ("v1", "ConfigMap", frozen("1"), "/data/a", json!("2")),
        ("v1", "ConfigMap", json!({"data": {"a": "1"}}), "/immutable", json!(true)),
        ("v1", "PersistentVolumeClaim", claim.clone(), "/spec/storageClassName", json!("two")),
        ("v1", "PersistentVolumeClaim", claim, "/spec/accessModes", json!(["ReadWriteMany"])),
        ("v1", "Service", service.clone(), "/spec/clusterIP", json!("10.96.7.8")),
        ("v1", "Service", service.clone(), "/spec/ports/0/port", json!(81)),
        ("v1", "Service", balancer.clone(), "/spec/loadBalancerClass", json!("example.org/two")),
        ("v1", "Service", balancer, "/spec/ports/0/port", json!(81)),
        ("v1", "PersistentVolumeClaim", copy, "/spec/dataSource/name", json!("two")),
        ("batch/v1", "Job", suspended.clone(), "/spec/template/spec/nodeSelector", elsewhere),
        ("batch/v1", "Job", suspended, "/spec/template/spec/restartPolicy", json!("OnFailure")),
        ("networking.k8s.io/v1", "ServiceCIDR", range.clone(), "/spec/cidrs", json!(["10.112.0.0/24"])),
        (resource, "ResourceClaim", json!({"spec": request("one")}), "/spec", request("two")),
        (resource, "ResourceClaimTemplate", json!({"spec": {"spec": request("one")}}), "/spec/spec", request("two")),
        (storage, "VolumeAttributesClass", disk.clone(), "/driverName", json!("example.org/two")),
        (storage, "VolumeAttributesClass", disk, "/parameters/a", json!("2")),
        ("v1", "ResourceQuota", json!({"spec": {"scopes": ["BestEffort"]}}), "/spec/scopes", json!(["Terminating"])),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition, "/spec/scope", json!("Cluster")),
        ("storage.k8s.io/v1", "StorageClass", class.clone(), "/parameters/a", json!("2")),
        ("storage.k8s.io/v1", "StorageClass", class.clone(), "/reclaimPolicy", json!("Retain")),
        ("storage.k8s.io/v1", "StorageClass", class, "/allowVolumeExpansion", json!(true)),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1}), "/value", json!(2)),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1}), "/description", json!("two")),
        ("node.k8s.io/v1", "RuntimeClass", json!({"handler": "one"}), "/handler", json!("two")),
        ("v1", "Service", service.clone(), "/spec/clusterIP", json!("None")),
        ("v1", "Service", headless.clone(), "/spec/clusterIP", json!("")),
        ("v1", "Service", headless, "/spec/clusterIP", json!("10.96.7.9")),
        (
            "networking.k8s.io/v1",
            "IngressClass",
            json!({"spec": {"controller": "example.org/one"}}),
            "/spec/controller",
            json!("example.org/two"),
        ),
        (
            "storage.k8s.io/v1",
            "CSIDriver",
            json!({"spec": {"attachRequired": true}}),
            "/spec/attachRequired",
            json!(false),
        ),
        (
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": []}),
            "/addressType",
            json!("IPv6"),
        ),
    ]
}

/// Fields that one of two declarations omits: of each, the object without it, and its value.
fn omitted() -> Vec<Case> {
    let pods = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "a:1"}]},
    });
    let mut always = pods.clone();
    always["spec"]["restartPolicy"] = json!("Always");
    let set = json!({"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": always}});
    let job = json!({"spec": {"suspend": true, "completions": 2, "template": pods}});
    let claim = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "one", "resources": {"requests": {"storage": "1Gi"}},
    }});
    let volume = json!({"spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "local": {"path": "/a"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        ]}},
    }});
    let template = json!([{"metadata": {"name": "one"}, "spec": claim["spec"]}]);
    let rules = json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]});
    let class = json!({"provisioner": "example.org/one"});
    let (apps, batch, storage) = ("apps/v1", "batch/v1", "storage.k8s.io/v1");
    vec![
        (apps, "StatefulSet", set.clone(), "/spec/podManagementPolicy", json!("Parallel")),
        (apps, "StatefulSet", set.clone(), "/spec/podManagementPolicy", json!("OrderedReady")),
        (apps, "StatefulSet", set.clone(), "/spec/serviceName", json!("one")),
        (apps, "StatefulSet", set, "/spec/volumeClaimTemplates", template),
        (batch, "Job", job.clone(), "/spec/completionMode", json!("Indexed")),
        (batch, "Job", job.clone(), "/spec/completionMode", json!("NonIndexed")),
        (batch, "Job", job.clone(), "/spec/podFailurePolicy", rules),
        (batch, "Job", job, "/spec/managedBy", json!("example.org/one")),
        ("v1", "PersistentVolumeClaim", claim.clone(), "/spec/volumeMode", json!("Block")),
        ("v1", "PersistentVolumeClaim", claim, "/spec/selector", json!({"matchLabels": {"app": "a"}})),
        ("v1", "PersistentVolume", volume, "/spec/volumeMode", json!("Block")),
        ("v1", "Secret", json!({}), "/type", json!("example.org/other")),
        ("v1", "ResourceQuota", json!({"spec": {}}), "/spec/scopes", json!(["BestEffort"])),
        (storage, "StorageClass", class.clone(), "/parameters", json!({"a": "1"})),
        (storage, "StorageClass", class.clone(), "/reclaimPolicy", json!("Retain")),
        (storage, "StorageClass", class.clone(), "/reclaimPolicy", json!("Delete")),
        (storage, "StorageClass", class, "/volumeBindingMode", json!("WaitForFirstConsumer")),
        (storage, "CSIDriver", json!({"spec": {}}), "/spec/attachRequired", json!(false)),
        (storage, "CSIDriver", json!({"spec": {}}), "/spec/volumeLifecycleModes", json!(["Ephemeral"])),
        ("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 1}), "/preemptionPolicy", json!("Never")),
    ]
}

/// Sets a field, which may not exist yet.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    let parent = object.pointer_mut(parent).expect("the parent exists");
    match parent.as_array_mut() {
        Some(items) => items[field.parse::<usize>().expect("an index")] = value,
        None => parent[field] = value,
    }
}

/// Applies an object as the daemon does.
async fn try_apply(client: &Client, object: &Value, dry_run: bool) -> kube::Result<DynamicObject> {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let how = PatchParams { dry_run, ..PatchParams::apply(FIELD_MANAGER).force() };
    api.patch(object["metadata"]["name"].as_str().expect("a name"), &how, &Patch::Apply(object)).await
}

#[tokio::test]
async fn a_field_that_one_side_omits_is_refused_as_an_api_server_does() {
    let client = harness::api_server().await.client().unwrap();
    let namespace = harness::namespace(&client, "omit").await;
    let mut refused = 0;
    for (index, (api_version, kind, object, pointer, value)) in omitted().into_iter().enumerate() {
        let gvk = Gvk::from_api_version(api_version, kind);
        let declare = |name: &str, with: bool| {
            let mut object = object.clone();
            object["apiVersion"] = json!(api_version);
            object["kind"] = json!(kind);
            object["metadata"] = json!({"name": name, "namespace": namespace});
            if with {
                set(&mut object, pointer, value.clone());
            }
            object
        };
        for comes in [true, false] {
            let name = format!("{namespace}-{index}-{comes}");
            let (declared, desired) = (declare(&name, !comes), declare(&name, comes));
            let live = try_apply(&client, &declared, false).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
            let live = serde_json::to_value(live).unwrap();
            let answer = try_apply(&client, &desired, true).await;
            let is_refused = match &answer {
                Ok(_) => false,
                Err(kube::Error::Api(status)) if status.code == 422 => true,
                Err(error) => panic!("{kind} {pointer}: {error}"),
            };
            refused += usize::from(is_refused);
            let context = Context::default();
            let known = immutable::over_live(&gvk, &live, &desired, &context);
            assert_eq!(known.is_some(), is_refused, "{kind} {pointer} comes {comes}: {known:?} {answer:?} {live}");
            let offline = immutable::between(&gvk, &declared, &desired, &context);
            assert_eq!(offline.is_some(), is_refused, "{kind} {pointer} comes {comes}: {offline:?} {answer:?}");
        }
    }
    assert!(refused > 30, "{refused}");
}

#[tokio::test]
async fn what_counts_as_immutable_is_what_an_api_server_refuses() {
    let client = harness::api_server().await.client().unwrap();
    let namespace = harness::namespace(&client, "refuse").await;
    let mut refused = 0;
    for (index, (api_version, kind, mut object, pointer, value)) in cases().into_iter().enumerate() {
        let name = match kind {
            "CustomResourceDefinition" => "fixeds.refuse.example.org".to_owned(),
            _ => format!("{namespace}-{index}"),
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "namespace": namespace});
        if kind == "CustomResourceDefinition" {
            // Before it is established, everything about it can change.
            harness::install_crds(&client, std::slice::from_ref(&object)).await;
        }
        let live = serde_json::to_value(apply(&client, &object).await).unwrap();
        let declared = object.clone();
        set(&mut object, pointer, value);
        let api = harness::api_of(&client, &object).await.unwrap();
        let tried = PatchParams { dry_run: true, ..PatchParams::apply("testbed").force() };
        let answer = api.patch(&name, &tried, &Patch::Apply(&object)).await;
        let is_refused = match &answer {
            Ok(_) => false,
            Err(kube::Error::Api(status)) if status.code == 422 => true,
            Err(error) => panic!("{kind} {pointer}: {error}"),
        };
        refused += usize::from(is_refused);
        let gvk = Gvk::from_api_version(api_version, kind);
        let known = immutable::over_live(&gvk, &live, &object, &Context::default());
        assert_eq!(known.is_some(), is_refused, "{kind} {pointer}: {known:?} {answer:?}");
        let offline = immutable::between(&gvk, &declared, &object, &Context::default());
        let (is_said, is_service) = (offline.is_some(), kind == "Service");
        assert!(is_refused || !is_said, "{kind} {pointer}, without a cluster: {offline:?} {answer:?}");
        assert!(is_said || !is_refused || !is_service, "{kind} {pointer}, without a cluster: {answer:?}");
    }
    assert!(refused > 15, "{refused}");
}

/// Objects of a module with fields that cannot change. Their values depend on `value`, and on `class` those of objects
/// that hold users' data.
fn fixed(value: &str, annotations: &str, class: &str) -> String {
    let metadata = |name: &str| format!("{{name: {name}, namespace: kyma-system, annotations: {annotations}}}");
    let pods =
        format!("{{metadata: {{labels: {{app: \"{value}\"}}}}, spec: {{containers: [{{name: main, image: main}}]}}}}");
    let scope = if class == "1" { "Namespaced" } else { "Cluster" };
    format!(
        r#"apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view-{value}}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: someone}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {}
immutable: true
data: {{value: "{value}"}}
---
apiVersion: v1
kind: Secret
metadata: {}
type: example.org/type-{value}
---
apiVersion: apps/v1
kind: Deployment
metadata: {}
spec: {{replicas: 0, selector: {{matchLabels: {{app: "{value}"}}}}, template: {pods}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {}
spec: {{replicas: 0, serviceName: "of-{value}", selector: {{matchLabels: {{app: "{value}"}}}}, template: {pods}}}
---
apiVersion: batch/v1
kind: Job
metadata: {}
spec: {{suspend: true, template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: "main:{value}"}}]}}}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {}
spec: {{accessModes: [ReadWriteOnce], storageClassName: class-{class}, resources: {{requests: {{storage: 1Gi}}}}}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: fixed-things.example.org, annotations: {annotations}}}
spec:
  group: example.org
  scope: {scope}
  names: {{kind: FixedThing, listKind: FixedThingList, plural: fixed-things, singular: fixed-thing}}
  versions: [{{name: v1, served: true, storage: true, schema: {{openAPIV3Schema: {{type: object}}}}}}]
"#,
        metadata("fixed-binding"),
        metadata("fixed-config"),
        metadata("fixed-secret"),
        metadata("fixed-deployment"),
        metadata("fixed-set"),
        metadata("fixed-job"),
        metadata("fixed-claim"),
    )
}

const FIXED: &str = "modules/mailer/2.0.0/objects/fixed.yaml";
/// By kind.
const NAMES: [(&str, &str, &str); 8] = [
    ("v1", "ConfigMap", "fixed-config"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "fixed-things.example.org"),
    ("apps/v1", "Deployment", "fixed-deployment"),
    ("batch/v1", "Job", "fixed-job"),
    ("v1", "PersistentVolumeClaim", "fixed-claim"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", "fixed-binding"),
    ("v1", "Secret", "fixed-secret"),
    ("apps/v1", "StatefulSet", "fixed-set"),
];
/// The kinds that are never deleted to create them again.
const NEVER: [&str; 2] = ["CustomResourceDefinition", "PersistentVolumeClaim"];

/// The UIDs of the objects in the runtime, by kind.
async fn uids(stage: &Stage) -> BTreeMap<&'static str, String> {
    let mut uids = BTreeMap::new();
    for (api_version, kind, name) in NAMES {
        let sample =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "kyma-system"}});
        let found = harness::api_of(&stage.skrs[0], &sample).await.unwrap().get_opt(name).await.unwrap();
        uids.extend(found.and_then(|found| found.metadata.uid).map(|uid| (kind, uid)));
    }
    uids
}

/// What `tidegate diff` says of the objects, by kind, and its exit code.
fn predicted(stage: &Stage, more: &[&str]) -> (BTreeMap<String, String>, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.current_dir(stage.repository.path()).args(["diff", ".", "-o", "json"]).args(more);
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let text = |one: &Value, pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let differences = report["differences"].as_array().unwrap().iter();
    let ours = differences.filter(|one| text(one, "/object/name").starts_with("fixed-"));
    (ours.map(|one| (text(one, "/object/kind"), text(one, "/action"))).collect(), output.status.code().unwrap())
}

/// The action of each kind: `refuse` for those that are never deleted.
fn all(action: &str) -> BTreeMap<String, String> {
    let of = |kind: &str| if NEVER.contains(&kind) { "refuse" } else { action };
    NAMES.iter().map(|(_, kind, _)| ((*kind).to_owned(), of(kind).to_owned())).collect()
}

async fn manifest(stage: &Stage, what: &str, holds: impl Fn(&str, &str) -> bool) {
    let name = manifest_name("one", "example.org/module/mailer", "mailer");
    let text = |manifest: &Value, pointer: &str| {
        manifest.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let is =
        |manifest: &Value| holds(&text(manifest, "/status/state"), &text(manifest, "/status/lastOperation/operation"));
    stage.until(what, &stage.kcp, "Manifest", "kcp-system", &name, is).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_refused_is_predicted_and_said_and_made_only_where_it_is_allowed() {
    let mut files = stage::files(1);
    files.push((FIXED.to_owned(), fixed("1", "{}", "1")));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::real(1, Extent::Controllers, &files, &[]).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let before = uids(&stage).await;
    assert_eq!(before.len(), NAMES.len(), "{before:?}");

    stage.commit(FIXED, &fixed("2", "{}", "2"));
    assert_eq!(predicted(&stage, &["--from", "HEAD~1", "--to", "HEAD"]), (all("refuse"), 1));
    assert_eq!(predicted(&stage, &["--from", "HEAD~1", "--to", "HEAD", "--fail-on", "refused"]).1, 4);
    manifest(&stage, "the Manifest says what is refused", |state, message| {
        state == "Error"
            && message.contains(" is refused: ")
            && message.contains(" cannot be changed; ")
            && message.contains("tidegate.dev/recreate: enabled")
    })
    .await;
    assert_eq!(uids(&stage).await, before, "nothing is deleted");
    let folder = harness::folder();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, stage.landscape.kcp.kubeconfig().text()).unwrap();
    let live = predicted(&stage, &["--live", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    assert_eq!(live.0, all("refuse"), "an API server is asked, which says the same");

    let marks = stage.marks();
    stage.commit(FIXED, &fixed("2", "{tidegate.dev/recreate: enabled}", "2"));
    assert_eq!(predicted(&stage, &["--from", "HEAD~2", "--to", "HEAD"]), (all("recreate"), 1));
    // The commit by itself only adds the annotation. It recreates what the one before could not change.
    let last = ["--from", "HEAD~1", "--to", "HEAD", "--fail-on"];
    for rule in ["recreate", "refused"] {
        assert_eq!(predicted(&stage, &[&last[..], &[rule]].concat()).1, 4, "{rule}");
    }
    manifest(&stage, "only the definition and the claim are refused", |state, message| {
        state == "Error"
            && message.contains("PersistentVolumeClaim cannot be changed, and Tidegate never deletes one")
            && message.contains("(and 1 more: CustomResourceDefinition.apiextensions.k8s.io fixed-things.example.org)")
    })
    .await;
    let after = uids(&stage).await;
    for (kind, uid) in &before {
        assert_eq!(after.get(kind) == Some(uid), NEVER.contains(kind), "{kind}: {before:?} {after:?}");
    }
    let recreated = NAMES.len() - NEVER.len();
    let deleted: Vec<String> =
        stage.requests_since(&marks).into_iter().filter(|request| request.starts_with("skr-1 delete")).collect();
    assert_eq!(deleted.len(), recreated, "{deleted:?}");
    let log = std::fs::read_to_string(stage.log()).unwrap();
    let records = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let audited: Vec<String> = records
        .filter(|record| record["caller"] == "tidegate::audit" && record["context"]["verb"] == "delete")
        .map(|record| record["context"]["object"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert!(audited.len() == recreated && audited.iter().all(|object| object.contains("/fixed-")), "{audited:?}");
    let name = manifest_name("one", "example.org/module/mailer", "mailer");
    let recorded = stage::read(&stage.kcp, "Manifest", "kcp-system", &name).await.unwrap();
    let synced: Vec<&Value> = recorded["status"]["synced"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    for (_, _, name) in NAMES {
        assert!(synced.iter().any(|one| **one == name), "{name} is in the inventory: {synced:?}");
    }
    eventually("an Event says so", SOON, async || {
        let sample = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "any", "namespace": "kcp-system"}});
        let api = harness::api_of(&stage.kcp, &sample).await.map_err(|error| error.to_string())?;
        let events = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let is_it = |event: &&DynamicObject| event.data["reason"] == "Recreated";
        let notes: Vec<&Value> = events.items.iter().filter(is_it).map(|event| &event.data["note"]).collect();
        if notes.len() == recreated { Ok(()) } else { Err(format!("{notes:?}")) }
    })
    .await;

    stage.commit(FIXED, &fixed("2", "{tidegate.dev/recreate: enabled}", "1"));
    manifest(&stage, "all of it is as git says", |state, _| state == "Ready").await;
}

const FROZEN: &str = "modules/mailer/2.0.0/objects/frozen.yaml";

/// What a file says of a runtime holds for the old side once that is applied, not once it is committed.
async fn a_landscape_file_that_is_older_than_the_application_hides_no_recreation() {
    let frozen = |value: &str, annotations: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: frozen, namespace: kyma-system, annotations: \
             {annotations}}}\nimmutable: true\ndata: {{value: \"{value}\"}}\n"
        )
    };
    let allowed = "{tidegate.dev/recreate: enabled}";
    let mut files = stage::files(1);
    files.push((FROZEN.to_owned(), frozen("1", "{}")));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let folder = harness::folder();
    let file = folder.path().join("landscape.yaml").display().to_string();
    let path = stage.repository.path().to_str().expect("UTF-8").to_owned();
    // What a new file and the work tree say of the object.
    let said = async |text: String| -> (Value, Value) {
        assert!(stage.command(&["export", "--landscape", &file]).await.status.success());
        stage.repository.write(FROZEN, &text).expect("a file");
        let output = stage.command_offline(&["diff", &path, "--landscape", &file, "-o", "json"]).await;
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
        let mut all = report["differences"].as_array().expect("differences").iter();
        let found = all.find(|one| one["object"]["name"] == "frozen").unwrap_or_else(|| panic!("{report:#}"));
        (found["action"].clone(), found["overdue"]["action"].clone())
    };
    assert_eq!(said(frozen("1", allowed)).await, (json!("change"), Value::Null), "it is as the old side says");
    stage.kill().await;
    stage.commit(FROZEN, &frozen("2", "{}"));
    let recreates = (json!("change"), json!("recreate"));
    assert_eq!(said(frozen("2", allowed)).await, recreates, "the commit is older than the file, and not applied");
    stage.repository.write(FROZEN, &frozen("2", "{}")).expect("a file");
    stage.start();
    manifest(&stage, "the change is refused", |state, message| state == "Error" && message.contains(" is refused: "))
        .await;
    stage.kyma_in("one", "Error").await;
    assert_eq!(said(frozen("2", allowed)).await, recreates, "the API server has refused it");
}
