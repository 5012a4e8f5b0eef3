//! `tidegate adopt`: what stands in the way of a take-over, taking a landscape over, and giving it back.

pub(crate) mod cut;
mod gate;
mod held;
mod kill;
mod lease;
mod nothing;
pub(crate) mod rights;
mod size;

use kube::{
    Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    harness::{self, SOON, eventually},
    stage::{self, QUIET, Stage, States, read, scenarios},
};

scenarios!(
    a_landscape_is_taken_over_as_planned_and_given_back,
    modules_from_git_stay_ready_after_a_release_until_the_landscape_is_taken_over_again,
    a_manifest_whose_module_moves_into_git_keeps_nothing_of_its_former_source,
    flux_hands_definitions_over_step_by_step_and_none_is_lost,
    argo_cd_hands_definitions_over_step_by_step_and_none_is_lost,
    what_a_user_must_decide_stands_in_the_way_of_a_take_over,
    the_webhooks_and_modules_of_lifecycle_manager_are_checked,
);

/// Who applied the definitions before, as the Kyma Environment Broker does.
const BEFORE: &str = "KEB";
/// The Lease of Lifecycle Manager and Tidegate.
const LEASE: &str = "893110f7.kyma-project.io";

/// The output of a command, with its errors, and its exit code.
async fn run(stage: &Stage, arguments: &[&str]) -> (String, i32) {
    let output = stage.command(arguments).await;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().expect("an exit code"))
}

/// `adopt plan` or `adopt take` with the repository of the stage, which `--finish` does not read.
async fn adopt(stage: &Stage, arguments: &[&str]) -> (String, i32) {
    let path = stage.repository.path().to_string_lossy().into_owned();
    let path = [path.as_str()];
    let path: &[&str] = if arguments.contains(&"--finish") { &[] } else { &path };
    run(stage, &[&["adopt"], arguments, path].concat()).await
}

/// A stage without a daemon. The control plane has all definitions of the repository, by another client.
async fn before() -> Stage {
    before_with(&[]).await
}

/// The same, with more Kymas, which have no runtime.
async fn before_with(more: &[String]) -> Stage {
    let files = files_before(more);
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (path.as_str(), text.clone())).collect();
    let stage = Stage::new(1, &files).await;
    apply_before(&stage, &files).await;
    stage
}

/// Starts a new process of the daemon, and waits until it has nothing to do. What it requests comes after these marks.
async fn restarted(stage: &Stage) -> Vec<u64> {
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    stage.rests().await;
    tokio::time::sleep(QUIET).await;
    marks
}

/// The repository of such a stage.
pub(crate) fn files_before(more: &[String]) -> Vec<(String, String)> {
    let mut files = stage::files(1);
    files.extend(more.iter().map(|name| (format!("kymas/{name}.yaml"), stage::kyma(name, &["cache"]))));
    for (_, text) in files.iter_mut().filter(|(path, _)| path.ends_with("module-template.yaml")) {
        // What Tidegate would add to the definition, and Lifecycle Manager would not.
        text.push_str("  descriptor: {component: {name: example.org/module, version: 1.0.0}}\n");
    }
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    files.push((".tidegate/source.yaml".to_owned(), source.to_owned()));
    files
}

/// Another client applies the definitions of the repository.
pub(crate) async fn apply_before(stage: &Stage, files: &[(&str, String)]) {
    for (_, text) in files.iter().filter(|(path, _)| !path.contains("/objects/") && !path.starts_with(".tidegate")) {
        let definition: Value = serde_yaml::from_str(text).expect("YAML");
        let api = harness::api_of(&stage.kcp, &definition).await.expect("a kind that is served");
        let name = definition["metadata"]["name"].as_str().expect("a name");
        let by = PatchParams::apply(BEFORE).force();
        api.patch(name, &by, &Patch::Apply(&definition)).await.expect("an apply");
    }
}

/// Applies an object as the client from before.
async fn apply(client: &Client, object: &Value) -> DynamicObject {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &PatchParams::apply(BEFORE).force(), &Patch::Apply(object)).await.expect("an apply")
}

fn kyma(channel: &str) -> Value {
    let kyma: Value = serde_yaml::from_str(&stage::kyma("one", &["cache", "mailer"])).expect("YAML");
    let mut kyma = kyma;
    kyma["spec"]["channel"] = channel.into();
    kyma
}

/// What an object still has of Tidegate: labels, annotations, conditions and claims.
fn left_of_tidegate(object: &Value) -> Vec<String> {
    let metadata = &object["metadata"];
    let marks =
        ["labels", "annotations"].into_iter().flat_map(|field| metadata[field].as_object().into_iter().flatten());
    let marks = marks.map(|(name, _)| name.clone());
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.filter_map(|condition| condition["type"].as_str().map(str::to_owned));
    let own = marks.chain(conditions).filter(|name| name.starts_with("tidegate.dev/"));
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    let claims =
        entries.filter(|entry| entry["manager"] == "tidegate").map(|entry| format!("claims {}", entry["fieldsV1"]));
    own.chain(claims).collect()
}

/// The objects of some kinds in a cluster.
async fn objects(client: &Client, kinds: &[(&str, &str, &str)]) -> Vec<Value> {
    let mut all = Vec::new();
    for (version, kind, namespace) in kinds {
        let shape = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
        let Ok(api) = harness::api_of(client, &shape).await else { continue };
        for object in api.list(&ListParams::default()).await.expect("a list") {
            let mut object = serde_json::to_value(object).expect("JSON");
            // The items of a list do not say what they are.
            (object["apiVersion"], object["kind"]) = (json!(version), json!(kind));
            all.push(object);
        }
    }
    all
}

/// Version, kind and namespace of what the control plane has.
const DEFINED: [(&str, &str, &str); 8] = [
    ("operator.kyma-project.io/v1beta2", "Kyma", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "Manifest", "kcp-system"),
    ("operator.kyma-project.io/v1beta2", "Watcher", "kcp-system"),
    ("networking.istio.io/v1beta1", "VirtualService", "kcp-system"),
    ("cert-manager.io/v1", "Certificate", "istio-system"),
    ("v1", "Secret", "istio-system"),
];
/// The same of a runtime.
const IN_RUNTIME: [(&str, &str, &str); 6] = [
    ("v1", "Namespace", ""),
    ("v1", "ConfigMap", "kyma-system"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
    ("operator.kyma-project.io/v1beta2", "Kyma", "kyma-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kyma-system"),
    ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", "kyma-system"),
];
/// The field managers of Lifecycle Manager.
const FORMER: [&str; 6] = [
    "declarative.kyma-project.io/applier",
    "lifecycle-manager",
    "operator.kyma-project.io/lifecycle-manager",
    "catalog-sync",
    "kyma-sync-context",
    "resource.kyma-project.io/finalizer",
];

/// What Tidegate applies in the control plane beside definitions and Manifests: the certificate of a runtime, the route
/// of a Watcher, and the Secret of the gateway.
async fn surround_with_ours(stage: &Stage) {
    let crd = definition_of("cert-manager.io", "v1", "Certificate", "certificates");
    harness::install_crds(&stage.kcp, &[crd]).await;
    apply(&stage.kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}})).await;
    let certificate = json!({
        "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
        "metadata": {
            "name": "one-webhook-tls", "namespace": "istio-system",
            "annotations": {"tidegate.dev/kyma": "kcp-system/one"},
        },
        "spec": {"commonName": "one", "dnsNames": ["one.example.org", ""], "secretName": "one-webhook-tls"},
    });
    let route = json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService",
        "metadata": {"name": "kyma", "namespace": "kcp-system", "annotations": {"tidegate.dev/path": "kyma.yaml"}},
        "spec": {"hosts": ["listener.kcp.example.org"]},
    });
    for object in [certificate, route] {
        let api = harness::api_of(&stage.kcp, &object).await.expect("a kind that is served");
        let name = object["metadata"]["name"].as_str().expect("a name");
        api.patch(name, &PatchParams::apply("tidegate"), &Patch::Apply(&object)).await.expect("an apply");
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"tls.crt": "YQ=="},
        "metadata": {
            "name": "klm-istio-gateway", "namespace": "istio-system",
            "annotations": {"caAddedToBundleAt": "2026-01-01T00:00:00Z"},
        },
    });
    let api = harness::api_of(&stage.kcp, &secret).await.expect("a kind that is served");
    let by = PostParams { field_manager: Some("tidegate".to_owned()), ..PostParams::default() };
    api.create(&by, &serde_json::from_value(secret).expect("an object")).await.expect("a new object");
}

/// The part of an object that claims are on.
fn claimed(value: &Value, claims: &Value) -> Value {
    let of_item = |items: &[Value], name: &str| -> Option<usize> {
        let (kind, text) = name.split_once(':')?;
        let key: Value = serde_json::from_str(text).ok()?;
        let is_of = |item: &Value| match kind {
            "v" => *item == key,
            _ => key.as_object().is_some_and(|keys| keys.iter().all(|(field, value)| item.get(field) == Some(value))),
        };
        items.iter().position(is_of)
    };
    let claims: Vec<(&String, &Value)> =
        claims.as_object().into_iter().flatten().filter(|(name, _)| *name != ".").collect();
    match value {
        _ if claims.is_empty() => value.clone(),
        Value::Object(map) => {
            let field = |(name, below): &(&String, &Value)| {
                let name = name.strip_prefix("f:")?;
                Some((name.to_owned(), claimed(map.get(name)?, below)))
            };
            Value::Object(claims.iter().filter_map(field).collect())
        }
        Value::Array(items) => {
            let mut found: Vec<(usize, Value)> = claims
                .iter()
                .filter_map(|(name, below)| {
                    let index = of_item(items, name)?;
                    let mut part = claimed(&items[index], below);
                    if let (Some(("k", keys)), Some(part)) = (name.split_once(':'), part.as_object_mut()) {
                        let keys: serde_json::Map<String, Value> = serde_json::from_str(keys).expect("keys");
                        part.extend(keys);
                    }
                    Some((index, part))
                })
                .collect();
            found.sort_by_key(|(index, _)| *index);
            Value::Array(found.into_iter().map(|(_, part)| part).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Writes what each of these field managers claims on objects, as Lifecycle Manager does at its first pass: by an apply
/// or an update, on the object or its status. No object changes. Returns the managers that claim something, each with
/// how, and with `status` if it is that.
pub(crate) async fn write_again(
    client: &Client,
    objects: &[Value],
    managers: &[&str],
) -> std::collections::BTreeSet<String> {
    let mut found = std::collections::BTreeSet::new();
    for object in objects {
        let api = harness::api_of(client, object).await.expect("a kind that is served");
        let name = object["metadata"]["name"].as_str().expect("a name");
        for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let manager = entry["manager"].as_str().unwrap_or_default();
            if !managers.contains(&manager) {
                continue;
            }
            let (operation, of_status) = (&entry["operation"], entry["subresource"] == "status");
            let after = if operation == "Apply" {
                let mut body = claimed(object, &entry["fieldsV1"]);
                body["apiVersion"] = object["apiVersion"].clone();
                body["kind"] = object["kind"].clone();
                body["metadata"]["name"] = name.into();
                let (by, body) = (PatchParams::apply(manager).force(), Patch::Apply(&body));
                if of_status { api.patch_status(name, &by, &body).await } else { api.patch(name, &by, &body).await }
            } else {
                // The typed client sends all that it has read.
                let by = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
                let body: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
                if of_status { api.replace_status(name, &by, &body).await } else { api.replace(name, &by, &body).await }
            };
            let written = format!(
                "{manager} {}{}",
                operation.as_str().unwrap_or_default(),
                if of_status { " status" } else { "" }
            );
            let after = after.unwrap_or_else(|error| panic!("{} {name} by {written}: {error}", object["kind"]));
            assert_eq!(
                after.metadata.resource_version.as_deref(),
                object["metadata"]["resourceVersion"].as_str(),
                "{} {name} changes by {written}: {:#}",
                object["kind"],
                entry["fieldsV1"]
            );
            found.insert(written);
        }
    }
    found
}

/// Deletes the GitSource, then stops the daemon, and its Lease ends.
pub(crate) async fn retire(stage: &Stage) {
    let source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    let gone = harness::api_of(&stage.kcp, &source).await.expect("a kind that is served");
    gone.delete("landscape", &kube::api::DeleteParams::default()).await.expect("a delete");
    stage.until_gone(&stage.kcp, "GitSource", "kcp-system", "landscape").await;
    stage.rests().await;
    stop(stage).await;
}

/// Stops the daemon, and its Lease ends.
async fn stop(stage: &Stage) {
    stage.kill().await;
    let lease = json!({"spec": {"holderIdentity": ""}});
    let shape = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kcp-system"},
    });
    let leases = harness::api_of(&stage.kcp, &shape).await.expect("a kind that is served");
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&lease)).await.expect("a patch");
}

/// Has a CustomResourceDefinition say that objects may be stored as `v1beta1`.
async fn outdate(stage: &Stage, name: &str) {
    let shape = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
    });
    let api = harness::api_of(&stage.kcp, &shape).await.expect("a kind that is served");
    let old = json!({"status": {"storedVersions": ["v1beta1", "v1beta2"]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&old)).await.expect("a status");
}

async fn what_a_user_must_decide_stands_in_the_way_of_a_take_over() {
    let stage = before().await;
    let missing = "error: the control plane has no namespace nowhere: select another with -n\n";
    for command in ["release", "from-flux", "from-argocd"] {
        assert_eq!(run(&stage, &["adopt", command, "-n", "nowhere"]).await, (missing.to_owned(), 2), "{command}");
    }
    for command in [&["plan"] as &[&str], &["take"], &["take", "--finish"]] {
        let (text, code) = adopt(&stage, &[command, &["-n", "nowhere"]].concat()).await;
        assert!(code == 2 && text.ends_with(missing), "{command:?}: {code} {text}");
    }
    // A folder with several GitSources does not say which one it is.
    let folder = harness::folder();
    std::fs::create_dir(folder.path().join(".tidegate")).expect("a folder");
    let source =
        |name: &str| format!("apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {{name: {name}}}\n");
    for name in ["dev", "prod"] {
        std::fs::write(folder.path().join(format!(".tidegate/{name}.yaml")), source(name)).expect("a file");
    }
    let path = folder.path().to_string_lossy().into_owned();
    let said = "error: `.tidegate` has several GitSources (.tidegate/dev.yaml, .tidegate/prod.yaml): choose one of them \
                with `--source-file .tidegate/dev.yaml`\n";
    assert_eq!(run(&stage, &["adopt", "plan", &path]).await, (said.to_owned(), 2));
    let chosen = folder.path().join(".tidegate/prod.yaml").to_string_lossy().into_owned();
    let (text, _) = run(&stage, &["adopt", "plan", "--source-file", &chosen, &path]).await;
    assert!(text.contains("by GitSource kcp-system/prod, "), "{text}");
    let now = k8s_openapi::jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kcp-system"},
        "spec": {"holderIdentity": "klm-1_x", "leaseDurationSeconds": 3600, "renewTime": format!("{now:.6}")},
    });
    apply(&stage.kcp, &lease).await;
    apply(&stage.kcp, &kyma("fast")).await;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "data": {"config": "e30="},
        "metadata": {
            "name": "second", "namespace": "kcp-system", "labels": {"operator.kyma-project.io/kyma-name": "one"},
        },
    });
    apply(&stage.kcp, &secret).await;
    let (text, code) = adopt(&stage, &["plan"]).await;
    assert_eq!(code, 1, "{text}");
    for expected in [
        "blocks  klm-1_x holds the Lease and renewed it ",
        "        scale the Deployment of Lifecycle Manager to 0",
        "blocks  Kyma kcp-system/one differs from git in `spec.channel`\n        commit what the control plane has",
        "blocks  Kyma kcp-system/one has several access Secrets: ",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (text, code) = adopt(&stage, &["take", "--yes"]).await;
    assert!(code == 1 && text.contains("blocks  klm-1_x holds the Lease"), "{text}");
    assert!(text.contains("\nnothing was written: 3 findings are to resolve first\n"), "{text}");
    // A list that git does not declare stays in the control plane, and would be git's.
    let mut silent = kyma("regular");
    silent["spec"].as_object_mut().expect("a spec").remove("modules");
    stage.commit("kymas/one.yaml", &silent.to_string());
    let installed = json!({"status": {"state": "Ready", "modules": [{"name": "legacy", "state": "Ready"}]}});
    let kymas = harness::api_of(&stage.kcp, &silent).await.expect("a kind that is served");
    kymas.patch_status("one", &PatchParams::default(), &Patch::Merge(&installed)).await.expect("a status");
    let (text, code) = adopt(&stage, &["plan"]).await;
    let lost = "blocks  1 runtime would lose modules that git does not name: kcp-system/one (legacy)\n        add the";
    assert!(code == 1 && text.contains(lost), "{text}");
    let template = read(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await.expect("it is there");
    assert_eq!(left_of_tidegate(&template), ["tidegate.dev/module-path"], "nothing is written before");
    let (text, code) = adopt(&stage, &["plan", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["ready"], code), (&json!(false), 1), "{text}");

    // A Kyma that is being deleted takes the modules of its runtime with it.
    let secrets = harness::api_of(&stage.kcp, &secret).await.expect("a kind that is served");
    secrets.delete("second", &kube::api::DeleteParams::default()).await.expect("a delete");
    let held = json!({"metadata": {"finalizers": ["operator.kyma-project.io/Kyma"]}});
    kymas.patch("one", &PatchParams::default(), &Patch::Merge(&held)).await.expect("a patch");
    kymas.delete("one", &kube::api::DeleteParams::default()).await.expect("a delete");
    let (text, _) = adopt(&stage, &["plan"]).await;
    let goes = "note    at the first contact with 1 runtime, the daemon deletes all modules there, because its Kyma is \
                being deleted: kcp-system/one\n        make sure that these modules may go: ";
    assert!(text.contains(goes), "{text}");
}

/// A kind whose objects may have any content.
pub(crate) fn definition_of(group: &str, version: &str, kind: &str, plural: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
            },
            "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// A Manifest of module `legacy`.
fn manifest_of(name: &str, kyma: &str, source: Value) -> Value {
    json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Manifest",
        "metadata": {"name": name, "namespace": "kcp-system", "labels": {
            "operator.kyma-project.io/kyma-name": kyma, "operator.kyma-project.io/module-name": "legacy",
        }},
        "spec": {"remote": true, "version": "1.0.0", "install": {"name": "raw-manifest", "source": source}},
    })
}

/// What Lifecycle Manager may have in a control plane beside definitions: a Manifest of Kyma `ghost`, which does not
/// exist, one of a Helm chart, a Watcher with its Service, a certificate, and a webhook that reviews deletions.
async fn surround(stage: &Stage) {
    let digest = format!("sha256:{}", "0".repeat(64));
    let layer = json!({"type": "oci-dir", "repo": "r.example.com/prod", "name": "example.org/a", "ref": digest});
    apply(&stage.kcp, &manifest_of("ghost-a", "ghost", layer)).await;
    apply(
        &stage.kcp,
        &manifest_of("one-legacy", "one", json!({"type": "helm-chart", "url": "https://charts.example.org"})),
    )
    .await;
    let service = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "kcp-system"},
            "spec": {"selector": {"app.kubernetes.io/name": "lifecycle-manager"}, "ports": [{"port": 443}]},
        })
    };
    apply(&stage.kcp, &service("klm-webhook-service")).await;
    apply(&stage.kcp, &service("tidegate-events")).await;
    apply(&stage.kcp, &serde_yaml::from_str(stage::WATCHER).expect("YAML")).await;
    let crd = definition_of("cert-manager.io", "v1", "Certificate", "certificates");
    harness::install_crds(&stage.kcp, &[crd]).await;
    apply(&stage.kcp, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "istio-system"}})).await;
    apply(
        &stage.kcp,
        &json!({
            "apiVersion": "cert-manager.io/v1", "kind": "Certificate",
            "metadata": {"name": "one-webhook-tls", "namespace": "istio-system"},
            "spec": {"dnsNames": ["one.example.org", ""]},
            "status": {"notBefore": "2020-01-01T00:00:00Z", "notAfter": "2020-03-01T00:00:00Z"},
        }),
    )
    .await;
    let rule = json!({
        "apiGroups": ["operator.kyma-project.io"], "apiVersions": ["*"], "operations": ["DELETE"], "resources": ["watchers"],
    });
    apply(
        &stage.kcp,
        &json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "klm-validating"},
            "webhooks": [{
                "name": "watchers.kyma-project.io", "rules": [rule], "failurePolicy": "Fail", "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"service": {"namespace": "kcp-system", "name": "klm-webhook-service"}},
            }],
        }),
    )
    .await;
}

async fn the_webhooks_and_modules_of_lifecycle_manager_are_checked() {
    let stage = before().await;
    surround(&stage).await;
    let (text, code) = adopt(&stage, &["plan"]).await;
    assert_eq!(code, 1, "{text}");
    let notes = [
        "note    1 Manifest has no Kyma, and stays with the objects: kcp-system/ghost-a\n",
        "note    1 Watcher sends events to Service kcp-system/tidegate-events, which selects pods of Lifecycle Manager\n",
        "note    1 certificate of runtimes has ended: kcp-system/one (2020-03-01T00:00:00Z)\n        check cert-manager",
        "note    1 certificate of runtimes has an empty DNS name, which Tidegate leaves until something else in it changes: ",
    ];
    let blocks = [
        "blocks  1 Manifest has a source that Tidegate does not read: kcp-system/one-legacy (source type `helm-chart` is \
         not supported: use `git`, `oci-ref` or `oci-dir`)\n        publish the module to an OCI registry",
        "blocks  ValidatingWebhookConfiguration klm-validating leads to Lifecycle Manager: once that is stopped, the API \
         server refuses every write of its kinds\n        delete it; ",
    ];
    for expected in blocks.iter().chain(&notes) {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (text, code) = adopt(&stage, &["take", "--yes"]).await;
    assert!(code == 1 && text.contains(blocks[1]), "{text}");

    for (version, kind, namespace, name) in [
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "klm-validating"),
        ("operator.kyma-project.io/v1beta2", "Manifest", "kcp-system", "one-legacy"),
    ] {
        let shape = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
        let api = harness::api_of(&stage.kcp, &shape).await.expect("a kind that is served");
        api.delete(name, &kube::api::DeleteParams::default()).await.expect("a delete");
    }
    let (text, code) = adopt(&stage, &["plan"]).await;
    assert_eq!(code, 0, "{text}");
    let ready = [
        "ready   Tidegate can render every installed module\n",
        "ready   the control plane has no webhook for kinds of Lifecycle Manager\n",
    ];
    for expected in ready.iter().chain(&notes) {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

async fn a_landscape_is_taken_over_as_planned_and_given_back() {
    let stage = before().await;
    let name = "kymas.operator.kyma-project.io";
    outdate(&stage, name).await;
    let mut watcher: Value = serde_yaml::from_str(stage::WATCHER).expect("YAML");
    watcher["metadata"]["name"] = "of-a-user".into();
    apply(&stage.kcp, &watcher).await;
    let digest = format!("sha256:{}", "0".repeat(64));
    let layer = json!({"type": "oci-dir", "repo": "r.example.com/prod", "name": "example.org/a", "ref": digest});
    apply(&stage.kcp, &manifest_of("ghost-a", "ghost", layer)).await;
    // Neither is in git, and nothing names the Manifest's Kyma.
    let orphans = async || {
        let mut uids = Vec::new();
        for (kind, name) in [("Watcher", "of-a-user"), ("Manifest", "ghost-a")] {
            let found = read(&stage.kcp, kind, "kcp-system", name).await.unwrap_or_else(|| panic!("{name} stays"));
            assert!(found["metadata"]["deletionTimestamp"].is_null(), "{found:#}");
            uids.push(found["metadata"]["uid"].clone());
        }
        uids
    };
    let orphans_before = orphans().await;
    // Lifecycle Manager does not release its Lease when it ends.
    let renewed = k8s_openapi::jiff::Timestamp::now() - k8s_openapi::jiff::SignedDuration::from_hours(1);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": LEASE, "namespace": "kcp-system"},
        "spec": {"holderIdentity": "klm-1_x", "leaseDurationSeconds": 180, "renewTime": format!("{renewed:.6}")},
    });
    apply(&stage.kcp, &lease).await;

    let (text, code) = adopt(&stage, &["plan"]).await;
    assert_eq!(code, 0, "{text}");
    for expected in [
        "to do   kymas.operator.kyma-project.io: the API server may store objects as v1beta1; 1 object must be written \
         again as v1beta2",
        "to do   6 definitions in git say what the control plane has, and get the ownership label: ",
        "to do   klm-1_x has not renewed the Lease for ",
        "ready   Tidegate accepts the access Secret of 1 runtime",
        "note    Kyma: KEB 1",
        "note    2 modules have their objects in git, and have no way back to Lifecycle Manager, which reads registries \
         only: cache, mailer\n        push these modules to an OCI registry before `tidegate adopt release`",
        "note    1 object of kind Watcher in the control plane is not in git, and stays: kcp-system/of-a-user\n",
        "note    1 Manifest has no Kyma, and stays with the objects: kcp-system/ghost-a\n",
        "note    at the first contact with 1 runtime, Tidegate applies the CustomResourceDefinitions, the catalog, the",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // Who signs it knows what it is about.
    let head: Vec<&str> = text.lines().take(5).collect();
    let server = kubeconfig_server(&stage);
    assert_eq!(head[0], format!("Take-over of the landscape in kcp-system, control plane {server}"));
    let revision = head[1].strip_prefix("by GitSource kcp-system/landscape, revision ").expect("a revision");
    assert!(revision.starts_with("HEAD@sha1:") && !revision.contains(' '), "everything is committed: {revision}");
    let date = head[2].strip_prefix("as of ").expect("a date").parse::<k8s_openapi::jiff::Timestamp>();
    assert!(date.is_ok() && head[4].is_empty(), "{head:?}");
    assert_eq!(head[3], format!("by tidegate {}", env!("CARGO_PKG_VERSION")));
    let (text, _) = adopt(&stage, &["plan", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!([&report["server"], &report["revision"]], [&json!(server), &json!(revision)]);

    let (text, _) = adopt(&stage, &["take"]).await;
    assert!(text.contains("1 object would be stored again, 6 definitions would be marked"), "{text}");
    a_running_holder_ends_it_before_its_first_write(&stage, &lease).await;
    let (text, code) = adopt(&stage, &["take", "--yes"]).await;
    assert!(code == 0 && text.contains("1 object stored again, 6 definitions marked"), "{text}");
    assert!(text.contains("the Lease of klm-1_x, which has ended, is released\n"), "{text}");
    let freed = read(&stage.kcp, "Lease", "kcp-system", LEASE).await.expect("it is there");
    assert_eq!(freed["spec"]["holderIdentity"], "", "the daemon need not wait for its end: {freed:#}");
    let crd = read(&stage.kcp, "CustomResourceDefinition", "", name).await.expect("it is there");
    assert_eq!(crd["status"]["storedVersions"], json!(["v1beta2"]));
    let (text, _) = adopt(&stage, &["take", "--yes"]).await;
    assert!(text.contains("0 objects stored again, 0 definitions marked"), "{text}");

    // The daemon finds its own definitions: no annotation allows it to take them over.
    let marks = stage.marks();
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    assert_eq!(source["status"]["counts"]["withheld"], json!(0), "{source:#}");
    let writes = stage.requests_since(&marks);
    let applies = writes.iter().filter(|line| line.starts_with("kcp patch moduletemplates."));
    assert_eq!(applies.count(), 0, "{writes:?}");

    // A module becomes unmanaged: its objects lose the ownership label, and its Manifest goes.
    let unmanaged = stage::kyma("one", &["cache", "mailer"]).replace("mailer, managed: true", "mailer, managed: false");
    stage.commit("kymas/one.yaml", &unmanaged);
    let is_unmanaged = |kyma: &Value| {
        let mut modules = kyma["status"]["modules"].as_array().into_iter().flatten();
        modules.any(|module| module["name"] == "mailer" && module["state"] == "Unmanaged")
    };
    stage.until("it is unmanaged", &stage.kcp, "Kyma", "kcp-system", "one", is_unmanaged).await;
    stage.rests().await;
    let map = read(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await.expect("it stays");
    assert!(map["metadata"]["labels"]["operator.kyma-project.io/managed-by"].is_null(), "{map:#}");
    assert!(!left_of_tidegate(&map).is_empty(), "{map:#}");

    // And back.
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert!(code == 1 && text.contains("there is still 1 GitSource: kcp-system/landscape"), "{text}");
    assert!(text.contains("stop the daemon of Tidegate first"), "{text}");
    retire(&stage).await;

    surround_with_ours(&stage).await;
    let before = objects(&stage.skrs[0], &IN_RUNTIME).await;
    let spec = read(&stage.kcp, "Certificate", "istio-system", "one-webhook-tls").await.expect("it is there");
    let (text, code) = run(&stage, &["adopt", "release"]).await;
    assert!(code == 0 && text.contains("objects would be given back"), "{code} {text}");
    for line in [
        "what only Tidegate understands would be removed:\n",
        "  annotation tidegate.dev/kyma: 1 of kind Certificate (istio-system/one-webhook-tls)\n",
        "  annotation tidegate.dev/source: 1 of kind Kyma (kcp-system/one); 2 of kind ModuleReleaseMeta (",
        "of kind Manifest (kcp-system/one-cache-",
        "in runtime kcp-system/one)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let mark = stage.landscape.kcp.mark();
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("what only Tidegate understands was removed:\n"), "{text}");
    let writes = stage.landscape.kcp.records_since(mark).into_iter().filter(tidegate_testbed::Record::is_write);
    let of_certificate: Vec<String> = writes
        .filter(|record| record.resource.starts_with("certificates.cert-manager.io"))
        .map(|record| format!("{} {} {}", record.verb, record.resource, record.name))
        .collect();
    assert_eq!(of_certificate, ["patch certificates.cert-manager.io one-webhook-tls"], "once, and not its status");
    assert_eq!(orphans().await, orphans_before);
    assert!(text.contains("1 Manifest has objects from git, and Lifecycle Manager cannot read them until "), "{text}");
    let all = [objects(&stage.kcp, &DEFINED).await, objects(&stage.skrs[0], &IN_RUNTIME).await].concat();
    for object in &all {
        assert_eq!(left_of_tidegate(object), Vec::<String>::new(), "{} {}", object["kind"], object["metadata"]["name"]);
    }
    // Lifecycle Manager applies Manifests and what runtimes have, and no definitions.
    let managers = async |client: &Client, kind: &str, namespace: &str, name: &str| {
        tidegate_core::adopt::managers(&read(client, kind, namespace, name).await.expect("it is there"))
    };
    let of_manifest = objects(&stage.kcp, &[("operator.kyma-project.io/v1beta2", "Manifest", "kcp-system")]).await;
    let of_module = of_manifest.iter().find(|one| one["metadata"]["name"] != "ghost-a").expect("its Manifest");
    assert!(tidegate_core::adopt::managers(of_module).contains(&"lifecycle-manager".to_owned()), "{of_manifest:?}");
    let of_map = managers(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await;
    assert_eq!(of_map, ["declarative.kyma-project.io/applier"]);
    let of_unmanaged = managers(&stage.skrs[0], "ConfigMap", "kyma-system", "mailer-a").await;
    assert_eq!(of_unmanaged, ["declarative.kyma-project.io/applier"], "so that it can remove a field");
    let of_template = managers(&stage.kcp, "ModuleTemplate", "kcp-system", "cache-1.0.0").await;
    assert_eq!(of_template, [BEFORE], "the client from before keeps its claims, and no manager gets Tidegate's");
    let after = objects(&stage.skrs[0], &IN_RUNTIME).await;
    let issued = read(&stage.kcp, "Certificate", "istio-system", "one-webhook-tls").await.expect("it is there");
    assert_eq!(issued["spec"], spec["spec"], "no issuer issues it again");
    let managers = write_again(&stage.kcp, &objects(&stage.kcp, &DEFINED).await, &FORMER).await;
    let of_kcp = [
        "declarative.kyma-project.io/applier Apply",
        "declarative.kyma-project.io/applier Apply status",
        "lifecycle-manager Apply",
        "lifecycle-manager Apply status",
        "operator.kyma-project.io/lifecycle-manager Apply",
        "resource.kyma-project.io/finalizer Apply",
    ]
    .map(str::to_owned);
    assert_eq!(managers, of_kcp.into());
    let managers = write_again(&stage.skrs[0], &after, &FORMER).await;
    let of_runtime = ["catalog-sync Apply", "declarative.kyma-project.io/applier Apply", "kyma-sync-context Apply"]
        .map(str::to_owned);
    assert_eq!(managers, of_runtime.into());
    let named =
        |objects: &[Value]| -> Vec<Value> { objects.iter().map(|one| one["metadata"]["uid"].clone()).collect() };
    assert_eq!(named(&before), named(&after), "nothing is deleted or created");
    let (text, _) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert!(text.starts_with("0 objects given back, "), "{text}");

    // A field that Lifecycle Manager drops disappears, because no other client claims it.
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"new": "one"},
        "metadata": {"name": "cache-a", "namespace": "kyma-system"},
    });
    let api = harness::api_of(&stage.skrs[0], &map).await.expect("a kind that is served");
    let applier = PatchParams::apply("declarative.kyma-project.io/applier").force();
    api.patch("cache-a", &applier, &Patch::Apply(&map)).await.expect("an apply");
    eventually("the old field is gone", SOON, async || {
        let found = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is there");
        if found["data"] == json!({"new": "one"}) { Ok(()) } else { Err(found["data"].to_string()) }
    })
    .await;
}

async fn modules_from_git_stay_ready_after_a_release_until_the_landscape_is_taken_over_again() {
    let stage = before().await;
    let (text, code) = adopt(&stage, &["take", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    stage.start();
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    let mut source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    retire(&stage).await;
    let (text, code) = run(&stage, &["adopt", "release", "--no-runtimes", "--yes"]).await;
    assert_eq!(code, 5, "{text}");
    source["metadata"] = json!({"name": "landscape", "namespace": "kcp-system"});
    source.as_object_mut().expect("an object").remove("status");
    let sources = harness::api_of(&stage.kcp, &source).await.expect("a kind that is served");
    let source = serde_json::from_value(source).expect("an object");
    sources.create(&PostParams::default(), &source).await.expect("a new object");

    // A daemon without a take-over: it holds the definitions back, and keeps what is installed.
    let states = States::follow([&stage.kcp]).await;
    let is_withheld = |source: &Value| source["status"]["counts"]["withheld"].as_u64() > Some(0);
    stage.start();
    stage.until("it is held back", &stage.kcp, "GitSource", "kcp-system", "landscape", is_withheld).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    states.were_never("Error");
    stop(&stage).await;

    let (text, code) = adopt(&stage, &["plan"]).await;
    assert_eq!(code, 0, "{text}");
    for expected in [
        "to do   3 definitions in git say more than the control plane only in annotations that `adopt release` removes \
         (tidegate.dev/module-path); git is right, and the control plane gets them with the ownership label: ",
        "ready   Tidegate can render every installed module\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let (text, code) = adopt(&stage, &["take", "--yes"]).await;
    assert!(code == 0 && text.contains("6 definitions marked"), "{text}");
    stage.start();
    let is_whole = |source: &Value| source["status"]["counts"]["withheld"] == 0;
    stage.until("nothing is held back", &stage.kcp, "GitSource", "kcp-system", "landscape", is_whole).await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;
    states.were_never("Error");
}

/// A process whose clock is behind renews the Lease with old times: nothing is written beside it.
async fn a_running_holder_ends_it_before_its_first_write(stage: &Stage, lease: &Value) {
    let leases = harness::api_of(&stage.kcp, lease).await.expect("a kind that is served");
    let renews = async {
        for count in 0_u32.. {
            let renewal = json!({"metadata": {"annotations": {"renewals": count.to_string()}}});
            leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(&renewal)).await.expect("a patch");
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    };
    let mark = stage.landscape.kcp.mark();
    let (text, code) = tokio::select! {
        said = adopt(stage, &["take", "--yes"]) => said,
        () = renews => unreachable!("it renews until the command has ended"),
    };
    let waits = "waiting for 15 s, because klm-1_x runs if it renews the Lease\n";
    let ends = "error: klm-1_x runs, because it has renewed the Lease: stop it, and run the command again\n";
    assert!(code == 2 && text.contains(waits) && text.ends_with(ends), "{code} {text}");
    let writes = stage.landscape.kcp.records_since(mark).into_iter().filter(tidegate_testbed::Record::is_write);
    let others: Vec<String> = writes
        .filter(|record| !record.resource.starts_with("leases"))
        .map(|record| format!("{} {} {}", record.verb, record.resource, record.name))
        .collect();
    assert_eq!(others, Vec::<String>::new());
}

/// Has Lifecycle Manager apply the only Manifest of module `cache` with its objects in a registry. Returns the source
/// that the Manifest has then.
async fn apply_in_registry(stage: &Stage) -> Value {
    let live = manifest_of_cache(stage).await;
    let entries = live["metadata"]["managedFields"].as_array().expect("its managers");
    let of_manager = |entry: &&Value| entry["manager"] == "lifecycle-manager" && entry["subresource"].is_null();
    let claims = entries.iter().find(of_manager).unwrap_or_else(|| panic!("it has been given back: {live:#}"));
    let mut body = claimed(&live, &claims["fieldsV1"]);
    for field in ["apiVersion", "kind"] {
        body[field] = live[field].clone();
    }
    body["metadata"]["name"] = live["metadata"]["name"].clone();
    body["spec"]["install"]["source"] = in_registry();
    let api = harness::api_of(&stage.kcp, &live).await.expect("a kind that is served");
    let name = live["metadata"]["name"].as_str().expect("a name");
    let by = PatchParams::apply("lifecycle-manager").force();
    let applied = api.patch(name, &by, &Patch::Apply(&body)).await.expect("an apply");
    applied.data["spec"]["install"]["source"].clone()
}

fn in_registry() -> Value {
    let digest = format!("sha256:{}", "0".repeat(64));
    json!({"type": "oci-dir", "repo": "r.example.com/prod", "name": "example.org/module", "ref": digest})
}

async fn manifest_of_cache(stage: &Stage) -> Value {
    let all = objects(&stage.kcp, &[("operator.kyma-project.io/v1beta2", "Manifest", "kcp-system")]).await;
    let is_of_cache =
        |manifest: &&Value| manifest["metadata"]["labels"]["operator.kyma-project.io/module-name"] == "cache";
    all.iter().find(is_of_cache).expect("its Manifest").clone()
}

async fn a_manifest_whose_module_moves_into_git_keeps_nothing_of_its_former_source() {
    let stage = stage::ready(1).await;
    stage.rests().await;
    let templates = objects(&stage.kcp, &[("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kcp-system")]).await;
    let mut source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    retire(&stage).await;
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!(apply_in_registry(&stage).await, in_registry(), "nothing of git is left");

    // Only the modules are from git, which Lifecycle Manager does not know.
    for template in &templates {
        let path = json!({"tidegate.dev/module-path": template["metadata"]["annotations"]["tidegate.dev/module-path"]});
        merge(&stage.kcp, template, json!({"metadata": {"annotations": path}})).await;
    }
    let named =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    stage.commit(".tidegate/source.yaml", named);
    let (text, code) = adopt(&stage, &["take", "--yes", "--oci-registry-host=r.example.com/prod"]).await;
    assert_eq!(code, 0, "{text}");
    source["metadata"] = json!({"name": "landscape", "namespace": "kcp-system"});
    source.as_object_mut().expect("an object").remove("status");
    harness::apply(&stage.kcp, &source).await;
    stage.start();
    eventually("its objects are from git, and nothing of the registry is left", SOON * 2, async || {
        let source = manifest_of_cache(&stage).await["spec"]["install"]["source"].clone();
        let mut fields: Vec<&String> = source.as_object().expect("a mapping").keys().collect();
        fields.sort();
        if source["type"] == "git" && fields == ["path", "source", "tree", "type"] {
            Ok(())
        } else {
            Err(source.to_string())
        }
    })
    .await;
    stage.kyma_in("one", "Ready").await;
    stage.rests().await;

    // A second pass over everything.
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    stage.rests().await;
    tokio::time::sleep(QUIET).await;
    let is_read = |line: &String| {
        [" get ", " list ", " watch ", " leases", " events", " selfsubject"].iter().any(|other| line.contains(other))
    };
    let written: Vec<String> = stage.requests_since(&marks).into_iter().filter(|line| !is_read(line)).collect();
    assert_eq!(written, Vec::<String>::new());

    // Once more, as after a push of the module to a registry.
    retire(&stage).await;
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    assert_eq!(apply_in_registry(&stage).await, in_registry(), "Lifecycle Manager can read it");
}

/// Host and port of the control plane, as the kubeconfig of the stage has them.
fn kubeconfig_server(stage: &Stage) -> String {
    let text = std::fs::read_to_string(stage.kubeconfig()).expect("a kubeconfig");
    let kubeconfig: Value = serde_yaml::from_str(&text).expect("YAML");
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str().expect("a server");
    server.trim_start_matches("https://").trim_end_matches('/').to_owned()
}

const KUSTOMIZATIONS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kustomizations.kustomize.toolkit.fluxcd.io}
spec:
  group: kustomize.toolkit.fluxcd.io
  scope: Namespaced
  names: {kind: Kustomization, plural: kustomizations, singular: kustomization, listKind: KustomizationList}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

async fn merge(client: &Client, object: &Value, patch: Value) {
    let api = harness::api_of(client, object).await.expect("a kind that is served");
    let name = object["metadata"]["name"].as_str().expect("a name");
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("a patch");
}

async fn flux_hands_definitions_over_step_by_step_and_none_is_lost() {
    let stage = before().await;
    let from_flux = async |expected: &[&str], code: i32| {
        let (text, exit) = run(&stage, &["adopt", "from-flux"]).await;
        assert_eq!(exit, code, "{text}");
        for part in expected {
            assert!(text.contains(part), "{part:?} in:\n{text}");
        }
    };
    from_flux(&["Flux manages no definition in kcp-system: go on with `tidegate adopt plan`"], 0).await;
    flux_in_another_cluster_is_checked_by_the_user(&stage).await;

    let definition: Value = serde_yaml::from_str(KUSTOMIZATIONS).expect("YAML");
    apply(&stage.kcp, &definition).await;
    let kustomization = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "kcp", "namespace": "kcp-system"},
        "spec": {"prune": true},
        "status": {"inventory": {"entries": [
            {"id": "kcp-system_one_operator.kyma-project.io_Kyma", "v": "v1beta2"},
            {"id": "kcp-system_cache-1.0.0_operator.kyma-project.io_ModuleTemplate", "v": "v1beta2"},
        ]}},
    });
    eventually("Kustomizations are served", SOON, async || {
        harness::api_of(&stage.kcp, &kustomization).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    apply(&stage.kcp, &kustomization).await;
    let template = json!({
        "apiVersion": "operator.kyma-project.io/v1beta2", "kind": "ModuleTemplate",
        "metadata": {"name": "cache-1.0.0", "namespace": "kcp-system"},
    });
    let marks = json!({
        "kustomize.toolkit.fluxcd.io/name": "kcp", "kustomize.toolkit.fluxcd.io/namespace": "kcp-system",
    });
    for object in [&kyma("regular"), &template] {
        merge(&stage.kcp, object, json!({"metadata": {"labels": marks}})).await;
    }

    // One kind at a time: the Kyma comes after the template.
    from_flux(
        &[
            "1 ModuleTemplate of the Flux Kustomization kcp-system/kcp in kcp-system:\n\n  next  suspend",
            "flux suspend kustomization kcp -n kcp-system",
            "  then  protect",
            "After that:\n  1 Kyma of the Flux Kustomization kcp-system/kcp in kcp-system",
        ],
        1,
    )
    .await;
    let (text, exit) = adopt(&stage, &["plan"]).await;
    assert!(exit == 1 && text.contains("is managed by the Flux Kustomization kcp-system/kcp"), "{text}");
    assert!(!text.contains("`tidegate.dev/adopt: "), "`take` needs no annotation: {text}");
    merge(&stage.kcp, &kustomization, json!({"spec": {"suspend": true}})).await;
    from_flux(&["  done  suspend", "  next  protect the ModuleTemplates from its prune"], 1).await;
    let unmarked = json!({
        "kustomize.toolkit.fluxcd.io/name": null, "kustomize.toolkit.fluxcd.io/namespace": null,
    });
    let listed = json!([{"id": "kcp-system_one_operator.kyma-project.io_Kyma", "v": "v1beta2"}]);
    for (object, others) in [(&template, listed), (&kyma("regular"), json!([]))] {
        let protected = json!({"metadata": {"annotations": {"kustomize.toolkit.fluxcd.io/prune": "disabled"}}});
        merge(&stage.kcp, object, protected).await;
        from_flux(&["  done  protect", "  next  remove the", "flux resume kustomization kcp"], 1).await;
        // Flux goes on without it.
        let goes_on = json!({"spec": {"suspend": false}, "status": {"inventory": {"entries": others}}});
        merge(&stage.kcp, &kustomization, goes_on).await;
        from_flux(&["  next  remove its marks", "kustomize.toolkit.fluxcd.io/namespace-"], 1).await;
        merge(&stage.kcp, object, json!({"metadata": {"labels": unmarked}})).await;
        merge(&stage.kcp, &kustomization, json!({"spec": {"suspend": true}})).await;
    }
    // The last command of each kind is still to be run, and a user who was interrupted there sees it again.
    let kymas = "kubectl annotate kyma -n kcp-system one kustomize.toolkit.fluxcd.io/prune-";
    from_flux(&["the protection from the prune of Flux is left on 1 Kyma in kcp-system\n", kymas], 1).await;
    for object in [&template, &kyma("regular")] {
        let unprotected = json!({"metadata": {"annotations": {"kustomize.toolkit.fluxcd.io/prune": null}}});
        merge(&stage.kcp, object, unprotected).await;
    }
    from_flux(&["Flux manages no definition in kcp-system"], 0).await;
    let (text, exit) = adopt(&stage, &["plan"]).await;
    assert_eq!(exit, 0, "{text}");
    let (text, exit) = adopt(&stage, &["take", "--yes"]).await;
    assert!(exit == 0 && text.contains(" definitions marked for kcp-system/landscape"), "{text}");
    for (kind, name) in [("ModuleTemplate", "cache-1.0.0"), ("Kyma", "one")] {
        let object = read(&stage.kcp, kind, "kcp-system", name).await.expect("it is not lost");
        assert_eq!(object["metadata"]["labels"]["tidegate.dev/source"], "kcp-system.landscape");
    }
}

/// The control plane has no Kustomization, so the user says what it cannot show, and the steps go on.
async fn flux_in_another_cluster_is_checked_by_the_user(stage: &Stage) {
    let labels =
        |name: Value| json!({"kustomize.toolkit.fluxcd.io/name": name, "kustomize.toolkit.fluxcd.io/namespace": name});
    let kyma = kyma("regular");
    let from_flux = async |checked: &[&str], expected: &[&str]| {
        let (text, exit) = run(stage, &[&["adopt", "from-flux"], checked].concat()).await;
        assert_eq!(exit, 1, "{text}");
        for part in expected {
            assert!(text.contains(part), "{part:?} in:\n{text}");
        }
    };
    merge(&stage.kcp, &kyma, json!({"metadata": {"labels": labels(json!("kcp"))}})).await;
    from_flux(&[], &["  check suspend the ", "\n          once it is done: --checked Kyma/stop\n", "  then  protect"])
        .await;
    let stopped = ["--checked", "Kyma/stop"];
    from_flux(&stopped, &["  done  suspend the ", ", as you have checked\n", "  next  protect the Kymas"]).await;
    let unused = ["--checked", "Kyma/stop", "--checked", "Kyma/protect"];
    from_flux(&unused, &["warning: --checked Kyma/protect changes nothing: ", "  next  protect the Kymas"]).await;
    let protection = |value: Value| json!({"metadata": {"annotations": {"kustomize.toolkit.fluxcd.io/prune": value}}});
    merge(&stage.kcp, &kyma, protection(json!("disabled"))).await;
    from_flux(&stopped, &["  done  protect", "  check remove the ", "once it is done: --checked Kyma/remove\n"]).await;
    let both = [&stopped[..], &["--checked", "Kyma/remove"]].concat();
    from_flux(&both, &["  done  remove the ", "  next  remove its marks"]).await;
    let (text, exit) = run(stage, &["adopt", "from-flux", "--checked", "Kyma/3"]).await;
    assert!(exit == 2 && text.contains("use a kind and one of `stop`, `protect` and `remove`"), "{exit} {text}");
    merge(&stage.kcp, &kyma, protection(Value::Null)).await;
    merge(&stage.kcp, &kyma, json!({"metadata": {"labels": labels(Value::Null)}})).await;
}

const APPLICATIONS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: applications.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: Application, plural: applications, singular: application, listKind: ApplicationList}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"#;

async fn argo_cd_hands_definitions_over_step_by_step_and_none_is_lost() {
    let stage = before().await;
    let from_argocd = async |expected: &[&str], code: i32| {
        let (text, exit) = run(&stage, &["adopt", "from-argocd"]).await;
        assert_eq!(exit, code, "{text}");
        for part in expected {
            assert!(text.contains(part), "{part:?} in:\n{text}");
        }
    };
    from_argocd(&["Argo CD manages no definition in kcp-system: go on with `tidegate adopt plan`"], 0).await;

    let definition: Value = serde_yaml::from_str(APPLICATIONS).expect("YAML");
    apply(&stage.kcp, &definition).await;
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "kcp", "namespace": "kcp-system"},
        "spec": {"syncPolicy": {"automated": {"prune": true}}},
        "status": {"resources": [
            {"group": "operator.kyma-project.io", "kind": "Kyma", "namespace": "kcp-system", "name": "one"},
        ]},
    });
    eventually("Applications are served", SOON, async || {
        harness::api_of(&stage.kcp, &application).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    apply(&stage.kcp, &application).await;
    let kyma = kyma("regular");
    let tracking = "kcp:operator.kyma-project.io/Kyma:kcp-system/one";
    let annotate = async |annotations: Value| {
        merge(&stage.kcp, &kyma, json!({"metadata": {"annotations": annotations}})).await;
    };
    annotate(json!({"argocd.argoproj.io/tracking-id": tracking})).await;

    from_argocd(
        &[
            "1 Kyma of the Argo CD Application kcp in kcp-system:\n\n  next  turn automatic syncs of the Application off",
            "argocd app set kcp --sync-policy none",
            "  then  protect",
        ],
        1,
    )
    .await;
    let (text, exit) = adopt(&stage, &["plan"]).await;
    assert!(exit == 1 && text.contains("is managed by the Argo CD Application kcp"), "{text}");
    assert!(!text.contains("`tidegate.dev/adopt: "), "`take` needs no annotation: {text}");
    assert!(text.contains("run `tidegate adopt from-argocd` for the steps"), "{text}");
    merge(&stage.kcp, &application, json!({"spec": {"syncPolicy": {"automated": null}}})).await;
    from_argocd(&["  done  turn automatic syncs", "  next  protect the Kymas from its prune"], 1).await;
    annotate(json!({"argocd.argoproj.io/sync-options": "Prune=false"})).await;
    from_argocd(&["  done  protect", "  next  remove the Kymas from the repository of the Application"], 1).await;
    merge(&stage.kcp, &application, json!({"status": {"resources": []}})).await;
    from_argocd(&["  next  remove its marks", "argocd.argoproj.io/tracking-id- "], 1).await;
    annotate(json!({"argocd.argoproj.io/tracking-id": null, "argocd.argoproj.io/sync-options": null})).await;
    from_argocd(&["Argo CD manages no definition in kcp-system"], 0).await;

    let (text, exit) = adopt(&stage, &["take", "--yes"]).await;
    assert!(exit == 0 && text.contains(" definitions marked for kcp-system/landscape"), "{text}");
    let object = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is not lost");
    assert_eq!(object["metadata"]["labels"]["tidegate.dev/source"], "kcp-system.landscape");
}
