//! kcp landscapes: the daemon makes their objects in the control plane, in order, repairs and removes them.
//!
//! The test plays cert-manager and the kubelet: see [`issuer`] and [`KcpLandscape::pods_are_ready`].

mod adopt;
mod builtin;
mod git;
mod inside;
mod issuer;
mod place;
mod replace;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tidegate_core::api::{names, setup};
use tidegate_testbed::Extent;

use self::issuer::{CertManager, certificate_kinds};
use crate::{
    harness::{self, SOON, eventually},
    stage::{Stage, USER, scenarios},
};

scenarios! {
    a_kcp_landscape_is_built_in_order_and_a_restart_writes_nothing,
    what_others_change_is_repaired_and_only_mounters_restart,
    d08_what_a_template_adds_goes_with_it,
    row_64_a_limit_for_evictions_is_an_object_that_comes_and_goes,
    a_kcp_landscape_goes_in_reverse_order_and_the_keys_of_its_cas_stay,
    what_a_user_must_do_is_in_the_status_and_the_rest_goes_on,
    without_the_option_kcp_landscapes_are_left_alone,
    d26_a_kubeconfig_that_goes_before_its_first_pass_is_not_stuck,
}

const NAMESPACE: &str = "kcp-system";
/// Deployments of the example, in the order of their creation.
const DEPLOYMENTS: [&str; 6] = [
    "cache-cache-server",
    "main-kcp",
    "main-proxy",
    "eu-shard-kcp",
    "public-front-proxy",
    "eu-workspaces-virtual-workspace",
];

/// A control plane with the example's landscape, and what its user provides.
struct KcpLandscape {
    stage: Stage,
    client: Client,
    /// `None` with the built-in CA.
    cert_manager: Option<CertManager>,
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": NAMESPACE, "name": name}})
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "Secret" | "ConfigMap" | "Service" => "v1",
        "Deployment" => "apps/v1",
        "PodDisruptionBudget" => "policy/v1",
        "Issuer" | "Certificate" => "cert-manager.io/v1",
        _ => "operator.kcp.io/v1alpha1",
    }
}

/// The resources of the example, as a user applies them. The Kubeconfig asks for nothing inside kcp: there is none.
fn resources() -> Vec<Value> {
    let mut all = resources_with_kcp();
    let kubeconfig = all.iter_mut().find(|resource| resource["kind"] == "Kubeconfig").unwrap();
    kubeconfig["spec"].as_object_mut().unwrap().remove("authorization");
    all
}

/// The resources of the example.
fn resources_with_kcp() -> Vec<Value> {
    let text = include_str!("../../examples/kcp/landscape.yaml");
    let documents: Vec<Value> = text.split("---\n").map(|text| serde_yaml::from_str(text).unwrap()).collect();
    assert_eq!(documents.len(), setup::Kind::ALL.len());
    documents
}

fn secret(name: &str, values: &[(&str, &str)]) -> Value {
    let mut secret = object("v1", "Secret", name);
    for (key, value) in values {
        secret["data"][key] = STANDARD.encode(value).into();
    }
    secret
}

fn etcd_client(name: &str) -> Value {
    secret(name, &[("tls.crt", "certificate"), ("tls.key", "key"), ("ca.crt", "ca")])
}

// === impl KcpLandscape ===

impl KcpLandscape {
    /// Nothing of the landscape is there yet, and the daemon is not started.
    async fn prepare(options: &[&str]) -> KcpLandscape {
        KcpLandscape::beside(0, options).await
    }

    /// As [`KcpLandscape::prepare`], beside so many other clusters.
    async fn beside(clusters: usize, options: &[&str]) -> KcpLandscape {
        let landscape = KcpLandscape::with(clusters, options).await;
        let crds = setup::Kind::ALL.map(|kind| serde_json::to_value(kind.crd()).unwrap());
        harness::install_crds(&landscape.client, &crds).await;
        landscape
    }

    /// As [`KcpLandscape::prepare`], and the six kinds are not installed.
    async fn bare(options: &[&str]) -> KcpLandscape {
        KcpLandscape::with(0, options).await
    }

    async fn with(clusters: usize, options: &[&str]) -> KcpLandscape {
        let stage = Stage::with(clusters, Extent::Server, &[], options).await;
        let client = stage.kcp.clone();
        harness::install_crds(&client, &certificate_kinds()).await;
        let cert_manager = Some(CertManager::start(&client, NAMESPACE));
        let landscape = KcpLandscape { stage, client, cert_manager };
        landscape.provide().await;
        landscape
    }

    /// As [`KcpLandscape::prepare`], for the built-in CA: the kinds of cert-manager are not installed either.
    async fn builtin() -> KcpLandscape {
        let stage = Stage::with(0, Extent::Server, &[], &["--kcp-landscapes", "--pki=builtin"]).await;
        let client = stage.kcp.clone();
        let crds = setup::Kind::ALL.map(|kind| serde_json::to_value(kind.crd()).unwrap());
        harness::install_crds(&client, &crds).await;
        let landscape = KcpLandscape { stage, client, cert_manager: None };
        landscape.provide().await;
        landscape
    }

    /// What the example's user provides.
    async fn provide(&self) {
        let client = &self.client;
        for name in ["etcd-cache-client", "etcd-main-client", "etcd-eu-client"] {
            harness::apply(client, &etcd_client(name)).await;
        }
        harness::apply(client, &secret("company-ca", &[("tls.crt", &issuer::authority("company"))])).await;
        harness::apply(client, &secret("login-ca", &[("ca.crt", "ca")])).await;
        let mut audit = object("v1", "ConfigMap", "audit");
        audit["data"] = json!({"policy.yaml": "rules: []"});
        harness::apply(client, &audit).await;
    }

    /// The landscape of the example is built, and nothing is left to do.
    async fn built() -> KcpLandscape {
        KcpLandscape::prepare(&["--kcp-landscapes"]).await.with_example().await
    }

    /// Builds the example, and waits until nothing is left to do.
    async fn with_example(self) -> KcpLandscape {
        for resource in resources() {
            harness::apply(&self.client, &resource).await;
        }
        self.stage.start();
        self.runs().await;
        self.stage.rests().await;
        self
    }

    /// Plays the kubelet until all of the example runs. A Deployment may change meanwhile.
    async fn runs(&self) {
        let phases = [
            ("RootShard", "main", "Running"),
            ("Shard", "eu", "Running"),
            ("FrontProxy", "public", "Running"),
            ("Kubeconfig", "admin", "Ready"),
        ];
        eventually("all of the example runs", SOON * 2, async || {
            for name in DEPLOYMENTS {
                let found = self.read("Deployment", name).await.unwrap_or_default();
                if found["status"]["readyReplicas"] != found["spec"]["replicas"] {
                    self.pods_are_ready(name).await;
                }
            }
            for (kind, name, phase) in phases {
                let found = self.read(kind, name).await.unwrap_or_default();
                if found["status"]["phase"] != phase {
                    return Err(format!("{kind} {name}: {}\n{}", found["status"], self.log()));
                }
            }
            Ok(())
        })
        .await;
    }

    async fn read(&self, kind: &str, name: &str) -> Option<Value> {
        let api = harness::api_of(&self.client, &object(api_version(kind), kind, name)).await.unwrap();
        api.get_opt(name).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    async fn until(&self, kind: &str, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("{kind} {name}: {what}"), SOON, async || match self.read(kind, name).await {
            Some(found) if holds(&found) => Ok(found),
            Some(found) => Err(format!("{}\n{}", found["status"], self.log())),
            None => Err(format!("not there\n{}", self.log())),
        })
        .await
    }

    async fn until_gone(&self, kind: &str, name: &str) {
        eventually(&format!("{kind} {name} is gone"), SOON, async || match self.read(kind, name).await {
            Some(found) => Err(format!("{found}\n{}", self.log())),
            None => Ok(()),
        })
        .await;
    }

    fn log(&self) -> String {
        self.stage.last_lines(20)
    }

    async fn merge(&self, kind: &str, name: &str, subresource: Option<&str>, patch: Value) {
        let api = harness::api_of(&self.client, &object(api_version(kind), kind, name)).await.unwrap();
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        match subresource {
            Some("status") => api.patch_status(name, &parameters, &patch).await.map(drop),
            _ => api.patch(name, &parameters, &patch).await.map(drop),
        }
        .unwrap();
    }

    async fn delete(&self, kind: &str, name: &str) {
        let api = harness::api_of(&self.client, &object(api_version(kind), kind, name)).await.unwrap();
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// All pods of a Deployment are ready, once it exists.
    async fn pods_are_ready(&self, name: &str) {
        let found = self.until("Deployment", name, "it exists", |_| true).await;
        let replicas = found["spec"]["replicas"].clone();
        let status = json!({"observedGeneration": found["metadata"]["generation"], "replicas": replicas,
            "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas});
        self.merge("Deployment", name, Some("status"), json!({"status": status})).await;
    }

    /// The requests of the daemon since a mark, without its watches and its Lease.
    fn requests_since(&self, mark: u64) -> Vec<String> {
        let records = self.stage.landscape.kcp.records_since(mark).into_iter();
        let ours = records
            .filter(|found| found.user == USER && found.verb != "watch" && !found.resource.starts_with("leases"));
        let verb = |verb: &str| if verb == "apply" { "patch".to_owned() } else { verb.to_owned() };
        ours.map(|found| format!("{} {} {}", verb(&found.verb), found.resource, found.name)).collect()
    }

    /// The position of the first request of the daemon of this verb for an object.
    fn first(&self, verb: &str, resource: &str, name: &str) -> usize {
        let all = self.requests_since(0);
        let wanted = format!("{verb} {resource} {name}");
        all.iter().position(|found| *found == wanted).unwrap_or_else(|| panic!("no {wanted} in {all:#?}"))
    }
}

/// A condition as status, reason and message.
fn condition(found: &Value, type_: &str) -> String {
    let all = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or("none").to_owned();
    format!("{} {}: {}", text("status"), text("reason"), text("message"))
}

/// Rows 13, 14, 36, 42 to 44, 82: the gates, the order, the statuses of upstream, and no write without need.
async fn a_kcp_landscape_is_built_in_order_and_a_restart_writes_nothing() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let client = &landscape.client;
    landscape.delete("Secret", "etcd-main-client").await;
    for resource in resources() {
        harness::apply(client, &resource).await;
    }
    landscape.stage.start();

    // The root shard waits for its cache, and says so. Others wait for the root shard.
    landscape.until("Deployment", "cache-cache-server", "it exists", |_| true).await;
    let expected = "False Missing: Deployment main-kcp does not exist yet; Secret etcd-main-client does not exist; the \
                    pods of Deployment cache-cache-server are not ready";
    let waits = |found: &Value| condition(found, "tidegate.dev/Mounts") == expected;
    let root = landscape.until("RootShard", "main", "it names what is missing", waits).await;
    assert_eq!(condition(&root, "tidegate.dev/Certificates"), "True Ready: all certificates are ready");
    assert_eq!(condition(&root, "tidegate.dev/Valid"), "True Valid: the definition is valid");
    assert_eq!(root["status"]["phase"], "Provisioning");
    assert_eq!(
        condition(&root, "Available"),
        "False DeploymentUnavailable: Deployment kcp-system/main-kcp does not exist."
    );
    assert!(landscape.read("Deployment", "main-kcp").await.is_none());
    // The status of a CacheServer has no fields, so an annotation says it.
    let noted = |available: &'static str| {
        move |found: &Value| {
            let text = found["metadata"]["annotations"]["tidegate.dev/status"].as_str().unwrap_or("{}");
            condition(&json!({"status": serde_json::from_str::<Value>(text).unwrap()}), "Available")
                .starts_with(available)
        }
    };
    landscape.until("CacheServer", "cache", "its pods are not ready", noted("False ReplicasUnavailable")).await;
    landscape.pods_are_ready("cache-cache-server").await;
    landscape.until("CacheServer", "cache", "its pods are ready", noted("True ReplicasUp")).await;
    let expected = "False Missing: Deployment main-kcp does not exist yet; Secret etcd-main-client does not exist";
    let waits = |found: &Value| condition(found, "tidegate.dev/Mounts") == expected;
    landscape.until("RootShard", "main", "only the Secret is missing", waits).await;
    assert!(landscape.read("Deployment", "main-kcp").await.is_none());

    // What a user adds takes effect within a second.
    harness::apply(client, &etcd_client("etcd-main-client")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let made = landscape.read("Deployment", "main-kcp").await.expect("it is made within a second");
    assert_eq!(made["spec"]["replicas"], 2);
    assert_eq!(made["metadata"]["labels"]["tidegate.dev/setup"], "rootshard.main");
    for name in ["main-proxy", "eu-shard-kcp", "public-front-proxy"] {
        assert!(landscape.read("Deployment", name).await.is_none(), "{name} comes after the root shard is up");
    }
    for name in DEPLOYMENTS {
        landscape.pods_are_ready(name).await;
    }
    let root = landscape.until("RootShard", "main", "it runs", |found| found["status"]["phase"] == "Running").await;
    assert_eq!(
        condition(&root, "Available"),
        "True ReplicasUp: Deployment kcp-system/main-kcp is fully up and running."
    );
    assert_eq!(root["status"]["shards"], json!([{"name": "eu"}]));
    let eu = landscape.until("Shard", "eu", "it runs", |found| found["status"]["phase"] == "Running").await;
    assert_eq!(condition(&eu, "RootShard"), "True Valid: all references are valid");

    // The kubeconfig of a user has the certificate that was issued, and the CAs of its server.
    let admin =
        landscape.until("Kubeconfig", "admin", "it is ready", |found| found["status"]["phase"] == "Ready").await;
    assert_eq!(admin["status"]["targetName"], "FrontProxy/public");
    assert_eq!(condition(&admin, "Available"), "True SecretsReady: the kubeconfig is in its Secret");
    assert_eq!(condition(&admin, "tidegate.dev/Kcp"), "none none: none");
    let value = |secret: &Value, key: &str| {
        String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
    };
    let found = landscape.read("Secret", "admin-kubeconfig").await.unwrap();
    let kubeconfig: Value = serde_yaml::from_str(&value(&found, "kubeconfig")).unwrap();
    assert_eq!(kubeconfig["current-context"], "default");
    assert_eq!(kubeconfig["clusters"][1]["cluster"]["server"], "https://kcp.example.com:443/clusters/root:company");
    let issued = landscape.read("Secret", "kubeconfig-cert-admin").await.unwrap();
    assert_eq!(kubeconfig["users"][0]["user"]["client-certificate-data"], issued["data"]["tls.crt"]);
    assert_eq!(kubeconfig["users"][0]["user"]["client-key-data"], issued["data"]["tls.key"]);
    let bundle = landscape.read("Secret", "public-merged-ca-bundle").await.unwrap();
    assert_eq!(value(&bundle, "tls.crt").matches("BEGIN CERTIFICATE").count(), 2, "the server CA and the company's");

    // CAs come before what they issue. cert-manager never saw a certificate whose CA was missing.
    assert!(
        landscape.first("patch", "certificates.cert-manager.io", "main-ca")
            < landscape.first("patch", "certificates.cert-manager.io", "main-server-ca")
    );
    assert!(
        landscape.first("patch", "certificates.cert-manager.io", "main-server-ca")
            < landscape.first("patch", "certificates.cert-manager.io", "eu-server")
    );
    assert_eq!(landscape.cert_manager.as_ref().map(CertManager::failures), Some(0));

    // Idle, a Secret of others changes, and a restart: nothing is written, and a Secret that nothing names is not read.
    landscape.stage.rests().await;
    harness::apply(client, &secret("foreign", &[("key", "one")])).await;
    let mark = landscape.stage.landscape.kcp.mark();
    harness::apply(client, &secret("foreign", &[("key", "two")])).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(landscape.requests_since(mark), [""; 0]);
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    landscape.stage.start();
    landscape.stage.until("it leads again", client, "Secret", NAMESPACE, "foreign", |_| true).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(landscape.stage.requests_since(&marks), [""; 0]);
    let reads = landscape.requests_since(marks[0]);
    assert!(reads.contains(&"get deployments.apps main-kcp".to_owned()), "it compares what it finds: {reads:?}");
}

async fn row_64_a_limit_for_evictions_is_an_object_that_comes_and_goes() {
    let landscape = KcpLandscape::built().await;
    let (kind, annotation) = ("PodDisruptionBudget", names::annotation::POD_DISRUPTION_BUDGET);
    let annotate = async |value: Value| {
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        landscape.merge("FrontProxy", "public", None, patch).await;
    };
    annotate(json!("1")).await;
    let found = landscape.until(kind, "public-front-proxy", "it is made", |_| true).await;
    assert_eq!(found["spec"]["maxUnavailable"], 1);
    let pods = landscape.read("Deployment", "public-front-proxy").await.unwrap()["spec"]["selector"].clone();
    assert_eq!(found["spec"]["selector"], pods);
    annotate(json!("50%")).await;
    let is_changed = |found: &Value| found["spec"]["maxUnavailable"] == "50%";
    landscape.until(kind, "public-front-proxy", "it is changed", is_changed).await;
    landscape.delete(kind, "public-front-proxy").await;
    landscape.until(kind, "public-front-proxy", "it is made again", is_changed).await;
    annotate(json!("none")).await;
    let is_invalid = |found: &Value| found["status"]["conditions"].to_string().contains("not `none`");
    landscape.until("FrontProxy", "public", "it says what is wrong", is_invalid).await;
    landscape.stage.rests().await;
    assert!(landscape.read(kind, "public-front-proxy").await.is_some(), "what exists stays");
    annotate(Value::Null).await;
    landscape.until_gone(kind, "public-front-proxy").await;
    landscape.stage.rests().await;
}

async fn d08_what_a_template_adds_goes_with_it() {
    let landscape = KcpLandscape::built().await;
    let marks = json!({"metadata": {"labels": {"example.org/tier": "b"}, "annotations": {"example.org/team": "a"}}});
    let pods = json!({"spec": {"template": marks}, "metadata": marks["metadata"]});
    let has = |pointer: &'static str| {
        move |found: &Value| {
            let metadata = found.pointer(pointer).unwrap_or(&Value::Null);
            metadata["labels"]["example.org/tier"] == "b" && metadata["annotations"]["example.org/team"] == "a"
        }
    };
    let places = [("Service", "/metadata"), ("Deployment", "/metadata"), ("Deployment", "/spec/template/metadata")];
    let patch = json!({"spec": {"serviceTemplate": marks, "deploymentTemplate": pods}});
    landscape.merge("FrontProxy", "public", None, patch).await;
    for (kind, pointer) in places {
        landscape.until(kind, "public-front-proxy", "it has what the template adds", has(pointer)).await;
    }
    let without = json!({"spec": {"serviceTemplate": null, "deploymentTemplate": null}});
    landscape.merge("FrontProxy", "public", None, without).await;
    for (kind, pointer) in places {
        let is_gone =
            |found: &Value| !found.pointer(pointer).unwrap_or(&Value::Null).to_string().contains("example.org");
        landscape.until(kind, "public-front-proxy", "what the template added goes", is_gone).await;
    }
    landscape.stage.rests().await;
}

/// Rows 12, 22, 48, 55, 72.
async fn what_others_change_is_repaired_and_only_mounters_restart() {
    let landscape = KcpLandscape::built().await;
    landscape
        .merge("Service", "main-kcp", None, json!({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}}))
        .await;
    let is_repaired = |found: &Value| found["metadata"]["labels"]["app.kubernetes.io/name"] == "kcp";
    landscape.until("Service", "main-kcp", "its label is back", is_repaired).await;
    for (kind, name) in [
        ("Issuer", "main-ca"),
        ("Certificate", "main-server"),
        ("ConfigMap", "public-config"),
        ("Secret", "admin-kubeconfig"),
    ] {
        landscape.delete(kind, name).await;
        landscape.until(kind, name, "it is made again", |_| true).await;
    }
    landscape.stage.rests().await;

    // Tidegate leaves a number of pods alone that the definition does not have; one that leaves it stays.
    let scaled = json!({"spec": {"replicas": 5}});
    landscape.merge("Deployment", "main-kcp", None, scaled.clone()).await;
    landscape.stage.rests().await;
    let level = json!({"spec": {"logging": {"level": 4}}});
    landscape.merge("RootShard", "main", None, level).await;
    let has_level =
        |found: &Value| found["spec"]["template"]["spec"]["containers"][0]["args"].to_string().contains("-v=4");
    let found = landscape.until("Deployment", "main-kcp", "it has the level", has_level).await;
    assert_eq!(found["spec"]["replicas"], 5);
    landscape.merge("Deployment", "eu-shard-kcp", None, scaled).await;
    landscape
        .until("Deployment", "eu-shard-kcp", "its number is repaired", |found| found["spec"]["replicas"] == 3)
        .await;
    landscape.merge("Shard", "eu", None, json!({"spec": {"replicas": null, "logging": {"level": 4}}})).await;
    let found = landscape.until("Deployment", "eu-shard-kcp", "it has the level", has_level).await;
    assert_eq!(found["spec"]["replicas"], 3, "the live number stays");

    // A mounted value restarts exactly the pods that mount it.
    let mounts = async || {
        let mut all = Vec::new();
        for name in DEPLOYMENTS {
            let found = landscape.read("Deployment", name).await.unwrap();
            all.push(found["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/mounts"].clone());
        }
        all
    };
    landscape.stage.rests().await;
    let before = mounts().await;
    assert!(before.iter().all(|digest| digest.as_str().is_some_and(|digest| !digest.is_empty())), "{before:?}");
    let renewed = secret("etcd-eu-client", &[("tls.crt", "renewed"), ("tls.key", "key"), ("ca.crt", "ca")]);
    harness::apply(&landscape.client, &renewed).await;
    landscape.merge("Secret", "etcd-main-client", None, json!({"metadata": {"labels": {"team": "a"}}})).await;
    landscape.stage.rests().await;
    let after = mounts().await;
    let changed: Vec<&str> = DEPLOYMENTS
        .into_iter()
        .zip(before.iter().zip(&after))
        .filter(|(_, (a, b))| a != b)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(changed, ["eu-shard-kcp"]);

    // A renewed certificate is in its kubeconfig, and an object that is no longer desired goes.
    let old = landscape.read("Secret", "admin-kubeconfig").await.unwrap()["data"].clone();
    landscape.delete("Secret", "kubeconfig-cert-admin").await;
    landscape.until("Secret", "admin-kubeconfig", "it is renewed", |found| found["data"] != old).await;
    landscape.merge("FrontProxy", "public", None, json!({"spec": {"caBundleSecretRef": null}})).await;
    landscape.until_gone("Secret", "public-merged-ca-bundle").await;
    assert!(landscape.read("Secret", "company-ca").await.is_some(), "a user's Secret stays");
}

/// Rows 15, 40, 41.
async fn a_kcp_landscape_goes_in_reverse_order_and_the_keys_of_its_cas_stay() {
    let landscape = KcpLandscape::built().await;
    // A Shard alone may hold workspaces.
    landscape.delete("Shard", "eu").await;
    landscape.delete("VirtualWorkspace", "eu-workspaces").await;
    let waits = |found: &Value| {
        condition(found, "tidegate.dev/Deletion").starts_with("False Waiting: Shard eu may hold workspaces")
    };
    let found = landscape.until("Shard", "eu", "it stays", waits).await;
    assert_eq!(found["status"]["phase"], "Deleting");
    landscape.until_gone("VirtualWorkspace", "eu-workspaces").await;
    assert!(landscape.read("Deployment", "eu-shard-kcp").await.is_some());

    for (kind, name) in
        [("RootShard", "main"), ("CacheServer", "cache"), ("FrontProxy", "public"), ("Kubeconfig", "admin")]
    {
        landscape.delete(kind, name).await;
    }
    for resource in resources() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        landscape.until_gone(&text(&resource["kind"]), &text(&resource["metadata"]["name"])).await;
    }
    let first = |name: &str| landscape.first("delete", "deployments.apps", name);
    assert!(first("eu-shard-kcp") < first("main-kcp"), "the root shard goes after its shards");
    assert!(first("public-front-proxy") < first("main-kcp"));
    assert!(first("main-kcp") < first("cache-cache-server"));
    for kind in ["Issuer", "Certificate", "Secret", "ConfigMap", "Deployment", "Service"] {
        let api = harness::api_of(&landscape.client, &object(api_version(kind), kind, "any")).await.unwrap();
        let left = api.list(&kube::api::ListParams::default().labels("tidegate.dev/setup")).await.unwrap();
        let names: Vec<String> = left.items.into_iter().filter_map(|found| found.metadata.name).collect();
        let expected: &[&str] = if kind == "Secret" {
            &[
                "cache-ca",
                "eu-service-account",
                "main-ca",
                "main-client-ca",
                "main-requestheader-client-ca",
                "main-server-ca",
                "main-service-account",
                "main-service-account-ca",
            ]
        } else {
            &[]
        };
        assert_eq!(names, expected, "{kind}");
    }
    landscape.stage.rests().await;
    let records = landscape.stage.landscape.kcp.records();
    assert!(
        records.iter().any(|found| found.user == USER && found.resource.starts_with("events")),
        "it says what stays"
    );
}

/// Rows 45, 47, 80, and contract 6: mistakes of a resource are in its status, and others go on.
async fn what_a_user_must_do_is_in_the_status_and_the_rest_goes_on() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let client = &landscape.client;
    let mut all = resources();
    all.retain(|resource| resource["kind"] != "CacheServer");
    for resource in &mut all {
        if resource["kind"] == "RootShard" {
            resource["spec"]["cache"] = json!({});
        }
        if resource["kind"] == "Kubeconfig" {
            resource["spec"]["username"] = json!("kcp-front-proxy");
        }
        harness::apply(client, resource).await;
    }
    // An object of others is in the way.
    let mut theirs = object("v1", "Service", "main-kcp");
    theirs["spec"] = json!({"ports": [{"port": 80}]});
    harness::apply(client, &theirs).await;
    harness::apply(client, &secret("company-ca", &[("tls.crt", "junk")])).await;
    landscape.stage.start();

    let refused = |found: &Value| {
        condition(found, "tidegate.dev/Objects")
            .starts_with("False NotApplied: Service main-kcp exists and is not managed by Tidegate: testbed manages it")
    };
    landscape.until("RootShard", "main", "the Service is in the way", refused).await;
    assert_eq!(landscape.read("Service", "main-kcp").await.unwrap()["spec"]["ports"][0]["port"], 80);
    landscape.pods_are_ready("main-kcp").await;
    let unusable = |found: &Value| {
        condition(found, "tidegate.dev/Mounts").contains("Secret company-ca, key `tls.crt`: block 1 is not PEM")
    };
    landscape.until("FrontProxy", "public", "the bundle is unusable", unusable).await;
    let reserved = |found: &Value| {
        condition(found, "tidegate.dev/Valid").starts_with(
            "False InvalidDefinition: spec.username: the user `kcp-front-proxy` is reserved for parts of kcp",
        )
    };
    landscape.until("Kubeconfig", "admin", "the user is reserved", reserved).await;
    assert!(landscape.read("Certificate", "kubeconfig-cert-admin").await.is_none(), "it could assert any user");
    landscape.pods_are_ready("eu-shard-kcp").await;

    // A reference that leads nowhere stops a resource, and what exists of it stays.
    landscape.merge("Shard", "eu", None, json!({"spec": {"rootShard": {"ref": {"name": "lost"}}}})).await;
    let lost = |found: &Value| condition(found, "RootShard").starts_with("False InvalidReference: ");
    let found = landscape.until("Shard", "eu", "its root shard is missing", lost).await;
    assert!(condition(&found, "tidegate.dev/Valid").contains("RootShard kcp-system/lost"), "{found}");
    landscape.stage.rests().await;
    let status = landscape.stage.command(&["status"]).await;
    let text = String::from_utf8(status.stdout).unwrap();
    assert_eq!(status.status.code(), Some(1), "{text}");
    // What exists and cannot be used is a problem, and not only in progress.
    let text = text.split("\n\n").next().expect("the problems come first");
    for line in [
        "RootShard kcp-system/main  Service main-kcp exists and is not managed by Tidegate: testbed manages it",
        "Kubeconfig kcp-system/admin  spec.username: the user `kcp-front-proxy` is reserved",
        "FrontProxy kcp-system/public  Secret company-ca, key `tls.crt`: block 1 is not PEM",
        "Shard kcp-system/eu  spec.rootShard",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(landscape.read("Deployment", "eu-shard-kcp").await.is_some());
    assert!(landscape.read("Secret", "eu-server").await.is_some());
    landscape.merge("Shard", "eu", None, json!({"spec": {"rootShard": {"ref": {"name": "main"}}}})).await;

    // Each mistake is corrected, and what waited goes on.
    let adopt = json!({"metadata": {"annotations": {"tidegate.dev/adopt": "true"}}});
    landscape.merge("Service", "main-kcp", None, adopt).await;
    let requested = json!({"metadata": {"annotations": {"tidegate.dev/reconcile-requested-at": "now"}}});
    landscape.merge("RootShard", "main", None, requested).await;
    let is_ours = |found: &Value| found["metadata"]["labels"]["tidegate.dev/setup"] == "rootshard.main";
    landscape.until("Service", "main-kcp", "it is taken over", is_ours).await;
    landscape.merge("Kubeconfig", "admin", None, json!({"spec": {"username": "admin"}})).await;
    let company = secret("company-ca", &[("tls.crt", &issuer::authority("company"))]);
    harness::apply(client, &company).await;
    landscape.until("Kubeconfig", "admin", "it is ready", |found| found["status"]["phase"] == "Ready").await;
    landscape.stage.rests().await;
    let text = String::from_utf8(landscape.stage.command(&["status"]).await.stdout).unwrap();
    assert!(!text.contains("Problems") && text.contains(" kcp resource"), "{text}");
}

/// Deleted between its finalizer and its first status, a Kubeconfig with permissions inside kcp is stuck with upstream.
async fn d26_a_kubeconfig_that_goes_before_its_first_pass_is_not_stuck() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    let all = resources();
    let mut admin = all.iter().find(|resource| resource["kind"] == "Kubeconfig").expect("a Kubeconfig").clone();
    admin["spec"]["authorization"] = json!({"clusterRoleBindings": {"clusterRoles": ["cluster-admin"]}});
    for (name, finalizers) in [
        ("both", &["operator.kcp.io/cleanup-rbac", "tidegate.dev/setup"] as &[&str]),
        ("upstream", &["operator.kcp.io/cleanup-rbac"]),
    ] {
        admin["metadata"]["name"] = name.into();
        admin["metadata"]["finalizers"] = json!(finalizers);
        harness::apply(&landscape.client, &admin).await;
        landscape.delete("Kubeconfig", name).await;
        let found = landscape.read("Kubeconfig", name).await.expect("its finalizers hold it");
        assert!(found["status"].is_null() && !found["metadata"]["deletionTimestamp"].is_null(), "{found}");
    }
    landscape.stage.start();
    // Its FrontProxy never existed.
    for name in ["both", "upstream"] {
        landscape.until_gone("Kubeconfig", name).await;
    }
    assert!(!landscape.log().contains("panicked"), "{}", landscape.log());
}

/// Upstream keeps all Secrets of the cluster in memory. One process here has those that nothing names as metadata.
#[tokio::test(flavor = "multi_thread")]
async fn d27_the_content_of_secrets_that_nothing_names_takes_no_memory() {
    const SECRETS: usize = 512;
    const EACH: usize = 256 << 10;
    let stage = Stage::on_simulated(0, Extent::Server, &[], &["--kcp-landscapes", "--pki=builtin"]).await;
    let client = stage.kcp.clone();
    let crds = setup::Kind::ALL.map(|kind| serde_json::to_value(kind.crd()).unwrap());
    harness::install_crds(&client, &crds).await;
    let landscape = KcpLandscape { stage, client, cert_manager: None };
    landscape.provide().await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    landscape.until("Secret", "admin-kubeconfig", "the landscape is built", |_| true).await;
    landscape.stage.rests().await;
    let resident = async || {
        let path = format!("/proc/{}/status", landscape.stage.process_id().await);
        let status = std::fs::read_to_string(path).expect("a status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.split_whitespace().next().expect("a number").parse::<usize>().expect("a number") << 10
    };
    let before = resident().await;
    let value = "x".repeat(EACH);
    for index in 0..SECRETS {
        harness::apply(&landscape.client, &secret(&format!("large-{index}"), &[("value", &value)])).await;
    }
    // After them comes one that a pass waits for: the watch has shown all of them.
    landscape.delete("Secret", "admin-kubeconfig").await;
    landscape.until("Secret", "admin-kubeconfig", "it is made again", |_| true).await;
    landscape.stage.rests().await;
    let more = resident().await.saturating_sub(before);
    assert!(more < SECRETS * EACH / 4, "{} MiB more for {} MiB of Secrets", more >> 20, (SECRETS * EACH) >> 20);
}

async fn without_the_option_kcp_landscapes_are_left_alone() {
    let landscape = KcpLandscape::prepare(&[]).await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    landscape.stage.rests().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let root = landscape.read("RootShard", "main").await.unwrap();
    assert!(root["metadata"]["finalizers"].is_null() && root["status"].is_null(), "{root}");
    let all = landscape.stage.landscape.kcp.records();
    let asks = all.iter().filter(|found| found.user == USER && found.resource.contains("operator.kcp.io"));
    assert_eq!(asks.count(), 0);
}
