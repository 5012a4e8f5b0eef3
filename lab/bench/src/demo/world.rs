//! The clusters of the demo, and the objects of a KCP before Tidegate is installed: CRDs, the Gateway, access Secrets.

use std::{fs, path::Path, time::Duration};

use crate::servers::{Ground, Make, Server};
use anyhow::Context as _;
use kube::Client;
use kube_sim::{self as sim, Readiness};
use serde_json::{Value, json};
use tidegate_core::api::{self, names};
use tidegate_testbed::{self as testbed, Extent};

use super::{given::Given, report};

/// The user name of the daemon in all clusters, which distinguishes its requests from others.
pub(super) const DAEMON: &str = "tidegate";
/// The namespace of Istio, with the Secrets of Gateways.
const ISTIO_NAMESPACE: &str = "istio-system";
/// The Istio CRDs that a KCP needs for us.
const ISTIO_CRDS: &[&str] = &["gateways.networking.istio.io", "virtualservices.networking.istio.io"];
/// How long a Deployment takes in a simulated runtime, so that the user can watch it.
const ROLLOUT: Duration = Duration::from_millis(300);

/// A KCP and its runtimes.
pub(super) struct World {
    /// The CRDs of Istio that the KCP has.
    istio: Vec<Value>,
    /// The servers; none if the user gave the clusters.
    pub(super) own: Option<Own>,
    /// The daemon's kubeconfig for the KCP.
    daemon: String,
    /// The daemon's kubeconfigs for the runtimes, in their order.
    access: Vec<String>,
    /// The administrator's client of the KCP.
    pub(super) kcp_client: Client,
    /// The administrators' clients of the runtimes, in the same order.
    pub(super) skr_clients: Vec<Client>,
}

/// Servers that the demo has started.
pub(super) struct Own {
    /// The control plane cluster.
    pub(super) kcp: Server,
    /// The runtimes, `skr-1`, `skr-2`, …
    pub(super) skrs: Vec<Server>,
}

impl World {
    /// Uses clusters of the user, and writes their kubeconfigs to `folder`.
    pub(super) fn given(folder: &Path, given: &Given) -> anyhow::Result<World> {
        for cluster in std::iter::once(given.kcp()).chain(given.runtimes()) {
            write(&folder.join(format!("{}.kubeconfig", cluster.name)), cluster.kubeconfig())?;
        }
        Ok(World {
            istio: istio_crds(),
            own: None,
            daemon: given.kcp().kubeconfig().to_owned(),
            access: given.runtimes().iter().map(|cluster| cluster.kubeconfig().to_owned()).collect(),
            kcp_client: given.kcp().client.clone(),
            skr_clients: given.runtimes().iter().map(|cluster| cluster.client.clone()).collect(),
        })
    }

    /// Starts all servers and writes their kubeconfigs to `folder`.
    pub(super) async fn start(folder: &Path, make: Make, runtimes: usize) -> anyhow::Result<World> {
        let (istio, kcp, skrs) = match make {
            Make::Simulated => {
                report::doing(&format!("starting a KCP and {runtimes} runtimes, simulated in this process"));
                let options = sim::Options { readiness: Readiness::After(ROLLOUT), ..sim::Options::default() };
                let kcp = Server::simulated("kcp", &options).await?;
                let mut skrs = Vec::with_capacity(runtimes);
                for index in 1..=runtimes {
                    skrs.push(Server::simulated(&runtime_name(index), &options).await?);
                }
                (istio_crds(), kcp, skrs)
            }
            Make::Real => real(folder, runtimes).await?,
        };
        for server in std::iter::once(&kcp).chain(&skrs) {
            write(&folder.join(format!("{}.kubeconfig", server.name())), &server.kubeconfig().text())?;
        }
        let kcp_client = kcp.client()?;
        let skr_clients = skrs.iter().map(Server::client).collect::<Result<_, _>>()?;
        let daemon = kcp.kubeconfig_of(DAEMON)?.text();
        let access = skrs.iter().map(|skr| Ok(skr.kubeconfig_of(DAEMON)?.text())).collect::<anyhow::Result<_>>()?;
        Ok(World { istio, own: Some(Own { kcp, skrs }), daemon, access, kcp_client, skr_clients })
    }

    /// Writes the daemon's kubeconfig for the KCP to a file.
    pub(super) fn daemon_kubeconfig(&self, folder: &Path) -> anyhow::Result<std::path::PathBuf> {
        let path = folder.join("daemon.kubeconfig");
        write(&path, &self.daemon)?;
        Ok(path)
    }

    /// Prepares the KCP as a platform team does before the first Kyma: CRDs, namespaces, Istio's Gateway, and the
    /// access Secret of each runtime.
    pub(super) async fn prepare(&self, kymas: &[String]) -> anyhow::Result<()> {
        let mut crds = api::crds().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        crds.extend(self.istio.iter().cloned());
        if self.own.is_some() {
            let of_kcp = api::setup::Kind::ALL.iter().map(|kind| serde_json::to_value(kind.crd()));
            crds.extend(of_kcp.collect::<Result<Vec<_>, _>>()?);
        }
        testbed::install_crds(&self.kcp_client, &crds).await?;
        for namespace in [names::KCP_NAMESPACE, ISTIO_NAMESPACE] {
            self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await?;
        }
        self.apply(&gateway()).await?;
        for (kyma, access) in kymas.iter().zip(&self.access) {
            self.apply(&access_secret(kyma, access)).await?;
        }
        Ok(())
    }

    /// Applies an object to the KCP, as its administrator.
    pub(super) async fn apply(&self, object: &Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        testbed::apply(&self.kcp_client, object).await.with_context(|| format!("cannot apply {name} to the KCP"))?;
        Ok(())
    }
}

/// Starts all servers as processes, side by side.
async fn real(folder: &Path, runtimes: usize) -> anyhow::Result<(Vec<Value>, Server, Vec<Server>)> {
    let servers = folder.join("servers");
    let ground = Ground::prepare(&|line: &str| report::doing(line), Some(&servers.join("etcd"))).await?;
    report::doing(&format!("starting a KCP and {runtimes} runtimes as processes"));
    let start = async |name: String, extent: Extent| {
        let folder = servers.join(&name);
        ground.start(name, extent, Some(&folder)).await
    };
    let skrs = futures::future::try_join_all((1..=runtimes).map(|index| start(runtime_name(index), Extent::Node)));
    let (kcp, skrs) = tokio::try_join!(start("kcp".to_owned(), Extent::Controllers), skrs)?;
    let istio = testbed::read_crds(&ground.assets.file("istio-crds.yaml"), ISTIO_CRDS)?;
    Ok((istio, kcp, skrs))
}

/// The name of a runtime, from 1.
pub(super) fn runtime_name(index: usize) -> String {
    format!("skr-{index}")
}

/// The CRDs of Istio as far as Tidegate needs them: the kinds, without validation.
fn istio_crds() -> Vec<Value> {
    let crd = |kind: &str, singular: &str| {
        let plural = format!("{singular}s");
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.networking.istio.io")},
            "spec": {
                "group": "networking.istio.io", "scope": "Namespaced",
                "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
                "versions": [{
                    "name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    }}},
                }],
            },
        })
    };
    vec![crd("Gateway", "gateway"), crd("VirtualService", "virtualservice")]
}

/// The Gateway that receives the events of runtimes.
fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1beta1", "kind": "Gateway",
        "metadata": {
            "name": names::GATEWAY, "namespace": names::KCP_NAMESPACE,
            "labels": {"operator.kyma-project.io/watcher-gateway": "default"},
        },
        "spec": {
            "selector": {"istio": "ingressgateway"},
            "servers": [{
                "port": {"number": 443, "name": "https", "protocol": "HTTPS"},
                "hosts": ["listener.kcp.example.org"],
                "tls": {"mode": "MUTUAL", "credentialName": names::GATEWAY_SECRET, "minProtocolVersion": "TLSV1_3"},
            }],
        },
    })
}

/// The access Secret that a provisioning service creates in the KCP for each runtime.
fn access_secret(kyma: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": format!("kubeconfig-{kyma}"), "namespace": names::KCP_NAMESPACE,
            "labels": {names::label::KYMA_NAME: kyma, names::label::MANAGED_BY: names::MANAGED_BY_KCP},
        },
        "stringData": {names::ACCESS_SECRET_KEY: kubeconfig},
    })
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
