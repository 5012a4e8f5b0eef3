//! W77: objects that Lifecycle Manager installed in a runtime are taken over in place. Only their claims by Lifecycle
//! Manager are removed.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidegate_testbed::Extent;

use super::world::{AGENT, gateway, real_stage};
use crate::{harness, stage::read};

/// Applies an object as Lifecycle Manager would.
async fn apply_as_upstream(client: &kube::Client, object: &Value) {
    let parameters = PatchParams::apply("lifecycle-manager").force();
    let name = object["metadata"]["name"].as_str().unwrap();
    let api = harness::api_of(client, object).await.unwrap();
    api.patch(name, &parameters, &Patch::Apply(object)).await.expect("an apply");
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "namespace": "kyma-system", "labels": {"operator.kyma-project.io/managed-by": "kyma", "app": "skr-webhook"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_of_lifecycle_manager_is_taken_over_in_place() {
    // The takeover of fields from upstream's manager needs a real server.
    let stage = real_stage(1, Extent::Node, &[], &AGENT).await;
    let skr = &stage.skrs[0];
    harness::apply(skr, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kyma-system"}})).await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata("skr-webhook"),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "skr-webhook"}},
            "template": {
                "metadata": {"labels": {
                    "app": "skr-webhook", "operator.kyma-project.io/pod-restart-trigger": "4711",
                    "sidecar.istio.io/inject": "false",
                }},
                "spec": {"containers": [{
                    "name": "server", "image": "registry.example.org/runtime-watcher:2.1.12",
                    "env": [
                        {"name": "TLS_CALLBACK", "value": "true"},
                        {"name": "KCP_ADDR", "value": "old.example.org:443"},
                    ],
                    "resources": {"limits": {"memory": "200Mi", "cpu": "0.1"}},
                }]},
            },
        },
    });
    apply_as_upstream(skr, &deployment).await;
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": metadata("kyma-project.io--watcher-to-dns"),
        "spec": {
            "podSelector": {"matchLabels": {"app": "skr-webhook"}}, "policyTypes": ["Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 53, "protocol": "UDP"}]}],
        },
    });
    apply_as_upstream(skr, &policy).await;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "skr-webhook", "labels": {"operator.kyma-project.io/managed-by": "kyma"}},
        "webhooks": [{
            "name": "kcp-system.former.operator.kyma-project.io",
            "clientConfig": {"service": {"name": "skr-webhook", "namespace": "kyma-system", "path": "/validate/former"}},
            "rules": [{"apiGroups": ["example.org"], "apiVersions": ["*"], "resources": ["x"], "operations": ["CREATE"]}],
            "sideEffects": "NoneOnDryRun", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        }],
    });
    apply_as_upstream(skr, &configuration).await;
    let uid = async |kind: &str, name: &str| {
        let namespace = if kind == "ValidatingWebhookConfiguration" { "" } else { "kyma-system" };
        read(skr, kind, namespace, name).await.unwrap_or_default()["metadata"]["uid"].clone()
    };
    let before = uid("Deployment", "skr-webhook").await;

    harness::apply(&stage.kcp, &gateway(443)).await;
    stage.start();
    stage.kyma_in("one", "Ready").await;
    let taken = read(skr, "Deployment", "kyma-system", "skr-webhook").await.unwrap();
    assert_eq!(taken["metadata"]["uid"], before, "it is the same object");
    let text = taken["spec"].to_string();
    assert!(!text.contains("TLS_CALLBACK") && !text.contains("pod-restart-trigger"), "{text}");
    assert!(
        text.contains("listener.kcp.example.org:443") && text.contains("registry.example.org/agent:1.0.0"),
        "{text}"
    );
    let policy = read(skr, "NetworkPolicy", "kyma-system", "kyma-project.io--watcher-to-dns").await.unwrap();
    assert!(policy["spec"].to_string().contains("::/0"), "{}", policy["spec"]);
    let hooks = read(skr, "ValidatingWebhookConfiguration", "", "skr-webhook").await.unwrap()["webhooks"].clone();
    assert!(!hooks.to_string().contains("former"), "{hooks}");
    for object in [&taken, &policy] {
        let managers: Vec<&str> = object["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry["operation"] == "Apply")
            .filter_map(|entry| entry["manager"].as_str())
            .collect();
        assert_eq!(managers, ["tidegate"]);
    }
}
