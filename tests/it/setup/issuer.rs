//! cert-manager, as far as kcp landscapes need it: it issues what Certificates ask for, from the Secrets of Issuers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures::{
    StreamExt as _,
    future::ready,
    stream::{self, BoxStream},
};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, WatchParams},
};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness;

/// How long it waits after a change before it looks for work, and between tries to issue what it cannot issue yet.
const PAUSE: Duration = Duration::from_millis(50);
/// How many changes it takes at once.
const CHANGES_MAX: usize = 1_000;

/// cert-manager in a task. It ends with this value.
pub(super) struct CertManager {
    task: JoinHandle<()>,
    failures: Arc<AtomicUsize>,
}

/// Its kinds, with any content.
pub(super) fn certificate_kinds() -> Vec<Value> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = |kind: &str, plural: &str| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cert-manager.io")},
            "spec": {
                "group": "cert-manager.io", "scope": "Namespaced",
                "names": {
                    "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                },
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }],
            },
        })
    };
    vec![crd("Issuer", "issuers"), crd("Certificate", "certificates")]
}

/// The certificate of a CA, in PEM.
pub(super) fn authority(name: &str) -> String {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.self_signed(&key).unwrap().pem()
}

// === impl CertManager ===

impl CertManager {
    pub(super) fn start(client: &Client, namespace: &str) -> CertManager {
        let failures = Arc::new(AtomicUsize::default());
        let (client, namespace, counted) = (client.clone(), namespace.to_owned(), Arc::clone(&failures));
        let task = tokio::spawn(async move {
            let of = |version: &str, kind: &str| {
                let metadata = json!({"namespace": namespace});
                json!({"apiVersion": version, "kind": kind, "metadata": metadata})
            };
            let certificates = harness::api_of(&client, &of("cert-manager.io/v1", "Certificate")).await.unwrap();
            let issuers = harness::api_of(&client, &of("cert-manager.io/v1", "Issuer")).await.unwrap();
            let secrets = harness::api_of(&client, &of("v1", "Secret")).await.unwrap();
            let cluster = Cluster { client, namespace: namespace.clone(), issuers, secrets };
            loop {
                // It looks only after a change: most of the time of a test, there is none.
                let mut changes = cluster.changes(&certificates).await.ready_chunks(CHANGES_MAX);
                loop {
                    let failures = cluster.issue_all(&certificates).await;
                    counted.fetch_add(failures, Ordering::Relaxed);
                    if failures == 0 {
                        let heard = changes.next().await.unwrap_or_default();
                        if heard.is_empty() || heard.contains(&false) {
                            break;
                        }
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        CertManager { task, failures }
    }

    /// How often a Certificate could not be issued, because its CA was missing.
    pub(super) fn failures(&self) -> usize {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Drop for CertManager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Cluster {
    client: Client,
    namespace: String,
    issuers: Api<DynamicObject>,
    secrets: Api<DynamicObject>,
}

impl Cluster {
    /// `true` for each change of a Certificate or Secret, and `false` once a watch ends.
    async fn changes(&self, certificates: &Api<DynamicObject>) -> BoxStream<'static, bool> {
        let mut watches = Vec::new();
        for api in [certificates, &self.secrets] {
            let events = api.watch(&WatchParams::default(), "0").await.unwrap();
            watches.push(events.map(|event| event.is_ok()).chain(stream::once(ready(false))).boxed());
        }
        stream::select_all(watches).boxed()
    }

    /// Issues all Certificates that need it. Returns how many could not be issued.
    async fn issue_all(&self, certificates: &Api<DynamicObject>) -> usize {
        let mut failures = 0;
        for certificate in certificates.list(&ListParams::default()).await.unwrap().items {
            let certificate = serde_json::to_value(certificate).unwrap();
            if !self.is_done(&certificate).await && !self.issue(certificates, &certificate).await {
                failures += 1;
            }
        }
        failures
    }

    async fn secret(&self, name: &str) -> Option<Value> {
        self.secrets.get_opt(name).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    async fn is_done(&self, certificate: &Value) -> bool {
        let ready = &certificate["status"]["conditions"][0];
        let is_current = ready["observedGeneration"] == certificate["metadata"]["generation"];
        let name = certificate["spec"]["secretName"].as_str().unwrap();
        certificate["metadata"]["deletionTimestamp"].is_string()
            || (ready["status"] == "True" && is_current && self.secret(name).await.is_some())
    }

    /// Issues a Certificate. Returns whether its CA is there.
    async fn issue(&self, certificates: &Api<DynamicObject>, certificate: &Value) -> bool {
        let (spec, metadata) = (&certificate["spec"], &certificate["metadata"]);
        let (name, secret) = (metadata["name"].as_str().unwrap(), spec["secretName"].as_str().unwrap());
        let key = KeyPair::generate().unwrap();
        let names = spec["dnsNames"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let mut params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if let Some(common_name) = spec["commonName"].as_str() {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        if spec["isCA"] == true {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let (pem, ca) = if spec["issuerRef"]["kind"] == "ClusterIssuer" {
            let pem = params.self_signed(&key).unwrap().pem();
            (pem.clone(), pem)
        } else {
            let Some(authority) = self.authority(spec["issuerRef"]["name"].as_str().unwrap()).await else {
                return false;
            };
            let text = |field: &str| {
                let text = STANDARD.decode(authority["data"][field].as_str().unwrap_or_default()).unwrap();
                String::from_utf8(text).unwrap()
            };
            let (chain, root) = (text("tls.crt"), text("ca.crt"));
            let issuer = Issuer::from_ca_cert_pem(&chain, KeyPair::from_pem(&text("tls.key")).unwrap());
            let pem = params.signed_by(&key, &issuer.unwrap()).unwrap().pem();
            // A chain ends below its root.
            if root.is_empty() || root == chain { (pem, chain) } else { (format!("{pem}{chain}"), root) }
        };
        let encoded = |text: &str| STANDARD.encode(text);
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": secret, "namespace": self.namespace, "labels": spec["secretTemplate"]["labels"]},
            "data": {"tls.crt": encoded(&pem), "tls.key": encoded(&key.serialize_pem()), "ca.crt": encoded(&ca)},
        });
        harness::apply(&self.client, &object).await;
        let ready = json!({"type": "Ready", "status": "True", "reason": "Ready", "message": "it is issued",
            "observedGeneration": metadata["generation"], "lastTransitionTime": "2026-11-26T00:00:00Z"});
        let status = Patch::Merge(json!({"status": {"conditions": [ready]}}));
        // It may be gone meanwhile.
        let _ = certificates.patch_status(name, &PatchParams::default(), &status).await;
        true
    }

    /// The Secret with the CA of an Issuer.
    async fn authority(&self, issuer: &str) -> Option<Value> {
        let issuer = serde_json::to_value(self.issuers.get_opt(issuer).await.unwrap()?).unwrap();
        self.secret(issuer["spec"]["ca"]["secretName"].as_str()?).await
    }
}
