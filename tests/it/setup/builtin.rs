//! The built-in CA: its certificates are those of cert-manager, and it renews them.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};
use tidegate::internals::gateway::pki;
use tidegate_core::api::setup;
use tidegate_testbed::{Extent, Guarded};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::{DEPLOYMENTS, KcpLandscape, NAMESPACE, api_version, condition, object, resources, secret};
use crate::{
    harness::{self, SOON, eventually},
    stage::{Stage, scenarios},
};

scenarios! {
    the_built_in_ca_issues_renews_and_keeps_keys,
    a_ca_that_a_user_provides_signs_or_says_why_not;
    on real servers:
    what_the_built_in_ca_issues_is_what_cert_manager_issues,
}

/// The Secrets of certificates, by name.
async fn issued(client: &kube::Client) -> Vec<(String, Value)> {
    let api = harness::api_of(client, &object("v1", "Secret", "any")).await.unwrap();
    let all = api.list(&ListParams::default().labels("tidegate.dev/setup")).await.unwrap().items;
    let all = all.into_iter().map(|found| serde_json::to_value(found).unwrap());
    let of_certificates = all.filter(|found| found["type"] == "kubernetes.io/tls");
    of_certificates.map(|found| (found["metadata"]["name"].as_str().unwrap().to_owned(), found)).collect()
}

fn value(secret: &Value, key: &str) -> Vec<u8> {
    STANDARD.decode(secret["data"][key].as_str().unwrap_or_default()).unwrap()
}

/// What a certificate says, but for keys, serial numbers and moments.
fn statement(der: &[u8]) -> Value {
    let (_, found) = X509Certificate::from_der(der).unwrap();
    let mut extensions: Vec<Value> = Vec::new();
    for one in found.extensions() {
        let oid = one.oid.to_id_string();
        // The identifiers of keys differ.
        let is_key = matches!(oid.as_str(), "2.5.29.14" | "2.5.29.35");
        let content = if is_key { String::new() } else { STANDARD.encode(one.value) };
        extensions.push(json!([oid, one.critical, content]));
    }
    extensions.sort_by_key(Value::to_string);
    let life = found.validity().not_after.timestamp() - found.validity().not_before.timestamp();
    json!({
        "version": found.version().0,
        "subject": STANDARD.encode(found.subject().as_raw()),
        "issuer": STANDARD.encode(found.issuer().as_raw()),
        "life in hours": (life + 1800) / 3600,
        "extensions": extensions,
    })
}

/// What a Secret of a certificate is, but for its bytes.
fn shape(secret: &Value) -> Value {
    let chain = |key: &str| {
        let bundle = pki::read_bundle(&value(secret, key)).unwrap();
        bundle.authorities().iter().map(|one| statement(&one.der)).collect::<Vec<_>>()
    };
    let mut keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    keys.sort();
    let mut labels = secret["metadata"]["labels"].clone();
    // By it, cert-manager finds the Secrets that it wrote.
    labels.as_object_mut().unwrap().remove("controller.cert-manager.io/fao");
    json!({
        "type": secret["type"], "keys": keys, "tls.crt": chain("tls.crt"), "ca.crt": chain("ca.crt"),
        "labels": labels,
    })
}

fn mounts(deployment: &Value) -> Value {
    deployment["spec"]["template"]["metadata"]["annotations"]["tidegate.dev/mounts"].clone()
}

/// Rows 16, 20, 22 and 23 with `--pki=builtin`: no cert-manager, and everything runs.
async fn the_built_in_ca_issues_renews_and_keeps_keys() {
    let landscape = KcpLandscape::builtin().await;
    for resource in resources() {
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    landscape.runs().await;
    landscape.stage.rests().await;
    let all = issued(&landscape.client).await;
    assert!(all.iter().all(|(_, found)| found["metadata"]["annotations"]["tidegate.dev/pki"] == "builtin"), "{all:#?}");
    for name in ["cache-ca", "main-ca", "main-server-ca", "main-server", "eu-client", "kubeconfig-cert-admin"] {
        assert!(all.iter().any(|(found, _)| found == name), "{name}");
    }
    for (name, found) in &all {
        // Each is signed by the next of its chain, and the last one by the CA beside it.
        let chain = pki::read_bundle(&value(found, "tls.crt")).unwrap();
        let top = pki::read_bundle(&value(found, "ca.crt")).unwrap();
        for pair in chain.authorities().windows(2) {
            assert!(pki::is_of(&pair[0], &pair[1]), "{name}");
        }
        assert!(pki::is_of(chain.authorities().last().unwrap(), &top.authorities()[0]), "{name}");
    }
    let root = landscape.read("RootShard", "main").await.unwrap();
    assert_eq!(condition(&root, "tidegate.dev/Certificates"), "True Ready: all certificates are ready");
    let ours = landscape.requests_since(0);
    let sent = ours.iter().find(|request| request.contains("cert-manager.io") && request.starts_with("patch"));
    assert_eq!(sent, None);
    // What only says that the work goes on is not written.
    for resource in resources() {
        let (kind, name) = (resource["kind"].as_str().unwrap(), resource["metadata"]["name"].as_str().unwrap());
        let plural = setup::Kind::ALL.into_iter().find(|known| known.as_str() == kind).unwrap().plural();
        let status = format!("patch {plural}.operator.kcp.io/status {name}");
        let statuses = ours.iter().filter(|found| **found == status).count();
        assert!(statuses <= 2, "{kind} {name}: {statuses}");
    }

    // A restart compares, and writes nothing.
    landscape.stage.kill().await;
    let marks = landscape.stage.marks();
    // A renewal that is far away is no work that is left.
    let folder = harness::folder();
    let state = format!("--state={}", folder.path().display());
    let mut once = vec!["run", "--once", "--timeout=60s", "--kcp-landscapes", "--pki=builtin", "--leader-elect=false"];
    once.extend(["--allow-local-sources", "--hooks-address=off", "--metrics-address=127.0.0.1:0", &state]);
    once.extend(["--health-address=127.0.0.1:0", "--events-address=127.0.0.1:0", "--events-tls-address=127.0.0.1:0"]);
    let once = landscape.stage.command(&once).await;
    let said = format!("{}{}", String::from_utf8_lossy(&once.stdout), String::from_utf8_lossy(&once.stderr));
    assert_eq!(once.status.code(), Some(0), "{said}");
    landscape.stage.start();
    landscape.stage.until("it leads again", &landscape.client, "Secret", NAMESPACE, "company-ca", |_| true).await;
    landscape.stage.rests().await;
    assert_eq!(landscape.stage.requests_since(&marks), [""; 0]);

    // A Secret that someone deletes or edits is made again, and restarts its mounters only.
    let digests = async || {
        let mut all = Vec::new();
        for name in DEPLOYMENTS {
            all.push(mounts(&landscape.read("Deployment", name).await.unwrap()));
        }
        all
    };
    let before = digests().await;
    landscape.delete("Secret", "eu-server").await;
    landscape.until("Secret", "eu-server", "it is issued again", |_| true).await;
    landscape.stage.rests().await;
    let after = digests().await;
    let changed = DEPLOYMENTS.iter().zip(before.iter().zip(&after)).filter(|(_, (a, b))| a != b).map(|(name, _)| *name);
    assert_eq!(changed.collect::<Vec<_>>(), ["eu-shard-kcp"]);
    let ca = landscape.read("Secret", "main-client-ca").await.unwrap();
    landscape.merge("Secret", "main-client-ca", None, json!({"data": {"ca.crt": "YQ=="}})).await;
    landscape.until("Secret", "main-client-ca", "it is repaired", |found| found["data"] == ca["data"]).await;

    // A change of a Kubeconfig is in its Secret, and the certificate is renewed before it ends.
    let user = json!({"spec": {"groups": ["team:a", "team:b"], "validity": "3h"}});
    landscape.merge("Kubeconfig", "admin", None, user).await;
    let of_groups = |found: &Value| {
        let leaf = pki::read_first(&value(found, "tls.crt")).unwrap();
        let (_, leaf) = X509Certificate::from_der(&leaf.der).unwrap();
        let groups: Vec<&str> = leaf.subject().iter_organization().filter_map(|one| one.as_str().ok()).collect();
        groups == ["team:a", "team:b", "kubeconfig:admin"]
    };
    let first = landscape.until("Secret", "kubeconfig-cert-admin", "it has the groups", of_groups).await;
    let is_used = async |certificate: &Value| {
        let text = certificate["data"]["tls.crt"].as_str().unwrap().to_owned();
        let has = |found: &Value| String::from_utf8(value(found, "kubeconfig")).unwrap().contains(&text);
        landscape.until("Secret", "admin-kubeconfig", "it has the certificate", has).await;
    };
    is_used(&first).await;
    tokio::time::sleep(std::time::Duration::from_secs(3600)).await;
    let found = landscape.read("Secret", "kubeconfig-cert-admin").await.unwrap();
    assert_eq!(found["data"], first["data"], "after an hour of three");
    tokio::time::sleep(std::time::Duration::from_secs(3660)).await;
    let is_new = |found: &Value| found["data"]["tls.crt"] != first["data"]["tls.crt"];
    let renewed = landscape.until("Secret", "kubeconfig-cert-admin", "it is renewed", is_new).await;
    is_used(&renewed).await;
}

/// Bad input: a CA of the user that cannot sign is named with what is wrong, and works as soon as it is mended.
async fn a_ca_that_a_user_provides_signs_or_says_why_not() {
    let landscape = KcpLandscape::builtin().await;
    let (sound, key) = issuer_with_key("company root");
    let half = secret("own-ca", &[("tls.crt", &sound)]);
    harness::apply(&landscape.client, &half).await;
    for mut resource in resources() {
        if resource["kind"] == "RootShard" {
            let templates = json!({"virtual-workspaces": {"spec": {"issuerRef": {"name": "letsencrypt", "kind": "ClusterIssuer", "group": "cert-manager.io"}}}});
            resource["spec"]["certificates"] = json!({"caSecretRef": {"name": "own-ca"}});
            resource["spec"]["certificateTemplates"] = templates;
        }
        harness::apply(&landscape.client, &resource).await;
    }
    landscape.stage.start();
    let says = |type_: &'static str, text: &'static str| move |found: &Value| condition(found, type_).contains(text);
    landscape
        .until(
            "RootShard",
            "main",
            "it names the key",
            says("tidegate.dev/Mounts", "Secret own-ca has no key `tls.key`"),
        )
        .await;
    let foreign = "ClusterIssuer letsencrypt is not the built-in CA";
    landscape.until("RootShard", "main", "it names the issuer", says("tidegate.dev/Objects", foreign)).await;

    let (_, other) = issuer_with_key("another");
    harness::apply(&landscape.client, &secret("own-ca", &[("tls.crt", &sound), ("tls.key", &other)])).await;
    let mismatch = "False Unusable: Secret main-client-ca: Secret own-ca cannot sign: the key does not belong to the \
                    certificate";
    landscape.until("RootShard", "main", "it says that they differ", says("tidegate.dev/Mounts", mismatch)).await;
    assert!(landscape.read("Secret", "main-server-ca").await.is_none());
    harness::apply(&landscape.client, &secret("own-ca", &[("tls.crt", &sound), ("tls.key", &key)])).await;
    let made = landscape.until("Secret", "main-server-ca", "it is issued", |_| true).await;
    let own = pki::read_first(sound.as_bytes()).unwrap();
    assert!(pki::is_of(&pki::read_first(&value(&made, "tls.crt")).unwrap(), &own));
    landscape.until("Secret", "main-server", "what it signs follows", |_| true).await;
    assert!(landscape.read("Secret", "main-virtual-workspaces").await.is_none());

    // An intermediate CA: only its sub CAs are trusted. Without its Secret, everything that exists stays.
    let signer = rcgen::Issuer::from_ca_cert_pem(&sound, rcgen::KeyPair::from_pem(&key).unwrap()).unwrap();
    let (params, key) = authority("company kcp");
    let below = params.signed_by(&key, &signer).unwrap().pem();
    let own = secret("own-ca", &[("tls.crt", &below), ("tls.key", &key.serialize_pem())]);
    harness::apply(&landscape.client, &own).await;
    landscape.until("Secret", "main-client-ca-trust", "it is made", |_| true).await;
    landscape.stage.rests().await;
    landscape.delete("Secret", "own-ca").await;
    let missing = says("tidegate.dev/Mounts", "Secret own-ca does not exist");
    landscape.until("RootShard", "main", "it names the Secret", missing).await;
    landscape.stage.rests().await;
    for name in ["main-client-ca-trust", "main-requestheader-client-ca-trust", "main-client-ca", "eu-server"] {
        assert!(landscape.read("Secret", name).await.is_some(), "{name}");
    }
}

/// What a CA is to be, and its key.
fn authority(name: &str) -> (rcgen::CertificateParams, rcgen::KeyPair) {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    (params, rcgen::KeyPair::generate().unwrap())
}

/// A self-signed CA: its certificate and its key.
fn issuer_with_key(name: &str) -> (String, String) {
    let (params, key) = authority(name);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// The real cert-manager issues a landscape. The built-in CA takes it over as it is, and what it then issues anew says
/// the same in every part.
async fn what_the_built_in_ca_issues_is_what_cert_manager_issues() {
    let stage = Stage::real(0, Extent::Server, &[], &["--kcp-landscapes"]).await;
    let client = stage.kcp.clone();
    harness::install_crds(&client, &setup::Kind::ALL.map(|kind| serde_json::to_value(kind.crd()).unwrap())).await;
    harness::install_crds_from(&client, "cert-manager-crds.yaml", &[]).await;
    harness::apply(&client, &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})).await;
    let folder = harness::folder();
    let kubeconfig = folder.path().join("cert-manager.kubeconfig");
    let access = stage.landscape.kcp.kubeconfig_of("cert-manager", Some("system:masters"));
    std::fs::write(&kubeconfig, access.text()).unwrap();
    let arguments = [format!("--kubeconfig={}", kubeconfig.display()), format!("--namespace={NAMESPACE}")];
    let log = folder.path().join("cert-manager.log");
    let cert_manager = Guarded::start(harness::cert_manager().await, arguments, folder.path(), &log).unwrap();
    let mut issuer = object("cert-manager.io/v1", "Issuer", "selfsigned");
    issuer["spec"] = json!({"selfSigned": {}});
    harness::apply(&client, &issuer).await;

    let mut wanted: Vec<Value> = resources();
    wanted.retain(|resource| resource["kind"] == "RootShard" || resource["kind"] == "Kubeconfig");
    // Keys of 4096 bits take a minute.
    let small = json!({"spec": {"privateKey": {"algorithm": "ECDSA", "size": 256}}});
    let names = [
        "root-ca",
        "server-ca",
        "requestheader-client-ca",
        "client-ca",
        "service-account-ca",
        "server",
        "service-account",
        "virtual-workspaces",
        "logical-cluster-admin",
        "external-logical-cluster-admin",
        "client",
        "kcp-operator",
    ];
    let templates: serde_json::Map<String, Value> =
        names.iter().map(|name| ((*name).to_owned(), small.clone())).collect();
    for resource in &mut wanted {
        match resource["kind"].as_str() {
            Some("RootShard") => {
                resource["spec"]["cache"] = json!({});
                resource["spec"]["certificates"]["issuerRef"]["kind"] = "Issuer".into();
                resource["spec"]["certificateTemplates"] = templates.clone().into();
                resource["metadata"]["annotations"] = json!({"tidegate.dev/internal-proxy": "disabled"});
            }
            _ => {
                resource["spec"]["target"] = json!({"rootShardRef": {"name": "main"}});
                resource["spec"]["groups"] = json!(["team:b", "team:a", "größe"]);
                resource["spec"]["certificateTemplate"] = small.clone();
            }
        }
        harness::apply(&client, resource).await;
    }
    stage.start();
    let count = names.len() + 1;
    let first = eventually("cert-manager issues all", SOON * 2, async || {
        let all = issued(&client).await;
        if all.len() == count { Ok(all) } else { Err(format!("{} of {count}", all.len())) }
    })
    .await;
    stage.rests().await;
    stage.kill().await;
    drop(cert_manager);

    // As the page says: Certificates and Issuers go, and Secrets stay.
    for kind in ["Certificate", "Issuer"] {
        let api = harness::api_of(&client, &object(api_version(kind), kind, "any")).await.unwrap();
        api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("tidegate.dev/setup"))
            .await
            .unwrap();
    }
    stage.start_with(&["--pki=builtin"]);
    let is_taken = |found: &Value| found["metadata"]["annotations"]["tidegate.dev/pki"] == "builtin";
    for (name, before) in &first {
        let found = stage.until("it is taken over", &client, "Secret", NAMESPACE, name, is_taken).await;
        assert_eq!(found["data"], before["data"], "{name} stays as it is");
    }
    stage.rests().await;

    // Everything anew.
    let secrets = harness::api_of(&client, &object("v1", "Secret", "any")).await.unwrap();
    for (name, before) in &first {
        secrets.delete(name, &DeleteParams::default()).await.unwrap();
        let is_new = |found: &Value| found["data"]["tls.crt"] != before["data"]["tls.crt"];
        stage.until(&format!("{name} is issued anew"), &client, "Secret", NAMESPACE, name, is_new).await;
    }
    stage.rests().await;
    let again = issued(&client).await;
    assert_eq!(again.len(), count);
    for ((name, before), (_, after)) in first.iter().zip(&again) {
        assert_eq!(shape(after), shape(before), "{name}");
    }
}
