//! What is deployed: the base is accepted by a real API server, and its rules are just what a tour needs.

use std::{collections::BTreeSet, fs, path::Path};

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tidegate::{
    testbed::Record,
    yaml::{self, Limits},
};

use crate::{
    harness,
    stage::{self, Stage},
};

const ACCOUNT: &str = "system:serviceaccount:kcp-system:tidegate";

/// All objects of a folder, in the order of its kustomization.
fn objects(folder: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(folder);
    let kustomization = read(&folder.join("kustomization.yaml")).remove(0);
    let files = kustomization["resources"].as_array().expect("resources").clone();
    files.iter().flat_map(|file| read(&folder.join(file.as_str().expect("a path")))).collect()
}

fn read(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let documents =
        yaml::parse(&text, &Limits::default()).unwrap_or_else(|error| panic!("{}: {error:?}", path.display()));
    documents.iter().map(yaml::Node::to_json).filter(|document| !document.is_null()).collect()
}

/// The rules, as `verb resource.group` with the subresource at the end.
fn rules(objects: &[Value]) -> BTreeSet<String> {
    let roles = objects.iter().filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut rules = BTreeSet::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().cloned().unwrap_or_default()) {
        for (group, resource) in texts(&rule["apiGroups"])
            .iter()
            .flat_map(|group| texts(&rule["resources"]).into_iter().map(move |resource| (group.clone(), resource)))
        {
            let (name, subresource) = resource.split_once('/').map_or((resource.as_str(), ""), |parts| parts);
            let group = if group.is_empty() { String::new() } else { format!(".{group}") };
            let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
            rules.extend(texts(&rule["verbs"]).iter().map(|verb| format!("{verb} {name}{group}{subresource}")));
        }
    }
    rules
}

/// What a request needed: an apply that creates needs `create` beside `patch`.
fn needs(record: &Record) -> Vec<String> {
    let mut needs = vec![format!("{} {}", record.verb, record.resource)];
    if record.verb == "patch" && record.code == 201 {
        needs.push(format!("create {}", record.resource));
    }
    needs
}

#[test]
fn nothing_runs_as_root_or_writes_to_its_root() {
    let all = objects("base");
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").expect("a Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert!(container[probe]["httpGet"]["path"].is_string(), "{probe}");
    }
    assert!(container["resources"]["limits"]["memory"].is_string());
    assert!(rules(&all).iter().all(|rule| !rule.contains('*')), "a rule for everything");
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_that_is_deployed_is_accepted() {
    let client = harness::kcp().await.client().unwrap();
    for object in objects("base").iter().chain(&objects("components/all-namespaces")) {
        harness::apply(&client, object).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tour_needs_every_rule_of_the_service_account_and_no_other() {
    let mut files = stage::files(1);
    // The default custom resources of the other module are of the same kind, and a module waits for those of others.
    files.retain(|(path, _)| !path.starts_with("modules/mailer") && !path.starts_with("kymas"));
    files.push(("kymas/one.yaml".to_owned(), stage::kyma("one", &["cache"])));
    files.push(("watcher.yaml".to_owned(), WATCHER.to_owned()));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    let base = objects("base");
    for object in &base {
        // What is there is there with more than the base says of it.
        if object["kind"] != "CustomResourceDefinition" {
            harness::apply(&stage.kcp, object).await;
        }
    }
    harness::apply(&stage.kcp, &gateway()).await;
    let kubeconfig = stage.landscape.kcp.kubeconfig_of_service_account("kcp-system", "tidegate").await.unwrap();
    stage.start_as(&kubeconfig);
    tour(&stage).await;

    let records = stage.landscape.kcp.audit().unwrap().all().unwrap();
    let ours: Vec<&Record> = records.iter().filter(|record| record.user == ACCOUNT).collect();
    let refused: Vec<&&Record> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let needed: BTreeSet<String> = ours.iter().flat_map(|record| needs(record)).collect();
    let idle: Vec<String> = rules(&base).into_iter().filter(|rule| !needed.contains(rule)).collect();
    assert!(idle.is_empty(), "rules that a tour does not need: {idle:?}");
}

/// Install, bump, prune, and take everything away.
async fn tour(stage: &Stage) {
    stage.kyma_in("one", "Ready").await;
    stage.until("events find their way", &stage.kcp, "VirtualService", "kcp-system", "watcher", |_| true).await;
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0")]));
    stage
        .until("the bump arrives", &stage.kcp, "Kyma", "kcp-system", "one", |kyma| {
            kyma["status"]["modules"][0]["version"] == "1.1.0" && kyma["status"]["state"] == "Ready"
        })
        .await;
    stage.repository.remove("modules/cache/1.0.0").unwrap();
    stage.repository.commit("nobody uses this version").unwrap();
    stage.until_gone(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await;

    for folder in ["modules", "kymas", "watcher.yaml"] {
        stage.repository.remove(folder).unwrap();
    }
    let commit = stage.repository.commit("all of it goes").unwrap();
    let confirm = json!({"metadata": {"annotations": {"tidegate.dev/confirm-prune": commit}}});
    patch_source(stage, &confirm).await;
    for (kind, name) in [
        ("Kyma", "one"),
        ("Watcher", "watcher"),
        ("ModuleReleaseMeta", "cache"),
        ("ModuleTemplate", "cache-1.1.0"),
        ("VirtualService", "watcher"),
    ] {
        stage.until_gone(&stage.kcp, kind, "kcp-system", name).await;
    }
    patch_source(stage, &json!({"spec": {"deletionPolicy": "Delete"}})).await;
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &source).await.unwrap();
    api.delete("landscape", &DeleteParams::default()).await.unwrap();
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
}

async fn patch_source(stage: &Stage, patch: &Value) {
    let source = json!({"apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource", "metadata": {"name": "landscape", "namespace": "kcp-system"}});
    let api = harness::api_of(&stage.kcp, &source).await.unwrap();
    let patch = kube::api::Patch::Merge(patch);
    api.patch("landscape", &kube::api::PatchParams::default(), &patch).await.unwrap();
}

const WATCHER: &str = r"apiVersion: operator.kyma-project.io/v1beta2
kind: Watcher
metadata:
  name: watcher
  namespace: kcp-system
  labels: {operator.kyma-project.io/managed-by: lifecycle-manager}
spec:
  serviceInfo: {name: tidegate-events, namespace: kcp-system, port: 8082}
  labelsToWatch: {operator.kyma-project.io/watched-by: kyma}
  field: spec
  resourceToWatch: {group: operator.kyma-project.io, version: '*', resource: kymas}
  gateway: {selector: {matchLabels: {app: watcher-gateway}}}
";

fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {"name": "klm-watcher", "namespace": "kcp-system", "labels": {"app": "watcher-gateway"}},
        "spec": {"servers": [{
            "hosts": ["watcher.example.org"],
            "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
            "tls": {"mode": "MUTUAL", "credentialName": "klm-istio-gateway"},
        }]},
    })
}
