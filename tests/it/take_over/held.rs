//! What Lifecycle Manager left in a runtime stays there after `adopt take`, until `adopt take --finish`, or until it
//! cannot stay.

use std::collections::BTreeMap;

use kube::{
    Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::{adopt, restarted, retire, run};
use crate::{
    agent_path::world::{self, AGENT, OBJECTS, gateway, webhooks},
    harness::{self, SOON, eventually},
    stage::{self, Stage, States, read, scenarios},
};

scenarios! {
    what_lifecycle_manager_left_stays_until_the_take_over_is_finished,
    a_renewed_certificate_replaces_the_agent_of_lifecycle_manager,
    runtimes_are_finished_one_by_one,
    what_nothing_in_a_runtime_names_is_reported_and_stays,
    a_new_version_after_a_take_over_writes_what_it_writes_on_a_landscape_of_our_own;
    on real servers:
    the_agent_of_lifecycle_manager_stays_on_real_servers
}

/// Lifecycle Manager's field manager for what reports changes.
const MANAGER: &str = "lifecycle-manager";
const ANNOTATION: &str = "tidegate.dev/adopted";
const PATH: &str = "tidegate.dev/module-path";
/// The image of Lifecycle Manager's agent.
const IMAGE: &str = "registry.example.org/runtime-watcher:2.1.12";

/// The objects of Lifecycle Manager's agent that differ from Tidegate's, as Lifecycle Manager applies them.
fn agent(restart: &str) -> Vec<Value> {
    let metadata = |name: &str| {
        let labels = json!({"app": "skr-webhook", "operator.kyma-project.io/managed-by": "kyma"});
        json!({"name": name, "namespace": "kyma-system", "labels": labels})
    };
    let fixed = |name: &str, value: &str| json!({"name": name, "value": value});
    let env = json!([
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        fixed("WEBHOOK_PORT", "8443"), fixed("METRICS_PORT", "2112"), fixed("TLS_KEY", "/app/etc/ssl/tls.key"),
        fixed("TLS_CERT", "/app/etc/ssl/tls.crt"), fixed("CA_CERT", "/app/etc/ssl/ca.crt"),
        fixed("TLS_CALLBACK", "true"), fixed("KCP_CONTRACT", "v2"),
        fixed("KCP_ADDR", &format!("{}:443", world::GATEWAY_HOST)),
    ]);
    let items: Vec<Value> = ["tls.key", "tls.crt", "ca.crt"].map(|key| json!({"key": key, "path": key})).into();
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("skr-webhook"),
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "skr-webhook"}},
            "template": {
                "metadata": {"labels": {
                    "app": "skr-webhook", "operator.kyma-project.io/pod-restart-trigger": restart,
                    "sidecar.istio.io/inject": "false",
                }},
                "spec": {
                    "containers": [{
                        "name": "server", "image": IMAGE, "imagePullPolicy": "Always", "env": env,
                        "volumeMounts": [{"name": "ssl", "mountPath": "/app/etc/ssl"}],
                        "resources": {
                            "requests": {"memory": "20Mi", "cpu": "0.01"}, "limits": {"memory": "200Mi", "cpu": "0.1"},
                        },
                        "ports": [
                            {"containerPort": 8443, "name": "watcher-port"},
                            {"containerPort": 2112, "name": "metrics-port"},
                        ],
                    }],
                    "volumes": [{"name": "ssl", "secret": {"secretName": "skr-webhook-tls", "items": items}}],
                    "priorityClassName": "skr-webhook-priority",
                    "securityContext": {"runAsUser": 10001, "runAsGroup": 30001, "runAsNonRoot": true},
                },
            },
        },
    });
    let priority = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1_000_000_000, "globalDefault": false,
        "description": "The agent of Lifecycle Manager.",
        "metadata": {
            "name": "skr-webhook-priority", "labels": {"operator.kyma-project.io/managed-by": "kyma"},
        },
    });
    let kube_dns = json!({
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    });
    let dns = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata("kyma-project.io--watcher-to-dns"),
        "spec": {
            "podSelector": {"matchLabels": {"app": "skr-webhook"}}, "policyTypes": ["Egress"],
            "egress": [{
                "to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, kube_dns],
                "ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}],
            }],
        },
    });
    vec![priority, deployment, dns]
}

async fn api(client: &Client, object: &Value) -> kube::Api<kube::api::DynamicObject> {
    harness::api_of(client, object).await.expect("a kind that is served")
}

/// Replaces Tidegate's agent by Lifecycle Manager's, with the webhook configuration that calls it.
async fn leave_agent(skr: &Client) {
    let hooks = webhooks(skr).await;
    let bundle = hooks[0]["clientConfig"]["caBundle"].clone();
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "skr-webhook", "labels": {"operator.kyma-project.io/managed-by": "kyma"}},
        "webhooks": [{
            "name": "kcp-system.kyma.operator.kyma-project.io", "admissionReviewVersions": ["v1"],
            "clientConfig": {
                "caBundle": bundle,
                "service": {"name": "skr-webhook", "namespace": "kyma-system", "path": "/validate/kyma"},
            },
            "objectSelector": {"matchLabels": {"operator.kyma-project.io/watched-by": "kyma"}},
            "rules": [{
                "apiGroups": ["operator.kyma-project.io"], "apiVersions": ["*"], "resources": ["kymas"],
                "operations": ["CREATE", "UPDATE", "DELETE"],
            }],
            "sideEffects": "NoneOnDryRun", "timeoutSeconds": 15, "failurePolicy": "Ignore",
        }],
    });
    for object in agent("4711").iter().chain([&configuration]) {
        let (api, name) = (api(skr, object).await, object["metadata"]["name"].as_str().expect("a name"));
        api.delete(name, &DeleteParams::default()).await.expect("a delete");
        eventually("it is gone", SOON, async || match api.get_opt(name).await.expect("an answer") {
            None => Ok(()),
            Some(_) => Err(name.to_owned()),
        })
        .await;
        api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await.expect("an apply");
    }
    eventually("the agent of Lifecycle Manager runs", SOON, async || {
        let found = read(skr, "Deployment", "kyma-system", "skr-webhook").await.unwrap_or_default();
        if found["status"]["readyReplicas"] == 1 { Ok(()) } else { Err(found["status"].to_string()) }
    })
    .await;
}

/// Lets the daemon install everything.
async fn installed(stage: &Stage) {
    harness::apply(&stage.kcp, &gateway(443)).await;
    stage.start();
    for name in stage::MANY.iter().take(stage.skrs.len()) {
        stage.kyma_in(name, "Ready").await;
    }
    stage.rests().await;
}

/// A landscape of Lifecycle Manager with its agent in each runtime, and a repository that declares it. No process holds
/// the Lease.
///
/// A daemon has installed it, and has given it back.
async fn landscape(skrs: usize, arguments: &[&str]) -> Stage {
    let source =
        "apiVersion: tidegate.dev/v1alpha1\nkind: GitSource\nmetadata: {name: landscape, namespace: kcp-system}\n";
    let watcher = world::watcher("kyma", "kyma", "spec").to_string();
    let more = [(".tidegate/source.yaml", source.to_owned()), ("watchers/kyma.yaml", watcher)];
    let arguments = [&AGENT[..], arguments].concat();
    left_by_lifecycle_manager(world::stage(skrs, Extent::Node, &more, &arguments).await).await
}

/// The same of a stage whose daemon does not run yet.
async fn left_by_lifecycle_manager(stage: Stage) -> Stage {
    installed(&stage).await;
    let kind = [("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kcp-system")];
    let templates = super::objects(&stage.kcp, &kind).await;
    let mut source = read(&stage.kcp, "GitSource", "kcp-system", "landscape").await.expect("it is there");
    retire(&stage).await;
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    // Only its modules are from git, which Lifecycle Manager does not know.
    for template in &templates {
        let path = json!({PATH: template["metadata"]["annotations"][PATH]});
        world::merge(&stage.kcp, template, json!({"metadata": {"annotations": path}})).await;
    }
    for skr in &stage.skrs {
        leave_agent(skr).await;
    }
    source["metadata"] = json!({"name": "landscape", "namespace": "kcp-system"});
    source.as_object_mut().expect("an object").remove("status");
    let sources = api(&stage.kcp, &source).await;
    let source = serde_json::from_value(source).expect("an object");
    sources.create(&PostParams::default(), &source).await.expect("a new object");
    stage
}

/// The content of a runtime's objects, without what a write of `managedFields` changes, and without statuses.
async fn content(skr: &Client) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let samples = [
        ("v1", "Namespace", ""),
        ("v1", "ConfigMap", "kyma-system"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", ""),
        ("operator.kyma-project.io/v1beta2", "Kyma", "kyma-system"),
        ("operator.kyma-project.io/v1beta2", "ModuleTemplate", "kyma-system"),
        ("operator.kyma-project.io/v1beta2", "ModuleReleaseMeta", "kyma-system"),
    ];
    for (version, kind, namespace) in samples {
        let sample = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "any", "namespace": namespace}});
        for object in api(skr, &sample).await.list(&ListParams::default()).await.expect("a list") {
            let name = object.metadata.name.clone().expect("a name");
            all.insert(format!("{kind} {name}"), serde_json::to_value(object).expect("JSON"));
        }
    }
    for (kind, namespace, name) in OBJECTS {
        all.insert(format!("{kind} {name}"), read(skr, kind, namespace, name).await.expect("it is there"));
    }
    for object in all.values_mut() {
        object.as_object_mut().expect("an object").remove("status");
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    all
}

/// The daemon's writes to runtimes: verb, resource and name. A self subject review is not a write.
fn writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_write = |line: &String| {
        line.starts_with("skr-")
            && ![" get ", " list ", " watch ", " selfsubjectreviews."].iter().any(|other| line.contains(other))
    };
    stage.requests_since(marks).into_iter().filter(is_write).collect()
}

/// Writes that occur more than once, except to statuses.
fn repeated(writes: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    for write in writes.iter().filter(|write| !write.contains("/status ")) {
        *counts.entry(write).or_default() += 1;
    }
    counts.into_iter().filter(|(_, count)| 1 < *count).map(|(write, count)| format!("{count} times {write}")).collect()
}

fn image(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["spec"]["containers"][0]["image"]
}

async fn is_held(stage: &Stage, name: &str) -> bool {
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", name).await.expect("it is there");
    kyma["metadata"]["annotations"][ANNOTATION] == "true"
}

/// Takes a landscape over, and lets the daemon pass over it: only field managers change.
async fn taken(stage: &Stage, runtimes: &str) {
    let mut before = Vec::new();
    for skr in &stage.skrs {
        before.push(content(skr).await);
    }
    let (text, code) = adopt(stage, &["plan"]).await;
    let to_do = format!("to do   {runtimes} ");
    assert!(code == 0 && text.contains(&to_do) && text.contains("until `tidegate adopt take --finish`"), "{text}");
    let states = States::follow(stage.skrs.iter().chain([&stage.kcp])).await;
    // Both the command and the daemon reach runtimes with their access Secrets.
    let marks = stage.marks();
    let (text, code) = adopt(stage, &["take", "--yes"]).await;
    assert!(code == 0 && text.contains(&format!("{runtimes} held; start the daemon")), "{text}");
    assert_eq!(writes(stage, &marks), Vec::<String>::new());

    stage.start();
    for name in stage::MANY.iter().take(stage.skrs.len()) {
        stage.kyma_in(name, "Ready").await;
        world::until_watch(stage, name, "True Installed: ").await;
    }
    stage.rests().await;
    for (skr, before) in stage.skrs.iter().zip(&before) {
        let after = content(skr).await;
        for (name, object) in before {
            assert_eq!(after.get(name), Some(object), "{name}");
        }
        assert!(after.keys().eq(before.keys()), "{:?}", after.keys());
    }
    // In the control plane: as it was, annotated, and the status of Tidegate. In the runtime: as it was, and its
    // status.
    states.were_ready(4 * stage.skrs.len());
    let written = writes(stage, &marks);
    assert!(written.iter().any(|write| write.contains(" deployments.apps skr-webhook")), "{written:?}");
    assert_eq!(repeated(&written), Vec::<String>::new());
    let (text, _) = run(stage, &["status"]).await;
    assert!(text.contains(&format!("{runtimes} ")) && text.contains("as Lifecycle Manager left "), "{text}");
    let (text, _) = adopt(stage, &["plan"]).await;
    assert!(text.contains(&format!("note    {runtimes} wait")), "{text}");
}

/// A new process writes nothing, neither to runtimes nor to the control plane.
async fn starts_again_quietly(stage: &Stage) {
    assert_eq!(after_a_new_start(stage).await, Vec::<String>::new());
}

/// What a new process writes to runtimes, and to the control plane without its Lease and Events.
async fn after_a_new_start(stage: &Stage) -> Vec<String> {
    let marks = restarted(stage).await;
    [writes(stage, &marks), writes_to_kcp(stage, &marks)].concat()
}

/// The daemon's writes to the control plane, without its Lease and Events.
fn writes_to_kcp(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let is_other = |line: &String| [" events", " selfsubject"].iter().any(|other| line.contains(other));
    let of_kcp = |line: &String| line.starts_with("kcp ") && !is_other(line);
    stage.requests_since(marks).into_iter().filter(of_kcp).collect()
}

/// A new process writes nothing but that no probe of Tidegate's agent comes, which does not run here.
async fn starts_again_as_ours(stage: &Stage) {
    let mut written = after_a_new_start(stage).await;
    written.retain(|write| !write.contains(" patch kymas.operator.kyma-project.io/status "));
    assert_eq!(written, Vec::<String>::new());
}

/// Waits until the agent of a runtime is Tidegate's.
async fn replaced(stage: &Stage, skr: &Client) {
    stage
        .until("the agent is Tidegate's", skr, "Deployment", "kyma-system", "skr-webhook", |deployment| {
            *image(deployment) == "registry.example.org/agent:1.0.0"
        })
        .await;
    let names = async || -> Vec<String> {
        webhooks(skr).await.iter().filter_map(|hook| hook["name"].as_str().map(str::to_owned)).collect()
    };
    eventually("drift is reported", SOON, async || match names().await {
        names if names.iter().any(|name| name == "drift.tidegate.dev") => Ok(()),
        names => Err(format!("{names:?}")),
    })
    .await;
    stage.rests().await;
    let policy = read(skr, "NetworkPolicy", "kyma-system", "kyma-project.io--watcher-to-dns").await.expect("a policy");
    assert!(policy["spec"].to_string().contains("::/0"), "{policy:#}");
}

/// What `diff --live` shows as held, with its runtimes, and the effect of each difference in runtimes.
async fn held_in_diff(stage: &Stage) -> (Value, Value) {
    let path = stage.repository.path().to_string_lossy().into_owned();
    let output = stage.command(&["diff", &path, "--live", "--to", "HEAD", "-o", "json"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    let list = |name: &str| report[name].as_array().expect("a list").clone();
    let held = list("held").iter().map(|held| json!([held["why"], held["runtimes"]])).collect();
    let in_runtimes = list("differences").into_iter().filter(|one| one["target"] == "runtime");
    (held, in_runtimes.map(|one| json!([one["object"], one["effect"]])).collect())
}

async fn what_lifecycle_manager_left_stays_until_the_take_over_is_finished() {
    let stage = landscape(1, &["--resync=10s"]).await;
    let skr = &stage.skrs[0];
    taken(&stage, "1 runtime").await;
    starts_again_quietly(&stage).await;

    // What others undo is repaired, and is still as Lifecycle Manager had it.
    let hooks = read(skr, "ValidatingWebhookConfiguration", "", "skr-webhook").await.expect("a configuration");
    world::merge(skr, &hooks, json!({"webhooks": []})).await;
    eventually("the webhook is back", SOON * 2, async || match webhooks(skr).await.as_slice() {
        [hook] if hook["timeoutSeconds"] == 15 => Ok(()),
        hooks => Err(format!("{hooks:?}")),
    })
    .await;
    stage.rests().await;

    let (text, code) = adopt(&stage, &["take", "--finish"]).await;
    assert!(
        code == 0
            && text.contains("1 runtime would be finished: kcp-system/one; to do it: tidegate adopt take --finish"),
        "{text}"
    );
    let (text, code) = adopt(&stage, &["take", "--finish", "--limit", "0"]).await;
    let refused = "error: invalid value '0' for '--limit <NUMBER>': use a number of runtimes, at least 1, or omit the \
                   option to finish all\n";
    assert!(code == 2 && text.starts_with(refused), "{code} {text}");
    for (option, value) in [("PATH", "nowhere"), ("--rev", "main"), ("--source-file", "nowhere.yaml")] {
        let words = ["adopt", "take", "--finish", "--yes", option, value];
        let words: Vec<&str> = words.into_iter().filter(|word| *word != "PATH").collect();
        let refused = format!(
            "error: --finish reads no repository and finishes the runtimes of a namespace: omit {option}, and use -n and \
             --limit\n"
        );
        assert_eq!(run(&stage, &words).await, (refused, 2));
    }
    let (text, code) = adopt(&stage, &["take", "--limit", "1"]).await;
    let refused = "error: --limit counts the runtimes of --finish: add --finish, or omit --limit, because `adopt take` \
                   alone writes to no runtime\n";
    assert_eq!((text.as_str(), code), (refused, 2));
    assert_eq!(held_in_diff(&stage).await, (json!([["adopted", ["kcp-system/one"]]]), json!([])));
    assert!(is_held(&stage, "one").await, "nothing was written");
    let marks = stage.marks();
    let (text, code) = adopt(&stage, &["take", "--finish", "--yes"]).await;
    assert!(code == 0 && text.contains("1 runtime finished: kcp-system/one; the daemon"), "{text}");
    replaced(&stage, skr).await;
    let written = writes(&stage, &marks);
    assert_eq!(repeated(&written), Vec::<String>::new());
    let is_of_agent = |write: &&String| write.contains("skr-webhook") || write.contains("watcher-to-dns");
    let others: Vec<&String> =
        written.iter().filter(|write| !is_of_agent(write) && !write.contains("/status ")).collect();
    assert_eq!(others, Vec::<&String>::new());
    let (text, _) = adopt(&stage, &["take", "--finish", "--yes"]).await;
    assert!(text.starts_with("no runtime is as Lifecycle Manager left it\n"), "{text}");
    assert_eq!(held_in_diff(&stage).await, (json!([]), json!([])));
    let (text, _) = run(&stage, &["status"]).await;
    assert!(!text.contains("as Lifecycle Manager left"), "{text}");
    starts_again_as_ours(&stage).await;
}

/// Adds what Lifecycle Manager may have left in a runtime and nothing names: an object of a Manifest that is gone, one
/// that its module no longer contains, and the copy of a definition that is gone. And an object of a user.
async fn leave_over(skr: &Client) {
    let installed = read(skr, "ConfigMap", "kyma-system", "cache-a").await.expect("it is there");
    let owner = &installed["metadata"]["annotations"]["deprecated-operator.kyma-project.io/owned-by"];
    assert!(owner.is_string(), "{installed:#}");
    let map = |name: &str, owner: &Value| {
        let annotations = json!({"deprecated-operator.kyma-project.io/owned-by": owner});
        let labels = &installed["metadata"]["labels"];
        let metadata = json!({"name": name, "namespace": "kyma-system", "labels": labels, "annotations": annotations});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    };
    let template = read(skr, "ModuleTemplate", "kyma-system", "cache-1.0.0").await.expect("it is there");
    let labels = &template["metadata"]["labels"];
    let copy = json!({
        "apiVersion": template["apiVersion"], "kind": "ModuleTemplate", "spec": template["spec"],
        "metadata": {"name": "cache-0.9.0", "namespace": "kyma-system", "labels": labels},
    });
    let users = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-a-user", "namespace": "kyma-system"},
    });
    let applier = "declarative.kyma-project.io/applier";
    for (object, manager) in [
        (map("gone-a", &json!("kcp-system/one-gone-1")), applier),
        (map("cache-old", owner), applier),
        (copy, "catalog-sync"),
        (users, "kubectl"),
    ] {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let by = PatchParams::apply(manager).force();
        api(skr, &object).await.patch(name, &by, &Patch::Apply(&object)).await.expect("an apply");
    }
}

async fn what_nothing_in_a_runtime_names_is_reported_and_stays() {
    let stage = landscape(1, &["--resync=10s"]).await;
    let skr = &stage.skrs[0];
    let named = "ready   1 runtime read: Manifests and the catalog name every object of Lifecycle Manager\n";
    let (text, code) = adopt(&stage, &["plan"]).await;
    assert!(code == 0 && text.contains(named), "{text}");

    leave_over(skr).await;
    let marks = stage.marks();
    let (text, code) = adopt(&stage, &["plan"]).await;
    let left = [
        "note    runtime kcp-system/one has 2 objects that no Manifest names, and they stay: ConfigMap \
         kyma-system/cache-old, ConfigMap kyma-system/gone-a\n        delete those that no user needs",
        "note    runtime kcp-system/one has 1 copy of a definition that its catalog lacks: \
         ModuleTemplate.operator.kyma-project.io kyma-system/cache-0.9.0\n",
    ];
    assert!(code == 0 && left.iter().all(|line| text.contains(line)) && !text.contains(named), "{text}");
    let (text, _) = adopt(&stage, &["plan", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let topics = report["findings"].as_array().expect("a list").iter().map(|finding| finding["topic"].clone());
    assert_eq!(topics.filter(|topic| topic == "leftovers").count(), 2, "{text}");
    assert_eq!(writes(&stage, &marks), Vec::<String>::new());

    let marks = stage.marks();
    let (text, code) = adopt(&stage, &["plan", "--no-runtimes"]).await;
    assert!(code == 0 && !text.contains("that no Manifest names"), "{text}");
    let asked: Vec<String> = stage.requests_since(&marks).into_iter().filter(|line| line.starts_with("skr-")).collect();
    assert_eq!(asked, Vec::<String>::new());

    // The daemon leaves all of it, and says so.
    taken(&stage, "1 runtime").await;
    let held = json!([["adopted", ["kcp-system/one"]]]);
    let version = "operator.kyma-project.io/v1beta2";
    let copy = json!({
        "apiVersion": version, "kind": "ModuleTemplate", "namespace": "kyma-system", "name": "cache-0.9.0",
    });
    let waits = json!([[copy, "held"]]);
    assert_eq!(held_in_diff(&stage).await, (held, waits));
    let (text, code) = adopt(&stage, &["take", "--finish", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    replaced(&stage, skr).await;
    stage.until_gone(skr, "ModuleTemplate", "kyma-system", "cache-0.9.0").await;
    for name in ["gone-a", "cache-old", "of-a-user"] {
        assert!(read(skr, "ConfigMap", "kyma-system", name).await.is_some(), "{name}");
    }
}

/// What a new version of the module writes to runtime and control plane, but for statuses: those of an agent that is
/// probed say more.
async fn bumped(stage: &Stage) -> Vec<String> {
    let marks = stage.marks();
    let mut files = stage::module("cache", "1.1.0", "two");
    files.push(("modules/cache/1.1.0/objects/crd.yaml".to_owned(), stage::THING_CRD.to_owned()));
    for (path, text) in &files {
        stage.repository.write(path, text).expect("a file");
    }
    stage.commit("modules/cache/release.yaml", &stage::release("cache", &[("regular", "1.1.0")]));
    let has_version = |kyma: &Value| {
        let module = &kyma["status"]["modules"][0];
        (&module["version"], &module["state"]) == (&json!("1.1.0"), &json!("Ready"))
    };
    stage.until("it has the new version", &stage.kcp, "Kyma", "kcp-system", "one", has_version).await;
    stage.rests().await;
    let map = read(&stage.skrs[0], "ConfigMap", "kyma-system", "cache-a").await.expect("it is there");
    assert_eq!(map["data"]["text"], "two");
    let is_other = |line: &String| {
        ["/status ", " events", " leases", " get ", " list ", " watch ", " selfsubject"]
            .iter()
            .any(|other| line.contains(other))
    };
    let mut written: Vec<String> = stage.requests_since(&marks).into_iter().filter(|line| !is_other(line)).collect();
    written.sort();
    written
}

async fn a_new_version_after_a_take_over_writes_what_it_writes_on_a_landscape_of_our_own() {
    let stage = landscape(1, &[]).await;
    taken(&stage, "1 runtime").await;
    let after_take_over = bumped(&stage).await;
    let watcher = world::watcher("kyma", "kyma", "spec").to_string();
    let ours = world::stage(1, Extent::Node, &[("watchers/kyma.yaml", watcher)], &AGENT).await;
    installed(&ours).await;
    let of_our_own = bumped(&ours).await;
    assert_eq!(after_take_over, of_our_own);
    assert!(of_our_own.iter().any(|write| write == "skr-1 patch configmaps cache-a"), "{of_our_own:?}");
    let manifests = of_our_own.iter().filter(|write| write.starts_with("kcp patch manifests."));
    assert_eq!(manifests.count(), 1, "{of_our_own:?}");
}

async fn a_renewed_certificate_replaces_the_agent_of_lifecycle_manager() {
    let stage = landscape(1, &[]).await;
    let skr = &stage.skrs[0];
    taken(&stage, "1 runtime").await;
    let before = read(skr, "Secret", "kyma-system", "skr-webhook-tls").await.expect("a Secret")["data"].clone();
    let secret = read(&stage.kcp, "Secret", "istio-system", "one-webhook-tls").await.expect("its certificate");
    world::delete(&stage.kcp, &secret).await;
    replaced(&stage, skr).await;
    let after = read(skr, "Secret", "kyma-system", "skr-webhook-tls").await.expect("a Secret")["data"].clone();
    assert_ne!(before["tls.crt"], after["tls.crt"]);
    assert!(!is_held(&stage, "one").await);
    let kyma = read(&stage.kcp, "Kyma", "kcp-system", "one").await.expect("it is there");
    eventually("an Event says why", SOON, async || {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "any", "namespace": "kcp-system"}});
        let events = api(&stage.kcp, &event).await.list(&ListParams::default()).await.expect("a list");
        let notes: Vec<String> = events
            .iter()
            .filter(|event| event.data["reason"] == "AdoptionEnded" && event.data["regarding"]["uid"] == kyma["metadata"]["uid"])
            .map(|event| event.data["note"].to_string())
            .collect();
        match notes.as_slice() {
            [note] if note.contains("its agent must restart for a renewed certificate") => Ok(()),
            notes => Err(format!("{notes:?}")),
        }
    })
    .await;
    starts_again_as_ours(&stage).await;
}

async fn runtimes_are_finished_one_by_one() {
    let stage = landscape(2, &[]).await;
    taken(&stage, "2 runtimes").await;
    let (text, code) = adopt(&stage, &["take", "--finish", "--limit", "1", "--yes"]).await;
    assert!(code == 0 && text.contains("1 runtime finished: kcp-system/one; 1 is left; the daemon"), "{text}");
    replaced(&stage, &stage.skrs[0]).await;
    let second = read(&stage.skrs[1], "Deployment", "kyma-system", "skr-webhook").await.expect("an agent");
    assert_eq!(*image(&second), IMAGE);
    assert!(!is_held(&stage, "one").await && is_held(&stage, "two").await);
    let (text, code) = adopt(&stage, &["take", "--finish", "--yes"]).await;
    assert!(code == 0 && text.contains("1 runtime finished: kcp-system/two; the daemon"), "{text}");
    replaced(&stage, &stage.skrs[1]).await;

    // The way back leaves nothing that only Tidegate understands.
    retire(&stage).await;
    let (text, code) = run(&stage, &["adopt", "release", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    for (kind, namespace, name) in OBJECTS {
        let object = read(&stage.skrs[0], kind, namespace, name).await.expect("it is there");
        assert_eq!(super::left_of_tidegate(&object), Vec::<String>::new(), "{kind} {name}");
    }
    // What the daemon applied for the Watcher, and the Secret that it wrote for the gateway.
    for (kind, namespace, name) in
        [("VirtualService", "kcp-system", "kyma"), ("Secret", "istio-system", "klm-istio-gateway")]
    {
        let object = read(&stage.kcp, kind, namespace, name).await.expect("it is there");
        assert_eq!(super::left_of_tidegate(&object), Vec::<String>::new(), "{kind} {name}");
        assert!(!object["metadata"]["managedFields"].to_string().contains("tidegate"), "{object:#}");
    }
}

async fn the_agent_of_lifecycle_manager_stays_on_real_servers() {
    let stage = landscape(1, &[]).await;
    taken(&stage, "1 runtime").await;
    let (text, code) = adopt(&stage, &["take", "--finish", "--yes"]).await;
    assert_eq!(code, 0, "{text}");
    replaced(&stage, &stage.skrs[0]).await;
}
