//! Resources whose pods are in another cluster: a second simulated server.

use std::time::Duration;

use serde_json::{Value, json};

use super::{KcpLandscape, NAMESPACE, condition, object, resources, secret};
use crate::{
    harness::{self, SOON, eventually},
    stage::scenarios,
};

scenarios! {
    r66_pods_in_another_cluster_come_follow_their_definition_and_go,
    r66_a_cluster_that_cannot_be_used_delays_only_what_belongs_there,
    r66_a_resource_that_goes_leaves_nothing_in_another_cluster,
}

const CONDITION: &str = "tidegate.dev/Cluster";

impl KcpLandscape {
    /// The Secret that leads to the second cluster.
    fn cluster_secret(&self) -> Value {
        let kubeconfig = self.stage.landscape.skrs[0].kubeconfig().text();
        let mut found = secret("cluster-eu", &[("config", &kubeconfig)]);
        found["metadata"]["labels"] = json!({"tidegate.dev/cluster-name": "eu"});
        found
    }

    fn there(&self) -> &kube::Client {
        &self.stage.skrs[0]
    }

    async fn read_there(&self, kind: &str, name: &str) -> Option<Value> {
        let api = harness::api_of(self.there(), &object(super::api_version(kind), kind, name)).await.unwrap();
        api.get_opt(name).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    async fn until_there(&self, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{kind} {name} there: {what}"), SOON, async || match self.read_there(kind, name).await {
            Some(found) if holds(&found) => Ok(found),
            found => Err(format!("{found:?}\n{}", self.log())),
        })
        .await
    }

    async fn until_gone_there(&self, kind: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone there"), SOON, async || match self.read_there(kind, name).await {
            Some(found) => Err(format!("{found}\n{}", self.log())),
            None => Ok(()),
        })
        .await;
    }

    async fn pods_are_ready_there(&self, name: &str) {
        let found = self.until_there("Deployment", name, "it exists", |_| true).await;
        let replicas = found["spec"]["replicas"].clone();
        let status = json!({"observedGeneration": found["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        let api = harness::api_of(self.there(), &found).await.unwrap();
        let patch = kube::api::Patch::Merge(json!({"status": status}));
        api.patch_status(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete_there(&self, kind: &str, name: &str) {
        let api = harness::api_of(self.there(), &object(super::api_version(kind), kind, name)).await.unwrap();
        api.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
    }

    /// The names of all objects of a kind with the label in the second cluster.
    async fn all_there(&self, kind: &str) -> Vec<String> {
        let api = harness::api_of(self.there(), &object(super::api_version(kind), kind, "any")).await.unwrap();
        let found = api.list(&kube::api::ListParams::default().labels("tidegate.dev/setup")).await.unwrap();
        found.items.into_iter().filter_map(|found| found.metadata.name).collect()
    }

    /// The example is built, and there is a second cluster.
    async fn with_a_cluster() -> KcpLandscape {
        let landscape = KcpLandscape::beside(1, &["--kcp-landscapes"]).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        harness::apply(landscape.there(), &namespace).await;
        harness::apply(&landscape.client, &landscape.cluster_secret()).await;
        for resource in resources() {
            harness::apply(&landscape.client, &resource).await;
        }
        landscape.stage.start();
        landscape.runs().await;
        landscape.stage.rests().await;
        landscape
    }

    async fn place(&self, cluster: Value) {
        let patch = json!({"metadata": {"annotations": {"tidegate.dev/cluster": cluster}}});
        self.merge("FrontProxy", "public", None, patch).await;
    }
}

async fn r66_pods_in_another_cluster_come_follow_their_definition_and_go() {
    let landscape = KcpLandscape::with_a_cluster().await;
    landscape.place(json!("eu")).await;
    let is_placed = |found: &Value| condition(found, CONDITION) == "True Placed: its pods are in cluster eu";
    landscape.until("FrontProxy", "public", "it is placed", is_placed).await;
    landscape.until_gone("Deployment", "public-front-proxy").await;
    landscape.until_gone("Service", "public-front-proxy").await;
    let found = landscape
        .until("FrontProxy", "public", "its pods start", |found| found["status"]["phase"] == "Provisioning")
        .await;
    assert!(condition(&found, "Available").starts_with("False ReplicasUnavailable"), "{}", found["status"]);
    landscape.pods_are_ready_there("public-front-proxy").await;
    landscape
        .until("FrontProxy", "public", "its status comes back", |found| found["status"]["phase"] == "Running")
        .await;
    landscape.stage.rests().await;

    // Exactly the mounted keys, and no key of a CA.
    let deployment = landscape.read_there("Deployment", "public-front-proxy").await.unwrap();
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let mut mounted: Vec<String> = volumes
        .iter()
        .filter(|volume| volume["secret"]["optional"] != true)
        .filter_map(|volume| volume["secret"]["secretName"].as_str().map(str::to_owned))
        .collect();
    mounted.sort();
    mounted.dedup();
    assert_eq!(landscape.all_there("Secret").await, mounted);
    for name in &mounted {
        let copy = landscape.read_there("Secret", name).await.unwrap();
        let own = landscape.read("Secret", name).await.unwrap();
        for (key, value) in copy["data"].as_object().unwrap() {
            assert_eq!(own["data"][key], *value, "{name}");
        }
        assert!(!name.ends_with("-ca") || copy["data"]["tls.key"].is_null(), "{name}");
    }
    assert!(landscape.all_there("ConfigMap").await.contains(&"public-config".to_owned()));

    // What others change there is repaired. A new certificate is copied, and restarts its pods.
    landscape.delete_there("Service", "public-front-proxy").await;
    landscape.until_there("Service", "public-front-proxy", "it is made again", |_| true).await;
    landscape.delete_there("Secret", "public-server").await;
    landscape.until_there("Secret", "public-server", "it is copied again", |_| true).await;
    let digest = |found: &Value| found["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/mounts"].clone();
    let old = digest(&deployment);
    landscape.delete("Secret", "public-server").await;
    let found =
        landscape.until_there("Deployment", "public-front-proxy", "it restarts", |found| digest(found) != old).await;
    assert!(!digest(&found).is_null());
    let own = landscape.until("Secret", "public-server", "it is issued", |_| true).await["data"].clone();
    landscape
        .until_there("Secret", "public-server", "it is copied", |found| found["data"]["tls.crt"] == own["tls.crt"])
        .await;

    // A restart writes nothing, here or there.
    landscape.pods_are_ready_there("public-front-proxy").await;
    landscape.stage.rests().await;
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(landscape.stage.requests_since(&marks), [""; 0]);

    // And back.
    landscape.place(Value::Null).await;
    landscape.pods_are_ready("public-front-proxy").await;
    landscape.until_gone_there("Deployment", "public-front-proxy").await;
    eventually("nothing is left there", SOON, async || {
        let left = [landscape.all_there("Secret").await, landscape.all_there("ConfigMap").await].concat();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let is_here =
        |found: &Value| condition(found, CONDITION) == "none none: none" && found["status"]["phase"] == "Running";
    landscape.until("FrontProxy", "public", "it runs here", is_here).await;
}

async fn r66_a_cluster_that_cannot_be_used_delays_only_what_belongs_there() {
    let landscape = KcpLandscape::with_a_cluster().await;
    let says = |sentence: &'static str| move |found: &Value| condition(found, CONDITION).contains(sentence);
    // A program in a kubeconfig runs nowhere. What was there before stays.
    let mut foreign = landscape.cluster_secret();
    foreign["metadata"]["name"] = "cluster-us".into();
    foreign["metadata"]["labels"]["tidegate.dev/cluster-name"] = "us".into();
    let text = landscape.stage.landscape.skrs[0].kubeconfig().text();
    let mut kubeconfig: Value = serde_yaml::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}});
    let with_program = secret("any", &[("config", &kubeconfig.to_string())]);
    foreign["data"] = with_program["data"].clone();
    harness::apply(&landscape.client, &foreign).await;
    landscape.place(json!("us")).await;
    landscape.until("FrontProxy", "public", "it is refused", says("cannot be used: ")).await;
    assert!(landscape.read("Deployment", "public-front-proxy").await.is_some());
    landscape.place(json!("none")).await;
    landscape.until("FrontProxy", "public", "it is missing", says("`tidegate.dev/cluster-name: none`")).await;
    assert!(landscape.read("Deployment", "public-front-proxy").await.is_some());

    // The cluster does not answer: the rest goes on.
    landscape.place(json!("eu")).await;
    landscape.pods_are_ready_there("public-front-proxy").await;
    landscape.until_gone("Deployment", "public-front-proxy").await;
    landscape.stage.rests().await;
    landscape.stage.landscape.skrs[0].stop().await;
    landscape.merge("FrontProxy", "public", None, json!({"spec": {"logging": {"level": 5}}})).await;
    landscape.until("FrontProxy", "public", "it is said", says("eu")).await;
    landscape.merge("Shard", "eu", None, json!({"spec": {"logging": {"level": 5}}})).await;
    let has_level =
        |found: &Value| found["spec"]["template"]["spec"]["containers"][0]["args"].to_string().contains("-v=5");
    landscape.until("Deployment", "eu-shard-kcp", "it changes", has_level).await;
    landscape.stage.landscape.skrs[0].start_again().await;
    landscape.until_there("Deployment", "public-front-proxy", "it changes", has_level).await;
    let is_placed = |found: &Value| condition(found, CONDITION).starts_with("True Placed");
    landscape.until("FrontProxy", "public", "it is placed", is_placed).await;
}

async fn r66_a_resource_that_goes_leaves_nothing_in_another_cluster() {
    let landscape = KcpLandscape::with_a_cluster().await;
    landscape.place(json!("eu")).await;
    landscape.pods_are_ready_there("public-front-proxy").await;
    landscape.until_gone("Deployment", "public-front-proxy").await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.delete("FrontProxy", "public").await;
    landscape.until_gone("FrontProxy", "public").await;
    for kind in ["Deployment", "Service", "Secret", "ConfigMap"] {
        assert_eq!(landscape.all_there(kind).await, [""; 0], "{kind}");
    }
    assert!(landscape.read("Secret", "main-ca").await.is_some());

    // Where the cluster is gone, its resource goes after five minutes.
    let proxy = resources().into_iter().find(|resource| resource["kind"] == "FrontProxy").unwrap();
    harness::apply(&landscape.client, &proxy).await;
    landscape.place(json!("eu")).await;
    landscape.pods_are_ready_there("public-front-proxy").await;
    landscape.stage.landscape.skrs[0].stop().await;
    landscape.delete("FrontProxy", "public").await;
    let waits = |found: &Value| {
        condition(found, "tidegate.dev/Deletion")
            .starts_with("False Waiting: its objects go first, which is tried for five minutes: ")
    };
    landscape.until("FrontProxy", "public", "it waits", waits).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    landscape.until_gone("FrontProxy", "public").await;
    let log = std::fs::read_to_string(landscape.stage.log()).unwrap();
    assert!(log.contains("orphans stay in another cluster"), "{}", landscape.log());
    landscape.stage.landscape.skrs[0].start_again().await;
}
