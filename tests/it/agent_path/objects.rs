//! The agent's objects in runtimes: Lifecycle Manager's tests of them (its 6.4, I22, I23, E39), and rows W75 to W88.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::world::{
    AGENT, OBJECTS, condition, delete, gateway, merge, present, stage, until_watch, watch_of, watcher, webhooks,
};
use crate::{
    harness::{self, SOON, eventually},
    stage::{QUIET, Servers, Stage, read, scenarios, servers},
};

scenarios! {
    an_image_that_cannot_be_pulled_is_an_error_of_the_kyma;
    on real servers:
    e39_an_agent_is_installed_piece_by_piece_and_stays_as_it_should_be,
    i22_webhooks_follow_the_watchers_and_all_of_it_goes_with_the_kyma,
}

fn env(deployment: &Value, name: &str) -> Value {
    let all = deployment.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array).unwrap().clone();
    all.iter().find(|entry| entry["name"] == name).map(|entry| entry["value"].clone()).unwrap_or_default()
}

fn sample(kind: &str, namespace: &str, name: &str) -> Value {
    let api_version = match kind {
        "Deployment" => "apps/v1",
        "NetworkPolicy" => "networking.k8s.io/v1",
        "ValidatingWebhookConfiguration" => "admissionregistration.k8s.io/v1",
        "Kyma" | "Watcher" => super::world::KYMA,
        _ => "v1",
    };
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

async fn there(stage: &Stage, what: &str, kind: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let namespace = if kind == "ValidatingWebhookConfiguration" { "" } else { "kyma-system" };
    stage.until(what, &stage.skrs[0], kind, namespace, name, holds).await
}

/// The daemon's writes since `marks`, in KCP and in runtimes. A self subject review is not a write.
fn writes(stage: &Stage, marks: &[u64]) -> Vec<String> {
    let mut requests = stage.requests_since(marks);
    requests.retain(|request| !["get", "list", "watch"].iter().any(|verb| request.contains(&format!(" {verb} "))));
    requests.retain(|request| !request.contains(" selfsubjectreviews."));
    requests
}

/// W75, W76, W81, W86, W87, E39, I23. The agent is installed once all inputs exist, recreated after a deletion, and
/// updated with its inputs. A pass over an unchanged world sends no write, not even after a restart.
async fn e39_an_agent_is_installed_piece_by_piece_and_stays_as_it_should_be() {
    let arguments = [&AGENT[..], &["--resync=10s", "--skr-image-pull-secret=registry"]].concat();
    let stage = stage(1, Extent::Node, &[], &arguments).await;
    let skr = &stage.skrs[0];
    stage.start();

    // Nothing is installed before all inputs exist.
    let kyma = until_watch(&stage, "one", "False NoListenerAddress: no agent is installed: Gateway").await;
    assert_eq!(condition(&kyma, "SKRWebhook"), "False");
    assert_eq!(kyma["status"]["state"], "Processing");
    assert_eq!(present(skr).await, Vec::<String>::new());
    harness::apply(&stage.kcp, &gateway(443)).await;
    let kyma = until_watch(&stage, "one", "False NoImagePullSecret: no agent is installed: there is no Secret").await;
    assert_eq!(condition(&kyma, "SKRImagePullSecretSync"), "False");
    assert_eq!(present(skr).await, Vec::<String>::new());
    harness::apply(&stage.kcp, &pull_secret("e30=")).await;
    let kyma = stage.kyma_in("one", "Ready").await;
    assert_eq!(condition(&kyma, "SKRWebhook"), "True");
    assert_eq!(condition(&kyma, "SKRImagePullSecretSync"), "True");
    assert!(watch_of(&kyma).starts_with("Unknown Awaited: "), "{}", watch_of(&kyma));
    assert_eq!(present(skr).await.len(), OBJECTS.len());

    let secret = there(&stage, "the Secret is there", "Secret", "skr-webhook-tls", |_| true).await;
    let pem = |key: &str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap();
        String::from_utf8(bytes).unwrap()
    };
    assert!(pem("tls.crt").contains("BEGIN CERTIFICATE") && pem("ca.crt").contains("BEGIN CERTIFICATE"));
    assert!(pem("tls.key").contains("PRIVATE KEY"));
    let hooks = webhooks(skr).await;
    let names: Vec<&str> = hooks.iter().filter_map(|hook| hook["name"].as_str()).collect();
    assert_eq!(names, ["drift.tidegate.dev", "scale.tidegate.dev"]);
    assert!(hooks.iter().all(|hook| hook["clientConfig"]["caBundle"] == secret["data"]["ca.crt"]));
    let deployment = there(&stage, "the agent is there", "Deployment", "skr-webhook", |_| true).await;
    assert_eq!(env(&deployment, "KCP_ADDR"), "listener.kcp.example.org:443");

    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    let copy = there(&stage, "its credentials are there", "Secret", "registry", |_| true).await;
    assert_eq!(copy["type"], "kubernetes.io/dockerconfigjson");
    assert_eq!(copy["data"], json!({".dockerconfigjson": "e30="}));
    assert_eq!(copy["metadata"]["labels"], json!({"operator.kyma-project.io/managed-by": "kyma", "team": "registry"}));

    // Nothing changes.
    stage.rests().await;
    let marks = stage.marks();
    tokio::time::sleep(QUIET).await;
    assert_eq!(writes(&stage, &marks), Vec::<String>::new());

    // Deleted and edited objects are restored.
    for (kind, name) in [
        ("Deployment", "skr-webhook"),
        ("Secret", "skr-webhook-tls"),
        ("Secret", "registry"),
        ("NetworkPolicy", "kyma-project.io--watcher-to-dns"),
    ] {
        let uid = there(&stage, "it is there", kind, name, |_| true).await["metadata"]["uid"].clone();
        delete(skr, &sample(kind, "kyma-system", name)).await;
        there(&stage, &format!("{kind} {name} is made again"), kind, name, |object| object["metadata"]["uid"] != uid)
            .await;
    }
    let configuration = sample("ValidatingWebhookConfiguration", "", "skr-webhook");
    merge(skr, &configuration, json!({"webhooks": []})).await;
    there(&stage, "webhooks are back", "ValidatingWebhookConfiguration", "skr-webhook", |object| {
        object["webhooks"].as_array().is_some_and(|hooks| hooks.len() == 2)
    })
    .await;
    harness::eventually("an Event of the Kyma says so", harness::SOON, async || {
        let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"namespace": "kcp-system"}});
        let events = harness::api_of(&stage.kcp, &event).await.unwrap().list(&Default::default()).await.unwrap();
        let is_told = |event: &Value| event["regarding"]["name"] == "one" && event["reason"] == "ReportingChanged";
        if events.iter().any(|event| is_told(&event.data)) { Ok(()) } else { Err("no Event".to_owned()) }
    })
    .await;
    let edited = sample("Secret", "kyma-system", "skr-webhook-tls");
    merge(skr, &edited, json!({"data": {"tls.key": "bWluZQ=="}})).await;
    there(&stage, "the key is back", "Secret", "skr-webhook-tls", |object| {
        object["data"]["tls.key"] == secret["data"]["tls.key"]
    })
    .await;

    // The inputs change: pull secret, Gateway, certificate.
    harness::apply(&stage.kcp, &pull_secret("e30K")).await;
    there(&stage, "other credentials arrive", "Secret", "registry", |object| {
        object["data"][".dockerconfigjson"] == "e30K"
    })
    .await;
    harness::apply(&stage.kcp, &gateway(9443)).await;
    there(&stage, "the agent sends elsewhere", "Deployment", "skr-webhook", |object| {
        env(object, "KCP_ADDR") == "listener.kcp.example.org:9443"
    })
    .await;
    there(&stage, "and may", "NetworkPolicy", "kyma-project.io--watcher-to-apiserver", |object| {
        object["spec"]["egress"][0]["ports"][0]["port"] == 9443
    })
    .await;
    delete(&stage.kcp, &sample("Secret", "istio-system", "one-webhook-tls")).await;
    there(&stage, "another certificate arrives", "Secret", "skr-webhook-tls", |object| {
        object["data"]["tls.crt"] != secret["data"]["tls.crt"]
    })
    .await;
    stage.kyma_in("one", "Ready").await;

    // The daemon restarts after its status has reached the runtime.
    eventually("the runtime shows the status", SOON, async || {
        let kcp = read(&stage.kcp, "Kyma", "kcp-system", "one").await.unwrap_or_default();
        let shown = read(skr, "Kyma", "kyma-system", "default").await.unwrap_or_default();
        // Digests are internal to the daemon.
        let of_users = |kyma: &Value| -> Vec<Value> {
            let all = kyma["status"]["conditions"].as_array().cloned().unwrap_or_default();
            all.into_iter()
                .filter(|condition| !condition["type"].as_str().is_some_and(|type_| type_.ends_with("Applied")))
                .collect()
        };
        let is_whole = shown["status"]["conditions"].as_array().is_some_and(|all| all.len() == of_users(&shown).len());
        let (kcp, shown) = (json!(of_users(&kcp)), json!(of_users(&shown)));
        if is_whole && kcp == shown { Ok(()) } else { Err(format!("{kcp}\n{shown}")) }
    })
    .await;
    stage.kill().await;
    let marks = stage.marks();
    stage.start();
    harness::holds("nothing is written", QUIET + QUIET, async || {
        let writes = writes(&stage, &marks);
        if writes.is_empty() { Ok(()) } else { Err(writes.join("\n")) }
    })
    .await;
}

/// The pull secret of the agent's image, in the control plane.
fn pull_secret(data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "registry", "namespace": "kcp-system", "labels": {"team": "registry"}},
        "data": {".dockerconfigjson": data},
    })
}

/// I22, W82, W85: every runtime has one webhook for each Watcher, at once. W88: all of it, with the certificate, is
/// deleted with the Kyma.
async fn i22_webhooks_follow_the_watchers_and_all_of_it_goes_with_the_kyma() {
    let arguments = [&AGENT[..], &["--skr-image-pull-secret=registry"]].concat();
    let stage = stage(2, Extent::Node, &[], &arguments).await;
    harness::apply(&stage.kcp, &pull_secret("e30=")).await;
    harness::apply(&stage.kcp, &gateway(443)).await;
    harness::apply(&stage.kcp, &watcher("first", "lifecycle-manager", "spec")).await;
    stage.start();
    for name in ["one", "two"] {
        stage.kyma_in(name, "Ready").await;
    }
    let until_hooks = async |what: &str, holds: &dyn Fn(&[Value]) -> bool| {
        for skr in &stage.skrs {
            let what = format!("{what}: webhooks follow");
            stage
                .until(&what, skr, "ValidatingWebhookConfiguration", "", "skr-webhook", |object| {
                    holds(object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default())
                })
                .await;
        }
    };
    let names = |hooks: &[Value]| -> Vec<String> {
        hooks.iter().filter_map(|hook| hook["name"].as_str()).map(str::to_owned).collect()
    };
    let (first, second) = ("kcp-system.first.operator.kyma-project.io", "kcp-system.second.operator.kyma-project.io");
    let ours = ["drift.tidegate.dev", "scale.tidegate.dev"];
    until_hooks("a Watcher", &|hooks| names(hooks) == [first, ours[0], ours[1]]).await;
    harness::apply(&stage.kcp, &watcher("second", "inspector", "status")).await;
    until_hooks("a second", &|hooks| names(hooks) == [first, second, ours[0], ours[1]]).await;
    let hook = &webhooks(&stage.skrs[1]).await[1];
    assert_eq!(hook["rules"][0]["resources"], json!(["kymas/status"]));
    assert_eq!(hook["clientConfig"]["service"]["path"], "/validate/inspector");
    assert_eq!((&hook["timeoutSeconds"], &hook["failurePolicy"]), (&json!(5), &json!("Ignore")));
    let labels = json!({"spec": {"labelsToWatch": {"operator.kyma-project.io/watched-by": "another"}}});
    merge(&stage.kcp, &sample("Watcher", "kcp-system", "second"), labels).await;
    until_hooks("other labels", &|hooks| hooks[1]["objectSelector"].to_string().contains("another")).await;
    delete(&stage.kcp, &sample("Watcher", "kcp-system", "second")).await;
    until_hooks("one less", &|hooks| names(hooks) == [first, ours[0], ours[1]]).await;

    // The Kyma is deleted.
    let mark = stage.landscape.skrs[0].mark();
    delete(
        &stage.kcp,
        &json!({
            "apiVersion": "tidegate.dev/v1alpha1", "kind": "GitSource",
            "metadata": {"name": "landscape", "namespace": "kcp-system"},
        }),
    )
    .await;
    delete(&stage.kcp, &sample("Kyma", "kcp-system", "one")).await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "one").await;
    assert_eq!(present(&stage.skrs[0]).await, Vec::<String>::new());
    assert!(read(&stage.skrs[0], "Secret", "kyma-system", "registry").await.is_none(), "the credentials are gone");
    assert!(read(&stage.kcp, "Secret", "istio-system", "one-webhook-tls").await.is_none(), "the certificate is gone");
    assert!(read(&stage.kcp, "Secret", "istio-system", "two-webhook-tls").await.is_some(), "that of another is not");
    assert_eq!(present(&stage.skrs[1]).await.len(), OBJECTS.len());
    // Webhooks are deleted before their agent.
    let records = stage.landscape.skrs[0].records_since(mark);
    let deleted = |resource: &str, name: &str| {
        records
            .iter()
            .position(|record| record.verb == "delete" && record.resource.starts_with(resource) && record.name == name)
    };
    let configuration = deleted("validatingwebhookconfigurations", "skr-webhook").expect("it was deleted");
    assert!(configuration < deleted("deployments", "skr-webhook").expect("it was deleted"));
    assert!(configuration < deleted("secrets", "skr-webhook-tls").expect("it was deleted"));

    // A runtime is gone for good, and so is its access Secret. Its certificate is deleted with its Kyma.
    delete(&stage.kcp, &sample("Kyma", "kcp-system", "two")).await;
    delete(&stage.kcp, &sample("Secret", "kcp-system", "access-two")).await;
    stage.until_gone(&stage.kcp, "Kyma", "kcp-system", "two").await;
    stage.until_gone(&stage.kcp, "Secret", "istio-system", "two-webhook-tls").await;
}

/// W87: if a pod of the agent cannot pull its image, the Kyma is in state Error and names pod and reason until the pod
/// runs. No kubelet runs here, so the test writes the pod's status. Where no controller runs either, the test creates
/// the pod.
async fn an_image_that_cannot_be_pulled_is_an_error_of_the_kyma() {
    let stage = stage(1, Extent::Controllers, &[], &AGENT).await;
    let skr = &stage.skrs[0];
    harness::apply(&stage.kcp, &gateway(443)).await;
    stage.start();
    let kyma = until_watch(&stage, "one", "False AgentNotReady: the agent is installed and does not run yet").await;
    assert_eq!(condition(&kyma, "SKRWebhook"), "False");
    assert_eq!(kyma["status"]["state"], "Processing");

    if servers() == Servers::Simulated {
        harness::apply(skr, &pod_of(&there(&stage, "it is installed", "Deployment", "skr-webhook", |_| true).await))
            .await;
    }
    let pods: kube::Api<k8s_openapi::api::core::v1::Pod> = harness::namespaced(skr, "kyma-system");
    let selector = kube::api::ListParams::default().labels("app=skr-webhook");
    let pod = eventually("there is a pod", SOON, async || {
        let found = pods.list(&selector).await.map_err(|error| error.to_string())?;
        found.items.into_iter().find_map(|pod| pod.metadata.name).ok_or_else(|| "none".to_owned())
    })
    .await;
    let says = async |status: Value| {
        let patch = kube::api::Patch::Merge(json!({"status": status}));
        pods.patch_status(&pod, &kube::api::PatchParams::default(), &patch).await.expect("a patch");
    };
    let container = |state: Value, ready: bool| {
        json!([{
            "name": "server", "image": "agent", "imageID": "", "ready": ready, "restartCount": 0, "state": state,
        }])
    };
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "credentials: s3cret"}});
    says(json!({"phase": "Pending", "containerStatuses": container(waiting, false)})).await;
    let kyma = stage.kyma_in("one", "Error").await;
    let expected = format!("the agent does not run: pod kyma-system/{pod} is in ImagePullBackOff");
    assert_eq!(kyma["status"]["lastOperation"]["operation"], expected);
    assert_eq!(watch_of(&kyma), format!("False AgentNotReady: {expected}"));
    assert_eq!(condition(&kyma, "SKRWebhook"), "False");

    let ready = json!([{"type": "Ready", "status": "True"}]);
    let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
    says(json!({"phase": "Running", "conditions": ready, "containerStatuses": container(running, true)})).await;
    if servers() == Servers::Simulated {
        becomes_ready(skr).await;
    }
    let kyma = stage.kyma_in("one", "Ready").await;
    assert_eq!(condition(&kyma, "SKRWebhook"), "True");
}

/// The pod that a controller creates for a Deployment.
fn pod_of(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut pod =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!("skr-webhook-5f7d");
    pod["metadata"]["namespace"] = json!("kyma-system");
    pod
}

/// Sets the status that a controller sets once the pod is ready.
async fn becomes_ready(skr: &kube::Client) {
    let deployments: kube::Api<k8s_openapi::api::apps::v1::Deployment> = harness::namespaced(skr, "kyma-system");
    let generation = deployments.get("skr-webhook").await.expect("it is there").metadata.generation;
    let status = json!({
        "observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": ""}],
    });
    let patch = kube::api::Patch::Merge(json!({"status": status}));
    deployments.patch_status("skr-webhook", &kube::api::PatchParams::default(), &patch).await.expect("a patch");
}
