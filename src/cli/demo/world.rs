//! The clusters of the demo, and what a KCP holds before Tidegate comes to it: CRDs, the Gateway, access Secrets.

use std::{fs, path::Path};

use anyhow::Context as _;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    api::{self, names},
    testbed::{self, Assets, ControlPlane, Etcd, Extent, Options},
};

use super::report;

/// The user that the daemon is in all clusters, so that the audit log can tell its requests from others.
pub(super) const DAEMON: &str = "tidegate";
/// Where Istio keeps what belongs to Gateways.
const ISTIO_NAMESPACE: &str = "istio-system";
/// The Istio CRDs that a KCP needs for us.
const ISTIO_CRDS: &[&str] = &["gateways.networking.istio.io", "virtualservices.networking.istio.io"];

/// A KCP and its runtimes.
pub(super) struct World {
    assets: Assets,
    /// The control plane cluster.
    pub(super) kcp: ControlPlane,
    /// The runtimes, `skr-1`, `skr-2`, …
    pub(super) skrs: Vec<ControlPlane>,
    /// The administrator's client of the KCP.
    pub(super) kcp_client: Client,
    /// The administrators' clients of the runtimes, in the same order.
    pub(super) skr_clients: Vec<Client>,
}

impl World {
    /// Starts all servers side by side and writes their kubeconfigs to `folder`.
    pub(super) async fn start(folder: &Path, runtimes: usize) -> anyhow::Result<World> {
        let assets = Assets::load(&|line: &str| report::doing(line)).await?;
        report::doing("starting etcd, a KCP and the runtimes");
        let servers = folder.join("servers");
        let etcd = Etcd::start(&assets, Some(&servers.join("etcd"))).await?;
        let start = |name: String, extent: Extent| {
            let folder = Some(servers.join(&name));
            let options = Options { name, etcd: Some(etcd.clone()), extent, audit: true, folder, ..Options::default() };
            ControlPlane::start(&assets, options)
        };
        let skrs = (1..=runtimes).map(|index| start(format!("skr-{index}"), Extent::Node));
        let (kcp, skrs) =
            tokio::try_join!(start("kcp".to_owned(), Extent::Controllers), futures::future::try_join_all(skrs))?;
        for server in std::iter::once(&kcp).chain(&skrs) {
            write(&folder.join(format!("{}.kubeconfig", server.name())), &server.kubeconfig().text())?;
        }
        let kcp_client = kcp.client()?;
        let skr_clients = skrs.iter().map(ControlPlane::client).collect::<Result<_, _>>()?;
        Ok(World { assets: assets.clone(), kcp, skrs, kcp_client, skr_clients })
    }

    /// The kubeconfig with which the daemon goes to the KCP, as a file.
    pub(super) fn daemon_kubeconfig(&self, folder: &Path) -> anyhow::Result<std::path::PathBuf> {
        let path = folder.join("daemon.kubeconfig");
        write(&path, &self.kcp.kubeconfig_of(DAEMON, Some("system:masters"))?.text())?;
        Ok(path)
    }

    /// Brings the KCP to where a platform team has it before the first Kyma: CRDs, namespaces, Istio's Gateway, and
    /// for each runtime the Secret that gives access to it.
    pub(super) async fn prepare(&self, kymas: &[&str]) -> anyhow::Result<()> {
        let mut crds = api::crds().iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        crds.extend(testbed::read_crds(&self.assets.file("istio-crds.yaml"), ISTIO_CRDS)?);
        testbed::install_crds(&self.kcp_client, &crds).await?;
        for namespace in [names::KCP_NAMESPACE, ISTIO_NAMESPACE] {
            self.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await?;
        }
        self.apply(&gateway()).await?;
        for (kyma, skr) in kymas.iter().zip(&self.skrs) {
            let kubeconfig = skr.kubeconfig_of(DAEMON, Some("system:masters"))?;
            self.apply(&access_secret(kyma, &kubeconfig.text())).await?;
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

/// The Gateway whose host runtimes send their events to.
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

/// What a provisioning service leaves in the KCP for each runtime.
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
