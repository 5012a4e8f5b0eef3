//! A kcp landscape: its objects come in order, with certificates of the built-in CA, and a change in git is in the
//! kubeconfig of its user.

use std::time::Instant;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use serde_json::json;
use tidegate_core::api::names;
use tidegate_testbed as testbed;

use super::{Tour, steps::short};
use crate::demo::{
    landscape::{KCP, KCP_GROUPS, KCP_TEXT},
    report,
};

/// The Secret with the kubeconfig of the user.
const KUBECONFIG: &str = "admin-kubeconfig";
/// The Secret with the user's certificate.
const CERTIFICATE: &str = "kubeconfig-cert-admin";

impl Tour<'_> {
    pub(super) async fn kcp_landscape(&self) -> anyhow::Result<String> {
        self.repository.write(KCP, KCP_TEXT)?;
        let commit = self.repository.commit("A kcp landscape")?;
        report::doing(&format!("{}: a RootShard, a FrontProxy and a Kubeconfig of kcp", short(&commit)));
        self.until("the landscape is applied", async || self.is_applied(&commit).await).await?;
        let first = self.until("the kubeconfig is in its Secret", async || self.kubeconfig("").await).await?;
        let secrets = self.secrets().list(&ListParams::default().labels(names::label::SETUP)).await;
        let issued = secrets.context("cannot list Secrets")?.items.into_iter();
        let issued = issued.filter(|found| found.type_.as_deref() == Some("kubernetes.io/tls")).count();
        report::seen(&format!("{issued} certificates, issued by the built-in CA: cert-manager is not needed"));
        self.until("the Deployment of the root shard exists", async || self.has_root_shard().await).await?;
        report::seen("the Deployment of the root shard follows, once all that it mounts exists");

        let [before, after] = KCP_GROUPS;
        self.repository.write(KCP, &KCP_TEXT.replace(before, after))?;
        let commit = self.repository.commit("admin joins company:support")?;
        report::doing(&format!("{}: the Kubeconfig has another group", short(&commit)));
        let since = Instant::now();
        self.until("the kubeconfig has a new certificate", async || self.kubeconfig(&first).await).await?;
        let took = since.elapsed().as_secs_f64();
        let seen = format!("a change of a user's groups in git was in the kubeconfig after {took:.1} s");
        report::seen(&seen);
        Ok(seen)
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.kcp_client.clone(), names::KCP_NAMESPACE)
    }

    /// The kubeconfig of the user, with the certificate that was issued last and another one than in `former`.
    async fn kubeconfig(&self, former: &str) -> Result<String, String> {
        let value = async |name: &str, key: &str| {
            let found = self.secrets().get_opt(name).await.map_err(|error| error.to_string())?;
            let found = found.ok_or_else(|| format!("no Secret {name}"))?;
            let value = found.data.unwrap_or_default().remove(key).ok_or_else(|| format!("{name} has no {key}"))?;
            Ok::<_, String>(value.0)
        };
        let text = String::from_utf8_lossy(&value(KUBECONFIG, "kubeconfig").await?).into_owned();
        let issued = json!(k8s_openapi::ByteString(value(CERTIFICATE, "tls.crt").await?));
        if !text.contains(issued.as_str().unwrap_or_default()) {
            return Err("the kubeconfig has not the issued certificate yet".to_owned());
        }
        if text == former { Err("the kubeconfig is still the former one".to_owned()) } else { Ok(text) }
    }

    async fn has_root_shard(&self) -> Result<(), String> {
        let sample =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": names::KCP_NAMESPACE}});
        let api: Api<DynamicObject> =
            testbed::api_of(&self.world.kcp_client, &sample).await.map_err(|error| error.to_string())?;
        let found = api.get_opt("main-kcp").await.map_err(|error| error.to_string())?;
        found.map(drop).ok_or_else(|| "no Deployment main-kcp".to_owned())
    }
}
