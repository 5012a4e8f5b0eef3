//! What controllers do after a write: on the real side when they get to it, on the simulated side at once. Both must
//! come to the same end.

use std::time::Duration;

use kube_sim::{Options, Readiness, Server};
use serde_json::{Value, json};

use super::both::{Ask, Both};
use crate::harness::{self, SOON, eventually, holds};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

fn one(name: &str) -> String {
    format!("{MAPS}/{name}")
}

/// A ConfigMap that belongs to another one.
fn owned(name: &str, owner: &str, uid: &str, blocks: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocks,
        }]},
    })
}

fn map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_owned_goes_with_it() {
    let both = Both::with_controllers().await;
    both.check(&[
        Ask::post(MAPS, &map(json!({"name": "owner"}))),
        Ask::post(MAPS, &owned("owned", "owner", "{uid:0}", false)),
        Ask::post(MAPS, &owned("orphan", "nobody", "nobody", false)),
        Ask::delete(&one("owner")),
    ])
    .await;
    both.settle(&[Ask::get(&one("owned")), Ask::get(&one("orphan"))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_waits_for_what_blocks_it() {
    let both = Both::with_controllers().await;
    both.check(&[
        Ask::post(MAPS, &map(json!({"name": "owner"}))),
        Ask::post(MAPS, &{
            let mut held = owned("held", "owner", "{uid:0}", true);
            held["metadata"]["finalizers"] = json!(["x.io/hold"]);
            held
        }),
        Ask::delete_with(&one("owner"), &json!({"propagationPolicy": "Foreground"})),
    ])
    .await;
    let deleting = |answer: &Value| !answer["metadata"]["deletionTimestamp"].is_null();
    both.settle_to(&Ask::get(&one("held")), deleting).await;
    both.settle_to(&Ask::get(&one("owner")), deleting).await;
    for client in [&both.real, &both.simulated] {
        let release = Ask::merge(&one("held"), &json!({"metadata": {"finalizers": null}}));
        assert_eq!(release.send(client, &both.namespace, &[]).await.code, 200);
    }
    both.settle(&[Ask::get(&one("held")), Ask::get(&one("owner"))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_let_go() {
    let both = Both::with_controllers().await;
    both.check(&[
        Ask::post(MAPS, &map(json!({"name": "owner"}))),
        Ask::post(MAPS, &owned("orphan", "owner", "{uid:0}", true)),
        Ask::delete_with(&one("owner"), &json!({"propagationPolicy": "Orphan"})),
    ])
    .await;
    both.settle(&[Ask::get(&one("owner"))]).await;
    both.settle_to(&Ask::get(&one("orphan")), |answer| answer["metadata"]["ownerReferences"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_empties_itself_before_it_goes() {
    let both = Both::with_controllers().await;
    let namespace = "/api/v1/namespaces/{ns}";
    both.check(&[
        Ask::post(MAPS, &map(json!({"name": "plain"}))),
        Ask::post(MAPS, &map(json!({"name": "held", "finalizers": ["x.io/hold"]}))),
        Ask::delete(namespace).loosely(),
        Ask::post(MAPS, &map(json!({"name": "late"}))),
    ])
    .await;
    both.settle(&[Ask::get(&one("plain"))]).await;
    both.settle_to(&Ask::get(&one("held")), |answer| !answer["metadata"]["deletionTimestamp"].is_null()).await;
    both.settle_to(&Ask::get(namespace), |answer| answer["status"]["phase"] == "Terminating").await;
    for client in [&both.real, &both.simulated] {
        let release = Ask::merge(&one("held"), &json!({"metadata": {"finalizers": null}}));
        assert_eq!(release.send(client, &both.namespace, &[]).await.code, 200);
    }
    both.settle(&[Ask::get(namespace)]).await;
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_become_ready_when_they_are_told_to() {
    let delay = Duration::from_millis(300);
    let server = Server::new(&Options { readiness: Readiness::After(delay), ..Options::default() });
    let client = server.client();
    let began = std::time::Instant::now();
    harness::apply(&client, &deployment()).await;
    let path = "/apis/apps/v1/namespaces/default/deployments/web";
    let status = async || Ask::get(path).send(&client, "default", &[]).await.body["status"].clone();
    let first = status().await;
    assert_eq!((&first["replicas"], &first["readyReplicas"]), (&json!(2), &Value::Null));
    let ready = eventually("it is ready", SOON, async || {
        let status = status().await;
        if status["readyReplicas"] == 2 { Ok(status) } else { Err(status.to_string()) }
    })
    .await;
    assert!(delay <= began.elapsed());
    let available = &ready["conditions"][0];
    assert_eq!((&available["type"], &available["status"]), (&json!("Available"), &json!("True")));
    server.set_readiness(Some(("default", "web")), Readiness::Never);
    Ask::merge(path, &json!({"spec": {"replicas": 3}})).send(&client, "default", &[]).await;
    holds("it does not become ready", 2 * delay, async || {
        let status = status().await;
        let never = status["observedGeneration"] == 2 && status["readyReplicas"].is_null();
        if never { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
