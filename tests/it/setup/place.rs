//! Resources whose pods are in other clusters: further simulated servers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use x509_parser::prelude::FromDer as _;

use super::{KcpLandscape, NAMESPACE, condition, object, resources, secret};
use crate::{
    deploy,
    harness::{self, SOON, eventually},
    stage::scenarios,
};

scenarios! {
    r66_pods_in_another_cluster_come_follow_their_definition_and_go,
    r66_a_cluster_that_cannot_be_used_delays_only_what_belongs_there,
    r66_a_resource_that_goes_waits_for_its_cluster_unless_it_is_given_up,
    r66_a_resource_whose_status_is_lost_waits_for_all_clusters,
    r66_what_no_status_names_goes_from_each_cluster_that_answers,
    r66_a_right_that_is_taken_away_later_is_said_and_asked_for_again,
    r66_what_changes_while_it_is_deleted_goes_all_the_same,
    r66_a_resource_does_not_go_while_a_watch_hides_what_it_has,
    r66_a_resource_moves_between_clusters_and_its_copies_stay_for_others,
    r66_a_ca_is_replaced_while_a_resource_moves,
    r66_a_copy_that_is_mounted_and_then_pulled_with_gets_its_type,
    r66_two_control_planes_share_a_cluster_and_leave_each_other_alone,
    r66_secrets_that_lead_to_clusters_are_checked
    ; on real servers:
    r71_the_rules_for_another_cluster_are_all_that_the_daemon_needs_there,
}

const CONDITION: &str = "tidegate.dev/Cluster";
/// Index and name of the other clusters.
const EU: usize = 0;
const US: usize = 1;
const NAMES: [&str; 2] = ["eu", "us"];

impl KcpLandscape {
    /// The Secret that leads to another cluster.
    fn cluster_secret(&self, index: usize) -> Value {
        let kubeconfig = self.stage.landscape.skrs[index].kubeconfig().text();
        cluster_secret(NAMES[index], &kubeconfig)
    }

    fn there(&self, index: usize) -> &kube::Client {
        &self.stage.skrs[index]
    }

    async fn read_there(&self, index: usize, kind: &str, name: &str) -> Option<Value> {
        let api = harness::api_of(self.there(index), &object(super::api_version(kind), kind, name)).await.unwrap();
        api.get_opt(name).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    async fn until_there(
        &self,
        index: usize,
        kind: &str,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let what = format!("{kind} {name} in {}: {what}", NAMES[index]);
        eventually(&what, SOON, async || match self.read_there(index, kind, name).await {
            Some(found) if holds(&found) => Ok(found),
            found => Err(format!("{found:?}\n{}", self.log())),
        })
        .await
    }

    async fn until_nothing_is_there(&self, index: usize) {
        eventually(&format!("nothing is in {}", NAMES[index]), SOON, async || {
            let mut left = Vec::new();
            for kind in ["Deployment", "Service", "Secret", "ConfigMap"] {
                left.extend(self.all_there(index, kind).await);
            }
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}\n{}", self.log())) }
        })
        .await;
    }

    async fn pods_are_ready_there(&self, index: usize, name: &str) {
        let found = self.until_there(index, "Deployment", name, "it exists", |_| true).await;
        let replicas = found["spec"]["replicas"].clone();
        let status = json!({"observedGeneration": found["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        let api = harness::api_of(self.there(index), &found).await.unwrap();
        let patch = kube::api::Patch::Merge(json!({"status": status}));
        api.patch_status(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete_there(&self, index: usize, kind: &str, name: &str) {
        let api = harness::api_of(self.there(index), &object(super::api_version(kind), kind, name)).await.unwrap();
        api.delete(name, &kube::api::DeleteParams::default()).await.unwrap();
    }

    /// The names of all objects of a kind with the label in another cluster.
    async fn all_there(&self, index: usize, kind: &str) -> Vec<String> {
        let api = harness::api_of(self.there(index), &object(super::api_version(kind), kind, "any")).await.unwrap();
        let found = api.list(&kube::api::ListParams::default().labels("tidegate.dev/setup")).await.unwrap();
        found.items.into_iter().filter_map(|found| found.metadata.name).collect()
    }

    /// The example is built, and there are two other clusters.
    async fn with_clusters() -> KcpLandscape {
        let landscape = KcpLandscape::beside(2, &["--kcp-landscapes"]).await;
        for index in [EU, US] {
            harness::apply(landscape.there(index), &namespace()).await;
            harness::apply(&landscape.client, &landscape.cluster_secret(index)).await;
        }
        landscape.with_example().await
    }

    async fn annotate(&self, kind: &str, name: &str, annotation: &str, value: Value) {
        self.merge(kind, name, None, json!({"metadata": {"annotations": {annotation: value}}})).await;
    }

    async fn place(&self, kind: &str, name: &str, cluster: Value) {
        self.annotate(kind, name, "tidegate.dev/cluster", cluster).await;
    }

    /// Places the FrontProxy, whose pods then are ready there.
    async fn proxy_is_in(&self, index: usize) {
        self.place("FrontProxy", "public", json!(NAMES[index])).await;
        self.pods_are_ready_there(index, "public-front-proxy").await;
        self.until_gone("Deployment", "public-front-proxy").await;
        let is_placed = |found: &Value| condition(found, CONDITION).starts_with("True Placed: its pods are in cluster");
        self.until("FrontProxy", "public", "it is placed", is_placed).await;
        self.stage.rests().await;
    }

    /// The pods of the control plane are ready: those of all but the FrontProxy.
    async fn other_pods_are_ready(&self) {
        for name in super::DEPLOYMENTS.into_iter().filter(|name| *name != "public-front-proxy") {
            let found = self.read("Deployment", name).await.unwrap_or_default();
            if found["status"]["readyReplicas"] != found["spec"]["replicas"] {
                self.pods_are_ready(name).await;
            }
        }
    }

    fn lines(&self, text: &str) -> usize {
        let log = std::fs::read_to_string(self.stage.log()).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
}

fn cluster_secret(name: &str, kubeconfig: &str) -> Value {
    let mut found = secret(&format!("cluster-{name}"), &[("config", kubeconfig)]);
    found["metadata"]["labels"] = json!({"tidegate.dev/cluster-name": name});
    found
}

fn says(sentence: &'static str) -> impl Fn(&Value) -> bool {
    move |found: &Value| condition(found, CONDITION).contains(sentence)
}

fn has_level(found: &Value) -> bool {
    found["spec"]["template"]["spec"]["containers"][0]["args"].to_string().contains("-v=5")
}

/// Whether a value has the private key of a CA beside the certificate.
fn is_authority(certificate: &Value) -> bool {
    let text = STANDARD.decode(certificate.as_str().unwrap_or_default()).unwrap();
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(&text) else { return false };
    x509_parser::certificate::X509Certificate::from_der(&pem.contents).is_ok_and(|(_, found)| found.is_ca())
}

async fn r66_pods_in_another_cluster_come_follow_their_definition_and_go() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.place("FrontProxy", "public", json!("eu")).await;
    // What is here stays until the pods there are ready.
    landscape.until_there(EU, "Deployment", "public-front-proxy", "it exists", |_| true).await;
    let waits = says("its pods are in cluster eu; those that it had before go once these are ready");
    landscape.until("FrontProxy", "public", "it moves", waits).await;
    assert!(landscape.read("Deployment", "public-front-proxy").await.is_some());
    let found = landscape.read("FrontProxy", "public").await.unwrap();
    assert!(condition(&found, "tidegate.dev/Places").starts_with("True Recorded: eu ("), "{}", found["status"]);
    landscape.pods_are_ready_there(EU, "public-front-proxy").await;
    landscape.until_gone("Deployment", "public-front-proxy").await;
    landscape.until_gone("Service", "public-front-proxy").await;
    let runs = |found: &Value| {
        found["status"]["phase"] == "Running"
            && condition(found, CONDITION) == "True Placed: its pods are in cluster eu"
    };
    landscape.until("FrontProxy", "public", "its status comes back", runs).await;
    landscape.stage.rests().await;

    // Exactly the mounted keys, and no key of a CA.
    let deployment = landscape.read_there(EU, "Deployment", "public-front-proxy").await.unwrap();
    let uid = landscape.read("FrontProxy", "public").await.unwrap()["metadata"]["uid"].clone();
    assert_eq!(deployment["metadata"]["labels"]["tidegate.dev/owner"], uid);
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().unwrap().clone();
    let mut mounted: Vec<String> = volumes
        .iter()
        .filter(|volume| volume["secret"]["optional"] != true)
        .filter_map(|volume| volume["secret"]["secretName"].as_str().map(str::to_owned))
        .collect();
    mounted.sort();
    mounted.dedup();
    assert_eq!(landscape.all_there(EU, "Secret").await, mounted);
    for name in &mounted {
        let copy = landscape.read_there(EU, "Secret", name).await.unwrap();
        let own = landscape.read("Secret", name).await.unwrap();
        for (key, value) in copy["data"].as_object().unwrap() {
            assert_eq!(own["data"][key], *value, "{name}");
        }
        let is_of_ca = is_authority(&copy["data"]["tls.crt"]);
        assert!(!is_of_ca || copy["data"]["tls.key"].is_null(), "{name}");
    }
    assert!(landscape.all_there(EU, "ConfigMap").await.contains(&"public-config".to_owned()));

    // What others change there is repaired. A new certificate is copied, and restarts its pods.
    landscape.delete_there(EU, "Service", "public-front-proxy").await;
    landscape.until_there(EU, "Service", "public-front-proxy", "it is made again", |_| true).await;
    landscape.delete_there(EU, "Secret", "main-public-server").await;
    landscape.until_there(EU, "Secret", "main-public-server", "it is copied again", |_| true).await;
    let digest = |found: &Value| found["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/mounts"].clone();
    let old = digest(&deployment);
    landscape.delete("Secret", "main-public-server").await;
    let found = landscape
        .until_there(EU, "Deployment", "public-front-proxy", "it restarts", |found| digest(found) != old)
        .await;
    assert!(!digest(&found).is_null());
    let own = landscape.until("Secret", "main-public-server", "it is issued", |_| true).await["data"].clone();
    landscape
        .until_there(EU, "Secret", "main-public-server", "it is copied", |found| {
            found["data"]["tls.crt"] == own["tls.crt"]
        })
        .await;

    // A restart writes nothing, here or there.
    landscape.pods_are_ready_there(EU, "public-front-proxy").await;
    landscape.stage.rests().await;
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let requests = landscape.stage.requests_since(&marks);
    let writes: Vec<&String> = requests
        .iter()
        .filter(|one| !["get", "list", "watch"].iter().any(|verb| one.contains(&format!(" {verb} "))))
        .collect();
    assert_eq!(writes, [""; 0]);

    // Credentials of registries are copied while they exist.
    let image = json!({"spec": {"image": {"imagePullSecrets": [{"name": "registry"}]}}});
    landscape.merge("FrontProxy", "public", None, image).await;
    let mut registry = secret("registry", &[(".dockerconfigjson", "{}"), ("more", "hidden")]);
    registry["type"] = json!("kubernetes.io/dockerconfigjson");
    harness::apply(&landscape.client, &registry).await;
    let copy = landscape.until_there(EU, "Secret", "registry", "it is copied", |_| true).await;
    assert_eq!(copy["type"], registry["type"]);
    assert_eq!(copy["data"].as_object().unwrap().keys().collect::<Vec<_>>(), [".dockerconfigjson"]);
    landscape.delete("Secret", "registry").await;
    eventually("its copy goes", SOON, async || match landscape.read_there(EU, "Secret", "registry").await {
        None => Ok(()),
        Some(found) => Err(format!("{found}\n{}", landscape.log())),
    })
    .await;

    // And back.
    landscape.place("FrontProxy", "public", Value::Null).await;
    landscape.pods_are_ready("public-front-proxy").await;
    landscape.until_nothing_is_there(EU).await;
    let is_here = |found: &Value| {
        condition(found, CONDITION) == "none none: none"
            && condition(found, "tidegate.dev/Places") == "none none: none"
            && found["status"]["phase"] == "Running"
    };
    landscape.until("FrontProxy", "public", "it runs here", is_here).await;
}

async fn r66_a_cluster_that_cannot_be_used_delays_only_what_belongs_there() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.place("FrontProxy", "public", json!("none")).await;
    landscape.until("FrontProxy", "public", "it is missing", says("`tidegate.dev/cluster-name: none`")).await;
    assert!(landscape.read("Deployment", "public-front-proxy").await.is_some());
    landscape.proxy_is_in(EU).await;

    // The cluster does not answer: the rest goes on, also in another cluster.
    landscape.stage.landscape.skrs[EU].stop().await;
    landscape.merge("FrontProxy", "public", None, json!({"spec": {"logging": {"level": 5}}})).await;
    let is_out = says("cluster eu cannot be reached: ");
    landscape.until("FrontProxy", "public", "it is out", is_out).await;
    landscape.place("Shard", "eu", json!("us")).await;
    landscape.pods_are_ready_there(US, "eu-shard-kcp").await;
    landscape.until_gone("Deployment", "eu-shard-kcp").await;
    landscape.merge("Shard", "eu", None, json!({"spec": {"logging": {"level": 5}}})).await;
    landscape.until_there(US, "Deployment", "eu-shard-kcp", "it changes", has_level).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(landscape.lines("another cluster of kcp landscapes cannot be reached"), 1, "{}", landscape.log());
    let found = landscape.read("FrontProxy", "public").await.unwrap();
    assert_eq!(found["status"]["phase"], "Running", "its pods ran when they were last seen");

    // A restart in between: nothing is forgotten.
    landscape.stage.kill().await;
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = landscape.read("FrontProxy", "public").await.unwrap();
    assert_eq!(found["status"]["phase"], "Running", "{}", found["status"]);
    assert!(condition(&found, "tidegate.dev/Places").contains("eu ("), "{}", found["status"]);
    landscape.stage.landscape.skrs[EU].start_again().await;
    landscape.until_there(EU, "Deployment", "public-front-proxy", "it changes", has_level).await;
    let is_placed = |found: &Value| condition(found, CONDITION).starts_with("True Placed");
    landscape.until("FrontProxy", "public", "it is placed", is_placed).await;
    landscape.stage.rests().await;

    // It takes connections, and is silent.
    landscape.stage.landscape.skrs[EU].hang(true);
    landscape.merge("FrontProxy", "public", None, json!({"spec": {"logging": {"level": 6}}})).await;
    landscape.merge("RootShard", "main", None, json!({"spec": {"logging": {"level": 5}}})).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(has_level(&landscape.read("Deployment", "main-kcp").await.unwrap()), "{}", landscape.log());
    let is_silent = |found: &Value| condition(found, CONDITION).starts_with("False NotReached: cluster eu");
    landscape.until("FrontProxy", "public", "it is said", is_silent).await;
    landscape.stage.landscape.skrs[EU].hang(false);
    let has_level_6 = |found: &Value| found["spec"]["template"]["spec"].to_string().contains("-v=6");
    landscape.until_there(EU, "Deployment", "public-front-proxy", "it changes", has_level_6).await;
}

async fn r66_a_resource_that_goes_waits_for_its_cluster_unless_it_is_given_up() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.stage.landscape.skrs[EU].stop().await;
    landscape.delete("FrontProxy", "public").await;
    let waits = |found: &Value| {
        let said = condition(found, "tidegate.dev/Deletion");
        said.starts_with("False Waiting: objects stay in cluster eu (") && said.contains("tidegate.dev/forget-cluster")
    };
    landscape.until("FrontProxy", "public", "it waits", waits).await;
    // That is about the workspaces of a Shard: its pods may run.
    landscape.annotate("FrontProxy", "public", "tidegate.dev/force-removal", json!("true")).await;
    tokio::time::sleep(Duration::from_secs(400)).await;
    landscape.stage.kill().await;
    landscape.stage.start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let found = landscape.read("FrontProxy", "public").await.expect("its finalizer stays");
    assert!(waits(&found), "{}", found["status"]);
    landscape.stage.landscape.skrs[EU].start_again().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    landscape.until_gone("FrontProxy", "public").await;
    landscape.until_nothing_is_there(EU).await;
    assert_eq!(landscape.lines("orphans stay in another cluster"), 0, "{}", landscape.log());
    assert!(landscape.read("Secret", "main-ca").await.is_some());

    // A cluster that is gone for good is given up by the user.
    let proxy = resources().into_iter().find(|resource| resource["kind"] == "FrontProxy").unwrap();
    harness::apply(&landscape.client, &proxy).await;
    landscape.proxy_is_in(EU).await;
    landscape.delete("Secret", "cluster-eu").await;
    landscape.delete("FrontProxy", "public").await;
    landscape.until("FrontProxy", "public", "it waits", waits).await;
    landscape.annotate("FrontProxy", "public", "tidegate.dev/forget-cluster", json!("eu")).await;
    landscape.until_gone("FrontProxy", "public").await;
    assert!(1 <= landscape.lines("orphans stay in another cluster"), "{}", landscape.log());
    assert!(landscape.read_there(EU, "Deployment", "public-front-proxy").await.is_some());
}

async fn r66_a_right_that_is_taken_away_later_is_said_and_asked_for_again() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    let eu = &landscape.stage.landscape.skrs[EU];
    eu.deny(Some("deployments"));
    // Its watches end, and the next ones are refused.
    eu.stop().await;
    eu.start_again().await;
    let is_said = says("the objects in cluster eu cannot be watched: ");
    let found = landscape.until("FrontProxy", "public", "it is said", is_said).await;
    let said = condition(&found, CONDITION);
    assert!(said.starts_with("False NotReached: ") && said.contains("cannot list resource \"deployments\""), "{said}");
    assert!(said.contains("the rights of `deploy/kcp-cluster`"), "{said}");
    assert_eq!(found["status"]["phase"], "Running", "its pods ran when they were last seen");
    // It is tried again, and nothing else is needed.
    eu.deny(None);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let is_placed = |found: &Value| condition(found, CONDITION) == "True Placed: its pods are in cluster eu";
    landscape.until("FrontProxy", "public", "it is placed", is_placed).await;
    landscape.merge("FrontProxy", "public", None, json!({"spec": {"logging": {"level": 5}}})).await;
    landscape.until_there(EU, "Deployment", "public-front-proxy", "it changes", has_level).await;
}

/// The status of a restored backup, for example, is empty.
async fn r66_a_resource_whose_status_is_lost_waits_for_all_clusters() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.stage.kill().await;
    landscape.stage.landscape.skrs[EU].stop().await;
    let nothing = json!({"status": {"conditions": null, "phase": null}});
    landscape.merge("FrontProxy", "public", Some("status"), nothing).await;
    landscape.stage.start();
    let is_noted = |found: &Value| condition(found, "tidegate.dev/Places").contains("eu (unknown)");
    landscape.until("FrontProxy", "public", "any cluster may have something", is_noted).await;
    // It is in the status again, so it is not lost with the next process either.
    landscape.stage.kill().await;
    landscape.stage.start();
    landscape.delete("FrontProxy", "public").await;
    let waits = |found: &Value| condition(found, "tidegate.dev/Deletion").contains("cluster eu may have some: ");
    landscape.until("FrontProxy", "public", "it waits", waits).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(landscape.read("FrontProxy", "public").await.is_some(), "its finalizer stays");
    landscape.stage.landscape.skrs[EU].start_again().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    landscape.until_gone("FrontProxy", "public").await;
    landscape.until_nothing_is_there(EU).await;
    assert_eq!(landscape.lines("orphans stay in another cluster"), 0, "{}", landscape.log());
}

/// The status of an older backup, for example, is from before the resource was in another cluster.
async fn r66_what_no_status_names_goes_from_each_cluster_that_answers() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.stage.kill().await;
    let found = landscape.read("FrontProxy", "public").await.unwrap();
    let mut conditions = found["status"]["conditions"].as_array().cloned().unwrap();
    conditions.retain(|condition| condition["type"] == "tidegate.dev/Valid");
    assert_eq!(conditions.len(), 1, "{}", found["status"]);
    landscape.merge("FrontProxy", "public", Some("status"), json!({"status": {"conditions": conditions}})).await;
    landscape.delete("FrontProxy", "public").await;
    landscape.stage.start();
    landscape.until_gone("FrontProxy", "public").await;
    landscape.until_nothing_is_there(EU).await;
    assert_eq!(landscape.lines("orphans stay in another cluster"), 0, "{}", landscape.log());
}

/// A 409 is no reason to leave anything behind, whatever annotations say.
async fn r66_what_changes_while_it_is_deleted_goes_all_the_same() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.annotate("FrontProxy", "public", "tidegate.dev/force-removal", json!("true")).await;
    landscape.annotate("FrontProxy", "public", "tidegate.dev/forget-cluster", json!("eu")).await;
    landscape.stage.rests().await;
    let (client, changed) = (landscape.there(EU).clone(), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&changed);
    // Just before the daemon deletes it, another client changes it.
    landscape.stage.landscape.skrs[EU].before("/deployments/public-front-proxy", async move {
        let deployment = object("apps/v1", "Deployment", "public-front-proxy");
        let api = harness::api_of(&client, &deployment).await.unwrap();
        let patch = kube::api::Patch::Merge(json!({"metadata": {"annotations": {"example.org/note": "changed"}}}));
        api.patch("public-front-proxy", &kube::api::PatchParams::default(), &patch).await.unwrap();
        done.store(true, Ordering::Relaxed);
    });
    landscape.delete("FrontProxy", "public").await;
    landscape.until_gone("FrontProxy", "public").await;
    assert!(changed.load(Ordering::Relaxed), "it was changed before it was deleted");
    let records = landscape.stage.landscape.skrs[EU].records();
    let conflicts = records.iter().filter(|record| record.verb == "delete" && record.code == 409);
    assert!(1 <= conflicts.count(), "a delete met the change");
    landscape.until_nothing_is_there(EU).await;
    assert_eq!(landscape.lines("orphans stay in another cluster"), 0, "{}", landscape.log());
}

/// What a watch has not shown is found by a list before the finalizer goes.
async fn r66_a_resource_does_not_go_while_a_watch_hides_what_it_has() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.delete("Kubeconfig", "admin").await;
    landscape.until_gone("Kubeconfig", "admin").await;
    landscape.stage.rests().await;
    landscape.stage.landscape.skrs[EU].blind(true);
    let limit = "tidegate.dev/pod-disruption-budget";
    landscape.annotate("FrontProxy", "public", limit, json!("1")).await;
    landscape.until_there(EU, "PodDisruptionBudget", "public-front-proxy", "it is made", |_| true).await;
    landscape.delete("FrontProxy", "public").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(landscape.read("FrontProxy", "public").await.is_some(), "its finalizer stays");
    landscape.stage.landscape.skrs[EU].blind(false);
    landscape.until_gone("FrontProxy", "public").await;
    landscape.until_nothing_is_there(EU).await;
    assert_eq!(landscape.all_there(EU, "PodDisruptionBudget").await, [""; 0]);
    assert_eq!(landscape.lines("orphans stay in another cluster"), 0, "{}", landscape.log());
}

async fn r66_a_resource_moves_between_clusters_and_its_copies_stay_for_others() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.place("Shard", "eu", json!("eu")).await;
    landscape.pods_are_ready_there(EU, "eu-shard-kcp").await;
    landscape.until_gone("Deployment", "eu-shard-kcp").await;
    landscape.stage.rests().await;
    let shared: Vec<String> = landscape.all_there(EU, "Secret").await;
    assert!(shared.contains(&"main-ca".to_owned()), "{shared:?}");

    // The former cluster keeps everything until the new one has it, also while the daemon does not run.
    landscape.place("FrontProxy", "public", json!("us")).await;
    landscape.until_there(US, "Deployment", "public-front-proxy", "it exists", |_| true).await;
    landscape.stage.rests().await;
    assert!(landscape.read_there(EU, "Deployment", "public-front-proxy").await.is_some());
    let found = landscape.read("FrontProxy", "public").await.unwrap();
    let places = condition(&found, "tidegate.dev/Places");
    assert!(places.contains("eu (") && places.contains("us ("), "{places}");
    landscape.stage.kill().await;
    landscape.stage.landscape.skrs[EU].stop().await;
    landscape.pods_are_ready_there(US, "public-front-proxy").await;
    landscape.stage.start();
    let is_held = says("objects stay in cluster eu (");
    landscape.until("FrontProxy", "public", "the former cluster is not reached", is_held).await;
    landscape.stage.landscape.skrs[EU].start_again().await;
    eventually("the former cluster has only what the Shard needs", SOON, async || {
        let deployments = landscape.all_there(EU, "Deployment").await;
        let secrets = landscape.all_there(EU, "Secret").await;
        let is_left = secrets.iter().any(|name| name.contains("public-"));
        if deployments == ["eu-shard-kcp"] && !is_left && secrets.contains(&"main-ca".to_owned()) {
            Ok(())
        } else {
            Err(format!("{deployments:?} {secrets:?}\n{}", landscape.log()))
        }
    })
    .await;
    let is_moved = |found: &Value| {
        let places = condition(found, "tidegate.dev/Places");
        condition(found, CONDITION) == "True Placed: its pods are in cluster us" && !places.contains("eu (")
    };
    landscape.until("FrontProxy", "public", "it is moved", is_moved).await;

    // The last user takes the copies with it.
    landscape.place("Shard", "eu", Value::Null).await;
    landscape.pods_are_ready("eu-shard-kcp").await;
    landscape.until_nothing_is_there(EU).await;
}

/// Pods in a cluster that their resource leaves must trust the new CA as well before the former one is given up.
async fn r66_a_ca_is_replaced_while_a_resource_moves() {
    let landscape = KcpLandscape::with_clusters().await;
    landscape.proxy_is_in(EU).await;
    landscape.place("FrontProxy", "public", json!("us")).await;
    landscape.until_there(US, "Deployment", "public-front-proxy", "it exists", |_| true).await;
    let former = landscape.read("Secret", "main-client-ca").await.unwrap();
    landscape.delete("Secret", "main-client-ca").await;
    landscape.until("Secret", "main-client-ca", "cert-manager makes it again", |_| true).await;
    let trust = async || condition(&landscape.read("RootShard", "main").await.unwrap(), "tidegate.dev/Trust");
    // All other pods get the trust Secret.
    let lags = "so that they trust the former one as well; not yet: Deployment public-front-proxy";
    eventually("only the proxy is left", SOON, async || {
        landscape.other_pods_are_ready().await;
        let said = trust().await;
        if said.ends_with(lags) { Ok(()) } else { Err(format!("{said}\n{}", landscape.log())) }
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let said = trust().await;
    assert!(said.ends_with(lags), "{said}");
    assert!(landscape.read_there(EU, "Deployment", "public-front-proxy").await.is_some());
    // The new pods trust both as well.
    let present = landscape.read("Secret", "main-client-ca").await.unwrap();
    let trusted = landscape.read_there(US, "Secret", "public-merged-client-ca").await.unwrap();
    let certificates = |secret: &Value| {
        String::from_utf8(STANDARD.decode(secret["data"]["tls.crt"].as_str().unwrap()).unwrap()).unwrap()
    };
    for ca in [&former, &present] {
        assert!(certificates(&trusted).contains(certificates(ca).trim()), "{trusted}");
    }
    let moved = landscape.read_there(US, "Deployment", "public-front-proxy").await.unwrap();
    assert!(moved["spec"]["template"].to_string().contains("\"public-merged-client-ca\""), "{moved}");

    landscape.pods_are_ready_there(US, "public-front-proxy").await;
    landscape.until_nothing_is_there(EU).await;
    eventually("all pods trust both", SOON, async || {
        landscape.other_pods_are_ready().await;
        let said = trust().await;
        let is_everywhere = said.contains("all pods trust both until these Certificates are renewed: ");
        if is_everywhere { Ok(()) } else { Err(format!("{said}\n{}", landscape.log())) }
    })
    .await;
}

async fn r66_a_copy_that_is_mounted_and_then_pulled_with_gets_its_type() {
    const JSON: &str = "kubernetes.io/dockerconfigjson";
    let landscape = KcpLandscape::with_clusters().await;
    let mut registry = secret("registry", &[(".dockerconfigjson", "{}")]);
    registry["type"] = JSON.into();
    harness::apply(&landscape.client, &registry).await;
    let volumes = json!([{"name": "registry", "secret": {"secretName": "registry"}}]);
    landscape.merge("FrontProxy", "public", None, json!({"spec": {"extraVolumes": volumes}})).await;
    landscape.proxy_is_in(EU).await;
    let has_type = |type_: &'static str| move |found: &Value| found["type"] == type_;
    let before = landscape.until_there(EU, "Secret", "registry", "it is copied", has_type("Opaque")).await;
    let pulls = json!({"spec": {"image": {"imagePullSecrets": [{"name": "registry"}]}}});
    landscape.merge("FrontProxy", "public", None, pulls).await;
    let after = landscape.until_there(EU, "Secret", "registry", "the kubelet takes it", has_type(JSON)).await;
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"], "no apply changes a type");
    assert_eq!(before["data"], after["data"]);
    let pulls = |found: &Value| found["spec"]["template"]["spec"]["imagePullSecrets"][0]["name"] == "registry";
    landscape.until_there(EU, "Deployment", "public-front-proxy", "it follows", pulls).await;
    landscape.stage.rests().await;
    let records = landscape.stage.landscape.skrs[EU].records();
    let deletes = records.iter().filter(|record| record.verb == "delete" && record.name == "registry");
    assert_eq!(deletes.count(), 1, "it is replaced once");
}

async fn r66_two_control_planes_share_a_cluster_and_leave_each_other_alone() {
    let landscape = KcpLandscape::with_clusters().await;
    // What another control plane has there, and what a user has.
    let marked = |kind: &str, name: &str, data: Value| {
        let mut found = object(super::api_version(kind), kind, name);
        found["metadata"]["labels"] = json!({"tidegate.dev/setup": "frontproxy.public", "tidegate.dev/control-plane": "another",
            "tidegate.dev/owner": "another"});
        found["data"] = data;
        found
    };
    harness::apply(landscape.there(EU), &marked("ConfigMap", "of-another", json!({"a": "b"}))).await;
    harness::apply(landscape.there(EU), &marked("ConfigMap", "public-config", json!({"a": "b"}))).await;
    landscape.place("FrontProxy", "public", json!("eu")).await;
    let refused = |found: &Value| {
        condition(found, "tidegate.dev/Objects")
            .contains("public-config belongs to frontproxy.public of another control plane")
    };
    landscape.until("FrontProxy", "public", "it is refused", refused).await;
    let found = landscape.read_there(EU, "ConfigMap", "public-config").await.unwrap();
    assert_eq!(found["data"], json!({"a": "b"}));
    assert!(landscape.read_there(EU, "Deployment", "public-front-proxy").await.is_none());
    assert!(landscape.read("Deployment", "public-front-proxy").await.is_some(), "it runs where it was");
    landscape.place("FrontProxy", "public", Value::Null).await;
    eventually("only what is of others is left", SOON, async || {
        let left = [landscape.all_there(EU, "ConfigMap").await, landscape.all_there(EU, "Secret").await].concat();
        if left == ["of-another", "public-config"] { Ok(()) } else { Err(format!("{left:?}\n{}", landscape.log())) }
    })
    .await;

    // This control plane is the other cluster of another one: what that has here is of no resource here.
    let mut foreign = marked("ConfigMap", "placed-here", json!({"a": "b"}));
    foreign["metadata"]["labels"]["tidegate.dev/setup"] = json!("rootshard.main");
    harness::apply(&landscape.client, &foreign).await;
    landscape.merge("RootShard", "main", None, json!({"spec": {"logging": {"level": 5}}})).await;
    landscape.until("Deployment", "main-kcp", "it changes", has_level).await;
    landscape.stage.rests().await;
    assert!(landscape.read("ConfigMap", "placed-here").await.is_some());
}

async fn r66_secrets_that_lead_to_clusters_are_checked() {
    let landscape = KcpLandscape::with_clusters().await;
    let text = landscape.stage.landscape.skrs[EU].kubeconfig().text();
    let kubeconfig: Value = serde_yaml::from_str(&text).unwrap();
    let mut with_program = kubeconfig.clone();
    with_program["users"][0]["user"] =
        json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}});
    let mut insecure = kubeconfig.clone();
    insecure["clusters"][0]["cluster"] =
        json!({"server": kubeconfig["clusters"][0]["cluster"]["server"], "insecure-skip-tls-verify": true});
    let mut with_file = kubeconfig.clone();
    with_file["users"][0]["user"] = json!({"tokenFile": "/etc/passwd"});
    let kcp = landscape.stage.landscape.kcp.kubeconfig().text();
    for (text, sentence) in [
        (with_program.to_string(), "Secret cluster-de of cluster de cannot be used: `exec` is not accepted"),
        (
            insecure.to_string(),
            "Secret cluster-de of cluster de cannot be used: `insecure-skip-tls-verify` is not accepted",
        ),
        (with_file.to_string(), "Secret cluster-de of cluster de cannot be used: `tokenFile` is not accepted"),
        (kcp, "cluster de is the control plane itself"),
        (text.clone(), "de and eu are names of one cluster"),
    ] {
        harness::apply(&landscape.client, &cluster_secret("de", &text)).await;
        landscape.place("FrontProxy", "public", json!("de")).await;
        landscape.until("FrontProxy", "public", "it is refused", says(sentence)).await;
        assert!(landscape.read("Deployment", "public-front-proxy").await.is_some());
    }
    // Once it is the only name, it is used; then its Secret leads to another cluster.
    landscape.delete("Secret", "cluster-eu").await;
    landscape.pods_are_ready_there(EU, "public-front-proxy").await;
    landscape.until_gone("Deployment", "public-front-proxy").await;
    landscape.delete("Secret", "cluster-us").await;
    let us = landscape.stage.landscape.skrs[US].kubeconfig().text();
    harness::apply(&landscape.client, &cluster_secret("de", &us)).await;
    landscape.pods_are_ready_there(US, "public-front-proxy").await;
    let is_left = says("the Secret of cluster de leads to another one now; if it is gone for good");
    landscape.until("FrontProxy", "public", "the former cluster is not reached", is_left).await;
    harness::apply(&landscape.client, &cluster_secret("former", &text)).await;
    landscape.until_nothing_is_there(EU).await;
}

/// Row 71: on real API servers, the daemon has in another cluster the rules of `deploy/kcp-cluster` only.
async fn r71_the_rules_for_another_cluster_are_all_that_the_daemon_needs_there() {
    let landscape = KcpLandscape::beside(1, &["--kcp-landscapes"]).await;
    harness::apply(landscape.there(EU), &namespace()).await;
    let all = deploy::objects("kcp-cluster");
    for object in &all {
        harness::apply(landscape.there(EU), object).await;
    }
    let account = "tidegate-kcp";
    let server = landscape.stage.landscape.skrs[EU].real();
    let access = server.kubeconfig_of_service_account(NAMESPACE, account).await.unwrap();
    let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
    let rules = deploy::rules(&all, account);
    deploy::until_granted(landscape.there(EU), &user, &rules).await;
    harness::apply(&landscape.client, &cluster_secret("eu", &access.text())).await;
    for mut resource in resources().into_iter().filter(|one| one["kind"] == "CacheServer") {
        resource["metadata"]["annotations"] =
            json!({"tidegate.dev/cluster": "eu", "tidegate.dev/pod-disruption-budget": "1"});
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    landscape.pods_are_ready_there(EU, "cache-cache-server").await;
    for (kind, name) in [
        ("Deployment", "cache-cache-server"),
        ("Service", "cache-cache-server"),
        ("PodDisruptionBudget", "cache-cache-server"),
        ("Secret", "cache-server"),
    ] {
        landscape.until_there(EU, kind, name, "it exists", |_| true).await;
        landscape.delete_there(EU, kind, name).await;
        landscape
            .until_there(EU, kind, name, "it is made again", |found| found["metadata"]["deletionTimestamp"].is_null())
            .await;
    }
    landscape.stage.rests().await;
    landscape.delete("CacheServer", "cache").await;
    landscape.until_gone("CacheServer", "cache").await;
    for kind in ["Deployment", "Service", "Secret", "ConfigMap"] {
        assert_eq!(landscape.all_there(EU, kind).await, [""; 0], "{kind}");
    }
    let records = landscape.stage.landscape.skrs[EU].records();
    let ours: Vec<_> = records.iter().filter(|record| record.user == user).collect();
    let refused: Vec<_> = ours.iter().filter(|record| record.code == 403).collect();
    assert!(refused.is_empty(), "refused: {refused:?}");
    let needs = ours.iter().flat_map(|record| deploy::needs(record)).collect();
    let idle = deploy::idle(&rules, &needs);
    // No ConfigMap is mounted by a CacheServer.
    let idle: Vec<String> =
        idle.iter().map(|rule| format!("{rule:?}")).filter(|rule| !rule.contains("configmaps")).collect();
    assert!(idle.is_empty(), "rules that it does not need: {idle:#?}");
}
