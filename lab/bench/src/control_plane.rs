//! A control plane that the caller selects by its kubeconfig.

use std::path::Path;

use anyhow::Context as _;
use kube::config::KubeConfigOptions;
use tidegate_cluster::read_kubeconfig;
use tidegate_process::tls;

/// The configuration of the control plane in a kubeconfig. Sends no request. Fails if the file cannot be read or is
/// invalid.
pub(crate) async fn config_of(path: &Path) -> anyhow::Result<kube::Config> {
    tls::install();
    let kubeconfig = read_kubeconfig(path)
        .map_err(anyhow::Error::msg)
        .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.context("cannot use the kubeconfig; name another with --kubeconfig")
}

/// Replaces the whole answer by the API server's message.
pub(crate) fn sentence(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        other => anyhow::Error::new(other),
    }
}
