//! `tidegate adopt kcp`: an installation of kcp-operator becomes Tidegate's without a restart of a pod.
//!
//! The daemon builds the example, and the test turns its objects into what kcp-operator makes of the same resources.

use std::collections::BTreeMap;

use clap::Parser;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidegate::internals::adopt::{self, KcpArguments};
use tidegate_cluster::Network;
use tidegate_core::{adopt::Level, api::setup};

use super::{DEPLOYMENTS, KcpLandscape, NAMESPACE, api_version, object, resources};
use crate::{
    harness,
    stage::{USER, scenarios},
    take_over::{
        cut, definition_of,
        rights::{Rights, Users, succeeded},
    },
};

scenarios! {
    an_installation_of_kcp_operator_is_taken_over_and_no_pod_restarts,
    a_take_over_of_kcp_landscapes_may_be_killed_anywhere,
    where_nothing_can_be_taken_over_it_is_not_done;
    on real servers:
    row_10_an_installation_of_kcp_operator_is_taken_over_on_a_real_api_server,
}

/// The kinds of objects, in the order of apply.
const KINDS: [&str; 6] = ["Issuer", "Certificate", "Secret", "ConfigMap", "Service", "Deployment"];
/// The field managers of kcp-operator and of cert-manager.
const OPERATOR: &str = "manager";
const CERT_MANAGER: &str = "cert-manager-certificates-issuing";
const LEASE: &str = "239f9f9a.operator.kcp.io";

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

#[derive(Parser)]
struct Kcp {
    #[command(flatten)]
    arguments: KcpArguments,
}

/// An object of Tidegate as kcp-operator makes it. `owner` is its resource.
fn of_operator(mut value: Value, owner: &Value) -> Value {
    let name = value["metadata"]["name"].clone();
    let mut labels = value["metadata"]["labels"].clone();
    labels.as_object_mut().unwrap().remove("tidegate.dev/setup");
    value["metadata"] = json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    value.as_object_mut().unwrap().remove("status");
    if value["type"] != "kubernetes.io/tls" && owner["kind"] != "Kubeconfig" {
        let mut owner = owner.clone();
        if value["kind"] == "Deployment" || value["kind"] == "Service" {
            owner["apiVersion"] = json!("deploy.operator.kcp.io/v1alpha1");
            owner["kind"] = json!(format!("Compiled{}", owner["kind"].as_str().unwrap()));
        }
        owner["controller"] = json!(true);
        owner["blockOwnerDeletion"] = json!(true);
        value["metadata"]["ownerReferences"] = json!([owner]);
    }
    match value["kind"].as_str().unwrap() {
        "Certificate" => {
            value["spec"]["privateKey"].as_object_mut().unwrap().remove("rotationPolicy");
            value["spec"]["secretTemplate"]["labels"].as_object_mut().unwrap().remove("tidegate.dev/setup");
            if name == "eu-workspaces-server" {
                let names = value["spec"]["dnsNames"].as_array_mut().unwrap();
                names.retain(|name| *name != "eu.kcp.example.com");
            }
        }
        // It trusts the root CA alone.
        "Secret" if name == "main-public-dynamic-kubeconfig" => value["data"]["kubeconfig"] = json!("e30K"),
        "Service" => {
            let spec = value["spec"].as_object_mut().unwrap();
            spec.retain(|field, _| ["type", "selector", "ports"].contains(&field.as_str()));
            for port in spec["ports"].as_array_mut().unwrap() {
                port.as_object_mut().unwrap().remove("nodePort");
            }
        }
        "Deployment" => {
            let pod = &mut value["spec"]["template"];
            pod["metadata"].as_object_mut().unwrap().remove("annotations");
            let labels = pod["metadata"]["labels"].as_object_mut().unwrap();
            labels.remove("tidegate.dev/setup");
            labels.insert("operator.kcp.io/secret-05da8c3c7b949f1d1c82-rev".to_owned(), json!("4711"));
            for volume in pod["spec"]["volumes"].as_array_mut().unwrap() {
                if let Some(secret) = volume["secret"].as_object_mut() {
                    secret.remove("items");
                }
            }
        }
        _ => {}
    }
    value
}

// === impl KcpLandscape ===

impl KcpLandscape {
    /// The example as kcp-operator made it, and cert-manager has nothing to do. No daemon runs.
    async fn of_operator() -> KcpLandscape {
        KcpLandscape::built().await.made_by_operator().await
    }

    /// The objects become as kcp-operator makes them.
    async fn made_by_operator(self) -> KcpLandscape {
        let mut landscape = self;
        landscape.stage.kill().await;
        landscape.cert_manager = None;
        let mut owners = BTreeMap::new();
        for resource in resources() {
            let (kind, name) = (resource["kind"].as_str().unwrap(), resource["metadata"]["name"].as_str().unwrap());
            landscape.merge(kind, name, None, json!({"metadata": {"finalizers": null}})).await;
            let found = landscape.read(kind, name).await.unwrap();
            let owner = json!({"apiVersion": "operator.kcp.io/v1alpha1", "kind": kind, "name": name,
                "uid": found["metadata"]["uid"]});
            owners.insert(format!("{}.{name}", kind.to_lowercase()), owner);
        }
        for ((kind, name), found) in landscape.objects().await {
            let owner = &owners[found["metadata"]["labels"]["tidegate.dev/setup"].as_str().unwrap()];
            let made = of_operator(found.clone(), owner);
            let api = harness::api_of(&landscape.client, &object(api_version(&kind), &kind, &name)).await.unwrap();
            api.delete(&name, &DeleteParams::default()).await.unwrap();
            landscape.until_gone(&kind, &name).await;
            let manager = if made["type"] == "kubernetes.io/tls" { CERT_MANAGER } else { OPERATOR };
            let parameters = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
            let made: DynamicObject = serde_json::from_value(made).unwrap();
            let made = api.create(&parameters, &made).await.unwrap();
            if found["status"]["conditions"].is_array() || found["status"]["readyReplicas"].is_i64() {
                let mut status = found["status"].clone();
                if kind == "Deployment" {
                    status["observedGeneration"] = json!(made.metadata.generation);
                }
                let status = Patch::Merge(json!({"status": status}));
                api.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
            }
        }
        landscape
    }

    /// The objects of the landscape: all but those that its user provides.
    async fn objects(&self) -> Objects {
        let mut all = Objects::new();
        for kind in KINDS {
            let api = harness::api_of(&self.client, &object(api_version(kind), kind, "any")).await.unwrap();
            for found in api.list(&ListParams::default()).await.unwrap() {
                let mut found = serde_json::to_value(found).unwrap();
                found["apiVersion"] = json!(api_version(kind));
                found["kind"] = json!(kind);
                let labels = found["metadata"]["labels"].as_object();
                let is_made = labels.is_some_and(|labels| labels.keys().any(|label| label.contains("kcp.io")))
                    || found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "kcp-operator"
                    || found["metadata"]["labels"]["tidegate.dev/setup"].is_string()
                    || managers(&found).contains(&format!("{OPERATOR} Update"));
                if is_made {
                    let name = found["metadata"]["name"].as_str().unwrap().to_owned();
                    all.insert((kind.to_owned(), name), found);
                }
            }
        }
        all
    }

    /// The output of `tidegate adopt kcp` and its exit code.
    async fn adopt(&self, arguments: &[&str]) -> (String, Option<i32>) {
        let output = self.stage.command(&[&["adopt", "kcp"], arguments].concat()).await;
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        (text, output.status.code())
    }

    /// What the daemon wrote since a mark, but for resources, Events and its Lease.
    fn objects_written_since(&self, mark: u64) -> Vec<String> {
        let records = self.stage.landscape.kcp.records_since(mark).into_iter();
        let is_read = |verb: &str| ["get", "list", "watch"].contains(&verb);
        let is_other = |resource: &str| {
            ["operator.kcp.io", "leases", "events", "gitsources"].iter().any(|name| resource.contains(name))
        };
        let of_daemon =
            records.filter(|found| found.user == USER && !is_read(&found.verb) && !is_other(&found.resource));
        of_daemon.map(|found| format!("{} {} {}", found.verb, found.resource, found.name)).collect()
    }

    async fn lease(&self, renewed: &str, seconds: u32) {
        let mut lease = object("coordination.k8s.io/v1", "Lease", LEASE);
        lease["spec"] =
            json!({"holderIdentity": "kcp-operator-0", "leaseDurationSeconds": seconds, "renewTime": renewed});
        harness::apply(&self.client, &lease).await;
    }

    /// All resources have the finalizer of the daemon, and it rests.
    async fn is_taken_charge_of(&self) {
        for resource in resources() {
            let (kind, name) = (resource["kind"].as_str().unwrap(), resource["metadata"]["name"].as_str().unwrap());
            let has_finalizer = |found: &Value| found["metadata"]["finalizers"] == json!(["tidegate.dev/setup"]);
            self.until(kind, name, "the daemon has it", has_finalizer).await;
        }
        self.stage.rests().await;
    }
}

fn versions(all: &Objects) -> BTreeMap<(String, String), Value> {
    all.iter().map(|(id, object)| (id.clone(), object["metadata"]["resourceVersion"].clone())).collect()
}

fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap().iter();
    let of_object = entries.filter(|entry| entry["subresource"].is_null());
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
    of_object.map(|entry| format!("{} {}", text(entry, "manager"), text(entry, "operation"))).collect()
}

fn template(all: &Objects, name: &str) -> Value {
    all[&("Deployment".to_owned(), name.to_owned())]["spec"]["template"].clone()
}

fn annotation<'a>(all: &'a Objects, kind: &str, name: &str, annotation: &str) -> Option<&'a str> {
    all[&(kind.to_owned(), name.to_owned())]["metadata"]["annotations"][annotation].as_str()
}

/// Contract "`tidegate adopt kcp`", rows 10, 11, 48, 70: owners, marks and field managers are handed over, and nothing
/// restarts until its resource changes.
async fn an_installation_of_kcp_operator_is_taken_over_and_no_pod_restarts() {
    let landscape = KcpLandscape::of_operator().await;
    let before = landscape.objects().await;
    assert!(before.values().all(|object| object["metadata"]["labels"]["tidegate.dev/setup"].is_null()));

    // Without --yes, it says what differs.
    let (text, code) = landscape.adopt(&[]).await;
    assert_eq!(code, Some(1), "{text}");
    for line in [
        "note    no namespace has the Lease of kcp-operator, so it is not known whether it runs\n",
        "have owner references to kcp-operator resources: deleting those resources would delete the objects: ",
        "need the ownership label tidegate.dev/setup: ",
        "have fields of the field manager `manager`, which become Tidegate's: ",
        "to do   Secret kcp-system/main-public-dynamic-kubeconfig changes: ",
        "note    Deployment kcp-system/main-kcp differs; the daemon applies it once RootShard main changes: digest of the \
         mounted keys, ownership label of the pods, revision labels, volumes of CAs without their keys\n",
        "note    Certificate kcp-system/eu-workspaces-server differs; the daemon applies it once VirtualWorkspace \
         eu-workspaces changes: names of the certificate\n",
        "\nto do it: tidegate adopt kcp ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let (json, code) = landscape.adopt(&["-o", "json"]).await;
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &report["ready"]), (Some(1), &json!(false)));

    // Row 70: while kcp-operator runs, it writes nothing.
    landscape.lease(&format!("{:.6}", jiff::Timestamp::now()), 3600).await;
    let (text, code) = landscape.adopt(&["--yes"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("blocks  kcp-operator runs in namespace kcp-system: kcp-operator-0 renewed"), "{text}");
    assert_eq!(versions(&landscape.objects().await), versions(&before));
    // Its clock may be behind: it runs if it renews the Lease.
    let renews = async {
        for second in 0..60 {
            landscape.lease(&format!("2026-01-01T00:00:{second:02}.000000Z"), 15).await;
            tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        }
    };
    let (text, code) = tokio::select! {
        found = landscape.adopt(&["--yes"]) => found,
        () = renews => panic!("it does not end"),
    };
    assert_eq!(code, Some(1), "{text}");
    assert!(text.starts_with("blocks  kcp-operator runs in namespace kcp-system: kcp-operator-0 renewed"), "{text}");
    assert_eq!(versions(&landscape.objects().await), versions(&before));

    let (text, code) = landscape.adopt(&["--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ready   all objects belong to Tidegate\n"), "{text}");
    let after = landscape.objects().await;
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    are_handed_over(&before, &after);

    // A second run does nothing.
    let (text, code) = landscape.adopt(&["--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(versions(&landscape.objects().await), versions(&after));

    // The daemon writes no object, nor does a restarted one. A number of pods that others decide changes nothing.
    for _ in 0..2 {
        let mark = landscape.stage.landscape.kcp.mark();
        landscape.stage.start();
        landscape.is_taken_charge_of().await;
        landscape.merge("Deployment", "main-kcp", None, json!({"spec": {"replicas": 4}})).await;
        landscape.stage.rests().await;
        assert_eq!(landscape.objects_written_since(mark), [""; 0]);
        landscape.stage.kill().await;
    }
    let found = landscape.objects().await;
    for name in DEPLOYMENTS {
        assert_eq!(template(&found, name), template(&before, name), "{name}");
    }
    landscape.stage.start();

    // A real change of a resource rolls that one, and brings its Certificates.
    landscape.merge("Shard", "eu", None, json!({"spec": {"logging": {"level": 3}}})).await;
    let has_level = |found: &Value| {
        let arguments = found["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
        arguments.contains(&json!("-v=3"))
    };
    landscape.until("Deployment", "eu-shard-kcp", "it has the new level", has_level).await;
    landscape.stage.rests().await;
    let found = landscape.objects().await;
    is_of_tidegate(&found, "eu-shard-kcp");
    assert_eq!(annotation(&found, "Certificate", "eu-server", "tidegate.dev/adopted-as"), None);
    assert!(annotation(&found, "Certificate", "eu-server", "tidegate.dev/digest").is_some());
    assert!(annotation(&found, "Certificate", "main-server", "tidegate.dev/adopted-as").is_some());
    for name in DEPLOYMENTS.into_iter().filter(|name| *name != "eu-shard-kcp") {
        assert_eq!(template(&found, name), template(&before, name), "{name}");
    }

    // A mounted key that changes rolls its mounters, and has nothing issued.
    let renewed = json!({"data": {"tls.crt": "bmV3"}});
    landscape.merge("Secret", "cache-server", None, renewed).await;
    let has_digest =
        |found: &Value| found["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/mounts"].is_string();
    landscape.until("Deployment", "cache-cache-server", "it restarts", has_digest).await;
    landscape.stage.rests().await;
    let found = landscape.objects().await;
    is_of_tidegate(&found, "cache-cache-server");
    assert!(annotation(&found, "Certificate", "cache-server", "tidegate.dev/adopted-as").is_some());
    for name in ["main-kcp", "main-proxy", "public-front-proxy", "eu-workspaces-virtual-workspace"] {
        assert_eq!(template(&found, name), template(&before, name), "{name}");
    }

    // And with --now, all of them.
    let (text, code) = landscape.adopt(&["--now"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("differs; the daemon applies it at once: names of the certificate\n"), "{text}");
    let (text, code) = landscape.adopt(&["--now", "--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    for name in DEPLOYMENTS {
        landscape.until("Deployment", name, "it restarts", has_digest).await;
    }
    landscape.stage.rests().await;
    let found = landscape.objects().await;
    for name in DEPLOYMENTS {
        is_of_tidegate(&found, name);
    }
    let certificate = &found[&("Certificate".to_owned(), "eu-workspaces-server".to_owned())];
    assert!(certificate["spec"]["dnsNames"].as_array().unwrap().contains(&json!("eu.kcp.example.com")));
    let scaled = &found[&("Deployment".to_owned(), "main-kcp".to_owned())];
    assert_eq!(scaled["spec"]["replicas"], 4, "the number of pods stays");
    for ((kind, name), object) in &found {
        assert!(object["metadata"]["annotations"]["tidegate.dev/adopted-as"].is_null(), "{kind} {name}");
    }
}

/// Everything is Tidegate's, and no pod and no certificate changes because of that.
#[track_caller]
fn are_handed_over(before: &Objects, after: &Objects) {
    for ((kind, name), object) in after {
        let (was, is) = (&before[&(kind.clone(), name.clone())], object);
        assert!(is["metadata"]["labels"]["tidegate.dev/setup"].is_string(), "{kind} {name}");
        assert!(is["metadata"]["ownerReferences"].is_null(), "{kind} {name}");
        let expected = if is["type"] == "kubernetes.io/tls" {
            vec![format!("{CERT_MANAGER} Update"), "tidegate Apply".to_owned()]
        } else {
            vec!["tidegate Apply".to_owned()]
        };
        let mut found = managers(is);
        // It numbers the revisions of a Deployment.
        found.retain(|manager| manager != "kube-controller-manager Update");
        found.sort();
        assert_eq!(found, expected, "{kind} {name}");
        match kind.as_str() {
            "Deployment" => assert_eq!(is["spec"], was["spec"], "{name}"),
            "Certificate" => {
                // What concerns neither the certificate nor its key.
                let mut spec = is["spec"].clone();
                spec["privateKey"].as_object_mut().unwrap().remove("rotationPolicy");
                spec["secretTemplate"]["labels"].as_object_mut().unwrap().remove("tidegate.dev/setup");
                assert_eq!(spec, was["spec"], "{name}");
            }
            "Secret" if name == "main-public-dynamic-kubeconfig" => assert_ne!(is["data"], was["data"]),
            _ => assert_eq!((&is["spec"], &is["data"]), (&was["spec"], &was["data"]), "{kind} {name}"),
        }
    }
    let kept = &after[&("Certificate".to_owned(), "main-service-account".to_owned())];
    assert_eq!(kept["spec"]["privateKey"]["rotationPolicy"], "Never");
}

/// A resource that cannot be planned, and a namespace without any: something is left to do, and nothing is written.
async fn where_nothing_can_be_taken_over_it_is_not_done() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    for arguments in [&[][..], &["--yes"]] {
        let (text, code) = landscape.adopt(arguments).await;
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("blocks  no kcp landscape in namespace kcp-system\n"), "{text}");
        assert!(!text.contains("all objects belong to Tidegate") && !text.contains("to do it: "), "{text}");
    }
    let resource = resources().into_iter().find(|resource| resource["kind"] == "FrontProxy").unwrap();
    harness::apply(&landscape.client, &resource).await;
    let (text, code) = landscape.adopt(&["--yes"]).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("blocks  FrontProxy kcp-system/public: spec.rootShard"), "{text}");
    assert!(!text.contains("all objects belong to Tidegate"), "{text}");
    let (text, code) = landscape.adopt(&["--kcp-image=kcp"]).await;
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("invalid image `kcp`: use REPOSITORY:TAG"), "{text}");
}

/// A Deployment has nothing of kcp-operator any more, and all that Tidegate renders.
#[track_caller]
fn is_of_tidegate(all: &Objects, name: &str) {
    let template = template(all, name);
    let labels = template["metadata"]["labels"].as_object().unwrap();
    assert!(!labels.keys().any(|label| label.ends_with("-rev")), "{name}: {labels:?}");
    assert!(labels.contains_key("tidegate.dev/setup"), "{name}");
    assert!(template["metadata"]["annotations"]["tidegate.dev/mounts"].is_string(), "{name}");
    assert_eq!(annotation(all, "Deployment", name, "tidegate.dev/adopted-as"), None, "{name}");
    assert!(annotation(all, "Deployment", name, "tidegate.dev/digest").is_some(), "{name}");
}

/// The same on a real API server. No pod runs there, so of the Deployments only those exist that wait for no other.
async fn row_10_an_installation_of_kcp_operator_is_taken_over_on_a_real_api_server() {
    let landscape = KcpLandscape::prepare(&["--kcp-landscapes"]).await;
    for mut resource in resources() {
        if resource["kind"] == "RootShard" {
            resource["spec"]["cache"] = json!({});
        }
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    for name in ["cache-cache-server", "main-kcp"] {
        landscape.until("Deployment", name, "it exists", |_| true).await;
    }
    landscape.until("Kubeconfig", "admin", "it is ready", |found| found["status"]["phase"] == "Ready").await;
    landscape.stage.rests().await;
    let landscape = landscape.made_by_operator().await;
    let before = landscape.objects().await;
    let (text, code) = landscape.adopt(&[]).await;
    assert_eq!(code, Some(1), "{text}");
    let differs = "note    Deployment kcp-system/main-kcp differs; the daemon applies it once RootShard main changes: digest \
                   of the mounted keys, ownership label of the pods, revision labels, volumes of CAs without their keys\n";
    assert!(text.contains(differs), "{text}");
    let (text, code) = landscape.adopt(&["--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    let after = landscape.objects().await;
    are_handed_over(&before, &after);

    let mark = landscape.stage.landscape.kcp.mark();
    landscape.stage.start();
    landscape.is_taken_charge_of().await;
    assert_eq!(landscape.objects_written_since(mark), [""; 0]);
    landscape.merge("RootShard", "main", None, json!({"spec": {"logging": {"level": 3}}})).await;
    let has_digest =
        |found: &Value| found["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/mounts"].is_string();
    landscape.until("Deployment", "main-kcp", "it restarts", has_digest).await;
    landscape.stage.rests().await;
    let found = landscape.objects().await;
    is_of_tidegate(&found, "main-kcp");
    assert_eq!(template(&found, "cache-cache-server"), template(&before, "cache-cache-server"));
    let (text, code) = landscape.adopt(&["--now", "--yes"]).await;
    assert_eq!(code, Some(0), "{text}");
    landscape.until("Deployment", "cache-cache-server", "it restarts", has_digest).await;
    is_of_tidegate(&landscape.objects().await, "cache-cache-server");

    landscape.stage.kill().await;
    works_with_the_documented_rights_and_names_the_one_that_it_lacks(&landscape).await;
}

/// The rights of `deploy/adopt/kcp.yaml`, of which each is needed. The landscape was taken over, and no daemon runs.
async fn works_with_the_documented_rights_and_names_the_one_that_it_lacks(landscape: &KcpLandscape) {
    const COMPILED: [(&str, &str); 5] = [
        ("CompiledCacheServer", "compiledcacheservers"),
        ("CompiledFrontProxy", "compiledfrontproxies"),
        ("CompiledRootShard", "compiledrootshards"),
        ("CompiledShard", "compiledshards"),
        ("CompiledVirtualWorkspace", "compiledvirtualworkspaces"),
    ];
    let compiled = COMPILED.map(|(kind, plural)| definition_of("deploy.operator.kcp.io", "v1alpha1", kind, plural));
    harness::install_crds(&landscape.client, &compiled).await;
    let declared = json!({"metadata": {
        "labels": {"tidegate.dev/source": "kcp-system.landscape"},
        "annotations": {"tidegate.dev/source": "kcp-system/landscape"},
    }});
    landscape.merge("CacheServer", "cache", None, declared).await;
    let (users, rights) = (Users::new(), Rights::of(&["kcp.yaml"]));
    users.fails_without(&landscape.stage, &rights, &rights.positions("list", &["*"]), &["adopt", "kcp"]).await;

    let all = landscape.objects().await;
    let of_tidegate = |wanted: &str| {
        // Those of cert-manager are not created anew.
        let is_rendered = |name: &str, object: &Value| {
            wanted != "Secret" || (name.ends_with("kubeconfig") && object["type"] != "kubernetes.io/tls")
        };
        let mut found = all.iter().filter(|((kind, name), object)| kind == wanted && is_rendered(name, object));
        found.find(|(_, object)| object["metadata"]["labels"]["tidegate.dev/setup"].is_string()).expect(wanted).0
    };
    let root = landscape.read("RootShard", "main").await.expect("it is there");
    let owner = json!({
        "apiVersion": "operator.kcp.io/v1alpha1", "kind": "RootShard", "name": "main", "uid": root["metadata"]["uid"],
    });
    let take = ["adopt", "kcp", "--yes"];
    let mut kinds = 0;
    for position in rights.positions("patch", &["*"]) {
        let (_, plural) = rights.words(position);
        let (kind, name) = KINDS
            .into_iter()
            .find(|kind| plural == format!("{}s", kind.to_lowercase()))
            .map(of_tidegate)
            .expect(plural);
        landscape.merge(kind, name, None, json!({"metadata": {"ownerReferences": [owner]}})).await;
        users.fails_without(&landscape.stage, &rights, &[position], &take).await;
        kinds += 1;
    }
    assert_eq!(kinds, KINDS.len());
    for (plural, kind) in [("secrets", "Secret"), ("configmaps", "ConfigMap")] {
        landscape.delete(kind, &of_tidegate(kind).1).await;
        users.fails_without(&landscape.stage, &rights, &rights.positions("create", &[plural]), &take).await;
    }
    let text = succeeded(users.run(&landscape.stage, &rights, None, &take).await);
    assert!(text.contains("ready   all objects belong to Tidegate\n"), "{text}");
}

async fn a_take_over_of_kcp_landscapes_may_be_killed_anywhere() {
    let landscape = KcpLandscape::of_operator().await;
    let kubeconfig = landscape.stage.kubeconfig();
    let command = |network: Network| {
        let arguments = ["kcp", "--yes", "--kubeconfig"].map(std::ffi::OsString::from).into_iter();
        let Kcp { arguments } = Kcp::parse_from(arguments.chain([kubeconfig.clone().into()]));
        async move {
            let findings = adopt::kcp(&arguments, &network).await.expect("it succeeds");
            let left = findings.iter().filter(|finding| matches!(finding.level, Level::Blocks | Level::Todo));
            assert_eq!(left.count(), 0, "{findings:#?}");
        }
    };
    cut::check(&landscape.stage, command, deployments_come_last).await;
    assert_eq!(setup::Kind::ALL.len(), 6, "the example has all kinds");
}

/// No Deployment is written a second time before all others are done: its mark names what it mounts.
fn deployments_come_last(writes: &[String]) {
    let is_of_deployment = |write: &&String| write.contains("/deployments/");
    let mut seen: BTreeMap<&String, usize> = BTreeMap::new();
    let mut marked = None;
    for (at, write) in writes.iter().enumerate().filter(|(_, write)| is_of_deployment(write)) {
        let count = seen.entry(write).or_default();
        *count += 1;
        if *count == 2 {
            marked = marked.or(Some(at));
        }
    }
    // A run that was cut off in its first step writes a Deployment again in its first step.
    let Some(marked) = marked.filter(|_| seen.values().all(|count| *count == 3)) else { return };
    let late: Vec<&String> = writes[marked..].iter().filter(|write| !is_of_deployment(write)).collect();
    assert!(late.is_empty(), "{late:?} after {}", writes[marked]);
}
